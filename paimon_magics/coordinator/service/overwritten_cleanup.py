"""Cleaning up after overwritten snapshots, once their commits are in the table again.

Before a commit is published again, the store notes it, with the number of the run that names the
files. The files that the overwritten snapshot and interrupted runs leave are removed after a grace
period: a writer that goes around the coordinator may have begun to build on them.

If the process dies here, the removal is done again after the next start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from paimon_magics.coordinator.store.state_store import StateStore
from paimon_magics.coordinator.turns import Turns
from paimon_magics.errors import UnknownNameError
from paimon_magics.planning.commits.publications import Publication
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.expiry.overwritten_metadata import remove_overwritten

__all__ = ["Overwritten"]

_log = logging.getLogger(__name__)


class Overwritten:
    """Removes the files that overwritten snapshots leave. `watched` returns the publications that
    may still be published again; `check` raises DeposedError when another coordinator has taken
    over."""

    def __init__(
        self,
        catalog: Catalog,
        store: StateStore,
        turns: Turns,
        grace_ms: int,
        watched: Callable[[], Mapping[str, Sequence[Publication]]],
        check: Callable[[], None],
    ) -> None:
        self._catalog = catalog
        self._store = store
        self._turns = turns
        self._grace_ms = grace_ms
        self._watched = watched
        self._check = check

    def due_ms(self) -> int | None:
        """When the next removal is due, in milliseconds of the epoch; None without any."""
        begun = [begun_ms for _, _, begun_ms in self._store.publications.repetitions()]
        return min(begun) + self._grace_ms if begun else None

    def clear(self, now_ms: int) -> int:
        """Remove what is due; return how many snapshots are left for later. Raises errors of
        stores."""
        later = 0
        for p, runs, begun_ms in self._store.publications.repetitions():
            with self._turns(p.location):
                if begun_ms + self._grace_ms > now_ms or self._is_awaited(p):
                    later += 1
                    continue
                self._check()
                try:
                    removed = remove_overwritten(self._catalog, p, runs)
                except UnknownNameError:  # the table itself is gone
                    removed = 0
                self._store.publications.drop_repetition(p)
            if removed:
                _log.info("%d files of an overwritten snapshot of %s removed", removed, p.table)
        return later

    def _is_awaited(self, p: Publication) -> bool:
        """Whether it is unknown yet if the commit is in the table again."""
        there = self._watched().get(p.location, ())
        return any((q.id, q.snapshot_id) == (p.id, p.snapshot_id) for q in there)
