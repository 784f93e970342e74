"""MERGE on append tables: the rows that it changes are found with their places, files that have
such rows are written anew or get deletion vectors, and new rows are added, all by one commit.

The tasks that change files count their rows, and find a row that is changed twice. One job changes
rows and adds new ones; where these need a shuffle of their own, there are two, and Spark keeps the
rows until the second: the source is computed once.
What happens when this process dies is said in `session/writes/transactions.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from paimon_magics.columnar.merging import KIND
from paimon_magics.coordinator.client.interface import Attempts
from paimon_magics.errors import InvalidValueError
from paimon_magics.planning.commits.requests import CommitReceipt, Transaction
from paimon_magics.planning.reads.predicates import ColumnPredicate
from paimon_magics.planning.reads.views import ROW_ID, row_id_columns
from paimon_magics.planning.row_changes.engine_rules import adds_changed_rows
from paimon_magics.planning.row_changes.merge_query import needed_columns
from paimon_magics.planning.row_changes.merges import Effect, Join, MergePlan, assigned_columns
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.planning.writes.distributions import IN_PLACE_FILE_BYTES_MIN
from paimon_magics.planning.writes.losses import ColumnLoss, added_losses
from paimon_magics.session.planned_work import made_of
from paimon_magics.session.provenance import Operation
from paimon_magics.session.scope import StatementScope
from paimon_magics.session.writes.append_changes import check_stays, written_files
from paimon_magics.session.writes.exactness import check_losses
from paimon_magics.session.writes.outcomes import WrittenFiles
from paimon_magics.session.writes.prepare import PreparedWrite
from paimon_magics.session.writes.row_selection import placed_frame
from paimon_magics.session.writes.transactions import ToCommit, begun, transact
from paimon_magics.session.writes.write_jobs import run_job
from paimon_magics.spark.losses import kept_losses
from paimon_magics.spark.merging import KIND_NUMBERS, MatchCounts, match_counts
from paimon_magics.spark.queries import cancellable
from paimon_magics.spark.row_places import AddedRows, change_and_add_files, change_files
from paimon_magics.spark.task_units import UnitResults
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.statements.queries.query_traits import used_names
from paimon_magics.statements.row_changes import MergeInto
from paimon_magics.tables.row_changes.looked_up_keys import LookedUpKeys
from paimon_magics.tables.row_changes.rewriting import ChangedFile, ColumnChanges, FileChanges
from paimon_magics.tables.row_changes.selected_rows import FILE_COLUMN, PLACE_COLUMN
from paimon_magics.tables.row_changes.table_changes import TableChange, plan_table_change
from paimon_magics.tables.snapshots.latest import read_snapshot
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.changed_rows import ChangedTwiceError
from paimon_magics.tables.writing.commit_messages import BucketKey, read_messages, write_message
from paimon_magics.tables.writing.table_write import CompletedWrite, completed, write_spec
from paimon_magics.tables.writing.write_spec import WriteSpec

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame

_TWICE = (
    "The ON search condition of the MERGE statement matched a single row from the target table "
    "with multiple rows of the source table, so that it would be updated or deleted more than once."
)
_BROADCAST_BYTES_MAX = 10 * 2**20  # Spark's own default for files
_BROADCAST_ROWS_MAX = 100_000
_HASHED_BYTES_MAX = 64 * 2**20


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
    in_one_job: bool = False
    many: bool = False
    source_bytes: float | None = None

    def joined(self, source: DataFrame, join: Join) -> tuple[DataFrame, DataFrame]:
        """The frame and the source with hints for their join.

        Spark does not know how many rows come from tasks: it would collect them on the driver,
        where a single thread makes a table of them. Tables of a small source's rows are made by
        the tasks, unless the join is about the source's rows alone."""
        if not self.many:
            return self.frame, source
        size = self.source_bytes
        if size is not None and size <= _HASHED_BYTES_MAX and join != "RIGHT ANTI":
            return self.frame, made_of(source.hint("shuffle_hash"), source)
        return made_of(self.frame.hint("merge"), self.frame), source


@dataclass(frozen=True)
class MergedRows:
    """What a MERGE did: the rows by what became of them, what was written for that, the buckets of
    inserted rows, and the values that were rounded or cut."""

    receipt: CommitReceipt
    counts: MatchCounts
    files: WrittenFiles
    buckets: frozenset[BucketKey]
    losses: tuple[ColumnLoss, ...] = ()


def merge_places(
    scope: StatementScope,
    merge: MergeInto,
    plan: MergePlan,
    table: Table,
    base: int,
    predicates: Sequence[ColumnPredicate],
    keys: LookedUpKeys | None = None,
) -> MergePlaces:
    """The rows of an append table's snapshot `base` (0 for none) that a MERGE may change, of files
    that can meet `predicates`, with the values of `keys`. Nothing runs. Raises
    UnsupportedStatementError for rows that have to stay where they are."""
    schema = table.schema
    files = None
    if base:
        manifests = scope.manifests(table)
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
    frame = placed_frame(scope, table, base, placed, columns, more, keys)
    in_one_job = schema.bucket_mode == "BUCKET_UNAWARE" and not schema.is_partitioned
    many = files is not None and _are_many(files, in_one_job=in_one_job)
    names = (*(one.name for one in more), FILE_COLUMN, PLACE_COLUMN)
    return MergePlaces(files, updated, needed, names, frame, in_one_job, many)


def _are_many(files: TableChange, *, in_one_job: bool) -> bool:
    """Whether the rows of the files are too many to be sent to all tasks. Kept rows are sorted in
    as many tasks as Spark has partitions of a shuffle, which takes longer than sending some."""
    if in_one_job:  # rows are counted twice where files share them (data evolution)
        return sum(file.rows for unit in files.units for file in unit.files) > _BROADCAST_ROWS_MAX
    return sum(unit.size_bytes for unit in files.units) > _BROADCAST_BYTES_MAX


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
    scope: StatementScope,
    merge: MergeInto,
    prepared: PreparedWrite,
    places: MergePlaces,
    effects: frozenset[Effect],
    attempts: Attempts,
) -> MergedRows:
    """Change and add the rows `prepared.frame`, in one transaction; `effects` are those of the
    clauses. Raises as `run_merge`."""
    table = prepared.table
    transaction = begun(scope, table.name, prepared.base_snapshot_id, attempts)

    def write() -> tuple[ToCommit, Callable[[CommitReceipt], MergedRows]]:
        try:
            with cancellable(scope.spark):
                changed, added = _written(scope, prepared, places, effects, transaction)
        except ChangedTwiceError:
            raise changed_twice() from None
        results = changed.results
        losses = added_losses((*changed.losses, *(() if added is None else added.losses)))
        check_losses(scope, table, losses)
        deleted = sum(result.deleted for result in results)
        updated = sum(result.changed for result in results) - deleted
        counts = MatchCounts(0 if added is None else added.rows, updated, deleted, matches_max=1)
        bodies, files = _bodies(table, places, results, added, transaction)
        read_set = prepared.read_set
        if places.plan is not None and read_set is not None:
            read_set = places.plan.read_set(results, read_set.search)
        found = ToCommit(
            bodies,
            counts.updated + counts.deleted + counts.inserted,
            files.files,
            Operation("MERGE", counts.inserted, counts.updated, counts.deleted),
            read_set=read_set,
            repeated_attempts=changed.repeated_attempts,
        )
        buckets = frozenset[BucketKey]() if added is None else added.buckets
        return found, lambda receipt: MergedRows(receipt, counts, files, buckets, losses)

    receipt, merged = transact(scope, transaction, merge.text, write)
    return merged(receipt)


_Done = tuple[UnitResults[ChangedFile], CompletedWrite | None]
"""The changed files, and the rows that were added."""


def _written(
    scope: StatementScope,
    prepared: PreparedWrite,
    places: MergePlaces,
    effects: frozenset[Effect],
    transaction: Transaction,
) -> _Done:
    """Change and add rows: by one job, or by two, for which Spark keeps the rows. Raises
    ChangedTwiceError."""
    rows = prepared.frame
    if places.plan is None or effects <= {"insert"}:
        repeated, added = _added(scope, prepared, transaction)
        return UnitResults((), repeated), added
    changes = _changes(scope, places, transaction)
    if "insert" not in effects:
        return _changed(scope, rows, places, changes), None
    if places.in_one_job:
        return _changed_and_added(scope, prepared, places, changes, transaction)
    kept = rows.persist()
    try:
        job = _changed(scope, kept, places, changes)
        repeated, added = _added(scope, replace(prepared, frame=kept), transaction)
    finally:
        kept.unpersist()
    return replace(job, repeated_attempts=job.repeated_attempts or repeated), added


def _changes(
    scope: StatementScope, places: MergePlaces, transaction: Transaction
) -> FileChanges | ColumnChanges:
    assert places.plan is not None
    return places.plan.changes(
        transaction, places.updated, slots=scope.slots, settings=scope.settings
    )


def _changed(
    scope: StatementScope,
    rows: DataFrame,
    places: MergePlaces,
    changes: FileChanges | ColumnChanges,
) -> UnitResults[ChangedFile]:
    """Change the files of updated and deleted rows."""
    assert places.plan is not None
    schema = places.plan.table.schema
    names = schema.column_names if adds_changed_rows(schema) else places.updated or ()
    taken = (*(names if places.updated is not None else ()), KIND, *places.more)
    selected = rows.where(f"{quoted(FILE_COLUMN)} IS NOT NULL")
    selected = selected.select(*(quoted(name) for name in taken), *kept_losses(rows))
    return change_files(scope.spark, selected, changes, scope.slots, changed_once=True)


def _added(
    scope: StatementScope, prepared: PreparedWrite, transaction: Transaction
) -> tuple[bool, CompletedWrite]:
    """Write the inserted rows; also whether a task may have run twice."""
    table = prepared.table
    rows = prepared.frame.where(f"{quoted(KIND)} = {KIND_NUMBERS['insert']}")
    rows = rows.select(*(quoted(name) for name in table.schema.column_names), *kept_losses(rows))
    new = replace(prepared, frame=rows)
    task = _write_spec(scope, table, transaction)
    job = run_job(scope, new, task)
    written = completed(table, task, job.written, transaction.base_snapshot_id)
    return job.repeated_attempts, written


def _changed_and_added(
    scope: StatementScope,
    prepared: PreparedWrite,
    places: MergePlaces,
    changes: FileChanges | ColumnChanges,
    transaction: Transaction,
) -> _Done:
    table, slots = prepared.table, scope.slots
    task = _write_spec(scope, table, transaction)
    # No more rows are added than the source has.
    size = places.source_bytes
    writers = (
        slots if size is None else min(slots, max(1, math.ceil(size / IN_PLACE_FILE_BYTES_MIN)))
    )
    added = AddedRows(task, table.schema.column_names, writers)
    job, written = change_and_add_files(scope.spark, prepared.frame, changes, added, slots)
    new = completed(table, task, written, transaction.base_snapshot_id)
    return job, new


def _write_spec(scope: StatementScope, table: Table, transaction: Transaction) -> WriteSpec:
    return write_spec(
        table, transaction, overwrite=False, slots=scope.slots, settings=scope.settings
    )


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
