"""The state that all steps of a statement share: Spark, catalog, committer, current database."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from paimon_magics.coordinator.client.interface import CoordinatorClient, Definitions
from paimon_magics.errors import (
    CommitConflictError,
    InvalidTableError,
    PaimonMagicsError,
    TableDamagedError,
    UnknownNameError,
    UnsupportedStatementError,
)
from paimon_magics.planning.commits.requests import Transaction
from paimon_magics.planning.reads.spark_settings import PAIMON_PREFIX, REFUSED
from paimon_magics.session.place_words import PlaceWords
from paimon_magics.session.times import tell_moments
from paimon_magics.settings import Settings
from paimon_magics.spark.session_settings import session_zone, settings_of
from paimon_magics.spark.stores import OpenedStores
from paimon_magics.spark.views import Views
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.schema.history import is_other_table
from paimon_magics.tables.stores.probes import StoreReport
from paimon_magics.tables.table import Table

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame, SparkSession
    from paimon_magics.tables.manifests.live_files import ManifestCache
    from paimon_magics.tables.reading.data_read import DataRead


_FOLDERS_MAX = 8
_READS_MAX = 8  # each may list a hundred thousand files


class Stoppable(Protocol):
    """What runs until it is stopped."""

    def stop(self) -> None:
        """Stop it."""


@dataclass(frozen=True)
class Epoch:
    """The micro-batch of a stream that a thread writes. `begun` hears of each transaction that is
    begun for it, before anything can be committed; `properties` go into its snapshot."""

    begun: Callable[[Transaction], None]
    properties: tuple[tuple[str, str], ...]


@dataclass
class Connection:
    """One open connection. `database` is that of unqualified names; USE changes it.

    `store` is the report on the warehouse's store from when it was opened, `coordinator` where
    commits are made, as the argument of `connect`. `slots` is the number of tasks that can run at
    once. `view_frames` are the frames of temporary views that statements made; while they exist,
    the snapshots that they read do not expire. `reads` and `folders` keep plans and manifests for
    the next query. `inserted` keeps the tables that small inserts went to, each with the process
    time at which it was loaded. `opened` are the stores that Spark was tried on.
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
    view_reads: dict[str, object] = field(default_factory=dict)
    """What such views read, by their names in lower case, of those that are planned anew for each
    query (`session.queries.frames`)."""
    reads: OrderedDict[Hashable, DataRead] = field(default_factory=OrderedDict)
    folders: OrderedDict[str, ManifestCache] = field(default_factory=OrderedDict)
    inserted: dict[TableName, tuple[float, Table]] = field(default_factory=dict)
    opened: OpenedStores = field(init=False)
    streams: list[object] = field(default_factory=list)
    """What keeps the temporary files of streams that queries have named, since a frame of such a
    query may be read at any later time. They go with the connection."""
    _at_hand: _AtHand = field(default_factory=lambda: _AtHand(), repr=False)
    closed: bool = False
    words: PlaceWords = field(default_factory=PlaceWords)
    """The arguments of `connect` that this connection was made by."""
    running: list[Stoppable] = field(default_factory=list)
    """Streams that write by this connection; they end with it."""
    process: int = field(default_factory=os.getpid)
    """The process that has opened it, whose forked children can't use it."""

    def __post_init__(self) -> None:
        self.opened = OpenedStores(self.spark)

    @property
    def is_inherited(self) -> bool:
        """Whether this is a forked child of the process that has opened it."""
        return self.process != os.getpid()

    @contextmanager
    def naming(self, frames: Mapping[str, object] | None) -> Iterator[list[str]]:
        """Run the body as one statement of this thread: it may name `frames`, and loads each of its
        tables once. Gives the list of notes on what its names came to mean."""
        tables = OpenTables(self.catalog)
        with (
            self._at_hand.with_values(
                frames=frames, told=[], tables=tables, zone=None, spark_settings=None
            ),
            self.telling(),
        ):
            try:
                yield self.told
            except TableDamagedError:
                tables.check_present()
                raise

    def writing_epoch(self, epoch: Epoch) -> AbstractContextManager[None]:
        """What this thread writes in the body belongs to a stream's `epoch`."""
        return self._at_hand.with_values(epoch=epoch)

    @property
    def epoch(self) -> Epoch | None:
        """The micro-batch that this thread writes, if it writes one."""
        return self._at_hand.epoch

    @property
    def definitions(self) -> Definitions:
        """Changes definitions of tables and databases."""
        return Definitions(self.catalog, self.committer.change_definition)

    @property
    def tables(self) -> OpenTables:
        """The tables of this thread's statement, each loaded once. Outside a statement none is
        kept."""
        return self._at_hand.tables or OpenTables(self.catalog)

    @property
    def frames(self) -> Mapping[str, object] | None:
        """The Python variables whose frames a query of this thread may name."""
        return self._at_hand.frames

    @property
    def told(self) -> list[str]:
        """Notes for the user on what the names in this thread's statement came to mean."""
        return self._at_hand.told

    def filling(self) -> AbstractContextManager[None]:
        """What this thread reads in the body becomes rows of a table."""
        return self._at_hand.with_values(fills_table=True)

    @property
    def fills_table(self) -> bool:
        """Whether what this thread reads becomes rows of a table."""
        return self._at_hand.fills_table

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Run the body; errors raised in it show moments in the session's zone."""
        try:
            yield
        except PaimonMagicsError as error:
            with suppress(Exception):  # Spark may have ended: then moments stay in UTC
                tell_moments(error, self.zone)
            raise

    def tell(self, note: str) -> None:
        """Add a note to the Outcome of the current statement, once."""
        if note not in self.told:
            self.told.append(note)

    @property
    def zone(self) -> str:
        """The session's current time zone, by Arrow's and Python's name; within a statement the one
        in which it was first asked for."""
        at_hand = self._at_hand
        if at_hand.tables is None:
            return session_zone(self.spark)
        if at_hand.zone is None:
            at_hand.zone = session_zone(self.spark)
        return at_hand.zone

    @property
    def spark_settings(self) -> Mapping[str, str]:
        """The settings of Spark that are looked at for each statement and are set
        (`planning.reads.spark_settings`); within a statement those when it first asked."""
        at_hand = self._at_hand
        if at_hand.tables is None:
            return settings_of(self.spark, REFUSED, PAIMON_PREFIX)
        if at_hand.spark_settings is None:
            at_hand.spark_settings = settings_of(self.spark, REFUSED, PAIMON_PREFIX)
        return at_hand.spark_settings

    def keep_read(self, key: Hashable, read: DataRead) -> None:
        """Keep the plan of a read for the next query on the same snapshot."""
        self.reads.pop(key, None)  # `move_to_end` would fail when another thread drops it
        self.reads[key] = read
        while len(self.reads) > _READS_MAX:
            self.reads.popitem(last=False)

    def manifests(self, location: str, make: Callable[[], ManifestCache]) -> ManifestCache:
        """The manifest cache of the table at `location`, made by `make` if there is none."""
        found = self.folders.pop(location, None) or make()
        self.folders[location] = found
        while len(self.folders) > _FOLDERS_MAX:
            self.folders.popitem(last=False)
        return found

    def full_name(self, name: TableName) -> TableName:
        """Return `name` with its database, without the catalog. Raises UnknownNameError for another
        catalog than ours."""
        if name.catalog is not None and name.catalog != self.settings.catalog_name:
            raise UnknownNameError(
                f"`{name}` is in catalog `{name.catalog}`, which is not Paimon's.",
                hint=f"Paimon's catalog is called `{self.settings.catalog_name}` here.",
            )
        return replace(name, catalog=None, database=name.database or self.database)

    def load(self, name: TableName, statement: str, position: int) -> Table:
        """Load the table of that name; errors point at `position` in `statement`."""
        try:
            return self.tables.load(self.full_name(name))
        except PaimonMagicsError as error:
            raise located(error, statement, position) from None


class _AtHand(threading.local):
    """The state of the statement that a thread runs; several threads may run one at a time."""

    def __init__(self) -> None:
        self.frames: Mapping[str, object] | None = None
        self.told: list[str] = []
        self.tables: OpenTables | None = None
        self.zone: str | None = None
        self.spark_settings: Mapping[str, str] | None = None
        self.epoch: Epoch | None = None
        self.fills_table = False

    @contextmanager
    def with_values(self, **values: Any) -> Iterator[None]:
        """Set attributes for the body, then back to what they were."""
        before = {name: getattr(self, name) for name in values}
        vars(self).update(values)
        try:
            yield
        finally:
            vars(self).update(before)


def located(error: PaimonMagicsError, statement: str, position: int) -> PaimonMagicsError:
    """Return the error, with the position added if it has none."""
    if error.position is None:
        error.statement, error.position = statement, position
    return error


# The tables that a statement names: each is loaded from the catalog once.
#
# So all steps of a statement see one schema. `renew` loads the newest, for planning again.


class OpenTables:
    """The tables of one statement, by full name. For the statement's thread only."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._tables: dict[TableName, Table] = {}

    def load(self, name: TableName) -> Table:
        """Return the table. Raises what `Catalog.load` raises.

        A missing table is looked up again the next time: the statement may create it.
        """
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = self._catalog.load(name)
        return table

    def exists(self, name: TableName) -> bool:
        """Whether the catalog has the table, including one that can't be read here."""
        if name in self._tables:
            return True
        if name.database is None or not self._catalog.database_exists(name.database):
            return False
        try:
            table = self._catalog.find(name)
        except (InvalidTableError, UnsupportedStatementError):
            return True  # `load` says what is wrong with it
        if table is not None:
            self._tables[name] = table
        return table is not None

    def check_present(self) -> None:
        """Raise CommitConflictError where somebody has dropped a table since it was loaded: its
        files are gone then, and nothing is damaged."""
        for name, table in self._tables.items():
            present = None
            with suppress(UnknownNameError):
                present = self._catalog.find(name)
            if present is None or is_other_table(table, present):
                raise CommitConflictError(
                    f"`{name}` was dropped while the statement was running.",
                    hint="Nothing was written. Run the statement again if the table was meant to "
                    "go, and another has its name now.",
                ) from None

    def renew(self) -> None:
        """Load each table again on its next use."""
        self._tables.clear()
