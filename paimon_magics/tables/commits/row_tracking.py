"""Assigns the row ids and sequence numbers that depend on the snapshot to a commit's files.

Sources: Paimon's `RowTrackingCommitUtils`, `FileStoreCommitImpl.stampSequenceWithSnapshotId`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pypaimon.manifest.schema.data_file_meta import DataFileMeta
from pypaimon.manifest.schema.manifest_entry import ManifestEntry
from pypaimon.table.special_fields import SpecialFields

from paimon_magics.errors import TableDamagedError
from paimon_magics.tables.manifests.file_kinds import ADD, APPENDED

__all__ = ["stamp_sequence", "track_rows"]


def stamp_sequence(entries: Iterable[ManifestEntry], snapshot_id: int) -> list[ManifestEntry]:
    """For `sequence.snapshot-ordering`: give added files the snapshot's id as sequence number."""
    return [
        entry.assign_sequence_number(snapshot_id, snapshot_id) if entry.kind == ADD else entry
        for entry in entries
    ]


def track_rows(
    entries: Sequence[ManifestEntry], snapshot_id: int, first_row_id: int, *, by_partition: bool
) -> tuple[list[ManifestEntry], int]:
    """For `row-tracking.enabled`: give files the sequence numbers and row ids that they lack.

    Return the entries, and the id of the table's next row. `by_partition` gives the rows of a
    partition consecutive ids (`row-tracking.partition-group-on-commit`).
    """
    numbered = [_numbered(entry, snapshot_id) for entry in entries]
    if by_partition:
        groups: dict[tuple[Any, ...], list[ManifestEntry]] = {}
        for entry in numbered:
            groups.setdefault(tuple(entry.partition.values), []).append(entry)
        numbered = [entry for group in groups.values() for entry in group]
    return _identified(numbered, first_row_id)


def _numbered(entry: ManifestEntry, snapshot_id: int) -> ManifestEntry:
    least, greatest = entry.file.min_sequence_number, entry.file.max_sequence_number
    if least == 0:
        return entry.assign_sequence_number(snapshot_id, snapshot_id)
    return entry.assign_sequence_number(least, snapshot_id) if greatest == 0 else entry


def _identified(entries: Sequence[ManifestEntry], start: int) -> tuple[list[ManifestEntry], int]:
    """Assign row ids from `start`. Blob and vector files hold columns of the rows of the data file
    before them, and get the same ids."""
    result = []
    rows_from = start  # of the last data file
    blobs: dict[str, int] = {}
    vectors = start
    for entry in entries:
        file = entry.file
        if (
            file.file_source != APPENDED
            or file.first_row_id is not None
            or SpecialFields.ROW_ID.name in (file.write_cols or ())
        ):
            result.append(entry)
        elif DataFileMeta.is_blob_file(file.file_name):
            column = file.write_cols[0]
            blob = blobs.get(column, rows_from)
            result.append(entry.assign_first_row_id(_checked(blob, start, file)))
            blobs[column] = blob + file.row_count
        elif DataFileMeta.is_vector_file(file.file_name):
            result.append(entry.assign_first_row_id(_checked(vectors, start, file)))
            vectors += file.row_count
        else:
            result.append(entry.assign_first_row_id(start))
            rows_from, blobs = start, {}
            start += file.row_count
    return result, start


def _checked(first_row_id: int, start: int, file: DataFileMeta) -> int:
    if first_row_id < start:
        return first_row_id
    raise TableDamagedError(
        f"The file {file.file_name} holds columns of rows that no data file before it has; nothing "
        "was committed.",
        hint="Run the statement again, and report this with the table's definition.",
    )
