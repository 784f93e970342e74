"""What a coordinator remembers over its own death: transactions, and what they asked to commit.

SQLite in WAL mode with synchronous=FULL and one connection: when `save` returns, the state is on
the disk. A database that can't be opened, is locked by another process, or lies on a network file
system is refused at the start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import apsw

from paimon_magics.coordinator.core import Held, Phase
from paimon_magics.errors import SetupError
from paimon_magics.planning.commits import CommitReceipt

__all__ = ["Store"]

_FORMAT = 1
_BUSY_MS = 5_000

_TABLES = """
CREATE TABLE IF NOT EXISTS meta (format INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS transactions (
  id TEXT PRIMARY KEY,
  body TEXT NOT NULL,      -- the coordinator's own view of it
  opened TEXT NOT NULL,    -- commit user, file prefix, base snapshot: never changes
  request BLOB             -- what was asked to be committed, once it was
) STRICT, WITHOUT ROWID;
"""


class Store:
    """The database of one coordinator. For one thread at a time."""

    def __init__(self, path: Path) -> None:
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

    def load(self) -> list[tuple[Held, dict[str, object]]]:
        """All transactions, each with what was noted when it was opened."""
        rows = self._connection.execute("SELECT body, opened FROM transactions ORDER BY id")
        return [(_held(json.loads(body)), json.loads(opened)) for body, opened in rows]

    def request(self, id: str) -> bytes | None:
        """What the transaction asked to commit."""
        row = self._connection.execute(
            "SELECT request FROM transactions WHERE id = ?", (id,)
        ).fetchone()
        return None if row is None else row[0]

    @contextmanager
    def together(self) -> Iterator[None]:
        """All that is saved in the body becomes durable at once, at its end."""
        with self._connection:
            yield

    def open(self, held: Held, opened: dict[str, object]) -> None:
        """Store a new transaction."""
        self._connection.execute(
            "INSERT INTO transactions (id, body, opened) VALUES (?, ?, ?)",
            (held.id, _body(held), json.dumps(opened)),
        )

    def save(self, held: Held, request: bytes | None = None) -> None:
        """Store a transaction's new state, and what it asks to commit where that is given."""
        self._connection.execute(
            "UPDATE transactions SET body = ?, request = coalesce(?, request) WHERE id = ?",
            (_body(held), request, held.id),
        )

    def forget(self, id: str) -> None:
        """Delete a transaction."""
        self._connection.execute("DELETE FROM transactions WHERE id = ?", (id,))

    def close(self) -> None:
        """Close the database; its file is complete without the log then."""
        self._connection.close()

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


def _held(body: dict[str, object]) -> Held:
    receipt = body.pop("receipt")
    return Held(
        **{**body, "phase": Phase(str(body["phase"]))},  # type: ignore[arg-type]
        receipt=CommitReceipt(**receipt) if isinstance(receipt, dict) else None,
    )
