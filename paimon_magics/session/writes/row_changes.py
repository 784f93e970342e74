"""DELETE and UPDATE: one commit that changes the rows that they select.

The selected rows are those of one snapshot. The condition and the values are evaluated once for
each row, by Spark, in the job that writes; those of few keys in this process (`rows_by_key`).
`session/writes/transactions.py` says what happens when this process dies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from paimon_magics.coordinator.client.interface import Attempts
from paimon_magics.planning.commits.read_sets import read_keys
from paimon_magics.planning.reads.predicates import (
    ColumnPredicate,
    column_predicates,
    remainder_predicates,
)
from paimon_magics.planning.reads.scans import (
    ReadPlan,
    have_own_buckets,
    pack_splits,
    plain_splits,
    stored_bytes,
)
from paimon_magics.planning.reads.splits import PlainSplit, RawFiles
from paimon_magics.planning.row_changes.engine_rules import (
    ChangeMethod,
    method_of_delete,
    method_of_update,
)
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.planned_work import made_of, reads_of
from paimon_magics.session.queries.planned_reads import (
    SnapshotLeases,
    local_limits,
    plan_of,
    planned_read,
)
from paimon_magics.session.queries.relations import Relation, relation_of
from paimon_magics.session.scope import StatementScope, errors_located
from paimon_magics.session.writes.append_changes import (
    PreparedAppendChange,
    prepare_append_change,
    run_append_change,
)
from paimon_magics.session.writes.keyed_rows import check_seen, keyed_rows, with_key_buckets
from paimon_magics.session.writes.outcomes import NOTHING_WRITTEN, finished, of_write, with_losses
from paimon_magics.session.writes.prepare import PreparedWrite
from paimon_magics.session.writes.row_selection import (
    ChangeOnTable,
    changed_outcome,
    check_no_file_calls,
    kind_of,
    operation_of,
)
from paimon_magics.session.writes.rows_by_key import PreparedKeys, commit_by_key, prepare_by_key
from paimon_magics.session.writes.transactions import run_again
from paimon_magics.session.writes.write_jobs import persisted, run_job, run_write
from paimon_magics.spark.queries import cancellable
from paimon_magics.spark.reading import read_frame
from paimon_magics.spark.row_changes import unseen_counts
from paimon_magics.spark.sizes import scan_sizes
from paimon_magics.spark.writing import JobWritten
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.statements.queries.query_traits import random_part
from paimon_magics.statements.row_changes import Delete, RowChange
from paimon_magics.tables.reading.data_read import DataRead
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.table_write import flushes_itself
from paimon_magics.tables.writing.write_spec import WriteSpec

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame


PreparedChange = PreparedWrite | PreparedAppendChange | PreparedKeys
"""A planned DELETE or UPDATE: rows of a kind that are written, or places in files."""


_SLOTS_PER_BUCKET_MAX = 4
"""A bucket is read by one task, so that the task may write it, too: with more slots than this for
each, Spark's scan, which divides files, is faster."""
_TASK_BYTES = 256 << 20
_MICROSECONDS = 6  # digits


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
