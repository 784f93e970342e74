"""Publishes a snapshot that another writer has prepared.

Engines that commit through a REST catalog write data files, manifests and manifest lists themselves
and send the snapshot. It is published only on top of the snapshot that it was prepared on. The
files that it names must exist, and are synced to disk before it is published.

A repeated commit gets the same answer. A commit is a repetition if it is the same snapshot (by its
uuid), or has the same user, identifier and kind and adds and deletes the very same files. The files
are compared because Paimon's batch writers give all commits the same identifier: by user and
identifier alone the second commit of a writer that is used twice would be dropped.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pypaimon.common.json_util import JSON
from pypaimon.manifest.index_manifest_file import IndexManifestFile
from pypaimon.snapshot.snapshot import BATCH_COMMIT_IDENTIFIER, Snapshot
from pypaimon.snapshot.snapshot_commit import PartitionStatistics
from pypaimon.utils.file_store_path_factory import canonical_data_file_path

from paimon_magics.errors import CommitConflictError, PaimonMagicsError
from paimon_magics.faults import reach
from paimon_magics.tables.catalog.rest_documents import (
    MalformedDocumentError,
    integer_of,
    optional_text,
    string_map,
    text_of,
)
from paimon_magics.tables.commits.dynamic_keys import (
    KEYS_MOVED_FOR,
    IndexUnion,
    brought_hashes,
    carried_properties,
    check_key_buckets,
    check_streamed_keys,
    hash_entries,
    write_union,
)
from paimon_magics.tables.commits.fencing import EPOCH, Fence, epoch_of
from paimon_magics.tables.commits.message_checks import check_layout
from paimon_magics.tables.commits.receipts import RecentCommits
from paimon_magics.tables.manifests.hash_indexes import Bucket, HashIndexes
from paimon_magics.tables.manifests.live_files import ManifestCache, ManifestGoneError
from paimon_magics.tables.manifests.names import ADD, manifest_folder
from paimon_magics.tables.manifests.partitions import partition_values
from paimon_magics.tables.snapshots.chain import latest_document, published_path, snapshot_by_id
from paimon_magics.tables.snapshots.latest import write_hint
from paimon_magics.tables.stores.allowed_paths import is_plain_name
from paimon_magics.tables.stores.corruption import SNAPSHOT_VERSION
from paimon_magics.tables.stores.file_formats import column_names
from paimon_magics.tables.stores.local_store import sync_files
from paimon_magics.tables.stores.store import Publish
from paimon_magics.tables.table import StoredTable, Table, publishes_itself
from paimon_magics.tables.writing.bucket_counts import check_prepared_counts

Document = Mapping[str, Any]

_KINDS = ("APPEND", "COMPACT", "OVERWRITE", "ANALYZE")
_NUMBERS = ("timeMillis", "totalRecordCount", "deltaRecordCount", "commitIdentifier")
_OPTIONAL_NUMBERS = ("baseManifestListSize", "deltaManifestListSize", "changelogManifestListSize",
                     "changelogRecordCount", "watermark", "nextRowId")  # fmt: skip
_FILES = ("baseManifestList", "deltaManifestList")
_OPTIONAL_FILES = ("changelogManifestList", "indexManifest", "statistics")


ChangedFile = tuple[int, tuple[str, ...], int, int, str]
"""A changed data file: kind of entry, partition values as texts, bucket, level and name. By the
level two compactions differ that move the same file."""


class Ledger(Protocol):
    """Records a commit for longer than its snapshot is kept."""

    def knows(self, changes: str | None) -> bool:
        """Whether this snapshot was published before (None), or one with the same changes, which
        `changes` is a digest of."""

    def begin(
        self, changes: str, *, changes_index: bool, rests_on: str | None, manifests: Sequence[str]
    ) -> None:
        """Note that it will be published now, on the snapshot with the delta manifest list
        `rests_on`. `manifests` are those of its changes, `changes_index`: index files change."""

    def end(self, published: bool) -> None:
        """Record whether it was published. Not called if that is unknown."""


class _NoLedger:
    """Records nothing."""

    def knows(self, changes: str | None) -> bool:
        return False

    def begin(self, changes: str, **_: Any) -> None: ...

    def end(self, published: bool) -> None: ...


NO_LEDGER: Ledger = _NoLedger()


@dataclass(frozen=True, slots=True)
class PreparedCommit:
    """A client's request to commit a snapshot that it has prepared.

    `base_uuid` is the uuid of the snapshot that it was prepared on; None if there was none, or it
    has no uuid. Clients older than Paimon 2.0 do not send it (`has_base_uuid` is false); then only
    the snapshot's id is compared. `statistics` of the partitions are passed on to a REST catalog.
    """

    snapshot: Document
    base_uuid: str | None
    has_base_uuid: bool = True
    statistics: Sequence[Document] = ()


@dataclass(frozen=True, slots=True)
class CommitChecks:
    """What a prepared commit is checked against: the table's last commits, the `ledger` of older
    ones, and the hash indexes of dynamic buckets. With `fence` the snapshot carries its epoch.
    `load` loads the table as statements see it."""

    recent: RecentCommits
    ledger: Ledger = NO_LEDGER
    indexes: HashIndexes | None = None
    fence: Fence | None = None
    load: Callable[[], Table] | None = None


def check_snapshot(table: StoredTable, snapshot: Document) -> None:
    """Raise MalformedDocumentError for a document that is no snapshot of this table, or whose file
    names are no plain names."""
    where = "snapshot"
    version = integer_of(snapshot, "version", where) if snapshot.get("version") is not None else 1
    if not 1 <= version <= SNAPSHOT_VERSION:
        raise MalformedDocumentError(f"snapshot.version {version} is not supported.")
    if integer_of(snapshot, "id", where) < 1:
        raise MalformedDocumentError("snapshot.id must be 1 or above.")
    for key in _NUMBERS:
        integer_of(snapshot, key, where)
    for key in _OPTIONAL_NUMBERS:
        if snapshot.get(key) is not None:
            integer_of(snapshot, key, where)
    text_of(snapshot, "commitUser", where)  # "" is Paimon's own expiry of partitions
    optional_text(snapshot, "uuid", where)
    string_map(snapshot.get("properties"), "snapshot.properties")
    if text_of(snapshot, "commitKind", where) not in _KINDS:
        raise MalformedDocumentError(f"snapshot.commitKind must be one of {', '.join(_KINDS)}.")
    for key in (*_FILES, *_OPTIONAL_FILES):
        if key in _FILES or snapshot.get(key) is not None:
            name = text_of(snapshot, key, where)
            if not is_plain_name(name):
                raise MalformedDocumentError(f"snapshot.{key} must be a file's name, not '{name}'.")
    schema_id = integer_of(snapshot, "schemaId", where)
    if schema_id < 0 or table.paimon.schema_manager.get_schema(schema_id) is None:
        raise MalformedDocumentError(f"snapshot.schemaId: the table has no schema {schema_id}.")


def publish_prepared(
    table: StoredTable, commit: PreparedCommit, publish: Publish, checks: CommitChecks
) -> bool:
    """Publish a snapshot that `check_snapshot` accepted; return False if it must be prepared again.

    True also if an earlier call published it. Raises MalformedDocumentError for missing files and
    invalid names, InvalidValueError for paths outside the table's folders, StaleIndexError for keys
    that the table has in other buckets, StreamedKeysError for keys that a batch may not add,
    DeposedError if the fence forbids it. The table of a REST catalog is committed through that
    catalog.
    """
    if publishes_itself(table):
        return _commit_upstream(table, commit)
    table.store.check()
    snapshot = commit.snapshot
    stored = snapshot_by_id(table, snapshot["id"])
    if stored is not None:
        return snapshot.get("uuid") is not None and stored.get("uuid") == snapshot["uuid"]
    if checks.ledger.knows(None):
        return True
    latest = latest_document(table)
    fence = checks.fence
    if fence is not None and latest is not None:
        fence = fence.above(epoch_of(latest.get("properties")))
    if not _is_prepared_on(commit, latest):
        return False
    return _Publication(table, snapshot, latest or {}, PreparedFiles(table), checks).publish(
        publish, fence
    )


def _is_prepared_on(commit: PreparedCommit, latest: Document | None) -> bool:
    latest_id = 0 if latest is None else int(latest["id"])
    latest_uuid = None if latest is None else latest.get("uuid")
    follows: bool = commit.snapshot["id"] == latest_id + 1
    return follows and (not commit.has_base_uuid or commit.base_uuid == latest_uuid)


@dataclass(frozen=True, slots=True)
class _Publication:
    """The publication of a prepared `snapshot` on top of the `latest` one, {} for none."""

    table: StoredTable
    snapshot: Document
    latest: Document
    files: PreparedFiles
    checks: CommitChecks

    def publish(self, publish: Publish, fence: Fence | None) -> bool:
        """See `publish_prepared`."""
        self.files.check_paths(self.snapshot, self.latest)
        if self._was_committed():
            return True
        union = self._united_index()
        united = self
        if union is not None:
            united = replace(self, snapshot={**self.snapshot, "indexManifest": union.manifest})
        try:
            united._check_layout()
            united._check_columns()
            united._check_streamed_keys()
            united._check_moved_keys()
            published = united._publish_synced(publish, fence)
        except (PaimonMagicsError, MalformedDocumentError):  # certainly not published
            if union is not None:
                union.discard(self.table)
            raise
        if union is not None:
            (union.settle if published else union.discard)(self.table)
        return published

    @property
    def _indexes(self) -> tuple[str | None, str | None]:
        """The index manifests of the latest snapshot and of this one."""
        return self.latest.get("indexManifest"), self.snapshot.get("indexManifest")

    @property
    def _changes(self) -> frozenset[ChangedFile]:
        return self.files.changes(self.snapshot["deltaManifestList"])

    def _was_committed(self) -> bool:
        """Whether the same writer has already committed the same changes."""
        snapshot, changes = self.snapshot, self._changes
        if not changes and snapshot["commitIdentifier"] == BATCH_COMMIT_IDENTIFIER:
            return False  # such commits are all alike
        earlier = self.checks.recent.of(self.table, snapshot["id"] - 1, snapshot)
        return any(
            self.files.changes(document["deltaManifestList"]) == changes for document in earlier
        ) or self.checks.ledger.knows(_digest(changes))

    def _united_index(self) -> IndexUnion | None:
        """The index of a commit with the keys that the table's index got since the commit was
        prepared, and without those that have left since; None if it is right as it is."""
        table, indexes, load = self.table, self.checks.indexes, self.checks.load
        if indexes is None or load is None or self.snapshot["commitKind"] == "OVERWRITE":
            return None
        before, after = self._indexes
        if before == after:
            return None
        manifests = IndexManifestFile(table.paimon)
        old, new = (manifests.read(name) if name is not None else [] for name in (before, after))
        path = f"{manifest_folder(table.paimon)}/{after}"
        if after is not None and not new and not table.paimon.file_io.exists(path):
            raise MalformedDocumentError(f"The snapshot names a file that does not exist: {path}")
        new_files = functools.cache(
            lambda: (load(), self.files.added(self.snapshot["deltaManifestList"]))
        )

        def brought(bucket: Bucket, hashes: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
            return brought_hashes(*new_files(), bucket, hashes) if len(hashes) else hashes

        united = indexes.lacking(table, old, new, brought=brought)
        return write_union(table, after, new, united) if united else None

    def _check_layout(self) -> None:
        """Check that the files were written for the table's present layout: its options that are
        fixed on a table with data, and the numbers of buckets of the partitions."""
        snapshot, load = self.snapshot, self.checks.load
        if load is None:
            return
        delta = snapshot["deltaManifestList"]
        added = self.files.added(delta)
        schema_ids = set(pc.unique(added["schema_id"]).to_pylist())
        is_fixed = not self.table.options.get("bucket", "-1").startswith("-")
        if not is_fixed and schema_ids <= {self.table.schema_id}:
            return
        table = load()
        check_layout(table, schema_ids)
        check_prepared_counts(
            table,
            snapshot["id"] - 1,
            added,
            self.files.deleted(delta),
            adds_rows=snapshot["commitKind"] in ("APPEND", "OVERWRITE"),
        )

    def _check_columns(self) -> None:
        """Raise CommitConflictError for files whose columns their schema lacks. A client does not
        say on which schema it planned, and another one takes its number when a branch is
        fast-forwarded to or the schema rolled back. One file shows it: a writer has one schema."""
        table, snapshot = self.table, self.snapshot
        if snapshot["commitKind"] not in ("APPEND", "OVERWRITE"):
            return
        for schema_id, (path, columns) in self.files.some_columns(
            snapshot["deltaManifestList"]
        ).items():
            schema = table.paimon.schema_manager.get_schema(schema_id)
            names = {field.name for field in schema.fields} if schema is not None else set()
            unknown = [c for c in columns if c not in names and not c.startswith("_")]
            if unknown:
                raise CommitConflictError(
                    f"The file {path} has the column `{unknown[0]}`, which the schema {schema_id} "
                    f"of `{table.name}` lacks: it was written for another schema {schema_id}. "
                    "Since then the table was fast-forwarded to a branch, or its schema was rolled "
                    "back.",
                    hint="Nothing was committed. Load the table again, and write the rows again.",
                )

    def _check_streamed_keys(self) -> None:
        """Check the keys of a batch; see `dynamic_keys`."""
        snapshot, checks = self.snapshot, self.checks
        before, after = self._indexes
        if (
            not self.latest
            or after in (None, before)
            or snapshot["commitIdentifier"] != BATCH_COMMIT_IDENTIFIER
            or snapshot["commitKind"] not in ("APPEND", "OVERWRITE")
            or checks.indexes is None
            or checks.load is None
        ):
            return
        old, new = (hash_entries(self.table, name) for name in (before, after))
        user = snapshot["commitUser"]
        check_streamed_keys(checks.load(), self.latest["id"], old, new, checks.indexes, user)

    def _check_moved_keys(self) -> None:
        """Check the buckets of a commit's keys where some were moved; see `dynamic_keys`."""
        snapshot, checks = self.snapshot, self.checks
        moved_for = carried_properties(self.latest.get("properties")).get(KEYS_MOVED_FOR)
        if (
            moved_for in (None, snapshot["commitUser"])
            or snapshot["commitKind"] != "APPEND"
            or checks.indexes is None
            or checks.load is None
        ):
            return
        index = hash_entries(self.table, snapshot.get("indexManifest"))
        added = self.files.added(snapshot["deltaManifestList"])
        check_key_buckets(checks.load(), added, checks.indexes, index)

    def _publish_synced(self, publish: Publish, fence: Fence | None) -> bool:
        """Sync the snapshot's files and publish it; False if another one was faster."""
        try:
            sync_files(self.files.new_paths(self.snapshot, self.latest))
        except FileNotFoundError as error:
            raise MalformedDocumentError(
                f"The snapshot names a file that does not exist: {error.filename or error}"
            ) from error
        content = {key: value for key, value in self.snapshot.items() if value is not None}
        added = carried_properties(self.latest.get("properties"))
        if fence is not None:
            added[EPOCH] = str(fence.epoch)
            fence.check()
        if added:
            content["properties"] = {**content.get("properties", {}), **added}
        before, after = self._indexes
        self.checks.ledger.begin(
            _digest(self._changes),
            changes_index=before != after,
            rests_on=self.latest.get("deltaManifestList"),
            manifests=self.files.manifests(self.snapshot["deltaManifestList"]),
        )
        return _create_snapshot(self.table, content, publish, self.checks.ledger)


def _create_snapshot(
    table: StoredTable, content: Document, publish: Publish, ledger: Ledger
) -> bool:
    manager = table.paimon.snapshot_manager()
    path = published_path(manager.get_snapshot_path(content["id"]))
    try:
        created = publish(path, json.dumps(content, indent=2, ensure_ascii=False).encode())
    except PaimonMagicsError:  # certainly not created
        ledger.end(False)
        raise
    if created:
        reach("publish.linked")
    ledger.end(created)
    if created:
        write_hint(table.store, manager.latest_file, content["id"])
    return created


def _commit_upstream(table: StoredTable, commit: PreparedCommit) -> bool:
    environment = table.paimon.catalog_environment
    committer = environment.snapshot_commit(table.paimon.snapshot_manager())
    try:
        prepared = JSON.from_json(json.dumps(commit.snapshot), Snapshot)
        partitions = [
            JSON.from_json(json.dumps(item), PartitionStatistics) for item in commit.statistics
        ]
        return bool(committer.commit(commit.base_uuid, prepared, partitions))
    finally:
        committer.close()


def _digest(changes: frozenset[ChangedFile]) -> str:
    return hashlib.sha256(repr(sorted(changes)).encode()).hexdigest()


# Finds the files that a snapshot prepared by another writer names.
#
# All methods raise MalformedDocumentError for a manifest or manifest list that is missing.


class PreparedFiles:
    """Reads what snapshots of a table name; each manifest is read once."""

    def __init__(self, table: StoredTable) -> None:
        self._table = table
        self._manifests = ManifestCache(table.paimon)

    def check_paths(self, snapshot: Document, latest: Document) -> None:
        """Raise MalformedDocumentError or InvalidValueError if a manifest that the snapshot adds to
        the `latest` one names a file outside the table's folders."""
        paths = self._table.paths
        paths.check([f"{self._table.paimon.path_factory().data_file_path()}/file"])
        names = self._merged(snapshot, latest)
        for manifest_list in _change_lists(snapshot):
            names += self.manifests(manifest_list)
        _check_plain(names)
        with _malformed_if_gone("A manifest of the snapshot"):
            entries = self._manifests.columns.entries(names)
        _check_plain(entries["file_name"].to_pylist())
        _check_plain(pc.list_flatten(entries["extra_files"]).to_pylist())
        external = pc.unique(entries["external_path"].drop_null()).to_pylist()
        paths.check(path for path in external if path)
        new = self._new_index_files(snapshot, latest)
        _check_plain(entry.index_file.file_name for entry in new)
        recorded = (entry.index_file.external_path for entry in new)
        paths.check(path for path in recorded if path)

    def _merged(self, snapshot: Document, latest: Document) -> list[str]:
        """The manifests of the snapshot's base that the latest snapshot does not have, sorted."""
        merged = set(self.manifests(snapshot["baseManifestList"]))
        for key in _FILES if latest else ():
            merged -= set(self.manifests(latest[key]))
        return sorted(merged)

    def _new_index_files(self, snapshot: Document, latest: Document) -> list[Any]:
        """The entries of the snapshot's index manifest that the latest one's does not have."""
        before, index = latest.get("indexManifest"), snapshot.get("indexManifest")
        if index in (None, before):
            return []
        manifests = IndexManifestFile(self._table.paimon)
        known = {_index_place(entry) for entry in manifests.read(before)} if before else set()
        return [entry for entry in manifests.read(index) if _index_place(entry) not in known]

    def manifests(self, manifest_list: str) -> list[str]:
        """The names of the manifests in a list."""
        with _malformed_if_gone(f"The manifest list {manifest_list}"):
            names: list[str] = self._manifests.columns.files(manifest_list)["file_name"].to_pylist()
        return names

    def changes(self, manifest_list: str) -> frozenset[ChangedFile]:
        """The data files that the manifests of a list add and delete."""
        entries = self._entries(manifest_list)
        partitions, of_files = partition_values(self._table.paimon, entries)
        texts = [tuple(map(repr, values)) for values in partitions]
        columns = (entries[name].to_pylist() for name in ("kind", "bucket", "level", "file_name"))
        return frozenset(
            (kind, texts[at], bucket, level, name)
            for at, kind, bucket, level, name in zip(of_files, *columns, strict=True)
        )

    def added(self, manifest_list: str) -> pa.Table:
        """The data files that the manifests of a list add: columns of MANIFEST_ENTRIES."""
        entries = self._entries(manifest_list)
        return entries.filter(pc.equal(entries["kind"], ADD))

    def deleted(self, manifest_list: str) -> pa.Table:
        """The data files that the manifests of a list delete: columns of MANIFEST_ENTRIES."""
        entries = self._entries(manifest_list)
        return entries.filter(pc.not_equal(entries["kind"], ADD))

    def first_numbers(self, manifest_list: str) -> dict[tuple[tuple[Any, ...], int], int]:
        """The least sequence number of the data files that a list adds to each bucket, by the
        values of its partition and its number."""
        added = self.added(manifest_list)
        partitions, of_files = partition_values(self._table.paimon, added)
        columns = (added[name].to_pylist() for name in ("bucket", "min_sequence_number"))
        first: dict[tuple[tuple[Any, ...], int], int] = {}
        for at, bucket, number in zip(of_files, *columns, strict=True):
            key = partitions[at], bucket
            first[key] = min(number, first.get(key, number))
        return first

    def new_paths(self, snapshot: Document, latest: Document) -> list[str]:
        """The paths of all files that a snapshot refers to and the latest one does not."""
        paimon = self._table.paimon
        folder, factory = manifest_folder(paimon), paimon.path_factory()
        names = [snapshot["baseManifestList"], *self._merged(snapshot, latest)]
        paths = []
        for manifest_list in _change_lists(snapshot):
            names += [manifest_list, *self.manifests(manifest_list)]
            paths += self._added_paths(self.added(manifest_list))
        index = snapshot.get("indexManifest")
        if index not in (None, latest.get("indexManifest")):
            names.append(index)
        paths += [
            factory.bucket_index_path(tuple(e.partition.values), e.bucket, e.index_file)
            for e in self._new_index_files(snapshot, latest)
            if not e.index_file.external_path
        ]
        if snapshot.get("statistics") is not None:
            paths.append(f"{factory.statistics_path()}/{snapshot['statistics']}")
        return [*(f"{folder}/{name}" for name in names), *paths]

    def some_columns(self, manifest_list: str) -> dict[int, tuple[str, Sequence[str]]]:
        """By the schema's number a data file that a list adds, and its columns. The first schema
        is never replaced, and not all formats name their columns."""
        added = self.added(manifest_list)
        seen: dict[int, tuple[str, Sequence[str]]] = {}
        for at, schema_id in enumerate(added["schema_id"].to_pylist()):
            if schema_id == 0 or schema_id in seen:
                continue
            file = added.slice(at, 1)
            path = file["external_path"][0].as_py() or self._added_paths(file)[0]
            try:
                with self._table.paimon.file_io.new_input_stream(path) as source:
                    seen[schema_id] = path, column_names(path, source) or ()
            except FileNotFoundError as error:
                raise MalformedDocumentError(
                    f"The snapshot names a file that does not exist: {path}"
                ) from error
            except pa.ArrowInvalid:  # whoever reads the damaged file says so
                seen[schema_id] = path, ()
        return seen

    def _added_paths(self, added: pa.Table) -> list[str]:
        """The paths of data files that are `added` to the table's folder, and of their extra
        files."""
        inside = pc.equal(pc.fill_null(pc.binary_length(added["external_path"]), 0), 0)
        added = added.filter(inside)
        partitions, of_files = partition_values(self._table.paimon, added)
        columns = (added[name].to_pylist() for name in ("bucket", "file_name", "extra_files"))
        return [
            canonical_data_file_path(self._table.paimon, partitions[at], bucket, name)
            for at, bucket, file, beside in zip(of_files, *columns, strict=True)
            for name in [file, *(beside or ())]
        ]

    def _entries(self, manifest_list: str) -> pa.Table:
        names: Sequence[str] = self.manifests(manifest_list)
        with _malformed_if_gone(f"A manifest of the list {manifest_list}"):
            return self._manifests.columns.entries(names)


def _change_lists(snapshot: Document) -> list[str]:
    lists = (snapshot.get(key) for key in ("deltaManifestList", "changelogManifestList"))
    return [name for name in lists if name is not None]


def _index_place(entry: Any) -> tuple[str, str | None]:
    return entry.index_file.file_name, entry.index_file.external_path


def _check_plain(names: Iterable[str]) -> None:
    for name in names:
        if not is_plain_name(name):
            raise MalformedDocumentError(f"{name!r} in a manifest is not the name of a file.")


@contextmanager
def _malformed_if_gone(what: str) -> Iterator[None]:
    try:
        yield
    except ManifestGoneError as error:
        raise MalformedDocumentError(f"{what} does not exist.") from error
