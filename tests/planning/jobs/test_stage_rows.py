from __future__ import annotations

from paimon_magics.planning.jobs.progress import RowCounts, StageRows


def test_rows_belong_to_the_stages_that_run() -> None:
    found = StageRows().then(RowCounts(10, 8), {1})
    assert found.stages == {1: RowCounts(10, 8)}
    found = found.then(RowCounts(15, 14), {1})
    assert found.stages == {1: RowCounts(15, 14)}


def test_rows_of_a_stage_that_has_ended_come_a_moment_late() -> None:
    found = StageRows().then(RowCounts(10, 8), {1}).then(RowCounts(20, 20, 5), {2})
    assert found.stages == {1: RowCounts(20, 20), 2: RowCounts(fetched=5)}
    found = found.then(RowCounts(20, 20, 20), set())
    assert found.stages == {1: RowCounts(20, 20), 2: RowCounts(fetched=20)}


def test_stages_at_the_same_time_share_the_rows_and_none_is_lost() -> None:
    found = StageRows().then(RowCounts(11), {1, 2})
    assert found.stages == {1: RowCounts(6), 2: RowCounts(5)}


def test_rows_wait_for_the_first_stage_and_never_go_back() -> None:
    assert StageRows().then(RowCounts(5), set()) == StageRows()
    found = StageRows().then(RowCounts(5), {1}).then(RowCounts(), {1})
    assert found.stages == {1: RowCounts(5)}, "a task is tried again"
