"""A writer outside renames over the snapshot that a statement has read: no update is lost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import paimon_magics
from tests.faults.outside_writer import OutsideWriter
from tests.session.writes.held_writes import run_while

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

STATEMENTS = {
    "UPDATE": "UPDATE counted SET n = held(n) + 1 WHERE n < 1000 AND k <> 2",
    "UPDATE of one key": "UPDATE counted SET n = held(n) + 1 WHERE k = 1",
    "MERGE": "MERGE INTO counted t USING (SELECT 1 AS k) s ON t.k = s.k "
    "WHEN MATCHED THEN UPDATE SET n = held(t.n) + 1",
    "INSERT": "INSERT INTO counted SELECT k, held(n) + 1 FROM counted WHERE k = 1",
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_overwriting_the_read_snapshot_loses_no_update(
    spark: SparkSession, tmp_path: Path, outside: OutsideWriter, name: str
) -> None:
    warehouse = tmp_path / "warehouse"
    with paimon_magics.connect(warehouse, coordinator="embedded", spark=spark) as session:
        session.run(
            "CREATE TABLE counted (k INT NOT NULL, n INT, PRIMARY KEY (k) NOT ENFORCED) "
            "TBLPROPERTIES ('bucket' = '1', 'write-only' = 'true');"
            "INSERT INTO counted VALUES (1, 0)"
        )
        theirs = [{"k": 1, "n": 100}]
        outside.stop_before_renaming(warehouse, theirs, table="default.counted")
        session.run("INSERT INTO counted VALUES (2, 0)")
        outcome = run_while(outside.go_on, session, STATEMENTS[name], tmp_path)
        assert "was rolled back to before snapshot 2" in str(outcome.notes)
        actual = session.run("SELECT * FROM counted ORDER BY k").to_pylist()
        assert [tuple(row.values()) for row in actual] == [(1, 101), (2, 0)]
