"""Decides which of a coordinator's tables is compacted next. Values and decisions only; the time is
an argument.

A table is assessed some time after enough commits. The work found is done in portions, the smallest
first. Portions that wait long count as smaller, so none waits forever. After a failure a table is
left alone for a while, twice as long each time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum

from paimon_magics.planning.options.values import integer_value
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.statement import TableName

_AGEING_MS = 60_000  # a wait of this long halves what the work seems to cost
_AGEING_MAX = 40
_RETRY_MS = 30_000
_RETRY_MS_MAX = 3_600_000


INLINE_BYTES_MAX = 2 << 30
"""What a statement rewrites after its rows, at most; a larger compaction is left to others."""


class State(StrEnum):
    """The state of a table: nothing to do, assessed soon, waiting for its turn, being compacted,
    left to others, or left alone after a failure."""

    TIDY = "tidy"
    DUE = "due"
    WAITING = "waiting"
    RUNNING = "running"
    LEFT = "left"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Pressure:
    """The number of commits after which a table is assessed, 0 for never. With `counts_inline` a
    compaction by others resets the count of commits before it."""

    commits: int
    counts_inline: bool = False

    @classmethod
    def of(cls, schema: TableSchema, *, by_default: bool) -> Pressure:
        """That of a table. Its option `auto_compact` decides; else `by_default`, except for tables
        with `write-only`, which another job compacts.

        Raises InvalidTableError for an option's value that can't be read.
        """
        text = schema.stored_option("auto_compact")
        by_default = by_default and not schema.write_only
        if not (by_default if text is None else schema.flag("auto_compact")):
            return cls(0)
        if schema.looks_up:  # each flush waits for a compaction, before its rows show
            return cls(1, counts_inline=True)
        key = (
            "num-sorted-run.compaction-trigger"
            if schema.is_primary_key_table
            else "compaction.min.file-num"
        )
        return cls(max(int(schema.option(key) or "5"), 1))


@dataclass(frozen=True, slots=True)
class Seen:
    """The result of assessing a table: buckets above their triggers and the bytes to read for them,
    the same for buckets that are too `large`, and why the table is `left` to others. `fullest` is
    an upper bound on the commits that have filled the fullest bucket since it was compacted."""

    buckets: int = 0
    read_bytes: int = 0
    large_buckets: int = 0
    large_bytes: int = 0
    left: str = ""
    fullest: int = 0


@dataclass(slots=True)
class Watched:
    """A table that the schedule knows. `due_ms` is the time of the next assessment or retry,
    `since_ms` is the time since which work waits."""

    table: TableName
    commits: int = 0
    due_ms: int | None = None
    since_ms: int | None = None
    seen: Seen = field(default_factory=Seen)
    is_running: bool = False
    failures: int = 0
    problem: str = ""

    @property
    def state(self) -> State:
        """The state of the table."""
        if self.is_running:
            return State.RUNNING
        if self.problem:
            return State.FAILED
        if self.seen.left:
            return State.LEFT
        if self.seen.buckets:
            return State.WAITING
        return State.TIDY if self.due_ms is None else State.DUE


@dataclass(frozen=True, slots=True)
class Assess:
    """Assess a table: find the buckets above their triggers."""

    key: str


@dataclass(frozen=True, slots=True)
class Work:
    """Compact a portion of a table."""

    key: str


Next = Assess | Work


class Schedule:
    """The tables by their keys, and which of them is next. `settle_ms` is the delay between a
    commit and the assessment of its table, so that quick successive commits are assessed together.
    The delay is a tenth of that if rows wait for the compaction."""

    def __init__(self, settle_ms: int) -> None:
        self._settle_ms = settle_ms
        self.tables: dict[str, Watched] = {}

    def committed(
        self, key: str, table: TableName, pressure: Pressure, now_ms: int, *, compacts: bool = False
    ) -> None:
        """Note a commit of others to a table; one that only `compacts` adds nothing."""
        watched = self.tables.setdefault(key, Watched(table))
        watched.table = table
        if not pressure.commits:
            del self.tables[key]
            return
        if compacts:
            watched.commits = 0 if pressure.counts_inline else watched.commits
            return
        watched.commits += 1
        if watched.commits >= pressure.commits and watched.due_ms is None:
            settle_ms = self._settle_ms // 10 if pressure.counts_inline else self._settle_ms
            watched.due_ms = now_ms + settle_ms

    def dropped(self, key: str) -> None:
        """Forget a table that is gone."""
        self.tables.pop(key, None)

    def next(self, now_ms: int) -> Next | None:
        """The next task, which then counts as running; None if nothing is due."""
        idle = {key: table for key, table in self.tables.items() if not table.is_running}
        due = [
            key
            for key, table in idle.items()
            if table.due_ms is not None and table.due_ms <= now_ms
        ]
        if due:
            key = min(due, key=lambda key: idle[key].due_ms or 0)
            idle[key].due_ms = None
            idle[key].commits = 0
            idle[key].is_running = True
            return Assess(key)
        waiting = [key for key, table in idle.items() if table.state is State.WAITING]
        if not waiting:
            return None
        key = min(waiting, key=lambda key: _cost(idle[key], now_ms))
        idle[key].is_running = True
        return Work(key)

    def wait_ms(self, now_ms: int) -> int | None:
        """The time until the next task is due; None if there is none."""
        times = [
            table.due_ms
            for table in self.tables.values()
            if table.due_ms is not None and not table.is_running
        ]
        return None if not times else max(min(times) - now_ms, 0)

    def seen(self, key: str, seen: Seen, now_ms: int) -> None:
        """Record the remaining work after an assessment, or after the work on a portion."""
        watched = self.tables.get(key)
        if watched is None:
            return
        watched.is_running = False
        watched.failures = 0
        watched.problem = ""
        watched.seen = seen
        # A bucket just below its trigger is above it after the next commit.
        watched.commits = max(watched.commits, seen.fullest)
        if not seen.buckets:
            watched.since_ms = None
        elif watched.since_ms is None:
            watched.since_ms = now_ms

    def failed(self, key: str, problem: str, now_ms: int) -> None:
        """Record that an assessment or the work on a table failed; the table is assessed again
        later."""
        watched = self.tables.get(key)
        if watched is None:
            return
        watched.is_running = False
        watched.problem = problem
        watched.due_ms = now_ms + min(_RETRY_MS << min(watched.failures, 20), _RETRY_MS_MAX)
        watched.failures += 1

    @property
    def has_work(self) -> bool:
        """Whether something is to be done, now or soon; failed work does not count."""
        return any(
            table.state in (State.DUE, State.WAITING, State.RUNNING)
            for table in self.tables.values()
        )


def _cost(watched: Watched, now_ms: int) -> float:
    waited_ms = now_ms - (watched.since_ms if watched.since_ms is not None else now_ms)
    halvings = min(waited_ms / _AGEING_MS, _AGEING_MAX)
    return (watched.seen.read_bytes + 1) / math.pow(2, halvings)


# Whether and how a writer compacts the buckets that it has written.
#
# Source: `AbstractFileStoreWrite`, `KeyValueFileStoreWrite.createCompactManager`,
# `AppendFixedBucketFileStoreWrite`, `AppendFileStoreWrite`,
# `DataWrite.preCommit` of Paimon's Spark connector.


def compacts_inline(schema: TableSchema) -> bool:
    """Whether writers compact: not with `write-only`, nor rows of postponed buckets, nor of append
    tables without buckets."""
    if schema.write_only or schema.bucket_mode in ("POSTPONE_MODE", "BUCKET_UNAWARE"):
        return False
    return not_compacted(schema) is None


def is_full(schema: TableSchema) -> bool:
    """Whether writers compact all files of the buckets that they have written."""
    return schema.parsed("full-compaction.delta-commits", integer_value, 0) > 0


def not_compacted(schema: TableSchema) -> str | None:
    """The feature of a table for which it is not compacted here, as text; None for a table that
    is."""
    if not schema.is_primary_key_table:
        return None
    if schema.flag("chain-table.enabled"):
        return "'chain-table.enabled' = 'true'"
    if schema.flag("pk-clustering-override"):
        return "'pk-clustering-override' = 'true'"
    return None


# Whether keys of a table can be moved to other buckets by new files alone.
#
# They can if a deletion removes any earlier row, for readers and compactions alike, and if
# compactions produce no changelog. Such a changelog would record the deletion in another bucket
# than the re-added row, and so in any order.


def obstacle_to_moves(schema: TableSchema) -> str | None:
    """The option that keeps keys from being moved, None if they can be."""
    if not schema.engine.keeps_last_row:
        return f"'merge-engine' = '{schema.merge_engine}'"
    if schema.producer.of_compactions:
        return f"'changelog-producer' = '{schema.changelog_producer}'"
    for key in (
        "ignore-delete",
        "deletion-vectors.enabled",
        "force-lookup",
        "sequence.snapshot-ordering",
        "pk-clustering-override",
    ):
        if schema.flag(key):
            return f"'{key}' = 'true'"
    return None
