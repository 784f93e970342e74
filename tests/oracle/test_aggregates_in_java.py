"""Aggregates of serialised and nested values: stored rows are merged as by Java."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasketches
import pytest
from pyroaring import BitMap

from paimon_magics import Session
from paimon_magics.columnar.roaring import long_bitmap, numbers_of
from paimon_magics.errors import JobError
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.reading.data_read import ReadRequest, plan_data_read
from tests.oracle.java_reader import JavaPaimon

pytestmark = [pytest.mark.spark, pytest.mark.java]


def theta(*numbers: int) -> bytes:
    sketch = datasketches.update_theta_sketch()
    for number in numbers:
        sketch.update(number)
    return bytes(sketch.compact().serialize())


def hll(*numbers: int, bits: int = 12) -> bytes:
    sketch = datasketches.hll_sketch(bits)
    for number in numbers:
        sketch.update(number)
    return bytes(sketch.serialize_compact())


def bitmap(*numbers: int) -> bytes:
    return bytes(BitMap(numbers).serialize())


MANY = range(20_000)  # more than a sketch can distinguish
# Bitmaps whose trees have nodes of each size.
LONGS = [
    long_bitmap([1, 2**16, 2**40, *range(2**50, 2**50 + 12 * 2**16, 2**16)]),
    long_bitmap([-1, 70_000, *(n << 40 for n in range(30))]),
    long_bitmap([n << 24 | n for n in range(250)]),
]
# function → type, options of the column, and each commit's values of the keys 1, 2, 3 and 4.
FUNCTIONS: dict[str, tuple[str, str, list[list[Any]]]] = {
    "theta_sketch": (
        "BYTES",
        "",
        [
            [theta(1), theta(), None, theta(*MANY)],
            [theta(1), theta(3), theta(1, 2), theta(*MANY[10_000:], -1, -2)],
            [theta(2, 3), None, theta(3, 4), theta(-3)],
        ],
    ),
    "hll_sketch": (
        "BYTES",
        "",
        [
            [hll(1), hll(), None, hll(*MANY)],
            [hll(1), hll(3), hll(*range(50)), hll(*MANY[10_000:], -1)],
            [hll(2), None, hll(*range(40, 300)), hll(-3)],
        ],
    ),
    "rbm32": (
        "BYTES",
        "",
        [
            [bitmap(1), bitmap(), None, bitmap(*MANY)],
            [bitmap(1, 70_000), bitmap(3), bitmap(5), bitmap(*MANY[9_000:], 2**32 - 1)],
            [bitmap(2), None, bitmap(6), bitmap(5)],
        ],
    ),
    "rbm64": (
        "BYTES",
        "",
        [
            [LONGS[0], long_bitmap(()), None, long_bitmap(MANY)],
            [LONGS[1], LONGS[2], LONGS[0], long_bitmap([n << 13 for n in MANY[::9]])],
            [LONGS[2], None, long_bitmap([5]), long_bitmap([-1, -(2**63), 2**40])],
        ],
    ),
    "merge_map_with_keytime": (
        "MAP<INT, STRUCT<x: INT, at: STRING>>",
        "",
        [
            [[(1, {"x": 1, "at": "b"})], [(1, {"x": 1, "at": None})], None, [(1, None)]],
            [[(1, {"x": 2, "at": "a"}), (2, {"x": 5, "at": "z"})], [(1, {"x": 2, "at": "a"})],
             [(1, {"x": 9, "at": "x"})], [(1, {"x": 3, "at": "c"}), (2, {"x": 3, "at": None})]],
            [[(1, {"x": 3, "at": "b"}), (2, None)], [(1, {"x": 3, "at": None})], None,
             [(1, {"x": 4, "at": "d"})]],
        ],
    ),
    "nested_partial_update": (
        "ARRAY<STRUCT<x: INT, y: STRING, z: INT>>",
        "'{}.nested-key' = 'x'",
        [
            [[{"x": 1, "y": "a", "z": None}], None, [{"x": None, "y": "n", "z": None}], []],
            [[{"x": 1, "y": None, "z": 2}, {"x": 2, "y": "b", "z": 1}], [{"x": 1, "y": "a", "z": 1},
              {"x": 1, "y": "b", "z": None}], [{"x": None, "y": None, "z": 7}], None],
            [[{"x": 1, "y": "c", "z": None}], None, None, [{"x": 5, "y": None, "z": None}]],
        ],
    ),
}  # fmt: skip


def unordered(value: Any) -> Any:
    """A value without the order of maps and nested tables, which in Java is that of hash maps."""
    return sorted(map(repr, value)) if isinstance(value, list) else value


def comparable(name: str, value: Any) -> Any:
    if value is not None and name in ("rbm32", "rbm64"):
        return set(BitMap.deserialize(value)) if name == "rbm32" else numbers_of(value)
    return unordered(value)


def test_stored_rows_are_aggregated_as_in_java(
    session: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    columns = ", ".join(f"{name} {text}" for name, (text, *_) in FUNCTIONS.items())
    options = ", ".join(
        f"'fields.{name}.aggregate-function' = '{name}'"
        + (f", {each.format(f'fields.{name}')}" if each else "")
        for name, (_, each, _) in FUNCTIONS.items()
    )
    session.run(
        f"CREATE TABLE sums (k INT NOT NULL, {columns}) TBLPROPERTIES ('primary-key' = 'k', "
        f"'bucket' = '1', 'write-only' = 'true', 'merge-engine' = 'aggregation', {options})"
    )
    commits = zip(*(commits for *_, commits in FUNCTIONS.values()), strict=True)
    for values in commits:
        rows = list(zip((1, 2, 3, 4), *values, strict=True))
        java_paimon.write(warehouse, "default.sums", rows)
    read = plan_data_read(
        Catalog.open({"warehouse": str(warehouse)}).load(TableName("sums", "default")),
        ReadRequest(),
    )
    actual = sorted(tuple(row.values()) for batch in read.rows() for row in batch.to_pylist())
    expected = sorted(java_paimon.rows(warehouse, "default.sums"))
    for ours, theirs in zip(actual, expected, strict=True):
        for name, item, other in zip(["k", *FUNCTIONS], ours, theirs, strict=True):
            assert comparable(name, item) == comparable(name, other), (ours[0], name)


@pytest.mark.parametrize("name", ["theta_sketch", "hll_sketch", "rbm32", "rbm64"])
def test_error_for_an_invalid_sketch_names_its_column(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, name: str
) -> None:
    session.run(
        f"CREATE TABLE sums (k INT NOT NULL, v BYTES) TBLPROPERTIES ('primary-key' = 'k', "
        f"'bucket' = '1', 'write-only' = 'true', 'merge-engine' = 'aggregation', "
        f"'fields.v.aggregate-function' = '{name}')"
    )
    for value in (b"", b"no sketch"):
        java_paimon.write(warehouse, "default.sums", [(1, value)])
    with pytest.raises(JobError, match=rf"`v`.*{name}"):
        session.run("SELECT * FROM sums").to_arrow()


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        ("'changelog-producer' = 'lookup'", "+U"),
        ("'force-lookup' = 'true'", "+I"),
        ("'deletion-vectors.enabled' = 'true', 'deletion-vectors.merge-on-read' = 'true'", "+I"),
    ],
)
def test_rows_merged_by_lookup_compactions_are_not_merged_again(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, options: str, kinds: str
) -> None:
    # The first commit's file goes to the top level. The next ones are merged into level 4 together
    # with its rows, which stay there until everything is compacted.
    for engine in ("aggregation", "partial-update"):
        name = engine.replace("-", "_")
        group = "'fields.s.sequence-group' = 'n,l', " if engine == "partial-update" else ""
        session.run(
            f"CREATE TABLE {name} (k INT NOT NULL, s INT, n INT, l ARRAY<INT>) TBLPROPERTIES "
            f"('primary-key' = 'k', 'bucket' = '1', 'merge-engine' = '{engine}', {group}{options}, "
            "'fields.n.aggregate-function' = 'sum', 'fields.l.aggregate-function' = 'collect')"
        )
        for number in range(1, 4):
            rows = [(k, number, number * k, [k, number]) for k in range(number, 4)]
            java_paimon.write(warehouse, f"default.{name}", rows, kinds=[kinds] * len(rows))
        for view in ("", "$audit_log"):
            actual = session.run(f"SELECT * FROM {name}{view}").to_arrow().to_pylist()
            theirs = java_paimon.rows(warehouse, f"default.{name}{view}")
            assert sorted(repr(tuple(row.values())) for row in actual) == sorted(map(repr, theirs))
        levels = session.run(f"SELECT DISTINCT level FROM {name}$files WHERE level > 0")
        assert len(levels.to_arrow()) > 1


_BY_AGE = ("first_value", "first_non_null_value", "first_not_null_value", "last_value")
_BY_AGE += ("last_non_null_value", "listagg", "sum", "max")


def test_older_rows_of_a_sequence_group_are_folded_in_as_in_java(
    session: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    columns = ", ".join(
        f"s{n} INT, v{n} {'STRING' if name == 'listagg' else 'INT'}"
        for n, name in enumerate(_BY_AGE)
    )
    options = ", ".join(
        f"'fields.s{n}.sequence-group' = 'v{n}', 'fields.v{n}.aggregate-function' = '{name}'"
        for n, name in enumerate(_BY_AGE)
    )
    session.run(
        f"CREATE TABLE aged (k INT NOT NULL, {columns}) TBLPROPERTIES ('primary-key' = 'k', "
        f"'bucket' = '1', 'write-only' = 'true', 'merge-engine' = 'partial-update', {options})"
    )
    # Each key has its own order of ages and NULLs, over three commits.
    ages = [(5, 3, 4), (5, 3, 2), (1, 2, 3), (3, 5, 4), (5, 5, 1), (2, 1, 3)]
    values = [(1, None, 2), (None, 1, 2), (1, 2, None), (None, None, 3), (1, None, None)]
    keys = [(age, value) for age in ages for value in values]
    for commit in range(3):
        rows = []
        for k, (age, value) in enumerate(keys):
            row: list[Any] = [k]
            for name in _BY_AGE:
                cell: Any = value[commit]
                row += [age[commit], str(cell) if name == "listagg" and cell else cell]
            rows.append(tuple(row))
        java_paimon.write(warehouse, "default.aged", rows)
    actual = session.run("SELECT * FROM aged ORDER BY k").to_arrow().to_pylist()
    expected = sorted(java_paimon.rows(warehouse, "default.aged"))
    wrong = [
        (keys[k], name, ours[f"v{n}"], theirs[2 + 2 * n])
        for k, (ours, theirs) in enumerate(zip(actual, expected, strict=True))
        for n, name in enumerate(_BY_AGE)
        if ours[f"v{n}"] != theirs[2 + 2 * n]
    ]
    assert wrong == []
