from __future__ import annotations

from paimon_magics.planning.job_progress import RowCounts, StageRows


def test_rows_are_attributed_to_the_running_stage() -> None:
    actual = StageRows().then(RowCounts(10, 8), {1})
    assert actual.stages == {1: RowCounts(10, 8)}
    actual = actual.then(RowCounts(15, 14), {1})
    assert actual.stages == {1: RowCounts(15, 14)}


def test_late_rows_are_attributed_to_the_ended_stage() -> None:
    actual = StageRows().then(RowCounts(10, 8), {1}).then(RowCounts(20, 20, 5), {2})
    assert actual.stages == {1: RowCounts(20, 20), 2: RowCounts(fetched=5)}
    actual = actual.then(RowCounts(20, 20, 20), set())
    assert actual.stages == {1: RowCounts(20, 20), 2: RowCounts(fetched=20)}


def test_concurrent_stages_share_the_rows_without_loss() -> None:
    actual = StageRows().then(RowCounts(11), {1, 2})
    assert actual.stages == {1: RowCounts(6), 2: RowCounts(5)}


def test_rows_wait_for_the_first_stage_and_never_decrease() -> None:
    assert StageRows().then(RowCounts(5), set()) == StageRows()
    actual = StageRows().then(RowCounts(5), {1}).then(RowCounts(), {1})
    assert actual.stages == {1: RowCounts(5)}, "a task is tried again"
