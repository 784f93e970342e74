"""The files of a table's snapshot as columns, from which `columnar.layouts` makes cells.

Reads manifests only; no folder is listed, nothing is written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.layouts import FILES
from paimon_magics.columnar.time_zones import process_zone
from paimon_magics.planning.reports.partition_names import KeyKind, key_kind
from paimon_magics.tables.manifests.columns import all_native, creation_instants, entries
from paimon_magics.tables.manifests.live_files import undeleted
from paimon_magics.tables.system_tables.table_view import TableView

_COLUMNS = ["kind", "partition", "bucket", "level", "file_name", "row_count", "file_size",
            "creation_time"]  # fmt: skip
_WITH_OFFSET = re.compile(r".*\d\d:\d\d[\d:.]*[+-]\d\d:\d\d")


@dataclass(frozen=True, slots=True)
class NamedFiles:
    """`files` with the columns of FILES. `twice` are instants in their partitions' names whose
    wall-clock time occurs twice in the zone, so that they are shown with an offset. `clocks_in` is
    the zone that the writers' wall clocks were taken for, "" if every file has its instant."""

    files: pa.Table
    twice: tuple[str, ...] = ()
    clocks_in: str = ""


def layout_files(view: TableView, zone: str) -> NamedFiles:
    """The data files of `view` with the columns of FILES. A partition is written as
    `day=2026-11-20/region=eu`, "" in a table without partitions. Instants in it are in `zone`;
    `partition.default-name` stands for NULL and blank text."""
    named = named_files(view, zone)
    return replace(named, files=named.files.select(FILES.names))


def named_files(view: TableView, zone: str) -> NamedFiles:
    """As `layout_files`, with the column `file_name` too."""
    schema = FILES.append(pa.field("file_name", pa.string()))
    if view.snapshot is None:
        return NamedFiles(schema.empty_table())
    live = undeleted(entries(view.folder.columns, view.snapshot, _COLUMNS))
    live = view.in_real_buckets(live)
    partitions, twice = _partitions(view, live.column("partition").combine_chunks(), zone)
    names = live.column("file_name")
    columns = {
        "file_name": names,
        "partition": partitions,
        "bucket": live.column("bucket"),
        "level": live.column("level"),
        "record_count": live.column("row_count"),
        "file_size_in_bytes": live.column("file_size"),
        "creation_time": creation_instants(live),
    }
    files = pa.table([columns[f.name].cast(f.type) for f in schema], schema)
    return NamedFiles(files, twice, "" if all_native(live) else process_zone())


def _partitions(view: TableView, stored: pa.Array, zone: str) -> tuple[pa.Array, tuple[str, ...]]:
    encoded = stored.dictionary_encode()
    values = view.partition_values(encoded.dictionary, zone)
    if not values:
        return pa.array([""] * len(stored), type=pa.string()), ()
    twice = {
        text
        for field, texts in zip(view.partition_fields(), values, strict=True)
        if field.type is not None and key_kind(field.type) is KeyKind.INSTANT
        for text in pc.unique(texts).to_pylist()
        if _WITH_OFFSET.fullmatch(text)
    }
    parts = [
        pc.binary_join_element_wise(key, texts, "=")
        for key, texts in zip(view.partition_keys, values, strict=True)
    ]
    whole = pc.binary_join_element_wise(*parts, "/") if len(parts) > 1 else parts[0]
    return whole.take(encoded.indices), tuple(sorted(twice))
