"""Deletions name the partition of a file by the bytes that its addition has.

A partition that is NULL in some column has several serialised forms, and a deletion whose partition
has another one deletes nothing: Paimon's `FileEntry.Identifier` compares bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pypaimon.manifest.schema.manifest_entry import ManifestEntry

from paimon_magics.tables.manifests.file_kinds import DELETE
from paimon_magics.tables.manifests.live_files import ManifestCache, live_files
from paimon_magics.tables.pypaimon_internals import wide_nulls
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.stored_rows import StoredRow

__all__ = ["deleted_as_stored"]


def deleted_as_stored(
    table: Table, latest: Any, entries: Sequence[ManifestEntry]
) -> Sequence[ManifestEntry]:
    """The entries, those that delete a file of `latest` with the partition's bytes in it. They are
    looked up only for partitions of several forms."""
    doubtful = [one.kind == DELETE and bool(wide_nulls(one.partition)) for one in entries]
    if latest is None or not any(doubtful):
        return entries
    files = live_files(ManifestCache(table.paimon), latest, ("partition", "file_name"))
    names = [one.file.file_name for one, is_one in zip(entries, doubtful, strict=True) if is_one]
    files = files.filter(pc.is_in(files["file_name"], pa.array(names, files["file_name"].type)))
    stored = dict(zip(files["file_name"].to_pylist(), files["partition"].to_pylist(), strict=True))
    fields = table.paimon.partition_keys_fields
    return [
        replace(one, partition=StoredRow(stored[one.file.file_name], fields))
        if is_one and one.file.file_name in stored
        else one
        for one, is_one in zip(entries, doubtful, strict=True)
    ]
