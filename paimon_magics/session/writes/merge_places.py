"""MERGE on append tables: the rows that it changes are found with their places, files that have
such rows are written anew or get deletion vectors, and new rows are added, all by one commit.

The changed rows are kept by Spark while they are counted and written: the source is computed once.
What happens when this process dies is said in `session/writes/transactions.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from paimon_magics.columnar.merging import KIND
from paimon_magics.coordinator.client.attempts import Attempts
from paimon_magics.errors import InvalidValueError
from paimon_magics.planning.commits.requests import CommitReceipt, Transaction
from paimon_magics.planning.reads.predicates import ColumnPredicate
from paimon_magics.planning.reads.views import ROW_ID, row_id_columns
from paimon_magics.planning.row_changes.engine_rules import adds_changed_rows
from paimon_magics.planning.row_changes.merge_query import needed_columns
from paimon_magics.planning.row_changes.merges import MergePlan, assigned_columns
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.session.connection import Connection
from paimon_magics.session.planned_work import made_of
from paimon_magics.session.writes.append_changes import check_stays, written_files
from paimon_magics.session.writes.insert import run_job
from paimon_magics.session.writes.outcomes import WrittenFiles
from paimon_magics.session.writes.placed_frames import placed_frame
from paimon_magics.session.writes.prepare import PreparedInsert
from paimon_magics.session.writes.transactions import ToCommit, begun, transact
from paimon_magics.spark.merging import KIND_NUMBERS, MatchCounts, match_counts
from paimon_magics.spark.queries import cancellable
from paimon_magics.spark.row_places import change_files
from paimon_magics.spark.writing import JobWritten
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.statements.merge_into import MergeInto
from paimon_magics.statements.queries.used_columns import used_names
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.row_changes.rewriting import ChangedFile
from paimon_magics.tables.row_changes.selected_rows import FILE_COLUMN, PLACE_COLUMN
from paimon_magics.tables.row_changes.table_changes import TableChange, plan_table_change
from paimon_magics.tables.snapshots.latest import read_snapshot
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.commit_messages import read_messages, write_message
from paimon_magics.tables.writing.table_write import CompletedWrite, completed, write_spec
from paimon_magics.tables.writing.written_buckets import BucketKey

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame

__all__ = [
    "MergePlaces",
    "MergedRows",
    "changed_twice",
    "counted_rows",
    "merge_places",
    "run_place_merge",
]

_TWICE = (
    "The ON search condition of the MERGE statement matched a single row from the target table "
    "with multiple rows of the source table, so that it would be updated or deleted more than once."
)
_BROADCAST_MAX_BYTES = 10 * 2**20  # Spark's own default for files


@dataclass(frozen=True)
class MergePlaces:
    """The target's rows with their places, as `frame`: the table's columns at the positions
    `needed`, and the columns `more` of places and row ids. `plan` is None for a table without
    snapshots. `updated` are the columns that get new values, None where no row is updated."""

    plan: TableChange | None
    updated: frozenset[str] | None
    needed: tuple[int, ...]
    more: tuple[str, ...]
    frame: DataFrame


@dataclass(frozen=True)
class MergedRows:
    """What a MERGE did: the rows by what became of them, what was written for that, and the buckets
    of inserted rows."""

    receipt: CommitReceipt
    counts: MatchCounts
    files: WrittenFiles
    buckets: frozenset[BucketKey]


def merge_places(
    connection: Connection,
    merge: MergeInto,
    plan: MergePlan,
    table: Table,
    base: int,
    predicates: Sequence[ColumnPredicate],
) -> MergePlaces:
    """The rows of an append table's snapshot `base` (0 for none) that a MERGE may change, of files
    that can meet `predicates`. Nothing runs. Raises UnsupportedStatementError for rows that have to
    stay where they are."""
    schema = table.schema
    files = None
    if base:
        manifests = connection.manifests(table.location, lambda: ManifestCache(table.paimon))
        files = plan_table_change(table, read_snapshot(table.paimon, base), predicates, manifests)
    updated = assigned_columns(merge, plan, schema)
    adds = adds_changed_rows(schema)
    more: tuple[Column, ...] = ()
    if updated is not None:
        check_stays(table, updated)
        if schema.row_tracking_enabled and adds:
            more = (Column(0, ROW_ID, AtomicType("BIGINT")),)
    written = schema.column_names if adds else tuple(updated or ())
    ids = row_id_columns(schema, used_names(merge.text, merge.within))
    more = (*ids, *(one for one in more if one.name not in [known.name for known in ids]))
    needed = needed_columns(merge, plan, schema.column_names, written)
    columns = [schema.columns[at] for at in needed]
    placed = None if files is None else files.placed_files()
    frame = placed_frame(connection, table, base, placed, columns, more)
    if files is not None and sum(one.size_bytes for one in files.units) > _BROADCAST_MAX_BYTES:
        # Spark does not know how large rows of tasks are; it would collect them on the driver.
        frame = made_of(frame.hint("merge"), frame)
    names = (*(one.name for one in more), FILE_COLUMN, PLACE_COLUMN)
    return MergePlaces(files, updated, needed, names, frame)


def counted_rows(changed: DataFrame, identity: Sequence[str]) -> MatchCounts:
    """Count the changed rows. `identity` are the columns that identify a row of the target. Raises
    InvalidValueError for a row that several source rows would change."""
    counts = match_counts(changed, identity)
    if counts.matches_max > 1:
        raise changed_twice()
    return counts


def changed_twice() -> InvalidValueError:
    """The error for a row that several source rows would change."""
    return InvalidValueError(
        _TWICE,
        hint="Nothing was written. Let the source have one row for each target row, or add "
        "a condition to WHEN MATCHED that only one of them meets.",
    )


def run_place_merge(
    connection: Connection,
    merge: MergeInto,
    prepared: PreparedInsert,
    places: MergePlaces,
    attempts: Attempts,
) -> MergedRows:
    """Change and add the rows `prepared.frame`, in one transaction. Raises as `run_merge`."""
    table = prepared.table
    transaction = begun(connection, table.name, prepared.base_snapshot_id, attempts)

    def write() -> tuple[ToCommit, tuple[MatchCounts, WrittenFiles, frozenset[BucketKey]]]:
        kept = prepared.frame.persist()
        try:
            with cancellable(connection.spark):
                counts = counted_rows(kept, (FILE_COLUMN, PLACE_COLUMN))
                results, repeated = _changed(connection, kept, places, counts, transaction)
                added, job = _added(connection, replace(prepared, frame=kept), counts, transaction)
        finally:
            kept.unpersist()
        bodies, files = _bodies(table, places, results, added, transaction)
        read_set = prepared.read_set
        if places.plan is not None and read_set is not None:
            read_set = places.plan.read_set(results, read_set.found)
        found = ToCommit(
            bodies,
            counts.updated + counts.deleted + counts.inserted,
            files.files,
            read_set=read_set,
            repeated_attempts=repeated or (job is not None and job.repeated_attempts),
        )
        return found, (counts, files, frozenset() if added is None else added.buckets)

    receipt, (counts, files, buckets) = transact(connection, transaction, merge.text, write)
    return MergedRows(receipt, counts, files, buckets)


def _changed(
    connection: Connection,
    rows: DataFrame,
    places: MergePlaces,
    counts: MatchCounts,
    transaction: Transaction,
) -> tuple[tuple[ChangedFile, ...], bool]:
    """Change the files of updated and deleted rows; also whether a task may have run twice."""
    if places.plan is None or not counts.updated + counts.deleted:
        return (), False
    changes = places.plan.changes(
        transaction, places.updated, slots=connection.slots, settings=connection.settings
    )
    schema = places.plan.table.schema
    names = schema.column_names if adds_changed_rows(schema) else places.updated or ()
    taken = (*(names if places.updated is not None else ()), KIND, *places.more)
    selected = rows.where(f"{quoted(FILE_COLUMN)} IS NOT NULL")
    selected = selected.select(*(quoted(name) for name in taken))
    job = change_files(connection.spark, selected, changes, connection.slots)
    return job.results, job.repeated_attempts


def _added(
    connection: Connection,
    prepared: PreparedInsert,
    counts: MatchCounts,
    transaction: Transaction,
) -> tuple[CompletedWrite | None, JobWritten | None]:
    """Write the inserted rows, if there are any."""
    if not counts.inserted:
        return None, None
    table = prepared.table
    rows = prepared.frame.where(f"{quoted(KIND)} = {KIND_NUMBERS['insert']}")
    rows = rows.select(*(quoted(name) for name in table.schema.column_names))
    new = replace(prepared, frame=rows, column=partial(_column, rows))
    task = write_spec(
        table, transaction, overwrite=False, slots=connection.slots, settings=connection.settings
    )
    job = run_job(connection, new, task)
    return completed(table, task, job.written, transaction.base_snapshot_id), job


def _column(rows: DataFrame, only: str) -> DataFrame:
    return rows.select(quoted(only))


def _bodies(
    table: Table,
    places: MergePlaces,
    results: Sequence[ChangedFile],
    added: CompletedWrite | None,
    transaction: Transaction,
) -> tuple[tuple[bytes, ...], WrittenFiles]:
    """The messages of the commit, and what was written."""
    bodies = () if added is None else added.messages
    messages = list(read_messages(table.paimon, bodies))
    counts: tuple[int | None, int | None] = (0, None)
    if places.plan is not None:
        counts = places.plan.file_counts(results)
    if places.plan is not None and results:
        messages = places.plan.messages(results, transaction, places.updated, messages)
        bodies = tuple(write_message(table.paimon, message) for message in messages)
    return bodies, written_files(messages, *counts)
