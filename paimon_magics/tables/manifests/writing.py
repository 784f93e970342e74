"""Writing manifests: from new entries, and from entries of manifests that are merged.

A manifest is an Avro file of blocks, each compressed alone. When a merge keeps all entries of a
manifest, it is copied block by block without decoding an entry: large blocks as they are, small
ones joined. Entries are decoded and encoded again if some must be removed, or if the manifest's
writer used other fields or another compression. The widest schema is used then, so that no field of
a newer Paimon is lost.

A process that dies here leaves files that no snapshot names; see `names`.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import fastavro
from pypaimon.manifest import avro_codec
from pypaimon.manifest.schema.manifest_entry import MANIFEST_ENTRY_SCHEMA, ManifestEntry
from pypaimon.manifest.schema.manifest_file_meta import ManifestFileMeta
from pypaimon.manifest.schema.simple_stats import SimpleStats
from pypaimon.table.row.generic_row import GenericRow, GenericRowDeserializer

from paimon_magics.tables.manifests.names import ADD, MetadataNames, manifest_folder
from paimon_magics.tables.pypaimon_internals import manifest_record

Record = dict[str, Any]
"""An entry as an Avro record, with the field names of Paimon's `ManifestEntry.SCHEMA`."""

_BLOCK_BYTES = 16_000  # Paimon's `AvroFileFormat` and pypaimon: blocks of about this size
_SYNC_BYTES = 16  # Avro's marker behind each block


@dataclass(frozen=True, slots=True)
class _Block:
    """Entries that were compressed together: their number, the decompressed bytes, and the bytes
    in the file, b"" for an entry that is in no file yet."""

    count: int
    content: bytes
    stored: bytes


class ManifestReader:
    """Reads one manifest of a table, of any writer. `schema` is the writer's Avro schema."""

    def __init__(self, paimon: Any, meta: ManifestFileMeta) -> None:
        path = f"{manifest_folder(paimon)}/{meta.file_name}"
        with paimon.file_io.new_input_stream(path) as stream:
            self._content: bytes = stream.read()
        self.meta = meta
        reader = fastavro.block_reader(io.BytesIO(self._content))
        self.schema: Any = reader.writer_schema
        self.codec = str(reader.codec)

    def blocks(self) -> Iterator[_Block]:
        """The blocks, in order."""
        block: Any  # fastavro's stub leaves out what a block holds
        for block in fastavro.block_reader(io.BytesIO(self._content)):
            stored = self._content[block.offset : block.offset + block.size - _SYNC_BYTES]
            yield _Block(block.num_records, block.bytes_.getvalue(), stored)

    def records(self) -> Iterator[Record]:
        """The entries, in order."""
        yield from fastavro.reader(io.BytesIO(self._content))  # type: ignore[misc]


def widest_schema(schemas: Iterable[Any]) -> Any | None:
    """The one of these schemas, or this project's own, that has the fields of all; None if none
    does."""
    others = list(schemas)
    for candidate in (MANIFEST_ENTRY_SCHEMA, *others):
        fields = _fields(candidate)
        if all(_fields(schema) <= fields for schema in others):
            return candidate
    return None


class ManifestWriter:
    """Writes entries into manifests of about `target_bytes`, in the given order."""

    def __init__(
        self, paimon: Any, names: MetadataNames, target_bytes: int, schema: Any = None
    ) -> None:
        self._paimon = paimon
        self._names = names
        self._target_bytes = target_bytes
        self._codec = str(avro_codec(paimon.options.manifest_compression()))
        self._schema = fastavro.parse_schema(schema or MANIFEST_ENTRY_SCHEMA)
        self._shape = _shape(schema or MANIFEST_ENTRY_SCHEMA)
        self._file: _AvroFile | None = None
        self._statistics = _ManifestStatistics(paimon)
        self._finished: list[ManifestFileMeta] = []

    def copy(self, reader: ManifestReader) -> None:
        """Add all entries of a manifest."""
        if reader.codec != self._codec or _shape(reader.schema) != self._shape:
            self.add_records(reader.records())
            return
        file = self._open()
        for block in reader.blocks():
            file.add(block)
        self._statistics.add_manifest(reader.meta)
        self._roll()

    def add_records(self, records: Iterable[Record]) -> None:
        """Add entries in Avro's form."""
        for record in records:
            content = io.BytesIO()
            fastavro.schemaless_writer(content, self._schema, record)
            self._open().add(_Block(1, content.getvalue(), b""))
            self._statistics.add_record(record)
            self._roll()

    def add_entries(self, entries: Iterable[ManifestEntry]) -> None:
        """Add new entries."""
        self.add_records(manifest_record(entry) for entry in entries)

    def close(self) -> list[ManifestFileMeta]:
        """Finish the last manifest; return all manifests that were written, in order."""
        if self._file is not None:
            self._finish(self._file)
        return self._finished

    def _open(self) -> _AvroFile:
        if self._file is None:
            self._file = _AvroFile(self._schema, self._codec)
        return self._file

    def _roll(self) -> None:
        assert self._file is not None
        if self._file.size_bytes >= self._target_bytes:
            self._finish(self._file)

    def _finish(self, file: _AvroFile) -> None:
        content = file.content()
        name = self._names.manifest()
        path = f"{manifest_folder(self._paimon)}/{name}"
        with self._paimon.file_io.new_output_stream(path) as stream:
            stream.write(content)
        self._finished.append(self._statistics.meta(name, len(content)))
        self._file = None
        self._statistics = _ManifestStatistics(self._paimon)


class _AvroFile:
    """One manifest that is built in memory."""

    def __init__(self, schema: Any, codec: str) -> None:
        self._file = io.BytesIO()
        self._writer: Any = fastavro.write.Writer(self._file, schema, codec=codec)
        self._writer.flush()
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._gathered_count = 0

    @property
    def size_bytes(self) -> int:
        """The size of the file so far, without the entries that wait for a full block."""
        return self._file.tell()

    def add(self, block: _Block) -> None:
        """Add a block. A stored block that is large enough is copied as it is."""
        if block.stored and len(block.content) >= _BLOCK_BYTES // 2:
            self._write_gathered()
            self._file.write(block.stored)
            self._file.write(self._writer.sync_marker)
            return
        self._gathered.append(block.content)
        self._gathered_bytes += len(block.content)
        self._gathered_count += block.count
        if self._gathered_bytes >= _BLOCK_BYTES:
            self._write_gathered()

    def content(self) -> bytes:
        """The whole file."""
        self._write_gathered()
        return self._file.getvalue()

    def _write_gathered(self) -> None:
        if self._gathered_count:
            joined = _Joined(self._gathered_count, io.BytesIO(b"".join(self._gathered)))
            self._writer.write_block(joined)
        self._gathered, self._gathered_bytes, self._gathered_count = [], 0, 0


@dataclass(frozen=True, slots=True)
class _Joined:
    """Several blocks as one, with the attributes that fastavro needs to write a block."""

    num_records: int
    bytes_: io.BytesIO


def _fields(schema: Any) -> set[str]:
    """The paths of all fields of a record and of the records inside it."""
    paths: set[str] = set()

    def visit(node: Any, path: str) -> None:
        match node:
            case list():
                for choice in node:
                    visit(choice, path)
            case {"type": "record", "fields": list() as fields}:
                for field in fields:
                    inner = f"{path}.{field['name']}"
                    paths.add(inner)
                    visit(field["type"], inner)
            case {"type": "array", "items": items}:
                visit(items, path)

    visit(schema, "")
    return paths


def _shape(schema: Any) -> Any:
    """The part of an Avro schema that decides how values are encoded: order, names and types of
    fields. Defaults and names of records, which differ between Java and pypaimon, do not. None if
    a record is reused by its name, which neither does."""
    match schema:
        case str():
            return schema if schema in _PRIMITIVES else None
        case list():
            return tuple(map(_shape, schema))
        case {"type": "record", "fields": list() as fields}:
            return tuple((field["name"], _shape(field["type"])) for field in fields)
        case {"type": "array", "items": items}:
            return ("array", _shape(items))
        case {"type": kind, **rest}:
            return (_shape(kind), rest.get("logicalType"))
    return None


_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


# The statistics of a manifest in its manifest list: counts, and bounds for pruning manifests.
#
# They are collected as by Paimon's `ManifestAvroWriter`. A NULL count, or a bound of buckets,
# levels or row ids, is unknown for the whole manifest if it is unknown for a part.


_Range = tuple[int | None, int | None]
"""The least and the greatest of some numbers; both None if one of them is unknown."""


class _ManifestStatistics:
    """Collects statistics from entries, and from the statistics of whole manifests."""

    def __init__(self, paimon: Any) -> None:
        self._schema_id_now = paimon.table_schema.id
        self._fields = paimon.partition_keys_fields
        self._added = self._deleted = 0
        self._schema_ids: set[int] = set()
        self._ranges: dict[str, _Range] = {}
        self._total_buckets: set[int | None] = set()
        self._least: list[Any] = [None] * len(self._fields)
        self._greatest: list[Any] = [None] * len(self._fields)
        self._nulls: list[int | None] = [0] * len(self._fields)
        self._partitions: dict[bytes, tuple[Any, ...]] = {}

    def add_record(self, record: Mapping[str, Any]) -> None:
        """Add an entry."""
        file = record["_FILE"]
        is_added = record["_KIND"] == ADD
        self._add(is_added, not is_added, file["_SCHEMA_ID"], record["_TOTAL_BUCKETS"])
        self._widen("bucket", record["_BUCKET"], record["_BUCKET"])
        self._widen("level", file["_LEVEL"], file["_LEVEL"])
        first = file.get("_FIRST_ROW_ID")
        self._widen("row_id", first, None if first is None else first + file["_ROW_COUNT"] - 1)
        for position, value in enumerate(self._partition(record["_PARTITION"])):
            self._see(position, value, value, int(value is None))

    def add_manifest(self, meta: ManifestFileMeta) -> None:
        """Add all entries of a manifest, by its statistics."""
        added, deleted = meta.num_added_files, meta.num_deleted_files
        self._add(added, deleted, meta.schema_id, meta.total_buckets)
        for name in ("bucket", "level", "row_id"):
            self._widen(name, getattr(meta, f"min_{name}"), getattr(meta, f"max_{name}"))
        of = meta.partition_stats
        for at in range(len(self._fields)):
            ends = of.min_values.get_field(at), of.max_values.get_field(at)
            self._see(at, *ends, of.null_counts[at] if of.null_counts else None)

    def meta(self, name: str, size_bytes: int) -> ManifestFileMeta:
        """The entry in the manifest list for the manifest with this name and size."""
        # As in pypaimon: a manifest can be skipped by a bucket count only if all entries share it.
        [total_buckets] = self._total_buckets if len(self._total_buckets) == 1 else [None]
        if total_buckets is not None and total_buckets <= 0:
            total_buckets = None
        ranges = {}
        for key in ("bucket", "level", "row_id"):
            ranges[f"min_{key}"], ranges[f"max_{key}"] = self._ranges.get(key, (None, None))
        return ManifestFileMeta(
            file_name=name,
            file_size=size_bytes,
            num_added_files=self._added,
            num_deleted_files=self._deleted,
            partition_stats=SimpleStats(
                min_values=GenericRow(self._least, self._fields),
                max_values=GenericRow(self._greatest, self._fields),
                null_counts=self._nulls,
            ),
            schema_id=max(self._schema_ids, default=self._schema_id_now),
            total_buckets=total_buckets,
            **ranges,
        )

    def _add(self, added: int, deleted: int, schema_id: int, total_buckets: int | None) -> None:
        self._added += added
        self._deleted += deleted
        self._schema_ids.add(schema_id)
        self._total_buckets.add(total_buckets)

    def _widen(self, key: str, least: int | None, greatest: int | None) -> None:
        known = self._ranges.get(key, (least, greatest))
        ends = (*known, least, greatest)
        numbers = [end for end in ends if end is not None]
        is_known = len(numbers) == len(ends)
        self._ranges[key] = (min(numbers), max(numbers)) if is_known else (None, None)

    def _partition(self, encoded: bytes) -> tuple[Any, ...]:
        known = self._partitions.get(encoded)
        if known is None:
            row = GenericRowDeserializer.from_bytes(encoded, self._fields)
            known = self._partitions[encoded] = tuple(row.values)
        return known

    def _see(self, at: int, least: Any, greatest: Any, nulls: int | None) -> None:
        """Add the bounds and the number of NULLs of the partition key at a position."""
        for value in (least, greatest):
            if value is not None:
                low, high = self._least[at], self._greatest[at]
                self._least[at] = value if low is None or value < low else low
                self._greatest[at] = value if high is None or value > high else high
        known = self._nulls[at]
        self._nulls[at] = None if nulls is None or known is None else known + nulls
