"""Append tables after a compaction: the same rows in fewer files, as Paimon numbers them."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import Schema
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from paimon_magics.errors import CommitConflictError, TableDamagedError
from paimon_magics.planning.compaction.sort_orders import SortOrder
from paimon_magics.planning.reads.views import ViewKind
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.compaction.append_plan import plan_append_compaction
from paimon_magics.tables.compaction.planning import CompactionScope
from paimon_magics.tables.manifests.partitions import partition_values
from tests.tables.compaction.append_compactions import SETTINGS, Lake
from tests.tables.manifest_files import TABLE

SEQUENCES = ("row_count", "min_sequence_number", "max_sequence_number", "level", "file_source")
EVOLVING = (
    "CREATE TABLE t (k INT, v STRING, d DOUBLE) TBLPROPERTIES ('row-tracking.enabled' = 'true', "
    "'data-evolution.enabled' = 'true', 'compaction.min.file-num' = '3'{})"
)
BUCKETED = (
    "CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ('bucket' = '2', 'bucket-key' = 'k', "
    "'compaction.min.file-num' = '3'{})"
)


def numbered(first: int, count: int = 2) -> list[tuple[int, str]]:
    return [(k, f"v{k}") for k in range(first, first + count)]


def test_compaction_merges_small_files(warehouse: Path) -> None:
    lake = Lake.of(warehouse, "CREATE TABLE t (k INT, v STRING)")
    for number in range(4):
        lake.append(*numbered(number * 2))
    assert lake.compact() is None  # four files are too few
    lake.append(*numbered(8, 3))
    receipt = lake.compact()
    assert receipt is not None
    assert (receipt.commit_kind, receipt.total_rows, receipt.delta_rows) == ("COMPACT", 11, 0)
    assert sorted(lake.rows()) == numbered(0, 11)
    [(rows, least, greatest, level, source)] = lake.files(*SEQUENCES)
    assert (rows, greatest - least + 1, level, source) == (11, 11, 0, 1)
    assert lake.compact() is None


@pytest.mark.parametrize("format", ["orc", "avro"])
def test_orc_and_avro_files_are_rewritten(warehouse: Path, format: str) -> None:
    lake = Lake.of(
        warehouse,
        f"CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ('file.format' = '{format}')",
    )
    for number in range(5):
        lake.append(*numbered(number * 2))
    lake.compact()
    assert sorted(lake.rows()) == numbered(0, 10)
    [(name, total_buckets, source)] = lake.files("file_name", "total_buckets", "file_source")
    assert (name.endswith(f".{format}"), total_buckets, source) == (True, -1, 1)


def test_only_partitions_with_enough_small_files_are_rewritten(warehouse: Path) -> None:
    lake = Lake.of(warehouse, "CREATE TABLE t (k INT, p STRING, n INT) PARTITIONED BY (p, n)")
    for number in range(5):
        lake.append((number, "a", 1), (number, None, None))
    lake.append((5, "b", 1))
    before = sorted(lake.rows(), key=repr)
    receipt = lake.compact()
    assert receipt is not None and receipt.delta_rows == 0
    assert sorted(lake.rows(), key=repr) == before
    assert sorted(lake.files("row_count", "file_source")) == [(1, 0), (5, 1), (5, 1)]


def test_rows_of_a_bucket_keep_their_order(warehouse: Path) -> None:
    lake = Lake.of(warehouse, BUCKETED.format(""))

    def order() -> list[list[Any]]:
        return [lake.stored_rows(bucket) for bucket in (0, 1)]

    for number in range(4):
        lake.append(*[(k, f"v{number}") for k in range(6)])
    before = order()
    assert lake.compact(full=False) is not None
    assert sorted(lake.files("bucket", "file_source", "total_buckets")) == [
        (0, 0, 2), (0, 1, 2), (1, 0, 2), (1, 1, 2),
    ]  # fmt: skip
    assert order() == before
    assert lake.compact(full=False) is None
    lake.append(*[(k, "last") for k in range(6)])
    before = order()
    assert lake.compact() is not None
    assert order() == before
    files = lake.files(*SEQUENCES)
    assert len(files) == 2
    assert all(least == 0 and greatest == rows - 1 for rows, least, greatest, *_ in files)


def test_existing_buckets_keep_their_count_after_the_option_changes(warehouse: Path) -> None:
    lake = Lake.of(warehouse, BUCKETED.format(""))
    for number in range(4):
        lake.append(*numbered(number * 4, 4))
    before = lake.rows()
    lake.alter(SchemaChange.set_option("bucket", "1"))
    lake.compact()
    assert lake.rows() == before
    assert sorted(lake.files("bucket", "total_buckets")) == [(0, 2), (1, 2)]


def test_compaction_converts_rows_to_the_current_schema(warehouse: Path) -> None:
    lake = Lake.of(warehouse, "CREATE TABLE t (k INT, v STRING)")
    for number in range(3):
        lake.append((number, "old"))
    for change in (
        SchemaChange.add_column("more", AtomicType("STRING")),
        SchemaChange.update_column_type("k", AtomicType("BIGINT")),
        SchemaChange.rename_column("v", "w"),
    ):
        lake.alter(change)
    for number in range(2):
        lake.append((2**40 + number, "new", "m"))
    before = lake.rows()
    lake.compact()
    assert sorted(lake.rows()) == sorted(before)
    assert lake.files("schema_id") == [(3,)]


def test_large_unit_becomes_several_files_in_order(warehouse: Path) -> None:
    lake = Lake.of(
        warehouse,
        "CREATE TABLE t (k INT, v BIGINT) TBLPROPERTIES ('bucket' = '1', 'bucket-key' = 'k', "
        "'target-file-size' = '512 kb', 'compaction.force-rewrite-all-files' = 'true')",
    )
    values = random.Random(1)
    for first in range(0, 240_000, 40_000):
        lake.append(*[(k, values.getrandbits(62)) for k in range(first, first + 40_000)])
    assert lake.files("max_sequence_number") == [(k,) for k in range(39_999, 240_000, 40_000)]
    before = lake.stored_rows()
    assert lake.compact() is not None
    assert lake.stored_rows() == before
    files = sorted(lake.files("min_sequence_number", "max_sequence_number", "file_source"))
    assert len(files) > 1
    assert [first for first, _, _ in files] == [0, *(last + 1 for _, last, _ in files[:-1])]
    assert files[-1][1] == 239_999
    assert {source for *_, source in files} == {1}


def test_task_payload_is_small_and_needs_no_catalog(warehouse: Path) -> None:
    lake = Lake.of(warehouse, "CREATE TABLE t (k INT, v STRING)")
    for number in range(5):
        lake.append(*numbered(number))
    plan = lake.plan()
    transaction = lake.committer.begin(lake.table.name)
    rewrite = plan.rewrite(transaction, slots=1, settings=SETTINGS)
    body = pickle.dumps((rewrite, plan.units))
    assert len(body) < 4000
    assert b"pypaimon." not in body


def test_aborted_compaction_leaves_no_file(warehouse: Path) -> None:
    lake = Lake.of(warehouse, "CREATE TABLE t (k INT, v STRING)")
    for number in range(5):
        lake.append(*numbered(number))
    before = lake.data_files()
    transaction, _ = lake.rewritten(lake.plan())
    assert len(lake.data_files()) == len(before) + 1
    lake.committer.abort(transaction)
    assert lake.data_files() == before
    assert lake.compact() is not None


def test_second_of_two_concurrent_compactions_is_refused(warehouse: Path) -> None:
    lake = Lake.of(warehouse, "CREATE TABLE t (k INT, v STRING)")
    for number in range(5):
        lake.append(*numbered(number * 2))
    plan = lake.plan()
    transaction, rewritten = lake.rewritten(plan)
    assert lake.compact() is not None
    lake.append((100, "meanwhile"))
    with pytest.raises(CommitConflictError):
        lake.commit(transaction, plan.messages(rewritten, transaction))
    lake.committer.abort(transaction)
    assert sorted(lake.rows()) == [*numbered(0, 10), (100, "meanwhile")]


def test_rows_appended_meanwhile_are_kept(warehouse: Path) -> None:
    lake = Lake.of(warehouse, "CREATE TABLE t (k INT, v STRING)")
    for number in range(5):
        lake.append(*numbered(number * 2))
    plan = lake.plan()
    transaction, rewritten = lake.rewritten(plan)
    lake.append((100, "meanwhile"))
    lake.commit(transaction, plan.messages(rewritten, transaction))
    assert sorted(lake.rows()) == [*numbered(0, 10), (100, "meanwhile")]


def test_incomplete_results_are_not_committed(warehouse: Path) -> None:
    lake = Lake.of(warehouse, "CREATE TABLE t (k INT, v STRING)")
    for number in range(5):
        lake.append(*numbered(number))
    plan = lake.plan()
    transaction, rewritten = lake.rewritten(plan)
    with pytest.raises(TableDamagedError, match="read 10 rows of 5 files and wrote 0"):
        plan.messages([], transaction)
    other = Lake.of(warehouse.with_name("other"), "CREATE TABLE t (k INT, v STRING)")
    for number in range(5):
        other.append(*numbered(number, 1))
    with pytest.raises(TableDamagedError, match="wrote 5"):
        plan.messages(other.rewritten(other.plan())[1], transaction)
    lake.committer.abort(transaction)
    assert rewritten


CLUSTERED = (
    "CREATE TABLE t (k INT, v STRING, p STRING) {} TBLPROPERTIES ('clustering.incremental' = "
    "'true', 'clustering.columns' = 'k', 'num-sorted-run.compaction-trigger' = '2'{})"
)


def test_bucket_is_clustered_incrementally(warehouse: Path) -> None:
    buckets = ", 'bucket' = '2', 'bucket-key' = 'v', 'bucket-append-ordered' = 'false'"
    lake = Lake.of(warehouse, CLUSTERED.format("", buckets))
    for number in range(3):
        lake.append(*[(k, f"v{k % 5}", "x") for k in range(9 - number, 0, -2)])
    before = sorted(lake.rows())
    assert lake.compact(full=False) is not None
    assert sorted(lake.rows()) == before
    for bucket in (0, 1):
        keys = [row[0] for row in lake.stored_rows(bucket)]
        assert keys and keys == sorted(keys)
    assert lake.files("level", "total_buckets", "file_source") == [(2, 2, 1)] * 2
    assert lake.compact(full=False) is None
    assert lake.compact() is None
    lake.append((0, "v0", "x"))
    assert lake.compact() is not None
    assert sorted(lake.rows()) == [(0, "v0", "x"), *before]
    assert sorted(lake.files("level")) == [(2,), (2,)]


def test_idle_partitions_are_sorted_beside_chosen_partitions(warehouse: Path) -> None:
    history = (
        ", 'clustering.history-partition.idle-to-full-sort' = '{}', "
        "'clustering.history-partition.limit' = '2'"
    )
    sql = CLUSTERED.format("PARTITIONED BY (p)", history.format("1 ms"))
    lake = Lake.of(warehouse, sql)
    for part in "dcba":
        lake.append((2, "v", part), (1, "w", part))
    snapshot = lake.table.paimon.snapshot_manager().get_latest_snapshot()

    def named(files: pa.Table) -> dict[str, bytes]:
        values, of_files = partition_values(lake.table.paimon, files)
        names = [values[at][0] for at in of_files]
        return dict(zip(names, files["partition"].to_pylist(), strict=True))

    chosen = named(lake.state().files)["c"]
    scope = CompactionScope(is_full=False, partitions=frozenset([chosen]))

    def sorted_partitions() -> list[str]:
        return sorted(named(plan_append_compaction(lake.table, snapshot, scope).files))

    # The chosen one has too few runs, and of the others the two oldest are within the limit.
    assert sorted_partitions() == ["b", "d"]
    idle = "clustering.history-partition.idle-to-full-sort"
    lake.alter(SchemaChange.set_option(idle, "1 h"))
    assert sorted_partitions() == []


@pytest.mark.parametrize("format", ["parquet", "orc", "avro"])
def test_rows_keep_their_ids_and_sequence_numbers(warehouse: Path, format: str) -> None:
    lake = Lake.of(
        warehouse,
        "CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ('row-tracking.enabled' = 'true', "
        f"'compaction.min.file-num' = '2', 'file.format' = '{format}')",
    )
    for number in range(2):
        lake.append(*numbered(number * 2))
    before = sorted(lake.rows(ViewKind.ROW_TRACKING))
    assert before == [(0, "v0", 0, 1), (1, "v1", 1, 1), (2, "v2", 2, 2), (3, "v3", 3, 2)]
    lake.compact()
    lake.append(*numbered(4, 1))
    lake.compact(order=SortOrder("order", ("v",)))
    assert lake.rows(ViewKind.ROW_TRACKING) == [*before, (4, "v4", 4, 4)]
    assert lake.files("row_count", "min_sequence_number", "max_sequence_number") == [(5, 1, 4)]
    assert lake.files("first_row_id", "write_cols") == [
        (None, ["k", "v", "_ROW_ID", "_SEQUENCE_NUMBER"])
    ]


def test_failed_rewrite_of_rows_with_ids_leaves_no_file(warehouse: Path) -> None:
    lake = Lake.of(
        warehouse,
        "CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ('row-tracking.enabled' = 'true', "
        "'compaction.min.file-num' = '2')",
    )
    for number in range(2):
        lake.append(*numbered(number * 2))
    before = lake.data_files()
    transaction = lake.committer.begin(TABLE)
    plan = lake.plan()
    rewrite = plan.rewrite(transaction, slots=1, settings=SETTINGS)
    Path(plan.units[0].files[1].path.removeprefix("file:")).unlink()
    with pytest.raises(TableDamagedError):
        rewrite(plan.units[0])
    assert len(lake.data_files()) == len(before) - 1
    lake.committer.abort(transaction)


@pytest.mark.parametrize("format", ["parquet", "orc"])
def test_column_files_of_the_same_rows_are_merged(warehouse: Path, format: str) -> None:
    more = f", 'file.format' = '{format}', 'deletion-vectors.enabled' = 'true'"
    lake = Lake.of(warehouse, EVOLVING.format(more))
    lake.append((0, "a", 1.5), (1, "b", float("inf")), (2, "c", None))
    lake.append((3, "d", 2.5), (4, "e", -0.0))
    first, second = (name for (name,) in lake.files("file_name"))
    lake.update([1, 4], {"v": ["new b", "new e"]})
    lake.delete({first: [0], second: [1]})
    lake.update([2], {"d": [9.0]})
    rows = [(1, "new b", float("inf")), (2, "c", 9.0), (3, "d", 2.5)]
    assert lake.rows() == rows
    assert [row[-2] for row in lake.rows(ViewKind.ROW_TRACKING)] == [1, 2, 3]
    assert lake.compact() is not None
    assert lake.rows() == rows
    assert [row[-2] for row in lake.rows(ViewKind.ROW_TRACKING)] == [1, 2, 3]
    columns = ("row_count", "first_row_id", "write_cols", "level", "file_source")
    assert lake.files(*columns) == [(5, 0, None, 0, 0)]
    assert lake.files("min_sequence_number", "max_sequence_number") == [(1, 5)]
    assert lake.vectors() == {lake.files("file_name")[0][0]: 2}
    assert lake.compact() is None
    lake.update([3], {"k": [33]})
    assert (33, "d", 2.5) in lake.rows()


def test_columns_written_meanwhile_are_not_lost(warehouse: Path) -> None:
    lake = Lake.of(warehouse, EVOLVING.format(""))
    for number in range(3):
        lake.append((number, "old", 0.0))
    plan = lake.plan()
    transaction, rewritten = lake.rewritten(plan)
    lake.update([1], {"v": ["new"]})
    with pytest.raises(CommitConflictError, match="would share some of their rows"):
        lake.commit(transaction, plan.messages(rewritten, transaction))
    lake.committer.abort(transaction)
    assert lake.compact() is not None
    assert lake.rows() == [(0, "old", 0.0), (1, "new", 0.0), (2, "old", 0.0)]


def test_compaction_keeps_blob_files(warehouse: Path) -> None:
    columns = pa.schema([("k", pa.int32()), ("b", pa.large_binary()), ("v", pa.string())])
    options = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
    options |= {"compaction.min.file-num": "2"}
    catalog = Catalog.open({"warehouse": str(warehouse)}).paimon
    catalog.create_database("default", ignore_if_exists=True)
    schema = Schema.from_pyarrow_schema(columns, options=options)
    catalog.create_table("default.t", schema, ignore_if_exists=False)
    lake = Lake.opened(warehouse)

    def read() -> list[dict[str, Any]]:
        builder = lake.table.paimon.new_read_builder()
        splits = builder.new_scan().plan().splits()
        return list(builder.new_read().to_arrow(splits).to_pylist())

    for number in range(2):
        builder = lake.table.paimon.new_batch_write_builder()
        write, commit = builder.new_write(), builder.new_commit()
        body = pa.array([b"x%d" % number], pa.large_binary())
        write.write_arrow(pa.table({"k": pa.array([number], pa.int32()), "b": body, "v": ["a"]}))
        commit.commit(write.prepare_commit())
        write.close()
        commit.close()
    before = read()
    assert lake.compact() is not None
    assert read() == before == [{"k": k, "b": b"x%d" % k, "v": "a"} for k in (0, 1)]
    files = sorted(lake.files("first_row_id", "row_count", "write_cols"), key=repr)
    assert files == [(0, 1, ["b"]), (0, 2, ["k", "v"]), (1, 1, ["b"])]
