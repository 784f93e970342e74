"""What the core decides about published snapshots, case by case."""

from __future__ import annotations

from dataclasses import replace

from paimon_magics.coordinator.core.events import (
    ChainCut,
    CheckFailed,
    CheckFinished,
    CheckRequested,
    CheckTable,
    CommitPublished,
    CommitRequested,
    CutPublications,
    DropPublication,
    Effect,
    Event,
    ForgetPublications,
    LookUpCommit,
    Noted,
    NotPublished,
    PauseRequested,
    RemoveFiles,
    Reply,
    Republish,
    Republished,
    RepublishUnclear,
    Restored,
    ResumeRequested,
    RunCommit,
    Save,
    SavePublication,
    SaveStopped,
    TableDropped,
    TableMoved,
    Ticked,
)
from paimon_magics.coordinator.core.state import State, pending_commits
from paimon_magics.coordinator.core.step import step
from paimon_magics.coordinator.core.values import (
    Committed,
    Done,
    Halted,
    Limits,
    Overwritten,
    Pause,
    Phase,
    Refusal,
    Stopped,
    Suspended,
    TransactionState,
    Unchecked,
)
from paimon_magics.planning.commits.publications import Publication, PublicationFinding, Verdict
from paimon_magics.planning.commits.requests import CommitReceipt
from paimon_magics.statements.statement import TableName
from tests.coordinator.core.requests import begin

LIMITS = Limits(receipt_retention_ms=10_000, watch_every_ms=1000)
RECEIPT = CommitReceipt(7, "APPEND", 10, 3)
PUBLISHED = Publication("a", TableName("t", "d"), "t", 7, "list-7", "user", 1, "APPEND", 5)
KEPT = replace(PUBLISHED, kept_until_ms=10_005)
AGAIN = replace(KEPT, snapshot_id=8, manifest_list="list-8")
STORED = TransactionState("a", "t", Phase.COMMITTED, 10_005, "me", "x", RECEIPT)
NEW_RECEIPT = CommitReceipt(8, "APPEND", 13, 3)


def after(*events: Event) -> State:
    state = State(LIMITS)
    for event in events:
        state, _ = step(state, event)
    return state


def effects_of(state: State, event: Event) -> tuple[Effect, ...]:
    return step(state, event)[1]


COMMITTED = (
    begin("a", "t", "me", 0, ask=1),
    CommitRequested("a", "x", 2),
    CommitPublished("a", RECEIPT, 5, PUBLISHED),
)


def found(verdict: Verdict, **more: object) -> CheckFinished:
    return CheckFinished("t", (PublicationFinding("a", verdict, "gone"),), 50, (STORED,), **more)  # type: ignore[arg-type]


def test_publication_is_stored_and_watched_before_the_reply() -> None:
    state, effects = step(after(*COMMITTED[:-1]), COMMITTED[-1])
    assert [type(effect) for effect in effects] == [Save, SavePublication, Reply]
    assert effects[1] == SavePublication(KEPT, watched=True)
    assert state.watched == {"t": (KEPT,)}


def test_quiet_table_is_checked_until_its_publications_expire() -> None:
    state = after(*COMMITTED)
    assert effects_of(state, Ticked(1004)) == ()
    state, effects = step(state, Ticked(1005))
    assert effects == (CheckTable("t"),)
    assert effects_of(state, Ticked(3000)) == (), "it is under way"
    state, _ = step(state, found(Verdict.INTACT))
    assert effects_of(state, Ticked(1049)) == ()
    assert effects_of(state, Ticked(1050)) == (CheckTable("t"),)
    state, effects = step(state, Ticked(10_005))
    assert effects == (SavePublication(KEPT, watched=False),)
    assert state.watched == {}


def test_commit_waits_while_its_table_is_checked() -> None:
    state = after(*COMMITTED, Ticked(1005), begin("b", "t", "me", 0, 3))
    state, effects = step(state, CommitRequested("b", "y", 4))
    assert not any(isinstance(effect, RunCommit) for effect in effects)
    assert effects_of(state, found(Verdict.INTACT)) == (RunCommit("b"),)
    assert effects_of(state, CheckFailed("t", "the disk", 60)) == (RunCommit("b"),)


def test_check_request_is_answered_after_checking_its_table() -> None:
    assert effects_of(State(LIMITS), CheckRequested("t", 9)) == (Reply(9, Done()),)
    state, effects = step(after(*COMMITTED), CheckRequested("t", 9))
    assert effects == (CheckTable("t"),)
    assert effects_of(state, found(Verdict.INTACT)) == (Reply(9, Done()),)
    assert effects_of(state, CheckFailed("t", "the disk", 60)) == (Reply(9, Unchecked("the disk")),)


def test_check_requested_during_a_commit_runs_after_it() -> None:
    state = after(*COMMITTED, begin("b", "t", "me", 0, 3), CommitRequested("b", "y", 4))
    state, effects = step(state, CheckRequested("t", 9))
    assert effects == ()
    state, effects = step(state, CommitPublished("b", RECEIPT, 6))
    assert effects[-1] == CheckTable("t")
    assert effects_of(state, found(Verdict.INTACT))[-1] == Reply(9, Done())


def test_overwritten_commit_is_republished_before_the_next_commit() -> None:
    state = after(*COMMITTED, begin("b", "t", "me", 0, 3), CommitRequested("b", "y", 4))
    state, effects = step(state, found(Verdict.OVERWRITTEN, before="b"))
    assert effects == (Republish(KEPT),)
    finding = PublicationFinding("a", Verdict.REPUBLISHED, "again", AGAIN, NEW_RECEIPT)
    state, effects = step(state, Republished("t", finding, 60, STORED))
    assert effects == (
        SavePublication(AGAIN, watched=True),
        Save(replace(STORED, receipt=NEW_RECEIPT, reason="again")),
        RunCommit("b"),
    )
    assert state.watched == {"t": (AGAIN,)}


def test_unclear_republication_is_checked_before_anything_else() -> None:
    state = after(*COMMITTED, CheckRequested("t", 9), found(Verdict.OVERWRITTEN))
    state, effects = step(state, RepublishUnclear("t"))
    assert effects == (CheckTable("t"),)
    finding = PublicationFinding("a", Verdict.REPUBLISHED, "again", AGAIN, NEW_RECEIPT)
    effects = effects_of(state, CheckFinished("t", (finding,), 70, (STORED,)))
    assert effects[-1] == Reply(9, Done())
    assert SavePublication(AGAIN, watched=True) in effects


def test_commits_outside_transactions_end_but_do_not_begin_in_a_pause() -> None:
    coming = replace(AGAIN, is_transaction=False, certain=False)
    pause = Pause("ada", 7)
    paused = after(PauseRequested("ada", 7, 2))
    assert step(paused, Noted(coming, 10, 3)) == (paused, (Reply(3, Suspended(pause)),))
    begun = after(Noted(coming, 10, 3), PauseRequested("ada", 7, 2))
    assert [p.id for p in pending_commits(begun)] == [coming.id]
    there, effects = step(begun, Noted(replace(coming, certain=True), 11, 4))
    assert effects[-1] == Reply(4, Done())
    assert pending_commits(there) == ()


def test_table_with_a_lost_commit_refuses_all_until_resumed() -> None:
    state = after(
        *COMMITTED,
        begin("b", "t", "me", 0, 3),
        begin("c", "t", "me", 0, 3),
        CommitRequested("b", "y", 4),
    )
    state, effects = step(state, found(Verdict.LOST, before="b"))
    lost = replace(STORED, phase=Phase.LOST, reason="gone")
    refused = TransactionState(
        "b", "t", Phase.ABORTING, 50, "me", "y", reason="gone", ended_at_ms=50
    )
    assert effects == (
        DropPublication("a"),
        SaveStopped("t", Stopped("gone", 50)),
        Save(lost),
        Save(refused),
        Reply(4, Refusal("gone")),
        RemoveFiles("b"),
    )
    halted = Halted("gone")
    assert effects_of(state, begin("d", "t", "me", 0, 5)) == (Reply(5, halted),)
    assert effects_of(state, CommitRequested("c", "z", 6)) == (Reply(6, halted),)
    assert effects_of(state, CheckRequested("t", 7)) == (Reply(7, halted),)
    asked = CommitRequested("a", "x", 8, lost)
    assert effects_of(state, asked) == (Reply(8, Overwritten("gone")),)
    assert CheckTable("t") not in effects_of(state, Ticked(5000))
    state, effects = step(state, ResumeRequested("t", 9))
    assert effects == (SaveStopped("t", None), Reply(9, Done()))
    assert effects_of(state, CommitRequested("c", "z", 10))[-1] == RunCommit("c")


def test_unclear_commit_is_looked_up_on_a_stopped_table() -> None:
    stored = TransactionState("b", "t", Phase.UNCLEAR, 100, digest="y")
    stopped = (("t", Stopped("gone", 5)),)
    _, effects = step(State(LIMITS), Restored((stored,), 10, (), stopped))
    assert effects == (LookUpCommit("b"),)


def test_restart_checks_watched_tables_at_once() -> None:
    state, _ = step(State(LIMITS), Restored((), 5000, (KEPT,)))
    assert effects_of(state, Ticked(5001)) == (CheckTable("t"),)


def test_publication_outside_transactions_is_watched_once_certain() -> None:
    going = replace(PUBLISHED, certain=False, is_transaction=False)
    state, effects = step(State(LIMITS), Noted(going, 5, 1))
    assert effects == (
        SavePublication(replace(KEPT, certain=False, is_transaction=False), watched=True),
        Reply(1, Done()),
    )
    not_done = effects_of(state, NotPublished(going, 2))
    assert not_done == (DropPublication("a"), Reply(2, Done()))
    state, _ = step(state, found(Verdict.INTACT))
    assert state.watched["t"][0].certain
    state, _ = step(state, Noted(replace(going, certain=True), 6, 3))
    assert len(state.watched["t"]) == 1


def test_removed_snapshots_and_dropped_tables_are_unwatched() -> None:
    branch = replace(KEPT, id="b", table=TableName("t", "d", branch="x"), snapshot_id=9)
    state = after(Restored((), 0, (KEPT, branch)))
    cut, effects = step(state, ChainCut("t", None, 6, 1))
    assert effects == (CutPublications("t", None, 6), Reply(1, Done()))
    assert cut.watched == {"t": (branch,)}
    kept, _ = step(state, ChainCut("t", None, 7, 1))
    assert kept.watched == state.watched
    unclear = after(Restored((), 0, (replace(KEPT, certain=False), branch)))
    _, effects = step(unclear, ChainCut("t", None, 6, 1))
    assert effects[0] == DropPublication("a")
    dropped, effects = step(state, TableDropped("t", 2))
    assert effects == (ForgetPublications("t"), Reply(2, Done()))
    assert dropped.watched == {}


def test_renamed_table_is_watched_under_its_new_name() -> None:
    branch = replace(KEPT, id="b", table=TableName("t", "d", branch="x"))
    state = after(Restored((), 0, (KEPT, branch), (("t", Stopped("gone", 5)),)))
    moved, _ = step(state, TableMoved("t", "u", TableName("u", "e"), 1))
    assert [(p.location, str(p.table)) for p in moved.watched["u"]] == [
        ("u", "e.u"), ("u", "e.u$branch_x"),
    ]  # fmt: skip
    assert moved.stopped == {"u": Stopped("gone", 5)}
    renamed, _ = step(state, TableMoved("t", "t", TableName("t", "d", branch="y"), 1, branch="x"))
    assert {str(p.table) for p in renamed.watched["t"]} == {"d.t", "d.t$branch_y"}


def test_findings_about_unwatched_publications_are_ignored() -> None:
    state = after(*COMMITTED, CheckRequested("t", 9), ChainCut("t", None, 0, 1))
    assert effects_of(state, found(Verdict.LOST)) == (Reply(9, Done()),)
    state = after(
        *COMMITTED, CheckRequested("t", 9), found(Verdict.OVERWRITTEN), TableDropped("t", 1)
    )
    finding = PublicationFinding("a", Verdict.REPUBLISHED, "again", AGAIN, NEW_RECEIPT)
    assert effects_of(state, Republished("t", finding, 60, STORED)) == (Reply(9, Done()),)


def test_commit_is_stored_together_with_earlier_settlements() -> None:
    state = after(*COMMITTED, begin("b", "t", "me", 0, 3), CommitRequested("b", "y", 4))
    second = replace(PUBLISHED, id="b", snapshot_id=8)
    settled = (PublicationFinding("a", Verdict.SETTLED),)
    state, effects = step(state, CommitPublished("b", RECEIPT, 6, second, settled))
    assert SavePublication(KEPT, watched=False) in effects
    assert Reply(4, Committed(RECEIPT)) in effects
    assert [p.id for p in state.watched["t"]] == ["b"]
