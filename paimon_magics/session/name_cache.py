"""The name cache: a catalog's names for completion, which never waits for the warehouse.

Every question is answered from memory at once, with what was read last or with nothing. A
background thread with its own catalog reads what is missing or old, for the next question. A
statement of this process that is not a query makes all entries old.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from paimon_magics.errors import PaimonMagicsError, UnknownNameError
from paimon_magics.statements.data_types import DataType
from paimon_magics.statements.statement import TableName

if TYPE_CHECKING:
    from paimon_magics.session.catalog_views import CatalogView
    from paimon_magics.tables.catalog.catalog import Catalog
    from paimon_magics.tables.catalog.databases import Visibility

_log = logging.getLogger(__name__)

_OLD_SECONDS = 30.0
_ENTRIES_MAX = 2_000
_SNAPSHOTS = 50
_PARTITIONS = 2_000


@dataclass(frozen=True, slots=True)
class KnownColumn:
    """A column's name and type."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class KnownTable:
    """A table's columns, and which of them partition it."""

    columns: tuple[KnownColumn, ...]
    partition_keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KnownSnapshot:
    """A snapshot's id, its kind, and when it was made: milliseconds since 1970 UTC."""

    id: int
    kind: str
    time_ms: int


@dataclass(frozen=True, slots=True)
class KnownTag:
    """A tag, the id of its snapshot, and when that was made: milliseconds since 1970 UTC."""

    name: str
    snapshot_id: int
    time_ms: int


class Views(Protocol):
    """The views and functions of the catalog."""

    def list_views(self, database: str) -> list[str]:
        """Their names in a database."""

    def find_view(self, name: TableName) -> CatalogView | None:
        """The view of that name, with its columns."""

    def list_functions(self, database: str) -> list[str]:
        """The names of the functions in a database."""


@dataclass
class _Entry:
    value: Any = None
    read_at: float = float("-inf")
    is_requested: bool = False


class KnownNames:
    """The names of one catalog. Any thread may call its methods; none but `wait` ever waits."""

    def __init__(
        self,
        catalog_options: Mapping[str, str],
        visibility: Visibility | None = None,
        views: Views | None = None,
    ) -> None:
        self._options = dict(catalog_options)
        self._visibility = visibility
        self._views = views
        self._entries: dict[Hashable, _Entry] = {}
        self._lock = threading.Lock()
        self._requests: queue.SimpleQueue[tuple[_Entry, Callable[[Catalog], Any]]] = (
            queue.SimpleQueue()
        )
        self._idle = threading.Event()
        self._idle.set()
        self._open = 0
        self._thread: threading.Thread | None = None

    def databases(self) -> tuple[str, ...]:
        """All databases, in order."""
        return self._get("databases", lambda catalog: tuple(catalog.list_databases())) or ()

    def tables(self, database: str) -> tuple[str, ...]:
        """The tables and views of a database, in order."""

        def read(catalog: Catalog) -> tuple[str, ...]:
            views = () if self._views is None else self._views.list_views(database)
            return tuple(sorted({*catalog.list_tables(database), *views}))

        return self._get(("tables", database), read) or ()

    def functions(self, database: str) -> tuple[str, ...]:
        """The functions of a database that the catalog keeps, in order."""
        views = self._views
        if views is None:
            return ()
        key = ("functions", database)
        return self._get(key, lambda _: tuple(views.list_functions(database))) or ()

    def table(self, name: TableName) -> KnownTable | None:
        """The columns of a table or view; None while they are unknown. `name` includes its
        database."""
        key = ("table", replace(name, catalog=None))
        table: KnownTable | None = self._get(key, lambda c: _table(c, name, self._views))
        return table

    def partitions(self, name: TableName) -> tuple[tuple[str | None, ...], ...]:
        """The values of the partition keys of each partition, as text, the last ones first."""
        return self._get(("partitions", _plain(name)), lambda c: _partitions(c, name)) or ()

    def tags(self, name: TableName) -> tuple[str, ...]:
        """A table's tags."""
        return self._get(("tags", _plain(name)), lambda c: _tags(c, name)) or ()

    def branches(self, name: TableName) -> tuple[str, ...]:
        """A table's branches besides its main one."""
        return self._get(("branches", _plain(name)), lambda c: _branches(c, name)) or ()

    def consumers(self, name: TableName) -> tuple[tuple[str, int], ...]:
        """A table's consumers, with the next snapshot of each."""
        return self._get(("consumers", _plain(name)), lambda c: _consumers(c, name)) or ()

    def tag_times(self, name: TableName) -> tuple[KnownTag, ...]:
        """The latest tags of a table with their snapshots, the newest snapshot first."""
        return self._get(("tag times", _plain(name)), lambda c: _tag_times(c, name)) or ()

    def snapshots(self, name: TableName) -> tuple[KnownSnapshot, ...]:
        """A table's latest snapshots, the newest first."""
        return self._get(("snapshots", _plain(name)), lambda c: _snapshots(c, name)) or ()

    def forget(self) -> None:
        """Mark all entries as old. They still answer until they have been read again."""
        with self._lock:
            for entry in self._entries.values():
                entry.read_at = float("-inf")

    def wait(self, seconds: float) -> bool:
        """Wait at most so many seconds until all pending reads are done. Returns whether they
        are."""
        return self._idle.wait(seconds)

    def _get(self, key: Hashable, read: Callable[[Catalog], Any]) -> Any:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                if len(self._entries) >= _ENTRIES_MAX:
                    self._entries.clear()
                entry = self._entries[key] = _Entry()
            if not entry.is_requested and time.monotonic() - entry.read_at > _OLD_SECONDS:
                entry.is_requested = True
                self._open += 1
                self._idle.clear()
                self._requests.put((entry, read))
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._read_on, name="paimon-magics-names", daemon=True
                    )
                    self._thread.start()
            return entry.value

    def _read_on(self) -> None:
        catalog: Catalog | None = None
        while True:
            entry, read = self._requests.get()
            # Set before the read, so that a `forget` meanwhile makes it old again.
            begun = time.monotonic()
            with self._lock:
                entry.read_at = begun
            value = None
            try:
                if catalog is None:
                    from paimon_magics.tables.catalog.catalog import Catalog

                    catalog = Catalog.open(self._options)
                    catalog.visibility = self._visibility
                value = read(catalog)
            except (PaimonMagicsError, OSError):
                pass  # no such table, or it can't be reached: nothing to offer
            except Exception:
                _log.info("The names of the catalog could not be read.", exc_info=True)
            with self._lock:
                entry.value = value
                entry.is_requested = False
                self._open -= 1
                if not self._open:
                    self._idle.set()


def _plain(name: TableName) -> TableName:
    return replace(name, catalog=None, system_table=None)


def _table(catalog: Catalog, name: TableName, views: Views | None) -> KnownTable:
    from paimon_magics.planning.reads.views import RowView, shown_columns, view_named
    from paimon_magics.statements.types.type_text import to_spark_sql
    from paimon_magics.tables.system_tables.registry import METADATA_COLUMNS

    try:
        schema = catalog.load(_plain(name)).schema
    except UnknownNameError:
        view = None if views is None else views.find_view(_plain(name))
        if view is None:
            raise
        schema = view.schema
    columns = schema.columns
    metadata = METADATA_COLUMNS.get(name.system_table or "")
    if metadata is not None:
        fields = tuple(KnownColumn(field.name, str(field.type)) for field in metadata)
        return KnownTable(fields, ())
    kind = view_named(name.system_table)
    if kind is not None:
        columns = shown_columns(columns, RowView(kind))
    return KnownTable(
        tuple(KnownColumn(column.name, to_spark_sql(column.type)) for column in columns),
        tuple(schema.partition_keys),
    )


def _partitions(catalog: Catalog, name: TableName) -> tuple[tuple[str | None, ...], ...]:
    from paimon_magics.tables.manifests.partitions import list_partitions

    table = catalog.load(_plain(name))
    keys = table.schema.partition_keys
    if not keys:
        return ()
    types = [table.schema.column(key).type for key in keys]
    return tuple(
        tuple(
            None if value is None else _partition_text(value, type)
            for value, type in zip(values, types, strict=True)
        )
        for values in reversed(list_partitions(table)[-_PARTITIONS:])
    )


def _partition_text(value: object, type: DataType) -> str:
    from paimon_magics.planning.reports.partition_names import KeyKind, key_kind
    from paimon_magics.tables.manifests.partitions import partition_value_text

    text = partition_value_text(value, type)
    # An instant is marked as UTC: the session's zone is unknown here.
    return f"{text}Z" if key_kind(type) is KeyKind.INSTANT else text


def _tags(catalog: Catalog, name: TableName) -> tuple[str, ...]:
    from paimon_magics.tables.catalog.stored_tables import load_stored
    from paimon_magics.tables.snapshots.chain import list_tags

    return tuple(list_tags(load_stored(catalog, _plain(name))))


def _branches(catalog: Catalog, name: TableName) -> tuple[str, ...]:
    from paimon_magics.tables.catalog.stored_tables import load_stored
    from paimon_magics.tables.snapshots.branches import list_branches

    return tuple(list_branches(load_stored(catalog, replace(_plain(name), branch=None))))


def _consumers(catalog: Catalog, name: TableName) -> tuple[tuple[str, int], ...]:
    from paimon_magics.tables.snapshots.consumers import list_progress

    return tuple(sorted(list_progress(catalog.load(_plain(name))).items()))


def _tag_times(catalog: Catalog, name: TableName) -> tuple[KnownTag, ...]:
    from paimon_magics.tables.catalog.stored_tables import load_stored
    from paimon_magics.tables.snapshots.chain import list_tags, load_tag

    table = load_stored(catalog, _plain(name))
    documents = ((tag, load_tag(table, tag)) for tag in list_tags(table)[-_SNAPSHOTS:])
    known = [
        KnownTag(tag, document["id"], document["timeMillis"])
        for tag, document in documents
        if document is not None
    ]
    return tuple(sorted(known, key=lambda tag: -tag.snapshot_id))


def _snapshots(catalog: Catalog, name: TableName) -> tuple[KnownSnapshot, ...]:
    from paimon_magics.tables.catalog.stored_tables import load_stored
    from paimon_magics.tables.snapshots.chain import latest_document, list_snapshots

    table = load_stored(catalog, _plain(name))
    latest = latest_document(table)
    if latest is None:
        return ()
    documents = list_snapshots(table, max(latest["id"] - _SNAPSHOTS, 0), _SNAPSHOTS)
    return tuple(
        KnownSnapshot(document["id"], document["commitKind"], document["timeMillis"])
        for document in reversed(documents)
    )
