"""How rows change in their files: by whole files, or column by column. Those of a table with a
primary key do so where its merge engine takes no deletes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pypaimon.index.index_file_handler import IndexFileHandler
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.columnar.merging import KIND, SEQUENCE
from paimon_magics.columnar.roaring import numbers_at
from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.commits.read_sets import ReadSet, RowSearch
from paimon_magics.planning.commits.requests import Transaction
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.reads.predicates import ColumnPredicate
from paimon_magics.planning.reads.splits import RowRange, StoredFile
from paimon_magics.planning.writes.inserts import level_zero_hidden_by
from paimon_magics.settings import Settings
from paimon_magics.tables.compaction.append_messages import put_marks
from paimon_magics.tables.compaction.append_plan import rows_of_files, stored_files_of
from paimon_magics.tables.compaction.append_units import AppendUnit
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.manifests.names import DELETE
from paimon_magics.tables.reading.evolving_files import anchor_of
from paimon_magics.tables.reading.table_files import files_reader, updated_columns_reader
from paimon_magics.tables.row_changes.plan import (
    AppendChange,
    RowChange,
    file_units,
    matching_files,
    plan_append_change,
)
from paimon_magics.tables.row_changes.rewriting import ChangedFile, ColumnChanges, FileChanges
from paimon_magics.tables.row_changes.selected_rows import PlacedFiles
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.splits.bucket_splits import KeyRanks, sections_of
from paimon_magics.tables.splits.stored_files import by_bucket
from paimon_magics.tables.splits.table_scan import ranges_of
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.columns_files import (
    ColumnsWrite,
    columns_messages,
    columns_write,
    stored_columns,
)
from paimon_magics.tables.writing.commit_messages import meta_of_new_file
from paimon_magics.tables.writing.deletion_vector_files import Bucket
from paimon_magics.tables.writing.key_value_files import level_files


def plan_table_change(
    table: Table,
    snapshot: Any,
    predicates: Sequence[ColumnPredicate],
    manifests: ManifestCache,
) -> TableChange:
    """Plan a change of rows that meet `predicates` (and other conditions) on `snapshot`,
    pypaimon's. Raises UnsupportedStatementError for rows that can't be changed so."""
    if table.schema.is_primary_key_table:
        return plan_keyed_change(table, snapshot, predicates, manifests)
    plan = plan_evolving_change if table.schema.data_evolution_enabled else plan_append_change
    return plan(table, snapshot, predicates, manifests)


# Deletes rows from files of a primary-key table whose merge engine takes no rows of the kind -D.
# Files are rewritten without these rows, or deletion vectors mark them.
#
# A file may be changed so only if its rows need no merge: no other file that is read has their
# keys. A rewritten file keeps its level, and its rows their kinds and sequence numbers. Paimon's
# connector puts the rows on level 0 as new ones; with `first-row` they can't be seen until the
# next compaction. Sources: `DeleteFromPaimonTableCommand`,
# `PaimonRowLevelCommand.findTouchedFiles`, `MergeTreeSplitGenerator`.


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
    # In postponed buckets a compaction takes what a writer would: nothing below the trigger.
    is_postponed = table.schema.bucket_mode == "POSTPONE_MODE"
    options = ", options => 'num-sorted-run.compaction-trigger=2'" if is_postponed else ""
    return UnsupportedStatementError(
        message,
        hint=f"Nothing was written. CALL sys.compact(table => '{table.name}'{options}), then run "
        "the statement again.",
    )


# Which rows of a data-evolution table a statement may change, and the messages of its commit.
#
# Used as `AppendChange` is. Files stay: new values of columns are files of these columns beside
# them, and deleted rows are marked in the vector of the oldest file of their range. So a row keeps
# its id. Sources: `MergeIntoPaimonDataEvolutionTable`, `UpdatePaimonDataEvolutionTableCommand`,
# `PaimonRowLevelCommand.dataEvolutionDeletionTargets`.


_ACTION = "global-index.column-update-action"


@dataclass(frozen=True)
class EvolvingChange(RowChange):
    """A change of the `ranges` of rows that the units have, in the order of their ids."""

    ranges: tuple[RowRange, ...]

    def changes(
        self,
        transaction: Transaction,
        assigned: Collection[str] | None,
        *,
        slots: int,
        settings: Settings,
    ) -> ColumnChanges:
        """The callable that changes the rows for the transaction; `assigned` are the columns that
        get new values, None for a DELETE. Raises UnsupportedStatementError for a column with an
        index that must not change."""
        if not assigned:
            return ColumnChanges(self.units, deletes=assigned is None)
        partitions = {row_range.partition for row_range in self.ranges}
        _check_indexed_columns(self.table, self.snapshot, assigned, partitions)
        columns = pa.schema([f for f in arrow_schema(self.table.schema) if f.name in assigned])
        write = self._write(transaction, assigned)
        return ColumnChanges(
            self.units,
            deletes=False,
            write=write,
            reader=updated_columns_reader(self.table, write.ranges, assigned),
            assigned=columns.serialize().to_pybytes(),
        )

    def _write(self, transaction: Transaction, columns: Collection[str]) -> ColumnsWrite:
        # A file has the deleted rows of its range, too: ids are counted by places.
        ranges = [
            replace(each, files=tuple(replace(file, deletions=None) for file in each.files))
            for each in self.ranges
        ]
        return columns_write(self.table, transaction, columns, ranges)

    def placed_files(self) -> PlacedFiles:
        """The rows of the ranges, with the columns that data files have."""
        columns = stored_columns(self.table.schema)
        reader = updated_columns_reader(self.table, self.ranges, columns)
        return PlacedFiles(reader, self.units, evolves=True)

    def file_counts(self, results: Sequence[ChangedFile]) -> tuple[int | None, int | None]:
        """How many files were rewritten, None if files stay, and how many vectors were."""
        vectors = sum(1 for result in results if result.deleted)
        return None, vectors if self.table.schema.deletion_vectors_enabled else None

    def messages(
        self,
        results: Sequence[ChangedFile],
        transaction: Transaction,
        assigned: Collection[str] | None,
        added: Sequence[CommitMessage] = (),
    ) -> list[CommitMessage]:
        """The commit messages, one for each partition, and after them `added`, those of rows that
        are new. Writes index files.

        Raises TableDamagedError if two tasks wrote the same rows.
        """
        table, snapshot_id = self.table, int(self.snapshot.id)
        results = sorted(results, key=lambda result: result.number)
        messages: list[CommitMessage] = []
        if assigned:
            written = [
                (self.ranges[result.number].first_row_id, file)
                for result in results
                for file in result.files
            ]
            write = self._write(transaction, assigned)
            messages = columns_messages(table, write, written, snapshot_id)
            _drop_outdated_indexes(table, self.snapshot, assigned, messages)
        marked: dict[Bucket, dict[str, Any]] = {}
        for result in results:
            if result.places is not None:
                row_range = self.ranges[result.number]
                anchor = anchor_of(row_range.files).path.rpartition("/")[2]
                marks = marked.setdefault((row_range.partition, 0), {})
                marks[anchor] = numbers_at(result.places, 0)[0]
        known = {tuple(message.partition) for message in messages}
        messages += [
            CommitMessage(partition, bucket, [], check_from_snapshot=snapshot_id)
            for partition, bucket in marked
            if partition not in known
        ]
        if marked:
            put_marks(table, self.snapshot, transaction, messages, marked)
        return [*messages, *added]


TableChange = AppendChange | EvolvingChange
"""A planned change of rows in their files."""


def plan_evolving_change(
    table: Table,
    snapshot: Any,
    predicates: Sequence[ColumnPredicate],
    manifests: ManifestCache,
) -> EvolvingChange:
    """Plan a change of rows that meet `predicates` (and other conditions) on `snapshot`,
    pypaimon's. Raises UnsupportedStatementError for a table with rows that have no ids."""
    files, steps = matching_files(table, snapshot, predicates, manifests)
    if pc.any(pc.is_null(files["first_row_id"])).as_py():
        raise UnsupportedStatementError(
            f"`{table.name}` has files whose rows have no ids. Single columns of them can't be "
            "written.",
            hint="Rewrite the table with INSERT OVERWRITE … SELECT, which gives all rows ids.",
        )
    ranges = ranges_of(table, files, manifests.deletions(snapshot.index_manifest))
    units = tuple(AppendUnit(number, 0, each.files) for number, each in enumerate(ranges))
    return EvolvingChange(table, snapshot, units, tuple(predicates), steps, ranges)


# Global indexes of columns that get new values.
#
# Paimon's engines build them over columns of data-evolution tables. Nothing keeps them up to date,
# so that the index of a changed column finds rows by their old values. The option
# `global-index.column-update-action` decides what happens, as in
# `MergeIntoPaimonDataEvolutionTable.checkUpdateResult`.


def _check_indexed_columns(
    table: Table, snapshot: Any, assigned: Collection[str], partitions: Collection[tuple[Any, ...]]
) -> None:
    """Raise UnsupportedStatementError if an `assigned` column has an index at a snapshot in one of
    the partitions, and the table option forbids the change (the default)."""
    if _action(table) != "THROW_ERROR":
        return
    columns = {
        name
        for entry in _indexes(table, snapshot, assigned, partitions)
        for name in _names(table, entry) & set(assigned)
    }
    if columns:
        name = min(columns)
        raise UnsupportedStatementError(
            f"`{name}` of `{table.name}` has a global index, which would keep finding rows by "
            "their old values.",
            hint=f"Let the statement drop the index: ALTER TABLE {table.name} SET TBLPROPERTIES "
            f"('{_ACTION}' = 'DROP_PARTITION_INDEX'), and rebuild it afterwards. With 'IGNORE' the "
            "index stays, and is outdated for changed rows.",
        )


def _drop_outdated_indexes(
    table: Table, snapshot: Any, assigned: Collection[str], messages: list[CommitMessage]
) -> None:
    """Let messages remove the indexes of `assigned` columns in the partitions whose files they add
    to, where the table's option says so."""
    if _action(table) != "DROP_PARTITION_INDEX":
        return
    changed = {tuple(message.partition): message for message in messages if message.new_files}
    for entry in _indexes(table, snapshot, assigned, changed):
        message = changed[tuple(entry.partition.values)]
        message.index_deletes.append(replace(entry, kind=DELETE))


def _action(table: Table) -> str:
    return (table.schema.option(_ACTION) or "THROW_ERROR").upper()


def _indexes(
    table: Table, snapshot: Any, columns: Collection[str], partitions: Collection[tuple[Any, ...]]
) -> list[Any]:
    """The index entries over some of the columns in some of the partitions."""
    return [
        entry
        for entry in IndexFileHandler(table.paimon).scan(snapshot)
        if entry.index_file.global_index_meta is not None
        and tuple(entry.partition.values) in partitions
        and not _names(table, entry).isdisjoint(columns)
    ]


def _names(table: Table, entry: Any) -> set[str]:
    """The columns that an index entry is about, by their names of today."""
    meta = entry.index_file.global_index_meta
    ids = {meta.index_field_id, *(meta.extra_field_ids or ())}
    return {column.name for column in table.schema.columns if column.id in ids}
