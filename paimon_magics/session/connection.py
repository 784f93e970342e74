"""What the steps of a statement share: Spark, the catalog, the committer, the current database."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from paimon_magics.coordinator.client.interface import CoordinatorClient
from paimon_magics.errors import PaimonMagicsError, UnknownNameError
from paimon_magics.session.open_tables import OpenTables
from paimon_magics.session.told_times import tell_moments
from paimon_magics.settings import Settings
from paimon_magics.spark.stores import OpenedStores
from paimon_magics.spark.time_zones import session_zone
from paimon_magics.spark.views import Views
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.stores.probes import StoreReport
from paimon_magics.tables.table import Table

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame, SparkSession
    from paimon_magics.tables.manifests.live_files import ManifestCache
    from paimon_magics.tables.reading.data_read import DataRead

__all__ = ["Connection"]

_FOLDERS_MAX = 8
_READS_MAX = 8  # each may list a hundred thousand files


@dataclass
class Connection:
    """One open connection. `database` is the one of unqualified names; USE changes it.

    `store` is the warehouse's as it was found, `coordinator` what commits, in the words of
    `connect`. `slots` is how many tasks can run at
    once. `view_frames` are the frames of the temporary views that statements made: while they are
    there, what they read does not expire. `reads` and `folders` are plans and manifests that the
    next query may need again, `inserted` the tables that small inserts went to, each with the time
    of this process at which it was looked at. `opened` are the stores that Spark was tried on.
    """

    spark: SparkSession
    catalog: Catalog
    store: StoreReport
    committer: CoordinatorClient
    coordinator: str
    settings: Settings
    database: str
    views: Views
    slots: int
    view_frames: dict[str, DataFrame] = field(default_factory=dict)
    reads: OrderedDict[Hashable, DataRead] = field(default_factory=OrderedDict)
    folders: OrderedDict[str, ManifestCache] = field(default_factory=OrderedDict)
    inserted: dict[TableName, tuple[float, Table]] = field(default_factory=dict)
    opened: OpenedStores = field(init=False)
    _at_hand: _AtHand = field(default_factory=lambda: _AtHand(), repr=False)
    closed: bool = False

    def __post_init__(self) -> None:
        self.opened = OpenedStores(self.spark)

    @contextmanager
    def naming(self, frames: Mapping[str, object] | None) -> Iterator[list[str]]:
        """The statement of the body, which is one of this thread, may name `frames` and reads each
        of its tables once; gives what it tells of its names."""
        at_hand = self._at_hand
        before = at_hand.frames, at_hand.told, at_hand.tables
        at_hand.frames, at_hand.told, at_hand.tables = frames, [], OpenTables(self.catalog)
        try:
            with self.telling():
                yield self.told
        finally:
            at_hand.frames, at_hand.told, at_hand.tables = before

    @property
    def tables(self) -> OpenTables:
        """The tables of this thread's statement, each read once; outside a statement, none is
        kept."""
        return self._at_hand.tables or OpenTables(self.catalog)

    @property
    def frames(self) -> Mapping[str, object] | None:
        """Python's variables, of which a query of this thread may name frames."""
        return self._at_hand.frames

    @property
    def told(self) -> list[str]:
        """What a reader of this thread's statement should know of what names came to mean."""
        return self._at_hand.told

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Errors of the body tell moments in the session's zone."""
        try:
            yield
        except PaimonMagicsError as error:
            with suppress(Exception):  # of a Spark that has ended: they stay as they are
                tell_moments(error, self.zone)
            raise

    def tell(self, note: str) -> None:
        """Let the Outcome of the statement at hand say so, once."""
        if note not in self.told:
            self.told.append(note)

    @property
    def zone(self) -> str:
        """The session's time zone at this moment, as Arrow and Python call it."""
        return session_zone(self.spark)

    def keep_read(self, key: Hashable, read: DataRead) -> None:
        """Keep the plan of a read for the next query on the same snapshot."""
        self.reads[key] = read
        self.reads.move_to_end(key)
        while len(self.reads) > _READS_MAX:
            self.reads.popitem(last=False)

    def manifests(self, location: str, make: Callable[[], ManifestCache]) -> ManifestCache:
        """The manifests of the table that lies there, as far as they were read."""
        found = self.folders.get(location)
        if found is None:
            found = self.folders[location] = make()
        self.folders.move_to_end(location)
        while len(self.folders) > _FOLDERS_MAX:
            self.folders.popitem(last=False)
        return found

    def full_name(self, name: TableName) -> TableName:
        """`name` with its database, without the catalog; the catalog must be ours."""
        if name.catalog is not None and name.catalog != self.settings.catalog_name:
            raise UnknownNameError(
                f"`{name}` is in catalog `{name.catalog}`, which is not Paimon's.",
                hint=f"Paimon's catalog is called `{self.settings.catalog_name}` here.",
            )
        return replace(name, catalog=None, database=name.database or self.database)

    def load(self, name: TableName, statement: str, position: int) -> Table:
        """The table of that name; errors point at `position` in `statement`."""
        try:
            return self.tables.load(self.full_name(name))
        except PaimonMagicsError as error:
            raise located(error, statement, position) from None


class _AtHand(threading.local):
    """What belongs to the statement that a thread runs: several may run at a time."""

    def __init__(self) -> None:
        self.frames: Mapping[str, object] | None = None
        self.told: list[str] = []
        self.tables: OpenTables | None = None


def located(error: PaimonMagicsError, statement: str, position: int) -> PaimonMagicsError:
    """The same error, pointing at a place, unless it has one already."""
    if error.position is None:
        error.statement, error.position = statement, position
    return error
