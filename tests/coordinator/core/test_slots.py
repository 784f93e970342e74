"""A statement that drops or renames a table waits for commits under way, and they wait for it."""

from paimon_magics.coordinator.core.events import (
    CommitPublished,
    CommitRequested,
    CommitUnclear,
    LookUpCommit,
    Reply,
    RunCommit,
    SlotEnded,
    SlotRequested,
)
from paimon_magics.coordinator.core.state import State
from paimon_magics.coordinator.core.step import step
from paimon_magics.coordinator.core.values import Done
from paimon_magics.planning.commits.requests import CommitReceipt
from tests.coordinator.core.requests import begin

RECEIPT = CommitReceipt(7, "APPEND", 10, 3)


def after(state, *events):
    """The state after events, and the effects of the last one without Save."""
    effects = ()
    for event in events:
        state, effects = step(state, event)
    wanted = (Reply, RunCommit, LookUpCommit)
    return state, [effect for effect in effects if isinstance(effect, wanted)]


def committing():
    state, effects = after(State(), begin("a", "t", "me", 0, 1), CommitRequested("a", "digest", 2))
    assert effects == [RunCommit("a")]
    return state


def test_slot_of_a_free_table_is_granted_at_once():
    state, effects = after(State(), SlotRequested("t", 1))
    assert effects == [Reply(1, Done())]
    assert after(state, SlotEnded("t", 1))[0].running == {}


def test_unclear_commit_is_settled_before_a_slot_is_granted():
    state, effects = after(committing(), SlotRequested("t", 3))
    assert effects == []
    state, effects = after(state, CommitUnclear("a"))
    assert effects == [LookUpCommit("a")]
    state, effects = after(state, CommitPublished("a", RECEIPT, 5))
    assert Reply(3, Done()) in effects
    assert "t" in state.running


def test_commits_and_statements_wait_for_the_slot_holder():
    state, _ = after(State(), SlotRequested("t", 1), begin("a", "t", "me", 0, 2))
    state, effects = after(state, CommitRequested("a", "digest", 3))
    assert effects == []
    state, effects = after(state, SlotRequested("t", 4))
    assert effects == []
    assert after(state, SlotRequested("u", 5))[1] == [Reply(5, Done())]
    state, effects = after(state, SlotEnded("t", 1))
    assert effects == [Reply(4, Done())]
    assert after(state, SlotEnded("t", 4))[1] == [RunCommit("a")]


def test_withdrawn_slot_request_is_forgotten():
    state, effects = after(committing(), SlotRequested("t", 3), SlotEnded("t", 3))
    assert (effects, state.slot_asks) == ([], {})
    assert Reply(3, Done()) not in after(state, CommitPublished("a", RECEIPT, 5))[1]
