"""What an update changed, and `$binlog` as single rows."""

from __future__ import annotations

import pyarrow as pa

from paimon_magics.columnar.updates import changed_columns, single_changes

ROWS = pa.table(
    {
        "rowkind": ["+I", "-U", "+U", "-U", "+U", "+U", "-D", "-U"],
        "id": [1, 1, 1, 2, 2, 3, 4, 5],
        "v": [1.0, 1.0, float("nan"), float("nan"), float("nan"), 1.0, 1.0, 1.0],
        "tags": [["a"], ["a"], ["a"], None, ["b"], ["b"], None, None],
    }
)


def test_the_row_after_an_update_names_what_is_another() -> None:
    assert changed_columns(ROWS) == ((), (), ("v",), (), ("tags",), (), (), ())
    assert changed_columns(ROWS.slice(2)) == ((), (), ("tags",), (), (), ())
    assert changed_columns(ROWS.slice(0, 0)) == ()
    chunked = pa.concat_tables([ROWS.slice(0, 2), ROWS.slice(2)])
    assert changed_columns(chunked) == changed_columns(ROWS)


def test_an_update_of_the_binlog_is_two_rows_with_its_values() -> None:
    packed = pa.table(
        {
            "rowkind": ["+I", "+U", "-D"],
            "id": [[1], [2, 2], [3]],
            "v": pa.array([[None], ["tea", "milk"], [None]], pa.list_(pa.string())),
        }
    )
    found = single_changes(packed)
    assert found.schema.field("v").type == pa.string()
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        ("+I", 1, None),
        ("-U", 2, "tea"),
        ("+U", 2, "milk"),
        ("-D", 3, None),
    ]
    assert changed_columns(found) == ((), (), ("v",), ())
    assert single_changes(packed.slice(0, 0)).num_rows == 0
