"""One commit: conflict check, manifests and snapshot prepared by pypaimon, published by a
primitive that the caller brings.

pypaimon's own way to publish on a file system checks and then renames, which loses commits under
concurrent writers; only its preparation is used. What a lost race prepared is removed again.
A REST catalog publishes by its own compare-and-swap.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pypaimon.common.json_util import JSON
from pypaimon.schema.data_types import PyarrowFieldParser
from pypaimon.snapshot.snapshot_commit import SnapshotCommit
from pypaimon.write.commit_message import CommitMessage
from pypaimon.write.commit_message_serializer import deserialize_commit_message
from pypaimon.write.file_store_commit import FileStoreCommit

from paimon_magics.errors import (
    CommitConflictError,
    PaimonMagicsError,
    TableDamagedError,
    UnknownOutcomeError,
    UnsupportedStatementError,
)
from paimon_magics.planning.commits import (
    Append,
    CommitReceipt,
    CommitRequest,
    OverwritePartitions,
    OverwriteTouched,
    Transaction,
)
from paimon_magics.tables.catalog import Table
from paimon_magics.tables.locations import local_path

__all__ = [
    "Publish",
    "check_can_publish",
    "commit",
    "committed_files",
    "find_commit",
    "latest_snapshot_id",
]

Publish = Callable[[str, bytes], bool]
"""Create a file with content if it does not exist; False when it did, with certainty."""


def latest_snapshot_id(table: Table) -> int:
    """The id of the latest snapshot, 0 for a table without any."""
    latest = table.paimon.snapshot_manager().get_latest_snapshot()
    return latest.id if latest is not None else 0


def check_can_publish(table: Table) -> None:
    """Raise UnsupportedStatementError where snapshots can't be created safely."""
    if _publishes_itself(table) or local_path(table.location) is not None:
        return
    scheme = table.location.split(":", 1)[0]
    raise UnsupportedStatementError(
        f"Table `{table.name}` lies in a {scheme} store, where this version can't create a "
        "snapshot without the risk of overwriting another writer's.",
        hint="Write to a local warehouse or through a REST catalog; reading works everywhere.",
    )


def find_commit(table: Table, transaction: Transaction) -> CommitReceipt | None:
    """The receipt of the transaction's snapshot, or None when it certainly has none.

    Looks at every snapshot since the transaction's base. Raises UnknownOutcomeError when one of
    them is gone (expired), so that the answer can't be known.
    """
    manager = table.paimon.snapshot_manager()
    for snapshot_id in range(latest_snapshot_id(table), transaction.base_snapshot_id, -1):
        snapshot = manager.get_snapshot_by_id(snapshot_id)
        if snapshot is None:
            raise UnknownOutcomeError(
                f"Snapshot {snapshot_id} of `{table.name}` has expired, so whether this statement "
                "was committed can't be told.",
                hint=f"Look for its rows in `{table.name}` before running it again.",
            )
        if (
            snapshot.commit_user == transaction.commit_user
            and snapshot.commit_identifier == transaction.commit_identifier
        ):
            return _receipt(snapshot)
    return None


def commit(table: Table, request: CommitRequest, publish: Publish) -> CommitReceipt:
    """Commit `request` to `table`; a request that was committed before gets the same receipt.

    Raises CommitConflictError when it certainly was not published, UnknownOutcomeError when that
    can't be told, TableDamagedError for messages that contradict each other.
    """
    found = find_commit(table, request.transaction)
    if found is not None:
        return found
    messages = _decode(table, request.messages)
    _check_owners(messages, table)
    publisher = _publisher(table, publish)
    try:
        _run(table, request, messages, publisher)
    except PaimonMagicsError:
        raise
    except Exception as error:
        found = find_commit(table, request.transaction)
        if found is not None:
            return found
        if publisher.uncertain:
            raise UnknownOutcomeError(
                f"The commit to `{table.name}` failed without a clear answer: {error}",
                hint=f"Look at `{table.name}$snapshots` before running the statement again.",
            ) from error
        raise CommitConflictError(
            f"The commit to `{table.name}` was refused: {error}",
            hint="Nothing was written. Run the statement again: it plans on the current snapshot.",
        ) from error
    if publisher.published is None:
        return CommitReceipt(snapshot_id=None, commit_kind=None, total_rows=None, delta_rows=0)
    return _receipt(publisher.published)


def committed_files(table: Table, messages: Sequence[bytes]) -> frozenset[str]:
    """The leaf names of all files that the messages commit."""
    return frozenset(
        file.file_name
        for message in _decode(table, messages)
        for file in [*message.new_files, *message.changelog_files]
    )


class _Publisher(SnapshotCommit):  # type: ignore[misc]
    """What pypaimon publishes a prepared snapshot through; remembers what became of it."""

    def __init__(self) -> None:
        self.published: Any = None
        self.uncertain = False

    def close(self) -> None:
        """Nothing is held open between attempts."""


class _FilePublisher(_Publisher):
    def __init__(self, table: Table, publish: Publish) -> None:
        super().__init__()
        self._table = table.paimon
        self._publish = publish

    def commit(self, base_uuid: str | None, snapshot: Any, statistics: Any) -> bool:
        manager = self._table.snapshot_manager()
        path = local_path(manager.get_snapshot_path(snapshot.id))
        assert path is not None  # check_can_publish came before
        try:
            created = self._publish(path, JSON.to_json(snapshot, indent=2).encode())
        except BaseException:
            self.uncertain = True
            raise
        if not created:
            _remove_prepared(self._table, snapshot)
            return False
        self.published = snapshot
        # A hint only: readers that find it stale list the folder.
        with contextlib.suppress(Exception):
            self._table.file_io.write_file(manager.latest_file, str(snapshot.id), overwrite=True)
        return True


class _CatalogPublisher(_Publisher):
    def __init__(self, table: Table) -> None:
        super().__init__()
        self._inner = table.paimon.catalog_environment.snapshot_commit(
            table.paimon.snapshot_manager()
        )

    def commit(self, base_uuid: str | None, snapshot: Any, statistics: Any) -> bool:
        try:
            created = bool(self._inner.commit(base_uuid, snapshot, statistics))
        except BaseException:
            self.uncertain = True
            raise
        if created:
            self.published = snapshot
        return created


def _publishes_itself(table: Table) -> bool:
    return bool(table.paimon.catalog_environment.supports_version_management)


def _publisher(table: Table, publish: Publish) -> _Publisher:
    return _CatalogPublisher(table) if _publishes_itself(table) else _FilePublisher(table, publish)


def _run(
    table: Table, request: CommitRequest, messages: list[CommitMessage], publisher: _Publisher
) -> None:
    dynamic = isinstance(request.change, OverwriteTouched)
    paimon = table.paimon.copy({"dynamic-partition-overwrite": "true" if dynamic else "false"})
    committer = FileStoreCommit(publisher, paimon, request.transaction.commit_user)
    identifier = request.transaction.commit_identifier
    properties = dict(request.properties) or None
    try:
        match request.change:
            case Append():
                committer.commit(messages, identifier, snapshot_properties=properties)
            case OverwriteTouched():
                committer.overwrite({}, messages, identifier, snapshot_properties=properties)
            case OverwritePartitions(specs=specs) if len(specs) <= 1:
                spec = _typed(table, specs[0]) if specs else {}
                committer.overwrite(spec, messages, identifier, snapshot_properties=properties)
            case OverwritePartitions(specs=specs):
                assert not messages
                committer.drop_partitions([_typed(table, spec) for spec in specs], identifier)
    finally:
        committer.close()


def _typed(table: Table, spec: Sequence[tuple[str, str | None]]) -> dict[str, Any]:
    """Partition values as the Python values of their columns' types, which pypaimon compares."""
    schema = PyarrowFieldParser.from_paimon_schema(table.paimon.table_schema.fields)
    return {
        name: None if text is None else pa.scalar(text).cast(schema.field(name).type).as_py()
        for name, text in spec
    }


def _decode(table: Table, messages: Sequence[bytes]) -> list[CommitMessage]:
    paimon = table.paimon
    decoded = [
        deserialize_commit_message(
            body, paimon.partition_keys_fields, paimon.trimmed_primary_keys_fields, version=14
        )
        for body in messages
    ]
    return [message for message in decoded if not message.is_empty()]


def _check_owners(messages: Sequence[CommitMessage], table: Table) -> None:
    """Two writers of one bucket of a primary-key table would give its keys equal sequence numbers,
    and any of two rows could win."""
    if not table.definition.is_primary_key_table:
        return
    seen: set[tuple[Any, ...]] = set()
    for message in messages:
        owner = (tuple(message.partition), message.bucket)
        if owner in seen:
            raise TableDamagedError(
                f"Two tasks wrote bucket {message.bucket} of partition {message.partition} of "
                f"`{table.name}`; nothing was committed.",
                hint="Run the statement again, and report this with the table's definition.",
            )
        seen.add(owner)


def _remove_prepared(paimon: Any, snapshot: Any) -> None:
    """Delete the manifests that a lost race leaves. Its data files stay for the next attempt."""
    from pypaimon.manifest.manifest_file_manager import ManifestFileManager
    from pypaimon.manifest.manifest_list_manager import ManifestListManager

    lists = ManifestListManager(paimon)
    manifests = ManifestFileManager(paimon)
    for name in (snapshot.delta_manifest_list, snapshot.changelog_manifest_list):
        if name:
            for meta in lists.read(name):
                paimon.file_io.delete_quietly(f"{manifests.manifest_path}/{meta.file_name}")
            paimon.file_io.delete_quietly(f"{lists.manifest_path}/{name}")
    paimon.file_io.delete_quietly(f"{lists.manifest_path}/{snapshot.base_manifest_list}")


def _receipt(snapshot: Any) -> CommitReceipt:
    return CommitReceipt(
        snapshot_id=snapshot.id,
        commit_kind=snapshot.commit_kind,
        total_rows=snapshot.total_record_count,
        delta_rows=snapshot.delta_record_count or 0,
    )
