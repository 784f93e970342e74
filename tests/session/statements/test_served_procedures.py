"""Procedures through a coordinator of its own process: as in the session's process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import paimon_magics
from paimon_magics import Session
from paimon_magics.errors import InvalidTableError, UnknownNameError
from tests.coordinator.process import Process
from tests.session.rows import rows

pytestmark = pytest.mark.spark


@pytest.fixture
def served(spark: SparkSession, tmp_path: Path) -> Iterator[Session]:
    (tmp_path / "warehouse").mkdir()
    process = Process(tmp_path / "warehouse", tmp_path / "state")
    process.start()
    try:
        with paimon_magics.connect(
            tmp_path / "warehouse", coordinator=process.address, token=process.token(), spark=spark
        ) as session:
            yield session
    finally:
        process.close()


def test_coordinator_carries_out_procedures(served: Session, tmp_path: Path) -> None:
    served.run(
        "CREATE TABLE events (k INT, day STRING) PARTITIONED BY (day) TBLPROPERTIES "
        "('tag.automatic-creation' = 'process-time');"
        "INSERT INTO events VALUES (1, 'a'); CALL sys.create_tag('events', 'one');"
        "CALL sys.create_branch('events', 'dev', 'one');"
        "INSERT INTO `events$branch_dev` VALUES (2, 'b')"
    )
    outcome = served.run("CALL sys.merge_branch('events', 'dev')")
    assert (outcome.snapshot_id, outcome.commit_kind) == (2, "APPEND")
    assert served.run("CALL sys.merge_branch('events', 'dev')").snapshot_id is None
    assert rows(served, "SELECT * FROM events ORDER BY k") == [(1, "a"), (2, "b")]
    with pytest.raises(UnknownNameError, match="no branch `dve`"):
        served.run("CALL sys.merge_branch('events', 'dve')")
    served.run("INSERT OVERWRITE `events$branch_dev` VALUES (3, 'b')", confirm=True)
    with pytest.raises(InvalidTableError, match="of the kind OVERWRITE"):
        served.run("CALL sys.merge_branch('events', 'dev')")

    served.run("CALL sys.copy('events', 'shop.copy')")
    assert rows(served, "SELECT * FROM shop.copy ORDER BY k") == [(1, "a"), (2, "b")]

    assert rows(served, "CALL sys.reset_consumer('events', 'c', 1)") == [(True,)]
    assert rows(served, "SELECT * FROM events$consumers") == [("c", 1)]
    assert "forgotten: `c`" in served.run("CALL sys.clear_consumers('events')").message
    served.run("CALL sys.mark_partition_done('events', 'day=a')")
    assert (tmp_path / "warehouse/default.db/events/day=a/_SUCCESS").exists()
    served.run("CALL sys.trigger_tag_automatic_creation('events')")
    assert len(rows(served, "SHOW TAGS events")) == 2
    outcome = served.run("CALL sys.repair_earliest_snapshot('events', 1)")
    assert outcome.to_arrow().to_pylist() == [
        {"previous_earliest_snapshot_id": 1, "current_earliest_snapshot_id": 1}
    ]
