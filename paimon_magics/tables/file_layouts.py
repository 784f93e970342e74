"""The files of a table's snapshot as columns: what `columnar.layouts` makes cells of.

From manifests alone; nothing is listed, nothing written.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.layouts import FILES
from paimon_magics.tables.live_files import undeleted
from paimon_magics.tables.manifest_entries import entries
from paimon_magics.tables.table_views import TableView

__all__ = ["layout_files", "named_files"]

_COLUMNS = ["kind", "partition", "bucket", "level", "file_name", "row_count", "file_size",
            "creation_time"]  # fmt: skip


def layout_files(view: TableView) -> pa.Table:
    """FILES of the table as `view` shows it. A partition is `day=2026-11-20/region=eu`, "" in a
    table without partitions; NULL and blank text are `partition.default-name`."""
    return named_files(view).select(FILES.names)


def named_files(view: TableView) -> pa.Table:
    """The same with `file_name`."""
    schema = FILES.append(pa.field("file_name", pa.string()))
    if view.snapshot is None:
        return schema.empty_table()
    found = undeleted(entries(view.folder.columns, view.snapshot).select(_COLUMNS))
    found = view.in_real_buckets(found)
    columns = {
        "file_name": found.column("file_name"),
        "partition": _partitions(view, found.column("partition").combine_chunks()),
        "bucket": found.column("bucket"),
        "level": found.column("level"),
        "record_count": found.column("row_count"),
        "file_size_in_bytes": found.column("file_size"),
        "creation_time": found.column("creation_time"),
    }
    return pa.table([columns[f.name].cast(f.type) for f in schema], schema)


def _partitions(view: TableView, stored: pa.Array) -> pa.Array:
    encoded = stored.dictionary_encode()
    values = view.partition_values(encoded.dictionary)
    if not values:
        return pa.array([""] * len(stored), type=pa.string())
    parts = [
        pc.binary_join_element_wise(key, texts, "=")
        for key, texts in zip(view.partition_keys, values, strict=True)
    ]
    whole = pc.binary_join_element_wise(*parts, "/") if len(parts) > 1 else parts[0]
    return whole.take(encoded.indices)
