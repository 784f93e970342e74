"""The commit messages of a compaction of an append table, put together on the driver.

The writer names its files as if they were new. Here they become the files after a compaction: at
level 0, made by a compaction, with sequence numbers that count on from the first file that was
read (`BaseAppendFileStoreWrite.compactRewrite`), or with those of their rows where these have ids.
A file of a data-evolution table gets the first row id and the range of sequence numbers of those
that it takes the place of (`DataEvolutionNormalCompactTask`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.errors import TableDamagedError
from paimon_magics.planning.formatting import count_text
from paimon_magics.tables.compaction.append_rewriting import RewrittenUnit
from paimon_magics.tables.compaction.append_units import AppendUnit
from paimon_magics.tables.manifests.file_kinds import APPENDED, COMPACTED
from paimon_magics.tables.manifests.partition_values import partition_values
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.columns_files import meta_of_columns_file, stored_columns
from paimon_magics.tables.writing.commit_messages import read_messages
from paimon_magics.tables.writing.data_file_metas import meta_of_new_file, stored_metas
from paimon_magics.tables.writing.float_bounds import mend_messages
from paimon_magics.tables.writing.key_value_files import ROW_FIELDS
from paimon_magics.tables.writing.new_files import NewFile
from paimon_magics.tables.writing.sequence_numbers import number_files

__all__ = ["append_messages", "meta_of_row_file"]


def append_messages(
    table: Table, units: Sequence[AppendUnit], files: pa.Table, rewritten: Iterable[RewrittenUnit]
) -> list[CommitMessage]:
    """The messages of all units, one for each partition and bucket.

    `files` are the entries of the units' files, one unit after the other. Deletion vectors are
    left out. Raises TableDamagedError
    for units that are missing, or that have other rows than they must.
    """
    results: dict[int, list[RewrittenUnit]] = {}
    for one in sorted(rewritten, key=lambda one: one.share):
        results.setdefault(one.number, []).append(one)
    partitions, of_files = partition_values(table.paimon, files)
    buckets = np.asarray(files["total_buckets"]).tolist()
    metas = stored_metas(table.paimon, files)
    found: dict[tuple[int, int], CommitMessage] = {}
    first = 0
    for unit in units:
        partition = int(of_files[first])
        message = found.get((partition, unit.bucket))
        if message is None:
            message = found[partition, unit.bucket] = CommitMessage(
                partitions[partition], unit.bucket, [], total_buckets=buckets[first]
            )
        message.compact_before += metas[first : first + len(unit.files)]
        written = _written_files(table, unit, results.get(unit.number, []))
        if table.schema.data_evolution_enabled:
            _take_place(written, message.compact_before[-len(unit.files) :])
        message.compact_after += written
        first += len(unit.files)
    return list(found.values())


def _written_files(table: Table, unit: AppendUnit, results: Sequence[RewrittenUnit]) -> list[Any]:
    """The metadata of the files that the tasks of a unit wrote, in the order of their rows."""
    files = [file for result in results for file in _metas(table, result)]
    rows = sum(file.row_count for file in files)
    if not results or rows != _rows_left(table, unit, results):
        raise TableDamagedError(
            f"A compaction of `{table.name}` read {count_text(unit.rows, 'row')} of "
            f"{count_text(len(unit.files), 'file')} and wrote {rows:,}; nothing was committed.",
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
    """The metadata of a file with row ids. It names the columns that the file has, and those with
    bounds, where they differ from the table's columns."""
    if table.schema.data_evolution_enabled:
        return meta_of_columns_file(table, file, stored_columns(table.schema))
    names = table.schema.column_names
    if file.bounded_columns is None:
        file = replace(file, bounded_columns=tuple(names))
    meta = meta_of_new_file(table.paimon, file)
    meta.write_cols = [*names, *(field.name for field in ROW_FIELDS)]
    return meta


def _take_place(written: Sequence[Any], before: Sequence[Any]) -> None:
    """Give the one file of a unit the row ids and sequence numbers of the files `before`. As in
    Java it counts as appended: its rows were not merged."""
    (file,) = written
    file.first_row_id = min(one.first_row_id for one in before)
    file.min_sequence_number = min(one.min_sequence_number for one in before)
    file.max_sequence_number = max(one.max_sequence_number for one in before)
    file.file_source = APPENDED


def _rows_left(table: Table, unit: AppendUnit, results: Sequence[RewrittenUnit]) -> int:
    """The rows that the unit's files have without deleted ones. Where a vector's writer did not
    count its rows, what the reader gave. Those of data evolution keep deleted rows."""
    if table.schema.data_evolution_enabled:
        return unit.distinct_rows
    vectors = [file.deletions for file in unit.files if file.deletions is not None]
    lost = [one.rows for one in vectors if one.rows is not None]
    if len(lost) < len(vectors):
        return sum(result.rows for result in results)
    return unit.rows - sum(lost)
