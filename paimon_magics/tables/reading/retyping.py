"""Finds stored rows that would be harmed by a change of a column's type or to NOT NULL.

Files keep the type that they were written with, and each read casts their values. A text that is
not a number makes every read of its file fail. A number that is too large is read as another
number. Paimon allows such changes. Statistics in manifests are examined first. Then files are read,
up to a number of rows; those whose statistics show harm come first.
"""

from __future__ import annotations

import contextlib
import datetime
import math
import posixpath
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from paimon_magics.columnar.binary_rows import decode_rows
from paimon_magics.columnar.fields import Field, can_evolve, evolved
from paimon_magics.columnar.time_zones import UTC, clock_text, rules_of
from paimon_magics.errors import PaimonMagicsError
from paimon_magics.planning.formatting import count_text, shortened
from paimon_magics.planning.reads.splits import StoredFile
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.statements.clauses.names import table_text
from paimon_magics.statements.data_types import (
    INTEGERS,
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    MultisetType,
    RowType,
    VectorType,
)
from paimon_magics.tables.manifests.column_statistics import Bounds, column_bounds
from paimon_magics.tables.manifests.live_files import ManifestCache, live_files
from paimon_magics.tables.manifests.partitions import partition_name
from paimon_magics.tables.reading.data_files import FileAccess, FileReader
from paimon_magics.tables.reading.table_files import data_paths
from paimon_magics.tables.schema.history import TableSchemas
from paimon_magics.tables.schema.types import arrow_type
from paimon_magics.tables.snapshots.latest import latest_snapshot
from paimon_magics.tables.splits.stored_files import stored_files
from paimon_magics.tables.stores.paths import local_path
from paimon_magics.tables.table import Table

_FILES_MAX = 64
"""The most files to open: each costs a request to the store."""

_SHOWN_MAX = 3
_VALUE_CHARACTERS_MAX = 40


# The relative precision of floating-point numbers: 15 decimal digits, 6 for FLOAT.
_DOUBLE_SHARE, _FLOAT_SHARE = 5e-15, 5e-6


@dataclass(frozen=True, slots=True)
class StoredValue:
    """A stored value and its place: file, partition ("" without any) and primary key as texts."""

    value: str
    file: str
    partition: str
    key: str

    def __str__(self) -> str:
        """The value and its place, for a message."""
        parts = [part for part in (self.key, self.partition, self.file) if part]
        return f"{self.value} ({', '.join(parts)})"


@dataclass(frozen=True, slots=True)
class Harm:
    """The harm of a change to the stored rows of one column; false if there is none.

    `unreadable` are the first values whose files become unreadable, `changed` the first values that
    are read as other values, `nulls` is the number of NULLs in a column that becomes NOT NULL.
    `impossible`: some files have a type that can't be cast to the new type. `examined` is the
    number of rows and files checked, `not_looked_at` the reason why files could not be read.
    """

    column: str
    unreadable: tuple[StoredValue, ...] = ()
    changed: tuple[StoredValue, ...] = ()
    nulls: int = 0
    impossible: bool = False
    examined: str = ""
    not_looked_at: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.unreadable or self.changed or self.nulls or self.impossible)


def harm_of(table: Table, planned: TableSchema, rows_max: int, zone: str = UTC) -> list[Harm]:
    """The harm of `planned`, the table's schema after a change, for each column whose type changes.
    A column without harm is left out, unless some of its files could not be read. Instants are
    shown in `zone`.

    Reads manifests, and up to `rows_max` rows of the files for each column. Raises
    TableDamagedError where the table's metadata is damaged.
    """
    before = {column.id: column for column in table.schema.columns}
    changed = [
        (before[column.id], column)
        for column in planned.columns
        if column.id in before and before[column.id].type != column.type
    ]
    snapshot = latest_snapshot(table.paimon) if changed else None
    if snapshot is None:
        return []
    files = live_files(ManifestCache(table.paimon), snapshot)
    columns = (_StoredColumn(table, files, old, new, rows_max, zone).harm() for old, new in changed)
    return [harm for harm in columns if harm or harm.not_looked_at]


class _StoredColumn:
    """Examines what a change does to the stored values of one column."""

    def __init__(
        self, table: Table, files: pa.Table, old: Column, new: Column, rows_max: int, zone: str
    ) -> None:
        self._table = table
        self._files = files
        self._old, self._new = old, new
        self._rows_max = rows_max
        self._zone = zone
        self._schemas = TableSchemas(table.paimon)
        self._stored = {id: self._field(id) for id in set(files["schema_id"].to_pylist())}
        # The field with the new type; its nested fields keep their ids.
        today = self._field(table.schema.schema_id)
        assert today is not None
        self._wanted = _retyped(today, new)
        self._unreadable: list[StoredValue] = []
        self._changed: list[StoredValue] = []
        self._closed: list[str] = []
        self._rows = self._opened = 0

    def harm(self) -> Harm:
        """Examine the column and return the harm that was found."""
        nulls = 0
        if self._old.type.nullable and not self._new.type.nullable:
            nulls = self._bounds(self._files).nulls or 0
        fields = self._stored.values()
        impossible = any(field and not can_evolve(field, self._wanted) for field in fields)
        if not impossible:
            self._examine()
        total = sum(self._files["row_count"].to_pylist())
        return Harm(
            self._old.name,
            tuple(self._unreadable),
            tuple(self._changed),
            nulls,
            impossible,
            f"{self._rows:,} of {count_text(total, 'row')} in {self._opened:,} of "
            f"{count_text(self._files.num_rows, 'file')} were checked",
            tuple(self._closed),
        )

    def _field(self, schema_id: int) -> Field | None:
        """The column's field in one of the table's schemas."""
        fields = self._schemas.fields(schema_id)
        return next((field for field in fields if field.id == self._old.id), None)

    def _bounds(self, files: pa.Table) -> Bounds:
        with contextlib.suppress(PaimonMagicsError, pa.ArrowException, ValueError):
            return column_bounds(files, self._schemas.columns, [self._old])[self._old.name]
        return Bounds()

    def _examine(self) -> None:
        rows: dict[str, list[int]] = {"harmful": [], "unknown": [], "harmless": []}
        differing = 0
        for row, schema_id in enumerate(self._files["schema_id"].to_pylist()):
            field = self._stored[schema_id]
            if field is None or _same(field, self._wanted):
                continue
            differing += 1
            known = differing <= 16 * _FILES_MAX
            effect = self._effect_by_bounds(row, field) if known else "unknown"
            rows[effect].append(row)
        suspicious, unknown = rows["harmful"], rows["unknown"]
        if not self._rows_max:
            shown = suspicious[:_SHOWN_MAX]
            for row, (file, partition) in zip(shown, self._chosen(shown), strict=True):
                self._note_ends(row, file, partition)
            return
        step = max(1, len(unknown) // _FILES_MAX)
        chosen = [*suspicious, *unknown[::step]][:_FILES_MAX]
        for file, partition in self._chosen(chosen):
            if self._rows >= self._rows_max or self._is_enough():
                break
            self._opened += 1
            try:
                self._look_into(file, partition)
            except PaimonMagicsError as error:
                self._closed.append(error.message)

    def _is_enough(self) -> bool:
        return len(self._unreadable) >= _SHOWN_MAX or (
            not self._unreadable and len(self._changed) >= _SHOWN_MAX
        )

    def _effect_by_bounds(self, row: int, field: Field) -> str:
        """Whether a file is "harmless", "harmful" or "unknown" by its least and greatest value.
        Whole numbers are harmless if these two fit; other types may hide harm between them."""
        array = self._ends(row, field)
        if field.atomic is None or array is None:
            return "unknown"
        if self._harmful(array, field):
            return "harmful"
        target = self._wanted.atomic
        whole = target is not None and field.atomic.name in INTEGERS and target.name in INTEGERS
        return "harmless" if whole else "unknown"

    def _ends(self, row: int, field: Field) -> pa.Array | None:
        """The least and the greatest value of a file; None if its statistics are not exact."""
        bounds = self._bounds(self._files.slice(row, 1))
        if not bounds.is_exact:
            return None
        ends = [end for end in (bounds.least, bounds.greatest) if end is not None]
        with contextlib.suppress(pa.ArrowException, ValueError, TypeError, OverflowError):
            return pa.array(ends, field.type)
        return None

    def _note_ends(self, row: int, file: StoredFile, partition: str) -> None:
        field = self._stored[file.schema_id]
        array = None if field is None else self._ends(row, field)
        for end in () if array is None else (array.slice(0, 1), array.slice(1, 1)):
            if field is not None and self._harmful(end, field):
                value = StoredValue(
                    _text(end[0].as_py(), self._zone), posixpath.basename(file.path), partition, ""
                )
                reads = _can_be_read(end, field, self._wanted)
                (self._changed if reads else self._unreadable).append(value)
                return

    def _harmful(self, array: pa.Array, field: Field) -> bool:
        reads = _can_be_read(array, field, self._wanted)
        return not reads or bool(_changed_places(array, field, self._wanted, 1))

    def _chosen(self, rows: Sequence[int]) -> Iterator[tuple[StoredFile, str]]:
        if not rows:
            return
        table, schema = self._table, self._table.schema
        types = [arrow_type(schema.column(key).type) for key in schema.partition_keys]
        files = self._files.take(pa.array(rows)).combine_chunks()
        paths = data_paths(table, files)
        names = [""] * len(rows)
        if types:
            columns = decode_rows(files["partition"].combine_chunks(), types)
            values = zip(*(column.to_pylist() for column in columns), strict=True)
            names = [partition_name(table, value, self._zone) for value in values]
        yield from zip(stored_files(files, np.arange(len(rows)), paths, {}), names, strict=True)

    def _look_into(self, file: StoredFile, partition: str) -> None:
        fields = {field.id: field for field in self._schemas.fields(file.schema_id)}
        field = fields[self._old.id]
        ids = [self._table.schema.column(k).id for k in self._table.schema.primary_keys]
        keys = [fields[id] for id in ids if id in fields]
        is_local = local_path(file.path) is not None
        reader = FileReader(
            FileAccess(None if is_local else self._table.paimon.file_io),
            {file.schema_id: tuple(fields.values())},
            (field, *keys),
            (),
            batch_rows=min(self._rows_max, 65_536),
            table=table_text(self._table.name),
        )

        def place(batch: pa.RecordBatch, row: int) -> StoredValue:
            texts = [
                f"{key.name} = {_key_text(batch.column(at)[row], self._zone)}"
                for at, key in enumerate(keys, 1)
            ]
            value = _text(batch.column(0)[row].as_py(), self._zone)
            return StoredValue(value, posixpath.basename(file.path), partition, ", ".join(texts))

        for batch in reader.batches(file):
            batch = batch.slice(0, self._rows_max - self._rows)
            self._rows += batch.num_rows
            column = batch.column(0)
            wrong = _failing_places(
                column, lambda part: _can_be_read(part, field, self._wanted), _SHOWN_MAX
            )
            self._unreadable += [place(batch, row) for row in wrong]
            if not wrong:
                others = _changed_places(column, field, self._wanted, _SHOWN_MAX)
                self._changed += [place(batch, row) for row in others]
            self._unreadable = self._unreadable[:_SHOWN_MAX]
            self._changed = self._changed[:_SHOWN_MAX]
            if self._rows >= self._rows_max or self._is_enough():
                return


def _key_text(value: pa.Scalar, zone: str) -> str:
    return _text(value.as_py(), zone) if pa.types.is_timestamp(value.type) else str(value)


def _text(value: Any, zone: str) -> str:
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return clock_text(value.astimezone(rules_of(zone)))
    text = repr(value) if isinstance(value, str | bytes) else str(value)
    return shortened(text, _VALUE_CHARACTERS_MAX)


def _retyped(today: Field, new: Column) -> Field:
    """The current field with the new type; nested fields keep their ids."""

    def build(field: Field, data_type: DataType) -> Field:
        arrow = arrow_type(data_type)
        match data_type:
            case RowType(fields=parts) if field.is_struct and len(parts) == len(field.parts):
                inner = tuple(
                    replace(build(inside, part.type), name=part.name)
                    for inside, part in zip(field.parts, parts, strict=True)
                )
            case ArrayType(element=element) if len(field.parts) == 1:
                inner = (build(field.parts[0], element),)
            case MapType(key=key, value=value) if len(field.parts) == 2:
                inner = (build(field.parts[0], key), build(field.parts[1], value))
            case AtomicType():
                return Field(field.id, field.name, arrow, (), data_type)
            case ArrayType() | MapType() | MultisetType() | RowType() | VectorType():
                return Field(field.id, field.name, arrow)
        return Field(field.id, field.name, arrow, inner)

    return build(today, new.type)


def _same(stored: Field, wanted: Field) -> bool:
    if stored.atomic is None or wanted.atomic is None:
        return bool(stored.type == wanted.type)
    before, after = stored.atomic, wanted.atomic
    return (before.name, before.parameters) == (after.name, after.parameters)


# Finds the stored values that can't be read, or are read as other values, when the type of their
# column changes.


def _can_be_read(array: pa.Array, stored: Field, wanted: Field) -> bool:
    """Whether all values can be read as the new type."""
    try:
        evolved(array, stored, wanted, len(array))
    except (PaimonMagicsError, pa.ArrowException, ArithmeticError, ValueError):
        return False
    return True


def _failing_places(
    array: pa.Array, passes: Callable[[pa.Array], bool], count_max: int, start: int = 0
) -> list[int]:
    """The positions of the first `count_max` values that do not pass, found by bisection. `passes`
    takes several values at once."""
    if not len(array) or passes(array):
        return []
    if len(array) == 1:
        return [start]
    half = len(array) // 2
    places = _failing_places(array.slice(0, half), passes, count_max, start)
    if len(places) < count_max:
        rest = array.slice(half)
        places += _failing_places(rest, passes, count_max - len(places), start + half)
    return places


def _changed_places(array: pa.Array, stored: Field, wanted: Field, count_max: int) -> list[int]:
    """The positions of the first `count_max` values that the new type changes: casting them to it
    and back gives other values."""
    if stored.atomic is None or wanted.atomic is None or not can_evolve(wanted, stored):
        return []
    try:
        after = evolved(array, stored, wanted, len(array))
        back = evolved(after, wanted, stored, len(array))
    except (PaimonMagicsError, pa.ArrowException, ArithmeticError, ValueError):
        return []
    pairs = enumerate(zip(array.to_pylist(), back.to_pylist(), strict=True))
    places = (
        row
        for row, (value, other) in pairs
        if value != other and value == value and not _means_the_same(value, other, stored, wanted)
    )
    return list(islice(places, count_max))


def _means_the_same(value: Any, other: Any, stored: Field, wanted: Field) -> bool:
    """Whether a value that comes back in another form means the same: `007` and 7, `TRUE` and true,
    and numbers that differ beyond the precision of floating point."""
    if other is None or wanted.atomic is None or stored.atomic is None:
        return False
    name = wanted.atomic.name
    if isinstance(value, float):
        share = _FLOAT_SHARE if "FLOAT" in (name, stored.atomic.name) else _DOUBLE_SHARE
        return math.isclose(value, other, rel_tol=share)
    if not isinstance(value, str):
        return False
    if name in ("CHAR", "VARCHAR", "STRING"):
        return value.rstrip(" ") == str(other).rstrip(" ")
    if name in (*INTEGERS, "DECIMAL"):
        with contextlib.suppress(ValueError):
            return float(value) == float(other)
    return name in ("BOOLEAN", "FLOAT", "DOUBLE")
