"""What a statement would delete is what it then deletes, and the preview changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_magics import Session
from paimon_magics.errors import PaimonMagicsError, UnconfirmedError, UnsupportedStatementError

pytestmark = pytest.mark.spark

MODE = "spark.sql.sources.partitionOverwriteMode"


@pytest.fixture
def sales(session: Session) -> Session:
    session.run("CREATE TABLE sales (n INT, day STRING, shop INT) PARTITIONED BY (day, shop)")
    session.run(
        "INSERT INTO sales SELECT CAST(id AS INT), concat('d', id % 2), CAST(id % 3 AS INT) "
        "FROM range(60)"
    )
    session.run("INSERT INTO sales VALUES (100, 'd0', 0), (101, NULL, 7)")
    return session


def files(warehouse: Path) -> set[Path]:
    return {path for path in warehouse.rglob("*") if path.is_file()}


def stored(session: Session) -> dict[str, tuple[int, int]]:
    """Each file's rows and bytes."""
    found = session.run("SELECT file_path, record_count, file_size_in_bytes FROM `sales$files`")
    return {
        path: (rows, size) for path, rows, size in map(dict.values, found.to_arrow().to_pylist())
    }


@pytest.mark.parametrize(
    ("statement", "mode", "partitions"),
    [
        ("INSERT OVERWRITE sales VALUES (1, 'd0', 0)", "static", 7),
        ("INSERT OVERWRITE sales VALUES (1, 'd0', 0)", "dynamic", 1),
        ("INSERT OVERWRITE sales SELECT n, 'd1', shop FROM sales", "dynamic", 3),
        ("INSERT OVERWRITE sales PARTITION (day = 'd0') SELECT 1, 9", "static", 3),
        ("INSERT OVERWRITE sales PARTITION (day = 'd0', shop = 0) SELECT 1", "static", 1),
        ("INSERT OVERWRITE sales PARTITION (day = 'none') SELECT 1, 9", "static", 0),
        ("TRUNCATE TABLE sales", "static", 7),
        ("TRUNCATE TABLE sales PARTITION (shop = 2)", "static", 2),
        ("ALTER TABLE sales DROP PARTITION (day = 'd0'), PARTITION (shop = 7)", "static", 4),
    ],
)
def test_preview_matches_files_removed_by_statement(
    sales: Session, warehouse: Path, statement: str, mode: str, partitions: int
) -> None:
    sales.spark.conf.set(MODE, mode)
    try:
        before = files(warehouse)
        shown = sales.preview(statement).to_arrow()
        assert files(warehouse) == before
        assert shown.num_rows == partitions
        there = stored(sales)
        sales.run(statement)
        left = stored(sales)
    finally:
        sales.spark.conf.unset(MODE)
    gone = [size for path, size in there.items() if path not in left]
    assert sum(shown.column("files").to_pylist()) == len(gone)
    assert sum(shown.column("record_count").to_pylist()) == sum(rows for rows, _ in gone)
    assert sum(shown.column("bytes").to_pylist()) == sum(size for _, size in gone)


def test_preview_lists_partitions_and_totals(sales: Session) -> None:
    outcome = sales.preview("TRUNCATE TABLE sales PARTITION (day = 'd0'); DROP TABLE sales")
    names = [row["partition"] for row in outcome.to_arrow().to_pylist()]
    assert names[:3].count("day=d0/shop=0") == 1 and "day=null/shop=7" in names
    assert outcome.notes[0].startswith("`default.sales`: 31 rows in ")
    assert outcome.notes[1].startswith("`default.sales`: 62 rows in ")


def test_statements_removing_nothing_have_no_preview_rows(sales: Session) -> None:
    assert sales.preview("INSERT INTO sales VALUES (1, 'x', 1)").to_arrow().num_rows == 0
    with pytest.raises(UnsupportedStatementError, match="nothing to preview"):
        sales.preview("SELECT * FROM sales")
    with pytest.raises(PaimonMagicsError, match="no column"):
        sales.preview("INSERT OVERWRITE sales (nn) VALUES (1)")


def test_overlapping_rows_are_counted_as_stored_rows(session: Session) -> None:
    session.run(
        "CREATE TABLE keyed (k INT NOT NULL, v INT) "
        "TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1')"
    )
    session.run("INSERT INTO keyed VALUES (1, 1), (2, 1)")
    drop = "DROP TABLE keyed"
    assert "`default.keyed`: 2 rows in 1 file (" in str(session.preview(drop))
    session.run("INSERT INTO keyed VALUES (1, 2)")
    assert "`default.keyed`: 3 stored rows in 2 files (" in str(session.preview(drop))
    assert "3 stored rows, " in session.layout("keyed").summary()
    with pytest.raises(UnconfirmedError, match="removes 3 stored rows in 2 files"):
        session.check_confirmed(drop)
