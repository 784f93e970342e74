"""Builds the file indexes of files that exist, in a Spark task or in a thread.

Light to import, because Spark's tasks load it. Each file is read once, its deleted rows too: an
index counts the rows as they lie in the file. The data file itself stays as it is. If the process
dies, index files stay that no snapshot names; the transaction's attempt noted their folders, so
that they are removed when it ends. Source: `FileIndexProcessor`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from paimon_magics.planning.compaction.shares import balanced
from paimon_magics.planning.reads.splits import StoredFile
from paimon_magics.planning.writes.index_rules import FileIndexes
from paimon_magics.tables.compaction.rewriting import partition_row
from paimon_magics.tables.reading.data_files import FileReader
from paimon_magics.tables.writing.attempts import attempt, ended_error
from paimon_magics.tables.writing.file_indexes import FileIndexWriter, StoredIndex
from paimon_magics.tables.writing.new_file_sinks import FileCreation

__all__ = ["IndexRewrite", "IndexUnit", "IndexUnits", "IndexedFile"]

Told = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class IndexUnit:
    """A file that gets new indexes. `row` is its position in the plan; its index file, if it must
    have one, lies in `folder`, beside the file. `partition` is a serialised `BinaryRow`."""

    row: int
    partition: bytes
    bucket: int
    folder: str
    file: StoredFile

    @property
    def size_bytes(self) -> int:
        """The size of the file."""
        return self.file.size_bytes


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """Where the index of the file at the position `row` lies."""

    row: int
    index: StoredIndex


@dataclass(frozen=True)
class IndexRewrite:
    """Indexes files; small and picklable. `indexes` are those of files of a schema, by its id, in
    that schema's columns. `readers` read them. `stem` begins the names of index files."""

    readers: Mapping[int, FileReader]
    indexes: Mapping[int, FileIndexes]
    partitions: pa.Schema
    creation: FileCreation
    stem: str
    attempts_folder: str | None
    io_options: tuple[tuple[str, str], ...]

    def __repr__(self) -> str:
        return f"IndexRewrite({self.stem})"  # io_options may hold credentials

    def __call__(self, unit: IndexUnit, told: Told | None = None) -> IndexedFile:
        """Index one file. Raises TableDamagedError for a file that can't be read, ValueError with
        the column's name for a value that an index can't hold, OSError for the store's failures,
        JobError when the transaction has ended."""
        schema_id = unit.file.schema_id
        names = [one.name for one in self.readers[schema_id].wanted]
        index = FileIndexWriter(self.indexes[schema_id], names)
        if names:
            for batch in self.readers[schema_id].batches(replace(unit.file, deletions=None)):
                index.add(batch)
                if told is not None:
                    told(batch.num_rows, 0)
        if told is not None:
            told(0, unit.size_bytes)
        written: list[str] = []
        with attempt(self.attempts_folder, dict(self.io_options)) as running:
            attempt_id = ""
            if running is not None:
                running.note(
                    partition_row(unit.partition, self.partitions),
                    pa.array([unit.bucket], pa.int32()),
                )
                attempt_id = f"{running.id}-"

            def write(name: str, body: bytes) -> None:
                path = f"{unit.folder}/{name}"
                written.append(path)
                with contextlib.closing(self.creation.open(path)) as sink:
                    sink.write(body)

            try:
                stored = index.finish(f"{self.stem}{attempt_id}{unit.row}", write)
                if running is not None and running.is_over():
                    raise ended_error()
            except BaseException:
                for path in written:
                    self.creation.delete(path)
                raise
        return IndexedFile(unit.row, stored)


@dataclass(frozen=True)
class IndexUnits:
    """Files divided among the tasks of a job: one after the other in each group."""

    rewrite: IndexRewrite
    groups: tuple[tuple[IndexUnit, ...], ...]

    @classmethod
    def of(cls, rewrite: IndexRewrite, units: Sequence[IndexUnit], slots: int) -> IndexUnits:
        """At most `slots` groups with about as much to read."""
        return cls(rewrite, balanced(units, lambda unit: unit.size_bytes, slots))

    @property
    def count(self) -> int:
        """The number of groups."""
        return len(self.groups)

    def run(self, number: int, told: Told) -> list[IndexedFile]:
        """Index the files of a group."""
        return [self.rewrite(unit, told) for unit in self.groups[number]]
