"""Finds which files hold which rows of a data-evolution table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pypaimon.utils.file_store_path_factory import canonical_data_file_path

from paimon_magics.planning.reads.row_ranges import RowRange
from paimon_magics.planning.reads.splits import Deletions, row_groups
from paimon_magics.tables.manifests.file_paths import file_paths
from paimon_magics.tables.manifests.live_files import ManifestCache, live_files
from paimon_magics.tables.manifests.partition_values import partition_values
from paimon_magics.tables.schema.types import arrow_type
from paimon_magics.tables.splits.planning import FileKey
from paimon_magics.tables.splits.stored_files import stored_files
from paimon_magics.tables.table import Table

__all__ = ["ranges_of", "row_ranges"]


def row_ranges(
    table: Table, snapshot: Any, manifests: ManifestCache | None = None
) -> tuple[RowRange, ...]:
    """The ranges of rows of a data-evolution table at `snapshot`, pypaimon's, in the order of their
    ids. `manifests` is a cache of the table's manifests.

    Deletion vectors are left out: a new file has its range's deleted rows, too. Raises
    TableDamagedError for manifests that are missing or damaged.
    """
    return ranges_of(table, live_files(manifests or ManifestCache(table.paimon), snapshot), {})


def ranges_of(
    table: Table, files: pa.Table, deletions: Mapping[FileKey, Deletions]
) -> tuple[RowRange, ...]:
    """The ranges of rows that some files (MANIFEST_ENTRIES) have, in the order of their ids.
    `files` have all that hold columns of a row, or none."""
    files = files.filter(pc.is_valid(files["first_row_id"])).combine_chunks()
    if not files.num_rows:
        return ()
    schema = table.schema
    types = [arrow_type(schema.column(key).type) for key in schema.partition_keys]

    def folder(partition: tuple[Any, ...]) -> str:
        return str(canonical_data_file_path(table.paimon, partition, 0, ""))

    paths = file_paths(files, types, folder)
    stored = stored_files(files, np.arange(files.num_rows), paths, deletions)
    values, of_files = partition_values(table.paimon, files)
    partitions = {file.path: values[at] for file, at in zip(stored, of_files, strict=True)}
    folders: Mapping[tuple[Any, ...], str] = {
        tuple(one): folder(tuple(one)).rstrip("/") for one in values
    }
    found = []
    for group in row_groups(stored):
        partition = tuple(partitions[group[0].path])
        first = group[0].first_row_id
        assert first is not None
        found.append(RowRange(first, group[0].rows, partition, folders[partition], group))
    return tuple(found)
