"""The values that rows must have in some columns to matter to a statement. Spark's tasks on this
machine read them from a file.

Light to import, because the tasks load it. Memory is bounded by `INTEGERS_MAX`, and for a column
of whole numbers that lie close together by `_SPAN_MAX` bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.reads.predicates import ColumnPredicate
from paimon_magics.planning.reads.views import RowView, ViewKind
from paimon_magics.tables.compaction.append_plan import stored_files_of
from paimon_magics.tables.compaction.append_units import AppendUnit
from paimon_magics.tables.manifests.live_files import ManifestCache, live_files
from paimon_magics.tables.reading.table_files import files_reader
from paimon_magics.tables.row_changes.selected_rows import PlacedFiles
from paimon_magics.tables.schema.history import TableSchemas
from paimon_magics.tables.splits.pruning import in_partitions
from paimon_magics.tables.splits.pruning_steps import FilePruning
from paimon_magics.tables.splits.table_scan import files_seen
from paimon_magics.tables.table import Table

INTEGERS_MAX = 1_000_000
"""The most values of a column of whole numbers or dates."""
TEXTS_MAX = 65_536
"""Upper bound on values of a column of texts: Arrow hashes them again for each batch of rows."""

_SPAN_MAX = 2**25

_Mask = Callable[[pa.Array], npt.NDArray[np.bool_]]


@dataclass(frozen=True)
class LookedUpKeys:
    """Values of columns, in the file `path`. Before it is written, and of columns that it does not
    have, rows may have any values."""

    path: str

    def write(self, values: Mapping[str, pa.Array]) -> None:
        """Write the values of each column: distinct, without NULL; int64 for numbers and dates."""
        columns = {
            name: pa.ListArray.from_arrays(pa.array([0, len(column)], pa.int32()), column)
            for name, column in values.items()
        }
        rows = pa.RecordBatch.from_pydict(columns)
        with pa.OSFile(self.path, "wb") as sink, pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_batch(rows)

    def matching(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that have such values. No batch is empty."""
        masks = self._masks()
        for batch in batches:
            for name, mask in masks.items():
                is_known = mask(batch.column(name))
                batch = batch if is_known.all() else batch.filter(pa.array(is_known))
            if batch.num_rows:
                yield batch

    def _masks(self) -> dict[str, _Mask]:
        if not Path(self.path).exists():
            return {}
        with pa.OSFile(self.path) as source, pa.ipc.open_stream(source) as reader:
            rows = reader.read_next_batch()
        return {name: _mask(rows.column(name).flatten()) for name in rows.schema.names}


def _mask(values: pa.Array) -> _Mask:
    if not pa.types.is_integer(values.type):
        return lambda column: np.asarray(pc.is_in(column, values.cast(column.type)))
    known = np.sort(np.asarray(values))
    if not len(known):
        return lambda column: np.zeros(len(column), dtype=bool)
    least, span = int(known[0]), int(known[-1]) - int(known[0]) + 1
    if span <= _SPAN_MAX:
        table = np.zeros(span, dtype=bool)
        table[known - least] = True
    else:
        table = None

    def mask(column: pa.Array) -> npt.NDArray[np.bool_]:
        is_null = np.asarray(column.is_null()) if column.null_count else None
        numbers = np.asarray(_numbers(column))
        if table is not None:
            inside = (numbers >= known[0]) & (numbers <= known[-1])
            is_known = np.zeros(len(numbers), dtype=bool)
            is_known[inside] = table[numbers[inside] - least]
        else:
            at = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
            is_known = known[at] == numbers
        return is_known if is_null is None else is_known & ~is_null

    return mask


def _numbers(column: pa.Array) -> pa.Array:
    """Whole numbers, or the days of dates, as int64; 0 for NULL."""
    if pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    column = column.cast(pa.int64())
    return column.fill_null(0) if column.null_count else column


# Where keys of a primary-key table are stored: rows that still wait for their buckets, and the
# buckets of keys in tables whose keys can move between partitions.


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
    return PlacedFiles(files_reader(table, files), units)


def check_none_wait(
    table: Table,
    snapshot: Any,
    predicates: Sequence[ColumnPredicate],
    manifests: ManifestCache,
) -> None:
    """Raise UnsupportedStatementError if rows of a snapshot, pypaimon's, wait for their buckets in
    partitions that `predicates` allow. A statement can't see these rows, and they get greater
    sequence numbers than the rows that it writes."""
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
            "their buckets ('bucket' = '-2'). This statement can't see these rows, and they would "
            "replace the rows that it writes.",
            hint=f"Nothing was written. CALL sys.compact(table => '{table.name}'), then run the "
            "statement again.",
        )
