"""Filters never change results: random tables, histories, projections and conditions.

Java writes the tables and reads all their rows. A query that leaves out files and columns must
return the rows that meet its condition. PAIMON_MAGICS_EXAMPLES is the number of examples;
`make soak` runs a hundred.
"""

from __future__ import annotations

import datetime
import itertools
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paimon_magics import Session
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.snapshots.latest import latest_snapshot
from tests.oracle.java_reader import JavaPaimon
from tests.sampling import examples

pytestmark = [pytest.mark.spark, pytest.mark.java]

# Spark and its tasks read all files, however few they are.
SETTINGS = {"local_rows_max": 0}

NUMBERS = itertools.count()
KEYED = "'primary-key' = 'p,k', 'bucket' = '2'"
KINDS = {
    "append": "",
    "append with buckets": "'bucket' = '2', 'bucket-key' = 'k'",
    "deduplicate": KEYED,
    "deduplicate by a sequence field": f"{KEYED}, 'sequence.field' = 'i'",
    "compacted": f"{KEYED}, 'num-sorted-run.compaction-trigger' = '1'",
    "deletion vectors": f"{KEYED}, 'deletion-vectors.enabled' = 'true'",
    "first-row": f"{KEYED}, 'merge-engine' = 'first-row'",
    "partial-update": f"{KEYED}, 'merge-engine' = 'partial-update'",
    "aggregation": f"{KEYED}, 'merge-engine' = 'aggregation', "
    "'fields.i.aggregate-function' = 'sum', 'fields.s.aggregate-function' = 'max'",
}
WITH_DELETES = ("deduplicate", "compacted", "deletion vectors")
COLUMNS = ("p", "k", "i", "s", "d", "t", "f", "b")
LITERALS: dict[str, list[str]] = {
    "p": ["'a'", "'b'", "''"],
    "k": ["0", "3", "5", "100"],
    "i": ["-1", "0", "2", "2147483647"],
    "s": ["'m'", "'zz'", "''", "'m '"],
    "d": ["1.50", "0", "-3.25"],
    "t": ["DATE'2026-01-02'", "DATE'1969-12-31'"],
    "f": ["1.5D", "CAST('NaN' AS DOUBLE)", "0D"],
    "b": ["true", "false"],
}


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), values)


rows = st.tuples(
    st.sampled_from(["a", "b"]),
    st.integers(0, 6),
    maybe(st.integers(-3, 3)),
    maybe(st.sampled_from(["", "m", "m ", "zz", "ü"])),
    maybe(st.sampled_from([Decimal("1.50"), Decimal("-3.25"), Decimal("0.00")])),
    maybe(st.sampled_from([datetime.date(2026, 1, 2), datetime.date(1969, 12, 31)])),
    maybe(st.sampled_from([1.5, math.nan, -0.0])),
    maybe(st.booleans()),
)
histories = st.lists(
    st.lists(st.tuples(rows, st.booleans()), min_size=1, max_size=6), min_size=1, max_size=4
)


@st.composite
def conditions(draw: st.DrawFn) -> str:
    def one() -> str:
        column = draw(st.sampled_from(COLUMNS))
        literal = st.sampled_from(LITERALS[column])
        match draw(st.integers(0, 5)):
            case 0:
                return f"{column} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
            case 1:
                return f"{column} IN ({draw(literal)}, {draw(literal)})"
            case 2:
                return f"NOT ({column} = {draw(literal)})"
            case 3:
                return f"({column} < {draw(literal)} OR {one()})"
            case _:
                operator = draw(st.sampled_from(["=", "<", "<=", ">", ">=", "<>"]))
                return f"{column} {operator} {draw(literal)}"

    return " AND ".join(one() for _ in range(draw(st.integers(1, 3))))


def exact(found: pa.Table) -> list[str]:
    return sorted(repr(tuple(row.values())) for row in found.to_pylist())


@settings(
    max_examples=examples(6),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    kind=st.sampled_from(list(KINDS)),
    file_format=st.sampled_from(["parquet", "orc", "avro"]),
    history=histories,
    condition=conditions(),
    columns=st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=4, unique=True),
)
def test_filtered_query_equals_filtering_all_rows(
    session: Session,
    java_paimon: JavaPaimon,
    warehouse: Path,
    kind: str,
    file_format: str,
    history: list[list[tuple[tuple[Any, ...], bool]]],
    condition: str,
    columns: list[str],
) -> None:
    name = f"t{next(NUMBERS)}"
    stored = f"'file.format' = '{file_format}', 'metadata.stats-mode' = 'full'"
    options = ", ".join(part for part in (KINDS[kind], stored) if part)
    session.run(
        f"CREATE TABLE {name} (p STRING NOT NULL, k INT NOT NULL, i INT, s STRING, "
        f"d DECIMAL(5, 2), t DATE, f DOUBLE, b BOOLEAN) PARTITIONED BY (p) "
        f"TBLPROPERTIES ({options})"
    )
    for commit in history:
        kinds = None
        if kind in WITH_DELETES:
            kinds = ["-D" if deleted else "+I" for _, deleted in commit]
        java_paimon.write(warehouse, f"default.{name}", [row for row, _ in commit], kinds=kinds)
    shown = ", ".join(columns)

    def check(query: str, table: str, everything: pa.Table) -> None:
        """Assert that the query returns the same from the table as from its rows in memory."""
        session.spark.createDataFrame(everything).createOrReplaceTempView("everything")
        expected = session.run(query.format("everything")).to_arrow()
        actual = session.run(query.format(table)).to_arrow()
        assert exact(actual) == exact(expected)

    everything = session.table(name).toArrow()
    theirs = java_paimon.rows(warehouse, f"default.{name}")
    assert sorted(map(repr, theirs)) == exact(everything)
    check(f"SELECT {shown} FROM {{}} WHERE {condition}", name, everything)
    log = f"{name}$audit_log"
    changed = f"SELECT rowkind, {shown} FROM {{}} WHERE {condition}"
    check(changed, log, session.table(log).toArrow())
    if kind != "first-row":
        latest = latest_snapshot(session.catalog.load(TableName(name, "default")).paimon).id
        everything = session.table(log, **{"incremental-between": f"0,{latest}"}).toArrow()
        changes = f"{log} WITH ('incremental-between' = '0,{latest}')"
        check(changed, changes, everything)
        # Rows of an aggregate need not stay together: a raw scan may have them.
        counts = f"SELECT rowkind, count(*), sum(k), max(s) FROM {{}} WHERE {condition}"
        check(f"{counts} GROUP BY rowkind", changes, everything)
