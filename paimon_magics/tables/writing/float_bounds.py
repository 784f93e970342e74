"""Removes wrong bounds of floating-point columns from the Parquet files of a writer, so that no
reader prunes by them.

The native writer ignores NaN in the bounds of footers and page indexes, and can't omit the bounds
of single columns. So columns with NaN or -0.0 are noted while rows are written (module
`columnar.value_bounds`). Their bounds are removed from the finished files before the messages are
returned; other files keep theirs.

On a local disk a footer is replaced in place, since it only becomes shorter. Elsewhere the file is
written again. The file's size, which the messages name, stays the same.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from paimon_magics.columnar.file_footers import (
    LENGTH_AND_MAGIC_BYTES,
    MAGIC,
    without_float_bounds,
)
from paimon_magics.columnar.value_bounds import odd_float_columns
from paimon_magics.tables.stores.paths import local_path
from paimon_magics.tables.writing.new_files import file_path

if TYPE_CHECKING:
    from pypaimon.write.commit_message import CommitMessage

    from paimon_magics.tables.table import Table

_COPIED_BYTES = 8 * 2**20
_SUFFIX = ".parquet"

# Paimon's BinaryRow: the number of values, bits for the row's kind and each NULL, the values.
_ARITY_BYTES = 4
_KIND_BITS = 8


@dataclass(frozen=True, slots=True)
class FloatColumns:
    """The columns of a table with floating-point values, also nested ones.

    In the columns `merged` a writer's own merging can make NaN or -0.0, whatever rows it takes.
    `table` is a pickle of pypaimon's table if tasks mend their files, empty if the driver does.
    """

    names: tuple[str, ...]
    merged: frozenset[str] = frozenset()
    table: bytes = b""

    def __repr__(self) -> str:
        return f"FloatColumns({self.names})"  # the pickle may hold credentials


class OddFloats:
    """Notes the columns of a writer that have had NaN or -0.0."""

    def __init__(self, columns: FloatColumns | None) -> None:
        self._columns = columns
        self.found: set[str] = set()

    def note(self, rows: pa.RecordBatch) -> None:
        """Examine rows that are written."""
        if self._columns is not None:
            self.found |= self._columns.merged
            left = [name for name in self._columns.names if name not in self.found]
            self.found.update(odd_float_columns(rows, left))

    def mend(self, messages: Iterable[bytes]) -> None:
        """Mend the files of the messages, unless the driver does it."""
        if self._columns is not None and self._columns.table and self.found:
            # pypaimon, which takes a second to import, knows the paths of files.
            from paimon_magics.tables.writing.commit_messages import read_messages

            table = pickle.loads(self._columns.table)  # made by `float_columns`, for this job
            _mend_files(table, read_messages(table, messages), self.found)


def mend_messages(
    table: Table, messages: Sequence[CommitMessage], odd_floats: Collection[str]
) -> bool:
    """Remove the bounds of the columns `odd_floats` from the keys in the messages of all writers,
    and from their files if the table lies on a local disk. Return whether a message changed.

    The files are not in use yet. Raises OSError for failures of the store, ValueError for a file
    that is not Parquet.
    """
    if odd_floats and local_path(table.location) is not None:
        _mend_files(table.paimon, messages, odd_floats)
    keys = table.schema.trimmed_primary_keys
    places = [place for place, key in enumerate(keys) if key in odd_floats]
    if places:
        _drop_key_bounds(messages, places)
    return bool(places)


def float_columns(table: Table, names: Iterable[str], merged: Iterable[str]) -> FloatColumns | None:
    """What writers need to note odd floats in the columns `names`; None without such columns."""
    wanted = tuple(names)
    if not wanted:
        return None
    is_local = local_path(table.location) is not None
    pickled = b"" if is_local else pickle.dumps(table.paimon)
    return FloatColumns(wanted, frozenset(merged).intersection(wanted), pickled)


def _drop_key_bounds(messages: Iterable[CommitMessage], places: Iterable[int]) -> None:
    """Remove the bounds of the key columns at `places` from the messages."""
    from pypaimon.manifest.schema.simple_stats import SimpleStats
    from pypaimon.table.row.binary_row import BinaryRow
    from pypaimon.table.row.generic_row import GenericRowDeserializer

    def without(row: Any) -> Any:
        content = bytearray(row.data)
        values = _ARITY_BYTES + GenericRowDeserializer.calculate_bit_set_width_in_bytes(row.arity)
        for place in places:
            bit = _KIND_BITS + place  # set where the value is NULL
            content[_ARITY_BYTES + bit // 8] |= 1 << bit % 8
            content[values + 8 * place : values + 8 * place + 8] = bytes(8)
        return BinaryRow(bytes(content), row.fields)

    for message in messages:
        for file in (*message.new_files, *message.changelog_files):
            bounds = file.key_stats
            file.key_stats = SimpleStats(
                without(bounds.min_values), without(bounds.max_values), bounds.null_counts
            )


def _mend_files(paimon: Any, messages: Iterable[CommitMessage], columns: Collection[str]) -> None:
    """Remove the bounds of floating-point values in `columns` from the Parquet files of messages.

    `paimon` is pypaimon's table.
    """
    for message in messages:
        partition = tuple(message.partition)
        for file in (*message.new_files, *message.changelog_files):
            if file.file_name.endswith(_SUFFIX):
                path = file_path(paimon, partition, message.bucket, file.file_name)
                _mend(paimon.file_io, path, columns)


def _mend(file_io: Any, path: str, columns: Collection[str]) -> None:
    local = local_path(path)
    if local is not None:
        with open(local, "r+b") as file:
            start, before = _end_of(file, path)
            after = _mended(before, columns)
            if after != before:
                file.seek(start)
                file.write(after)
        return
    with contextlib.closing(file_io.new_input_stream(path)) as source:
        start, before = _end_of(source, path)
        after = _mended(before, columns)
        if after == before:
            return
        with file_io.new_output_stream(path) as target:
            for part in _parts(source, start):
                target.write(part)
            target.write(after)


def _parts(source: Any, end: int) -> Iterator[bytes]:
    source.seek(0)
    while end > 0:
        part = bytes(source.read(min(end, _COPIED_BYTES)))
        if not part:
            raise ValueError("a file became shorter while it was read")
        end -= len(part)
        yield part


def _end_of(file: Any, path: str) -> tuple[int, bytes]:
    """The offset of a file's footer, and the bytes from there to the end."""
    size = file.seek(0, os.SEEK_END)
    size = file.tell() if size is None else size
    file.seek(max(0, size - LENGTH_AND_MAGIC_BYTES))
    ending = bytes(file.read(LENGTH_AND_MAGIC_BYTES))
    start = size - LENGTH_AND_MAGIC_BYTES - int.from_bytes(ending[:4], "little")
    if not ending.endswith(MAGIC) or start < 0:
        raise ValueError(f"{path} does not end as a Parquet file")
    file.seek(start)
    return start, bytes(file.read(size - start))


def _mended(ending: bytes, columns: Collection[str]) -> bytes:
    """A file's end without the bounds, of the same length: zeros precede the shorter footer."""
    footer = ending[:-LENGTH_AND_MAGIC_BYTES]
    shorter = without_float_bounds(footer, columns)
    assert len(shorter) <= len(footer)
    length = len(shorter).to_bytes(4, "little")
    return bytes(len(footer) - len(shorter)) + shorter + length + MAGIC
