"""Compacted rows, changelogs and deletions against the plain rules, one key after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paimon_magics.columnar.aggregators import ColumnFunction
from paimon_magics.columnar.compaction import Compacted, CompactionRule, compacted
from paimon_magics.columnar.folding import MergeRule, SequenceGroup
from paimon_magics.columnar.merging import (
    FILE_BITS,
    KIND,
    LEVEL,
    PLACE,
    SEQUENCE,
    RunOrder,
    merge_runs,
)
from paimon_magics.errors import JobError
from paimon_magics.planning.options.changelog_producers import (
    CHANGELOG_PRODUCERS,
    NO_CHANGELOG,
    ChangelogProducer,
)
from paimon_magics.planning.options.merge_engines import MERGE_ENGINES
from tests.sampling import examples

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)
SCHEMA = pa.schema(
    {
        "k": pa.int32(),
        "s": pa.int32(),
        "v": pa.int64(),
        SEQUENCE: pa.int64(),
        KIND: pa.int8(),
        LEVEL: pa.int8(),
        PLACE: pa.int64(),
    }
)
OUTPUT, TOP = 3, 5


@dataclass(frozen=True)
class Row:
    """A stored row; `place` is None for rows of the compaction itself."""

    key: int
    s: int | None
    v: int | None
    number: int
    kind: int
    level: int
    place: int | None = None

    @property
    def adds(self) -> bool:
        return self.kind in (INSERT, UPDATE_AFTER)


@st.composite
def runs(draw: st.DrawFn, *, deletes: bool = True) -> list[list[Row]]:
    """Runs of level 0, of levels up to that of the output, and above; mostly newest first."""
    levels = draw(st.lists(st.just(0), max_size=3)) + sorted(
        draw(st.sets(st.sampled_from([1, 3, 4, 5]), max_size=4))
    )
    numbers = draw(st.permutations(range(40)) | st.just(range(40, 0, -1)))
    free = iter(numbers)
    kinds = [INSERT, INSERT, UPDATE_AFTER, DELETE] if deletes else [INSERT, UPDATE_AFTER]
    result = []
    for run, level in enumerate(levels):
        keys = sorted(draw(st.sets(st.integers(0, 5), min_size=1, max_size=5)))
        result.append(
            [
                Row(
                    key,
                    draw(st.none() | st.integers(0, 2)),
                    draw(st.none() | st.integers(0, 3)),
                    next(free),
                    draw(st.sampled_from(kinds)),
                    level,
                    (run << FILE_BITS) + place if level > OUTPUT else None,
                )
                for place, key in enumerate(keys)
            ]
        )
    return result


def batches(run: list[Row], size: int, *, names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(run), size):
        rows = [
            (row.key, row.s, row.v, row.number, row.kind, row.level, row.place)
            for row in run[start : start + size]
        ]
        columns = zip(*rows, strict=True)
        whole = pa.RecordBatch.from_arrays(
            [pa.array(c, t.type) for c, t in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
        )
        yield whole.select([name for name in SCHEMA.names if name in names])


def ours(found: list[list[Row]], rule: CompactionRule, size: int) -> list[Compacted]:
    above = tuple(SCHEMA.names)
    if not rule.looks_up_values:
        above = ("k", SEQUENCE, LEVEL, PLACE)
    own = tuple(name for name in SCHEMA.names if name != PLACE)
    return list(
        merge_runs(
            [batches(run, size, names=above if run[0].level > OUTPUT else own) for run in found],
            rule.merge.order,
            lambda groups: compacted(groups, rule),
        )
    )


def listed(batch: pa.RecordBatch | None) -> list[tuple[Any, ...]]:
    if batch is None:
        return []
    assert batch.schema.names == ["k", "s", "v", SEQUENCE, KIND]
    return [tuple(row.values()) for row in batch.to_pylist()]


def seen(row: Row | None, kind: int | None = None) -> tuple[Any, ...]:
    assert row is not None
    return (row.key, row.s, row.v, row.number, row.kind if kind is None else kind)


def merge(rows: list[Row], rule: MergeRule) -> Row | None:
    """Paimon's merge function over the rows of a key, in their order."""
    if rule.ignore_deletes and rule.engine.keeps_last_row:
        rows = [row for row in rows if row.adds]
    if not rows:
        return None
    last = rows[-1]
    if rule.engine.keeps_last_row:
        return last
    if rule.engine.skips_nulls:
        s = v = None
        for row in rows:
            if row.kind == DELETE:
                s, v = row.s, row.v
            else:
                s, v = (s if row.s is None else row.s), (v if row.v is None else row.v)
        gone = last.kind == DELETE or not any(row.adds for row in rows)
        return replace(last, s=s, v=v, kind=DELETE if gone else INSERT)
    s, total = None, None
    for row in rows:
        if row.v is not None:
            signed = row.v if row.adds else -row.v
            total = signed if total is None else total + signed
        s = s if row.s is None else (row.s if row.adds else None)
    return replace(last, s=s, v=total, kind=INSERT)


def sort(rows: list[Row], rule: MergeRule) -> list[Row]:
    if not rule.order.sequence_fields:
        return sorted(rows, key=lambda row: row.number)
    return sorted(rows, key=lambda row: (row.s is not None, row.s or 0, row.number))


def change(before: Row | None, after: Row | None, *, quiet: bool) -> list[tuple[Any, ...]]:
    if after is None:
        return []
    if before is None or not before.adds:
        return [seen(after, INSERT)] if after.adds else []
    if not after.adds:
        return [seen(before, DELETE)]
    if quiet and before.v == after.v:
        return []
    return [seen(before, UPDATE_BEFORE), seen(after, UPDATE_AFTER)]


def looked_up(
    rows: list[Row], rule: CompactionRule
) -> tuple[Row | None, list[tuple[Any, ...]], list[int]]:
    """`LookupChangelogMergeFunctionWrapper`: result, changelog, deleted places of a key."""
    fresh = [row for row in rows if row.level == 0]
    own = sorted((r for r in rows if 0 < r.level <= OUTPUT), key=lambda r: r.level)
    above = sorted((r for r in rows if r.level > OUTPUT), key=lambda r: r.level)
    if not fresh and not own:
        return None, [], []
    high = own[0] if own else above[0] if above else None
    deleted = [high.place] if high is not None and not own and rule.marks_deletions else []
    merged = [high] if high is not None and (own or rule.looks_up_values) else []
    result = merge(sort(fresh + merged, rule.merge), rule.merge)
    changes = []
    if fresh and rule.changelog.looks_up:
        changes = change(high, result, quiet=rule.unchanged_columns is not None)
    return result, changes, [place for place in deleted if place is not None]


MERGES = {
    "deduplicate": MergeRule(MERGE_ENGINES["deduplicate"], RunOrder(("k",))),
    "deduplicate by s": MergeRule(MERGE_ENGINES["deduplicate"], RunOrder(("k",), ("s",))),
    "deduplicate without deletes": MergeRule(
        MERGE_ENGINES["deduplicate"], RunOrder(("k",)), ignore_deletes=True
    ),
    "partial-update": MergeRule(
        MERGE_ENGINES["partial-update"], RunOrder(("k",)), removes_on_delete=True
    ),
}
SUM = MergeRule(
    MERGE_ENGINES["aggregation"],
    RunOrder(("k",)),
    functions={"s": ColumnFunction("last_non_null_value"), "v": ColumnFunction("sum")},
)


@settings(max_examples=examples(80), deadline=None)
@given(
    runs(),
    st.sampled_from(list(MERGES)),
    st.sampled_from([NO_CHANGELOG, CHANGELOG_PRODUCERS["lookup"]]),
    st.booleans(),
    st.booleans(),
    st.integers(1, 4),
)
def test_lookup_compaction_matches_merging_each_key(
    found: list[list[Row]],
    engine: str,
    changelog: ChangelogProducer,
    marks: bool,
    quiet: bool,
    size: int,
) -> None:
    rule = CompactionRule(
        merge=MERGES[engine],
        output_level=OUTPUT,
        drops_deletes=marks,
        looks_up=True,
        changelog=changelog,
        marks_deletions=marks,
        unchanged_columns=("v",) if quiet else None,
    )
    _compare(found, rule, size)


@settings(max_examples=examples(40), deadline=None)
@given(runs(deletes=False), st.booleans(), st.integers(1, 4))
def test_lookup_compaction_of_sums_matches_merging_each_key(
    found: list[list[Row]], marks: bool, size: int
) -> None:
    _compare(
        found, CompactionRule(SUM, OUTPUT, False, True, CHANGELOG_PRODUCERS["lookup"], marks), size
    )


def _compare(found: list[list[Row]], rule: CompactionRule, size: int) -> None:
    everything = [row for run in found for row in run]
    rows, changes, deleted = [], [], []
    for key in range(6):
        result, more, places = looked_up([row for row in everything if row.key == key], rule)
        if result is not None and (result.adds or not rule.drops_deletes):
            rows.append(seen(result))
        changes += more
        deleted += places
    parts = ours(found, rule, size)
    assert [row for part in parts for row in listed(part.rows)] == rows
    assert [row for part in parts for row in listed(part.changelog)] == changes
    if rule.marks_deletions:
        assert sorted(p for part in parts for p in part.deleted.tolist()) == sorted(deleted)  # type: ignore[union-attr]


@settings(max_examples=examples(60), deadline=None)
@given(runs(), st.sampled_from(list(MERGES)), st.booleans(), st.integers(1, 4))
def test_full_compaction_logs_the_changes_since_the_previous(
    found: list[list[Row]], engine: str, quiet: bool, size: int
) -> None:
    rule = CompactionRule(
        merge=MERGES[engine],
        output_level=TOP,
        drops_deletes=True,
        changelog=CHANGELOG_PRODUCERS["full-compaction"],
        unchanged_columns=("v",) if quiet else None,
    )
    everything = [replace(row, place=None) for run in found for row in run]
    rows, changes = [], []
    for key in range(6):
        group = sort([row for row in everything if row.key == key], rule.merge)
        if not group:
            continue
        result = merge(group, rule.merge) if len(group) > 1 else group[0]
        if result is not None and result.adds:
            rows.append(seen(result))
        before = next((row for row in group if row.level == TOP), None)
        if len(group) == 1 and before is not None:
            continue
        if before is not None:
            before = replace(before, kind=INSERT)  # whatever its kind
        changes += change(before, result, quiet=quiet)
    columns = tuple(name for name in SCHEMA.names if name != PLACE)
    parts = list(
        merge_runs(
            [batches(run, size, names=columns) for run in found],
            rule.merge.order,
            lambda groups: compacted(groups, rule),
        )
    )
    assert [row for part in parts for row in listed(part.rows)] == rows
    assert [row for part in parts for row in listed(part.changelog)] == changes


@settings(max_examples=examples(60), deadline=None)
@given(runs(), st.booleans(), st.integers(1, 4))
def test_first_row_compaction_writes_only_new_keys(
    found: list[list[Row]], tells: bool, size: int
) -> None:
    merge_rule = MergeRule(MERGE_ENGINES["first-row"], RunOrder(("k",)), ignore_deletes=True)
    changelog = CHANGELOG_PRODUCERS["lookup"] if tells else NO_CHANGELOG
    rule = CompactionRule(merge_rule, OUTPUT, False, True, changelog)
    rows, changes = [], []
    for key in range(6):
        group = sort([r for run in found for r in run if r.key == key], merge_rule)
        own = [row for row in group if row.level <= OUTPUT and row.adds]
        if any(row.level > 0 for row in own):
            rows.append(seen(own[0]))
        elif own and not any(row.level > OUTPUT for row in group):
            rows.append(seen(own[0]))
            changes.append(seen(own[0]))
    parts = ours(found, rule, size)
    assert [row for part in parts for row in listed(part.rows)] == rows
    assert [row for part in parts for row in listed(part.changelog)] == (changes if tells else [])


def test_first_row_refuses_retracts() -> None:
    rule = CompactionRule(
        MergeRule(MERGE_ENGINES["first-row"], RunOrder(("k",))), OUTPUT, False, True
    )
    with pytest.raises(JobError, match="-D rows"):
        ours([[Row(1, 0, 0, 1, DELETE, 0)]], rule, 4)


def test_null_sequence_group_keeps_earlier_values() -> None:
    merge_rule = MergeRule(
        MERGE_ENGINES["partial-update"], RunOrder(("k",)), groups=(SequenceGroup(("s",), ("v",)),)
    )
    rule = CompactionRule(merge_rule, OUTPUT, False, True, CHANGELOG_PRODUCERS["lookup"])
    found = [
        [Row(1, None, 7, 4, INSERT, 0), Row(2, None, 7, 5, INSERT, 0)],
        [Row(1, 1, 5, 1, INSERT, 5)],
    ]
    parts = ours(found, rule, 4)
    rows = [row for part in parts for row in listed(part.rows)]
    assert rows == [(1, 1, 5, 4, INSERT), (2, None, None, 5, INSERT)]
    assert [row for part in parts for row in listed(part.changelog)] == [
        (1, 1, 5, 1, UPDATE_BEFORE),
        (1, 1, 5, 4, UPDATE_AFTER),
        (2, None, None, 5, INSERT),
    ]


def test_plain_compaction_writes_merged_rows_in_key_order() -> None:
    rule = CompactionRule(MERGES["deduplicate"], TOP, True)
    found = [
        [Row(1, 0, 1, 9, DELETE, 0), Row(4, 0, 4, 8, UPDATE_AFTER, 0)],
        [Row(1, 0, 0, 1, INSERT, 1), Row(2, 0, 2, 2, INSERT, 1), Row(4, 0, 0, 3, INSERT, 1)],
    ]
    (part,) = ours(found, rule, 9)
    assert listed(part.rows) == [(2, 0, 2, 2, INSERT), (4, 0, 4, 8, UPDATE_AFTER)]
    assert part.changelog is None and part.deleted is None
