"""A table read as a stream: where it begins, how far a batch goes, and the reads of a batch.

A batch reads its snapshots one by one, in their order, as Paimon's streams do. It skips snapshots
without changes: overwrites, and compactions without a changelog. Only the last manifests are kept
between two calls, so that memory does not grow with the stream.
Rules: `DataTableStreamScan`, `DeltaFollowUpScanner`, `ChangelogFollowUpScanner`,
`ContinuousFromTimestampStartingScanner`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.errors import InvalidTableError, UnknownNameError
from paimon_magics.planning.compaction.keyed_tables import PickOptions
from paimon_magics.planning.reads.read_points import AtTimestamp, ScanMode
from paimon_magics.planning.reads.stream_points import (
    AtFull,
    AtSnapshotFull,
    FromSnapshot,
    FromTime,
    Limits,
    Next,
    SnapshotSize,
    StreamOffset,
    StreamRequest,
    admitted,
    check_streamable,
)
from paimon_magics.planning.reads.views import view_named
from paimon_magics.statements.clauses.names import table_text
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.manifests.live_files import ManifestCache, added_files
from paimon_magics.tables.reading.data_read import (
    DataRead,
    ReadRequest,
    plan_data_read,
    shown_schema,
)
from paimon_magics.tables.schema.history import created_at_ms
from paimon_magics.tables.snapshots.consumers import keep_progress, position_of
from paimon_magics.tables.snapshots.latest import (
    earliest_snapshot_id,
    latest_snapshot_id,
    read_snapshot,
)
from paimon_magics.tables.snapshots.targets import SnapshotChanges, TableState
from paimon_magics.tables.snapshots.time_travel import find_target, moment_ms
from paimon_magics.tables.table import Table

# A snapshot's manifests are read when a batch is measured and again when it is planned, and never
# after it: room for those of some hundred snapshots.
_KEPT_BYTES_MAX = 16 * 1024 * 1024


class TableStream:
    """One table, its `$audit_log` or its `$binlog`, read snapshot by snapshot.

    `name` has its database. `zone` is the time zone of times in options. With `columns`, the shown
    columns that the stream began with, later changes of the schema that touch them are refused.

    Raises UnknownNameError for a table that does not exist, UnsupportedStatementError for one that
    can't be read as a stream.
    """

    def __init__(
        self,
        catalog: Catalog,
        name: TableName,
        request: StreamRequest,
        *,
        zone: str = "UTC",
        columns: pa.Schema | None = None,
        batch_rows: int = 65536,
    ) -> None:
        self._catalog = catalog
        self._name = name
        self._request = request
        self._zone = zone
        self._columns = columns
        self._batch_rows = batch_rows
        self._table = self._loaded()
        self._created_ms = created_at_ms(self._table)
        kind = view_named(name.system_table)
        check_streamable(name, self._table.schema, kind)
        assert kind is not None
        self._kind = kind
        self._manifests = ManifestCache(self._table.paimon, _KEPT_BYTES_MAX)

    @property
    def limits(self) -> Limits:
        """How much a batch takes."""
        return self._request.limits

    def shown(self) -> DataRead:
        """A read of no rows, which knows the columns of the stream."""
        target = SnapshotChanges((), ScanMode.DELTA)
        return plan_data_read(self._table, ReadRequest(self._kind), target=target)

    def begin(self) -> StreamOffset:
        """Where a new stream begins; from here on its consumer, if it has one, protects its
        snapshots. Spark may ask more than once where a query begins.

        Raises UnknownNameError for a snapshot that the table does not have.
        """
        offset = self._beginning()
        self.keep(offset)
        return offset

    def document(self, offset: StreamOffset) -> dict[str, object]:
        """The offset as Spark stores it in a checkpoint, with what identifies the table."""
        return replace(offset, created_ms=self._created_ms).document()

    def check_same_table(self, offset: StreamOffset) -> None:
        """Raise InvalidTableError if the offset belongs to another table: the table was dropped and
        created again, or the checkpoint belongs to another stream."""
        now = created_at_ms(self._table)
        if offset.created_ms is not None and now is not None and offset.created_ms != now:
            raise InvalidTableError(
                f"`{self._name}` is not the table that the stream has read. The table was dropped "
                "and created again, or the checkpoint belongs to another stream.",
                hint="Begin a new stream, with a checkpoint of its own.",
            )

    def keep(self, offset: StreamOffset) -> None:
        """Note for the stream's consumer that all before `offset` has been read."""
        if self._request.consumer_id is not None:
            consumer_id = self._request.consumer_id
            keep_progress(self._table, consumer_id, offset.snapshot_id, all_rows=offset.full)

    def latest(self) -> StreamOffset:
        """The offset behind the latest snapshot."""
        return StreamOffset(latest_snapshot_id(self._table) + 1)

    def end_of_batch(
        self, start: StreamOffset, last: StreamOffset | None, *, limited: bool, waited_ms: int = 0
    ) -> StreamOffset:
        """Where a batch that begins at `start` ends, at `last` or before; `start` itself where
        there is nothing to read. With `limited` the stream's limits hold.

        Raises UnknownNameError if the snapshots at `start` are gone.
        """
        latest = last or self.latest()
        if start.snapshot_id > latest.snapshot_id:
            self._check_not_ahead(start, latest)
            return start
        self._check_there(start)
        if start.full:
            return StreamOffset(start.snapshot_id + 1)
        if not limited or not self.limits.is_limited:
            return latest
        return admitted(start, self._sizes(start, latest), self.limits, waited_ms)

    def reads(self, start: StreamOffset, end: StreamOffset) -> Iterator[DataRead]:
        """Plan the reads of a batch, in their order. Raises UnknownNameError if a snapshot has
        expired, InvalidTableError if a column of the stream is gone or has another type."""
        first = start.snapshot_id
        if start.full and end.snapshot_id > first:
            yield self._read_of_state(self._snapshot(first))
            first += 1
        for snapshot_id in range(first, end.snapshot_id):
            snapshot = self._snapshot(snapshot_id)
            if not self._has_changes(snapshot):
                continue
            changes = SnapshotChanges((snapshot,), self._mode(), snapshot)
            yield self._read(snapshot, changes, ReadRequest(self._kind, options=self._options()))

    def _read_of_state(self, snapshot: Any) -> DataRead:
        """The read of all rows, except those below the levels from which the table's changelog is
        made: a later changelog has them."""
        schema = self._table.schema
        level_min = 0
        options = self._options()
        if schema.producer.looks_up:
            level_min = 1
        elif schema.producer.compacts_fully:
            level_min = PickOptions.of(schema).level_count - 1
        elif schema.deletion_vectors_enabled:
            options["deletion-vectors.merge-on-read"] = "true"
        request = ReadRequest(self._kind, options=options, level_min=level_min)
        return self._read(snapshot, TableState(snapshot), request)

    def _read(
        self, snapshot: Any, target: SnapshotChanges | TableState, request: ReadRequest
    ) -> DataRead:
        if snapshot.schema_id > self._table.schema.schema_id:
            self._table = self._loaded()
        read = plan_data_read(
            self._table,
            request,
            target=target,
            manifests=self._manifests,
            batch_rows=self._batch_rows,
        )
        # A deleted row must not look like an added row.
        read = replace(read, reader=replace(read.reader, added_only=True))
        return read if self._columns is None else self._of_columns(read, self._columns)

    def _of_columns(self, read: DataRead, wanted: pa.Schema) -> DataRead:
        """The read of the columns that the stream began with."""
        shown = shown_schema(read)
        for field in wanted:
            place = shown.get_field_index(field.name)
            if place < 0 or shown.field(place).type != field.type:
                now = "is gone" if place < 0 else f"has the type {shown.field(place).type} now"
                raise InvalidTableError(
                    f"The column `{field.name}` of `{self._name}` {now}; the stream began with "
                    f"{field.type}.",
                    hint="Begin a new stream, with a checkpoint of its own, at the snapshot where "
                    "this one stopped: 'scan.snapshot-id'.",
                )
        if shown.names == wanted.names:
            return read
        own = set(read.reader.columns)
        return read.with_columns([name for name in wanted.names if name in own])

    def _loaded(self) -> Table:
        name = replace(self._name, system_table=None)
        table = self._catalog.load(name)
        branch = dict(self._request.reads).get("branch", "main")
        return table if branch == "main" else self._catalog.load(replace(name, branch=branch))

    def _options(self) -> dict[str, str]:
        return {key: value for key, value in self._request.reads if key != "branch"}

    def _mode(self) -> ScanMode:
        without = self._table.schema.changelog_producer == "none"
        return ScanMode.DELTA if without else ScanMode.CHANGELOG

    def _has_changes(self, snapshot: Any) -> bool:
        kind, changelog = str(snapshot.commit_kind), snapshot.changelog_manifest_list
        if self._mode() is ScanMode.DELTA:
            return kind == "APPEND"
        return kind != "OVERWRITE" and changelog is not None

    def _sizes(self, start: StreamOffset, end: StreamOffset) -> Iterator[SnapshotSize]:
        for snapshot_id in range(start.snapshot_id, end.snapshot_id):
            snapshot = self._snapshot(snapshot_id)
            if not self._has_changes(snapshot):
                yield SnapshotSize(snapshot_id, 0)
                continue
            kind = "delta" if self._mode() is ScanMode.DELTA else "changelog"
            rows = getattr(snapshot, f"{kind}_record_count")
            files = size_bytes = 0
            if self.limits.needs_files:
                name = getattr(snapshot, f"{kind}_manifest_list")
                added = added_files(self._manifests, [name])
                files, size_bytes = added.num_rows, pc.sum(added["file_size"]).as_py() or 0
            yield SnapshotSize(snapshot_id, max(rows or 0, 0), files, size_bytes)

    def _beginning(self) -> StreamOffset:
        consumer = self._request.consumer_id
        if consumer is not None and not self._request.ignores_progress:
            position = position_of(self._table, consumer)
            if position is not None:
                return StreamOffset(position[0], full=position[1])
        latest = latest_snapshot_id(self._table)
        match self._request.start:
            case Next():
                return StreamOffset(latest + 1)
            case AtFull():
                return StreamOffset(latest, full=True) if latest else StreamOffset(1)
            case FromSnapshot(snapshot_id=snapshot_id):
                offset = StreamOffset(snapshot_id)
            case AtSnapshotFull(snapshot_id=snapshot_id):
                offset = StreamOffset(snapshot_id, full=True)
            case FromTime(time=time):
                return StreamOffset(self._first_since(time, latest))
        if offset.snapshot_id > latest + (not offset.full):
            raise UnknownNameError(
                f"`{self._name}` has no snapshot {offset.snapshot_id}; the latest is {latest}.",
                hint=f"SELECT * FROM {table_text(self._name, 'snapshots')} lists the snapshots. "
                "'scan.mode' = 'latest' begins with the next one.",
            )
        self._check_there(offset)
        return offset

    def _first_since(self, time: int | str, latest: int) -> int:
        """The first snapshot at a time or later; the next one if there is none."""
        earliest = earliest_snapshot_id(self._table.paimon, self._table.store)
        if earliest is None:
            return latest + 1
        time_ms = time if isinstance(time, int) else moment_ms(time, self._zone)
        if time_ms <= self._snapshot(earliest).time_millis:
            return earliest
        before = find_target(self._table, AtTimestamp(time_ms - 1), self._zone).target
        assert isinstance(before, TableState)
        return int(before.snapshot.id) + 1

    def _snapshot(self, snapshot_id: int) -> Any:
        snapshot = read_snapshot(self._table.paimon, snapshot_id)
        if snapshot is None:
            raise UnknownNameError(
                f"Snapshot {snapshot_id} of `{self._name}` has expired before the stream read it. "
                "Its changes are gone.",
                hint="Begin a new stream, with a checkpoint of its own. To keep the snapshots that "
                "a stream needs, set 'consumer-id', or 'snapshot.time-retained' for all snapshots.",
            )
        return snapshot

    def _check_there(self, offset: StreamOffset) -> None:
        """Raise UnknownNameError if the stream can't go on at `offset`: it has expired."""
        latest = latest_snapshot_id(self._table)
        if offset.snapshot_id <= latest:
            self._snapshot(offset.snapshot_id)

    def _check_not_ahead(self, start: StreamOffset, latest: StreamOffset) -> None:
        if start.snapshot_id > self.latest().snapshot_id:
            raise UnknownNameError(
                f"The stream has read `{self._name}` up to snapshot {start.snapshot_id - 1}, but "
                f"the latest is {latest.snapshot_id - 1}: the table was rolled back or created "
                "again.",
                hint="Begin a new stream, with a checkpoint of its own.",
            )
