"""Reads that Paimon's Spark connector was recorded with, through sessions: options, SQL, zones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as F

from paimon_magics import Session
from paimon_magics.errors import (
    InvalidValueError,
    PaimonMagicsError,
    StatementError,
    UnknownNameError,
)
from paimon_magics.statements.clauses.names import quoted
from tests.recorded_reads import RecordedRead, assert_same_rows, recorded_reads
from tests.sampling import sampled
from tests.session.rows import rows

pytestmark = pytest.mark.spark

# One state and one window of each kind of table, in each of the views. That all recorded reads are
# equal is tested without Spark; here, that Spark gets the same rows.
TABLES = ("a1.s01", "a1.s05", "a1.s07", "a1.s09", "a1.s10", "a2.s02", "a2.s16", "e1.e6", "e3.cx")


def chosen() -> Iterator[RecordedRead]:
    seen = set()
    for read in recorded_reads():
        table, _, view = read.table.partition("$")
        if table not in TABLES or view not in ("", "audit_log", "binlog", "ro") or not read.rows:
            continue
        mode = read.options.get("incremental-between-scan-mode", sorted(read.options)[:1] or "")
        if (table, view, str(mode)) not in seen:
            seen.add((table, view, str(mode)))
            yield read


READS = list(chosen())


@pytest.fixture(scope="module")
def module_warehouse(recorded_warehouse: Path) -> Path:
    return recorded_warehouse


@pytest.fixture(scope="module")
def recorded(module_session: Session) -> Session:
    return module_session


@pytest.mark.parametrize("read", sampled({read.id: read for read in READS}))
def test_table_reads_return_the_recorded_rows(recorded: Session, read: RecordedRead) -> None:
    frame = recorded.table(read.table, **read.options)
    if read.select is not None:
        frame = frame.select(*read.select)
    assert_same_rows(read, frame.toArrow())


ALL = {read.id: read for read in recorded_reads()}


@pytest.mark.parametrize("read", sampled(ALL, one_in=120))
def test_narrowed_frames_and_sql_return_the_same_rows(
    recorded: Session, read: RecordedRead
) -> None:
    hints = ", ".join(f"'{key}' = '{value}'" for key, value in read.options.items())
    chosen = "*" if read.select is None else ", ".join(map(quoted, read.select))
    query = f"SELECT {chosen} FROM {read.table}" + (f" WITH ({hints})" if hints else "")
    if read.error is not None:
        with pytest.raises(PaimonMagicsError) as by_sql:
            recorded.run(query)
        with pytest.raises(type(by_sql.value)) as by_frame:
            recorded.table(read.table, **read.options)
        assert by_frame.value.message == by_sql.value.message
        return
    ran = recorded.run(query)
    expected = ran.to_arrow()
    frame = recorded.table(read.table, **read.options)
    frame = frame if read.select is None else frame.select(*map(quoted, read.select))
    assert frame.schema.simpleString() == ran.dataframe.schema.simpleString()
    assert _sorted(frame.toArrow()) == _sorted(expected)
    names = expected.column_names[::2]
    assert _sorted(frame.select(*map(quoted, names)).toArrow()) == _sorted(expected.select(names))
    assert frame.count() == expected.num_rows
    for name in expected.column_names:
        value = next((v for v in expected[name].to_pylist() if isinstance(v, str | int)), None)
        if value is None or pa.types.is_nested(expected[name].type):
            continue
        rest = frame.where(F.col(quoted(name)) == value).select(*map(quoted, names)).toArrow()
        kept = expected.filter(pc.equal(expected[name], pa.scalar(value, expected[name].type)))
        assert _sorted(rest) == _sorted(kept.select(names))


def in_order(
    session: Session, query: str, bound: Mapping[str, object] | None = None
) -> list[tuple[Any, ...]]:
    return sorted(rows(session, query, bound))


@pytest.mark.parametrize(
    "clause",
    [
        "VERSION AS OF 1",
        "VERSION AS OF '1'",
        "FOR SYSTEM_VERSION AS OF 1",
        "VERSION AS OF :version",
        "WITH ('scan.snapshot-id' = '1')",
    ],
)
def test_a_past_state_is_read_by_its_number(recorded: Session, clause: str) -> None:
    bound = {"version": 1} if ":version" in clause else {}
    assert in_order(recorded, f"SELECT * FROM a1.s05 {clause} AS t", bound) == [(1, "a"), (2, "b")]
    query = f"SELECT rowkind, v FROM a1.s05$audit_log {clause} WHERE k = 1"
    assert in_order(recorded, query, bound) == [("+I", "a")]


def test_a_past_state_is_read_by_its_time(recorded: Session) -> None:
    times = in_order(recorded, "SELECT snapshot_id, commit_time FROM a1.s05$snapshots")
    (moment,) = [time for number, time in times if number == 1]
    text = moment.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    expected = [(1, "a"), (2, "b")]
    for value in (f"'{text}'", f"TIMESTAMP '{text}'", f"CAST('{text}' AS TIMESTAMP)"):
        assert in_order(recorded, f"SELECT * FROM a1.s05 TIMESTAMP AS OF {value}") == expected
    with pytest.raises(UnknownNameError, match="its first snapshot is from"):
        recorded.run("SELECT * FROM a1.s05 TIMESTAMP AS OF '2001-01-01'")
    with pytest.raises(InvalidValueError, match="TIMESTAMP AS OF"):
        recorded.run("SELECT * FROM a1.s05 TIMESTAMP AS OF 'noon'")


def test_an_older_state_has_the_columns_of_its_time(recorded: Session) -> None:
    first = recorded.run("SELECT * FROM a2.s12 VERSION AS OF 1").to_arrow()
    latest = recorded.run("SELECT * FROM a2.s12").to_arrow()
    assert first.column_names != latest.column_names


@pytest.mark.parametrize(
    ("function", "options"),
    [
        ("paimon_incremental_query('a1.s05$audit_log', 0, 4)", {"incremental-between": "0,4"}),
        ("paimon_incremental_query('a1.s05', '0', '4')", {"incremental-between": "0,4"}),
    ],
)
def test_table_function_reads_changes_like_the_option(
    recorded: Session, function: str, options: dict[str, str]
) -> None:
    name = function.split("'")[1]
    by_options = sorted(tuple(row) for row in recorded.table(name, **options).collect())
    assert in_order(recorded, f"SELECT c.* FROM {function} AS c") == by_options
    assert in_order(recorded, f"SELECT * FROM {function}") == by_options


def test_conditions_and_column_lists_do_not_change_rows_read(recorded: Session) -> None:
    for table in ("a1.s05", "a1.s05$audit_log", "a1.s09", "a1.s07", "a2.s02"):
        everything = recorded.run(f"SELECT * FROM {table}").to_arrow()
        key = everything.column_names[-2]
        for value in [v for v in everything.column(key).to_pylist() if v is not None][:3]:
            literal = repr(value)
            actual = recorded.run(f"SELECT * FROM {table} WHERE {key} = {literal}").to_arrow()
            expected = everything.filter(pa.compute.equal(everything[key], value))
            assert _sorted(actual) == _sorted(expected)
        for name in everything.column_names:
            actual = recorded.run(f"SELECT {name} FROM {table}").to_arrow()
            assert _sorted(actual) == _sorted(everything.select([name]))


def _sorted(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("SELECT * FROM a1.s05 VERSION AS OF 99", "no snapshot 99"),
        ("SELECT * FROM a1.s05 VERSION AS OF 'nope'", "no tag 'nope'"),
        ("SELECT * FROM a1.s05 WITH ('scan.snapshot' = '1')", "no read option 'scan.snapshot'"),
        (
            "SELECT * FROM a1.s05 WITH ('scan.snapshot-id' = '1', 'scan.tag-name' = 'x')",
            "contradict each other",
        ),
        ("SELECT * FROM a1.s05 WITH ('bucket' = '1')", "can't be given for one read"),
        ("SELECT * FROM paimon_incremental_query('a1.s05', 4, 2)", "can't end at snapshot 2"),
        ("SELECT * FROM paimon_incremental_query('a1.s05', 0, 99)", "all changes from snapshot"),
        ("SELECT * FROM paimon_incremental_query('a1.s05', 'a', 'b')", "neither two tags nor"),
    ],
)
def test_missing_snapshot_tag_or_option_is_named_in_error(
    recorded: Session, query: str, told: str
) -> None:
    with pytest.raises(StatementError) as error:
        recorded.run(query)
    assert told in error.value.message
    assert error.value.hint


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata"])
def test_session_zone_does_not_change_stored_values(recorded: Session, zone: str) -> None:
    before = recorded.spark.conf.get("spark.sql.session.timeZone")
    query = "SELECT CAST(unix_micros(ts) AS STRING), CAST(nt AS STRING) FROM e3.cx$ro"
    expected = in_order(recorded, query)
    recorded.spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        assert in_order(recorded, query) == expected
    finally:
        recorded.spark.conf.set("spark.sql.session.timeZone", before)
