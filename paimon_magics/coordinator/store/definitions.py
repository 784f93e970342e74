"""The table of the views and functions of databases, which engines define."""

from __future__ import annotations

import json
from typing import Any

from paimon_magics.coordinator.store.sql import Sql

__all__ = ["DefinitionTable"]

_KEY = "database_id = ? AND kind = ? AND name = ?"


class DefinitionTable:
    """Views and functions by the ids of their databases; see `service.definitions`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def names(self, database_id: str, kind: str) -> list[str]:
        """The names of a database's views or functions, in no order."""
        statement = "SELECT name FROM definitions WHERE database_id = ? AND kind = ?"
        return [name for (name,) in self._sql.read(statement, database_id, kind)]

    def of(self, database_id: str, kind: str, name: str) -> dict[str, Any] | None:
        """The document of a view or a function; None if there is none of that name."""
        rows = self._sql.read(f"SELECT body FROM definitions WHERE {_KEY}", database_id, kind, name)
        document: dict[str, Any] | None = json.loads(rows[0][0]) if rows else None
        return document

    def save(self, database_id: str, kind: str, name: str, document: dict[str, Any]) -> None:
        """Store a view or a function, in place of what has its name."""
        self._sql.write(
            "INSERT INTO definitions (database_id, kind, name, body) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (database_id, kind, name) DO UPDATE SET body = excluded.body",
            *(database_id, kind, name, json.dumps(document)),
        )

    def move(self, kind: str, source: tuple[str, str], target: tuple[str, str]) -> None:
        """Give a view or a function another name. Both are ids of databases with names in them."""
        self._sql.write(
            f"UPDATE definitions SET database_id = ?, name = ? WHERE {_KEY}",
            *(*target, source[0], kind, source[1]),
        )

    def delete(self, database_id: str, kind: str, name: str) -> None:
        """Delete a view or a function."""
        self._sql.write(f"DELETE FROM definitions WHERE {_KEY}", database_id, kind, name)

    def delete_all(self, database_id: str) -> None:
        """Delete all views and functions of a database."""
        self._sql.write("DELETE FROM definitions WHERE database_id = ?", database_id)
