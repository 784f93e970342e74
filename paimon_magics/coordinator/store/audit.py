"""The table of the audit log's entries that are not in the warehouse yet."""

from __future__ import annotations

from collections.abc import Sequence

from paimon_magics.coordinator.store.sql import Sql

__all__ = ["AuditLog"]

_TOGETHER = 500  # ids in one statement


class AuditLog:
    """Entries by their ids, each a text, in the order of ids."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def save(self, entries: Sequence[tuple[str, str, bool]]) -> None:
        """Make entries durable together: id, text, and whether nothing more is to come of it. One
        with an id that is there replaces it."""
        with self._sql.together():
            for id, body, is_done in entries:
                self._sql.write(
                    "INSERT INTO audit (id, done, body) VALUES (?, ?, ?) "
                    "ON CONFLICT (id) DO UPDATE SET done = excluded.done, body = excluded.body",
                    id,
                    int(is_done),
                    body,
                )

    def first(self, count: int, *, done: bool) -> list[tuple[str, str]]:
        """The ids and texts of the first entries that are done, or are not."""
        rows = self._sql.read(
            "SELECT id, body FROM audit WHERE done = ? ORDER BY id LIMIT ?", int(done), count
        )
        return [(id, body) for id, body in rows]

    def drop(self, ids: Sequence[str]) -> None:
        """Delete entries."""
        for begin in range(0, len(ids), _TOGETHER):
            some = ids[begin : begin + _TOGETHER]
            marks = ", ".join("?" * len(some))
            self._sql.write(f"DELETE FROM audit WHERE id IN ({marks})", *some)

    def count(self) -> int:
        """How many entries there are."""
        return int(self._sql.read("SELECT count(*) FROM audit")[0][0])
