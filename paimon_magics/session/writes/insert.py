"""INSERT, TRUNCATE and DROP PARTITION: plan, write, commit; or leave the table as it was.

A statement that adds rows may find that others have written what its plan rests on. Nothing is
published then, so it is planned and run again (`run_prepared`). One that replaces rows is not: run
again, it would replace those that came meanwhile.

If this process dies before the commit, the table is unchanged and unreferenced files stay; during
the commit, it is the committer's matter (`coordinator.client`); after it, the statement happened.
Any other failure before the commit removes the statement's files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from paimon_magics.errors import (
    InvalidValueError,
    OutdatedPlanError,
    PaimonMagicsError,
    UnknownNameError,
    UnknownOutcomeError,
    nearest,
)
from paimon_magics.planning.commits.requests import (
    Append,
    Change,
    CommitReceipt,
    CommitRequest,
    OverwritePartitions,
    OverwriteTouched,
    Transaction,
)
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.planning.schemas.written_options import options_not_applied
from paimon_magics.planning.writes.distributions import Distribution, distribution_of
from paimon_magics.planning.writes.inserts import (
    Constant,
    FromInput,
    Source,
    check_writable,
    match_columns,
    rows_hidden_by,
    static_partition_columns,
    takes_one_at_a_time,
)
from paimon_magics.session.connection import Connection, located
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.parameters import bind
from paimon_magics.session.planned_work import note_reads, reads_of, work_of
from paimon_magics.session.provenance import engine_name, provenance
from paimon_magics.session.queries.frames import frame_of_query
from paimon_magics.session.writes.exactness import check_exact, check_policy
from paimon_magics.session.writes.reruns import Attempts
from paimon_magics.spark.casting import partition_values, project
from paimon_magics.spark.failures import translate
from paimon_magics.spark.fetching import fetched
from paimon_magics.spark.progress import doing
from paimon_magics.spark.queries import cancellable
from paimon_magics.spark.sizes import estimated_bytes
from paimon_magics.spark.struct_names import with_fields_by_name
from paimon_magics.spark.writing import JobWritten, write_frame
from paimon_magics.statements.lexing.cursor import Cursor
from paimon_magics.statements.lexing.tokens import tokenize
from paimon_magics.statements.queries.query_text import bind_parameters
from paimon_magics.statements.statement import Insert, PartitionItem, TableName, TruncateTable
from paimon_magics.tables.manifests.partition_counts import partitions_max
from paimon_magics.tables.snapshots.latest import latest_snapshot_id
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.bucket_counts import (
    check_cross_partition_size,
)
from paimon_magics.tables.writing.table_write import CompletedWrite, completed, write_spec
from paimon_magics.tables.writing.write_spec import WriteSpec
from paimon_magics.tables.writing.writer import write_batches

if TYPE_CHECKING:
    import pyarrow

    from paimon_magics.spark.handles import DataFrame

__all__ = [
    "PreparedInsert",
    "change_of",
    "distribution",
    "fetched_values",
    "partition_specs",
    "prepare_insert",
    "remove_partitions",
    "run_insert",
    "run_prepared",
]


@dataclass(frozen=True)
class PreparedInsert:
    """A planned INSERT: its rows in the table's columns, and what they do to it.

    `base_snapshot_id` is the table's latest snapshot before planning, 0 for none. `column` makes
    the frame of one column alone, the one that its argument `only` names; `again` plans the same
    statement on the table as it is then; `check` raises InvalidValueError for rows that a column
    would change.
    """

    table: Table
    frame: DataFrame
    change: Change
    base_snapshot_id: int
    column: Callable[..., DataFrame]
    again: Callable[[], PreparedInsert]
    check: Callable[[], None]


def run_insert(
    connection: Connection,
    insert: Insert,
    parameters: Mapping[str, object],
    *,
    frame: DataFrame | None = None,
    mode: str | None = None,
    own_rows: bool = False,
) -> Outcome:
    """Run an INSERT as one transaction.

    `frame` stands for the statement's source where it is given, with `own_rows` for rows that a
    program has given; `mode`, static or dynamic, for Spark's partitionOverwriteMode.

    Raises errors of ours: before anything is written for a statement that does not fit the table,
    JobError or InvalidValueError when the job fails, CommitConflictError when the commit does.
    """
    prepared = prepare_insert(
        connection, insert, parameters, frame=frame, mode=mode, own_rows=own_rows
    )
    return run_prepared(connection, insert, prepared)


def run_prepared(connection: Connection, insert: Insert, prepared: PreparedInsert) -> Outcome:
    """Write and commit what was planned, and planned again where others came first; see
    `run_insert`. The source is computed anew each time."""
    attempts = Attempts(connection.settings.conflict_reruns_max)
    while True:
        try:
            outcome = _run_once(connection, insert, prepared, attempts)
        except OutdatedPlanError as error:
            attempts.next(error, may_run_again=isinstance(prepared.change, Append))
            prepared = prepared.again()
        else:
            outcome.notes = (*outcome.notes, *attempts.notes())
            return outcome


def _run_once(
    connection: Connection, insert: Insert, prepared: PreparedInsert, attempts: Attempts
) -> Outcome:
    write = _writing(connection, insert, prepared)
    transaction, current = _opened(connection, prepared, attempts)
    if current is not prepared:
        try:
            write = _writing(connection, insert, current)
        except BaseException:
            connection.committer.abort(transaction)
            raise
    receipt, written = _transact(connection, current, transaction, write, insert.text)
    return _outcome(insert, current.table, receipt, written)


def _writing(
    connection: Connection, insert: Insert, prepared: PreparedInsert
) -> Callable[[WriteSpec], JobWritten]:
    table = prepared.table
    prepared.check()
    rows = None
    if insert.source.is_values and not table.schema.has_type("VARIANT"):
        # Spark folds a VALUES list: a value that does not fit fails here, before anything begins.
        rows = fetched_values(prepared, insert.text)

    def write(task: WriteSpec) -> JobWritten:
        if rows is not None:
            return JobWritten(write_batches(task, rows.to_batches()), repeated_attempts=False)
        schema = table.schema
        return write_frame(
            connection.spark,
            prepared.frame,
            task,
            distribution(connection, prepared),
            slots=connection.slots,
            keep_order=schema.is_primary_key_table and not schema.sequence_fields,
        )

    return write


def prepare_insert(
    connection: Connection,
    insert: Insert,
    parameters: Mapping[str, object],
    *,
    frame: DataFrame | None = None,
    mode: str | None = None,
    own_rows: bool = False,
) -> PreparedInsert:
    """Plan an INSERT and check it against its table; nothing runs. See `run_insert`."""
    table = connection.load(insert.target, insert.text, insert.target_position)
    # Before the source is planned: what it may read of this very table is no newer than that.
    base_snapshot_id = latest_snapshot_id(table)
    schema = table.schema
    try:
        check_writable(table.name, schema)
        if not insert.overwrite:
            check_cross_partition_size(table, connection.settings.cross_partition_rows_max)
    except PaimonMagicsError as error:
        raise located(error, insert.text, insert.target_position) from None
    static = static_partition_columns(insert, schema)
    given = frame
    if frame is None:
        frame = frame_of_query(connection, insert.text, insert.source, parameters)
    sources = match_columns(insert, schema, frame.columns)
    bound = bind(insert.source.parameters, parameters, insert.text, connection.zone)
    constants = _constants(connection, schema, static, bound, insert.text)
    assert set(constants) == {
        column.name
        for column, source in zip(schema.columns, sources, strict=True)
        if isinstance(source, Constant)
    }
    taken = _taken_by(frame, schema, sources)
    try:
        if insert.by_name:
            frame = with_fields_by_name(frame, taken)
        projection = partial(project, connection.spark, frame, schema.columns, sources, constants)
        projected = projection()
    except Exception as error:
        raise _place(translate(error), insert) from error
    change = change_of(connection, insert, schema, constants, mode)
    note_reads(projected, reads_of(frame))
    return PreparedInsert(
        table,
        projected,
        change,
        base_snapshot_id,
        column=projection,
        again=partial(
            _prepare_again,
            connection,
            insert,
            parameters,
            frame=given,
            mode=mode,
            own_rows=own_rows,
        ),
        check=_exactness(connection, frame, taken, is_given=own_rows or insert.source.is_values),
    )


def _prepare_again(
    connection: Connection,
    insert: Insert,
    parameters: Mapping[str, object],
    *,
    frame: DataFrame | None,
    mode: str | None,
    own_rows: bool,
) -> PreparedInsert:
    """Plan an INSERT on its tables as they are now."""
    connection.tables.renew()
    return prepare_insert(connection, insert, parameters, frame=frame, mode=mode, own_rows=own_rows)


def _taken_by(
    frame: DataFrame, schema: TableSchema, sources: Sequence[Source]
) -> Sequence[Column | None]:
    """The table's columns that those of `frame` go into, None for none."""
    columns: list[Column | None] = [None] * len(frame.columns)
    for column, source in zip(schema.columns, sources, strict=True):
        if isinstance(source, FromInput):
            columns[source.position] = column
    return columns


def _exactness(
    connection: Connection,
    frame: DataFrame,
    columns: Sequence[Column | None],
    *,
    is_given: bool,
) -> Callable[[], None]:
    """What raises InvalidValueError for rows that the table's columns would change."""
    if connection.settings.store_assignment == "ansi":
        return lambda: None
    if is_given:
        return lambda: check_exact(frame, columns)
    return lambda: check_policy(connection.spark, frame, columns)


def distribution(connection: Connection, prepared: PreparedInsert) -> Distribution:
    """Which task will write which of the rows; runs no job."""
    schema = prepared.table.schema
    partitions = partitions_max(prepared.table, prepared.base_snapshot_id)
    estimated = None
    if schema.bucket_mode == "BUCKET_UNAWARE":
        estimated = estimated_bytes(prepared.frame)
    return distribution_of(
        schema,
        slots=connection.slots,
        single_writer_rows_max=connection.settings.cross_partition_rows_max,
        partitions_max=partitions,
        estimated_bytes=estimated,
    )


def change_of(
    connection: Connection,
    insert: Insert,
    schema: TableSchema,
    constants: Mapping[str, str | None],
    mode: str | None = None,
) -> Change:
    """What the INSERT replaces: as `mode` or Spark's partitionOverwriteMode says for partitioned
    tables."""
    if not insert.overwrite:
        return Append()
    if mode is None:
        mode = connection.spark.conf.get("spark.sql.sources.partitionOverwriteMode", "static")
    swallow = connection.settings.overwrite_swallows_newer
    if schema.is_partitioned and (mode or "static").lower() == "dynamic":
        return OverwriteTouched(swallow)
    if not constants:
        return OverwritePartitions((), swallow)
    return OverwritePartitions((tuple(constants.items()),), swallow)


def remove_partitions(
    connection: Connection,
    table: Table,
    statement: str,
    kind: str,
    specs: Sequence[tuple[tuple[str, str | None], ...]],
) -> Outcome:
    """TRUNCATE and DROP PARTITION: one commit that removes what `specs` describe; () is all."""
    try:
        # Any layout can be emptied; only the place where snapshots are published must be safe.
        attempts = Attempts(reruns_max=0)
        transaction = _begun(connection, table.name, None, attempts)
    except PaimonMagicsError as error:
        raise located(error, statement, 0) from None
    properties = provenance(statement, connection.spark.version, rows=0, files=0)
    change = OverwritePartitions(tuple(specs))
    request = CommitRequest(transaction, change, properties=properties)
    receipt = _commit(connection, request)
    stored = count_text(receipt.total_rows or 0, "row")
    return Outcome(
        statement=statement,
        kind=kind,
        table=str(table.name),
        snapshot_id=receipt.snapshot_id,
        commit_kind=receipt.commit_kind,
        rows_written=0,
        files_written=0,
        message=f"{kind}: `{table.name}` has {stored} stored now (snapshot {receipt.snapshot_id}).",
        notes=attempts.notes(),
    )


def partition_specs(
    connection: Connection,
    table: Table,
    statement: str,
    specs: Sequence[Sequence[PartitionItem]],
    parameters: Mapping[str, object],
) -> tuple[tuple[tuple[str, str | None], ...], ...]:
    """PARTITION clauses as typed text values; raises UnknownNameError for a wrong column."""
    result = []
    keys = {key.lower(): key for key in table.schema.partition_keys}
    for spec in specs:
        static: dict[str, str] = {}
        for item in spec:
            key = keys.get(item.column.lower())
            if key is None:
                raise UnknownNameError(
                    f"`{item.column}` is not a partition column of `{table.name}`.",
                    hint=nearest(item.column, keys.values(), what="partition columns")
                    if keys
                    else "The table is not partitioned.",
                    statement=statement,
                    position=item.position,
                )
            if item.value is not None:
                static[key] = item.value
        # Only what is named: Spark refuses values that it can't bind, needed or not.
        named = dict.fromkeys(
            name for sql in static.values() for name in bind_parameters(Cursor(sql, tokenize(sql)))
        )
        bound = bind(tuple(named), parameters, statement, connection.zone)
        values = _constants(connection, table.schema, static, bound, statement)
        result.append(tuple(values.items()))
    return tuple(result)


def truncate_specs(
    connection: Connection,
    statement: TruncateTable,
    table: Table,
    parameters: Mapping[str, object],
) -> tuple[tuple[tuple[str, str | None], ...], ...]:
    """What TRUNCATE removes: () for the whole table."""
    if statement.partition is None:
        return ()
    return partition_specs(connection, table, statement.text, [statement.partition], parameters)


def _opened(
    connection: Connection, prepared: PreparedInsert, attempts: Attempts
) -> tuple[Transaction, PreparedInsert]:
    """A transaction, and the plan for it. Of a table that takes one at a time, the plan of rows to
    be added is of the moment when its turn came; what is replaced is what was there before."""
    table, base = prepared.table, prepared.base_snapshot_id
    in_turn = takes_one_at_a_time(table.schema) and isinstance(prepared.change, Append)
    transaction = _begun(connection, table.name, None if in_turn else base, attempts)
    if transaction.base_snapshot_id == base:
        return transaction, prepared
    try:
        return transaction, prepared.again()
    except BaseException:
        connection.committer.abort(transaction)
        raise


def _begun(
    connection: Connection, table: TableName, base: int | None, attempts: Attempts
) -> Transaction:
    """A transaction, whose turn is waited for; whoever looks on is told for what."""
    engine = engine_name(connection.spark.version)
    with doing(partial(attempts.doing, table)):
        transaction = connection.committer.begin(table, base, engine, attempts.waits)
    attempts.opened()
    return transaction


def _transact(
    connection: Connection,
    prepared: PreparedInsert,
    transaction: Transaction,
    write: Callable[[WriteSpec], JobWritten],
    statement: str,
) -> tuple[CommitReceipt, CompletedWrite]:
    table, change = prepared.table, prepared.change
    try:
        task = write_spec(
            table,
            transaction,
            overwrite=not isinstance(change, Append),
            slots=connection.slots,
            settings=connection.settings,
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
    request = CommitRequest(transaction, change, written.messages, properties)
    receipt = _commit(connection, request)
    if job.repeated_attempts:
        connection.committer.sweep(request)
    return receipt, written


def _commit(connection: Connection, request: CommitRequest) -> CommitReceipt:
    try:
        with doing("committing"):
            return _settled(connection, request)
    except UnknownOutcomeError:
        raise
    except PaimonMagicsError:  # certainly not committed
        connection.committer.abort(request.transaction)
        raise


def _settled(connection: Connection, request: CommitRequest) -> CommitReceipt:
    """Commit. It is too late to stop: after an interrupt the same call finds the commit, or makes
    it. Who interrupts that too does not wait for the answer."""
    try:
        return connection.committer.commit(request)
    except KeyboardInterrupt:
        with suppress(KeyboardInterrupt):
            return connection.committer.commit(request)
    table = request.transaction.table
    raise UnknownOutcomeError(
        f"The commit to `{table}` was interrupted twice: whether it happened is not known.",
        hint=f"Look at `{table}$snapshots` before running the statement again.",
    )


def _constants(
    connection: Connection,
    schema: TableSchema,
    static: Mapping[str, str],
    parameters: Mapping[str, object],
    statement: str,
) -> dict[str, str | None]:
    items: list[tuple[Column, str]] = [(schema.column(name), sql) for name, sql in static.items()]
    try:
        return partition_values(connection.spark, items, parameters)
    except Exception as error:
        raise translate(error, statement=statement) from error


def fetched_values(prepared: PreparedInsert, statement: str) -> pyarrow.Table:
    """The rows of a VALUES list; an error tells the column that it is about."""
    try:
        return fetched(prepared.frame)
    except Exception as error:
        found = translate(error, statement=statement)
        if isinstance(found, InvalidValueError) and not found.message.startswith("Column `"):
            column = _failing_column(prepared)
            if column is not None:
                said = found.message[:1].lower() + found.message[1:]
                found = InvalidValueError(f"Column `{column}`: {said}", hint=found.hint)
        raise found from error


def _failing_column(prepared: PreparedInsert) -> str | None:
    """The first column of the table whose values can't be computed on their own."""
    for name in prepared.table.schema.column_names:
        try:
            prepared.column(only=name).collect()  # of folded rows: no job
        except Exception:
            return name
    return None


def _place(error: PaimonMagicsError, insert: Insert) -> PaimonMagicsError:
    return located(error, insert.text, insert.source.range.start)


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
        notes=_notes(table),
    )


def _notes(table: Table) -> tuple[str, ...]:
    schema = table.schema
    notes = []
    producer = schema.changelog_producer
    if schema.is_primary_key_table and producer in ("lookup", "full-compaction"):
        notes.append(
            f"Changes appear in the changelog ('changelog-producer' = '{producer}') after the "
            "next compaction by another engine."
        )
    hidden = rows_hidden_by(schema)
    if hidden is not None:
        notes.append(f"The rows appear after the next compaction by another engine ({hidden}).")
    idle = options_not_applied(schema)
    if idle:
        shown = ", ".join(f"'{key}'" for key in idle)
        notes.append(f"Not applied to what was written; other engines make good for it: {shown}.")
    return tuple(notes)
