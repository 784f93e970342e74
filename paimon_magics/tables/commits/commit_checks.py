"""Checks of a commit against the latest snapshot: removed files still exist, replaced rows are
unchanged since planning, and keys are in one bucket."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pypaimon.manifest.manifest_list_manager import ManifestListManager
from pypaimon.manifest.schema.file_entry import FileEntry
from pypaimon.write.commit.commit_rollback import CommitRollback
from pypaimon.write.commit.commit_scanner import CommitScanner
from pypaimon.write.commit.conflict_detection import ConflictDetection
from pypaimon.write.commit.fixed_bucket_commit_check import FixedBucketCommitCheck
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.errors import CommitConflictError, OutdatedPlanError, PaimonMagicsError
from paimon_magics.planning.commits.requests import (
    Analyze,
    Append,
    CommitRequest,
    Compact,
    CompactManifests,
    MergeFrom,
    OverwritePartitions,
    OverwriteTouched,
    Transaction,
)
from paimon_magics.tables.commits.changes import Changes, typed_partition
from paimon_magics.tables.commits.dynamic_keys import has_moved_keys, hash_entries
from paimon_magics.tables.manifests.hash_indexes import HashIndexes
from paimon_magics.tables.manifests.live_files import ManifestCache, undeleted
from paimon_magics.tables.manifests.partitions import partition_text, partition_values
from paimon_magics.tables.pypaimon_internals import check_row_ids_since
from paimon_magics.tables.snapshots.latest import (
    has_state,
    read_snapshot,
    required_snapshot,
    state_of,
)
from paimon_magics.tables.snapshots.provenance import described, noted
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.bucket_counts import newer_bucket_counts
from paimon_magics.tables.writing.dynamic_buckets import IndexFile, hash_index_in

_KEYS = "the keys that were added since are"  # unknown without an expired snapshot

Check = Callable[[Any], None]
"""Checks the latest snapshot (None for none), on which a commit will be published."""


def overwrite_check(
    table: Table, request: CommitRequest, messages: Sequence[CommitMessage]
) -> Check | None:
    """Return a check of the snapshots since an overwrite was planned; it reads each snapshot once.
    None if there is nothing to check.

    The check raises CommitConflictError, which names the other commit, or OutdatedPlanError if the
    overwrite can be planned again.
    """
    only_unchanged = False
    match request.change:
        case Append() | Compact() | CompactManifests() | MergeFrom() | Analyze():
            return None
        case OverwriteTouched(swallow_newer=True) | OverwritePartitions(swallow_newer=True):
            return None
        case OverwriteTouched(only_unchanged=True):
            only_unchanged = True
    touched = _replaced_partitions(table, request, messages)
    error = OutdatedPlanError if only_unchanged else CommitConflictError
    newer = _NewerSnapshots(table, request.transaction, "what it added is", error)

    def check(latest: Any) -> None:
        for snapshot in newer.up_to(latest):
            changed = _changed_partitions(table, snapshot, only_added=not only_unchanged)
            for values in filter(touched, changed):
                if only_unchanged:
                    raise _changed_rows(table, snapshot, values)
                raise _newer_rows(table, snapshot, values)

    return check


class _NewerSnapshots:
    """The snapshots since a transaction's base that a check has not met yet.

    The ids alone don't say which these are: when a table is rolled back, the next snapshots take
    the ids of those that are gone. So the last snapshot that was met has to be in the table still.
    If it is not, or if a snapshot has expired, `error` is raised; `unknown` names the fact that
    can't be known without it.
    """

    def __init__(
        self, table: Table, transaction: Transaction, unknown: str, error: type[CommitConflictError]
    ) -> None:
        self._table, self._unknown, self._error = table, unknown, error
        self._met = transaction.base

    def up_to(self, latest: Any) -> Iterator[Any]:
        """Yield them up to the latest snapshot (None for none), the oldest first."""
        self.check(latest)
        latest_id = 0 if latest is None else latest.id
        for newer in range(self._met[0] + 1, latest_id + 1):
            is_last = newer == latest_id
            snapshot = latest if is_last else self.required(newer)
            yield snapshot
            if snapshot.commit_kind != "COMPACT":  # one that conflicts may be rolled back
                self._met = state_of(snapshot)

    def check(self, latest: Any) -> None:
        """Raise `error` if the last snapshot that was met is gone."""
        is_there = has_state(self._table, self._met, latest)
        if is_there is None:
            self.required(self._met[0])
        if not is_there:
            raise self._error(
                f"Since this statement was planned, `{self._table.name}` was rolled back to before "
                f"snapshot {self._met[0]}.",
                hint="Nothing was written. Run the statement again.",
            )

    def required(self, snapshot_id: int) -> Any:
        """The snapshot with an id."""
        return required_snapshot(self._table, snapshot_id, self._unknown, self._error)


def _replaced_partitions(
    table: Table, request: CommitRequest, messages: Sequence[CommitMessage]
) -> Callable[[tuple[Any, ...]], bool]:
    """Return a function that tests whether the request replaces the partition with these values."""
    if not isinstance(request.change, OverwritePartitions):
        touched = {tuple(message.partition) for message in messages}
        return lambda values: values in touched
    keys = table.schema.partition_keys
    wanted = [typed_partition(table, spec).items() for spec in request.change.specs]
    return lambda values: (
        not wanted or any(spec <= dict(zip(keys, values, strict=True)).items() for spec in wanted)
    )


def _changed_partitions(table: Table, snapshot: Any, *, only_added: bool) -> set[tuple[Any, ...]]:
    """The partitions that a snapshot changed rows of, or with `only_added` added rows to; a
    compaction changes none."""
    if snapshot.commit_kind == "COMPACT":
        return set()
    manifests = ManifestCache(table.paimon)
    entries = manifests.listed_entries([snapshot.delta_manifest_list])
    partitions, _ = partition_values(table.paimon, undeleted(entries) if only_added else entries)
    marked = set() if only_added else _newly_marked_partitions(table, manifests, snapshot)
    return set(partitions) | marked


def _newly_marked_partitions(
    table: Table, manifests: ManifestCache, snapshot: Any
) -> set[tuple[Any, ...]]:
    """The partitions in which a snapshot changed deletion vectors."""
    if not table.schema.deletion_vectors_enabled:
        return set()
    base = required_snapshot(table, snapshot.id - 1, "what it added is", CommitConflictError)
    before = manifests.deletions(base.index_manifest)
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
        f"{_place(table, values)}. Writing the rows back as they were would undo that change.",
        hint="Nothing was written. Run the statement again: it then sees those rows.",
    )


def _place(table: Table, values: tuple[Any, ...]) -> str:
    where = partition_text(table.schema.partition_keys, values)
    return f"the partition {where} of `{table.name}`" if where else f"`{table.name}`"


# Checks that the files which a commit removes or replaces are still in the table, by pypaimon's
# conflict detection.
#
# The files of the changed partitions are read once; later attempts read only newer changes.


class FileConflicts:
    """Checks the attempts of one commit."""

    def __init__(self, table: Table, messages: Sequence[CommitMessage]) -> None:
        paimon = table.paimon
        lists = ManifestListManager(paimon)
        self._scanner = CommitScanner(paimon, lists)
        self._detection = ConflictDetection(
            data_evolution_enabled=paimon.options.data_evolution_enabled(),
            snapshot_manager=paimon.snapshot_manager(),
            manifest_list_manager=lists,
            table=paimon,
            commit_scanner=self._scanner,
        )
        began_on = [m.check_from_snapshot for m in messages if m.check_from_snapshot is not None]
        check_row_ids_since(self._detection, min(began_on, default=None))
        if any(message.total_buckets is not None for message in messages if message.new_files):
            self._detection.fixed_bucket_commit_check = FixedBucketCommitCheck(messages)
        rollback = paimon.catalog_environment.catalog_table_rollback()
        self._rollback = CommitRollback(rollback) if rollback is not None else None
        self._read: tuple[Any, list[Any]] | None = None

    def find(self, latest: Any, changes: Changes) -> Exception | None:
        """The conflict of the changes with the latest snapshot, None if there is none."""
        if not changes.is_checked:
            return None
        conflict: Exception | None = self._detection.check_conflicts(
            latest,
            self._files(latest, changes),
            changes.entries,
            changes.kind,
            changes.index_entries,
        )
        return conflict

    def roll_back(self, latest: Any, changes: Changes) -> bool:
        """Roll back a conflicting compaction if the catalog supports that and Paimon would do it.
        Return whether it was rolled back, so that the commit can be tried again."""
        if self._rollback is None or not changes.may_roll_back:
            return False
        self._read = None
        return bool(self._rollback.try_to_rollback(latest))

    def _files(self, latest: Any, changes: Changes) -> list[Any]:
        """The files of the changed partitions in the latest snapshot."""
        if latest is None:
            return []
        entries, index_entries = changes.entries, changes.index_entries
        files = None
        if self._read is not None:
            before, known = self._read
            newer = self._scanner.read_incremental_changes(before, latest, entries, index_entries)
            if newer is not None:
                files = FileEntry.merge_entries([*known, *newer]) if newer else known
        if files is None:
            files = self._scanner.read_all_entries_from_changed_partitions(
                latest, entries, index_entries
            )
        self._read = latest, files
        return files


# Checks a commit that adds rows to a table with fixed or dynamic buckets: since the statement was
# planned, no other commit may have added the same keys, or changed the number of buckets.
#
# Paimon leaves this to the user ("a single write job"): two writers that put one new key into two
# buckets, or into two partitions, both succeed, and the table has the key twice.
#
# Keys that are moved to another bucket are the one thing that takes a hash out of an index: rows of
# statements that were planned before may have gone to the old bucket, and such a move would leave
# rows behind that came to the old bucket since it was planned. Both are refused.


def bucket_check(
    table: Table, request: CommitRequest, messages: Sequence[CommitMessage]
) -> Check | None:
    """Return a check of the keys that others added since the statement was planned. None if
    there is nothing to check: for an overwrite, which `overwrite_check` checks.

    The check raises OutdatedPlanError that names the conflicting commit.
    """
    transaction = request.transaction
    base_id = transaction.base_snapshot_id
    mode = table.schema.bucket_mode
    if isinstance(request.change, Compact) and request.change.moves_keys:
        return _untouched(table, transaction, messages)
    if isinstance(request.change, Append) and mode == "HASH_FIXED":
        return newer_bucket_counts(table, messages, transaction.base)
    if not isinstance(request.change, Append) or mode not in ("HASH_DYNAMIC", "KEY_DYNAMIC"):
        return None
    touched = {tuple(message.partition) for message in messages}
    added = [entry for message in messages for entry in message.index_adds]
    indexes = HashIndexes()

    def check(latest: Any) -> None:
        _NewerSnapshots(table, transaction, _KEYS, OutdatedPlanError).check(latest)
        latest_id = 0 if latest is None else latest.id
        if latest_id <= base_id:
            return
        base_snapshot = _bucket_snapshot(table, base_id) if base_id else None
        index = _index(table, base_snapshot, touched)
        if mode == "HASH_DYNAMIC" and index == _index(table, latest, touched):
            return
        came = moved = None
        for snapshot_id in range(base_id + 1, latest_id + 1):
            snapshot = latest if snapshot_id == latest_id else _bucket_snapshot(table, snapshot_id)
            before, index = index, _index(table, snapshot, touched)
            if snapshot.commit_kind == "COMPACT":
                moved = snapshot if index != before else moved
                continue
            if mode == "KEY_DYNAMIC" or (index != before and snapshot.commit_kind == "OVERWRITE"):
                raise _keys_came(table, snapshot)
            came = snapshot if index != before else came
        if came is None and moved is None:
            return
        manifest = None if base_snapshot is None else base_snapshot.index_manifest
        base, now = (hash_entries(table, name) for name in (manifest, latest.index_manifest))
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


def _bucket_snapshot(table: Table, snapshot_id: int) -> Any:
    return required_snapshot(table, snapshot_id, _KEYS)


def _untouched(table: Table, transaction: Transaction, messages: Sequence[CommitMessage]) -> Check:
    """A check for a move of keys: no rows of its buckets may have been added or removed since the
    base."""
    moved = {(tuple(message.partition), message.bucket) for message in messages}
    manifests = ManifestCache(table.paimon)
    newer = _NewerSnapshots(table, transaction, _KEYS, OutdatedPlanError)

    def check(latest: Any) -> None:
        for snapshot in newer.up_to(latest):
            if snapshot.commit_kind != "COMPACT":
                changed = manifests.listed_entries([snapshot.delta_manifest_list])
                partitions, of_files = partition_values(table.paimon, changed)
                buckets = zip(of_files, changed["bucket"].to_pylist(), strict=True)
                if any((partitions[at], bucket) in moved for at, bucket in buckets):
                    raise _keys_came(table, snapshot, "wrote")

    return check


def _keys_came(table: Table, snapshot: Any, did: str = "added keys to") -> OutdatedPlanError:
    return OutdatedPlanError(
        f"Since this statement was planned, {described(snapshot)} {did} the partitions "
        f"of `{table.name}` that it writes: a key could be stored twice.",
        hint="Nothing was written. Run the statement again: it then finds these keys. Run only one "
        "statement at a time that writes to a table with dynamic buckets.",
    )


# Who else changed what a refused commit changes: for the error, so that people can talk.

_SEARCHED_MAX = 50  # snapshots; the newest are read
_NAMED_MAX = 3


def other_commits(
    table: Table, base_id: int, messages: Sequence[CommitMessage], latest: Any
) -> str:
    """A sentence about the commits after the snapshot `base_id` that changed buckets of `messages`,
    the newest first: each with its snapshot, kind, author, time and operation. "" if none is there
    any more, or can be read: an error is not held up by another one."""
    touched = {(tuple(message.partition), message.bucket) for message in messages}
    manifests = ManifestCache(table.paimon)
    others: list[str] = []
    if latest is None:
        return ""
    with contextlib.suppress(PaimonMagicsError, OSError, ValueError, LookupError):
        for snapshot_id in range(latest.id, max(base_id, latest.id - _SEARCHED_MAX), -1):
            snapshot = read_snapshot(table.paimon, snapshot_id)
            if snapshot is None:
                break
            if touched & _changed(table, manifests, snapshot):
                operation = noted(snapshot.properties).get("operation", "")
                others.append(described(snapshot) + (f" with {operation}" if operation else ""))
            if len(others) == _NAMED_MAX:
                break
    if not others:
        return ""
    return f"Since snapshot {base_id}, others changed the same buckets: {', '.join(others)}."


def _changed(table: Table, manifests: ManifestCache, snapshot: Any) -> set[Any]:
    """The partitions and buckets that a snapshot changed."""
    entries = manifests.listed_entries([snapshot.delta_manifest_list])
    if not entries.num_rows:
        return set()
    values, of_files = partition_values(table.paimon, entries)
    buckets = entries["bucket"].to_pylist()
    return {(values[at], bucket) for at, bucket in zip(of_files, buckets, strict=True)}
