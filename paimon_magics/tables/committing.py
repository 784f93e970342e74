"""One commit: conflict check, manifests and snapshot prepared by pypaimon, published by a
primitive that the caller brings.

pypaimon's own way to publish on a file system checks and then renames, which loses commits under
concurrent writers; only its preparation is used. What a lost race prepared is removed again.
A REST catalog publishes by its own compare-and-swap.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pypaimon.manifest.manifest_file_manager import ManifestFileManager
from pypaimon.manifest.manifest_list_manager import ManifestListManager
from pypaimon.schema.data_types import PyarrowFieldParser
from pypaimon.utils.file_store_path_factory import canonical_data_file_path
from pypaimon.write.commit_message import CommitMessage
from pypaimon.write.commit_message_serializer import deserialize_commit_message
from pypaimon.write.file_store_commit import FileStoreCommit

from paimon_magics.errors import (
    CommitConflictError,
    PaimonMagicsError,
    TableDamagedError,
    UnknownOutcomeError,
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
from paimon_magics.tables.provenance import made_by
from paimon_magics.tables.snapshot_publishers import (
    Publish,
    Publisher,
    Refused,
    publisher_for,
    publishes_itself,
    sync_files,
)

__all__ = [
    "Publish",
    "check_can_publish",
    "commit",
    "committed_files",
    "find_commit",
    "latest_snapshot_id",
]

_ADD = 0  # Paimon's FileKind


def latest_snapshot_id(table: Table) -> int:
    """The id of the latest snapshot, 0 for a table without any."""
    latest = table.paimon.snapshot_manager().get_latest_snapshot()
    return latest.id if latest is not None else 0


def check_can_publish(table: Table) -> None:
    """Raise UnsupportedStatementError where snapshots can't be created safely, SetupError where
    the store can't be written."""
    if not publishes_itself(table):
        table.store.check()


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
    can't be told, TableDamagedError for messages that contradict each other. An overwrite fails
    as a conflict when rows were added to what it replaces after it was planned.
    """
    found = find_commit(table, request.transaction)
    if found is not None:
        return found
    messages = _decode(table, request.messages)
    _check_owners(messages, table)
    _sync_data(table, messages)
    publisher = publisher_for(table, publish, check_before=_overwrite_check(table, request))
    try:
        _run(table, request, messages, publisher)
    except Refused as refused:
        raise refused.error from refused.__cause__
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
    if publisher.published is None and publisher.uncertain:
        # An attempt without a clear answer that a later one found to have succeeded.
        found = find_commit(table, request.transaction)
        if found is not None:
            return found
    if publisher.published is None:
        return CommitReceipt(snapshot_id=None, commit_kind=None, total_rows=None, delta_rows=0)
    return _receipt(publisher.published)


def _sync_data(table: Table, messages: Sequence[CommitMessage]) -> None:
    """Put the data files and their names on the disk, before a snapshot may name them."""
    sync_files(
        [
            canonical_data_file_path(
                table.paimon, tuple(message.partition), message.bucket, file.file_name
            )
            for message in messages
            for file in [*message.new_files, *message.changelog_files]
            if not file.external_path
        ]
    )


def _overwrite_check(table: Table, request: CommitRequest) -> Callable[[int], None]:
    """What must hold before snapshot N is published: nobody added rows, since the overwrite was
    planned, to what it replaces. (Paimon replaces them silently unless
    `commit.strict-mode.last-safe-snapshot` is set.)
    """
    checked_to = request.transaction.base_snapshot_id

    def check(snapshot_id: int) -> None:
        nonlocal checked_to
        match request.change:
            case Append():
                return
            case OverwriteTouched(swallow_newer=True) | OverwritePartitions(swallow_newer=True):
                return
        touched = _replaced_partitions(table, request)
        for newer in range(checked_to + 1, snapshot_id):
            added = _added_partitions(table, newer)
            for values in added:
                if touched(values):
                    raise _newer_rows(table, newer, values)
            checked_to = newer

    return check


def _replaced_partitions(table: Table, request: CommitRequest) -> Callable[[tuple[Any, ...]], bool]:
    """Whether a partition, by its values, is among those that the request replaces."""
    match request.change:
        case OverwritePartitions(specs=specs):
            keys = list(table.definition.partition_keys)
            wanted = [
                [(keys.index(name), value) for name, value in _typed(table, spec).items()]
                for spec in specs
            ]
            return lambda values: (
                not wanted
                or any(
                    all(values[position] == value for position, value in spec) for spec in wanted
                )
            )
        case _:
            touched = {tuple(message.partition) for message in _decode(table, request.messages)}
            return lambda values: values in touched


def _added_partitions(table: Table, snapshot_id: int) -> set[tuple[Any, ...]]:
    """The partitions that the commit of a snapshot added rows to; a compaction adds none."""
    paimon = table.paimon
    snapshot = paimon.snapshot_manager().get_snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise CommitConflictError(
            f"Snapshot {snapshot_id} of `{table.name}` expired while the overwrite was running, so "
            "what it added can't be told.",
            hint="Nothing was written. Run the statement again.",
        )
    if snapshot.commit_kind == "COMPACT":
        return set()
    manifests = ManifestListManager(paimon).read_delta(snapshot)
    entries = ManifestFileManager(paimon).read_entries_parallel(manifests, drop_stats=True)
    return {tuple(entry.partition.values) for entry in entries if entry.kind == _ADD}


def _newer_rows(table: Table, snapshot_id: int, values: tuple[Any, ...]) -> CommitConflictError:
    snapshot = table.paimon.snapshot_manager().get_snapshot_by_id(snapshot_id)
    keys = table.definition.partition_keys
    where = ", ".join(f"{key} = {value}" for key, value in zip(keys, values, strict=True))
    when = datetime.datetime.fromtimestamp(snapshot.time_millis / 1000, tz=datetime.UTC)
    return CommitConflictError(
        f"Since this overwrite was planned, snapshot {snapshot_id} ({snapshot.commit_kind} by "
        f"{made_by(snapshot)} at {when:%Y-%m-%d %H:%M:%S} UTC) added rows to "
        + (f"the partition {where} of `{table.name}`." if where else f"`{table.name}`.")
        + " Replacing them would lose them.",
        hint="Nothing was written. Run the statement again: it then sees those rows.",
    )


def committed_files(table: Table, messages: Sequence[bytes]) -> frozenset[str]:
    """The leaf names of all files that the messages commit."""
    return frozenset(
        file.file_name
        for message in _decode(table, messages)
        for file in [*message.new_files, *message.changelog_files]
    )


def _run(
    table: Table, request: CommitRequest, messages: list[CommitMessage], publisher: Publisher
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


def _receipt(snapshot: Any) -> CommitReceipt:
    return CommitReceipt(
        snapshot_id=snapshot.id,
        commit_kind=snapshot.commit_kind,
        total_rows=snapshot.total_record_count,
        delta_rows=snapshot.delta_record_count or 0,
        manifest_list=snapshot.delta_manifest_list,
    )
