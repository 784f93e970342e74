"""Checks that no rows were added to what an overwrite replaces since it was planned. (Paimon
replaces them silently unless `commit.strict-mode.last-safe-snapshot` is set.) Where the overwrite
only brings the same rows into another layout, none may have been removed either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.errors import CommitConflictError, OutdatedPlanError
from paimon_magics.planning.commits.requests import (
    Append,
    CommitRequest,
    Compact,
    CompactManifests,
    OverwritePartitions,
    OverwriteTouched,
)
from paimon_magics.tables.commits.changes import typed_partition
from paimon_magics.tables.manifests.live_files import ManifestCache, undeleted
from paimon_magics.tables.manifests.partition_values import partition_values
from paimon_magics.tables.snapshots.latest import read_snapshot
from paimon_magics.tables.snapshots.provenance import described
from paimon_magics.tables.table import Table

__all__ = ["overwrite_check"]


def overwrite_check(
    table: Table, request: CommitRequest, messages: Sequence[CommitMessage]
) -> Callable[[int], None]:
    """Return a check of the snapshots before an id; it reads each snapshot once.

    The check raises CommitConflictError that names the other commit, OutdatedPlanError where the
    overwrite can be planned again.
    """
    only_unchanged = False
    match request.change:
        case Append() | Compact() | CompactManifests():
            return _passes
        case OverwriteTouched(swallow_newer=True) | OverwritePartitions(swallow_newer=True):
            return _passes
        case OverwriteTouched(only_unchanged=True):
            only_unchanged = True
    touched = _replaced_partitions(table, request, messages)
    checked_to = request.transaction.base_snapshot_id

    def check(snapshot_id: int) -> None:
        nonlocal checked_to
        for newer in range(checked_to + 1, snapshot_id):
            snapshot = _snapshot(table, newer)
            changed = _changed_partitions(table, snapshot, only_added=not only_unchanged)
            for values in filter(touched, changed):
                if only_unchanged:
                    raise _changed_rows(table, snapshot, values)
                raise _newer_rows(table, snapshot, values)
            checked_to = newer

    return check


def _passes(snapshot_id: int) -> None:
    """Nothing to check."""


def _replaced_partitions(
    table: Table, request: CommitRequest, messages: Sequence[CommitMessage]
) -> Callable[[tuple[Any, ...]], bool]:
    """Return a function that says whether the request replaces the partition with some values."""
    match request.change:
        case OverwritePartitions(specs=specs):
            keys = list(table.schema.partition_keys)
            wanted = [
                [(keys.index(name), value) for name, value in typed_partition(table, spec).items()]
                for spec in specs
            ]
            return lambda values: (
                not wanted
                or any(
                    all(values[position] == value for position, value in spec) for spec in wanted
                )
            )
        case _:
            touched = {tuple(message.partition) for message in messages}
            return lambda values: values in touched


def _snapshot(table: Table, snapshot_id: int) -> Any:
    snapshot = read_snapshot(table.paimon, snapshot_id)
    if snapshot is None:
        raise CommitConflictError(
            f"Snapshot {snapshot_id} of `{table.name}` expired while the overwrite was running, so "
            "what it added is unknown.",
            hint="Nothing was written. Run the statement again.",
        )
    return snapshot


def _changed_partitions(table: Table, snapshot: Any, *, only_added: bool) -> set[tuple[Any, ...]]:
    """The partitions that a snapshot changed rows of, or with `only_added` added rows to; a
    compaction changes none."""
    if snapshot.commit_kind == "COMPACT":
        return set()
    manifests = ManifestCache(table.paimon)
    entries = manifests.listed_entries([snapshot.delta_manifest_list])
    partitions, _ = partition_values(table.paimon, undeleted(entries) if only_added else entries)
    found = set(partitions)
    return found if only_added else found | _newly_marked_partitions(table, manifests, snapshot)


def _newly_marked_partitions(
    table: Table, manifests: ManifestCache, snapshot: Any
) -> set[tuple[Any, ...]]:
    """The partitions in which a snapshot changed deletion vectors."""
    if not table.schema.deletion_vectors_enabled:
        return set()
    before = manifests.deletions(_snapshot(table, snapshot.id - 1).index_manifest)
    after = manifests.deletions(snapshot.index_manifest)
    changed = {
        partition
        for partition, bucket, name in before.keys() | after.keys()
        if before.get((partition, bucket, name)) != after.get((partition, bucket, name))
    }
    encoded = pa.table({"partition": pa.array(sorted(changed), pa.large_binary())})
    partitions, _ = partition_values(table.paimon, encoded)
    return set(partitions)


def _newer_rows(table: Table, snapshot: Any, values: tuple[Any, ...]) -> CommitConflictError:
    return CommitConflictError(
        f"Since this overwrite was planned, {described(snapshot)} added rows to "
        f"{_place(table, values)}. Replacing them would lose them.",
        hint="Nothing was written. Run the statement again: it then sees those rows.",
    )


def _changed_rows(table: Table, snapshot: Any, values: tuple[Any, ...]) -> OutdatedPlanError:
    return OutdatedPlanError(
        f"Since this statement was planned, {described(snapshot)} changed rows of "
        f"{_place(table, values)}. Writing the rows as they were would undo that.",
        hint="Nothing was written. Run the statement again: it then sees those rows.",
    )


def _place(table: Table, values: tuple[Any, ...]) -> str:
    keys = table.schema.partition_keys
    where = ", ".join(f"{key} = {value}" for key, value in zip(keys, values, strict=True))
    return f"the partition {where} of `{table.name}`" if where else f"`{table.name}`"
