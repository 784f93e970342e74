"""Merged runs against the plain rule: rows of a key, in the order of their sequence, into one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paimon_magics.columnar.aggregators import ColumnFunction
from paimon_magics.columnar.folding import MergeRule, SequenceGroup, merge_rows
from paimon_magics.columnar.merging import KIND, SEQUENCE, RunOrder, merge_runs
from paimon_magics.errors import JobError
from paimon_magics.planning.options.merge_engines import MERGE_ENGINES

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)
INF = math.inf
KEY_TYPES: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "int": (pa.int32(), lambda k: k),
    "text": (pa.string(), lambda k: ["", "a", "ä", "Z", "zz", "😀", "0", "ab"][k]),
    "two": (pa.int64(), lambda k: k),
    "float": (pa.float64(), lambda k: [-INF, -2.5, -0.0, 0.0, 1e-30, 2.5, INF, math.nan][k]),
    "single": (pa.float32(), lambda k: [-INF, -2.5, -0.0, 0.0, 1e-30, 2.5, INF, math.nan][k]),
}
SEQUENCES: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
    "float": (pa.float64(), [-0.0, 0.0, 5.0, math.nan])
}
_Row = tuple[int, int, int, int | None, str | None]  # key, sequence, kind, s, v


@st.composite
def runs(draw: st.DrawFn) -> list[list[_Row]]:
    """Sorted runs with every sequence number once; a key is in a run at most once. Some follow each
    other in sequence, and some have all the same keys."""
    numbers = iter(draw(st.permutations(range(40)) | st.just(range(40))))
    keys = st.sets(st.integers(0, 7), max_size=8)
    keys = draw(st.just(keys) | keys.map(st.just))
    return [
        [
            (
                key,
                next(numbers),
                draw(st.sampled_from([INSERT, INSERT, UPDATE_AFTER, DELETE])),
                draw(st.none() | st.integers(0, 3)),
                draw(st.none() | st.text("ab", max_size=2)),
            )
            for key in sorted(draw(keys))
        ]
        for _ in range(draw(st.integers(1, 4)))
    ]


def batches(run: list[_Row], kind: str, size: int) -> Iterator[pa.RecordBatch]:
    data_type, value = KEY_TYPES[kind]
    rows = sorted(run, key=lambda row: _order(value(row[0])))
    s_type, s_values = SEQUENCES.get(kind, (pa.int32(), range(40)))
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        columns: dict[str, pa.Array] = {
            "k": pa.array([value(row[0]) for row in part], data_type),
            "s": pa.array([None if row[3] is None else s_values[row[3]] for row in part], s_type),
            "v": pa.array([row[4] for row in part], pa.string()),
            SEQUENCE: pa.array([row[1] for row in part], pa.int64()),
            KIND: pa.array([row[2] for row in part], pa.int8()),
        }
        if kind == "two":
            columns["j"] = pa.array(["same"] * len(part))
        yield pa.RecordBatch.from_pydict(columns)


def _order(value: Any) -> Any:
    if isinstance(value, float):  # as Java's Double.compare
        return (math.isnan(value), 0 if math.isnan(value) else value, math.copysign(1, value))
    return value.encode() if isinstance(value, str) else value


def merged(found: list[list[_Row]], kind: str, size: int, rule: MergeRule) -> list[dict[str, Any]]:
    sources = [batches(run, kind, size) for run in found]
    rows = merge_runs(sources, rule.order, lambda groups: merge_rows(groups, rule))
    return sorted(
        (row for batch in rows for row in batch.to_pylist()), key=lambda row: _order(row["k"])
    )


def by_key(found: list[list[_Row]], order: RunOrder) -> dict[int, list[_Row]]:
    """Of each key the rows in their order; NULL comes first, whatever the direction."""
    sign = -1 if order.descending else 1
    grouped: dict[int, list[_Row]] = {}
    for row in sorted((row for run in found for row in run), key=lambda row: row[1]):
        grouped.setdefault(row[0], []).append(row)
    if order.sequence_fields:
        for rows in grouped.values():
            rows.sort(key=lambda row: (row[3] is not None, sign * (row[3] or 0)))
    return grouped


@settings(max_examples=150, deadline=None)
@given(
    runs(),
    st.sampled_from(sorted(KEY_TYPES)),
    st.integers(1, 5),
    st.sampled_from([(), ("s",)]),
    st.booleans(),
    st.booleans(),
)
def test_deduplicate_keeps_the_last_row_of_a_key(
    found: list[list[_Row]],
    kind: str,
    size: int,
    sequence_fields: tuple[str, ...],
    descending: bool,
    ignores: bool,
) -> None:
    keys = ("j", "k") if kind == "two" else ("k",)
    order = RunOrder(keys, sequence_fields, descending)
    rule = MergeRule(MERGE_ENGINES["deduplicate"], order, ignore_deletes=ignores)
    expected = []
    for key, rows in by_key(found, order).items():
        left = [row for row in rows if row[2] != DELETE] if ignores and len(rows) > 1 else rows
        if left:
            stored = pa.scalar(KEY_TYPES[kind][1](key), KEY_TYPES[kind][0]).as_py()
            expected.append((stored, left[-1][1], left[-1][2]))
    result = [(row["k"], row[SEQUENCE], row[KIND]) for row in merged(found, kind, size, rule)]
    assert sorted(map(repr, result)) == sorted(map(repr, expected))


@pytest.mark.parametrize("descending", [False, True])
def test_sequence_field_decides_between_runs_with_the_same_keys(
    descending: bool,
) -> None:
    older: list[_Row] = [(1, 0, INSERT, 5, "five"), (2, 1, INSERT, 4, "four")]
    newer: list[_Row] = [(1, 2, INSERT, 4, "four"), (2, 3, INSERT, 5, "five")]
    order = RunOrder(("k",), ("s",), descending, runs_in_sequence=True)
    rule = MergeRule(MERGE_ENGINES["deduplicate"], order)
    actual = merged([older, newer], "int", 5, rule)
    assert [row["v"] for row in actual] == ["four" if descending else "five"] * 2


@settings(max_examples=100, deadline=None)
@given(runs(), st.integers(1, 5), st.booleans())
def test_partial_update_keeps_the_last_non_null_value(
    found: list[list[_Row]], size: int, removes: bool
) -> None:
    order = RunOrder(("k",))
    rule = MergeRule(
        MERGE_ENGINES["partial-update"],
        order,
        ignore_deletes=not removes,
        removes_on_delete=removes,
    )
    expected = {}
    for key, rows in by_key(found, order).items():
        if len(rows) == 1:
            _, _, kind, s, v = rows[0]
            expected[key] = (s, v, kind)
            continue
        state: list[Any] | None = None
        deleted, inserted = False, False
        for _, _, kind, s, v in rows:
            deleted = False
            if kind == DELETE:
                if state is None:
                    state = [s, v]
                if removes:
                    deleted, state = True, [s, v]
                continue
            if state is None:
                state = [None, None]
            state = [state[0] if s is None else s, state[1] if v is None else v]
            inserted = True
        assert state is not None
        expected[key] = (state[0], state[1], DELETE if deleted or not inserted else INSERT)
    result = {row["k"]: (row["s"], row["v"], row[KIND]) for row in merged(found, "int", size, rule)}
    assert result == expected


@settings(max_examples=100, deadline=None)
@given(runs(), st.integers(1, 5))
def test_first_row_keeps_the_first_row_of_a_key(found: list[list[_Row]], size: int) -> None:
    rule = MergeRule(MERGE_ENGINES["first-row"], RunOrder(("k",)))
    expected = {key: rows[0][1] for key, rows in by_key(found, rule.order).items()}
    assert {row["k"]: row[SEQUENCE] for row in merged(found, "int", size, rule)} == expected


AGGREGATES = [
    ("sum", "s", [1, None, 4], 5),
    ("max", "s", [1, None, 4], 4),
    ("min", "s", [1, None, 4], 1),
    ("product", "s", [3, None, 4], 12),
    ("first_value", "s", [None, 2, 3], None),
    ("first_non_null_value", "s", [None, 2, 3], 2),
    ("last_value", "s", [1, 2, None], None),
    ("last_non_null_value", "s", [1, 2, None], 2),
    ("listagg", "v", ["a", None, "b"], "a,b"),
]


@pytest.mark.parametrize(("function", "column", "values", "expected"), AGGREGATES)
def test_an_aggregate_folds_the_values_of_a_key(
    function: str, column: str, values: list[Any], expected: Any
) -> None:
    rule = MergeRule(
        MERGE_ENGINES["aggregation"], RunOrder(("k",)), functions={column: ColumnFunction(function)}
    )
    actual = [
        [(1, i, INSERT, value if column == "s" else None, value if column == "v" else None)]
        for i, value in enumerate(values)
    ]
    (row,) = merged(actual, "int", 10, rule)
    assert row[column] == expected


def test_error_for_an_impossible_retract_names_the_option() -> None:
    rule = MergeRule(
        MERGE_ENGINES["aggregation"], RunOrder(("k",)), functions={"s": ColumnFunction("max")}
    )
    found: list[list[_Row]] = [[(1, 0, INSERT, 1, None)], [(1, 1, DELETE, 1, None)]]
    with pytest.raises(JobError, match="max") as error:
        merged(found, "int", 10, rule)
    assert "fields.s.ignore-retract" in error.value.hint


def test_sequence_group_ignores_older_values() -> None:
    rule = MergeRule(
        MERGE_ENGINES["partial-update"], RunOrder(("k",)), groups=(SequenceGroup(("s",), ("v",)),)
    )
    found: list[list[_Row]] = [
        [(1, 0, INSERT, 2, "new")],
        [(1, 1, INSERT, 1, "old")],
        [(1, 2, INSERT, None, "no group")],
    ]
    (row,) = merged(found, "int", 10, rule)
    assert (row["s"], row["v"]) == (2, "new")
