"""Queries on system tables that give the rows of reports.

Pure. Table names are passed as they are written in SQL. Partitions are named as in the reports
(`planning.reports.partition_names`), and times are instants, shown in the session's zone.
"""

from __future__ import annotations

from paimon_magics.planning.reports.partition_names import PartitionNames
from paimon_magics.statements.clauses.names import text_literal

__all__ = [
    "HISTORY_IN_SQL",
    "NATIVE_NAME",
    "buckets_sql",
    "changed_files_sql",
    "files_sql",
    "history_sql",
    "partitions_sql",
    "snapshots_sql",
]

HISTORY_IN_SQL = ("snapshot_id", "commit_kind", "commit_time", "commit_user")
"""The columns of a history that `$snapshots` has; only snapshot files name users and notebooks."""

NATIVE_NAME = "pm-[0-9a-f]{32}-mdata-"
"""A regular expression for the beginning of names of files that the native writer wrote here
(`planning.reads.float_bounds`). Their `creation_time` is in UTC, whatever the process's zone."""

_SUMS = {
    "record_count": "sum(record_count)",
    "file_size_in_bytes": "sum(file_size_in_bytes)",
    "file_count": "count(*)",
    "small_file_count": "count_if(file_size_in_bytes < {small_below_bytes})",
    "level_0_file_count": "count_if(level = 0)",
    "sorted_run_count": "count_if(level = 0) + count(DISTINCT nullif(level, 0))",
    "last_update_time": "max(creation_time)",
}
"""The aggregates over the files of a bucket, by column name."""
_OF_PARTITIONS = {
    **{name: f"sum({name})" for name in _SUMS},
    **{name: f"max({name})" for name in ("sorted_run_count", "last_update_time")},
}


def files_sql(files: str, partitions: PartitionNames) -> str:
    """The query for a table's files; `files` is the name of its `$files`."""
    name = "regexp_extract(file_path, '[^/]+$', 0) AS file_name"
    zone = text_literal(f" {partitions.zone}")
    if partitions.zone != "UTC":
        is_native = f"file_path RLIKE {text_literal(f'/{NATIVE_NAME}[^/]*$')}"
        zone = f"if({is_native}, ' UTC', {zone})"
    made = f"CAST(concat(CAST(creation_time AS STRING), {zone}) AS TIMESTAMP) AS creation_time"
    return (
        f"SELECT {partitions.of_files()} AS partition, bucket, level, record_count, "
        f"file_size_in_bytes, {made}, {name} FROM {files}"
    )


def buckets_sql(files: str, partitions: PartitionNames, small_below_bytes: int) -> str:
    """The query for the sums of each bucket."""
    sums = ", ".join(f"{text} AS {name}" for name, text in _SUMS.items())
    return (
        f"SELECT partition, bucket, {sums.format(small_below_bytes=small_below_bytes)} "
        f"FROM ({files_sql(files, partitions)}) "
        "GROUP BY partition, bucket ORDER BY partition, bucket"
    )


def partitions_sql(files: str, partitions: PartitionNames, small_below_bytes: int) -> str:
    """The query for the sums of each partition, and its share of small files."""
    buckets = buckets_sql(files, partitions, small_below_bytes).rpartition(" ORDER BY ")[0]
    sums = ", ".join(f"{text} AS {name}" for name, text in _OF_PARTITIONS.items())
    return (
        f"SELECT partition, count(*) AS bucket_count, {sums}, "
        "round(sum(small_file_count) / sum(file_count), 2) AS small_share "
        f"FROM ({buckets}) GROUP BY partition ORDER BY partition"
    )


def snapshots_sql(snapshots: str, zone: str) -> str:
    """The query for a table's commits; `snapshots` is the name of its `$snapshots`, whose times are
    local times in `zone`."""
    return (
        f"SELECT snapshot_id, commit_kind, {_instant('commit_time', zone)}, "
        "delta_record_count AS rows, "
        "total_record_count AS total_rows, schema_id, commit_user "
        f"FROM {snapshots} ORDER BY snapshot_id DESC"
    )


def history_sql(snapshots: str, zone: str) -> str:
    """The query for a table's history, as far as `$snapshots` has it."""
    names = (_instant(n, zone) if n == "commit_time" else n for n in HISTORY_IN_SQL)
    return f"SELECT {', '.join(names)} FROM {snapshots} ORDER BY snapshot_id DESC"


def changed_files_sql(files: str, partitions: PartitionNames, before: str, after: str) -> str:
    """The query for the sums of the files that were `added` and `removed` in each partition between
    two versions, both given as VERSION AS OF takes them; 0 is the empty state."""
    stored = after if before == "0" else before
    old, new = (
        files_sql(f"(SELECT * FROM {files} VERSION AS OF {stored} WHERE false)", partitions)
        if version == "0"
        else files_sql(f"{files} VERSION AS OF {version}", partitions)
        for version in (before, after)
    )
    alone = "SELECT '{}' AS files, mine.* FROM ({}) AS mine LEFT ANTI JOIN ({}) AS other ON {}"
    same = "mine.file_name = other.file_name"
    return (
        "SELECT partition, files, count(*) AS file_count, sum(record_count) AS record_count, "
        "sum(file_size_in_bytes) AS file_size_in_bytes FROM "
        f"({alone.format('added', new, old, same)} UNION ALL "
        f"{alone.format('removed', old, new, same)}) "
        "GROUP BY partition, files ORDER BY partition, files"
    )


def _instant(name: str, zone: str) -> str:
    """The column `name`, which has local times in `zone`, as instants."""
    moment = f"concat(CAST({name} AS STRING), {text_literal(f' {zone}')})"
    return f"CAST({moment} AS TIMESTAMP) AS {name}"
