"""What an update changed."""

from __future__ import annotations

import pyarrow as pa

from paimon_magics.columnar.differences import changed_columns

ROWS = pa.table(
    {
        "rowkind": ["+I", "-U", "+U", "-U", "+U", "+U", "-D", "-U"],
        "id": [1, 1, 1, 2, 2, 3, 4, 5],
        "v": [1.0, 1.0, float("nan"), float("nan"), float("nan"), 1.0, 1.0, 1.0],
        "tags": [["a"], ["a"], ["a"], None, ["b"], ["b"], None, None],
    }
)


def test_row_after_an_update_names_the_changed_columns() -> None:
    assert changed_columns(ROWS) == ((), (), ("v",), (), ("tags",), (), (), ())
    assert changed_columns(ROWS.slice(2)) == ((), (), ("tags",), (), (), ())
    assert changed_columns(ROWS.slice(0, 0)) == ()
    chunked = pa.concat_tables([ROWS.slice(0, 2), ROWS.slice(2)])
    assert changed_columns(chunked) == changed_columns(ROWS)
