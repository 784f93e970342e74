"""Warehouses whose paths have characters of patterns: no path is ever a pattern."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import paimon_magics
from paimon_magics import Session
from tests.backends.s3 import S3Server
from tests.sampling import sampled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FOLDERS = ["a[b]", "a*", "what?", "{x,y}", "back\\slash", "sp ace%20"]


@pytest.mark.parametrize(("folder", "local_rows_max"), sampled(FOLDERS, [0, 1_000]))
def test_rows_in_odd_folders_are_read_and_changed_once(
    spark: SparkSession, tmp_path: Path, folder: str, local_rows_max: int
) -> None:
    (tmp_path / "ab").mkdir()  # what a pattern would match, too
    warehouse = tmp_path / folder / "warehouse"
    with paimon_magics.connect(warehouse, spark=spark, local_rows_max=local_rows_max) as session:
        check_each_row_is_there_once(session)


@pytest.mark.parametrize("folder", ["a[b]*?{x,y}", "sp ace%20#"])
def test_rows_in_odd_object_store_paths_are_read_and_changed_once(
    spark: SparkSession, s3: S3Server, folder: str
) -> None:
    options = s3.bucket().options
    options["warehouse"] += f"/{folder}"
    with paimon_magics.connect(catalog=options, spark=spark, local_rows_max=0) as session:
        check_each_row_is_there_once(session)


def check_each_row_is_there_once(session: Session) -> None:
    """Fill, change and compact a table without keys and one with keys."""
    session.run(
        "CREATE TABLE t (id INT, v STRING); "
        "CREATE TABLE k (id INT, v STRING) TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '1')"
    )
    for table in ("t", "k"):
        for id in (1, 2, 3):  # a file each
            session.run(f"INSERT INTO {table} VALUES ({id}, 'v{id}')")
        session.run(f"UPDATE {table} SET v = concat(v, '!') WHERE id = 2")
        session.run(f"DELETE FROM {table} WHERE id = 3")
        session.run(
            f"MERGE INTO {table} t USING (SELECT 4 AS id, 'v4' AS v) s ON t.id = s.id "
            "WHEN NOT MATCHED THEN INSERT *"
        )
        found = session.run(f"SELECT id, v FROM {table} ORDER BY id").to_pandas()
        assert found.values.tolist() == [[1, "v1"], [2, "v2!"], [4, "v4"]]
        counted = session.run(f"SELECT count(*) AS n FROM {table}").to_pandas()
        assert counted["n"].tolist() == [3]
        session.run(f"CALL sys.compact('default.{table}')")
        found = session.run(f"SELECT id, v FROM {table} ORDER BY id").to_pandas()
        assert found.values.tolist() == [[1, "v1"], [2, "v2!"], [4, "v4"]]
