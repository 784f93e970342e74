"""Reads files that hold different columns of the same rows (data evolution), and puts new values
into them.

Light to import, because Spark's tasks load it. Rules: `DataEvolutionSplitRead`,
`DataEvolutionUtils.retrieveAnchorFile`, `DataEvolutionPartialWriteOperator`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from paimon_magics.columnar.fields import Field
from paimon_magics.errors import InvalidValueError, TableDamagedError
from paimon_magics.planning.reads.splits import RowRange, StoredFile
from paimon_magics.planning.reads.views import ROW_ID
from paimon_magics.tables.reading.data_files import FileReader
from paimon_magics.tables.stores.corruption import RESTORE
from paimon_magics.tables.stores.file_formats import batch_of


def side_by_side(
    reader: FileReader, groups: Sequence[Sequence[StoredFile]]
) -> Iterator[pa.RecordBatch]:
    """The rows of groups of files, as `row_groups` makes them: each column from the newest file
    that has it, sequence numbers from the newest file of all. `reader` has no conditions.

    Rows of the group's deletion vector are left out. Raises TableDamagedError for files that don't
    have the same rows.
    """
    for group in groups:
        yield from _rows_of(reader, group)


def anchor_of(group: Sequence[StoredFile]) -> StoredFile:
    """The file of a group whose deletion vector holds for all of its files: the oldest one."""
    return min(
        (file for file in group if not file.is_dedicated),
        key=lambda file: (file.max_sequence_number, file.path.rpartition("/")[2]),
    )


def updated_rows(
    reader: FileReader, ranges: Sequence[RowRange], updates: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """All rows of the ranges that have an update, with `_ROW_ID`: updated rows with new values, the
    others as they are stored.

    `ranges` are in the order of their row ids. `updates` have the columns that `reader` wants, and
    `_ROW_ID`, which ascends over all batches without repeating. `reader` has row ids. Memory is
    bounded by the batches. Raises InvalidValueError for ids that don't ascend, or that no range
    has.
    """
    firsts = np.array([each.first_row_id for each in ranges], dtype=np.int64)
    waiting = _Updates(reader.table, updates)
    while (row_id := waiting.next_id()) is not None:
        at = int(np.searchsorted(firsts, row_id, side="right")) - 1
        if at < 0 or row_id >= ranges[at].next_row_id:
            raise InvalidValueError(
                f"`{reader.table}` has no row with the id {row_id}.",
                hint="Read the row ids from the snapshot that is updated.",
            )
        for batch in side_by_side(reader, [ranges[at].files]):
            first = batch.column(ROW_ID)[0].as_py()
            yield _replaced(batch, first, waiting.before(first + batch.num_rows))


class _Updates:
    """New values that wait for the rows that they belong to."""

    def __init__(self, table: str, batches: Iterable[pa.RecordBatch]) -> None:
        self._table = table
        self._batches = iter(batches)
        self._waiting: pa.RecordBatch | None = None
        self._ids = np.zeros(0, dtype=np.int64)
        self._last = -1

    def next_id(self) -> int | None:
        """The least id of those that wait, None at the end."""
        while not len(self._ids):
            batch = next(self._batches, None)
            if batch is None:
                return None
            self._waiting, self._ids = batch, np.asarray(batch.column(ROW_ID)).astype(np.int64)
            if (np.diff(self._ids, prepend=self._last) <= 0).any():
                raise InvalidValueError(
                    f"The ids of the updated rows of `{self._table}` don't ascend, or one repeats.",
                    hint="Give each row exactly one new value, in the order of the row ids.",
                )
            self._last = int(self._ids[-1]) if len(self._ids) else self._last
        return int(self._ids[0])

    def before(self, end: int) -> list[pa.RecordBatch]:
        """Take the updates of rows with ids below `end`."""
        taken = []
        while (row_id := self.next_id()) is not None and row_id < end:
            count = int(np.searchsorted(self._ids, end))
            assert self._waiting is not None
            taken.append(self._waiting.slice(0, count))
            self._waiting, self._ids = self._waiting.slice(count), self._ids[count:]
        return taken


def _replaced(
    batch: pa.RecordBatch, first: int, updates: Sequence[pa.RecordBatch]
) -> pa.RecordBatch:
    """Stored rows, whose ids count from `first`, with new values."""
    if not updates:
        return batch
    ids = np.concatenate([np.asarray(update.column(ROW_ID)) for update in updates])
    taken = np.arange(batch.num_rows, dtype=np.int64)
    taken[ids - first] = batch.num_rows + np.arange(len(ids))
    arrays = []
    for name, old in zip(batch.schema.names, batch.columns, strict=True):
        if name in updates[0].schema.names:
            new = [update.column(name).cast(old.type) for update in updates]
            old = pa.concat_arrays([old, *new]).take(pa.array(taken))
        arrays.append(old)
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _rows_of(reader: FileReader, group: Sequence[StoredFile]) -> Iterator[pa.RecordBatch]:
    whole = [file for file in group if not file.is_dedicated]
    if len({(file.first_row_id, file.rows) for file in whole}) > 1:
        raise TableDamagedError(
            f"The data file {group[0].path} shares only some of its rows with other files. Files "
            "must have the same rows or none in common.",
            hint=RESTORE,
        )
    deletions = anchor_of(whole).deletions if whole else None
    files = [replace(file, deletions=deletions) for file in whole]
    files += [file for file in group if file.is_dedicated]
    wanted: dict[int, list[Field]] = {}
    for field in reader.wanted:
        holders = (i for i, file in enumerate(files) if reader.holds(file, field))
        wanted.setdefault(next(holders, 0), []).append(field)
    if reader.with_row_ids or not wanted:
        wanted.setdefault(0, [])
    parts = [
        replace(reader, wanted=tuple(fields), with_row_ids=reader.with_row_ids and i == 0).batches(
            files[i]
        )
        for i, fields in wanted.items()
    ]
    yield from _beside(parts) if len(parts) > 1 else parts[0]


def _beside(parts: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Join the columns of all parts, which have the same rows in batches of different lengths."""
    waiting = [next(part, None) for part in parts]
    while all(batch is not None for batch in waiting):
        batches = [batch for batch in waiting if batch is not None]
        rows = min(batch.num_rows for batch in batches)
        names = [name for batch in batches for name in batch.schema.names]
        arrays = [column for batch in batches for column in batch.slice(0, rows).columns]
        yield batch_of(arrays, names, rows)
        waiting = [
            batch.slice(rows) if batch.num_rows > rows else next(part, None)
            for batch, part in zip(batches, parts, strict=True)
        ]
