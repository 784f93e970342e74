"""Which file indexes a table's options ask for."""

from __future__ import annotations

import pytest

from paimon_magics.errors import InvalidTableError
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.planning.writes.index_rules import (
    Bitmap,
    BitSlices,
    BloomFilter,
    FileIndex,
    RangeBitmap,
    file_indexes_of,
)
from paimon_magics.statements.data_types import AtomicType, MapType

STRING = AtomicType("STRING")
COLUMNS = (
    Column(0, "k", AtomicType("INT")),
    Column(1, "v", STRING),
    Column(2, "flag", AtomicType("BOOLEAN")),
    Column(3, "m", MapType(STRING, AtomicType("BIGINT"))),
    Column(4, "d", AtomicType("DECIMAL", (20, 2))),
)


def indexes(**options: str) -> tuple[FileIndex, ...]:
    stored = tuple((f"file-index.{key}", value) for key, value in options.items())
    return file_indexes_of(TableSchema(COLUMNS, options=stored)).indexes


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ()),
        ({"bloom-filter.columns": "v"}, (("v", BloomFilter(1_000_000, 0.1)),)),
        (
            {
                "bloom-filter.v.fpp": "0.01",
                "bloom-filter.columns": "v, k",
                "bloom-filter.k.items": "10",
            },
            (("v", BloomFilter(1_000_000, 0.01)), ("k", BloomFilter(10, 0.1))),
        ),
        ({"bitmap.columns": "v"}, (("v", Bitmap(2, 16384)),)),
        (
            {"bitmap.columns": "v", "bitmap.v.version": "1", "bitmap.v.index-block-size": "1 kb"},
            (("v", Bitmap(1, 1024)),),
        ),
        ({"bsi.columns": "k,d"}, (("k", BitSlices()), ("d", BitSlices()))),
        (
            {"range-bitmap.columns": "flag,k", "range-bitmap.k.chunk-size": "1kb"},
            (("flag", RangeBitmap(0)), ("k", RangeBitmap(1024))),
        ),
        (
            {
                "bloom-filter.columns": "m[a], m[b]",
                "bloom-filter.m.items": "7",
                "bloom-filter.m[b].items": "8",
            },
            (("m[a]", BloomFilter(7, 0.1)), ("m[b]", BloomFilter(8, 0.1))),
        ),
    ],
)
def test_options_determine_the_file_indexes(
    options: dict[str, str], expected: tuple[tuple[str, object], ...]
) -> None:
    actual = indexes(**options)
    assert tuple((index.name, index.rules) for index in actual) == expected


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"bloom-filter.columns": "v", "bloom-filter.v.fpp": "1"}, "bloom-filter.v.fpp"),
        ({"bloom-filter.columns": "v", "bloom-filter.v.items": "0"}, "bloom-filter.v.items"),
        ({"bloom-filter.columns": "v", "bloom-filter.v.items": str(2**31)}, "256 MiB"),
        ({"bitmap.columns": "v", "bitmap.v.version": "3"}, "bitmap.v.version"),
        ({"range-bitmap.columns": "k", "range-bitmap.k.chunk-size": "x"}, "chunk-size"),
        ({"in-manifest-threshold": "few"}, "in-manifest-threshold"),
        ({"bloom-filter.columns": "flag"}, "`flag`"),
        ({"bsi.columns": "v"}, "`v`"),
        ({"range-bitmap.columns": "d"}, "precision above 18"),
        ({"bitmap.columns": "m"}, "`m`"),
        ({"mine.columns": "v"}, "'file-index.mine.columns'"),
        ({"bsi.columns": "gone"}, "'file-index.bsi.columns'"),
    ],
)
def test_invalid_index_options_are_refused(options: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidTableError) as caught:
        indexes(**options)
    assert told in caught.value.message and caught.value.hint


def test_threshold_decides_where_an_index_is_stored() -> None:
    schema = TableSchema(COLUMNS, options=(("file-index.in-manifest-threshold", "1 kb"),))
    assert file_indexes_of(schema).in_manifest_max_bytes == 1024
    assert file_indexes_of(TableSchema(COLUMNS)).in_manifest_max_bytes == 500
