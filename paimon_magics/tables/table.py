"""A table as the catalog has loaded it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from pypaimon.table.file_store_table import FileStoreTable

from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.stores.store import Store

__all__ = ["Table", "publishes_itself"]


@dataclass(frozen=True, slots=True)
class Table:
    """A table as loaded: its newest schema and where it lives.

    `name` has its database, and its branch where one was asked for. `store` is the store of its
    files. `paimon` is pypaimon's table: only modules of `tables` may touch it.
    """

    name: TableName
    schema: TableSchema
    location: str
    paimon: FileStoreTable
    store: Store


class _Stored(Protocol):
    @property
    def paimon(self) -> Any: ...


def publishes_itself(table: _Stored) -> bool:
    """Whether the table's catalog publishes snapshots (a REST catalog) rather than we."""
    return bool(table.paimon.catalog_environment.supports_version_management)
