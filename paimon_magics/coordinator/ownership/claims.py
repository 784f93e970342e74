"""Claims: which of two coordinators decides the fate of a transaction, a commit or a removal.

Within one coordinator its core decides. But a transaction that a client brings to the next
coordinator may have expired in the one before, which may have been interrupted right before it
removed the files. So a coordinator that removes files, or that commits a transaction which it has
not opened since its start, first creates the transaction's claim if it is absent. It does not act
against another one's claim for the other fate. Its own claim follows what its core decides: a
commit that was claimed and then refused is removed.

If the process dies, the claim stays: the same decision can be continued, the other can't be made.
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
    """The claims of one warehouse, for a coordinator whose process has the id `instance`."""

    def __init__(self, store: Store, warehouse: str, instance: str) -> None:
        self._store = store
        self._instance = instance
        self._folder = f"{warehouse.rstrip('/')}/{FOLDER}"

    def take(self, file_prefix: str, fate: Fate) -> bool:
        """Claim a fate for the transaction with that file prefix; return False when another
        coordinator has claimed the other fate.

        Raises errors of the store; the claim may exist after one.
        """
        path = self._path(file_prefix)
        at_ms = int(time.time() * 1000)
        document = {"fate": fate, "at_ms": at_ms, "instance": self._instance}
        content = json.dumps(document).encode()
        if self._store.create(path, content):
            return True
        found = self._store.read(path)
        if found is None:
            return self.take(file_prefix, fate)  # dropped in between
        claim = _read(found)
        is_same, is_own = claim.get("fate") == fate, claim.get("instance") == self._instance
        if is_same != is_own:  # a decision is taken up, or this one's has changed
            self._store.write(path, content)
        return is_same or is_own

    def drop(self, file_prefix: str) -> None:
        """Drop a claim: the commit is in the table, or the files are removed."""
        self._store.delete([self._path(file_prefix)])

    def drop_older(self, before_ms: int) -> None:
        """Drop the claims from before that time, which coordinators left when they died."""
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
