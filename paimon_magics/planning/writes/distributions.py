"""Decides which task writes which rows, before a statement's job is built.

Rows with buckets go to one task for each bucket, as in Paimon's own engines. For rows without
buckets there is a choice: gathering them makes few large files, writing them in the tasks that have
them is faster.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from paimon_magics.planning.schemas.table_schema import TableSchema

BUCKET_COLUMN = "__paimon_magics_bucket"
"""The column in which rows bring their buckets with them."""

IN_PLACE_FILE_BYTES_MIN = 4 * 2**20
"""The least size of a file that is written without a shuffle, by Spark's estimate of rows in
memory."""
_IN_PLACE_FILES_MAX = 64

# Rows are gathered in more tasks than run at once, so that Spark can balance them, but in fewer
# than Spark would choose, because each task fetches a block from every task of the query.
_GATHERED_TASKS_PER_SLOT = 16
_GATHERED_TASK_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class OneWriter:
    """One task writes all rows: a key may be in any partition, so only a task that sees all rows
    can find its old row. More than `rows_max` rows are refused."""

    rows_max: int

    def __str__(self) -> str:
        return (
            "one task writes all rows, because a key can move between partitions; more than "
            f"{self.rows_max:,} rows are refused"
        )


@dataclass(frozen=True, slots=True)
class ByBucket:
    """One task owns each bucket of a partition; `buckets` is None if their number varies."""

    keys: tuple[str, ...]
    buckets: int | None

    def __str__(self) -> str:
        buckets = "bucket" if self.buckets is None else f"of the {self.buckets} buckets"
        return f"one task owns each {buckets} of a partition, hashed by {', '.join(self.keys)}"


@dataclass(frozen=True, slots=True)
class ByGivenBucket:
    """One task owns each bucket of a partition; the rows bring their buckets in BUCKET_COLUMN."""

    def __str__(self) -> str:
        return "one task owns each bucket of a partition, and a row goes to the bucket of its key"


@dataclass(frozen=True, slots=True)
class ByAssigner:
    """Rows go first to the task that assigns buckets to their keys, then to the bucket's owner."""

    keys: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"rows are gathered by a hash of {', '.join(self.keys)} to be assigned to buckets; one "
            "task owns each bucket of a partition"
        )


@dataclass(frozen=True, slots=True)
class Gathered:
    """Rows of a partition are gathered in one task, or in several if they are many.

    Rows of a table without partitions are gathered in as many tasks as they fill. `tasks` is the
    largest number of tasks; None lets Spark choose.
    """

    keys: tuple[str, ...]
    tasks: int | None = None

    def __str__(self) -> str:
        if not self.keys:
            return "few rows are gathered into few files"
        return f"rows are gathered by {', '.join(self.keys)}"


@dataclass(frozen=True, slots=True)
class InPlace:
    """The tasks of the query write their own rows, in at most `writers` tasks. If a task meets more
    than `partitions_max` partitions it gives up, and the rows are `Gathered` instead."""

    writers: int
    partitions_max: int | None

    def __str__(self) -> str:
        if self.writers == 1:
            return "one task computes the rows and writes them"
        return f"the tasks of the query write their rows themselves, {self.writers} at most"


@dataclass(frozen=True, slots=True)
class OwnBuckets:
    """Each task writes the rows that it reads, since no two read rows of one bucket of a partition.
    If two tasks have written the same bucket after all, the rows are written again by the
    `otherwise` distribution."""

    otherwise: ByBucket

    def __str__(self) -> str:
        return "each task writes the rows that it reads: no two tasks read rows of one bucket"


Distribution = OneWriter | ByBucket | ByGivenBucket | ByAssigner | Gathered | InPlace | OwnBuckets


def distribution_of(
    schema: TableSchema,
    *,
    slots: int,
    single_writer_rows_max: int,
    partitions_max: int | None,
    estimated_bytes: float | None,
    tells_work: bool = False,
) -> Distribution:
    """Return how rows for a table are distributed when `slots` tasks can run at once.

    `partitions_max` is the most partitions that the rows may have if they are written without a
    shuffle, `estimated_bytes` their size in memory; each None if unknown. `tells_work` is whether
    this size also indicates the work to compute the rows.
    """
    match schema.bucket_mode:
        case "KEY_DYNAMIC":
            return OneWriter(single_writer_rows_max)
        case "HASH_FIXED":
            return ByBucket(schema.bucket_keys, schema.bucket)
        case "POSTPONE_MODE" if not schema.postpones_buckets:
            return ByBucket(schema.bucket_keys, None)
        case "HASH_DYNAMIC":
            return ByAssigner(schema.trimmed_primary_keys)
    if (
        tells_work
        and estimated_bytes is not None
        and estimated_bytes <= IN_PLACE_FILE_BYTES_MIN
        and (partitions_max or 0) <= _IN_PLACE_FILES_MAX
    ):
        # One task computes and writes so few rows sooner than a shuffle is begun.
        return InPlace(1, _IN_PLACE_FILES_MAX if schema.is_partitioned else None)
    if not schema.is_partitioned:
        # Few rows written by all slots would make small files.
        if estimated_bytes is None or estimated_bytes >= slots * IN_PLACE_FILE_BYTES_MIN:
            return InPlace(slots, None)
        return Gathered((), max(1, math.ceil(estimated_bytes / IN_PLACE_FILE_BYTES_MIN)))
    if estimated_bytes is None:
        return Gathered(schema.partition_keys)
    files = (partitions_max or _IN_PLACE_FILES_MAX + 1) * slots
    if files <= _IN_PLACE_FILES_MAX and estimated_bytes >= files * IN_PLACE_FILE_BYTES_MIN:
        return InPlace(slots, partitions_max)
    tasks = max(slots * _GATHERED_TASKS_PER_SLOT, math.ceil(estimated_bytes / _GATHERED_TASK_BYTES))
    return Gathered(schema.partition_keys, tasks)
