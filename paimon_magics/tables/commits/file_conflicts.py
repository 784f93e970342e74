"""Checks that the files which a commit removes or replaces are still in the table, by pypaimon's
conflict detection.

The files of the changed partitions are read once; later attempts read only newer changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pypaimon.manifest.manifest_list_manager import ManifestListManager
from pypaimon.manifest.schema.file_entry import FileEntry
from pypaimon.write.commit.commit_rollback import CommitRollback
from pypaimon.write.commit.commit_scanner import CommitScanner
from pypaimon.write.commit.conflict_detection import ConflictDetection
from pypaimon.write.commit.fixed_bucket_commit_check import FixedBucketCommitCheck
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.tables.commits.changes import Changes
from paimon_magics.tables.pypaimon_internals import check_row_ids_since
from paimon_magics.tables.table import Table

__all__ = ["FileConflicts"]


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
        if any(one.total_buckets is not None for one in messages if one.new_files):
            self._detection.fixed_bucket_commit_check = FixedBucketCommitCheck(messages)
        rollback = paimon.catalog_environment.catalog_table_rollback()
        self._rollback = CommitRollback(rollback) if rollback is not None else None
        self._read: tuple[Any, list[Any]] | None = None

    def find(self, latest: Any, changes: Changes) -> Exception | None:
        """The conflict of the changes with the latest snapshot, None if there is none."""
        if not changes.is_checked:
            return None
        found: Exception | None = self._detection.check_conflicts(
            latest,
            self._files(latest, changes),
            changes.entries,
            changes.kind,
            changes.index_entries,
        )
        return found

    def roll_back(self, latest: Any, changes: Changes) -> bool:
        """Roll back a conflicting compaction where the catalog offers that and Paimon would do it.
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
