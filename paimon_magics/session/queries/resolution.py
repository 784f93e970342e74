"""What a name in a query means: a Paimon table, a table of Spark's own, a file, or a Python frame.

The order is: Spark's temporary views, Paimon's tables, tables of Spark's own catalog, files (a name
such as ``csv.`my.csv` ``), and frames, so that a Python variable never hides a table. Common table
expressions come before all of them; they are no references (`statements.queries.query_text`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from paimon_magics.errors import UnknownNameError, likely_meant, value_text
from paimon_magics.session.python_frames import frame_kind, frame_text
from paimon_magics.session.queries.file_relations import FileRelation, file_meant, file_relation
from paimon_magics.session.scope import StatementScope, located
from paimon_magics.spark.queries import kind_in_spark
from paimon_magics.statements.statement import TableName, TableReference
from paimon_magics.tables.system_tables.registry import is_catalog_table


@dataclass(frozen=True, slots=True)
class SparkOwn:
    """A table or view of Spark's own."""


@dataclass(frozen=True, slots=True)
class GivenFrame:
    """A Python frame and the name of its variable."""

    name: str
    frame: Any


_Meaning = TableName | SparkOwn | FileRelation | GivenFrame


def resolve(scope: StatementScope, reference: TableReference, statement: str) -> _Meaning:
    """Return what a reference means; for a Paimon table its full name. Adds a note to the
    connection if the name could mean something else too.

    Raises UnknownNameError if nothing has the name.
    """
    name = reference.name
    ours = scope.settings.catalog_name
    if name.catalog is not None and name.catalog != ours:
        return SparkOwn()
    full = scope.full_name(name)
    parts = [part for part in (name.database, name.object_name) if part is not None]
    in_spark = kind_in_spark(scope.spark, parts) if name.catalog is None else None
    is_paimon = is_paimon_table(scope, full)
    if in_spark == "view" and name.database is None:
        if is_paimon:
            scope.note(f"`{name}` is Spark's temporary view; Paimon's `{full}` is not read.")
        return SparkOwn()
    if is_paimon:
        if in_spark == "table":
            tell_of_two(scope, full)
        _tell_of_frame(scope, name, "Paimon's table")
        return full
    if in_spark is not None:
        _tell_of_frame(scope, name, "a table of Spark's own")
        return SparkOwn()
    if name.database is not None:
        files = file_relation(reference)
        if files is not None:
            return files
    elif frame_kind(frame := _variable(scope, name)) is not None:
        scope.note(f"`{name.object_name}` is Python's variable, {frame_text(frame)}.")
        return GivenFrame(name.object_name, frame)
    try:
        scope.tables.load(replace(full, system_table=None))
    except UnknownNameError as error:
        beside = _system_table_meant(scope, name) or file_meant(name)
        if beside:
            error.hint = beside
        if name.database is None and not error.hint.startswith("Did you mean"):
            error.hint = f"{_frame_meant(scope, name)} {error.hint}".strip()
        raise located(error, statement, reference.range.start) from None
    return full


def _system_table_meant(scope: StatementScope, name: TableName) -> str:
    """The hint for a system table that was named as a table of a database."""
    if (
        name.database is None
        or name.catalog is not None
        or scope.catalog.database_exists(name.database)
    ):
        return ""
    if not is_paimon_table(scope, scope.full_name(TableName(name.database))):
        return ""
    return (
        f"`{name.database}` is a table. Its system tables are named with `$`: "
        f"{name.database}${name.object_name}"
    )


def is_paimon_table(scope: StatementScope, name: TableName) -> bool:
    """Whether the catalog has the table. A system table exists if its base table does; names in the
    database `sys` always do."""
    assert name.database is not None
    if is_catalog_table(name):
        return True
    return scope.tables.exists(replace(name, system_table=None))


def tell_of_two(scope: StatementScope, name: TableName) -> None:
    """Add a note if Spark's own catalog has a table of the same name as a Paimon table."""
    other = f"spark_catalog.{name.database}.{name.object_name}"
    scope.note(
        f"`{name}` is Paimon's table here. Spark's own catalog has one of that name too, "
        f"which is {other}."
    )


def _tell_of_frame(scope: StatementScope, name: TableName, what: str) -> None:
    """Add a note on a frame that a table hides. A frame of Spark's is mostly made of that very
    table, so there is no note on it."""
    frame = None if name.database is not None else _variable(scope, name)
    if frame_kind(frame) not in (None, "Spark", "Outcome"):
        scope.note(
            f"`{name.object_name}` is {what}; Python's variable of that name, "
            f"{frame_text(frame)}, is not read."
        )


def _variable(scope: StatementScope, name: TableName) -> object:
    return (scope.frames or {}).get(name.object_name)


def _frame_meant(scope: StatementScope, name: TableName) -> str:
    """The hint on frames for an unknown name."""
    if scope.frames is None:
        return f"Pass a DataFrame by frames={{'{name.object_name}': …}}."
    if name.object_name in scope.frames:
        value = value_text(scope.frames[name.object_name])
        return f"Python's variable `{name.object_name}` is {value}, not a DataFrame."
    frames = [variable for variable, value in scope.frames.items() if frame_kind(value) is not None]
    return likely_meant(name.object_name, frames)
