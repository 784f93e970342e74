"""The coordinator's decisions, as values: single cases, and thousands of interleavings."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from paimon_magics.coordinator.core import (
    FORGET_EVERY_MS,
    AbortAsked,
    Aborted,
    Answer,
    Begun,
    CommitAsked,
    CommitPublished,
    CommitRefused,
    Committed,
    CommitUnclear,
    Effect,
    Event,
    FilesRemoved,
    ForgetFinished,
    Gone,
    HeartbeatAsked,
    Held,
    Limits,
    LookUpCommit,
    Mismatch,
    NotCommitted,
    Opened,
    Phase,
    Refusal,
    RemoveFiles,
    Reply,
    Restored,
    RunCommit,
    Save,
    State,
    Ticked,
    Unknown,
    step,
)
from paimon_magics.planning.commits import CommitReceipt

LIMITS = Limits(lease_ms=100, cleanup_grace_ms=50, receipt_retention_ms=1000)
FINISHED = (Phase.COMMITTED, Phase.ABORTED)
RECEIPT = CommitReceipt(7, "APPEND", 10, 3)


def after(*events: Event) -> State:
    state = State(LIMITS)
    for event in events:
        state, _ = step(state, event)
    return state


def begun(id: str = "a", table: str = "t", now_ms: int = 0) -> Begun:
    return Begun(id, table, "me", now_ms, ask=1)


def finished(*events: Event) -> Held:
    """What is stored of the transaction that the last of these events finishes."""
    state = after(*events[:-1])
    (saved,) = (e.held for e in step(state, events[-1])[1] if isinstance(e, Save))
    assert saved.id not in step(state, events[-1])[0].held
    return saved


def effects_of(state: State, event: Event) -> tuple[Effect, ...]:
    return step(state, event)[1]


def test_a_transaction_is_stored_before_its_owner_hears_of_it() -> None:
    opened = Held("a", "t", Phase.ACTIVE, 100, "me")
    assert effects_of(State(LIMITS), begun()) == (Save(opened), Reply(1, Opened(100)))


def test_a_commit_is_stored_before_it_is_run() -> None:
    save, run = effects_of(after(begun()), CommitAsked("a", "x", ask=2))
    assert isinstance(save, Save) and save.held.phase is Phase.COMMITTING
    assert run == RunCommit("a")


def test_the_receipt_is_stored_before_it_is_given() -> None:
    state = after(begun(), CommitAsked("a", "x", ask=2))
    save, reply = effects_of(state, CommitPublished("a", RECEIPT, now_ms=5))
    assert isinstance(save, Save) and save.held.receipt == RECEIPT
    assert reply == Reply(2, Committed(RECEIPT))


def test_a_repeated_commit_gets_the_first_receipt() -> None:
    stored = finished(begun(), CommitAsked("a", "x", 2), CommitPublished("a", RECEIPT, 5))
    asked = CommitAsked("a", "x", 3, stored)
    assert effects_of(State(LIMITS), asked) == (Reply(3, Committed(RECEIPT)),)
    assert effects_of(State(LIMITS), replace(asked, digest="y")) == (Reply(3, Mismatch()),)


def test_a_commit_of_other_files_is_not_taken_for_a_repetition() -> None:
    state = after(begun(), CommitAsked("a", "x", 2))
    assert effects_of(state, CommitAsked("a", "y", 3)) == (Reply(3, Mismatch()),)


def test_everybody_who_asked_while_it_ran_gets_the_answer() -> None:
    state = after(begun(), CommitAsked("a", "x", 2), CommitAsked("a", "x", 3))
    _, *replies = effects_of(state, CommitPublished("a", RECEIPT, 5))
    assert replies == [Reply(2, Committed(RECEIPT)), Reply(3, Committed(RECEIPT))]


def test_commits_of_one_table_take_turns_in_the_order_of_asking() -> None:
    state = after(begun("a"), begun("b"), begun("c"), CommitAsked("b", "x", 2))
    state, effects = step(state, CommitAsked("c", "x", 3))
    assert not any(isinstance(effect, RunCommit) for effect in effects)
    state, _ = step(state, CommitAsked("a", "x", 4))
    state, effects = step(state, CommitPublished("b", RECEIPT, 5))
    assert effects[-1] == RunCommit("c")
    _, effects = step(state, CommitRefused("c", "why", 6))
    assert effects[-1] == RunCommit("a")


def test_commits_of_two_tables_do_not_wait_for_each_other() -> None:
    state = after(begun("a", "t"), begun("b", "u"), CommitAsked("a", "x", 2))
    assert RunCommit("b") in effects_of(state, CommitAsked("b", "x", 3))


def test_a_refused_commit_tells_why_and_removes_its_files() -> None:
    state = after(begun(), CommitAsked("a", "x", 2))
    save, *rest = effects_of(state, CommitRefused("a", "rows came meanwhile", 5))
    assert isinstance(save, Save) and save.held.phase is Phase.ABORTING
    assert rest == [Reply(2, Refusal("rows came meanwhile")), RemoveFiles("a")]


def test_an_unclear_commit_keeps_its_table_busy_and_is_looked_up() -> None:
    state = after(begun("a"), begun("b"), CommitAsked("a", "x", 2))
    state, effects = step(state, CommitUnclear("a"))
    assert effects[-1] == LookUpCommit("a")
    _, effects = step(state, CommitAsked("b", "x", 3))
    assert not any(isinstance(effect, RunCommit) for effect in effects)


def test_an_expired_lease_ends_the_transaction_and_its_files_go_after_the_grace_period() -> None:
    state, effects = step(after(begun()), Ticked(100))
    assert [type(effect) for effect in effects] == [Save]
    assert effects_of(state, CommitAsked("a", "x", 2)) == (Reply(2, Gone("its lease expired")),)
    assert effects_of(state, Ticked(149)) == ()
    state, effects = step(state, Ticked(150))
    assert effects == (RemoveFiles("a"),)
    assert effects_of(state, Ticked(199)) == ()
    assert effects_of(state, Ticked(200)) == (RemoveFiles("a"),)  # tried again until it is done
    state, effects = step(state, FilesRemoved("a", 210))
    assert isinstance(effects[0], Save) and effects[0].held.expires_at_ms == 1210
    assert "a" not in state.held
    assert effects_of(state, Ticked(1210)) == ()


def test_finished_transactions_are_forgotten_once_a_minute() -> None:
    state = State(LIMITS)
    assert effects_of(state, Ticked(59_999)) == ()
    state, effects = step(state, Ticked(60_000))
    assert effects == (ForgetFinished(60_000),)
    assert effects_of(state, Ticked(119_999)) == ()


def test_files_that_are_removed_twice_are_removed_once() -> None:
    state = after(begun(), AbortAsked("a", "why", 0, 2), FilesRemoved("a", 10))
    assert effects_of(state, FilesRemoved("a", 20)) == ()
    state, _ = step(state, Ticked(1010))
    assert effects_of(state, FilesRemoved("a", 1020)) == ()


def test_a_heartbeat_renews_the_lease() -> None:
    state, effects = step(after(begun()), HeartbeatAsked("a", 90, ask=2))
    assert effects == (Reply(2, Opened(190)),)
    assert effects_of(state, Ticked(189)) == ()


def test_an_abort_that_comes_too_late_is_told_so() -> None:
    state = after(begun(), CommitAsked("a", "x", 2))
    asked = AbortAsked("a", "by me", 5, ask=3)
    assert effects_of(state, asked) == (Reply(3, NotCommitted(Phase.COMMITTING)),)
    stored = finished(begun(), CommitAsked("a", "x", 2), CommitPublished("a", RECEIPT, 6))
    asked = replace(asked, finished=stored)
    assert effects_of(State(LIMITS), asked) == (Reply(3, NotCommitted(Phase.COMMITTED)),)


def test_after_a_restart_a_commit_under_way_is_looked_up_and_an_open_lease_starts_anew() -> None:
    stored = (
        Held("a", "t", Phase.COMMITTING, 100, digest="x"),
        Held("b", "t", Phase.ACTIVE, 100),
        Held("d", "t", Phase.UNCLEAR, 100, digest="y"),
    )
    state, effects = step(State(LIMITS), Restored(stored, now_ms=500))
    assert effects == (LookUpCommit("a"),)
    assert state.held["b"].expires_at_ms == 600
    # The second of the table is looked up, not run: it may have been published, too.
    _, effects = step(state, CommitPublished("a", RECEIPT, 510))
    assert effects[-1] == LookUpCommit("d")


def test_nobody_knows_a_transaction_that_was_never_opened() -> None:
    for event in (
        HeartbeatAsked("a", 0, 1),
        CommitAsked("a", "x", 1),
        AbortAsked("a", "why", 0, 1),
    ):
        assert effects_of(State(LIMITS), event) == (Reply(1, Unknown()),)


# ------------------------------------------------------------------------ interleavings


@dataclass
class Table:
    """The world outside: what was published, and which files lie about."""

    published: list[str] = field(default_factory=list)
    files: set[str] = field(default_factory=set)


class Interleavings(RuleBasedStateMachine):
    """Any order of requests, completions, clock steps and deaths, against a model of the table.

    A death loses the state and everything under way, keeps what was saved and what was published.
    """

    ids = st.sampled_from([f"id{number}" for number in range(5)])

    @initialize()
    def start(self) -> None:
        self.state = State(LIMITS)
        self.saved: dict[str, Held] = {}
        self.tables = {"t": Table(), "u": Table()}
        self.jobs: list[Effect] = []
        self.asked = 0
        self.waiting: dict[int, str] = {}
        self.told: dict[str, set[str]] = {}
        self.now_ms = 0

    def apply(self, event: Event) -> None:
        self.state, effects = step(self.state, event)
        for effect in effects:
            match effect:
                case Save(held=held):
                    self.saved[held.id] = held
                case ForgetFinished(until_ms=until_ms):
                    for held in list(self.saved.values()):
                        if held.phase in FINISHED and held.expires_at_ms <= until_ms:
                            del self.saved[held.id]
                case Reply(ask=ask, answer=answer):
                    self.heard(self.waiting.pop(ask), answer)
                case _:
                    self.jobs.append(effect)

    def heard(self, id: str, answer: Answer) -> None:
        table = self.tables[table_of(id)]
        said = self.told.setdefault(id, set())
        match answer:
            case Committed():
                assert table.published.count(id) == 1, "told committed, and it is not there once"
                said.add("committed")
            case Refusal() | Gone() | Aborted():
                assert id not in table.published, "told ended, and it is in the table"
                said.add("ended")
            case _:
                pass
        assert len(said) <= 1, f"{id} was told both"

    def ask(self, id: str) -> int:
        self.asked += 1
        self.waiting[self.asked] = id
        return self.asked

    @rule(id=ids)
    def begin(self, id: str) -> None:
        if id not in self.state.held and id not in self.told:
            self.tables[table_of(id)].files.add(id)
            self.apply(Begun(id, table_of(id), "me", self.now_ms, self.ask(id)))

    def finished(self, id: str) -> Held | None:
        saved = self.saved.get(id)
        return saved if saved is not None and saved.phase in FINISHED else None

    @rule(id=ids)
    def heartbeat(self, id: str) -> None:
        self.apply(HeartbeatAsked(id, self.now_ms, self.ask(id), self.finished(id)))

    @rule(id=ids)
    def commit(self, id: str) -> None:
        self.apply(CommitAsked(id, "digest", self.ask(id), self.finished(id)))

    @rule(id=ids)
    def abort(self, id: str) -> None:
        self.apply(AbortAsked(id, "asked", self.now_ms, self.ask(id), self.finished(id)))

    @rule(ms=st.one_of(st.integers(1, 400), st.just(FORGET_EVERY_MS)))
    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.apply(Ticked(self.now_ms))

    @precondition(lambda self: self.jobs)
    @rule(
        data=st.data(),
        outcome=st.sampled_from(["published", "refused", "silent", "lost reply"]),
    )
    def finish(self, data: st.DataObject, outcome: str) -> None:
        job = self.jobs.pop(data.draw(st.integers(0, len(self.jobs) - 1)))
        match job:
            case RunCommit(id=id) | LookUpCommit(id=id):
                self.finish_commit(id, outcome)
            case RemoveFiles(id=id):
                if outcome != "silent":
                    assert id not in self.tables[table_of(id)].published, "removed committed files"
                    self.tables[table_of(id)].files.discard(id)
                    self.apply(FilesRemoved(id, self.now_ms))

    def finish_commit(self, id: str, outcome: str) -> None:
        published = self.tables[table_of(id)].published
        # Whoever publishes looks first: a commit's own identity in the snapshots.
        if id in published:
            self.apply(CommitPublished(id, RECEIPT, self.now_ms))
        elif outcome == "published":
            published.append(id)
            self.apply(CommitPublished(id, RECEIPT, self.now_ms))
        elif outcome == "refused":
            self.apply(CommitRefused(id, "refused", self.now_ms))
        elif outcome == "lost reply":
            published.append(id)
            self.apply(CommitUnclear(id))
        else:
            self.apply(CommitUnclear(id))

    @rule(publishes=st.booleans())
    def die_and_start_again(self, publishes: bool) -> None:
        for job in self.jobs:
            if isinstance(job, RunCommit | LookUpCommit) and publishes:
                published = self.tables[table_of(job.id)].published
                if job.id not in published:
                    published.append(job.id)
        self.jobs.clear()
        self.waiting.clear()
        self.state = State(LIMITS)
        unfinished = tuple(held for held in self.saved.values() if held.phase not in FINISHED)
        self.apply(Restored(unfinished, self.now_ms))

    @invariant()
    def one_commit_at_a_time(self) -> None:
        running = [
            table_of(job.id) for job in self.jobs if isinstance(job, RunCommit | LookUpCommit)
        ]
        assert len(running) == len(set(running))

    @invariant()
    def what_is_committed_stays_and_keeps_its_files(self) -> None:
        for id, held in self.saved.items():
            table = self.tables[table_of(id)]
            if held.phase is Phase.COMMITTED:
                assert id in table.published and id in table.files
            if held.phase in (Phase.ABORTING, Phase.ABORTED):
                assert id not in table.published

    @invariant()
    def finished_transactions_are_in_the_store_alone(self) -> None:
        assert all(held.phase not in FINISHED for held in self.state.held.values())

    @invariant()
    def what_is_saved_is_what_is_held(self) -> None:
        for id, held in self.state.held.items():
            saved = self.saved[id]
            assert replace(saved, expires_at_ms=0) == replace(
                held, expires_at_ms=0, phase=saved.phase
            )


def table_of(id: str) -> str:
    return "tu"[int(id[-1]) % 2]


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(
    max_examples=300, stateful_step_count=60, deadline=None, print_blob=True
)
