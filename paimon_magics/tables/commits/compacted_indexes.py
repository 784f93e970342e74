"""Checks that the index files which a compaction replaces, and the deletion vectors that it read,
are still those of the latest snapshot.

A row that was deleted after the compaction read its file would otherwise come back: Paimon's
`ConflictDetection.buildDeltaEntriesWithDV`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from pypaimon.index.index_file_meta import IndexFileMeta
from pypaimon.manifest.index_manifest_file import IndexManifestFile
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.tables.table import Table

__all__ = ["Bucket", "index_problems"]

Bucket = tuple[tuple[Any, ...], int]
"""Partition values and bucket."""


def index_problems(
    table: Table,
    latest: Any,
    messages: Sequence[CommitMessage],
    live_names: Callable[[], Mapping[Bucket, Collection[str]]],
) -> dict[int, str]:
    """What is wrong with the indexes of messages at the latest snapshot (None for none), by the
    place of the message. `live_names` gives the names of all data files in each bucket."""
    manifest = None if latest is None else latest.index_manifest
    if manifest is None and not any(_changes_index(message) for message in messages):
        return {}
    current = [] if manifest is None else IndexManifestFile(table.paimon).read(manifest)
    names = {entry.index_file.file_name for entry in current}
    vectors = {
        (tuple(entry.partition.values), entry.bucket, data_file): entry.index_file.file_name
        for entry in current
        for data_file in _data_files(entry.index_file)
    }
    problems = {}
    for at, message in enumerate(messages):
        problem = _problem(message, names, vectors, live_names)
        if problem is not None:
            problems[at] = problem
    return problems


def _problem(
    message: CommitMessage,
    current: Collection[str],
    vectors: Mapping[tuple[tuple[Any, ...], int, str], str],
    live_names: Callable[[], Mapping[Bucket, Collection[str]]],
) -> str | None:
    bucket = (tuple(message.partition), message.bucket)
    replaced = {entry.index_file.file_name for entry in message.compact_index_deletes}
    for name in sorted(replaced):
        if name not in current:
            return f"the index file {name} is no longer there"
    after = {file.file_name for file in message.compact_after}
    removed = {file.file_name for file in message.compact_before} - after
    added = {name for entry in message.compact_index_adds for name in _data_files(entry.index_file)}
    for name in sorted(removed | added):
        vector = vectors.get((*bucket, name))
        if vector is not None and vector not in replaced:
            return f"rows of the file {name} were deleted since: {vector} has its deletion vector"
    if added:
        lost = added - after - (set(live_names()[bucket]) - removed)
        if lost:
            return f"the file {min(lost)}, which gets a deletion vector, is not there"
    return None


def _changes_index(message: CommitMessage) -> bool:
    return bool(message.compact_index_adds or message.compact_index_deletes)


def _data_files(index_file: IndexFileMeta) -> Collection[str]:
    """The data files with a deletion vector in an index file."""
    if index_file.index_type != IndexManifestFile.DELETION_VECTORS_INDEX:
        return ()
    return [vector.data_file_name for vector in (index_file.dv_ranges or {}).values()]
