"""A change of a column's type is looked at before it is made: what it would do to stored rows, and
the way back."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_magics import Session
from paimon_magics.errors import (
    InvalidTableError,
    JobError,
    PaimonMagicsError,
    UnconfirmedError,
)
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.reading.retyping import harm_of
from tests.oracle.java_reader import JavaPaimon
from tests.sampling import sampled
from tests.session.rows import rows

pytestmark = [pytest.mark.spark, pytest.mark.java]

# Spark and its tasks read all files, however few they are.
SETTINGS = {"local_rows_max": 0}

LAYOUTS = {
    "raw scan": "",
    "merge read": "TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1')",
}


def stored(session: Session) -> list[tuple[object, ...]]:
    return sorted(rows(session, "SELECT * FROM t"), key=repr)


def asked(session: Session, sql: str) -> UnconfirmedError | None:
    try:
        session.check_confirmed(sql)
    except UnconfirmedError as error:
        return error
    return None


@pytest.mark.parametrize("layout", sampled([*LAYOUTS]))
def test_unparsable_texts_need_confirmation_and_can_be_restored(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, layout: str
) -> None:
    session.run(
        f"CREATE TABLE t (k INT NOT NULL, name STRING) {LAYOUTS[layout]};"
        "INSERT INTO t VALUES (1, '10'), (2, 'tea'); INSERT INTO t VALUES (1, '11'), (3, '12')"
    )
    before = stored(session)
    change = "ALTER TABLE t ALTER COLUMN name TYPE INT"
    error = asked(session, change)
    assert error is not None and "can't be read as INT" in error.message
    key = "k = 2, " if layout == "merge read" else ""
    assert re.search(rf"'tea' \({key}\S+\.parquet\)", error.message), error.message
    back = "ALTER TABLE default.t ALTER COLUMN `name` TYPE STRING"
    assert "%%paimon --yes" in error.hint and f"To go back: {back}." in error.hint
    assert stored(session) == before, "it was only asked"

    outcome = session.run(change)
    assert "'tea'" in str(outcome) and back in str(outcome)
    for text in ("SELECT * FROM t", "SELECT sum(name) FROM t", "SELECT name FROM t$audit_log"):
        with pytest.raises(JobError, match=r"`name` changed from STRING to INT") as caught:
            session.run(text).to_arrow()
        assert re.search(
            r"/bucket-0/\S+\.parquet has a value .* as INT: 'tea'", caught.value.message
        )
        assert f"to read the rows again: {back}." in str(caught.value)
    session.run("SELECT k FROM t").to_arrow()
    session.run("INSERT INTO t VALUES (4, 13)")
    assert asked(session, back) is None
    session.run(back)
    assert stored(session) == sorted([*before, (4, "13")], key=repr)
    assert sorted(java_paimon.rows(warehouse, "default.t"), key=repr) == stored(session)


# type before, its value, type after, what is said of it; None where nothing is
CHANGES: list[tuple[str, str, str, str | None]] = [
    ("BIGINT", "3000000000", "INT", "3000000000"),
    ("BIGINT", "7", "INT", None),
    ("BIGINT", "9007199254740993", "DOUBLE", "9007199254740993"),
    ("DOUBLE", "1.5D", "INT", "1.5"),
    ("DOUBLE", "1.1D", "FLOAT", None),
    ("DOUBLE", "1.239D", "DECIMAL(10, 2)", "1.239"),
    ("DOUBLE", "2.5D", "DECIMAL(10, 2)", None),
    ("DECIMAL(10, 3)", "1.239", "DECIMAL(10, 2)", "1.239"),
    ("DECIMAL(10, 2)", "1.50", "DECIMAL(12, 4)", None),
    ("DECIMAL(10, 2)", "1.50", "BIGINT", "1.50"),
    ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ'2020-01-01 10:00:00'", "DATE", "2020-01-01 10:00:00"),
    ("STRING", "'2020-01-01'", "DATE", None),
    ("STRING", "'soon'", "DATE", "'soon'"),
    ("STRING", "'1.5'", "DECIMAL(10, 2)", None),
    ("STRING", "'one'", "DECIMAL(10, 2)", "'one'"),
    ("STRING", "'5.9'", "INT", "'5.9'"),
    ("STRING", "'007'", "INT", None),
    ("STRING", "'TRUE'", "BOOLEAN", None),
    ("STRING", "'maybe'", "BOOLEAN", "'maybe'"),
    ("STRING", "'chocolate'", "VARCHAR(3)", "'chocolate'"),
    ("STRING", "'2020-01-01 10:00:00'", "TIMESTAMP_NTZ", "the whole table would be unreadable"),
    ("INT", "5", "BOOLEAN", "5"),
    ("INT", "NULL", "BOOLEAN", None),
]


def test_every_lossy_type_change_is_reported_with_a_way_back(session: Session) -> None:
    columns = ", ".join(f"c{n} {before}" for n, (before, *_) in enumerate(CHANGES))
    values = ", ".join(value for _, value, *_ in CHANGES)
    session.run(f"CREATE TABLE t (k INT, {columns}); INSERT INTO t VALUES (1, {values})")
    before = stored(session)
    for n, (old, value, new, said) in enumerate(CHANGES):
        case = f"{old} {value} to {new}"
        change = f"ALTER TABLE t ALTER COLUMN c{n} TYPE {new}"
        error = asked(session, change)
        assert (error is None) == (said is None), (case, str(error))
        if error is None or said is None:
            continue
        assert said in error.message and f"`c{n}`" in error.message, (case, error.message)
        back = re.search(r"To go back: (.*)\.$", error.hint)
        assert back is not None, case
        outcome = session.run(change)
        assert said in str(outcome), case
        session.run(back[1])
        session.run("SELECT 1")
    assert stored(session) == before


def test_nulls_keys_and_defaults_restrict_column_changes(session: Session) -> None:
    session.run(
        "CREATE TABLE t (k INT NOT NULL, p STRING NOT NULL, v BIGINT) PARTITIONED BY (p) "
        "TBLPROPERTIES ('primary-key' = 'k,p', 'bucket' = '1', "
        "'alter-column-null-to-not-null.disabled' = 'false');"
        "INSERT INTO t VALUES (1, 'a', NULL), (2, 'a', 3000000000), (3, 'b', 4)"
    )
    error = asked(session, "ALTER TABLE t ALTER COLUMN v SET NOT NULL")
    assert error is not None and "`v` has 1 NULL, and would be NOT NULL" in error.message
    assert "ALTER COLUMN `v` DROP NOT NULL" in error.hint
    error = asked(session, "ALTER TABLE t ALTER COLUMN v TYPE INT")
    assert error is not None and "3000000000 (k = 2, p = a, p=a, " in error.message
    for column in ("k", "p"):
        with pytest.raises(InvalidTableError, match="can't be retyped"):
            session.run(f"ALTER TABLE t ALTER COLUMN {column} TYPE BIGINT")
    with pytest.raises(PaimonMagicsError, match="`v`"):
        session.run("ALTER TABLE t ALTER COLUMN v SET DEFAULT 'tea'")
    session.run("ALTER TABLE t DROP COLUMN v")
    assert asked(session, "ALTER TABLE t ADD COLUMN v INT") is None
    session.run("ALTER TABLE t ADD COLUMN v INT")
    assert stored(session) == [(1, "a", None), (2, "a", None), (3, "b", None)]


def test_statistics_alone_prove_that_integers_fit(session: Session) -> None:
    session.run("CREATE TABLE t (v BIGINT); INSERT INTO t SELECT id FROM range(0, 1000, 1, 1)")
    data = Path(session.warehouse)
    for path in data.rglob("*.parquet"):
        path.write_bytes(b"not to be opened")
    assert asked(session, "ALTER TABLE t ALTER COLUMN v TYPE INT") is None
    table = session.catalog.load(TableName("t", "default"))
    (column,) = table.schema.columns
    planned = replace(table.schema, columns=(replace(column, type=AtomicType("TINYINT")),))
    (harm,) = harm_of(table, planned, rows_max=0)
    assert [value.value for value in harm.changed] == ["999"]
    assert harm.examined == "0 of 1,000 rows in 0 of 1 file were checked"
    (note,) = session.run("ALTER TABLE t ALTER COLUMN v TYPE DOUBLE").notes
    assert "could not be read: " in note and path.name in note
