"""DELETE and UPDATE: one commit that changes the rows that they select.

The selected rows are those of one snapshot. The condition and the values are evaluated once for
each row, by Spark, in the job that writes; those of few keys in this process (`rows_by_key`). What
happens when this process dies is as for an INSERT (`session/writes/insert.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from paimon_magics.coordinator.client.attempts import Attempts
from paimon_magics.errors import OutdatedPlanError, PaimonMagicsError
from paimon_magics.planning.commits.read_sets import read_keys
from paimon_magics.planning.row_changes.assignments import assigned_paths
from paimon_magics.planning.row_changes.engine_rules import (
    ChangeMethod,
    check_moves,
    method_of_delete,
    method_of_update,
)
from paimon_magics.session.connection import Connection, located
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.planned_work import made_of
from paimon_magics.session.writes.append_changes import (
    PreparedAppendChange,
    prepare_append_change,
    run_append_change,
)
from paimon_magics.session.writes.inline_compaction import compact_written
from paimon_magics.session.writes.insert import opened, run_job, transact, write_notes
from paimon_magics.session.writes.keyed_rows import check_seen, keyed_rows, with_key_buckets
from paimon_magics.session.writes.prepare import PreparedInsert
from paimon_magics.session.writes.row_selection import (
    Changed,
    changed_outcome,
    new_values,
    predicates_of,
    selected_rows,
)
from paimon_magics.session.writes.rows_by_key import PreparedKeys, commit_by_key, prepare_by_key
from paimon_magics.spark.row_changes import with_kind
from paimon_magics.statements.queries.determinism import random_part
from paimon_magics.statements.row_changes import Delete, RowChange, Update
from paimon_magics.tables.snapshots.latest import latest_snapshot_id
from paimon_magics.tables.table import Table

__all__ = ["PreparedChange", "prepare_row_change", "run_row_change"]

_UPDATE_AFTER, _DELETE = 2, 3

PreparedChange = PreparedInsert | PreparedAppendChange | PreparedKeys
"""A planned DELETE or UPDATE: rows of a kind that are written, or places in files."""


def run_row_change(
    connection: Connection, change: RowChange, parameters: Mapping[str, object]
) -> Outcome:
    """Run a DELETE or UPDATE as one transaction; plan and run it again if others have changed what
    it read, where it then gives the same rows.

    Raises errors of ours: for a statement that does not fit the table, before anything is written;
    JobError or InvalidValueError if the job fails; CommitConflictError if the commit does.
    """
    prepared = prepare_row_change(connection, change, parameters)
    attempts = Attempts(connection.settings.row_level_retries)
    while True:
        try:
            if isinstance(prepared, PreparedInsert | PreparedKeys):
                outcome = _run_keyed(connection, change, prepared, attempts)
            else:
                outcome = run_append_change(connection, change, prepared, attempts)
        except OutdatedPlanError as error:
            attempts.next(error, may_run_again=random_part(change.text) is None)
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
    except PaimonMagicsError as error:
        raise located(error, change.text, change.target_position) from None
    if method is ChangeMethod.KINDS:
        few = prepare_by_key(connection, change, parameters, table, base_snapshot_id)
        return few or _prepare_keyed(connection, change, parameters, table, base_snapshot_id)
    return prepare_append_change(connection, change, parameters, table, base_snapshot_id)


def _prepare_keyed(
    connection: Connection,
    change: RowChange,
    parameters: Mapping[str, object],
    table: Table,
    base_snapshot_id: int,
) -> PreparedInsert:
    """The rows to write, with their kinds, in the table's columns and types."""
    columns = table.schema.columns
    deletes = isinstance(change, Delete)
    paths = assigned_paths(change, table.schema) if isinstance(change, Update) else ()
    if paths:
        try:
            check_moves(table.name, table.schema, {path.column.name for path in paths})
        except PaimonMagicsError as error:
            raise located(error, change.text, change.target_position) from None
    predicates = predicates_of(connection, change, parameters, table)
    check_seen(
        connection, table, base_snapshot_id, predicates, (change.text, change.target_position)
    )
    selected = selected_rows(connection, change, parameters, table, base_snapshot_id)
    rows = new_values(connection, change, selected, columns, paths)
    frame = made_of(with_kind(rows, _DELETE if deletes else _UPDATE_AFTER), rows)
    moves = table.schema.bucket_mode == "KEY_DYNAMIC"
    if moves and deletes:
        frame = with_key_buckets(connection, table, frame, base_snapshot_id, predicates)

    def again() -> PreparedInsert:
        connection.tables.renew()
        newer = connection.load(change.target, change.text, change.target_position)
        newer_id = latest_snapshot_id(newer)
        return _prepare_keyed(connection, change, parameters, newer, newer_id)

    return keyed_rows(
        table,
        frame,
        base_snapshot_id,
        again=again,
        read_set=read_keys(base_snapshot_id),
        has_buckets=moves and deletes,
    )


def _run_keyed(
    connection: Connection,
    change: RowChange,
    prepared: PreparedInsert | PreparedKeys,
    attempts: Attempts,
) -> Outcome:
    table = prepared.table
    if isinstance(prepared, PreparedKeys):
        done = commit_by_key(connection, change, prepared, attempts)
        if done is None:
            return changed_outcome(change, table, None, None, Changed(0, 0, 0, 0))
        receipt, written = done
    else:
        transaction, current = opened(connection, prepared, attempts)
        table = current.table
        write = partial(run_job, connection, current)
        receipt, written = transact(connection, current, transaction, write, change.text)
    changed = Changed(written.rows, written.rows, written.files, written.size_bytes)
    outcome = changed_outcome(change, table, receipt.snapshot_id, receipt.commit_kind, changed)
    outcome.notes = write_notes(table, compacts=connection.settings.inline_compaction)
    if receipt.snapshot_id is not None:
        notes = compact_written(connection, table, written.buckets, change.text)
        outcome.notes = (*outcome.notes, *notes)
    return outcome
