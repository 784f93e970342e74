"""ORC and Avro tables: what can be written there reads equal everywhere, the rest is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import paimon_magics
from paimon_magics import Session
from paimon_magics.errors import (
    InvalidTableError,
    InvalidValueError,
    PaimonMagicsError,
    UnsupportedStatementError,
)
from tests.oracle.java_reader import JavaPaimon
from tests.sampling import sampled
from tests.session.writes.test_types import (
    ATOMIC,
    NESTED,
    by_key,
    new_york,
    read_by_everyone,
    rows_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.java]

__all__ = ["new_york"]  # the session's zone in every test here, too

TYPES = ATOMIC | NESTED
REFUSED = {
    "orc": {
        "ARRAY<TIMESTAMP_NTZ(3)>",
        "STRUCT<at: TIMESTAMP, `odd name`: STRUCT<list: ARRAY<MAP<STRING, DECIMAL(20, 3)>>>>",
    },
    "avro": {
        "TIMESTAMP_NTZ(9)",
        "TIMESTAMP_LTZ(9)",
        "STRUCT<at: TIMESTAMP, `odd name`: STRUCT<list: ARRAY<MAP<STRING, DECIMAL(20, 3)>>>>",
    },
}


@pytest.fixture
def session(spark: SparkSession, warehouse: Path) -> Iterator[Session]:
    """A session that cuts digits of a second, as a query's are cut."""
    with paimon_magics.connect(warehouse, spark=spark, store_assignment="ansi") as opened:
        yield opened


@pytest.mark.parametrize("file_format", ["orc", "avro"])
def test_format_stores_type_readable_by_everyone_or_refuses_it(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, file_format: str
) -> None:
    refused, wrong = set(), {}
    for number, (text, cases) in enumerate(TYPES.items()):
        name = f"t{number}"
        # Fractions of seconds before 1970 are refused value by value.
        rows = rows_of({text: [c for c in cases if not _odd(c[1], file_format, text)]})
        if file_format == "orc":  # a merge read counts nanoseconds there, up to 2262
            rows = [row for row in rows if 1678 < getattr(row[1][1], "year", 2000) < 2262]
        values = ", ".join(f"({', '.join(sql for sql, _ in row)})" for row in rows)
        try:
            session.run(
                f"CREATE TABLE {name} (k INT, c {text}) "
                f"TBLPROPERTIES ('file.format' = '{file_format}', "
                "'orc.timestamp-ltz.legacy.type' = 'false')"
            )
            session.run(f"INSERT INTO {name} VALUES {values}")
        except (InvalidTableError, UnsupportedStatementError) as error:
            assert "`c`" in error.message
            refused.add(text)
            continue
        expected = by_key([tuple(value for _, value in row) for row in rows])
        actual = read_by_everyone(session, java_paimon, warehouse, name)
        if file_format == "orc" and text.startswith("CHAR"):
            # ORC's own CHAR type, which Java reads them as, has no trailing spaces.
            expected = [(k, v and v.rstrip()) for k, v in expected]
            actual = {who: [(k, v and v.rstrip()) for k, v in all] for who, all in actual.items()}
        bad = {reader: rows for reader, rows in actual.items() if rows != expected}
        if bad:
            wrong[text] = (expected, bad)
    assert wrong == {}, "\n".join(f"{k}: {v}" for k, v in wrong.items())
    assert refused == REFUSED[file_format]


@pytest.mark.parametrize("column", ["`odd name` INT", "`1st` INT", "c ARRAY<STRUCT<`a-b`: INT>>"])
def test_avro_refuses_names_that_java_can_not_read(session: Session, column: str) -> None:
    session.run(f"CREATE TABLE t (größe INT, {column}) TBLPROPERTIES ('file.format' = 'avro')")
    with pytest.raises(UnsupportedStatementError, match="letters, digits and underscores"):
        session.run("INSERT INTO t VALUES (1, NULL)")


@pytest.mark.parametrize("column", ["TIMESTAMP", "ARRAY<TIMESTAMP_LTZ(3)>"])
def test_orc_refuses_timestamps_read_by_java_in_its_zone(session: Session, column: str) -> None:
    session.run(f"CREATE TABLE t (k INT, c {column}) TBLPROPERTIES ('file.format' = 'orc')")
    with pytest.raises(UnsupportedStatementError, match="time zone of its machine") as error:
        session.run("INSERT INTO t VALUES (1, NULL)")
    assert "orc.timestamp-ltz.legacy.type" in error.value.hint


def _odd(value: object, file_format: str, text: str) -> bool:
    return (
        file_format == "orc"
        and text.startswith("TIMESTAMP")
        and getattr(value, "year", 2000) < 1970
        and getattr(value, "microsecond", 0) != 0
    )


@pytest.mark.parametrize("form", ["VALUES {}", "SELECT * FROM (VALUES {})"])
def test_orc_refuses_times_that_could_not_be_read_again(session: Session, form: str) -> None:
    session.run("CREATE TABLE t (at TIMESTAMP_NTZ) TBLPROPERTIES ('file.format' = 'orc')")
    row = "(TIMESTAMP_NTZ'9999-12-31 23:59:59')"
    with pytest.raises(InvalidValueError, match="`at` has a timestamp before 1677 or after 2262"):
        session.run(f"INSERT INTO t {form.format(row)}")
    session.run(f"INSERT INTO t {form.format(row.replace('9999', '2261'))}")
    assert session.run("SELECT count(*) FROM t").to_arrow()[0].to_pylist() == [1]


@pytest.mark.parametrize("form", ["VALUES {}", "SELECT * FROM (VALUES {})"])
def test_orc_refuses_timestamp_fractions_before_1970_by_column(session: Session, form: str) -> None:
    session.run("CREATE TABLE t (at TIMESTAMP_NTZ) TBLPROPERTIES ('file.format' = 'orc')")
    row = "(TIMESTAMP_NTZ'1969-12-31 23:59:59.999999')"
    with pytest.raises(InvalidValueError, match=r"^The column `at` has a timestamp before 1970"):
        session.run(f"INSERT INTO t {form.format(row)}")
    session.run(f"INSERT INTO t {form.format(row.replace('.999999', ''))}")
    assert session.run("SELECT count(*) FROM t").to_arrow()[0].to_pylist() == [1]


@pytest.mark.parametrize(
    ("options", "file_format"),
    sampled({"plain": "", "buckets": ", 'bucket' = '2', 'bucket-key' = 'k'"}, ["orc", "avro"]),
)
def test_partitioned_and_bucketed_tables_work_in_orc_and_avro(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, file_format: str, options: str
) -> None:
    session.run(
        "CREATE TABLE t (k INT NOT NULL, v STRING, p STRING) PARTITIONED BY (p) "
        f"TBLPROPERTIES ('file.format' = '{file_format}'{options})"
    )
    session.run("INSERT INTO t SELECT CAST(id AS INT), 'a', concat('p', id % 3) FROM range(100)")
    session.run("INSERT INTO t VALUES (200, NULL, 'p1')")
    session.run("INSERT OVERWRITE t PARTITION (p = 'p0') SELECT CAST(id AS INT), 'b' FROM range(5)")
    expected = {k: (k, "a", f"p{k % 3}") for k in range(100) if k % 3}
    rows = [*expected.values(), *[(k, "b", "p0") for k in range(5)], (200, None, "p1")]
    for reader, found in read_by_everyone(session, java_paimon, warehouse, "t").items():
        assert sorted(found, key=repr) == sorted(rows, key=repr), reader


def test_null_in_not_null_column_is_refused_in_orc(session: Session) -> None:
    session.run("CREATE TABLE t (k INT NOT NULL) TBLPROPERTIES ('file.format' = 'orc')")
    with pytest.raises((InvalidValueError, PaimonMagicsError), match="NULL"):
        session.run("INSERT INTO t SELECT CAST(NULL AS INT) FROM range(3)")


def test_failed_job_leaves_no_avro_file(session: Session, warehouse: Path) -> None:
    session.run(
        "CREATE TABLE t (k INT, p INT) PARTITIONED BY (p) TBLPROPERTIES ('file.format' = 'avro')"
    )
    with pytest.raises(PaimonMagicsError):
        session.run(
            "INSERT INTO t SELECT CAST(IF(id = 9999, 'x', '1') AS INT), CAST(id % 3 AS INT) "
            "FROM range(0, 10000, 1, 4)"
        )
    assert not list(warehouse.rglob("*.avro"))


@pytest.mark.parametrize("file_format", ["orc", "avro"])
def test_primary_key_tables_work_in_orc_and_avro(
    session: Session, warehouse: Path, file_format: str
) -> None:
    session.run(
        "CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1', "
        f"'file.format' = '{file_format}')"
    )
    session.run("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    session.run("INSERT INTO t VALUES (2, 'c')")
    rows = session.run("SELECT * FROM t ORDER BY k").to_pylist()
    assert rows == [{"k": 1, "v": "a"}, {"k": 2, "v": "c"}]
    assert len(list(warehouse.rglob(f"*.{file_format}"))) == 2
    assert not list(warehouse.rglob("*.parquet"))


def test_refused_orc_value_leaves_no_file(session: Session, warehouse: Path) -> None:
    session.run(
        "CREATE TABLE t (k INT, at TIMESTAMP_NTZ) TBLPROPERTIES ('primary-key' = 'k', "
        "'bucket' = '1', 'file.format' = 'orc')"
    )
    with pytest.raises(PaimonMagicsError, match="before 1970"):
        session.run("INSERT INTO t VALUES (1, TIMESTAMP_NTZ'1969-12-31 23:59:59.5')")
    assert not list(warehouse.rglob("*.orc"))
    assert not list(warehouse.rglob("*.parquet"))
