"""The path of entries: into the store before anything is carried out, from there into the table.

One thread makes entries durable, all that arrived together. Another thread loads final entries into
the table. An entry is deleted from the store when it is in the table. No error ends a thread: it
retries its work, and health reports the reason.

If the process dies, every request that was carried out is in the store, either with its outcome or
as begun. The next start marks the outcome of begun requests as unknown. Loading entries twice
changes nothing, since they have ids. Nobody waits until a refused request is written, so the last
refused requests may be lost. If there are more than a few in a second, only their number is kept.

The table is one of Paimon, which any engine can read. It has a partition for each day (UTC), and a
key for each entry. With the table's option `partition.expiration-time` whole days that are older
are removed.
"""

from __future__ import annotations

import datetime
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from paimon_magics.coordinator.audit.entries import Entry, Outcome, entry_id, entry_of
from paimon_magics.coordinator.runtime.threads import Loop, Owner, Runtime, Timer
from paimon_magics.coordinator.service.health import Fact
from paimon_magics.coordinator.service.own_tables import OwnTable
from paimon_magics.coordinator.service.transactions import Transactions
from paimon_magics.coordinator.store.tables import AuditLog
from paimon_magics.errors import PaimonMagicsError, SetupError
from paimon_magics.planning.commits.publications import Publication
from paimon_magics.planning.options.values import duration_ms
from paimon_magics.settings import Settings
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.manifests.partitions import list_partitions
from paimon_magics.tables.snapshots.provenance import noted

ENGINE = "audit"
_RETENTION = "partition.expiration-time"
_EXPIRE_SECONDS = 3_600.0
_DAYS_AT_ONCE = 100

_SQL = """
CREATE TABLE audit (
    day STRING NOT NULL COMMENT 'the day of the request, in UTC',
    id STRING NOT NULL COMMENT 'begins with its time',
    requested_at TIMESTAMP_LTZ(3),
    action STRING COMMENT 'the requested action',
    user_name STRING COMMENT 'the user that the token names; NULL if it names none',
    claimed_name STRING COMMENT 'the user that the client names, if the token names none',
    credential STRING COMMENT 'how the sender was identified: a token with its id, an issuer, …',
    address STRING COMMENT 'address of the sender',
    database_name STRING,
    table_name STRING,
    snapshot_id BIGINT COMMENT 'the snapshot that the request made',
    outcome STRING COMMENT 'done, refused, failed, or unknown: the coordinator ended meanwhile',
    status INT COMMENT 'HTTP status of the answer',
    detail STRING
) PARTITIONED BY (day)
TBLPROPERTIES ('primary-key' = 'day,id', 'bucket' = '1', 'auto_compact' = 'true')
"""


class AuditTable:
    """Writes entries to the table in transactions of the coordinator. For one thread."""

    def __init__(
        self, catalog: Catalog, transactions: Transactions, settings: Settings, name: TableName
    ) -> None:
        assert name.database is not None
        self.name = name.database, name.table
        self._own = OwnTable(catalog, transactions, settings, name, _SQL, ENGINE)
        self._expired_at = float("-inf")

    def write(self, entries: Sequence[Entry]) -> None:
        """Commit entries. Raises errors of ours and OSError."""
        self._own.write([_row(entry) for entry in entries])

    def expire(self) -> None:
        """Remove the days that have passed the table's retention, once an hour. Raises as `write`
        does.
        """
        if time.monotonic() - self._expired_at < _EXPIRE_SECONDS:
            return
        self._expired_at = time.monotonic()
        table = self._own.load()
        text = dict(table.schema.options).get(_RETENTION)
        if text is None:
            return
        retention = datetime.timedelta(milliseconds=duration_ms(_RETENTION, text))
        first = (datetime.datetime.now(datetime.UTC) - retention).strftime("%Y-%m-%d")
        old = [str(values[0]) for values in list_partitions(table) if str(values[0]) < first]
        if old:
            self._own.drop_partitions([[("day", day)] for day in old[:_DAYS_AT_ONCE]])


def _row(entry: Entry) -> dict[str, Any]:
    at = datetime.datetime.fromtimestamp(entry.at_ms / 1000, datetime.UTC)
    return {
        **{key: value or None for key, value in asdict(entry).items() if key in _SAME},
        "day": at.strftime("%Y-%m-%d"),
        "requested_at": at,
        "user_name": entry.user,
        "claimed_name": entry.claimed,
        "database_name": entry.database,
        "table_name": entry.table,
        "outcome": entry.outcome.value,
    }


_SAME = ("id", "action", "credential", "address", "snapshot_id", "status", "detail")


_PropertiesOf = Callable[[Publication], tuple[tuple[str, str], ...]]
"""The properties of a published commit."""

_LOADER = "auto_batch_load"  # the engine of loads of small inserts
_LOAD_MAX = 10_000  # entries in one commit
_WAITING_MAX = 1_000_000  # entries in the store; beyond that no request is carried out
_TOGETHER_MAX = 10_000  # entries that are made durable at once
_RETRY_MS = 1_000.0
_REFUSED_PER_SECOND = 20.0
_REFUSED_AT_ONCE = 200.0

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Bucket:
    """How many refused requests may still be kept, each with its own entry."""

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
    """An entry on its way: a new entry, or the outcome of an earlier entry."""

    entry: Entry
    is_new: bool
    durable: Future[None] = field(default_factory=Future)

    def is_durable(self) -> None:
        if not self.durable.done():
            self.durable.set_result(None)


class _TryAgain:
    """Makes the writer retry what it could not do."""


_Arrived = _Item | Publication | _TryAgain


class Trail:
    """Keeps entries. For any thread.

    `table` receives the entries, at least every `every_ms`. `properties_of` returns whose rows a
    load of small inserts contains.
    """

    def __init__(
        self,
        runtime: Runtime,
        log: AuditLog,
        table: AuditTable,
        properties_of: _PropertiesOf,
        every_ms: int,
    ) -> None:
        self._runtime = runtime
        self._log = log
        self._table = table
        self._properties_of = properties_of
        self._every_ms = every_ms
        self._refused = _Bucket()
        self._turn = threading.RLock()
        self._again: list[_Arrived] = []  # only for the writer
        self._writer: Owner[_Arrived] = runtime.owner(
            "audit",
            self._write,
            crashed=self._keep_for_later,
            fatal=(),
            ended=lambda _: None,
            items_max=_TOGETHER_MAX,
        )
        self._retry: Timer | None = None
        self._loader: Loop | None = None
        self._rounds = 0
        self.waiting = 0
        self.trouble = ""

    @property
    def name(self) -> tuple[str, str]:
        """The database and name of the table, which only administrators may see."""
        return self._table.name

    @property
    def not_kept(self) -> int:
        """The number of refused requests that were only counted since the start."""
        return self._refused.dropped

    def start(self, recent: Sequence[Publication]) -> None:
        """Note what the previous process left, and start. `recent` are the last publications: each
        load among them without an entry gets one.
        """
        for id, body in self._log.first(_WAITING_MAX, done=False):
            left = replace(entry_of(id, body), outcome=Outcome.UNKNOWN)
            self._log.save([(left.id, left.body, True)])
        self.waiting = self._log.count()
        self._writer.start()
        self._retry = self._runtime.every("audit-retry", _RETRY_MS, self._try_again)
        self._loader = self._runtime.loop("audit-table", lambda: self._every_ms, self._load_in_time)
        for publication in recent:
            self.published(publication)

    def stop(self) -> None:
        """Make all received entries durable, load them, and end."""
        if self._retry is None or self._loader is None:
            return
        self._retry.stop()
        self._writer.put(_TryAgain())
        self._writer.end()
        self._loader.end()
        try:
            self._load()
        except Exception as error:  # the next start loads it
            _log.warning("The audit log waits in the store: %s", error)

    def facts(self) -> Iterator[Fact]:
        """The fact for the coordinator's health."""
        problem = f"The audit log waits in the store: {self.trouble}" if self.trouble else ""
        is_full = self.waiting >= _WAITING_MAX
        yield Fact("audit_waiting", self.waiting, problem, blocks=is_full)

    def begin(self, entry: Entry) -> Future[None]:
        """Keep the entry of a request that is about to be carried out. The future is done when the
        entry is durable. If it raises an error of ours, the request must not be carried out.
        """
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
        """Keep the outcome of a request. The future is done when the outcome is durable, and never
        raises.
        """
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
            self._writer.put(publication)

    # ---- the writer ----

    def _put(self, entry: Entry, *, is_new: bool) -> Future[None]:
        item = _Item(entry, is_new)
        self._writer.put(item)
        return item.durable

    def _try_again(self) -> None:
        if self._again:
            self._writer.put(_TryAgain())

    def _write(self, arrived: Sequence[_Arrived]) -> None:
        """Make new entries durable, and entries whose earlier write failed."""
        together, self._again = [*self._again, *arrived], []
        items: list[_Item] = []
        for item in together:
            if isinstance(item, _Item):
                items.append(item)
            elif isinstance(item, Publication):
                try:
                    items += [_Item(entry, True) for entry in self._of_load(item)]
                except Exception as error:  # errors of the store, which is retried
                    _log.warning("Who wrote %s is not known yet: %s", item.id, error)
                    self._again.append(item)
        try:
            if items:
                self._log.save(
                    [(item.entry.id, item.entry.body, item.entry.is_done) for item in items]
                )
        except Exception as error:
            self._keep_for_later(items, error)
            return
        self.waiting += sum(item.is_new for item in items)
        for item in items:
            item.is_durable()
        if self.waiting >= _LOAD_MAX and self._loader is not None:
            self._loader.wake()

    def _keep_for_later(self, items: Sequence[_Arrived], error: Exception) -> None:
        """No request that is about to begin may be carried out. Finished requests are reported,
        though their outcome is not durable yet.
        """
        if not isinstance(error, PaimonMagicsError):
            error = SetupError(f"The audit log can't be kept: {error!r}", hint="Ask again.")
        _log.error("The audit log can't be kept: %s", error)
        for item in items:
            if isinstance(item, Publication) or (isinstance(item, _Item) and item.entry.is_done):
                self._again.append(item)
            if isinstance(item, _Item) and not item.entry.is_done and not item.durable.done():
                item.durable.set_exception(error)
            elif isinstance(item, _Item):
                item.is_durable()
        del self._again[:-_LOAD_MAX]

    def _of_load(self, publication: Publication) -> list[Entry]:
        """The entries of a load, one for each user whose rows it contains. Other commits have
        none."""
        facts = noted(dict(self._properties_of(publication)))
        return _load_entries(publication, facts) if facts.get("engine") == _LOADER else []

    # ---- the loader ----

    def _load_in_time(self) -> None:
        self._rounds += 1
        if self._rounds > 1:  # the first is that of the start
            self._load()

    def _load(self) -> None:
        try:
            while self._load_some():
                pass
            self._table.expire()
        except Exception as error:
            self.trouble = str(error) or type(error).__name__
            raise
        self.trouble = ""

    def _load_some(self) -> bool:
        """Load the first entries; return whether there may be more."""
        entries = [entry_of(id, body) for id, body in self._log.first(_LOAD_MAX, done=True)]
        if entries:
            self._table.write(entries)
            self._log.drop([entry.id for entry in entries])
            self.waiting = self._log.count()
        return len(entries) == _LOAD_MAX


def _load_entries(publication: Publication, facts: Mapping[str, str]) -> list[Entry]:
    users = json.loads(facts["users"]) if "users" in facts else [facts.get("user")]
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
            detail=f"{facts.get('rows', '')} rows of small inserts by {facts.get('user', '')}",
        )
        for number, user in enumerate(users)
    ]
