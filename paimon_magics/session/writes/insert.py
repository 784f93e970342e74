"""INSERT, of a statement or of a frame that Python holds: plan, write, commit; or leave the table
as it was (`session/writes/transactions.py`).

A statement that adds rows may find that another commit has made its plan outdated. Nothing is
published then, and it is planned and run again (`run_prepared`). A statement that replaces rows is
not run again: it would also replace rows that were written meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from paimon_magics.coordinator.client.interface import Attempts
from paimon_magics.coordinator.client.small_inserts import SmallInserts
from paimon_magics.errors import (
    InvalidValueError,
    PaimonMagicsError,
    UnsupportedStatementError,
    nearest,
)
from paimon_magics.planning.commits.requests import Append, InsertChange, OverwriteTouched
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.schemas.table_schema import TableSchema, column_list
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.planned_work import made_of
from paimon_magics.session.provenance import Operation
from paimon_magics.session.python_frames import is_own, notes_on, spark_frame
from paimon_magics.session.scope import StatementScope
from paimon_magics.session.settings_checks import check_written
from paimon_magics.session.writes.insert_input import given_table
from paimon_magics.session.writes.merged_schemas import merge_columns
from paimon_magics.session.writes.merging import run_merge
from paimon_magics.session.writes.outcomes import finished, of_write, with_losses, write_outcome
from paimon_magics.session.writes.prepare import PreparedWrite, fetched_values, prepare_insert
from paimon_magics.session.writes.small_inserts import (
    PendingInsert,
    at_once_note,
    check_wait,
    inserts_of,
    send_to_log,
    why_not_logged,
)
from paimon_magics.session.writes.transactions import run_again
from paimon_magics.session.writes.write_jobs import run_job, run_write
from paimon_magics.spark.rows import last_rows
from paimon_magics.spark.writing import JobWritten
from paimon_magics.statements.clauses.names import quoted, table_text
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.row_changes import MergeInto
from paimon_magics.statements.statement import Insert, QueryText, TableName, TextRange
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.writing.write_spec import WriteSpec
from paimon_magics.tables.writing.writer import write_batches

if TYPE_CHECKING:
    import pyarrow as pa

    from paimon_magics.spark.handles import DataFrame


WriteMode = Literal["append", "overwrite", "dynamic"]
_MODES = ("append", "overwrite", "dynamic")


def run_insert(
    scope: StatementScope,
    insert: Insert,
    parameters: Mapping[str, object],
    *,
    frame: DataFrame | None = None,
    mode: str | None = None,
    own_rows: bool = False,
) -> Outcome:
    """Run an INSERT as one transaction.

    `frame`, if given, replaces the statement's source; `own_rows` says that a program gave its
    rows. `mode`, static or dynamic, replaces Spark's partitionOverwriteMode.

    Raises errors of ours: for a statement that does not fit the table, before anything is written;
    JobError or InvalidValueError if the job fails; CommitConflictError if the commit does.
    """
    merged = merge_columns(scope, insert, parameters, frame)
    prepared = prepare_insert(scope, insert, parameters, frame=frame, mode=mode, own_rows=own_rows)
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
        partial(_write, scope, insert),
        lambda outdated: outdated.again(),
        reruns_max=scope.settings.conflict_reruns_max,
        may_run_again=lambda outdated: _may_run_again(outdated.change),
    )


def _run_planned(scope: StatementScope, insert: Insert, prepared: PreparedWrite) -> Outcome:
    keys = _upsert_keys(prepared.table.schema)
    if insert.overwrite or not keys:
        return run_prepared(scope, insert, prepared)
    return _run_upsert(scope, insert, prepared, keys)


def _may_run_again(change: InsertChange) -> bool:
    """Whether a statement that is planned again does what was asked for."""
    return isinstance(change, Append) or (
        isinstance(change, OverwriteTouched) and change.only_unchanged
    )


def _write(
    scope: StatementScope, insert: Insert, prepared: PreparedWrite, attempts: Attempts
) -> Outcome:
    rows = _rows_of_values(insert, prepared)

    def write(current: PreparedWrite, task: WriteSpec) -> JobWritten:
        values = rows if current is prepared else _rows_of_values(insert, current)
        if values is None:
            return run_job(scope, current, task)
        manifests = scope.manifests(current.table)
        written = write_batches(task, values.to_batches(), manifests=manifests)
        return JobWritten(written, repeated_attempts=False)

    kind = "INSERT OVERWRITE" if insert.overwrite else "INSERT"
    current, receipt, files = run_write(
        scope,
        prepared,
        attempts,
        insert.text,
        write,
        lambda files: Operation(kind, inserted=files.rows),
    )
    kind = "INSERT OVERWRITE" if insert.overwrite else "INSERT INTO"
    done = f"{count_text(files.rows, 'row')} written"
    outcome = write_outcome(insert.text, kind, current.table, receipt, of_write(files), done)
    outcome = with_losses(outcome, current.table, files.losses)
    return finished(
        scope,
        outcome,
        current.table,
        files.buckets,
        overwrote=not isinstance(current.change, Append),
        files_each=files.files_each,
    )


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
    import pyarrow as pa

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


# Frames that Python holds: Spark's, Arrow's, pandas' or polars'.


def insert_of_frame(name: TableName, *, overwrite: bool = False) -> Insert:
    """`INSERT … BY NAME` of a frame. The text of its source is never read."""
    head = f"INSERT {'OVERWRITE' if overwrite else 'INTO'} "
    target = table_text(name)
    text = f"{head}{target} BY NAME SELECT * FROM frame"
    source = QueryText(TextRange(text.index("SELECT", len(head) + len(target)), len(text)))
    return Insert(text, 0, name, len(head), overwrite, source, by_name=True)


def write_frame_to(
    scope: StatementScope, frame: Any, name: TableName, mode: str | None = None
) -> Outcome:
    """Write `frame` to the table as `INSERT … BY NAME` does: columns match by name, missing columns
    get their default or NULL.

    Rows of this process are stored unchanged or refused; those of a Spark DataFrame are cast like a
    query's. `mode` is `append` (the default), `overwrite` (the whole table) or `dynamic` (the
    partitions that receive rows; without partitions, the whole table). Raises InvalidValueError for
    another mode or a value that is not a frame, and what an INSERT raises.
    """
    check_mode(mode)
    check_written(scope, name, "INSERT")
    mode = mode or "append"
    insert = insert_of_frame(name, overwrite=mode != "append")
    partition_mode = "dynamic" if mode == "dynamic" else "static"
    rows = spark_frame(scope.spark, frame)
    try:
        outcome = run_insert(
            scope, insert, {}, frame=rows, mode=partition_mode, own_rows=is_own(frame)
        )
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


# INSERT INTO a table with `upsert-key`.
#
# Such an INSERT is a MERGE of its rows into the table, as in Paimon's connector. A row replaces the
# stored row with an equal key (NULL equals NULL), unless that row has a greater sequence
# (`sequence.field`). Of several rows of one key in a statement, the row with the greatest sequence
# is taken, and of those the last.
#
# Source: `RewriteUpsertTable`, which compares several sequence fields one by one with those of the
# table, and in order among the rows of a statement; here they are compared in order, as in tables
# with a primary key.


def _run_upsert(
    scope: StatementScope, insert: Insert, prepared: PreparedWrite, keys: tuple[str, ...]
) -> Outcome:
    schema = prepared.table.schema
    if prepared.read_set is not None:
        raise UnsupportedStatementError(
            f"`{prepared.table.name}` has 'upsert-key' = '{schema.stored_option('upsert-key')}', "
            "and this INSERT reads the table that it writes: concurrent changes of others could "
            "be lost.",
            hint="Write MERGE INTO, which reads the table once.",
            statement=insert.text,
            position=insert.target_position,
        )
    prepared.check()
    sequence = schema.sequence_fields
    ascending = (schema.option("sequence.field.sort-order") or "ascending") != "descending"
    rows = last_rows(prepared.frame, keys, sequence, ascending=ascending)
    made_of(rows, prepared.frame)
    merge = parse_statement(_merge_text(prepared, keys, sequence, ascending=ascending))
    assert isinstance(merge, MergeInto)
    try:
        outcome = run_merge(scope, merge, {}, rows)
    except PaimonMagicsError as error:
        if error.statement == merge.text:  # the user wrote another one
            error.statement, error.position = insert.text, insert.target_position
        raise
    outcome.statement, outcome.query, outcome.kind = insert.text, None, "INSERT INTO"
    outcome.message = f"INSERT INTO{outcome.message.removeprefix('MERGE INTO')}"
    return outcome


def _upsert_keys(schema: TableSchema) -> tuple[str, ...]:
    """The columns of the key by which a row replaces another; () if rows are only added."""
    return () if schema.is_primary_key_table else column_list(schema.stored_option("upsert-key"))


def _merge_text(
    prepared: PreparedWrite, keys: tuple[str, ...], sequence: tuple[str, ...], *, ascending: bool
) -> str:
    same = " AND ".join(f"t.{quoted(key)} <=> s.{quoted(key)}" for key in keys)
    newer = ""
    if sequence:
        before, after = (
            f"struct({', '.join(f'{side}.{quoted(name)}' for name in sequence)})" for side in "ts"
        )
        newer = f" AND {before} {'<=' if ascending else '>='} {after}"
    return (
        f"MERGE INTO {table_text(prepared.table.name)} AS t USING frame AS s ON {same} "
        f"WHEN MATCHED{newer} THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
