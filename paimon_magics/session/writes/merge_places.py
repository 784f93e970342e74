"""MERGE on append tables. The rows that it changes are found with their places. Files that have
such rows are rewritten or get deletion vectors, and new rows are added, all by one commit.

The tasks that change files count their rows, and find a row that is changed twice. One job changes
rows and adds new ones; where these need a shuffle of their own, there are two, and Spark keeps the
rows until the second: the source is computed once.
`session/writes/transactions.py` says what happens when this process dies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from paimon_magics.columnar.merging import KIND
from paimon_magics.coordinator.client.interface import Attempts
from paimon_magics.errors import InvalidValueError
from paimon_magics.planning.commits.requests import CommitReceipt, Transaction
from paimon_magics.planning.reads.predicates import ColumnPredicate
from paimon_magics.planning.reads.views import row_id_columns
from paimon_magics.planning.row_changes.engine_rules import ChangeMethod, adds_changed_rows
from paimon_magics.planning.row_changes.merge_query import needed_columns
from paimon_magics.planning.row_changes.merged_updates import MergedUpdate
from paimon_magics.planning.row_changes.merges import Effect, Join, MergePlan, assigned_columns
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.planning.writes.distributions import IN_PLACE_FILE_BYTES_MIN
from paimon_magics.planning.writes.losses import ColumnLoss, added_losses
from paimon_magics.session.parameters import bind
from paimon_magics.session.planned_work import made_of
from paimon_magics.session.provenance import Operation
from paimon_magics.session.queries.relations import Selection
from paimon_magics.session.scope import StatementScope
from paimon_magics.session.writes.append_changes import check_stays, with_row_id, written_files
from paimon_magics.session.writes.exactness import check_losses
from paimon_magics.session.writes.outcomes import WrittenFiles
from paimon_magics.session.writes.prepare import PreparedWrite
from paimon_magics.session.writes.row_selection import placed_frame
from paimon_magics.session.writes.transactions import ToCommit, append_spec, begun, transact
from paimon_magics.session.writes.write_jobs import persisted, run_job
from paimon_magics.spark.losses import kept_losses
from paimon_magics.spark.merging import KIND_NUMBERS, MatchCounts, match_counts
from paimon_magics.spark.queries import cancellable
from paimon_magics.spark.row_places import AddedRows, change_and_add_files, change_files
from paimon_magics.spark.task_units import UnitResults
from paimon_magics.statements.clauses.names import quoted
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
from paimon_magics.tables.writing.table_write import CompletedWrite, completed

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
class MergeOnTable:
    """A MERGE with what is known of its table: what its clauses do, how rows are changed, and the
    snapshot `chosen` that it changes, whose delta manifest list is `manifest_list`. `merged` says
    what the merge engine makes of updated rows, in a table with keys."""

    scope: StatementScope
    merge: MergeInto
    plan: MergePlan
    table: Table
    chosen: Selection
    parameters: Mapping[str, object]
    method: ChangeMethod
    manifest_list: str
    merged: MergedUpdate | None = None

    @cached_property
    def bound(self) -> dict[str, object]:
        """The values of the bind names from ON to the end."""
        merge = self.merge
        return bind(merge.within.parameters, self.parameters, merge.text, self.scope.zone)

    @property
    def has_places(self) -> bool:
        """Whether rows of the target are changed by their places in files."""
        return not self.table.schema.is_primary_key_table and not self.plan.only_inserts


@dataclass(frozen=True)
class MergePlaces:
    """The target's rows with their places, as `frame`: the table's columns at the positions
    `needed`, and the columns `more` of places and row ids. `plan` is None for a table without
    snapshots. `updated` are the columns that get new values; None if no row is updated."""

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
    """The effects of a MERGE: its rows by kind of change, what was written for them, the buckets of
    inserted rows, and the values that were rounded or cut."""

    counts: MatchCounts
    files: WrittenFiles
    buckets: frozenset[BucketKey]
    losses: tuple[ColumnLoss, ...] = ()


def merge_places(
    on: MergeOnTable, predicates: Sequence[ColumnPredicate], keys: LookedUpKeys | None = None
) -> MergePlaces:
    """The rows of an append table's snapshot that a MERGE may change, of files that can meet
    `predicates`, with the values of `keys`. Nothing runs. Raises UnsupportedStatementError for rows
    that can't move."""
    scope, merge, plan, table, base = on.scope, on.merge, on.plan, on.table, on.chosen.snapshot_id
    schema = table.schema
    files = None
    if base:
        manifests = scope.manifests(table)
        files = plan_table_change(table, read_snapshot(table.paimon, base), predicates, manifests)
    updated = assigned_columns(merge, plan, schema)
    adds = adds_changed_rows(schema)
    more = row_id_columns(schema, used_names(merge.text, merge.within))
    if updated is not None:
        check_stays(table, updated)
        if schema.row_tracking_enabled and adds:
            more = with_row_id(more)
    written = schema.column_names if adds else tuple(updated or ())
    needed = needed_columns(merge, plan, schema.column_names, written)
    columns = [schema.columns[at] for at in needed]
    placed = None if files is None else files.placed_files()
    frame = placed_frame(scope, table, base, placed, columns, more, keys)
    in_one_job = schema.bucket_mode == "BUCKET_UNAWARE" and not schema.is_partitioned
    many = files is not None and _are_many(files, in_one_job=in_one_job)
    names = (*(column.name for column in more), FILE_COLUMN, PLACE_COLUMN)
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
        hint="Nothing was written. Make the source have one row for each target row, or add "
        "a condition to WHEN MATCHED that only one of them meets.",
    )


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
    transaction = begun(scope, table.name, prepared.base_snapshot_id, attempts)
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
