"""The way of entries: into the store before anything is carried out, from there into the table.

One thread makes entries durable, all that have come together; another loads those that nothing more
is to come of into the table. An entry is deleted from the store when it is in the table.

If the process dies, every request that was carried out is in the store: as it ended, or as begun,
of which the next start says that its outcome is unknown. Loading entries twice changes nothing,
since they have ids. Refused requests are written without anybody waiting for it: those of the last
moment may be lost, and of more than a few in a second only the number is kept.
"""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from paimon_magics.coordinator.audit.audit_table import AuditTable
from paimon_magics.coordinator.audit.entries import Entry, Outcome, entry_id, entry_of
from paimon_magics.coordinator.store.audit import AuditLog
from paimon_magics.errors import PaimonMagicsError, SetupError
from paimon_magics.planning.commits.publications import Publication
from paimon_magics.tables.snapshots.provenance import noted

__all__ = ["PropertiesOf", "Trail"]

PropertiesOf = Callable[[Publication], tuple[tuple[str, str], ...]]
"""The properties of a published commit."""

_LOADER = "auto_batch_load"  # the engine of loads of small inserts
_LOAD_MAX = 10_000  # entries in one commit
_WAITING_MAX = 1_000_000  # entries in the store; beyond that nothing more is carried out
_RETRY_SECONDS = 1.0
_REFUSED_PER_SECOND = 20.0
_REFUSED_AT_ONCE = 200.0

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Bucket:
    """How many refused requests may still be kept, each with its entry."""

    left: float = _REFUSED_AT_ONCE
    at: float = 0.0
    dropped: int = 0

    def takes(self) -> bool:
        now = time.monotonic()
        self.left = min(_REFUSED_AT_ONCE, self.left + (now - self.at) * _REFUSED_PER_SECOND)
        self.at = now
        if self.left < 1:
            self.dropped += 1
            return False
        self.left -= 1
        return True


@dataclass(slots=True)
class _Item:
    """An entry on its way, new or the end of one that is there."""

    entry: Entry
    is_new: bool
    durable: Future[None] = field(default_factory=Future)

    def is_durable(self) -> None:
        if not self.durable.done():
            self.durable.set_result(None)


class Trail:
    """Keeps entries. For any thread.

    `table` is where they go, at least every `every_ms`; `properties_of` tells whose rows a load of
    small inserts has.
    """

    def __init__(
        self, log: AuditLog, table: AuditTable, properties_of: PropertiesOf, every_ms: int
    ) -> None:
        self._log = log
        self._table = table
        self._properties_of = properties_of
        self._every_seconds = every_ms / 1000
        self._inbox: queue.SimpleQueue[_Item | Publication | None] = queue.SimpleQueue()
        self._refused = _Bucket()
        self._turn = threading.Lock()
        self._ending = threading.Event()
        self._more = threading.Event()
        self._writer = threading.Thread(target=self._write, name="audit", daemon=True)
        self._loader = threading.Thread(target=self._load, name="audit table", daemon=True)
        self.waiting = 0
        self.trouble = ""

    @property
    def name(self) -> tuple[str, str]:
        """The database and name of the table, which only administrators may see."""
        return self._table.name

    @property
    def not_kept(self) -> int:
        """How many refused requests were only counted since the start."""
        return self._refused.dropped

    def start(self, recent: Sequence[Publication]) -> None:
        """Note what the process before has left, and start. `recent` are the last publications:
        of loads among them that have no entry one is made."""
        for body in self._log.first(_WAITING_MAX, done=False):
            left = replace(entry_of(body), outcome=Outcome.UNKNOWN)
            self._log.save([(left.id, left.body, True)])
        self.waiting = self._log.count()
        self._writer.start()
        self._loader.start()
        for publication in recent:
            self.published(publication)

    def stop(self) -> None:
        """Make durable what has come, load it, and end."""
        self._ending.set()
        self._more.set()
        if self._writer.ident is None:
            return
        self._inbox.put(None)
        self._writer.join()
        self._loader.join()

    def begin(self, entry: Entry) -> Future[None]:
        """Keep the entry of what is about to be carried out. The future is done when it is durable;
        it raises errors of ours, and then nothing may be carried out."""
        if self.waiting >= _WAITING_MAX:
            failed: Future[None] = Future()
            failed.set_exception(
                SetupError(
                    f"{self.waiting:,} entries of the audit log wait to be written to its table, "
                    "so nothing more is carried out.",
                    hint=self.trouble or "Look at the coordinator's log for the reason.",
                )
            )
            return failed
        return self._put(entry, is_new=True)

    def end(self, entry: Entry) -> Future[None]:
        """Keep what became of it. The future is done when it is durable, and never raises."""
        return self._put(entry, is_new=False)

    def refuse(self, entry: Entry) -> None:
        """Keep the entry of a refused request, if there are not too many; wait for nothing."""
        with self._turn:
            if not self._refused.takes():
                return
        self._put(replace(entry, outcome=Outcome.REFUSED), is_new=True)

    def published(self, publication: Publication) -> None:
        """Keep the entry of a commit, if it is a load of small inserts; wait for nothing."""
        if publication.is_transaction:
            self._inbox.put(publication)

    # ---- the writer ----

    def _put(self, entry: Entry, *, is_new: bool) -> Future[None]:
        item = _Item(entry, is_new)
        self._inbox.put(item)
        return item.durable

    def _write(self) -> None:
        again: list[_Item] = []
        is_last = False
        while not is_last:
            arrived: list[_Item | Publication | None] = []
            with contextlib.suppress(queue.Empty):
                arrived.append(self._inbox.get(timeout=_RETRY_SECONDS if again else None))
                while True:
                    arrived.append(self._inbox.get_nowait())
            items = again
            for one in arrived:
                match one:
                    case _Item():
                        items.append(one)
                    case Publication():
                        items += [_Item(entry, True) for entry in self._of_load(one)]
                    case None:
                        is_last = True
            again = self._save(items)

    def _save(self, items: list[_Item]) -> list[_Item]:
        """Make entries durable; return those to try again."""
        if not items:
            return []
        try:
            self._log.save([(one.entry.id, one.entry.body, one.entry.is_done) for one in items])
        except PaimonMagicsError as error:
            _log.error("The audit log can't be kept: %s", error)
            # What has happened is told, though its end is not durable yet.
            begun = [one for one in items if not one.entry.is_done]
            ended = [one for one in items if one.entry.is_done]
            for one in begun:
                if not one.durable.done():
                    one.durable.set_exception(error)
            for one in ended:
                one.is_durable()
            return ended[-_LOAD_MAX:]
        self.waiting += sum(one.is_new for one in items)
        for one in items:
            one.is_durable()
        if self.waiting >= _LOAD_MAX:
            self._more.set()
        return []

    def _of_load(self, publication: Publication) -> list[Entry]:
        """The entries of a load, one for each user whose rows it has; none of another commit."""
        try:
            said = noted(dict(self._properties_of(publication)))
        except PaimonMagicsError as error:
            _log.warning("Who wrote %s is not known: %s", publication.id, error)
            return []
        return load_entries(publication, said) if said.get("engine") == _LOADER else []

    # ---- the loader ----

    def _load(self) -> None:
        while True:
            self._more.wait(self._every_seconds)
            self._more.clear()
            is_last = self._ending.is_set()
            if is_last:
                self._writer.join()
            try:
                while self._load_some():
                    pass
                self._table.expire()
                self.trouble = ""
            except (PaimonMagicsError, OSError) as error:
                self.trouble = str(error)
                _log.warning("The audit log waits in the store: %s", error)
            if is_last:
                return

    def _load_some(self) -> bool:
        """Load the first entries; return whether there may be more."""
        entries = [entry_of(body) for body in self._log.first(_LOAD_MAX, done=True)]
        if entries:
            self._table.write(entries)
            self._log.drop([entry.id for entry in entries])
            self.waiting = self._log.count()
        return len(entries) == _LOAD_MAX


def load_entries(publication: Publication, said: Mapping[str, str]) -> list[Entry]:
    """The entries of a load of small inserts, of which its snapshot says this."""
    users = json.loads(said["users"]) if "users" in said else [said.get("user")]
    return [
        Entry(
            entry_id(publication.published_at_ms, f"{publication.id}-{number}"),
            publication.published_at_ms,
            "load",
            user=user,
            database=publication.table.database,
            table=publication.table.table,
            snapshot_id=publication.snapshot_id,
            outcome=Outcome.DONE,
            detail=f"{said.get('rows', '')} rows of small inserts by {said.get('user', '')}",
        )
        for number, user in enumerate(users)
    ]
