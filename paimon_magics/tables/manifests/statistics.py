"""The statistics of a manifest in its manifest list: counts, and bounds for pruning manifests.

They are collected as by Paimon's `ManifestAvroWriter`. A NULL count, or a bound of buckets, levels
or row ids, is unknown for the whole manifest if it is unknown for a part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pypaimon.manifest.schema.manifest_file_meta import ManifestFileMeta
from pypaimon.manifest.schema.simple_stats import SimpleStats
from pypaimon.table.row.generic_row import GenericRow, GenericRowDeserializer

from paimon_magics.tables.manifests.file_kinds import ADD

__all__ = ["ManifestStatistics"]


class _Bounds:
    """The least and greatest of some numbers; both None as soon as one number is unknown."""

    def __init__(self) -> None:
        self.least: int | None = None
        self.greatest: int | None = None
        self._known = True

    def add(self, least: int | None, greatest: int | None) -> None:
        if least is None or greatest is None or not self._known:
            self._known, self.least, self.greatest = False, None, None
            return
        self.least = least if self.least is None else min(self.least, least)
        self.greatest = greatest if self.greatest is None else max(self.greatest, greatest)


class ManifestStatistics:
    """Collects statistics from entries, and from the statistics of whole manifests."""

    def __init__(self, paimon: Any) -> None:
        self._schema_id_now = paimon.table_schema.id
        self._fields = paimon.partition_keys_fields
        self._added = self._deleted = 0
        self._schema_id: int | None = None
        self._buckets, self._levels, self._row_ids = _Bounds(), _Bounds(), _Bounds()
        self._total_buckets: set[int | None] = set()
        self._least: list[Any] = [None] * len(self._fields)
        self._greatest: list[Any] = [None] * len(self._fields)
        self._nulls: list[int | None] = [0] * len(self._fields)
        self._partitions: dict[bytes, tuple[Any, ...]] = {}

    def add_record(self, record: Mapping[str, Any]) -> None:
        """Add an entry."""
        file = record["_FILE"]
        if record["_KIND"] == ADD:
            self._added += 1
        else:
            self._deleted += 1
        self._see_schema(file["_SCHEMA_ID"])
        self._buckets.add(record["_BUCKET"], record["_BUCKET"])
        self._levels.add(file["_LEVEL"], file["_LEVEL"])
        first = file.get("_FIRST_ROW_ID")
        self._row_ids.add(first, None if first is None else first + file["_ROW_COUNT"] - 1)
        self._total_buckets.add(record["_TOTAL_BUCKETS"])
        for position, value in enumerate(self._partition(record["_PARTITION"])):
            self._see_value(position, value)
            if value is None and self._nulls[position] is not None:
                self._nulls[position] += 1  # type: ignore[operator]

    def add_manifest(self, meta: ManifestFileMeta) -> None:
        """Add all entries of a manifest, by its statistics."""
        self._added += meta.num_added_files
        self._deleted += meta.num_deleted_files
        self._see_schema(meta.schema_id)
        self._buckets.add(meta.min_bucket, meta.max_bucket)
        self._levels.add(meta.min_level, meta.max_level)
        self._row_ids.add(meta.min_row_id, meta.max_row_id)
        self._total_buckets.add(meta.total_buckets)
        partitions = meta.partition_stats
        for position in range(len(self._fields)):
            self._see_value(position, partitions.min_values.get_field(position))
            self._see_value(position, partitions.max_values.get_field(position))
            self._see_nulls(position, partitions.null_counts)

    def meta(self, name: str, size_bytes: int) -> ManifestFileMeta:
        """The entry in the manifest list for the manifest with this name and size."""
        # As in pypaimon: a manifest can be skipped by a bucket count only if all entries share it.
        [total_buckets] = self._total_buckets if len(self._total_buckets) == 1 else [None]
        if total_buckets is not None and total_buckets <= 0:
            total_buckets = None
        return ManifestFileMeta(
            file_name=name,
            file_size=size_bytes,
            num_added_files=self._added,
            num_deleted_files=self._deleted,
            partition_stats=SimpleStats(
                min_values=GenericRow(self._least, self._fields),
                max_values=GenericRow(self._greatest, self._fields),
                null_counts=self._nulls,
            ),
            schema_id=self._schema_id_now if self._schema_id is None else self._schema_id,
            min_row_id=self._row_ids.least,
            max_row_id=self._row_ids.greatest,
            min_bucket=self._buckets.least,
            max_bucket=self._buckets.greatest,
            min_level=self._levels.least,
            max_level=self._levels.greatest,
            total_buckets=total_buckets,
        )

    def _partition(self, encoded: bytes) -> tuple[Any, ...]:
        known = self._partitions.get(encoded)
        if known is None:
            row = GenericRowDeserializer.from_bytes(encoded, self._fields)
            known = self._partitions[encoded] = tuple(row.values)
        return known

    def _see_schema(self, schema_id: int) -> None:
        known = self._schema_id
        self._schema_id = schema_id if known is None else max(known, schema_id)

    def _see_value(self, position: int, value: Any) -> None:
        if value is None:
            return
        least, greatest = self._least[position], self._greatest[position]
        if least is None or value < least:
            self._least[position] = value
        if greatest is None or value > greatest:
            self._greatest[position] = value

    def _see_nulls(self, position: int, counts: list[int | None] | None) -> None:
        more = counts[position] if counts else None
        known = self._nulls[position]
        self._nulls[position] = None if more is None or known is None else known + more
