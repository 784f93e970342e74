"""INSERT INTO: rows are added, or, into a table with `upsert-key`, merged in by that key.

Such an INSERT is a MERGE of its rows into the table, as in Paimon's connector: a row takes the
place of the one that is equal in the columns of the key (NULL equals NULL), unless that has a
greater sequence (`sequence.field`). Of several rows of one key in a statement the one with the
greatest sequence is taken, and of those the last.

Source: `RewriteUpsertTable`, which compares several sequence fields one by one with those of the
table, and in order among the rows of a statement; here they are compared in order, as in tables
with a primary key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from paimon_magics.errors import PaimonMagicsError, UnsupportedStatementError
from paimon_magics.planning.schemas.table_schema import TableSchema, column_list
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.planned_work import made_of
from paimon_magics.session.scope import StatementScope
from paimon_magics.session.writes.insert import run_prepared
from paimon_magics.session.writes.merged_schemas import merge_columns
from paimon_magics.session.writes.merging import run_merge
from paimon_magics.session.writes.prepare import PreparedInsert, prepare_insert
from paimon_magics.spark.rows import last_rows
from paimon_magics.statements.clauses.names import quoted, table_text
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.row_changes import MergeInto
from paimon_magics.statements.statement import Insert

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame


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
    outcome = run_planned(scope, insert, prepared)
    outcome.notes = (*merged, *outcome.notes)
    return outcome


def run_planned(scope: StatementScope, insert: Insert, prepared: PreparedInsert) -> Outcome:
    """Run a planned INSERT. See `run_insert`."""
    schema = prepared.table.schema
    keys = _upsert_keys(schema)
    if insert.overwrite or not keys:
        return run_prepared(scope, insert, prepared)
    if prepared.read_set is not None:
        raise UnsupportedStatementError(
            f"`{prepared.table.name}` has 'upsert-key' = '{schema.stored_option('upsert-key')}', "
            "and this INSERT reads the table that it writes: what others change meanwhile could "
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
    """The columns in which rows are equal that replace each other; () where rows are added."""
    return () if schema.is_primary_key_table else column_list(schema.stored_option("upsert-key"))


def _merge_text(
    prepared: PreparedInsert, keys: tuple[str, ...], sequence: tuple[str, ...], *, ascending: bool
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
