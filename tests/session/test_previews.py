"""What a statement would take away is what it then takes away, and the preview changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_magics import Session
from paimon_magics.errors import PaimonMagicsError, UnsupportedStatementError

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


def stored(session: Session) -> tuple[int, int]:
    found = session.run("SELECT count(*), sum(record_count) FROM `sales$files`").to_arrow()
    count, rows = next(iter(found.to_pylist()[0].values())), found.column(1)[0].as_py()
    return count, rows or 0


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
def test_a_preview_tells_what_the_statement_takes(
    sales: Session, warehouse: Path, statement: str, mode: str, partitions: int
) -> None:
    sales.spark.conf.set(MODE, mode)
    try:
        before = files(warehouse)
        shown = sales.preview(statement).to_arrow()
        assert files(warehouse) == before
        assert shown.num_rows == partitions
        count, rows = stored(sales)
        outcome = sales.run(statement)
        left, rows_left = stored(sales)
    finally:
        sales.spark.conf.unset(MODE)
    written = outcome.files_written or 0, outcome.rows_written or 0
    assert sum(shown.column("files").to_pylist()) == count + written[0] - left
    assert sum(shown.column("rows").to_pylist()) == rows + written[1] - rows_left


def test_a_preview_names_the_partitions_and_sums_up(sales: Session) -> None:
    outcome = sales.preview("TRUNCATE TABLE sales PARTITION (day = 'd0'); DROP TABLE sales")
    names = [row["partition"] for row in outcome.to_arrow().to_pylist()]
    assert names[:3].count("day=d0/shop=0") == 1 and "day=null/shop=7" in names
    assert outcome.notes[0].startswith("`default.sales`: 31 rows in ")
    assert outcome.notes[1].startswith("`default.sales`: 62 rows in ")


def test_what_takes_nothing_away_has_no_preview(sales: Session) -> None:
    assert sales.preview("INSERT INTO sales VALUES (1, 'x', 1)").to_arrow().num_rows == 0
    with pytest.raises(UnsupportedStatementError, match="nothing to preview"):
        sales.preview("SELECT * FROM sales")
    with pytest.raises(PaimonMagicsError, match="no column"):
        sales.preview("INSERT OVERWRITE sales (nn) VALUES (1)")
