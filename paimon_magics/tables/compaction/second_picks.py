"""What a writer picks once more before it commits, from what its first compaction has left.

A compaction that a statement asks for picks twice: Paimon's writer waits for its compaction, and
picks again when it is asked for the commit. Both become one message for each bucket. A file that
the first made and the second read is in no message; it is deleted at once, since no snapshot names
it. If the process dies before, the end of the transaction removes it. Source:
`MergeTreeWriter.prepareCommit`, `.flushWriteBuffer`, `.updateCompactResult`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pypaimon.utils.file_store_path_factory import canonical_data_file_path
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.tables.compaction.planning import (
    CompactionPlan,
    CompactionScope,
    plan_compaction,
)
from paimon_magics.tables.snapshots.latest import read_snapshot
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.commit_messages import BucketKey, bucket_key

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
    """The messages of a plan and of what is picked after it, one for each bucket; and how many
    bytes that rewrites again. Raises what `rewrite` raises."""
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
    """What is picked from the buckets of a plan once it has run, with its `messages`, which are not
    committed; None if nothing is. Raises what `plan_compaction` raises."""
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
    """Delete files that nobody needs. What can't be deleted stays as what is left of a failed
    attempt does, until the transaction's end removes it."""
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
