"""The token in a state folder, while it is exchanged: for a while the one before is good, too.

`paimon-coordinator rotate own-token` writes a new file. Each process that has the folder reads it
again within a second. If the process dies in between, one of both tokens, or each, is good.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import json
import os
import secrets
import threading
import time
from pathlib import Path

from paimon_magics.coordinator.ownership.lease import FOLDER
from paimon_magics.coordinator.runtime.work import Clock
from paimon_magics.redaction import conceal
from paimon_magics.tables.stores.store import Store, store_errors

_BEFORE = "token-before"
_LOOK_SECONDS = 1.0

_STANDBYS = "standbys"
_PURPOSE = b"passes requests on"
_LOOK_MS = 2_000.0


class FolderToken:
    """The tokens that are good now. For any thread."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "token"
        self._before = folder / _BEFORE
        self._turn = threading.Lock()
        self._looked_at = float("-inf")
        self._state: object = None
        self._good: list[tuple[str, float]] = []

    def accepts(self, text: str) -> bool:
        """Whether a text is a token that is good now."""
        self._look()
        if self._matches(text):
            return True
        self._look(at_once=True)  # it may be new
        return self._matches(text)

    def _matches(self, text: str) -> bool:
        digest = _digest(text)
        for good, end in self._good:  # each insert passes here
            if hmac.compare_digest(digest, good) and time.time() < end:
                return True
        return False

    def _look(self, *, at_once: bool = False) -> None:
        if not at_once and time.monotonic() - self._looked_at < _LOOK_SECONDS:
            return
        with self._turn:
            self._looked_at = time.monotonic()
            state = [_state_of(self._file), _state_of(self._before)]
            if state == self._state:
                return
            with contextlib.suppress(OSError, UnicodeDecodeError):  # else the last ones stay
                token = self._file.read_text().strip()
                conceal(token)
                good = [(_digest(token), float("inf"))] if token else []
                self._good = [*good, *_former(self._before)]
                self._state = state


def rotate_token(folder: Path, overlap_seconds: float) -> None:
    """Exchange the token of a folder. The one before is good for `overlap_seconds`."""
    token = folder / "token"
    former = {"digest": _digest(token.read_text().strip()), "until": time.time() + overlap_seconds}
    _replace(folder / _BEFORE, json.dumps(former))
    _replace(token, f"{secrets.token_urlsafe(32)}\n")


def _former(file: Path) -> list[tuple[str, float]]:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        document = json.loads(file.read_text())
        return [(str(document["digest"]), float(document["until"]))]
    return []


@functools.lru_cache(maxsize=1024)
def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _state_of(file: Path) -> object:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _replace(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}-{os.getpid()}.tmp")
    with contextlib.suppress(FileNotFoundError):
        partial.unlink()
    with os.fdopen(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


# How an owner knows the coordinators that stand by for it.
#
# A standby passes requests on, and says from which address each came. The owner believes that of
# its standbys alone: a client could name any address. So each standby has a key that it sends
# along, and has put the key's digest into the warehouse, where only who may write there could put
# another.
#
# The key follows from the token of the state folder, so a folder has one key until its token is
# exchanged, and the folder of digests stays small. Who reads a digest does not know the key.


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
        files.write(f"{folder}/{_digest_of_key(key)}", b"")


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
        return _digest_of_key(key) in self._known

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


def _digest_of_key(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
