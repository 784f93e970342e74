"""What a name in a query means: a Paimon table, a table of Spark's own, a file, or a Python frame.

The order is: Spark's temporary views, Paimon's tables and views, tables of Spark's own catalog,
files (a name such as ``csv.`my.csv` ``), and frames, so that a Python variable never hides a table.
Common table expressions come before all of them; they are no references
(`statements.queries.query_text`). In the query of a catalog's view there are Paimon's names alone,
and those with another catalog.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from paimon_magics.errors import (
    UnknownNameError,
    UnsupportedStatementError,
    likely_meant,
    value_text,
)
from paimon_magics.session.catalog_views import CatalogView, may_have_definitions
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


Meaning = TableName | CatalogView | SparkOwn | FileRelation | GivenFrame


def resolve(scope: StatementScope, reference: TableReference, statement: str) -> Meaning:
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
    asks_spark = name.catalog is None and not scope.inside
    in_spark = kind_in_spark(scope.spark, parts) if asks_spark else None
    is_paimon = is_paimon_table(scope, full)
    if in_spark == "view" and name.database is None:
        if is_paimon:
            scope.note(f"`{name}` is Spark's temporary view; Paimon's `{full}` is not read.")
        if needs_snapshots(reference):
            raise _no_snapshots(name, "a temporary view")
        return SparkOwn()
    if is_paimon:
        if in_spark == "table":
            tell_of_two(scope, full)
        _tell_of_frame(scope, name, "Paimon's table")
        return full
    view = scope.find_view(full)
    if view is not None:
        _tell_of_frame(scope, name, "a view of the catalog")
        check_reads_view(view, full, has_options=needs_snapshots(reference))
        return view
    if in_spark is not None:
        _tell_of_frame(scope, name, "a table of Spark's own")
        return SparkOwn()
    if scope.inside:
        pass
    elif name.database is not None:
        files = file_relation(reference)
        if files is not None:
            return files
    elif frame_kind(frame := _variable(scope, name)) is not None:
        scope.note(f"`{name.object_name}` is Python's variable, {frame_text(frame)}.")
        return GivenFrame(name.object_name, frame)
    try:
        scope.tables.load(replace(full, system_table=None))
    except UnknownNameError as error:
        error.hint = _hint(scope, name, full, error.hint)
        raise located(error, statement, reference.range.start) from None
    return full


def needs_snapshots(reference: TableReference) -> bool:
    """Whether a reference has a clause that only a table can have: a version, changes, bounds of
    these, or read options."""
    clauses = reference.time_travel, reference.changes, reference.bounds, reference.options
    return any(clauses)


def check_reads_view(view: CatalogView, name: TableName, *, has_options: bool) -> None:
    """Raise UnsupportedStatementError for what only a table has: system tables, branches, snapshots
    and read options."""
    if name != view.name:
        raise UnsupportedStatementError(
            f"`{view.name}` is a view: it has no system tables and no branches.",
            hint="Name the table that it reads: SHOW CREATE TABLE shows its query.",
        )
    if has_options:
        raise _no_snapshots(view.name, "a view")


def _no_snapshots(name: TableName, kind: str) -> UnsupportedStatementError:
    return UnsupportedStatementError(
        f"`{name}` is {kind}, which has no snapshots, no changes and no read options.",
        hint="Name them in its query: SELECT … FROM (SELECT … FROM t VERSION AS OF …).",
    )


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


def _hint(scope: StatementScope, name: TableName, full: TableName, hint: str) -> str:
    """The hint for an unknown name; `hint` is the catalog's."""
    database = full.database or ""
    beside = _system_table_meant(scope, name) or file_meant(name)
    hint = beside or likely_meant(name.table, scope.list_views(database)) or hint
    if scope.stored_views is None and may_have_definitions(scope.connection, database):
        return (
            f"A coordinator keeps the views of `{database}`, and this session has none: connect "
            f"with coordinator='embedded' or its address to read them. {hint}"
        )
    if name.database or scope.inside or hint.startswith("Did you mean"):
        return hint
    return f"{_frame_meant(scope, name)} {hint}".strip()


def is_paimon_name(scope: StatementScope, name: TableName) -> bool:
    """Whether the catalog has a table or a view of the name."""
    return is_paimon_table(scope, name) or scope.find_view(name) is not None


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
