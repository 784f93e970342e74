"""Rewrites files of a bucket in a task: sections are merged by key into files of another level.

Memory is bounded by a block of each sorted run and a row group of the file that is written. If the
process dies, files stay that no snapshot names; the transaction's attempt noted their folder, so
that they are removed when it ends. Light to import, because Spark's tasks load it. Sources:
`MergeTreeCompactRewriter`, `DropDeleteReader`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from paimon_magics.columnar.binary_rows import decode_rows
from paimon_magics.columnar.folding import MergeRule, merge_rows
from paimon_magics.columnar.merging import KIND, Groups, is_retract, merge_runs
from paimon_magics.columnar.record_expiry import RecordExpiry
from paimon_magics.faults import reach
from paimon_magics.planning.reads.splits import Section, StoredFile
from paimon_magics.tables.compaction.key_ranges import ALL_KEYS, KeyBounds, rows_within
from paimon_magics.tables.reading.data_files import FileReader
from paimon_magics.tables.writing.attempts import Attempt, attempt, ended_error
from paimon_magics.tables.writing.key_value_files import KeyValueFiles, KeyValueFileWriter
from paimon_magics.tables.writing.new_files import NewFile

__all__ = ["RewriteSpec", "RewriteTask", "RewriteUnits", "Rewritten", "rewrite_all"]

_BLOCK_BYTES = 48 * 2**20  # what the blocks of all runs of a merge hold together
_BLOCK_ROWS_MIN = 4 * 1024
_BLOCK_ROWS_MAX = 256 * 1024
_GROWTH = 4  # how much larger rows are in memory than in files, about


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """One rewrite: sections of a bucket, in the order of their keys, that are merged within
    `bounds` into files of `output_level` in `folder`. `partition` is a serialised `BinaryRow`.
    `share` tasks divide the keys of the sections among them."""

    number: int
    partition: bytes
    bucket: int
    folder: str
    sections: tuple[Section, ...]
    output_level: int
    drops_deletes: bool
    bounds: KeyBounds = ALL_KEYS
    share: int = 1

    @property
    def files(self) -> tuple[StoredFile, ...]:
        """The files of all sections."""
        return tuple(file for section in self.sections for run in section for file in run)

    @property
    def read_bytes(self) -> int:
        """The size of its part of its files, of which others read as much if `share` tasks do."""
        return sum(file.size_bytes for file in self.files) // self.share


@dataclass(frozen=True)
class RewriteSpec:
    """What every task of one compaction must know; small and picklable.

    `files` reads all columns with their kinds and sequence numbers. `outputs` tells by level how
    files are written. `partitions` is the Arrow schema of the partition columns. `stem` begins the
    names of new files, and `attempts_folder` is the stem of the tasks' notes (module `attempts`).
    `expiry` is None for tables whose rows don't expire.
    """

    files: FileReader
    rule: MergeRule
    outputs: Mapping[int, KeyValueFiles]
    partitions: pa.Schema
    stem: str
    attempts_folder: str | None
    io_options: tuple[tuple[str, str], ...] = ()
    expiry: RecordExpiry | None = None

    def __repr__(self) -> str:
        return f"RewriteSpec({self.stem})"  # io_options may hold credentials


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The files that a rewrite wrote."""

    number: int
    files: tuple[NewFile, ...]


@dataclass(frozen=True)
class RewriteUnits:
    """Rewrites divided among the tasks of a job: one after the other in each group."""

    spec: RewriteSpec
    groups: tuple[tuple[RewriteTask, ...], ...]

    @classmethod
    def of(cls, spec: RewriteSpec, tasks: Sequence[RewriteTask], slots: int) -> RewriteUnits:
        """At most `slots` groups with about as much to read."""
        groups: list[list[RewriteTask]] = [[] for _ in range(min(slots, len(tasks)))]
        sizes = [0] * len(groups)
        for task in sorted(tasks, key=lambda one: one.read_bytes, reverse=True):
            least = sizes.index(min(sizes))
            groups[least].append(task)
            sizes[least] += max(task.read_bytes, 1)
        return cls(spec, tuple(map(tuple, groups)))

    @property
    def count(self) -> int:
        """The number of groups."""
        return len(self.groups)

    def run(self, number: int, told: Callable[[int, int], None]) -> list[Rewritten]:
        """Run the rewrites of a group."""
        return rewrite_all(self.spec, self.groups[number], told)


def rewrite_all(
    spec: RewriteSpec, tasks: Sequence[RewriteTask], told: Callable[[int, int], None] | None = None
) -> list[Rewritten]:
    """Run rewrites one after the other, as one attempt. `told` gets the rows and bytes as they are
    read.

    Raises TableDamagedError for files that can't be read, OSError for the store's failures,
    JobError for rows that can't be merged and when the transaction has ended.
    """
    with attempt(spec.attempts_folder, dict(spec.io_options)) as running:
        writers: list[KeyValueFileWriter] = []
        try:
            found = [
                _rewritten(spec, task, running, writers, told or (lambda rows, size: None))
                for task in tasks
            ]
            reach("compaction.written")
            if running is not None and running.is_over():
                raise ended_error()
        except BaseException:
            for writer in writers:
                writer.abort()
            raise
        return found


def _rewritten(
    spec: RewriteSpec,
    task: RewriteTask,
    running: Attempt | None,
    writers: list[KeyValueFileWriter],
    told: Callable[[int, int], None],
) -> Rewritten:
    name = f"{spec.stem}{task.number}"
    if running is not None:
        _note(spec, task, running)
        name = f"{spec.stem}{running.id}-{task.number}"
    writer = KeyValueFileWriter(spec.outputs[task.output_level], task.folder, name)
    writers.append(writer)
    for section in task.sections:
        for rows in merged_section(spec, section, task.bounds):
            told(rows.num_rows, 0)
            if task.drops_deletes:
                rows = _kept(rows, spec.expiry)
            writer.write(rows)
    files = writer.finish()
    told(0, task.read_bytes)
    return Rewritten(task.number, files)


def _note(spec: RewriteSpec, task: RewriteTask, running: Attempt) -> None:
    types = [field.type for field in spec.partitions]
    encoded = pa.array([task.partition], pa.large_binary())
    if types:
        columns = decode_rows(encoded, types)
        partitions = pa.RecordBatch.from_arrays(columns, names=spec.partitions.names)
    else:
        partitions = pa.RecordBatch.from_struct_array(pa.array([{}], type=pa.struct([])))
    running.note(partitions, pa.array([task.bucket], pa.int32()))
    reach("attempt.noted")


def merged_section(
    spec: RewriteSpec, section: Section, bounds: KeyBounds
) -> Iterator[pa.RecordBatch]:
    """The merged rows of a section in the order of their keys, with kinds and sequence numbers."""
    rule = replace(spec.rule, in_key_order=True)
    files = replace(spec.files, batch_rows=_block_rows(section))
    runs = [_run(files, run, rule.order.keys, bounds) for run in section]
    if len(runs) == 1:
        yield from runs[0]
        return

    def merge(groups: Groups) -> Iterator[pa.RecordBatch]:
        return merge_rows(groups, rule)

    yield from merge_runs(runs, rule.order, merge)


def _run(
    files: FileReader, run: Sequence[StoredFile], keys: Sequence[str], bounds: KeyBounds
) -> Iterator[pa.RecordBatch]:
    for file in run:
        for rows in files.batches(file):
            within = rows_within(rows, keys, bounds)
            if within.num_rows:
                yield within


def _block_rows(section: Section) -> int:
    """The rows of a block of each run, so that all blocks together have about `_BLOCK_BYTES`."""
    rows = sum(file.rows for run in section for file in run)
    size_bytes = sum(file.size_bytes for run in section for file in run)
    row_bytes = max(size_bytes * _GROWTH // max(rows, 1), 1)
    wanted = _BLOCK_BYTES // row_bytes // len(section)
    return int(min(max(wanted, _BLOCK_ROWS_MIN), _BLOCK_ROWS_MAX))


def _kept(rows: pa.RecordBatch, expiry: RecordExpiry | None) -> pa.RecordBatch:
    """The rows without retracts and expired ones. Only where nothing older is left, which they
    would hide: Paimon drops expired rows before a merge, and so may bring back an older one."""
    gone = is_retract(np.asarray(rows.column(KIND)))
    if expiry is not None:
        gone |= expiry.expired(rows)
    return rows.filter(pa.array(~gone)) if gone.any() else rows
