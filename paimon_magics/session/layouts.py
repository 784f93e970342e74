"""How a table lies in partitions and buckets, and whether that is in order: what `%paimon layout`
and `%paimon health` give back.

Read from manifests by this process, without a Spark job. Shown as text here; `paimon_widgets` shows
the same as pictures.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.layouts import (
    SizeHistogram,
    by_partition,
    cells,
    size_histogram,
)
from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.amounts import count_text, size_text
from paimon_magics.planning.health import (
    Figures,
    Finding,
    LayoutRules,
    Severity,
    findings,
    worst,
)
from paimon_magics.session.reports import Bar, Chart, bar_lines
from paimon_magics.session.text import render_text
from paimon_magics.statements.names import spelled, system_table_text
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog import Catalog
from paimon_magics.tables.file_layouts import layout_files
from paimon_magics.tables.system_tables import table_view

__all__ = ["Health", "Layout", "histogram_chart", "layout_of", "tables_of"]

_SHOWN_CELLS = 10


@dataclass(frozen=True, slots=True)
class Layout:
    """A table's layout at a snapshot.

    `data` has a row for each bucket of each partition (`columnar.layouts.CELLS`), `sql` is the
    query that shows the like of it. `figures` are its sums, `histogram` the sizes of its files.
    """

    name: str
    snapshot_id: int | None
    data: pa.Table
    rules: LayoutRules
    figures: Figures
    histogram: SizeHistogram
    files: pa.Table = field(repr=False)

    @property
    def sql(self) -> str:
        """The query that shows the sums of each bucket."""
        return f"SELECT * FROM {system_table_text(self.name, 'buckets')} ORDER BY partition, bucket"

    @property
    def small_share(self) -> float:
        """How many of the files are small, of one."""
        return self.figures.small_files / max(self.figures.files, 1)

    @property
    def has_partitions(self) -> bool:
        """Whether the table is partitioned; one without files counts as such."""
        return not self.data.num_rows or self.data.column("partition")[0].as_py() != ""

    def partitions(self) -> pa.Table:
        """The same sums for each partition."""
        return by_partition(self.data)

    def files_of(self, partition: str, bucket: int) -> pa.Table:
        """The files of one cell, the largest first."""
        is_there = pc.and_(
            pc.equal(self.files.column("partition"), partition),
            pc.equal(self.files.column("bucket"), bucket),
        )
        return self.files.filter(is_there).sort_by([("file_size_in_bytes", "descending")])

    def largest(self, count: int = _SHOWN_CELLS) -> pa.Table:
        """The cells with the most bytes."""
        order = [("file_size_in_bytes", "descending"), ("partition", "ascending"),
                 ("bucket", "ascending")]  # fmt: skip
        return self.data.sort_by(order).slice(0, count)

    def summary(self) -> str:
        """One line: what there is."""
        at = "no snapshot" if self.snapshot_id is None else f"snapshot {self.snapshot_id}"
        f = self.figures
        return (
            f"{self.name}, {at}: {count_text(f.partitions, 'partition')}, "
            f"{count_text(f.cells, 'bucket')}, {count_text(f.files, 'file')}, "
            f"{count_text(f.rows, 'row')}, {size_text(f.total_bytes)}; "
            f"{count_text(f.small_files, 'small file')} "
            f"(below {size_text(self.rules.small_below_bytes)})"
        )

    def skew(self) -> str:
        """How far the buckets of a partition are from each other, of the one where they are
        farthest; "" where no partition has two."""
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


@dataclass(frozen=True, slots=True)
class Health:
    """Whether the layout of some tables is in order; the tables in the order of their names."""

    layouts: tuple[Layout, ...]

    @property
    def findings(self) -> dict[str, tuple[Finding, ...]]:
        """What is to be said of each table."""
        return {one.name: findings(one.name, one.rules, one.figures) for one in self.layouts}

    @property
    def severity(self) -> Severity:
        """The most urgent of all findings."""
        return max((worst(found) for found in self.findings.values()), default=Severity.GOOD)

    @property
    def data(self) -> pa.Table:
        """A row for each finding."""
        rows = [
            (name, finding.severity.word, finding.text, finding.statement)
            for name, found in self.findings.items()
            for finding in found
        ]
        names = ("table", "severity", "finding", "statement")
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
        return pa.table({n: pa.array(c, pa.string()) for n, c in zip(names, columns, strict=True)})

    @property
    def sql(self) -> str:
        """The query whose rows the findings are drawn from."""
        return " UNION ALL ".join(
            f"SELECT * FROM {system_table_text(one.name, 'files')}" for one in self.layouts
        )

    def to_json(self) -> dict[str, Any]:
        """Findings and sums of each table, for a script."""
        return {
            one.name: {
                "severity": worst(found).word,
                "snapshot_id": one.snapshot_id,
                "files": one.figures.files,
                "small_files": one.figures.small_files,
                "rows": one.figures.rows,
                "bytes": one.figures.total_bytes,
                "findings": [
                    {"severity": f.severity.word, "text": f.text, "statement": f.statement}
                    for f in found
                ],
            }
            for one, found in zip(self.layouts, self.findings.values(), strict=True)
        }

    def __str__(self) -> str:
        lines = []
        for layout, found in zip(self.layouts, self.findings.values(), strict=True):
            lines.append(f"{layout.summary()}")
            for finding in found:
                lines.append(f"  {finding.severity.word}: {finding.text}")
                if finding.statement:
                    lines.append(f"    {finding.statement}")
            chart = histogram_chart(layout.histogram, layout.name)
            lines += [f"  {line}" for line in bar_lines(chart)]
        return "\n".join(lines) or "There are no tables."

    def __repr__(self) -> str:
        return str(self)


def layout_of(catalog: Catalog, name: TableName, shown: str) -> Layout:
    """The layout of a table, or a branch of it, at its latest snapshot; `shown` is what it is
    called. Raises UnknownNameError, and TableDamagedError for manifests that are gone."""
    if name.system_table is not None:
        raise UnsupportedStatementError(
            f"`{name}` has no files of its own.", hint="Name the table without `$…`."
        )
    view = table_view(catalog, name)
    rules = LayoutRules.of(catalog.load(name).definition)
    files = layout_files(view)
    found = cells(files, rules.small_below_bytes)
    snapshot_id = None if view.snapshot is None else int(view.snapshot["id"])
    histogram = size_histogram(files, rules.target_bytes)
    return Layout(shown, snapshot_id, found, rules, _figures(files, found, rules), histogram, files)


def tables_of(catalog: Catalog, text: str | None, database: str) -> list[str]:
    """The names that `shop.*` or the name of one table means; None all tables of `database`."""
    if text is not None and text != "*" and not text.endswith(".*"):
        return [text]
    if text not in (None, "*"):
        assert text is not None
        database = text.removesuffix(".*").strip("`")
    return [f"{spelled(database)}.{spelled(name)}" for name in catalog.list_tables(database)]


def histogram_chart(histogram: SizeHistogram, name: str) -> Chart:
    """How many files there are of each step of sizes, where there are any."""
    edges = [*histogram.edges_bytes, 0]
    last = len(histogram.file_counts) - 1
    bars = []
    for place, count in enumerate(histogram.file_counts):
        if count:
            low, high = size_text(edges[place]), size_text(edges[place + 1])
            span = f"{low} and more" if place == last else f"{low} – {high}"
            bars.append(Bar(span, count, f"{count:,}"))
    return Chart(f"Sizes of the files of {name}", tuple(bars))


def _figures(files: pa.Table, found: pa.Table, rules: LayoutRules) -> Figures:
    if not files.num_rows:
        return Figures()
    partitions = by_partition(found)
    small = np.asarray(partitions.column("small_file_count"))
    worst_place = int(small.argmax())
    mergeable, after = _mergeable(files, rules)
    runs = np.asarray(found.column("sorted_run_count"))
    skewed, most, median = _skew(found)
    return Figures(
        partitions=partitions.num_rows,
        cells=found.num_rows,
        files=files.num_rows,
        rows=int(pc.sum(found.column("record_count")).as_py()),
        total_bytes=int(pc.sum(found.column("file_size_in_bytes")).as_py()),
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
    """How many small files lie where there are enough of them to be merged, and how many files
    would be left of those."""
    small = files.filter(pc.less(files.column("file_size_in_bytes"), rules.small_below_bytes))
    grouped = small.group_by(["partition", "bucket"], use_threads=False).aggregate(
        [("file_size_in_bytes", "sum"), ("file_size_in_bytes", "count")]
    )
    counts = np.asarray(grouped.column("file_size_in_bytes_count"))
    sizes = np.asarray(grouped.column("file_size_in_bytes_sum"))
    enough = counts >= rules.files_min
    left = -(-sizes[enough] // rules.target_bytes)
    return int(counts[enough].sum()), int(np.maximum(left, 1).sum())


def _skew(found: pa.Table) -> tuple[str, int, int]:
    """The partition whose largest and median bucket differ most, and their bytes."""
    encoded = found.column("partition").combine_chunks().dictionary_encode()
    codes = np.asarray(encoded.indices)
    sizes = np.asarray(found.column("file_size_in_bytes"))
    order = np.lexsort((sizes, codes))
    codes, sizes = codes[order], sizes[order]
    starts = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]])
    ends = np.r_[starts[1:], len(codes)]
    largest, median = sizes[ends - 1], sizes[(starts + ends - 1) // 2]
    place = int(((largest - median) * (ends - starts > 1)).argmax())
    name = str(encoded.dictionary[int(codes[starts[place]])])
    return name, int(largest[place]), int(median[place])
