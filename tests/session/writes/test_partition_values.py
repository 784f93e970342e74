"""Partitions of odd values: written by either writer, they lie where Java puts them, and it reads
them."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from paimon_magics import Session
from paimon_magics.errors import InvalidValueError
from tests.oracle.java_reader import JavaPaimon
from tests.sampling import sampled

pytestmark = [pytest.mark.spark, pytest.mark.java]

UTC = datetime.UTC
DAY, AT = datetime.date, datetime.datetime
TEXTS = [
    *["", " ", "\t", "a ", " a", "null", "__DEFAULT_PARTITION__", "=", "a=b", "p=1", "a/b", "/"],
    *[
        "%",
        "%2F",
        "100%",
        "a:b",
        "a\\b",
        'a"b',
        "it's",
        "#",
        "?x=1",
        "*",
        "[a]",
        "{a}",
        "^",
        ".",
        "..",
    ],
    *[".hidden", "_a", "\n", "\x7f", "ünï", "日本", "😀", "e\u0301", "x" * 200],
]
VALUES: dict[str, list[Any]] = {
    "STRING": TEXTS,
    "BOOLEAN": [True, False],
    "TINYINT": [-128, 0, 127],
    "SMALLINT": [-(2**15), 2**15 - 1],
    "INT": [-(2**31), 0, 2**31 - 1],
    "BIGINT": [-(2**63), 2**63 - 1],
    "DECIMAL(10, 2)": [Decimal("-1.50"), Decimal("0.00"), Decimal("0.01"), Decimal("99999999.99")],
    "DECIMAL(38, 18)": [
        Decimal("-0.000000000000000001"),
        Decimal("12345678901234567890." + "1" * 18),
    ],
    "DATE": [DAY(1, 1, 1), DAY(1582, 10, 4), DAY(1969, 12, 31), DAY(1970, 1, 1), DAY(9999, 12, 31)],
    "TIMESTAMP_NTZ": [AT(1, 1, 1), AT(1969, 12, 31, 23, 59, 59, 999999), AT(2026, 11, 21, 12, 30)],
    "TIMESTAMP": [AT(1901, 1, 1, 0, 0, 0, 1, UTC), AT(2026, 11, 21, tzinfo=UTC)],
}


def folders(warehouse: Path) -> set[str]:
    return {path.name for path in (warehouse / "default.db" / "t").glob("p=*")}


def bound(value: Any) -> Any:
    """The value as PySpark binds it: dates as texts, since it takes early ones for Julian ones."""
    return value.isoformat() if isinstance(value, datetime.date) else value


@pytest.mark.parametrize("kind", sampled([*VALUES]))
def test_odd_partition_values_get_the_same_folders_as_in_java(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, kind: str
) -> None:
    session.run(f"CREATE TABLE t (k INT, p {kind}) PARTITIONED BY (p)")
    rows = list(enumerate([*VALUES[kind], None]))
    parameters = {f"v{position}": bound(value) for position, value in rows}
    listed = ", ".join(f"({position}, CAST(:v{position} AS {kind}))" for position, _ in rows)
    session.run(f"INSERT INTO t VALUES {listed}", parameters)
    assert sorted(java_paimon.rows(warehouse, "default.t")) == rows
    mine = folders(warehouse)
    java_paimon.write(warehouse, "default.t", rows)
    assert folders(warehouse) == mine
    session.run("INSERT INTO t SELECT k + 1000, p FROM t")
    assert folders(warehouse) == mine
    expected = sorted(2 * rows + 2 * [(position + 1000, value) for position, value in rows])
    assert sorted(java_paimon.rows(warehouse, "default.t"), key=lambda row: row[0]) == expected
    # Each is named by its value alone, also where folders are shared: all in one job, each with a
    # scan of its own that its condition is pushed into.
    query = " UNION ALL ".join(
        f"SELECT {n} AS n, k FROM t WHERE p <=> CAST(:v{n} AS {kind})" for n, _ in rows
    )
    actual = session.run(query, parameters).to_arrow().to_pylist()
    assert sorted((row["n"], row["k"]) for row in actual) == sorted(
        (n, k) for n, _ in rows for k in (n, n, n + 1000, n + 1000)
    )


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("DATE", "DATE'+10000-01-01'"),
        ("DATE", "DATE'-0001-01-01'"),
        ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ'+10000-01-01 00:00:00'"),
    ],
)
@pytest.mark.parametrize("source", ["VALUES (1, {})", "SELECT id, {} FROM range(1)"])
def test_partition_outside_years_1_to_9999_is_refused_before_write(
    session: Session, warehouse: Path, kind: str, value: str, source: str
) -> None:
    session.run(f"CREATE TABLE t (k INT, p {kind}) PARTITIONED BY (p)")
    with pytest.raises(InvalidValueError, match=r"`p` can't be .* years 1 to 9999"):
        session.run(f"INSERT INTO t {source.format(value)}")
    assert not list((warehouse / "default.db" / "t").glob("**/*.parquet"))
