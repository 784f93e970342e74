"""Which of two coordinators decides the fate of a transaction: commits it, or removes its files.

Within one coordinator its core decides. A transaction that a client brings to the next coordinator
may be one whose lease expired in the one before, which may have been cut off just before removing
its files. So whoever removes files, and whoever commits a transaction that it has not opened in its
present life, first creates the transaction's claim if it is absent, and leaves the other's alone.

If the process dies a claim stays: the same decision can be taken up again, the other one can't.
"""

from __future__ import annotations

import json
import time
from enum import StrEnum

from paimon_magics.coordinator.ownership.lease import FOLDER
from paimon_magics.tables.stores.store import Store

__all__ = ["Claims", "Fate"]

_PREFIX = "claim-"


class Fate(StrEnum):
    """What becomes of a transaction."""

    COMMIT = "commit"
    REMOVAL = "removal"


class Claims:
    """The claims of one warehouse."""

    def __init__(self, store: Store, warehouse: str) -> None:
        self._store = store
        self._folder = f"{warehouse.rstrip('/')}/{FOLDER}"

    def take(self, file_prefix: str, fate: Fate) -> bool:
        """Claim the transaction with that file prefix; False when the other fate was claimed.

        Raises errors of the store; the claim may be there then.
        """
        path = self._path(file_prefix)
        content = json.dumps({"fate": fate, "at_ms": int(time.time() * 1000)}).encode()
        if self._store.create(path, content):
            return True
        found = self._store.read(path)
        if found is None:
            return self.take(file_prefix, fate)  # given up between the two
        return _read(found).get("fate") == fate

    def drop(self, file_prefix: str) -> None:
        """Give a claim up: the commit is in the chain, or the files are gone."""
        self._store.delete([self._path(file_prefix)])

    def drop_older(self, before_ms: int) -> None:
        """Give up what was claimed before that time, by coordinators that died over it."""
        for name in self._store.names(self._folder, _PREFIX):
            path = f"{self._folder}/{name}"
            found = self._store.read(path)
            if found is not None and int(_read(found).get("at_ms", 0)) < before_ms:
                self._store.delete([path])

    def _path(self, file_prefix: str) -> str:
        return f"{self._folder}/{_PREFIX}{file_prefix.strip('-')}.json"


def _read(content: bytes) -> dict[str, int | str]:
    try:
        document = json.loads(content)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
