"""Decisions about publications: publish one again after an outside writer overwrote it, or stop its
table until an administrator checks it.

A check of a table takes its turn among the table's commits. A commit that is about to run checks
its table first, and overwritten publications come before it.
"""

from __future__ import annotations

from dataclasses import replace

from paimon_magics.coordinator.core.events import (
    ChainCut,
    CheckFailed,
    CheckFinished,
    CheckRequested,
    CheckTable,
    CutPublications,
    DropPublication,
    Effect,
    ForgetPublications,
    Noted,
    NotPublished,
    RemoveFiles,
    Reply,
    Republish,
    Republished,
    RepublishUnclear,
    ResumeRequested,
    Save,
    SavePublication,
    SaveStopped,
    TableDropped,
    TableMoved,
)
from paimon_magics.coordinator.core.state import (
    CHECKING,
    State,
    Step,
    aborting,
    answered,
    next_job,
    run_check,
    updated,
    with_transaction,
    without,
)
from paimon_magics.coordinator.core.values import (
    Answer,
    Done,
    Halted,
    Phase,
    Refusal,
    Stopped,
    Suspended,
    TransactionState,
    Unchecked,
)
from paimon_magics.planning.commits.publications import Publication, PublicationFinding, Verdict
from paimon_magics.statements.statement import TableName


def published(
    state: State,
    location: str,
    publication: Publication | None,
    findings: tuple[PublicationFinding, ...],
    now_ms: int,
) -> Step:
    """After a commit: watch its publication, and stop watching publications that the findings
    settle.
    """
    state, effects = _settle(state, location, findings)
    if publication is None:
        return state, effects
    watched = replace(publication, kept_until_ms=now_ms + state.limits.receipt_retention_ms)
    state = _watch(state, (*state.watched.get(location, ()), watched), location)
    state = replace(state, checked_at_ms={**state.checked_at_ms, location: now_ms})
    return state, (*effects, SavePublication(watched, watched=True))


def ask_check(state: State, event: CheckRequested) -> Step:
    """Check the table for a client that is about to commit to it outside transactions."""
    stopped = state.stopped.get(event.location)
    if stopped is not None:
        return state, (Reply(event.ask, Halted(stopped.reason)),)
    if not state.watched.get(event.location):
        return state, (Reply(event.ask, Done()),)
    asks = (*state.check_asks.get(event.location, ()), event.ask)
    state = replace(state, check_asks={**state.check_asks, event.location: asks})
    return (state, ()) if event.location in state.running else run_check(state, event.location)


def due_checks(state: State, now_ms: int) -> Step:
    """Check the idle tables that have not been checked for a while."""
    effects: list[Effect] = []
    for location, watched in state.watched.items():
        if location in state.running or location in state.stopped:
            continue
        old = {p.id for p in watched if p.kept_until_ms <= now_ms}
        state, settled = _unwatch(state, location, old)
        effects += settled
        due_ms = state.checked_at_ms.get(location, 0) + state.limits.watch_every_ms
        if now_ms >= due_ms and location in state.watched:
            state, checks = run_check(state, location)
            effects += checks
    return state, tuple(effects)


def check_finished(state: State, event: CheckFinished) -> Step:
    """After a check, publish overwritten commits again, then continue with waiting commits."""
    location = event.location
    state = replace(state, checked_at_ms={**state.checked_at_ms, location: event.now_ms})
    if event.before:
        queue = (event.before, *state.queues.get(location, ()))
        state = replace(state, queues={**state.queues, location: queue})
    finished = {transaction.id: transaction for transaction in event.finished}
    findings = _still_watched(state, location, event.findings)
    state, effects = _settle(state, location, findings)
    for finding in findings:
        if finding.verdict is Verdict.REPUBLISHED:
            state, moved = _moved(state, location, finding, finished.get(finding.id))
            effects = (*effects, *moved)
    if any(finding.verdict is Verdict.LOST for finding in findings):
        state, stopping = _stop(state, location, findings, finished, event.now_ms)
        return state, (*effects, *stopping)
    again = tuple(f.id for f in findings if f.verdict is Verdict.OVERWRITTEN)
    if again:
        state = replace(
            state,
            running={**state.running, location: CHECKING},
            overwritten={**state.overwritten, location: again},
        )
        return state, (*effects, Republish(_publication(state, location, again[0])))
    state, following = _go_on(state, location, Done())
    return state, (*effects, *following)


def check_failed(state: State, event: CheckFailed) -> Step:
    """Go on; the table is checked again after a while, or before its next commit."""
    state = replace(state, checked_at_ms={**state.checked_at_ms, event.location: event.now_ms})
    return _go_on(state, event.location, Unchecked(event.reason))


def republished(state: State, event: Republished) -> Step:
    """Remember the new snapshot, and continue with the next publication; or stop the table."""
    location, finding = event.location, event.finding
    if finding.verdict is Verdict.LOST:
        state = replace(state, overwritten=without(state.overwritten, location))
        finished = {} if event.finished is None else {event.finished.id: event.finished}
        return _stop(state, location, (finding,), finished, event.now_ms)
    if finding.publication is None:  # no publication is needed, after all
        state, effects = _unwatch(state, location, {finding.id})
    else:
        state, effects = _moved(state, location, finding, event.finished)
    watched = {p.id for p in state.watched.get(location, ())} - {finding.id}
    rest = tuple(id for id in state.overwritten.get(location, ()) if id in watched)
    if rest:
        state = replace(state, overwritten={**state.overwritten, location: rest})
        return state, (*effects, Republish(_publication(state, location, rest[0])))
    state = replace(state, overwritten=without(state.overwritten, location))
    state, following = _go_on(state, location, Done())
    return state, (*effects, *following)


def republish_unclear(state: State, event: RepublishUnclear) -> Step:
    """Check again: nothing may be published before the table's contents are known."""
    state = replace(state, overwritten=without(state.overwritten, event.location))
    return state, (CheckTable(event.location),)


def note(state: State, event: Noted) -> Step:
    """Watch a publication outside transactions that was made or is about to be made.

    In a pause, a publication that is about to be made is refused.
    """
    if state.pause is not None and not event.publication.certain:
        return state, (Reply(event.ask, Suspended(state.pause)),)
    location, id = event.publication.location, event.publication.id
    others = tuple(p for p in state.watched.get(location, ()) if p.id != id)
    state = _watch(state, others, location)
    state, effects = published(state, location, event.publication, (), event.now_ms)
    return state, (*effects, Reply(event.ask, Done()))


def not_published(state: State, event: NotPublished) -> Step:
    """Forget a publication that was announced and not made."""
    state, effects = _unwatch(state, event.publication.location, {event.publication.id}, lost=True)
    return state, (*effects, Reply(event.ask, Done()))


def cut_chain(state: State, event: ChainCut) -> Step:
    """Before a removal on purpose, such as a rollback: the removed snapshots must not come back,
    neither by the watch nor when their commits are sent again.
    """
    uncertain = {
        p.id
        for p in state.watched.get(event.location, ())
        if p.table.branch == event.branch and p.snapshot_id > event.above and not p.certain
    }
    state, effects = _unwatch(state, event.location, uncertain)
    remaining = tuple(
        p
        for p in state.watched.get(event.location, ())
        if p.table.branch != event.branch or p.snapshot_id <= event.above
    )
    cut = CutPublications(event.location, event.branch, event.above)
    state = _watch(state, remaining, event.location)
    return state, (*effects, cut, Reply(event.ask, Done()))


def drop_table(state: State, event: TableDropped) -> Step:
    """Forget everything about a dropped table."""
    effects: list[Effect] = [ForgetPublications(event.location)]
    if event.location in state.stopped:
        effects.append(SaveStopped(event.location, None))
    state = replace(
        _watch(state, (), event.location),
        stopped=without(state.stopped, event.location),
        checked_at_ms=without(state.checked_at_ms, event.location),
    )
    return state, (*effects, Reply(event.ask, Done()))


def move_table(state: State, event: TableMoved) -> Step:
    """Keep what is known about a table, or a branch of it, under its new name."""
    effects: list[Effect] = []
    remaining, moved = [], []
    for p in state.watched.get(event.location, ()):
        if event.branch is not None and p.table.branch != event.branch:
            remaining.append(p)
            continue
        branch = event.to.branch if event.branch is not None else p.table.branch
        name = TableName(event.to.table, event.to.database, branch=branch)
        moved.append(replace(p, table=name, location=event.to_location))
        effects.append(SavePublication(moved[-1], watched=True))
    state = _watch(state, tuple(remaining), event.location)
    there = state.watched.get(event.to_location, ())
    state = _watch(state, (*there, *moved), event.to_location)
    stopped = state.stopped.get(event.location)
    if stopped is not None and event.to_location != event.location:
        others = without(state.stopped, event.location)
        state = replace(state, stopped={**others, event.to_location: stopped})
        effects += [SaveStopped(event.location, None), SaveStopped(event.to_location, stopped)]
    return state, (*effects, Reply(event.ask, Done()))


def resume(state: State, event: ResumeRequested) -> Step:
    """Let a stopped table take commits again, as it is."""
    if event.location not in state.stopped:
        return state, (Reply(event.ask, Done()),)
    state = replace(state, stopped=without(state.stopped, event.location))
    return state, (SaveStopped(event.location, None), Reply(event.ask, Done()))


# ---- their parts ----


def _go_on(state: State, location: str, answer: Answer) -> Step:
    asks = state.check_asks.get(location, ())
    state = replace(state, check_asks=without(state.check_asks, location))
    state, following = next_job(state, location)
    return state, (*(Reply(ask, answer) for ask in asks), *following)


def _settle(state: State, location: str, findings: tuple[PublicationFinding, ...]) -> Step:
    """Stop watching settled publications, and mark intact publications as certain."""
    verdicts = {finding.id: finding.verdict for finding in findings}
    settled = {id for id, verdict in verdicts.items() if verdict is Verdict.SETTLED}
    state, effects = _unwatch(state, location, settled)
    for p in state.watched.get(location, ()):
        if verdicts.get(p.id) is Verdict.INTACT and not p.certain:
            certain = replace(p, certain=True)
            watched = tuple(certain if q.id == p.id else q for q in state.watched[location])
            state = _watch(state, watched, location)
            effects = (*effects, SavePublication(certain, watched=True))
    return state, effects


def _unwatch(state: State, location: str, ids: set[str], *, lost: bool = False) -> Step:
    """Stop watching publications; delete uncertain and lost publications from the store."""
    watched = state.watched.get(location, ())
    effects = tuple(
        DropPublication(p.id) if lost or not p.certain else SavePublication(p, watched=False)
        for p in watched
        if p.id in ids
    )
    return _watch(state, tuple(p for p in watched if p.id not in ids), location), effects


def _watch(state: State, watched: tuple[Publication, ...], location: str) -> State:
    return replace(state, watched=updated(state.watched, location, watched))


def _still_watched(
    state: State, location: str, findings: tuple[PublicationFinding, ...]
) -> tuple[PublicationFinding, ...]:
    watched = {p.id for p in state.watched.get(location, ())}
    return tuple(finding for finding in findings if finding.id in watched)


def _publication(state: State, location: str, id: str) -> Publication:
    return next(p for p in state.watched[location] if p.id == id)


def _moved(
    state: State, location: str, finding: PublicationFinding, finished: TransactionState | None
) -> Step:
    """Watch an overwritten commit as the new snapshot with which it is in the table again."""
    if all(p.id != finding.id for p in state.watched.get(location, ())):
        return state, ()  # it was rolled back meanwhile, or its table dropped
    before = _publication(state, location, finding.id)
    assert finding.publication is not None
    publication = replace(finding.publication, kept_until_ms=before.kept_until_ms)
    watched = tuple(p for p in state.watched[location] if p.id != finding.id)
    state = _watch(state, (*watched, publication), location)
    effects: list[Effect] = [SavePublication(publication, watched=True)]
    if finished is not None:
        effects.append(Save(replace(finished, receipt=finding.receipt, reason=finding.account)))
    return state, tuple(effects)


def _stop(
    state: State,
    location: str,
    findings: tuple[PublicationFinding, ...],
    finished: dict[str, TransactionState],
    now_ms: int,
) -> Step:
    """Stop the table: refuse its waiting commits, and let nothing be published on it."""
    lost = tuple(finding for finding in findings if finding.verdict is Verdict.LOST)
    stopped = Stopped(" ".join(finding.account for finding in lost), now_ms)
    ids = {finding.id for finding in lost}
    state, effects = _unwatch(state, location, ids, lost=True)
    state = replace(state, stopped={**state.stopped, location: stopped})
    out: list[Effect] = [*effects, SaveStopped(location, stopped)]
    for finding in lost:
        transaction = finished.get(finding.id)
        if transaction is not None:
            out.append(Save(replace(transaction, phase=Phase.LOST, reason=finding.account)))
    queue = state.queues.get(location, ())
    refused = tuple(id for id in queue if state.transactions[id].phase is Phase.COMMITTING)
    for id in refused:
        ended = aborting(state.transactions[id], stopped.reason, now_ms)
        state, replies = answered(with_transaction(state, ended), id, Refusal(stopped.reason))
        out += [Save(ended), *replies, RemoveFiles(id)]
    rest = tuple(id for id in queue if id not in refused)
    state = replace(state, queues=updated(state.queues, location, rest))
    state, following = _go_on(state, location, Halted(stopped.reason))
    return state, (*out, *following)
