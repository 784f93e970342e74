"""What is done with the files of a pick: some are merged, some change their level only.

Source: `MergeTreeCompactTask`, `FileRewriteCompactTask`, `MergeTreeCompactManager`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paimon_magics.planning.compaction.levels import BucketFile, SortedRun
from paimon_magics.planning.compaction.picks import Pick
from paimon_magics.planning.reads.splits import KeyRange, sections

__all__ = ["Rewrite", "RewriteRules", "Upgrade", "drops_deletes", "steps_of"]


@dataclass(frozen=True, slots=True)
class Upgrade:
    """A file that goes to another level as it is. With `is_read` its rows are read all the same:
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
    """When a file that overlaps no other is rewritten all the same: below `min_size_bytes`
    (`target-file-size` x `compaction.small-file-ratio`) with its neighbours, and always with
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

    Small files that overlap no other are rewritten together with their neighbours, as long as these
    are contiguous; a larger one is upgraded, and so is a small one without neighbours.
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
