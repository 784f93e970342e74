"""What a writer is told of changed rows: how many there are of each kind, and one changed twice."""

from __future__ import annotations

import pyarrow as pa
import pytest

from paimon_magics.columnar.merging import KIND
from paimon_magics.planning.reads.views import DELETE, INSERT, UPDATE_AFTER
from paimon_magics.tables.writing.row_counters import ChangedRows, ChangedTwiceError


def batch(*rows: tuple[object, str, int]) -> pa.RecordBatch:
    keys, parts, kinds = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(keys), pa.array(parts), pa.array(kinds, pa.int8())], names=["k", "p", KIND]
    )


def test_rows_are_counted_by_their_kinds() -> None:
    actual = ChangedRows(["p", "k"])
    actual.note(batch((1, "a", INSERT), (2, "a", UPDATE_AFTER), (3, "a", DELETE)))
    actual.note(batch((2, "b", UPDATE_AFTER)))
    assert actual.counts[:4] == [1, 0, 2, 1]


@pytest.mark.parametrize("key", [7, "seven", 0.5, float("nan"), b"7"])
def test_row_changed_twice_is_detected_across_batches(key: object) -> None:
    actual = ChangedRows(["p", "k"])
    with pytest.raises(ChangedTwiceError):
        actual.note(batch((key, "a", DELETE), (key, "a", UPDATE_AFTER)))
    actual = ChangedRows(["p", "k"])
    actual.note(batch((key, "a", UPDATE_AFTER)))
    actual.note(batch((key, "a", INSERT)))
    with pytest.raises(ChangedTwiceError):
        actual.note(batch((key, "a", DELETE)))


def test_repeated_inserts_and_keys_of_partitions_are_no_double_change() -> None:
    actual = ChangedRows(["p", "k"])
    actual.note(batch((1, "a", INSERT), (1, "a", INSERT), (1, "a", UPDATE_AFTER)))
    actual.note(batch((1, "b", UPDATE_AFTER), (2, "b", UPDATE_AFTER)))
    assert actual.counts[:4] == [2, 0, 3, 0]
