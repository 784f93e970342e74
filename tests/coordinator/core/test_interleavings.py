"""The coordinator's core under thousands of interleavings, against a model of the world outside."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from paimon_magics.coordinator.core.events import (
    AbortRequested,
    CheckFailed,
    CheckFinished,
    CheckRequested,
    CheckTable,
    CommitPublished,
    CommitRefused,
    CommitRequested,
    CommitUnclear,
    CommitUndetermined,
    DropPublication,
    Effect,
    Event,
    FilesRemoved,
    ForgetFinished,
    HeartbeatRequested,
    LookUpCommit,
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
    SavePause,
    SavePublication,
    SaveStopped,
    Ticked,
    UnpauseRequested,
)
from paimon_magics.coordinator.core.state import State
from paimon_magics.coordinator.core.step import FORGET_EVERY_MS, step
from paimon_magics.coordinator.core.values import (
    FINISHED,
    Aborted,
    Answer,
    Cause,
    Committed,
    Gone,
    Limits,
    Overwritten,
    Pause,
    Phase,
    Refusal,
    Stopped,
    TransactionState,
)
from paimon_magics.planning.commits.publications import Publication, PublicationFinding, Verdict
from paimon_magics.planning.commits.requests import CommitReceipt
from paimon_magics.statements.statement import TableName
from tests.coordinator.core.requests import adopt, begin

LIMITS = Limits(lease_ms=100, cleanup_grace_ms=50, receipt_retention_ms=400_000, watch_every_ms=300)
FOREIGN = "foreign"


@dataclass
class Table:
    """The world outside: a chain of snapshots, and which files lie about.

    `files` are the snapshots' files by id: who wrote each, an id or FOREIGN. `content` is what the
    newest snapshot rests on: whose commit each id was when the next one was built on it.
    `in_flight` is what the coordinator before this one has prepared: it succeeds until there is
    another snapshot.
    """

    files: list[str] = field(default_factory=list)
    content: list[str] = field(default_factory=list)
    data: set[str] = field(default_factory=set)
    overwritten: set[str] = field(default_factory=set)
    in_flight: set[str] = field(default_factory=set)

    def publish(self, who: str) -> None:
        self.in_flight.clear()
        self.files.append(who)
        self.content.append(who)

    def overwrite(self, position: int) -> None:
        """A writer outside renames its snapshot over the one at `position`."""
        self.files[position] = FOREIGN
        if position == len(self.content) - 1:
            if self.content[position] != FOREIGN:
                self.overwritten.add(self.content[position])
            self.content[position] = FOREIGN


class Interleavings(RuleBasedStateMachine):
    """Any order of requests, completions, clock steps, deaths and writers outside.

    A death loses the state and everything under way, keeps what was saved and what was published.
    Ids whose number is 3 stand for overwrites, which are not to be published again.
    """

    ids = st.sampled_from([f"id{number}" for number in range(6)])
    tables_ = st.sampled_from(["t", "u"])

    @initialize()
    def start(self) -> None:
        self.state = State(LIMITS)
        self.saved: dict[str, TransactionState] = {}
        self.publications: dict[str, tuple[Publication, bool]] = {}
        self.stopped: dict[str, Stopped] = {}
        self.pause: Pause | None = None
        self.tables = {"t": Table(), "u": Table()}
        self.jobs: list[Effect] = []
        self.asked = 0
        self.waiting: dict[int, str] = {}
        self.told: dict[str, set[str]] = {}
        self.used: set[str] = set()
        self.now_ms = 0

    def apply(self, event: Event) -> None:
        self.state, effects = step(self.state, event)
        for effect in effects:
            match effect:
                case Save(transaction=each):
                    self.saved[each.id] = each
                case SavePublication(publication=publication, watched=watched):
                    self.publications[publication.id] = (publication, watched)
                case DropPublication(id=id):
                    self.publications.pop(id, None)
                case SaveStopped(location=table, stopped=None):
                    del self.stopped[table]
                case SaveStopped(location=table, stopped=stopped):
                    assert stopped is not None
                    self.stopped[table] = stopped
                case SavePause(pause=pause):
                    self.pause = pause
                case ForgetFinished(until_ms=until_ms):
                    for each in list(self.saved.values()):
                        if each.phase in FINISHED and each.expires_at_ms <= until_ms:
                            del self.saved[each.id]
                case Reply(ask=ask, answer=answer):
                    self.heard(self.waiting.pop(ask), answer)
                case _:
                    self.jobs.append(effect)

    def heard(self, id: str, answer: Answer) -> None:
        if id in self.tables:
            return
        table = self.tables[table_of(id)]
        said = self.told.setdefault(id, set())
        match answer:
            case Committed():
                assert id in table.content or id in table.overwritten, "told, and never there"
                said.add("committed")
            case Overwritten():
                assert id in table.overwritten and id not in table.content
                said.add("overwritten")
            case Refusal(conflicting=(_, *_)):
                assert id not in table.content, "told of conflicts, and it is in the table"
            case Refusal() | Gone() | Aborted():
                assert id not in table.content, "told ended, and it is in the table"
                said.add("ended")
            case _:
                pass
        assert not {"committed", "ended"} <= said, f"{id} was told both"

    def ask(self, id: str) -> int:
        self.asked += 1
        self.waiting[self.asked] = id
        return self.asked

    # ---- what clients do ----

    @rule(id=ids)
    def begin(self, id: str) -> None:
        if id not in self.used:
            self.used.add(id)
            self.tables[table_of(id)].data.add(id)
            known = self.state.transactions.keys()
            self.apply(begin(id, table_of(id), "me", self.now_ms, self.ask(id)))
            if self.pause is not None:
                assert self.state.transactions.keys() == known, "begun in a pause"
                self.used.discard(id)

    @rule(id=ids, fate=st.sampled_from(["published", "in flight", "not begun", "to be ended"]))
    def bring(self, id: str, fate: str) -> None:
        """A client comes with what the coordinator before this one has opened."""
        if id in self.used:
            return
        self.used.add(id)
        table = self.tables[table_of(id)]
        table.data.add(id)
        if fate == "published":
            table.publish(id)
        elif fate == "in flight":
            table.in_flight.add(id)
        digest = None if fate == "to be ended" else "digest"
        self.apply(adopt(id, table_of(id), "me", digest, 2, self.now_ms, self.ask(id)))

    @rule(id=ids)
    def the_one_before_goes_on(self, id: str) -> None:
        table = self.tables[table_of(id)]
        if id in table.in_flight:
            table.publish(id)

    def finished(self, id: str) -> TransactionState | None:
        saved = self.saved.get(id)
        return saved if saved is not None and saved.phase in FINISHED else None

    @rule(id=ids)
    def heartbeat(self, id: str) -> None:
        self.apply(HeartbeatRequested(id, self.now_ms, self.ask(id), self.finished(id)))

    @rule(id=ids)
    def commit(self, id: str) -> None:
        self.apply(CommitRequested(id, "digest", self.ask(id), self.finished(id)))

    @rule(id=ids)
    def abort(self, id: str) -> None:
        self.apply(AbortRequested(id, "asked", self.now_ms, self.ask(id), self.finished(id)))

    @rule(table=tables_)
    def ask_for_a_look(self, table: str) -> None:
        self.apply(CheckRequested(table, self.ask(table)))

    @rule(table=tables_)
    def resume(self, table: str) -> None:
        self.apply(ResumeRequested(table, self.ask(table)))

    @rule()
    def pause_or_resume(self) -> None:
        ask = self.ask("t")
        self.apply(
            PauseRequested("ada", self.now_ms, ask) if self.pause is None else UnpauseRequested(ask)
        )

    @rule(ms=st.one_of(st.integers(1, 400), st.just(FORGET_EVERY_MS)))
    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.apply(Ticked(self.now_ms))

    # ---- what writers outside do ----

    @rule(table=tables_, back=st.integers(0, 2))
    def overwrite_from_outside(self, table: str, back: int) -> None:
        written = self.tables[table]
        if len(written.files) > back:
            written.overwrite(len(written.files) - 1 - back)

    @rule(table=tables_)
    def append_from_outside(self, table: str) -> None:
        self.tables[table].publish(FOREIGN)

    # ---- what the shell does ----

    @precondition(lambda self: self.jobs)
    @rule(
        data=st.data(),
        outcome=st.sampled_from(["done", "refused", "refused in part", "silent", "lost reply"]),
    )
    def finish(self, data: st.DataObject, outcome: str) -> None:
        self.work(self.jobs.pop(data.draw(st.integers(0, len(self.jobs) - 1))), outcome)

    def work(self, job: Effect, outcome: str) -> None:
        match job:
            case LookUpCommit(id=id) if outcome == "refused in part":
                self.finish_commit(id, "refused")
            case RunCommit(id=id) | LookUpCommit(id=id):
                self.finish_commit(id, outcome)
            case CheckTable(location=table) if outcome == "silent":
                self.apply(CheckFailed(table, "the disk", self.now_ms))
            case CheckTable(location=table):
                self.apply(self.checked(table, ""))
            case Republish(publication=publication):
                self.finish_republishing(publication, outcome)
            case RemoveFiles(id=id):
                if outcome != "silent":
                    assert id not in self.tables[table_of(id)].content, "removed committed files"
                    assert "committed" not in self.told.get(id, ()), "removed acknowledged files"
                    self.tables[table_of(id)].data.discard(id)
                    self.apply(FilesRemoved(id, self.now_ms))

    def finish_commit(self, id: str, outcome: str) -> None:
        name = table_of(id)
        table = self.tables[name]
        # Whoever publishes looks first: a commit's own identity in the snapshots.
        if id in table.content:
            receipt, publication = self.publication(id)
            self.apply(CommitPublished(id, receipt, self.now_ms, publication))
            return
        refusal = CommitUndetermined if id in table.in_flight else CommitRefused
        if name in self.state.stopped:
            self.apply(refusal(id, "stopped", self.now_ms))
            return
        looked = self.checked(name, id)
        if any(f.verdict not in (Verdict.INTACT, Verdict.SETTLED) for f in looked.findings):
            self.apply(looked)
            return
        match outcome:
            case "refused":
                self.apply(refusal(id, "refused", self.now_ms))
            case "refused in part":
                part = CommitRefused(id, "in part", self.now_ms, Cause.COMPACTION, (0,))
                self.apply(part)
            case "silent":
                self.apply(CommitUnclear(id))
            case _:
                table.publish(id)
                receipt, publication = self.publication(id)
                if outcome == "lost reply":
                    self.apply(CommitUnclear(id))
                else:
                    self.apply(
                        CommitPublished(id, receipt, self.now_ms, publication, looked.findings)
                    )

    def publication(self, id: str) -> tuple[CommitReceipt, Publication]:
        name = table_of(id)
        number = self.tables[name].content.index(id) + 1
        receipt = CommitReceipt(number, "APPEND", 10, 3)
        return receipt, Publication(
            id, TableName("t", "d"), name, number, "list", id, 1, "APPEND", self.now_ms
        )

    def checked(self, name: str, before: str) -> CheckFinished:
        findings = tuple(self.finding(p) for p in self.state.watched.get(name, ()))
        finished = (self.finished(f.id) for f in findings if f.verdict is not Verdict.INTACT)
        return CheckFinished(
            name, findings, self.now_ms, tuple(each for each in finished if each), before
        )

    def finding(self, p: Publication) -> PublicationFinding:
        table = self.tables[p.location]
        if table.files[p.snapshot_id - 1] == p.id:
            followed = p.snapshot_id < len(table.files)
            return PublicationFinding(p.id, Verdict.SETTLED if followed else Verdict.INTACT)
        if p.id in table.content and table.content.index(p.id) + 1 != p.snapshot_id:
            receipt, publication = self.publication(p.id)
            return PublicationFinding(p.id, Verdict.REPUBLISHED, "", publication, receipt)
        if p.id in table.content:
            return PublicationFinding(p.id, Verdict.SETTLED)
        if p.id == "id3":
            return PublicationFinding(p.id, Verdict.LOST, "an overwrite was overwritten")
        return PublicationFinding(p.id, Verdict.OVERWRITTEN, "it was overwritten")

    def finish_republishing(self, p: Publication, outcome: str) -> None:
        name = p.location
        held = self.finished(p.id)
        if outcome == "refused":
            finding = PublicationFinding(p.id, Verdict.LOST, "a file is missing")
            self.apply(Republished(name, finding, self.now_ms, held))
            return
        if outcome != "silent":
            assert name not in self.state.stopped
            assert p.id in self.tables[name].data, "its files are gone"
            self.tables[name].publish(p.id)
        if outcome == "done":
            receipt, publication = self.publication(p.id)
            finding = PublicationFinding(p.id, Verdict.REPUBLISHED, "again", publication, receipt)
            self.apply(Republished(name, finding, self.now_ms, held))
        else:
            self.apply(RepublishUnclear(name))

    @rule(publishes=st.booleans())
    def die_and_start_again(self, publishes: bool) -> None:
        for job in self.jobs:
            if not publishes:
                continue
            match job:
                case RunCommit(id=id) | LookUpCommit(id=id):
                    table = self.tables[table_of(id)]
                    if id not in table.content and table_of(id) not in self.state.stopped:
                        looked = self.checked(table_of(id), id).findings
                        if all(f.verdict in (Verdict.INTACT, Verdict.SETTLED) for f in looked):
                            table.publish(id)
                case Republish(publication=p):
                    self.tables[p.location].publish(p.id)
                case _:
                    pass
        self.jobs.clear()
        self.waiting.clear()
        self.state = State(LIMITS)
        self.apply(
            Restored(
                tuple(each for each in self.saved.values() if each.phase not in FINISHED),
                self.now_ms,
                tuple(p for p, watched in self.publications.values() if watched),
                tuple(self.stopped.items()),
                self.pause,
            )
        )

    # ---- what holds ----

    @invariant()
    def nothing_is_there_twice(self) -> None:
        for table in self.tables.values():
            ours = [id for id in table.content if id != FOREIGN]
            assert len(ours) == len(set(ours))

    @invariant()
    def one_at_a_time(self) -> None:
        running = [table for job in self.jobs for table in (job_table(job),) if table is not None]
        assert len(running) == len(set(running))

    @invariant()
    def what_is_committed_stays_and_keeps_its_files(self) -> None:
        for id, held in self.saved.items():
            table = self.tables[table_of(id)]
            if held.phase in (Phase.COMMITTED, Phase.LOST):
                assert id in table.content or id in table.overwritten
                assert id in table.data
            if held.phase in (Phase.ABORTING, Phase.ABORTED):
                assert id not in table.content

    @invariant()
    def finished_transactions_are_in_the_store_alone(self) -> None:
        assert all(each.phase not in FINISHED for each in self.state.transactions.values())

    @invariant()
    def what_is_saved_is_what_is_held(self) -> None:
        for id, held in self.state.transactions.items():
            saved = self.saved[id]
            assert replace(saved, expires_at_ms=0) == replace(
                held, expires_at_ms=0, phase=saved.phase
            )
        watched = {p.id: p for ps in self.state.watched.values() for p in ps}
        assert watched == {p.id: p for p, each in self.publications.values() if each}
        assert self.state.stopped == self.stopped
        assert self.state.pause == self.pause

    def teardown(self) -> None:
        """In the end, when nobody disturbs any more, what was acknowledged is there, or its table
        was stopped for it."""
        if not hasattr(self, "state"):
            return
        for _ in range(200):
            while self.jobs:
                self.work(self.jobs.pop(0), "done")
            self.now_ms += LIMITS.watch_every_ms
            watched = {p.id for ps in self.state.watched.values() for p in ps}
            if not self.state.running and not watched & self.overwritten():
                break
            for table in tuple(self.state.stopped):
                self.apply(ResumeRequested(table, self.ask(table)))
            self.apply(Ticked(self.now_ms))
        else:
            raise AssertionError("it does not come to rest")
        for id, said in self.told.items():
            kept = self.saved.get(id)
            if "committed" in said and kept is not None and kept.expires_at_ms > self.now_ms:
                lost = kept.phase is Phase.LOST
                assert lost != (id in self.tables[table_of(id)].content), id

    def overwritten(self) -> set[str]:
        tables = self.tables.values()
        return {id for table in tables for id in table.overwritten - set(table.content)}


def table_of(id: str) -> str:
    return "tu"[int(id[-1]) % 2]


def job_table(job: Effect) -> str | None:
    match job:
        case RunCommit(id=id) | LookUpCommit(id=id):
            return table_of(id)
        case CheckTable(location=table):
            return table
        case Republish(publication=publication):
            return publication.location
        case _:
            return None


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(
    max_examples=300, stateful_step_count=60, deadline=None, print_blob=True
)
