"""The files of a table at a snapshot, as Arrow columns from its manifests.

`entries` are what the manifests say, additions and deletions; `live_files.undeleted` is what is
left of them.
Columns are those of `manifest_columns.MANIFEST_ENTRIES`. Folders are never listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from paimon_magics.tables.manifest_columns import ManifestColumns
from paimon_magics.tables.metadata_files import manifest_folder

__all__ = ["entries", "manifest_files", "read_metadata_file"]

_LISTS = ("baseManifestList", "deltaManifestList", "changelogManifestList")


def read_metadata_file(paimon: Any, name: str) -> bytes:
    """The content of a file in the table's folder of manifests."""
    with paimon.file_io.new_input_stream(f"{manifest_folder(paimon)}/{name}") as stream:
        content: bytes = stream.read()
    return content


def manifest_files(
    paimon: Any, snapshot: Mapping[str, Any], *, changelogs: bool = False
) -> pa.Table:
    """What the snapshot's lists say of its manifests (`manifest_columns.MANIFEST_FILES`), those of
    its changelog among them where `changelogs` is given."""
    columns = _columns(paimon)
    lists = [snapshot.get(key) for key in (_LISTS if changelogs else _LISTS[:2])]
    return pa.concat_tables([columns.files(name) for name in lists if name])


def entries(paimon: Any, snapshot: Mapping[str, Any]) -> pa.Table:
    """All entries of the snapshot's manifests, in order."""
    names = manifest_files(paimon, snapshot).column("file_name").to_pylist()
    return _columns(paimon).entries(names)


def _columns(paimon: Any) -> ManifestColumns:
    return ManifestColumns(lambda name: read_metadata_file(paimon, name), kept_bytes_max=0)
