"""INSERT: plan, write, commit; or leave the table as it was.

A statement that adds rows may find that another commit has made its plan outdated. Nothing is
published then, and it is planned and run again (`run_prepared`). A statement that replaces rows is
not run again: it would also replace rows that were written meanwhile.

If this process dies before the commit, the table is unchanged and unreferenced files stay; during
the commit, the committer settles it (`coordinator.client`); after it, the statement has taken
effect. Any other failure before the commit removes the statement's files.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from paimon_magics.coordinator.client.attempts import Attempts
from paimon_magics.errors import (
    OutdatedPlanError,
)
from paimon_magics.planning.commits.requests import (
    Append,
    CommitReceipt,
    CommitRequest,
    InsertChange,
    OverwriteTouched,
    Transaction,
)
from paimon_magics.planning.compaction.inline import compacts_inline
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.schemas.written_options import options_not_applied
from paimon_magics.planning.writes.inserts import (
    rows_hidden_by,
    takes_one_at_a_time,
)
from paimon_magics.session.connection import Connection
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.planned_work import work_of
from paimon_magics.session.provenance import provenance
from paimon_magics.session.writes.inline_compaction import compact_written
from paimon_magics.session.writes.keyed_rows import without_kinds
from paimon_magics.session.writes.prepare import (
    PreparedInsert,
    distribution,
    fetched_values,
)
from paimon_magics.session.writes.transactions import begun, committed
from paimon_magics.spark.failures import translate
from paimon_magics.spark.queries import cancellable
from paimon_magics.spark.writing import JobWritten, write_frame
from paimon_magics.statements.statement import Insert
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.table_write import CompletedWrite, completed, write_spec
from paimon_magics.tables.writing.write_spec import WriteSpec
from paimon_magics.tables.writing.writer import write_batches

__all__ = [
    "opened",
    "run_job",
    "run_prepared",
    "transact",
    "write_notes",
]


def run_prepared(connection: Connection, insert: Insert, prepared: PreparedInsert) -> Outcome:
    """Write and commit a planned INSERT; plan and run it again if another commit came first. Each
    run computes the source again. See `upserts.run_insert`."""
    attempts = Attempts(connection.settings.conflict_reruns_max)
    while True:
        try:
            outcome = _run_once(connection, insert, prepared, attempts)
        except OutdatedPlanError as error:
            attempts.next(error, may_run_again=_may_run_again(prepared.change))
            prepared = prepared.again()
        else:
            outcome.notes = (*outcome.notes, *attempts.notes())
            return outcome


def _may_run_again(change: InsertChange) -> bool:
    """Whether a statement that is planned again does what was asked for."""
    match change:
        case Append() | OverwriteTouched(only_unchanged=True):
            return True
        case _:
            return False


def _run_once(
    connection: Connection, insert: Insert, prepared: PreparedInsert, attempts: Attempts
) -> Outcome:
    write = _writing(connection, insert, prepared)
    transaction, current = opened(connection, prepared, attempts)
    if current is not prepared:
        try:
            write = _writing(connection, insert, current)
        except BaseException:
            connection.committer.abort(transaction)
            raise
    receipt, written = transact(connection, current, transaction, write, insert.text)
    outcome = _outcome(insert, current.table, receipt, written)
    outcome.notes = write_notes(current.table, compacts=connection.settings.inline_compaction)
    if receipt.snapshot_id is not None:
        replaced = None if isinstance(current.change, Append) else receipt.snapshot_id
        notes = compact_written(
            connection, current.table, written.buckets, insert.text, overwritten=replaced
        )
        outcome.notes = (*outcome.notes, *notes)
    return outcome


def _writing(
    connection: Connection, insert: Insert, prepared: PreparedInsert
) -> Callable[[WriteSpec], JobWritten]:
    table = prepared.table
    prepared.check()
    rows = None
    if insert.source.is_values and not table.schema.has_type("VARIANT"):
        # Spark folds a VALUES list: a value that does not fit fails here, before the transaction.
        rows = fetched_values(prepared, insert.text)

    def write(task: WriteSpec) -> JobWritten:
        if rows is not None:
            return JobWritten(write_batches(task, rows.to_batches()), repeated_attempts=False)
        return run_job(connection, prepared, task)

    return write


def run_job(connection: Connection, prepared: PreparedInsert, task: WriteSpec) -> JobWritten:
    """Run the job that writes the planned rows."""
    prepared = without_kinds(prepared)
    schema = prepared.table.schema
    # Rows with kinds are changes of rows that were read: each key comes once.
    is_ordered = schema.is_primary_key_table and not schema.sequence_fields
    return write_frame(
        connection.spark,
        prepared.frame,
        task,
        distribution(connection, prepared),
        slots=connection.slots,
        keep_order=is_ordered and not prepared.has_kinds,
    )


def opened(
    connection: Connection, prepared: PreparedInsert, attempts: Attempts
) -> tuple[Transaction, PreparedInsert]:
    """Begin a transaction; return it and the plan for it. On a table that takes one transaction at
    a time, an append is planned again when its turn comes. An overwrite keeps its plan: it replaces
    what was there before."""
    table, base = prepared.table, prepared.base_snapshot_id
    in_turn = takes_one_at_a_time(table.schema) and isinstance(prepared.change, Append)
    transaction = begun(connection, table.name, None if in_turn else base, attempts)
    if transaction.base_snapshot_id == base:
        return transaction, prepared
    try:
        return transaction, prepared.again()
    except BaseException:
        connection.committer.abort(transaction)
        raise


def transact(
    connection: Connection,
    prepared: PreparedInsert,
    transaction: Transaction,
    write: Callable[[WriteSpec], JobWritten],
    statement: str,
) -> tuple[CommitReceipt, CompletedWrite]:
    """Write the planned rows and commit them; abort the transaction if that fails."""
    table, change = prepared.table, prepared.change
    try:
        task = write_spec(
            table,
            transaction,
            overwrite=not isinstance(change, Append),
            slots=connection.slots,
            settings=connection.settings,
            gives_kinds=prepared.has_kinds,
            gives_buckets=prepared.has_buckets,
        )
        work = work_of(prepared.frame, partial(distribution, connection, prepared))
        with cancellable(connection.spark, work):
            job = write(task)
        written = completed(table, task, job.written, transaction.base_snapshot_id)
        properties = provenance(
            statement,
            connection.spark.version,
            rows=written.rows,
            files=written.files,
        )
    except BaseException as error:
        connection.committer.abort(transaction)
        if isinstance(error, Exception):
            raise translate(error, statement=statement) from error
        raise
    request = CommitRequest(transaction, change, written.messages, properties, prepared.read_set)
    receipt = committed(connection, request)
    if job.repeated_attempts:
        connection.committer.sweep(request)
    return receipt, written


def _outcome(
    insert: Insert, table: Table, receipt: CommitReceipt, written: CompletedWrite
) -> Outcome:
    kind = "INSERT OVERWRITE" if insert.overwrite else "INSERT INTO"
    snapshot = (
        f"snapshot {receipt.snapshot_id}" if receipt.snapshot_id is not None else "no new snapshot"
    )
    return Outcome(
        statement=insert.text,
        kind=kind,
        table=str(table.name),
        snapshot_id=receipt.snapshot_id,
        commit_kind=receipt.commit_kind,
        rows_written=written.rows,
        files_written=written.files,
        bytes_written=written.size_bytes,
        message=f"{kind} `{table.name}`: {count_text(written.rows, 'row')} written ({snapshot}).",
    )


def write_notes(table: Table, *, compacts: bool) -> tuple[str, ...]:
    """What the user of a written table may need to know."""
    schema = table.schema
    notes = []
    compacted = compacts and compacts_inline(schema)
    producer = schema.changelog_producer
    if schema.is_primary_key_table and producer == "lookup" and not compacted:
        notes.append("Changes appear in the changelog after the next compaction.")
    if schema.is_primary_key_table and producer == "full-compaction":
        notes.append("Changes appear in the changelog after the next full compaction.")
    hidden = rows_hidden_by(schema)
    if hidden is not None and not compacted:
        notes.append(f"The rows appear after the next compaction ({hidden}).")
    idle = options_not_applied(schema)
    if idle:
        shown = ", ".join(f"'{key}'" for key in idle)
        notes.append(
            f"Not applied here; other engines apply them when they compact or commit: {shown}."
        )
    return tuple(notes)
