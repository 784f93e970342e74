"""Where keys of a primary-key table are stored: rows that still wait for their buckets, and the
buckets of keys in tables whose keys can move between partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow.compute as pc

from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.reads.predicates import ColumnPredicate
from paimon_magics.planning.reads.views import RowView, ViewKind
from paimon_magics.tables.compaction.append_plan import stored_files_of
from paimon_magics.tables.compaction.append_units import AppendUnit
from paimon_magics.tables.manifests.live_files import ManifestCache, live_files
from paimon_magics.tables.reading.table_files import whole_rows_reader
from paimon_magics.tables.row_changes.placed_files import PlacedFiles
from paimon_magics.tables.schema.history import TableSchemas
from paimon_magics.tables.splits.file_pruning import FilePruning
from paimon_magics.tables.splits.pruning import in_partitions
from paimon_magics.tables.splits.stored_files import schema_ids, stores_elsewhere
from paimon_magics.tables.splits.table_scan import files_seen
from paimon_magics.tables.table import Table

__all__ = ["check_none_wait", "key_files"]


def key_files(
    table: Table,
    snapshot: Any,
    predicates: Sequence[ColumnPredicate],
    manifests: ManifestCache,
) -> PlacedFiles:
    """The files of `snapshot`, pypaimon's, that can have rows of the keys whose rows meet
    `predicates`. A unit has the number of its file's bucket."""
    columns = TableSchemas(table.paimon).columns
    pruning = FilePruning(columns, table.schema, RowView(ViewKind.TABLE, False), predicates)
    files = files_seen(pruning, manifests, snapshot).combine_chunks()
    stored = stored_files_of(table, files, manifests.deletions(snapshot.index_manifest))
    units = tuple(
        AppendUnit(bucket, bucket, (file,))
        for file, bucket in zip(stored, files["bucket"].to_pylist(), strict=True)
    )
    reader = whole_rows_reader(table, schema_ids(files), stores_elsewhere(files))
    return PlacedFiles(reader, units)


def check_none_wait(
    table: Table,
    snapshot: Any,
    predicates: Sequence[ColumnPredicate],
    manifests: ManifestCache,
) -> None:
    """Raise UnsupportedStatementError if rows of a snapshot, pypaimon's, wait for their buckets in
    partitions that `predicates` allow. Nobody sees them yet, so that a statement could neither
    find them nor be newer than they are: they get greater sequence numbers than what it writes."""
    if table.schema.bucket_mode != "POSTPONE_MODE":
        return
    files = live_files(manifests, snapshot)
    files = files.filter(pc.less(files["bucket"], 0))
    if predicates and files.num_rows:
        files = files.filter(in_partitions(files, table.schema, predicates))
    if files.num_rows:
        rows = count_text(pc.sum(files["row_count"]).as_py(), "row")
        raise UnsupportedStatementError(
            f"{rows} of `{table.name}` in {count_text(files.num_rows, 'file')} still wait for "
            "their buckets ('bucket' = '-2'): this statement can't see them, and they would take "
            "the place of what it writes.",
            hint=f"Nothing was written. CALL sys.compact(table => '{table.name}'), then run the "
            "statement again.",
        )
