"""What the coordinator's routes serve: a catalog, how it is published, and who watches it."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from paimon_magics.coordinator.core.values import Answer
from paimon_magics.coordinator.protocol.errors import (
    BrokeOffError,
    NothingChangedError,
    PausedError,
)
from paimon_magics.coordinator.runtime.threads import Runtime
from paimon_magics.coordinator.runtime.work import Steps
from paimon_magics.coordinator.service.definitions import Databases, Definitions
from paimon_magics.coordinator.service.guards import Guard, LoneGuard
from paimon_magics.coordinator.turns import Turn, Turns
from paimon_magics.errors import TableDamagedError, UnknownNameError
from paimon_magics.planning.commits.publications import Publication
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.catalog.stored_tables import load_stored
from paimon_magics.tables.commits.fencing import Fence, NotOwnerError
from paimon_magics.tables.commits.receipts import RecentCommits
from paimon_magics.tables.manifests.hash_indexes import HashIndexes
from paimon_magics.tables.snapshots.chain import (
    Removing,
    latest_document,
    load_snapshot,
    removes_silently,
)
from paimon_magics.tables.stores.store import Publish
from paimon_magics.tables.table import StoredTable

if TYPE_CHECKING:  # a session that commits in its own process loads none of them
    from paimon_magics.coordinator.data_tokens.issuing import DataTokens
    from paimon_magics.coordinator.service.key_moves import KeyMover
    from paimon_magics.coordinator.service.publication_watch import PublicationMonitor
    from paimon_magics.coordinator.store.state_store import DatabasePropertyTable, DefinitionTable

Document = Mapping[str, Any]

_WAIT_MS = 60_000.0


# Statements that change what names mean are kept apart: one statement at a time holds a name. A
# statement requests all its names at once, and gets them when no earlier statement holds or waits
# for any of them. So there is no deadlock, and no statement is overtaken. Waits are futures.


@dataclass(slots=True, eq=False)
class NameLock:
    """The lock on some names that a statement has, or waits for: `granted` has a result then."""

    names: frozenset[str]
    granted: Future[None]


class NameLocks:
    """The locks of one process. For any thread."""

    def __init__(self, runtime: Runtime, wait_ms: float = _WAIT_MS) -> None:
        self._runtime = runtime
        self._wait_ms = wait_ms
        self._turn = threading.RLock()
        self._locks: list[NameLock] = []
        self._alarms = runtime.pool("names", 1)

    def lock(self, names: Iterable[str]) -> NameLock:
        """Request the locks of some names. `granted` fails with CommitConflictError if that takes
        too long; call `release` in any case.
        """
        lock = NameLock(frozenset(names), Future())
        with self._turn:
            self._locks.append(lock)
            is_free = self._is_free(lock)
            if is_free:
                lock.granted.set_result(None)
        if not is_free:
            self._alarms.run("late", lambda: self._refuse(lock), after_ms=self._wait_ms)
        return lock

    def release(self, lock: NameLock) -> None:
        """Let the next statements have the names."""
        with self._turn:
            if lock not in self._locks:
                return
            self._locks.remove(lock)
            free = [other for other in self._locks if self._is_free(other)]
            granted = [other.granted for other in free if not other.granted.done()]
        for future in granted:
            if not future.done():
                future.set_result(None)

    def count(self) -> int:
        """How many statements have names or wait for them."""
        return len(self._locks)

    def _is_free(self, lock: NameLock) -> bool:
        earlier = self._locks[: self._locks.index(lock)]
        return not any(lock.names & other.names for other in earlier)

    def _refuse(self, lock: NameLock) -> None:
        with self._turn:
            if lock.granted.done():
                return
            self._locks.remove(lock)
        names = ", ".join(sorted(name.lstrip("\0").replace("\0", ".") for name in lock.names))
        lock.granted.set_exception(
            NothingChangedError(
                f"Other statements have been changing {names} for {self._wait_ms / 1000:.0f} s.",
                "Run the statement again.",
            )
        )


class Order(Protocol):
    """Gives commits and changes their place among a table's small inserts. The steps wait for it,
    and return a context manager that ends it.

    `StatementHolds` is one."""

    def commit(self, name: TableName, who: str) -> Steps[CommitPlace]:
        """The place of a commit."""

    def change(
        self,
        name: TableName,
        *,
        drops: bool = False,
        renamed_to: TableName | None = None,
        alters: bool = False,
    ) -> Steps[AbstractContextManager[object]]:
        """The place of a change of a table: the change `drops` the table, gives it the name
        `renamed_to`, or only `alters` its definition.
        """

    def has_queue(self, name: TableName) -> bool:
        """Whether a table has taken inserts, even if it takes none any more."""


CommitPlace = AbstractContextManager[Callable[[], None]]
"""The place of a commit. Its block gets a function, to call when the commit is published."""

Slot = Callable[[str], AbstractContextManager[Future[Answer]]]
"""Gives the table at a location to one statement, once no commit is under way; see
`Coordinator.slot`."""


@dataclass(frozen=True, slots=True)
class Context:
    """The catalog that is served, how its snapshots are published, and who watches it.

    `publish` creates snapshots, tags and branches if they are absent. `turn` keeps commits of one
    table apart; commits need it only to avoid retries, but rollback, drop and rename depend on it.
    `prefix` is the prefix of the REST catalog's paths. `fence` returns the present permission to
    change the catalog, before and after each change; without it only compare-and-swap protects
    against other coordinators. `watch` gets publications and removals. `order` gives commits by
    engines their place among small inserts. `properties` keeps the properties of databases if the
    catalog can't, `definition_store` their views and functions. `mover` moves keys for streaming
    jobs; without it their commits are refused. `names` keeps changes of definitions apart, `slot`
    keeps them apart from commits. `data_tokens` hands out keys of the store. `is_open` tells
    whether a transaction with a commit user is open, `guard` what of a table may be removed.
    """

    catalog: Catalog
    publish: Publish
    turn: Turn = field(default_factory=Turns)
    prefix: str = "paimon"
    fence: Callable[[], Fence] | None = None
    watch: PublicationMonitor | None = None
    recent: RecentCommits = field(default_factory=RecentCommits)
    indexes: HashIndexes = field(default_factory=HashIndexes)
    order: Order | None = None
    properties: DatabasePropertyTable | None = None
    definition_store: DefinitionTable | None = None
    mover: KeyMover | None = None
    names: NameLocks = field(default_factory=lambda: NameLocks(Runtime()))
    slot: Slot | None = None
    data_tokens: DataTokens | None = None
    is_open: Callable[[str], bool] = lambda _: False
    guard: Guard = field(default_factory=LoneGuard)

    @property
    def databases(self) -> Databases:
        """The catalog's databases, with their properties."""
        return Databases(self.catalog, self.properties)

    @property
    def definitions(self) -> Definitions:
        """The views and functions of the catalog's databases."""
        return Definitions(self.catalog, self.definition_store, self.turn)

    def removing(self, location: str) -> Removing:
        """Reports snapshots to the watch before they are removed on purpose, so that a removal that
        breaks off in the middle is not mistaken for an outside writer's. Raises SetupError if that
        can't be stored.
        """
        return removes_silently if self.watch is None else partial(self.watch.chain_cut, location)

    def commit_in_order(self, table: StoredTable, who: str) -> Steps[CommitPlace]:
        """Wait until a commit of `who` follows all small inserts that were acknowledged before.
        This holds in the `with` block of the returned context manager. See `Order.commit`.
        """
        if self.order is not None and self._takes_inserts(table):
            return (yield from self.order.commit(table.name, who))
        return contextlib.nullcontext(lambda: None)

    def changing(
        self,
        name: TableName,
        *,
        drops: bool = False,
        renamed_to: TableName | None = None,
        creates: bool = False,
        alters: bool = False,
        in_order: bool = True,
    ) -> Steps[AbstractContextManager[str | None]]:
        """Wait until nobody else changes the definition of a table, or of a database (the table
        ""). This holds in the `with` block of the returned context manager, which gives the table's
        location, also for a damaged table, and None if there is no table. The change comes
        `in_order` with the table's small inserts (see `Order.change`), and no commit is under way
        while the table is dropped or renamed. `creates`: the table is created, so its database must
        stay meanwhile, as it must if the table is `renamed_to` another name.

        Raises NotOwnerError, PausedError, and CommitConflictError if the wait is too long; at the
        end of the block BrokeOffError if ownership was lost meanwhile.
        """
        if self.fence is not None:
            self.fence()
        if self.watch is not None and (pause := self.watch.pause()) is not None:
            raise PausedError(pause)
        names = {_place(name), _place(renamed_to or name)}
        if creates or renamed_to is not None:
            names.add(_place(TableName("", (renamed_to or name).database)))
        with contextlib.ExitStack() as ending:
            lock = self.names.lock(names)
            ending.callback(self.names.release, lock)
            yield lock.granted
            location, table = self._find(name)
            order = self._order_of(name, table) if in_order and location is not None else None
            if order is not None:
                place = order.change(name, drops=drops, renamed_to=renamed_to, alters=alters)
                ending.enter_context((yield from place))
            if location is not None and self.slot is not None and (drops or renamed_to is not None):
                yield ending.enter_context(self.slot(location))
            return self._changing(location, ending.pop_all())

    @contextlib.contextmanager
    def _changing(self, location: str | None, ending: contextlib.ExitStack) -> Iterator[str | None]:
        with ending:
            with self.turn(location) if location is not None else contextlib.nullcontext():
                yield location
            try:
                if self.fence is not None:
                    self.fence().check()
            except NotOwnerError as error:
                raise BrokeOffError(f"The change may have been made. {error.message}") from error

    def _find(self, name: TableName) -> tuple[str | None, StoredTable | None]:
        """The location of a table, None if it has none; and the table, None if it can't be read
        now.
        """
        if not name.table:
            return None, None
        try:
            table = load_stored(self.catalog, name)
        except UnknownNameError:
            return None, None
        except TableDamagedError:
            is_rest = self.catalog.metastore == "rest"  # its server alone knows the location
            return str(name) if is_rest else self.catalog.location_of(name), None
        return table.location, table

    def _order_of(self, name: TableName, table: StoredTable | None) -> Order | None:
        """The order of a table's small inserts; None for a table without small inserts. A table
        that can't be read now may get its first insert while it is changed.
        """
        order = self.order
        if order is None or name.branch is not None:
            return None
        may_have = table is None or self._takes_inserts(table) or order.has_queue(name)
        return order if may_have else None

    def _takes_inserts(self, table: StoredTable) -> bool:
        return (
            self.order is not None
            and table.name.branch is None
            and table.options.get("auto_batch_load", "").lower() == "true"
        )


def _place(name: TableName) -> str:
    """The key by which changes of a definition take turns: the same for all branches of a table."""
    return f"\0{name.database}\0{name.table}"


def publication_of(table: StoredTable, snapshot: Document) -> Publication:
    """Return the publication of a snapshot that was published outside transactions."""
    return Publication(
        id=uuid.uuid4().hex,
        table=table.name,
        location=table.location,
        snapshot_id=snapshot["id"],
        manifest_list=snapshot["deltaManifestList"],
        commit_user=snapshot["commitUser"],
        commit_identifier=snapshot["commitIdentifier"],
        commit_kind=snapshot["commitKind"],
        published_at_ms=int(time.time() * 1000),
        is_transaction=False,
        changelog_list=snapshot.get("changelogManifestList"),
        properties=tuple((snapshot.get("properties") or {}).items()),
        rows=snapshot.get("deltaRecordCount"),
        base_list=snapshot["baseManifestList"],
        table_creation=str(table.created_at_ms or ""),
    )


def watch_latest(watch: PublicationMonitor, table: StoredTable) -> None:
    """Watch a table's latest snapshot, which came from a branch: it can be overwritten like a
    commit's snapshot.
    """
    latest = latest_document(table)
    if latest is not None:
        before = load_snapshot(table, str(latest["id"] - 1)) or {}
        changes_index = latest.get("indexManifest") != before.get("indexManifest")
        publication = publication_of(table, latest)
        rests_on = before.get("deltaManifestList")
        watch.note(replace(publication, changes_index=changes_index, rests_on=rests_on))
