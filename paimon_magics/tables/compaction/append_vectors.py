"""The deletion vectors of an append table after a compaction.

Rewritten files lose theirs. An index file that held one of them goes, and the vectors of other
files in it are written anew; index files that the compaction does not touch stay, so that it does
not meet other commits without need. Rewritten files of a data-evolution table hand theirs on.
Sources: `BaseAppendDeleteFileMaintainer.persist`, `DataEvolutionCompactDeletionVectorRewriter`.
"""

from __future__ import annotations

import bisect
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.columnar.deletion_vectors import united_rows
from paimon_magics.planning.commits.requests import Transaction
from paimon_magics.tables.pypaimon_internals import store_options
from paimon_magics.tables.schema.types import arrow_type
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.attempts import Attempt, attempt
from paimon_magics.tables.writing.deletion_vector_files import (
    Bucket,
    VectorIndex,
    vector_index,
)
from paimon_magics.tables.writing.dynamic_buckets import INDEX_FOLDER

__all__ = ["Heirs", "moved_vectors", "put_marks", "put_vectors"]

Heirs = Mapping[Bucket, Mapping[str, tuple[str, int]]]
"""For data files by bucket and name: the file that has their rows now, and the place there of
their first row."""


def moved_vectors(messages: Iterable[CommitMessage]) -> Heirs:
    """Where the rows of rewritten files of a data-evolution table are after the compaction."""
    found: dict[Bucket, dict[str, tuple[str, int]]] = {}
    for message in messages:
        after = sorted(message.compact_after, key=lambda file: file.first_row_id)
        starts = [file.first_row_id for file in after]
        heirs = found.setdefault((tuple(message.partition), message.bucket), {})
        for file in message.compact_before:
            heir = after[bisect.bisect_right(starts, file.first_row_id) - 1]
            heirs[file.file_name] = heir.file_name, file.first_row_id - heir.first_row_id
    return found


def put_vectors(
    table: Table,
    snapshot: Any,
    transaction: Transaction,
    messages: Iterable[CommitMessage],
    moved: Heirs,
) -> None:
    """Add to the messages what becomes of the deletion vectors that the snapshot has of the files
    before the compaction: those of files in `moved` hold for others now. Writes index files."""
    by_bucket = {(tuple(message.partition), message.bucket): message for message in messages}
    gone = {
        bucket: frozenset(file.file_name for file in message.compact_before)
        for bucket, message in by_bucket.items()
    }
    touched = _touched(vector_index(table, snapshot), gone)
    options = {str(k): str(v) for k, v in (store_options(table.paimon) or {}).items()}
    with attempt(transaction.attempts_folder, options) as running:
        for bucket in touched.entries:
            _note(table, running, bucket)
            own = f"{running.id}-" if running is not None else ""
            name = f"{transaction.file_prefix}index-{own}{uuid.uuid4()}"
            marked = _marked(touched, bucket, moved.get(bucket, {}))
            changed = touched.changed(bucket, marked, gone[bucket], name)
            if changed is not None:
                by_bucket[bucket].compact_index_adds += changed.adds
                by_bucket[bucket].compact_index_deletes += changed.deletes


def _marked(
    index: VectorIndex, bucket: Bucket, heirs: Mapping[str, tuple[str, int]]
) -> dict[str, npt.NDArray[np.int64]]:
    """The deleted rows of files that have taken others' place."""
    parts: dict[str, list[npt.NDArray[np.int64]]] = {}
    for name, rows in index.vectors(bucket).items() if heirs else ():
        if name in heirs:
            heir, start = heirs[name]
            parts.setdefault(heir, []).append(rows + start)
    return {heir: united_rows(rows) for heir, rows in parts.items()}


def put_marks(
    table: Table,
    snapshot: Any,
    transaction: Transaction,
    messages: Iterable[CommitMessage],
    marked: Mapping[Bucket, Mapping[str, Any]],
) -> None:
    """Add to the messages the deletion vectors of files in which more rows are `marked`, by bucket
    and file. Writes index files. A bucket of its own has one index file; without buckets index
    files of other data files stay. Source: `AppendDeleteFileMaintainer`."""
    by_bucket = {(tuple(message.partition), message.bucket): message for message in messages}
    index = vector_index(table, snapshot)
    if table.schema.bucket_mode == "BUCKET_UNAWARE":
        index = _touched(index, {bucket: frozenset(rows) for bucket, rows in marked.items()})
    options = {str(k): str(v) for k, v in (store_options(table.paimon) or {}).items()}
    with attempt(transaction.attempts_folder, options) as running:
        for bucket, rows in marked.items():
            _note(table, running, bucket)
            own = f"{running.id}-" if running is not None else ""
            name = f"{transaction.file_prefix}index-{own}{uuid.uuid4()}"
            changed = index.changed(bucket, rows, (), name)
            if changed is not None:
                by_bucket[bucket].index_adds += changed.adds
                by_bucket[bucket].index_deletes += changed.deletes


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
    return VectorIndex(index.table, {bucket: one for bucket, one in entries.items() if one})


def _note(table: Table, running: Attempt | None, bucket: Bucket) -> None:
    """Note the folder that the bucket's index file will be created in."""
    if running is None:
        return
    schema = table.schema
    beside_data = schema.flag("index-file-in-data-file-dir")
    columns = [
        pa.array([value], arrow_type(schema.column(key).type))
        for key, value in zip(schema.partition_keys, bucket[0], strict=True)
    ]
    partition = (
        pa.RecordBatch.from_arrays(columns, names=list(schema.partition_keys))
        if columns
        else pa.RecordBatch.from_struct_array(pa.array([{}], pa.struct([])))
    )
    running.note(partition, pa.array([bucket[1] if beside_data else INDEX_FOLDER], pa.int32()))
