"""Append tables compacted by us and by Paimon's Java library, on two copies: the same files in
number, rows and sequence numbers, and the same rows; each compacts what the other left."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from paimon_magics.planning.reads.views import ViewKind
from tests.oracle.java_compactor import JavaCompact, java_compactions
from tests.oracle.java_reader import JavaPaimon
from tests.tables.compaction.append_compactions import Lake

pytestmark = [pytest.mark.spark, pytest.mark.java]

NAME = "default.t"
TABLES = {
    "without buckets": "CREATE TABLE t (k INT, v STRING, p STRING) PARTITIONED BY (p)",
    "packed": "CREATE TABLE t (k INT, v STRING, p STRING) TBLPROPERTIES "
    "('target-file-size' = '3 kb', 'source.split.open-file-cost' = '100 b', "
    "'compaction.min.file-num' = '3')",
    "orc": "CREATE TABLE t (k INT, v STRING, p STRING) TBLPROPERTIES ('file.format' = 'orc')",
    "buckets": "CREATE TABLE t (k INT, v STRING, p STRING) PARTITIONED BY (p) TBLPROPERTIES "
    "('bucket' = '2', 'bucket-key' = 'k', 'compaction.min.file-num' = '3', 'write-only' = 'true')",
    "orc buckets": "CREATE TABLE t (k INT, v STRING, p STRING) TBLPROPERTIES ("
    "'file.format' = 'orc', 'bucket' = '1', 'bucket-key' = 'k', 'compaction.min.file-num' = '3', "
    "'write-only' = 'true')",
    "deletion vectors": "CREATE TABLE t (k INT, v STRING, p STRING) TBLPROPERTIES "
    "('deletion-vectors.enabled' = 'true', 'target-file-size' = '3 kb', "
    "'source.split.open-file-cost' = '100 b')",
    "64-bit deletion vectors": "CREATE TABLE t (k INT, v STRING, p STRING) TBLPROPERTIES "
    "('deletion-vectors.enabled' = 'true', 'deletion-vectors.bitmap64' = 'true', "
    "'index-file-in-data-file-dir' = 'true')",
    "buckets with deletion vectors": "CREATE TABLE t (k INT, v STRING, p STRING) TBLPROPERTIES "
    "('bucket' = '1', 'bucket-key' = 'k', 'deletion-vectors.enabled' = 'true', "
    "'write-only' = 'true')",
    "row ids": "CREATE TABLE t (k INT, v STRING, p STRING) PARTITIONED BY (p) TBLPROPERTIES "
    "('row-tracking.enabled' = 'true', 'compaction.min.file-num' = '3')",
    "row ids with deletion vectors": "CREATE TABLE t (k INT, v STRING, p STRING) TBLPROPERTIES "
    "('row-tracking.enabled' = 'true', 'deletion-vectors.enabled' = 'true', "
    "'file.format' = 'orc', 'compaction.min.file-num' = '3')",
    "data evolution": "CREATE TABLE t (k INT, v STRING, p STRING) PARTITIONED BY (p) "
    "TBLPROPERTIES ('row-tracking.enabled' = 'true', 'data-evolution.enabled' = 'true', "
    "'target-file-size' = '3 kb', 'source.split.open-file-cost' = '100 b', "
    "'compaction.min.file-num' = '3')",
    "data evolution with deletion vectors": "CREATE TABLE t (k INT, v STRING, p STRING) "
    "TBLPROPERTIES ('row-tracking.enabled' = 'true', 'data-evolution.enabled' = 'true', "
    "'deletion-vectors.enabled' = 'true', 'compaction.min.file-num' = '3')",
}


def fill(lake: Lake, noise: random.Random, commits: int) -> None:
    for _ in range(commits):
        count = noise.choice([1, 3, 40])
        lake.append(
            *[
                (noise.randrange(1000), noise.randbytes(noise.choice([1, 20])).hex(), part)
                for part in noise.choices(["a", "b", None], k=count)
            ]
        )


def delete_some(lake: Lake, noise: random.Random) -> None:
    """Delete rows of some files that have no deleted ones yet, in one index file or two."""
    marked = lake.vectors()
    files = [each for each in lake.files("file_name", "row_count") if each[0] not in marked]
    for _ in range(noise.choice([1, 2])):
        chosen = noise.sample(files, k=min(len(files), 3))
        files = [each for each in files if each not in chosen]
        rows_of = {
            name: sorted(noise.sample(range(rows), k=noise.randint(1, rows)))
            for name, rows in chosen
        }
        if rows_of:
            lake.delete(rows_of)


def update_some(lake: Lake, noise: random.Random) -> None:
    """Write one column anew for some rows, as files of that column alone."""
    ids = [row[-2] for row in our_rows(lake)]
    for column in noise.sample(["k", "v"], k=noise.randint(1, 2)):
        chosen = sorted(noise.sample(ids, k=noise.randint(1, len(ids))))
        values: list[Any] = [noise.randrange(1000) for _ in chosen]
        if column == "v":
            values = [f"new {value}" for value in values]
        noise.choice([lake.update, lake.update_here, lake.change])(chosen, {column: values})
    if lake.table.schema.deletion_vectors_enabled:
        lake.change([], {}, deleted=sorted(noise.sample(ids, k=len(ids) // 4)))


def files_of(lake: Lake) -> list[tuple[Any, ...]]:
    return sorted(
        lake.files(
            "partition", "bucket", "total_buckets", "level", "row_count", "schema_id",
            "min_sequence_number", "max_sequence_number", "file_source", "delete_row_count",
            "first_row_id", "write_cols",
        ),
        key=repr,
    )  # fmt: skip


def sorted_rows(java: JavaPaimon, lake: Lake) -> list[tuple[Any, ...]]:
    """The rows as Java reads them, with their ids and sequence numbers if they have some."""
    tracks = lake.table.schema.row_tracking_enabled
    name = f"{NAME}$row_tracking" if tracks else NAME
    return sorted(java.rows(lake.warehouse, name), key=repr)


def our_rows(lake: Lake) -> list[tuple[Any, ...]]:
    tracks = lake.table.schema.row_tracking_enabled
    kind = ViewKind.ROW_TRACKING if tracks else ViewKind.TABLE
    return sorted(lake.rows(kind), key=repr)


IN_EVERY_RUN = {
    *("packed", "buckets", "orc buckets", "deletion vectors", "row ids with deletion vectors")
}


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        pytest.param(
            kind, seed, marks=[] if seed == 0 and kind in IN_EVERY_RUN else [pytest.mark.soak]
        )
        for kind in TABLES
        for seed in range(3)
    ],
)
def test_append_compaction_leaves_the_same_files_and_rows_as_java(
    java_paimon: JavaPaimon, java_compact: JavaCompact, warehouse: Path, kind: str, seed: int
) -> None:
    noise = random.Random(f"{kind} {seed}")
    ours = Lake.of(warehouse, TABLES[kind])
    for number in range(3):
        # With more files Java's writer begins a second compaction of a bucket before it has told of
        # the first, and commits neither.
        full = number > 0 or noise.random() < 0.5
        fill(ours, noise, commits=noise.randint(1, 7 if full else 4))
        if number == 1:
            ours.alter(SchemaChange.update_column_type("k", AtomicType("BIGINT")))
        if "vectors" in kind:
            delete_some(ours, noise)
        if "evolution" in kind:
            update_some(ours, noise)
        other = Lake.opened(warehouse.with_name(f"java-{number}"))
        shutil.copytree(ours.warehouse, other.warehouse)
        before = sorted_rows(java_paimon, ours)
        assert our_rows(ours) == before
        done = ours.compact(full=full) is not None
        assert java_compact(other.warehouse, full) is done
        if "evolution" not in kind:
            assert our_rows(ours) == before
        else:  # all rows of a file get the greatest sequence number in it
            assert [row[:-1] for row in our_rows(ours)] == [row[:-1] for row in before]
        before = our_rows(ours)
        assert sorted_rows(java_paimon, ours) == before
        assert sorted_rows(java_paimon, other) == before
        assert files_of(ours) == files_of(other)
        assert {*ours.vectors().values()} == {*other.vectors().values()}
        if noise.random() < 0.5:  # go on with what Java left
            ours = other
    options = {"snapshot.time-retained": "1 ms", "snapshot.num-retained.min": "1"}
    java_paimon.expire(ours.warehouse, NAME, options)
    assert sorted_rows(java_paimon, ours) == before
    assert {name for (name,) in ours.files("file_name")} == ours.data_files()


CLUSTERED = (
    "CREATE TABLE t (k INT, v STRING, p STRING) PARTITIONED BY (p) TBLPROPERTIES "
    "('clustering.incremental' = 'true', 'clustering.columns' = 'k,v', "
    "'num-sorted-run.compaction-trigger' = '3'{})"
)


@pytest.mark.parametrize(
    "more",
    [
        pytest.param("", marks=pytest.mark.soak),
        ", 'row-tracking.enabled' = 'true', 'num-levels' = '4'",
    ],
)
def test_clustering_picks_the_same_files_as_java(
    java_paimon: JavaPaimon, spark: Any, warehouse: Path, more: str
) -> None:
    noise = random.Random(more)
    lake = Lake.of(warehouse, CLUSTERED.format(more))
    java = java_compactions(spark)
    levels = set()

    def javas(full: bool) -> list[str]:
        return list(java.clustered({"warehouse": str(warehouse)}, NAME, full))

    for number in range(8):
        fill(lake, noise, commits=noise.randint(1, 3))
        if number == 6:
            lake.alter(SchemaChange.set_option("clustering.columns", "v"))
        full = number in (3, 6)
        picked = []
        for unit in lake.plan(full=full).units:
            names = sorted(file.path.rpartition("/")[2] for file in unit.files)
            picked.append(f"{unit.output_level} [{', '.join(names)}]")
        assert sorted(picked) == javas(full)
        before = sorted_rows(java_paimon, lake)
        lake.compact(full=full)
        assert sorted_rows(java_paimon, lake) == our_rows(lake) == before
        levels |= {level for (level,) in lake.files("level")}
        if full:
            assert not lake.plan(full=True).units and not javas(full=True)
    assert len(levels) > 2


def test_buckets_are_clustered_as_in_java(
    java_paimon: JavaPaimon, java_compact: JavaCompact, warehouse: Path
) -> None:
    noise = random.Random(0)
    buckets = (
        ", 'bucket' = '2', 'bucket-key' = 'k', 'bucket-append-ordered' = 'false', "
        "'write-only' = 'true'"
    )
    ours = Lake.of(warehouse, CLUSTERED.format(buckets))
    for number in range(2):
        fill(ours, noise, commits=3)
        other = Lake.opened(warehouse.with_name(f"java-{number}"))
        shutil.copytree(ours.warehouse, other.warehouse)
        before = sorted_rows(java_paimon, ours)
        assert ours.compact() is not None and java_compact(other.warehouse, True)
        columns = ("partition", "bucket", "total_buckets", "level", "row_count", "file_source")
        assert sorted(ours.files(*columns)) == sorted(other.files(*columns))
        assert sorted_rows(java_paimon, ours) == sorted_rows(java_paimon, other) == before
        ours = other  # go on with what Java left
