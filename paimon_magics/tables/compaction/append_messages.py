"""The commit messages of a compaction of an append table, put together on the driver.

The writer names its files as if they were new. Here they become the files after a compaction. Their
sequence numbers count on from the first file that was read
(`BaseAppendFileStoreWrite.compactRewrite`), or are those of rows with ids. A file of a
data-evolution table gets the first row id and the range of sequence numbers of the files that it
replaces (`DataEvolutionNormalCompactTask`).
"""

from __future__ import annotations

import bisect
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.columnar.deletion_vectors import united_rows
from paimon_magics.errors import TableDamagedError
from paimon_magics.planning.commits.requests import Transaction
from paimon_magics.planning.formatting import count_text
from paimon_magics.tables.compaction.append_rewriting import RewrittenUnit
from paimon_magics.tables.compaction.append_units import AppendUnit
from paimon_magics.tables.manifests.names import APPENDED, COMPACTED
from paimon_magics.tables.manifests.partitions import partition_values
from paimon_magics.tables.schema.types import arrow_type
from paimon_magics.tables.stores.s3_access import io_options
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.attempts import Attempt, attempt
from paimon_magics.tables.writing.columns_files import meta_of_columns_file, stored_columns
from paimon_magics.tables.writing.commit_messages import (
    meta_of_new_file,
    read_messages,
    stored_metas,
)
from paimon_magics.tables.writing.deletion_vector_files import (
    Bucket,
    ChangedVectors,
    VectorIndex,
    vector_index,
)
from paimon_magics.tables.writing.dynamic_buckets import INDEX_FOLDER
from paimon_magics.tables.writing.float_bounds import mend_messages
from paimon_magics.tables.writing.key_value_files import ROW_FIELDS
from paimon_magics.tables.writing.new_files import NewFile, partition_values_row
from paimon_magics.tables.writing.sequence_numbers import number_files

Heirs = Mapping[Bucket, Mapping[str, tuple[str, int]]]
"""By bucket and name of a data file: the file that has its rows now, and the place of the first one
there."""
Marked = Mapping[Bucket, Mapping[str, npt.NDArray[np.int64]]]
"""Deleted rows by bucket and data file."""


def append_messages(
    table: Table, units: Sequence[AppendUnit], files: pa.Table, rewritten: Iterable[RewrittenUnit]
) -> list[CommitMessage]:
    """The messages of all units, one for each partition and bucket.

    `files` are the entries of the units' files, one unit after the other. Deletion vectors are left
    out. Raises TableDamagedError for units that are missing or have unexpected rows.
    """
    results: dict[int, list[RewrittenUnit]] = {}
    for result in sorted(rewritten, key=lambda result: result.share):
        results.setdefault(result.number, []).append(result)
    partitions, of_files = partition_values(table.paimon, files)
    buckets = np.asarray(files["total_buckets"]).tolist()
    metas = stored_metas(table.paimon, files)
    messages: dict[tuple[int, int], CommitMessage] = {}
    first = 0
    for unit in units:
        partition = int(of_files[first])
        message = messages.get((partition, unit.bucket))
        if message is None:
            message = messages[partition, unit.bucket] = CommitMessage(
                partitions[partition], unit.bucket, [], total_buckets=buckets[first]
            )
        message.compact_before += metas[first : first + len(unit.files)]
        written = _written_files(table, unit, results.get(unit.number, []))
        if table.schema.data_evolution_enabled:
            _take_place(written, message.compact_before[-len(unit.files) :])
        message.compact_after += written
        first += len(unit.files)
    return list(messages.values())


def _written_files(table: Table, unit: AppendUnit, results: Sequence[RewrittenUnit]) -> list[Any]:
    """The metadata of the files that the tasks of a unit wrote, in the order of their rows."""
    files = [file for result in results for file in _metas(table, result)]
    rows = sum(file.row_count for file in files)
    if not results or rows != _rows_left(table, unit, results):
        raise TableDamagedError(
            f"A compaction of `{table.name}` read {count_text(unit.rows, 'row')} of "
            f"{count_text(len(unit.files), 'file')} and wrote {rows:,}. Nothing was committed.",
            hint="Run the statement again, and report this with the table's definition.",
        )
    if not table.schema.row_tracking_enabled:
        number_files(files, unit.files[0].min_sequence_number)
    for file in files:
        file.file_source = COMPACTED
        file.level = unit.output_level
    return files


def _metas(table: Table, result: RewrittenUnit) -> list[Any]:
    if result.written is None:
        return [meta_of_row_file(table, file) for file in result.files]
    messages = list(read_messages(table.paimon, result.written.messages))
    mend_messages(table, messages, result.written.odd_floats)
    return [file for message in messages for file in message.new_files]


def meta_of_row_file(table: Table, file: NewFile) -> Any:
    """The metadata of a file with row ids. It names the file's columns, and the columns with
    bounds, if they differ from the table's columns."""
    if table.schema.data_evolution_enabled:
        return meta_of_columns_file(table, file, stored_columns(table.schema))
    meta = meta_of_new_file(table.paimon, file)
    name_columns(table, [meta])
    return meta


def name_columns(table: Table, files: Iterable[Any]) -> None:
    """Name the columns that files with row ids have, and those with bounds, in their metadata."""
    names = table.schema.column_names
    for file in files:
        if file.value_stats_cols is None:
            file.value_stats_cols = list(names)
        file.write_cols = [*names, *(field.name for field in ROW_FIELDS)]


def _take_place(written: Sequence[Any], before: Sequence[Any]) -> None:
    """Give the one file of a unit the row ids and sequence numbers of the files `before`. As in
    Java it counts as appended: its rows were not merged."""
    (file,) = written
    file.first_row_id = min(each.first_row_id for each in before)
    file.min_sequence_number = min(each.min_sequence_number for each in before)
    file.max_sequence_number = max(each.max_sequence_number for each in before)
    file.file_source = APPENDED


def _rows_left(table: Table, unit: AppendUnit, results: Sequence[RewrittenUnit]) -> int:
    """The number of rows of the unit's files without deleted ones. If a vector's writer did not
    count its rows, the number that was written. Files of data evolution keep deleted rows."""
    if table.schema.data_evolution_enabled:
        return unit.distinct_rows
    vectors = [file.deletions for file in unit.files if file.deletions is not None]
    lost = [vector.rows for vector in vectors if vector.rows is not None]
    if len(lost) < len(vectors):
        return sum(result.rows for result in results)
    return unit.rows - sum(lost)


# The deletion vectors of an append table after a compaction.
#
# Rewritten files lose their vectors. An index file with such a vector is replaced by one with the
# vectors of the other files. Other index files stay, so that the compaction conflicts with fewer
# commits. Rewritten files of a data-evolution table pass their vectors on. Sources:
# `BaseAppendDeleteFileMaintainer.persist`, `DataEvolutionCompactDeletionVectorRewriter`.


def moved_vectors(messages: Iterable[CommitMessage]) -> Heirs:
    """Where the rows of rewritten files of a data-evolution table are after the compaction."""
    moved: dict[Bucket, dict[str, tuple[str, int]]] = {}
    for message in messages:
        after = sorted(message.compact_after, key=lambda file: file.first_row_id)
        starts = [file.first_row_id for file in after]
        heirs = moved.setdefault((tuple(message.partition), message.bucket), {})
        for file in message.compact_before:
            heir = after[bisect.bisect_right(starts, file.first_row_id) - 1]
            heirs[file.file_name] = heir.file_name, file.first_row_id - heir.first_row_id
    return moved


def put_vectors(
    table: Table,
    snapshot: Any,
    transaction: Transaction,
    messages: Iterable[CommitMessage],
    moved: Heirs,
) -> None:
    """Add the changes of the deletion vectors that the snapshot has of compacted files to the
    messages; those of files in `moved` become vectors of their heirs. Writes index files."""
    by_bucket = {(tuple(message.partition), message.bucket): message for message in messages}
    gone = {
        bucket: frozenset(file.file_name for file in message.compact_before)
        for bucket, message in by_bucket.items()
    }
    touched = _touched(vector_index(table, snapshot), gone)
    marked = (
        (bucket, _marked(touched, bucket, moved.get(bucket, {}))) for bucket in touched.entries
    )
    for bucket, change in _changed(touched, transaction, marked, gone):
        by_bucket[bucket].compact_index_adds += change.adds
        by_bucket[bucket].compact_index_deletes += change.deletes


def put_marks(
    table: Table,
    snapshot: Any,
    transaction: Transaction,
    messages: Iterable[CommitMessage],
    marked: Marked,
) -> None:
    """Add to the messages the deletion vectors of files in which more rows are `marked`. Writes
    index files. A bucket of its own has one index file; without buckets index files of other data
    files stay. Source: `AppendDeleteFileMaintainer`."""
    by_bucket = {(tuple(message.partition), message.bucket): message for message in messages}
    index = vector_index(table, snapshot)
    if table.schema.bucket_mode == "BUCKET_UNAWARE":
        index = _touched(index, {bucket: frozenset(rows) for bucket, rows in marked.items()})
    for bucket, change in _changed(index, transaction, marked.items(), {}):
        by_bucket[bucket].index_adds += change.adds
        by_bucket[bucket].index_deletes += change.deletes


def _changed(
    index: VectorIndex,
    transaction: Transaction,
    marked: Iterable[tuple[Bucket, Mapping[str, npt.NDArray[np.int64]]]],
    gone: Mapping[Bucket, frozenset[str]],
) -> Iterator[tuple[Bucket, ChangedVectors]]:
    """Rewrite the vectors of the buckets in `marked`, without those of files that are gone."""
    with attempt(transaction.attempts_folder, io_options(index.table.paimon)) as running:
        for bucket, rows in marked:
            _note(index.table, running, bucket)
            name = f"{transaction.file_prefix}index-{running.name_part}{uuid.uuid4()}"
            change = index.changed(bucket, rows, gone.get(bucket, ()), name)
            if change is not None:
                yield bucket, change


def _marked(
    index: VectorIndex, bucket: Bucket, heirs: Mapping[str, tuple[str, int]]
) -> dict[str, npt.NDArray[np.int64]]:
    """The deleted rows of files that have replaced other files."""
    parts: dict[str, list[npt.NDArray[np.int64]]] = {}
    for name, rows in index.vectors(bucket).items() if heirs else ():
        if name in heirs:
            heir, start = heirs[name]
            parts.setdefault(heir, []).append(rows + start)
    return {heir: united_rows(rows) for heir, rows in parts.items()}


def _touched(index: VectorIndex, gone: Mapping[Bucket, frozenset[str]]) -> VectorIndex:
    """The index files that have a vector of one of the files `gone`."""
    entries = {
        bucket: tuple(
            entry
            for entry in index.entries.get(bucket, ())
            if not names.isdisjoint(entry.index_file.dv_ranges or ())
        )
        for bucket, names in gone.items()
    }
    return VectorIndex(index.table, {bucket: some for bucket, some in entries.items() if some})


def _note(table: Table, running: Attempt, bucket: Bucket) -> None:
    """Note the folder that the bucket's index file will be created in."""
    schema = table.schema
    columns = [
        pa.array([value], arrow_type(schema.column(key).type))
        for key, value in zip(schema.partition_keys, bucket[0], strict=True)
    ]
    beside_data = schema.flag("index-file-in-data-file-dir")
    folder = bucket[1] if beside_data else INDEX_FOLDER
    running.note(partition_values_row(schema.partition_keys, columns), [folder])
