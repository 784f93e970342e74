"""Prepares a snapshot on top of the latest one: writes everything that must be stored before it can
be published.

It follows Paimon's `FileStoreCommitImpl.tryCommitOnce` in the order of steps and the meaning of
each member of a snapshot. One preparation serves one run of a commit: if an attempt loses the race
for its snapshot id, the next one reuses what was read and written, as far as it is still valid.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pypaimon.build_info import full_version
from pypaimon.manifest.index_manifest_entry import IndexManifestEntry
from pypaimon.manifest.manifest_list_manager import ManifestListManager
from pypaimon.manifest.schema.data_file_meta import DataFileMeta
from pypaimon.manifest.schema.manifest_entry import ManifestEntry
from pypaimon.manifest.schema.manifest_file_meta import ManifestFileMeta
from pypaimon.snapshot.snapshot import Snapshot
from pypaimon.table.special_fields import SpecialFields

from paimon_magics.errors import CommitConflictError, InvalidValueError, TableDamagedError
from paimon_magics.faults import reach
from paimon_magics.planning.commits.requests import Analyze, Change, CommitRequest, CompactManifests
from paimon_magics.tables.commits.changes import Changes
from paimon_magics.tables.commits.dynamic_keys import (
    after_adding,
    carried_properties,
    hash_entries,
    united_entries,
)
from paimon_magics.tables.manifests.hash_indexes import HashIndexes
from paimon_magics.tables.manifests.live_files import ManifestCache, live_files
from paimon_magics.tables.manifests.merging import MergeRules, merge_manifests
from paimon_magics.tables.manifests.names import (
    ADD,
    APPENDED,
    DELETE,
    MetadataNames,
    NamedIndexManifests,
)
from paimon_magics.tables.manifests.writing import ManifestWriter
from paimon_magics.tables.pypaimon_internals import wide_nulls
from paimon_magics.tables.snapshots.latest import read_snapshot
from paimon_magics.tables.snapshots.provenance import PREFIX
from paimon_magics.tables.stores.corruption import SNAPSHOT_VERSION
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.stored_rows import StoredRow


@dataclass(frozen=True, slots=True)
class Prepared:
    """A snapshot that can be published. `snapshot` is pypaimon's, `base_uuid` the uuid of the one
    before it, `entries` are its changes, `names` the metadata files of the run that it names.

    `index_paths` are index files that were written for it, `superseded` are those of the statement
    that they take the place of (`dynamic_keys`).
    """

    snapshot: Any
    base_uuid: str | None
    entries: Sequence[ManifestEntry]
    names: frozenset[str]
    index_paths: tuple[str, ...] = ()
    superseded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Delta:
    """The manifests of some entries, and their manifest list."""

    entries: Sequence[ManifestEntry]
    list_name: str
    list_bytes: int
    names: frozenset[str]


class SnapshotPreparation:
    """Prepares the snapshot of one commit, once for each attempt.

    `names` gives the names of all metadata files that the run writes.
    """

    def __init__(
        self,
        table: Table,
        request: CommitRequest,
        properties: Mapping[str, str],
        names: MetadataNames,
    ) -> None:
        self._table = table
        self._paimon = table.paimon
        self._transaction = request.transaction
        self._properties = properties
        self._names = names
        self._rules = MergeRules.of(table.schema)
        self._only_manifests = isinstance(request.change, CompactManifests)
        self._analyzed = NewStatistics(table, request.change, names)
        if isinstance(request.change, CompactManifests):
            self._rules = self._rules.for_all(request.change.target_bytes)
        self._lists = ManifestListManager(table.paimon)
        self._merged: tuple[list[str], list[ManifestFileMeta]] | None = None
        self._deltas: list[_Delta] = []
        self._indexes = HashIndexes()

    def changes_something(self, latest: Any) -> bool:
        """Whether a snapshot on top of `latest` would be another state of the table. One that only
        merges manifests may find none to merge."""
        if not self._only_manifests:
            return True
        before = self._lists.read_all(latest)
        merged = {meta.file_name for meta in self._merge(before)}
        return merged != {meta.file_name for meta in before}

    def prepare(self, latest: Any, changes: Changes) -> Prepared:
        """Write the metadata files of a snapshot with `changes` on top of `latest`."""
        snapshot_id = latest.id + 1 if latest is not None else 1
        entries, next_row_id = self._entries(latest, changes, snapshot_id)
        delta = self._delta(entries)
        changelog = self._delta(changes.changelog) if changes.changelog else None
        before = [] if latest is None else self._lists.read_all(latest)
        base = self._merge(before)
        base_name, base_bytes = self._write_list(base)
        added, index_paths, superseded = self._united(latest, changes)
        index_manifest = self._index_manifest(latest, changes, added)
        delta_rows = sum(_rows(entry) for entry in entries)
        snapshot = Snapshot(
            version=SNAPSHOT_VERSION,
            id=snapshot_id,
            schema_id=self._paimon.table_schema.id,
            base_manifest_list=base_name,
            base_manifest_list_size=base_bytes,
            delta_manifest_list=delta.list_name,
            delta_manifest_list_size=delta.list_bytes,
            changelog_manifest_list=None if changelog is None else changelog.list_name,
            changelog_manifest_list_size=None if changelog is None else changelog.list_bytes,
            changelog_record_count=sum(map(_rows, changes.changelog)) if changelog else None,
            total_record_count=(0 if latest is None else latest.total_record_count or 0)
            + delta_rows,
            delta_record_count=delta_rows,
            commit_user=self._transaction.commit_user,
            writer_version=full_version(),
            commit_identifier=self._transaction.commit_identifier,
            commit_kind=changes.kind,
            time_millis=int(time.time() * 1000),
            watermark=None if latest is None else latest.watermark,
            next_row_id=next_row_id,
            index_manifest=index_manifest,
            statistics=self._statistics(latest),
            properties=self._all_properties(latest) or None,
        )
        named = {base_name, index_manifest, *(meta.file_name for meta in base), *delta.names}
        if changelog is not None:
            named |= changelog.names
        return Prepared(
            snapshot,
            None if latest is None else latest.uuid,
            entries,
            frozenset(name for name in self._names.issued if name in named),
            (*index_paths, *self._analyzed.paths(snapshot.statistics)),
            tuple(superseded),
        )

    def _entries(
        self, latest: Any, changes: Changes, snapshot_id: int
    ) -> tuple[Sequence[ManifestEntry], int | None]:
        entries = _deleted_as_stored(self._table, latest, changes.entries)
        next_row_id = None
        schema = self._table.schema
        if schema.row_tracking_enabled:
            first = 0 if latest is None or latest.next_row_id is None else latest.next_row_id
            by_partition = schema.flag("row-tracking.partition-group-on-commit")
            entries, next_row_id = _track_rows(
                entries, snapshot_id, first, by_partition=by_partition
            )
        # The rows of compacted files have the numbers of the snapshots that added them:
        # `FileStoreCommitImpl.stampSequenceWithSnapshotId`.
        if schema.flag("sequence.snapshot-ordering") and changes.kind != "COMPACT":
            entries = [
                entry.assign_sequence_number(snapshot_id, snapshot_id)
                if entry.kind == ADD
                else entry
                for entry in entries
            ]
        return entries, next_row_id

    def _delta(self, entries: Sequence[ManifestEntry]) -> _Delta:
        """Write the manifests of the entries, or reuse those of an earlier attempt with the same
        entries."""
        for written in self._deltas:
            if written.entries is entries:
                return written
        writer = ManifestWriter(self._paimon, self._names, self._rules.target_bytes)
        writer.add_entries(entries)
        manifests = writer.close()
        reach("manifest.written")
        name, size_bytes = self._write_list(manifests)
        names = frozenset({name, *(meta.file_name for meta in manifests)})
        self._deltas.append(_Delta(entries, name, size_bytes, names))
        return self._deltas[-1]

    def _merge(self, before: list[ManifestFileMeta]) -> list[ManifestFileMeta]:
        """Merge the manifests of the base. Only the first attempt merges; later ones reuse its
        result, if the base still begins with the same manifests."""
        names = [meta.file_name for meta in before]
        if self._merged is None:
            merged = merge_manifests(self._paimon, before, self._rules, self._names)
            self._merged = names, merged
            reach("manifests.merged")
            return merged
        merged_names, merged = self._merged
        if names[: len(merged_names)] == merged_names:
            return merged + before[len(merged_names) :]
        return before

    def _write_list(self, manifests: list[ManifestFileMeta]) -> tuple[str, int]:
        name = self._names.manifest_list()
        return name, int(self._lists.write(name, manifests))

    def _united(
        self, latest: Any, changes: Changes
    ) -> tuple[Sequence[IndexManifestEntry], Sequence[str], Sequence[str]]:
        """The added entries of the index, with the keys that others have added since the statement
        was planned; the index files written for that, and those that they take the place of."""
        added = changes.index_adds
        base_id = self._transaction.base_snapshot_id
        if latest is None or latest.id <= base_id or changes.kind != "APPEND" or not added:
            return added, (), ()
        base = read_snapshot(self._paimon, base_id) if base_id else None
        if base is not None and base.index_manifest == latest.index_manifest:
            return added, (), ()
        old = hash_entries(self._table, latest.index_manifest)
        before = hash_entries(self._table, None if base is None else base.index_manifest)
        united = self._indexes.lacking(self._table, old, after_adding(old, added), before)
        if not united:
            return added, (), ()
        return united_entries(self._table, added, united, self._transaction.file_prefix)

    def _index_manifest(
        self, latest: Any, changes: Changes, added: Sequence[IndexManifestEntry]
    ) -> str | None:
        before: str | None = None if latest is None else latest.index_manifest
        if not (changes.index_deletes or added):
            return before
        index = NamedIndexManifests(self._paimon, self._names)
        name: str | None = index.combine_changes(before, added, changes.index_deletes)
        return name

    def _all_properties(self, latest: Any) -> dict[str, str]:
        """The properties of the snapshot. As in Paimon, one that only merges manifests keeps those
        of the latest, except what these say of its own commit."""
        before = None if latest is None else latest.properties
        carried = (before or {}).items() if self._only_manifests else ()
        others = {k: v for k, v in carried if not k.startswith(PREFIX)}
        return others | carried_properties(before) | dict(self._properties)

    def _statistics(self, latest: Any) -> str | None:
        """The table statistics that are committed, or else those of the latest snapshot, unless the
        schema has changed since."""
        if self._analyzed.is_given:
            return self._analyzed.written(latest)
        if latest is None or latest.statistics is None:
            return None
        folder = self._paimon.path_factory().statistics_path()
        try:
            text = self._paimon.file_io.read_file_utf8(f"{folder}/{latest.statistics}")
            is_current = json.loads(text)["schemaId"] == self._paimon.table_schema.id
        except (OSError, ValueError, KeyError):
            return None
        return str(latest.statistics) if is_current else None


def _rows(entry: ManifestEntry) -> int:
    count = int(entry.file.row_count)
    return count if entry.kind == ADD else -count


# Sequence numbers and row ids of new files, for `row-tracking.enabled`. pypaimon's own commit does
# the same, but asserts that each file records its source. Source: `RowTrackingCommitUtils`.


def _track_rows(
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


# Deletions name the partition of a file by the bytes that its addition has.
#
# A partition that is NULL in some column has several serialized forms, and a deletion with another
# form of the partition deletes nothing: Paimon's `FileEntry.Identifier` compares bytes.


def _deleted_as_stored(
    table: Table, latest: Any, entries: Sequence[ManifestEntry]
) -> Sequence[ManifestEntry]:
    """The entries, those that delete a file of `latest` with the partition's bytes in it. They are
    looked up only for partitions of several forms."""
    is_doubtful = [entry.kind == DELETE and bool(wide_nulls(entry.partition)) for entry in entries]
    if latest is None or not any(is_doubtful):
        return entries
    names = pa.array(entry.file.file_name for entry in compress(entries, is_doubtful))
    files = live_files(ManifestCache(table.paimon), latest, ("partition", "file_name"))
    files = files.filter(pc.is_in(files["file_name"], names.cast(files["file_name"].type)))
    stored = dict(zip(files["file_name"].to_pylist(), files["partition"].to_pylist(), strict=True))
    fields = table.paimon.partition_keys_fields
    return [
        replace(entry, partition=StoredRow(stored[entry.file.file_name], fields))
        if doubtful and entry.file.file_name in stored
        else entry
        for entry, doubtful in zip(entries, is_doubtful, strict=True)
    ]


# The file of table statistics that ANALYZE commits (Paimon's `StatsFile`).


class NewStatistics:
    """The statistics of a commit's change, if it has any. Each attempt writes a file of its own,
    with a name from `names`."""

    def __init__(self, table: Table, change: Change, names: MetadataNames) -> None:
        self._table = table
        self._names = names
        self._text = change.statistics if isinstance(change, Analyze) else ""

    @property
    def is_given(self) -> bool:
        """Whether the change has statistics."""
        return bool(self._text)

    def written(self, latest: Any) -> str:
        """Write the file for a snapshot on top of `latest`; return its name.

        Raises InvalidValueError for a text that is no statistics, CommitConflictError for
        statistics that are not of the table as it is.
        """
        self._check(latest)
        name = self._names.statistics()
        self._table.paimon.file_io.write_file(self._path(name), self._text, False)
        return name

    def paths(self, name: str | None) -> tuple[str, ...]:
        """The paths of the files that `written` has made for a snapshot with these statistics."""
        return (self._path(name),) if self.is_given and name is not None else ()

    def _path(self, name: str) -> str:
        return f"{self._table.paimon.path_factory().statistics_path()}/{name}"

    def _check(self, latest: Any) -> None:
        name = self._table.name
        try:
            document = json.loads(self._text)
            snapshot_id, schema_id = document["snapshotId"], document["schemaId"]
            is_valid = isinstance(document.get("colStats"), dict)
        except (ValueError, KeyError, TypeError, AttributeError):
            is_valid, snapshot_id, schema_id = False, 0, 0
        if not is_valid or type(snapshot_id) is not int or type(schema_id) is not int:
            raise InvalidValueError(
                f"The statistics of `{name}` are not in the form of Paimon's.",
                hint="They are a JSON object with snapshotId, schemaId and colStats.",
            )
        is_past = latest is not None and 0 < snapshot_id <= latest.id
        if not is_past or schema_id != self._table.paimon.table_schema.id:
            raise CommitConflictError(
                f"`{name}` was changed while it was analyzed: it has another schema, or was rolled "
                "back.",
                hint="Nothing was changed. Run the statement again.",
            )
