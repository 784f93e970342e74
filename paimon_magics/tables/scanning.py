"""The splits of a table at one snapshot, from its manifests; folders are never listed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pypaimon.read.split_serializer import serialize_split_v1

from paimon_magics.planning.definitions import Column
from paimon_magics.planning.reads import DataFile, Split
from paimon_magics.tables.catalog import Table
from paimon_magics.tables.locations import local_path
from paimon_magics.tables.schema_changes import definition_of

__all__ = ["Scan", "scan", "snapshot_identity"]


class Scan:
    """What a scan found: splits, the snapshot, and the columns of every schema that files have."""

    def __init__(
        self,
        snapshot_id: int | None,
        splits: tuple[Split, ...],
        schemas: Mapping[int, Sequence[Column]],
    ) -> None:
        self.snapshot_id = snapshot_id
        self.splits = splits
        self.schemas = schemas


def snapshot_identity(table: Table) -> tuple[int, str] | None:
    """The latest snapshot's id and what tells it from another one of that id; None without one.

    A table that is dropped and made again counts its snapshots anew.
    """
    latest = table.paimon.snapshot_manager().get_latest_snapshot()
    if latest is None:
        return None
    return latest.id, f"{latest.uuid}/{latest.commit_user}/{latest.time_millis}"


def scan(table: Table) -> Scan:
    """All splits of the table's latest snapshot."""
    paimon = table.paimon
    plan = paimon.new_read_builder().new_scan().plan()
    found = plan.splits()
    splits = tuple(_split(paimon, split) for split in found)
    snapshot_id = plan.snapshot_id
    ids = {file.schema_id for split in splits for file in split.files}
    schemas: dict[int, Sequence[Column]] = {}
    for schema_id in ids:
        if schema_id == table.definition.schema_id:
            schemas[schema_id] = table.definition.columns
        else:
            schemas[schema_id] = definition_of(paimon.schema_manager.get_schema(schema_id)).columns
    return Scan(snapshot_id, splits, schemas)


def _split(paimon: Any, split: Any) -> Split:
    deletion_files = split.data_deletion_files
    return Split(
        files=tuple(
            DataFile(
                path=_path(file.physical_path()),
                format=file.file_name.rsplit(".", 1)[-1].lower(),
                schema_id=file.schema_id,
                rows=file.row_count,
                size_bytes=file.file_size,
                deleted_rows=file.delete_row_count,
            )
            for file in split.files
        ),
        raw_convertible=bool(split.raw_convertible),
        has_deletion_vectors=bool(deletion_files) and any(f is not None for f in deletion_files),
        body=serialize_split_v1(split),
    )


def _path(path: str) -> str:
    return local_path(path) or path
