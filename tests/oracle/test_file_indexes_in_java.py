"""File indexes are those that Paimon's Java library writes, and it finds in them what is there."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paimon_magics.columnar.file_indexes.absent_values import (
    JUDGED_KINDS,
    has_none_of,
    wanted_values,
)
from paimon_magics.columnar.file_indexes.collection import IndexCollection, indexes_in, stored_name
from paimon_magics.planning.schemas.feature_rules import FILE_INDEXES
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.planning.writes.index_rules import file_indexes_of
from paimon_magics.statements.data_types import AtomicType
from tests.oracle.java_reader import pickled_values
from tests.sampling import examples

pytestmark = [pytest.mark.spark, pytest.mark.java]

Values = st.SearchStrategy[Any]


def whole(bits: int) -> Values:
    ends = st.sampled_from([-(2 ** (bits - 1)) + 1, -1, 0, 1, 2 ** (bits - 1) - 1])
    return st.one_of(
        st.integers(-9, 9), ends, st.integers(-(2 ** (bits - 1)) + 1, 2 ** (bits - 1) - 1)
    )


TIMES = st.one_of(
    st.datetimes(datetime.datetime(1969, 12, 31, 23), datetime.datetime(1970, 1, 1, 1)),
    st.datetimes(datetime.datetime(1, 1, 2), datetime.datetime(9999, 1, 1)),
)
TEXTS = st.one_of(
    st.sampled_from(["", "a", "b", "ab"]), st.text(st.characters(codec="utf-8"), max_size=120)
)
FLOATS = st.one_of(
    st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")]), st.floats(width=32)
)


def to_millis(value: datetime.datetime) -> datetime.datetime:
    return value.replace(microsecond=value.microsecond // 1000 * 1000)


TYPES: dict[str, tuple[AtomicType, pa.DataType, Values]] = {
    "BOOLEAN": (AtomicType("BOOLEAN"), pa.bool_(), st.booleans()),
    "TINYINT": (AtomicType("TINYINT"), pa.int8(), whole(8)),
    "SMALLINT": (AtomicType("SMALLINT"), pa.int16(), whole(16)),
    "INT": (AtomicType("INT"), pa.int32(), whole(32)),
    "BIGINT": (AtomicType("BIGINT"), pa.int64(), whole(64)),
    "FLOAT": (AtomicType("FLOAT"), pa.float32(), FLOATS),
    "DOUBLE": (AtomicType("DOUBLE"), pa.float64(), FLOATS),
    "DECIMAL(9, 2)": (
        AtomicType("DECIMAL", (9, 2)), pa.decimal128(9, 2),
        st.decimals(Decimal("-99999"), Decimal("99999"), places=2),
    ),
    "DECIMAL(30, 2)": (
        AtomicType("DECIMAL", (30, 2)), pa.decimal128(30, 2),
        st.decimals(Decimal("-99999999999999"), Decimal("99999999999999"), places=2),
    ),
    "STRING": (AtomicType("STRING"), pa.string(), TEXTS),
    "CHAR(5)": (AtomicType("CHAR", (5,)), pa.string(), st.text("abc", max_size=5)),
    "BYTES": (AtomicType("BYTES"), pa.binary(), st.binary(max_size=90)),
    "DATE": (AtomicType("DATE"), pa.date32(), st.dates()),
    "TIME(3)": (
        AtomicType("TIME", (3,)), pa.time32("ms"),
        st.times().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    ),
    "TIMESTAMP(3)": (AtomicType("TIMESTAMP", (3,)), pa.timestamp("ms"), TIMES.map(to_millis)),
    "TIMESTAMP(6)": (AtomicType("TIMESTAMP", (6,)), pa.timestamp("us"), TIMES),
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": (
        AtomicType("TIMESTAMP_LTZ", (6,)), pa.timestamp("us", "UTC"),
        TIMES.map(lambda t: t.replace(tzinfo=datetime.UTC)),
    ),
}  # fmt: skip
PAIRS = [
    (kind, name)
    for kind, each in FILE_INDEXES.items()
    for name, (data_type, _, _) in TYPES.items()
    if data_type.name in each and not (kind == "range-bitmap" and name == "DECIMAL(30, 2)")
]
OPTIONS = {
    "bloom-filter": st.fixed_dictionaries(
        {"items": st.sampled_from(["1", "20", "300"]), "fpp": st.sampled_from(["0.1", "0.001"])}
    ),
    "bitmap": st.fixed_dictionaries(
        {
            "version": st.sampled_from(["1", "2"]),
            "index-block-size": st.sampled_from(["1kb", "16kb"]),
        }
    ),
    "bsi": st.just({}),
    "range-bitmap": st.one_of(
        st.just({}), st.fixed_dictionaries({"chunk-size": st.sampled_from(["0b", "30b", "1kb"])})
    ),
}
_EXACT = ("bloom-filter", "bsi", "range-bitmap")  # Java's bitmaps lie in the order of a hash table


@pytest.fixture(scope="module")
def java(spark: Any) -> Any:
    thread = spark._jvm.java.lang.Thread.currentThread()
    compiler = spark._jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setSourceVersion(8)
    compiler.setTargetVersion(8)
    compiler.setParentClassLoader(thread.getContextClassLoader())
    compiler.cook(Path(__file__).with_name("FileIndexes.java").read_text())
    return (
        compiler.getClassLoader()
        .loadClass("FileIndexes")
        .getConstructors()[0]
        .newInstance(spark.sparkContext._gateway.new_array(spark._jvm.java.lang.Object, 0))
    )


def written(kind: str, name: str, options: dict[str, str], values: Sequence[Any]) -> bytes:
    data_type, arrow, _ = TYPES[name]
    given = {f"file-index.{kind}.columns": "c"}
    given |= {f"file-index.{kind}.c.{key}": value for key, value in options.items()}
    schema = TableSchema((Column(0, "c", data_type),), options=tuple(given.items()))
    collection = IndexCollection(file_indexes_of(schema).indexes)
    half = len(values) // 2
    for part in (values[:half], values[half:]):
        collection.add(pa.record_batch({"c": pa.array(part, arrow)}))
    return collection.finish() or b""


def order_of(name: str) -> Callable[[Any], Any]:
    """The key by which Java orders values."""
    if name in ("FLOAT", "DOUBLE"):
        return lambda v: (False, v, str(v)[0] != "-") if v == v else (True,)
    if name in ("STRING", "CHAR(5)"):
        return lambda v: v.encode()
    return lambda v: v


@st.composite
def cases(draw: st.DrawFn, kind: str, name: str) -> tuple[list[Any], list[Any], dict[str, str]]:
    """Values of a column, values to ask for, options."""
    strategy = TYPES[name][2]
    pool = draw(st.lists(strategy, min_size=1, max_size=40))
    some = st.sampled_from(pool)
    values = draw(st.lists(st.one_of(st.none(), some), max_size=120))
    literals = draw(st.lists(st.one_of(some, strategy), min_size=1, max_size=8))
    return values, literals, draw(OPTIONS[kind])


@pytest.mark.parametrize(("kind", "name"), PAIRS)
def test_java_finds_values_by_our_file_indexes(java: Any, kind: str, name: str) -> None:
    @settings(max_examples=examples(6), deadline=None, suppress_health_check=list(HealthCheck))
    @given(cases(kind, name))
    def finds(case: tuple[list[Any], list[Any], dict[str, str]]) -> None:
        arrow = TYPES[name][1]
        values, literals = (pa.array(part, arrow).to_pylist() for part in case[:2])
        values = [math.nan if value != value else value for value in values]  # of any bits
        stored = written(kind, name, case[2], values)
        if kind == "range-bitmap" and set(values) <= {None}:
            assert not stored  # Java's reader finds two rows of such a column
            return
        of_java = bytes(java.written(kind, name, case[2], pickled_values(values)))
        if kind in _EXACT:
            assert stored == of_java
        if kind in JUDGED_KINDS:
            _check_absent(kind, of_java, pa.array(literals, arrow), set(values))
        _check(java, kind, name, stored, values, literals)

    finds()


def _check_absent(kind: str, whole: bytes, literals: pa.Array, there: set[Any]) -> None:
    """An index that Java wrote tells of no value that it is absent but of those that are."""
    (place, length) = indexes_in(whole)[stored_name("c"), kind]
    for at, literal in enumerate(literals.to_pylist()):
        wanted = wanted_values(literals.slice(at, 1))
        if wanted is None:
            assert isinstance(literal, float)
            continue
        absent = has_none_of(kind, whole[place : place + length], wanted)
        assert not (absent and literal in there), literal
        if kind != "bloom-filter" and wanted.width is not None:
            assert absent == (literal not in there), literal


def _check(
    java: Any, kind: str, name: str, stored: bytes, values: Sequence[Any], literals: Sequence[Any]
) -> None:
    key = order_of(name)
    rows = [(row, key(value)) for row, value in enumerate(values) if value is not None]
    everything = {row for row, _ in rows}
    questions: list[tuple[str, list[Any], set[int]]] = [
        ("=", [literal], {row for row, value in rows if value == key(literal)})
        for literal in literals
    ]
    if kind != "bloom-filter":
        wanted = [key(literal) for literal in literals]
        inside = {row for row, value in rows if value in wanted}
        questions.append(("in", list(literals), inside))
        questions.append(("is not null", [], everything))
        questions.append(("is null", [], set(range(len(values))) - everything))
    if kind in ("bsi", "range-bitmap"):
        for literal in literals:
            bound = key(literal)
            questions += [
                ("<", [literal], {row for row, value in rows if value < bound}),
                ("<=", [literal], {row for row, value in rows if value <= bound}),
                (">", [literal], {row for row, value in rows if value > bound}),
                (">=", [literal], {row for row, value in rows if value >= bound}),
                ("<>", [literal], {row for row, value in rows if value != bound}),
            ]
    asked = pickled_values([(operator, each) for operator, each, _ in questions])
    for (operator, asked_for, expected), found in zip(
        questions, json.loads(java.found(stored, name, "c", asked)), strict=True
    ):
        if isinstance(found, bool):
            assert found or not expected, (operator, asked_for)
        else:
            assert set(found) == expected, (operator, asked_for)


def test_indexes_of_many_rows_match_java(java: Any) -> None:
    rng = np.random.default_rng(7)
    rows = 150_000  # containers of runs, of bits and of few rows, over three parts of the rows
    columns = {
        "sorted": np.sort(rng.integers(0, 300, rows)).tolist(),
        "few": [None if each == 3 else each for each in rng.integers(0, 4, rows).tolist()],
        "many": rng.integers(-(2**40), 2**40, rows).tolist(),
    }
    for name, values in columns.items():
        for kind in _EXACT:
            stored = written(kind, "BIGINT", {}, values)
            assert stored == bytes(java.written(kind, "BIGINT", {}, pickled_values(values)))
        stored = written("bitmap", "BIGINT", {}, values)
        assert len(stored) == len(java.written("bitmap", "BIGINT", {}, pickled_values(values)))
        if name != "many":
            _check(java, "bitmap", "BIGINT", stored, values, [0, 1, 299])
