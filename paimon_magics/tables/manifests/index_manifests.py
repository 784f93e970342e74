"""Writes index manifests under the names of a commit's run."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import fastavro
from pypaimon.manifest.index_manifest_file import INDEX_MANIFEST_ENTRY_SCHEMA, IndexManifestFile

from paimon_magics.tables.manifests.names import MetadataNames, manifest_folder

__all__ = ["NamedIndexManifests"]


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
