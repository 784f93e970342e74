"""A table as the catalog has loaded it: `Table` for statements, `StoredTable` for other engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pypaimon.table.file_store_table import FileStoreTable

from paimon_magics.errors import UnknownNameError
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.pypaimon_internals import (
    open_local_files_at_once,
    read_keys_of_replaced_tables,
    read_manifests_of_older_releases,
    read_statistics_of_row_ids,
    write_nulls_as_java,
)
from paimon_magics.tables.stores.allowed_paths import AllowedPaths
from paimon_magics.tables.stores.store import Store

MAIN_BRANCH = "main"

MARK_NAME = ".paimon-magics-table"
"""The file in a table's folder that has the table's id."""

ATTEMPTS_FOLDER = ".attempts"
"""The folder in a table's folder with the notes of task attempts: see `writing.attempts`."""

# Before any manifest is read.
read_keys_of_replaced_tables()
read_manifests_of_older_releases()
read_statistics_of_row_ids()
write_nulls_as_java()
open_local_files_at_once()


@dataclass(frozen=True, slots=True)
class Table:
    """A loaded table: its newest schema and its location.

    `name` has its database, and its branch if the caller named one. `store` is the store of its
    files; `paths` decides which files may be read and deleted. `paimon` is pypaimon's table: only
    modules of `tables` may touch it.
    """

    name: TableName
    schema: TableSchema
    location: str
    paimon: FileStoreTable
    store: Store
    paths: AllowedPaths


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A table, or one of its branches, with its newest schema as JSON (Paimon's schema file).

    `location` is a plain path on a local disk and a URI elsewhere. `store` is the store of its
    files, `paths` as in `Table`. `paimon` is pypaimon's table: only modules of `tables` may touch
    it.
    """

    name: TableName
    location: str
    table_id: str
    schema: dict[str, Any]
    created_at_ms: int
    updated_at_ms: int
    paimon: Any
    store: Store
    paths: AllowedPaths

    @property
    def options(self) -> dict[str, str]:
        """The options of the newest schema."""
        return dict(self.schema.get("options") or {})

    @property
    def schema_id(self) -> int:
        """The number of the newest schema."""
        return int(self.schema["id"])


def publishes_itself(table: Table | StoredTable) -> bool:
    """Whether the table's catalog publishes its snapshots itself (a REST catalog)."""
    return bool(table.paimon.catalog_environment.supports_version_management)


def branch_folder(table: Table | StoredTable) -> str:
    """The folder of a table's metadata, or of its branch's."""
    root = str(table.paimon.table_path).rstrip("/")
    branch = table.paimon.current_branch()
    return root if branch == MAIN_BRANCH else f"{root}/branch/branch-{branch}"


def write_beside(table: Table, path: str, content: bytes) -> None:
    """Write a file into a folder that is, or will be, in the folder of a table or its branch.

    Raises UnknownNameError for a table that was dropped or renamed: its folder must not come back,
    as nobody would remove it, and no table could be renamed to its name.
    """
    try:
        table.store.make_folder(path.rpartition("/")[0], has_parent=True)
        table.store.write(path, content)
    except FileNotFoundError as error:
        raise gone(table) from error


def gone(table: Table) -> UnknownNameError:
    """The error for a table whose folder is no longer there."""
    return UnknownNameError(
        f"`{table.name}` was dropped or renamed meanwhile. Nothing was written.",
        hint="SHOW TABLES lists the existing tables.",
    )


def branch_names(paimon: Any) -> list[str]:
    """The names of all branches of a table, pypaimon's `paimon`, the main one first."""
    return [MAIN_BRANCH, *(str(name) for name in paimon.branch_manager().branches())]
