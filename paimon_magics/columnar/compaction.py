"""The result of a compaction for the rows of each key: a row to write, changelog rows, deleted
rows.

A compaction that looks up takes, as further runs, the rows of overlapping files above its output
level. They are the results of earlier compactions for a key: they join the merge and are the
"before" of a changelog, but are never written again. If the table has deletion vectors, they are
marked.

Sources: `MergeTreeCompactRewriter`, `ChangelogMergeTreeRewriter` and, in
`org.apache.paimon.mergetree.compact`, the wrappers of merge functions that each function names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_magics.columnar.aggregators import single_values_stay
from paimon_magics.columnar.differences import same_rows
from paimon_magics.columnar.folding import MergeRule, merge_rows, retract_error
from paimon_magics.columnar.merging import KIND, LEVEL, PLACE, Groups, is_retract, last_places
from paimon_magics.planning.options.changelog_producers import NO_CHANGELOG, ChangelogProducer
from paimon_magics.planning.reads.views import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE

_NO_LEVEL = np.iinfo(np.int16).max
_Ints = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class CompactionRule:
    """How the files of one rewrite are compacted.

    With `looks_up` rows have the column LEVEL, and rows above `output_level` are looked up: files
    of level 0 are rewritten in a table whose compactions look up. For a changelog of full
    compactions rows have the column LEVEL, too, and `output_level` is the greatest one. With
    `marks_deletions` looked-up rows have the column PLACE. `drops_deletes` leaves -U and -D out of
    the rows to write. Where `unchanged_columns` is given, updates that change none of these columns
    are left out of the changelog (`changelog-producer.row-deduplicate`).
    """

    merge: MergeRule
    output_level: int
    drops_deletes: bool
    looks_up: bool = False
    changelog: ChangelogProducer = NO_CHANGELOG
    marks_deletions: bool = False
    unchanged_columns: tuple[str, ...] | None = None

    @property
    def looks_up_values(self) -> bool:
        """Whether looked-up rows need all columns; otherwise the columns of the merge's order,
        SEQUENCE, LEVEL and PLACE are enough. Source: the processors in
        `MergeTreeCompactManagerFactory`."""
        if self.merge.engine.keeps_first_row:
            return False
        return not (
            self.marks_deletions
            and not self.changelog.of_compactions
            and self.merge.engine.keeps_last_row
            and not self.merge.order.sequence_fields
        )

    def written(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows to write from merged rows: without LEVEL, PLACE and the rows that
        `drops_deletes` drops."""
        rows = rows.drop_columns([name for name in (LEVEL, PLACE) if name in rows.schema.names])
        if self.drops_deletes:
            retracts = is_retract(np.asarray(rows.column(KIND)).astype(np.int8, copy=False))
            if retracts.any():
                return rows.filter(pa.array(~retracts))
        return rows


@dataclass(frozen=True)
class Compacted:
    """The result for some keys: the rows to write, in the order of their keys; the changelog's
    rows, with the two rows of an update adjacent; the PLACEs of looked-up rows that are deleted
    now."""

    rows: pa.RecordBatch
    changelog: pa.RecordBatch | None = None
    deleted: _Ints | None = None


def compacted(groups: Groups, rule: CompactionRule) -> Iterator[Compacted]:
    """Compact the rows of some keys; a function for `merge_runs`.

    Rows of the results have no LEVEL and no PLACE. Raises JobError for rows that the merge engine
    can't merge.
    """
    if not rule.looks_up:
        if rule.changelog.compacts_fully:
            yield _with_full_changelog(groups, rule)
            return
        in_order = replace(rule.merge, in_key_order=True)
        for batch in merge_rows(groups, in_order):
            yield Compacted(rule.written(batch))
        return
    if all(_level(batch) > rule.output_level for batch in groups.slices):
        return  # there are no rows to compact
    if rule.merge.engine.keeps_first_row:
        yield _first_rows(groups, rule)
        return
    yield _looked_up(groups, rule)


@dataclass(frozen=True)
class _Merged:
    """The merged rows of groups: row `places[g]` of `rows` is the row of group g, -1 for none.
    `rows` begins with the rows of the groups themselves, in the order of their slices."""

    rows: Groups
    places: _Ints

    def adds(self, places: _Ints) -> _Bools:
        """Whether there is a row at each of the places that is not a retract."""
        retracts = is_retract(self.rows.kinds())
        return (places >= 0) & ~retracts[np.maximum(places, 0)]


def _looked_up(groups: Groups, rule: CompactionRule) -> Compacted:
    """`LookupChangelogMergeFunctionWrapper` with `LookupMergeFunction`."""
    levels = _levels(groups)
    number = np.repeat(np.arange(len(groups.starts)), groups.ends - groups.starts)
    fresh = levels == 0
    # Above level 0 only the row of the lowest level counts: no looked-up row if the compaction
    # has one itself.
    lowest = np.minimum.reduceat(np.where(fresh, _NO_LEVEL, levels), groups.starts)
    high = ~fresh & (levels == lowest[number])
    has_high = lowest < _NO_LEVEL
    has_fresh = np.logical_or.reduceat(fresh, groups.starts)
    met = has_fresh | (lowest <= rule.output_level)
    high_rows = np.full(len(groups.starts), -1, dtype=np.int64)
    high_rows[has_high] = groups.order[high]

    deleted = None
    if rule.marks_deletions:
        hit = high_rows[met & has_high & (lowest > rule.output_level)]
        deleted = _places(groups, hit)
    joins = high if rule.looks_up_values else high & (levels <= rule.output_level)
    joined = (fresh | joins) & met[number]
    if not rule.looks_up_values:
        groups, kept_order = _without_slices_above(groups, rule.output_level, groups.order[joined])
    else:
        kept_order = groups.order[joined]
    inner = _inner(groups, kept_order, number[joined], met)
    merged = _merged(inner, rule.merge, all_met=True)
    changelog = None
    if rule.changelog.looks_up:
        before = np.where(merged.adds(high_rows[met]), high_rows[met], -1)
        changelog = _changelog(merged, before, has_fresh[met], rule)
    return Compacted(rule.written(_result(merged)), changelog, deleted)


def _with_full_changelog(groups: Groups, rule: CompactionRule) -> Compacted:
    """`FullChangelogMergeFunctionWrapper`."""
    levels = _levels(groups)
    top = levels == rule.output_level
    before = np.full(len(groups.starts), -1, dtype=np.int64)
    before[np.logical_or.reduceat(top, groups.starts)] = groups.order[top]
    several = ~groups.alone
    inner = groups.of_latest_levels() if rule.merge.looks_up else _without(groups, (LEVEL,))
    merged = _merged(inner, rule.merge, all_met=False)
    changelog = _changelog(merged, before, several | (before < 0), rule)
    return Compacted(rule.written(_result(merged)), changelog)


def _first_rows(groups: Groups, rule: CompactionRule) -> Compacted:
    """`FirstRowMergeFunctionWrapper`."""
    levels = _levels(groups)
    number = np.repeat(np.arange(len(groups.starts)), groups.ends - groups.starts)
    own = levels <= rule.output_level
    known = np.logical_or.reduceat(~own, groups.starts)
    groups, order = _without_slices_above(groups, rule.output_level, groups.order[own])
    number, levels = number[own], levels[own]
    kinds = groups.kinds()
    retracts = is_retract(kinds)[order]
    if retracts.any():
        if not rule.merge.ignore_deletes:
            raise retract_error(rule.merge.engine)
        order, number, levels = order[~retracts], number[~retracts], levels[~retracts]
    starts = np.flatnonzero(np.append([True], number[1:] != number[:-1])) if len(number) else number
    above = np.logical_or.reduceat(levels > 0, starts) if len(starts) else np.zeros(0, dtype=bool)
    first = order[starts]
    new = ~above & ~known[number[starts]]
    changelog = None
    if rule.changelog.looks_up:
        changelog = groups.taken(first[new])
    return Compacted(groups.taken(first[above | new]), changelog)


def _levels(groups: Groups) -> npt.NDArray[np.int16]:
    """The levels of the groups' rows, in their order. A slice is of one level."""
    each = [_level(batch) for batch in groups.slices]
    counts = [batch.num_rows for batch in groups.slices]
    return np.repeat(np.array(each, dtype=np.int16), counts)[groups.order]


def _level(batch: pa.RecordBatch) -> int:
    return int(batch.column(LEVEL)[0].as_py())


def _places(groups: Groups, rows: _Ints) -> _Ints:
    """The PLACE of rows, each from a slice that has it, in ascending order."""
    places = []
    start = 0
    rows = np.sort(rows)
    for batch in groups.slices:
        low, high = np.searchsorted(rows, (start, start + batch.num_rows))
        if high > low:
            places.append(np.asarray(batch.column(PLACE))[rows[low:high] - start])
        start += batch.num_rows
    return np.sort(np.concatenate(places)) if places else np.zeros(0, dtype=np.int64)


def _without(groups: Groups, names: tuple[str, ...]) -> Groups:
    """The groups without some columns, where slices have them."""
    slices = tuple(
        batch.drop_columns([name for name in names if name in batch.schema.names])
        for batch in groups.slices
    )
    return replace(groups, slices=slices)


def _without_slices_above(groups: Groups, level: int, order: _Ints) -> tuple[Groups, _Ints]:
    """The groups without the slices above a level, and `order`, which has no rows of these, as
    numbers of the rows that are left."""
    slices, shifts, gone = [], [], 0
    for batch in groups.slices:
        if _level(batch) > level:
            gone += batch.num_rows
        else:
            slices.append(batch)
        shifts.append(np.full(batch.num_rows, gone, dtype=np.int64))
    if gone:
        order = order - np.concatenate(shifts)[order]
    return _without(replace(groups, slices=tuple(slices)), (LEVEL, PLACE)), order


def _inner(groups: Groups, order: _Ints, number: _Ints, met: _Bools) -> Groups:
    """The groups marked in `met`, with the rows in `order`. `number` is the group of each row."""
    starts = np.searchsorted(number, np.flatnonzero(met)).astype(np.int64)
    return replace(_without(groups, (LEVEL, PLACE)), order=order, starts=starts)


def _merged(groups: Groups, rule: MergeRule, *, all_met: bool) -> _Merged:
    """Merge each group into a row; with `all_met` also the groups of a single row, unless that
    makes no difference."""
    count = len(groups.starts)
    if not count:
        return _Merged(groups, np.zeros(0, dtype=np.int64))
    if all_met:
        changed = _single_rows_change(groups, rule)
        groups = replace(groups, met=changed)
    if rule.engine.keeps_last_row:
        last = last_places(groups, ignore_retracts=rule.ignore_deletes)
        return _Merged(groups, np.where(last < 0, -1, groups.order[last]))
    rule = replace(rule, looks_up=False, in_key_order=True)
    (batch,) = merge_rows(groups, rule)
    places = groups.stored_rows + np.arange(count, dtype=np.int64)
    return _Merged(replace(groups, slices=(*groups.slices, batch)), places)


def _single_rows_change(groups: Groups, rule: MergeRule) -> _Bools:
    """Marks the groups for which merging a single row would not give that row."""
    if rule.engine.skips_nulls and not rule.groups and not rule.functions:
        return np.ones(len(groups.starts), dtype=bool)  # all columns at once anyway
    first = groups.order[groups.starts]
    kinds = groups.kinds()[first]
    if rule.engine.keeps_last_row:
        changed: _Bools = is_retract(kinds)
        return changed
    changed = kinds != INSERT
    if not single_values_stay(rule.functions.values()):
        changed[:] = True
    for group in rule.groups:
        valid = np.zeros(len(first), dtype=bool)
        for name in group.columns:
            valid |= np.asarray(groups.column(name).is_valid())[first]
        changed |= ~valid
    return changed


def _result(merged: _Merged) -> pa.RecordBatch:
    """The merged rows, of the groups that have one."""
    return merged.rows.taken(merged.places[merged.places >= 0])


def _changelog(
    merged: _Merged, before: _Ints, counts: _Bools, rule: CompactionRule
) -> pa.RecordBatch:
    """The changes from `before`, places in the merged rows or -1, to the merged rows, of the groups
    that count: +I, -D of the row before, -U and +U."""
    after = merged.places
    had, has = before >= 0, merged.adds(after)
    inserted = counts & ~had & has
    gone = counts & had & ~has & (after >= 0)
    updated = counts & had & has
    if rule.unchanged_columns is not None:
        groups = np.flatnonzero(updated)
        columns = [merged.rows.column(name) for name in rule.unchanged_columns]
        updated[groups] = ~same_rows(columns, before[groups], after[groups])
    lengths = inserted.astype(np.int64) + gone + 2 * updated
    total = int(lengths.sum())
    begin = np.cumsum(lengths) - lengths
    rows = np.empty(total, dtype=np.int64)
    kinds = np.empty(total, dtype=np.int8)
    for marked, shift, source, kind in (
        (inserted, 0, after, INSERT),
        (gone, 0, before, DELETE),
        (updated, 0, before, UPDATE_BEFORE),
        (updated, 1, after, UPDATE_AFTER),
    ):
        rows[begin[marked] + shift] = source[marked]
        kinds[begin[marked] + shift] = kind
    batch = merged.rows.taken(rows)
    place = batch.schema.get_field_index(KIND)
    return batch.set_column(place, batch.schema.field(place), pa.array(kinds))
