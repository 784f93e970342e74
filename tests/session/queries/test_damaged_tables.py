"""Files of a table that are gone, cut short or empty are named by raw scan and merge read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import paimon_magics
from paimon_magics.errors import JobError, TableDamagedError
from tests.sampling import sampled

pytestmark = pytest.mark.spark

# Spark and its tasks read all files, however few they are.
SETTINGS = {"local_rows_max": 0}

APPEND, MERGED = "a1.s01", "a2.s15"  # a raw scan reads the first, a merge read the second
DELETIONS = "a2.s16"  # deletion vectors
CHANGES = "a1.s05 WITH ('incremental-between' = '0,4')"


DAMAGED = [
    (APPEND, "bucket-*/data-*"),
    (f"{APPEND}$audit_log", "bucket-*/data-*"),
    (MERGED, "bucket-*/data-*"),
    (f"{MERGED}$binlog", "bucket-*/data-*"),
    (CHANGES, "bucket-*/changelog-*"),
    (DELETIONS, "index/index-*"),
    (DELETIONS, "manifest/index-manifest-*"),
    (APPEND, "manifest/manifest-[0-9a-f]*"),
    (f"{MERGED}$files", "manifest/manifest-[0-9a-f]*"),
    (APPEND, "manifest/manifest-list-*"),
    (f"{MERGED}$manifests", "manifest/manifest-list-*"),
    (APPEND, "snapshot/snapshot-*"),
    (f"{MERGED}$files", "snapshot/snapshot-*"),
    (f"{MERGED} VERSION AS OF 1", "snapshot/snapshot-1"),
    ("a2.s12", "schema/schema-0"),
    (MERGED, "schema/schema-*"),
]


@pytest.mark.parametrize(
    ("damaged", "how"),
    sampled({" ".join(each): each for each in DAMAGED}, ["gone", "cut short", "empty"]),
)
def test_error_names_the_damaged_file(
    spark: SparkSession,
    recorded_warehouse: Path,
    tmp_path: Path,
    damaged: tuple[str, str],
    how: str,
) -> None:
    read, pattern = damaged
    database, name = read.partition(" ")[0].partition("$")[0].split(".")
    folder = tmp_path / f"{database}.db" / name
    shutil.copytree(recorded_warehouse / f"{database}.db" / name, folder)
    files = list(folder.glob(pattern))
    assert files
    for file in files:
        match how:
            case "gone":
                file.unlink()
            case "cut short":
                file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
            case "empty":
                file.write_bytes(b"")
    with paimon_magics.connect(tmp_path, spark=spark, **SETTINGS) as session:
        if how == "gone" and pattern in ("schema/schema-*", "snapshot/snapshot-1"):
            expected: type[Exception] = paimon_magics.errors.UnknownNameError
        else:
            expected = TableDamagedError
        with pytest.raises(expected) as error:
            session.run(f"SELECT * FROM {read}").to_arrow()
    if expected is TableDamagedError:
        text = str(error.value)
        assert any(file.name in text for file in files) or str(folder) in text
        assert "restore" in text.lower() or "the file was removed" in text


def test_spark_query_failure_is_not_reported_as_damaged_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark can't push NULL among the numbers of IN into its ORC reader. A statement with the word
    NULL spares it that; here Spark makes the NULL itself."""
    with paimon_magics.connect(tmp_path, spark=spark, **SETTINGS) as session:
        session.run("CREATE TABLE t (id INT) TBLPROPERTIES ('file.format' = 'orc')")
        session.run("INSERT INTO t VALUES (1), (2)")
        with pytest.raises(JobError, match=r"Spark failed while it read .*NullPointer") as failed:
            session.run("SELECT * FROM t WHERE id IN (1, nullif(1, 1))").to_arrow()
        assert "The file may be intact" in failed.value.hint
