"""Reports on the files and the partitions of a table. Read from manifests."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.layouts import size_histogram
from paimon_magics.columnar.time_zones import process_zone
from paimon_magics.errors import UnknownNameError, nearest
from paimon_magics.planning.formatting import count_text, size_text
from paimon_magics.planning.reports.health import LayoutRules
from paimon_magics.planning.reports.partition_names import PartitionNames
from paimon_magics.planning.reports.view_queries import files_sql
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.session.reports.health import sizes_of, sizes_sql
from paimon_magics.session.reports.layout import histogram_chart, layout_of
from paimon_magics.session.reports.report import Action, Bar, Chart, Report, Section
from paimon_magics.session.scope import StatementScope
from paimon_magics.statements.clauses.names import table_text, text_literal
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.system_tables.partitions import named_files
from paimon_magics.tables.system_tables.registry import table_view

_FILES_SHOWN = ("partition", "bucket", "level", "record_count", "file_size_in_bytes")
_PARTITIONS_SHOWN = (
    *("partition", "bucket_count", "record_count", "file_size_in_bytes"),
    *("file_count", "small_file_count", "small_share"),
)
_DRAWN = 15


def files_of(
    scope: StatementScope, name: TableName, shown: str, partition: str | None = None
) -> Report:
    """Report the data files of the latest snapshot, by partition, bucket and level. `partition` is
    such as `day=2026-11-20/region=eu`, or its first part, or as SHOW PARTITIONS names it. `shown`
    is the table's name in the report.

    Raises UnknownNameError for an unknown table or partition.
    """
    view = table_view(scope.catalog, name)
    named = named_files(view, scope.zone)
    files = named.files
    schema = scope.catalog.load(name).schema
    names = PartitionNames.of(schema, process_zone(), named.twice)
    if partition is not None:
        partition = _known_name(files, partition.strip("/"), schema)
        files = _of_partition(files, partition, shown, schema.partition_keys)
    order = [("partition", "ascending"), ("bucket", "ascending"), ("level", "ascending"),
             ("file_size_in_bytes", "descending")]  # fmt: skip
    files = files.sort_by(order)
    rules = LayoutRules.of(schema)
    small = pc.sum(pc.less(files.column("file_size_in_bytes"), rules.small_below_bytes)).as_py()
    total = pc.sum(files.column("file_size_in_bytes")).as_py() or 0
    where = f", {partition}" if partition else ""
    summary = (
        f"{shown}{where}: {count_text(files.num_rows, 'file')}, {size_text(total)}; "
        f"{small or 0:,} small (below {size_text(rules.small_below_bytes)})"
        f"{names.told_in(scope.zone)}"
    )
    chart = histogram_chart(size_histogram(files, rules.target_bytes), shown)
    hidden = () if schema.partition_keys else ("partition",)
    query = files_sql(table_text(name, "files"), names)
    if partition is not None:
        literal = text_literal(partition)
        within = f"partition = {literal} OR startswith(partition, concat({literal}, '/'))"
        query = f"SELECT * FROM ({query}) WHERE {within}"
    section = Section(
        "", files, query, _FILES_SHOWN,
        charts=(chart,) if chart.bars else (), hidden=hidden,
    )  # fmt: skip
    notes = (clocks_note("creation_time", named.clocks_in),) if named.clocks_in else ()
    return Report("FILES", summary, (section,), notes)


def partitions_of(scope: StatementScope, name: TableName, shown: str) -> Report:
    """Report the partitions of the latest snapshot with their sums, a chart of those with the most
    small files, and findings. Raises UnknownNameError."""
    layout = layout_of(scope.catalog, name, shown, scope.zone)
    hidden = () if layout.has_partitions else ("partition",)
    sizes = sizes_of(layout).sort_by("partition")
    worst = sizes.sort_by([("small_file_count", "descending"), ("partition", "ascending")])
    bars = tuple(
        Bar(
            row["partition"] or shown,
            row["small_file_count"],
            f"{row['small_file_count']:,} of {row['file_count']:,} ({row['small_share']:.0%})",
        )
        for row in worst.slice(0, _DRAWN).to_pylist()
        if row["small_file_count"]
    )
    chart = Chart(
        f"Small files of each partition: below {size_text(layout.rules.small_below_bytes)} of a "
        f"target-file-size of {size_text(layout.rules.target_bytes)}",
        bars,
    )
    action = Action(
        "Files of it",
        1,
        lambda rows: files_of(scope.renewed(), name, shown, str(rows[0]["partition"])),
    )
    section = Section(
        "", sizes, sizes_sql(layout), _PARTITIONS_SHOWN,
        charts=(chart,) if bars else (), actions=(action,) if sizes.num_rows > 1 else (),
        hidden=hidden,
    )  # fmt: skip
    notes = [
        f"{finding.severity.word}: {finding.text}"
        + (f"\n    {finding.statement}" if finding.statement else "")
        for finding in layout.findings()
    ]
    if hidden:
        notes.insert(0, "The table is not partitioned.")
    if layout.clocks_in:
        notes.append(clocks_note("last_update_time", layout.clocks_in))
    return Report("PARTITIONS", layout.summary(), (section,), tuple(notes))


def clocks_note(column: str, zone: str) -> str:
    """The note on a column of times that are the wall clocks of files' writers."""
    return (
        f"`{column}` is the wall clock of each file's writer, taken for {zone}, this process's "
        "zone: files that were written in another zone are off by the difference."
    )


def _known_name(files: pa.Table, partition: str, schema: TableSchema) -> str:
    """Return a partition's name as in `files`; the given name may be that of SHOW PARTITIONS, with
    `%3A` for a colon and `null` for NULL."""
    pairs = [pair.partition("=") for pair in partition.split("/")]
    meant = (
        [f"{unquote(key)}{sign}{unquote(value)}", *_if_null(key, value, schema)]
        for key, sign, value in pairs
    )
    # SHOW PARTITIONS shows the text `null` like NULL, so both are tried.
    names = ("/".join(parts) for parts in itertools.product(*meant))
    return next((name for name in (partition, *names) if _within(files, name).num_rows), partition)


def _if_null(key: str, value: str, schema: TableSchema) -> list[str]:
    return [f"{unquote(key)}={schema.partition_default_name}"] if value == "null" else []


def _within(files: pa.Table, partition: str) -> pa.Table:
    names = files.column("partition")
    is_there = pc.or_(pc.equal(names, partition), pc.starts_with(names, f"{partition}/"))
    return files.filter(is_there)


def _of_partition(files: pa.Table, partition: str, shown: str, keys: Sequence[str]) -> pa.Table:
    names = files.column("partition")
    within = _within(files, partition)
    if not within.num_rows:
        if not keys:
            raise UnknownNameError(
                f"`{shown}` has no partition `{partition}`.", hint="The table is not partitioned."
            )
        known = [str(name) for name in pc.unique(names).to_pylist()]
        raise UnknownNameError(
            f"`{shown}` has no files in a partition `{partition}`.",
            hint=nearest(partition, known, what="partitions"),
        )
    return within
