"""DELETE and UPDATE of append tables: files with selected rows are rewritten, or deletion vectors
mark the rows and new ones are added. DELETE also works this way on primary-key tables whose merge
engine accepts no deletes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paimon_magics.coordinator.client.interface import Attempts
from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.commits.requests import Transaction
from paimon_magics.planning.reads.views import ROW_ID, row_id_columns
from paimon_magics.planning.row_changes.engine_rules import adds_changed_rows, chooses_row_by_row
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.planning.writes.losses import ColumnLoss
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.scope import StatementScope, errors_located
from paimon_magics.session.writes.exactness import check_losses
from paimon_magics.session.writes.keyed_rows import check_seen
from paimon_magics.session.writes.outcomes import NOTHING_WRITTEN, WrittenFiles, with_losses
from paimon_magics.session.writes.row_selection import (
    ChangeOnTable,
    changed_outcome,
    operation_of,
    placed_frame,
)
from paimon_magics.session.writes.transactions import ToCommit, begun, transact
from paimon_magics.spark.queries import cancellable
from paimon_magics.spark.row_places import change_files
from paimon_magics.spark.task_units import UnitResults
from paimon_magics.statements.data_types import AtomicType
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


def prepare_append_change(on: ChangeOnTable) -> PreparedAppendChange:
    """Plan the change on a snapshot; nothing runs."""
    plan, table, schema = _plan(on), on.table, on.table.schema
    assigned = on.assigned if isinstance(on.change, Update) else None
    written: tuple[Column, ...] = ()
    keeps_ids = False
    if assigned is not None:
        adds = adds_changed_rows(schema)
        written = tuple(column for column in schema.columns if adds or column.name in assigned)
        check_stays(table, assigned)
        keeps_ids = schema.row_tracking_enabled and adds
    ids = row_id_columns(schema, on.names)
    ids = with_row_id(ids) if keeps_ids else ids

    def read(columns: Sequence[Column]) -> DataFrame:
        files = None if plan is None else plan.placed_files()
        return placed_frame(on.scope, table, on.snapshot_id, files, columns, ids)

    rows = on.selected_of(read, {column.name for column in written})
    more = (_ROW_ID,) if keeps_ids else ()
    values = on.new_values(rows, [*_PLACES, *more, *written])
    row_by_row = chooses_row_by_row(on.change)
    return PreparedAppendChange(table, on.snapshot_id, plan, values, assigned, row_by_row)


def with_row_id(ids: Sequence[Column]) -> tuple[Column, ...]:
    """The columns of ids, with the row's own among them."""
    has_own = any(column.name == ROW_ID for column in ids)
    return (*ids,) if has_own else (*ids, _ROW_ID)


def _plan(on: ChangeOnTable) -> TableChange | None:
    if not on.snapshot_id:
        return None
    scope, table = on.scope, on.table
    check_seen(scope, table, on.snapshot_id, on.predicates, on.place)
    snapshot = read_snapshot(table.paimon, on.snapshot_id)
    with errors_located(*on.place):
        return plan_table_change(table, snapshot, on.predicates, scope.manifests(table))


def check_stays(table: Table, assigned: frozenset[str]) -> None:
    """Raise UnsupportedStatementError if rows of a data-evolution table could go to another
    partition: row ids follow from the places of rows (`PaimonUpdateTable`)."""
    schema = table.schema
    moved = [key for key in schema.partition_keys if key in assigned]
    if schema.data_evolution_enabled and moved:
        raise UnsupportedStatementError(
            f"`{moved[0]}` is a partition column of `{table.name}`, which has "
            "'data-evolution.enabled' = 'true': rows stay in the files that they are in.",
            hint="DELETE the rows and INSERT them again, which gives them new ids. In a MERGE, "
            "name the columns in UPDATE SET instead of `*`.",
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
