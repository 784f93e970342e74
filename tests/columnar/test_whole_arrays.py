"""What Arrow's ORC writer makes of columns with STRUCTs, once they are rebuilt for it."""

from __future__ import annotations

import io
import random
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc

from paimon_magics.columnar.fields import whole_structs

PAIR = pa.struct([("x", pa.int32()), ("y", pa.string())])
TYPES = {
    "a struct": PAIR,
    "a struct in a struct": pa.struct([("s", PAIR), ("n", pa.int64())]),
    "a struct in two": pa.struct([("t", pa.struct([("s", PAIR)]))]),
    "structs in a list": pa.list_(PAIR),
    "a list in a struct": pa.struct([("l", pa.list_(pa.string())), ("s", PAIR)]),
    "structs in a list in a struct": pa.struct([("l", pa.list_(PAIR))]),
    "structs in a map": pa.map_(pa.string(), PAIR),
    "structs in a map in a struct": pa.struct([("m", pa.map_(pa.int32(), PAIR))]),
    "structs in lists of lists": pa.list_(pa.list_(pa.struct([("s", PAIR)]))),
}


def value(kind: pa.DataType, of: random.Random, nulls: tuple[bool, ...], level: int = 0) -> Any:
    """A value of a type; `nulls` says for each level whether it may be NULL there."""
    if nulls[min(level, len(nulls) - 1)] and of.random() < 0.3:
        return None
    if pa.types.is_struct(kind):
        return {field.name: value(field.type, of, nulls, level + 1) for field in kind}
    if pa.types.is_map(kind):
        return [
            (
                key if pa.types.is_integer(kind.key_type) else str(key),
                value(kind.item_type, of, nulls, level + 1),
            )
            for key in range(of.randrange(3))
        ]
    if pa.types.is_list(kind):
        return [value(kind.value_type, of, nulls, level + 1) for _ in range(of.randrange(3))]
    number = of.randrange(1000)
    return str(number) if pa.types.is_string(kind) else number


def through_orc(rows: pa.Table) -> pa.Table:
    file = io.BytesIO()
    with orc.ORCWriter(file) as writer:
        writer.write(rows)
    return orc.read_table(io.BytesIO(file.getvalue()))


@pytest.mark.parametrize("kind", TYPES.values(), ids=TYPES.keys())
@pytest.mark.parametrize("nulls", [(a, b, c) for a in (0, 1) for b in (0, 1) for c in (0, 1)])
def test_orc_file_of_a_slice_has_its_rows(kind: pa.DataType, nulls: tuple[bool, ...]) -> None:
    of = random.Random(f"{kind}{nulls}")
    values = [value(kind, of, nulls) for _ in range(200)]
    column = pa.chunked_array([pa.array(values[:80], kind), pa.array(values[80:], kind)])
    rows = pa.table({"c": column, "n": pa.array(range(200))})
    for begin, count in ((0, 200), (13, 50), (60, 101), (199, 1), (7, 0)):
        part = rows.slice(begin, count)
        whole = whole_structs(part)
        assert whole.equals(part)
        assert through_orc(whole).to_pylist() == part.to_pylist()


def test_columns_without_structs_are_not_copied() -> None:
    rows = pa.table({"a": pa.array([1, 2]), "l": pa.array([[1], None])}).slice(1)
    assert whole_structs(rows) is rows


def test_arrow_orc_writer_still_needs_the_copies() -> None:
    """When this fails, Arrow's writer has been mended, and the copies can go."""
    pairs = [None if number % 3 == 0 else {"x": number, "y": None} for number in range(9)]
    sliced = pa.table({"c": pa.array(pairs, PAIR)}).slice(4, 5)
    inner = pa.table({"c": pa.array([{"s": pair} for pair in pairs], pa.struct([("s", PAIR)]))})
    for rows in (sliced, inner):
        assert through_orc(rows).to_pylist() != rows.to_pylist()
