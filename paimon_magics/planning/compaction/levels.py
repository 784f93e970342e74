"""The files of one bucket of a primary-key table, as sorted runs (Paimon's `Levels`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["BucketFile", "SortedRun", "sorted_runs"]


@dataclass(frozen=True, slots=True)
class BucketFile:
    """A data file as compaction sees it.

    `least_key` and `greatest_key` are ranks of its keys among those of the bucket's files.
    `deleted_rows` counts the rows with the kinds -U and -D, None if the writer did not say.
    `has_deletion_vector` tells whether rows of it are marked as deleted; `may_hold_expired_rows`
    whether its statistics allow rows that `record-level.expire-time` takes away.
    """

    name: str
    level: int
    size_bytes: int
    least_key: int
    greatest_key: int
    min_sequence_number: int = 0
    max_sequence_number: int = 0
    created_ms: int = 0
    deleted_rows: int | None = 0
    has_deletion_vector: bool = False
    may_hold_expired_rows: bool = False


@dataclass(frozen=True, slots=True)
class SortedRun:
    """Files of a level that share no key, in the order of their keys. On level 0 each file is a run
    of its own."""

    level: int
    files: tuple[BucketFile, ...]

    @property
    def size_bytes(self) -> int:
        """The size of all its files."""
        return sum(file.size_bytes for file in self.files)


def sorted_runs(files: Iterable[BucketFile]) -> list[SortedRun]:
    """The runs of a bucket, the newest first: the files of level 0, then level by level.

    Source: `Levels.levelSortedRuns` and the order of its `level0`.
    """
    by_level: dict[int, list[BucketFile]] = {}
    for file in files:
        by_level.setdefault(file.level, []).append(file)
    newest_first = sorted(
        by_level.pop(0, []),
        key=lambda f: (-f.max_sequence_number, f.min_sequence_number, f.created_ms, f.name),
    )
    return [SortedRun(0, (file,)) for file in newest_first] + [
        SortedRun(level, _in_key_order(by_level[level])) for level in sorted(by_level)
    ]


def _in_key_order(files: Sequence[BucketFile]) -> tuple[BucketFile, ...]:
    return tuple(sorted(files, key=lambda file: file.least_key))
