"""CREATE TABLE: new tables, of columns, a query or another table's definition; and tables that it
replaces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from paimon_magics.errors import (
    PaimonMagicsError,
    StatementError,
    UnconfirmedError,
    UnknownNameError,
    nearest,
)
from paimon_magics.planning.commits.expiry import TIME_RETAINED, retention_note, with_time_retained
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.schemas.replacements import copied_definition
from paimon_magics.planning.schemas.rules import check_stated
from paimon_magics.planning.schemas.table_schema import TableSchema, plan_create_table
from paimon_magics.planning.writes.inserts import check_writable, uniqueness_note
from paimon_magics.session.inserts.insert import run_insert
from paimon_magics.session.inserts.new_tables import filled
from paimon_magics.session.inserts.replaced_tables import (
    PlannedReplacement,
    check_replaceable,
    kind_of,
    replace_table,
)
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.parameters import bind
from paimon_magics.session.queries.frames import frame_of_query
from paimon_magics.session.queries.planned_reads import table_of
from paimon_magics.session.queries.relations import Relation, relation_of
from paimon_magics.session.queries.resolution import tell_of_two
from paimon_magics.session.queries.spark_calls import own_name
from paimon_magics.session.scope import StatementScope, errors_located
from paimon_magics.session.statements.confirmations import loss_of_table
from paimon_magics.session.statements.handler import SEE_PREVIEW, Handler, done, unconfirmed
from paimon_magics.session.writes.outcomes import Replaced, rows_taken
from paimon_magics.spark.handles import DataFrame
from paimon_magics.spark.queries import known_to_spark, query_frame
from paimon_magics.spark.types import columns_of, declared_columns, declared_schema
from paimon_magics.statements.data_types import RowField
from paimon_magics.statements.queries.rewriting import current_names
from paimon_magics.statements.statement import (
    ColumnDefinition,
    CreateTable,
    Insert,
    QueryText,
    TableName,
)
from paimon_magics.tables.commits.replaced_partitions import sizes_of_replaced

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame


def create_table_handler(
    scope: StatementScope, statement: CreateTable, parameters: Mapping[str, object]
) -> Handler:
    """CREATE TABLE and REPLACE TABLE, with or without a query."""

    def replaced() -> Replaced:
        table = scope.load(statement.name, statement.text, statement.name_position)
        return Replaced(table, sizes_of_replaced(table, specs=()))

    exists = statement.or_replace and _exists(scope, statement)
    return Handler(
        run=lambda: _create_table(scope, statement, parameters),
        dry_run=lambda: _checked(scope, statement, parameters),
        preview=replaced if exists else None,
        unconfirmed=lambda mode: _unconfirmed(scope, statement, parameters) if exists else None,
        changed=(lambda: (statement.name,)) if exists else tuple,
        needs=() if statement.like is None else (statement.like,),
        creates=statement.name,
    )


def _exists(scope: StatementScope, statement: CreateTable) -> bool:
    return scope.tables.exists(scope.full_name(statement.name))


def _unconfirmed(
    scope: StatementScope, statement: CreateTable, parameters: Mapping[str, object]
) -> UnconfirmedError | None:
    """The question before a table is dropped because its partition columns change."""
    planned = _planned_replacement(scope, statement, parameters)
    loss = "" if planned.is_in_place else loss_of_table(scope, planned.table)
    if not loss:
        return None
    instead = (
        "The table would get other partition columns, so that its snapshots, tags and branches are "
        f"deleted with it. {SEE_PREVIEW}"
    )
    what = f"{kind_of(statement)} `{planned.table.name}`"
    return unconfirmed(statement, what, loss, instead)


def _planned(
    scope: StatementScope, statement: CreateTable, parameters: Mapping[str, object]
) -> tuple[TableSchema, DataFrame | None]:
    """The schema that the statement asks for, and the rows of its query."""
    frame = columns = None
    definition = statement
    if statement.query is not None:
        frame = frame_of_query(scope.filling(), statement.text, statement.query, parameters)
        columns = columns_of_query(scope, statement.text, statement.query, parameters, frame)
    elif statement.like is not None:
        definition = _copied(scope, statement, statement.like)
    with errors_located(statement.text, statement.name_position):
        schema = with_time_retained(
            plan_create_table(definition, columns, scope.catalog.table_defaults),
            scope.settings.snapshot_time_retained,
        )
        check_stated(schema)
        if statement.query is not None:
            check_writable(scope.full_name(statement.name), schema)
    return schema, frame


def _copied(scope: StatementScope, statement: CreateTable, like: TableName) -> CreateTable:
    """CREATE TABLE … LIKE with the definition of its table, which may be one of Spark's own."""
    if like.catalog in (None, scope.settings.catalog_name):
        full = scope.full_name(like)
        if scope.tables.exists(full) or like.branch is not None:
            table = scope.load(full, statement.text, statement.like_position)
            return copied_definition(statement, table.schema)
    parts = [part for part in (like.catalog, like.database, like.object_name) if part is not None]
    if not known_to_spark(scope.spark, parts):
        scope.load(like, statement.text, statement.like_position)  # says what is missing
    frame = scope.spark.table(own_name(scope, like) or f"`{like.object_name}`")
    columns = columns_of(frame.schema)
    return copied_definition(
        statement,
        plan_create_table(
            CreateTable(
                statement.text,
                statement.offset,
                statement.name,
                statement.name_position,
                columns=tuple(ColumnDefinition(c.name, c.type, c.comment) for c in columns),
            )
        ),
    )


def _planned_replacement(
    scope: StatementScope, statement: CreateTable, parameters: Mapping[str, object]
) -> PlannedReplacement:
    """The replacement of the table, which exists. Raises for one that is not possible."""
    table = scope.load(statement.name, statement.text, statement.name_position)
    schema, frame = _planned(scope, statement, parameters)
    planned = PlannedReplacement(table, schema, frame)
    with errors_located(statement.text, statement.name_position):
        check_replaceable(scope, planned)
    return planned


def _checked(
    scope: StatementScope, statement: CreateTable, parameters: Mapping[str, object]
) -> str:
    name = scope.full_name(statement.name)
    if statement.or_replace and _exists(scope, statement):
        planned = _planned_replacement(scope, statement, parameters)
        if not planned.is_in_place:
            lost = loss_of_table(scope, planned.table) or "nothing"
            return f"Would drop `{name}` with {lost}, and create it anew without history."
        lost = rows_taken(sizes_of_replaced(planned.table, specs=()))
        return f"Would replace `{name}`, which has {lost}, and keep its history."
    _check_missing(scope, statement)
    schema, _ = _planned(scope, statement, parameters)
    kind = "primary-key" if schema.is_primary_key_table else "append"
    return (
        f"Would create the {kind} table `{name}` with {count_text(len(schema.columns), 'column')}."
    )


def _check_missing(scope: StatementScope, statement: CreateTable) -> None:
    """Raise UnknownNameError for REPLACE TABLE without a table."""
    if not statement.must_exist:
        return
    name = scope.full_name(statement.name)
    others = scope.catalog.list_tables(name.database or "")
    near = nearest(name.table, others, what="tables")
    raise UnknownNameError(
        f"There is no table `{name}` to replace.",
        hint=f"{near} CREATE OR REPLACE TABLE creates a table that is missing.".strip(),
        statement=statement.text,
        position=statement.name_position,
    )


def _create_table(
    scope: StatementScope, statement: CreateTable, parameters: Mapping[str, object]
) -> Outcome:
    name = scope.full_name(statement.name)
    exists = _exists(scope, statement)
    if exists and statement.or_replace:
        return _replace(scope, statement, parameters)
    _check_missing(scope, statement)
    if exists and statement.if_not_exists:
        return done(statement, "CREATE TABLE", name, f"Table `{name}` exists already.")
    if exists and statement.like is not None:
        raise StatementError(
            f"The table `{name}` exists already.",
            hint="Use CREATE TABLE IF NOT EXISTS, drop the table first, or choose another name.",
            statement=statement.text,
            position=statement.name_position,
        )
    scope.catalog.check_place()  # the coordinator may have gone along when that was moved
    schema, _ = _planned(scope, statement, parameters)
    with errors_located(statement.text, statement.name_position):
        created = scope.definitions.create_table(
            name, schema, if_not_exists=statement.if_not_exists
        )
    if not created:
        return done(statement, "CREATE TABLE", name, f"Table `{name}` exists already.")
    if known_to_spark(scope.spark, [name.database or "", name.object_name]):
        tell_of_two(scope, name)
    if statement.query is None:
        outcome = done(statement, "CREATE TABLE", name, f"Table `{name}` created.")
    else:
        outcome = _fill(scope, statement, name, parameters)
    outcome.notes = (*outcome.notes, *_notes(schema))
    return outcome


def _notes(schema: TableSchema) -> tuple[str, ...]:
    """What the user of a new definition may need to know."""
    notes = []
    if schema.stored_option(TIME_RETAINED) is None and (note := retention_note(schema)):
        notes.append(note)
    if note := uniqueness_note(schema):
        notes.append(note)
    return tuple(notes)


def _replace(
    scope: StatementScope, statement: CreateTable, parameters: Mapping[str, object]
) -> Outcome:
    planned = _planned_replacement(scope, statement, parameters)
    with errors_located(statement.text, statement.name_position):
        outcome = replace_table(scope, statement, planned)
    outcome.notes = (*outcome.notes, *_notes(planned.schema))
    return outcome


def _fill(
    scope: StatementScope,
    statement: CreateTable,
    name: TableName,
    parameters: Mapping[str, object],
) -> Outcome:
    """Write the rows of CREATE TABLE's AS query."""
    assert statement.query is not None
    insert = Insert(
        text=statement.text,
        offset=statement.offset,
        target=name,
        target_position=statement.name_position,
        overwrite=False,
        source=statement.query,
    )
    return filled(scope, name, lambda: run_insert(scope, insert, parameters))


# The types and comments of a query's columns, as the tables that it reads declare them.
#
# Spark knows of a CHAR(n) or VARCHAR(n) column as a text with a member of its metadata. A column
# that a query hands on keeps its metadata, comments among them. So CREATE TABLE AS asks Spark
# about the query on tables without rows whose columns have them (`CharVarcharUtils.getRawSchema`).


def columns_of_query(
    scope: StatementScope,
    statement: str,
    query: QueryText,
    parameters: Mapping[str, object],
    frame: DataFrame,
) -> tuple[RowField, ...]:
    """The columns of a table for the rows of `frame`, the query's.

    Raises UnsupportedStatementError for a Spark type that Paimon has no counterpart for.
    """
    columns = columns_of(frame.schema)
    declared = _declared(scope, statement, query, parameters)
    if declared is None or [field.name for field in declared] != frame.columns:
        return columns
    return declared


def _declared(
    scope: StatementScope, statement: str, query: QueryText, parameters: Mapping[str, object]
) -> tuple[RowField, ...] | None:
    """The columns as the tables declare them. None if the query reads something else."""
    spark = scope.spark
    bound = bind(query.parameters, parameters, statement, scope.zone)
    views = []
    try:
        for reference in query.references:
            relation = relation_of(scope, reference, statement, bound)
            if not isinstance(relation, Relation) or relation.name.system_table is not None:
                return None
            columns = table_of(scope, relation).schema.columns
            empty = spark.createDataFrame([], schema=declared_schema(columns))
            views.append((reference, scope.views.pass_by(empty)))
        names = current_names(statement, query, scope.settings.catalog_name, scope.database)
        planned = query_frame(spark, statement, query, views, bound, names)
        return declared_columns(planned.schema)
    except PaimonMagicsError:
        return None  # such as a table of another moment: the rows themselves tell
    finally:
        scope.views.drop_passing()
