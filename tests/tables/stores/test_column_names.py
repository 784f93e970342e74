"""The columns that a data file names itself."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq

from paimon_magics.tables.stores.file_formats import column_names

ROWS = pa.table({"k": [1], "Name": ["a"], "nested": [{"inner": 1}]})


def test_columns_of_parquet_and_orc_files_are_named() -> None:
    for name, write in (("a.parquet", pq.write_table), ("a.orc", orc.write_table)):
        file = io.BytesIO()
        write(ROWS, file)
        file.seek(0)
        assert column_names(name, file) == ["k", "Name", "nested"]


def test_formats_without_a_footer_name_no_columns() -> None:
    assert column_names("a.avro", io.BytesIO(b"Obj")) is None
