"""What is read from footers of ORC files, by compression."""

from __future__ import annotations

import datetime
import io

import pyarrow as pa
import pytest
from pyarrow import orc

from paimon_magics.columnar.file_footers import orc_times


@pytest.mark.parametrize("codec", ["uncompressed", "zlib", "snappy", "lz4", "zstd"])
def test_times_are_read_from_a_footer_of_any_compression(codec: str) -> None:
    moments = [datetime.datetime(2024, 1, 1) + datetime.timedelta(hours=n) for n in range(500)]
    rows = pa.table({f"column_{n}": pa.array(moments, pa.timestamp("us")) for n in range(50)})
    content = io.BytesIO()
    orc.write_table(rows, content, compression=codec)
    body = content.getvalue()
    actual = orc_times(lambda place, length: body[place : place + length], len(body))
    assert len(actual.zones) == 1
    ends = [int(m.replace(tzinfo=datetime.UTC).timestamp() * 1000) for m in moments]
    assert (actual.least_ms, actual.greatest_ms) == (min(ends), max(ends))
