"""One open connection to a warehouse: the services that all statements share, what they keep for
the next one, and what changes while it is open."""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from paimon_magics.coordinator.client.interface import CoordinatorClient, Definitions
from paimon_magics.errors import UnknownNameError
from paimon_magics.session.place_words import PlaceWords
from paimon_magics.settings import Settings
from paimon_magics.spark.session_settings import session_zone
from paimon_magics.spark.stores import OpenedStores
from paimon_magics.spark.views import Views
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.stores.probes import StoreReport
from paimon_magics.tables.table import StoredTable, Table

if TYPE_CHECKING:
    from paimon_magics.spark.frame_steps import Source
    from paimon_magics.spark.handles import DataFrame, SparkSession
    from paimon_magics.tables.reading.data_read import DataRead

_FOLDERS_MAX = 8
_READS_MAX = 8  # each may list a hundred thousand files
_RECENT_SECONDS = 1.0


class Stoppable(Protocol):
    """What runs until it is stopped."""

    def stop(self) -> None:
        """Stop it."""


@dataclass(frozen=True)
class NamedView:
    """A temporary view that a statement made. While `frame` exists, the snapshots that it reads do
    not expire. For a query, `source` reads less of them; `shown` is the frame that Spark gave for
    the name when the view was made."""

    frame: DataFrame
    source: Source | None = None
    shown: DataFrame | None = None


class SessionState:
    """What changes while a connection is open."""

    def __init__(self, database: str) -> None:
        self.database = database
        """The database of unqualified names; USE changes it."""
        self.closed = False
        self.was_open = False
        """Whether the last `connect` has returned a session that was open."""
        self.views: dict[str, NamedView] = {}
        """The views that statements made, by their names in lower case."""
        self.running: list[Stoppable] = []
        """Streams that write by this connection; they end with it."""
        self._blocks: list[bool] = []
        self._spooled: list[object] = []

    def begin_block(self) -> None:
        """Begin a `with` block, perhaps that of `with connect(…)`."""
        self._blocks.append(not self.was_open)
        self.was_open = False

    def ends_with_block(self) -> bool:
        """Whether the end of the `with` block closes the session: not one that was open before
        `with connect(…)`."""
        return self._blocks.pop()

    def keep_spooled(self, owners: Iterable[object]) -> None:
        """Keep temporary files as long as the connection: a frame of the query that named a stream
        may be read at any later time. `owners` delete them when they go."""
        self._spooled.extend(owners)

    def close(self) -> None:
        """Stop what runs, and forget the views."""
        for running in tuple(self.running):
            running.stop()
        self.views.clear()


class PlanCache:
    """Plans of reads, and manifests of tables, for the next query. Several threads may use it."""

    def __init__(self) -> None:
        self._reads: OrderedDict[Hashable, DataRead] = OrderedDict()
        self._manifests: OrderedDict[str, ManifestCache] = OrderedDict()

    def read(self, key: Hashable) -> DataRead | None:
        """The plan of a read; None if none is kept."""
        return self._reads.get(key)

    def keep_read(self, key: Hashable, read: DataRead) -> None:
        """Keep the plan of a read for the next query on the same snapshot."""
        self._reads.pop(key, None)  # `move_to_end` would fail when another thread drops it
        self._reads[key] = read
        while len(self._reads) > _READS_MAX:
            self._reads.popitem(last=False)

    def manifests(self, table: Table | StoredTable) -> ManifestCache:
        """The manifest cache of the table's folder."""
        manifests = self._manifests.pop(table.location, None) or ManifestCache(table.paimon)
        self._manifests[table.location] = manifests
        while len(self._manifests) > _FOLDERS_MAX:
            self._manifests.popitem(last=False)
        return manifests

    def clear_reads(self) -> None:
        """Forget the plans of reads."""
        self._reads.clear()


class RecentTables:
    """The tables of recent small inserts, so that the next insert does not read the schema again. A
    statement that changes a table forgets it."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._tables: dict[TableName, tuple[float, Table]] = {}

    def load(self, name: TableName) -> Table:
        """The table as it was loaded within the last second, or else now. Raises what
        `Catalog.load` raises."""
        now = time.monotonic()
        loaded_at, table = self._tables.get(name) or (-_RECENT_SECONDS, None)
        if table is None or now - loaded_at > _RECENT_SECONDS:
            table = self._catalog.load(name)
            self._tables[name] = now, table
        return table

    def forget(self, name: TableName | None = None) -> None:
        """Forget a table, or all of them."""
        if name is None:
            self._tables.clear()
        else:
            self._tables.pop(name, None)


@dataclass(frozen=True)
class Connection:
    """One open connection: services that don't change.

    `store` is the report on the warehouse's store from when it was opened, `coordinator` where
    commits are made, as the argument of `connect`. `slots` is the number of tasks that can run at
    once. `words` are the arguments of `connect`. `opened` are the stores that Spark was tried on.
    `process` has opened the connection; its forked children can't use it.
    """

    spark: SparkSession
    catalog: Catalog
    store: StoreReport
    committer: CoordinatorClient
    coordinator: str
    settings: Settings
    views: Views
    slots: int
    state: SessionState
    words: PlaceWords = field(default_factory=PlaceWords)
    plans: PlanCache = field(default_factory=PlanCache)
    recent: RecentTables = field(init=False)
    opened: OpenedStores = field(init=False)
    process: int = field(default_factory=os.getpid)

    def __post_init__(self) -> None:
        object.__setattr__(self, "recent", RecentTables(self.catalog))
        object.__setattr__(self, "opened", OpenedStores(self.spark))

    def beside(
        self,
        *,
        spark: SparkSession | None = None,
        views: Views | None = None,
        committer: CoordinatorClient | None = None,
    ) -> Connection:
        """A connection to the same place by other services, with a state of its own."""
        return replace(
            self,
            spark=spark or self.spark,
            views=views or self.views,
            committer=committer or self.committer,
            state=SessionState(self.state.database),
        )

    @property
    def is_inherited(self) -> bool:
        """Whether this is a forked child of the process that has opened it."""
        return self.process != os.getpid()

    @property
    def definitions(self) -> Definitions:
        """Changes definitions of tables and databases."""
        return Definitions(self.catalog, self.committer.change_definition)

    @property
    def zone(self) -> str:
        """The time zone of Spark's session now, by Arrow's and Python's name."""
        return session_zone(self.spark)

    def full_name(self, name: TableName) -> TableName:
        """Return `name` with its database, without the catalog. Raises UnknownNameError for another
        catalog than ours."""
        if name.catalog is not None and name.catalog != self.settings.catalog_name:
            raise UnknownNameError(
                f"`{name}` is in catalog `{name.catalog}`, which is not Paimon's.",
                hint=f"Paimon's catalog is called `{self.settings.catalog_name}` here.",
            )
        return replace(name, catalog=None, database=name.database or self.state.database)
