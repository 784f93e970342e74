"""Rows written to append tables and compacted, by the functions that statements call."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.columnar.merging import KIND
from paimon_magics.coordinator.client.in_process import InProcessCommitter
from paimon_magics.planning.commits.requests import (
    Append,
    CommitReceipt,
    CommitRequest,
    Compact,
    Transaction,
)
from paimon_magics.planning.compaction.sort_orders import SortOrder
from paimon_magics.planning.reads.views import ViewKind
from paimon_magics.settings import Settings
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.compaction.append_plan import (
    AppendCompaction,
    plan_append_compaction,
    stored_files_of,
)
from paimon_magics.tables.compaction.append_rewriting import RewrittenUnit
from paimon_magics.tables.compaction.planning import CompactionScope
from paimon_magics.tables.manifests.live_files import ManifestCache, live_files
from paimon_magics.tables.reading.data_read import ReadRequest, plan_data_read
from paimon_magics.tables.reading.evolving_files import updated_rows
from paimon_magics.tables.reading.table_files import updated_columns_reader, whole_rows_reader
from paimon_magics.tables.row_changes.selected_rows import FILE_COLUMN, PLACE_COLUMN
from paimon_magics.tables.row_changes.table_changes import plan_evolving_change
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.splits.planning import StoredState
from paimon_magics.tables.splits.stored_files import schema_ids
from paimon_magics.tables.splits.table_scan import row_ranges
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.columns_files import columns_messages, columns_write
from paimon_magics.tables.writing.commit_messages import write_message
from paimon_magics.tables.writing.deletion_vector_files import VectorIndex, vector_index
from paimon_magics.tables.writing.table_write import completed, write_spec
from paimon_magics.tables.writing.writer import write_batches
from tests.tables.manifest_files import TABLE, create

SETTINGS = Settings()
Rows = Sequence[tuple[Any, ...]]


@dataclass
class Lake:
    """A warehouse with the table `t`, read anew for each action."""

    warehouse: Path
    committer: InProcessCommitter

    @classmethod
    def of(cls, warehouse: Path, sql: str) -> Lake:
        create(warehouse, sql)
        return cls.opened(warehouse)

    @classmethod
    def opened(cls, warehouse: Path) -> Lake:
        catalog = Catalog.open({"warehouse": str(warehouse)})
        return cls(warehouse, InProcessCommitter(catalog, SETTINGS))

    @property
    def table(self) -> Table:
        return Catalog.open({"warehouse": str(self.warehouse)}).load(TABLE)

    def alter(self, change: Any) -> None:
        """Change the table's schema by a change of pypaimon's."""
        catalog = Catalog.open({"warehouse": str(self.warehouse)})
        catalog.paimon.alter_table("default.t", [change], False)

    def append(self, *rows: tuple[Any, ...]) -> CommitReceipt:
        transaction, messages = self.written(rows)
        return self.committer.commit(CommitRequest(transaction, Append(), messages))

    def written(self, rows: Rows) -> tuple[Transaction, tuple[bytes, ...]]:
        """Files of rows, and the transaction that may commit them."""
        table = self.table
        schema = arrow_schema(table.schema)
        transaction = self.committer.begin(TABLE)
        spec = write_spec(table, transaction, overwrite=False, slots=1, settings=SETTINGS)
        columns = zip(*rows, strict=True)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
        written = write_batches(spec, [pa.RecordBatch.from_arrays(arrays, schema=schema)])
        messages = completed(table, spec, written, transaction.base_snapshot_id).messages
        return transaction, tuple(messages)

    def state(self) -> StoredState:
        table = self.table
        snapshot = table.paimon.snapshot_manager().get_latest_snapshot()
        manifests = ManifestCache(table.paimon)
        return StoredState(
            live_files(manifests, snapshot), manifests.deletions(snapshot.index_manifest)
        )

    def plan(self, *, full: bool = True, order: SortOrder | None = None) -> AppendCompaction:
        table = self.table
        snapshot = table.paimon.snapshot_manager().get_latest_snapshot()
        return plan_append_compaction(table, snapshot, CompactionScope(is_full=full, order=order))

    def compact(self, *, full: bool = True, order: SortOrder | None = None) -> CommitReceipt | None:
        """Compact; None where there is nothing to do."""
        plan = self.plan(full=full, order=order)
        if not plan.units:
            return None
        transaction = self.committer.begin(TABLE)
        rewrite = plan.rewrite(transaction, slots=2, settings=SETTINGS)
        messages = plan.messages([rewrite(unit) for unit in plan.units], transaction)
        return self.commit(transaction, messages)

    def commit(self, transaction: Transaction, messages: Sequence[CommitMessage]) -> CommitReceipt:
        bodies = tuple(write_message(self.table.paimon, message) for message in messages)
        return self.committer.commit(CommitRequest(transaction, Compact(), bodies))

    def delete(
        self, rows: Mapping[str, Sequence[int]], bucket: int = 0, *, instead: bool = False
    ) -> None:
        """Delete rows of data files, by name and position: in an index file of its own, or
        `instead` of the others of the bucket."""
        table = self.table
        transaction = self.committer.begin(TABLE)
        snapshot = table.paimon.snapshot_manager().get_latest_snapshot()
        index = vector_index(table, snapshot) if instead else VectorIndex(table, {})
        marked = {name: np.array(places, np.int64) for name, places in rows.items()}
        name = f"{transaction.file_prefix}index-{uuid.uuid4()}"
        changed = index.changed(((), bucket), marked, (), name)
        assert changed is not None
        adds, deletes = list(changed.adds), list(changed.deletes)
        message = CommitMessage((), bucket, [], index_adds=adds, index_deletes=deletes)
        body = write_message(table.paimon, message)
        self.committer.commit(CommitRequest(transaction, Append(), (body,)))

    def update(self, row_ids: Sequence[int], columns: Mapping[str, Sequence[Any]]) -> None:
        """Write columns of rows of a data-evolution table anew by pypaimon, into files of these
        columns."""
        rows = self.updates(row_ids, columns)
        builder = self.table.paimon.new_batch_write_builder()
        update = builder.new_update().with_update_type(list(columns))
        commit = builder.new_commit()
        commit.commit(update.update_by_arrow_with_row_id(rows))
        commit.close()

    def updates(self, row_ids: Sequence[int], columns: Mapping[str, Sequence[Any]]) -> pa.Table:
        """New values of columns of rows, with `_ROW_ID`."""
        given = arrow_schema(self.table.schema)
        values = {name: pa.array(cells, given.field(name).type) for name, cells in columns.items()}
        return pa.table({"_ROW_ID": pa.array(row_ids, pa.int64()), **values})

    def update_here(self, row_ids: Sequence[int], columns: Mapping[str, Sequence[Any]]) -> None:
        """As `update`, by us."""
        self.commit_update(self.written_columns(row_ids, columns))

    def written_columns(
        self, row_ids: Sequence[int], columns: Mapping[str, Sequence[Any]]
    ) -> tuple[Transaction, list[CommitMessage]]:
        """Files with new values of columns of rows, and the transaction that may commit them."""
        table = self.table
        snapshot = table.paimon.snapshot_manager().get_latest_snapshot()
        ranges = row_ranges(table, snapshot)
        transaction = self.committer.begin(TABLE)
        write = pickle.loads(pickle.dumps(columns_write(table, transaction, columns, ranges)))
        reader = updated_columns_reader(table, ranges, columns)
        batches = self.updates(row_ids, columns).to_batches(max_chunksize=3)
        written = write.run(updated_rows(reader, ranges, batches))
        return transaction, columns_messages(table, write, written, snapshot.id)

    def commit_update(self, written: tuple[Transaction, Sequence[CommitMessage]]) -> None:
        transaction, messages = written
        bodies = tuple(write_message(self.table.paimon, message) for message in messages)
        self.committer.commit(CommitRequest(transaction, Append(), bodies))

    def change(
        self,
        row_ids: Sequence[int],
        columns: Mapping[str, Sequence[Any]],
        deleted: Sequence[int] = (),
    ) -> None:
        """As `update_here`, as a statement's tasks do it; rows with the ids `deleted` go."""
        table = self.table
        snapshot = table.paimon.snapshot_manager().get_latest_snapshot()
        transaction = self.committer.begin(TABLE)
        plan = plan_evolving_change(table, snapshot, (), ManifestCache(table.paimon))
        firsts = [each.first_row_id for each in plan.ranges]
        ids = np.array([*row_ids, *deleted], np.int64)
        files = np.searchsorted(firsts, ids, side="right") - 1
        rows = self.updates([*row_ids, *deleted], {
            name: [*cells, *[None] * len(deleted)] for name, cells in columns.items()
        })  # fmt: skip
        rows = rows.append_column(FILE_COLUMN, pa.array(files.astype(np.int32)))
        rows = rows.append_column(PLACE_COLUMN, pa.array(ids - np.take(firsts, files)))
        kinds = [2] * len(row_ids) + [3] * len(deleted)
        rows = rows.append_column(KIND, pa.array(kinds, pa.int8())).sort_by("_ROW_ID")
        changes = plan.changes(transaction, set(columns), slots=1, settings=SETTINGS)
        tasks = pickle.loads(pickle.dumps(changes))
        results = list(tasks(rows.to_batches(max_chunksize=3), lambda rows, size_bytes: None))
        self.commit_update((transaction, plan.messages(results, transaction, set(columns))))

    def vectors(self) -> dict[str, int | None]:
        """The number of deleted rows of each data file that has a deletion vector."""
        return {key[2]: each.rows for key, each in self.state().deletions.items()}

    def index_files(self) -> set[str]:
        """The names of all files in the table's folder of indexes."""
        return {path.name for path in (Path(self.table.location) / "index").glob("*")}

    def rewritten(self, plan: AppendCompaction) -> tuple[Any, list[RewrittenUnit]]:
        transaction = self.committer.begin(TABLE)
        rewrite = plan.rewrite(transaction, slots=2, settings=SETTINGS)
        return transaction, [rewrite(unit) for unit in plan.units]

    def rows(self, kind: ViewKind = ViewKind.TABLE) -> list[tuple[Any, ...]]:
        read = plan_data_read(self.table, ReadRequest(kind))
        return [tuple(row.values()) for batch in read.rows() for row in batch.to_pylist()]

    def stored_rows(self, bucket: int = 0) -> list[tuple[Any, ...]]:
        """The rows of a bucket in the order of their sequence numbers."""
        files = self.state().files.filter(pc.field("bucket") == bucket)
        files = files.sort_by("min_sequence_number")
        reader = whole_rows_reader(self.table, schema_ids(files))
        return [
            tuple(row.values())
            for file in stored_files_of(self.table, files, {})
            for batch in reader.batches(file)
            for row in batch.to_pylist()
        ]

    def files(self, *columns: str) -> list[tuple[Any, ...]]:
        """The live files as rows of columns of the manifests."""
        files = self.state().files.select(list(columns))
        return [tuple(row.values()) for row in files.to_pylist()]

    def data_files(self) -> set[str]:
        """The names of all data files in the table's folder."""
        root = Path(self.table.location)
        return {path.name for path in root.rglob("bucket-*/*")}
