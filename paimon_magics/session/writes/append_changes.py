"""DELETE and UPDATE of append tables: files with selected rows are written anew, or deletion
vectors mark the rows and new ones are added. DELETE of primary-key tables whose merge engine takes
no deletes is done so, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paimon_magics.coordinator.client.interface import Attempts
from paimon_magics.errors import UnknownNameError, UnsupportedStatementError
from paimon_magics.planning.commits.requests import Transaction
from paimon_magics.planning.reads.views import ROW_ID, row_id_columns
from paimon_magics.planning.row_changes.assignments import assigned_paths
from paimon_magics.planning.row_changes.engine_rules import adds_changed_rows, chooses_row_by_row
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.planning.writes.losses import ColumnLoss
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.scope import StatementScope, located
from paimon_magics.session.writes.exactness import check_losses
from paimon_magics.session.writes.keyed_rows import check_seen
from paimon_magics.session.writes.outcomes import NOTHING_WRITTEN, WrittenFiles, with_losses
from paimon_magics.session.writes.row_selection import (
    changed_outcome,
    new_values,
    operation_of,
    placed_frame,
    predicates_of,
    selected_rows,
)
from paimon_magics.session.writes.transactions import ToCommit, begun, transact
from paimon_magics.spark.queries import cancellable
from paimon_magics.spark.row_places import change_files
from paimon_magics.spark.task_units import UnitResults
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.statements.queries.query_traits import used_names
from paimon_magics.statements.row_changes import RowChange, Update
from paimon_magics.tables.row_changes.rewriting import ChangedFile
from paimon_magics.tables.row_changes.selected_rows import FILE_COLUMN, PLACE_COLUMN
from paimon_magics.tables.row_changes.table_changes import TableChange, plan_table_change
from paimon_magics.tables.snapshots.latest import read_snapshot
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.commit_messages import write_message

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame

_PLACES = (
    Column(0, FILE_COLUMN, AtomicType("INT")),
    Column(0, PLACE_COLUMN, AtomicType("BIGINT")),
)
_ROW_ID = Column(0, ROW_ID, AtomicType("BIGINT"))


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


def prepare_append_change(
    scope: StatementScope,
    change: RowChange,
    parameters: Mapping[str, object],
    table: Table,
    base_snapshot_id: int,
) -> PreparedAppendChange:
    """Plan the change on a snapshot; nothing runs."""
    plan = _plan(scope, change, parameters, table, base_snapshot_id)
    schema = table.schema
    paths = assigned_paths(change, schema) if isinstance(change, Update) else ()
    assigned = None
    if isinstance(change, Update):
        assigned = frozenset(path.column.name for path in paths)
    written: tuple[Column, ...] = ()
    more: tuple[Column, ...] = ()
    if assigned is not None:
        adds = adds_changed_rows(schema)
        written = tuple(column for column in schema.columns if adds or column.name in assigned)
        check_stays(table, assigned)
        if schema.row_tracking_enabled and adds:
            more = (_ROW_ID,)
    names = used_names(change.text, change.selection.query)
    ids = row_id_columns(schema, names)
    ids = (*ids, *(one for one in more if one.name not in [known.name for known in ids]))

    def selected(every: bool) -> DataFrame:
        needed = {one.name for one in written}
        columns = [
            column
            for column in schema.columns
            if every or names is None or column.name in needed or column.name.lower() in names
        ]
        files = None if plan is None else plan.placed_files()
        frame = placed_frame(scope, table, base_snapshot_id, files, columns, ids)
        return selected_rows(scope, change, parameters, table, base_snapshot_id, frame)

    try:
        rows = selected(False)
    except UnknownNameError:
        rows = selected(True)  # then Spark's error can suggest the column that was meant
    values = new_values(scope, change, rows, [*_PLACES, *more, *written], paths)
    return PreparedAppendChange(
        table, base_snapshot_id, plan, values, assigned, chooses_row_by_row(change)
    )


def _plan(
    scope: StatementScope,
    change: RowChange,
    parameters: Mapping[str, object],
    table: Table,
    base_snapshot_id: int,
) -> TableChange | None:
    if not base_snapshot_id:
        return None
    predicates = predicates_of(scope, change, parameters, table)
    check_seen(scope, table, base_snapshot_id, predicates, (change.text, change.target_position))
    try:
        return plan_table_change(
            table,
            read_snapshot(table.paimon, base_snapshot_id),
            predicates,
            scope.manifests(table),
        )
    except UnsupportedStatementError as error:
        raise located(error, change.text, change.target_position) from None


def check_stays(table: Table, assigned: frozenset[str]) -> None:
    """Raise UnsupportedStatementError if rows of a data-evolution table could go to another
    partition: they have their ids by their places (`PaimonUpdateTable`)."""
    schema = table.schema
    moved = [key for key in schema.partition_keys if key in assigned]
    if schema.data_evolution_enabled and moved:
        raise UnsupportedStatementError(
            f"`{moved[0]}` is a partition column of `{table.name}`, which has "
            "'data-evolution.enabled' = 'true': rows stay in the files that they are in.",
            hint="DELETE the rows and INSERT them anew: they get new ids then. A MERGE names the "
            "columns in UPDATE SET instead of `*`.",
        )


def run_append_change(
    scope: StatementScope, change: RowChange, prepared: PreparedAppendChange, attempts: Attempts
) -> Outcome:
    """Change the rows, in one transaction."""
    table, plan = prepared.table, prepared.plan
    if plan is None or not plan.units:
        return changed_outcome(change, table, None, 0, NOTHING_WRITTEN)
    transaction = begun(scope, table.name, prepared.base_snapshot_id, attempts)

    def write() -> tuple[ToCommit, tuple[int, WrittenFiles, tuple[ColumnLoss, ...]]]:
        job = _run_job(scope, prepared, plan, transaction)
        check_losses(scope, table, job.losses)
        messages = plan.messages(job.results, transaction, prepared.assigned)
        rows = sum(result.changed for result in job.results)
        files = written_files(messages, *plan.file_counts(job.results))
        found = ToCommit(
            tuple(write_message(table.paimon, message) for message in messages),
            rows,
            files.files,
            operation_of(change, rows),
            read_set=plan.read_set(job.results),
            repeated_attempts=job.repeated_attempts,
        )
        return found, (rows, files, job.losses)

    receipt, (rows, files, losses) = transact(scope, transaction, change.text, write)
    outcome = changed_outcome(change, table, receipt, rows, files)
    return with_losses(outcome, table, losses)


def written_files(
    messages: Sequence[Any], rewritten: int | None, vectors: int | None
) -> WrittenFiles:
    """What the tasks of a change wrote, by its messages, pypaimon's."""
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
