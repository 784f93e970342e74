"""Rows that have looked-up values, by each way of looking them up."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_magics.tables.row_changes.looked_up_keys import LookedUpKeys

LONGS = st.one_of(
    st.integers(-50, 50), st.integers(-(2**63), 2**63 - 1), st.sampled_from([-(2**63), 2**63 - 1])
)


def matching(folder: Path, values: dict[str, pa.Array], rows: pa.RecordBatch) -> list[Any]:
    keys = LookedUpKeys(str(folder / "keys.arrow"))
    keys.write(values)
    return [row for batch in keys.matching([rows]) for row in batch.to_pylist()]


@given(st.sets(LONGS), st.lists(st.one_of(LONGS, st.none())))
def test_rows_match_looked_up_integers(
    tmp_path_factory: pytest.TempPathFactory, wanted: set[int], given: list[int | None]
) -> None:
    rows = pa.RecordBatch.from_pydict({"k": pa.array(given, pa.int64())})
    actual = matching(
        tmp_path_factory.getbasetemp(), {"k": pa.array(list(wanted), pa.int64())}, rows
    )
    assert [row["k"] for row in actual] == [each for each in given if each in wanted]


def test_rows_match_looked_up_values_of_several_columns(tmp_path: Path) -> None:
    days = [datetime.date(2026, 1, day) for day in (1, 2, 3, 4)]
    rows = pa.RecordBatch.from_pydict(
        {
            "day": pa.array([*days, None], pa.date32()),
            "name": pa.array(["a", "b", None, "a", "a"]),
            "small": pa.array([1, 1, 1, 2, 1], pa.int8()),
        }
    )
    epoch = datetime.date(1970, 1, 1)
    values = {
        "day": pa.array([(day - epoch).days for day in days], pa.int64()),
        "name": pa.array(["a", "c"]),
        "small": pa.array([1, 2**40], pa.int64()),
    }
    assert matching(tmp_path, values, rows) == [{"day": days[0], "name": "a", "small": 1}]


def test_all_rows_match_before_the_file_exists(tmp_path: Path) -> None:
    rows = pa.RecordBatch.from_pydict({"k": [1, 2]})
    keys = LookedUpKeys(str(tmp_path / "keys.arrow"))
    assert list(keys.matching([rows])) == [rows]


def test_no_row_matches_an_empty_lookup(tmp_path: Path) -> None:
    rows = pa.RecordBatch.from_pydict({"k": [1, 2], "t": ["a", "b"]})
    assert matching(tmp_path, {"k": pa.array([], pa.int64())}, rows) == []
    assert matching(tmp_path, {"t": pa.array([], pa.string())}, rows) == []
