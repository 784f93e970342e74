"""Checks that a compaction still fits the latest snapshot: Paimon's `ConflictDetection` for commits
of the kind COMPACT.

Every file that it removes must still be there, at its level and with its deletion vector; of the
files that it adds none may be there; and key ranges at levels from 1 on must not overlap after it.
In a data-evolution table files keep their row ids, and files that share rows have all of them in
common. Files that others added at level 0 are no conflict. Each bucket is judged by itself, so that
the others of the compaction can be committed without it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pypaimon.manifest.manifest_list_manager import ManifestListManager
from pypaimon.table.row.generic_row import GenericRowSerializer
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.errors import CompactionConflictError
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.tables.commits.changes import Changes, partition_filter
from paimon_magics.tables.commits.compacted_indexes import Bucket, index_problems
from paimon_magics.tables.commits.row_ranges import row_range_problems
from paimon_magics.tables.manifests.live_files import ManifestCache, undeleted
from paimon_magics.tables.manifests.partition_values import partition_values
from paimon_magics.tables.splits.bucket_splits import KeyRanks
from paimon_magics.tables.table import Table

__all__ = ["CompactionConflicts", "overlapping_places"]

_Ints = npt.NDArray[np.int64]

# With more partitions it is cheaper to read all manifests than to test each of them.
_PRUNED_PARTITIONS_MAX = 100
_PLACE = "place"


@dataclass(frozen=True, slots=True)
class _Live:
    """The files of the compacted buckets in the latest snapshot, as manifest entries in columns
    with one more: the place of the file's bucket among the buckets."""

    files: pa.Table

    def named(self, names: Collection[str]) -> dict[tuple[int, str, int], Mapping[str, Any]]:
        """The files with some names, by place, name and level."""
        wanted = pa.array(sorted(names), type=pa.large_string())
        columns = [
            "file_name", "level", "extra_files", "embedded_file_index", "external_path",
            "first_row_id",
        ]  # fmt: skip
        found = self.files.filter(pc.is_in(self.files["file_name"], value_set=wanted))
        rows = found.select([_PLACE, *columns]).to_pylist()
        return {(row[_PLACE], row["file_name"], row["level"]): row for row in rows}


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
        live = _Live(self._live(latest))
        problems = self._missing(live)
        for place, text in self._bucket_numbers(live).items():
            self._note(problems, place, text)
        if self._has_key_ranges():
            for place, text in self._overlaps(live, problems).items():
                self._note(problems, place, text)
        if self._table.schema.data_evolution_enabled:
            compacted = [m for at, m in enumerate(self._messages) if at not in problems]
            places = [p for at, p in enumerate(self._places) if at not in problems]
            for place, text in row_range_problems(live.files, places, compacted).items():
                self._note(problems, place, text)
        indexes = index_problems(
            self._table, latest, self._messages, lambda: self._names_by_bucket(live)
        )
        problems = {**indexes, **problems}
        return self._error(problems) if problems else None

    def roll_back(self, latest: Any, changes: Changes) -> bool:
        """False: a compaction never rolls another one back (`FileStoreCommitImpl.commit`)."""
        return False

    def _live(self, latest: Any) -> pa.Table:
        """The files of the compacted buckets at a snapshot, with the places of their buckets."""
        entries = self._manifests.columns.entries(self._manifests_of(latest))
        values, of_files = partition_values(self._table.paimon, entries)
        found = {partition: number for number, partition in enumerate(values)}
        of_key = {
            _key(found[partition], bucket): place
            for place, (partition, bucket) in enumerate(self._buckets)
            if partition in found
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

    def _missing(self, live: _Live) -> dict[int, str]:
        """The messages that remove a file that is gone, or add one that is there."""
        names = {
            file.file_name
            for message in self._messages
            for file in [*message.compact_before, *message.compact_after]
        }
        there = live.named(names)
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

    def _bucket_numbers(self, live: _Live) -> dict[int, str]:
        """The places of buckets whose partition has another number of buckets than the message."""
        files = live.files.select([_PLACE, "total_buckets"])
        files = files.filter(pc.greater(files["total_buckets"], 0))
        ends = files.group_by(_PLACE).aggregate(
            [("total_buckets", "min"), ("total_buckets", "max")]
        )
        own: dict[int, int] = {}
        for message, place in zip(self._messages, self._places, strict=True):
            given = message.total_buckets
            own[place] = self._table.paimon.total_buckets if given is None else given
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

    def _overlaps(self, live: _Live, problems: Mapping[int, str]) -> dict[int, str]:
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
        kept = live.files.filter(
            pc.and_(
                pc.greater(live.files["level"], 0),
                pc.is_in(live.files[_PLACE], value_set=pa.array(touched)),
            )
        ).select([_PLACE, "level", "file_name", "min_key", "max_key"])
        removed = set(gone)
        keys = zip(*(kept[name].to_pylist() for name in kept.column_names[:3]), strict=True)
        stays = [(place, name, level) not in removed for place, level, name in keys]
        columns = {
            _PLACE: [place for place, _ in added],
            "level": [file.level for _, file in added],
            "file_name": [file.file_name for _, file in added],
            "min_key": [GenericRowSerializer.to_bytes(file.min_key) for _, file in added],
            "max_key": [GenericRowSerializer.to_bytes(file.max_key) for _, file in added],
        }
        kept = kept.filter(pa.array(stays, type=pa.bool_()))
        files = pa.concat_tables([kept, pa.table(columns, schema=kept.schema)])
        return overlapping_places(files, self._table.schema)

    def _names_by_bucket(self, live: _Live) -> Mapping[Bucket, Collection[str]]:
        """The names of all files in each compacted bucket."""
        found: dict[Bucket, set[str]] = {bucket: set() for bucket in self._buckets}
        columns = (live.files[name].to_pylist() for name in (_PLACE, "file_name"))
        for place, name in zip(*columns, strict=True):
            found[self._buckets[place]].add(name)
        return found

    def _note(self, problems: dict[int, str], place: int, text: str) -> None:
        """Note a problem for all messages of the bucket at a place."""
        for at in self._of_place[place]:
            problems.setdefault(at, text)

    def _error(self, problems: Mapping[int, str]) -> CompactionConflictError:
        first = min(problems)
        partition, bucket = self._buckets[self._places[first]]
        keys = self._table.schema.partition_keys
        where = ", ".join(f"{key} = {value}" for key, value in zip(keys, partition, strict=True))
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


def _key(partition: Any, bucket: Any) -> Any:
    """One number for a partition's number and a bucket, which may be negative."""
    return partition * 2**32 + bucket + 2**31


def _index(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What identifies a file besides its name and level: `FileEntry.Identifier`."""
    extra, embedded = row["extra_files"], row["embedded_file_index"]
    return tuple(extra or ()), embedded or None, row["external_path"] or None


def _index_of(file: Any) -> tuple[Any, ...]:
    return tuple(file.extra_files or ()), file.embedded_index or None, file.external_path or None


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
