"""Append tables with deletion vectors after a compaction: deleted rows stay deleted, once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from paimon_magics.errors import CommitConflictError
from tests.tables.compaction.append_compactions import Lake

VECTORS = (
    "CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ('deletion-vectors.enabled' = 'true', "
    "'target-file-size' = '64 kb', 'source.split.open-file-cost' = '0 b'{})"
)


def filled(warehouse: Path, more: str = "", files: int = 3) -> Lake:
    lake = Lake.of(warehouse, VECTORS.format(more))
    for number in range(files):
        lake.append(*[(number * 10 + k, f"v{k}") for k in range(10)])
    return lake


def names(lake: Lake) -> list[str]:
    return [name for (name,) in lake.files("file_name")]


@pytest.mark.parametrize("more", ["", ", 'deletion-vectors.bitmap64' = 'true'"])
def test_compaction_removes_deleted_rows(warehouse: Path, more: str) -> None:
    lake = filled(warehouse, more)
    first, second, _ = names(lake)
    lake.delete({first: [0, 1], second: [9]})
    before = sorted(lake.rows())
    assert len(before) == 27
    receipt = lake.compact()
    assert receipt is not None
    assert (receipt.commit_kind, receipt.total_rows, receipt.delta_rows) == ("COMPACT", 27, -3)
    assert sorted(lake.rows()) == before
    # The two files whose vectors are in the index file go together, the third stays alone.
    assert sorted(lake.files("row_count", "file_source")) == [(10, 0), (17, 1)]
    assert lake.vectors() == {}
    assert lake.compact() is None


def test_fully_deleted_file_is_removed(warehouse: Path) -> None:
    lake = filled(warehouse, files=1)
    lake.delete({names(lake)[0]: range(10)})
    receipt = lake.compact()
    assert receipt is not None and receipt.total_rows == 0
    assert (lake.rows(), lake.files("file_name")) == ([], [])


def test_compaction_keeps_vectors_of_other_files(warehouse: Path) -> None:
    lake = filled(warehouse, files=2)
    noise = random.Random(1)
    lake.append(*[(100 + k, noise.randbytes(30).hex()) for k in range(1500)])
    small, other, large = names(lake)
    lake.delete({small: [3], large: [1, 5, 1499]})
    lake.delete({other: [0]})
    before = sorted(lake.rows())
    plan = lake.plan()
    [unit] = plan.units
    assert {file.path.rpartition("/")[2] for file in unit.files} == {small, other}
    lake.compact()
    assert sorted(lake.rows()) == before
    assert lake.vectors() == {large: 3}


def test_concurrent_deletes_in_other_files_are_no_conflict(warehouse: Path) -> None:
    lake = filled(warehouse)
    first, second, third = names(lake)
    lake.delete({first: [0], second: [0]})
    plan = lake.plan()
    transaction, rewritten = lake.rewritten(plan)
    lake.delete({third: [4]})
    lake.commit(transaction, plan.messages(rewritten, transaction))
    assert len(lake.rows()) == 27
    assert lake.vectors() == {third: 1}


@pytest.mark.parametrize("deleted_before", [True, False])
def test_rows_deleted_meanwhile_do_not_come_back(warehouse: Path, deleted_before: bool) -> None:
    lake = filled(warehouse, files=5)
    first, second, *_ = names(lake)
    if deleted_before:
        lake.delete({first: [0], second: [0]})
    plan = lake.plan()
    transaction, rewritten = lake.rewritten(plan)
    lake.delete({second: [0, 1]}, instead=deleted_before)
    rows, index_files = lake.rows(), lake.index_files()
    messages = plan.messages(rewritten, transaction)
    with pytest.raises(CommitConflictError):
        lake.commit(transaction, messages)
    lake.committer.abort(transaction)
    assert (lake.rows(), lake.index_files()) == (rows, index_files)


def test_compaction_of_a_bucket_removes_its_vectors(warehouse: Path) -> None:
    lake = filled(warehouse, ", 'bucket' = '1', 'bucket-key' = 'k'", files=4)
    first, _, third, _ = names(lake)
    lake.delete({first: [0, 9], third: [5]})
    before = lake.stored_rows()
    assert lake.compact(full=False) is None  # fewer than five
    receipt = lake.compact()
    assert receipt is not None and receipt.delta_rows == -3
    live = [row for row in before if row[0] not in (0, 9, 25)]
    assert lake.stored_rows() == live
    assert lake.files("min_sequence_number", "max_sequence_number") == [(0, 36)]
    assert lake.vectors() == {}
