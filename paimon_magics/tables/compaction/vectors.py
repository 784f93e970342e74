"""The deletion vectors that a compaction changes: rows above it that it replaces are marked, the
vectors of files that it rewrites go. Upgraded files keep theirs.

One index file for each bucket is written, on the driver. The transaction's attempts note its
folder, so that it is removed when the transaction ends without a commit. Source:
`BucketedDvMaintainer`, `LookupMergeTreeCompactRewriter.notifyRewriteCompactBefore`.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_magics.columnar.deletion_vectors import united_rows
from paimon_magics.planning.commits.requests import Transaction
from paimon_magics.tables.compaction.planning import BucketKey, CompactionPlan, partition_schema
from paimon_magics.tables.compaction.rewriting import RewriteTask, Rewritten, partition_row
from paimon_magics.tables.compaction.uncommitted import vectors_after
from paimon_magics.tables.manifests.partition_values import partition_values
from paimon_magics.tables.pypaimon_internals import store_options
from paimon_magics.tables.snapshots.latest import read_snapshot
from paimon_magics.tables.writing.attempts import attempt
from paimon_magics.tables.writing.deletion_vector_files import ChangedVectors, vector_index
from paimon_magics.tables.writing.dynamic_buckets import INDEX_FOLDER

__all__ = ["changed_vectors"]

_Rows = npt.NDArray[np.int64]


def changed_vectors(
    plan: CompactionPlan,
    tasks: Sequence[RewriteTask],
    results: Sequence[Rewritten],
    transaction: Transaction,
) -> dict[BucketKey, ChangedVectors]:
    """Write the deletion vectors that the `results` of `tasks` change, by bucket.

    Raises TableDamagedError for vectors that can't be read, OSError for the store's failures,
    JobError when the transaction has ended.
    """
    if not plan.table.schema.deletion_vectors_enabled:
        return {}
    marked = _marked(tasks, results)
    index = vector_index(plan.table, read_snapshot(plan.table.paimon, plan.snapshot_id))
    index = vectors_after(index, plan.written)
    found: dict[BucketKey, ChangedVectors] = {}
    options = store_options(plan.table.paimon) or {}
    with attempt(transaction.attempts_folder, options) as running:
        for unit in plan.units:
            key = unit.partition, unit.bucket
            gone = {file.name for step in unit.rewrites for file in step.files}
            row = next(iter(unit.rows.values()))
            (values,), _ = partition_values(plan.table.paimon, plan.files.slice(row, 1))
            attempt_id = ""
            if running is not None and (marked[key] or gone):
                partition = partition_row(unit.partition, partition_schema(plan.table.schema))
                for folder in (INDEX_FOLDER, unit.bucket):  # by `index-file-in-data-file-dir`
                    running.note(partition, pa.array([folder], pa.int32()))
                attempt_id = f"{running.id}-"
            name = f"{transaction.file_prefix}index-{attempt_id}{uuid.uuid4()}"
            change = index.changed((values, unit.bucket), marked[key], gone, name)
            if change is not None:
                found[key] = change
    return found


def _marked(
    tasks: Sequence[RewriteTask], results: Sequence[Rewritten]
) -> Mapping[BucketKey, Mapping[str, _Rows]]:
    """The rows that are deleted, by bucket and file."""
    buckets = {task.number: (task.partition, task.bucket) for task in tasks}
    found: dict[BucketKey, dict[str, list[_Rows]]] = defaultdict(lambda: defaultdict(list))
    for one in results:
        for name, rows in one.deleted.items():
            found[buckets[one.number]][name].append(rows)
    merged: Any = defaultdict(dict)
    for key, files in found.items():
        merged[key] = {name: united_rows(parts) for name, parts in files.items()}
    return merged  # type: ignore[no-any-return]
