"""Plans the compaction of a primary-key table: which buckets, which of their files, into which
level.

Nothing is read here: files come as the Arrow columns of a snapshot's manifests. Buckets with
nothing to do are skipped before any object is made for a file, ten thousand in some milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.planning.compaction.keyed_tables import (
    BucketFile,
    Moment,
    Pick,
    PickOptions,
    SortedRun,
    pick,
    pick_all,
    sorted_runs,
)
from paimon_magics.planning.compaction.steps import (
    LookupRules,
    Rewrite,
    RewriteRules,
    Upgrade,
    drops_deletes,
    steps_of,
    with_lookups,
)
from paimon_magics.planning.reads.splits import Deletions, Section, StoredFile
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.tables.manifests.columns import creation_instants
from paimon_magics.tables.splits.bucket_splits import KeyRanks
from paimon_magics.tables.splits.stored_files import by_bucket, stored_files

FileKey = tuple[bytes, int, str]
_Ints = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]

_BLOCK_FILES = 10_000


@dataclass(frozen=True, slots=True)
class UnitRules:
    """The rules that select files for compaction. With `is_full` all files of a bucket are
    compacted (`full`), else the files that a writer would pick after a flush (`minor`).
    `min_size_bytes`: see `RewriteRules`."""

    picks: PickOptions
    is_full: bool
    moment: Moment
    min_size_bytes: int
    lookups: LookupRules
    may_expire: Callable[[pa.Table], _Bools] | None = None


@dataclass(frozen=True, slots=True)
class BucketUnit:
    """Files of one bucket that are compacted together.

    `above` are the bucket's files above the output level, where they are looked up. `rows` are the
    positions of the pick's files and of these among the planned files, by name; `stored` are the
    same files for tasks.
    """

    partition: bytes
    bucket: int
    total_buckets: int
    pick: Pick
    steps: tuple[Rewrite | Upgrade, ...]
    drops_deletes: bool
    rows: Mapping[str, int]
    stored: Mapping[str, StoredFile]
    above: tuple[SortedRun, ...] = ()

    @property
    def rewrites(self) -> tuple[Rewrite, ...]:
        """The steps that write files."""
        return tuple(step for step in self.steps if isinstance(step, Rewrite))

    @property
    def upgrades(self) -> tuple[Upgrade, ...]:
        """The steps that only change a file's level."""
        return tuple(step for step in self.steps if isinstance(step, Upgrade))

    @property
    def reads(self) -> tuple[Rewrite, ...]:
        """The upgraded files whose rows are read all the same, as rewrites that write nothing."""
        return tuple(Rewrite((((step.file,),),)) for step in self.upgrades if step.is_read)

    def looked_up(self, section: Section) -> Section:
        """The files above the output level that rows of level 0 in a section may be in, as runs."""
        names = {file.path.rpartition("/")[2] for run in section for file in run if file.level == 0}
        fresh = [file for file in self.pick.files if file.name in names]
        if not fresh:
            return ()
        least = min(file.least_key for file in fresh)
        greatest = max(file.greatest_key for file in fresh)
        runs = (
            tuple(
                self.stored[file.name]
                for file in run.files
                if file.least_key <= greatest and file.greatest_key >= least
            )
            for run in self.above
        )
        return tuple(run for run in runs if run)

    def sections(self, rewrite: Rewrite) -> tuple[Section, ...]:
        """The sections of a rewrite, as tasks read them."""
        return tuple(
            tuple(tuple(self.stored[file.name] for file in run) for run in section)
            for section in rewrite.sections
        )


def bucket_units(
    files: pa.Table,
    paths: pa.Array,
    schema: TableSchema,
    deletions: Mapping[FileKey, Deletions],
    rules: UnitRules,
) -> tuple[pa.Table, list[BucketUnit]]:
    """The units of the buckets that `files` (columns of MANIFEST_ENTRIES) are in; and the files in
    the order that the units' `rows` count in. `paths` are the files' paths."""
    files = files.append_column("path", paths)
    files, groups = by_bucket(files)
    if not files.num_rows:
        return files, []
    chosen = np.flatnonzero(_worth_a_look(files, groups, rules, bool(deletions)))
    candidates = [groups[i] for i in chosen]
    rows = np.concatenate(
        [np.asarray(group) for group in candidates] or [np.zeros(0, dtype=np.int64)]
    )
    files = files.take(pa.array(rows)).combine_chunks()
    ends = np.cumsum([len(group) for group in candidates])
    starts = ends - [len(group) for group in candidates]
    ranks = KeyRanks(files, schema)
    old = np.zeros(files.num_rows, dtype=bool)
    if rules.may_expire is not None:
        old = rules.may_expire(files)
    by_snapshot = schema.flag("sequence.snapshot-ordering")
    entries, entry_paths = files.drop_columns(["path"]), files["path"].combine_chunks()
    units: list[BucketUnit] = []
    for block in _blocks(starts, ends):
        picked = _picked(files, ranks, block, deletions, old, rules)
        places = [row for unit in picked for row in unit.rows.values()]
        stored = iter(
            stored_files(
                entries,
                np.array(places, dtype=np.int64),
                entry_paths,
                deletions,
                by_snapshot=by_snapshot,
            )
        )
        for unit in picked:
            own = zip(unit.rows, islice(stored, len(unit.rows)), strict=True)
            units.append(replace(unit, stored=dict(own)))
    return files, units


def _blocks(starts: _Ints, ends: _Ints) -> Iterator[list[range]]:
    """The buckets, in groups of about `_BLOCK_FILES` files: the objects for the files of a group
    are created together."""
    block: list[range] = []
    files = 0
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        block.append(range(start, end))
        files += end - start
        if files >= _BLOCK_FILES:
            yield block
            block, files = [], 0
    if block:
        yield block


def _picked(
    files: pa.Table,
    ranks: KeyRanks,
    buckets: Sequence[range],
    deletions: Mapping[FileKey, Deletions],
    old: _Bools,
    rules: UnitRules,
) -> list[BucketUnit]:
    """The units of some buckets that follow each other, still without their stored files."""
    first = buckets[0].start
    members = list(_members(files.slice(first, buckets[-1].stop - first)))
    units: list[BucketUnit] = []
    for rows in buckets:
        own = members[rows.start - first : rows.stop - first]
        runs = sorted_runs(_bucket_files(own, ranks, rows, deletions, old))
        unit = _unit(runs, rules)
        if unit is None:
            continue
        pick_, steps, drops = unit
        above = tuple(
            run for run in runs if rules.lookups.looks_up and run.level > pick_.output_level
        )
        names = {file.name for run in (*pick_.runs, *above) for file in run.files}
        positions = zip((member["file_name"] for member in own), rows, strict=True)
        units.append(
            BucketUnit(
                partition=own[0]["partition"],
                bucket=own[0]["bucket"],
                total_buckets=own[0]["total_buckets"],
                pick=pick_,
                steps=tuple(steps),
                drops_deletes=drops,
                rows={name: row for name, row in positions if name in names},
                stored={},
                above=above,
            )
        )
    return units


def _worth_a_look(
    files: pa.Table, groups: Sequence[range], rules: UnitRules, has_deletions: bool
) -> _Bools:
    """Marks the buckets that may have something to compact: enough sorted runs, or level 0 where
    that must go up; with `is_full` also files below the greatest level, or that may lose rows."""
    starts = np.array([group.start for group in groups], dtype=np.int64)
    lengths = np.array([len(group) for group in groups], dtype=np.int64)
    level = np.asarray(files["level"]).astype(np.int64)
    number = np.repeat(np.arange(len(groups)), lengths)
    zero = np.bincount(number[level == 0], minlength=len(groups))
    levels = np.unique(np.stack([number[level > 0], level[level > 0]]), axis=1)
    runs = zero + np.bincount(levels[0], minlength=len(groups))
    options = rules.picks
    if not rules.is_full:
        is_candidate: _Bools = runs >= options.compaction_trigger
        if options.forces_level_0_up:
            is_candidate |= zero > 0
        if options.may_be_early_full:
            is_candidate |= runs > 1
        return is_candidate
    greatest = np.maximum.reduceat(level, starts)
    is_candidate = (runs > 1) | (greatest < options.level_count - 1)
    if options.rewrites_all_files or has_deletions or rules.may_expire is not None:
        is_candidate |= True
    return is_candidate


def _bucket_files(
    members: Sequence[Mapping[str, Any]],
    ranks: KeyRanks,
    rows: range,
    deletions: Mapping[FileKey, Deletions],
    old: _Bools,
) -> list[BucketFile]:
    return [
        BucketFile(
            name=row["file_name"],
            level=row["level"],
            size_bytes=row["file_size"],
            least_key=int(ranks.least[place]),
            greatest_key=int(ranks.greatest[place]),
            min_sequence_number=row["min_sequence_number"],
            max_sequence_number=row["max_sequence_number"],
            created_ms=row["created_ms"],
            deleted_rows=row["delete_row_count"],
            has_deletion_vector=(row["partition"], row["bucket"], row["file_name"]) in deletions,
            may_hold_expired_rows=bool(old[place]),
        )
        for place, row in zip(rows, members, strict=True)
    ]


def _members(part: pa.Table) -> Iterator[dict[str, Any]]:
    names = ["partition", "bucket", "total_buckets", "file_name", "level", "file_size"]
    names += ["delete_row_count", "min_sequence_number", "max_sequence_number"]
    created = pc.fill_null(creation_instants(part), 0)
    yield from part.select(names).append_column("created_ms", created).to_pylist()


def _unit(
    runs: Sequence[SortedRun], rules: UnitRules
) -> tuple[Pick, list[Rewrite | Upgrade], bool] | None:
    picked = pick_all(runs, rules.picks) if rules.is_full else pick(runs, rules.picks, rules.moment)
    if picked is None:
        return None
    rewrites = RewriteRules(
        rules.picks.max_level(runs), rules.min_size_bytes, rules.picks.rewrites_all_files
    )
    steps = steps_of(picked, rewrites)
    if not steps:
        return None
    steps = with_lookups(steps, picked.output_level, rules.lookups)
    drops = drops_deletes(
        picked,
        runs,
        has_deletion_vectors=rules.lookups.has_deletion_vectors,
        is_chain_table=False,
    )
    return picked, steps, drops
