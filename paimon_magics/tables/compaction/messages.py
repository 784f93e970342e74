"""The commit messages of a compaction: one for each bucket, whatever number of tasks wrote it.

Files that were read come before files that were written. An upgraded file is in both, on its old
and its new level: it keeps its name. Source: `MergeTreeWriter.drainIncrement`.
"""

from __future__ import annotations

import contextlib
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pypaimon.manifest.schema.data_file_meta import DataFileMeta
from pypaimon.utils.file_store_path_factory import canonical_data_file_path
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.columnar.deletion_vectors import united_rows
from paimon_magics.planning.commits.requests import Transaction
from paimon_magics.tables.compaction.planning import (
    CompactionPlan,
    CompactionScope,
    partition_schema,
    plan_compaction,
    vectors_after,
)
from paimon_magics.tables.compaction.rewriting import RewriteTask, Rewritten, partition_row
from paimon_magics.tables.compaction.units import BucketUnit
from paimon_magics.tables.manifests.partitions import partition_values
from paimon_magics.tables.snapshots.latest import read_snapshot
from paimon_magics.tables.stores.s3_access import io_options
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.attempts import attempt
from paimon_magics.tables.writing.commit_messages import (
    BucketKey,
    bucket_key,
    meta_of_new_file,
    stored_metas,
)
from paimon_magics.tables.writing.deletion_vector_files import ChangedVectors, vector_index
from paimon_magics.tables.writing.dynamic_buckets import INDEX_FOLDER

_Rows = npt.NDArray[np.int64]


def compaction_messages(
    plan: CompactionPlan,
    tasks: Sequence[RewriteTask],
    results: Sequence[Rewritten],
    transaction: Transaction,
) -> list[CommitMessage]:
    """The messages of a compaction whose `tasks` have the `results`. Writes the index files of the
    deletion vectors that it changes; raises as `_changed_vectors`."""
    vectors = _changed_vectors(plan, tasks, results, transaction)
    written: dict[BucketKey, list[Rewritten]] = defaultdict(list)
    of_task = {task.number: (task.partition, task.bucket) for task in tasks}
    for result in sorted(results, key=lambda result: result.number):
        written[of_task[result.number]].append(result)
    return [
        _message(plan, unit, before, written[unit.partition, unit.bucket], vectors)
        for unit, before in zip(plan.units, _before(plan), strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Before:
    """The partition of a unit, and the files that it removes, by name."""

    partition: tuple[Any, ...]
    metas: Mapping[str, DataFileMeta]


def _before(plan: CompactionPlan) -> Iterator[_Before]:
    """The files of each unit, taken from the planned ones all at once."""
    names = [
        [
            *(file.name for step in unit.rewrites for file in step.files),
            *(step.file.name for step in unit.upgrades),
        ]
        for unit in plan.units
    ]
    rows = [
        unit.rows[name] for unit, changed in zip(plan.units, names, strict=True) for name in changed
    ]
    files = plan.files.take(pa.array(rows, pa.int64()))
    metas = stored_metas(plan.table.paimon, files)
    values, of_files = partition_values(plan.table.paimon, files)
    start = 0
    for changed in names:
        end = start + len(changed)
        yield _Before(values[of_files[start]], dict(zip(changed, metas[start:end], strict=True)))
        start = end


def _message(
    plan: CompactionPlan,
    unit: BucketUnit,
    before: _Before,
    written: Sequence[Rewritten],
    vectors: Mapping[BucketKey, ChangedVectors],
) -> CommitMessage:
    paimon = plan.table.paimon
    upgraded = [
        replace(before.metas[step.file.name], level=unit.pick.output_level)
        for step in unit.upgrades
    ]
    vector = vectors.get((unit.partition, unit.bucket))
    return CommitMessage(
        partition=before.partition,
        bucket=unit.bucket,
        new_files=[],
        total_buckets=unit.total_buckets,
        compact_before=list(before.metas.values()),
        compact_after=[
            *(meta_of_new_file(paimon, file) for result in written for file in result.files),
            *upgraded,
        ],
        compact_changelog_files=[
            meta_of_new_file(paimon, file) for result in written for file in result.changelog_files
        ],
        compact_index_adds=[] if vector is None else list(vector.adds),
        compact_index_deletes=[] if vector is None else list(vector.deletes),
    )


# The deletion vectors that a compaction changes. Rows of higher levels that it replaces are marked,
# and vectors of rewritten files are dropped. Upgraded files keep theirs.
#
# The driver writes one index file for each bucket. The transaction's attempts note its folder, so
# that it is removed if the transaction ends without a commit. Source:
# `BucketedDvMaintainer`, `LookupMergeTreeCompactRewriter.notifyRewriteCompactBefore`.


def _changed_vectors(
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
    changes: dict[BucketKey, ChangedVectors] = {}
    with attempt(transaction.attempts_folder, io_options(plan.table.paimon)) as running:
        for unit in plan.units:
            key = unit.partition, unit.bucket
            gone = {file.name for step in unit.rewrites for file in step.files}
            row = next(iter(unit.rows.values()))
            (values,), _ = partition_values(plan.table.paimon, plan.files.slice(row, 1))
            if marked[key] or gone:
                partition = partition_row(unit.partition, partition_schema(plan.table.schema))
                for folder in (INDEX_FOLDER, unit.bucket):  # by `index-file-in-data-file-dir`
                    running.note(partition, [folder])
            name = f"{transaction.file_prefix}index-{running.name_part}{uuid.uuid4()}"
            change = index.changed((values, unit.bucket), marked[key], gone, name)
            if change is not None:
                changes[key] = change
    return changes


def _marked(
    tasks: Sequence[RewriteTask], results: Sequence[Rewritten]
) -> Mapping[BucketKey, Mapping[str, _Rows]]:
    """The rows that are deleted, by bucket and file."""
    buckets = {task.number: (task.partition, task.bucket) for task in tasks}
    marked: dict[BucketKey, dict[str, list[_Rows]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        for name, rows in result.deleted.items():
            marked[buckets[result.number]][name].append(rows)
    merged: Any = defaultdict(dict)
    for key, files in marked.items():
        merged[key] = {name: united_rows(parts) for name, parts in files.items()}
    return merged  # type: ignore[no-any-return]


# The second pick of a writer before it commits, from the files after its first compaction.
#
# A compaction that a statement asks for picks twice: Paimon's writer waits for its compaction, and
# picks again before the commit. Both become one message for each bucket. A file that the first pick
# wrote and the second pick read is in no message; it is deleted at once, since no snapshot names
# it. If the process dies first, the end of the transaction removes the file. Source:
# `MergeTreeWriter.prepareCommit`, `.flushWriteBuffer`, `.updateCompactResult`.


_TASKS_MAX = 1_000_000  # of one plan; their numbers are in the names of files

_Passed = tuple[CommitMessage, Any]
"""The message of a bucket, and the meta of a file or the entry of an index file."""

Rewriting = Callable[[CompactionPlan], Sequence[CommitMessage]]
"""Rewrites the files of a plan, and gives its messages."""


def picked_again(
    plan: CompactionPlan,
    messages: Sequence[CommitMessage],
    scope: CompactionScope,
    rewrite: Rewriting,
) -> tuple[list[CommitMessage], int]:
    """The messages of a plan and of the files picked after it, one for each bucket; and how many
    bytes are rewritten again. Raises what `rewrite` raises."""
    second = _second_plan(plan, messages, scope)
    if second is None:
        return list(messages), 0
    return united_messages(plan.table, messages, rewrite(second)), second.rewritten_bytes


def united_messages(
    table: Table, first: Sequence[CommitMessage], second: Sequence[CommitMessage]
) -> list[CommitMessage]:
    """The messages of two compactions, of which the second follows the first, as those of one.
    Files of the first that the second has read are deleted."""
    later: dict[BucketKey, CommitMessage] = {_key(table, message): message for message in second}
    united: list[CommitMessage] = []
    passed: list[_Passed] = []
    for message in first:
        two = later.pop(_key(table, message), None)
        united.append(message if two is None else _joined(message, two, passed))
    _delete(table, passed)
    return [*united, *later.values()]


def _second_plan(
    plan: CompactionPlan, messages: Sequence[CommitMessage], scope: CompactionScope
) -> CompactionPlan | None:
    """The plan of what is picked after the uncommitted `messages` of a plan; None if nothing is.
    Raises what `plan_compaction` raises."""
    snapshot = read_snapshot(plan.table.paimon, plan.snapshot_id)
    second = plan_compaction(
        plan.table,
        snapshot,
        replace(scope, is_full=False, buckets=frozenset(plan.unit_keys())),
        plan.moment,
        plan.manifests,
        written=(*plan.written, *messages),
    )
    return None if second.is_empty else replace(second, first_task=plan.first_task + _TASKS_MAX)


def _joined(first: CommitMessage, second: CommitMessage, passed: list[_Passed]) -> CommitMessage:
    before = {file.file_name: file for file in first.compact_before}
    after = {file.file_name: file for file in first.compact_after}
    stays = {file.file_name for file in second.compact_after}
    for file in second.compact_before:
        written = after.pop(file.file_name, None)
        if written is None:
            before[file.file_name] = file
        elif file.file_name not in before and file.file_name not in stays:
            passed.append((first, written))
    index_adds, index_deletes = first.compact_index_adds, first.compact_index_deletes
    if second.compact_index_adds or second.compact_index_deletes:
        replaced = {entry.index_file.file_name for entry in second.compact_index_deletes}
        own = {entry.index_file.file_name for entry in index_adds}
        passed += [(first, e) for e in index_adds if e.index_file.file_name in replaced]
        index_adds = [
            *(e for e in index_adds if e.index_file.file_name not in replaced),
            *second.compact_index_adds,
        ]
        index_deletes = [
            *index_deletes,
            *(e for e in second.compact_index_deletes if e.index_file.file_name not in own),
        ]
    return replace(
        first,
        compact_before=list(before.values()),
        compact_after=[*after.values(), *second.compact_after],
        compact_changelog_files=[*first.compact_changelog_files, *second.compact_changelog_files],
        compact_index_adds=index_adds,
        compact_index_deletes=index_deletes,
    )


def _delete(table: Table, passed: Sequence[_Passed]) -> None:
    """Delete unneeded files. Files that can't be deleted stay until the end of the transaction
    removes them, as after a failed attempt."""
    paimon = table.paimon
    for message, file in passed:
        if hasattr(file, "index_file"):
            values = tuple(file.partition.values)
            paths = [paimon.path_factory().bucket_index_path(values, file.bucket, file.index_file)]
        else:
            values = tuple(message.partition)
            paths = [
                str(canonical_data_file_path(paimon, values, message.bucket, name))
                for name in (file.file_name, *(file.extra_files or ()))
            ]
        for path in paths:
            with contextlib.suppress(OSError):
                paimon.file_io.delete(path)


def _key(table: Table, message: CommitMessage) -> BucketKey:
    return bucket_key(table, tuple(message.partition), message.bucket)
