"""Statements that are passed to Spark: on its own tables and views, or of other kinds than ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.session.connection import Connection
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.parameters import bind
from paimon_magics.session.queries.frames import frame_of_views
from paimon_magics.session.queries.held_snapshots import HeldSnapshots
from paimon_magics.session.queries.resolution import is_paimon_table
from paimon_magics.session.refusals import instead_of
from paimon_magics.spark.queries import cancellable, is_temporary_view, known_to_spark
from paimon_magics.statements.grammar.spark_passthrough import leading_words
from paimon_magics.statements.kinds import Statement
from paimon_magics.statements.merge_into import MergeInto
from paimon_magics.statements.row_changes import Delete, Update
from paimon_magics.statements.statement import (
    CreateTable,
    PassThrough,
    QueryText,
    TableName,
    TextRange,
)
from paimon_magics.statements.subjects import subject_of
from paimon_magics.statements.table_changes import AlterTable, RenameTable

__all__ = ["is_for_spark", "pass_to_spark"]


def is_for_spark(connection: Connection, statement: Statement) -> bool:
    """Whether Spark runs the statement: it is about a table that only Spark has, or of a kind that
    is passed on."""
    match statement:
        case CreateTable(using=using):
            return using not in (None, "paimon")
        case PassThrough():
            return True
        case _:
            name = subject_of(statement).table
            return name is not None and _is_sparks(connection, name)


def pass_to_spark(
    connection: Connection, statement: Statement, parameters: Mapping[str, object]
) -> Outcome:
    """Run the statement's text in Spark, with views for the Paimon tables that its query reads.

    Raises UnsupportedStatementError if the statement would act on a Paimon table.
    """
    match statement:
        case PassThrough():
            _refuse_paimon(connection, statement)
        case CreateTable(name=name, name_position=position):
            _refuse_shadow(connection, statement, name, position)
        case Delete() | Update() | MergeInto():
            _refuse_view(connection, statement)
        case AlterTable(name=name, changes=(RenameTable(new_name=new_name),)):
            target = replace(new_name, database=new_name.database or name.database)
            _refuse_shadow(connection, statement, target, statement.name_position)
    query = _whole(statement)
    bound = bind(query.parameters, parameters, statement.text, connection.zone)
    held = HeldSnapshots(connection.committer)
    try:
        with cancellable(connection.spark):  # Spark runs commands at once
            frame = frame_of_views(connection, statement.text, query, held, bound)
        held.noted(frame)
    finally:
        held.release()
        connection.views.drop_passing()
    if not frame.columns:
        message = f"Spark ran {leading_words(statement.text)}; it returns no rows."
        return Outcome(statement.text, "Spark statement", message=message)
    return Outcome(
        statement.text,
        "Spark statement",
        dataframe=frame,
        display_rows=connection.settings.display_rows,
    )


def _is_sparks(connection: Connection, name: TableName) -> bool:
    if name.catalog is not None:
        return name.catalog != connection.settings.catalog_name
    if name.database is None and is_temporary_view(connection.spark, name.object_name):
        return True
    if is_paimon_table(connection, connection.full_name(name)):
        return False
    parts = [part for part in (name.database, name.object_name) if part is not None]
    return known_to_spark(connection.spark, parts)


def _refuse_paimon(connection: Connection, statement: PassThrough) -> None:
    word = statement.text.split(None, 1)[0].upper()
    for name, position in statement.names:
        if name.catalog in (None, connection.settings.catalog_name) and is_paimon_table(
            connection, connection.full_name(name)
        ):
            raise UnsupportedStatementError(
                f"{word} is not offered for Paimon's table `{name}`.",
                hint=instead_of(word),
                statement=statement.text,
                position=position,
            )
        if word == "OPTIMIZE" and not _is_sparks(connection, name):
            connection.load(name, statement.text, position)  # raises: there is no such table


def _refuse_view(connection: Connection, statement: Delete | Update | MergeInto) -> None:
    """Refuse to change the rows of a temporary view, of which Spark says something unclear."""
    name = statement.target
    if name.catalog or name.database or not is_temporary_view(connection.spark, name.object_name):
        return
    raise UnsupportedStatementError(
        f"`{name}` is a temporary view: it has no rows of its own to be changed.",
        hint="Name the table that it reads.",
        statement=statement.text,
        position=statement.target_position,
    )


def _refuse_shadow(
    connection: Connection, statement: Statement, name: TableName, position: int
) -> None:
    """Refuse to create a Spark table under a Paimon table's name: queries would not find it."""
    if name.catalog in (None, connection.settings.catalog_name) and is_paimon_table(
        connection, connection.full_name(name)
    ):
        full = connection.full_name(name)
        raise UnsupportedStatementError(
            f"`{full}` is a Paimon table: one of Spark's own would not be found under its name.",
            hint="Choose another name, or name Spark's in full: "
            f"spark_catalog.{full.database}.{full.table}.",
            statement=statement.text,
            position=position,
        )


def _whole(statement: Statement) -> QueryText:
    """The statement's whole text as a query text, with the references of its query."""
    inner = subject_of(statement).query
    everything = TextRange(0, len(statement.text))
    if inner is None:
        return QueryText(range=everything)
    return QueryText(range=everything, references=inner.references, parameters=inner.parameters)
