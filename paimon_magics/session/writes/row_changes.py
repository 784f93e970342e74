"""DELETE and UPDATE: the rows that they select, and one commit that changes them.

The selected rows are those of one snapshot. The condition and the values are evaluated once for
each row, by Spark, in the job that writes. What happens when this process dies is as for an INSERT
(`session/writes/insert.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from paimon_magics.coordinator.client.attempts import Attempts
from paimon_magics.errors import OutdatedPlanError, PaimonMagicsError, UnsupportedStatementError
from paimon_magics.planning.commits.requests import Append, CommitReceipt
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.row_changes.assignments import assigned_paths
from paimon_magics.planning.row_changes.engine_rules import (
    ChangeMethod,
    method_of_delete,
    method_of_update,
)
from paimon_magics.planning.writes.inserts import FromInput
from paimon_magics.session.connection import Connection, located
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.planned_work import note_reads, reads_of
from paimon_magics.session.queries.frames import Selection, frame_of_query
from paimon_magics.session.writes.exactness import check_policy
from paimon_magics.session.writes.inline_compaction import compact_written
from paimon_magics.session.writes.insert import opened, run_job, transact, write_notes
from paimon_magics.session.writes.prepare import PreparedInsert
from paimon_magics.spark.casting import project
from paimon_magics.spark.failures import translate
from paimon_magics.spark.row_changes import with_assigned, with_kind
from paimon_magics.statements.row_changes import Delete, RowChange, Update
from paimon_magics.tables.snapshots.latest import latest_snapshot_id
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.table_write import CompletedWrite

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame

__all__ = ["PreparedChange", "kind_of", "prepare_row_change", "run_row_change", "selected_rows"]

_UPDATE_AFTER, _DELETE = 2, 3


@dataclass(frozen=True)
class PreparedChange:
    """A planned DELETE or UPDATE: how the rows are changed, and the rows that are written."""

    method: ChangeMethod
    insert: PreparedInsert


def kind_of(change: RowChange) -> str:
    """DELETE or UPDATE."""
    return "DELETE" if isinstance(change, Delete) else "UPDATE"


def run_row_change(
    connection: Connection, change: RowChange, parameters: Mapping[str, object]
) -> Outcome:
    """Run a DELETE or UPDATE as one transaction.

    Raises errors of ours: for a statement that does not fit the table, before anything is written;
    JobError or InvalidValueError if the job fails; CommitConflictError if the commit does.
    """
    prepared = prepare_row_change(connection, change, parameters)
    attempts = Attempts(connection.settings.conflict_reruns_max)
    while True:
        try:
            outcome = _run_once(connection, change, prepared, attempts)
        except OutdatedPlanError as error:
            attempts.next(error, may_run_again=True)
            connection.tables.renew()
            prepared = prepare_row_change(connection, change, parameters)
        else:
            outcome.notes = (*outcome.notes, *attempts.notes())
            return outcome


def prepare_row_change(
    connection: Connection, change: RowChange, parameters: Mapping[str, object]
) -> PreparedChange:
    """Plan a DELETE or UPDATE and check it against its table; nothing runs."""
    table = connection.load(change.target, change.text, change.target_position)
    # Taken before the rows are selected: a later commit then counts as newer than the plan.
    base_snapshot_id = latest_snapshot_id(table)
    try:
        if isinstance(change, Delete):
            method = method_of_delete(table.name, table.schema)
        else:
            method = method_of_update(table.name, table.schema)
        if method is not ChangeMethod.KINDS:
            raise UnsupportedStatementError(
                f"{kind_of(change)} on `{table.name}`, by {method.value}, is not offered yet.",
                hint="INSERT OVERWRITE writes the table anew.",
            )
    except PaimonMagicsError as error:
        raise located(error, change.text, change.target_position) from None
    rows = partial(_changed_rows, connection, change, parameters, table)
    frame = rows(base_snapshot_id)
    insert = PreparedInsert(
        table,
        frame,
        Append(),
        base_snapshot_id,
        column=lambda only: frame.select(only),
        again=lambda: _prepare_again(connection, change, parameters).insert,
        check=lambda: None,
        has_kinds=True,
    )
    return PreparedChange(method, insert)


def _prepare_again(
    connection: Connection, change: RowChange, parameters: Mapping[str, object]
) -> PreparedChange:
    connection.tables.renew()
    return prepare_row_change(connection, change, parameters)


def selected_rows(
    connection: Connection,
    change: RowChange,
    parameters: Mapping[str, object],
    table: Table,
    snapshot_id: int,
    frame: DataFrame | None = None,
) -> DataFrame:
    """The rows of a snapshot that a statement selects, with the values that it assigns. `frame`
    takes the place of the table's own."""
    chosen = change.selection
    selection = Selection(
        replace(table.name, system_table=None),
        snapshot_id,
        chosen.target_position,
        chosen.replacements,
        frame,
    )
    return frame_of_query(connection, change.text, chosen.query, parameters, selection=selection)


def _changed_rows(
    connection: Connection,
    change: RowChange,
    parameters: Mapping[str, object],
    table: Table,
    snapshot_id: int,
) -> DataFrame:
    """The rows to write, with their kinds, in the table's columns and types."""
    schema = table.schema
    paths = assigned_paths(change, schema) if isinstance(change, Update) else ()
    selected = selected_rows(connection, change, parameters, table, snapshot_id)
    try:
        assigned = with_assigned(selected, schema.columns, paths)
        if connection.settings.store_assignment != "ansi":
            check_policy(connection.spark, assigned, schema.columns)
        sources = [FromInput(position) for position in range(len(schema.columns))]
        rows = project(connection.spark, assigned, schema.columns, sources, {})
    except Exception as error:
        raise located(translate(error), change.text, change.target_position) from error
    rows = with_kind(rows, _DELETE if isinstance(change, Delete) else _UPDATE_AFTER)
    note_reads(rows, reads_of(selected))
    return rows


def _run_once(
    connection: Connection, change: RowChange, prepared: PreparedChange, attempts: Attempts
) -> Outcome:
    transaction, current = opened(connection, prepared.insert, attempts)
    write = partial(run_job, connection, current)
    receipt, written = transact(connection, current, transaction, write, change.text)
    outcome = _outcome(change, current.table, receipt, written)
    outcome.notes = write_notes(current.table, compacts=connection.settings.inline_compaction)
    if receipt.snapshot_id is not None:
        notes = compact_written(connection, current.table, written.buckets, change.text)
        outcome.notes = (*outcome.notes, *notes)
    return outcome


def _outcome(
    change: RowChange, table: Table, receipt: CommitReceipt, written: CompletedWrite
) -> Outcome:
    kind = kind_of(change)
    snapshot = (
        f"snapshot {receipt.snapshot_id}" if receipt.snapshot_id is not None else "no new snapshot"
    )
    done = "deleted" if isinstance(change, Delete) else "updated"
    outcome = Outcome(
        statement=change.text,
        kind=kind,
        table=str(table.name),
        snapshot_id=receipt.snapshot_id,
        commit_kind=receipt.commit_kind,
        rows_written=written.rows,
        files_written=written.files,
        bytes_written=written.size_bytes,
        message=f"{kind} `{table.name}`: {count_text(written.rows, 'row')} {done} ({snapshot}).",
    )
    if isinstance(change, Delete):
        outcome.rows_deleted = written.rows
    else:
        outcome.rows_updated = written.rows
    return outcome
