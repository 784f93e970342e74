"""Plans how rows that wait in `bucket-postpone` get their buckets, and makes the commit messages.

All waiting files of a partition are read writer by writer, in the order of the writers' first
files, and each writer's files in their order. So the later of two rows of a key wins. By one commit
of the kind COMPACT, the rows become files on level 0 of the partition's buckets, and the waiting
files are removed. Source: `PostponeUtils`, `SparkPostponeCompactProcedure`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.columnar.merging import KIND, SEQUENCE
from paimon_magics.planning.commits.requests import Transaction
from paimon_magics.planning.options.values import positive_value
from paimon_magics.planning.reads.splits import StoredFile
from paimon_magics.settings import Settings
from paimon_magics.tables.compaction.append_plan import stored_files_of
from paimon_magics.tables.compaction.planning import CompactionScope
from paimon_magics.tables.manifests.columns import creation_instants
from paimon_magics.tables.manifests.live_files import ManifestCache, live_files
from paimon_magics.tables.manifests.partitions import partition_values
from paimon_magics.tables.reading.data_files import FileReader
from paimon_magics.tables.reading.table_files import files_reader
from paimon_magics.tables.splits.stored_files import files_of_partitions
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.bucket_counts import BucketRule, Partition, bucket_counts
from paimon_magics.tables.writing.commit_messages import read_messages, stored_metas
from paimon_magics.tables.writing.own_writers import POSTPONED_BUCKET, postponed_writer_of
from paimon_magics.tables.writing.table_write import write_spec
from paimon_magics.tables.writing.write_spec import WriteSpec

_FIXED = {"postpone.batch-write-fixed-bucket": "true"}


@dataclass(frozen=True)
class PostponedRows:
    """The waiting files (MANIFEST_ENTRIES) of a snapshot, and as tasks read them: the files of one
    writer after the other. `counts` are the numbers of buckets of partitions that have buckets or
    will get buckets, `default_count` is the number for other partitions."""

    table: Table
    snapshot_id: int
    files: pa.Table
    writers: tuple[tuple[StoredFile, ...], ...]
    counts: Mapping[Partition, int]
    default_count: int

    @property
    def size_bytes(self) -> int:
        """The size of all waiting files."""
        return int(pc.sum(self.files["file_size"]).as_py() or 0)

    @property
    def rows(self) -> int:
        """The number of all waiting rows."""
        return int(pc.sum(self.files["row_count"]).as_py() or 0)

    @property
    def partitions(self) -> list[bytes]:
        """The partitions that have waiting rows, serialized."""
        partitions: list[bytes] = pc.unique(self.files["partition"]).to_pylist()
        return partitions

    def partition_bytes(self) -> list[int]:
        """The size of the waiting files of each of `partitions`."""
        sizes: Counter[bytes] = Counter()
        columns = (self.files[name].to_pylist() for name in ("partition", "file_size"))
        for partition, size in zip(*columns, strict=True):
            sizes[partition] += size
        return [sizes[partition] for partition in self.partitions]

    def shares(self, count: int) -> tuple[tuple[StoredFile, ...], ...]:
        """The files in at most `count` groups that follow each other; a writer's files stay
        together."""
        share_bytes = self.size_bytes / max(count, 1)
        groups: list[list[StoredFile]] = []
        size = share_bytes
        for files in self.writers:
            if size >= share_bytes and len(groups) < count:
                groups.append([])
                size = 0
            groups[-1] += files
            size += sum(file.size_bytes for file in files)
        return tuple(map(tuple, groups))

    def reader(self) -> FileReader:
        """What reads the waiting rows, with their kinds."""
        return files_reader(self.table, self.files, system=(SEQUENCE, KIND))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All waiting rows in their order, read in this process."""
        reader = self.reader()
        for files in self.writers:
            for file in files:
                yield from reader.batches(file)

    def spec(self, transaction: Transaction, *, slots: int, settings: Settings) -> WriteSpec:
        """What writes the rows into their buckets. The kinds come with the rows, unless a column
        of the table says them."""
        schema = self.table.schema
        options = tuple({**dict(schema.options), **_FIXED}.items())
        table = replace(self.table, schema=replace(schema, options=options))
        spec = write_spec(table, transaction, overwrite=False, slots=slots, settings=settings)
        if schema.rowkind_field is None:
            spec = spec.with_kinds()
        rule = BucketRule(
            schema.bucket_keys,
            self.default_count,
            schema.bucket_function,
            tuple(self.counts.items()),
        )
        return replace(spec, bucket_rule=rule)

    def messages(self, written: Sequence[bytes]) -> list[CommitMessage]:
        """The messages of one commit: those of the writers, whose files are the result of a
        compaction, and one for each partition that removes what has waited."""
        paimon = self.table.paimon
        added = list(read_messages(paimon, written))
        for message in added:
            message.compact_after, message.new_files = message.new_files, []
            message.compact_changelog_files += message.changelog_files
            message.changelog_files = []
        partitions, of_files = partition_values(paimon, self.files)
        gone = [CommitMessage(partition, POSTPONED_BUCKET, []) for partition in partitions]
        for message in gone:
            message.total_buckets = POSTPONED_BUCKET
        for at, meta in zip(of_files, stored_metas(paimon, self.files), strict=True):
            gone[at].compact_before.append(meta)
        return [*gone, *added]


def plan_postponed(
    table: Table, snapshot: Any, scope: CompactionScope, manifests: ManifestCache, slots: int
) -> PostponedRows | None:
    """The rows of `snapshot`, pypaimon's, that wait for their buckets; None if there are none.
    `slots` buckets are made where no option says how many."""
    files = files_of_partitions(live_files(manifests, snapshot), scope.partitions)
    files = files.filter(pc.field("bucket") == POSTPONED_BUCKET)
    if not files.num_rows:
        return None
    schema = table.schema
    number = schema.stored_option("postpone.default-bucket-num")
    default = slots if number is None else positive_value("postpone.default-bucket-num", number)
    counts = bucket_counts(table, int(snapshot.id))
    target = schema.stored_option("postpone.target-row-num-per-bucket")
    if target is not None:
        rows_max = positive_value("postpone.target-row-num-per-bucket", target)
        partitions, of_files = partition_values(table.paimon, files)
        row_counts: Counter[Partition] = Counter()
        for at, rows in zip(of_files, files["row_count"].to_pylist(), strict=True):
            row_counts[partitions[at]] += rows
        for partition, rows in row_counts.items():
            counts.setdefault(partition, (max(rows, 1) - 1) // rows_max + 1)
    writers = _by_writer(table, files)
    return PostponedRows(table, int(snapshot.id), files, writers, counts, default)


def _by_writer(table: Table, files: pa.Table) -> tuple[tuple[StoredFile, ...], ...]:
    """The files of each writer in the order of their creation, the writers in that of their first
    files: `PostponeUtils.groupPostponeFiles`, which leaves writers unordered."""
    stored = stored_files_of(table, files, {})
    created = pc.fill_null(creation_instants(files), 0).to_pylist()
    places = sorted(range(len(stored)), key=lambda place: created[place])
    writers: dict[str, list[StoredFile]] = {}
    for place in places:
        file = stored[place]
        folder, _, name = file.path.rpartition("/")
        writers.setdefault(f"{folder}/{postponed_writer_of(name)}", []).append(file)
    return tuple(map(tuple, writers.values()))
