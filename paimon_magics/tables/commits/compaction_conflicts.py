"""Checks that a compaction still fits the latest snapshot: Paimon's `ConflictDetection` for commits
of the kind COMPACT.

Every file that it removes must still exist, at its level and with its deletion vector. None of the
files that it adds may exist. Key ranges at levels from 1 on must not overlap after it. In a
data-evolution table files keep their row ids, and files that share rows have all of them in common.
Files that others added at level 0 don't conflict. Each bucket is checked separately, so the other
buckets of the compaction can be committed without it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pypaimon.index.index_file_meta import IndexFileMeta
from pypaimon.manifest.index_manifest_file import IndexManifestFile
from pypaimon.manifest.manifest_list_manager import ManifestListManager
from pypaimon.table.row.generic_row import GenericRowSerializer
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.errors import CompactionConflictError
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.tables.commits.changes import Changes, partition_filter
from paimon_magics.tables.commits.message_checks import file_index
from paimon_magics.tables.manifests.live_files import ManifestCache, undeleted
from paimon_magics.tables.manifests.partitions import partition_text, partition_values
from paimon_magics.tables.splits.bucket_splits import KeyRanks
from paimon_magics.tables.table import Table

_Ints = npt.NDArray[np.int64]

# With more partitions it is cheaper to read all manifests than to test each of them.
_PRUNED_PARTITIONS_MAX = 100
_PLACE = "place"


Bucket = tuple[tuple[Any, ...], int]
"""Partition values and bucket."""


class CompactionConflicts:
    """Checks the attempts of one compaction. `positions` are those of the messages in the
    request."""

    def __init__(
        self, table: Table, messages: Sequence[CommitMessage], positions: Sequence[int]
    ) -> None:
        self._table = table
        self._messages = messages
        self._positions = positions
        self._manifests = ManifestCache(table.paimon)
        buckets = [(tuple(message.partition), message.bucket) for message in messages]
        self._buckets: list[Bucket] = list(dict.fromkeys(buckets))
        places = {bucket: place for place, bucket in enumerate(self._buckets)}
        self._places = [places[bucket] for bucket in buckets]
        self._of_place: list[list[int]] = [[] for _ in self._buckets]
        for at, place in enumerate(self._places):
            self._of_place[place].append(at)

    def find(self, latest: Any, changes: Changes) -> CompactionConflictError | None:
        """The conflict with the latest snapshot, None if there is none."""
        del changes  # the same on every snapshot
        if not self._messages:
            return None
        live = self._live(latest)
        problems = self._missing(live)
        for place, text in self._bucket_numbers(live).items():
            self._note(problems, place, text)
        if self._has_key_ranges():
            for place, text in self._overlaps(live, problems).items():
                self._note(problems, place, text)
        if self._table.schema.data_evolution_enabled:
            compacted = [m for at, m in enumerate(self._messages) if at not in problems]
            places = [p for at, p in enumerate(self._places) if at not in problems]
            for place, text in _row_range_problems(live, places, compacted).items():
                self._note(problems, place, text)
        indexes = _index_problems(
            self._table, latest, self._messages, lambda: self._names_by_bucket(live)
        )
        problems = {**indexes, **problems}
        return self._error(problems) if problems else None

    def roll_back(self, latest: Any, changes: Changes) -> bool:
        """False: a compaction never rolls another one back (`FileStoreCommitImpl.commit`)."""
        return False

    def _live(self, latest: Any) -> pa.Table:
        """The files of the compacted buckets at a snapshot, as manifest entries in columns with one
        more: the place of the file's bucket among the buckets."""
        entries = self._manifests.columns.entries(self._manifests_of(latest))
        values, of_files = partition_values(self._table.paimon, entries)
        numbers = {partition: number for number, partition in enumerate(values)}
        of_key = {
            _key(numbers[partition], bucket): place
            for place, (partition, bucket) in enumerate(self._buckets)
            if partition in numbers
        }
        keys = _key(of_files, np.asarray(entries["bucket"]).astype(np.int64))
        wanted = np.array(sorted(of_key), dtype=np.int64)
        mine = np.isin(keys, wanted)
        places = np.array([of_key[int(key)] for key in wanted], dtype=np.int64)
        of_mine = places[np.searchsorted(wanted, keys[mine])] if len(wanted) else keys[:0]
        entries = entries.filter(pa.array(mine)).append_column(_PLACE, pa.array(of_mine))
        return undeleted(entries) if entries.num_rows else entries

    def _manifests_of(self, latest: Any) -> list[str]:
        """The manifests of a snapshot that may have files of the compacted partitions."""
        if latest is None:
            return []
        metas = ManifestListManager(self._table.paimon).read_all(latest)
        keys = self._table.schema.partition_keys
        partitions = {partition for partition, _ in self._buckets}
        if keys and len(partitions) <= _PRUNED_PARTITIONS_MAX:
            specs = [dict(zip(keys, values, strict=True)) for values in partitions]
            matches = partition_filter(self._table, specs)
            metas = [
                meta
                for meta in metas
                if matches.test_by_simple_stats(
                    meta.partition_stats, meta.num_added_files + meta.num_deleted_files
                )
            ]
        return [meta.file_name for meta in metas]

    def _missing(self, live: pa.Table) -> dict[int, str]:
        """The messages that remove a missing file, or add an existing file."""
        names = {
            file.file_name
            for message in self._messages
            for file in [*message.compact_before, *message.compact_after]
        }
        there = _named(live, names)
        problems: dict[int, str] = {}
        for at, (message, place) in enumerate(zip(self._messages, self._places, strict=True)):
            for file in message.compact_before:
                row = there.get((place, file.file_name, file.level))
                if row is None:
                    problems.setdefault(
                        at, f"the file {file.file_name} is no longer at level {file.level}"
                    )
                elif row["first_row_id"] != file.first_row_id:
                    problems.setdefault(at, f"the rows of {file.file_name} have other ids now")
                elif _index(row) != _index_of(file):
                    problems.setdefault(at, f"the file {file.file_name} has another index now")
            removed = {(file.file_name, file.level) for file in message.compact_before}
            for file in message.compact_after:
                if (file.file_name, file.level) in removed:  # it only gets another index
                    continue
                if (place, file.file_name, file.level) in there:
                    problems.setdefault(
                        at, f"the file {file.file_name} is at level {file.level} already"
                    )
        return problems

    def _bucket_numbers(self, live: pa.Table) -> dict[int, str]:
        """The places of buckets whose partition has another number of buckets than the message."""
        files = live.select([_PLACE, "total_buckets"])
        files = files.filter(pc.greater(files["total_buckets"], 0))
        ends = files.group_by(_PLACE).aggregate(
            [("total_buckets", "min"), ("total_buckets", "max")]
        )
        own: dict[int, int] = {}
        for message, place in zip(self._messages, self._places, strict=True):
            count = message.total_buckets
            own[place] = self._table.paimon.total_buckets if count is None else count
        return {
            row[_PLACE]: f"its partition has {row['total_buckets_max']} buckets, not "
            f"{own[row[_PLACE]]}"
            for row in ends.to_pylist()
            if own[row[_PLACE]] > 0
            and (row["total_buckets_min"], row["total_buckets_max"]) != (own[row[_PLACE]],) * 2
        }

    def _has_key_ranges(self) -> bool:
        schema = self._table.schema
        return schema.is_primary_key_table and not schema.flag("pk-clustering-override")

    def _overlaps(self, live: pa.Table, problems: Mapping[int, str]) -> dict[int, str]:
        """The places of buckets in which two files of a level from 1 on would overlap:
        `ConflictDetection.checkKeyRange`."""
        gone: list[tuple[int, str, int]] = []
        added: list[tuple[int, Any]] = []
        for at, (message, place) in enumerate(zip(self._messages, self._places, strict=True)):
            if at not in problems:
                gone += [(place, file.file_name, file.level) for file in message.compact_before]
                added += [(place, file) for file in message.compact_after if file.level > 0]
        if not added:
            return {}
        touched = np.unique(np.array([place for place, _ in added], dtype=np.int64))
        present = live.filter(
            pc.and_(
                pc.greater(live["level"], 0),
                pc.is_in(live[_PLACE], value_set=pa.array(touched)),
            )
        ).select([_PLACE, "level", "file_name", "min_key", "max_key"])
        removed = set(gone)
        keys = zip(*(present[name].to_pylist() for name in present.column_names[:3]), strict=True)
        stays = [(place, name, level) not in removed for place, level, name in keys]
        columns = {
            _PLACE: [place for place, _ in added],
            "level": [file.level for _, file in added],
            "file_name": [file.file_name for _, file in added],
            "min_key": [GenericRowSerializer.to_bytes(file.min_key) for _, file in added],
            "max_key": [GenericRowSerializer.to_bytes(file.max_key) for _, file in added],
        }
        present = present.filter(pa.array(stays, type=pa.bool_()))
        files = pa.concat_tables([present, pa.table(columns, schema=present.schema)])
        return overlapping_places(files, self._table.schema)

    def _names_by_bucket(self, live: pa.Table) -> Mapping[Bucket, Collection[str]]:
        """The names of all files in each compacted bucket."""
        names: dict[Bucket, set[str]] = {bucket: set() for bucket in self._buckets}
        columns = (live[name].to_pylist() for name in (_PLACE, "file_name"))
        for place, name in zip(*columns, strict=True):
            names[self._buckets[place]].add(name)
        return names

    def _note(self, problems: dict[int, str], place: int, text: str) -> None:
        """Note a problem for all messages of the bucket at a place."""
        for at in self._of_place[place]:
            problems.setdefault(at, text)

    def _error(self, problems: Mapping[int, str]) -> CompactionConflictError:
        first = min(problems)
        partition, bucket = self._buckets[self._places[first]]
        where = partition_text(self._table.schema.partition_keys, partition)
        conflicting = len({self._places[at] for at in problems})
        return CompactionConflictError(
            f"Other commits to `{self._table.name}` changed {conflicting} of the "
            f"{len(self._buckets)} buckets of this compaction. In bucket {bucket}"
            + (f" of the partition {where}, " if where else " ")
            + f"{problems[first]}.",
            tuple(self._positions[at] for at in sorted(problems)),
            hint="Nothing was committed. Compact these buckets again; the others can be committed "
            "without them.",
        )


def _named(live: pa.Table, names: Collection[str]) -> dict[tuple[int, str, int], Mapping[str, Any]]:
    """The files with some names, by place, name and level."""
    wanted = pa.array(sorted(names), type=pa.large_string())
    columns = [
        _PLACE, "file_name", "level", "extra_files", "embedded_file_index", "external_path",
        "first_row_id",
    ]  # fmt: skip
    named = live.filter(pc.is_in(live["file_name"], value_set=wanted)).select(columns)
    return {(row[_PLACE], row["file_name"], row["level"]): row for row in named.to_pylist()}


def _key(partition: Any, bucket: Any) -> Any:
    """One number for a partition's number and a bucket, which may be negative."""
    return partition * 2**32 + bucket + 2**31


def _index(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What identifies a file besides its name and level: `FileEntry.Identifier`."""
    extra, embedded = row["extra_files"], row["embedded_file_index"]
    return tuple(extra or ()), embedded or None, row["external_path"] or None


def _index_of(file: Any) -> tuple[Any, ...]:
    return *file_index(file), file.external_path or None


def overlapping_places(files: pa.Table, schema: TableSchema) -> dict[int, str]:
    """The places of buckets in which the key ranges of two files of a level overlap, with which
    they are. `files` has the columns place, level, file_name, min_key and max_key."""
    ranks = KeyRanks(files, schema)
    place = np.asarray(files[_PLACE]).astype(np.int64)
    level = np.asarray(files["level"]).astype(np.int64)
    order = np.lexsort((ranks.greatest, ranks.least, level, place))
    place, level = place[order], level[order]
    least, greatest = ranks.least[order], ranks.greatest[order]
    same = (place[1:] == place[:-1]) & (level[1:] == level[:-1])
    bad = np.flatnonzero(same & (greatest[:-1] >= least[1:]))
    names = files["file_name"]
    return {
        int(place[at]): f"the keys of the files {names[order[at]]} and {names[order[at + 1]]} "
        f"would overlap at level {level[at]}"
        for at in bad.tolist()[::-1]
    }


# Checks that files of a data-evolution table which share rows have all of them in common.
#
# Another writer may have written new columns for rows of a file that a compaction merges into a
# larger file: then neither file would record where its rows begin. Source: `ConflictDetection.
# checkRowIdRangeConflicts`.


def _row_range_problems(
    live: pa.Table, places: Sequence[int], messages: Sequence[CommitMessage]
) -> dict[int, str]:
    """What is wrong after a compaction, by the place of the bucket. `live` are the manifest entries
    of the buckets' files in the latest snapshot with the column `place`; `places` are those of the
    messages' buckets."""
    gone = {
        (place, file.file_name)
        for place, message in zip(places, messages, strict=True)
        for file in message.compact_before
    }
    added = [
        (place, file.file_name, file.first_row_id, file.row_count)
        for place, message in zip(places, messages, strict=True)
        for file in message.compact_after
    ]
    names = ["place", "file_name", "first_row_id", "row_count"]
    touched = pc.is_in(live["place"], value_set=pa.array(sorted(set(places)), pa.int64()))
    columns = [live.filter(touched)[name].to_pylist() for name in names]
    files = [row for row in zip(*columns, strict=True) if (row[0], row[1]) not in gone] + added
    files = [row for row in files if row[2] is not None and not _is_dedicated(row[1])]
    if not files:
        return {}
    place, first, rows = (np.array([row[at] for row in files], np.int64) for at in (0, 2, 3))
    order = np.lexsort((rows, first, place))
    place, first, rows = place[order], first[order], rows[order]
    # In this order, files with other rows than their neighbor overlap with a neighbor.
    bad = (place[1:] == place[:-1]) & (first[1:] < first[:-1] + rows[:-1])
    bad &= (first[1:] != first[:-1]) | (rows[1:] != rows[:-1])
    problems: dict[int, str] = {}
    for at in np.flatnonzero(bad).tolist():
        first_name, second_name = (files[order[at + step]][1] for step in (0, 1))
        problems.setdefault(
            int(place[at]),
            f"the files {first_name} and {second_name} would share some of their rows",
        )
    return problems


def _is_dedicated(name: str) -> bool:
    return name.endswith(".blob") or ".vector." in name


# Checks that the index files which a compaction replaces, and the deletion vectors that it read,
# are still those of the latest snapshot.
#
# A row that was deleted after the compaction read its file would otherwise come back: Paimon's
# `ConflictDetection.buildDeltaEntriesWithDV`.


def _index_problems(
    table: Table,
    latest: Any,
    messages: Sequence[CommitMessage],
    live_names: Callable[[], Mapping[Bucket, Collection[str]]],
) -> dict[int, str]:
    """What is wrong with the indexes of messages at the latest snapshot (None for none), by the
    place of the message. `live_names` gives the names of all data files in each bucket."""
    manifest = None if latest is None else latest.index_manifest
    if manifest is None and not any(
        m.compact_index_adds or m.compact_index_deletes for m in messages
    ):
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


def _data_files(index_file: IndexFileMeta) -> Collection[str]:
    """The data files with a deletion vector in an index file."""
    if index_file.index_type != IndexManifestFile.DELETION_VECTORS_INDEX:
        return ()
    return [vector.data_file_name for vector in (index_file.dv_ranges or {}).values()]
