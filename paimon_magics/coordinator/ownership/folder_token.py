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

from paimon_magics.redaction import conceal

_BEFORE = "token-before"
_LOOK_SECONDS = 1.0


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
