"""The tables of stopped tables and of the pause, which an administrator ends."""

from __future__ import annotations

from paimon_magics.coordinator.core import Pause, Stopped
from paimon_magics.coordinator.store.sql import Sql

__all__ = ["HaltTable"]


class HaltTable:
    """Tables that take no commits, and the pause of the whole coordinator."""

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
        rows = self._sql.read("SELECT by_whom, since_ms FROM pause")
        return Pause(*rows[0]) if rows else None

    def save_pause(self, pause: Pause | None) -> None:
        """Store the pause, or with None that there is none."""
        self._sql.write("DELETE FROM pause")
        if pause is not None:
            self._sql.write("INSERT INTO pause VALUES (?, ?)", pause.by, pause.since_ms)
