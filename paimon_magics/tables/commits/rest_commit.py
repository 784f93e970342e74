"""Publishing a snapshot that another writer has prepared: checked, made durable, compared, created.

Engines that commit through a REST catalog write data files, manifests and lists themselves and
bring the snapshot. It is published only on top of the snapshot that it was prepared on. What the
snapshot names must be there, and is on the disk before it is published.

A commit that arrives again is answered as before. Again means: the same snapshot (by its uuid), or
one of the same user, identifier and kind that adds and deletes the very same files. The files are
compared because Paimon's batch writers number every commit alike, so that user and identifier alone
would swallow the second commit of a writer that is used twice.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pypaimon.common.json_util import JSON
from pypaimon.manifest.index_manifest_file import IndexManifestFile
from pypaimon.manifest.manifest_file_manager import ManifestFileManager
from pypaimon.manifest.manifest_list_manager import ManifestListManager
from pypaimon.snapshot.snapshot import BATCH_COMMIT_IDENTIFIER, Snapshot
from pypaimon.snapshot.snapshot_commit import PartitionStatistics
from pypaimon.utils.file_store_path_factory import canonical_data_file_path

from paimon_magics.errors import PaimonMagicsError
from paimon_magics.faults import reach
from paimon_magics.tables.catalog.rest_documents import (
    MalformedDocumentError,
    integer_of,
    optional_text,
    string_map,
    text_of,
)
from paimon_magics.tables.commits.fencing import EPOCH, Fence, epoch_of
from paimon_magics.tables.manifests.hash_indexes import HashIndexes
from paimon_magics.tables.snapshots.chain import latest_document, published_path, snapshot_by_id
from paimon_magics.tables.snapshots.latest import write_hint
from paimon_magics.tables.stores.store import Publish
from paimon_magics.tables.stores.syncing import sync_files
from paimon_magics.tables.table import StoredTable

__all__ = ["Ledger", "RecentCommits", "check_snapshot", "publish_prepared"]

Document = Mapping[str, Any]

_KINDS = ("APPEND", "COMPACT", "OVERWRITE", "ANALYZE")
_NEWEST_VERSION = 3
_ADD = 0  # Paimon's FileKind
_NUMBERS = ("timeMillis", "totalRecordCount", "deltaRecordCount", "commitIdentifier")
_OPTIONAL_NUMBERS = ("baseManifestListSize", "deltaManifestListSize", "changelogManifestListSize",
                     "changelogRecordCount", "watermark", "nextRowId")  # fmt: skip
_FILES = ("baseManifestList", "deltaManifestList")
_OPTIONAL_FILES = ("changelogManifestList", "indexManifest", "statistics")


class Ledger(Protocol):
    """Where commits are remembered for longer than their snapshots last."""

    def knows(self, changes: str | None) -> bool:
        """Whether this very snapshot was published before, or (`changes`, a digest of its files)
        one that changed the same."""

    def begin(
        self, changes: str, *, changes_index: bool, rests_on: str | None, manifests: Sequence[str]
    ) -> None:
        """It is going to be published now, on the snapshot with the list of changes `rests_on`;
        `manifests` are those of its own changes, `changes_index` where index files are among it."""

    def end(self, published: bool) -> None:
        """Whether it was, with certainty. Not called where that is unknown."""


class RecentCommits:
    """Who committed the last snapshots of each table: a memory, so that a commit does not read the
    chain. It is never trusted: what it finds is read again."""

    def __init__(self, *, tables: int = 1000, snapshots: int = 128) -> None:
        self._tables = tables
        self._snapshots = snapshots
        self._known: OrderedDict[str, dict[int, tuple[Any, ...]]] = OrderedDict()
        self._guard = threading.Lock()

    def of(self, table: StoredTable, latest_id: int, commit: Document) -> list[Document]:
        """The snapshots among the last ones with the commit's user, identifier and kind."""
        key = f"{table.location}@{table.name.branch or ''}@{table.table_id}"
        with self._guard:
            known = self._known.pop(key, {})
        first = max(1, latest_id - self._snapshots + 1)
        seen = {}
        for snapshot_id in range(latest_id, first - 1, -1):
            who = known.get(snapshot_id)
            if who is None:
                document = snapshot_by_id(table, snapshot_id)
                if document is None:  # expired, and so are those before it
                    break
                who = _who(document)
            seen[snapshot_id] = who
        with self._guard:
            self._known[key] = seen
            while len(self._known) > self._tables:
                self._known.popitem(last=False)
        ids = [snapshot_id for snapshot_id, who in seen.items() if who == _who(commit)]
        found = (snapshot_by_id(table, snapshot_id) for snapshot_id in ids)
        return [s for s in found if s is not None and _who(s) == _who(commit)]

    def forget(self, table: StoredTable) -> None:
        """Drop what is known of a table whose chain was changed (a roll-back)."""
        prefix = f"{table.location}@"
        with self._guard:
            for key in [key for key in self._known if key.startswith(prefix)]:
                del self._known[key]


def check_snapshot(table: StoredTable, snapshot: Document) -> None:
    """Raise MalformedDocumentError for what is no snapshot of this table's, or names no files."""
    where = "snapshot"
    version = integer_of(snapshot, "version", where) if snapshot.get("version") is not None else 1
    if not 1 <= version <= _NEWEST_VERSION:
        raise MalformedDocumentError(f"snapshot.version {version} is none that is known here.")
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
            if not name or name.startswith(".") or set("/\\\0") & set(name):
                raise MalformedDocumentError(f"snapshot.{key} must be a file's name, not '{name}'.")
    schema_id = integer_of(snapshot, "schemaId", where)
    if schema_id < 0 or table.paimon.schema_manager.get_schema(schema_id) is None:
        raise MalformedDocumentError(f"snapshot.schemaId: the table has no schema {schema_id}.")


def publish_prepared(
    table: StoredTable,
    snapshot: Document,
    publish: Publish,
    recent: RecentCommits,
    *,
    base_uuid: str | None,
    base_is_told: bool = True,
    statistics: Sequence[Document] = (),
    ledger: Ledger | None = None,
    indexes: HashIndexes | None = None,
    fence: Fence | None = None,
) -> bool:
    """Publish a snapshot that `check_snapshot` accepted; False when it must be prepared anew.

    `base_uuid` is the uuid of the snapshot that it was prepared on, None for none or one without
    a uuid; clients of before Paimon 2.0 do not tell it (`base_is_told`), then its id decides. True
    also when an earlier call published it, which `ledger` knows for longer than snapshots last.
    `indexes` compares the hash indexes of dynamic buckets. With `fence`, the snapshot carries its
    epoch. Raises MalformedDocumentError for files that are not there, StaleIndexError for an index
    that lacks keys of the table's, DeposedError when the fence forbids it. A table of a REST
    catalog is committed through that, with the `statistics` of the commit.
    """
    if table.paimon.catalog_environment.supports_version_management:
        return _commit_upstream(table, snapshot, base_uuid, statistics)
    table.store.check()
    stored = snapshot_by_id(table, snapshot["id"])
    if stored is not None:
        return snapshot.get("uuid") is not None and stored.get("uuid") == snapshot["uuid"]
    if ledger is not None and ledger.knows(None):
        return True
    latest = latest_document(table)
    latest_id = 0 if latest is None else int(latest["id"])
    latest_uuid = None if latest is None else latest.get("uuid")
    if fence is not None and latest is not None:
        fence = fence.above(epoch_of(latest.get("properties")))
    if snapshot["id"] != latest_id + 1 or (base_is_told and base_uuid != latest_uuid):
        return False
    changes = _changes(table, snapshot["deltaManifestList"])
    if any(
        _is_same_commit(snapshot, changes, _changes(table, earlier["deltaManifestList"]))
        for earlier in recent.of(table, latest_id, snapshot)
    ):
        return True
    digest = _digest(changes)
    if ledger is not None and not _is_nothing(snapshot, changes) and ledger.knows(digest):
        return True
    before = None if latest is None else latest.get("indexManifest")
    after = snapshot.get("indexManifest")
    if indexes is not None and snapshot["commitKind"] != "OVERWRITE":
        indexes.check(table, before, after)
    try:
        sync_files(_new_files(table, snapshot, latest))
    except FileNotFoundError as error:
        raise MalformedDocumentError(
            f"The snapshot names a file that is not there: {error.filename or error}"
        ) from error
    manager = table.paimon.snapshot_manager()
    content = {key: value for key, value in snapshot.items() if value is not None}
    if fence is not None:
        content["properties"] = {**content.get("properties", {}), EPOCH: str(fence.epoch)}
        fence.check()
    path = published_path(manager.get_snapshot_path(snapshot["id"]))
    if ledger is not None:
        rests_on = None if latest is None else latest["deltaManifestList"]
        ledger.begin(
            digest,
            changes_index=before != after,
            rests_on=rests_on,
            manifests=[m.file_name for m in _manifests(table, snapshot["deltaManifestList"])],
        )
    try:
        created = publish(path, json.dumps(content, indent=2, ensure_ascii=False).encode())
    except PaimonMagicsError:  # certainly not created
        if ledger is not None:
            ledger.end(False)
        raise
    if created:
        reach("publish.linked")
    if ledger is not None:
        ledger.end(created)
    if created:
        write_hint(table.store, manager.latest_file, snapshot["id"])
    return created


def _commit_upstream(
    table: StoredTable, snapshot: Document, base_uuid: str | None, statistics: Sequence[Document]
) -> bool:
    environment = table.paimon.catalog_environment
    committer = environment.snapshot_commit(table.paimon.snapshot_manager())
    try:
        prepared = JSON.from_json(json.dumps(snapshot), Snapshot)
        partitions = [JSON.from_json(json.dumps(item), PartitionStatistics) for item in statistics]
        return bool(committer.commit(base_uuid, prepared, partitions))
    finally:
        committer.close()


def _who(snapshot: Document) -> tuple[Any, ...]:
    return snapshot["commitUser"], snapshot["commitIdentifier"], snapshot["commitKind"]


def _is_same_commit(snapshot: Document, changes: frozenset[Any], earlier: frozenset[Any]) -> bool:
    return not _is_nothing(snapshot, changes) and changes == earlier


def _is_nothing(snapshot: Document, changes: frozenset[Any]) -> bool:
    """Whether it changes no file and has no number of its own: such commits are all alike."""
    return not changes and bool(snapshot["commitIdentifier"] == BATCH_COMMIT_IDENTIFIER)


def _digest(changes: frozenset[tuple[Any, ...]]) -> str:
    return hashlib.sha256(repr(sorted(changes)).encode()).hexdigest()


def _changes(table: StoredTable, manifest_list: str) -> frozenset[tuple[Any, ...]]:
    return frozenset(
        (entry.kind, tuple(map(repr, entry.partition.values)), entry.bucket, entry.file.file_name)
        for entry in _entries(table, manifest_list)
    )


def _entries(table: StoredTable, manifest_list: str) -> Sequence[Any]:
    manifests = _manifests(table, manifest_list)
    managers = ManifestFileManager(table.paimon)
    entries: list[Any] = []
    for manifest in manifests:
        try:
            entries += managers.read(manifest.file_name, drop_stats=True)
        except FileNotFoundError as error:
            raise MalformedDocumentError(
                f"The manifest {manifest.file_name} is not there."
            ) from error
    return entries


def _manifests(table: StoredTable, manifest_list: str) -> Sequence[Any]:
    try:
        found: Sequence[Any] = ManifestListManager(table.paimon).read(manifest_list)
        return found
    except FileNotFoundError as error:
        raise MalformedDocumentError(f"The manifest list {manifest_list} is not there.") from error


def _new_files(table: StoredTable, snapshot: Document, latest: Document | None) -> list[str]:
    """The paths of everything that this snapshot refers to and the latest one does not."""
    folder = ManifestFileManager(table.paimon).manifest_path
    paths = [f"{folder}/{snapshot['baseManifestList']}"]
    merged = {m.file_name for m in _manifests(table, snapshot["baseManifestList"])}
    if latest is not None:
        for key in _FILES:
            merged -= {m.file_name for m in _manifests(table, latest[key])}
    paths += [f"{folder}/{name}" for name in sorted(merged)]
    for key in ("deltaManifestList", "changelogManifestList"):
        name = snapshot.get(key)
        if name is None:
            continue
        paths.append(f"{folder}/{name}")
        paths += [f"{folder}/{manifest.file_name}" for manifest in _manifests(table, name)]
        for entry in _entries(table, name):
            if entry.kind == _ADD and not entry.file.external_path:
                partition = tuple(entry.partition.values)
                files = [entry.file.file_name, *(entry.file.extra_files or [])]
                paths += [
                    canonical_data_file_path(table.paimon, partition, entry.bucket, file)
                    for file in files
                ]
    index = snapshot.get("indexManifest")
    before = None if latest is None else latest.get("indexManifest")
    if index is not None and index != before:
        paths.append(f"{folder}/{index}")
        manifests = IndexManifestFile(table.paimon)
        known = {e.index_file.file_name for e in manifests.read(before)} if before else set()
        factory = table.paimon.path_factory()
        paths += [
            factory.bucket_index_path(tuple(e.partition.values), e.bucket, e.index_file)
            for e in manifests.read(index)
            if e.index_file.file_name not in known and not e.index_file.external_path
        ]
    if snapshot.get("statistics") is not None:
        paths.append(f"{table.paimon.path_factory().statistics_path()}/{snapshot['statistics']}")
    return paths
