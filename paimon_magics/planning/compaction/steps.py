"""The steps for the files of a pick: some files are merged, others only change their level.

Source: `MergeTreeCompactTask`, `FileRewriteCompactTask`, `MergeTreeCompactManager`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from paimon_magics.planning.compaction.keyed_tables import BucketFile, Pick, SortedRun
from paimon_magics.planning.options.changelog_producers import ChangelogProducer
from paimon_magics.planning.reads.splits import KeyRange, sections
from paimon_magics.planning.schemas.table_schema import TableSchema

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Upgrade:
    """A file that moves to another level unchanged. With `is_read` its rows are read anyway:
    for a changelog, or for the rows that they replace (see `with_lookups`)."""

    file: BucketFile
    is_read: bool = False


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Sections that are merged, in the order of their keys, into files of their own. A section is
    sorted runs of files whose keys may overlap; sections share no key. `drops_deletes` is that of
    the pick where it is None."""

    sections: tuple[tuple[tuple[BucketFile, ...], ...], ...]
    drops_deletes: bool | None = None

    @property
    def files(self) -> tuple[BucketFile, ...]:
        """The files of all sections."""
        return tuple(file for section in self.sections for run in section for file in run)


@dataclass(frozen=True, slots=True)
class RewriteRules:
    """When a file that overlaps no other is rewritten anyway: below `min_size_bytes`
    (`target-file-size` x `compaction.small-file-ratio`) with its neighbors, and always with
    `compaction.force-rewrite-all-files`."""

    max_level: int
    min_size_bytes: int
    rewrites_all_files: bool = False


def drops_deletes(
    pick: Pick, runs: Sequence[SortedRun], *, has_deletion_vectors: bool, is_chain_table: bool
) -> bool:
    """Whether rows with the kinds -U and -D may go: nothing older is left that they would hide.
    `runs` are all runs of the bucket."""
    if is_chain_table or pick.output_level == 0:
        return False
    highest = max(run.level for run in runs)
    return pick.output_level >= highest or has_deletion_vectors


def steps_of(pick: Pick, rules: RewriteRules) -> list[Rewrite | Upgrade]:
    """The steps of a pick, in the order of their keys.

    Small files that overlap no other are rewritten together with their neighbors, as long as these
    are contiguous; a larger one is upgraded, and so is a small one without neighbors.
    """
    if pick.each_file_alone:
        return [Rewrite((((file,),),)) for file in pick.files]
    files = pick.files
    ranges = [KeyRange(i, file.least_key, file.greatest_key) for i, file in enumerate(files)]
    steps: list[Rewrite | Upgrade] = []
    together: list[tuple[tuple[BucketFile, ...], ...]] = []
    for numbers in sections(ranges):
        section = tuple(tuple(files[number] for number in run) for run in numbers)
        if len(section) > 1:
            together.append(section)
            continue
        for file in section[0]:
            if file.size_bytes < rules.min_size_bytes:
                together.append(((file,),))
            else:
                steps += _merged(together, pick, rules)
                together = []
                steps += _upgraded(file, pick, rules)
    return steps + _merged(together, pick, rules)


def _merged(
    together: Sequence[tuple[tuple[BucketFile, ...], ...]], pick: Pick, rules: RewriteRules
) -> list[Rewrite | Upgrade]:
    if len(together) == 1 and len(together[0]) == 1:
        return [step for file in together[0][0] for step in _upgraded(file, pick, rules)]
    return [Rewrite(tuple(together))] if together else []


def _upgraded(file: BucketFile, pick: Pick, rules: RewriteRules) -> list[Rewrite | Upgrade]:
    may_delete = file.deleted_rows is None or file.deleted_rows > 0
    if (
        (pick.output_level == rules.max_level and may_delete)
        or rules.rewrites_all_files
        or file.may_hold_expired_rows
    ):
        return [Rewrite((((file,),),))]
    return [] if file.level == pick.output_level else [Upgrade(file)]


# Divides work among tasks so that each has about as much to read.


def balanced(
    items: Iterable[_T], size_bytes: Callable[[_T], int], count: int
) -> tuple[tuple[_T, ...], ...]:
    """The items in at most `count` groups of about one size, the largest group first. Each item,
    the largest first, goes to the group with least so far."""
    ordered = sorted(items, key=size_bytes, reverse=True)
    groups: list[list[_T]] = [[] for _ in range(min(count, len(ordered)))]
    sizes = [(0, number) for number in range(len(groups))]
    for item in ordered:
        size, number = heapq.heappop(sizes)
        groups[number].append(item)
        heapq.heappush(sizes, (size + max(size_bytes(item), 1), number))
    order = sorted(sizes, key=lambda sized: (-sized[0], sized[1]))
    return tuple(tuple(groups[number]) for _, number in order)


# Decides which steps of a compaction look up earlier merge results, and which produce a changelog.
#
# Source: `LookupMergeTreeCompactRewriter`, `FullChangelogMergeTreeCompactRewriter`,
# `ChangelogMergeTreeRewriter`, `LookupStrategy`.


@dataclass(frozen=True, slots=True)
class LookupRules:
    """The lookups and changelogs of a table's compactions, by its options.

    `formats` are the file formats of the levels from 0 on. Full compactions write `max_level`, or
    a level above it that a file had before. `sees_all` tells whether the merged rows of level 0 are
    what they would be with the rows above: deduplicate without sequence fields.
    """

    looks_up: bool
    producer: ChangelogProducer
    has_deletion_vectors: bool
    sees_all: bool
    formats: tuple[str, ...]
    max_level: int

    @classmethod
    def of(cls, schema: TableSchema, formats: Sequence[str], max_level: int) -> LookupRules:
        """The rules of a table whose levels have these file formats."""
        return cls(
            looks_up=schema.looks_up and not schema.producer.compacts_fully,
            producer=schema.producer,
            has_deletion_vectors=schema.deletion_vectors_enabled,
            sees_all=schema.engine.keeps_last_row and not schema.sequence_fields,
            formats=tuple(formats),
            max_level=max_level,
        )

    def looks_up_in(self, files: Sequence[BucketFile], output_level: int) -> bool:
        """Whether rewriting these files looks up rows above the output level."""
        return self.looks_up and output_level > 0 and any(file.level == 0 for file in files)

    def tells_changes_of(self, files: Sequence[BucketFile], output_level: int) -> bool:
        """Whether rewriting these files gives a changelog."""
        if self.producer.compacts_fully:
            return output_level >= self.max_level
        return self.producer.looks_up and self.looks_up_in(files, output_level)


def with_lookups(
    steps: Sequence[Rewrite | Upgrade], output_level: int, rules: LookupRules
) -> list[Rewrite | Upgrade]:
    """The steps of a pick, with what upgrades need in a table that looks up or tells changes.

    An upgraded file is rewritten, or read for its changes and for the rows that it replaces, where
    these matter. Source: `upgradeStrategy` of the rewriters.
    """
    return [
        _looked_up_upgrade(step, output_level, rules) if isinstance(step, Upgrade) else step
        for step in steps
    ]


def _looked_up_upgrade(step: Upgrade, output_level: int, rules: LookupRules) -> Rewrite | Upgrade:
    file = step.file
    if rules.producer.compacts_fully:
        return replace(step, is_read=output_level >= rules.max_level)
    if not rules.looks_up or file.level != 0:
        return step
    may_delete = file.deleted_rows is None or file.deleted_rows > 0
    to_top = output_level >= rules.max_level
    if (
        rules.formats[0] != rules.formats[output_level]
        or (rules.has_deletion_vectors and may_delete)
        or not (to_top or rules.sees_all)
    ):
        return Rewrite((((file,),),), drops_deletes=rules.has_deletion_vectors)
    tells = rules.producer.looks_up
    return replace(step, is_read=tells or (rules.has_deletion_vectors and not to_top))
