"""INSERT: plan, write, commit; or leave the table as it was (`session/writes/transactions.py`).

A statement that adds rows may find that another commit has made its plan outdated. Nothing is
published then, and it is planned and run again (`run_prepared`). A statement that replaces rows is
not run again: it would also replace rows that were written meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from paimon_magics.coordinator.client.interface import Attempts
from paimon_magics.planning.commits.requests import (
    Append,
    CommitReceipt,
    InsertChange,
    OverwriteTouched,
    Transaction,
)
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.writes.inserts import plans_in_turn
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.planned_work import work_of
from paimon_magics.session.provenance import Operation
from paimon_magics.session.scope import StatementScope
from paimon_magics.session.writes.exactness import check_losses
from paimon_magics.session.writes.keyed_rows import without_kinds
from paimon_magics.session.writes.outcomes import (
    finished,
    of_write,
    with_losses,
    write_outcome,
)
from paimon_magics.session.writes.prepare import (
    PreparedInsert,
    distribution,
    fetched_values,
)
from paimon_magics.session.writes.transactions import ToCommit, begun, run_again, transact
from paimon_magics.spark.queries import cancellable
from paimon_magics.spark.writing import JobWritten, RowOrder, write_frame
from paimon_magics.statements.statement import Insert
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.table_write import (
    CompletedWrite,
    completed,
    with_numbers,
    write_spec,
)
from paimon_magics.tables.writing.write_spec import WriteSpec
from paimon_magics.tables.writing.writer import write_batches

if TYPE_CHECKING:
    import pyarrow as pa


def run_prepared(scope: StatementScope, insert: Insert, prepared: PreparedInsert) -> Outcome:
    """Write and commit a planned INSERT; plan and run it again if another commit came first. Each
    run computes the source again. See `upserts.run_insert`."""
    return run_again(
        prepared,
        partial(_run_once, scope, insert),
        lambda outdated: outdated.again(),
        reruns_max=scope.settings.conflict_reruns_max,
        may_run_again=lambda outdated: _may_run_again(outdated.change),
    )


def _may_run_again(change: InsertChange) -> bool:
    """Whether a statement that is planned again does what was asked for."""
    match change:
        case Append() | OverwriteTouched(only_unchanged=True):
            return True
        case _:
            return False


def _run_once(
    scope: StatementScope, insert: Insert, prepared: PreparedInsert, attempts: Attempts
) -> Outcome:
    given = _known_rows(insert, prepared)

    def write(current: PreparedInsert, task: WriteSpec) -> JobWritten:
        rows = given if current is prepared else _known_rows(insert, current)
        if rows is not None:
            manifests = _manifests(scope, current.table)
            written = write_batches(task, rows.to_batches(), manifests=manifests)
            return JobWritten(written, repeated_attempts=False)
        return run_job(scope, current, task)

    kind = "INSERT OVERWRITE" if insert.overwrite else "INSERT"
    current, receipt, written = write_planned(
        scope,
        prepared,
        attempts,
        insert.text,
        write,
        lambda written: Operation(kind, inserted=written.rows),
    )
    outcome = write_outcome(
        insert.text,
        "INSERT OVERWRITE" if insert.overwrite else "INSERT INTO",
        current.table,
        receipt,
        of_write(written),
        f"{count_text(written.rows, 'row')} written",
    )
    outcome = with_losses(outcome, current.table, written.losses)
    overwrote = not isinstance(current.change, Append)
    return finished(
        scope,
        outcome,
        current.table,
        written.buckets,
        overwrote=overwrote,
        files_each=written.files_each,
    )


def _known_rows(insert: Insert, prepared: PreparedInsert) -> pa.Table | None:
    """The rows of a VALUES list; None for other sources. Raises InvalidValueError for rows that
    storing would change."""
    prepared.check()
    if not insert.source.is_values or prepared.table.schema.has_type("VARIANT"):
        return None
    # Spark folds a VALUES list: a value that does not fit fails here, before the transaction.
    return fetched_values(prepared, insert.text)


def run_job(
    scope: StatementScope,
    prepared: PreparedInsert,
    task: WriteSpec,
    changed_once: tuple[str, ...] = (),
) -> JobWritten:
    """Run the job that writes the planned rows. With `changed_once` their kinds are counted, and it
    is found whether two of them change a row of the table, which these columns tell."""
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


def write_planned(
    scope: StatementScope,
    prepared: PreparedInsert,
    attempts: Attempts,
    statement: str,
    write: Callable[[PreparedInsert, WriteSpec], JobWritten],
    operation: Callable[[CompletedWrite], Operation],
) -> tuple[PreparedInsert, CommitReceipt, CompletedWrite]:
    """Write planned rows by `write`, and commit them in one transaction. `operation` tells what
    became of them. Return the plan that was written: where `plans_in_turn` says so, an append is
    planned again when its turn has come. An overwrite keeps its plan: it replaces what was there
    before."""
    table, base = prepared.table, prepared.base_snapshot_id
    in_turn = isinstance(prepared.change, Append) and plans_in_turn(
        table.schema, reads=prepared.read_set is not None
    )
    transaction = begun(scope, table.name, None if in_turn else base, attempts)

    def planned_and_written() -> tuple[ToCommit, tuple[PreparedInsert, CompletedWrite]]:
        current = prepared if transaction.base_snapshot_id == base else prepared.again()
        job, written = _written(scope, current, transaction, write)
        check_losses(scope, current.table, written.losses)
        found = ToCommit(
            written.messages,
            written.rows,
            written.files,
            operation(written),
            current.change,
            current.read_set,
            job.repeated_attempts,
        )
        return found, (current, written)

    receipt, (current, written) = transact(scope, transaction, statement, planned_and_written)
    return current, receipt, written


def _written(
    scope: StatementScope,
    prepared: PreparedInsert,
    transaction: Transaction,
    write: Callable[[PreparedInsert, WriteSpec], JobWritten],
) -> tuple[JobWritten, CompletedWrite]:
    task = write_spec(
        prepared.table,
        transaction,
        overwrite=not isinstance(prepared.change, Append),
        slots=scope.slots,
        settings=scope.settings,
        gives_buckets=prepared.has_buckets,
    )
    if prepared.has_kinds and not prepared.table.schema.postpones_buckets:
        task = task.with_kinds()
    manifests = _manifests(scope, prepared.table)
    base = transaction.base_snapshot_id
    if prepared.read_set is not None and prepared.read_set.written_keys:
        task = with_numbers(task, prepared.table, base, manifests)
    work = work_of(prepared.frame, partial(distribution, scope, prepared))
    with cancellable(scope.spark, work):
        job = write(prepared, task)
    return job, completed(prepared.table, task, job.written, base, manifests)


def _manifests(scope: StatementScope, table: Table) -> ManifestCache:
    return scope.manifests(table)
