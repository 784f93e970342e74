"""The files of a snapshot that can be of use for a read, without those that certainly are not.

Manifests whose partitions a condition rules out are not opened, and of others only the entries that
are left are held. So time and memory are those of what is left, and not of the table. Rules:
Paimon's `AbstractFileStoreScan.filterManifestFileMeta` and `filterByStats`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.tables.manifests.columns import MANIFEST_ENTRIES
from paimon_magics.tables.manifests.live_files import (
    FEW_ENTRIES,
    ManifestCache,
    live_files,
    undeleted,
)


class Narrowing(Protocol):
    """Says what can be of use."""

    def manifests(self, found: pa.Table) -> npt.NDArray[np.bool_]:
        """Marks the manifests (columns of MANIFEST_FILES) that may have such files."""
        ...

    def entries(self, found: pa.Table) -> pa.Table:
        """The entries (columns of MANIFEST_ENTRIES) of such files, with NULL in columns that are
        not needed. With the entry that adds a file it leaves the one that deletes it."""
        ...


@dataclass(frozen=True, slots=True)
class NarrowedFiles:
    """`files` are those that were left, in the order in which they were added, `all_files` the
    number of files of the snapshot; None where nothing was left out."""

    files: pa.Table
    all_files: int | None = None


def narrowed_files(
    folder: ManifestCache, snapshot: Any, narrowing: Narrowing | None
) -> NarrowedFiles:
    """The files of a snapshot, without those that `narrowing` leaves out if there are more than
    FEW_ENTRIES: of few, the sums of each pruning step are known so."""
    if narrowing is None:
        return NarrowedFiles(live_files(folder, snapshot))
    if folder.count_entries(snapshot) <= FEW_ENTRIES:
        return NarrowedFiles(folder.few_files(snapshot))
    lists = [snapshot.base_manifest_list, snapshot.delta_manifest_list]
    found = pa.concat_tables([folder.columns.files(name) for name in lists if name])
    added, deleted = (
        int(pc.sum(found.column(name)).as_py() or 0)
        for name in ("num_added_files", "num_deleted_files")
    )
    left = found.filter(pa.array(narrowing.manifests(found)))
    parts = [MANIFEST_ENTRIES.empty_table()]
    for name in left.column("file_name").to_pylist():
        entries = folder.columns.entries([name])
        parts.append(narrowing.entries(entries))
    return NarrowedFiles(undeleted(pa.concat_tables(parts).combine_chunks()), added - deleted)
