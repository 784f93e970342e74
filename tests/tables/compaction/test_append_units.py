"""The files of append tables are picked from columns as the rules pick them from objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paimon_magics.planning.compaction.append_tables import (
    AppendFile,
    AppendRules,
    files_in_order,
    packed_files,
    window_of_files,
)
from paimon_magics.planning.reads.splits import Deletions
from paimon_magics.tables.compaction.append_units import pick_append_files
from paimon_magics.tables.manifests.columns import MANIFEST_ENTRIES
from paimon_magics.tables.splits.planning import StoredState

RULES = AppendRules(target_bytes=100, open_file_cost_bytes=5, file_count_min=3)
Stored = tuple[bytes, int, AppendFile]  # partition, bucket, file

FILES = st.lists(
    st.tuples(
        st.sampled_from([b"p", b"q"]),
        st.integers(0, 1),
        st.integers(1, 160),  # bytes
        st.sampled_from([None, None, None, "a", "b"]),  # index file
        st.sampled_from([None, 1, 5]),  # deleted rows
    ),
    max_size=40,
)


def stored(drawn: Sequence[Any], *, vectors: bool) -> list[Stored]:
    return [
        (
            partition,
            bucket,
            AppendFile(
                f"f{number}", size, rows=10, min_sequence_number=100 - number * 7 % 50,
                vector_file=f"{partition.decode()}{bucket}{index}" if vectors and index else None,
                deleted_rows=deleted if vectors and index else None,
            ),
        )
        for number, (partition, bucket, size, index, deleted) in enumerate(drawn)
    ]  # fmt: skip


def state(files: Sequence[Stored]) -> StoredState:
    rows = [
        {
            "kind": 0,
            "partition": partition,
            "bucket": bucket,
            "file_name": file.name,
            "file_size": file.size_bytes,
            "row_count": file.rows,
            "min_sequence_number": file.min_sequence_number,
        }
        for partition, bucket, file in files
    ]
    deletions = {
        (partition, bucket, file.name): Deletions(file.vector_file, 1, 9, file.deleted_rows)
        for partition, bucket, file in files
        if file.vector_file is not None
    }
    return StoredState(pa.Table.from_pylist(rows, MANIFEST_ENTRIES), deletions)


def picked(files: Sequence[Stored], rules: AppendRules, **how: bool) -> set[tuple[str, ...]]:
    picks = pick_append_files(state(files), rules, **how)
    names = picks.files["file_name"].to_pylist()
    return {tuple(names[row] for row in group) for group in picks.groups}


def names(group: Sequence[AppendFile]) -> tuple[str, ...]:
    return tuple(file.name for file in group)


@settings(deadline=None)
@given(FILES, st.booleans())
def test_files_of_a_partition_are_packed(drawn: Any, vectors: bool) -> None:
    files = [(partition, 0, file) for partition, _, file in stored(drawn, vectors=vectors)]
    rules = replace(RULES, has_deletion_vectors=vectors)
    expected = {
        names(group)
        for partition in (b"p", b"q")
        for group in packed_files([file for at, _, file in files if at == partition], rules)
    }
    for full in (True, False):
        assert picked(files, rules, has_buckets=False, full=full) == expected


@settings(deadline=None)
@given(FILES, st.booleans(), st.booleans(), st.booleans())
def test_files_of_a_bucket_keep_their_order(
    drawn: Any, vectors: bool, full: bool, rewrites_all: bool
) -> None:
    files = stored(drawn, vectors=vectors)
    rules = replace(RULES, has_deletion_vectors=vectors, rewrites_all_files=rewrites_all)
    pick = files_in_order if full else window_of_files
    groups = [
        names(pick([each for at, b, each in files if (at, b) == (partition, bucket)], rules))
        for partition in (b"p", b"q")
        for bucket in (0, 1)
    ]
    assert picked(files, rules, has_buckets=True, full=full) == set(groups) - {()}


def test_file_count_limit_applies_across_partitions() -> None:
    files = [(b"pq"[i % 2 : i % 2 + 1], 0, AppendFile(f"f{i}", 1)) for i in range(12)]
    rules = replace(RULES, file_count_max=5)
    assert picked(files, rules, has_buckets=False, full=True) == {("f0", "f2", "f4")}


@pytest.mark.parametrize("has_buckets", [True, False])
def test_table_without_files_gives_no_units(has_buckets: bool) -> None:
    assert picked([], RULES, has_buckets=has_buckets, full=True) == set()
