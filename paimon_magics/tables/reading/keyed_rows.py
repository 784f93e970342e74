"""Reads the rows of a snapshot that have given keys, in a process that has no catalog."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.key_numbers import key_numbers
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.statement import ColumnFilter, FilterValue, TableName
from paimon_magics.tables.pypaimon_internals import catalog_options
from paimon_magics.tables.reading.data_read import ReadRequest, plan_data_read
from paimon_magics.tables.reading.few_rows import found_rows
from paimon_magics.tables.schema.arrow_casting import conform
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.snapshots.latest import read_snapshot
from paimon_magics.tables.snapshots.targets import TableState
from paimon_magics.tables.stores.allowed_paths import own_folder_only
from paimon_magics.tables.stores.store import Stores, open_store
from paimon_magics.tables.table import Table

__all__ = ["KeyedRead", "keyed_read"]

_VALUES_MAX = 1000
"""Values of a column that files are pruned by; by their bounds where there are more."""


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
        batches = (conform(batch, schema) for batch in found_rows(read))
        return pa.Table.from_batches(_with_keys(batches, keys), schema)


def keyed_read(table: Table, snapshot_id: int) -> KeyedRead:
    """The read of a snapshot of `table`."""
    options = catalog_options(table.paimon)
    return KeyedRead(
        table.name,
        table.schema,
        table.location,
        pickle.dumps(table.paimon),
        tuple(sorted((str(key), str(value)) for key, value in options.items())),
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
        if len(values) <= _VALUES_MAX:
            yield ColumnFilter(name, "in", tuple(map(value, values.to_pylist())))
        else:
            bounds = pc.min_max(values).as_py()
            yield ColumnFilter(name, ">=", (value(bounds["min"]),))
            yield ColumnFilter(name, "<=", (value(bounds["max"]),))


def _with_keys(batches: Iterator[pa.RecordBatch], keys: pa.Table) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        own = pa.Table.from_batches([batch.select(keys.column_names)])
        wanted, found = key_numbers([keys, own])
        kept = np.isin(found, wanted)
        if kept.any():
            yield batch.filter(pa.array(kept))
