"""The commit messages of a compaction: one for each bucket, whatever number of tasks wrote it.

Files that were read come before files that were written. An upgraded file is in both, on its old
and its new level: it keeps its name. Source: `MergeTreeWriter.drainIncrement`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.planning.commits.requests import Transaction
from paimon_magics.tables.compaction.planning import BucketKey, CompactionPlan
from paimon_magics.tables.compaction.rewriting import RewriteTask, Rewritten
from paimon_magics.tables.compaction.units import BucketUnit
from paimon_magics.tables.compaction.vectors import changed_vectors
from paimon_magics.tables.manifests.partition_values import partition_values
from paimon_magics.tables.writing.data_file_metas import meta_of_new_file, stored_metas
from paimon_magics.tables.writing.deletion_vector_files import ChangedVectors

__all__ = ["compaction_messages"]


def compaction_messages(
    plan: CompactionPlan,
    tasks: Sequence[RewriteTask],
    results: Sequence[Rewritten],
    transaction: Transaction,
) -> list[CommitMessage]:
    """The messages of a compaction whose `tasks` have the `results`. Writes the index files of the
    deletion vectors that it changes; raises as `changed_vectors`."""
    vectors = changed_vectors(plan, tasks, results, transaction)
    written: dict[BucketKey, list[Rewritten]] = defaultdict(list)
    of_task = {task.number: (task.partition, task.bucket) for task in tasks}
    for one in sorted(results, key=lambda result: result.number):
        written[of_task[one.number]].append(one)
    return [
        _message(plan, unit, written[unit.partition, unit.bucket], vectors) for unit in plan.units
    ]


def _message(
    plan: CompactionPlan,
    unit: BucketUnit,
    written: Sequence[Rewritten],
    vectors: Mapping[BucketKey, ChangedVectors],
) -> CommitMessage:
    paimon = plan.table.paimon
    changed = [file.name for step in unit.rewrites for file in step.files]
    changed += [step.file.name for step in unit.upgrades]
    rows = pa.array([unit.rows[name] for name in changed], pa.int64())
    before = plan.files.take(rows)
    metas = dict(zip(changed, stored_metas(paimon, before), strict=True))
    values, _ = partition_values(paimon, before.slice(0, 1))
    upgraded = [
        replace(metas[step.file.name], level=unit.pick.output_level) for step in unit.upgrades
    ]
    vector = vectors.get((unit.partition, unit.bucket))
    return CommitMessage(
        partition=values[0],
        bucket=unit.bucket,
        new_files=[],
        total_buckets=unit.total_buckets,
        compact_before=list(metas.values()),
        compact_after=[
            *(meta_of_new_file(paimon, file) for one in written for file in one.files),
            *upgraded,
        ],
        compact_changelog_files=[
            meta_of_new_file(paimon, file) for one in written for file in one.changelog_files
        ],
        compact_index_adds=[] if vector is None else list(vector.adds),
        compact_index_deletes=[] if vector is None else list(vector.deletes),
    )
