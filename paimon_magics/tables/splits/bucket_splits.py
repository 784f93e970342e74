"""Makes splits of the files of one bucket: sections of overlapping sorted runs, packed by size.

Rules: `MergeTreeSplitGenerator`, `AppendOnlySplitGenerator`, `DataEvolutionSplitGenerator`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.binary_rows import decode_rows
from paimon_magics.columnar.key_numbers import in_java_order
from paimon_magics.planning.options.values import memory_size_bytes
from paimon_magics.planning.reads.splits import (
    ColumnsSplit,
    KeyRange,
    MergeSplit,
    PlainSplit,
    Section,
    StoredFile,
    TaskSplit,
    pack_in_order,
    row_groups,
    sections,
)
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.tables.schema.types import arrow_type

_Ints = npt.NDArray[np.int64]


class BucketSplits:
    """Makes splits of about `source.split.target-size` bytes. Each file counts as at least
    `source.split.open-file-cost` bytes."""

    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema
        self._target_bytes = self._memory("source.split.target-size")
        self._open_bytes = self._memory("source.split.open-file-cost")
        self._evolves = schema.data_evolution_enabled
        # Above level 0 each key has at most one row that is not deleted.
        self._key_once = schema.deletion_vectors_enabled or schema.engine.keeps_first_row

    def _memory(self, key: str) -> int:
        return memory_size_bytes(key, self._schema.option(key) or "")

    def append(self, stored: Sequence[StoredFile]) -> Iterator[TaskSplit]:
        """The splits of a bucket without keys, in the order of the files' sequence numbers."""
        if self._evolves:
            yield from self._evolving_splits(stored)
            return
        yield from self.packed(sorted(stored, key=lambda file: file.min_sequence_number))

    def _evolving_splits(self, stored: Sequence[StoredFile]) -> Iterator[TaskSplit]:
        def weight(group: Sequence[StoredFile]) -> int:
            return max(sum(file.size_bytes for file in group), self._open_bytes)

        for part in pack_in_order(row_groups(stored), weight, self._target_bytes):
            yield ColumnsSplit(tuple(part))

    def packed(self, stored: Sequence[StoredFile]) -> Iterator[TaskSplit]:
        """Splits whose files are read one after the other, without a merge."""
        for part in pack_in_order(stored, self._weight, self._target_bytes):
            yield PlainSplit(tuple(part))

    def keyed(
        self, stored: Sequence[StoredFile], ranks: KeyRanks, rows: range, *, merges: bool
    ) -> Iterator[TaskSplit]:
        """The splits of a bucket of a primary-key table. `rows` are the positions of `stored` in
        `ranks`. With `merges` the rows of each key are merged into one."""
        levels = {file.level for file in stored}
        merged = 0 not in levels and not any(file.deleted_rows for file in stored)
        if merged and (self._key_once or len(levels) == 1):
            if merges:
                for part in pack_in_order(stored, self._weight, self._target_bytes):
                    yield MergeSplit(tuple(((file,),) for file in part))
            else:
                yield from self.packed(stored)
            return
        overlapping = sections_of(stored, ranks, rows)
        for members in pack_in_order(
            overlapping,
            lambda section: max(
                sum(file.size_bytes for run in section for file in run), self._open_bytes
            ),
            self._target_bytes,
        ):
            if merges:
                yield MergeSplit(tuple(members))
            else:
                yield PlainSplit(
                    tuple(file for section in members for run in section for file in run)
                )

    def _weight(self, file: StoredFile) -> int:
        return max(file.size_bytes, self._open_bytes)


def sections_of(stored: Sequence[StoredFile], ranks: KeyRanks, rows: range) -> list[Section]:
    """The sections of `stored`: files whose key ranges overlap are in the same one. `rows` are
    the positions of the files in `ranks`."""
    if len(stored) == 1:
        return [((stored[0],),)]
    ranges = [
        KeyRange(place, int(ranks.least[row]), int(ranks.greatest[row]))
        for place, row in enumerate(rows)
    ]
    return [tuple(tuple(stored[i] for i in run) for run in section) for section in sections(ranges)]


class KeyRanks:
    """The least and greatest keys of files as numbers that compare as the keys do. They are
    computed on first use."""

    def __init__(self, files: pa.Table, schema: TableSchema) -> None:
        self._files = files
        self._schema = schema

    @functools.cached_property
    def _ranks(self) -> _Ints:
        return _key_ranks(self._files, self._schema)

    @property
    def least(self) -> _Ints:
        """The rank of the least key of each file."""
        return self._ranks[: self._files.num_rows]

    @property
    def greatest(self) -> _Ints:
        """The rank of the greatest key of each file."""
        return self._ranks[self._files.num_rows :]


def without_non_overlapping(split: TaskSplit) -> tuple[TaskSplit | None, list[StoredFile]]:
    """Take the non-overlapping files without deletes out of a split: return the rest of the split
    (None if nothing is left) and these files, whose rows need no merge.

    Paimon merges them too where their split has other files; the rows are the same.
    """
    if not isinstance(split, MergeSplit):
        return split, []
    apart = [
        section[0][0] if len(section) == 1 and len(section[0]) == 1 else None
        for section in split.sections
    ]
    lone = [f for f in apart if f is not None and f.deleted_rows == 0 and f.deletions is None]
    if not lone:
        return split, []
    names = {id(file) for file in lone}
    rest = tuple(s for s, file in zip(split.sections, apart, strict=True) if id(file) not in names)
    return (MergeSplit(rest) if rest else None), lone


def _key_ranks(files: pa.Table, schema: TableSchema) -> _Ints:
    """The ranks of the least keys of all files, then those of the greatest keys."""
    types = [arrow_type(schema.column(key).type) for key in schema.trimmed_primary_keys]
    ends = [files[name].combine_chunks() for name in ("min_key", "max_key")]
    columns = [
        in_java_order(pa.concat_arrays(list(pair)))
        for pair in zip(*(decode_rows(end, types) for end in ends), strict=True)
    ]
    table = pa.table({f"k{i}": column for i, column in enumerate(columns)})
    keys = [(name, "ascending") for name in table.column_names]
    order = np.asarray(pc.sort_indices(table, sort_keys=keys)).astype(np.int64)
    ordered = table.take(pa.array(order))
    differ = np.zeros(len(order), dtype=bool)
    for name in table.column_names:
        column = ordered[name].combine_chunks()
        differ[1:] |= np.asarray(pc.not_equal(column.slice(1), column.slice(0, len(column) - 1)))
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.cumsum(differ)
    return ranks
