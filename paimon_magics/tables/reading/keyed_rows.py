"""Reads the rows of a snapshot that have given keys, in a process that has no catalog."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.key_numbers import key_numbers
from paimon_magics.columnar.python_values import beyond_years
from paimon_magics.planning.reads.scans import LocalLimits, plain_splits
from paimon_magics.planning.reads.splits import MergeSplit, PlainSplit, TaskSplit
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.statement import ColumnFilter, FilterValue, TableName
from paimon_magics.tables.reading.data_read import (
    DataRead,
    ReadRequest,
    plan_data_read,
    shown_schema,
)
from paimon_magics.tables.schema.arrow_casting import conform
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.snapshots.latest import read_snapshot
from paimon_magics.tables.snapshots.targets import TableState
from paimon_magics.tables.stores.allowed_paths import own_folder_only
from paimon_magics.tables.stores.s3_access import options_of_catalog
from paimon_magics.tables.stores.store import Stores, open_store
from paimon_magics.tables.table import Table

_VALUES_MAX = 1000
"""Values of a column that files are pruned by; by their bounds where there are more."""


_BATCH_ROWS = 4096
"""Rows of a batch: a read that ends early has decoded no more than these in vain."""


@dataclass(frozen=True, slots=True)
class KeyedRead:
    """A read of the snapshot `snapshot_id` of a table, 0 for none; picklable. `body` is a pickle of
    pypaimon's table."""

    name: TableName
    schema: TableSchema
    location: str
    body: bytes
    options: tuple[tuple[str, str], ...]
    snapshot_id: int

    def __repr__(self) -> str:
        return f"KeyedRead({self.name})"  # the pickle and the options may hold credentials

    def rows(self, keys: pa.Table) -> pa.Table:
        """The rows with these keys, a table of the primary key's columns, in the table's columns.
        Memory holds them and one batch of the others that files near them have.

        Raises TableDamagedError for files that can't be read, FileNotFoundError for a snapshot that
        has expired.
        """
        schema = arrow_schema(self.schema)
        if not self.snapshot_id:
            return schema.empty_table()
        paimon = pickle.loads(self.body)  # made by `keyed_read`, for this job
        store = open_store(self.location, dict(self.options))
        paths = own_folder_only(self.location, Stores(dict(self.options)))
        table = Table(self.name, self.schema, self.location, paimon, store, paths)
        snapshot = read_snapshot(paimon, self.snapshot_id)
        if snapshot is None:
            raise FileNotFoundError(f"Snapshot {self.snapshot_id} of `{self.name}` has expired.")
        bound: dict[str, object] = {}
        filters = tuple(_filters(keys, bound))
        read = plan_data_read(
            table, ReadRequest(filters=filters, bound=bound), target=TableState(snapshot)
        )
        batches = (conform(batch, schema) for batch in rows_of_keys(read))
        return pa.Table.from_batches(_with_keys(batches, keys), schema)


def keyed_read(table: Table, snapshot_id: int) -> KeyedRead:
    """The read of a snapshot of `table`."""
    return KeyedRead(
        table.name,
        table.schema,
        table.location,
        pickle.dumps(table.paimon),
        options_of_catalog(table.paimon),
        snapshot_id,
    )


def _filters(keys: pa.Table, bound: dict[str, object]) -> Iterator[ColumnFilter]:
    """Conditions that rows with these keys meet. Puts their values into `bound`."""

    def value(of: object) -> FilterValue:
        name = f"v{len(bound)}"
        bound[name] = of
        return FilterValue("parameter", name)

    for name in keys.column_names:
        values = pc.unique(keys.column(name))
        if beyond_years(values) is not None:
            continue  # all rows are read, and compared later
        if len(values) <= _VALUES_MAX:
            yield ColumnFilter(name, "in", tuple(map(value, values.to_pylist())))
        else:
            bounds = pc.min_max(values).as_py()
            yield ColumnFilter(name, ">=", (value(bounds["min"]),))
            yield ColumnFilter(name, "<=", (value(bounds["max"]),))


def _with_keys(batches: Iterator[pa.RecordBatch], keys: pa.Table) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        own = pa.Table.from_batches([batch.select(keys.column_names)])
        wanted, stored = key_numbers([keys, own])
        matches = np.isin(stored, wanted)
        if matches.any():
            yield batch.filter(pa.array(matches))


# Reads the few rows of a read in this process, with bounds on rows and memory.
#
# Where the conditions fix keys, these are read first, and values of those rows only that are left.
# Memory is bounded by the rows that are asked for and by the batches of the reader.


def splits_of(read: DataRead) -> tuple[TaskSplit, ...]:
    """The splits of a read, also those of files that need no merge."""
    plain = (split for files in read.planned.raw for split in plain_splits(files))
    return (*plain, *read.planned.splits)


def rows_of_keys(read: DataRead) -> Iterator[pa.RecordBatch]:
    """The rows of a table with keys that meet the read's conditions on key columns, a batch at a
    time, however many they are. Rows may be among them that do not meet its other conditions."""
    files = replace(read.reader.files, leaves_out=True, in_threads=True)
    reader = replace(read.reader, files=files)
    for split in splits_of(read):
        yield from reader.rows(_keys_first(read, split))


def few_rows(
    read: DataRead, splits: Iterable[TaskSplit], limits: LocalLimits
) -> pa.RecordBatch | None:
    """The rows of `splits` as the read's view shows them; None if they are more than the limits
    allow. Rows that do not meet the read's conditions may be among them, and with `first_rows`
    there may be some more than wanted.

    Raises TableDamagedError for files that can't be read.
    """
    rows_max, bytes_max = limits.rows_max, limits.bytes_max
    batch_rows = min(read.reader.files.batch_rows, _BATCH_ROWS)
    if limits.first_rows is not None:
        batch_rows = min(batch_rows, max(limits.first_rows, 1))
    files = replace(read.reader.files, leaves_out=True, batch_rows=batch_rows, in_threads=True)
    small = replace(read, reader=replace(read.reader, files=files))
    batches: list[pa.RecordBatch] = []
    rows = size = 0
    for split in splits:
        for batch in small.named(_keys_first(read, split) if limits.by_key else split):
            rows += batch.num_rows
            size += batch.nbytes
            if rows > rows_max or size > bytes_max:
                return None
            batches.append(batch)
            if limits.first_rows is not None and rows >= limits.first_rows:
                return _joined(batches)
    return _joined(batches) if batches else pa.RecordBatch.from_pylist([], shown_schema(read))


def _keys_first(read: DataRead, split: TaskSplit) -> TaskSplit:
    """The split, as one that is read keys first: where a row wins as a whole, files of a state that
    need no merge are merged alone. Files of changes have several rows of a key, which all count."""
    rule = read.reader.rule
    wins = rule is not None and rule.engine.keeps_whole_rows
    wins = wins and isinstance(read.target, TableState) and not read.view.keeps_retracts
    wins = wins and not read.view.metadata
    if wins and isinstance(split, PlainSplit):
        return MergeSplit(tuple(((file,),) for file in split.files))
    return split


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches() or batches[:1]
    return batch
