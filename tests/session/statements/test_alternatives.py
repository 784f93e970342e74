"""What the refusal of a MERGE names instead can be run, and does the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from paimon_magics import Session
from paimon_magics.errors import UnknownNameError, UnsupportedStatementError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

KEYED = [(1, "tea", 5), (2, "milk", None), (3, "jam", 7)]
LOGGED = [(1, "tea", "mon"), (2, None, "mon"), (3, "jam", "tue")]


@pytest.fixture(scope="module")
def shop(spark: SparkSession, module_session: Session) -> Session:
    module_session.run(
        "CREATE TABLE keyed (id INT NOT NULL, item STRING, amount INT) "
        "TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '1'); "
        "CREATE TABLE logged (id INT, item STRING, day STRING) PARTITIONED BY (day)"
    )
    spark.createDataFrame([(2, "oat", 9), (4, "rye", 1)], "id INT, item STRING, amount INT") \
        .createOrReplaceTempView("given")  # fmt: skip
    return module_session


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (
            "MERGE INTO keyed t USING given s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
            [KEYED[0], (2, "oat", 9), KEYED[2], (4, "rye", 1)],
        ),
        (
            "MERGE INTO logged USING (SELECT 3 AS id, 'rye' AS item, 'wed' AS day) AS s "
            "ON logged.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
            [*LOGGED[:2], (3, "rye", "wed")],
        ),
    ],
)
def test_it_does_the_same(
    shop: Session, statement: str, expected: list[tuple[object, ...]]
) -> None:
    is_keyed = "keyed" in statement
    table, rows = ("keyed", KEYED) if is_keyed else ("logged", LOGGED)
    listed = ", ".join(repr(row).replace("None", "NULL") for row in rows)
    shop.run(f"TRUNCATE TABLE {table}; INSERT INTO {table} VALUES {listed}")
    with pytest.raises(UnsupportedStatementError) as caught:
        shop.run(statement)
    shop.run(caught.value.hint.partition(": ")[2])
    found = shop.run(f"SELECT * FROM {table} ORDER BY id").to_arrow().to_pylist()
    assert [tuple(row.values()) for row in found] == expected, caught.value.hint


def test_a_table_that_is_not_there_is_said_first(shop: Session) -> None:
    with pytest.raises(UnknownNameError, match="keyd"):
        shop.run("MERGE INTO keyd USING given ON true WHEN MATCHED THEN DELETE")


@pytest.mark.parametrize("dry", [True, False], ids=["dry run", "explain"])
def test_a_dry_run_and_explain_say_it_too(shop: Session, dry: bool) -> None:
    merge = (
        "MERGE INTO keyed USING given ON keyed.id = given.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    with pytest.raises(UnsupportedStatementError) as caught:
        shop.run(merge, dry_run=True) if dry else shop.explain(merge)
    assert "INSERT INTO keyed" in caught.value.hint
