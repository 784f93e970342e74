"""What PySpark's own calls are told of Paimon's tables: rows, or why not and what to call instead.

A read is answered as a cell would answer it. What would change a Paimon table, or make a table of
Spark's own under its name, is refused; see `spark.named_tables` for how the calls come here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from paimon_magics.boundary import short_errors
from paimon_magics.errors import PaimonMagicsError, UnsupportedStatementError
from paimon_magics.session.connection import Connection
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.queries.frames import frame_of_table
from paimon_magics.session.queries.resolution import is_paimon_table
from paimon_magics.session.queries.spark_passthrough import is_for_spark
from paimon_magics.session.table_names import named
from paimon_magics.spark.queries import has_own_catalog, is_temporary_view
from paimon_magics.spark.rows import frame_without_rows
from paimon_magics.spark.sessions import is_alive
from paimon_magics.statements.grammar.parsing import parse_cell
from paimon_magics.statements.grammar.spark_passthrough import names_in
from paimon_magics.statements.kinds import Explain, Statement
from paimon_magics.statements.statement import (
    CreateTable,
    PassThrough,
    TableName,
)
from paimon_magics.statements.subjects import subject_of
from paimon_magics.statements.table_changes import AlterTable, RenameTable

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame, SparkSession

__all__ = ["SparkCalls"]

_WRITE = "Call session.write(frame, '{name}', mode='append'), or with 'overwrite', 'dynamic'."
_INSTEAD = {
    "saveAsTable": _WRITE,
    "insertInto": _WRITE,
    "writeTo": _WRITE,
    "toTable": "Write each micro-batch by session.write in foreachBatch.",
    "listColumns": "Run DESCRIBE {name}, or ask session.table('{name}').schema.",
    "getTable": "Run DESCRIBE {name}.",
    "cacheTable": "Call session.table('{name}').cache().",
}
_RUN = "Run it in a %%paimon cell, or by session.run."


@short_errors
class SparkCalls:
    """Answers for one session; `run` runs a statement with the values of its bind names."""

    def __init__(
        self, connection: Connection, run: Callable[[str, Mapping[str, object]], Outcome]
    ) -> None:
        self._connection = connection
        self._run = run

    @property
    def spark(self) -> SparkSession:
        """The Spark session that the tables are read on."""
        return self._connection.spark

    def table(self, name: str, options: Mapping[str, str]) -> DataFrame | None:
        """The rows of Paimon's table, with Paimon's read options; None for a name that is Spark's.

        Raises UnknownNameError for an option that Paimon's reads don't have.
        """
        found = self._named(name)
        if found is None or not self._is_read(found) or not is_alive(self.spark):
            return None
        return frame_of_table(self._connection, self._connection.full_name(found), options)

    def exists(self, name: str) -> bool | None:
        """Whether Paimon has the table, in the session's current database for a lone name; None for
        a name that Spark may have."""
        found = self._named(name)
        if found is None or not self._is_read(found):
            return None
        return self._exists(found)

    def refuse(self, call: str, name: str) -> None:
        """Raise UnsupportedStatementError where Paimon has a table of that name."""
        found = self._named(name)
        taken = None if found is None else self._taken(found)
        if taken is None:
            return
        hint = _INSTEAD.get(call.rpartition(".")[2], "Run the statement for it by session.run.")
        raise UnsupportedStatementError(
            f"`{taken}` is a Paimon table, and {call} works on tables of Spark's own.",
            hint=f"{hint.format(name=taken)} {_spark_own(taken)}",
        )

    def query(self, text: str, args: object, formatted: bool) -> DataFrame | None:
        """The rows of a statement over Paimon's tables; None where it names none.

        Raises UnsupportedStatementError for one that would change a Paimon table.
        """
        statement = _parsed(text)
        if statement is None or formatted or isinstance(args, list):
            self._refuse_unread(text)
            return None
        for name in _changed(statement):
            taken = self._taken(name)
            if taken is not None:
                raise _not_by_sql(text, taken)
        read = next(filter(self._is_read, _read(statement)), None)
        if read is None or not is_alive(self.spark):
            return None
        if isinstance(statement, CreateTable) and not is_for_spark(self._connection, statement):
            raise _not_by_sql(text, read)
        values = args if isinstance(args, Mapping) else {}
        outcome = self._run(text, dict(values))
        return outcome.dataframe or frame_without_rows(self.spark)

    def _refuse_unread(self, text: str) -> None:
        """Of a text that can't be read as one statement, every name is looked at."""
        for name in names_in(text):
            taken = self._taken(name)
            if taken is not None:
                raise UnsupportedStatementError(
                    f"`{taken}` is a Paimon table, and this form of SparkSession.sql works on "
                    "tables of Spark's own.",
                    hint=f"Give one statement, and bind values by names, as :day. {_RUN}",
                )

    def _named(self, text: str) -> TableName | None:
        try:
            return named(text)
        except UnsupportedStatementError:
            return None

    def _is_ours(self, name: TableName) -> bool:
        """Whether Paimon's catalog may be meant: not where one of Spark's is named."""
        ours = self._connection.settings.catalog_name
        return name.catalog in (None, ours) and not has_own_catalog(self.spark, name.catalog)

    def _exists(self, name: TableName) -> bool:
        try:
            return is_paimon_table(self._connection, self._connection.full_name(name))
        except PaimonMagicsError:
            return False  # no name that Paimon's catalog could have

    def _is_read(self, name: TableName) -> bool:
        """Whether a query of that name reads Paimon's table, as in a cell."""
        if not self._is_ours(name):
            return False
        if name.catalog is not None:
            return True  # what it is, or that there is none, is told by us
        if name.database is None and is_temporary_view(self.spark, name.object_name):
            return False
        return self._exists(name)

    def _taken(self, name: TableName) -> TableName | None:
        """The Paimon table that a table of Spark's under that name would stand beside: in the
        current database of the session or of Spark; in whatever case, which Spark has no eye for.
        """
        if not self._is_ours(name):
            return None
        if name.catalog is not None:
            return self._connection.full_name(name)
        databases = [name.database or self._connection.database]
        if name.database is None and is_alive(self.spark):  # it may have been stopped
            databases.append(self.spark.catalog.currentDatabase())
        for database in dict.fromkeys(databases):
            found = self._of_any_case(replace(name, database=database))
            if found is not None:
                return found
        return None

    def _of_any_case(self, name: TableName) -> TableName | None:
        if self._exists(name):
            return name
        catalog, database = self._connection.catalog, name.database or ""
        if not catalog.database_exists(database):
            return None
        tables = catalog.list_tables(database)
        same = (table for table in tables if table.lower() == name.table.lower())
        return next((replace(name, table=table) for table in same), None)


def _parsed(text: str) -> Statement | None:
    """The one statement of a text; None where Spark has to make of it what it can."""
    try:
        statements = parse_cell(text)
    except PaimonMagicsError:
        return None
    return statements[0] if len(statements) == 1 else None


def _changed(statement: Statement) -> Iterable[TableName]:
    """The tables that a statement changes, makes or, being Spark's own business, names."""
    match statement:
        case AlterTable(name=name, changes=(RenameTable(new_name=new_name),)):
            return (name, replace(new_name, database=new_name.database or name.database))
        case PassThrough(names=names):
            return tuple(name for name, _ in names)
        case _:
            subject = subject_of(statement)
            return () if subject.only_tells or subject.table is None else (subject.table,)


def _read(statement: Statement) -> Iterable[TableName]:
    """The tables that a statement reads or tells of."""
    if isinstance(statement, Explain):
        return (*_read(statement.inner), *_changed(statement.inner))
    subject = subject_of(statement)
    told = (subject.table,) if subject.only_tells and subject.table is not None else ()
    return (*subject.sources, *told)


def _not_by_sql(text: str, name: TableName) -> UnsupportedStatementError:
    word = text.split(None, 1)[0].upper()
    return UnsupportedStatementError(
        f"`{name}` is a Paimon table, and SparkSession.sql does no {word} with one.",
        hint=f"{_RUN} {_spark_own(name)}",
    )


def _spark_own(name: TableName) -> str:
    shown = f"spark_catalog.{name.database or 'default'}.{name.object_name}"
    return f"A table of Spark's own is named in full: {shown}."
