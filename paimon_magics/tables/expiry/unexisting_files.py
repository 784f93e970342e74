"""Data files that a table's latest snapshot has, but its store lacks: Paimon's
`ListUnexistingFiles`. Folders are listed, so that no file is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.tables.manifests.live_files import ManifestCache, live_files
from paimon_magics.tables.manifests.partitions import partition_values
from paimon_magics.tables.reading.table_files import data_paths
from paimon_magics.tables.snapshots.latest import latest_snapshot, state_of
from paimon_magics.tables.stores.paths import local_path
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.commit_messages import write_message
from paimon_magics.tables.writing.data_file_metas import stored_metas


@dataclass(frozen=True)
class UnexistingFiles:
    """The entries (MANIFEST_ENTRIES) and paths of the files that are gone, and the `state_of` the
    snapshot that has them."""

    files: pa.Table
    paths: list[str]
    base: tuple[int, str]

    def messages(self, table: Table) -> tuple[bytes, ...]:
        """The messages of a commit that takes the files out of the table."""
        partitions, of_files = partition_values(table.paimon, self.files)
        totals = self.files["total_buckets"].to_pylist()
        buckets = self.files["bucket"].to_pylist()
        has_buckets = table.schema.bucket_mode != "BUCKET_UNAWARE"
        by_bucket: dict[tuple[Any, int], CommitMessage] = {}
        for at, bucket, total, meta in zip(
            of_files, buckets, totals, stored_metas(table.paimon, self.files), strict=True
        ):
            home = partitions[int(at)], bucket
            known = max(total, 0) or None if has_buckets else None
            message = by_bucket.setdefault(home, CommitMessage(*home, [], total_buckets=known))
            message.deleted_files.append(meta)
        return tuple(write_message(table.paimon, message) for message in by_bucket.values())


def unexisting_files(table: Table) -> UnexistingFiles | None:
    """The files of the latest snapshot that are gone; None for a table without snapshots. Raises
    what the store raises."""
    snapshot = latest_snapshot(table.paimon)
    if snapshot is None:
        return None
    files = live_files(ManifestCache(table.paimon), snapshot)
    paths = [local_path(path) or path for path in data_paths(table, files).to_pylist()]
    folders = dict.fromkeys(path.rpartition("/")[0] for path in paths)
    there = {f"{folder}/{name}" for folder in folders for name in table.store.names(folder)}
    gone = [at for at, path in enumerate(paths) if path not in there]
    chosen = files.take(pa.array(gone, pa.int64()))
    return UnexistingFiles(chosen, [paths[at] for at in gone], state_of(snapshot))
