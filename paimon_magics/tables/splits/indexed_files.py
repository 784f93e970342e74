"""Leaves out files by their file indexes, where conditions name values: `=` and `IN`.

An index lies in the manifest, or in a file beside its data file, which is opened here, within
limits: it costs less than the data file that it may leave out. An index is of one file's rows.
Source: `FileIndexEvaluator`, `AppendOnlyFileStoreScan.testFileIndex`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
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
from paimon_magics.columnar.file_indexes.container import (
    HEAD_START_BYTES,
    head_bytes,
    indexes_in,
    stored_name,
)
from paimon_magics.planning.reads.predicates import ColumnPredicate
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.tables.schema.types import arrow_type

__all__ = ["IndexedFiles"]

_SUFFIX = ".index"
_IN_MANIFEST_MAX = 10_000
_OPENED_MAX, _REMOTE_OPENED_MAX = 1_000, 64
"""Index files that one plan opens: on a disk one after the other, in a tenth of a millisecond each,
in another store some at a time. Where more are left, none is opened."""
_THREADS = 8
_BODY_BYTES_MAX = 16 << 20
"""An index that is larger is not read: its data file may take less time."""

_Bools = npt.NDArray[np.bool_]
_Wanted = tuple[bytes, WantedValues]


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
        """Files that can hold rows which meet the conditions, as far as their indexes tell."""
        kept = np.ones(files.num_rows, dtype=bool)
        named = [one for one in predicates if one.operator in ("=", "in")]
        if not named or not files.num_rows:
            return kept
        inside = np.flatnonzero(np.asarray(files["embedded_file_index"].is_valid()))
        counts = pc.fill_null(pc.list_value_length(files["extra_files"]), 0)
        beside = np.setdiff1d(np.flatnonzero(np.asarray(counts) > 0), inside)
        opened_max = _OPENED_MAX if self.is_local else _REMOTE_OPENED_MAX
        if 0 < len(inside) <= _IN_MANIFEST_MAX:
            chosen = files.take(pa.array(inside))
            bodies = chosen["embedded_file_index"].to_pylist()
            for row, body, wanted in zip(inside, bodies, self._wanted(chosen, named), strict=True):
                kept[row] = not _rules_out(_part_of(body), wanted)
        if 0 < len(beside) <= opened_max:
            chosen = files.take(pa.array(beside))
            kept[beside] = self._judged(chosen, self._wanted(chosen, named))
        return kept

    def _wanted(
        self, files: pa.Table, predicates: Sequence[ColumnPredicate]
    ) -> Iterator[tuple[_Wanted, ...]]:
        """For each file what to look for in its index: the values of each condition, by the name
        that the column had when the file was written."""
        by_schema: dict[int, tuple[_Wanted, ...]] = {}
        for schema_id in files["schema_id"].to_pylist():
            if schema_id not in by_schema:
                stored = self.columns_of(schema_id)
                found = (_looked_for(one, self.columns, stored) for one in predicates)
                by_schema[schema_id] = tuple(one for one in found if one is not None)
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
            # The rows are right without the index, and a store that is gone is told by the data.
            return True


def _looked_for(
    one: ColumnPredicate, columns: Sequence[Column], stored: Sequence[Column]
) -> _Wanted | None:
    """What to look for in files with the columns `stored`; None where their index can't tell."""
    column = next(column for column in columns if column.name == one.column)
    written = next((found for found in stored if found.id == column.id), None)
    if written is None or written.type != column.type:
        return None
    try:
        values = pa.array(one.values, arrow_type(written.type))
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return None  # a value that the type can't have
    found = wanted_values(values)
    return None if found is None else (stored_name(written.name), found)


def _part_of(body: bytes) -> Callable[[int, int], bytes]:
    return lambda place, length: body[place : place + length]


def _beside(path: str, names: Sequence[str] | None) -> str | None:
    """The path of the index file of a data file (`DataFilePathFactory.toAlignedPath`)."""
    name = next((one for one in names or () if one.endswith(_SUFFIX)), None)
    return None if name is None else f"{path.rpartition('/')[0]}/{name}"


def _rules_out(read: Callable[[int, int], bytes], wanted: Sequence[_Wanted]) -> bool:
    """Whether the index of a file tells that one of the conditions holds for none of its rows.
    `read` returns bytes of the index. Raises OSError of the store."""
    length = head_bytes(read(0, HEAD_START_BYTES))
    if length is None or length > _BODY_BYTES_MAX:
        return False
    try:
        held = indexes_in(read(0, length))
    except ValueError:
        return False
    for name, values in wanted:
        for kind in JUDGED_KINDS:
            place, size = held.get((name, kind), (-1, 0))
            if place < 0 or size > _BODY_BYTES_MAX:
                continue
            body = read(place, size)
            if len(body) == size and has_none_of(kind, body, values):
                return True
    return False
