"""Finds the tables of a warehouse. An unreadable table does not affect other tables.

A table exists if it has a schema file, whatever the file's content: the table is listed, its name
is taken, and it can be dropped. Only loading it fails, with an error that names the table, the file
and the next step. Errors of pypaimon are translated only here and in `Databases.call`.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from pypaimon.catalog import catalog_exception as missing
from pypaimon.common.identifier import Identifier
from pypaimon.schema.schema_manager import SchemaManager
from pypaimon.table.file_store_table import FileStoreTable

from paimon_magics.errors import (
    PaimonMagicsError,
    TableDamagedError,
    UnknownNameError,
    UnsupportedStatementError,
    nearest,
)
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.databases import Databases
from paimon_magics.tables.catalog.names import database_of, identifier, is_text, shown
from paimon_magics.tables.catalog.warehouse_mark import move_hint
from paimon_magics.tables.pypaimon_internals import schema_ids, schema_path
from paimon_magics.tables.schema.alterations import schema_of
from paimon_magics.tables.stores.corruption import SCHEMA_VERSION, check_version, damaged
from paimon_magics.tables.stores.paths import plain_location
from paimon_magics.tables.stores.store import StoreRefusedError, UnreachableError, failure
from paimon_magics.tables.table import Table, branch_names

REST_ADDS = ("path", "owner", "createdAt", "createdBy", "updatedAt", "updatedBy")
"""Keys that Paimon's REST clients add to a table's options: facts of the server, not stored."""

_T = TypeVar("_T")


class Lookup(Databases):
    """The tables of one warehouse, to be listed and loaded; `Catalog` changes them."""

    def list_tables(self, database: str) -> list[str]:
        """The names of the database's tables, sorted. A folder without a schema is no table."""
        return [name for name in self.all_tables(database) if self.sees_table(database, name)]

    def all_tables(self, database: str) -> list[str]:
        """The same with those that are hidden."""
        self.require_database(database)
        if self.directory is not None:
            return sorted(filter(is_text, self.directory.tables(database)))
        try:
            names = self.call(lambda: self.paimon.list_tables(database))
        except (missing.DatabaseNotExistException, FileNotFoundError):
            self.check_place()
            return []
        names = list(filter(is_text, names))
        if not names:
            self.check_place()
        if self.metastore == "filesystem":
            names = [name for name in names if self._has_schema(TableName(name, database))]
        return sorted(names)

    def table_exists(self, name: TableName) -> bool:
        """Whether there is a table of this name, even a damaged one; False for a system table's
        name."""
        if name.system_table is not None:
            return False
        try:
            return self.open_stored(name) is not None
        except TableDamagedError:
            return True

    def load(self, name: TableName) -> Table:
        """The table with its newest schema; `name` must have its database.

        Raises UnknownNameError, with the nearest name where hints may have names, for a table,
        branch or database that does not exist, TableDamagedError for a table that can't be read,
        UnsupportedStatementError for a system table and for tables that are no Paimon file store
        (format, object and Iceberg tables of a REST catalog).
        """
        if name.system_table is not None:
            raise UnsupportedStatementError(
                f"`{shown(name)}` is a system table: it can only be read.",
                hint=f"Use the table `{shown(replace(name, system_table=None))}` itself.",
            )
        table = self.find(name)
        if table is None:
            raise self._unknown_table(name)
        return table

    def find(self, name: TableName) -> Table | None:
        """The table with its newest schema; None if the table, branch or database does not exist.

        Raises TableDamagedError for a table that can't be read, UnsupportedStatementError for
        tables that are no Paimon file store.
        """
        paimon_table = self.open_file_store(name)
        if paimon_table is None:
            return None
        schema = self.reading(name, lambda: schema_of(paimon_table.table_schema))
        if self.metastore == "rest":
            stored = tuple((k, v) for k, v in schema.options if k not in REST_ADDS)
            schema = replace(schema, options=stored)
        location = plain_location(str(paimon_table.table_path))
        paths = self.paths_of(location, paimon_table)
        return Table(name, schema, location, paimon_table, self.stores.of(location), paths)

    def open_file_store(self, name: TableName) -> FileStoreTable | None:
        """As `open_stored`. Raises UnsupportedStatementError for tables that are no Paimon file
        store, too."""
        table = self.open_stored(name)
        if table is None or isinstance(table, FileStoreTable):
            return table
        raise UnsupportedStatementError(
            f"`{shown(name)}` is a {type(table).__name__}, which is not offered.",
            hint="Only Paimon's own tables can be used here.",
        )

    def open_stored(self, name: TableName) -> Any:
        """pypaimon's table; None if the table, branch or database does not exist. Raises
        TableDamagedError for a table that can't be read, UnsupportedStatementError for a branch
        through a jdbc catalog, and for a schema of a newer release."""
        if "$" in name.table:  # pypaimon would load a branch that `name` does not name
            return None
        if name.branch is not None and self.metastore == "jdbc":
            # pypaimon's jdbc catalog would silently load the main branch.
            raise UnsupportedStatementError(
                f"The branch `{shown(name)}` can't be used through a jdbc catalog.",
                hint="Open the same warehouse with a filesystem catalog.",
            )
        try:
            if not self.sees_table(database_of(name), name.table):
                if self.directory is not None:  # a key that may look there would show it
                    return None
                name = replace(name, table=uuid.uuid4().hex)  # the same look at the store
            get_table = partial(self.paimon.get_table, identifier(name))
            if self.metastore == "rest":
                table = self.call(get_table)
            else:
                table = self.reading(name, get_table)
        except (missing.CatalogException, FileNotFoundError, UnknownNameError):
            return None
        if isinstance(table, FileStoreTable):
            version = table.table_schema.version
            check_version(f"The schema of `{shown(name)}`", version, SCHEMA_VERSION)
        return table

    def reading(self, name: TableName, action: Callable[[], _T]) -> _T:
        """Call a function that reads a table's schema. Its errors become TableDamagedError, except
        for errors of this project or of a store, and for missing files."""
        try:
            return action()
        except (missing.CatalogException, FileNotFoundError, PaimonMagicsError):
            raise
        except Exception as error:
            cause = _first_cause(error)
            if isinstance(cause, FileNotFoundError):  # it was dropped meanwhile
                raise cause from error
            path = self._newest_schema(name)
            failed = failure(
                error,
                f"`{shown(name)}` can't be read: {path}: {cause}",
                hint="Check that the store can be reached and read.",
            )
            if _is_of_the_store(cause) or isinstance(failed, UnreachableError | StoreRefusedError):
                raise failed from error
            reason = f"{type(cause).__name__}: {str(cause)[:200]}"
            raise damaged(
                f"`{shown(name)}` can't be opened: its schema {path}",
                reason,
                "Restore it, or drop the table.",
            ) from error

    def schema_manager(self, name: TableName) -> SchemaManager:
        """pypaimon's schema manager of a table or branch, which need not exist."""
        path = self.paimon.get_table_path(Identifier.create(database_of(name), name.table))
        return SchemaManager(self.paimon.file_io, path, name.branch or "main")

    def location_of(self, name: TableName) -> str:
        """The existing or future location of a table, which may be damaged. Queries a REST catalog,
        and then raises the errors of `load`."""
        if self.metastore == "rest":
            return self.load(name).location
        return plain_location(str(self.paimon.get_table_path(identifier(name))))

    def _has_schema(self, name: TableName) -> bool:
        """Whether a folder has a schema file. A folder that can't be listed may have one."""
        try:
            return bool(schema_ids(self.schema_manager(name)))
        except Exception as error:
            failed = failure(error, f"The folder of `{shown(name)}` can't be listed", hint="")
            if isinstance(failed, UnreachableError):
                raise failed from error
            return True

    def _newest_schema(self, name: TableName) -> str:
        manager = self.schema_manager(name)
        with contextlib.suppress(Exception):
            return schema_path(manager, max(schema_ids(manager)))
        return str(manager.schema_path)

    def _unknown_table(self, name: TableName) -> UnknownNameError:
        database = database_of(name)
        if not self.database_exists(database):
            return self.unknown_database(database)
        if name.branch is not None:
            main = replace(name, branch=None)
            table = self.find(main)
            if table is not None:
                branches = partial(branch_names, table.paimon)
                return UnknownNameError(
                    f"There is no branch `{name.branch}` of `{shown(main)}`.",
                    hint=nearest(name.branch, branches, what=f"branches of `{shown(main)}`"),
                )
        gone = "" if self.metastore == "rest" else move_hint(self.stores, self.warehouse)
        message = f"There is no table `{name.table}` in the database `{database}`."
        if gone:
            return UnknownNameError(message, hint=gone)
        tables = partial(self.list_tables, database)
        near = partial(nearest, name.table, tables, what=f"tables in `{database}`")
        return self.unknown_name(message, near, "")


def _first_cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _is_of_the_store(cause: BaseException) -> bool:
    """Whether an error says nothing about the file: reading it again may succeed."""
    if isinstance(cause, IsADirectoryError | NotADirectoryError):
        return False
    return isinstance(cause, OSError | MemoryError)
