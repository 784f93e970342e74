"""The table of properties of databases, for warehouses in a file system, which can't keep them."""

from __future__ import annotations

import json
from collections.abc import Mapping

from paimon_magics.coordinator.store.sql import Sql

__all__ = ["DatabasePropertyTable"]


class DatabasePropertyTable:
    """The properties of databases by their ids; see `service.databases`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def of(self, id: str) -> dict[str, str]:
        """The properties of a database, empty for an unknown id. See `Databases`."""
        rows = self._sql.read("SELECT body FROM databases WHERE id = ?", id)
        properties: dict[str, str] = json.loads(rows[0][0]) if rows else {}
        return properties

    def save(self, id: str, properties: Mapping[str, str]) -> None:
        """Store the properties of a database; empty ones delete it."""
        if properties:
            self._sql.write(
                "INSERT INTO databases (id, body) VALUES (?, ?) "
                "ON CONFLICT (id) DO UPDATE SET body = excluded.body",
                *(id, json.dumps(dict(properties))),
            )
        else:
            self._sql.write("DELETE FROM databases WHERE id = ?", id)
