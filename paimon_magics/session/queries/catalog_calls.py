"""Calls in any statement that Spark can't look up, before the statement is planned.

`sys.max_pt('t')` becomes its value. Source: Paimon's `ReplacePaimonFunctions`; partitions without
files don't count. A function that the catalog keeps becomes a temporary function of Spark's, named
`` `database.function` ``. Names mean, in Spark's order: a function that Spark has built in, a
temporary one, the catalog's, and last one of Spark's own catalog.
"""

from __future__ import annotations

import re
from dataclasses import replace

from paimon_magics.errors import (
    InvalidValueError,
    PaimonMagicsError,
    StatementError,
    UnknownNameError,
    UnsupportedStatementError,
    likely_meant,
    nearest,
)
from paimon_magics.session.catalog_views import SPARK_SETTING, CatalogFunction
from paimon_magics.session.scope import StatementScope, errors_located, errors_translated
from paimon_magics.spark.queries import function_exists
from paimon_magics.spark.views import FUNCTION_SETTINGS
from paimon_magics.statements.clauses.names import named, quoted, text_literal
from paimon_magics.statements.completion.words import FUNCTIONS
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.lexing.tokens import tokenize
from paimon_magics.statements.queries.rewriting import called_names, newest_partitions, rewrite
from paimon_magics.statements.statement import TableName, TextRange
from paimon_magics.statements.subjects import Statement
from paimon_magics.statements.types.type_text import to_spark_sql
from paimon_magics.tables.manifests.partitions import list_partitions, partition_value_text

_COMMON = frozenset(name.upper() for name in FUNCTIONS)
_FUNCTIONS_INSIDE_MAX = 32
_UNKNOWN = re.compile(r"There is no function `(.*)`\.")


def with_spark_calls(scope: StatementScope, statement: Statement) -> Statement:
    """The statement with calls that Spark can look up.

    Raises InvalidValueError for an argument of `max_pt` that is no text, and for a table without
    partitions; UnknownNameError for a table or function that does not exist;
    UnsupportedStatementError for a function that can't be called here.
    """
    text = statement.text
    replacements = [
        *_newest_values(scope, text),
        *(
            (place, quoted(spark_function(scope, function)))
            for place, function in kept_calls(scope, text, scope.database)
        ),
    ]
    if not replacements:
        return statement
    rewritten = rewrite(text, TextRange(0, len(text)), replacements)
    return replace(parse_statement(rewritten.text), offset=statement.offset)


def _newest_values(scope: StatementScope, text: str) -> list[tuple[TextRange, str]]:
    calls = newest_partitions(text)
    values = []
    for call in calls:
        with errors_located(text, call.range.start):
            if call.table is None:
                raise UnsupportedStatementError(
                    "max_pt takes the name of a table as a text in quotes.",
                    hint="For example WHERE day = sys.max_pt('orders').",
                )
            values.append((call.range, text_literal(_newest(scope, call.table))))
    return values


# Functions that the catalog keeps.


def kept_calls(
    scope: StatementScope, text: str, database: str
) -> list[tuple[TextRange, CatalogFunction]]:
    """The calls in a text of functions that the catalog keeps, by the ranges of their names; names
    without a database are of `database`. Raises UnknownNameError for a function that a database of
    Paimon's should have."""
    if scope.stored_views is None:
        return []
    meanings: dict[tuple[str, ...], CatalogFunction | None] = {}
    calls = []
    for parts, place in called_names(text, _COMMON):
        if parts not in meanings:
            with errors_located(text, place.start):
                meanings[parts] = _meaning(scope, parts, database)
        function = meanings[parts]
        if function is not None:
            calls.append((place, function))
    return calls


def _meaning(
    scope: StatementScope, parts: tuple[str, ...], database: str
) -> CatalogFunction | None:
    *qualifiers, function = parts
    if not qualifiers:
        if scope.views.is_own_function(function):
            return None
        return scope.find_function(TableName(function, database))
    if len(qualifiers) > 2 or qualifiers[:-1] not in ([], [scope.settings.catalog_name]):
        return None
    database = qualifiers[-1]
    meant = scope.find_function(TableName(function, database))
    if meant is None and scope.catalog.database_exists(database):
        if len(qualifiers) == 1 and function_exists(scope.spark, parts):
            return None
        raise missing_function(scope, TableName(function, database))
    return meant


def meant_function(scope: StatementScope, name: TableName) -> CatalogFunction | None:
    """The catalog's function that a name in a statement means; None for Spark's."""
    parts = tuple(part for part in (name.catalog, name.database, name.table) if part is not None)
    return None if scope.stored_views is None else _meaning(scope, parts, scope.database)


def missing_function(scope: StatementScope, name: TableName) -> UnknownNameError:
    """The error for a function that the catalog does not keep."""
    names = scope.list_functions(name.database or "")
    return UnknownNameError(
        f"There is no function `{name}`.", hint=nearest(name.table, names, what="functions")
    )


def spark_function(
    scope: StatementScope, function: CatalogFunction, callers: tuple[TableName, ...] = ()
) -> str:
    """The temporary function by which Spark calls a function of the catalog, and those that it
    calls. `callers` are the functions whose bodies call it, each one from the one before.

    Raises UnsupportedStatementError for a function that calls itself, that reads tables, that has
    no definition in SQL, or that was made for another `spark.sql.ansi.enabled`.
    """
    name = function.name
    if name in callers or len(callers) >= _FUNCTIONS_INSIDE_MAX:
        path = " → ".join(f"`{each}`" for each in (*callers, name))
        raise UnsupportedStatementError(
            f"The function `{name}` calls itself: {path}."
            if name in callers
            else f"More than {_FUNCTIONS_INSIDE_MAX} functions call each other: {path}.",
            hint="CREATE OR REPLACE FUNCTION gives one of them another expression.",
        )
    body = function.body
    check_reads_nothing(name, body)
    _check_settings(scope, function)
    texts = []
    try:
        for text in (body, *(column.default or "" for column in function.parameters)):
            calls = [
                (place, quoted(spark_function(scope, called, (*callers, name))))
                for place, called in kept_calls(scope, text, name.database or "")
            ]
            texts.append(rewrite(text, TextRange(0, len(text)), calls).text)
        body, *defaults = texts
        parameters = (
            f"{quoted(column.name)} {to_spark_sql(column.type)}"
            + (f" DEFAULT {default}" if default else "")
            for column, default in zip(function.parameters, defaults, strict=True)
        )
        assert function.returns is not None  # `body` says so
        kind = "" if function.is_deterministic else " NOT DETERMINISTIC"
        definition = (
            f"({', '.join(parameters)}) RETURNS {to_spark_sql(function.returns)}{kind} "
            f"RETURN {body}"
        )
        with errors_translated():
            return scope.views.function(f"{name.database}.{name.table}", definition)
    except StatementError as error:
        message = error.message
        if not message.startswith(("The function `", "More than")):
            message = f"The function `{name}` can't be called: {message}"
        raise type(error)(message, hint=error.hint) from error


def check_reads_nothing(name: TableName, body: str) -> None:
    """Raise UnsupportedStatementError for a function whose body reads tables."""
    words = {token.upper for token in tokenize(body) if token.kind == "word"}
    if {"SELECT", "FROM"} <= words or "TABLE" in words:
        raise UnsupportedStatementError(
            f"The function `{name}` reads a table: Spark keeps the text of a function, and can't "
            "look up Paimon's tables in it.",
            hint="Give it the value as a parameter, or name the query by CREATE VIEW.",
        )


def _check_settings(scope: StatementScope, function: CatalogFunction) -> None:
    """Raise UnsupportedStatementError for a function whose values depend on another setting of
    Spark than the session has. A note tells of another time zone."""
    for key in FUNCTION_SETTINGS:
        value, here = function.options.get(SPARK_SETTING + key), scope.spark.conf.get(key)
        if value is None or value == here:
            continue
        if "ansi" in key:
            raise UnsupportedStatementError(
                f"The function `{function.name}` was made with {key} = {value}, and this session "
                f"has {here}: its values would differ.",
                hint=f"SET {key} = {value}, or create it anew by CREATE OR REPLACE FUNCTION.",
            )
        scope.note(f"`{function.name}` was made in the time zone {value}, and computes in {here}.")


def with_near_function(scope: StatementScope, error: PaimonMagicsError) -> PaimonMagicsError:
    """The error of a statement; one of Spark's for an unknown function names a near one of the
    catalog."""
    match = _UNKNOWN.fullmatch(error.message)
    if match and isinstance(error, UnknownNameError):
        near = likely_meant(match[1].rpartition(".")[2], scope.list_functions(scope.database))
        error.hint = near or error.hint
    return error


def _newest(scope: StatementScope, name: str) -> str:
    """The greatest value of the table's first partition column, as text."""
    table = scope.tables.load(scope.full_name(named(name)))
    keys = table.schema.partition_keys
    if not keys:
        raise InvalidValueError(
            f"`{table.name}` is not partitioned, so max_pt has no value.",
            hint="SELECT max(column) FROM the table gives the greatest value of a column.",
        )
    values = [first for first, *_ in list_partitions(table) if first is not None]
    if not values:
        raise InvalidValueError(
            f"`{table.name}` has no partition with rows, so max_pt has no value.",
            hint="Write to it first.",
        )
    return partition_value_text(max(values), table.schema.column(keys[0]).type)
