"""The table of transactions and their commit requests."""

from __future__ import annotations

import json
from dataclasses import asdict

from paimon_magics.coordinator.core import FINISHED, Origin, Phase, TransactionState
from paimon_magics.coordinator.store.sql import Sql
from paimon_magics.planning.commits.requests import CommitReceipt

__all__ = ["TransactionTable"]


class TransactionTable:
    """The stored transactions, finished and unfinished."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def unfinished(self) -> list[tuple[TransactionState, dict[str, object]]]:
        """All unfinished transactions, each with its document from when it was opened."""
        rows = self._sql.read(
            "SELECT body, opened FROM transactions WHERE finished = 0 ORDER BY id"
        )
        return [(_held(body), json.loads(opened)) for body, opened in rows]

    def finished(self, id: str) -> TransactionState | None:
        """A finished transaction; None when it is unknown, no longer kept, or unfinished."""
        rows = self._sql.read("SELECT body FROM transactions WHERE id = ? AND finished = 1", id)
        return _held(rows[0][0]) if rows else None

    def recently_finished(self, count: int) -> list[TransactionState]:
        """The last finished transactions, the newest first."""
        rows = self._sql.read(
            "SELECT body FROM transactions WHERE finished = 1 ORDER BY expires_at_ms DESC LIMIT ?",
            count,
        )
        return [_held(body) for (body,) in rows]

    def opened(self, id: str) -> dict[str, object] | None:
        """A transaction's document from when it was opened; None for an unknown one."""
        rows = self._sql.read("SELECT opened FROM transactions WHERE id = ?", id)
        return json.loads(rows[0][0]) if rows else None

    def request(self, id: str) -> bytes | None:
        """A transaction's commit request; None for an unknown one, or one without a request."""
        rows = self._sql.read("SELECT request FROM transactions WHERE id = ?", id)
        return rows[0][0] if rows else None

    def runs(self, id: str) -> int:
        """The number of runs of the transaction's commit that were begun."""
        rows = self._sql.read("SELECT runs FROM transactions WHERE id = ?", id)
        return int(rows[0][0]) if rows else 0

    def open(self, held: TransactionState, opened: dict[str, object]) -> None:
        """Store a new transaction."""
        self._sql.write(
            "INSERT INTO transactions (id, finished, expires_at_ms, body, opened) "
            "VALUES (?, 0, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET finished = 0, "
            "expires_at_ms = excluded.expires_at_ms, body = excluded.body, "
            "opened = excluded.opened",
            *(held.id, held.expires_at_ms, _body(held), json.dumps(opened)),
        )

    def save(self, held: TransactionState, request: bytes | None = None) -> None:
        """Store a transaction's new state, and its commit request if that is given."""
        self._sql.write(
            "UPDATE transactions SET finished = ?, expires_at_ms = ?, body = ?, "
            "request = coalesce(?, request) WHERE id = ?",
            *(int(held.phase in FINISHED), held.expires_at_ms, _body(held), request, held.id),
        )

    def begin_run(self, id: str) -> None:
        """Store that another run of the transaction's commit begins."""
        # Repeated, it skips a number, which does no harm.
        self._sql.write("UPDATE transactions SET runs = runs + 1 WHERE id = ?", id)

    def forget_finished(self, until_ms: int) -> None:
        """Delete the finished transactions whose retention ended at `until_ms` or before."""
        self._sql.write(
            "DELETE FROM transactions WHERE finished = 1 AND expires_at_ms <= ?", until_ms
        )


def _body(held: TransactionState) -> str:
    return json.dumps(asdict(held))


def _held(text: str) -> TransactionState:
    body: dict[str, object] = json.loads(text)
    receipt = body.pop("receipt")
    origin = body.pop("origin", None)  # older versions did not store it
    if isinstance(body.get("placed"), bool):  # a version that did not store the table's id
        body["placed"] = ""
    if "location" not in body:  # format 4
        body["location"], body["table"] = body.pop("table"), body.pop("name", "")
    return TransactionState(
        **{**body, "phase": Phase(str(body["phase"]))},  # type: ignore[arg-type]
        receipt=CommitReceipt(**receipt) if isinstance(receipt, dict) else None,
        origin=Origin(**origin) if isinstance(origin, dict) else Origin(),
    )
