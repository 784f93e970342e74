"""Views that show when files were made say whose clock that is."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from paimon_magics import connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not hasattr(time, "tzset"), reason="Windows has no tzset"),
]


def test_views_of_files_say_that_times_are_the_writers_clocks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "America/St_Johns")
    time.tzset()
    try:
        with connect(tmp_path, spark=spark, coordinator="in-process") as session:
            session.run(
                "CREATE TABLE t (id INT NOT NULL, d STRING NOT NULL) PARTITIONED BY (d) "
                "TBLPROPERTIES ('primary-key' = 'id,d', 'bucket' = '1');"
                "CREATE TABLE none (id INT)"
            )
            session.run("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
            for report, column in (
                (session.reports.files("t"), "creation_time"),
                (session.reports.files("t", "d=a"), "creation_time"),
                (session.reports.partitions("t"), "last_update_time"),
            ):
                (note,) = [note for note in report.notes if "wall clock" in note]
                assert f"`{column}` is the wall clock of each file's writer" in note
                assert "taken for America/St_Johns" in note and note in str(report)
            assert not any("wall clock" in note for note in session.reports.files("none").notes)
    finally:
        monkeypatch.undo()
        time.tzset()
