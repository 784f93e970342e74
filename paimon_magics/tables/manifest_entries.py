"""The files of a table at a snapshot, as Arrow columns from its manifests.

`entries` are what the manifests say, additions and deletions; `live_files` what is left of them.
Columns are those of `manifest_columns.MANIFEST_ENTRIES`. Folders are never listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.tables.manifest_columns import ManifestColumns
from paimon_magics.tables.metadata_files import manifest_folder

__all__ = ["entries", "live_files", "manifest_files", "read_metadata_file"]

_ADD = 0  # Paimon's FileKind
# What identifies a file, but for what never differs between files of one name (`FileEntry`).
_KEY = ("partition", "bucket", "level", "file_name")
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


def live_files(found: pa.Table) -> pa.Table:
    """The entries of files that were added and not deleted."""
    added = pc.equal(found.column("kind"), _ADD)
    deleted = found.filter(pc.invert(added))
    left = found.filter(added)
    if not deleted.num_rows:
        return left
    gone = set(_keys(deleted))
    return left.filter(pa.array([key not in gone for key in _keys(left)], type=pa.bool_()))


def _keys(found: pa.Table) -> zip[tuple[Any, ...]]:
    return zip(*(found.column(name).to_pylist() for name in _KEY), strict=True)


def _columns(paimon: Any) -> ManifestColumns:
    return ManifestColumns(lambda name: read_metadata_file(paimon, name), kept_bytes_max=0)
