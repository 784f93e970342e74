"""The manifest entries of a snapshot as Arrow columns.

`entries` has additions and deletions; `live_files.undeleted` takes off the deleted files. The
columns are those of `columns.MANIFEST_ENTRIES`. Folders are never listed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from paimon_magics.tables.manifests.columns import MANIFEST_ENTRIES, ManifestColumns

__all__ = ["entries", "manifest_files"]

_LISTS = ("baseManifestList", "deltaManifestList", "changelogManifestList")


def manifest_files(
    manifests: ManifestColumns, snapshot: Mapping[str, Any], *, changelogs: bool = False
) -> pa.Table:
    """The manifests of a snapshot (`columns.MANIFEST_FILES`), with `changelogs` also those of its
    changelog."""
    lists = [snapshot.get(key) for key in (_LISTS if changelogs else _LISTS[:2])]
    return pa.concat_tables([manifests.files(name) for name in lists if name])


def entries(
    manifests: ManifestColumns,
    snapshot: Mapping[str, Any],
    columns: Sequence[str] = MANIFEST_ENTRIES.names,
) -> pa.Table:
    """These columns of all entries of the snapshot's manifests, in order; without its changelog."""
    names = manifest_files(manifests, snapshot).column("file_name").to_pylist()
    return manifests.entries(names, columns)
