"""Append tables that a compaction sorts: all rows, in order, in no more files than needed."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from paimon_magics.columnar.clustering import hilbert_keys, z_order_keys
from paimon_magics.errors import CommitConflictError
from paimon_magics.planning.compaction.sort_orders import SortOrder
from tests.tables.compaction.append_compactions import Lake
from tests.tables.compaction.test_append_vectors import VECTORS, names


def filled(warehouse: Path) -> tuple[Lake, list[tuple[int | None, int, str]]]:
    lake = Lake.of(warehouse, "CREATE TABLE t (a INT, b INT, v STRING)")
    noise = random.Random(1)
    rows = [(noise.choice([None, *range(40)]), noise.randrange(40), f"v{n}") for n in range(300)]
    for start in (0, 100, 200):
        lake.append(*rows[start : start + 100])
    return lake, rows


def test_rows_are_sorted_column_after_column(warehouse: Path) -> None:
    lake, rows = filled(warehouse)
    receipt = lake.compact(order=SortOrder("order", ("a", "b")))
    assert receipt is not None
    assert (receipt.commit_kind, receipt.delta_rows) == ("COMPACT", 0)
    # Three files are fewer than a compaction without an order takes.
    assert lake.files("row_count", "file_source") == [(300, 1)]
    expected = sorted(rows, key=lambda row: (row[0] is not None, row[0] or 0, row[1]))
    assert lake.stored_rows() == expected
    assert lake.compact(order=SortOrder("order", ("v",))) is not None
    assert lake.stored_rows() == sorted(rows, key=lambda row: row[2])


@pytest.mark.parametrize("strategy", ["zorder", "hilbert"])
def test_rows_are_sorted_along_a_curve(warehouse: Path, strategy: str) -> None:
    lake, rows = filled(warehouse)
    lake.compact(order=SortOrder(strategy, ("a", "b")))
    stored = lake.stored_rows()
    assert sorted(stored, key=repr) == sorted(rows, key=repr)
    columns = [pa.array([row[place] for row in stored], pa.int32()) for place in (0, 1)]
    keys = (z_order_keys if strategy == "zorder" else hilbert_keys)(columns).to_pylist()
    assert keys == sorted(keys)


def test_deleted_rows_go_and_later_rows_stay(warehouse: Path) -> None:
    lake = Lake.of(warehouse, VECTORS.format(""))
    for first in (5, 0):
        lake.append(*[(first + k, "v") for k in range(5)])
    lake.delete({names(lake)[0]: [0, 1]})
    plan = lake.plan(order=SortOrder("order", ("k",)))
    transaction, rewritten = lake.rewritten(plan)
    lake.append((100, "meanwhile"))
    lake.commit(transaction, plan.messages(rewritten, transaction))
    assert sorted(k for k, _ in lake.rows()) == [0, 1, 2, 3, 4, 7, 8, 9, 100]
    assert lake.vectors() == {}


def test_rows_that_are_deleted_meanwhile_do_not_come_back(warehouse: Path) -> None:
    lake = Lake.of(warehouse, VECTORS.format(""))
    lake.append((1, "v"), (2, "v"))
    plan = lake.plan(order=SortOrder("order", ("k",)))
    transaction, rewritten = lake.rewritten(plan)
    lake.delete({names(lake)[0]: [0]})
    with pytest.raises(CommitConflictError):
        lake.commit(transaction, plan.messages(rewritten, transaction))
    lake.committer.abort(transaction)
    assert lake.rows() == [(2, "v")]
