"""Rewrites files of a bucket in a task: sections are merged by key into files of another level.

Memory is bounded by a block of each sorted run and a row group of the file that is written. If the
process dies, files stay that no snapshot names; the transaction's attempt noted their folder, so
that they are removed when it ends. Light to import, because Spark's tasks load it. Sources:
`MergeTreeCompactRewriter`, `DropDeleteReader`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_magics.columnar.binary_rows import decode_rows
from paimon_magics.columnar.compaction import CompactionRule
from paimon_magics.columnar.folding import MergeRule
from paimon_magics.columnar.row_filters import RecordExpiry
from paimon_magics.faults import reach
from paimon_magics.planning.compaction.steps import balanced
from paimon_magics.planning.options.changelog_producers import NO_CHANGELOG, ChangelogProducer
from paimon_magics.planning.reads.splits import Section, StoredFile
from paimon_magics.tables.compaction.merged_sections import (
    ALL_KEYS,
    KeyBounds,
    Marks,
    SectionReader,
)
from paimon_magics.tables.reading.data_files import FileReader
from paimon_magics.tables.writing.attempts import Attempt, writing_attempt
from paimon_magics.tables.writing.key_value_files import KeyValueFiles, KeyValueFileWriter
from paimon_magics.tables.writing.new_files import NewFile, partition_values_row

Report = Callable[[int, int], None]
"""Gets the rows and bytes as they are read."""


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """One rewrite: sections of a bucket, in the order of their keys, that are merged within
    `bounds` into files of `output_level` in `folder`. `partition` is a serialized `BinaryRow`.
    `share` tasks divide the keys of the sections among them.

    With `looks_up` rows of level 0 are looked up in the runs `above` each section. `changelog` is
    what is written besides. Without `writes` the files stay as they are.
    """

    number: int
    partition: bytes
    bucket: int
    folder: str
    sections: tuple[Section, ...]
    output_level: int
    drops_deletes: bool
    bounds: KeyBounds = ALL_KEYS
    share: int = 1
    looks_up: bool = False
    above: tuple[Section, ...] = ()
    changelog: ChangelogProducer = NO_CHANGELOG
    writes: bool = True

    @property
    def files(self) -> tuple[StoredFile, ...]:
        """The files of all sections."""
        return tuple(file for section in self.sections for run in section for file in run)

    @property
    def read_bytes(self) -> int:
        """The size of the task's part of its files, which `share` tasks divide."""
        return sum(file.size_bytes for file in self.files) // self.share


@dataclass(frozen=True)
class RewriteSpec:
    """The specification for every task of one compaction; small and picklable.

    `files` reads all columns with their kinds and sequence numbers. `outputs` tells by level how
    files are written. `partitions` is the Arrow schema of the partition columns. `stem` begins the
    names of new files, and `attempts_folder` is the stem of the tasks' notes (module `attempts`).
    `expiry` is None for tables whose rows don't expire.
    """

    files: FileReader
    rule: MergeRule
    outputs: Mapping[int, KeyValueFiles]
    changelogs: Mapping[int, KeyValueFiles]
    partitions: pa.Schema
    stems: tuple[str, str]
    attempts_folder: str | None
    io_options: tuple[tuple[str, str], ...] = ()
    expiry: RecordExpiry | None = None
    marks_deletions: bool = False
    unchanged_columns: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        return f"RewriteSpec({self.stems[0]})"  # io_options may hold credentials

    def rule_of(self, task: RewriteTask) -> CompactionRule:
        """The compaction rule for the rows of a task."""
        return CompactionRule(
            merge=self.rule,
            output_level=task.output_level,
            drops_deletes=task.drops_deletes,
            looks_up=task.looks_up,
            changelog=task.changelog,
            marks_deletions=task.looks_up and self.marks_deletions,
            unchanged_columns=self.unchanged_columns,
        )


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The files that a rewrite wrote, and rows of other files, by name, that it deletes."""

    number: int
    files: tuple[NewFile, ...]
    changelog_files: tuple[NewFile, ...] = ()
    deleted: Mapping[str, npt.NDArray[np.int64]] = field(default_factory=dict)


@dataclass(frozen=True)
class RewriteUnits:
    """Rewrites divided among the tasks of a job: one after the other in each group."""

    spec: RewriteSpec
    groups: tuple[tuple[RewriteTask, ...], ...]

    @classmethod
    def of(cls, spec: RewriteSpec, tasks: Sequence[RewriteTask], slots: int) -> RewriteUnits:
        """At most `slots` groups with about as much to read."""
        return cls(spec, balanced(tasks, lambda task: task.read_bytes, slots))

    @property
    def count(self) -> int:
        """The number of groups."""
        return len(self.groups)

    def run(self, number: int, report: Report) -> list[Rewritten]:
        """Run the rewrites of a group."""
        return rewrite_all(self.spec, self.groups[number], report)


def rewrite_all(
    spec: RewriteSpec, tasks: Sequence[RewriteTask], report: Report | None = None
) -> list[Rewritten]:
    """Run rewrites one after the other, as one attempt. `report` gets the rows and bytes as they
    are read.

    Raises TableDamagedError for files that can't be read, OSError for the store's failures,
    JobError for rows that can't be merged and when the transaction has ended.
    """
    report = report or (lambda rows, size_bytes: None)
    with writing_attempt(spec.attempts_folder, spec.io_options, "compaction.written") as running:
        return [_rewritten(spec, task, running, report) for task in tasks]


def _rewritten(spec: RewriteSpec, task: RewriteTask, running: Attempt, report: Report) -> Rewritten:
    if running.id:
        running.note(partition_row(task.partition, spec.partitions), [task.bucket])
        reach("attempt.noted")
    names = [f"{stem}{running.name_part}{task.number}" for stem in spec.stems]
    writer = KeyValueFileWriter(spec.outputs[task.output_level], task.folder, names[0])
    running.writers.append(writer)
    changes = None
    if task.changelog.of_compactions:
        changes = KeyValueFileWriter(spec.changelogs[task.output_level], task.folder, names[1])
        running.writers.append(changes)
    marks = Marks()
    reader = SectionReader(spec.files, spec.rule_of(task), task.bounds)
    for place, section in enumerate(task.sections):
        above = task.above[place] if task.above else ()
        for part in reader.compacted(section, above, marks):
            report(part.rows.num_rows, 0)
            if task.writes:
                writer.write(_unexpired(part.rows, task, spec.expiry))
            if changes is not None and part.changelog is not None:
                changes.write(part.changelog)
    files = writer.finish()
    report(0, task.read_bytes)
    return Rewritten(task.number, files, () if changes is None else changes.finish(), marks.rows())


def partition_row(encoded: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """The partition columns of a serialized partition, as one row."""
    rows = pa.array([encoded], pa.large_binary())
    columns = decode_rows(rows, [field.type for field in schema]) if schema.names else []
    return partition_values_row(schema.names, columns)


def _unexpired(
    rows: pa.RecordBatch, task: RewriteTask, expiry: RecordExpiry | None
) -> pa.RecordBatch:
    """The rows without expired ones, unless they may hide older rows. Paimon drops expired rows
    before a merge, and so may bring back an older one."""
    if expiry is None or not task.drops_deletes:
        return rows
    gone = expiry.expired(rows)
    return rows.filter(pa.array(~gone)) if gone.any() else rows
