"""Rows are clustered by the keys that Paimon's Java library computes."""

from __future__ import annotations

import datetime
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paimon_magics.columnar.binary_rows import encode_values
from paimon_magics.columnar.clustering import hilbert_keys, z_order_keys

pytestmark = [pytest.mark.spark, pytest.mark.java]

_HILBERT_BYTES = 63
_TIMES = st.datetimes(datetime.datetime(1, 1, 2), datetime.datetime(9999, 1, 1))
TYPES: list[tuple[str, pa.DataType, st.SearchStrategy[Any]]] = [
    ("BOOLEAN", pa.bool_(), st.booleans()),
    ("TINYINT", pa.int8(), st.integers(-128, 127)),
    ("SMALLINT", pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    ("INT", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    ("BIGINT", pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    ("FLOAT", pa.float32(), st.floats(width=32)),
    ("DOUBLE", pa.float64(), st.floats()),
    ("DECIMAL(9, 2)", pa.decimal128(9, 2), st.decimals(-99999, 99999, places=2)),
    (
        "DECIMAL(30, 2)",
        pa.decimal128(30, 2),
        st.decimals(Decimal(-(10**27)), Decimal(10**27), places=2),
    ),
    ("STRING", pa.string(), st.text(max_size=14)),
    ("BYTES", pa.binary(), st.binary(max_size=14)),
    ("DATE", pa.date32(), st.dates()),
    ("TIMESTAMP(3)", pa.timestamp("ms"), _TIMES),
    ("TIMESTAMP(6)", pa.timestamp("us"), _TIMES),
]


@pytest.fixture(scope="module")
def java(spark: Any) -> Any:
    thread = spark._jvm.java.lang.Thread.currentThread()
    compiler = spark._jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setSourceVersion(8)
    compiler.setTargetVersion(8)
    compiler.setParentClassLoader(thread.getContextClassLoader())
    compiler.cook(Path(__file__).with_name("Clustering.java").read_text())
    return (
        compiler.getClassLoader()
        .loadClass("Clustering")
        .getConstructors()[0]
        .newInstance(spark.sparkContext._gateway.new_array(spark._jvm.java.lang.Object, 0))
    )


@st.composite
def tables(draw: st.DrawFn, columns_min: int, columns_max: int) -> tuple[list[str], pa.Table]:
    chosen = draw(
        st.lists(st.sampled_from(TYPES), min_size=columns_min, max_size=columns_max), label="types"
    )
    rows = draw(st.integers(1, 12))
    columns = [
        pa.array(
            draw(st.lists(st.one_of(st.none(), each[2]), min_size=rows, max_size=rows)),
            each[1],
            safe=False,  # timestamps are cut to milliseconds
        )
        for each in chosen
    ]
    names = [str(number) for number in range(len(columns))]
    return [each[0] for each in chosen], pa.table(columns, names=names)


def stored_rows(table: pa.Table) -> bytes:
    """The rows as Java takes them."""
    types = table.schema.types
    columns = [column.to_pylist() for column in table.columns]
    rows = [encode_values(row, types) for row in zip(*columns, strict=True)]
    return pickle.dumps(rows, protocol=3)


def arrays(table: pa.Table) -> list[pa.Array]:
    return [column.combine_chunks() for column in table.columns]


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(given_table=tables(1, 11), length=st.sampled_from([1, 4, 8, 11]))
def test_z_order_keys_match_java(
    java: Any, given_table: tuple[list[str], pa.Table], length: int
) -> None:
    types, table = given_table
    keys = z_order_keys(arrays(table), var_length_bytes=length)
    assert b"".join(keys.to_pylist()) == bytes(java.zKeys(types, length, stored_rows(table)))


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(given_table=tables(2, 7))
def test_hilbert_keys_match_java(java: Any, given_table: tuple[list[str], pa.Table]) -> None:
    types, table = given_table
    keys = hilbert_keys(arrays(table)).to_pylist()
    numbers = [int.from_bytes(key) >> len(types) for key in keys]  # where Java's end
    assert b"".join(number.to_bytes(_HILBERT_BYTES) for number in numbers) == bytes(
        java.hilbertKeys(types, stored_rows(table))
    )
