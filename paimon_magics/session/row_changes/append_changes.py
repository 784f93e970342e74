"""DELETE, UPDATE and MERGE of append tables: files with changed rows are rewritten, or deletion
vectors mark the rows and new ones are added. DELETE also works this way on primary-key tables whose
merge engine accepts no deletes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from paimon_magics.columnar.merging import KIND
from paimon_magics.coordinator.client.interface import Attempts
from paimon_magics.planning.commits.requests import CommitReceipt, Transaction
from paimon_magics.planning.reads.views import row_id_columns
from paimon_magics.planning.row_changes.change_rules import (
    adds_changed_rows,
    check_stays,
    chooses_row_by_row,
)
from paimon_magics.planning.row_changes.merges import Effect
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.planning.writes.distributions import IN_PLACE_FILE_BYTES_MIN
from paimon_magics.planning.writes.losses import ColumnLoss, added_losses
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.provenance import Operation
from paimon_magics.session.row_changes.merge_join import MergePlaces, changed_twice
from paimon_magics.session.row_changes.selection import ChangeOnTable, changed_outcome, operation_of
from paimon_magics.session.row_changes.written_rows import (
    ROW_ID_COLUMN,
    check_seen,
    placed_frame,
    with_row_id,
)
from paimon_magics.session.scope import StatementScope, errors_located
from paimon_magics.session.writes.exactness import check_losses
from paimon_magics.session.writes.outcomes import NOTHING_WRITTEN, WrittenFiles, with_losses
from paimon_magics.session.writes.prepare import PreparedWrite
from paimon_magics.session.writes.transactions import ToCommit, append_spec, begun, transact
from paimon_magics.session.writes.write_jobs import persisted, run_job
from paimon_magics.spark.losses import kept_losses
from paimon_magics.spark.merge_rows import KIND_NUMBERS, MatchCounts
from paimon_magics.spark.queries import cancellable
from paimon_magics.spark.row_places import AddedRows, change_and_add_files, change_files
from paimon_magics.spark.task_units import UnitResults
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.statements.statement import MergeInto, RowChange, Update
from paimon_magics.tables.row_changes.rewriting import ChangedFile, ColumnChanges, FileChanges
from paimon_magics.tables.row_changes.selected_rows import FILE_COLUMN, PLACE_COLUMN
from paimon_magics.tables.row_changes.table_changes import TableChange, plan_table_change
from paimon_magics.tables.snapshots.latest import read_snapshot
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.commit_messages import BucketKey, read_messages, write_message
from paimon_magics.tables.writing.row_counters import ChangedTwiceError
from paimon_magics.tables.writing.table_write import CompletedWrite, completed

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame

_PLACES = (
    Column(0, FILE_COLUMN, AtomicType("INT")),
    Column(0, PLACE_COLUMN, AtomicType("BIGINT")),
)


@dataclass(frozen=True)
class PreparedAppendChange:
    """A planned change of an append table: the places of the selected rows, with their new values.
    `plan` is None for a table without snapshots. `assigned` is None for a DELETE. Where each row
    was chosen by itself (`engine_rules`), the rows are in the tasks that read their files."""

    table: Table
    base_snapshot_id: int
    plan: TableChange | None
    selected: DataFrame
    assigned: frozenset[str] | None
    row_by_row: bool
    base_manifest_list: str


def prepare_append_change(on: ChangeOnTable) -> PreparedAppendChange:
    """Plan the change on a snapshot; nothing runs."""
    plan, table, schema = _plan(on), on.table, on.table.schema
    assigned = on.assigned if isinstance(on.change, Update) else None
    written: tuple[Column, ...] = ()
    keeps_ids = False
    if assigned is not None:
        adds = adds_changed_rows(schema)
        written = tuple(column for column in schema.columns if adds or column.name in assigned)
        check_stays(table.schema, table.name, assigned)
        keeps_ids = schema.row_tracking_enabled and adds
    ids = row_id_columns(schema, on.names)
    ids = with_row_id(ids) if keeps_ids else ids

    def read(columns: Sequence[Column]) -> DataFrame:
        files = None if plan is None else plan.placed_files()
        return placed_frame(on.scope, table, on.snapshot_id, files, columns, ids)

    rows = on.selected_of(read, {column.name for column in written})
    more = (ROW_ID_COLUMN,) if keeps_ids else ()
    values = on.new_values(rows, [*_PLACES, *more, *written])
    row_by_row = chooses_row_by_row(on.change)
    return PreparedAppendChange(
        table, on.snapshot_id, plan, values, assigned, row_by_row, on.manifest_list
    )


def _plan(on: ChangeOnTable) -> TableChange | None:
    if not on.snapshot_id:
        return None
    scope, table = on.scope, on.table
    check_seen(scope, table, on.snapshot_id, on.predicates, on.place)
    snapshot = read_snapshot(table.paimon, on.snapshot_id)
    with errors_located(*on.place):
        return plan_table_change(table, snapshot, on.predicates, scope.manifests(table))


def run_append_change(
    scope: StatementScope, change: RowChange, prepared: PreparedAppendChange, attempts: Attempts
) -> Outcome:
    """Change the rows, in one transaction."""
    table, plan = prepared.table, prepared.plan
    if plan is None or not plan.units:
        return changed_outcome(change, table, None, 0, NOTHING_WRITTEN)
    base = prepared.base_snapshot_id, prepared.base_manifest_list
    transaction = begun(scope, table.name, base, attempts)

    def write() -> tuple[ToCommit, tuple[int, WrittenFiles, tuple[ColumnLoss, ...]]]:
        job = _run_job(scope, prepared, plan, transaction)
        check_losses(scope, table, job.losses)
        messages = plan.messages(job.results, transaction, prepared.assigned)
        rows = sum(result.changed for result in job.results)
        files = written_files(messages, *plan.file_counts(job.results))
        to_commit = ToCommit(
            tuple(write_message(table.paimon, message) for message in messages),
            rows,
            files.files,
            operation_of(change, rows),
            read_set=plan.read_set(job.results),
            repeated_attempts=job.repeated_attempts,
        )
        return to_commit, (rows, files, job.losses)

    receipt, (rows, files, losses) = transact(scope, transaction, change.text, write)
    outcome = changed_outcome(change, table, receipt, rows, files)
    return with_losses(outcome, table, losses)


def written_files(
    messages: Sequence[Any], rewritten: int | None, vectors: int | None
) -> WrittenFiles:
    """The output of the tasks of a change, by pypaimon's messages."""
    new = [file for message in messages for file in message.new_files]
    return WrittenFiles(
        sum(file.row_count for file in new),
        len(new),
        sum(int(file.file_size) for file in new),
        rewritten,
        vectors,
    )


def _run_job(
    scope: StatementScope,
    prepared: PreparedAppendChange,
    plan: TableChange,
    transaction: Transaction,
) -> UnitResults[ChangedFile]:
    changes = plan.changes(
        transaction, prepared.assigned, slots=scope.slots, settings=scope.settings
    )
    with cancellable(scope.spark):
        return change_files(
            scope.spark,
            prepared.selected,
            changes,
            scope.slots,
            in_place=prepared.row_by_row,
        )


# A MERGE into an append table: files are changed as for an UPDATE, and new rows are added.


@dataclass(frozen=True)
class MergedRows:
    """The effects of a MERGE: its rows by kind of change, what was written for them, the buckets of
    inserted rows, and the values that were rounded or cut."""

    counts: MatchCounts
    files: WrittenFiles
    buckets: frozenset[BucketKey]
    losses: tuple[ColumnLoss, ...] = ()


def run_place_merge(
    scope: StatementScope,
    merge: MergeInto,
    prepared: PreparedWrite,
    places: MergePlaces,
    effects: frozenset[Effect],
    attempts: Attempts,
) -> tuple[CommitReceipt, MergedRows]:
    """Change and add the rows `prepared.frame`, in one transaction; `effects` are those of the
    clauses. Raises as `run_merge`."""
    table = prepared.table
    transaction = begun(scope, table.name, prepared.base, attempts)
    job = _PlaceMerge(scope, prepared, places, transaction)
    return transact(scope, transaction, merge.text, partial(job.run, effects))


@dataclass(frozen=True)
class _PlaceMerge:
    """The jobs of a MERGE that change and add rows, in one transaction."""

    scope: StatementScope
    prepared: PreparedWrite
    places: MergePlaces
    transaction: Transaction

    def run(self, effects: frozenset[Effect]) -> tuple[ToCommit, MergedRows]:
        """Change and add rows; return what to commit, and what was done."""
        try:
            with cancellable(self.scope.spark):
                changed, added = self._written(effects)
        except ChangedTwiceError:
            raise changed_twice() from None
        results = changed.results
        losses = added_losses((*changed.losses, *(() if added is None else added.losses)))
        check_losses(self.scope, self.prepared.table, losses)
        deleted = sum(result.deleted for result in results)
        updated = sum(result.changed for result in results) - deleted
        counts = MatchCounts(0 if added is None else added.rows, updated, deleted, matches_max=1)
        bodies, files = self._bodies(results, added)
        read_set, plan = self.prepared.read_set, self.places.plan
        if plan is not None and read_set is not None:
            read_set = plan.read_set(results, read_set.search)
        to_commit = ToCommit(
            bodies,
            counts.updated + counts.deleted + counts.inserted,
            files.files,
            Operation("MERGE", counts.inserted, counts.updated, counts.deleted),
            read_set=read_set,
            repeated_attempts=changed.repeated_attempts,
        )
        buckets = frozenset[BucketKey]() if added is None else added.buckets
        return to_commit, MergedRows(counts, files, buckets, losses)

    def _written(self, effects: frozenset[Effect]) -> _Done:
        """Change and add rows: by one job, or by two, for which Spark keeps the rows. Raises
        ChangedTwiceError."""
        rows, plan = self.prepared.frame, self.places.plan
        if plan is None or effects <= {"insert"}:
            repeated, added = self._added(rows)
            return UnitResults((), repeated), added
        slots, settings = self.scope.slots, self.scope.settings
        changes = plan.changes(
            self.transaction, self.places.updated, slots=slots, settings=settings
        )
        schema = plan.table.schema
        if "insert" not in effects:
            return self._changed(rows, schema, changes), None
        if self.places.in_one_job:
            return self._changed_and_added(changes)
        with persisted(rows) as stored:
            job = self._changed(stored, schema, changes)
            repeated, added = self._added(stored)
        return replace(job, repeated_attempts=job.repeated_attempts or repeated), added

    def _changed(
        self, rows: DataFrame, schema: TableSchema, changes: FileChanges | ColumnChanges
    ) -> UnitResults[ChangedFile]:
        """Change the files of updated and deleted rows."""
        places = self.places
        names = schema.column_names if adds_changed_rows(schema) else places.updated or ()
        taken = (*(names if places.updated is not None else ()), KIND, *places.more)
        selected = rows.where(f"{quoted(FILE_COLUMN)} IS NOT NULL")
        selected = selected.select(*(quoted(name) for name in taken), *kept_losses(rows))
        slots = self.scope.slots
        return change_files(self.scope.spark, selected, changes, slots, changed_once=True)

    def _added(self, rows: DataFrame) -> tuple[bool, CompletedWrite]:
        """Write the inserted rows; also whether a task may have run twice."""
        scope, table, transaction = self.scope, self.prepared.table, self.transaction
        names = map(quoted, table.schema.column_names)
        new = rows.where(f"{quoted(KIND)} = {KIND_NUMBERS['insert']}")
        new = new.select(*names, *kept_losses(new))
        task = append_spec(scope, table, transaction)
        job = run_job(scope, replace(self.prepared, frame=new), task)
        written = completed(table, task, job.written, transaction.base_snapshot_id)
        return job.repeated_attempts, written

    def _changed_and_added(self, changes: FileChanges | ColumnChanges) -> _Done:
        scope, table, transaction = self.scope, self.prepared.table, self.transaction
        writers = scope.slots
        size = self.places.source_bytes
        if size is not None:  # no more rows are added than the source has
            writers = min(writers, max(1, math.ceil(size / IN_PLACE_FILE_BYTES_MIN)))
        task = append_spec(scope, table, transaction)
        added = AddedRows(task, table.schema.column_names, writers)
        rows = self.prepared.frame
        job, written = change_and_add_files(scope.spark, rows, changes, added, scope.slots)
        return job, completed(table, task, written, transaction.base_snapshot_id)

    def _bodies(
        self, results: Sequence[ChangedFile], added: CompletedWrite | None
    ) -> tuple[tuple[bytes, ...], WrittenFiles]:
        """The messages of the commit, and what was written."""
        paimon, plan = self.prepared.table.paimon, self.places.plan
        bodies = () if added is None else added.messages
        messages = list(read_messages(paimon, bodies))
        counts: tuple[int | None, int | None] = (0, None)
        if plan is not None:
            counts = plan.file_counts(results)
        if plan is not None and results:
            messages = plan.messages(results, self.transaction, self.places.updated, messages)
            bodies = tuple(write_message(paimon, message) for message in messages)
        return bodies, written_files(messages, *counts)


_Done = tuple[UnitResults[ChangedFile], CompletedWrite | None]
"""The changed files, and the rows that were added."""
