"""File indexes tell which values are surely absent, and never of one that is there."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from paimon_magics.columnar.file_indexes.absent_values import has_none_of, wanted_values
from paimon_magics.columnar.file_indexes.collection import (
    HEAD_START_BYTES,
    IndexCollection,
    head_bytes,
    indexes_in,
    stored_name,
)
from paimon_magics.planning.writes.index_rules import (
    Bitmap,
    BitSlices,
    BloomFilter,
    FileIndex,
    RangeBitmap,
)

DAY = datetime.date(1969, 12, 30)
VALUES: dict[pa.DataType, list[Any]] = {
    pa.int8(): [*range(-128, 128, 2)],
    pa.int16(): [*range(-900, 900, 6)],
    pa.int32(): [*range(-1000, 1000, 2)],
    pa.int64(): [each * 2**33 for each in range(-500, 500, 2)],
    pa.string(): [f"ä{each}" for each in range(0, 1000, 2)] + [""],
    pa.date32(): [DAY + datetime.timedelta(each) for each in range(0, 900, 2)],
    pa.decimal128(9, 2): [Decimal(each) / 4 for each in range(-300, 300, 2)],
}
ABSENT: dict[pa.DataType, list[Any]] = {
    pa.int8(): [-127, 1, 127],
    pa.int16(): [-899, 1, 32767],
    pa.int32(): [1, 2**31 - 1, 256 * 3 + 1],
    pa.int64(): [1, 2**33 + 1, -(2**40) - 1],
    pa.string(): ["ä", "ä1", "0", "x"],
    pa.date32(): [DAY + datetime.timedelta(1), datetime.date(2026, 1, 1)],
    pa.decimal128(9, 2): [Decimal("0.25"), Decimal("99999.99")],
}
RULES = {
    "bitmap of one list": Bitmap(1, 0),
    "bitmap": Bitmap(2, 16384),
    "bitmap of many blocks": Bitmap(2, 64),
    "bloom-filter": BloomFilter(2000, 0.001),
    "range bitmap": RangeBitmap(16384),
    "range bitmap of many chunks": RangeBitmap(30),
    "range bitmap of single values": RangeBitmap(0),
    "bit slices": BitSlices(),
}
KINDS: dict[type, str] = {
    BloomFilter: "bloom-filter", RangeBitmap: "range-bitmap", BitSlices: "bsi", Bitmap: "bitmap",
}  # fmt: skip


def body_of(rules: Any, values: pa.Array) -> tuple[str, bytes]:
    kind = KINDS[type(rules)]
    collection = IndexCollection([FileIndex("ä\0c", None, kind, rules)])
    collection.add(pa.record_batch({"ä\0c": values}))
    whole = collection.finish() or b""
    head = head_bytes(whole[:HEAD_START_BYTES])
    assert head is not None
    ((name, stored_kind), (place, length)), *others = indexes_in(whole[:head]).items()
    assert (name, stored_kind, others) == (stored_name("ä\0c"), kind, [])
    return kind, whole[place : place + length]


@pytest.mark.parametrize("nulls", [0, 1, 3])
@pytest.mark.parametrize("data_type", VALUES, ids=str)
@pytest.mark.parametrize("name", RULES)
def test_index_reports_only_absent_values_as_absent(
    name: str, data_type: pa.DataType, nulls: int
) -> None:
    if name == "bloom-filter" and pa.types.is_decimal(data_type):
        return  # has no such index
    if name == "bit slices" and pa.types.is_string(data_type):
        return  # neither
    there = VALUES[data_type]
    kind, body = body_of(RULES[name], pa.array([*there, *[None] * nulls, *there[:7]], data_type))

    def none_of(values: list[Any]) -> bool:
        wanted = wanted_values(pa.array(values, data_type))
        assert wanted is not None
        return has_none_of(kind, body, wanted)

    assert not any(none_of([each]) for each in there)
    assert none_of(ABSENT[data_type])
    assert not none_of([*ABSENT[data_type], there[5]])


def test_undecidable_index_excludes_nothing() -> None:
    wanted = wanted_values(pa.array([5], pa.int32()))
    assert wanted is not None
    kind, body = body_of(Bitmap(2, 16384), pa.array([], pa.int32()))
    assert has_none_of(kind, body, wanted)
    kind, body = body_of(Bitmap(2, 16384), pa.array([None], pa.int32()))
    assert has_none_of(kind, body, wanted)
    assert not has_none_of("bitmap", b"\x09" + body[1:], wanted)  # another version
    assert not has_none_of("range-bitmap", body, wanted)
    for kind in ("bloom-filter", "range-bitmap", "bsi"):
        assert not has_none_of(kind, b"", wanted)
    for rules in (RangeBitmap(64), BitSlices()):
        kind, body = body_of(rules, pa.array([*range(0, 40, 2)], pa.int32()))
        assert has_none_of(kind, body, wanted)
        assert not has_none_of(kind, body[: len(body) // 2], wanted) or kind == "range-bitmap"
        assert not has_none_of(kind, body.replace(b"\x01", b"\x02"), wanted)
    assert wanted_values(pa.array([Decimal(10**25)], pa.decimal128(30, 0))) is None
    bsi = FileIndex("c", None, "bsi", BitSlices())
    collection = IndexCollection([bsi])
    collection.add(pa.record_batch({"c": pa.array([1])}))
    assert [kind for _, kind in indexes_in(collection.finish() or b"")] == ["bsi"]


def test_invalid_or_damaged_index_files_are_detected() -> None:
    assert head_bytes(b"PAR1") is None and head_bytes(b"\0" * 16) is None
    whole = IndexCollection([FileIndex("c", None, "bitmap", Bitmap(2, 64))])
    whole.add(pa.record_batch({"c": pa.array([1], pa.int32())}))
    with pytest.raises(ValueError, match="damaged"):
        indexes_in((whole.finish() or b"")[:22])
