"""What a coordinator remembers over its own death: transactions, and what they asked to commit.

SQLite in WAL mode with synchronous=FULL and one connection: when `save` returns, the state is on
the disk. A database that can't be opened, is locked by another process, or lies on a network file
system is refused at the start.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import apsw

from paimon_magics.coordinator.core import Held, Phase
from paimon_magics.errors import SetupError
from paimon_magics.planning.commits import CommitReceipt

__all__ = ["Store"]

_FORMAT = 2
_BUSY_MS = 5_000

_TABLES = """
CREATE TABLE IF NOT EXISTS meta (format INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS transactions (
  id TEXT PRIMARY KEY,
  finished INTEGER NOT NULL,  -- 1 when it is committed or aborted, with all that belongs to that
  expires_at_ms INTEGER NOT NULL,
  body TEXT NOT NULL,      -- the coordinator's own view of it
  opened TEXT NOT NULL,    -- commit user, file prefix, base snapshot: never changes
  request BLOB             -- what was asked to be committed, once it was
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS transactions_by_end ON transactions (finished, expires_at_ms);
"""
_FINISHED = (Phase.COMMITTED, Phase.ABORTED)


class Store:
    """The database of one coordinator, for any thread."""

    def __init__(self, path: Path) -> None:
        # One connection for all, so that a reader would see what another thread has not yet made
        # durable: whoever uses it holds this.
        self._turn = threading.RLock()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            self._connection = apsw.Connection(str(path))
            self._connection.set_busy_timeout(_BUSY_MS)
            mode = self._connection.pragma("journal_mode", "wal")
            self._connection.pragma("synchronous", "full")
            # Held for good: a second coordinator on the same file fails here, not later.
            self._connection.pragma("locking_mode", "exclusive")
            with self._connection:
                self._connection.execute(_TABLES)
                self._check_format(path)
        except apsw.BusyError as error:
            raise SetupError(
                f"The coordinator's database {path} is in use by another process.",
                hint="Stop the other coordinator, or give this one another state folder.",
            ) from error
        except apsw.Error as error:
            raise SetupError(
                f"The coordinator's database {path} can't be opened: {error}.",
                hint="Check the folder's rights and free space, and that it is on a local disk.",
            ) from error
        if mode != "wal":
            raise SetupError(
                f"The coordinator's database {path} can't use a write-ahead log there.",
                hint="Put the state folder on a local disk.",
            )

    def unfinished(self) -> list[tuple[Held, dict[str, object]]]:
        """All transactions that are not finished, each with what was noted when it was opened."""
        rows = self._all("SELECT body, opened FROM transactions WHERE finished = 0 ORDER BY id")
        return [(_held(body), json.loads(opened)) for body, opened in rows]

    def finished(self, id: str) -> Held | None:
        """A finished transaction, None when there is none (any more) or it is not finished."""
        rows = self._all("SELECT body FROM transactions WHERE id = ? AND finished = 1", id)
        return _held(rows[0][0]) if rows else None

    def recently_finished(self, count: int) -> list[Held]:
        """The transactions that were finished last, the newest first."""
        rows = self._all(
            "SELECT body FROM transactions WHERE finished = 1 ORDER BY expires_at_ms DESC LIMIT ?",
            count,
        )
        return [_held(body) for (body,) in rows]

    def opened(self, id: str) -> dict[str, object] | None:
        """What was noted when the transaction was opened."""
        rows = self._all("SELECT opened FROM transactions WHERE id = ?", id)
        return json.loads(rows[0][0]) if rows else None

    def request(self, id: str) -> bytes | None:
        """What the transaction asked to commit."""
        rows = self._all("SELECT request FROM transactions WHERE id = ?", id)
        return rows[0][0] if rows else None

    @contextmanager
    def together(self) -> Iterator[None]:
        """All that is saved in the body becomes durable at once, at its end."""
        with self._turn, self._connection:
            yield

    def open(self, held: Held, opened: dict[str, object]) -> None:
        """Store a new transaction."""
        self._all(
            "INSERT INTO transactions (id, finished, expires_at_ms, body, opened) "
            "VALUES (?, 0, ?, ?, ?)",
            *(held.id, held.expires_at_ms, _body(held), json.dumps(opened)),
        )

    def save(self, held: Held, request: bytes | None = None) -> None:
        """Store a transaction's new state, and what it asks to commit where that is given."""
        self._all(
            "UPDATE transactions SET finished = ?, expires_at_ms = ?, body = ?, "
            "request = coalesce(?, request) WHERE id = ?",
            *(held.phase in _FINISHED, held.expires_at_ms, _body(held), request, held.id),
        )

    def forget_finished(self, until_ms: int) -> None:
        """Delete the finished transactions that need not be kept longer than `until_ms`."""
        self._all("DELETE FROM transactions WHERE finished = 1 AND expires_at_ms <= ?", until_ms)

    def close(self) -> None:
        """Close the database; its file is complete without the log then."""
        with self._turn:
            self._connection.close()

    def _all(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with self._turn:
            return list(self._connection.execute(statement, values))

    def _check_format(self, path: Path) -> None:
        row = self._connection.execute("SELECT format FROM meta").fetchone()
        if row is None:
            self._connection.execute("INSERT INTO meta VALUES (?)", (_FORMAT,))
        elif row[0] != _FORMAT:
            raise SetupError(
                f"{path} was written by another version (format {row[0]}, this one is {_FORMAT}).",
                hint="Use the version that wrote it, or drain it there and start anew.",
            )


def _body(held: Held) -> str:
    return json.dumps(asdict(held))


def _held(text: str) -> Held:
    body: dict[str, object] = json.loads(text)
    receipt = body.pop("receipt")
    return Held(
        **{**body, "phase": Phase(str(body["phase"]))},  # type: ignore[arg-type]
        receipt=CommitReceipt(**receipt) if isinstance(receipt, dict) else None,
    )
