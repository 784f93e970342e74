"""The coordinator's decisions, as values: single cases, and thousands of interleavings."""

from __future__ import annotations

from dataclasses import replace

from paimon_magics.coordinator.core.events import (
    AbortRequested,
    BeginRequested,
    CommitPublished,
    CommitRefused,
    CommitRequested,
    CommitUnclear,
    CommitUndetermined,
    Effect,
    Event,
    FilesRemoved,
    ForgetFinished,
    HeartbeatRequested,
    LookUpCommit,
    PauseRequested,
    RemoveFiles,
    Reply,
    Restored,
    RunCommit,
    Save,
    SavePause,
    Ticked,
    TurnRequested,
    UnpauseRequested,
)
from paimon_magics.coordinator.core.state import WAITER_MS, State, pending_transactions
from paimon_magics.coordinator.core.step import STALL_MS, step
from paimon_magics.coordinator.core.values import (
    Aborted,
    Answer,
    Cause,
    Committed,
    Done,
    Gone,
    Limits,
    Mismatch,
    NotCommitted,
    Occupied,
    Opened,
    Pause,
    Phase,
    Refusal,
    Suspended,
    TransactionState,
    Undetermined,
    Unknown,
)
from paimon_magics.planning.commits.requests import CommitReceipt
from tests.coordinator.core.requests import adopt, begin

LIMITS = Limits(lease_ms=100, cleanup_grace_ms=50, receipt_retention_ms=1000)
FINISHED = (Phase.COMMITTED, Phase.ABORTED)
RECEIPT = CommitReceipt(7, "APPEND", 10, 3)


def after(*events: Event) -> State:
    state = State(LIMITS)
    for event in events:
        state, _ = step(state, event)
    return state


def begun(id: str = "a", table: str = "t", now_ms: int = 0) -> BeginRequested:
    return begin(id, table, "me", now_ms, ask=1)


def finished(*events: Event) -> TransactionState:
    """What is stored of the transaction that the last of these events finishes."""
    state = after(*events[:-1])
    (saved,) = (e.transaction for e in step(state, events[-1])[1] if isinstance(e, Save))
    assert saved.id not in step(state, events[-1])[0].transactions
    return saved


def effects_of(state: State, event: Event) -> tuple[Effect, ...]:
    return step(state, event)[1]


def test_transaction_is_stored_before_the_reply() -> None:
    opened = TransactionState("a", "t", Phase.ACTIVE, 100, "me")
    assert effects_of(State(LIMITS), begun()) == (Save(opened), Reply(1, Opened(100)))


def test_pause_is_stored_and_refuses_new_transactions_until_resumed() -> None:
    pause = Pause("ada", 7)
    open_ = after(begun("a"))
    assert effects_of(open_, PauseRequested("ada", 7, 2)) == (
        SavePause(pause),
        Reply(2, Suspended(pause)),
    )
    paused = after(begun("a"), PauseRequested("ada", 7, 2))
    assert step(paused, begun("b")) == (paused, (Reply(1, Suspended(pause)),))
    assert step(paused, PauseRequested("bob", 9, 3)) == (paused, (Reply(3, Suspended(pause)),))
    assert effects_of(paused, CommitRequested("a", "x", 4))[-1] == RunCommit("a")
    assert [each.id for each in pending_transactions(paused)] == ["a"]
    resumed, effects = step(paused, UnpauseRequested(5))
    assert effects == (SavePause(None), Reply(5, Done()))
    assert [each.id for each in pending_transactions(step(resumed, begun("b"))[0])] == ["a", "b"]
    assert step(State(LIMITS), Restored((), 0, pause=pause))[0].pause == pause


def test_adopted_transaction_is_committed_during_a_pause() -> None:
    paused = after(PauseRequested("ada", 7, 2))
    assert effects_of(paused, adopt("a", "t", "me", "x", 2, 10, 1))[-1] == LookUpCommit("a")


def test_a_commit_is_stored_before_it_is_run() -> None:
    save, run = effects_of(after(begun()), CommitRequested("a", "x", ask=2))
    assert isinstance(save, Save) and save.transaction.phase is Phase.COMMITTING
    assert run == RunCommit("a")


def test_receipt_is_stored_before_the_reply() -> None:
    state = after(begun(), CommitRequested("a", "x", ask=2))
    save, reply = effects_of(state, CommitPublished("a", RECEIPT, now_ms=5))
    assert isinstance(save, Save) and save.transaction.receipt == RECEIPT
    assert reply == Reply(2, Committed(RECEIPT))


def test_a_repeated_commit_gets_the_first_receipt() -> None:
    stored = finished(begun(), CommitRequested("a", "x", 2), CommitPublished("a", RECEIPT, 5))
    asked = CommitRequested("a", "x", 3, stored)
    assert effects_of(State(LIMITS), asked) == (Reply(3, Committed(RECEIPT)),)
    assert effects_of(State(LIMITS), replace(asked, digest="y")) == (Reply(3, Mismatch()),)


def test_a_commit_of_other_files_is_not_taken_for_a_repetition() -> None:
    state = after(begun(), CommitRequested("a", "x", 2))
    assert effects_of(state, CommitRequested("a", "y", 3)) == (Reply(3, Mismatch()),)


def test_all_requests_for_a_running_commit_get_its_answer() -> None:
    state = after(begun(), CommitRequested("a", "x", 2), CommitRequested("a", "x", 3))
    _, *replies = effects_of(state, CommitPublished("a", RECEIPT, 5))
    assert replies == [Reply(2, Committed(RECEIPT)), Reply(3, Committed(RECEIPT))]


def test_commits_of_a_table_run_in_request_order() -> None:
    state = after(begun("a"), begun("b"), begun("c"), CommitRequested("b", "x", 2))
    state, effects = step(state, CommitRequested("c", "x", 3))
    assert not any(isinstance(effect, RunCommit) for effect in effects)
    state, _ = step(state, CommitRequested("a", "x", 4))
    state, effects = step(state, CommitPublished("b", RECEIPT, 5))
    assert effects[-1] == RunCommit("c")
    _, effects = step(state, CommitRefused("c", "why", 6))
    assert effects[-1] == RunCommit("a")


def test_commits_of_two_tables_do_not_wait_for_each_other() -> None:
    state = after(begun("a", "t"), begun("b", "u"), CommitRequested("a", "x", 2))
    assert RunCommit("b") in effects_of(state, CommitRequested("b", "x", 3))


def test_a_refused_commit_tells_why_and_removes_its_files() -> None:
    state = after(begun(), CommitRequested("a", "x", 2))
    save, *rest = effects_of(state, CommitRefused("a", "rows came meanwhile", 5))
    assert isinstance(save, Save) and save.transaction.phase is Phase.ABORTING
    assert rest == [Reply(2, Refusal("rows came meanwhile")), RemoveFiles("a")]


def test_an_unclear_commit_keeps_its_table_busy_and_is_looked_up() -> None:
    state = after(begun("a"), begun("b"), CommitRequested("a", "x", 2))
    state, effects = step(state, CommitUnclear("a"))
    assert effects[-1] == LookUpCommit("a")
    _, effects = step(state, CommitRequested("b", "x", 3))
    assert not any(isinstance(effect, RunCommit) for effect in effects)


def test_expired_lease_ends_transaction_and_removes_files_after_grace() -> None:
    state, effects = step(after(begun()), Ticked(100))
    assert [type(effect) for effect in effects] == [Save]
    assert effects_of(state, CommitRequested("a", "x", 2)) == (Reply(2, Gone("its lease expired")),)
    assert effects_of(state, Ticked(149)) == ()
    state, effects = step(state, Ticked(150))
    assert effects == (RemoveFiles("a"),)
    assert effects_of(state, Ticked(199)) == ()
    assert effects_of(state, Ticked(200)) == (RemoveFiles("a"),)  # tried again until it is done
    state, effects = step(state, FilesRemoved("a", 210))
    assert isinstance(effects[0], Save) and effects[0].transaction.expires_at_ms == 1210
    assert "a" not in state.transactions
    assert effects_of(state, Ticked(1210)) == ()


def test_files_wait_for_no_tasks_that_find_out_themselves_that_their_lease_expired() -> None:
    noting = frozenset("a")
    state, effects = step(after(begun("a"), begun("b")), Ticked(100, noting))
    assert [type(effect) for effect in effects] == [Save, Save]
    state, effects = step(state, Ticked(101, noting))
    assert effects == (RemoveFiles("a"),), "b's tasks may still write"
    assert effects_of(state, Ticked(150)) == (RemoveFiles("b"),)


def test_finished_transactions_are_forgotten_once_a_minute() -> None:
    state = State(LIMITS)
    assert effects_of(state, Ticked(59_999)) == ()
    state, effects = step(state, Ticked(60_000))
    assert effects == (ForgetFinished(60_000),)
    assert effects_of(state, Ticked(119_999)) == ()


def test_repeated_file_removal_is_recorded_once() -> None:
    state = after(begun(), AbortRequested("a", "why", 0, 2), FilesRemoved("a", 10))
    assert effects_of(state, FilesRemoved("a", 20)) == ()
    state, _ = step(state, Ticked(1010))
    assert effects_of(state, FilesRemoved("a", 1020)) == ()


def test_a_heartbeat_renews_the_lease() -> None:
    state, effects = step(after(begun()), HeartbeatRequested("a", 90, ask=2))
    assert effects == (Reply(2, Opened(190)),)
    assert effects_of(state, Ticked(189)) == ()


def test_coordinator_stall_does_not_end_leases() -> None:
    state = after(begun(now_ms=1000), Ticked(1050))
    state, effects = step(state, Ticked(1050 + STALL_MS))
    assert not any(isinstance(effect, Save) for effect in effects)
    assert state.transactions["a"].expires_at_ms == 1100 + STALL_MS
    state, effects = step(state, Ticked(1100 + STALL_MS))
    assert isinstance(effects[0], Save) and effects[0].transaction.reason == "its lease expired"


def test_clock_set_back_does_not_extend_leases() -> None:
    state = after(begun(now_ms=90_000), Ticked(90_050), Ticked(50_000))
    assert state.transactions["a"].expires_at_ms == 50_050


def test_late_abort_is_refused() -> None:
    state = after(begun(), CommitRequested("a", "x", 2))
    asked = AbortRequested("a", "by me", 5, ask=3)
    assert effects_of(state, asked) == (Reply(3, NotCommitted(Phase.COMMITTING)),)
    stored = finished(begun(), CommitRequested("a", "x", 2), CommitPublished("a", RECEIPT, 6))
    asked = replace(asked, finished=stored)
    assert effects_of(State(LIMITS), asked) == (Reply(3, NotCommitted(Phase.COMMITTED)),)


def test_restart_looks_up_running_commits_and_renews_open_leases() -> None:
    stored = (
        TransactionState("a", "t", Phase.COMMITTING, 100, digest="x"),
        TransactionState("b", "t", Phase.ACTIVE, 100),
        TransactionState("d", "t", Phase.UNCLEAR, 100, digest="y"),
    )
    state, effects = step(State(LIMITS), Restored(stored, now_ms=500))
    assert effects == (LookUpCommit("a"),)
    assert state.transactions["b"].expires_at_ms == 600
    # The second of the table is looked up, not run: it may have been published, too.
    _, effects = step(state, CommitPublished("a", RECEIPT, 510))
    assert effects[-1] == LookUpCommit("d")


def test_clock_set_back_does_not_delay_file_removal() -> None:
    stored = (TransactionState("a", "t", Phase.ABORTING, 3_600_000),)
    state, _ = step(State(LIMITS), Restored(stored, now_ms=500))
    assert RemoveFiles("a") in effects_of(state, Ticked(500 + LIMITS.cleanup_grace_ms))


def test_unopened_transaction_is_unknown() -> None:
    for event in (
        HeartbeatRequested("a", 0, 1),
        CommitRequested("a", "x", 1),
        AbortRequested("a", "why", 0, 1),
    ):
        assert effects_of(State(LIMITS), event) == (Reply(1, Unknown()),)


def test_exclusive_table_refuses_a_second_transaction_until_the_first_ends() -> None:
    first = begin("a", "t", "ada", 0, ask=1, exclusive=True)
    second = begin("b", "t", "bob", 40, ask=2, exclusive=True)
    state = after(first)
    (refused,) = effects_of(state, second)
    assert isinstance(refused, Reply) and isinstance(refused.answer, Occupied)
    holder = refused.answer.holder
    assert (holder.id, holder.owner, holder.begun_at_ms) == ("a", "ada", 0)
    assert "b" not in step(state, second)[0].transactions
    assert "c" in after(first, begin("c", "u", "bob", 40, ask=2, exclusive=True)).transactions
    asked = CommitRequested("a", "x", 3)
    ends: list[tuple[Event, ...]] = [
        (AbortRequested("a", "why", 5, 3),),
        (Ticked(100),),
        (asked, CommitPublished("a", RECEIPT, 5)),
        (asked, CommitRefused("a", "why", 5)),
    ]
    for events in ends:
        assert "b" in after(first, *events, second).transactions, events
    for events in [
        (asked,),
        (asked, CommitUnclear("a")),
        (HeartbeatRequested("a", 90, 3), Ticked(100)),
    ]:
        assert "b" not in after(first, *events, second).transactions, events
    stored = (state.transactions["a"],)
    restored, _ = step(State(LIMITS), Restored(stored, now_ms=500))
    assert isinstance(effects_of(restored, second)[0].answer, Occupied)  # type: ignore[union-attr]


def test_waiters_for_an_exclusive_table_take_turns() -> None:
    def turn(state: State, id: str, now_ms: int) -> Answer:
        (reply,) = effects_of(state, TurnRequested(id, "t", now_ms, 9))
        assert isinstance(reply, Reply)
        return reply.answer

    state = after(begin("a", "t", "ada", 0, ask=1, exclusive=True))
    for now_ms, id in enumerate(("b", "c", "b", "d"), 10):
        state, _ = step(state, TurnRequested(id, "t", now_ms, 2))
    assert turn(state, "c", 20) == Occupied(state.transactions["a"], 1)
    state, _ = step(state, AbortRequested("a", "done", 20, 3))
    assert [turn(state, id, 20) for id in "bcde"] == [
        Done(),
        *(Occupied(None, ahead) for ahead in (1, 2, 3)),
    ]
    late = begin("c", "t", "cyd", 20, ask=4, exclusive=True, waits=True)
    assert "c" not in step(state, late)[0].transactions
    hurried = begin("z", "t", "group commit", 20, ask=4, exclusive=True)
    assert "z" in step(state, hurried)[0].transactions, (
        "who never waits takes a moment without a holder"
    )
    begun = begin("b", "t", "cyd", 21, ask=4, exclusive=True, waits=True)
    assert turn(step(state, begun)[0], "c", 22) == Occupied(
        step(state, begun)[0].transactions["b"], 0
    )
    assert turn(step(state, AbortRequested("b", "interrupted", 21, 5))[0], "c", 22) == Done()
    state, _ = step(state, TurnRequested("d", "t", WAITER_MS, 6))
    assert turn(state, "d", WAITER_MS + 20) == Done(), "the others have said nothing for too long"
    state, _ = step(
        state, begin("d", "t", "cyd", WAITER_MS + 21, ask=4, exclusive=True, waits=True)
    )
    assert state.lines == {}


def test_adopted_transaction_is_looked_up_before_its_commit() -> None:
    brought = adopt("a", "t", "me", "x", 2, now_ms=5, ask=1)
    state, (save, look_up) = step(State(LIMITS), brought)
    assert (
        isinstance(save, Save)
        and save.transaction.phase is Phase.UNCLEAR
        and save.transaction.adopted
    )
    assert look_up == LookUpCommit("a")
    assert effects_of(state, replace(brought, digest="y", ask=2)) == (Reply(2, Mismatch()),)
    _, (_, *replies) = step(state, CommitPublished("a", RECEIPT, 6))
    assert replies == [Reply(1, Committed(RECEIPT))]


def test_adopted_transaction_waits_for_its_table() -> None:
    state = after(begun("b"), CommitRequested("b", "x", 2))
    state, effects = step(state, adopt("a", "t", "me", "x", 2, now_ms=5, ask=3))
    assert [type(effect) for effect in effects] == [Save]
    assert effects_of(state, CommitPublished("b", RECEIPT, 6))[-1] == LookUpCommit("a")


def test_transaction_adopted_to_be_aborted_loses_its_files() -> None:
    brought = adopt("a", "t", "me", None, 2, now_ms=5, ask=1)
    state, effects = step(State(LIMITS), brought)
    assert effects[1:] == (Reply(1, Aborted()), RemoveFiles("a"))
    assert effects_of(state, replace(brought, ask=2)) == (Reply(2, Aborted()),)


def test_undetermined_commit_ends_the_wait_and_keeps_its_files() -> None:
    state = after(
        begun("a"), begun("b"), CommitRequested("a", "x", 2), CommitRequested("b", "x", 3)
    )
    state, effects = step(state, CommitUndetermined("a", "its snapshots have expired", 5))
    save, reply, run = effects
    assert isinstance(save, Save) and save.transaction.phase is Phase.UNDETERMINED
    assert reply == Reply(2, Undetermined("its snapshots have expired"))
    assert run == RunCommit("b")
    asked = CommitRequested("a", "x", 4, save.transaction)
    assert effects_of(state, asked) == (Reply(4, reply.answer),)
    asked_to_end = AbortRequested("a", "why", 9, 5, save.transaction)
    assert effects_of(state, asked_to_end) == (Reply(5, reply.answer),)


def test_files_of_an_aborted_transaction_stay_if_it_is_committed() -> None:
    state = after(
        begun("a"), begun("b"), CommitRequested("b", "x", 2), AbortRequested("a", "why", 3, 3)
    )
    state, effects = step(state, CommitPublished("a", RECEIPT, 6))
    assert [type(effect) for effect in effects] == [Save], "the commit of b goes on undisturbed"
    assert "a" not in state.transactions


def test_a_compaction_stays_open_while_some_of_its_buckets_conflict() -> None:
    committing = after(begun("a"), CommitRequested("a", "all", 2))
    refused = CommitRefused("a", "no", 10, Cause.COMPACTION, (1,))
    state, effects = step(committing, refused)
    reopened = TransactionState("a", "t", Phase.ACTIVE, 110, "me")
    assert effects == (Save(reopened), Reply(2, Refusal("no", Cause.COMPACTION, (1,))))
    state, effects = step(state, CommitRequested("a", "the others", 3))
    assert effects[-1] == RunCommit("a")
    state, effects = step(state, CommitPublished("a", RECEIPT, 20))
    assert effects[-1] == Reply(3, Committed(RECEIPT))
