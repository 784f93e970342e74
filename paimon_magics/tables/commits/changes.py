"""Plans the changes of a commit request: the files that it adds and removes on a given snapshot.

An append makes the same changes on every snapshot. An overwrite removes all files of the partitions
that it replaces, so it is planned again for each snapshot that it is tried on; only the manifests
that are newer than the last try are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pypaimon.common.predicate_builder import PredicateBuilder
from pypaimon.index.index_file_handler import IndexFileHandler
from pypaimon.manifest.index_manifest_entry import IndexManifestEntry
from pypaimon.manifest.index_manifest_file import IndexManifestFile
from pypaimon.manifest.manifest_list_manager import ManifestListManager
from pypaimon.manifest.schema.manifest_entry import ManifestEntry
from pypaimon.schema.data_types import PyarrowFieldParser
from pypaimon.table.row.generic_row import GenericRow
from pypaimon.table.row.offset_row import OffsetRow
from pypaimon.write.commit.overwrite_changes_provider import OverwriteChangesProvider
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.errors import InvalidValueError, TableDamagedError
from paimon_magics.planning.commits.requests import (
    Analyze,
    Append,
    Change,
    Compact,
    CompactManifests,
    MergeFrom,
    OverwritePartitions,
    OverwriteTouched,
)
from paimon_magics.tables.commits.branch_merging import plan_branch_merge
from paimon_magics.tables.commits.message_checks import check_compaction, check_rows
from paimon_magics.tables.manifests.names import ADD, DELETE
from paimon_magics.tables.table import Table


@dataclass(frozen=True, slots=True)
class Changes:
    """What one snapshot changes. `kind` is Paimon's commit kind.

    With `is_checked` the files that it removes, and the indexes that it replaces, must still be in
    the table. With `may_roll_back` a compaction that removed them may be rolled back. Without
    `makes_snapshot` there is nothing to commit.
    """

    kind: str
    entries: Sequence[ManifestEntry]
    changelog: Sequence[ManifestEntry]
    index_deletes: Sequence[IndexManifestEntry]
    index_adds: Sequence[IndexManifestEntry]
    is_checked: bool
    makes_snapshot: bool
    may_roll_back: bool = False

    @property
    def index_entries(self) -> list[IndexManifestEntry]:
        """All changes of the index manifest."""
        return [*self.index_deletes, *self.index_adds]


PlanChanges = Callable[[Any], Changes]
"""Returns the changes on top of pypaimon's snapshot, which is None for a table without any."""


def plan_changes(table: Table, change: Change, messages: Sequence[CommitMessage]) -> PlanChanges:
    """Return a function that plans `change` with the files of `messages` on any snapshot.

    Raises UnsupportedStatementError for kinds of files that are not committed here,
    TableDamagedError if an overwrite has files in partitions that it does not replace.
    """
    if isinstance(change, Compact):
        return _compact(table, messages)
    if isinstance(change, CompactManifests):
        return _compact_manifests(messages)
    if isinstance(change, MergeFrom):
        return _merge_from(table, change, messages)
    if isinstance(change, Analyze):
        return _analyze(messages)
    check_rows(table, messages)
    match change:
        case Append(makes_snapshot=makes_snapshot):
            changes = _append(table, messages)
            changes = replace(changes, makes_snapshot=changes.makes_snapshot or makes_snapshot)
            return lambda _: changes
        case OverwriteTouched() if table.schema.partition_keys:
            touched = {tuple(message.partition) for message in messages}
            keys = table.schema.partition_keys
            specs = [dict(zip(keys, values, strict=True)) for values in touched]
            return _overwrite(table, messages, specs, is_whole=False)
        case OverwriteTouched():
            return _overwrite(table, messages, [], is_whole=True)
        case OverwritePartitions():
            specs = [typed_partition(table, spec) for spec in change.specs]
            return _overwrite(table, messages, specs, is_whole=not specs or not all(specs))


def typed_partition(table: Table, spec: Iterable[tuple[str, str | None]]) -> dict[str, Any]:
    """Convert the texts of partition values to the Python values that pypaimon compares.

    Raises InvalidValueError for a column that is no partition column, or a text that is no value of
    its type.
    """
    schema = PyarrowFieldParser.from_paimon_schema(table.paimon.table_schema.fields)
    typed: dict[str, Any] = {}
    for name, text in spec:
        if name not in table.schema.partition_keys:
            raise InvalidValueError(f"`{name}` is not a partition column of `{table.name}`.")
        try:
            value = None if text is None else pa.scalar(text).cast(schema.field(name).type).as_py()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError) as error:
            raise InvalidValueError(
                f"The partition column `{name}` of `{table.name}` can't be {text!r}: {error}"
            ) from error
        typed[name] = value
    return typed


def _append(table: Table, messages: Sequence[CommitMessage]) -> Changes:
    entries = _entries(table, messages, "new_files", ADD)
    entries += _entries(table, messages, "deleted_files", DELETE)
    index_adds, index_deletes = _all(messages, "index_adds"), _all(messages, "index_deletes")
    index_types = {entry.index_file.index_type for entry in index_adds + index_deletes}
    # As `ConflictDetection.shouldBeOverwriteCommit`: rows of earlier files go.
    removes = (
        any(entry.kind == DELETE for entry in entries)
        or IndexManifestFile.DELETION_VECTORS_INDEX in index_types
    )
    is_based = any(message.check_from_snapshot is not None for message in messages)
    return Changes(
        kind="OVERWRITE" if removes else "APPEND",
        entries=entries,
        changelog=_entries(table, messages, "changelog_files", ADD),
        index_deletes=index_deletes,
        index_adds=index_adds,
        is_checked=removes
        or is_based
        or bool(index_types)
        or any(message.total_buckets is not None for message in messages),
        makes_snapshot=bool(entries or index_adds or index_deletes)
        or not table.paimon.options.snapshot_ignore_empty_commit(),
        may_roll_back=removes or is_based,
    )


def _compact(table: Table, messages: Sequence[CommitMessage]) -> PlanChanges:
    """The changes of a compaction: `ManifestEntryChanges.collect`.

    Deletions come before additions. Expiry of snapshots (`FileDeletionBase`) reads them in this
    order: otherwise it would remove a file that moved to another level.
    """
    check_compaction(table, messages)
    entries = _entries(table, messages, "compact_before", DELETE)
    entries += _entries(table, messages, "compact_after", ADD)
    changelog = _entries(table, messages, "compact_changelog_files", ADD)
    index_deletes = _all(messages, "compact_index_deletes")
    index_adds = _all(messages, "compact_index_adds")
    changes = Changes(
        kind="COMPACT",
        entries=entries,
        changelog=changelog,
        index_deletes=index_deletes,
        index_adds=index_adds,
        is_checked=True,
        makes_snapshot=bool(entries or changelog or index_deletes or index_adds),
    )
    return lambda _: changes


def _analyze(messages: Sequence[CommitMessage]) -> PlanChanges:
    if messages:
        raise InvalidValueError("A commit of statistics has no messages.")
    unchanged = Changes("ANALYZE", (), (), (), (), is_checked=False, makes_snapshot=True)
    return lambda _: unchanged


def _compact_manifests(messages: Sequence[CommitMessage]) -> PlanChanges:
    """No changes of files: `FileStoreCommitImpl.compactManifestOnce`."""
    if messages:
        raise InvalidValueError("A change `compact-manifests` takes no messages.")

    def plan(latest: Any) -> Changes:
        exists = latest is not None
        return Changes("COMPACT", (), (), (), (), is_checked=False, makes_snapshot=exists)

    return plan


def _merge_from(table: Table, change: MergeFrom, messages: Sequence[CommitMessage]) -> PlanChanges:
    """The files that only the other branch has: they are compared with those of the snapshot that
    the commit comes after, so that there is no conflict."""
    if messages:
        raise InvalidValueError("A change `merge-from` takes no messages.")

    def plan(latest: Any) -> Changes:
        merge = plan_branch_merge(table, change.branch, latest)
        entries = _entries(table, merge.messages, "new_files", ADD)
        return Changes(
            "APPEND", entries, (), (), (), is_checked=False, makes_snapshot=bool(entries)
        )

    return plan


def _overwrite(
    table: Table,
    messages: Sequence[CommitMessage],
    specs: Sequence[Mapping[str, Any]],
    *,
    is_whole: bool,
) -> PlanChanges:
    paimon = table.paimon
    if not is_whole and not specs:  # it replaces partitions that receive rows, and none does
        nothing = Changes("OVERWRITE", (), (), (), (), is_checked=False, makes_snapshot=False)
        return lambda _: nothing
    replaced = None if is_whole else partition_filter(table, specs)
    for message in messages:
        row = OffsetRow(message.partition, 0, len(message.partition))
        if replaced is not None and not replaced.test(row):
            if table.schema.is_cross_partition_update:
                raise InvalidValueError(
                    f"A row has a key that already exists in the partition {message.partition} of "
                    f"`{table.name}`. The statement does not overwrite this partition. Nothing was "
                    "committed.",
                    hint="Use INSERT INTO, which moves a key to another partition, or overwrite "
                    "both partitions.",
                )
            raise TableDamagedError(
                f"A task wrote the partition {message.partition} of `{table.name}`, but the "
                "statement does not overwrite it. Nothing was committed.",
                hint="Run the statement again, and report this with the table's definition.",
            )
    provider = OverwriteChangesProvider(
        paimon, ManifestListManager(paimon), paimon.snapshot_manager(), replaced, messages
    )
    index_adds, named = _all(messages, "index_adds"), _all(messages, "index_deletes")

    def plan(latest: Any) -> Changes:
        entries = provider.provide(latest)
        index_deletes = _index_deletes(table, latest, replaced, named)
        return Changes(
            kind="OVERWRITE",
            entries=entries,
            changelog=(),
            index_deletes=index_deletes,
            index_adds=index_adds,
            is_checked=True,
            # As in Paimon: overwriting an empty table or partition makes a snapshot, dropping
            # several partitions that are not there does not.
            makes_snapshot=bool(entries or index_adds or index_deletes) or len(specs) <= 1,
        )

    return plan


def _index_deletes(
    table: Table, latest: Any, replaced: Any, named: Sequence[IndexManifestEntry]
) -> Sequence[IndexManifestEntry]:
    """The index entries to delete: those in `named`, and all of the replaced partitions
    (`OverwriteChangesProvider.fullScanIndexManifestEntries`)."""
    if latest is None or not latest.index_manifest:
        return named
    by_name = {entry.index_file.file_name: entry for entry in named}
    for entry in IndexFileHandler(table.paimon).scan(latest):
        if replaced is None or replaced.test(entry.partition):
            by_name[entry.index_file.file_name] = IndexManifestEntry(
                kind=DELETE,
                partition=entry.partition,
                bucket=entry.bucket,
                index_file=entry.index_file,
            )
    return list(by_name.values())


def partition_filter(table: Table, specs: Sequence[Mapping[str, Any]]) -> Any:
    """Return pypaimon's predicate for the partitions that match any of `specs`."""
    builder = PredicateBuilder(table.paimon.partition_keys_fields)
    default = table.schema.option("partition.default-name")
    choices = []
    for spec in specs:
        parts = [
            builder.is_null(key)
            if value is None or (isinstance(value, str) and value == default)
            else builder.equal(key, value)
            for key, value in spec.items()
        ]
        choices.append(builder.and_predicates(parts))
    return builder.or_predicates(choices)


def _all(messages: Sequence[CommitMessage], part: str) -> list[Any]:
    return [entry for message in messages for entry in getattr(message, part)]


def _entries(
    table: Table, messages: Sequence[CommitMessage], part: str, kind: int
) -> list[ManifestEntry]:
    paimon = table.paimon
    return [
        ManifestEntry(
            kind=kind,
            partition=GenericRow(list(message.partition), paimon.partition_keys_fields),
            bucket=message.bucket,
            total_buckets=paimon.total_buckets
            if message.total_buckets is None
            else message.total_buckets,
            file=file,
        )
        for message in messages
        for file in getattr(message, part)
    ]
