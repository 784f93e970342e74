"""Prunes the files of a read, and counts how many are left after each pruning step.

Rules: `SnapshotReaderImpl`, `ReadOptimizedTable`. The module `pruning` compares files with
conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.file_indexes.absent_values import (
    JUDGED_KINDS,
    WantedValues,
    has_none_of,
    wanted_values,
)
from paimon_magics.columnar.file_indexes.collection import (
    HEAD_START_BYTES,
    head_bytes,
    indexes_in,
    stored_name,
)
from paimon_magics.columnar.hash_index import distinct
from paimon_magics.planning.reads.predicates import ColumnPredicate
from paimon_magics.planning.reads.views import RowView, ViewKind
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.tables.schema.types import arrow_type
from paimon_magics.tables.splits.pruning import (
    EntryPruning,
    in_buckets,
    in_key_ranges,
    in_partitions,
    in_value_ranges,
)

_STATISTICS = (
    *("key_min_values", "key_max_values", "key_null_counts"),
    *("value_min_values", "value_max_values", "value_null_counts"),
)


_Bools = npt.NDArray[np.bool_]


_SUFFIX = ".index"
_IN_MANIFEST_MAX = 10_000
_OPENED_MAX, _REMOTE_OPENED_MAX = 1_000, 64
"""Index files that one plan opens: on a disk one after the other, in a tenth of a millisecond each,
in another store some at a time. Where more are left, none is opened."""
_THREADS = 8
_BODY_BYTES_MAX = 16 << 20
"""An index that is larger is not read: its data file may take less time."""


_Wanted = tuple[bytes, WantedValues]


@dataclass(frozen=True, slots=True)
class PruningStep:
    """How many files, partitions, buckets and bytes are left after `step`.

    `partitions` is None for a table without any. If manifests of a large table were left out, only
    the number of all files is known, and the other fields are None.
    """

    step: str
    files: int
    partitions: int | None
    buckets: int | None
    size_bytes: int | None


class FilePruning:
    """Prunes the files of one table for one read. `schema` is the schema that is read, `columns`
    returns the columns of a schema by its id; without `indexes` no file index is looked at. `steps`
    are the pruning steps so far."""

    def __init__(
        self,
        columns: Callable[[int], Sequence[Column]],
        schema: TableSchema,
        view: RowView,
        predicates: Sequence[ColumnPredicate],
        indexes: IndexedFiles | None = None,
    ) -> None:
        self._columns = columns
        self._indexes = indexes
        self._schema = schema
        self._view = view
        # `$binlog` shows arrays; statistics are of the values in them.
        self._predicates = () if view.kind is ViewKind.BINLOG else tuple(predicates)
        self.steps: list[PruningStep] = []

    def entry_pruning(self, *, whole_entries: bool = True) -> EntryPruning | None:
        """What can be left out while manifests are read; None if nothing can. Statistics are left
        out where no condition needs them, unless `whole_entries` are wanted."""
        if whole_entries and not self._predicates:
            return None
        unused = () if self._schema.is_primary_key_table else _STATISTICS
        return EntryPruning(self._schema, self._columns, self._predicates, unused)

    def prune(self, files: pa.Table, all_files: int | None = None) -> pa.Table:
        """The files that can hold matching rows. Leaves out files that wait for their bucket
        (negative bucket numbers) and, for `$ro`, all but the top level. `all_files` is the number
        of files where `entry_pruning` has left some out."""
        schema, predicates = self._schema, self._predicates
        if all_files is None or all_files == files.num_rows:
            self.note("all files", files)
        else:
            self.steps.append(PruningStep("all files", all_files, None, None, None))
            self.note("manifests", files)
        files = files.filter(pc.greater_equal(files["bucket"], 0))
        if self._view.kind is ViewKind.READ_OPTIMIZED and schema.is_primary_key_table:
            files = files.filter(pc.equal(files["level"], self._top_level()))
            self.note("the top level", files)
        if not predicates:
            return files
        files = self._left("partitions", files, in_partitions(files, schema, predicates))
        files = self._left("buckets", files, in_buckets(files, schema, predicates))
        if schema.is_primary_key_table:
            files = self._left("keys", files, in_key_ranges(files, schema, predicates))
            keys = schema.trimmed_primary_keys
            # A key that a file does not have is neither hidden nor deleted by it.
            return self._by_indexes(
                files, [predicate for predicate in predicates if predicate.column in keys]
            )
        if schema.data_evolution_enabled:
            return files  # a file has only some columns of its rows
        in_ranges = in_value_ranges(files, self._columns, schema.columns, predicates)
        files = self._left("values", files, in_ranges)
        return self._by_indexes(files, predicates)

    def _top_level(self) -> int:
        levels = self._schema.option("num-levels")
        trigger = self._schema.option("num-sorted-run.compaction-trigger")
        return int(levels) - 1 if levels else int(trigger or 5)

    def by_values(self, files: pa.Table, merged: _Bools) -> _Bools:
        """Files of a table with keys that can hold matching rows, by other columns than the keys:
        by statistics and, of the files marked `merged`, by file indexes. Correct only if no row
        hides another row."""
        keys = self._schema.trimmed_primary_keys
        others = [predicate for predicate in self._predicates if predicate.column not in keys]
        matches = in_value_ranges(files, self._columns, self._schema.columns, others)
        if self._indexes is not None and others:
            rows = np.flatnonzero(matches & merged)
            matches[rows] = self._indexes.may_hold(files.take(pa.array(rows)), others)
        return matches

    def _by_indexes(self, files: pa.Table, predicates: Sequence[ColumnPredicate]) -> pa.Table:
        if self._indexes is None or not predicates:
            return files
        return self._left("file indexes", files, self._indexes.may_hold(files, predicates))

    def _left(self, step: str, files: pa.Table, matches: _Bools) -> pa.Table:
        if matches.all():
            return files
        files = files.filter(pa.array(matches))
        self.note(step, files)
        return files

    def note(self, step: str, files: pa.Table) -> None:
        """Note a step that pruned the files to `files`."""
        partitions = files["partition"].combine_chunks().dictionary_encode().indices
        buckets = np.asarray(partitions).astype(np.int64) << 32 | np.asarray(files["bucket"])
        size = pc.sum(files["file_size"]).as_py() or 0
        count = len(distinct(np.asarray(partitions))) if self._schema.is_partitioned else None
        self.steps.append(PruningStep(step, files.num_rows, count, len(distinct(buckets)), size))


# Leaves out files by their file indexes, where conditions name values: `=` and `IN`.
#
# An index lies in the manifest, or in a file beside its data file, which is opened here, within
# limits: it costs less than the data file that it may leave out. An index is of one file's rows.
# Source: `FileIndexEvaluator`, `AppendOnlyFileStoreScan.testFileIndex`.


@dataclass(frozen=True)
class IndexedFiles:
    """The file indexes of one table. `columns` are those of the schema that is read, `columns_of`
    returns those of a schema by its id, `paths` the data files' paths, and `opened` opens a file
    for random reads; it raises OSError. `is_local` tells that files lie on a disk."""

    columns: Sequence[Column]
    columns_of: Callable[[int], Sequence[Column]]
    paths: Callable[[pa.Table], pa.Array]
    opened: Callable[[str], Any]
    is_local: bool

    def may_hold(self, files: pa.Table, predicates: Sequence[ColumnPredicate]) -> _Bools:
        """Files that can hold rows which meet the conditions, according to their indexes."""
        matches = np.ones(files.num_rows, dtype=bool)
        named = [predicate for predicate in predicates if predicate.operator in ("=", "in")]
        if not named or not files.num_rows:
            return matches
        inside = np.flatnonzero(np.asarray(files["embedded_file_index"].is_valid()))
        counts = pc.fill_null(pc.list_value_length(files["extra_files"]), 0)
        beside = np.setdiff1d(np.flatnonzero(np.asarray(counts) > 0), inside)
        opened_max = _OPENED_MAX if self.is_local else _REMOTE_OPENED_MAX
        if 0 < len(inside) <= _IN_MANIFEST_MAX:
            chosen = files.take(pa.array(inside))
            bodies = chosen["embedded_file_index"].to_pylist()
            for row, body, wanted in zip(inside, bodies, self._wanted(chosen, named), strict=True):
                matches[row] = not _rules_out(partial(_part, body), wanted)
        if 0 < len(beside) <= opened_max:
            chosen = files.take(pa.array(beside))
            matches[beside] = self._judged(chosen, self._wanted(chosen, named))
        return matches

    def _wanted(
        self, files: pa.Table, predicates: Sequence[ColumnPredicate]
    ) -> Iterator[tuple[_Wanted, ...]]:
        """The values to search for in each file's index: those of each condition, by the name that
        the column had when the file was written."""
        by_schema: dict[int, tuple[_Wanted, ...]] = {}
        for schema_id in files["schema_id"].to_pylist():
            if schema_id not in by_schema:
                stored = self.columns_of(schema_id)
                wanted = (_looked_for(predicate, self.columns, stored) for predicate in predicates)
                by_schema[schema_id] = tuple(values for values in wanted if values is not None)
            yield by_schema[schema_id]

    def _judged(self, files: pa.Table, wanted: Iterator[tuple[_Wanted, ...]]) -> list[bool]:
        """Whether each file can hold rows, by the index in a file beside it."""
        paths = [
            _beside(path, names)
            for path, names in zip(
                self.paths(files).to_pylist(), files["extra_files"].to_pylist(), strict=True
            )
        ]
        if self.is_local:
            return list(map(self._by_index, paths, wanted))
        with ThreadPoolExecutor(_THREADS) as threads:
            return list(threads.map(self._by_index, paths, wanted))

    def _by_index(self, path: str | None, wanted: tuple[_Wanted, ...]) -> bool:
        if path is None or not wanted:
            return True
        try:
            with closing(self.opened(path)) as stream:

                def read(place: int, length: int) -> bytes:
                    stream.seek(place)
                    return bytes(stream.read(length))

                return not _rules_out(read, wanted)
        except OSError:
            # The rows are correct without the index, and reading the data reports an unavailable
            # store.
            return True


def _looked_for(
    predicate: ColumnPredicate, columns: Sequence[Column], stored: Sequence[Column]
) -> _Wanted | None:
    """The values to search for in files with the columns `stored`; None if their index can't
    decide."""
    column = next(column for column in columns if column.name == predicate.column)
    written = next((field for field in stored if field.id == column.id), None)
    if written is None or written.type != column.type:
        return None
    try:
        values = pa.array(predicate.values, arrow_type(written.type))
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return None  # a value that the type can't have
    wanted = wanted_values(values)
    return None if wanted is None else (stored_name(written.name), wanted)


def _part(body: bytes, place: int, length: int) -> bytes:
    return body[place : place + length]


def _beside(path: str, names: Sequence[str] | None) -> str | None:
    """The path of the index file of a data file (`DataFilePathFactory.toAlignedPath`)."""
    name = next((name for name in names or () if name.endswith(_SUFFIX)), None)
    return None if name is None else f"{path.rpartition('/')[0]}/{name}"


def _rules_out(read: Callable[[int, int], bytes], wanted: Sequence[_Wanted]) -> bool:
    """Whether the index of a file shows that one of the conditions holds for none of its rows.
    `read` returns bytes of the index. Raises OSError of the store."""
    length = head_bytes(read(0, HEAD_START_BYTES))
    if length is None or length > _BODY_BYTES_MAX:
        return False
    try:
        indexes = indexes_in(read(0, length))
    except ValueError:
        return False
    for name, values in wanted:
        for kind in JUDGED_KINDS:
            place, size = indexes.get((name, kind), (-1, 0))
            if place < 0 or size > _BODY_BYTES_MAX:
                continue
            body = read(place, size)
            if len(body) == size and has_none_of(kind, body, values):
                return True
    return False
