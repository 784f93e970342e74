"""The deletion vectors of an append table after a compaction.

Rewritten files lose theirs. An index file that held one of them goes, and the vectors of other
files in it are written anew; index files that the compaction does not touch stay, so that it does
not meet other commits without need. Source: `BaseAppendDeleteFileMaintainer.persist`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from pypaimon.write.commit_message import CommitMessage

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

__all__ = ["put_vectors"]


def put_vectors(
    table: Table, snapshot: Any, transaction: Transaction, messages: Iterable[CommitMessage]
) -> None:
    """Add to the messages what becomes of the deletion vectors that the snapshot has of the files
    before the compaction. Writes index files."""
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
            changed = touched.changed(bucket, {}, gone[bucket], name)
            if changed is not None:
                by_bucket[bucket].compact_index_adds += changed.adds
                by_bucket[bucket].compact_index_deletes += changed.deletes


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
