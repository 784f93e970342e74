"""Checks a commit that adds rows to a table with fixed or dynamic buckets: since the statement was
planned, no other commit may have added the same keys, or changed the number of buckets.

Paimon leaves this to the user ("a single write job"): two writers that put one new key into two
buckets, or into two partitions, both succeed, and the table has the key twice.

Keys that are moved to another bucket are the one thing that takes a hash out of an index: rows of
statements that were planned before may have gone to the old bucket, and such a move would leave
rows behind that came to the old bucket since it was planned. Both are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pypaimon.write.commit_message import CommitMessage

from paimon_magics.errors import OutdatedPlanError
from paimon_magics.planning.commits.requests import Append, CommitRequest, Compact
from paimon_magics.tables.commits.index_union import hash_entries
from paimon_magics.tables.commits.moved_keys import has_moved_keys
from paimon_magics.tables.manifests.hash_indexes import HashIndexes
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.manifests.partition_values import partition_values
from paimon_magics.tables.snapshots.latest import read_snapshot
from paimon_magics.tables.snapshots.provenance import described
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.bucket_counts import newer_bucket_counts
from paimon_magics.tables.writing.dynamic_buckets import IndexFile, hash_index_in

__all__ = ["bucket_check"]


def bucket_check(
    table: Table, request: CommitRequest, messages: Sequence[CommitMessage]
) -> Callable[[Any], None]:
    """Return a check of the latest snapshot (None for none), on which the commit will be published.

    The check raises OutdatedPlanError that names the conflicting commit. It does nothing for an
    overwrite, which `overwrite_checks` checks.
    """
    base_id = request.transaction.base_snapshot_id
    mode = table.schema.bucket_mode
    if isinstance(request.change, Compact) and request.change.moves_keys:
        return _untouched(table, base_id, messages)
    if isinstance(request.change, Append) and mode == "HASH_FIXED":
        return newer_bucket_counts(table, messages, base_id)
    if not isinstance(request.change, Append) or mode not in ("HASH_DYNAMIC", "KEY_DYNAMIC"):
        return lambda latest: None
    touched = {tuple(message.partition) for message in messages}
    added = [entry for message in messages for entry in message.index_adds]
    indexes = HashIndexes()

    def check(latest: Any) -> None:
        latest_id = 0 if latest is None else latest.id
        if latest_id <= base_id:
            return
        index = _index(table, _snapshot(table, base_id) if base_id else None, touched)
        if mode == "HASH_DYNAMIC" and index == _index(table, latest, touched):
            return
        came = moved = None
        for snapshot_id in range(base_id + 1, latest_id + 1):
            snapshot = latest if snapshot_id == latest_id else _snapshot(table, snapshot_id)
            before, index = index, _index(table, snapshot, touched)
            if snapshot.commit_kind == "COMPACT":
                moved = snapshot if index != before else moved
                continue
            if mode == "KEY_DYNAMIC" or (index != before and snapshot.commit_kind == "OVERWRITE"):
                raise _keys_came(table, snapshot)
            came = snapshot if index != before else came
        if came is None and moved is None:
            return
        manifest = _snapshot(table, base_id).index_manifest if base_id else None
        base, now = (hash_entries(table, one) for one in (manifest, latest.index_manifest))
        if came is not None and indexes.have_met(table, base, now, added):
            raise _keys_came(table, came)
        if moved is not None and has_moved_keys(table, messages, indexes.gone(table, base, now)):
            raise _keys_came(table, moved, "moved keys to other buckets in")

    return check


def _index(
    table: Table, snapshot: Any, partitions: set[tuple[Any, ...]]
) -> frozenset[tuple[int, str]]:
    if snapshot is None or not snapshot.index_manifest:
        return frozenset()
    files: Sequence[IndexFile] = hash_index_in(table, snapshot)
    return frozenset((file.bucket, file.path) for file in files if file.partition in partitions)


def _snapshot(table: Table, snapshot_id: int) -> Any:
    snapshot = read_snapshot(table.paimon, snapshot_id)
    if snapshot is None:
        raise OutdatedPlanError(
            f"Snapshot {snapshot_id} of `{table.name}` expired while the statement was running, so "
            "the keys that were added since are unknown.",
            hint="Nothing was written. Run the statement again.",
        )
    return snapshot


def _untouched(
    table: Table, base_id: int, messages: Sequence[CommitMessage]
) -> Callable[[Any], None]:
    """A check for a move of keys: no rows may have come to its buckets, or gone, since the base."""
    moved = {(tuple(message.partition), message.bucket) for message in messages}
    manifests = ManifestCache(table.paimon)
    checked = base_id

    def check(latest: Any) -> None:
        nonlocal checked
        for snapshot_id in range(checked + 1, 1 + (0 if latest is None else latest.id)):
            snapshot = _snapshot(table, snapshot_id)
            if snapshot.commit_kind != "COMPACT":
                changed = manifests.listed_entries([snapshot.delta_manifest_list])
                partitions, of_files = partition_values(table.paimon, changed)
                buckets = zip(of_files, changed["bucket"].to_pylist(), strict=True)
                if any((partitions[at], bucket) in moved for at, bucket in buckets):
                    raise _keys_came(table, snapshot, "wrote")
        checked = base_id if latest is None else latest.id

    return check


def _keys_came(table: Table, snapshot: Any, did: str = "added keys to") -> OutdatedPlanError:
    return OutdatedPlanError(
        f"Since this statement was planned, {described(snapshot)} {did} the partitions "
        f"of `{table.name}` that it writes: a key could be stored twice.",
        hint="Nothing was written. Run the statement again: it then finds those keys. Write "
        "to a table with dynamic buckets by one statement at a time.",
    )
