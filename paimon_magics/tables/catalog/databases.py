"""An opened warehouse and its databases, through pypaimon, with this project's errors.

The database `default` can always be used; it is created on demand.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar
from urllib.parse import unquote, urlparse

from pypaimon.catalog import catalog_exception as missing
from pypaimon.catalog.catalog_factory import CatalogFactory
from pypaimon.catalog.rest.property_change import PropertyChange

from paimon_magics.errors import (
    PaimonMagicsError,
    SetupError,
    StatementError,
    UnknownNameError,
    UnsupportedStatementError,
    likely_meant,
    nearest,
)
from paimon_magics.planning.formatting import shortened
from paimon_magics.redaction import conceal_options
from paimon_magics.statements.statement import NAME_BYTES_MAX
from paimon_magics.tables.catalog.names import check_name, first_line, is_text, quoted
from paimon_magics.tables.catalog.warehouse_mark import check_not_moved, move_hint
from paimon_magics.tables.pypaimon_internals import rest_answer
from paimon_magics.tables.schema.history import external_roots
from paimon_magics.tables.stores.allowed_paths import (
    TABLES_DECIDE,
    AllowedPaths,
    PathRules,
    is_plain_name,
)
from paimon_magics.tables.stores.object_file_io import know_object_stores, use_object_file_io
from paimon_magics.tables.stores.paths import plain_location
from paimon_magics.tables.stores.s3_access import check_option_names, s3_access, with_region
from paimon_magics.tables.stores.s3_diagnosis import check_access
from paimon_magics.tables.stores.short_keys import KeySource
from paimon_magics.tables.stores.store import (
    OBJECT_SCHEMES,
    S3_SCHEMES,
    StoreRefusedError,
    Stores,
    failure,
    open_object_store,
)

DEFAULT_DATABASE = "default"
_T = TypeVar("_T")


# Each metastore with the options that it requires.
_METASTORES = {
    "filesystem": ("warehouse",),
    "jdbc": ("uri", "warehouse"),
    "rest": ("uri", "warehouse", "token.provider"),
}
# Metastores that a user may ask for, with the alternative.
_NOT_OFFERED = {
    "hive": "Open the warehouse folder of Hive's tables as a filesystem catalog (warehouse=…, "
    "without 'metastore'); Hive can keep using the tables",
    "dlf": "Use a rest catalog with 'token.provider' = 'dlf'",
}
_PASSING = (
    missing.DatabaseNotExistException,
    missing.TableNotExistException,
    missing.TableAlreadyExistException,
)
_REMOTE_SCHEMES = tuple(sorted((*OBJECT_SCHEMES, "hdfs", "viewfs")))


class Visibility(Protocol):
    """Determines which databases and tables a user may see."""

    def sees_database(self, database: str) -> bool:
        """Whether the user may see anything in a database."""

    def sees_table(self, database: str, table: str) -> bool:
        """Whether the user may see a table."""


class Databases:
    """The databases of one warehouse; `Catalog` adds their tables.

    With a `visibility`, hidden databases and tables are treated as missing, also in hints of
    errors. Without `names_in_hints`, errors name no other databases and tables.
    """

    visibility: Visibility | None = None
    names_in_hints = True

    def __init__(self, options: Mapping[str, str], paimon: Any, rules: PathRules) -> None:
        self.options = dict(options)
        self.rules = rules
        self.paimon = paimon
        self.stores = Stores(self.options)
        self.directory = KeySource.of(self.options)  # names, where the store may not be listed

    @classmethod
    def open(cls, options: Mapping[str, str], rules: PathRules = TABLES_DECIDE) -> Self:
        """Open a catalog from Paimon's own catalog options (`warehouse`, `metastore`, `uri`, …).

        `warehouse` is a path or a URI. `~` and relative paths are resolved here, so that other
        processes use the same folder. `rules` say which files outside tables' folders may be read
        and deleted. Raises SetupError, before anything is written, for an
        unknown metastore, a missing option or a warehouse that can't be used.
        """
        checked = _checked_options(options)
        metastore = checked["metastore"]
        know_object_stores()
        try:
            rules.check(checked["warehouse"])
            catalog = cls(checked, CatalogFactory.create(checked), rules)
            if metastore != "rest" and urlparse(checked["warehouse"]).scheme in _REMOTE_SCHEMES:
                use_object_file_io(catalog.paimon, checked["warehouse"], checked, catalog.stores)
                if catalog.directory is None:
                    catalog.paimon.file_io.exists(checked["warehouse"])
        except PaimonMagicsError:
            raise
        except Exception as error:
            where = checked["uri"] if metastore != "filesystem" else checked["warehouse"]
            raise failure(
                error,
                f"The {metastore} catalog at {where} can't be opened: {first_line(error)}",
                hint="Check the address, the credentials among the catalog options, and the "
                "network.",
            ) from error
        return catalog

    def renew(self, options: Mapping[str, str]) -> None:
        """Use other credentials, another region or another address for the same warehouse from now
        on. Tables that are loaded already read with the old options and publish with the new."""
        opened = type(self).open(options, self.rules)
        self.stores.renew(opened.options)
        use_object_file_io(opened.paimon, self.warehouse, opened.options, self.stores)
        self.options, self.paimon = opened.options, opened.paimon

    def seen_by(self, visibility: Visibility) -> Self:
        """The same catalog with a narrower visibility."""
        seen = copy(self)
        seen.visibility = visibility
        return seen

    def without_names_in_hints(self) -> Self:
        """The same catalog for a server, whose users must not see all names: the hints of its
        errors name no databases and tables. See `UnknownNameError.near`."""
        quiet = copy(self)
        quiet.names_in_hints = False
        return quiet

    def sees_database(self, database: str) -> bool:
        """Whether a database is not hidden by the visibility."""
        return self.visibility is None or self.visibility.sees_database(database)

    def sees_table(self, database: str, table: str) -> bool:
        """Whether a table is not hidden by the visibility."""
        return self.visibility is None or self.visibility.sees_table(database, table)

    @property
    def table_defaults(self) -> dict[str, str]:
        """The options that new tables get unless their own say otherwise (`table-default.…`)."""
        prefix = "table-default."
        return {
            key.removeprefix(prefix): value
            for key, value in self.options.items()
            if key.startswith(prefix)
        }

    @property
    def metastore(self) -> str:
        """ "filesystem", "jdbc" or "rest"."""
        return self.options["metastore"]

    @property
    def warehouse(self) -> str:
        """The warehouse as an absolute path or a URI (for rest: its name on the server)."""
        return self.options["warehouse"]

    def paths_of(self, location: str, paimon: Any) -> AllowedPaths:
        """The paths that the table at `location`, pypaimon's `paimon`, may use."""
        roots = partial(external_roots, paimon)
        return AllowedPaths(location, self.warehouse, self.rules, self.stores, roots)

    def list_databases(self) -> list[str]:
        """The names of all databases, sorted, always with `default`, unless that is hidden."""
        return sorted(filter(self.sees_database, {DEFAULT_DATABASE, *self.stored_databases()}))

    def stored_databases(self) -> list[str]:
        """The names of the databases that the catalog has stored, sorted."""
        with suppress(FileNotFoundError):  # the warehouse folder is not there yet
            listed = self.paimon.list_databases
            if self.directory is not None:
                listed = self.directory.databases
            names = filter(is_text, self.call(listed))
            # A folder `.db` or `.trash.db` of others is no database: see `check_name`.
            named = [name for name in names if name and not name.startswith(".")]
            if not named:
                self.check_place()
            return sorted(filter(self.sees_database, named))
        return []

    def check_place(self) -> None:
        """Raise SetupError if the warehouse was moved: then nothing is left here."""
        if self.metastore != "rest":
            with suppress(StoreRefusedError):  # a key for tables only can't read the note
                check_not_moved(self.stores, self.warehouse)

    def database_exists(self, database: str) -> bool:
        """Whether the database can be used; always True for `default`."""
        is_default = database == DEFAULT_DATABASE and self.sees_database(database)
        return is_default or self.is_stored(database)

    def database_properties(self, database: str) -> dict[str, str]:
        """The database's stored properties, with its `location` (of a REST catalog only if the
        server names it). Raises UnknownNameError if there is no such database."""
        self.require_database(database)
        properties: dict[str, str] = {}
        with suppress(missing.DatabaseNotExistException):
            properties.update(self.call(lambda: self.paimon.get_database(database)).options)
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
        """Create a database. `default` counts as existing from the start.

        Raises StatementError if it exists, unless `if_not_exists`. A filesystem catalog can't store
        properties, including a comment: giving any raises UnsupportedStatementError.
        """
        check_name(database, "database")
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
        self.call(lambda: self.paimon.create_database(database, True, dict(properties or {})))

    def alter_database(
        self, database: str, removals: Collection[str], updates: Mapping[str, str]
    ) -> None:
        """Change a database's properties, in a catalog that keeps them (jdbc, rest)."""
        changes = [PropertyChange.remove_property(key) for key in removals]
        changes += [PropertyChange.set_property(key, value) for key, value in updates.items()]
        self.call(lambda: self.paimon.alter_database(database, changes))

    def database_folder(self, database: str) -> str:
        """The folder of a database. Not for a REST catalog."""
        return str(self.paimon.get_database_path(database))

    def make_database_folder(self, database: str) -> None:
        """Create the database if it is not stored yet, as `default` may not be."""
        if not self.is_stored(database):
            self.call(lambda: self.paimon.create_database(database, True))

    def is_stored(self, database: str) -> bool:
        """Whether the catalog has stored the database; `default` may not be stored yet."""
        if not is_plain_name(database, ".db"):
            return False
        if self.directory is not None:
            return database in self.stored_databases()
        if not self.sees_database(database):
            database = uuid.uuid4().hex  # the same look at the store, as after a name that is free
        try:
            self.call(lambda: self.paimon.get_database(database))
        except (missing.DatabaseNotExistException, FileNotFoundError):
            return False
        return True

    def require_database(self, database: str) -> None:
        """Raise UnknownNameError if the database does not exist."""
        if not self.database_exists(database):
            raise self.unknown_database(database)

    def unknown_database(self, database: str) -> UnknownNameError:
        """The error for a database that does not exist, with the nearest name."""
        database = shortened(database, NAME_BYTES_MAX)
        gone = "" if self.metastore == "rest" else move_hint(self.stores, self.warehouse)
        message = f"There is no database `{database}`."
        if gone:
            return UnknownNameError(message, hint=gone)
        creating = f"CREATE DATABASE {quoted(database)} creates it."

        def near() -> str:
            return f"{nearest(database, self.list_databases, what='databases')} {creating}"

        return self.unknown_name(message, near, creating)

    def unknown_name(self, message: str, near: Callable[[], str], hint: str) -> UnknownNameError:
        """The error for a name that does not exist: with the hint of `near`, which names others;
        where hints have no names, with `hint`."""
        if self.names_in_hints:
            return UnknownNameError(message, hint=near())
        error = UnknownNameError(message, hint=hint)
        error.near = near
        return error

    def ask(
        self, method: str, path: str, document: Mapping[str, Any] | None
    ) -> tuple[int, dict[str, Any]]:
        """Send a request to the server of a rest catalog; return the status and the document of its
        answer. `path` is below the catalog's own."""
        return self.call(lambda: rest_answer(self.paimon, method, path, document))

    def call(self, action: Callable[[], _T]) -> _T:
        """Call pypaimon; raise failures of the store or the server as SetupError.

        pypaimon's errors for databases and tables that are missing, or exist already, pass through.
        """
        try:
            return action()
        except (*_PASSING, FileNotFoundError, PaimonMagicsError):
            raise
        except (missing.DatabaseNoPermissionException, missing.TableNoPermissionException) as error:
            raise SetupError(
                f"The catalog's server refused the request: {first_line(error)}",
                hint="Ask for access to it, or use other credentials.",
            ) from error
        except PermissionError as error:
            raise SetupError(
                f"The warehouse {self.warehouse} can't be changed: {first_line(error)}",
                hint="Use a warehouse that you can write to.",
            ) from error
        except Exception as error:
            raise failure(
                error,
                f"The catalog at {self.options.get('uri', self.warehouse)} failed: "
                f"{first_line(error)}",
                hint="Check that it can be reached, and run the statement again.",
            ) from error


# The check of the catalog options and of the warehouse that they name, before anything is
# written.


def _checked_options(options: Mapping[str, str]) -> dict[str, str]:
    """Paimon's catalog options, completed: the metastore, the warehouse as an absolute path or URI,
    and S3's region from the environment.

    Raises SetupError for an unknown metastore, a missing option or a warehouse that can't be used.
    """
    conceal_options(options)
    checked = dict(options)
    metastore = checked.setdefault("metastore", "filesystem")
    if metastore not in _METASTORES:
        raise _unknown_metastore(metastore)
    for key in _METASTORES[metastore]:
        if not checked.get(key):
            raise SetupError(
                f"The option '{key}' is missing for a {metastore} catalog.",
                hint=f"Add '{key}' to the catalog options.",
            )
    if metastore != "rest":
        checked["warehouse"] = _checked_warehouse(checked["warehouse"])
        checked = with_region(checked)
        if urlparse(checked["warehouse"]).scheme in S3_SCHEMES:
            check_option_names(checked)
            check_access(checked["warehouse"], s3_access(checked))
        elif urlparse(checked["warehouse"]).scheme in OBJECT_SCHEMES:
            open_object_store(checked["warehouse"], checked)  # refuses what can't be reached
    return checked


def _unknown_metastore(metastore: str) -> SetupError:
    offered = ", ".join(_METASTORES)
    instead = _NOT_OFFERED.get(metastore.strip().lower())
    if instead is not None:
        return SetupError(
            f"A catalog with the metastore '{metastore}' is not offered. Offered are: {offered}.",
            hint=f"{instead}; or serve the warehouse with a Paimon REST catalog.",
        )
    return SetupError(
        f"There is no metastore '{metastore}'.",
        hint=f"{likely_meant(metastore, _METASTORES)} Offered are: {offered}.".strip(),
    )


def _checked_warehouse(warehouse: str) -> str:
    """The warehouse as an absolute path or a URI. Raises SetupError if it can't be used."""
    uri = urlparse(warehouse)
    if uri.scheme in _REMOTE_SCHEMES:
        return plain_location(warehouse)
    if uri.scheme == "file":
        if uri.netloc not in ("", "localhost"):
            raise SetupError(
                f"The warehouse {warehouse} names the host '{uri.netloc}'.",
                hint=f"Write a local folder with three slashes: file:///{uri.netloc}{uri.path}",
            )
        _check_local(Path(unquote(uri.path)), warehouse)
        return f"file://{os.path.normpath(f'/{uri.path}'.replace('//', '/'))}"
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
    if existing == path and os.access(path, os.R_OK | os.X_OK):
        return  # tables can be read, also where nothing can be written
    if not os.access(existing, os.W_OK | os.X_OK):
        raise SetupError(
            f"The warehouse {warehouse} can't be written: no permission to write in {existing}.",
            hint="Give the path of a folder that you can write to.",
        )
