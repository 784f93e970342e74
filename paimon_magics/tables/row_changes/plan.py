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
from paimon_magics.planning.reads.splits import StoredFile
from paimon_magics.planning.reads.views import RowView, ViewKind
from paimon_magics.settings import Settings
from paimon_magics.tables.compaction.append_messages import (
    meta_of_row_file,
    name_columns,
    put_marks,
)
from paimon_magics.tables.compaction.append_plan import row_files, stored_files_of
from paimon_magics.tables.compaction.append_units import AppendUnit
from paimon_magics.tables.compaction.planning import folder_of
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.manifests.names import COMPACTED
from paimon_magics.tables.manifests.partitions import partition_values
from paimon_magics.tables.reading.table_files import files_reader
from paimon_magics.tables.row_changes.rewriting import ChangedFile, FileChanges
from paimon_magics.tables.row_changes.selected_rows import PlacedFiles
from paimon_magics.tables.schema.history import TableSchemas
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.splits.pruning_steps import FilePruning, PruningStep
from paimon_magics.tables.splits.table_scan import files_seen
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.commit_messages import read_messages, stored_metas
from paimon_magics.tables.writing.deletion_vector_files import Bucket
from paimon_magics.tables.writing.float_bounds import mend_messages
from paimon_magics.tables.writing.key_value_files import KeyValueFiles
from paimon_magics.tables.writing.own_writers import AppendTable
from paimon_magics.tables.writing.sequence_numbers import number_files, number_rows
from paimon_magics.tables.writing.table_write import write_spec
from paimon_magics.tables.writing.write_spec import WriteSpec

_OPEN_PARTITIONS_MAX = 16  # an open file holds a row group


@dataclass(frozen=True)
class RowChange:
    """A change of rows of `snapshot`, pypaimon's. The files in `units` can have selected rows,
    which meet all `predicates`. By these, files were left out in `pruning_steps`."""

    table: Table
    snapshot: Any
    units: tuple[AppendUnit, ...]
    predicates: tuple[ColumnPredicate, ...]
    pruning_steps: tuple[PruningStep, ...]

    def read_set(self, results: Sequence[ChangedFile], rows: RowSearch | None = None) -> ReadSet:
        """The read set that the commit of the results is checked against; `rows` are the searched
        rows, if they differ from the rows that meet `predicates`."""
        names = [
            file.path.rpartition("/")[2]
            for result in results
            for file in self.units[result.number].files
        ]
        list_name = str(self.snapshot.delta_manifest_list)
        rows = rows or RowSearch(self.predicates)
        return read_files(self.snapshot.id, names, rows, manifest_list=list_name)


@dataclass(frozen=True)
class AppendChange(RowChange):
    """A change of whole `files`, the entries (MANIFEST_ENTRIES) of the units. With `marks` rows are
    deleted by deletion vectors."""

    files: pa.Table
    marks: bool

    def changes(
        self,
        transaction: Transaction,
        assigned: Collection[str] | None,
        *,
        slots: int,
        settings: Settings,
    ) -> FileChanges:
        """The callable that changes the files for the transaction; `assigned` are the columns that
        get new values, None for a DELETE."""
        schema = self.table.schema
        tracks_rows = schema.row_tracking_enabled
        reader = files_reader(self.table, self.files, with_row_ids=tracks_rows)
        exact = arrow_schema(schema)
        columns = None
        if assigned is not None:
            fields = [field for field in exact if self.marks or field.name in assigned]
            columns = pa.schema(fields).serialize().to_pybytes()
        moves = self.moves_rows(assigned)
        if tracks_rows:
            output: Any = row_files(self.table, transaction, keeps_numbers=False)
            if moves:
                output = _by_partition(self.table, transaction, output.files)
        else:
            output = write_spec(
                self.table, transaction, overwrite=False, slots=slots, settings=settings,
                gives_buckets=not moves,
            )  # fmt: skip
            if not moves:
                output = replace(output, bucket_rule=None)
        has_buckets = schema.bucket_mode != "BUCKET_UNAWARE" and not moves
        placed = replace(reader, first_place=0)
        return FileChanges(self.units, placed, output, columns, self.marks, has_buckets)

    def moves_rows(self, assigned: Collection[str] | None) -> bool:
        """Whether rows may go to another partition or bucket."""
        schema = self.table.schema
        homes = {*schema.partition_keys}
        if schema.bucket_mode != "BUCKET_UNAWARE":
            homes |= set(schema.bucket_keys)
        return not homes.isdisjoint(assigned or ())

    def placed_files(self) -> PlacedFiles:
        """The rows of the files, with ids where they have some."""
        with_row_ids = self.table.schema.row_tracking_enabled
        reader = files_reader(self.table, self.files, with_row_ids=with_row_ids)
        return PlacedFiles(reader, self.units)

    def file_counts(self, results: Sequence[ChangedFile]) -> tuple[int | None, int | None]:
        """How many files were rewritten, and how many vectors: one of both is None."""
        return (None, len(results)) if self.marks else (len(results), None)

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
        results = sorted(results, key=lambda result: result.number)
        touched = self.files.take(pa.array([result.number for result in results], pa.int64()))
        partitions, of_files = partition_values(table.paimon, touched)
        metas = stored_metas(table.paimon, touched)
        totals: list[int | None] = [None] * len(metas)
        if table.schema.bucket_mode != "BUCKET_UNAWARE":
            totals = [max(total, 0) or None for total in touched["total_buckets"].to_pylist()]
        by_bucket: dict[Bucket, CommitMessage] = {}
        marked: dict[Bucket, dict[str, Any]] = {}

        def message_of(bucket: Bucket, total: int | None) -> CommitMessage:
            return by_bucket.setdefault(bucket, CommitMessage(*bucket, [], total_buckets=total))

        moves = self.moves_rows(assigned)
        for result, at, meta, total in zip(results, of_files, metas, totals, strict=True):
            home = partitions[int(at)], self.units[result.number].bucket
            if self.marks:
                places = numbers_at(result.places or b"", 0)[0]
                marked.setdefault(home, {})[meta.file_name] = places
                message_of(home, total)
            else:
                message_of(home, total).deleted_files.append(meta)
            new = self._new_files(result, home)
            self._check(result, sum(file.row_count for _, files in new for file in files))
            for bucket, files in new:
                if not moves and not self.marks:
                    self._number(files, meta)
                message_of(bucket, total).new_files += files
        messages = list(by_bucket.values())
        numbered = [*(messages if moves or self.marks else ()), *added]
        number_rows(table, numbered, int(self.snapshot.id))
        if marked:
            put_marks(table, self.snapshot, transaction, messages, marked)
        return [*messages, *added]

    def _new_files(self, result: ChangedFile, home: Bucket) -> list[tuple[Bucket, list[Any]]]:
        """The metadata of the files that a task wrote, by partition and bucket."""
        table = self.table
        if result.written is None:
            new = [(home, [meta_of_row_file(table, file) for file in result.files])]
        else:
            messages = list(read_messages(table.paimon, result.written.messages))
            mend_messages(table, messages, result.written.odd_floats)
            new = [
                ((tuple(message.partition), message.bucket), message.new_files)
                for message in messages
            ]
        if table.schema.row_tracking_enabled:
            for _, files in new:
                name_columns(table, files)
                for file in files:  # numbers of 0 become the snapshot's when it is committed
                    file.min_sequence_number = file.max_sequence_number = 0
                    file.file_source = COMPACTED
        return new

    def _number(self, files: Sequence[Any], before: Any) -> None:
        """Give the rows of files that replace the file `before` its numbers."""
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
                f"`{self.table.name}`, but {expected:,} were expected. Nothing was committed.",
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
    files, steps = matching_files(table, snapshot, predicates, manifests)
    order = np.lexsort((
        np.asarray(files["min_sequence_number"]),
        np.asarray(files["bucket"]),
        np.asarray(files["partition"].combine_chunks().dictionary_encode().indices),
    ))  # fmt: skip
    files = files.take(pa.array(order)).combine_chunks()
    stored = stored_files_of(table, files, manifests.deletions(snapshot.index_manifest))
    units = file_units(table, files, stored, with_folders=table.schema.row_tracking_enabled)
    marks = table.schema.deletion_vectors_enabled
    return AppendChange(table, snapshot, units, tuple(predicates), steps, files, marks)


def _by_partition(table: Table, transaction: Transaction, files: KeyValueFiles) -> WriteSpec:
    """How rows with ids are written into the partitions that their values name. They keep their
    ids. Source: `UpdatePaimonTableCommand` with `PaimonSparkWriter.withRowTracking`."""
    return WriteSpec(
        table=AppendTable.of(
            table, transaction.file_prefix, files, open_files_max=_OPEN_PARTITIONS_MAX
        ),
        commit_user=transaction.commit_user,
        schema=files.stored_schema().serialize().to_pybytes(),
        partition_keys=table.schema.partition_keys,
        bucket_rule=None,
        overwrite=False,
        attempts_folder=transaction.attempts_folder,
    )


def matching_files(
    table: Table, snapshot: Any, predicates: Sequence[ColumnPredicate], manifests: ManifestCache
) -> tuple[pa.Table, tuple[PruningStep, ...]]:
    """The entries of files of a snapshot that can have rows that meet `predicates`, and how the
    others were left out."""
    columns = TableSchemas(table.paimon).columns
    pruning = FilePruning(columns, table.schema, RowView(ViewKind.TABLE, False), predicates)
    files = files_seen(pruning, manifests, snapshot).combine_chunks()
    return files, tuple(pruning.steps)


def file_units(
    table: Table, files: pa.Table, stored: Sequence[StoredFile], *, with_folders: bool
) -> tuple[AppendUnit, ...]:
    """A unit for each file, with the folder of its bucket where that is asked for."""
    return tuple(
        AppendUnit(
            number,
            bucket,
            (file,),
            folder_of(table, files.slice(number, 1)) if with_folders else "",
            file.level,
        )
        for number, (file, bucket) in enumerate(
            zip(stored, files["bucket"].to_pylist(), strict=True)
        )
    )
