"""The tables of what an administrator has halted, or must let go on."""

from __future__ import annotations

from paimon_magics.coordinator.core import Pause, Stopped
from paimon_magics.coordinator.store.sql import Sql

__all__ = ["HaltTable"]


class HaltTable:
    """Tables that take no commits, and the pause of all."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def stopped(self) -> list[tuple[str, Stopped]]:
        """The tables that take no commits, by their locations."""
        rows = self._sql.read("SELECT location, reason, since_ms FROM stopped ORDER BY location")
        return [(location, Stopped(reason, since_ms)) for location, reason, since_ms in rows]

    def save_stopped(self, location: str, stopped: Stopped | None) -> None:
        """Store that a table is stopped, or (None) that it is not."""
        self._sql.write("DELETE FROM stopped WHERE location = ?", location)
        if stopped is not None:
            self._sql.write(
                "INSERT INTO stopped VALUES (?, ?, ?)", location, stopped.reason, stopped.since_ms
            )

    def pause(self) -> Pause | None:
        """Who has let nothing new begin, None when nobody has."""
        rows = self._sql.read("SELECT by_whom, since_ms FROM pause")
        return Pause(*rows[0]) if rows else None

    def save_pause(self, pause: Pause | None) -> None:
        """Store that nothing new begins, or (None) that it does."""
        self._sql.write("DELETE FROM pause")
        if pause is not None:
            self._sql.write("INSERT INTO pause VALUES (?, ?)", pause.by, pause.since_ms)
