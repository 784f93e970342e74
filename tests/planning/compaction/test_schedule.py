"""Which table a coordinator compacts next."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paimon_magics.errors import InvalidTableError
from paimon_magics.planning.compaction.schedule import (
    Assess,
    Pressure,
    Schedule,
    Seen,
    State,
    Work,
)
from paimon_magics.planning.schemas.table_schema import TableSchema, plan_create_table
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable, TableName

SETTLE_MS = 100
FIVE = Pressure(5)


def name(table: str) -> TableName:
    return TableName(table, database="d")


def schema(options: str, key: bool = True) -> TableSchema:
    primary = "'primary-key' = 'k', " if key else ""
    parsed = parse_statement(
        f"CREATE TABLE t (k INT NOT NULL, v STRING) TBLPROPERTIES ({primary}'bucket' = "
        f"'{1 if key else -1}'{options})"
    )
    assert isinstance(parsed, CreateTable)
    return plan_create_table(parsed)


def full(*tables: str, at_ms: int = 0) -> Schedule:
    schedule = Schedule(SETTLE_MS)
    for table in tables:
        for _ in range(5):
            schedule.committed(table, name(table), FIVE, at_ms)
    return schedule


def look(schedule: Schedule, table: str, seen: Seen, at_ms: int) -> None:
    assert schedule.next(at_ms) == Assess(table)
    schedule.seen(table, seen, at_ms)


def test_table_is_assessed_after_enough_commits_and_a_delay() -> None:
    schedule = Schedule(SETTLE_MS)
    for at_ms in range(4):
        schedule.committed("a", name("a"), FIVE, at_ms)
    assert schedule.wait_ms(4) is None and not schedule.has_work
    schedule.committed("a", name("a"), FIVE, 4)
    assert schedule.wait_ms(4) == SETTLE_MS and schedule.has_work
    assert schedule.next(4 + SETTLE_MS - 1) is None
    assert schedule.next(4 + SETTLE_MS) == Assess("a")
    assert schedule.next(4 + SETTLE_MS) is None, "one look at a time"
    schedule.seen("a", Seen(), 110)
    assert schedule.tables["a"].state is State.TIDY and not schedule.has_work


def test_smallest_table_goes_first_but_large_tables_do_not_starve() -> None:
    schedule = full("large", "small")
    look(schedule, "large", Seen(1, 1 << 30), SETTLE_MS)
    look(schedule, "small", Seen(1, 1 << 20), SETTLE_MS)
    assert schedule.next(SETTLE_MS) == Work("small")
    schedule.seen("small", Seen(), SETTLE_MS)
    # Others keep coming, each a thousandth as large: after some minutes the large one is next.
    at_ms = SETTLE_MS
    while at_ms < 30 * 60_000:
        at_ms += 60_000
        for _ in range(5):
            schedule.committed("small", name("small"), FIVE, at_ms - SETTLE_MS)
        look(schedule, "small", Seen(1, 1 << 20), at_ms)
        if schedule.next(at_ms) == Work("large"):
            break
        schedule.seen("small", Seen(), at_ms)
    assert 5 * 60_000 < at_ms < 15 * 60_000


def test_remaining_work_is_rescheduled_with_its_age() -> None:
    schedule = full("a")
    look(schedule, "a", Seen(3, 300), SETTLE_MS)
    assert schedule.next(500) == Work("a")
    schedule.seen("a", Seen(2, 200), 600)
    assert schedule.tables["a"].since_ms == SETTLE_MS
    assert schedule.next(700) == Work("a")
    schedule.seen("a", Seen(large_buckets=1, large_bytes=9), 800)
    watched = schedule.tables["a"]
    assert (watched.state, watched.since_ms) == (State.TIDY, None)
    assert schedule.next(10**9) is None, "what is too large waits for people"


def test_failure_is_retried_with_growing_delays() -> None:
    schedule = full("a")
    waits = []
    at_ms = SETTLE_MS
    for _ in range(12):
        assert schedule.next(at_ms) == Assess("a")
        schedule.failed("a", "no store", at_ms)
        assert schedule.tables["a"].state is State.FAILED and not schedule.has_work
        waits.append(schedule.wait_ms(at_ms) or 0)
        at_ms += waits[-1]
    assert waits[:3] == [30_000, 60_000, 120_000]
    assert max(waits) == 3_600_000
    look(schedule, "a", Seen(), at_ms)
    assert schedule.tables["a"].problem == ""


def test_commits_during_work_are_counted() -> None:
    schedule = full("a")
    assert schedule.next(SETTLE_MS) == Assess("a")
    for _ in range(5):
        schedule.committed("a", name("a"), FIVE, SETTLE_MS)
    schedule.seen("a", Seen(), SETTLE_MS)
    assert schedule.next(2 * SETTLE_MS) == Assess("a")


def test_foreign_compactions_add_no_pressure() -> None:
    schedule = Schedule(SETTLE_MS)
    schedule.committed("a", name("a"), FIVE, 0, compacts=True)
    assert schedule.tables["a"].commits == 0
    twice = Pressure(2, counts_inline=True)
    for _ in range(10):  # an INSERT, and the compaction after it
        schedule.committed("b", name("b"), twice, 0)
        schedule.committed("b", name("b"), twice, 0, compacts=True)
    assert not schedule.has_work


def test_nearly_full_bucket_is_assessed_after_the_next_commit() -> None:
    schedule = full("a")
    look(schedule, "a", Seen(fullest=4), SETTLE_MS)
    assert not schedule.has_work
    schedule.committed("a", name("a"), FIVE, 200)
    assert schedule.wait_ms(200) == SETTLE_MS


def test_excluded_or_dropped_table_is_forgotten() -> None:
    schedule = full("a", "b")
    schedule.committed("a", name("a"), Pressure(0), 1)
    schedule.dropped("b")
    assert not schedule.tables and schedule.next(10**6) is None
    # Also in the middle of a job.
    schedule = full("a")
    assert schedule.next(SETTLE_MS) == Assess("a")
    schedule.dropped("a")
    schedule.seen("a", Seen(1, 1), SETTLE_MS)
    schedule.failed("a", "gone", SETTLE_MS)
    assert not schedule.tables


@pytest.mark.parametrize(
    ("options", "key", "by_default", "pressure"),
    [
        ("", True, True, Pressure(5)),
        ("", False, True, Pressure(5)),
        ("", True, False, Pressure(0)),
        (", 'auto_compact' = 'true'", True, False, Pressure(5)),
        (", 'auto_compact' = 'false'", True, True, Pressure(0)),
        (", 'num-sorted-run.compaction-trigger' = '3'", True, True, Pressure(3)),
        (", 'compaction.min.file-num' = '9'", False, True, Pressure(9)),
        (", 'changelog-producer' = 'lookup'", True, True, Pressure(1, counts_inline=True)),
        (", 'write-only' = 'true'", True, True, Pressure(0)),
        (", 'write-only' = 'true', 'auto_compact' = 'true'", True, False, Pressure(5)),
    ],
)
def test_commit_threshold_follows_the_table_options(
    options: str, key: bool, by_default: bool, pressure: Pressure
) -> None:
    assert Pressure.of(schema(options, key), by_default=by_default) == pressure


def test_invalid_auto_compact_option_is_refused() -> None:
    table = schema("")
    wrong = replace(table, options=(*table.options, ("auto_compact", "often")))
    with pytest.raises(InvalidTableError, match="auto_compact"):
        Pressure.of(wrong, by_default=True)
