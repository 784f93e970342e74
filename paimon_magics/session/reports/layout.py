"""The layout of a table in partitions and buckets: what `%paimon layout` returns, and what
`%paimon health` judges.

This process reads it from manifests, without a Spark job. It is shown as text here, and by
`paimon_widgets` as pictures.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.boundary import short_errors
from paimon_magics.columnar.layouts import SizeHistogram, by_partition, cells, size_histogram
from paimon_magics.columnar.time_zones import UTC, in_zone, process_zone
from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.formatting import count_text, size_text, stored_rows_text
from paimon_magics.planning.reports.health import Figures, Finding, LayoutRules, findings
from paimon_magics.planning.reports.partition_names import PartitionNames
from paimon_magics.planning.reports.view_queries import buckets_sql
from paimon_magics.session.rendering import render_text
from paimon_magics.session.reports.report import Bar, Chart
from paimon_magics.statements.clauses.names import table_text
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.system_tables.partitions import layout_files
from paimon_magics.tables.system_tables.registry import table_view

_SHOWN_CELLS = 10


@short_errors
@dataclass(frozen=True, slots=True)
class Layout:
    """A table's layout at a snapshot.

    `data` has a row for each bucket of each partition (`columnar.layouts.CELLS`); `sql` is a query
    for such sums. `figures` are the table's sums, `histogram` the sizes of its files. `name` is the
    table's name as it is shown, `table` its full name. `clocks_in`: see `NamedFiles`.
    """

    name: str
    table: TableName
    partition_names: PartitionNames
    snapshot_id: int | None
    data: pa.Table
    rules: LayoutRules
    figures: Figures
    histogram: SizeHistogram
    files: pa.Table = field(repr=False)
    clocks_in: str = ""

    @property
    def sql(self) -> str:
        """The query that shows the sums of each bucket."""
        files = table_text(self.table, "files")
        return buckets_sql(files, self.partition_names, self.rules.small_below_bytes)

    @property
    def small_share(self) -> float:
        """The share of small files, between 0 and 1."""
        return self.figures.small_files / max(self.figures.files, 1)

    @property
    def has_partitions(self) -> bool:
        """Whether the table is partitioned."""
        return bool(self.partition_names.keys)

    def findings(self, partition: str = "") -> tuple[Finding, ...]:
        """The findings on this layout; `partition` names the partition if it is that of one."""
        return findings(self.table, self.rules, self.figures, partition)

    def partitions(self) -> pa.Table:
        """The sums of each partition."""
        return by_partition(self.data)

    def of_partition(self, partition: str) -> Layout:
        """The layout of one partition."""

        def within(rows: pa.Table) -> pa.Table:
            return rows.filter(pc.equal(rows.column("partition"), partition))

        files, data = within(self.files), within(self.data)
        histogram = size_histogram(files, self.rules.target_bytes)
        figures = _figures(files, data, self.rules)
        return replace(self, files=files, data=data, histogram=histogram, figures=figures)

    def files_of(self, partition: str, bucket: int) -> pa.Table:
        """The files of one bucket of a partition, the largest first."""
        is_there = pc.and_(
            pc.equal(self.files.column("partition"), partition),
            pc.equal(self.files.column("bucket"), bucket),
        )
        return self.files.filter(is_there).sort_by([("file_size_in_bytes", "descending")])

    def largest(self, count: int = _SHOWN_CELLS) -> pa.Table:
        """The buckets with the most bytes."""
        order = [("file_size_in_bytes", "descending"), ("partition", "ascending"),
                 ("bucket", "ascending")]  # fmt: skip
        return self.data.sort_by(order).slice(0, count)

    def summary(self) -> str:
        """The layout in one line."""
        at = "no snapshot" if self.snapshot_id is None else f"snapshot {self.snapshot_id}"
        f = self.figures
        is_merged = self.rules.is_primary_key_table and f.run_count_max > 1
        rows = stored_rows_text(f.rows, is_merged=is_merged)
        return (
            f"{self.name}, {at}: {count_text(f.partitions, 'partition')}, "
            f"{count_text(f.cells, 'bucket')}, {count_text(f.files, 'file')}, "
            f"{rows}, {size_text(f.total_bytes)}; "
            f"{count_text(f.small_files, 'file')} "
            f"below {size_text(self.rules.small_below_bytes)}"
            f"{self.partition_names.told_in(self.data.schema.field('last_update_time').type.tz)}"
        )

    def skew(self) -> str:
        """The skew in words, of the partition whose bucket sizes differ most; "" if no partition
        has two buckets."""
        f = self.figures
        if f.cells == f.partitions:
            return ""
        place = f" of {f.skewed_partition}" if f.skewed_partition else ""
        return (
            f"skew: the largest bucket{place} has {size_text(f.bytes_max)}, "
            f"{f.bytes_max / max(f.bytes_median, 1):.1f} × the median one"
        )

    def __str__(self) -> str:
        if not self.data.num_rows:
            return self.summary()
        left_out = ["last_update_time", *([] if self.has_partitions else ["partition"])]
        shown = self.largest().drop_columns(left_out)
        rest = self.data.num_rows - shown.num_rows
        more = f"\n{count_text(rest, 'more bucket')} with fewer bytes" if rest else ""
        lines = "\n".join(filter(None, (self.summary(), self.skew())))
        return f"{lines}\n\n{render_text(shown, _SHOWN_CELLS)}{more}"

    def __repr__(self) -> str:
        return str(self)


def layout_of(catalog: Catalog, name: TableName, shown: str, zone: str = UTC) -> Layout:
    """Return the layout of a table or branch at its latest snapshot. `shown` is the table's name as
    it is shown; instants are shown in `zone`. Raises UnknownNameError, and TableDamagedError for
    missing manifests."""
    if name.system_table is not None:
        raise UnsupportedStatementError(
            f"`{name}` has no files of its own.", hint="Name the table without `$…`."
        )
    view = table_view(catalog, name)
    schema = catalog.load(name).schema
    rules = LayoutRules.of(schema)
    named = layout_files(view, zone)
    files = in_zone(named.files, zone)
    buckets = in_zone(cells(files, rules.small_below_bytes), zone)
    snapshot_id = None if view.snapshot is None else int(view.snapshot["id"])
    histogram = size_histogram(files, rules.target_bytes)
    names = PartitionNames.of(schema, process_zone(), named.twice)
    figures = _figures(files, buckets, rules)
    full = replace(name, catalog=None)
    return Layout(
        shown, full, names, snapshot_id, buckets, rules, figures, histogram, files,
        named.clocks_in,
    )  # fmt: skip


def histogram_chart(histogram: SizeHistogram, name: str) -> Chart:
    """A chart of the number of files in each step of sizes that has any."""
    steps = step_texts(histogram)
    bars = [
        Bar(step, count, f"{count:,}")
        for step, count in zip(steps, histogram.file_counts, strict=True)
        if count
    ]
    return Chart(f"Sizes of the files of {name}", tuple(bars))


def step_texts(histogram: SizeHistogram) -> list[str]:
    """Each step of sizes in words: `64 MiB – 128 MiB`."""
    edges = [size_text(edge) for edge in histogram.edges_bytes]
    spans = [f"{low} – {high}" for low, high in itertools.pairwise(edges)]
    return [*spans, f"{edges[-1]} and more"]


def _figures(files: pa.Table, buckets: pa.Table, rules: LayoutRules) -> Figures:
    if not files.num_rows:
        return Figures()
    partitions = by_partition(buckets)
    small = np.asarray(partitions.column("small_file_count"))
    worst_place = int(small.argmax())
    mergeable, after = _mergeable(files, rules)
    runs = np.asarray(buckets.column("sorted_run_count"))
    skewed, most, median = _skew(buckets)
    return Figures(
        partitions=partitions.num_rows,
        cells=buckets.num_rows,
        files=files.num_rows,
        rows=int(pc.sum(buckets.column("record_count")).as_py()),
        total_bytes=int(pc.sum(buckets.column("file_size_in_bytes")).as_py()),
        small_files=int(small.sum()),
        mergeable_files=mergeable,
        files_after=files.num_rows - mergeable + after,
        worst_partition=str(partitions.column("partition")[worst_place]),
        worst_small_files=int(small[worst_place]),
        run_count_max=int(runs.max()),
        cells_with_runs=int((runs >= rules.run_trigger).sum()),
        cells_stopped=int((runs >= rules.run_stop).sum()),
        skewed_partition=skewed,
        bytes_max=most,
        bytes_median=median,
    )


def _mergeable(files: pa.Table, rules: LayoutRules) -> tuple[int, int]:
    """The number of small files in buckets that have enough of them to be merged, and the number of
    files that merging would leave."""
    small = files.filter(pc.less(files.column("file_size_in_bytes"), rules.small_below_bytes))
    grouped = small.group_by(["partition", "bucket"], use_threads=False).aggregate(
        [("file_size_in_bytes", "sum"), ("file_size_in_bytes", "count")]
    )
    counts = np.asarray(grouped.column("file_size_in_bytes_count"))
    sizes = np.asarray(grouped.column("file_size_in_bytes_sum"))
    enough = counts >= rules.files_min
    left = -(-sizes[enough] // rules.target_bytes)
    return int(counts[enough].sum()), int(np.maximum(left, 1).sum())


def _skew(buckets: pa.Table) -> tuple[str, int, int]:
    """The partition whose largest and median bucket differ most, and the bytes of those two."""
    encoded = buckets.column("partition").combine_chunks().dictionary_encode()
    codes = np.asarray(encoded.indices)
    sizes = np.asarray(buckets.column("file_size_in_bytes"))
    order = np.lexsort((sizes, codes))
    codes, sizes = codes[order], sizes[order]
    starts = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]])
    ends = np.r_[starts[1:], len(codes)]
    largest, median = sizes[ends - 1], sizes[(starts + ends - 1) // 2]
    place = int(((largest - median) * (ends - starts > 1)).argmax())
    name = str(encoded.dictionary[int(codes[starts[place]])])
    return name, int(largest[place]), int(median[place])
