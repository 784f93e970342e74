"""Splits are planned from values alone: no warehouse, no table, no file."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pypaimon.schema.data_types import AtomicType, DataField
from pypaimon.table.row.generic_row import GenericRow, GenericRowSerializer

from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.reads.splits import Deletions, DifferenceSplit, MergeSplit, PlainSplit
from paimon_magics.planning.reads.views import RowView, ViewKind
from paimon_magics.planning.schemas.table_schema import TableSchema, plan_create_table
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable, TableName
from paimon_magics.tables.manifests.columns import MANIFEST_ENTRIES
from paimon_magics.tables.splits.planning import SplitPlanner, StoredState, TableScan

APPEND = "CREATE TABLE t (k INT, v STRING)"
KEYED = (
    "CREATE TABLE t (k INT NOT NULL, v STRING) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '2')"
)
NO_PARTITION = GenericRowSerializer.to_bytes(GenericRow([], []))


def schema_of(sql: str) -> TableSchema:
    statement = parse_statement(sql)
    assert isinstance(statement, CreateTable)
    return plan_create_table(statement)


def key(value: int) -> bytes:
    fields = [DataField(0, "k", AtomicType("INT", nullable=False))]
    encoded: bytes = GenericRowSerializer.to_bytes(GenericRow([value], fields))
    return encoded


def file(name: str, *, bucket: int = 0, level: int = 0, keys: tuple[int, int] = (1, 9)) -> Any:
    return {
        "kind": 0,
        "partition": NO_PARTITION,
        "bucket": bucket,
        "total_buckets": 2,
        "file_name": f"{name}.parquet",
        "file_size": 1000,
        "row_count": 10,
        "min_key": key(keys[0]),
        "max_key": key(keys[1]),
        "min_sequence_number": 0,
        "max_sequence_number": 9,
        "schema_id": 0,
        "level": level,
        "delete_row_count": 0,
    }


def state(*files: Any, **deletions: Deletions) -> StoredState:
    of_files = {
        (each["partition"], each["bucket"], each["file_name"]): deletions[name]
        for each in files
        for name in deletions
        if each["file_name"] == f"{name}.parquet"
    }
    return StoredState(pa.Table.from_pylist(list(files), MANIFEST_ENTRIES), of_files)


def planner(sql: str, kind: ViewKind = ViewKind.TABLE, *, unordered: bool = False) -> SplitPlanner:
    schema = schema_of(sql)
    scan = TableScan(TableName("t", "default"), schema, RowView(kind), unordered=unordered)
    return SplitPlanner(scan, lambda _: schema.columns, lambda _: "/lake/t/bucket-0/")


def names(paths: Any) -> list[str]:
    return sorted(path.removeprefix("/lake/t/").removesuffix(".parquet") for path in paths)


def test_files_that_need_no_merge_are_scanned_raw() -> None:
    planned = planner(APPEND).state(state(file("a"), file("b", bucket=1)))
    assert planned.splits == ()
    assert names(path for raw in planned.raw for path in raw.paths) == ["bucket-0/a", "bucket-1/b"]
    assert planned.schema_ids == {0}


def test_only_files_with_overlapping_keys_are_merged() -> None:
    planned = planner(KEYED).state(
        state(file("a"), file("b"), file("c", level=5, keys=(20, 30)), file("d", bucket=1, level=5))
    )
    assert [type(split) for split in planned.splits] == [MergeSplit]
    assert names(each.path for each in planned.splits[0].files) == ["bucket-0/a", "bucket-0/b"]
    assert names(path for raw in planned.raw for path in raw.paths) == ["bucket-0/c", "bucket-1/d"]


@pytest.mark.parametrize("kind", [ViewKind.AUDIT_LOG, ViewKind.BINLOG])
def test_row_kinds_of_compacted_buckets_are_scanned_raw(kind: ViewKind) -> None:
    deleted = {**file("d", bucket=1, level=5), "delete_row_count": 1}
    planned = planner(KEYED, kind).state(state(file("c", level=5), deleted))
    assert names(path for raw in planned.raw for path in raw.paths) == ["bucket-0/c"]
    assert names(each.path for split in planned.splits for each in split.files) == ["bucket-1/d"]
    (split,) = planner(KEYED, kind).state(state(file("a"), file("c", level=5))).splits
    assert isinstance(split, MergeSplit)


@pytest.mark.parametrize("unordered", [False, True])
def test_unordered_changes_without_pairs_are_scanned_raw(
    unordered: bool,
) -> None:
    updates = {**file("u", bucket=1), "delete_row_count": 5}
    files = pa.Table.from_pylist([file("a"), updates], MANIFEST_ENTRIES)
    expected = {
        ViewKind.BINLOG: ["bucket-0/a"] if unordered else [],
        ViewKind.AUDIT_LOG: ["bucket-0/a", "bucket-1/u"] if unordered else [],
    }
    for kind, raw in expected.items():
        planned = planner(KEYED, kind, unordered=unordered).changes(files)
        assert names(path for each in planned.raw for path in each.paths) == raw


def test_deletion_vectors_are_applied_in_tasks() -> None:
    planned = planner(APPEND).state(
        state(file("a"), file("b", bucket=1), a=Deletions("/lake/t/index/i", 1, 20))
    )
    (split,) = planned.splits
    assert isinstance(split, PlainSplit)
    assert [each.deletions for each in split.files] == [Deletions("/lake/t/index/i", 1, 20)]
    assert names(path for raw in planned.raw for path in raw.paths) == ["bucket-1/b"]


def test_difference_excludes_files_common_to_both_states() -> None:
    before, after = state(file("a"), file("b")), state(file("b"), file("c"))
    planned = planner(KEYED).difference(before, after)
    (split,) = planned.splits
    assert isinstance(split, DifferenceSplit)
    assert names(each.path for each in split.files) == ["bucket-0/a", "bucket-0/c"]
    with pytest.raises(UnsupportedStatementError, match="binlog"):
        planner(KEYED, ViewKind.BINLOG).difference(before, after)
