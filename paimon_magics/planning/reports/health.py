"""Findings about a table's layout, from sums over its files and from its options.

Pure: figures in, findings out. The options mean what Paimon's `CoreOptions` says and, for
compaction, `UniversalCompaction` and `AppendCompactCoordinator`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from paimon_magics.planning.formatting import count_text, size_text
from paimon_magics.planning.options.values import double_value, integer_value, memory_size_bytes
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.clauses.names import table_text, text_literal
from paimon_magics.statements.statement import TableName

_TARGET_BYTES = {True: 128 * 1024 * 1024, False: 256 * 1024 * 1024}
"""The default of `target-file-size`, by whether a table has a primary key."""
_SKEW_RATIO = 4.0
_BUCKET_BYTES_MIN = 16 * 1024 * 1024
_BUCKET_BYTES_MAX = 8 * 1024 * 1024 * 1024
_BUCKET_BYTES_USUAL = 200 * 1024 * 1024
_BUCKETS_MANY = 100
"""With fewer buckets small ones are no problem: a table that begins small may grow."""
_SMALL_SHARE_SERIOUS = 0.5
_SMALL_FILES_SERIOUS = 100
"""A read opens fewer small files in a moment, whatever their share."""
_PARTITIONS_MANY = 100
_PARTITION_BYTES_MIN = 16 * 1024 * 1024


class Severity(IntEnum):
    """How urgent a finding is."""

    GOOD = 0
    NOTICE = 1
    SERIOUS = 2

    @property
    def word(self) -> str:
        """The word that is shown."""
        return ("good", "notice", "serious")[self]


@dataclass(frozen=True, slots=True)
class LayoutRules:
    """The layout rules in a table's options; sizes in bytes.

    Compaction merges files below `small_below_bytes`. Compacting engines compact a bucket with
    `run_trigger` sorted runs, and block writers in a bucket with `run_stop`. An append table is
    compacted once a partition has `files_min` small files.
    """

    target_bytes: int
    small_below_bytes: int
    run_trigger: int
    run_stop: int
    files_min: int
    buckets: int
    is_primary_key_table: bool

    @classmethod
    def of(cls, schema: TableSchema) -> LayoutRules:
        """Return the rules of a table. Raises InvalidTableError for values that can't be read."""
        keyed = schema.is_primary_key_table
        target_bytes = schema.parsed("target-file-size", memory_size_bytes, _TARGET_BYTES[keyed])
        ratio = schema.parsed("compaction.small-file-ratio", double_value, 0.7)
        trigger = schema.parsed("num-sorted-run.compaction-trigger", integer_value, 5)
        return cls(
            target_bytes,
            int(target_bytes * ratio),
            trigger,
            schema.parsed("num-sorted-run.stop-trigger", integer_value, trigger + 3),
            schema.parsed("compaction.min.file-num", integer_value, 5),
            schema.bucket,
            keyed,
        )


@dataclass(frozen=True, slots=True)
class Figures:
    """Sums over a table; a cell is one bucket of one partition.

    `worst_partition` has the most small files, `worst_small_files` of them. `cells_with_runs`
    counts the buckets whose sorted runs trigger a compaction, `cells_stopped` those that hold
    writers up; `run_count_max` is the largest number of runs in a bucket. `bytes_max` and
    `bytes_median` are bucket sizes in `skewed_partition`, where they differ most. `files_after` is
    the number of files that compaction would leave.
    """

    partitions: int = 0
    cells: int = 0
    files: int = 0
    rows: int = 0
    total_bytes: int = 0
    small_files: int = 0
    mergeable_files: int = 0
    files_after: int = 0
    worst_partition: str = ""
    worst_small_files: int = 0
    run_count_max: int = 0
    cells_with_runs: int = 0
    cells_stopped: int = 0
    skewed_partition: str = ""
    bytes_max: int = 0
    bytes_median: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: its description and consequence, and the statement that would help, "" if there
    is none."""

    severity: Severity
    text: str
    statement: str = ""


def findings(
    name: TableName, rules: LayoutRules, figures: Figures, partition: str = ""
) -> tuple[Finding, ...]:
    """Return the findings about a table, the most urgent first; a GOOD one if there are no others.

    If the figures are of one `partition`, the statements are for that partition, too.
    """
    what = "partition" if partition else "table"
    if figures.files == 0:
        return (Finding(Severity.GOOD, f"The {what} has no files."),)
    problems = [
        finding
        for finding in (
            _runs(name, rules, figures, partition),
            _small_files(name, rules, figures, partition),
            _skew(name, rules, figures),
            _bucket_sizes(name, rules, figures),
            _partition_sizes(figures),
        )
        if finding is not None
    ]
    if not problems:
        return (Finding(Severity.GOOD, _match(rules, figures)),)
    return tuple(sorted(problems, key=lambda finding: -finding.severity))


def worst(problems: tuple[Finding, ...]) -> Severity:
    """The highest severity of the findings."""
    return max((finding.severity for finding in problems), default=Severity.GOOD)


def _match(rules: LayoutRules, figures: Figures) -> str:
    text = "Files and buckets match the table's options"
    if not figures.small_files:
        return f"{text}."
    small = count_text(figures.small_files, "file")
    size = size_text(rules.small_below_bytes)
    if rules.is_primary_key_table:
        reason = f"a compaction merges a bucket's files once it has {rules.run_trigger} sorted runs"
    else:
        reason = f"no bucket has {rules.files_min} of them, the minimum for a worthwhile merge"
    return f"{text}. {small} below {size}: {reason}."


def _small_files(
    name: TableName, rules: LayoutRules, figures: Figures, partition: str
) -> Finding | None:
    # Primary-key tables always have small files at level 0: for them, sorted runs count.
    if rules.is_primary_key_table or not figures.mergeable_files:
        return None
    share = figures.mergeable_files / figures.files
    is_serious = share >= _SMALL_SHARE_SERIOUS and figures.mergeable_files >= _SMALL_FILES_SERIOUS
    place = f"; most are in {figures.worst_partition}" if figures.partitions > 1 else ""
    return Finding(
        Severity.SERIOUS if is_serious else Severity.NOTICE,
        f"{figures.mergeable_files:,} of {figures.files:,} files are smaller than "
        f"{size_text(rules.small_below_bytes)} and could be merged{place}: compacting would leave "
        f"about {count_text(figures.files_after, 'file')}.",
        _compact(name, partition),
    )


def _runs(name: TableName, rules: LayoutRules, figures: Figures, partition: str) -> Finding | None:
    if not rules.is_primary_key_table or not figures.cells_with_runs:
        return None
    stopped = figures.cells_stopped > 0
    effect = (
        f"{figures.cells_stopped:,} have {rules.run_stop} or more, at which compacting engines "
        "block their writers"
        if stopped
        else "each read merges them"
    )
    return Finding(
        Severity.SERIOUS if stopped else Severity.NOTICE,
        f"{figures.cells_with_runs:,} of {figures.cells:,} buckets have {rules.run_trigger} or "
        f"more sorted runs (up to {figures.run_count_max:,}): {effect}.",
        _compact(name, partition),
    )


def _skew(name: TableName, rules: LayoutRules, figures: Figures) -> Finding | None:
    too_small = figures.bytes_max < rules.target_bytes
    if too_small or figures.bytes_max < _SKEW_RATIO * max(figures.bytes_median, 1):
        return None
    place = f" of {figures.skewed_partition}" if figures.skewed_partition else ""
    return Finding(
        Severity.NOTICE,
        f"The largest bucket{place} has {size_text(figures.bytes_max)}, the median bucket "
        f"{size_text(figures.bytes_median)}: a single task reads and writes the largest bucket.",
        f"SELECT partition, bucket, file_size_in_bytes FROM {table_text(name, 'buckets')} "
        "ORDER BY file_size_in_bytes DESC LIMIT 10",
    )


def _bucket_sizes(name: TableName, rules: LayoutRules, figures: Figures) -> Finding | None:
    if rules.buckets < 1:
        return None
    mean_bytes = figures.total_bytes // figures.cells
    has_many = rules.buckets > 1 and figures.cells >= _BUCKETS_MANY
    if has_many and mean_bytes < _BUCKET_BYTES_MIN:
        partition_bytes = figures.total_bytes // figures.partitions
        number = min(rules.buckets // 2, partition_bytes // _BUCKET_BYTES_USUAL)
        verdict, number = "smaller", max(number, 1)
    elif mean_bytes > _BUCKET_BYTES_MAX:
        verdict, number = "larger", rules.buckets * 2
    else:
        return None
    return Finding(
        Severity.NOTICE,
        f"Buckets have {size_text(mean_bytes)} on average, {verdict} than usual (200 MiB to 1 "
        f"GiB). Rescale them, then set the option 'bucket' = '{number}' for new rows.",
        f"CALL sys.rescale(table => '{table_text(name)}', bucket_num => {number})",
    )


def _partition_sizes(figures: Figures) -> Finding | None:
    mean_bytes = figures.total_bytes // figures.partitions
    if figures.partitions < _PARTITIONS_MANY or mean_bytes >= _PARTITION_BYTES_MIN:
        return None
    return Finding(
        Severity.NOTICE,
        f"{figures.partitions:,} partitions have {size_text(mean_bytes)} on average: coarser "
        "partitions (by month instead of by day, for example) would have fewer and larger files.",
    )


def _compact(name: TableName, partition: str) -> str:
    where = f", partitions => {text_literal(partition.replace('/', ','))}" if partition else ""
    return f"CALL sys.compact(table => {text_literal(table_text(name))}{where})"
