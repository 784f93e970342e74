"""The rows that a DELETE or UPDATE selects, as a frame, and the values that they get."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, Self

from paimon_magics.errors import UnknownNameError
from paimon_magics.planning.commits.requests import CommitReceipt
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.reads.predicates import (
    ColumnPredicate,
    column_predicates,
    remainder_predicates,
)
from paimon_magics.planning.reads.scans import ReadPlan, pack_splits, plain_splits, stored_bytes
from paimon_magics.planning.reads.splits import PlainSplit, RawFiles
from paimon_magics.planning.reads.views import DELETE, UPDATE_AFTER
from paimon_magics.planning.row_changes.assignments import AssignedPath, assigned_paths
from paimon_magics.planning.row_changes.change_rules import check_moves
from paimon_magics.planning.row_changes.merged_updates import (
    ALL_SEEN,
    MergedUpdate,
    UnseenCounts,
    merged_update,
    unseen_notes,
)
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.planning.writes.inserts import FromInput
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.parameters import bind
from paimon_magics.session.planned_work import made_of
from paimon_magics.session.provenance import Operation
from paimon_magics.session.queries.frames import frame_of_query
from paimon_magics.session.queries.planned_reads import (
    local_limits,
    plan_of,
    planned_read,
)
from paimon_magics.session.queries.relations import Relation, Selection, relation_of
from paimon_magics.session.queries.snapshot_leases import SnapshotLeases
from paimon_magics.session.scope import StatementScope, errors_located, errors_translated
from paimon_magics.session.writes.exactness import check_policy
from paimon_magics.session.writes.outcomes import WrittenFiles, write_outcome
from paimon_magics.spark.casting import project
from paimon_magics.spark.losses import lossy_columns
from paimon_magics.spark.reading import read_frame
from paimon_magics.spark.updated_rows import (
    before_columns,
    kind_text,
    with_assigned,
    with_merged_kinds,
)
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.statements.queries.query_traits import used_names
from paimon_magics.statements.statement import ColumnFilter, Delete, RowChange, Update
from paimon_magics.tables.reading.data_read import DataRead
from paimon_magics.tables.snapshots.latest import latest_state
from paimon_magics.tables.table import Table

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame


_SLOTS_PER_BUCKET_MAX = 4
"""A bucket is read by one task, so that the task may write it, too: with more slots than this for
each, Spark's scan, which divides files, is faster."""
_TASK_BYTES = 256 << 20
_MICROSECONDS = 6  # digits


def kind_of(change: RowChange) -> str:
    """DELETE or UPDATE."""
    return "DELETE" if isinstance(change, Delete) else "UPDATE"


@dataclass(frozen=True)
class ChangeOnTable:
    """A DELETE or UPDATE of the rows of a snapshot of its table; 0 is a table without snapshots.

    `manifest_list` names the delta manifest list of the snapshot. `merged` says what the merge
    engine makes of updated rows, in a table with keys.
    """

    scope: StatementScope
    change: RowChange
    parameters: Mapping[str, object]
    table: Table
    snapshot_id: int
    manifest_list: str = ""
    merged: MergedUpdate | None = None

    @classmethod
    def of_now(
        cls, scope: StatementScope, change: RowChange, parameters: Mapping[str, object]
    ) -> Self:
        """The statement on its table as it is now."""
        table = scope.load(change.target, change.text, change.target_position)
        # Taken before the rows are selected: a later commit then counts as newer than the plan.
        snapshot_id, manifest_list = latest_state(table)
        return cls(scope, change, parameters, table, snapshot_id, manifest_list)

    def renewed(self) -> Self:
        """The same statement on its table as it is now, loaded again."""
        self.scope.tables.renew()
        return self.of_now(self.scope, self.change, self.parameters)

    def with_merged_update(self) -> Self:
        """The same with what the merge engine makes of the rows; nothing for a DELETE.

        Raises the errors of wrong assignments, and UnsupportedStatementError for those that the
        engine does not carry out.
        """
        if not isinstance(self.change, Update):
            return self
        name, schema = self.table.name, self.table.schema
        nulls = {path.column.name for path in self.paths if _is_null(self.change, path)}
        with errors_located(*self.place):
            check_moves(name, schema, self.assigned)
            return replace(self, merged=merged_update(name, schema, self.assigned, nulls))

    @property
    def place(self) -> tuple[str, int]:
        """The statement's text, and the position of the table's name in it."""
        return self.change.text, self.change.target_position

    @property
    def row_kind(self) -> int:
        """Paimon's number for the kind of the rows that are written."""
        return DELETE if isinstance(self.change, Delete) else UPDATE_AFTER

    @cached_property
    def paths(self) -> tuple[AssignedPath, ...]:
        """What the statement assigns; a DELETE assigns nothing. Raises as `assigned_paths`."""
        change = self.change
        return assigned_paths(change, self.table.schema) if isinstance(change, Update) else ()

    @property
    def assigned(self) -> frozenset[str]:
        """The columns that get new values."""
        return frozenset(path.column.name for path in self.paths)

    @cached_property
    def bound(self) -> dict[str, object]:
        """The values of the bind names."""
        change = self.change
        names = change.selection.query.parameters
        return bind(names, self.parameters, change.text, self.scope.zone)

    @property
    def filters(self) -> tuple[ColumnFilter, ...]:
        """Conditions on columns in the statement's text that all selected rows meet."""
        selection = self.change.selection
        return tuple(
            condition
            for reference in selection.query.references
            if reference.range.start == selection.target_position
            for condition in reference.filters
        )

    @cached_property
    def predicates(self) -> tuple[ColumnPredicate, ...]:
        """The same conditions with their values."""
        return tuple(column_predicates(self.filters, self.table.schema.columns, self.bound))

    @property
    def names(self) -> frozenset[str] | None:
        """All names in the statement's query, in lower case; None for any."""
        return used_names(self.change.text, self.change.selection.query)

    def selected(self, frame: DataFrame | None = None) -> DataFrame:
        """The selected rows, with the values that are assigned. `frame` takes the place of the
        table's own rows."""
        chosen = self.change.selection
        selection = Selection(
            replace(self.table.name, system_table=None),
            self.snapshot_id,
            chosen.target_position,
            chosen.replacements,
            frame,
        )
        text, query = self.change.text, chosen.query
        return frame_of_query(self.scope, text, query, self.parameters, selection=selection)

    def selected_of(
        self, read: Callable[[Sequence[Column]], DataFrame], needed: Collection[str]
    ) -> DataFrame:
        """The selected rows among those that `read` gives, with the columns that the statement
        names and those that are `needed`."""
        names, columns = self.names, self.table.schema.columns
        used = [
            column
            for column in columns
            if names is None or column.name.lower() in names or column.name in needed
        ]
        try:
            return self.selected(read(used))
        except UnknownNameError:  # with all columns Spark can suggest the one that was meant
            return self.selected(read(columns))

    def new_values(
        self,
        selected: DataFrame,
        columns: Sequence[Column],
        kind: int | None = None,
        paths: Sequence[AssignedPath] | None = None,
    ) -> DataFrame:
        """`columns` of the selected rows, with the values that are assigned, or those of `paths`
        alone. They are cast to the columns' types as those of an INSERT. Then follows the rows'
        `kind`, Paimon's number, if there is one.

        What is not assigned stays as it is: a NULL from before its column got a default, too."""
        scope, merged = self.scope, self.merged
        paths = self.paths if paths is None else paths
        changed = {path.column.name for path in paths}
        columns = [
            column if column.name in changed else replace(column, default=None)
            for column in columns
        ]
        before = {} if merged is None else before_columns(merged)
        with errors_translated(*self.place):
            carried = [f"{quoted(name)} AS {quoted(to)}" for name, to in before.items()]
            assigned = with_assigned(selected, columns, paths, carried)
            if scope.settings.store_assignment != "ansi":
                check_policy(scope.spark, assigned, [*columns, *[None] * len(before)])
            sources = [FromInput(position) for position in range(len(columns))]
            stored = [column if column.name in changed else None for column in columns]
            losses = lossy_columns(assigned, [*stored, *[None] * len(before)])
            kinds = [] if kind is None else [kind_text(kind)]
            more: list[Any] = [*map(quoted, before.values()), *kinds, *losses]
            rows = project(scope.spark, assigned, columns, sources, {}, more=more)
            if merged is not None and not merged.is_plain:
                rows = with_merged_kinds(rows, columns, merged, before)
            return made_of(rows, selected)


def _is_null(update: Update, path: AssignedPath) -> bool:
    """Whether a column gets NULL in all rows, as far as the statement's text says."""
    value = update.assignments[path.number].value
    if path.fields or path.column.default is not None:
        return False
    return value is None or update.text[value.start : value.end].strip().upper() == "NULL"


def operation_of(change: RowChange, rows: int) -> Operation:
    """What a snapshot records of a DELETE or UPDATE that changed `rows`."""
    if isinstance(change, Delete):
        return Operation("DELETE", deleted=rows)
    return Operation("UPDATE", updated=rows)


def changed_outcome(
    change: RowChange,
    table: Table,
    receipt: CommitReceipt | None,
    rows: int,
    written: WrittenFiles,
    unseen: UnseenCounts = ALL_SEEN,
) -> Outcome:
    """The outcome of a DELETE or UPDATE that changed `rows`. Without a receipt it committed
    nothing. The `unseen` rows of an UPDATE did not change, or in part."""
    deletes = isinstance(change, Delete)
    done = f"{count_text(rows, 'row')} {'deleted' if deletes else 'updated'}"
    outcome = write_outcome(change.text, kind_of(change), table, receipt, written, done)
    if deletes:
        outcome.rows_deleted = rows
    else:
        outcome.rows_updated, outcome.rows_unchanged = rows, unseen.unwritten
        outcome.notes = unseen_notes(table.schema, unseen)
    return outcome


# The rows that a DELETE or UPDATE of a table with keys may select, read by tasks that leave the
# others out.
#
# Where a condition compares a column with values, a task decodes files in Arrow and hands on the
# rows that meet it; Spark evaluates the whole condition again. That takes half of the time of a raw
# scan, and no more than it where many rows are left. Other conditions are Spark's alone: all rows
# would go to it from Python.


def chosen_rows(on: ChangeOnTable) -> DataFrame | None:
    """All columns of the rows of a snapshot that the condition may select, each bucket from one
    task. None if a raw scan is the better reader, or rows have to be merged first.

    Raises what `planned_read` raises.
    """
    scope, table, query = on.scope, on.table, on.change.selection.query
    if len(query.references) != 1 or not on.snapshot_id or not _has_plain_columns(table.schema):
        return None
    (reference,) = query.references
    columns = table.schema.columns
    predicates = (
        *column_predicates(reference.filters, columns, on.bound),
        *remainder_predicates(reference.other_conditions, reference.alias, columns),
    )
    if all(predicate.operator == "is not null" for predicate in predicates):
        return None
    name = replace(table.name, system_table=None)
    relation = relation_of(scope, reference, on.change.text, on.bound, known=name)
    assert isinstance(relation, Relation)  # it is known to be a table
    with SnapshotLeases(scope.committer) as leases:
        # The same read that is made of the statement's query where None is returned: it is kept.
        read = planned_read(scope, replace(relation, snapshot_id=on.snapshot_id), leases).read
        plan = _plan(scope, read)
        if plan is None:
            return None
        leases.planned.append(read.planned)
        leases.plan = plan
        reader = _leaving_out(read, predicates).reader
        return leases.noted(read_frame(scope.spark, plan, columns, reader))


def _has_plain_columns(schema: TableSchema) -> bool:
    """Whether all columns come from Python to Spark without a detour. Nanoseconds in Arrow end in
    the year 2262."""
    return all(
        isinstance(column.type, AtomicType)
        and column.type.name not in ("VARIANT", "BLOB")
        and not (
            column.type.name.startswith("TIMESTAMP") and column.type.parameters[0] > _MICROSECONDS
        )
        for column in schema.columns
    )


def _plan(scope: StatementScope, read: DataRead) -> ReadPlan | None:
    """The tasks that read the files. None if Spark can't scan all of them, if they are too few, or
    if Arrow does not read their format faster."""
    usual = plan_of(scope, read, local_limits(scope, read))
    formats = {scan.format for scan in usual.raw_scans}
    if formats != {"parquet"} or usual.tasks or read.stores != {"file"}:
        return None
    buckets = _by_bucket(read.planned.raw)
    if scope.slots > len(buckets) * _SLOTS_PER_BUCKET_MAX:
        return None
    tasks = max(scope.slots, stored_bytes(read.planned.raw, ()) // _TASK_BYTES)
    return ReadPlan((), pack_splits(buckets, tasks))


def _by_bucket(raw: Sequence[RawFiles]) -> list[PlainSplit]:
    """The files of each bucket, which has a folder of its own."""
    splits = (split for part in raw for split in plain_splits(part))
    files = [file for split in splits for file in split.files]
    files.sort(key=lambda file: file.path)
    grouped = groupby(files, key=lambda file: file.path.rpartition("/")[0])
    return [PlainSplit(tuple(bucket)) for _, bucket in grouped]


def _leaving_out(read: DataRead, predicates: Sequence[ColumnPredicate]) -> DataRead:
    """The read without rows that do not meet the predicates."""
    by_name = {field.name: field for field in read.fields}
    conditions = tuple((by_name[predicate.column], predicate) for predicate in predicates)
    files = replace(read.reader.files, conditions=conditions, leaves_out=True)
    return replace(read, reader=replace(read.reader, files=files))
