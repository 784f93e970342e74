"""A report on a table's snapshots in time; two of them can be picked and compared."""

from __future__ import annotations

from collections import Counter

from paimon_magics.columnar.time_zones import process_zone
from paimon_magics.planning.commits.expiry import retention_note
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.reports.view_queries import snapshots_sql
from paimon_magics.session.connection import Connection
from paimon_magics.session.reports.changes import changes_of
from paimon_magics.session.reports.difference import difference_of
from paimon_magics.session.reports.report import Action, Bar, Chart, Report, Section, Shape
from paimon_magics.statements.clauses.names import table_text
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.system_tables.registry import table_view
from paimon_magics.tables.system_tables.timeline import TIMELINE, timeline

__all__ = ["timeline_of"]

_UNSHOWN = ("commit_time", "user", "notebook", "commit_user")  # these differ between runs
_SHOWN = tuple(name for name in TIMELINE.names if name not in _UNSHOWN)
_BESIDE = ("files_added", "files_removed", "tags", "user", "notebook")  # in no system table
_IN_SQL = tuple(name for name in TIMELINE.names if name not in _BESIDE)
_LETTERS = {"APPEND": "A", "COMPACT": "C", "OVERWRITE": "O", "ANALYZE": "S"}
_DRAWN = 40


def timeline_of(connection: Connection, name: TableName, shown: str) -> Report:
    """Report the snapshots of a table that have not expired, the newest first. `shown` is the
    table's name in the report. Raises UnknownNameError."""
    found = timeline(table_view(connection.catalog, name))
    kinds = Counter(found.column("commit_kind").to_pylist())
    said = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
    summary = f"{shown}: {count_text(found.num_rows, 'snapshot')}" + (f" ({said})" if said else "")
    newest = found.slice(0, _DRAWN).to_pylist()
    bars = tuple(
        Bar(
            str(one["snapshot_id"]),
            one["rows"] or 0,
            f"{one['commit_kind']}, {count_text(one['rows'] or 0, 'row')}",
            _LETTERS.get(one["commit_kind"], "?"),
        )
        for one in reversed(newest)
    )
    legend = ", ".join(f"{_LETTERS.get(kind, '?')} {kind}" for kind in sorted(kinds))
    chart = Chart(f"Rows added or removed by each commit ({legend})", bars, Shape.COLUMNS)
    actions = (
        Action("Compare the two", 2, lambda rows: difference_of(connection, name, *_ends(rows))),
        Action("Changes between", 2, lambda rows: changes_of(connection, name, *_ends(rows))),
    )
    query = snapshots_sql(table_text(name, "snapshots"), process_zone())
    section = Section(
        "", found, query, _SHOWN, in_query=_IN_SQL,
        actions=actions if found.num_rows > 1 else (), charts=(chart,) if bars else (),
    )  # fmt: skip
    note = retention_note(connection.catalog.load(name).schema)
    return Report("TIMELINE", summary, (section,), (note,) if note else ())


def _ends(rows: object) -> tuple[str, str]:
    """The ids of the earlier and the later snapshot of two picked rows."""
    ids = sorted(int(row["snapshot_id"]) for row in rows)  # type: ignore[attr-defined]
    return str(ids[0]), str(ids[1])
