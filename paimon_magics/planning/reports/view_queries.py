"""The queries behind the views: what gives the rows of a view in SQL, of the system tables.

Pure. Names of tables come in as they are written in SQL. Partitions are named as the views name
them (`planning.reports.partition_names`), and times are instants of the session's zone.
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
"""What `$snapshots` has of a history: users and notebooks are in the snapshots alone."""

NATIVE_NAME = "pm-[0-9a-f]{32}-mdata-"
"""How the names of files begin that the native writer made for us (`planning.reads.float_bounds`):
their `creation_time` is in UTC, whatever the zone of the process."""

_SUMS = {
    "record_count": "sum(record_count)",
    "file_size_in_bytes": "sum(file_size_in_bytes)",
    "file_count": "count(*)",
    "small_file_count": "count_if(file_size_in_bytes < {small_below_bytes})",
    "level_0_file_count": "count_if(level = 0)",
    "sorted_run_count": "count_if(level = 0) + count(DISTINCT nullif(level, 0))",
    "last_update_time": "max(creation_time)",
}
"""What is summed up of the files of a bucket, by the name of its column."""
_OF_PARTITIONS = {
    **{name: f"sum({name})" for name in _SUMS},
    **{name: f"max({name})" for name in ("sorted_run_count", "last_update_time")},
}


def files_sql(files: str, partitions: PartitionNames) -> str:
    """The files of a table: `files` is its `$files`."""
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
    """The sums of each bucket."""
    sums = ", ".join(f"{text} AS {name}" for name, text in _SUMS.items())
    return (
        f"SELECT partition, bucket, {sums.format(small_below_bytes=small_below_bytes)} "
        f"FROM ({files_sql(files, partitions)}) "
        "GROUP BY partition, bucket ORDER BY partition, bucket"
    )


def partitions_sql(files: str, partitions: PartitionNames, small_below_bytes: int) -> str:
    """The sums of each partition, and its share of small files."""
    buckets = buckets_sql(files, partitions, small_below_bytes).rpartition(" ORDER BY ")[0]
    sums = ", ".join(f"{text} AS {name}" for name, text in _OF_PARTITIONS.items())
    return (
        f"SELECT partition, count(*) AS bucket_count, {sums}, "
        "round(sum(small_file_count) / sum(file_count), 2) AS small_share "
        f"FROM ({buckets}) GROUP BY partition ORDER BY partition"
    )


def snapshots_sql(snapshots: str, zone: str) -> str:
    """The commits of a table: `snapshots` is its `$snapshots`, whose times are wall clocks of
    `zone`."""
    return (
        f"SELECT snapshot_id, commit_kind, {_instant('commit_time', zone)}, "
        "delta_record_count AS rows, "
        "total_record_count AS total_rows, schema_id, commit_user "
        f"FROM {snapshots} ORDER BY snapshot_id DESC"
    )


def history_sql(snapshots: str, zone: str) -> str:
    """The commits of a table, as far as `$snapshots` tells who made them."""
    names = (_instant(n, zone) if n == "commit_time" else n for n in HISTORY_IN_SQL)
    return f"SELECT {', '.join(names)} FROM {snapshots} ORDER BY snapshot_id DESC"


def changed_files_sql(files: str, partitions: PartitionNames, before: str, after: str) -> str:
    """The sums of the files that came (`added`) and went (`removed`) from the version `before` to
    `after`, both as VERSION AS OF has them, for each partition."""
    old, new = (files_sql(f"{files} VERSION AS OF {one}", partitions) for one in (before, after))
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
    """A wall clock of `zone` as the instant that it is."""
    moment = f"concat(CAST({name} AS STRING), {text_literal(f' {zone}')})"
    return f"CAST({moment} AS TIMESTAMP) AS {name}"
