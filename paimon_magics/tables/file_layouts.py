"""The files of a table's snapshot as columns: what `columnar.layouts` makes cells of.

From manifests alone; nothing is listed, nothing written.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.binary_rows import decode_rows
from paimon_magics.columnar.java_text import cast_text
from paimon_magics.columnar.layouts import FILES
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.tables.live_files import undeleted
from paimon_magics.tables.manifest_entries import entries
from paimon_magics.tables.table_views import TableView

__all__ = ["layout_files"]

_COLUMNS = ["kind", "partition", "bucket", "level", "file_name", "row_count", "file_size",
            "creation_time"]  # fmt: skip
_DEFAULT_PARTITION = "__DEFAULT_PARTITION__"


def layout_files(view: TableView) -> pa.Table:
    """FILES of the table as `view` shows it. A partition is `day=2026-11-20/region=eu`, "" in a
    table without partitions; NULL and blank text are `partition.default-name`."""
    if view.snapshot is None:
        return FILES.empty_table()
    found = undeleted(entries(view.folder.columns, view.snapshot).select(_COLUMNS))
    found = view.in_real_buckets(found)
    columns = {
        "partition": _partitions(view, found.column("partition").combine_chunks()),
        "bucket": found.column("bucket"),
        "level": found.column("level"),
        "record_count": found.column("row_count"),
        "file_size_in_bytes": found.column("file_size"),
        "creation_time": found.column("creation_time"),
    }
    return pa.table([columns[f.name].cast(f.type) for f in FILES], FILES)


def _partitions(view: TableView, stored: Any) -> pa.Array:
    fields = view.partition_fields()
    if not fields:
        return pa.array([""] * len(stored), type=pa.string())
    default = view.options.get("partition.default-name", _DEFAULT_PARTITION)
    encoded = stored.dictionary_encode()
    values = decode_rows(encoded.dictionary, [field.stored_type for field in fields])
    parts = []
    for column, field in zip(values, fields, strict=True):
        texts = cast_text(column, field.type).cast(pa.string())
        if isinstance(field.type, AtomicType) and field.type.name in ("CHAR", "VARCHAR", "STRING"):
            blank = pc.equal(pc.utf8_trim_whitespace(texts), "")
            texts = pc.if_else(pc.fill_null(blank, True), default, texts)
        texts = pc.fill_null(texts, default)
        parts.append(pc.binary_join_element_wise(field.name, texts, "="))
    whole = pc.binary_join_element_wise(*parts, "/") if len(parts) > 1 else parts[0]
    return whole.take(encoded.indices)
