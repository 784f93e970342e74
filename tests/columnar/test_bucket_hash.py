"""The bucket of a row: bit for bit what Paimon's Java computes, for every type a key may have."""

from __future__ import annotations

import datetime
import itertools
import math
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from paimon_magics import Session
from paimon_magics.columnar.bucket_hash import (
    binary_row_hash,
    default_bucket,
    hive_bucket,
    mod_bucket,
)
from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.types.type_text import from_paimon
from paimon_magics.tables.schema.types import arrow_schema
from tests.oracle.java_reader import JavaPaimon

pytestmark = [pytest.mark.spark, pytest.mark.java]

BUCKETS = 97


def _moments(unit: str) -> list[datetime.datetime]:
    """Moments at and around the epoch, far from it, and with every digit of the unit."""
    found = [
        datetime.datetime(1970, 1, 1),
        datetime.datetime(1969, 12, 31, 23, 59, 59),
        datetime.datetime(1901, 2, 3, 4, 5, 6),
        datetime.datetime(1, 1, 1),
        datetime.datetime(9999, 12, 31, 23, 59, 59),
        datetime.datetime(2026, 11, 21, 12, 34, 56),
    ]
    part = {"s": 0, "ms": 789_000, "us": 789_123}[unit]
    return found + [moment.replace(microsecond=part) for moment in found]


def _zoned(moments: list[datetime.datetime]) -> list[datetime.datetime]:
    return [moment.replace(tzinfo=datetime.UTC) for moment in moments]


def _integers(bits: int) -> list[int]:
    top = 2 ** (bits - 1)
    return [0, 1, -1, 7, -7, top - 1, -top, top // 2, 42 % top]


def _decimals(precision: int, scale: int) -> list[Decimal]:
    """Zero, both ends, and powers of two: there Java's byte form changes its length."""
    unscaled = {0, 1, -1, 10**precision - 1, 1 - 10**precision}
    for bits in range(7, 126):
        unscaled |= {2**bits, 2**bits - 1, -(2**bits), -(2**bits) - 1}
    return [
        Decimal(f"{number}e-{scale}")  # as text: arithmetic would round to 28 digits
        for number in sorted(unscaled)
        if abs(number) < 10**precision
    ]


STRINGS = [
    "",
    "a",
    "1234567",
    "12345678",
    "123456789",
    "ä" * 4,
    "😀",
    "x\x00y",
    " " * 16,
    "z" * 100,
]
BYTES = [b"", b"\x00", b"\xff" * 7, b"\x80" * 8, b"abcdefghi", bytes(range(256))]

VALUES: dict[str, list[Any]] = {
    "BOOLEAN": [True, False],
    "TINYINT": _integers(8),
    "SMALLINT": _integers(16),
    "INT": _integers(32),
    "BIGINT": _integers(64),
    "FLOAT": [0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan, 1e-45],
    "DOUBLE": [0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan, 5e-324],
    "DECIMAL(1, 0)": [Decimal(0), Decimal(9), Decimal(-9)],
    "DECIMAL(9, 2)": _decimals(9, 2),
    "DECIMAL(18, 18)": _decimals(18, 18),
    "DECIMAL(19, 0)": _decimals(19, 0),
    "DECIMAL(38, 18)": _decimals(38, 18),
    "CHAR(9)": ["abc      ", "ä😀       ", " " * 9],
    "VARCHAR(200)": STRINGS,
    "STRING": STRINGS,
    "BINARY(3)": [b"abc", b"\x00\x00\x00", b"\xff\x80\x7f"],
    "BINARY(9)": [b"abcdefghi", b"\x00" * 9],
    "VARBINARY(300)": BYTES,
    "BYTES": BYTES,
    "DATE": [datetime.date(1970, 1, 1), datetime.date(1600, 2, 29), datetime.date(9999, 12, 31)],
    "TIME(0)": [datetime.time(0, 0), datetime.time(23, 59, 59)],
    "TIME(3)": [datetime.time(0, 0), datetime.time(23, 59, 59, 999_000)],
    "TIMESTAMP(0)": _moments("s"),
    "TIMESTAMP(3)": _moments("ms"),
    "TIMESTAMP(6)": _moments("us"),
    "TIMESTAMP(0) WITH LOCAL TIME ZONE": _zoned(_moments("s")),
    "TIMESTAMP(3) WITH LOCAL TIME ZONE": _zoned(_moments("ms")),
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": _zoned(_moments("us")),
}
TYPES = list(VALUES)


def create(session: Session, name: str, types: list[str], **options: str) -> pa.Schema:
    """A table with columns c0, c1, … of Paimon's types, and its Arrow schema."""
    columns = tuple(Column(i, f"c{i}", from_paimon(text)) for i, text in enumerate(types))
    stored = tuple((key.replace("_", "-"), value) for key, value in options.items())
    session.catalog.create_table(TableName(name, "default"), TableSchema(columns, options=stored))
    return arrow_schema(columns)


def rows_of_all_types(count: int, seed: int) -> list[tuple[Any, ...]]:
    """Rows over every type: NULLs among edge values, none alike in every run."""
    chosen = random.Random(seed)
    return [
        tuple(None if chosen.random() < 0.2 else chosen.choice(VALUES[text]) for text in TYPES)
        for _ in range(count)
    ]


def arrow(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [pa.array([row[i] for row in rows], type=field.type) for i, field in enumerate(schema)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def test_every_value_of_every_type_hashes_as_in_java(
    session: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    schema = create(session, "t", TYPES)
    longest = max(map(len, VALUES.values()))
    columns = [[*values, *[None] * (longest + 1 - len(values))] for values in VALUES.values()]
    rows = list(zip(*columns, strict=True))
    batch = arrow(rows, schema)
    for position, text in enumerate(TYPES):
        name = f"c{position}"
        java = java_paimon.hashes(warehouse, "default.t", [name], rows)
        ours = binary_row_hash([batch.column(name)]).tolist()
        differing = [
            (row[position], a, b) for row, a, b in zip(rows, ours, java, strict=True) if a != b
        ]
        assert not differing, (text, differing)


@pytest.mark.parametrize("width", [2, 3, 9, len(TYPES)])
def test_keys_of_several_columns_hash_as_in_java(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, width: int
) -> None:
    schema = create(session, "t", TYPES)
    rows = rows_of_all_types(300, seed=width)
    batch = arrow(rows, schema)
    chosen = random.Random(width)
    for _ in range(5):
        names = chosen.sample(schema.names, width)
        java = java_paimon.hashes(warehouse, "default.t", names, rows)
        assert binary_row_hash([batch.column(name) for name in names]).tolist() == java, names


def test_more_than_56_key_columns_hash_as_in_java(
    session: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    schema = create(session, "t", ["INT"] * 60)
    rows = [tuple(None if (i + r) % 3 == 0 else i * r for i in range(60)) for r in range(20)]
    batch = arrow(rows, schema)
    for width in (55, 56, 57, 60):
        names = schema.names[:width]
        java = java_paimon.hashes(warehouse, "default.t", names, rows)
        assert binary_row_hash([batch.column(name) for name in names]).tolist() == java


def test_slices_hash_as_their_rows_do() -> None:
    columns = [from_paimon(text) for text in TYPES]
    schema = arrow_schema([Column(i, f"c{i}", t) for i, t in enumerate(columns)])
    batch = arrow(rows_of_all_types(100, seed=0), schema)
    whole = binary_row_hash(batch.columns)
    for start, length in [(0, 0), (1, 1), (7, 50), (63, 37), (99, 1)]:
        part = batch.slice(start, length)
        assert binary_row_hash(part.columns).tolist() == whole[start : start + length].tolist()


def test_no_rows_have_no_buckets() -> None:
    assert default_bucket([pa.array([], pa.int64())], 4).tolist() == []


# pypaimon reserves no space for these NULLs, and drops a byte of Decimals such as -128.
PYPAIMON_DIFFERS = ("DECIMAL(19", "DECIMAL(38", "TIMESTAMP(6)")


@pytest.mark.parametrize("text", TYPES)
def test_buckets_match_pypaimon_where_it_is_correct(session: Session, text: str) -> None:
    from pypaimon.write.row_key_extractor import FixedBucketRowKeyExtractor

    schema = create(session, "t", [text], bucket=str(BUCKETS), **{"bucket-key": "c0"})
    values = VALUES[text]
    if not text.startswith(PYPAIMON_DIFFERS):
        values = [*values, None]
    if text.startswith(PYPAIMON_DIFFERS[:2]):
        values = [value for value in values if not _is_negative_power_of_two(value)]
    batch = arrow([(value,) for value in values], schema)
    table = session.catalog.load(TableName("t", "default"))
    extractor = FixedBucketRowKeyExtractor(table.paimon.table_schema)
    _, theirs = extractor.extract_partition_bucket_batch(batch)
    assert default_bucket(batch.columns, BUCKETS).tolist() == list(theirs)


def _is_negative_power_of_two(value: Decimal) -> bool:
    sign, digits, _ = value.as_tuple()
    unscaled = int("".join(map(str, digits)))
    return bool(sign) and unscaled & (unscaled - 1) == 0


@pytest.mark.parametrize("text", ["INT", "BIGINT"])
@pytest.mark.parametrize("buckets", [1, 2, 5, 97])
def test_mod_function_matches_java(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, text: str, buckets: int
) -> None:
    options = {"bucket-key": "c0", "bucket-function.type": "mod"}
    schema = create(session, "t", [text], bucket=str(buckets), **options)
    rows = [(value,) for value in [*VALUES[text], None, 2**31 - 2]]
    if text == "BIGINT":
        rows.append((2**53 + 1,))
    batch = arrow(rows, schema)
    java = java_paimon.buckets(warehouse, "default.t", rows)
    assert mod_bucket(batch.column(0), buckets).tolist() == java


HIVE_TYPES = [text for text in TYPES if not text.startswith(("DECIMAL", "TIMESTAMP"))]


@pytest.mark.parametrize("text", HIVE_TYPES)
def test_hive_function_matches_java(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, text: str
) -> None:
    options = {"bucket-key": "c0,c1", "bucket-function.type": "hive"}
    schema = create(session, "t", [text, "BIGINT"], bucket=str(BUCKETS), **options)
    numbers = itertools.cycle([0, -1, None, 2**40 + 7])
    rows = list(zip([*VALUES[text], None], numbers, strict=False))
    java = java_paimon.buckets(warehouse, "default.t", rows)
    assert hive_bucket(arrow(rows, schema).columns, BUCKETS).tolist() == java


@pytest.mark.parametrize(
    ("name", "key", "options"),
    [
        ("append_hive", "c1,c3", {"bucket-key": "c1,c3", "bucket-function.type": "hive"}),
        ("append", "c3", {"bucket-key": "c3"}),
        ("append_of_two", "c6,c3", {"bucket-key": "c6,c3"}),
        ("append_mod", "c3", {"bucket-key": "c3", "bucket-function.type": "mod"}),
    ],
)
def test_written_rows_lie_in_the_buckets_computed_by_java(
    session: Session,
    java_paimon: JavaPaimon,
    warehouse: Path,
    name: str,
    key: str,
    options: dict[str, str],
) -> None:
    types = ["INT", "STRING", "DOUBLE", "BIGINT", "DATE", "BOOLEAN", "DECIMAL(20, 2)"]
    create(session, name, types, bucket="7", **options)
    session.run(
        f"INSERT INTO {name} SELECT id, 'v' || id, id / 3, id * 7919 - 100000, NULL, id % 2 = 0, "
        "IF(id % 10 = 0, NULL, id - 200) FROM range(0, 400, 1, 3)"
    )
    table = session.catalog.load(TableName(name, "default")).paimon
    builder = table.new_read_builder()
    seen = 0
    for split in builder.new_scan().plan().splits():
        stored = builder.new_read().to_arrow([split]).to_pylist()
        rows = [tuple(row.values()) for row in stored]
        assert set(java_paimon.buckets(warehouse, f"default.{name}", rows)) == {split.bucket}
        seen += len(rows)
    assert seen == 400


@pytest.mark.parametrize("function", ["mod", "hive"])
def test_postponed_rows_go_into_the_buckets_of_the_function(
    session: Session, function: str
) -> None:
    """They went into those of `default`, where other engines do not look for them."""
    session.run(
        "CREATE TABLE p (k INT NOT NULL, v STRING) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = "
        f"'-2', 'bucket-function.type' = '{function}', 'postpone.default-bucket-num' = '3')"
    )
    session.run("INSERT INTO p SELECT CAST(id AS INT), 'a' FROM range(0, 30)")
    session.run("CALL sys.compact('p')")
    session.run("INSERT INTO p SELECT CAST(id AS INT), 'b' FROM range(20, 40)")
    session.run("CALL sys.compact('p')")
    builder = session.catalog.load(TableName("p", "default")).paimon.new_read_builder()
    seen = []
    for split in builder.new_scan().plan().splits():
        keys = builder.new_read().to_arrow([split]).column("k").to_pylist()
        assert {key % 3 for key in keys} == {split.bucket}
        seen += keys
    assert sorted(seen) == list(range(40))


def test_decimal_key_of_hives_function_is_refused(session: Session) -> None:
    session.run(
        "CREATE TABLE d (k DECIMAL(5, 2)) TBLPROPERTIES ('bucket' = '2', 'bucket-key' = 'k', "
        "'bucket-function.type' = 'hive')"
    )
    with pytest.raises(UnsupportedStatementError, match="'hive' and the bucket key `k`"):
        session.run("INSERT INTO d VALUES (1.5)")


def test_strings_hash_alike_at_every_alignment() -> None:
    """Four shapes of strings at every alignment, against a hash computed row by row."""
    shapes = ["", "short", "exactly8", "longer than eight bytes"]
    values = [a + b for a, b in itertools.product(shapes, shapes)] * 50
    together = binary_row_hash([pa.array(values)])
    alone = [binary_row_hash([pa.array([value])])[0] for value in values[:16]]
    assert np.array_equal(together, np.array(alone * 50, dtype=np.int32))
