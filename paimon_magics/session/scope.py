"""The scope of one statement: its tables, each loaded once, and what its names and times mean.

A statement's functions take the scope as an argument. It ends with the statement: what outlives it,
such as a session or the button of a report, keeps the connection and begins a scope for each call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from paimon_magics.coordinator.client.interface import CoordinatorClient, Definitions
from paimon_magics.coordinator.client.stored_views import StoredViews
from paimon_magics.errors import (
    CommitConflictError,
    InvalidTableError,
    PaimonMagicsError,
    TableDamagedError,
    UnknownNameError,
    UnsupportedStatementError,
)
from paimon_magics.planning.commits.requests import Transaction
from paimon_magics.planning.reads.spark_settings import PAIMON_PREFIX, REFUSED
from paimon_magics.session.catalog_views import (
    CatalogFunction,
    CatalogView,
    function_of,
    may_have_definitions,
    stored_views,
    view_of,
)
from paimon_magics.session.connection import Connection
from paimon_magics.session.times import tell_moments
from paimon_magics.settings import Settings
from paimon_magics.spark.failures import translate
from paimon_magics.spark.session_settings import settings_of
from paimon_magics.spark.views import Views
from paimon_magics.statements.clauses.names import table_text
from paimon_magics.statements.grammar.spark_passthrough import leading_words
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.schema.history import is_other_table
from paimon_magics.tables.table import StoredTable, Table

if TYPE_CHECKING:
    from paimon_magics.spark.handles import SparkSession


_VIEWS_INSIDE_MAX = 32  # Spark reads up to 100 in each other; each takes some frames of the stack
_OF_TABLE = "Name the table that it reads: SHOW CREATE TABLE {v} shows its query."
_OF_VIEWS = {
    "DROP": "DROP VIEW {v} drops it.",
    "ALTER": "ALTER VIEW {v} SET TBLPROPERTIES, UNSET TBLPROPERTIES, RENAME TO and AS change it.",
    "CREATE": "Choose another name, or drop it first: DROP VIEW {v}.",
    "REPLACE": "Choose another name, or drop it first: DROP VIEW {v}.",
    "COMMENT": "Write ALTER VIEW {v} SET TBLPROPERTIES ('comment' = '…').",
}
"""What to do instead of a statement for tables, by its first word."""


class OpenTables:
    """The tables of one statement, by full name: each is loaded from the catalog once.

    So all steps of a statement see one schema. `renew` loads the newest, for planning again.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._tables: dict[TableName, Table] = {}

    def load(self, name: TableName) -> Table:
        """Return the table. Raises what `Catalog.load` raises.

        A missing table is looked up again the next time: the statement may create it.
        """
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = self._catalog.load(name)
        return table

    def take(self, table: Table) -> None:
        """Let its name mean `table` from now on, until `renew`."""
        self._tables[table.name] = table

    def exists(self, name: TableName) -> bool:
        """Whether the catalog has the table, including one that can't be read here."""
        if name in self._tables:
            return True
        if name.database is None or not self._catalog.database_exists(name.database):
            return False
        try:
            table = self._catalog.find(name)
        except (InvalidTableError, UnsupportedStatementError):
            return True  # `load` says what is wrong with it
        if table is not None:
            self._tables[name] = table
        return table is not None

    def check_present(self) -> None:
        """Raise CommitConflictError if a table was dropped since it was loaded: its files are gone
        then, and nothing is damaged."""
        for name, table in self._tables.items():
            present = None
            with suppress(UnknownNameError):
                present = self._catalog.find(name)
            if present is None or is_other_table(table, present):
                raise CommitConflictError(
                    f"`{name}` was dropped while the statement was running.",
                    hint="Nothing was written. If another table has the name now, run the "
                    "statement again.",
                ) from None

    def renew(self) -> None:
        """Load each table again on its next use."""
        self._tables.clear()


@dataclass(frozen=True, slots=True)
class Attachment:
    """What is attached to the transactions of a statement: `begun` is called with each one, before
    anything can be committed; `properties` go into its snapshot."""

    begun: Callable[[Transaction], None]
    properties: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class StatementScope:
    """What one statement works with.

    `frames` are the Python variables whose frames its query may name; None if it can't name any.
    `notes` are for the user, on what its names came to mean. `attachment`
    goes with its transactions. With `fills_table` the rows that it reads become rows of a table.
    `inside` are the views whose queries are read, each one in the query of the one before.
    """

    connection: Connection
    frames: Mapping[str, object] | None = None
    tables: OpenTables = field(init=False)
    notes: list[str] = field(default_factory=list)
    attachment: Attachment | None = None
    fills_table: bool = False
    inside: tuple[TableName, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "tables", OpenTables(self.connection.catalog))

    def _sharing_tables(self, scope: StatementScope) -> StatementScope:
        object.__setattr__(scope, "tables", self.tables)
        return scope

    def filling(self) -> StatementScope:
        """The same statement, for a read whose rows become rows of a table."""
        return self._sharing_tables(replace(self, fills_table=True))

    def attaching(self, attachment: Attachment) -> StatementScope:
        """The same statement, with this for its transactions."""
        return self._sharing_tables(replace(self, attachment=attachment))

    def within(self, view: TableName) -> StatementScope:
        """The same statement, for the query of a view. Raises UnsupportedStatementError for a view
        that reads itself, and for too many views in each other."""
        if view in self.inside or len(self.inside) >= _VIEWS_INSIDE_MAX:
            path = " → ".join(f"`{name}`" for name in (*self.inside, view))
            is_cycle = view in self.inside
            raise UnsupportedStatementError(
                f"The view `{view}` reads itself: {path}."
                if is_cycle
                else f"More than {_VIEWS_INSIDE_MAX} views read each other: {path}.",
                hint="ALTER VIEW … AS gives one of them another query.",
            )
        return self._sharing_tables(replace(self, frames=None, inside=(*self.inside, view)))

    def renewed(self) -> StatementScope:
        """A new scope on the same connection, for what happens after the statement."""
        return StatementScope(self.connection)

    @property
    def spark(self) -> SparkSession:
        """The Spark session that the statement runs in."""
        return self.connection.spark

    @property
    def catalog(self) -> Catalog:
        """The catalog of the warehouse."""
        return self.connection.catalog

    @property
    def committer(self) -> CoordinatorClient:
        """Makes commits."""
        return self.connection.committer

    @property
    def definitions(self) -> Definitions:
        """Changes definitions of tables and databases."""
        return self.connection.definitions

    @property
    def settings(self) -> Settings:
        """The session's settings."""
        return self.connection.settings

    @property
    def views(self) -> Views:
        """The views that queries are run on."""
        return self.connection.views

    @property
    def slots(self) -> int:
        """The number of tasks that can run at once."""
        return self.connection.slots

    @property
    def database(self) -> str:
        """The database of unqualified names: in a view's query, the view's."""
        return (self.inside[-1].database if self.inside else None) or self.connection.state.database

    @cached_property
    def zone(self) -> str:
        """The session's time zone when the statement first needs it, by Arrow's and Python's
        name."""
        return self.connection.zone

    @cached_property
    def spark_settings(self) -> Mapping[str, str]:
        """The settings of Spark that are checked for each statement and are set, when the statement
        first needs them (`planning.reads.spark_settings`)."""
        return settings_of(self.spark, REFUSED, PAIMON_PREFIX)

    def note(self, text: str) -> None:
        """Add a note to the statement's Outcome, once."""
        if text not in self.notes:
            self.notes.append(text)

    def full_name(self, name: TableName) -> TableName:
        """See `Connection.full_name`; the database is the scope's."""
        return self.connection.full_name(replace(name, database=name.database or self.database))

    def load(self, name: TableName, statement: str, position: int) -> Table:
        """Load the table of that name; errors point at `position` in `statement`. Raises
        UnsupportedStatementError for a view."""
        full = self.full_name(name)
        with errors_located(statement, position):
            try:
                return self.tables.load(full)
            except UnknownNameError:
                if self.find_view(full) is None:
                    raise
            raise not_of_views(full, statement)

    @cached_property
    def stored_views(self) -> StoredViews | None:
        """The views that the catalog keeps; None if it can't keep any."""
        return stored_views(self.connection)

    def find_view(self, name: TableName) -> CatalogView | None:
        """The catalog's view of that full name, or of which it names a system table; None if there
        is none. Raises SetupError if nobody answers who keeps it."""
        plain = TableName(name.table, name.database)
        views = self._definitions(name.database or "")
        document = None if views is None else views.find(plain)
        return None if document is None else view_of(plain, document)

    def list_views(self, database: str) -> list[str]:
        """The catalog's views in a database that the user may see."""
        views = self._definitions(database)
        return [] if views is None else views.names(database)

    def find_function(self, name: TableName) -> CatalogFunction | None:
        """The catalog's function of that full name; None if there is none, or if the catalog's
        server has no functions. Raises SetupError if nobody answers who keeps it."""
        views = self._definitions(name.database or "")
        try:
            document = None if views is None else views.functions.find(name)
        except UnsupportedStatementError:
            return None
        return None if document is None else function_of(name, document)

    def list_functions(self, database: str) -> list[str]:
        """The catalog's functions in a database that the user may see."""
        views = self._definitions(database)
        try:
            return [] if views is None else views.functions.names(database)
        except UnsupportedStatementError:
            return []

    def _definitions(self, database: str) -> StoredViews | None:
        """Who keeps the views and functions of a database; None if there can't be any."""
        is_possible = self.stored_views and may_have_definitions(self.connection, database)
        return self.stored_views if is_possible else None

    def manifests(self, table: Table | StoredTable) -> ManifestCache:
        """The manifests of the table, as far as they were read before."""
        return self.connection.plans.manifests(table)


def not_of_views(view: TableName, statement: str) -> UnsupportedStatementError:
    """The error for a view in a statement that is for tables."""
    words = leading_words(statement)
    instead = next((hint for word, hint in _OF_VIEWS.items() if words.startswith(word)), _OF_TABLE)
    return UnsupportedStatementError(
        f"`{view}` is a view, and {words} is for tables.",
        hint=instead.format(v=table_text(view)),
    )


_NOTES: ContextVar[list[str] | None] = ContextVar("notes", default=None)
"""The notes of the statement that runs, for frames of its query: they were made before it."""


@contextmanager
def statement_scope(
    connection: Connection, frames: Mapping[str, object] | None = None
) -> Iterator[StatementScope]:
    """Run the body as one statement, which may name `frames`. Its errors show moments in the
    session's zone, and report a table that was dropped in the meantime."""
    scope = StatementScope(connection, frames)
    token = _NOTES.set(scope.notes)
    try:
        try:
            yield scope
        except TableDamagedError:
            scope.tables.check_present()
            raise
    except PaimonMagicsError as error:
        with suppress(Exception):  # Spark may have ended: then moments stay in UTC
            tell_moments(error, scope.zone)
        raise
    finally:
        _NOTES.reset(token)


def scope_of_frame(connection: Connection) -> StatementScope:
    """A scope for reading a frame or view: its notes go to the statement that runs at that
    time."""
    notes = _NOTES.get()
    return StatementScope(connection, notes=[] if notes is None else notes)


def located(error: PaimonMagicsError, statement: str, position: int) -> PaimonMagicsError:
    """Return the error, with the position added if it has none."""
    if error.position is None:
        error.statement, error.position = statement, position
    return error


@contextmanager
def errors_located(statement: str, position: int) -> Iterator[None]:
    """Let the errors of the body that have no position point at `position` in `statement`."""
    try:
        yield
    except PaimonMagicsError as error:
        raise located(error, statement, position) from None


@contextmanager
def errors_translated(statement: str | None = None, position: int | None = None) -> Iterator[None]:
    """Raise our errors for Spark's errors in the body. Errors without a position point at
    `position` in `statement`."""
    try:
        yield
    except Exception as error:
        if statement is not None and position is not None:
            raise located(translate(error), statement, position) from error
        raise translate(error, statement=statement) from error
