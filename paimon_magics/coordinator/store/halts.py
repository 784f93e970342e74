"""The tables of stopped tables and of pauses, which an administrator ends."""

from __future__ import annotations

from paimon_magics.coordinator.core import Pause, Stopped
from paimon_magics.coordinator.store.sql import Sql

__all__ = ["HaltTable"]


class HaltTable:
    """Tables that take no commits, the pause of the whole coordinator, and that of compactions."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def stopped(self) -> list[tuple[str, Stopped]]:
        """The locations of the tables that take no commits, each with the reason."""
        rows = self._sql.read("SELECT location, reason, since_ms FROM stopped ORDER BY location")
        return [(location, Stopped(reason, since_ms)) for location, reason, since_ms in rows]

    def save_stopped(self, location: str, stopped: Stopped | None) -> None:
        """Store that a table is stopped, or with None that it is not."""
        self._sql.write("DELETE FROM stopped WHERE location = ?", location)
        if stopped is not None:
            self._sql.write(
                "INSERT INTO stopped VALUES (?, ?, ?)", location, stopped.reason, stopped.since_ms
            )

    def pause(self) -> Pause | None:
        """The pause, None when there is none."""
        return self._pause("pause")

    def save_pause(self, pause: Pause | None) -> None:
        """Store the pause, or with None that there is none."""
        self._save_pause("pause", pause)

    def compaction_pause(self) -> Pause | None:
        """The pause of compactions, None when there is none."""
        return self._pause("compaction_pause")

    def save_compaction_pause(self, pause: Pause | None) -> None:
        """Store the pause of compactions, or with None that there is none."""
        self._save_pause("compaction_pause", pause)

    def _pause(self, table: str) -> Pause | None:
        rows = self._sql.read(f"SELECT by_whom, since_ms FROM {table}")
        return Pause(*rows[0]) if rows else None

    def _save_pause(self, table: str, pause: Pause | None) -> None:
        self._sql.write(f"DELETE FROM {table}")
        if pause is not None:
            self._sql.write(f"INSERT INTO {table} VALUES (?, ?)", pause.by, pause.since_ms)
