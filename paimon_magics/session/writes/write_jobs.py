"""The job that writes planned rows, and the transaction around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from paimon_magics.columnar.merging import KIND
from paimon_magics.coordinator.client.interface import Attempts
from paimon_magics.planning.commits.requests import Append, CommitReceipt
from paimon_magics.planning.writes.inserts import plans_in_turn
from paimon_magics.session.planned_work import work_of
from paimon_magics.session.provenance import Operation
from paimon_magics.session.scope import StatementScope
from paimon_magics.session.writes.exactness import check_losses
from paimon_magics.session.writes.prepare import PreparedWrite, distribution
from paimon_magics.session.writes.transactions import ToCommit, begun, transact
from paimon_magics.spark.queries import cancellable
from paimon_magics.spark.updated_rows import as_inserted
from paimon_magics.spark.writing import JobWritten, RowOrder, write_frame
from paimon_magics.tables.writing.table_write import (
    CompletedWrite,
    completed,
    with_numbers,
    write_spec,
)
from paimon_magics.tables.writing.write_spec import WriteSpec

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame


Finish = Callable[[PreparedWrite, CompletedWrite], PreparedWrite]
"""Makes the plan to commit of the one that was written, when its files are known."""


@contextmanager
def persisted(frame: DataFrame) -> Iterator[DataFrame]:
    """Let Spark keep the rows of a frame while the body runs."""
    rows = frame.persist()
    try:
        yield rows
    finally:
        rows.unpersist()


def without_kinds(prepared: PreparedWrite) -> PreparedWrite:
    """The write with rows as the writer takes them: without a column KIND, unless it needs that."""
    if prepared.has_kinds or KIND not in prepared.frame.columns:
        return prepared
    field = prepared.table.schema.rowkind_field
    return replace(prepared, frame=as_inserted(prepared.frame, field))


def run_job(
    scope: StatementScope,
    prepared: PreparedWrite,
    task: WriteSpec,
    changed_once: tuple[str, ...] = (),
) -> JobWritten:
    """Run the job that writes the planned rows. With `changed_once` the job counts their kinds, and
    finds two rows that change one row of the table; these columns identify it."""
    prepared = without_kinds(prepared)
    schema = prepared.table.schema
    # Rows with kinds that were made of rows of the table have each key once.
    repeats = not prepared.has_kinds or prepared.keys_repeat
    is_ordered = schema.is_primary_key_table and not schema.sequence_fields and repeats
    return write_frame(
        scope.spark,
        prepared.frame,
        task,
        distribution(scope, prepared),
        slots=scope.slots,
        order=RowOrder(is_ordered, changed_once),
    )


def run_write(
    scope: StatementScope,
    prepared: PreparedWrite,
    attempts: Attempts,
    statement: str,
    write: Callable[[PreparedWrite, WriteSpec], JobWritten],
    operation: Callable[[CompletedWrite], Operation],
    finish: Finish | None = None,
) -> tuple[PreparedWrite, CommitReceipt, CompletedWrite]:
    """Write planned rows by `write`, and commit them in one transaction. `operation` describes the
    change. Return the plan that was written. If `plans_in_turn` allows it, an append is planned
    again when its turn has come. An overwrite keeps its plan: it replaces what was there
    before. `finish` makes the plan to commit when all is written, or raises an error to commit
    nothing."""
    table, base = prepared.table, prepared.base
    in_turn = isinstance(prepared.change, Append) and plans_in_turn(
        table.schema, reads=prepared.read_set is not None
    )
    transaction = begun(scope, table.name, None if in_turn else base, attempts)

    def written() -> tuple[ToCommit, tuple[PreparedWrite, CompletedWrite]]:
        current = prepared if transaction.is_on(base) else prepared.again()
        task = write_spec(
            current.table,
            # The transaction began on the schema before the one that is written for.
            replace(transaction, base_schema="") if current.is_for_next_schema else transaction,
            overwrite=not isinstance(current.change, Append),
            slots=scope.slots,
            settings=scope.settings,
            gives_buckets=current.has_buckets,
        )
        if current.has_kinds and not current.table.schema.postpones_buckets:
            task = task.with_kinds()
        manifests, snapshot_id = scope.manifests(current.table), transaction.base_snapshot_id
        if current.read_set is not None and current.read_set.written_keys:
            task = with_numbers(task, current.table, snapshot_id, manifests)
        work = work_of(current.frame, partial(distribution, scope, current))
        with cancellable(scope.spark, work):
            job = write(current, task)
        files = completed(current.table, task, job.written, snapshot_id, manifests)
        check_losses(scope, current.table, files.losses)
        if finish is not None:
            current = finish(current, files)
        to_commit = ToCommit(
            files.messages,
            files.rows,
            files.files,
            operation(files),
            current.change,
            current.read_set,
            job.repeated_attempts,
        )
        return to_commit, (current, files)

    receipt, (current, files) = transact(scope, transaction, statement, written)
    return current, receipt, files
