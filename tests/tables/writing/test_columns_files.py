"""New values of single columns of a data-evolution table, as files of these columns alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from paimon_magics.errors import (
    CommitConflictError,
    InvalidValueError,
    TableDamagedError,
    UnsupportedStatementError,
)
from paimon_magics.planning.commits.requests import CommitRequest, OverwritePartitions
from paimon_magics.planning.reads.views import ViewKind
from paimon_magics.tables.splits.table_scan import row_ranges
from paimon_magics.tables.writing.columns_files import columns_messages, columns_write
from tests.tables.compaction.append_compactions import Lake
from tests.tables.manifest_files import TABLE

EVOLVING = (
    "CREATE TABLE t (k INT, v STRING, d DOUBLE, p STRING) PARTITIONED BY (p) TBLPROPERTIES ("
    "'row-tracking.enabled' = 'true', 'data-evolution.enabled' = 'true', "
    "'compaction.min.file-num' = '2'{})"
)


@pytest.fixture
def lake(warehouse: Path) -> Lake:
    """Rows with the ids 0 to 3 in one partition, and 4 in another."""
    lake = Lake.of(warehouse, EVOLVING.format(""))
    lake.append((0, "a", 0.5, "x"), (1, "b", None, "x"))
    lake.append((2, "c", 2.5, "x"), (3, None, 3.5, "x"))
    lake.append((4, "e", 4.5, None))
    return lake


def by_pypaimon(lake: Lake) -> list[tuple[Any, ...]]:
    builder = lake.table.paimon.new_read_builder()
    found = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    return sorted(tuple(row.values()) for row in found.to_pylist())


def test_update_writes_files_of_the_changed_columns_only(lake: Lake) -> None:
    before = lake.files("file_name")
    lake.update_here([1, 4], {"v": ["new b", None], "d": [float("nan"), -0.0]})
    rows = sorted(lake.rows(), key=lambda row: row[0])
    assert repr(rows) == repr(
        [
            (0, "a", 0.5, "x"),
            (1, "new b", float("nan"), "x"),
            (2, "c", 2.5, "x"),
            (3, None, 3.5, "x"),
            (4, None, -0.0, None),
        ]
    )
    assert repr(by_pypaimon(lake)) == repr(rows)
    columns = ("file_name", "first_row_id", "row_count", "write_cols", "max_sequence_number")
    added = [row[1:] for row in lake.files(*columns) if row[:1] not in before]
    assert sorted(added) == [(0, 2, ["v", "d"], 4), (4, 1, ["v", "d"], 4)]
    numbers = {row[-2]: row[-1] for row in lake.rows(ViewKind.ROW_TRACKING)}
    assert numbers == {0: 4, 1: 4, 2: 2, 3: 2, 4: 4}
    lake.update([1], {"v": ["by pypaimon"]})
    lake.update_here([0, 2], {"k": [10, 12]})
    assert repr(by_pypaimon(lake)) == repr(sorted(lake.rows(), key=lambda row: row[0]))
    assert (1, "by pypaimon") in [row[:2] for row in lake.rows()]
    rows = sorted(lake.rows(), key=repr)
    assert lake.compact() is not None
    assert repr(sorted(lake.rows(), key=repr)) == repr(rows)


def test_update_keeps_deleted_rows_deleted(warehouse: Path) -> None:
    options = ", 'deletion-vectors.enabled' = 'true'"
    lake = Lake.of(warehouse, EVOLVING.format(options).replace("PARTITIONED BY (p)", ""))
    lake.append(*[(k, "old", 0.0, "x") for k in range(10)])
    ((name,),) = lake.files("file_name")
    lake.delete({name: [0, 7]})
    lake.update_here(range(1, 9), {"v": [f"v{k}" for k in range(1, 9)]})
    expected = [(k, f"v{k}", 0.0, "x") for k in (1, 2, 3, 4, 5, 6, 8)]
    assert lake.rows() == [*expected, (9, "old", 0.0, "x")]
    assert by_pypaimon(lake) == lake.rows()


def test_a_statement_updates_and_deletes_rows_at_once(warehouse: Path) -> None:
    options = ", 'deletion-vectors.enabled' = 'true'"
    lake = Lake.of(warehouse, EVOLVING.format(options))
    for first in (0, 5, 10):
        part = "x" if first else "y"
        lake.append(*[(k, "old", 0.0, part) for k in range(first, first + 5)])
    before = lake.files("file_name")
    lake.change([1, 3, 8], {"v": ["1", "3", "8"], "d": [1.0, 3.0, 8.0]}, deleted=[2, 9, 10])
    lake.change([], {}, deleted=[0])
    changed = {1: ("1", 1.0), 3: ("3", 3.0), 8: ("8", 8.0)}
    expected = [
        (k, *changed.get(k, ("old", 0.0)), "x" if k > 4 else "y")
        for k in range(15)
        if k not in (0, 2, 9, 10)
    ]
    assert sorted(lake.rows()) == expected
    assert by_pypaimon(lake) == expected
    # The rows from 10 on only lose one: no file of columns is written for them.
    added = [each for each in lake.files("file_name", "first_row_id") if each[:1] not in before]
    assert sorted(first for _, first in added) == [0, 5]
    assert sorted(lake.vectors().values(), key=int) == [1, 1, 2]
    assert lake.compact() is not None
    assert sorted(lake.rows()) == expected


def test_second_concurrent_update_of_a_column_is_refused(lake: Lake) -> None:
    first, second = lake.written_columns([0], {"v": ["1"]}), lake.written_columns([1], {"v": ["2"]})
    column = lake.written_columns([0], {"k": [100]})
    lake.commit_update(first)
    with pytest.raises(CommitConflictError, match="conflict"):
        lake.commit_update(second)
    lake.commit_update(column)
    files = lake.data_files()
    lake.committer.abort(second[0])
    assert len(lake.data_files()) == len(files) - 1
    assert sorted(row[:2] for row in lake.rows())[-1] == (100, "1")


@pytest.mark.parametrize("done", ["compaction", "overwrite"])
def test_update_of_rows_moved_to_other_files_is_refused(lake: Lake, done: str) -> None:
    written = lake.written_columns([2], {"v": ["new"]})
    if done == "compaction":
        assert lake.compact() is not None
    else:
        change = OverwritePartitions(((("p", "x"),),))
        lake.committer.commit(CommitRequest(lake.committer.begin(TABLE), change, ()))
    before = lake.rows()
    with pytest.raises(CommitConflictError):
        lake.commit_update(written)
    assert lake.rows() == before
    lake.committer.abort(written[0])
    if done == "compaction":
        lake.update_here([2], {"v": ["new"]})
        assert (2, "new", 2.5, "x") in lake.rows()


@pytest.mark.parametrize(
    ("ids", "named"), [([0, 0], "don't ascend"), ([3, 2], "don't ascend"), ([1, 5], "the id 5")]
)
def test_unordered_or_unknown_row_ids_are_refused(lake: Lake, ids: list[int], named: str) -> None:
    files = lake.data_files()
    with pytest.raises(InvalidValueError, match=named):
        lake.written_columns(ids, {"v": ["a", "b"]})
    assert lake.data_files() == files


def test_each_row_range_is_written_whole_by_a_single_task(lake: Lake) -> None:
    table = lake.table
    snapshot = table.paimon.snapshot_manager().get_latest_snapshot()
    ranges = row_ranges(table, snapshot)
    assert [(each.first_row_id, each.rows, each.partition) for each in ranges] == [
        (0, 2, ("x",)),
        (2, 2, ("x",)),
        (4, 1, (None,)),
    ]
    transaction = lake.committer.begin(TABLE)
    write = columns_write(table, transaction, ["v"], ranges)
    files = lake.data_files()
    for ids in ([0], [1, 2], [0, 2], [9]):
        rows = lake.updates(ids, {"v": ["n"] * len(ids)}).to_batches()
        with pytest.raises(TableDamagedError, match="all rows of the file"):
            write.run(rows)
    assert lake.data_files() == files
    rows = lake.updates([4], {"v": ["n"]}).to_batches()
    with pytest.raises(TableDamagedError, match="Two tasks wrote the rows"):
        columns_messages(table, write, [*write.run(rows), *write.run(rows)], snapshot.id)
    lake.committer.abort(transaction)
    assert lake.data_files() == files


def test_partition_columns_and_other_tables_are_refused(lake: Lake, warehouse: Path) -> None:
    transaction = lake.committer.begin(TABLE)
    with pytest.raises(UnsupportedStatementError, match="is a partition column"):
        columns_write(lake.table, transaction, ["v", "p"], ())
    plain = Lake.of(warehouse.with_name("plain"), "CREATE TABLE t (k INT)")
    with pytest.raises(UnsupportedStatementError, match="files hold whole rows"):
        columns_write(plain.table, transaction, ["k"], ())
    message = lake.written_columns([0], {"v": ["n"]})[1][0]
    message.check_from_snapshot = None
    with pytest.raises(InvalidValueError, match="does not name the snapshot"):
        lake.commit_update((transaction, [message]))
    lake.committer.abort(transaction)


def test_column_added_later_gets_values(lake: Lake) -> None:
    lake.alter(SchemaChange.add_column("more", AtomicType("BIGINT")))
    lake.update_here([3], {"more": [2**40]})
    actual = {row[0]: row[4] for row in lake.rows()}
    assert actual == {0: None, 1: None, 2: None, 3: 2**40, 4: None}
    assert [row[4] for row in by_pypaimon(lake)] == [None, None, None, 2**40, None]
    files = lake.files("write_cols", "value_stats_cols", "first_row_id")
    assert [each for each in files if each[0]] == [(["more"], ["more"], 2)]
