"""INSERT, of a statement or of a frame that Python holds: plan, write, commit; or leave the table
as it was (`session/writes/transactions.py`).

A statement that adds rows may find that another commit has made its plan outdated. Nothing is
published then, and it is planned and run again (`run_prepared`). A statement that replaces rows is
not run again: it would also replace rows that were written meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from paimon_magics.coordinator.client.interface import Attempts
from paimon_magics.coordinator.client.small_inserts import SmallInserts
from paimon_magics.errors import InvalidValueError, PaimonMagicsError, nearest, value_text
from paimon_magics.planning.commits.requests import (
    Append,
    InsertChange,
    OverwritePartitions,
    OverwriteTouched,
)
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.row_changes.merges import Upsert
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.provenance import Operation
from paimon_magics.session.python_frames import (
    arrow_of,
    frame_kind,
    frame_text,
    is_own,
    notes_on,
    spark_frame,
    stream_of,
)
from paimon_magics.session.row_changes.merge import run_upsert
from paimon_magics.session.scope import StatementScope
from paimon_magics.session.settings_checks import check_written
from paimon_magics.session.times import columns_in_zone, value_in_zone
from paimon_magics.session.value_inputs import (
    CutValueError,
    columns_of,
    kind_of,
    misfit,
    plain,
    shown,
)
from paimon_magics.session.writes.merged_schemas import merge_columns, merge_rules
from paimon_magics.session.writes.outcomes import (
    finished,
    of_write,
    overwrite_notes,
    rows_back,
    rows_taken,
    with_losses,
    write_outcome,
)
from paimon_magics.session.writes.prepare import (
    GivenRows,
    PreparedWrite,
    fetched_values,
    prepare_insert,
)
from paimon_magics.session.writes.small_inserts import (
    PendingInsert,
    at_once_note,
    check_wait,
    inserts_of,
    send_to_log,
    why_not_logged,
)
from paimon_magics.session.writes.transactions import run_again
from paimon_magics.session.writes.write_jobs import Finish, run_job, run_write
from paimon_magics.spark.writing import JobWritten
from paimon_magics.statements.clauses.names import table_text
from paimon_magics.statements.data_types import (
    INTEGER_BITS,
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    MultisetType,
    RowType,
    VectorType,
)
from paimon_magics.statements.statement import Insert, QueryText, TableName, TextRange
from paimon_magics.statements.types.type_text import to_spark_sql
from paimon_magics.tables.commits.replaced_partitions import PartitionSize, sizes_of_replaced
from paimon_magics.tables.compaction.scopes import partitions_of
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.writing.table_write import CompletedWrite
from paimon_magics.tables.writing.write_spec import WriteSpec
from paimon_magics.tables.writing.writer import write_batches

if TYPE_CHECKING:
    pass


WriteMode = Literal["append", "overwrite", "dynamic"]
_MODES = ("append", "overwrite", "dynamic")

_TAKEN = {
    "BOOLEAN": "True or False",
    "FLOAT": "a number of at most 3.4e38",
    "DOUBLE": "a number that a Python float can hold",
    "STRING": "a string",
    "CHAR": "a string",
    "VARCHAR": "a string",
    "BINARY": "bytes",
    "VARBINARY": "bytes",
    "BYTES": "bytes",
    "DATE": "a datetime.date",
    "TIME": "a datetime.time of whole milliseconds",
    "TIMESTAMP": "a datetime.datetime",
    "TIMESTAMP_LTZ": "a datetime.datetime",
}


def run_insert(
    scope: StatementScope,
    insert: Insert,
    parameters: Mapping[str, object],
    rows: GivenRows | None = None,
) -> Outcome:
    """Run an INSERT as one transaction, of the statement's source or of the given rows.

    Raises errors of ours: for a statement that does not fit the table, before anything is written;
    JobError or InvalidValueError if the job fails; CommitConflictError if the commit does.
    """
    merged = (
        merge_columns(scope, insert, parameters)
        if rows is None
        else merge_columns(scope, insert, parameters, rows.frame, rows.merging)
    )
    prepared = prepare_insert(scope, insert, parameters, rows)
    outcome = _run_planned(scope, insert, prepared)
    outcome.notes = (*merged, *outcome.notes)
    return outcome


def run_insert_of_cell(
    scope: StatementScope,
    insert: Insert,
    parameters: Mapping[str, object],
    wait: str | None = None,
) -> Outcome:
    """Run an INSERT; a VALUES list runs as a small insert, if the table accepts them. `wait`
    specifies when that is acknowledged; the default is the table's mode. Raises as `run_insert`."""
    merged = merge_columns(scope, insert, parameters)
    prepared = prepare_insert(scope, insert, parameters)
    table = prepared.table
    is_small = insert.source.is_values and not insert.overwrite
    log = inserts_of(scope, table) if is_small else None
    if log is not None:
        outcome = _run_logged(scope, insert, prepared, log, wait)
    else:
        outcome = _run_planned(scope, insert, prepared)
        if is_small and table.schema.flag("auto_batch_load"):
            outcome.notes = (*outcome.notes, at_once_note(scope, table))
    outcome.notes = (*merged, *outcome.notes)
    return outcome


def run_prepared(scope: StatementScope, insert: Insert, prepared: PreparedWrite) -> Outcome:
    """Write and commit a planned INSERT; plan and run it again if another commit came first. Each
    run computes the source again. Raises as `run_insert`."""
    return run_again(
        prepared,
        partial(write_planned, scope, insert),
        lambda outdated: outdated.again(),
        reruns_max=scope.settings.conflict_reruns_max,
        may_run_again=lambda outdated: _may_run_again(outdated.change),
    )


def _run_planned(scope: StatementScope, insert: Insert, prepared: PreparedWrite) -> Outcome:
    upsert = None if insert.overwrite else Upsert.of(prepared.table.schema)
    if upsert is None:
        return run_prepared(scope, insert, prepared)
    return run_upsert(scope, insert, prepared, upsert)


def _may_run_again(change: InsertChange) -> bool:
    """Whether a statement that is planned again does what was asked for."""
    return isinstance(change, Append) or (
        isinstance(change, OverwriteTouched) and change.only_unchanged
    )


def write_planned(
    scope: StatementScope,
    insert: Insert,
    prepared: PreparedWrite,
    attempts: Attempts,
    finish: Finish | None = None,
) -> Outcome:
    """Write and commit a planned INSERT once. `finish` is as in `run_write`."""
    rows = _rows_of_values(insert, prepared)
    lost: list[PartitionSize] = []

    def write(current: PreparedWrite, task: WriteSpec) -> JobWritten:
        values = rows if current is prepared else _rows_of_values(insert, current)
        if values is None:
            return run_job(scope, current, task)
        manifests = scope.manifests(current.table)
        written = write_batches(task, values.to_batches(), manifests=manifests)
        return JobWritten(written, repeated_attempts=False)

    def planned(current: PreparedWrite, files: CompletedWrite) -> PreparedWrite:
        to_commit = current if finish is None else finish(current, files)
        # Rows that others add after this stop the commit, unless it may take them along.
        lost[:] = _lost(scope, to_commit, files)
        return to_commit

    kind = "INSERT OVERWRITE" if insert.overwrite else "INSERT"
    current, receipt, files = run_write(
        scope,
        prepared,
        attempts,
        insert.text,
        write,
        lambda files: Operation(kind, inserted=files.rows),
        planned,
    )
    kind = "INSERT OVERWRITE" if insert.overwrite else "INSERT INTO"
    done = f"{count_text(files.rows, 'row')} written"
    outcome = write_outcome(insert.text, kind, current.table, receipt, of_write(files), done)
    outcome = with_losses(outcome, current.table, files.losses)
    if lost:
        outcome.message = f"{outcome.message} {rows_taken(lost)} replaced."
        outcome.notes = (*outcome.notes, rows_back(current.table.name, current.base[0]))
    if receipt is not None and not isinstance(current.change, Append):
        outcome.notes = (*outcome.notes, *overwrite_notes(current.table))
    return finished(
        scope,
        outcome,
        current.table,
        files.buckets,
        overwrote=not isinstance(current.change, Append),
        files_each=files.files_each,
    )


def _lost(
    scope: StatementScope, written: PreparedWrite, files: CompletedWrite
) -> list[PartitionSize]:
    """What a write replaces."""
    table, change = written.table, written.change
    manifests = scope.manifests(table)
    match change:
        case Append():
            return []
        case OverwritePartitions(specs=specs):
            return sizes_of_replaced(table, specs=specs, manifests=manifests)
        case OverwriteTouched():
            touched = partitions_of(table, (partition for partition, _ in files.buckets))
            values = list(zip(*(column.to_pylist() for column in touched.values), strict=True))
            return sizes_of_replaced(table, partitions=values, manifests=manifests)


def _rows_of_values(insert: Insert, prepared: PreparedWrite) -> pa.Table | None:
    """The rows of a VALUES list; None for other sources. Raises InvalidValueError for rows that
    storing would change."""
    if not insert.source.is_values or prepared.table.schema.has_type("VARIANT"):
        prepared.check()
        return None
    # Spark folds a VALUES list: a value that does not fit fails here, before the transaction.
    return fetched_values(prepared, insert.text)


# Small inserts, into the log of the table.


def _run_logged(
    scope: StatementScope,
    insert: Insert,
    prepared: PreparedWrite,
    log: SmallInserts,
    wait: str | None,
) -> Outcome:
    from paimon_magics.tables.schema.arrow_casting import conform

    table = prepared.table
    schema = arrow_schema(table.schema)
    batches = fetched_values(prepared, insert.text).to_batches()
    rows = pa.Table.from_batches([conform(batch, schema) for batch in batches], schema)
    outcome = send_to_log(scope, table, log, rows, wait=wait).outcome()
    outcome.statement, outcome.query = insert.text, None
    return outcome


def insert_rows(
    scope: StatementScope,
    name: TableName,
    rows: Any,
    *,
    label: str | None = None,
    wait: str | None = None,
) -> PendingInsert | Outcome:
    """Insert rows. Return the pending insert, or the outcome if the table accepts no small inserts.

    Raises InvalidValueError for values that are not rows, and errors for the table's name.
    """
    check_wait(wait)
    check_written(scope, name, "INSERT")
    table = scope.connection.recent.load(name)
    arrow = given_table(rows, table.schema, scope.zone)
    inserts = inserts_of(scope, table)
    if inserts is None:
        if label is not None:
            raise InvalidValueError(
                f"`{name}` accepts no small inserts here, so an insert can't have a label.",
                hint=f"The reason: {why_not_logged(scope, table)}",
            )
        outcome = write_frame_to(scope, arrow, name, "append")
        outcome.notes = (*outcome.notes, at_once_note(scope, table))
        return outcome
    return send_to_log(scope, table, inserts, arrow, wait=wait, label=label)


# The rows of a small insert, as an Arrow table with the table's columns. A value that does not fit
# is refused here; the error names row and column, and the values that the column accepts.


def given_table(rows: Any, table_schema: TableSchema, zone: str) -> pa.Table:
    """Return the rows as an Arrow table with the table's columns that they name; rows in tuples or
    lists have all columns. Times are those of a session of `zone` (`times`).

    Raises InvalidValueError, and UnknownNameError for a name that is not a column.
    """
    schema = arrow_schema(table_schema)
    if frame_kind(rows) is not None:
        return columns_in_zone(_rows_of(rows), schema, zone)
    if isinstance(rows, Mapping):
        rows = [rows]
    if not _is_row(rows):
        raise InvalidValueError(
            f"{value_text(rows, begins=True)} can't be inserted.",
            hint="Give a list of rows (tuples, or dictionaries), an Arrow table, or a pandas or "
            "polars DataFrame.",
        )
    columns = columns_of(rows) if rows and kind_of(rows[0]) == "row" else None
    if columns is None:
        _check_widths(rows, table_schema)
        values = list(zip(*rows, strict=True)) or [()] * len(table_schema.columns)
        columns = dict(zip(table_schema.column_names, map(list, values), strict=True))
    # The coordinator checks nullability: its error names the column.
    fields = [schema.field(table_schema.column(name).name).with_nullable(True) for name in columns]
    arrays = [
        _array(values, field, table_schema, zone)
        for values, field in zip(columns.values(), fields, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _rows_of(frame: Any) -> pa.Table:
    """The rows of a frame with its own types. Raises InvalidValueError for a frame of Spark's."""
    stream = stream_of(frame)
    if stream is not None:
        return stream.read_all()
    if not is_own(frame):
        raise InvalidValueError(
            f"{frame_text(frame)[:1].upper()}{frame_text(frame)[1:]} is not inserted row by row.",
            hint="Use session.write(frame, table).",
        )
    return arrow_of(frame)


def _is_row(row: object) -> bool:
    return isinstance(row, Sequence) and not isinstance(row, str | bytes)


def _check_widths(rows: Sequence[Any], schema: TableSchema) -> None:
    """Raise InvalidValueError unless each row has a value for each column."""
    wanted = len(schema.column_names)
    for number, row in enumerate(rows, 1):
        if not _is_row(row) or kind_of(row) == "row":
            raise InvalidValueError(
                f"Row {number} is not a tuple of {count_text(wanted, 'value')}: {shown(row)}",
                hint=f"The columns are {_wanted(schema)}. Give a list of tuples, or a list "
                "of dictionaries.",
            )
        if len(row) != wanted:
            raise InvalidValueError(
                f"Row {number} has {count_text(len(row), 'value')}, but the table has "
                f"{count_text(wanted, 'column')}.",
                hint=f"The columns are {_wanted(schema)}. To give only some, use dictionaries.",
            )


def _array(values: list[Any], field: pa.Field, schema: TableSchema, zone: str) -> pa.Array:
    """The values in the type of their column. Raises InvalidValueError for the first that does not
    fit."""
    converted = []
    for number, value in enumerate(values, 1):
        try:
            own = value_in_zone(plain(value), field.type, zone)
            why = misfit(own, field.type)
        except CutValueError as error:
            why = str(error)
        if why is not None:
            raise _unfit(value, number, schema.column(field.name), why)
        if isinstance(own, Decimal) and pa.types.is_floating(field.type):
            own = float(own)  # the nearest one, which is what these types have
        converted.append(own)
    try:
        return pa.array(converted, type=field.type)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        # A kind that the column takes, but too large for it.
        for number, value in enumerate(converted, 1):
            try:
                pa.array([value], type=field.type)
            except (pa.ArrowException, ValueError, TypeError, OverflowError):
                raise _unfit(values[number - 1], number, schema.column(field.name), "") from error
        raise


def _unfit(value: object, number: int, column: Column, why: str) -> InvalidValueError:
    because = f": {why}" if why else ""
    return InvalidValueError(
        f"Column `{column.name}` takes {to_spark_sql(column.type)}; {shown(value)} of row {number} "
        f"does not fit{because}.",
        hint=f"Nothing was written. Give {_taken(column.type)}.",
    )


def _taken(data_type: DataType) -> str:
    """The Python types that a column of that type takes, in words."""
    match data_type:
        case AtomicType(name=name) if name in INTEGER_BITS:
            most = 2 ** (INTEGER_BITS[name] - 1)
            return f"a whole number from {-most} to {most - 1}"
        case AtomicType(name="DECIMAL", parameters=(precision, scale)):
            before = count_text(precision - scale, "digit")
            return f"a Decimal of at most {before} before the decimal point and {scale} after it"
        case AtomicType(name=name):
            return _TAKEN.get(name, f"a value of the type {name}")
        case ArrayType(element=element):
            return f"a list of {to_spark_sql(element)}"
        case MapType(key=key, value=value):
            return f"a dictionary from {to_spark_sql(key)} to {to_spark_sql(value)}"
        case RowType(fields=fields):
            inner = ", ".join(f"'{field.name}' ({to_spark_sql(field.type)})" for field in fields)
            return f"a dictionary with the keys {inner}"
        case MultisetType() | VectorType():
            return f"a value of the type {to_spark_sql(data_type)}"


def _wanted(schema: TableSchema) -> str:
    return ", ".join(
        f"`{column.name}` {to_spark_sql(column.type)}{'' if column.type.nullable else ' NOT NULL'}"
        for column in schema.columns
    )


# Frames that Python holds: Spark's, Arrow's, pandas' or polars'.


def insert_of_frame(name: TableName, *, overwrite: bool = False) -> Insert:
    """`INSERT … BY NAME` of a frame. The text of its source is never read."""
    head = f"INSERT {'OVERWRITE' if overwrite else 'INTO'} "
    target = table_text(name)
    text = f"{head}{target} BY NAME SELECT * FROM frame"
    source = QueryText(TextRange(text.index("SELECT", len(head) + len(target)), len(text)))
    return Insert(text, 0, name, len(head), overwrite, source, by_name=True)


def write_frame_to(
    scope: StatementScope,
    frame: Any,
    name: TableName,
    mode: str | None = None,
    merging: Mapping[str, str] = MappingProxyType({}),
) -> Outcome:
    """Write `frame` to the table as `INSERT … BY NAME` does: columns match by name, missing columns
    get their default or NULL.

    Rows of this process are stored unchanged or refused; those of a Spark DataFrame are cast like a
    query's. `mode` is `append` (the default), `overwrite` (the whole table) or `dynamic` (the
    partitions that receive rows; without partitions, the whole table). `merging` are its options
    `write.merge-schema`. Raises InvalidValueError for another mode or a value that is not a frame,
    and what an INSERT raises.
    """
    check_mode(mode)
    check_written(scope, name, "INSERT")
    mode = mode or "append"
    insert = insert_of_frame(name, overwrite=mode != "append")
    partition_mode = "dynamic" if mode == "dynamic" else "static"
    # New columns need a type; values of the table's own columns are cast to theirs.
    spark_rows = spark_frame(scope.spark, frame, void=merge_rules(scope, merging) is None)
    rows = GivenRows(spark_rows, partition_mode, is_own(frame), merging)
    try:
        outcome = run_insert(scope, insert, {}, rows)
    except PaimonMagicsError as error:
        error.statement = error.position = None  # the user wrote no text to point at
        raise
    outcome.statement, outcome.query = f"write({name}, mode={mode!r})", ""
    outcome.notes = (*outcome.notes, *notes_on(frame))
    return outcome


def check_mode(mode: str | None) -> None:
    """Raise InvalidValueError if `mode` is not a `WriteMode`."""
    if mode is not None and mode not in _MODES:
        raise InvalidValueError(
            f"There is no mode '{mode}'.", hint=nearest(mode, _MODES, what="modes")
        )
