"""Rows in the midst of an Arrow table become a frame, NULLs in nested columns included."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from paimon_magics import Session
from paimon_magics.spark.rows import frame_of_rows
from tests.session.rows import rows

pytestmark = pytest.mark.spark

_VALUES: list[tuple[str, Any, pa.DataType]] = [
    ("l", [1, None], pa.list_(pa.int32())),
    ("m", [("a", 1)], pa.map_(pa.string(), pa.int32())),
    ("s", {"l": [1]}, pa.struct([("l", pa.list_(pa.int32()))])),
    ("d", [[1], None], pa.list_(pa.list_(pa.int32()))),
    ("ls", [{"l": [1]}, None], pa.list_(pa.struct([("l", pa.list_(pa.int32()))]))),
]


@pytest.mark.parametrize(("name", "value", "kind"), _VALUES, ids=lambda each: str(each))
def test_slice_of_nested_column_becomes_a_frame(
    spark: SparkSession, name: str, value: Any, kind: pa.DataType
) -> None:
    table = pa.table({"k": range(4), name: pa.array([value, None, value, None], type=kind)})
    for part in (table, table.slice(1), table.slice(1, 1), table.slice(2)):
        frame = frame_of_rows(spark, part)
        assert frame.toArrow().column(name).to_pylist() == part.column(name).to_pylist()


def test_row_with_null_array_is_found_by_its_key(session: Session) -> None:
    session.run(
        "CREATE TABLE t (k INT, l ARRAY<INT>, s STRUCT<l: ARRAY<INT>>, m MAP<STRING, INT>) "
        "TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1')"
    )
    session.run(
        "INSERT INTO t VALUES (1, array(1), struct(array(1)), map('a', 1)), (2, NULL, NULL, NULL), "
        "(3, NULL, struct(NULL), map())"
    )
    assert rows(session, "SELECT * FROM t WHERE k = 2") == [(2, None, None, None)]
    assert rows(session, "SELECT *, k + 1 FROM t WHERE k = 3") == [(3, None, {"l": None}, [], 4)]
