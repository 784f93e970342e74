"""The catalog: databases and tables of one warehouse, through pypaimon, with errors of ours.

`Catalog.open` checks the options and the warehouse and writes nothing; a new warehouse folder comes
with the first database or table. The database `default` can always be used and is made on demand.
Table definitions are validated before they are stored (`planning`), because pypaimon hardly does.
Nothing here caches: a table that is loaded is the newest schema at that moment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlparse

from pypaimon.catalog import catalog_exception as missing
from pypaimon.catalog.catalog_factory import CatalogFactory
from pypaimon.catalog.rest.property_change import PropertyChange
from pypaimon.common.identifier import Identifier
from pypaimon.schema.schema import Schema
from pypaimon.schema.schema_manager import SchemaManager
from pypaimon.schema.table_schema import TableSchema as StoredSchema
from pypaimon.table.file_store_table import FileStoreTable

from paimon_magics.errors import (
    CommitConflictError,
    InvalidTableError,
    PaimonMagicsError,
    SetupError,
    StatementError,
    UnknownNameError,
    UnknownOutcomeError,
    UnsupportedStatementError,
    likely_meant,
    nearest,
)
from paimon_magics.planning.schemas.alterations import plan_alteration
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.redaction import conceal_options
from paimon_magics.statements.statement import TableChange, TableName
from paimon_magics.tables.pypaimon_internals import sync_table_properties
from paimon_magics.tables.schema.alterations import altered_schema, schema_changes, schema_of
from paimon_magics.tables.schema.files import publish_schema
from paimon_magics.tables.schema.types import field_from_column
from paimon_magics.tables.snapshots.latest import latest_snapshot
from paimon_magics.tables.stores.corruption import damaged, misread
from paimon_magics.tables.stores.s3 import s3_access, with_region
from paimon_magics.tables.stores.s3_diagnosis import check_access
from paimon_magics.tables.stores.s3_file_io import use_s3_file_io
from paimon_magics.tables.stores.store import S3_SCHEMES, Stores, failure
from paimon_magics.tables.table import Table

__all__ = [
    "DEFAULT_DATABASE",
    "REST_ADDS",
    "Catalog",
]

DEFAULT_DATABASE = "default"
REST_ADDS = ("path", "owner", "createdAt", "createdBy", "updatedAt", "updatedBy")
"""What Paimon's REST clients put among a table's options: facts of the server's, not stored."""

_SYSTEM_DATABASE = "sys"
_ALTER_ATTEMPTS = 10
# Each metastore with the options that it can't do without.
_REQUIRED = {
    "filesystem": ("warehouse",),
    "jdbc": ("uri", "warehouse"),
    "rest": ("uri", "warehouse", "token.provider"),
}
# Metastores that one may look for here, with what goes instead.
_NOT_OFFERED = {
    "hive": "Tables that Hive's metastore only names lie in its warehouse folder: open that folder "
    "as a filesystem catalog (warehouse=…, without 'metastore'), while Hive goes on with its own",
    "dlf": "Use a rest catalog with 'token.provider' = 'dlf'",
}
_REMOTE_SCHEMES = ("gs", "hdfs", "oss", "s3", "s3a", "s3n", "viewfs")

_T = TypeVar("_T")


class Catalog:
    """The databases and tables of one warehouse. Open it with `Catalog.open`."""

    def __init__(self, options: Mapping[str, str], paimon: Any) -> None:
        self.options = dict(options)
        self.paimon = paimon
        self.stores = Stores(self.options)

    @classmethod
    def open(cls, options: Mapping[str, str]) -> Catalog:
        """Opens a catalog from Paimon's own catalog options (`warehouse`, `metastore`, `uri`, …).

        `warehouse` is a path (`~` and relative ones are resolved here, so that other processes
        mean the same folder) or a URI. Raises SetupError, before anything is written, for an
        unknown metastore, a missing option or a warehouse that can't be used.
        """
        conceal_options(options)
        checked = dict(options)
        metastore = checked.setdefault("metastore", "filesystem")
        if metastore not in _REQUIRED:
            raise _unknown_metastore(metastore)
        for key in _REQUIRED[metastore]:
            if not checked.get(key):
                raise SetupError(
                    f"The option '{key}' is missing for a {metastore} catalog.",
                    hint=f"Add '{key}' to the catalog options.",
                )
        if metastore != "rest":
            checked["warehouse"] = _checked_warehouse(checked["warehouse"])
            checked = with_region(checked)
            if urlparse(checked["warehouse"]).scheme in S3_SCHEMES:
                check_access(checked["warehouse"], s3_access(checked))
        try:
            catalog = cls(checked, CatalogFactory.create(checked))
            if metastore != "rest" and urlparse(checked["warehouse"]).scheme in _REMOTE_SCHEMES:
                use_s3_file_io(catalog.paimon, checked["warehouse"], checked, catalog.stores)
                catalog.paimon.file_io.exists(checked["warehouse"])
        except PaimonMagicsError:
            raise
        except Exception as error:
            where = checked["uri"] if metastore != "filesystem" else checked["warehouse"]
            raise failure(
                error,
                f"The {metastore} catalog at {where} can't be opened: {_first_line(error)}",
                hint="Check the address, the credentials among the catalog options, and the "
                "network.",
            ) from error
        return catalog

    def renew(self, options: Mapping[str, str]) -> None:
        """Reach the same warehouse as these options say from now on: with other credentials, in
        another region, at another address. Tables that are loaded keep what they have, but for
        the requests that publish."""
        opened = Catalog.open(options)
        self.stores.renew(opened.options)
        use_s3_file_io(opened.paimon, self.warehouse, opened.options, self.stores)
        self.options, self.paimon = opened.options, opened.paimon

    @property
    def metastore(self) -> str:
        """ "filesystem", "jdbc" or "rest"."""
        return self.options["metastore"]

    @property
    def warehouse(self) -> str:
        """The warehouse as an absolute path or a URI (for rest: its name on the server)."""
        return self.options["warehouse"]

    # ---- databases ----

    def list_databases(self) -> list[str]:
        """The names of all databases, sorted; `default` is always among them."""
        names: set[str] = {DEFAULT_DATABASE}
        with suppress(FileNotFoundError):  # the warehouse folder is not there yet
            names.update(self._call(self.paimon.list_databases))
        return sorted(names)

    def database_exists(self, database: str) -> bool:
        """Whether the database can be used; always true for `default`."""
        return database == DEFAULT_DATABASE or self._is_stored(database)

    def database_properties(self, database: str) -> dict[str, str]:
        """The database's stored properties (with `location` where the catalog tells it)."""
        self._require_database(database)
        properties: dict[str, str] = {}
        with suppress(missing.DatabaseNotExistException):
            properties.update(self._call(lambda: self.paimon.get_database(database)).options)
        if "location" not in properties and self.metastore != "rest":
            properties["location"] = self.paimon.get_database_path(database)
        return {key: str(value) for key, value in properties.items() if value is not None}

    def create_database(
        self,
        database: str,
        *,
        if_not_exists: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Creates a database. `default` exists from the start.

        A filesystem catalog has nowhere to keep properties (a comment among them): giving any
        raises UnsupportedStatementError.
        """
        _check_name(database, "database")
        if self.database_exists(database):
            if not if_not_exists:
                raise StatementError(
                    f"The database `{database}` exists already.",
                    hint="Use CREATE DATABASE IF NOT EXISTS, or another name.",
                )
            return
        if properties and self.metastore == "filesystem":
            raise UnsupportedStatementError(
                f"A filesystem catalog can't keep properties of the database `{database}`: "
                f"{', '.join(sorted(properties))}.",
                hint="Leave out LOCATION, COMMENT and DBPROPERTIES.",
            )
        self._call(lambda: self.paimon.create_database(database, True, dict(properties or {})))

    def alter_database(
        self, database: str, removals: Collection[str], updates: Mapping[str, str]
    ) -> None:
        """Changes a database's properties, in a catalog that keeps them (jdbc, rest)."""
        changes = [PropertyChange.remove_property(key) for key in removals]
        changes += [PropertyChange.set_property(key, value) for key, value in updates.items()]
        self._call(lambda: self.paimon.alter_database(database, changes))

    def database_folder(self, database: str) -> str:
        """Where a database lies, in a catalog that is not a REST server's."""
        return str(self.paimon.get_database_path(database))

    def make_database_folder(self, database: str) -> None:
        """Makes the folder of a database, which `default` may not have yet."""
        if not self._is_stored(database):
            self._call(lambda: self.paimon.create_database(database, True))

    def drop_database(
        self, database: str, *, if_exists: bool = False, cascade: bool = False
    ) -> None:
        """Drops a database; with tables in it only when `cascade`."""
        if not self.database_exists(database):
            if not if_exists:
                raise self._unknown_database(database)
            return
        tables = self.list_tables(database)
        if tables and not cascade:
            shown = ", ".join(f"`{table}`" for table in tables[:5])
            raise StatementError(
                f"The database `{database}` is not empty: it has {len(tables)} "
                f"table{'s' if len(tables) > 1 else ''} ({shown}{', …' if tables[5:] else ''}).",
                hint="Drop its tables first, or use DROP DATABASE … CASCADE.",
            )
        for table in tables if self.metastore != "rest" else ():
            self.drop_table(TableName(table, database), if_exists=True)
        if self._is_stored(database):
            self._call(lambda: self.paimon.drop_database(database, True, cascade))

    # ---- tables ----

    def list_tables(self, database: str) -> list[str]:
        """The names of the database's tables, sorted; folders without a schema are no tables."""
        self._require_database(database)
        try:
            names = self._call(lambda: self.paimon.list_tables(database))
        except (missing.DatabaseNotExistException, FileNotFoundError):
            return []
        if self.metastore == "filesystem":
            names = [n for n in names if self._schema_manager(database, n).latest() is not None]
        return sorted(names)

    def table_exists(self, name: TableName) -> bool:
        """Whether `load` would find the table (a name of a system table never does)."""
        if name.system_table is not None:
            return False
        try:
            self._get(name)
        except (missing.CatalogException, FileNotFoundError):
            return False
        return True

    def load(self, name: TableName) -> Table:
        """The table's newest schema; `name` must have its database.

        Raises UnknownNameError with the nearest name for a table, branch or database that is not
        there, UnsupportedStatementError for a system table and for tables that are no Paimon file
        store (format, object and Iceberg tables of a REST catalog).
        """
        if name.system_table is not None:
            raise UnsupportedStatementError(
                f"`{_shown(name)}` is a system table: it can only be read.",
                hint=f"Use the table `{_shown(replace(name, system_table=None))}` itself.",
            )
        try:
            paimon_table = self._get(name)
        except (missing.CatalogException, FileNotFoundError):
            raise self._unknown_table(name) from None
        if not isinstance(paimon_table, FileStoreTable):
            raise UnsupportedStatementError(
                f"`{_shown(name)}` is a {type(paimon_table).__name__}, which is not offered.",
                hint="Only Paimon's own tables can be used here.",
            )
        schema = schema_of(paimon_table.table_schema)
        if self.metastore == "rest":
            stored = tuple((k, v) for k, v in schema.options if k not in REST_ADDS)
            schema = replace(schema, options=stored)
        return Table(
            name,
            schema,
            str(paimon_table.table_path),
            paimon_table,
            self.stores.of(str(paimon_table.table_path)),
        )

    def create_table(
        self, name: TableName, table_schema: TableSchema, *, if_not_exists: bool = False
    ) -> bool:
        """Creates a table that `check_schema` has accepted.

        Returns false when the table exists and `if_not_exists` is given. Of two that create it at
        the same moment one fails.
        """
        if name.branch is not None or name.system_table is not None or "$" in name.table:
            raise InvalidTableError(
                f"A table can't be named `{name.object_name}`.",
                hint="The `$` sign is kept for branches and system tables.",
            )
        _check_name(name.table, "table")
        database = _database(name)
        self._require_database(database)
        if self.table_exists(name):
            return self._exists_already(name, if_not_exists)
        if table_schema.stored_option("path") is not None and self.metastore != "rest":
            raise UnsupportedStatementError(
                f"A {self.metastore} catalog puts tables into its warehouse: `{_shown(name)}` "
                "can't have a location of its own.",
                hint="Leave out LOCATION and the option 'path'.",
            )
        if not self._is_stored(database):
            self._call(lambda: self.paimon.create_database(database, True))
        schema = _new_schema(table_schema)
        if self.metastore == "filesystem":
            manager = self._schema_manager(database, name.table)
            if self._publish_schema(name, manager, StoredSchema.from_schema(0, schema)):
                return True
            return self._exists_already(name, if_not_exists)
        try:
            self._call(lambda: self.paimon.create_table(_identifier(name), schema, False))
        except missing.TableAlreadyExistException:
            return self._exists_already(name, if_not_exists)
        return True

    def replace_table(self, name: TableName, table_schema: TableSchema) -> None:
        """Gives a table another definition as its next schema, whatever was before, in a catalog in
        a file system. Who calls has removed its rows."""
        manager = self._schema_manager(_database(name), name.table)
        for _ in range(_ALTER_ATTEMPTS):
            latest = self.load(name).paimon.table_schema.id
            schema = StoredSchema.from_schema(latest + 1, _new_schema(table_schema))
            if self._publish_schema(name, manager, schema):
                return
        raise self._changed_meanwhile(name)

    def drop_table(self, name: TableName, *, if_exists: bool = False) -> bool:
        """Drops a table with all its branches and files; false when there was none."""
        if name.branch is not None:
            raise UnsupportedStatementError(
                f"`{_shown(name)}` is a branch: it can't be dropped as a table.",
                hint="Drop the branch by Paimon's drop_branch procedure.",
            )
        if if_exists and not (name.system_table or self.table_exists(name)):
            return False
        self.load(name)
        self._call(lambda: self._drop(name))
        return True

    def _drop(self, name: TableName) -> None:
        """pypaimon's removal of a local folder ends at the first file that somebody else removed
        before it, as a transaction does that clears up after itself; a jdbc catalog says nothing.
        """
        in_warehouse = self.metastore != "rest"
        path = self.paimon.get_table_path(_identifier(name)) if in_warehouse else ""
        with suppress(FileNotFoundError):
            self.paimon.drop_table(_identifier(name), False)
        while in_warehouse and self.paimon.file_io.exists(path):
            with suppress(FileNotFoundError):
                self.paimon.file_io.delete(path, True)

    def rename_table(self, name: TableName, new_name: TableName) -> None:
        """Renames a table, also into another database; nothing may have the new name.

        Raises UnsupportedStatementError for a table in a store that can't rename folders.
        """
        if name.branch is not None:
            raise UnsupportedStatementError(
                f"`{_shown(name)}` is a branch: it can't be renamed as a table.",
                hint="Rename the table itself.",
            )
        table = self.load(name)
        if self.metastore != "rest" and not table.store.renames_folders:
            raise UnsupportedStatementError(
                f"`{_shown(name)}` can't be renamed: its store has no step that renames all its "
                "files.",
                hint="Create a table of the new name, and fill it with INSERT INTO … SELECT.",
            )
        if "$" in new_name.object_name:
            raise InvalidTableError(
                f"A table can't be named `{new_name.object_name}`.",
                hint="The `$` sign is kept for branches and system tables.",
            )
        _check_name(new_name.table, "table")
        database = _database(new_name)
        self._require_database(database)
        if self.table_exists(new_name):
            self._exists_already(new_name, False)
        if not self._is_stored(database):
            self._call(lambda: self.paimon.create_database(database, True))
        if self.metastore != "rest":
            # pypaimon would move the table into a folder that is already there.
            path = self.paimon.get_table_path(_identifier(new_name))
            if self.paimon.file_io.exists(path):
                raise InvalidTableError(
                    f"`{_shown(name)}` can't become `{_shown(new_name)}`: {path} exists already.",
                    hint="Choose another name, or move that folder away.",
                )
        self._call(lambda: self.paimon.rename_table(_identifier(name), _identifier(new_name)))
        if not self.table_exists(new_name):
            raise StatementError(
                f"`{_shown(name)}` could not be renamed to `{_shown(new_name)}`.",
                hint="Check the rights on the warehouse folder.",
            )

    def alter_table(self, name: TableName, changes: Sequence[TableChange]) -> Table:
        """Changes a table's columns and options, and returns it as it is then.

        Several changes become one new schema. A change without effect stores nothing. When others
        change the table at the same moment the changes are planned anew on theirs. Renaming the
        table and dropping partitions are not changes of its definition (ValueError).
        """
        for _ in range(_ALTER_ATTEMPTS):
            table = self.load(name)
            alteration = plan_alteration(table.schema, changes, has_snapshots=_has_snapshots(table))
            if not alteration.changes:
                return table
            if self.metastore == "rest":
                to_send = schema_changes(alteration.changes, for_rest=True)
                self._call(partial(self.paimon.alter_table, _identifier(name), to_send))
                return self.load(name)
            manager = self._schema_manager(_database(name), name.table, name.branch or "main")
            schema = altered_schema(manager, table.paimon.table_schema, alteration)
            if self._publish_schema(name, manager, schema):
                if self.metastore == "jdbc":
                    sync_table_properties(self.paimon, _identifier(name), schema)
                return self.load(name)
        raise self._changed_meanwhile(name)

    # ---- files ----

    def publish(self, path: str, content: bytes) -> bool:
        """Create a file of a table's metadata if it is absent; return whether this very call did.

        False means that the path existed, with certainty. When it returns, content and name are
        durable. Raises UnsupportedStatementError for a store where that can't be relied on,
        SetupError where certainly nothing was created, OSError where that is unknown.
        """
        return self.stores.publish(path, content)

    # ---- helpers ----

    def _changed_meanwhile(self, name: TableName) -> CommitConflictError:
        return CommitConflictError(
            f"`{_shown(name)}` was changed by others {_ALTER_ATTEMPTS} times meanwhile.",
            hint="Run the statement again.",
        )

    def _publish_schema(
        self, name: TableName, manager: SchemaManager, schema: StoredSchema
    ) -> bool:
        try:
            return publish_schema(self.stores, manager, schema)
        except OSError as error:
            raise UnknownOutcomeError(
                f"Whether `{_shown(name)}` was stored is unknown: {_first_line(error)}",
                hint=f"Look at it with DESCRIBE {_shown(name)} before running the statement again.",
            ) from error

    def _get(self, name: TableName) -> Any:
        if name.branch is not None and self.metastore == "jdbc":
            # pypaimon's jdbc catalog would silently load the main branch.
            raise UnsupportedStatementError(
                f"The branch `{_shown(name)}` can't be used through a jdbc catalog.",
                hint="Open the same warehouse with a filesystem catalog.",
            )
        return self._call(lambda: self.paimon.get_table(_identifier(name)))

    def _schema_manager(self, database: str, table: str, branch: str = "main") -> SchemaManager:
        path = self.paimon.get_table_path(Identifier.create(database, table))
        return SchemaManager(self.paimon.file_io, path, branch)

    def _is_stored(self, database: str) -> bool:
        try:
            self._call(lambda: self.paimon.get_database(database))
        except (missing.DatabaseNotExistException, FileNotFoundError):
            return False
        return True

    def _require_database(self, database: str) -> None:
        if not self.database_exists(database):
            raise self._unknown_database(database)

    def _unknown_database(self, database: str) -> UnknownNameError:
        return UnknownNameError(
            f"There is no database `{database}`.",
            hint=f"{nearest(database, self.list_databases(), what='databases')} "
            f"CREATE DATABASE {_quoted(database)} makes it.",
        )

    def _unknown_table(self, name: TableName) -> UnknownNameError:
        database = _database(name)
        if not self.database_exists(database):
            return self._unknown_database(database)
        if name.branch is not None:
            main = replace(name, branch=None)
            if self.table_exists(main):
                branches = [str(b) for b in self.load(main).paimon.branch_manager().branches()]
                return UnknownNameError(
                    f"There is no branch `{name.branch}` of `{_shown(main)}`.",
                    hint=nearest(
                        name.branch, [*branches, "main"], what=f"branches of `{_shown(main)}`"
                    ),
                )
        return UnknownNameError(
            f"There is no table `{name.table}` in the database `{database}`.",
            hint=nearest(name.table, self.list_tables(database), what=f"tables in `{database}`"),
        )

    def _exists_already(self, name: TableName, if_not_exists: bool) -> bool:
        if if_not_exists:
            return False
        raise StatementError(
            f"The table `{_shown(name)}` exists already.",
            hint="Use CREATE TABLE IF NOT EXISTS, DROP TABLE it first, or choose another name.",
        )

    def _call(self, action: Callable[[], _T]) -> _T:
        """Runs one of pypaimon's calls; failures of storage and server become SetupError."""
        try:
            return action()
        except (missing.DatabaseNotExistException, missing.TableNotExistException):
            raise
        except (missing.TableAlreadyExistException, FileNotFoundError, PaimonMagicsError):
            raise
        except (missing.DatabaseNoPermissionException, missing.TableNoPermissionException) as error:
            raise SetupError(
                f"The catalog's server refused it: {_first_line(error)}",
                hint="Ask for the right on it, or use other credentials.",
            ) from error
        except PermissionError as error:
            raise SetupError(
                f"The warehouse {self.warehouse} can't be changed: {_first_line(error)}",
                hint="Use a warehouse that you may write.",
            ) from error
        except Exception as error:
            reason = misread(error) if "load schema" in str(error) else None
            if reason is not None:
                folder = str(error).rpartition(": ")[2]
                what = f"The newest schema file in {folder}"
                raise damaged(what, reason, "Restore the file.") from error
            raise failure(
                error,
                f"The catalog at {self.options.get('uri', self.warehouse)} failed: "
                f"{_first_line(error)}",
                hint="Check that it can be reached, and run the statement again.",
            ) from error


def _new_schema(schema: TableSchema) -> Schema:
    return Schema(
        fields=[field_from_column(column) for column in schema.columns],
        partition_keys=list(schema.partition_keys),
        primary_keys=list(schema.primary_keys),
        options=dict(schema.options),
        comment=schema.comment,
    )


def _has_snapshots(table: Table) -> bool:
    return latest_snapshot(table.paimon) is not None


def _database(name: TableName) -> str:
    if name.database is None:
        raise ValueError(f"{name} has no database; the session fills it in")
    return name.database


def _identifier(name: TableName) -> Identifier:
    return Identifier.create(_database(name), name.object_name)


def _shown(name: TableName) -> str:
    return f"{name.database}.{name.object_name}"


def _quoted(name: str) -> str:
    return name if name.isidentifier() else f"`{name.replace('`', '``')}`"


def _check_name(name: str, what: str) -> None:
    if not name or name.strip() != name or name.startswith(".") or set("/\\\0") & set(name):
        raise InvalidTableError(
            f"A {what} can't be named `{name}`.",
            hint="The name becomes a folder: no slashes, no leading dot, no spaces at its ends.",
        )
    if what == "database" and name == _SYSTEM_DATABASE:
        raise InvalidTableError(
            "A database can't be named `sys`.", hint="Paimon keeps that name for its system tables."
        )


def _unknown_metastore(metastore: str) -> SetupError:
    offered = ", ".join(_REQUIRED)
    instead = _NOT_OFFERED.get(metastore.strip().lower())
    if instead is not None:
        return SetupError(
            f"A catalog with the metastore '{metastore}' is not offered; these are: {offered}.",
            hint=f"{instead}; or serve it by a Paimon REST catalog.",
        )
    return SetupError(
        f"There is no metastore '{metastore}'.",
        hint=f"{likely_meant(metastore, _REQUIRED)} Offered are: {offered}.".strip(),
    )


def _checked_warehouse(warehouse: str) -> str:
    """The warehouse as an absolute path or a URI; raises SetupError when it can't be used."""
    uri = urlparse(warehouse)
    if uri.scheme in _REMOTE_SCHEMES:
        return warehouse
    if uri.scheme == "file":
        if uri.netloc not in ("", "localhost"):
            raise SetupError(
                f"The warehouse {warehouse} names the host '{uri.netloc}'.",
                hint=f"Write a local folder with three slashes: file:///{uri.netloc}{uri.path}",
            )
        _check_local(Path(unquote(uri.path)), warehouse)
        return warehouse
    if len(uri.scheme) > 1 and "://" in warehouse:
        raise SetupError(
            f"The warehouse {warehouse} has the unknown scheme '{uri.scheme}'.",
            hint=nearest(uri.scheme, (*_REMOTE_SCHEMES, "file"), what="schemes"),
        )
    path = Path(os.path.abspath(os.path.expanduser(warehouse)))
    _check_local(path, warehouse)
    return str(path)


def _check_local(path: Path, warehouse: str) -> None:
    existing = path
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise SetupError(
            f"The warehouse {warehouse} can't be a folder: {existing} is a file.",
            hint="Give the path of a folder, which may be new.",
        )
    if not os.access(existing, os.W_OK | os.X_OK):
        raise SetupError(
            f"The warehouse {warehouse} can't be written: no right to write in {existing}.",
            hint="Give the path of a folder that you may write.",
        )


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
