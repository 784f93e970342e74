from __future__ import annotations

import pytest

from paimon_magics.planning.job_progress import Pace, Progress, StageProgress, Work, duration_text

DONE = StageProgress(4, 4, rows_read=1_000_000, bytes_read=20 * 2**20, seconds=6)
ORDERS = Work(("orders",), rows=4_000, size_bytes=2**20, files=3)
KEYED = Work((), rows=1_000, shuffle="by bucket", target="buckets", is_plain=True)


def reading(rows: int, seconds: float = 8) -> StageProgress:
    """A stage of two tasks of which none has ended."""
    return StageProgress(2, 0, 2, rows_read=rows, seconds=seconds)


def writing(rows: int, seconds: float = 8) -> StageProgress:
    return StageProgress(2, 0, 2, rows_written=rows, writes=True, seconds=seconds)


SHUFFLED = StageProgress(2, 2, rows_read=1_000, rows_shuffled=1_000, seconds=8)


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (Progress(0.6), "Spark is preparing the job, 0 s"),
        (Progress(3, doing="Spark is starting"), "Spark is starting, 3 s"),
        (
            Progress(2, (StageProgress(200, 2, 2),)),
            "Spark: computing, stage 1, 2 of 200 tasks, 2 s so far",
        ),
        (
            Progress(10, (DONE, StageProgress(10, 5, 2, seconds=4))),
            "Spark: computing, stage 2, 5 of 10 tasks, 1,000,000 rows read, 20 MiB read, "
            "10 s so far, about 4 s left in this stage",
        ),
        (
            Progress(8, (reading(1_000),), work=ORDERS, pace=Pace(((4, 0, 0), (8, 1_000, 4096)))),
            "Spark: reading orders, stage 1, 0 of 2 tasks, 1,000 of 4,000 rows read, 250 rows/s, "
            "1 KiB/s, 8 s so far, about 24 s left in this stage",
        ),
        (
            Progress(8, (reading(500),), work=KEYED),
            "Spark: reading and shuffling by bucket, stage 1, 0 of 2 tasks, 500 of 1,000 rows "
            "read, 8 s so far, about 40 s left",
        ),
        (
            Progress(16, (SHUFFLED, writing(500)), work=KEYED),
            "Spark: writing buckets, stage 2, 0 of 2 tasks, 1,000 of 1,000 rows read, 500 rows "
            "written, 16 s so far, about 8 s left",
        ),
        (
            Progress(9, (StageProgress(2, 0, 2, seconds=9),)),
            "Spark: computing, stage 1, 0 of 2 tasks, no rows reported yet, 9 s so far",
        ),
        (Progress(2, (StageProgress(0, 0, rows_written=7, writes=True),)),
         "Spark: writing files, stage 1, 7 rows written, 2 s so far"),
    ],
)  # fmt: skip
def test_progress_line_shows_the_known_values(progress: Progress, text: str) -> None:
    assert progress.text() == text


def test_stage_is_named_by_its_table_before_the_first_rows() -> None:
    assert Progress(1, (reading(0),), work=ORDERS).text().startswith("Spark: reading orders, ")
    later = Progress(1, (DONE, reading(0)), work=ORDERS).text()
    assert later.startswith("Spark: computing, ")


def test_many_sources_are_shown_as_a_count() -> None:
    work = Work(("a", "b", "c", "d"), rows=10)
    assert "reading 4 tables," in Progress(1, (reading(5),), work=work).text()


def test_share_counts_tasks_where_rows_are_unknown() -> None:
    assert Progress(1, (DONE, StageProgress(10, 5), StageProgress(10, 0))).share == 0.25
    assert Progress(1, (DONE,)).share is None


def test_share_counts_rows_and_bytes_before_a_task_ends() -> None:
    assert Progress(8, (reading(1_000),), work=ORDERS).share == 0.25
    half = StageProgress(2, 0, 2, bytes_read=2**19, seconds=1)
    assert Progress(8, (half,), work=Work(size_bytes=2**20)).share == 0.5
    # Conditions pass over rows: what has ended is done, however little it read.
    ended = StageProgress(2, 1, 1, rows_read=10, seconds=1)
    assert Progress(8, (ended,), work=ORDERS).share == 0.5


def test_bar_is_full_of_no_running_stage() -> None:
    # All rows are read, and what a join makes of them is unknown.
    assert Progress(8, (reading(4_000),), work=ORDERS).share is None
    assert Progress(8, (reading(9_000),), work=ORDERS).share is None
    nearly = StageProgress(1_000, 999, 1)
    assert Progress(8, (DONE, nearly)).share == 0.99
    assert Progress(16, (SHUFFLED, writing(1_000)), work=KEYED).share == 0.99
    direct = Work((), rows=1_000, target="files", is_plain=True)
    assert Progress(16, (writing(1_000),), work=direct).share == 0.99


def test_reading_stages_share_the_rows_to_read() -> None:
    """As the sides of a join, at the same time or one after the other."""
    both = Progress(8, (reading(1_000), reading(2_000)), work=ORDERS)
    assert (both.share, both.seconds_left) == (0.75, pytest.approx(8 / 3))
    first = StageProgress(2, 2, rows_read=3_000, seconds=5)
    assert Progress(8, (first, reading(500)), work=ORDERS).share == 0.5


def test_share_of_an_insert_covers_both_stages() -> None:
    shares = [
        Progress(1, stages, work=KEYED).share
        for stages in (
            (reading(0),), (reading(500),), (SHUFFLED, writing(0)), (SHUFFLED, writing(500)),
        )
    ]  # fmt: skip
    assert shares == pytest.approx([0, 1 / 6, 2 / 3, 5 / 6])


def test_share_counts_fetched_rows_where_a_stage_reads_none() -> None:
    """As the sort before a write, or the second stage of an aggregation."""
    fetching = StageProgress(2, 0, 2, rows_fetched=500, seconds=4)
    insert = Progress(12, (SHUFFLED, fetching), work=KEYED)
    assert insert.text() == (
        "Spark: sorting for buckets, stage 2, 0 of 2 tasks, 1,000 of 1,000 rows read, "
        "500 of 1,000 rows fetched, 12 s so far, about 12 s left"
    )
    assert insert.share == 0.5
    counting = Progress(12, (SHUFFLED, fetching))
    assert (counting.share, counting.seconds_left) == (0.5, 4)
    # Of two stages before, one has taken its rows already.
    two = StageProgress(2, 2, rows_fetched=1_000, rows_shuffled=500, seconds=1)
    half = StageProgress(2, 0, 2, rows_fetched=250, seconds=4)
    assert Progress(12, (SHUFFLED, two, half)).share == 0.5


def test_writing_stage_expects_the_shuffled_rows() -> None:
    aggregated = Work(("orders",), rows=4_000, shuffle="by bucket", target="buckets")
    shuffled = StageProgress(2, 2, rows_read=4_000, rows_shuffled=100)
    assert Progress(1, (shuffled, writing(50)), work=aggregated).share == 0.5


def test_slowest_stage_determines_the_time_left() -> None:
    quick, slow = StageProgress(10, 9, seconds=9), StageProgress(10, 3, seconds=9)
    assert Progress(9, (quick, slow)).seconds_left == pytest.approx(21)
    assert Progress(9, (quick, StageProgress(10, 0, 2, seconds=9))).seconds_left is None


def test_pace_is_measured_from_the_first_rows() -> None:
    sorted_first = StageProgress(2, 0, 2, rows_written=500, writes=True, seconds=20, rows_seconds=4)
    assert Progress(30, (SHUFFLED, sorted_first), work=KEYED).seconds_left == 4
    sorting = StageProgress(2, 0, 2, seconds=9)
    waiting = Progress(30, (SHUFFLED, sorting), work=KEYED)
    assert (waiting.share, waiting.seconds_left) == (pytest.approx(1 / 3), 8)
    long = Progress(60, (SHUFFLED, StageProgress(2, 0, 2, seconds=40)), work=KEYED)
    assert long.seconds_left == 8, "the stage before says nothing of sorting any more"
    assert "sorting for buckets, stage 2, 0 of 2 tasks" in waiting.text()


def test_first_rows_give_no_estimate_of_the_time_left() -> None:
    assert Progress(8, (reading(10),), work=ORDERS).seconds_left is None
    assert Progress(8, (reading(1_000, 0.5),), work=ORDERS).seconds_left is None


def test_fully_read_stage_gives_no_estimate_of_the_time_left() -> None:
    """A sort or an aggregation goes on with them."""
    assert Progress(8, (reading(4_000),), work=ORDERS).seconds_left is None


def test_rate_covers_the_last_seconds() -> None:
    pace = Pace()
    assert pace.rates == (0.0, 0.0)
    for second in range(21):
        pace = pace.then(second, 1_000 * second if second < 15 else 15_000, 0)
    assert pace.rates == (0.0, 0.0)
    assert Pace().then(0, 0, 0).then(2, 10, 100).rates == (5.0, 50.0)
    assert Pace().then(1, 5, 5).then(2, 3, 5).rates == (0.0, 0.0), "tasks may begin again"
    sorted_now = Pace().then(1, 20_000, 0).then(2, 100, 0).then(4, 300, 0)
    assert sorted_now.rates == (100.0, 0.0), "what was fetched is written now"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.9, "0 s"), (59, "59 s"), (125, "2 min 5 s"), (11_045, "3 h 4 min")]
)
def test_duration_shows_at_most_two_units(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
