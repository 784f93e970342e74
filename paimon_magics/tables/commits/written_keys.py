"""Reads the keys in data files that a commit adds, or that others have added: key columns only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pypaimon.utils.file_store_path_factory import canonical_data_file_path

from paimon_magics.planning.reads.splits import StoredFile
from paimon_magics.tables.manifests.hash_indexes import Bucket
from paimon_magics.tables.manifests.partitions import partition_values
from paimon_magics.tables.reading.table_files import whole_rows_reader
from paimon_magics.tables.splits.stored_files import stored_files
from paimon_magics.tables.table import Table


def new_file(table: Table, bucket: Bucket, meta: Any) -> StoredFile:
    """A file that a commit message adds to a bucket; `meta` is pypaimon's."""
    return StoredFile(
        meta.external_path or canonical_data_file_path(table.paimon, *bucket, meta.file_name),
        meta.file_name.rpartition(".")[2].lower(),
        meta.schema_id,
        meta.row_count,
        meta.file_size,
    )


def files_by_bucket(table: Table, entries: pa.Table) -> Iterator[tuple[Bucket, StoredFile]]:
    """The files of manifest entries (columns of MANIFEST_ENTRIES), each with its bucket."""
    if not entries.num_rows:
        return
    partitions, of_files = partition_values(table.paimon, entries)
    names = (entries[name].to_pylist() for name in ("bucket", "file_name", "external_path"))
    buckets, paths = [], []
    for at, bucket, name, outside in zip(of_files, *names, strict=True):
        buckets.append((partitions[at], bucket))
        paths.append(outside or canonical_data_file_path(table.paimon, *buckets[-1], name))
    files = stored_files(entries, np.arange(entries.num_rows), pa.array(paths, pa.string()), {})
    yield from zip(buckets, files, strict=True)


def key_batches(
    table: Table, files: Sequence[StoredFile], elsewhere: frozenset[str] = frozenset()
) -> Iterator[pa.RecordBatch]:
    """The key columns of some files; `elsewhere` are the stores of files outside the table's
    folder."""
    keys = table.schema.trimmed_primary_keys
    reader = whole_rows_reader(table, [file.schema_id for file in files], elsewhere)
    reader = replace(reader, wanted=tuple(field for field in reader.wanted if field.name in keys))
    for file in files:
        for rows in reader.batches(file):
            yield rows.select(list(keys))
