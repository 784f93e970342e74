"""Which task writes which rows, decided before a statement's job is built.

Keyed rows go to whom Paimon's own engines would send them, one task for each bucket. What is open
are rows without buckets: few and large files speak for gathering them, speed for writing them in
the tasks that have them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from paimon_magics.planning.schemas.table_schema import TableSchema

__all__ = [
    "ByAssigner",
    "ByBucket",
    "Distribution",
    "Gathered",
    "InPlace",
    "OneWriter",
    "distribution_of",
]

# What a file of rows that are written where they are must have at least; by Spark's estimate, which
# is of rows in memory.
_IN_PLACE_FILE_BYTES_MIN = 4 * 2**20
_IN_PLACE_FILES_MAX = 64

# Rows are gathered in more tasks than run at once, so that Spark can even them out; each makes a
# block of every task of the query, so not in all that it would take by itself.
_GATHERED_TASKS_PER_SLOT = 16
_GATHERED_TASK_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class OneWriter:
    """One task writes all: a key may live in any partition, and only one that sees all rows can
    tell. More than `rows_max` rows are refused."""

    rows_max: int

    def __str__(self) -> str:
        return (
            "one task writes all rows, because a key can move between partitions; more than "
            f"{self.rows_max:,} rows are refused"
        )


@dataclass(frozen=True, slots=True)
class ByBucket:
    """One task owns each bucket of a partition; `buckets` is None where partitions differ."""

    keys: tuple[str, ...]
    buckets: int | None

    def __str__(self) -> str:
        buckets = "bucket" if self.buckets is None else f"of the {self.buckets} buckets"
        return f"one task owns each {buckets} of a partition, hashed by {', '.join(self.keys)}"


@dataclass(frozen=True, slots=True)
class ByAssigner:
    """Keys meet in the task that assigns their bucket, then rows in the task that owns it."""

    keys: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"rows are gathered by a hash of {', '.join(self.keys)} to be assigned to buckets; one "
            "task owns each bucket of a partition"
        )


@dataclass(frozen=True, slots=True)
class Gathered:
    """Rows of a partition meet in one task, or in several where they are many; of a table without
    partitions, in as many tasks as they fill. `tasks` at most; None where Spark has to choose."""

    keys: tuple[str, ...]
    tasks: int | None = None

    def __str__(self) -> str:
        if not self.keys:
            return "few rows are gathered into few files"
        return f"rows are gathered by {', '.join(self.keys)}"


@dataclass(frozen=True, slots=True)
class InPlace:
    """The tasks that have the rows write them, `writers` at most. A task that meets more than
    `partitions_max` partitions gives up, and all is `Gathered` instead."""

    writers: int
    partitions_max: int | None

    def __str__(self) -> str:
        return f"the tasks of the query write their rows themselves, {self.writers} at most"


Distribution = OneWriter | ByBucket | ByAssigner | Gathered | InPlace


def distribution_of(
    schema: TableSchema,
    *,
    slots: int,
    single_writer_rows_max: int,
    partitions_max: int | None,
    estimated_bytes: float | None,
) -> Distribution:
    """How rows for a table are distributed when `slots` tasks can run at once.

    `partitions_max` is how many partitions the rows may be for, and `estimated_bytes` what they
    take in memory; each None where it is not known.
    """
    match schema.bucket_mode:
        case "KEY_DYNAMIC":
            return OneWriter(single_writer_rows_max)
        case "HASH_FIXED":
            return ByBucket(schema.bucket_keys, schema.bucket)
        case "POSTPONE_MODE":
            return ByBucket(schema.bucket_keys, None)
        case "HASH_DYNAMIC":
            return ByAssigner(schema.trimmed_primary_keys)
    if not schema.is_partitioned:
        # Few rows in as many files as there are cores would be small files.
        if estimated_bytes is None or estimated_bytes >= slots * _IN_PLACE_FILE_BYTES_MIN:
            return InPlace(slots, None)
        return Gathered((), max(1, math.ceil(estimated_bytes / _IN_PLACE_FILE_BYTES_MIN)))
    if estimated_bytes is None:
        return Gathered(schema.partition_keys)
    files = (partitions_max or _IN_PLACE_FILES_MAX + 1) * slots
    if files <= _IN_PLACE_FILES_MAX and estimated_bytes >= files * _IN_PLACE_FILE_BYTES_MIN:
        return InPlace(slots, partitions_max)
    tasks = max(slots * _GATHERED_TASKS_PER_SLOT, math.ceil(estimated_bytes / _GATHERED_TASK_BYTES))
    return Gathered(schema.partition_keys, tasks)
