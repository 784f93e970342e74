"""DELETE and UPDATE: one commit that changes the rows that they select.

The selected rows are those of one snapshot. The condition and the values are evaluated once for
each row, by Spark, in the job that writes; those of few keys in this process (`point_changes`).
`session/writes/transactions.py` says what happens when this process dies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from paimon_magics.columnar.value_bounds import can_have
from paimon_magics.coordinator.client.interface import Attempts
from paimon_magics.errors import PaimonMagicsError
from paimon_magics.planning.commits.read_sets import read_keys
from paimon_magics.planning.reads.predicates import ColumnPredicate
from paimon_magics.planning.reads.scans import have_own_buckets
from paimon_magics.planning.row_changes.change_rules import (
    ChangeMethod,
    check_no_file_calls,
    may_select_partitions,
    method_of_delete,
    method_of_update,
)
from paimon_magics.planning.row_changes.logged_changes import LoggedChange, logged_change
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.parameters import bind
from paimon_magics.session.planned_work import made_of, reads_of
from paimon_magics.session.row_changes.append_changes import (
    PreparedAppendChange,
    prepare_append_change,
    run_append_change,
)
from paimon_magics.session.row_changes.point_changes import (
    PreparedKeys,
    commit_by_key,
    prepare_by_key,
)
from paimon_magics.session.row_changes.selection import (
    ChangeOnTable,
    changed_outcome,
    chosen_rows,
    kind_of,
    operation_of,
)
from paimon_magics.session.row_changes.written_rows import check_seen, keyed_rows, with_key_buckets
from paimon_magics.session.scope import StatementScope, errors_located, errors_translated
from paimon_magics.session.writes.exactness import is_strict
from paimon_magics.session.writes.outcomes import NOTHING_WRITTEN, finished, of_write, with_losses
from paimon_magics.session.writes.partitions import (
    PartitionSpec,
    remove_partitions,
)
from paimon_magics.session.writes.prepare import PreparedWrite
from paimon_magics.session.writes.small_inserts import inserts_of, send_to_log
from paimon_magics.session.writes.transactions import run_again
from paimon_magics.session.writes.write_jobs import persisted, run_job, run_write
from paimon_magics.spark.fetching import fetched
from paimon_magics.spark.queries import cancellable
from paimon_magics.spark.rows import frame_of_rows
from paimon_magics.spark.sizes import scan_sizes
from paimon_magics.spark.types import with_char_columns
from paimon_magics.spark.updated_rows import unseen_counts
from paimon_magics.spark.writing import JobWritten
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.queries.query_traits import random_part
from paimon_magics.statements.statement import Delete, RowChange, Update
from paimon_magics.tables.commits.replaced_partitions import partition_texts
from paimon_magics.tables.compaction.scopes import StoredPartitions, stored_partitions
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.snapshots.latest import latest_snapshot_id
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.table_write import flushes_itself
from paimon_magics.tables.writing.write_spec import WriteSpec

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame


_PARTITION_NUMBER = "__paimon_magics_number"

PreparedChange = PreparedWrite | PreparedAppendChange | PreparedKeys
"""A planned DELETE or UPDATE: rows of a kind that are written, or places in files."""


def run_row_change(
    scope: StatementScope, change: RowChange, parameters: Mapping[str, object]
) -> Outcome:
    """Run a DELETE or UPDATE as one transaction. Plan and run it again if others have changed what
    it read, and if a rerun gives the same rows.

    Raises errors of ours: for a statement that does not fit the table, before anything is written;
    JobError or InvalidValueError if the job fails; CommitConflictError if the commit does.
    """

    def again(outdated: PreparedChange) -> PreparedChange:
        scope.tables.renew()
        return prepare_row_change(scope, change, parameters)

    return run_again(
        prepare_row_change(scope, change, parameters),
        partial(_run_once, scope, change),
        again,
        reruns_max=scope.settings.row_level_retries,
        may_run_again=lambda outdated: random_part(change.text) is None,
    )


def prepare_row_change(
    scope: StatementScope, change: RowChange, parameters: Mapping[str, object]
) -> PreparedChange:
    """Plan a DELETE or UPDATE and check it against its table; nothing runs."""
    check_no_file_calls(change.text, change.target_position, kind_of(change))
    on = ChangeOnTable.of_now(scope, change, parameters)
    table = on.table
    method_of = method_of_delete if isinstance(change, Delete) else method_of_update
    with errors_located(*on.place):
        method = method_of(table.name, table.schema)
    if method is not ChangeMethod.KINDS:
        return prepare_append_change(on)
    on = on.with_merged_update()
    return prepare_by_key(on) or _prepare_keyed(on)


def _prepare_keyed(on: ChangeOnTable) -> PreparedWrite:
    """The rows to write, with their kinds, in the table's columns and types."""
    scope, table, base = on.scope, on.table, on.snapshot_id
    check_seen(scope, table, base, on.predicates, on.place)
    chosen = chosen_rows(on)
    selected = on.selected(chosen)
    if chosen is not None:
        selected = made_of(selected, selected, chosen)
    frame = on.new_values(selected, table.schema.columns, on.row_kind)
    gives_buckets = table.schema.bucket_mode == "KEY_DYNAMIC" and isinstance(on.change, Delete)
    if gives_buckets:
        frame = with_key_buckets(scope, table, frame, base, on.predicates)
    prepared = keyed_rows(
        table,
        frame,
        base,
        again=lambda: _prepare_keyed(on.renewed().with_merged_update()),
        read_set=read_keys(base, manifest_list=on.manifest_list),
        has_buckets=gives_buckets,
        own_buckets=_own_buckets(scope, table, selected if chosen is None else chosen),
    )
    return replace(prepared, marks_unseen=on.merged is not None and not on.merged.is_plain)


def _own_buckets(scope: StatementScope, table: Table, selected: DataFrame) -> bool:
    """Whether no two tasks read selected rows of one bucket, and may write its files."""
    plan = reads_of(selected).plan
    if plan is None or not flushes_itself(table.schema):
        return False
    sizes = scan_sizes(scope.spark, scope.slots)
    return sizes is not None and have_own_buckets(plan, sizes)


def _run_once(
    scope: StatementScope, change: RowChange, prepared: PreparedChange, attempts: Attempts
) -> Outcome:
    if isinstance(prepared, PreparedAppendChange):
        return run_append_change(scope, change, prepared, attempts)
    table = prepared.table
    counted: list[int] = []
    if isinstance(prepared, PreparedKeys):
        done = commit_by_key(scope, change, prepared, attempts)
        if done is None:
            return changed_outcome(change, table, None, 0, NOTHING_WRITTEN)
        receipt, written = done
    else:
        write = partial(run_job, scope)
        if prepared.has_buckets:
            write = partial(_counted_write, scope, counted)
        elif not prepared.has_kinds:
            write = partial(_marked_write, scope)
        current, receipt, written = run_write(
            scope,
            prepared,
            attempts,
            change.text,
            write,
            lambda written: operation_of(change, counted[-1] if counted else written.rows),
        )
        table = current.table
    rows = counted[-1] if counted else written.rows
    outcome = changed_outcome(change, table, receipt, rows, of_write(written), written.unseen)
    outcome = with_losses(outcome, table, written.losses)
    return finished(scope, outcome, table, written.buckets, files_each=written.files_each)


def _marked_write(scope: StatementScope, prepared: PreparedWrite, task: WriteSpec) -> JobWritten:
    """Count the rows that are not seen before the others are written, without their kinds."""
    if not prepared.marks_unseen:
        return run_job(scope, prepared, task)
    with persisted(prepared.frame) as rows:
        with cancellable(scope.spark):
            unseen = unseen_counts(rows)
        job = run_job(scope, replace(prepared, frame=rows), task)
    return replace(job, written=replace(job.written, unseen=unseen))


def _counted_write(
    scope: StatementScope, counted: list[int], prepared: PreparedWrite, task: WriteSpec
) -> JobWritten:
    """Count the rows before they are written: one comes once for each bucket that it was in."""
    keys = [quoted(key) for key in prepared.table.schema.primary_keys]
    with persisted(prepared.frame) as rows:
        with cancellable(scope.spark):
            counted.append(rows.select(*keys).distinct().count())
        return run_job(scope, replace(prepared, frame=rows), task)


# DELETE and UPDATE of rows that are named by their keys, in the log of small inserts.
#
# If this process dies, a change that was answered is durable; the fate of another is unknown.


def small_change(
    scope: StatementScope, change: RowChange, table: Table, parameters: Mapping[str, object]
) -> LoggedChange | None:
    """The small change that a statement is. None if its table, or the session, accepts none, or if
    Spark has to decide what it does.

    Raises errors of ours for parameters without a value, and for wrong assignments.
    """
    if inserts_of(scope, table) is None:
        return None
    if isinstance(change, Update) and is_strict(scope.spark):
        return None  # Spark has to check the types of what is assigned
    bound = bind(change.selection.query.parameters, parameters, change.text, scope.zone)
    logged = logged_change(change, table.name, table.schema, bound)
    return logged if logged is not None and _fits(logged, table) else None


def run_small_change(
    scope: StatementScope,
    change: RowChange,
    table: Table,
    logged: LoggedChange,
    wait: str | None,
) -> Outcome:
    """Put a change into the log. `wait` specifies when it is acknowledged; the default is the
    table's mode.

    Raises errors of ours if it is refused.
    """
    inserts = inserts_of(scope, table)
    assert inserts is not None
    kind = kind_of(change)
    outcome = send_to_log(scope, table, inserts, logged, wait=wait, kind=kind).outcome()
    outcome.statement, outcome.query = change.text, None
    return outcome


def _fits(change: LoggedChange, table: Table) -> bool:
    """Whether all columns can have the values that they are compared with."""
    schema = arrow_schema(table.schema)
    values = [
        *(
            ColumnPredicate(name, "in", tuple(key[at] for key in change.keys))
            for at, name in enumerate(change.columns)
        ),
        *change.conditions,
    ]
    return all(can_have(value, schema.field(value.column).type) for value in values)


# A DELETE of whole partitions: they leave the table by metadata, as TRUNCATE removes them.
#
# Source: `OptimizeMetadataOnlyDeleteFromPaimonTable` of Paimon's connector.


def deleted_partitions(
    scope: StatementScope, delete: Delete, table: Table, parameters: Mapping[str, object]
) -> tuple[PartitionSpec, ...] | None:
    """The partitions that a DELETE removes as a whole; ((),) is the whole table, and () nothing.
    None for a DELETE that has to look at rows."""
    schema = table.schema
    if schema.flag("delete.force-produce-changelog"):
        return None
    where = delete.selection.condition
    if where is None:
        return ((),)
    condition = delete.text[where.start : where.end]
    others = set(schema.column_names) - set(schema.partition_keys)
    if not may_select_partitions(condition, others):
        return None
    if not schema.is_partitioned:
        return ((),) if condition.upper().strip("() ") == "TRUE" else None
    return partitions_meeting(scope, delete, table, parameters, stored_partitions(table))


def partitions_meeting(
    scope: StatementScope,
    delete: Delete,
    table: Table,
    parameters: Mapping[str, object],
    stored: StoredPartitions,
) -> tuple[PartitionSpec, ...] | None:
    """Those of the `stored` partitions that meet the DELETE's condition; None for a condition that
    is about other columns, or wrong."""
    where = delete.selection.condition
    assert where is not None
    try:
        selected = _numbers_meeting(scope, delete, table, parameters, stored)
    except PaimonMagicsError:
        return None  # it names other columns, or is wrong: then rows are looked at
    # A subquery in the condition runs jobs.
    with errors_translated(delete.text, where.start), cancellable(scope.spark):
        chosen = fetched(selected.select(_PARTITION_NUMBER)).column(0).to_pylist()
    values = [column.to_pylist() for column in stored.values]
    return tuple(_spec(table, [column[number] for column in values]) for number in sorted(chosen))


def check_condition_on_partitions(
    scope: StatementScope, delete: Delete, table: Table, parameters: Mapping[str, object]
) -> None:
    """Raise what is wrong with the DELETE's condition, if it names partition columns alone."""
    schema, where = table.schema, delete.selection.condition
    others = set(schema.column_names) - set(schema.partition_keys)
    if where is None or not schema.is_partitioned:
        return
    if may_select_partitions(delete.text[where.start : where.end], others):
        _numbers_meeting(scope, delete, table, parameters, stored_partitions(table))


def _numbers_meeting(
    scope: StatementScope,
    delete: Delete,
    table: Table,
    parameters: Mapping[str, object],
    stored: StoredPartitions,
) -> DataFrame:
    """The partitions that meet a DELETE's condition, each with its number in `stored`."""
    schema = table.schema
    numbers = pa.array(range(len(stored.encoded)), pa.int64())
    rows = pa.table([*stored.values, numbers], names=[*schema.partition_keys, _PARTITION_NUMBER])
    frame = with_char_columns(frame_of_rows(scope.spark, rows), schema.columns)
    on = ChangeOnTable(scope, delete, parameters, table, latest_snapshot_id(table))
    return on.selected(frame)


def _spec(table: Table, values: list[Any]) -> PartitionSpec:
    return tuple(partition_texts(table, values).items())


def delete_partitions(
    scope: StatementScope, delete: Delete, table: Table, specs: tuple[PartitionSpec, ...]
) -> Outcome:
    """Remove the partitions of `deleted_partitions` by one commit; without any, commit nothing."""
    if not specs:
        return changed_outcome(delete, table, None, 0, NOTHING_WRITTEN)
    whole = specs == ((),)
    return remove_partitions(scope, table, delete.text, "DELETE", () if whole else specs)
