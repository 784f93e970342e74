from __future__ import annotations

import pytest

from paimon_magics.planning.progress import Progress, StageProgress, duration_text

DONE = StageProgress(4, 4, rows_read=1_000_000, bytes_read=20 * 2**20, seconds=6)


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (Progress(0.6), "Spark is preparing the job, 0 s"),
        (Progress(3, doing="starting"), "Spark is starting, 3 s"),
        (Progress(2, (StageProgress(200, 2, 2),)), "Spark: stage 1, 2 of 200 tasks, 2 s so far"),
        (
            Progress(10, (DONE, StageProgress(10, 5, 2, seconds=4))),
            "Spark: stage 2, 5 of 10 tasks, 1,000,000 rows read, 20 MiB read, 2 MiB/s, "
            "10 s so far, about 4 s left in this stage",
        ),
        (
            Progress(4, (StageProgress(8, 1, 2, rows_read=4_000, seconds=4),)),
            "Spark: stage 1, 1 of 8 tasks, 4,000 rows read, 1,000 rows/s, 4 s so far",
        ),
        (
            Progress(9, (DONE,)),
            "Spark: stage 1, 4 of 4 tasks, 1,000,000 rows read, 20 MiB read, 2.2 MiB/s, 9 s so far",
        ),
    ],
)
def test_the_line_says_what_is_known(progress: Progress, text: str) -> None:
    assert progress.text() == text


def test_the_share_is_of_the_running_stages() -> None:
    assert Progress(1, (DONE, StageProgress(10, 5), StageProgress(10, 0))).share == 0.25
    assert Progress(1, (DONE,)).share is None


def test_time_is_left_by_the_slowest_stage_once_all_of_them_can_say() -> None:
    quick, slow = StageProgress(10, 9, seconds=9), StageProgress(10, 3, seconds=9)
    assert Progress(9, (quick, slow)).seconds_left == pytest.approx(21)
    assert Progress(9, (quick, StageProgress(10, 0, 2, seconds=9))).seconds_left is None


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.9, "0 s"), (59, "59 s"), (125, "2 min 5 s"), (11_045, "3 h 4 min")]
)
def test_a_duration_has_two_units(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
