"""The paths of data files, from partition, bucket and name, or from a recorded external path.

No folder is listed and no file opened. Paths are built column by column, a hundred thousand at
once. Source: Paimon's `DataFilePathFactory` and `FileStorePathFactory.bucketPath`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.binary_rows import decode_rows
from paimon_magics.errors import TableDamagedError
from paimon_magics.tables.manifests.live_files import ManifestCache, ManifestGoneError
from paimon_magics.tables.snapshots.latest import stored_changelogs, usable_snapshots
from paimon_magics.tables.snapshots.tagged import tagged_snapshots
from paimon_magics.tables.stores.paths import local_path
from paimon_magics.tables.table import Table, branch_names

_TEXT = pa.large_string()


def file_paths(
    files: pa.Table,
    partition_types: Sequence[pa.DataType],
    first_bucket_folder: Callable[[tuple[Any, ...]], str],
) -> pa.Array:
    """The path of each of `files` (`partition`, `bucket`, `file_name`, `external_path`), as text.

    `first_bucket_folder` returns the folder of bucket 0 in the partition with these values, of the
    types `partition_types`. It is called once for each partition.
    """
    partitions = files["partition"].combine_chunks().dictionary_encode()
    columns = decode_rows(partitions.dictionary, list(partition_types)) if partition_types else []
    values = list(zip(*(column.to_pylist() for column in columns), strict=True))
    folders = _folders(values or [()] * len(partitions.dictionary), first_bucket_folder)
    # Bucket names are the same in all partitions, and there may be as many buckets as files.
    buckets, members = np.unique(np.asarray(files["bucket"]), return_inverse=True)
    called = ["bucket-postpone" if bucket < 0 else f"bucket-{bucket}" for bucket in buckets]
    inside = pc.binary_join_element_wise(
        pa.array(folders, type=_TEXT).take(partitions.indices),
        pa.array(called, type=_TEXT).take(pa.array(members)),
        files["file_name"].combine_chunks().cast(_TEXT),
        pa.scalar("/", type=_TEXT),
    )
    external = files["external_path"].combine_chunks().cast(_TEXT)
    is_elsewhere = pc.greater(pc.fill_null(pc.binary_length(external), 0), 0)
    return pc.if_else(is_elsewhere, external, inside)


def _folders(
    partitions: Sequence[tuple[Any, ...]], first_bucket_folder: Callable[[tuple[Any, ...]], str]
) -> list[str]:
    """The folder of each partition. Each value of each key is spelled once, since a folder is made
    of them one after the other. Where a name is escaped the whole path may have another form
    (`canonical_data_file_path`), and is asked for."""

    def exact(partition: tuple[Any, ...]) -> str:
        return first_bucket_folder(partition).rstrip("/").rpartition("/")[0]

    if len(partitions) < 2 or len(partitions[0]) < 2:
        return [exact(partition) for partition in partitions]
    depth = len(partitions[0])
    root = exact(partitions[0]).rsplit("/", depth)[0]
    names: dict[tuple[int, str], str] = {}
    folders = []
    for partition in partitions:
        parts = [root]
        for key in enumerate(map(repr, partition)):  # -0.0 equals 0.0, and has another name
            name = names.get(key)
            if name is None:
                name = names[key] = exact(partition).rsplit("/", depth)[1 + key[0]]
            parts.append(name)
        folder = "/".join(parts)
        folders.append(exact(partition) if "%" in folder else folder)
    return folders


# The files that a table has outside its folder (`data-file.external-paths`).


def external_files(table: Table) -> list[str]:
    """The paths of all files outside the table's folder that its snapshots, tags and changelogs
    name, those of its branches too; [] where they can't be read. Nothing is read but schemas where
    no folder outside is allowed.

    (Paimon's `AbstractCatalog.dropTable` removes the folders that the option names, with what other
    tables have there.)
    """
    if not table.paths.has_external_roots:
        return []
    snapshots = list(stored_changelogs(table))
    for branch in branch_names(table.paimon):
        snapshots += usable_snapshots(table.paimon, table.store, branch)
        snapshots += tagged_snapshots(table, branch)
    manifests = ManifestCache(table.paimon)
    try:
        return sorted({local_path(path) or path for path in _of(manifests, snapshots)})
    except TableDamagedError:  # such a table can be dropped, too
        return []


def _of(manifests: ManifestCache, snapshots: list[Any]) -> Iterator[str]:
    lists = {
        name
        for snapshot in snapshots
        for name in (
            snapshot.base_manifest_list,
            snapshot.delta_manifest_list,
            snapshot.changelog_manifest_list,
        )
    }
    for name in lists:
        # Changelogs of tags and branches went with the snapshots that they are copies of.
        with contextlib.suppress(ManifestGoneError):
            entries = manifests.listed_entries([name])
            yield from entries["external_path"].drop_null().unique().to_pylist()
    for index_manifest in {snapshot.index_manifest for snapshot in snapshots}:
        for deletions in manifests.deletions(index_manifest).values():
            yield deletions.path
