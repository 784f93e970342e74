"""A table as stored at one snapshot, from which the metadata system tables are made.

A `TableView` reads each schema once and converts serialized partitions to text. It is made for one
read, and writes nothing.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.binary_rows import decode_rows
from paimon_magics.columnar.java_text import braced, cast_text, stored_type, told_text
from paimon_magics.errors import TableDamagedError, UnsupportedStatementError
from paimon_magics.planning.schemas.table_schema import DEFAULT_PARTITION_NAME
from paimon_magics.statements.data_types import AtomicType, DataType
from paimon_magics.statements.types.type_text import from_paimon
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.pypaimon_internals import schema_path
from paimon_magics.tables.table import StoredTable

Document = Mapping[str, Any]

_TEXTS = ("CHAR", "VARCHAR", "STRING")
_POSTPONE = "-2"  # the option `bucket` of a table with postponed buckets


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a stored schema. `type` is None for the few types that we can't represent."""

    id: int
    name: str
    type: DataType | None

    @property
    def stored_type(self) -> pa.DataType:
        """The Arrow type to which its values in serialized rows are decoded."""
        return stored_type(self.type)


@dataclass(slots=True)
class TableView:
    """A table or branch at `snapshot`, which is None for a table without snapshots.

    `schema` is the document of the schema in which the system table shows columns: the newest, or
    that of the requested snapshot. `folder` is the cache of the table's manifests.
    """

    table: StoredTable
    snapshot: Document | None
    schema: Document
    folder: ManifestCache
    _schemas: dict[int, tuple[Field, ...]] = field(default_factory=dict)
    _keys: dict[int, tuple[str, ...]] = field(default_factory=dict)

    @property
    def paimon(self) -> Any:
        """pypaimon's table."""
        return self.table.paimon

    @property
    def options(self) -> Mapping[str, str]:
        """The table's stored options."""
        return dict(self.schema.get("options") or {})

    @property
    def partition_keys(self) -> Sequence[str]:
        """The names of the partition columns."""
        return list(self.schema.get("partitionKeys") or [])

    def partition_fields(self) -> tuple[Field, ...]:
        """The partition columns, in the order of serialized partitions."""
        by_name = {f.name: f for f in fields_of(self.schema)}
        return tuple(by_name[name] for name in self.partition_keys)

    def fields(self, schema_id: int) -> tuple[Field, ...]:
        """The fields of one of the table's schemas."""
        self._load(schema_id)
        return self._schemas[schema_id]

    def key_fields(self, schema_id: int) -> tuple[Field, ...]:
        """The fields of a file's key in that schema: the primary key without partition columns, or
        with them if it has no other columns; all fields if there is no primary key."""
        self._load(schema_id)
        names = self._keys[schema_id]
        if not names:
            return self._schemas[schema_id]
        by_name = {f.name: f for f in self._schemas[schema_id]}
        return tuple(by_name[name] for name in names)

    def partition_text(self, partitions: pa.Array) -> pa.Array:
        """The text of each serialized partition, such as `{x, 1}`."""
        fields = self.partition_fields()
        if not fields:
            return pa.array(["{}"] * len(partitions), type=pa.string())
        encoded = partitions.dictionary_encode()
        values = decode_rows(encoded.dictionary, [f.stored_type for f in fields])
        texts = [cast_text(v, f.type) for v, f in zip(values, fields, strict=True)]
        return braced(texts).cast(pa.string()).take(encoded.indices)

    def partition_values(self, partitions: pa.Array, zone: str | None = None) -> list[pa.Array]:
        """The texts of each partition column. `partition.default-name` stands for NULL and blank
        text, as in the names of folders. With a `zone` values are written as in our own views, else
        as in Paimon's system tables."""
        encoded = partitions.dictionary_encode()
        fields = self.partition_fields()
        default = self.options.get("partition.default-name", DEFAULT_PARTITION_NAME)
        columns = []
        values = decode_rows(encoded.dictionary, [f.stored_type for f in fields]) if fields else []
        for column, data_type in zip(values, (f.type for f in fields), strict=True):
            texts = (
                cast_text(column, data_type) if zone is None else told_text(column, data_type, zone)
            ).cast(pa.string())
            if isinstance(data_type, AtomicType) and data_type.name in _TEXTS:
                blank = pc.equal(pc.utf8_trim_whitespace(texts), "")
                texts = pc.if_else(pc.fill_null(blank, True), default, texts)
            columns.append(pc.fill_null(texts, default).take(encoded.indices))
        return columns

    def in_real_buckets(self, entries: pa.Table) -> pa.Table:
        """The entries of files that reads see: without those that wait for their bucket."""
        if self.options.get("bucket") != _POSTPONE:
            return entries
        return entries.filter(pc.greater_equal(entries.column("bucket"), 0))

    def _load(self, schema_id: int) -> None:
        if schema_id in self._schemas:
            return
        if schema_id == self.schema["id"]:
            document = self.schema
        else:
            path = schema_path(self.paimon.schema_manager, schema_id)
            try:
                document = json.loads(self.paimon.file_io.read_file_utf8(path))
            except FileNotFoundError:
                raise TableDamagedError(
                    f"Files of `{self.table.name}` have the schema {schema_id}, which is missing "
                    f"({path}).",
                    hint="Restore the schema's file.",
                ) from None
        keys = document.get("primaryKeys") or []
        partitions = document.get("partitionKeys") or []
        trimmed = tuple(key for key in keys if key not in partitions)
        self._schemas[schema_id] = fields_of(document)
        self._keys[schema_id] = trimmed or tuple(keys)


def fields_of(schema: Document) -> tuple[Field, ...]:
    """The fields of a schema's document."""
    return tuple(Field(f["id"], f["name"], _type(f["type"])) for f in schema["fields"])


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a system table. Its value is what `source` returns for a row, or the row's member
    of that name. A `required` column is never NULL."""

    name: str
    type: pa.DataType
    source: str | Callable[[Any], Any]
    required: bool = False

    def value(self, row: Any) -> Any:
        """The column's value in a row: a document or an object."""
        if not isinstance(self.source, str):
            return self.source(row)
        return row.get(self.source) if isinstance(row, Mapping) else getattr(row, self.source)


Loaders = Mapping[str, tuple[Callable[[TableView], pa.Table], pa.Schema]]
"""System tables by name: what reads each, and its columns."""


def schema_of(columns: Iterable[Column]) -> pa.Schema:
    """The Arrow schema of a system table."""
    return pa.schema([pa.field(c.name, c.type, not c.required) for c in columns])


def table_of(columns: Sequence[Column], rows: Sequence[Any]) -> pa.Table:
    """The system table of some rows."""
    arrays = [pa.array([c.value(row) for row in rows], c.type) for c in columns]
    return pa.Table.from_arrays(arrays, schema=schema_of(columns))


def local_time(epoch_ms: int) -> datetime.datetime:
    """Milliseconds since 1970 UTC as the wall-clock time in this process's time zone, as Paimon
    shows it in the JVM's."""
    seconds, millis = divmod(epoch_ms, 1000)
    return datetime.datetime.fromtimestamp(seconds) + datetime.timedelta(milliseconds=millis)


def _type(value: Any) -> DataType | None:
    try:
        return from_paimon(value)
    except UnsupportedStatementError:
        return None
