"""Moves keys of a table with dynamic buckets to other buckets, without a change of its rows.

A streaming job of another engine reads the hash indexes only when it starts. If another writer adds
a key later, the job does not know the key's bucket and chooses its own. So the table adapts to the
job. A COMPACT commit adds the merged rows of such keys to the job's bucket at level 0, with a
sequence number below those of the job's rows. It adds deletions of them to the old bucket at level
0, with a number above all others there. Their hashes go from index to index. A hash moves with all
of its keys, since a bucket is chosen by hash. No file is replaced, so no compaction conflicts with
a move.

The rows of a bucket are read in the order of their keys, block by block. If the process dies, files
stay that no snapshot names; the transaction's attempt noted their folders.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pypaimon.manifest.index_manifest_entry import IndexManifestEntry
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.columnar.bucket_hash import binary_row_hash
from paimon_magics.columnar.compaction import CompactionRule
from paimon_magics.columnar.merging import KIND, SEQUENCE
from paimon_magics.faults import reach
from paimon_magics.planning.commits.requests import Transaction
from paimon_magics.planning.compaction.keyed_tables import Moment
from paimon_magics.planning.reads import views
from paimon_magics.tables.commits.dynamic_keys import hash_entries, write_index_file
from paimon_magics.tables.compaction.merged_sections import ALL_KEYS, Marks, SectionReader
from paimon_magics.tables.compaction.planning import (
    CompactionPlan,
    CompactionScope,
    partition_schema,
    plan_compaction,
)
from paimon_magics.tables.compaction.rewriting import partition_row
from paimon_magics.tables.compaction.units import BucketUnit
from paimon_magics.tables.manifests.hash_indexes import Bucket, HashIndexes, MisplacedKeys
from paimon_magics.tables.manifests.names import DELETE
from paimon_magics.tables.schema.merge_rule import merge_rule
from paimon_magics.tables.stores.s3_access import io_options
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.attempts import Attempt, writing_attempt
from paimon_magics.tables.writing.commit_messages import bucket_key, meta_of_new_file
from paimon_magics.tables.writing.dynamic_buckets import INDEX_FOLDER
from paimon_magics.tables.writing.key_value_files import KeyValueFileWriter, level_files
from paimon_magics.tables.writing.new_files import bucket_folder

_Hashes = npt.NDArray[np.int32]
_TARGETS_MAX = 8  # so many files are open at a time; a bucket is read again for more


@dataclass(frozen=True)
class KeyMoves:
    """Keys that go from bucket to bucket. `moves` are those that the snapshot's index still has
    where they were found; `numbers` has the sequence number of moved rows in each target;
    `entries` and `hashes` are the index of the snapshot."""

    table: Table
    snapshot_id: int
    plan: CompactionPlan
    moves: tuple[MisplacedKeys, ...]
    numbers: Mapping[Bucket, int]
    entries: Mapping[Bucket, Any]
    hashes: Mapping[Bucket, _Hashes]

    def messages(self, transaction: Transaction, go_on: Callable[[], None]) -> list[CommitMessage]:
        """Write the files of the moves, and return a message for each bucket. `go_on` is called
        again and again. Raises JobError when the transaction has ended, TableDamagedError and
        OSError as reading does."""
        folder = transaction.attempts_folder
        with writing_attempt(folder, io_options(self.table.paimon)) as running:
            return self._written(transaction, running, go_on)

    def _written(
        self, transaction: Transaction, running: Attempt, go_on: Callable[[], None]
    ) -> list[CommitMessage]:
        stem = f"{transaction.file_prefix}data-{running.name_part}"
        files: dict[Bucket, list[Any]] = defaultdict(list)
        totals: dict[Bucket, int] = {}
        units = {(unit.partition, unit.bucket): unit for unit in self.plan.units}
        for source, moves in self._by_source().items():
            unit = units.get(bucket_key(self.table, *source))
            for start in range(0, len(moves), _TARGETS_MAX) if unit is not None else ():
                assert unit is not None
                part = moves[start : start + _TARGETS_MAX]
                buckets = [source, *map(_target, part)]
                if running.id:
                    partition = partition_row(unit.partition, partition_schema(self.table.schema))
                    for number in [INDEX_FOLDER, *(bucket for _, bucket in buckets)]:
                        running.note(partition, [number])
                    reach("attempt.noted")
                writers = [self._writer(bucket, running, stem) for bucket in buckets]
                self._write(unit, part, writers, go_on)
                for bucket, writer in zip(buckets, writers, strict=True):
                    totals[bucket] = unit.total_buckets
                    files[bucket] += [
                        meta_of_new_file(self.table.paimon, replace(file, is_compacted=False))
                        for file in writer.finish()
                    ]
        prefix = f"{transaction.file_prefix}index-{running.name_part}"
        return [
            self._message(bucket, files[bucket], totals.get(bucket), hashes, prefix)
            for bucket, hashes in self._indexes_after().items()
        ]

    def _by_source(self) -> Mapping[Bucket, list[MisplacedKeys]]:
        moves: dict[Bucket, list[MisplacedKeys]] = defaultdict(list)
        for move in self.moves:
            moves[_source(move)].append(move)
        return moves

    def _indexes_after(self) -> Mapping[Bucket, _Hashes]:
        """The hashes of every bucket that the moves change."""
        after: dict[Bucket, _Hashes] = {}
        for move in self.moves:
            source, target = _source(move), _target(move)
            left = after.get(source, self.hashes[source])
            after[source] = np.setdiff1d(left, move.hashes)
            known = after.get(target, self.hashes.get(target, left[:0]))
            after[target] = np.union1d(known, move.hashes)
        return after

    def _message(
        self,
        bucket: Bucket,
        files: Sequence[Any],
        total_buckets: int | None,
        hashes: _Hashes,
        prefix: str,
    ) -> CommitMessage:
        before = self.entries.get(bucket)
        message = CommitMessage(bucket[0], bucket[1], [], total_buckets=total_buckets)
        message.compact_after += files
        if before is not None:
            message.compact_index_deletes.append(
                IndexManifestEntry(DELETE, before.partition, bucket[1], before.index_file)
            )
        if len(hashes):
            _, entry = write_index_file(self.table, bucket, hashes, prefix)
            message.compact_index_adds.append(entry)
        return message

    def _writer(self, bucket: Bucket, running: Attempt, stem: str) -> KeyValueFileWriter:
        """A writer of files of a bucket on level 0."""
        name = f"{stem}{len(running.writers)}"
        folder = bucket_folder(self.table.paimon, *bucket)
        writer = KeyValueFileWriter(level_files(self.table, 0), folder, name)
        running.writers.append(writer)
        return writer

    def _write(
        self,
        unit: BucketUnit,
        moves: Sequence[MisplacedKeys],
        writers: Sequence[KeyValueFileWriter],
        go_on: Callable[[], None],
    ) -> None:
        """Read a bucket. Write the rows that move to other buckets with the last `writers`, and
        their deletions with the first writer."""
        deletions, *targets = writers
        last = max(file.max_sequence_number for file in unit.stored.values())
        for rows in self._rows(unit):
            go_on()
            keys = self.table.schema.trimmed_primary_keys
            hashes = binary_row_hash([rows.column(key) for key in keys])
            gone = np.zeros(len(hashes), dtype=bool)
            for move, writer in zip(moves, targets, strict=True):
                goes = np.isin(hashes, move.hashes)
                if goes.any():
                    number = self.numbers[_target(move)]
                    writer.write(_with(rows.filter(pa.array(goes)), SEQUENCE, number))
                    gone |= goes
            if gone.any():
                deleted = _with(rows.filter(pa.array(gone)), KIND, views.DELETE)
                deletions.write(_with(deleted, SEQUENCE, last + 1))

    def _rows(self, unit: BucketUnit) -> Iterator[pa.RecordBatch]:
        """The merged rows of a bucket, in the order of their keys."""
        rule = CompactionRule(
            merge=merge_rule(self.table.schema),
            output_level=unit.pick.output_level,
            drops_deletes=True,
        )
        section = tuple(
            tuple(unit.stored[file.name] for file in run.files) for run in unit.pick.runs
        )
        reader = SectionReader(self.plan.reader, rule, ALL_KEYS)
        for part in reader.compacted(section, (), Marks()):
            if part.rows.num_rows:
                yield part.rows


def plan_key_moves(
    table: Table,
    snapshot: Any,
    misplaced: Sequence[MisplacedKeys],
    numbers: Mapping[Bucket, int],
    indexes: HashIndexes,
) -> KeyMoves | None:
    """Plan to move keys on a snapshot, pypaimon's; None if all of them have left the buckets where
    they were seen. `numbers` has a sequence number below those of the rows to come, for each
    target."""
    stored = hash_entries(table, snapshot.index_manifest)
    entries = {(tuple(entry.partition.values), entry.bucket): entry for entry in stored}
    hashes = indexes.hashes_in(table, stored)
    moves = []
    for move in misplaced:
        present = np.intersect1d(move.hashes, hashes.get(_source(move), move.hashes[:0]))
        if len(present):
            moves.append(replace(move, hashes=present))
    if not moves:
        return None
    sources = frozenset(bucket_key(table, *_source(move)) for move in moves)
    scope = CompactionScope(is_full=True, buckets=sources, takes_all=True)
    plan = plan_compaction(table, snapshot, scope, Moment(0, 0))
    return KeyMoves(table, int(snapshot.id), plan, tuple(moves), numbers, entries, hashes)


def _source(move: MisplacedKeys) -> Bucket:
    return move.partition, move.present_in


def _target(move: MisplacedKeys) -> Bucket:
    return move.partition, move.bucket


def _with(rows: pa.RecordBatch, name: str, value: int) -> pa.RecordBatch:
    """The rows with one value in a system column."""
    place = rows.schema.get_field_index(name)
    field = rows.schema.field(place)
    return rows.set_column(place, field, pa.repeat(pa.scalar(value, field.type), rows.num_rows))
