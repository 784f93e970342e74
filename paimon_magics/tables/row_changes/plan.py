"""Which files of an append table a statement may change, and the messages of its commit.

    plan = plan_append_change(table, snapshot, predicates, manifests)
    changes = plan.changes(transaction, assigned, slots=2, settings=settings)
    results = …  # of `changes`, in tasks that own whole files
    messages = plan.messages(results, transaction)

Sources: `DeleteFromPaimonTableCommand`, `UpdatePaimonTableCommand` of Paimon's connector,
`AppendDeleteFileMaintainer`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.columnar.roaring import numbers_at
from paimon_magics.errors import TableDamagedError
from paimon_magics.planning.commits.read_sets import ReadSet, RowSearch, read_files
from paimon_magics.planning.commits.requests import Transaction
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.reads.predicates import ColumnPredicate
from paimon_magics.planning.reads.views import RowView, ViewKind
from paimon_magics.settings import Settings
from paimon_magics.tables.compaction.append_messages import meta_of_row_file, put_marks
from paimon_magics.tables.compaction.append_plan import row_files, stored_files_of
from paimon_magics.tables.compaction.append_units import AppendUnit
from paimon_magics.tables.compaction.planning import folder_of
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.manifests.partitions import partition_values
from paimon_magics.tables.reading.table_files import whole_rows_reader
from paimon_magics.tables.row_changes.rewriting import ChangedFile, FileChanges, moving_row_files
from paimon_magics.tables.row_changes.selected_rows import PlacedFiles
from paimon_magics.tables.schema.history import TableSchemas
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.splits.file_pruning import FilePruning, PruningStep
from paimon_magics.tables.splits.stored_files import schema_ids, stores_elsewhere
from paimon_magics.tables.splits.table_scan import files_seen
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.commit_messages import read_messages
from paimon_magics.tables.writing.data_file_metas import stored_metas
from paimon_magics.tables.writing.float_bounds import mend_messages
from paimon_magics.tables.writing.sequence_numbers import number_files, number_rows
from paimon_magics.tables.writing.table_write import write_spec


@dataclass(frozen=True)
class AppendChange:
    """The files of `snapshot`, pypaimon's, that can have selected rows: `files` are their entries
    (MANIFEST_ENTRIES), `units` the same as tasks read them. With `marks` rows are deleted by
    deletion vectors. Selected rows meet all `predicates`, by which files were left out in
    `pruning_steps`."""

    table: Table
    snapshot: Any
    files: pa.Table
    units: tuple[AppendUnit, ...]
    marks: bool
    predicates: tuple[ColumnPredicate, ...] = ()
    pruning_steps: tuple[PruningStep, ...] = ()

    def changes(
        self,
        transaction: Transaction,
        assigned: Collection[str] | None,
        *,
        slots: int,
        settings: Settings,
    ) -> FileChanges:
        """What changes the files for the transaction; `assigned` are the columns that get new
        values, None for a DELETE."""
        schema = self.table.schema
        tracks_rows = schema.row_tracking_enabled
        reader = replace(self.reader(with_row_ids=tracks_rows), first_place=0)
        exact = arrow_schema(schema)
        columns = None
        if assigned is not None:
            kept = [one for one in exact if self.marks or one.name in assigned]
            columns = pa.schema(kept).serialize().to_pybytes()
        moves = self.moves_rows(assigned)
        if tracks_rows:
            output: Any = row_files(self.table, transaction, keeps_numbers=False)
            if moves:
                output = moving_row_files(self.table, output)
        else:
            output = write_spec(
                self.table, transaction, overwrite=False, slots=slots, settings=settings,
                gives_buckets=not moves,
            )  # fmt: skip
            if not moves:
                output = replace(output, bucket_rule=None)
        has_buckets = schema.bucket_mode != "BUCKET_UNAWARE" and not moves
        return FileChanges(self.units, reader, output, columns, self.marks, has_buckets)

    def moves_rows(self, assigned: Collection[str] | None) -> bool:
        """Whether rows may go to another partition or bucket."""
        schema = self.table.schema
        homes = {*schema.partition_keys}
        if schema.bucket_mode != "BUCKET_UNAWARE":
            homes |= set(schema.bucket_keys)
        return not homes.isdisjoint(assigned or ())

    def placed_files(self) -> PlacedFiles:
        """The rows of the files, with ids where they have some."""
        reader = self.reader(with_row_ids=self.table.schema.row_tracking_enabled)
        return PlacedFiles(reader, self.units)

    def file_counts(self, results: Sequence[ChangedFile]) -> tuple[int | None, int | None]:
        """How many files were written anew, and how many vectors: one of both is None."""
        return (None, len(results)) if self.marks else (len(results), None)

    def reader(self, *, with_row_ids: bool = False) -> Any:
        """A reader of whole rows of the files."""
        return whole_rows_reader(
            self.table,
            schema_ids(self.files),
            stores_elsewhere(self.files),
            with_row_ids=with_row_ids,
        )

    def read_set(self, results: Sequence[ChangedFile], found: RowSearch | None = None) -> ReadSet:
        """What the commit of the results is checked against; `found` are the rows that were looked
        for, if they are others than those that meet `predicates`."""
        numbers = pa.array([result.number for result in results], pa.int64())
        names = self.files["file_name"].take(numbers).to_pylist()
        list_name = str(self.snapshot.delta_manifest_list)
        found = found or RowSearch(self.predicates)
        return read_files(self.snapshot.id, names, found, manifest_list=list_name)

    def messages(
        self,
        results: Sequence[ChangedFile],
        transaction: Transaction,
        assigned: Collection[str] | None,
        added: Sequence[CommitMessage] = (),
    ) -> list[CommitMessage]:
        """The commit messages, one for each partition and bucket, and after them `added`, those of
        rows that are new. Writes index files.

        Raises TableDamagedError for files that have other rows than they must.
        """
        table = self.table
        results = sorted(results, key=lambda one: one.number)
        touched = self.files.take(pa.array([result.number for result in results], pa.int64()))
        partitions, of_files = partition_values(table.paimon, touched)
        metas = stored_metas(table.paimon, touched)
        totals: list[int | None] = [None] * len(metas)
        if table.schema.bucket_mode != "BUCKET_UNAWARE":
            totals = [one if one > 0 else None for one in touched["total_buckets"].to_pylist()]
        found: dict[tuple[Any, ...], CommitMessage] = {}
        marked: dict[tuple[tuple[Any, ...], int], dict[str, Any]] = {}

        def message_of(partition: tuple[Any, ...], bucket: int, total: int | None) -> CommitMessage:
            key = (*partition, bucket)
            if key not in found:
                found[key] = CommitMessage(partition, bucket, [], total_buckets=total)
            return found[key]

        moves = self.moves_rows(assigned)
        for result, at, meta, total in zip(results, of_files, metas, totals, strict=True):
            unit = self.units[result.number]
            home = partitions[int(at)]
            if self.marks:
                places = numbers_at(result.places or b"", 0)[0]
                marked.setdefault((home, unit.bucket), {})[meta.file_name] = places
                message_of(home, unit.bucket, total)
            else:
                message_of(home, unit.bucket, total).deleted_files.append(meta)
            new = self._new_files(result, home, unit.bucket)
            rows = sum(file.row_count for _, _, files in new for file in files)
            self._check(result, rows)
            for partition, bucket, files in new:
                if not moves and not self.marks:
                    self._number(files, meta)
                message_of(partition, bucket, total).new_files += files
        messages = list(found.values())
        numbered = [*(messages if moves or self.marks else ()), *added]
        number_rows(table, numbered, int(self.snapshot.id))
        if marked:
            put_marks(table, self.snapshot, transaction, messages, marked)
        return [*messages, *added]

    def _new_files(
        self, result: ChangedFile, home: tuple[Any, ...], bucket: int
    ) -> list[tuple[tuple[Any, ...], int, list[Any]]]:
        """The metadata of the files that a task wrote, by partition and bucket."""
        table = self.table
        if result.written is None:
            found = [(home, bucket, [meta_of_row_file(table, file) for file in result.files])]
            for one in result.moved:
                found.append((one.partition, bucket, [meta_of_row_file(table, one.file)]))
        else:
            messages = list(read_messages(table.paimon, result.written.messages))
            mend_messages(table, messages, result.written.odd_floats)
            found = [
                (tuple(message.partition), message.bucket, message.new_files)
                for message in messages
            ]
        if table.schema.row_tracking_enabled:
            for _, _, files in found:
                for file in files:  # numbers of 0 become the snapshot's when it is committed
                    file.min_sequence_number = file.max_sequence_number = 0
        return found

    def _number(self, files: Sequence[Any], before: Any) -> None:
        """Give the rows of files that take the place of the file `before` its numbers."""
        if not self.table.schema.row_tracking_enabled:
            number_files(files, before.min_sequence_number)

    def _check(self, result: ChangedFile, rows: int) -> None:
        """Raise TableDamagedError if a task wrote other rows of a file than it must."""
        (file,) = self.units[result.number].files
        if self.marks:
            expected = result.changed - result.deleted
        elif file.deletions is not None:
            return  # a reader has counted its rows
        else:
            expected = file.rows - result.deleted
        if rows != expected:
            raise TableDamagedError(
                f"A task wrote {count_text(rows, 'row')} of the file {file.path} of "
                f"`{self.table.name}`, and {expected:,} were expected; nothing was committed.",
                hint="Run the statement again, and report this with the table's definition.",
            )


def plan_append_change(
    table: Table,
    snapshot: Any,
    predicates: Sequence[ColumnPredicate],
    manifests: ManifestCache,
) -> AppendChange:
    """Plan a change of rows that meet `predicates` (and other conditions) on `snapshot`,
    pypaimon's."""
    schema = table.schema
    columns = TableSchemas(table.paimon).columns
    pruning = FilePruning(columns, schema, RowView(ViewKind.TABLE, False), predicates)
    files = files_seen(pruning, manifests, snapshot).combine_chunks()
    order = np.lexsort((
        np.asarray(files["min_sequence_number"]),
        np.asarray(files["bucket"]),
        np.asarray(files["partition"].combine_chunks().dictionary_encode().indices),
    ))  # fmt: skip
    files = files.take(pa.array(order)).combine_chunks()
    stored = stored_files_of(table, files, manifests.deletions(snapshot.index_manifest))
    tracks_rows = schema.row_tracking_enabled
    units = tuple(
        AppendUnit(
            number, bucket, (file,), folder_of(table, files.slice(number, 1)) if tracks_rows else ""
        )
        for number, (file, bucket) in enumerate(
            zip(stored, files["bucket"].to_pylist(), strict=True)
        )
    )
    marks = schema.deletion_vectors_enabled
    steps = tuple(pruning.steps)
    return AppendChange(table, snapshot, files, units, marks, tuple(predicates), steps)
