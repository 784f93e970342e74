"""Maps of Parquet files whose keys may be NULL by their schema."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_magics.columnar.file_footers import file_of_footer, with_listed_maps, with_maps

INT_MAP = pa.map_(pa.string(), pa.int32())
CASES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "map": (INT_MAP, [[("a", 1), ("b", None)], None, []]),
    "in a list": (pa.list_(INT_MAP), [[[("a", 1)], None], None, []]),
    "in a struct": (pa.struct([("m", INT_MAP)]), [{"m": [("a", 1)]}, None, {"m": None}]),
    "in a map": (pa.map_(pa.int64(), INT_MAP), [[(1, [("a", 1)]), (2, None)], None]),
    "none": (pa.list_(pa.struct([("key", pa.int32())])), [[{"key": 1}, None], None]),
}


@pytest.mark.parametrize("case", CASES)
def test_lists_of_entries_become_maps(case: str) -> None:
    kind, values = CASES[case]
    stored = pa.table({"before": range(len(values)), "m": pa.array(values, kind)})
    content = io.BytesIO()
    pq.write_table(stored, content)
    body = content.getvalue()
    length = int.from_bytes(body[-8:-4], "little")
    footer = with_listed_maps(body[-8 - length : -8])
    metadata = pq.read_metadata(io.BytesIO(file_of_footer(footer)))
    listed = pq.ParquetFile(io.BytesIO(body), metadata=metadata)
    assert "map<" not in str(listed.schema_arrow)
    [batch] = listed.iter_batches()
    assert with_maps(batch)["m"].to_pylist() == values
    assert with_maps(batch.slice(1))["m"].to_pylist() == values[1:]
    assert [field.type.id for field in with_maps(batch).schema] == [
        field.type.id for field in stored.schema
    ]
