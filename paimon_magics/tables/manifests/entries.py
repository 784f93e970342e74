"""The files of a table at a snapshot, as Arrow columns from its manifests.

`entries` are what the manifests say, additions and deletions; `live_files.undeleted` is what is
left of them.
Columns are those of `manifest_columns.MANIFEST_ENTRIES`. Folders are never listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from paimon_magics.tables.manifests.columns import ManifestColumns

__all__ = ["entries", "manifest_files"]

_LISTS = ("baseManifestList", "deltaManifestList", "changelogManifestList")


def manifest_files(
    manifests: ManifestColumns, snapshot: Mapping[str, Any], *, changelogs: bool = False
) -> pa.Table:
    """What the snapshot's lists say of its manifests (`manifest_columns.MANIFEST_FILES`), those of
    its changelog among them where `changelogs` is given."""
    lists = [snapshot.get(key) for key in (_LISTS if changelogs else _LISTS[:2])]
    return pa.concat_tables([manifests.files(name) for name in lists if name])


def entries(manifests: ManifestColumns, snapshot: Mapping[str, Any]) -> pa.Table:
    """All entries of the snapshot's manifests, in order."""
    names = manifest_files(manifests, snapshot).column("file_name").to_pylist()
    return manifests.entries(names)
