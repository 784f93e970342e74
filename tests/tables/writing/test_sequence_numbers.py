"""Rows of append tables are numbered in the metadata of their files as Paimon does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tables.compaction.append_compactions import Lake

NUMBERS = ("min_sequence_number", "max_sequence_number")
BUCKETED = (
    "CREATE TABLE t (k INT, p STRING) PARTITIONED BY (p) "
    "TBLPROPERTIES ('bucket' = '1', 'bucket-key' = 'k'{})"
)


@pytest.mark.parametrize("more", ["", ", 'file.format' = 'avro'"])
def test_sequence_numbers_continue_within_a_bucket(warehouse: Path, more: str) -> None:
    lake = Lake.of(warehouse, BUCKETED.format(more))
    lake.append((1, "a"), (2, "a"), (3, "b"))
    lake.append((4, "b"), (5, None))
    lake.append((6, None), (7, "a"), (8, "a"))
    assert sorted(lake.files(*NUMBERS)) == [(0, 0), (0, 0), (0, 1), (1, 1), (1, 1), (2, 3)]


def test_without_buckets_each_writer_counts_from_0(warehouse: Path) -> None:
    lake = Lake.of(warehouse, "CREATE TABLE t (k INT, p STRING) PARTITIONED BY (p)")
    lake.append((1, "a"), (2, "a"), (3, "b"))
    lake.append((4, "b"), (5, "b"))
    assert sorted(lake.files(*NUMBERS)) == [(0, 0), (0, 1), (0, 1)]
