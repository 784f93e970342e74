"""The start of a stream of a table, and the size of its batches.

An offset is a snapshot: what comes before it has been read. So the same two offsets always mean the
same rows, which Spark's exactly-once guarantee requires. Rules: `CoreOptions.startupMode`,
`AbstractDataTableScan.createStartingScanner` for streams, `PaimonMicroBatchStream`,
`SparkConnectorOptions`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from paimon_magics.errors import (
    InvalidTableError,
    InvalidValueError,
    UnknownNameError,
    UnsupportedStatementError,
    nearest,
)
from paimon_magics.planning.options.table_options import CORE_OPTIONS, DEPRECATED_KEYS
from paimon_magics.planning.options.values import (
    boolean_value,
    choice_value,
    integer_value,
    memory_size_bytes,
    positive_value,
)
from paimon_magics.planning.reads.views import ViewKind
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.statement import TableName

_SNAPSHOT = "scan.snapshot-id"
_BYTES_MAX = 240
_NAME = re.compile(r"[^/\\\s\x00-\x1f]{1,200}")


STREAM_PURPOSES: Mapping[str, str] = {
    "scan.mode": "where a new stream begins: latest-full (all rows, then changes), latest, …",
    "scan.snapshot-id": "begin with the changes of this snapshot",
    "scan.timestamp-millis": "begin with the changes since this time, in milliseconds since 1970",
    "scan.timestamp": "begin with the changes since this time in the session's time zone",
    "consumer-id": "a name under which the table keeps the stream's progress and snapshots",
    "consumer.ignore-progress": "begin where scan.mode says, even if the consumer exists",
    "consumer.mode": "accepted; both modes are exact here",
    "read.stream.maxSnapshotsPerTrigger": "maximum number of snapshots in a micro-batch",
    "read.stream.maxRowsPerTrigger": "maximum number of rows in a micro-batch",
    "read.stream.maxFilesPerTrigger": "maximum number of data files in a micro-batch",
    "read.stream.maxBytesPerTrigger": "maximum size of data files in a micro-batch, such as 64 mb",
    "read.stream.minRowsPerTrigger": "wait for this number of rows",
    "read.stream.maxTriggerDelayMs": "maximum wait for rows, in milliseconds",
    "branch": "the branch that is read",
    "source.split.target-size": "bytes that one task reads",
    "source.split.open-file-cost": "bytes that opening a file counts as",
}
"""By option, in the order of the documentation."""
STREAM_OPTIONS = tuple(STREAM_PURPOSES)
"""The options of a stream, by Paimon's names and those of its connector for Spark."""
LIMIT_OPTIONS = tuple(key for key in STREAM_OPTIONS if key.startswith("read.stream."))
_START_KEYS = STREAM_OPTIONS[:4]
_SIZE_KEYS = ("source.split.target-size", "source.split.open-file-cost")
_READ_KEYS = ("branch", *_SIZE_KEYS)


@dataclass(frozen=True, slots=True)
class AtFull:
    """All rows of the latest snapshot, then the changes after it (`latest-full`)."""


@dataclass(frozen=True, slots=True)
class Next:
    """The changes of the snapshots after the latest one (`latest`)."""


@dataclass(frozen=True, slots=True)
class FromSnapshot:
    """The changes from a snapshot on, its own included (`from-snapshot`)."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class AtSnapshotFull:
    """All rows of a snapshot, then the changes after it (`from-snapshot-full`)."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class FromTime:
    """The changes from a time on: milliseconds since 1970 UTC, or local time as text
    (`from-timestamp`)."""

    time: int | str


StreamStart = AtFull | Next | FromSnapshot | AtSnapshotFull | FromTime


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """A place between snapshots: all before `snapshot_id` has been read. With `full` all rows of
    the snapshot come next, else its changes. `created_ms` is when the table was created, in
    milliseconds since 1970 UTC, where that is known: another table has other snapshots."""

    snapshot_id: int
    full: bool = False
    created_ms: int | None = field(default=None, compare=False)

    def document(self) -> dict[str, object]:
        """The offset as Spark stores it in a checkpoint."""
        created = {} if self.created_ms is None else {"tableCreatedMs": self.created_ms}
        return {"snapshotId": self.snapshot_id, "scanSnapshot": self.full, **created}

    @classmethod
    def of(cls, document: Mapping[str, object]) -> StreamOffset:
        """The offset of a document. Raises InvalidValueError for another source's."""
        snapshot_id, full = document.get("snapshotId"), document.get("scanSnapshot", False)
        if not isinstance(snapshot_id, int) or not isinstance(full, bool):
            raise InvalidValueError(
                f"The checkpoint has the offset {dict(document)!r}, which is not a Paimon offset.",
                hint="Give the stream a checkpoint of its own.",
            )
        created_ms = document.get("tableCreatedMs")
        return cls(snapshot_id, full, created_ms if isinstance(created_ms, int) else None)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a batch takes: whole snapshots until one of the numbers is reached, at least one.

    A batch of fewer than `rows_min` rows waits, for at most `delay_ms_max` milliseconds.
    """

    snapshots: int | None = None
    rows: int | None = None
    files: int | None = None
    size_bytes: int | None = None
    rows_min: int | None = None
    delay_ms_max: int | None = None

    @property
    def is_limited(self) -> bool:
        """Whether a batch may be smaller than all available changes."""
        return any(
            limit is not None
            for limit in (self.snapshots, self.rows, self.files, self.size_bytes, self.rows_min)
        )

    @property
    def needs_files(self) -> bool:
        """Whether files must be counted, which requires reading manifests."""
        return self.files is not None or self.size_bytes is not None


@dataclass(frozen=True, slots=True)
class SnapshotSize:
    """What a snapshot changes: rows, and files with their bytes."""

    snapshot_id: int
    rows: int
    files: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """The request of a stream's options. `reads` are the options that also apply to each of its
    reads."""

    start: StreamStart
    limits: Limits
    consumer_id: str | None
    ignores_progress: bool
    reads: tuple[tuple[str, str], ...]


_CONSUMER_MODES, _IGNORES = ("exactly-once", "at-least-once"), "consumer.ignore-progress"

# Options that select the target of a batch read, and don't apply to streams.
_OF_BATCHES = (
    "scan.tag-name",
    "scan.version",
    "scan.watermark",
    "incremental-between",
    "incremental-between-timestamp",
    "incremental-to-auto-tag",
    "scan.file-creation-time-millis",
    "scan.creation-time-millis",
)
# Options that would change a stream's behavior, so they must not be ignored.
_NOT_OFFERED = {
    "streaming-read-overwrite": "A stream passes over overwrites: they don't count as changes "
    "here.",
    "scan.bounded.watermark": "Stop the stream yourself, or let its trigger do so.",
    "streaming.read.snapshot.delay": "Use the trigger's interval instead.",
    "read.changelog": "Read the table's $audit_log: its column rowkind has the kinds.",
}
STREAM_MODES = ("default", "latest-full", "full", "latest", "from-snapshot", "from-snapshot-full",
                  "from-timestamp")  # fmt: skip
_NEEDED = {
    "from-snapshot": ("scan.snapshot-id",),
    "from-snapshot-full": ("scan.snapshot-id",),
    "from-timestamp": ("scan.timestamp-millis", "scan.timestamp"),
}


def stream_request(schema: TableSchema, options: Mapping[str, str]) -> StreamRequest:
    """Return what the options of a stream ask for; if they name no start, the start stored with the
    table applies. Keys may be in any case, as Spark passes them.

    Raises UnknownNameError for an unknown option, InvalidValueError for options that contradict
    each other, UnsupportedStatementError for ways to read that don't apply to streams.
    """
    chosen = _known(options)
    if not any(key in chosen for key in (*_START_KEYS, *_OF_BATCHES)):
        stored = {key: schema.stored_option(key) for key in (*_START_KEYS, *_OF_BATCHES)}
        chosen |= {key: value for key, value in stored.items() if value is not None}
    for key, reason in _NOT_OFFERED.items():
        value = chosen.pop(key, schema.stored_option(key))
        if value is not None and value.lower() != "false":
            raise UnsupportedStatementError(
                f"A stream with '{key}' = '{value}' is not offered.", hint=reason
            )
    batch = next((key for key in _OF_BATCHES if key in chosen), None)
    if batch is not None:
        raise UnsupportedStatementError(
            f"A stream can't begin with '{batch}', which is for batch reads.",
            hint="A stream begins with 'scan.snapshot-id', 'scan.timestamp-millis' or "
            "'scan.timestamp', or with 'scan.mode' = 'latest-full' or 'latest'.",
        )
    consumer_id = chosen.get("consumer-id", schema.stored_option("consumer-id"))
    if consumer_id is not None:
        check_consumer_name(consumer_id)
    try:
        choice_value(
            "consumer.mode", chosen.get("consumer.mode", _CONSUMER_MODES[0]), _CONSUMER_MODES
        )
        for key in set(_SIZE_KEYS) & chosen.keys():
            memory_size_bytes(key, chosen[key])
        return StreamRequest(
            _start(chosen),
            _limits(chosen),
            consumer_id,
            boolean_value(_IGNORES, chosen.get(_IGNORES, "false")),
            tuple((key, chosen[key]) for key in _READ_KEYS if key in chosen),
        )
    except InvalidTableError as error:  # it was about a table's option
        raise InvalidValueError(error.message, hint=error.hint) from None


def check_streamable(name: TableName, schema: TableSchema, kind: ViewKind | None) -> None:
    """Raise UnsupportedStatementError for a table whose changes are not known snapshot by snapshot.

    Source: `TableScanUtils.streamingReadingValidate`.
    """
    if kind not in (ViewKind.TABLE, ViewKind.AUDIT_LOG, ViewKind.BINLOG):
        raise UnsupportedStatementError(
            f"`{name}` can't be read as a stream: it has no changes.",
            hint="Read the table, its $audit_log or its $binlog as a stream.",
        )
    merges = schema.is_primary_key_table and not schema.engine.keeps_last_row
    if merges and schema.changelog_producer == "none":
        raise UnsupportedStatementError(
            f"`{name}` can't be read as a stream: it has 'merge-engine' = '{schema.merge_engine}', "
            "and no changelog, so its snapshots contain partial rows.",
            hint="Set 'changelog-producer' = 'lookup' or 'full-compaction' for the table. With "
            "'input' the stream shows the rows as they were written.",
        )


def admitted(
    start: StreamOffset,
    sizes: Iterable[SnapshotSize],
    limits: Limits,
    waited_ms: int,
) -> StreamOffset:
    """Return where a batch ends that begins at `start`, with the snapshots of `sizes` behind it.

    Whole snapshots are taken until a limit is reached, at least one of them. `waited_ms` is how
    long the last batch is past. Takes no more of `sizes` than it needs.
    """
    end, snapshots, rows, files, size_bytes = start, 0, 0, 0, 0
    for size in sizes:
        over = (
            (limits.snapshots, snapshots + 1),
            (limits.rows, rows + size.rows),
            (limits.files, files + size.files),
            (limits.size_bytes, size_bytes + size.size_bytes),
        )
        if snapshots and any(limit is not None and limit < amount for limit, amount in over):
            return end
        end = StreamOffset(size.snapshot_id + 1)
        snapshots, rows = snapshots + 1, rows + size.rows
        files, size_bytes = files + size.files, size_bytes + size.size_bytes
    few = limits.rows_min is not None and rows < limits.rows_min
    if few and limits.delay_ms_max is not None and waited_ms <= limits.delay_ms_max:
        return start
    return end


def _known(options: Mapping[str, str]) -> dict[str, str]:
    """The options under Paimon's present names."""
    names = (*STREAM_OPTIONS, *_OF_BATCHES, *_NOT_OFFERED)
    by_case = {name.lower(): name for name in (*names, *CORE_OPTIONS)}
    known = {}
    for name, value in options.items():
        key = by_case.get(DEPRECATED_KEYS.get(name, name).lower(), name)
        if key in names:
            known[key] = value
        elif key in CORE_OPTIONS:
            raise InvalidValueError(
                f"The option '{key}' belongs to the table: it can't be given for one stream.",
                hint=f"A stream's options are: {', '.join(STREAM_OPTIONS)}.",
            )
        else:
            raise UnknownNameError(
                f"A stream has no option '{name}'.",
                hint=nearest(name, STREAM_OPTIONS, what="options of a stream"),
            )
    return known


def _start(chosen: Mapping[str, str]) -> StreamStart:
    points = [key for key in _START_KEYS[1:] if key in chosen]
    if len(points) > 1:
        raise InvalidValueError(
            f"The options '{points[0]}' and '{points[1]}' contradict each other.",
            hint="Give one of them.",
        )
    mode = chosen.get("scan.mode", "default").lower()
    if mode not in STREAM_MODES:
        raise UnsupportedStatementError(
            f"A stream with 'scan.mode' = '{mode}' is not offered.",
            hint=nearest(mode, STREAM_MODES, what="modes of a stream"),
        )
    needed = _NEEDED.get(mode, ())
    if mode == "default" and points:
        mode = "from-snapshot" if points[0] == _SNAPSHOT else "from-timestamp"
    elif points and points[0] not in needed:
        raise InvalidValueError(
            f"'scan.mode' = '{mode}' and '{points[0]}' contradict each other.",
            hint="Leave out one.",
        )
    elif needed and not points:
        wanted = " or ".join(f"'{key}'" for key in needed)
        raise InvalidValueError(
            f"'scan.mode' = '{mode}' needs an option that says where to start.",
            hint=f"Add {wanted}.",
        )
    match mode:
        case "from-snapshot":
            return FromSnapshot(positive_value(_SNAPSHOT, chosen[_SNAPSHOT]))
        case "from-snapshot-full":
            return AtSnapshotFull(positive_value(_SNAPSHOT, chosen[_SNAPSHOT]))
        case "from-timestamp":
            if points[0] == "scan.timestamp":
                return FromTime(chosen[points[0]])
            return FromTime(integer_value(points[0], chosen[points[0]], bits=64))
        case "latest":
            return Next()
        case _:
            return AtFull()


def _limits(options: Mapping[str, str]) -> Limits:
    def number(name: str, parse: Callable[[str, str], int] = positive_value) -> int | None:
        key = f"read.stream.{name}"
        return parse(key, options[key]) if key in options else None

    rows_min, delay = number("minRowsPerTrigger"), number("maxTriggerDelayMs")
    if (rows_min is None) != (delay is None):
        raise InvalidValueError(
            "'read.stream.minRowsPerTrigger' and 'read.stream.maxTriggerDelayMs' belong together.",
            hint="Give both or neither: the delay is the maximum wait for rows.",
        )
    return Limits(
        number("maxSnapshotsPerTrigger"),
        number("maxRowsPerTrigger"),
        number("maxFilesPerTrigger"),
        number("maxBytesPerTrigger", memory_size_bytes),
        rows_min,
        delay,
    )


# What may name a consumer: it names a file, `consumer/consumer-ID`.


def check_consumer_name(name: str) -> None:
    """Raise InvalidValueError for a name that can't be a consumer's."""
    is_long = len(name.encode(errors="replace")) > _BYTES_MAX
    if is_long or not _NAME.fullmatch(name) or name in (".", ".."):
        raise InvalidValueError(
            f"'{name}' can't name a consumer ('consumer-id').",
            hint="Use letters, digits, dots, dashes and underscores.",
        )
