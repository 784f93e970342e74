"""MERGE and DELETE of append tables as their tasks and driver do them, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from paimon_magics.planning.commits.read_sets import RowSearch
from paimon_magics.planning.commits.requests import Append, CommitRequest, Transaction
from paimon_magics.settings import Settings
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.row_changes.selected_rows import FILE_COLUMN, PLACE_COLUMN
from paimon_magics.tables.row_changes.table_changes import plan_table_change
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.snapshots.latest import read_snapshot
from paimon_magics.tables.writing.commit_messages import read_messages, write_message
from tests.coordinator.process import write


def merged(
    catalog: Catalog,
    transaction: Transaction,
    place: tuple[int, int],
    row: Mapping[str, object],
    added: Sequence[Mapping[str, object]],
) -> CommitRequest:
    """The row at a place, of a file by its number and in it, becomes `row`, and others are added.
    Files are written; nothing is committed."""
    table = catalog.load(transaction.table)
    snapshot = read_snapshot(table.paimon, transaction.base_snapshot_id)
    plan = plan_table_change(table, snapshot, (), ManifestCache(table.paimon))
    schema = arrow_schema(table.schema)
    changes = plan.changes(transaction, schema.names, slots=1, settings=Settings())
    batch = pa.RecordBatch.from_pylist([dict(row)], schema=schema)
    for name, number in ((PLACE_COLUMN, place[1]), (FILE_COLUMN, place[0])):
        batch = batch.append_column(name, pa.array([number], pa.int64()))
    results = list(changes([batch], lambda rows, size_bytes: None))
    new = list(read_messages(table.paimon, write(catalog, transaction, added)))
    messages = plan.messages(results, transaction, schema.names, new)
    bodies = tuple(write_message(table.paimon, message) for message in messages)
    read_set = plan.read_set(results, RowSearch(adds_missing=True))
    return CommitRequest(transaction, Append(), bodies, read_set=read_set)


def deleted(catalog: Catalog, transaction: Transaction, place: tuple[int, int]) -> CommitRequest:
    """The row at a place, of a file by its number and in it, goes. Files are written; nothing is
    committed."""
    table = catalog.load(transaction.table)
    snapshot = read_snapshot(table.paimon, transaction.base_snapshot_id)
    plan = plan_table_change(table, snapshot, (), ManifestCache(table.paimon))
    changes = plan.changes(transaction, None, slots=1, settings=Settings())
    places = {PLACE_COLUMN: [place[1]], FILE_COLUMN: [place[0]]}
    batch = pa.RecordBatch.from_pydict(
        {name: pa.array(numbers, pa.int64()) for name, numbers in places.items()}
    )
    results = list(changes([batch], lambda rows, size_bytes: None))
    messages = plan.messages(results, transaction, None)
    bodies = tuple(write_message(table.paimon, message) for message in messages)
    return CommitRequest(transaction, Append(), bodies, read_set=plan.read_set(results))
