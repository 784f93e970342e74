"""How an owner knows the coordinators that stand by for it.

A standby passes requests on, and says from which address each came. The owner believes that of its
standbys alone: a client could name any address. So each standby has a key that it sends along, and
has put the key's digest into the warehouse, where only who may write there could put another.

The key follows from the token of the state folder, so a folder has one key until its token is
exchanged, and the folder of digests stays small. Who reads a digest does not know the key.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from pathlib import Path

from paimon_magics.coordinator.ownership.lease import FOLDER
from paimon_magics.coordinator.runtime.work import Clock
from paimon_magics.tables.stores.store import Store, store_errors

_STANDBYS = "standbys"
_PURPOSE = b"passes requests on"
_LOOK_MS = 2_000.0


def key_of(token_file: Path) -> str:
    """The key of a state folder; one of this process alone where its token can't be read."""
    try:
        token = token_file.read_bytes().strip()
    except OSError:
        token = b""
    return hmac.digest(token or secrets.token_bytes(32), _PURPOSE, "sha256").hex()


def introduce(files: Store, warehouse: str, key: str) -> None:
    """Put the digest of a standby's key into the warehouse. Raises SetupError."""
    folder = f"{warehouse}/{FOLDER}/{_STANDBYS}"
    with store_errors("Introducing a standby to the owner"):
        files.make_folder(folder)
        files.write(f"{folder}/{_digest(key)}", b"")


class Introductions:
    """The owner's side. For any thread."""

    def __init__(self, files: Store, warehouse: str, clock: Clock) -> None:
        self._files = files
        self._folder = f"{warehouse}/{FOLDER}/{_STANDBYS}"
        self._clock = clock
        self._turn = threading.Lock()
        self._known: frozenset[str] = frozenset()
        self._looked_at_ms = float("-inf")

    def has(self, key: str) -> bool:
        """Whether a standby with a key is known."""
        return _digest(key) in self._known

    @property
    def is_due(self) -> bool:
        """Whether `look` may see more: unknown keys lead to few looks."""
        return self._clock.steady_ms() - self._looked_at_ms > _LOOK_MS

    def look(self) -> None:
        """Read the digests. May block. Raises SetupError."""
        with self._turn:
            if not self.is_due:
                return
            self._looked_at_ms = self._clock.steady_ms()
            with store_errors("Reading which coordinators stand by"):
                self._known = frozenset(self._files.names(self._folder))


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
