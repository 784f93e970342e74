"""The state or changes of a table that a read requests, from Paimon's read options.

A `ReadPoint` holds the request of the options; `tables.snapshots.time_travel` finds its snapshots.
The rules are those of Paimon's `CoreOptions.startupMode` and, for batch reads,
`AbstractDataTableScan.createStartingScanner`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from paimon_magics.errors import (
    InvalidValueError,
    UnknownNameError,
    UnsupportedStatementError,
    nearest,
)
from paimon_magics.planning.options.table_options import (
    CORE_OPTIONS,
    DEPRECATED_KEYS,
    HONOURED,
    IDLE,
)
from paimon_magics.planning.options.values import boolean_value, choice_value, integer_value
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.clauses.names import table_text, text_literal
from paimon_magics.statements.statement import TableName


class ScanMode(Enum):
    """`incremental-between-scan-mode`: which files of the snapshots in between count as changes."""

    AUTO = "auto"
    DELTA = "delta"
    CHANGELOG = "changelog"
    DIFF = "diff"


@dataclass(frozen=True, slots=True)
class Latest:
    """The latest snapshot."""


@dataclass(frozen=True, slots=True)
class AtSnapshot:
    """The state of one snapshot."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class AtTag:
    """The state that a tag keeps."""

    name: str


@dataclass(frozen=True, slots=True)
class AtVersion:
    """A tag of that name, else `watermark-…`, else a snapshot's number."""

    version: str


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """The last snapshot at or before a time: milliseconds since 1970 UTC, or local time as text."""

    time: int | str


@dataclass(frozen=True, slots=True)
class AtWatermark:
    """The first snapshot with this watermark or a greater one."""

    watermark: int


@dataclass(frozen=True, slots=True)
class CreatedAfter:
    """The files of the latest snapshot that were created after a time."""

    time_ms: int


@dataclass(frozen=True, slots=True)
class CreatedFrom:
    """The first snapshot at or after a time; if there is none, as `CreatedAfter`."""

    time_ms: int


@dataclass(frozen=True, slots=True)
class Between:
    """The changes after `start` up to `end`: two tags or two snapshots.

    `tags_are_snapshots` is the option `incremental-between-tag-to-snapshot`.
    """

    start: str
    end: str
    mode: ScanMode
    tags_are_snapshots: bool = False


@dataclass(frozen=True, slots=True)
class BetweenTimestamps:
    """The changes after one time up to another: milliseconds since 1970, or local time as text."""

    start: int | str
    end: int | str
    mode: ScanMode


@dataclass(frozen=True, slots=True)
class Committed:
    """The changes of the snapshots from `start` to `end`, which are tags or numbers of snapshots,
    or, `by_time`, microseconds since 1970. Without an `end` they go on to the latest snapshot."""

    start: str
    end: str | None
    with_start: bool
    with_end: bool
    by_time: bool
    mode: ScanMode


@dataclass(frozen=True, slots=True)
class ToAutoTag:
    """The changes up to an automatic tag, from the automatic tag before it."""

    tag: str


ReadPoint = (
    Latest
    | AtSnapshot
    | AtTag
    | AtVersion
    | AtTimestamp
    | AtWatermark
    | CreatedAfter
    | CreatedFrom
    | Between
    | BetweenTimestamps
    | Committed
    | ToAutoTag
)

# The options that choose a read point, in the order in which Paimon looks at them.
_POINT_KEYS = (
    "scan.timestamp-millis",
    "scan.timestamp",
    "scan.snapshot-id",
    "scan.tag-name",
    "scan.version",
    "scan.watermark",
    "scan.file-creation-time-millis",
    "scan.creation-time-millis",
    "incremental-between",
    "incremental-between-timestamp",
    "incremental-to-auto-tag",
)
_HOW_KEYS = (
    "incremental-between-scan-mode",
    "incremental-between-tag-to-snapshot",
    "scan.mode",
)
POINT_OPTIONS = (*_POINT_KEYS, *_HOW_KEYS)
"""The options that choose a read point, of one read or stored with the table."""
READ_OPTIONS = (
    *POINT_OPTIONS,
    "branch",
    "batch-scan-mode",
    "deletion-vectors.merge-on-read",
    "source.split.target-size",
    "source.split.open-file-cost",
)
_REFUSED = tuple(
    option for option in CORE_OPTIONS.values() if option.in_reads not in (HONOURED, IDLE)
)
_NOT_SET = ("", "main", "false")
_MODES_WITHOUT_POINT = ("default", "latest-full", "full", "latest")
_KEY_OF_MODE = {
    "from-timestamp": ("scan.timestamp-millis", "scan.timestamp"),
    "from-snapshot": ("scan.snapshot-id", "scan.tag-name", "scan.watermark", "scan.version"),
    "from-snapshot-full": ("scan.snapshot-id",),
    "from-file-creation-time": ("scan.file-creation-time-millis",),
    "from-creation-timestamp": ("scan.creation-time-millis",),
    "incremental": (
        "incremental-between",
        "incremental-between-timestamp",
        "incremental-to-auto-tag",
    ),
}


def check_readable(name: TableName, schema: TableSchema) -> None:
    """Raise UnsupportedStatementError for a table with an option that its reads can't honor."""
    for option in _REFUSED:
        value = schema.stored_option(option.key)
        if value is None or value.strip().lower() in _NOT_SET:
            continue
        if option.key != "branch" or value != name.branch:
            table = table_text(name)
            raise UnsupportedStatementError(
                f"{table} can't be read here: its option '{option.key}' = '{value}' is not "
                f"honored, and {option.in_reads}.",
                hint=f"Read it with Flink or Spark, or remove the option: ALTER TABLE {table} "
                f"UNSET TBLPROPERTIES ({text_literal(option.key)}).",
            )


def read_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of one read under Paimon's current names.

    Raises UnknownNameError for an option that Paimon does not have, InvalidValueError for an
    option that can only be set for the table.
    """
    chosen = {DEPRECATED_KEYS.get(key, key): value for key, value in options.items()}
    for key in chosen:
        if key in READ_OPTIONS:
            continue
        if key in CORE_OPTIONS:
            raise InvalidValueError(
                f"The option '{key}' belongs to the table: it can't be given for one read.",
                hint=f"Read options are: {', '.join(READ_OPTIONS)}.",
            )
        raise UnknownNameError(
            f"There is no read option '{key}'.",
            hint=nearest(key, READ_OPTIONS, what="read options"),
        )
    return chosen


def point_of_read(schema: TableSchema, options: Mapping[str, str]) -> ReadPoint:
    """Return the read point of one read of a table, by the read's options, else by the options
    stored with the table.

    Paimon refuses a read option that chooses a read point if the table stores another read point;
    here the read option wins. Raises what `read_options` and `_read_point` raise.
    """
    chosen = read_options(options)
    if any(key in chosen for key in (*_POINT_KEYS, "scan.mode")):
        return _read_point(chosen)
    stored = {key: schema.stored_option(key) for key in POINT_OPTIONS}
    return _read_point({key: value for key, value in stored.items() if value is not None} | chosen)


def _read_point(options: Mapping[str, str]) -> ReadPoint:
    """Return the read point that the options of one read ask for.

    Other options are ignored. Raises InvalidValueError for options that contradict each other,
    and for a value that can't be read.
    """
    keys = [key for key in _POINT_KEYS if key in options]
    if len(keys) > 1:
        raise InvalidValueError(
            f"The read options {_listed(keys)} contradict each other.", hint="Give one of them."
        )
    _check_mode(options.get("scan.mode"), keys[0] if keys else None)
    return _POINTS[keys[0]](options[keys[0]], options) if keys else Latest()


def _check_mode(mode: str | None, key: str | None) -> None:
    if mode is None:
        return
    mode = mode.lower()
    allowed = _KEY_OF_MODE.get(mode)
    if allowed is None and mode not in _MODES_WITHOUT_POINT:
        raise InvalidValueError(
            f"The read option 'scan.mode' = '{mode}' is not offered for a batch read.",
            hint=f"The modes offered are {', '.join((*_MODES_WITHOUT_POINT, *_KEY_OF_MODE))}.",
        )
    if key is None and allowed is not None:
        raise InvalidValueError(
            f"'scan.mode' = '{mode}' needs an option that says where to start.",
            hint=f"Add {_listed(allowed)}.",
        )
    if key is not None and (allowed is None or key not in allowed):
        raise InvalidValueError(
            f"'scan.mode' = '{mode}' and '{key}' contradict each other.", hint="Leave out one."
        )


def _between(text: str, options: Mapping[str, str]) -> ReadPoint:
    start, end = _pair("incremental-between", text, "'2,5' or 'one-tag,another'")
    tags = "incremental-between-tag-to-snapshot"
    return Between(start, end, _mode(options), boolean_value(tags, options.get(tags, "false")))


def _between_timestamps(text: str, options: Mapping[str, str]) -> ReadPoint:
    example = "'2026-01-31 00:00:00,2026-02-01 00:00:00', or milliseconds since 1970"
    start, end = _pair("incremental-between-timestamp", text, example)
    times = [int(time) if time.isdigit() else time for time in (start, end)]
    return BetweenTimestamps(times[0], times[1], _mode(options))


def _pair(key: str, text: str, example: str) -> tuple[str, str]:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or not all(parts):
        raise InvalidValueError(
            f"The read option '{key}' = '{text}' must have a start (exclusive) and an end.",
            hint=f"For example {example}.",
        )
    return parts[0], parts[1]


def _mode(options: Mapping[str, str]) -> ScanMode:
    key = "incremental-between-scan-mode"
    text = options.get(key, ScanMode.AUTO.value)
    return ScanMode(choice_value(key, text, CORE_OPTIONS[key].choices))


def _number(key: str, text: str) -> int:
    return integer_value(key, text, bits=64)


_POINTS: dict[str, Callable[[str, Mapping[str, str]], ReadPoint]] = {
    "scan.timestamp-millis": lambda text, _: AtTimestamp(_number("scan.timestamp-millis", text)),
    "scan.timestamp": lambda text, _: AtTimestamp(text),
    "scan.snapshot-id": lambda text, _: AtSnapshot(_number("scan.snapshot-id", text)),
    "scan.tag-name": lambda text, _: AtTag(text),
    "scan.version": lambda text, _: AtVersion(text),
    "scan.watermark": lambda text, _: AtWatermark(_number("scan.watermark", text)),
    "scan.file-creation-time-millis": lambda text, _: CreatedAfter(
        _number("scan.file-creation-time-millis", text)
    ),
    "scan.creation-time-millis": lambda text, _: CreatedFrom(
        _number("scan.creation-time-millis", text)
    ),
    "incremental-between": _between,
    "incremental-between-timestamp": _between_timestamps,
    "incremental-to-auto-tag": lambda text, _: ToAutoTag(text),
}


def _listed(keys: tuple[str, ...] | list[str]) -> str:
    return ", ".join(f"'{key}'" for key in keys)
