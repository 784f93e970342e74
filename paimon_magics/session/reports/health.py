"""The health of tables' layouts: what `%paimon health` returns.

It has findings in words with the statement that would help, and the distribution of file sizes,
also for each partition. This process reads it from manifests, without a Spark job. It is shown as
text here, and by `paimon_widgets` as an interactive view.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.boundary import short_errors
from paimon_magics.columnar.layouts import partition_sizes
from paimon_magics.planning.formatting import count_text, size_text
from paimon_magics.planning.reports.health import Finding, Severity, worst
from paimon_magics.planning.reports.view_queries import partitions_sql
from paimon_magics.session.rendering import render_text
from paimon_magics.session.reports.layout import Layout, step_texts
from paimon_magics.session.reports.report import Bar, Chart, bar_lines
from paimon_magics.statements.clauses.names import spelled, table_text, text_literal
from paimon_magics.tables.catalog.catalog import Catalog

if TYPE_CHECKING:
    from paimon_magics.session.outcome import Outcome

_WORST_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Helper:
    """The session's part in a live view: `run` runs a statement, `look` reads a table's layout."""

    run: Callable[[str], Outcome]
    look: Callable[[str], Layout]


@short_errors
@dataclass(frozen=True, slots=True)
class Health:
    """The health of the layouts of some tables, in the order of their names.

    `data` has a row for each finding. `partitions` has the sums that the findings are drawn from;
    `sql` is the query for those. `helper` is for views that run the statements of findings.
    """

    layouts: tuple[Layout, ...]
    helper: Helper | None = field(default=None, compare=False, repr=False)

    @property
    def findings(self) -> dict[str, tuple[Finding, ...]]:
        """The findings on each table."""
        return {layout.name: layout.findings() for layout in self.layouts}

    @property
    def severity(self) -> Severity:
        """The highest severity of all findings."""
        return max((worst(finding) for finding in self.findings.values()), default=Severity.GOOD)

    @property
    def data(self) -> pa.Table:
        """A row for each finding."""
        rows = [
            (name, finding.severity.word, finding.text, finding.statement)
            for name, findings in self.findings.items()
            for finding in findings
        ]
        names = ("table", "severity", "finding", "statement")
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
        return pa.table({n: pa.array(c, pa.string()) for n, c in zip(names, columns, strict=True)})

    @property
    def partitions(self) -> pa.Table:
        """The sums of each partition of each table, and its share of small files."""
        parts = []
        for layout in self.layouts:
            sizes = sizes_of(layout)
            names = pa.array([layout.name] * sizes.num_rows, pa.string())
            parts.append(sizes.add_column(0, "table", names))
        return pa.concat_tables(parts) if parts else pa.table({})

    @property
    def sql(self) -> str:
        """The query that gives `partitions`."""
        return " UNION ALL ".join(
            f"(SELECT {text_literal(layout.name)} AS table, * FROM ({sizes_sql(layout)}))"
            for layout in self.layouts
        )

    def to_json(self) -> dict[str, Any]:
        """The findings and sums of each table as JSON values, for scripts."""
        return {
            layout.name: {
                "severity": worst(finding).word,
                "snapshot_id": layout.snapshot_id,
                "files": layout.figures.files,
                "small_files": layout.figures.small_files,
                "rows": layout.figures.rows,
                "bytes": layout.figures.total_bytes,
                "findings": [
                    {"severity": f.severity.word, "text": f.text, "statement": f.statement}
                    for f in finding
                ],
            }
            for layout, finding in zip(self.layouts, self.findings.values(), strict=True)
        }

    def __str__(self) -> str:
        lines = []
        for layout, findings in zip(self.layouts, self.findings.values(), strict=True):
            lines.append(f"{layout.summary()}")
            for finding in findings:
                lines.append(f"  {finding.severity.word}: {finding.text}")
                if finding.statement:
                    lines.append(f"    {finding.statement}")
            chart = sizes_chart(layout)
            table = worst_partitions(layout)
            shown = ["", *render_text(table, _WORST_SHOWN).splitlines()] if table.num_rows else []
            lines += [f"  {line}".rstrip() for line in (*bar_lines(chart), *shown)]
        return "\n".join(lines) or "There are no tables."

    def __repr__(self) -> str:
        return str(self)


def tables_of(catalog: Catalog, text: str | None, database: str) -> list[str]:
    """The tables that `shop.*` or a table's name means; None means all tables of `database`."""
    if text is not None and text != "*" and not text.endswith(".*"):
        return [text]
    if text not in (None, "*"):
        assert text is not None
        database = text.removesuffix(".*").strip("`")
    return [f"{spelled(database)}.{spelled(name)}" for name in catalog.list_tables(database)]


def sizes_of(layout: Layout) -> pa.Table:
    """The sums of each partition with `small_share`. Partitions that need attention come first: in
    a primary-key table those with most sorted runs, else those with most small files."""
    sizes = layout.partitions()
    small, files = (
        sizes.column(name).cast(pa.float64()) for name in ("small_file_count", "file_count")
    )
    sizes = sizes.append_column("small_share", pc.round(pc.divide(small, files), 2))
    by = "sorted_run_count" if layout.rules.is_primary_key_table else "small_file_count"
    return sizes.sort_by([(by, "descending"), ("partition", "ascending")])


def sizes_sql(layout: Layout) -> str:
    """The query that gives the sums of `sizes_of`."""
    files = table_text(layout.table, "files")
    return partitions_sql(files, layout.partition_names, layout.rules.small_below_bytes)


def rules_text(layout: Layout) -> str:
    """The table's own rules in words: what its options ask for."""
    rules = layout.rules
    small = (
        f"target-file-size {size_text(rules.target_bytes)}; a file below "
        f"{size_text(rules.small_below_bytes)} is small"
    )
    if rules.is_primary_key_table:
        return f"{small}; compaction from {rules.run_trigger} sorted runs in a bucket on"
    return f"{small}; compaction from {count_text(rules.files_min, 'small file')} in a partition on"


def sizes_chart(layout: Layout, title: str = "") -> Chart:
    """A chart of the number of files in each step of sizes; small steps are marked unless all is
    good."""
    is_good = worst(layout.findings()) is Severity.GOOD
    small = 0 if is_good else layout.rules.small_below_bytes
    edges = layout.histogram.edges_bytes
    bars = []
    for place, (step, count) in enumerate(
        zip(step_texts(layout.histogram), layout.histogram.file_counts, strict=True)
    ):
        if count:
            is_small = place + 1 < len(edges) and edges[place + 1] <= small
            is_mixed = not is_small and edges[place] < small
            word = "small" if is_small else "some small" if is_mixed else ""
            bars.append(Bar(step, count, f"{count:,}{f', {word}' if word else ''}", word))
    return Chart(title or f"Sizes of the files of {layout.name}", tuple(bars))


def worst_partitions(layout: Layout, count: int = _WORST_SHOWN) -> pa.Table:
    """The `count` worst partitions with small files, in the order of `sizes_of`, and the number of
    their files in each step of sizes. No rows without small files, without a finding, or with fewer
    than two partitions."""
    sizes = sizes_of(layout)
    is_good = worst(layout.findings()) is Severity.GOOD
    if sizes.num_rows < 2 or is_good or not layout.figures.small_files:
        return sizes.slice(0, 0)
    sizes = sizes.filter(pc.greater(sizes.column("small_file_count"), 0)).slice(0, count)
    counts = partition_sizes(layout.files, layout.rules.target_bytes)
    names = sizes.column("partition").to_pylist()
    steps = {
        step: [counts[name][place] for name in names]
        for place, step in enumerate(step_texts(layout.histogram))
    }
    shares = [f"{share:.0%}" for share in sizes.column("small_share").to_pylist()]
    return pa.table(
        {
            "partition": names,
            "files": sizes.column("file_count"),
            "small": sizes.column("small_file_count"),
            "share": shares,
            **{step: column for step, column in steps.items() if any(column)},
        }
    )
