"""Picks the runs of a bucket that are compacted together (Paimon's `UniversalCompaction`).

A pick holds every file of level 0 and never leaves its result there. The greatest level is
written by full compactions only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paimon_magics.planning.options.values import duration_ms, integer_value, memory_size_bytes
from paimon_magics.planning.schemas.table_schema import TableSchema


@dataclass(frozen=True, slots=True)
class Moment:
    """When a pick is made: in milliseconds since 1970 UTC, as the creation times of files, and the
    hour of the day of the writer's wall clock."""

    now_ms: int
    hour: int


@dataclass(frozen=True, slots=True)
class PickOptions:
    """The table options that decide what is picked; each is named as the option is."""

    compaction_trigger: int = 5
    level_count: int = 6
    max_size_amplification_percent: int = 200
    size_ratio: int = 1
    offpeak_hours: tuple[int, int] | None = None
    offpeak_ratio: int = 0
    optimization_interval_ms: float | None = None
    total_size_threshold_bytes: int | None = None
    incremental_size_threshold_bytes: int | None = None
    forces_level_0_up: bool = False
    rewrites_all_files: bool = False

    @classmethod
    def of(cls, schema: TableSchema) -> PickOptions:
        """The options of a table. Raises InvalidTableError for a value that can't be read."""

        def number(key: str) -> int:
            return schema.parsed(f"compaction.{key}", integer_value, 0)

        trigger = schema.parsed("num-sorted-run.compaction-trigger", integer_value, 0)
        hours = (number("offpeak.start.hour"), number("offpeak.end.hour"))
        return cls(
            compaction_trigger=trigger,
            level_count=schema.parsed("num-levels", integer_value, trigger + 1),
            max_size_amplification_percent=number("max-size-amplification-percent"),
            size_ratio=number("size-ratio"),
            offpeak_hours=None if -1 in hours or hours[0] == hours[1] else hours,
            offpeak_ratio=number("offpeak-ratio"),
            optimization_interval_ms=schema.parsed(
                "compaction.optimization-interval", duration_ms, None
            ),
            total_size_threshold_bytes=schema.parsed(
                "compaction.total-size-threshold", memory_size_bytes, None
            ),
            incremental_size_threshold_bytes=schema.parsed(
                "compaction.incremental-size-threshold", memory_size_bytes, None
            ),
            forces_level_0_up=schema.flag("compaction.force-up-level-0") or schema.looks_up,
            rewrites_all_files=schema.flag("compaction.force-rewrite-all-files"),
        )

    @property
    def may_be_early_full(self) -> bool:
        """Whether an option asks for full compactions below the trigger."""
        return not (
            self.optimization_interval_ms is None
            and self.total_size_threshold_bytes is None
            and self.incremental_size_threshold_bytes is None
        )

    def max_level(self, runs: Sequence[SortedRun]) -> int:
        """The greatest level of a bucket: a file may be above what the options allow now."""
        return max([self.level_count - 1, *(run.level for run in runs)])


@dataclass(frozen=True, slots=True)
class Pick:
    """Runs to compact into `output_level`. With `each_file_alone` every file is rewritten by
    itself, and stays on its level (`FileRewriteCompactTask`)."""

    output_level: int
    runs: tuple[SortedRun, ...]
    each_file_alone: bool = False

    @property
    def files(self) -> tuple[BucketFile, ...]:
        """The files of all runs."""
        return tuple(file for run in self.runs for file in run.files)


def pick(runs: Sequence[SortedRun], options: PickOptions, at: Moment) -> Pick | None:
    """The files that a writer compacts after a flush; None if there is nothing to do.

    Source: `UniversalCompaction.pick`, `ForceUpLevel0Compaction.pick` and the filter in
    `MergeTreeCompactManager.triggerCompaction`.
    """
    max_level = options.max_level(runs)
    choice = _early_full(runs, options, max_level, at) or _universal(runs, options, max_level, at)
    if choice is None and options.forces_level_0_up:
        choice = _level_0(runs, options, max_level, at)
    if choice is None or not choice.files:
        return None
    only = choice.files[0] if len(choice.files) == 1 else None
    return None if only is not None and only.level == choice.output_level else choice


def pick_all(runs: Sequence[SortedRun], options: PickOptions) -> Pick | None:
    """The files that a full compaction compacts; None if there is nothing to do.

    If all files are on the greatest level, only files that must lose rows are rewritten. Source:
    `CompactStrategy.pickFullCompaction`.
    """
    max_level = options.max_level(runs)
    if not runs:
        return None
    if len(runs) > 1 or runs[0].level != max_level:
        return Pick(max_level, tuple(runs))
    files = tuple(
        file
        for file in runs[0].files
        if options.rewrites_all_files or file.may_hold_expired_rows or file.has_deletion_vector
    )
    return Pick(max_level, (SortedRun(max_level, files),), each_file_alone=True) if files else None


def _early_full(
    runs: Sequence[SortedRun], options: PickOptions, max_level: int, at: Moment
) -> Pick | None:
    """`EarlyFullCompaction`; the newest file on the greatest level shows the time of the last full
    compaction."""
    if len(runs) == 1:
        return None
    sizes = [(run.level, run.size_bytes) for run in runs]
    since = [f.created_ms for run in runs if run.level == max_level for f in run.files]
    interval = options.optimization_interval_ms
    total, incremental = (
        options.total_size_threshold_bytes,
        options.incremental_size_threshold_bytes,
    )
    due = (
        (interval is not None and (not since or at.now_ms - max(since) > interval))
        or (total is not None and sum(size for _, size in sizes) < total)
        or (
            incremental is not None
            and sum(size for level, size in sizes if level != max_level) > incremental
        )
    )
    return Pick(max_level, tuple(runs)) if due else None


def _universal(
    runs: Sequence[SortedRun], options: PickOptions, max_level: int, at: Moment
) -> Pick | None:
    trigger = options.compaction_trigger
    if len(runs) >= trigger and runs:
        newer = sum(run.size_bytes for run in runs[:-1])
        if newer * 100 > options.max_size_amplification_percent * runs[-1].size_bytes:
            return Pick(max_level, tuple(runs))
        count = _by_size(runs, 1, options, at)
        if count > 1:
            return _of_first(runs, count, max_level)
    if len(runs) > trigger:
        count = _by_size(runs, len(runs) - trigger + 1, options, at)
        if count > 1:
            return _of_first(runs, count, max_level)
    return None


def _level_0(
    runs: Sequence[SortedRun], options: PickOptions, max_level: int, at: Moment
) -> Pick | None:
    """`UniversalCompaction.forcePickL0`. Level 1 goes along: else level 0 would be the output."""
    count = sum(run.level == 0 for run in runs)
    if not count:
        return None
    if count < len(runs) and runs[count].level == 1:
        count += 1
    return _of_first(runs, _by_size(runs, count, options, at), max_level)


def _by_size(runs: Sequence[SortedRun], count: int, options: PickOptions, at: Moment) -> int:
    """How many of the newest runs go together, at least `count`: the next one joins unless it is
    larger than those before it. Source: `UniversalCompaction.pickForSizeRatio`."""
    percent = 100.0 + options.size_ratio + _offpeak_ratio(options, at.hour)
    size = sum(run.size_bytes for run in runs[:count])
    for run in runs[count:]:
        if size * percent / 100.0 < run.size_bytes:
            break
        size += run.size_bytes
        count += 1
    return count


def _offpeak_ratio(options: PickOptions, hour: int) -> int:
    """`OffPeakHours.currentRatio`; the hours may go past midnight."""
    if options.offpeak_hours is None:
        return 0
    start, end = options.offpeak_hours
    within = start <= hour < end if start <= end else hour < end or start <= hour
    return options.offpeak_ratio if within else 0


def _of_first(runs: Sequence[SortedRun], count: int, max_level: int) -> Pick:
    """`UniversalCompaction.createUnit`: the level is the one before the next run's."""
    level = max_level if count == len(runs) else max(0, runs[count].level - 1)
    if level == 0:
        for run in runs[count:]:
            count += 1
            if run.level != 0:
                level = run.level
                break
    return Pick(max_level if count == len(runs) else level, tuple(runs[:count]))


# The files of one bucket of a primary-key table, as sorted runs (Paimon's `Levels`).


@dataclass(frozen=True, slots=True)
class BucketFile:
    """A data file as compaction sees it.

    `least_key` and `greatest_key` are ranks of its keys among those of the bucket's files.
    `deleted_rows` counts the rows with the kinds -U and -D, None if the writer did not record it.
    `has_deletion_vector` is whether some of its rows are marked as deleted; `may_hold_expired_rows`
    whether its statistics allow rows that `record-level.expire-time` removes.
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
    by_key = sorted(files, key=lambda file: file.least_key)
    newest_first = sorted(
        by_key, key=lambda f: (-f.max_sequence_number, f.min_sequence_number, f.created_ms, f.name)
    )
    return runs_of_levels(newest_first, by_key)


def runs_of_levels(fresh: Iterable[BucketFile], others: Iterable[BucketFile]) -> list[SortedRun]:
    """The files of level 0 in `fresh`, each a run, then a run of each other level in `others`."""
    by_level: dict[int, list[BucketFile]] = {}
    for file in others:
        by_level.setdefault(file.level, []).append(file)
    return [SortedRun(0, (file,)) for file in fresh if file.level == 0] + [
        SortedRun(level, tuple(by_level[level])) for level in sorted(by_level) if level
    ]
