"""Deletion vectors are stored as Paimon's own library stores them, and it reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.columnar.deletion_vectors import deleted_rows, vector_file
from paimon_magics.planning.commits.requests import Append
from paimon_magics.tables.writing.deletion_vector_files import vector_index
from tests.oracle.java_reader import JavaPaimon
from tests.tables.commits.compacting import live_entries, upgrade
from tests.tables.commits.test_commit import ours, written
from tests.tables.commits.test_compactions import compact
from tests.tables.manifest_files import create

pytestmark = [pytest.mark.spark, pytest.mark.java]

RUNS = {
    "one": [(7, 1, 1)],
    "few": [(0, 1, 1), (5, 2, 1), (65_535, 2, 1), (200_000, 1, 1)],
    "all": [(0, 300_000, 1)],
    "every third": [(0, 90_000, 3)],
    "runs and bits": [(10, 40, 1), (65_600, 20_000, 3), (400_000, 9, 7)],
    "the last": [(2**31 - 1, 1, 1)],
}
WIDE = {
    "one": RUNS["one"],
    "all": RUNS["all"],
    "beyond 32 bits": [(3, 1, 1), (2**32 - 2, 4, 1), (3 * 2**32, 10, 2)],
    "a gap": [(2 * 2**32 + 5, 1, 1)],
}


@pytest.fixture(scope="module")
def vectors(spark: Any) -> Any:
    thread = spark._jvm.java.lang.Thread.currentThread()
    compiler = spark._jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setSourceVersion(8)
    compiler.setTargetVersion(8)
    compiler.setParentClassLoader(thread.getContextClassLoader())
    compiler.cook(Path(__file__).with_name("DeletionVectors.java").read_text())
    return (
        compiler.getClassLoader()
        .loadClass("DeletionVectors")
        .getConstructors()[0]
        .newInstance(spark.sparkContext._gateway.new_array(spark._jvm.java.lang.Object, 0))
    )


def rows_of(runs: list[tuple[int, int, int]]) -> np.ndarray:
    parts = [np.arange(first, first + count * step, step) for first, count, step in runs]
    return np.unique(np.concatenate(parts))


@pytest.mark.parametrize(
    ("runs", "is_64_bit"),
    [*((runs, False) for runs in RUNS.values()), *((runs, True) for runs in WIDE.values())],
    ids=[*(f"{name}, 32 bits" for name in RUNS), *(f"{name}, 64 bits" for name in WIDE)],
)
def test_vector_bytes_match_java(
    vectors: Any, runs: list[tuple[int, int, int]], is_64_bit: bool
) -> None:
    given = [list(run) for run in runs]
    rows = rows_of(runs)
    content, (_, stored) = vector_file({"a": np.array([1]), "b": rows}, is_64_bit=is_64_bit)
    javas = bytes(vectors.written(given, is_64_bit))
    assert content[stored.offset :] == javas
    assert stored.length == vectors.length(given, is_64_bit)
    assert vectors.marks(content, stored.offset, stored.length, given, is_64_bit)
    assert np.array_equal(deleted_rows(javas), rows)


BUCKET = (("a",), 0)


@pytest.mark.parametrize("is_64_bit", [False, True])
def test_java_reads_and_extends_our_deletion_vectors(
    java_paimon: JavaPaimon, tmp_path: Path, is_64_bit: bool
) -> None:
    table = create(
        tmp_path,
        "CREATE TABLE t (p STRING, k INT, v STRING, PRIMARY KEY (p, k) NOT ENFORCED) "
        "PARTITIONED BY (p) TBLPROPERTIES ('bucket' = '1', 'deletion-vectors.enabled' = 'true', "
        f"'deletion-vectors.merge-on-read' = 'true', 'deletion-vectors.bitmap64' = '{is_64_bit}', "
        f"'index-file-in-data-file-dir' = '{is_64_bit}')",
    )
    rows = [{"p": "a", "k": k, "v": str(k)} for k in range(6)]
    ours(table, Append(), written(table, rows))
    compact(table, upgrade(table, 5))
    [entry] = live_entries(table)[BUCKET]
    name = entry.file.file_name

    def marked(rows: list[int], gone: tuple[str, ...] = ()) -> None:
        index = vector_index(table, table.paimon.snapshot_manager().get_latest_snapshot())
        change = index.changed(BUCKET, {name: np.array(rows)}, gone, f"index-{len(rows)}-{rows[0]}")
        assert change is not None
        message = CommitMessage(
            *BUCKET, [], compact_index_adds=list(change.adds),
            compact_index_deletes=list(change.deletes),
        )  # fmt: skip
        compact(table, [message])

    def seen() -> list[int]:
        return sorted(row[1] for row in java_paimon.rows(tmp_path, "default.t"))

    marked([1, 3])
    assert seen() == [0, 2, 4, 5]
    marked([5])
    assert seen() == [0, 2, 4]
    java_paimon.write(tmp_path, "default.t", [("a", 4, "new")])  # Java marks row 4 of our file
    index = vector_index(table, table.paimon.snapshot_manager().get_latest_snapshot())
    assert index.vectors(BUCKET)[name].tolist() == [1, 3, 4, 5]
    assert (("a", 4, "new") in java_paimon.rows(tmp_path, "default.t")) and seen() == [0, 2, 4]
    marked([0], gone=(name,))
    assert seen() == [0, 1, 2, 3, 4, 4, 5], "no row of the file is deleted"
