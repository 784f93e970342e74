"""The queries behind the views: what gives the rows of a view in SQL, of the system tables.

Pure. Names of tables come in as they are written in SQL. A partition is told as the views tell it,
`day=2026-11-20/region=eu`; `$files` has the values alone, as `{2026-11-20, eu}`.
"""

from __future__ import annotations

from collections.abc import Sequence

from paimon_magics.statements.names import text_literal

__all__ = [
    "HISTORY_IN_SQL",
    "buckets_sql",
    "files_sql",
    "history_sql",
    "partitions_sql",
    "snapshots_sql",
]

HISTORY_IN_SQL = ("snapshot_id", "commit_kind", "commit_time", "commit_user")
"""What `$snapshots` has of a history: users and notebooks are in the snapshots alone."""

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


def files_sql(files: str, keys: Sequence[str]) -> str:
    """The files of a table: `files` is its `$files`, `keys` its partition keys."""
    names = "bucket, level, record_count, file_size_in_bytes, creation_time"
    name = "regexp_extract(file_path, '[^/]+$', 0) AS file_name"
    return f"SELECT {_partition(keys)} AS partition, {names}, {name} FROM {files}"


def buckets_sql(files: str, keys: Sequence[str], small_below_bytes: int) -> str:
    """The sums of each bucket."""
    sums = ", ".join(f"{text} AS {name}" for name, text in _SUMS.items())
    return (
        f"SELECT {_partition(keys)} AS partition, bucket, "
        f"{sums.format(small_below_bytes=small_below_bytes)} FROM {files} "
        "GROUP BY partition, bucket ORDER BY partition, bucket"
    )


def partitions_sql(files: str, keys: Sequence[str], small_below_bytes: int) -> str:
    """The sums of each partition, and its share of small files."""
    buckets = buckets_sql(files, keys, small_below_bytes).partition(" ORDER BY ")[0]
    sums = ", ".join(f"{text} AS {name}" for name, text in _OF_PARTITIONS.items())
    return (
        f"SELECT partition, count(*) AS bucket_count, {sums}, "
        "round(sum(small_file_count) / sum(file_count), 2) AS small_share "
        f"FROM ({buckets}) GROUP BY partition ORDER BY partition"
    )


def snapshots_sql(snapshots: str) -> str:
    """The commits of a table: `snapshots` is its `$snapshots`."""
    return (
        "SELECT snapshot_id, commit_kind, commit_time, delta_record_count AS rows, "
        "total_record_count AS total_rows, schema_id, commit_user "
        f"FROM {snapshots} ORDER BY snapshot_id DESC"
    )


def history_sql(snapshots: str) -> str:
    """The commits of a table, as far as `$snapshots` tells who made them."""
    return f"SELECT {', '.join(HISTORY_IN_SQL)} FROM {snapshots} ORDER BY snapshot_id DESC"


def _partition(keys: Sequence[str]) -> str:
    """A partition as `key=value/…`, of the values between braces that `$files` has."""
    inner = "substring(partition, 2, length(partition) - 2)"
    if not keys:
        return "''"
    if len(keys) == 1:
        return f"concat({text_literal(keys[0] + '=')}, {inner})"
    values = (f"split({inner}, ', ')[{place}]" for place in range(len(keys)))
    heads = (text_literal(f"{'/' if place else ''}{key}=") for place, key in enumerate(keys))
    pairs = (f"{head}, {value}" for head, value in zip(heads, values, strict=True))
    return f"concat({', '.join(pairs)})"
