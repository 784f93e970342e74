"""Names of the metadata files that one run of a commit creates, and the kinds of their entries.

All names of a run have its token and are numbered in one sequence, in the order in which the files
are created. So the token of a run that died is enough to find its files without listing a folder:
the first number without a file is the end. This holds because a run removes its files from the last
to the first.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Collection, Sequence
from typing import Any

import fastavro
from pypaimon.manifest.index_manifest_file import INDEX_MANIFEST_ENTRY_SCHEMA, IndexManifestFile

_KINDS = ("manifest", "manifest-list", "index-manifest")


ADD, DELETE = 0, 1
APPENDED, COMPACTED = 0, 1


def manifest_folder(paimon: Any) -> str:
    """The folder of a table's manifests, which its branches share."""
    return f"{paimon.table_path.rstrip('/')}/manifest"


def index_path(paimon: Any, entry: Any) -> str:
    """The path of the index file of an index manifest's entry, in a bucket."""
    values = tuple(entry.partition.values)
    return str(
        paimon.path_factory().bucket_index_path(
            values, entry.bucket, entry.index_file, paimon.file_io
        )
    )


class MetadataNames:
    """Gives out the names of one run. `token` must be unique to the run."""

    def __init__(self, token: str) -> None:
        self._token = token
        self.issued: list[str] = []
        self._statistics = 0

    def manifest(self) -> str:
        """The name of the next manifest."""
        return self._next("manifest")

    def manifest_list(self) -> str:
        """The name of the next manifest list."""
        return self._next("manifest-list")

    def index_manifest(self) -> str:
        """The name of the next index manifest."""
        return self._next("index-manifest")

    def statistics(self) -> str:
        """The name of the next file of table statistics, which is in a folder of its own."""
        self._statistics += 1
        return f"stats-{self._token}-{self._statistics - 1}"

    def _next(self, kind: str) -> str:
        self.issued.append(f"{kind}-{self._token}-{len(self.issued)}")
        return self.issued[-1]


def token_of(manifest_list: str) -> str | None:
    """The token in the name of a manifest list; None for a name of another form."""
    token, _, number = manifest_list.removeprefix("manifest-list-").rpartition("-")
    return token if token and number.isdigit() else None


def remove_metadata(paimon: Any, token: str, keep: Collection[str]) -> int:
    """Remove the files of the run with this token, except those in `keep`; return their number.

    The caller ensures that the run can no longer publish. Costs a few requests for each file.
    """
    folder = manifest_folder(paimon)
    names: list[str] = []
    number = 0
    while True:
        possible = [f"{kind}-{token}-{number}" for kind in _KINDS]
        there = [name for name in possible if paimon.file_io.exists(f"{folder}/{name}")]
        if not there:
            break
        names += there
        number += 1
    left = [name for name in reversed(names) if name not in keep]
    for name in left:
        with contextlib.suppress(FileNotFoundError):
            paimon.file_io.delete(f"{folder}/{name}")
    return len(left)


# Writes index manifests under the names of a commit's run.


class NamedIndexManifests(IndexManifestFile):  # type: ignore[misc]
    """pypaimon's index manifests, with file names of the run."""

    def __init__(self, paimon: Any, names: MetadataNames) -> None:
        super().__init__(paimon)
        self._names = names

    def write(self, entries: Sequence[Any]) -> str:
        """Write an index manifest with these entries, and return its name."""
        content = io.BytesIO()
        records = [self._record(entry) for entry in entries]
        fastavro.writer(content, INDEX_MANIFEST_ENTRY_SCHEMA, records, codec=self._codec)
        name = self._names.index_manifest()
        path = f"{manifest_folder(self.table)}/{name}"
        with self.file_io.new_output_stream(path) as stream:
            stream.write(content.getvalue())
        return name

    def _record(self, entry: Any) -> dict[str, Any]:
        record: dict[str, Any] = self._to_avro_record(entry)
        if record["_INDEX_TYPE"] == self.DELETION_VECTORS_INDEX:
            # Java fails on NULL, which pypaimon writes for a file without vectors.
            record["_DELETIONS_VECTORS_RANGES"] = record["_DELETIONS_VECTORS_RANGES"] or []
        return record
