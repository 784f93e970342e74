"""Queries on system tables that give the rows of reports.

Pure. Table names are passed as they are written in SQL. Partitions are named as in the reports
(`partition_names`), and times are instants, shown in the session's zone.
"""

from __future__ import annotations

from collections.abc import Sequence

from paimon_magics.planning.reads.views import SEQUENCE_NUMBER
from paimon_magics.planning.reports.partition_names import PartitionNames
from paimon_magics.statements.clauses.names import quoted, text_literal

HISTORY_IN_SQL = ("snapshot_id", "commit_kind", "commit_time", "commit_user")
"""The columns of a history that `$snapshots` has; only snapshot files name users and notebooks."""

NATIVE_NAME = "pm-[0-9a-f]{32}-mdata-"
"""A regular expression for the beginning of names of files that the native writer wrote here
(`planning.reads.scans`). Their `creation_time` is in UTC, whatever the process's zone."""

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


CHANGES = ("added", "removed", "changed")


def files_sql(files: str, partitions: PartitionNames) -> str:
    """The query for a table's files; `files` is the name of its `$files`."""
    name = "regexp_extract(file_path, '[^/]+$', 0) AS file_name"
    zone = text_literal(f" {partitions.zone}")
    if partitions.zone != "UTC":
        is_native = f"file_path RLIKE {text_literal(f'/{NATIVE_NAME}[^/]*$')}"
        zone = f"if({is_native}, ' UTC', {zone})"
    instant = f"CAST(concat(CAST(creation_time AS STRING), {zone}) AS TIMESTAMP) AS creation_time"
    return (
        f"SELECT {partitions.of_files()} AS partition, bucket, level, record_count, "
        f"file_size_in_bytes, {instant}, {name} FROM {files}"
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


# Queries that give the rows of reports on changes: between two states, and of `$binlog`.
#
# Pure. `changes` is a query with the table's columns and a column `change` ("added", "removed" or
# "changed"); for updates, the struct `before` has the row before the update.


def counts_sql(changes: str, partition: str) -> str:
    """Count the changed rows by partition and kind of change. `partition` is the SQL expression of
    a row's partition (`PartitionNames.of_rows`)."""
    sums = ", ".join(f"count_if(`change` = '{word}') AS {word}" for word in CHANGES)
    return f"SELECT {partition} AS partition, {sums} FROM ({changes}) GROUP BY 1 ORDER BY 1"


def grown_sql(new_rows: str, partition: str) -> str:
    """Count as `counts_sql` does, where rows were only added."""
    none = ", ".join(f"CAST(0 AS BIGINT) AS {word}" for word in CHANGES[1:])
    return (
        f"SELECT {partition} AS partition, count(*) AS added, {none} FROM ({new_rows}) "
        "GROUP BY 1 ORDER BY 1"
    )


def kinds_sql(changes: str, columns: Sequence[str], *, is_paired: bool) -> str:
    """The changed rows with their `rowkind`; with `is_paired`, an update is two rows, -U and +U."""

    def row(kind: str, source: str = "") -> str:
        values = (f"{source}{quoted(name)} AS {quoted(name)}" for name in columns)
        return f"struct('{kind}' AS rowkind, {', '.join(values)})"

    if not is_paired:
        names = ", ".join(map(quoted, columns))
        return f"SELECT if(`change` = 'removed', '-D', '+I') AS rowkind, {names} FROM ({changes})"
    return (
        f"SELECT inline(CASE `change` WHEN 'changed' THEN array({row('-U', '`before`.')}, "
        f"{row('+U')}) WHEN 'removed' THEN array({row('-D')}) ELSE array({row('+I')}) END) "
        f"FROM ({changes})"
    )


def single_changes_sql(binlog: str, columns: Sequence[str]) -> str:
    """The rows of a query on a `$binlog`, where an update becomes two rows, -U and +U."""

    def row(kind: str, place: int) -> str:
        values = (
            f"{quoted(n) if n == SEQUENCE_NUMBER else f'get({quoted(n)}, {place})'} AS {quoted(n)}"
            for n in columns
        )
        return f"struct({kind} AS rowkind, {', '.join(values)})"

    # A column has one value for each row of the change.
    size = f"size({quoted(next(n for n in columns if n != SEQUENCE_NUMBER))})"
    before, after = row("'-U'", 0), row("'+U'", 1)
    single = f"array({row('rowkind', 0)})"
    return f"SELECT inline(if({size} = 2, array({before}, {after}), {single})) FROM ({binlog})"
