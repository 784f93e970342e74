"""Statements that only read: queries, and temporary views of them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from paimon_magics.errors import InvalidValueError, PaimonMagicsError
from paimon_magics.planning.formatting import count_text
from paimon_magics.session.bound_values import with_values
from paimon_magics.session.connection import Connection, located
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.parameters import bind
from paimon_magics.session.planned_work import made_of
from paimon_magics.session.queries.frames import frame_of_query
from paimon_magics.session.queries.narrow_views import note_view
from paimon_magics.session.queries.table_frames import frame_of_plain_query
from paimon_magics.session.statements.handler import Handler
from paimon_magics.session.statements.read_plans import query_lines
from paimon_magics.spark.failures import translate
from paimon_magics.spark.printed_plans import printed_plan
from paimon_magics.statements.queries.plain_queries import plain_query
from paimon_magics.statements.statement import CreateTemporaryView, Query
from paimon_magics.statements.subjects import subject_of

if TYPE_CHECKING:
    from paimon_magics.spark.frame_sources import Source
    from paimon_magics.spark.handles import DataFrame

__all__ = ["query_handler", "view_handler"]


def query_handler(
    connection: Connection,
    statement: Query,
    parameters: Mapping[str, object],
    *,
    include_buffer: bool = False,
) -> Handler:
    """SELECT, WITH, VALUES, TABLE."""

    def dry_run() -> str:
        frame = frame_of_query(connection, statement.text, statement.query, parameters)
        count = count_text(len(frame.columns), "column")
        return f"Would return {count}: {', '.join(frame.columns)}."

    def explain(mode: str) -> list[str]:
        lines = query_lines(connection, statement.text, statement.query, parameters)
        frame = frame_of_query(connection, statement.text, statement.query, parameters)
        return [*lines, *([""] if lines else []), *_spark_plan(frame, mode)]

    return Handler(
        run=lambda: _run(connection, statement, parameters, include_buffer),
        dry_run=dry_run,
        explain=explain,
        preview=None,
        unconfirmed=None,
        needs=subject_of(statement).sources,
    )


def view_handler(
    connection: Connection, statement: CreateTemporaryView, parameters: Mapping[str, object]
) -> Handler:
    """CREATE TEMPORARY VIEW."""
    return Handler(
        run=lambda: _create_view(connection, statement, parameters),
        dry_run=None,
        explain=None,
        preview=None,
        unconfirmed=None,
    )


def _run(
    connection: Connection,
    statement: Query,
    parameters: Mapping[str, object],
    include_buffer: bool,
) -> Outcome:
    frame = frame_of_query(
        connection, statement.text, statement.query, parameters, include_buffer=include_buffer
    )
    text = statement.text
    if parameters and statement.query.parameters:
        names = statement.query.parameters
        text = with_values(text, bind(names, parameters, text, connection.zone))
    return Outcome(
        statement.text,
        "SELECT",
        dataframe=frame,
        display_rows=connection.settings.display_rows,
        # No SQL can give rows that are not loaded yet.
        query="" if include_buffer else text,
    )


def _create_view(
    connection: Connection, statement: CreateTemporaryView, parameters: Mapping[str, object]
) -> Outcome:
    frame, source = _frame_of_new_view(connection, statement, parameters)
    try:
        if statement.or_replace:
            frame.createOrReplaceTempView(statement.name)
        else:
            frame.createTempView(statement.name)
    except Exception as error:
        raise located(translate(error), statement.text, 0) from error
    connection.view_frames[statement.name] = frame
    note_view(connection, statement.name, source)
    return Outcome(
        statement.text,
        "CREATE TEMPORARY VIEW",
        message=f"Temporary view `{statement.name}` created.",
        notes=("It reads the Paimon tables' snapshots of this moment.",),
    )


def _frame_of_new_view(
    connection: Connection, statement: CreateTemporaryView, parameters: Mapping[str, object]
) -> tuple[DataFrame, Source | None]:
    plain = plain_query(statement.text, statement.query)
    if plain is not None:
        # Whatever is wrong with the query is told of the query as a whole.
        with contextlib.suppress(PaimonMagicsError):
            found = frame_of_plain_query(connection, statement.text, plain, statement.columns)
            if found is not None:
                return found
    frame = frame_of_query(connection, statement.text, statement.query, parameters)
    names = statement.columns
    if names is None:
        return frame, None
    if len(names) != len(frame.columns):
        given = count_text(len(names), "column")
        raise InvalidValueError(
            f"View `{statement.name}` names {given}, and its query gives {len(frame.columns)}.",
            hint=f"The query's columns are: {', '.join(frame.columns)}.",
        )
    return made_of(frame.toDF(*names), frame), None


def _spark_plan(frame: DataFrame, mode: str) -> list[str]:
    named = (mode or "simple").lower().replace("logical", "extended")
    return printed_plan(frame, named).rstrip().splitlines()
