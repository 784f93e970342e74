"""Deletes rows from files of a primary-key table whose merge engine takes no rows of the kind -D.
Files are rewritten without these rows, or deletion vectors mark them.

A file may be changed so only if its rows need no merge: no other file that is read has their keys.
A rewritten file keeps its level, and its rows their kinds and sequence numbers. Paimon's connector
puts the rows on level 0 as new ones; with `first-row` they can't be seen until the next compaction.
Sources: `DeleteFromPaimonTableCommand`, `PaimonRowLevelCommand.findTouchedFiles`,
`MergeTreeSplitGenerator`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.merging import KIND, SEQUENCE
from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.commits.read_sets import ReadSet, RowSearch
from paimon_magics.planning.commits.requests import Transaction
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.reads.predicates import ColumnPredicate
from paimon_magics.planning.reads.splits import StoredFile
from paimon_magics.planning.writes.inserts import level_zero_hidden_by
from paimon_magics.settings import Settings
from paimon_magics.tables.compaction.append_plan import rows_of_files, stored_files_of
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.reading.table_files import files_reader
from paimon_magics.tables.row_changes.plan import AppendChange, file_units, matching_files
from paimon_magics.tables.row_changes.rewriting import ChangedFile, FileChanges
from paimon_magics.tables.splits.bucket_splits import KeyRanks, sections_of
from paimon_magics.tables.splits.stored_files import by_bucket
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.data_file_metas import meta_of_new_file
from paimon_magics.tables.writing.deletion_vector_files import Bucket
from paimon_magics.tables.writing.key_value_files import level_files


@dataclass(frozen=True)
class KeyedChange(AppendChange):
    """As `AppendChange`, of a table with a primary key. Rows are deleted only."""

    def changes(
        self,
        transaction: Transaction,
        assigned: Collection[str] | None,
        *,
        slots: int,
        settings: Settings,
    ) -> FileChanges:
        """The callable that deletes rows of the files for the transaction."""
        assert assigned is None  # an UPDATE writes rows of a kind
        reader = files_reader(self.table, self.files, system=(SEQUENCE, KIND))
        levels = {unit.output_level for unit in self.units}
        output = replace(
            rows_of_files(self.table, transaction, level_files(self.table, 0)),
            by_level={level: level_files(self.table, level) for level in levels},
        )
        placed = replace(reader, first_place=0)
        return FileChanges(self.units, placed, output, None, self.marks, has_buckets=True)

    def read_set(self, results: Sequence[ChangedFile], rows: RowSearch | None = None) -> ReadSet:
        """The read set that the commit is checked against: the files. Rows that others add to these
        keys meanwhile count as added after the delete."""
        read = super().read_set(results, rows)
        # Too many files to list: all files that the conditions allow are checked.
        return read if read.files is None else replace(read, search=None)

    def _new_files(self, result: ChangedFile, home: Bucket) -> list[tuple[Bucket, list[Any]]]:
        metas = [meta_of_new_file(self.table.paimon, file) for file in result.files]
        return [(home, metas)] if metas else []

    def _number(self, files: Sequence[Any], before: Any) -> None:
        """Rows keep their numbers."""


def plan_keyed_change(
    table: Table,
    snapshot: Any,
    predicates: Sequence[ColumnPredicate],
    manifests: ManifestCache,
) -> KeyedChange:
    """Plan to delete rows that meet `predicates` (and other conditions) on `snapshot`, pypaimon's.

    Raises UnsupportedStatementError for files that can have such rows, and that need a compaction
    before: rows of one key are in several of them, or are not seen yet.
    """
    schema = table.schema
    matching, steps = matching_files(table, snapshot, predicates, manifests)
    files, groups = by_bucket(matching)
    stored = stored_files_of(table, files, manifests.deletions(snapshot.index_manifest))
    hidden_by = level_zero_hidden_by(schema)
    waiting = pc.sum(pc.equal(files["level"], 0)).as_py() or 0
    if hidden_by is not None and waiting:
        raise _uncompacted(
            table,
            f"Rows of {count_text(waiting, 'file')} of `{table.name}` appear after the next "
            f"compaction ({hidden_by}). DELETE can't see these rows yet and would leave them in "
            "the table.",
        )
    overlapping = _merged_files(table, files, groups, stored)
    if overlapping:
        raise _uncompacted(
            table,
            f"`{table.name}` has {count_text(overlapping, 'file')} whose rows must be merged by "
            f"key. Its merge engine ({schema.merge_engine}) supports no deletes, so DELETE removes "
            "rows from files. That requires each key in only one file.",
        )
    units = file_units(table, files, stored, with_folders=True)
    marks = schema.deletion_vectors_enabled
    return KeyedChange(table, snapshot, units, tuple(predicates), steps, files, marks)


def _merged_files(
    table: Table, files: pa.Table, groups: Sequence[range], stored: Sequence[StoredFile]
) -> int:
    """The number of files that share keys with others, or have deletes: their rows may not be the
    current ones of their keys."""
    schema = table.schema
    once = schema.deletion_vectors_enabled or schema.engine.keeps_first_row
    ranks = KeyRanks(files, schema)
    count = 0
    for group in groups:
        members = stored[group.start : group.stop]
        levels = {file.level for file in members}
        deletes = any(file.deleted_rows for file in members)
        if 0 not in levels and not deletes and (once or len(levels) == 1):
            continue
        for section in sections_of(members, ranks, group):
            of_section = [file for run in section for file in run]
            if len(of_section) > 1 or of_section[0].deleted_rows:
                count += len(of_section)
    return count


def _uncompacted(table: Table, message: str) -> UnsupportedStatementError:
    return UnsupportedStatementError(
        message,
        hint=f"Nothing was written. CALL sys.compact(table => '{table.name}'), then run the "
        "statement again.",
    )
