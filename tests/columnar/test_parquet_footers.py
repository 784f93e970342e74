from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_magics.columnar.file_footers import without_float_bounds

ROWS = pa.table(
    {
        "i": [1, 2, 3],
        "_KEY_g": [1.0, 2.0, 3.0],
        "g": [1.0, 2.0, 3.0],
        "s": [{"x": 1.0, "n": 1}, None, {"x": 2.0, "n": 2}],
        "l": [[1.0], [], None],
    }
)


def parquet(**options: Any) -> tuple[bytes, bytes]:
    """A file's data and its footer."""
    target = io.BytesIO()
    pq.write_table(ROWS, target, write_page_index=True, row_group_size=2, **options)
    content = target.getvalue()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    return content[:start], content[start:-8]


def opened(data: bytes, footer: bytes) -> pq.ParquetFile:
    return pq.ParquetFile(io.BytesIO(data + footer + len(footer).to_bytes(4, "little") + b"PAR1"))


@pytest.mark.parametrize("options", [{}, {"version": "1.0"}, {"use_dictionary": False}])
def test_footer_copy_drops_only_bounds_of_float_columns(
    options: dict[str, Any],
) -> None:
    data, footer = parquet(**options)
    assert without_float_bounds(footer, ()) == footer
    assert without_float_bounds(footer, ["i"]) == footer
    shorter = without_float_bounds(footer, ["g", "s", "i"])
    assert len(shorter) < len(footer)
    file = opened(data, shorter)
    assert file.read().equals(ROWS)
    assert file.metadata.num_row_groups == 2
    for group in range(2):
        actual = file.metadata.row_group(group)
        columns = [actual.column(i) for i in range(actual.num_columns)]
        with_bounds = {each.path_in_schema for each in columns if each.is_stats_set}
        assert with_bounds == {"i", "s.n", "l.list.element"}
        assert {each.path_in_schema for each in columns if each.has_column_index} == with_bounds
        assert all(each.has_offset_index for each in columns)


@pytest.mark.parametrize("damage", [slice(0, 40), slice(0, -1)])
def test_invalid_footer_is_refused(damage: slice) -> None:
    _, footer = parquet()
    with pytest.raises(ValueError, match="footer"):
        without_float_bounds(footer[damage], ["g"])
