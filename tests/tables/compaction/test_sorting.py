"""Append tables that a compaction sorts: all rows, in order, in no more files than needed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from paimon_magics.columnar.clustering import hilbert_keys, z_order_keys
from paimon_magics.errors import CommitConflictError, TableDamagedError
from paimon_magics.planning.compaction.sort_orders import SortOrder
from paimon_magics.tables.compaction import append_rewriting
from paimon_magics.tables.compaction.append_rewriting import AppendUnits, SortInput, sorted_rows
from tests.tables.compaction.append_compactions import SETTINGS, Lake
from tests.tables.compaction.test_append_vectors import VECTORS, names
from tests.tables.manifest_files import TABLE


def filled(warehouse: Path) -> tuple[Lake, list[tuple[int | None, int, str]]]:
    lake = Lake.of(warehouse, "CREATE TABLE t (a INT, b INT, v STRING)")
    noise = random.Random(1)
    rows = [(noise.choice([None, *range(40)]), noise.randrange(40), f"v{n}") for n in range(300)]
    for start in (0, 100, 200):
        lake.append(*rows[start : start + 100])
    return lake, rows


def test_rows_are_sorted_by_columns_in_order(warehouse: Path) -> None:
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


def test_sorting_drops_deleted_rows_and_keeps_later_rows(warehouse: Path) -> None:
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


def test_rows_deleted_meanwhile_do_not_come_back(warehouse: Path) -> None:
    lake = Lake.of(warehouse, VECTORS.format(""))
    lake.append((1, "v"), (2, "v"))
    plan = lake.plan(order=SortOrder("order", ("k",)))
    transaction, rewritten = lake.rewritten(plan)
    lake.delete({names(lake)[0]: [0]})
    with pytest.raises(CommitConflictError):
        lake.commit(transaction, plan.messages(rewritten, transaction))
    lake.committer.abort(transaction)
    assert lake.rows() == [(2, "v")]


def many_rows(kind: str, rows: int) -> pa.Table:
    """Rows with a number each, whose keys are NULL, odd numbers, or the same very often."""
    noise = np.random.default_rng(3)
    few = noise.choice([0, 1, 1, 1, 1, 7], rows)
    floats = noise.choice([0.0, -0.0, float("nan"), -1.5, 2.5], rows)
    drawn = {
        "all different": noise.permutation(rows),
        "few keys": few,
        "one key": np.zeros(rows, dtype=np.int64),
        "sorted": np.arange(rows),
    }
    numbers = pa.array(drawn[kind], mask=noise.random(rows) < 0.1)
    texts = pc.cast(pa.array(noise.integers(0, 9, rows)), pa.string())
    columns = {"k": numbers, "f": pa.array(floats), "v": texts, "at": pa.array(range(rows))}
    return pa.table(columns)


@pytest.mark.parametrize("kind", ["all different", "few keys", "one key", "sorted"])
@pytest.mark.parametrize(
    "order",
    [
        SortOrder("order", ("k",)),
        SortOrder("order", ("f", "v", "k")),
        SortOrder("zorder", ("v", "k")),
        SortOrder("hilbert", ("k", "f")),
    ],
)
def test_sorting_beyond_memory_gives_the_same_order(kind: str, order: SortOrder) -> None:
    table = many_rows(kind, 3000)

    def read(columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        yield from (table if columns is None else table.select(columns)).to_batches(100)

    (whole,) = pa.Table.from_batches(sorted_rows(SortInput(read, 3000), order)).to_batches()
    for shares in (1, 3):
        actual = [
            batch
            for share in range(shares)
            for batch in sorted_rows(SortInput(read, 3000, share, shares), order, 40_000)
        ]
        assert pa.Table.from_batches(actual).combine_chunks().column("at").to_pylist() == (
            whole.column("at").to_pylist()
        )
        assert len(actual) > (8 if kind == "all different" else 0), "range by range"
    assert not [*sorted_rows(SortInput(lambda columns: iter(()), 0), order)]


def test_a_large_unit_is_sorted_by_several_tasks(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_rewriting, "_SORTED_BYTES_MIN", 1)
    lake, rows = filled(warehouse)
    plan = lake.plan(order=SortOrder("order", ("v",)))
    transaction = lake.committer.begin(TABLE)
    rewrite = plan.rewrite(transaction, slots=3, settings=SETTINGS)
    units = AppendUnits.of(rewrite, plan.units, 3)
    told: list[int] = []
    results = [
        each
        for number in range(units.count)
        for each in units.run(number, lambda rows, size: told.append(rows))
    ]
    results.sort(key=lambda each: each.share)
    assert [each.share for each in results] == [0, 1, 2] and sum(told) == 300
    lake.commit(transaction, plan.messages(results[::-1], transaction))
    assert lake.stored_rows() == sorted(rows, key=lambda row: row[2])
    assert len(lake.files("file_name")) == 3
    with pytest.raises(TableDamagedError):
        plan.messages(results[:2], transaction)
