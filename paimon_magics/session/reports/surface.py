"""What `session.reports` offers: reports on a table or on the coordinator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from paimon_magics.boundary import short_errors
from paimon_magics.columnar.time_zones import process_zone
from paimon_magics.coordinator.client.administration import Status
from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.commits.expiry import retention_note
from paimon_magics.planning.formatting import count_text, size_text
from paimon_magics.planning.reports.view_queries import snapshots_sql
from paimon_magics.session.connection import Connection
from paimon_magics.session.parameters import bind, bindings_text, with_values
from paimon_magics.session.reports.administration import Administration
from paimon_magics.session.reports.changes import changes_of, latest_range
from paimon_magics.session.reports.difference import difference_of
from paimon_magics.session.reports.files import files_of, partitions_of
from paimon_magics.session.reports.profile import Effort, profile_of
from paimon_magics.session.reports.report import (
    Action,
    Bar,
    Chart,
    Report,
    Section,
    Shape,
    report_in_zone,
)
from paimon_magics.session.scope import StatementScope, statement_scope
from paimon_magics.session.statements.queries import TableRead, table_reads
from paimon_magics.statements.clauses.names import named, table_text
from paimon_magics.statements.grammar.parsing import parse_cell
from paimon_magics.statements.statement import Insert, Query, TableName
from paimon_magics.statements.subjects import Explain
from paimon_magics.tables.splits.pruning_steps import PruningStep
from paimon_magics.tables.system_tables.registry import table_view
from paimon_magics.tables.system_tables.versions import TIMELINE, timeline

if TYPE_CHECKING:
    from paimon_magics.session.reports.administration import Administration


_UNSHOWN = ("commit_time", "user", "notebook", "commit_user")  # these differ between runs
_SHOWN = tuple(name for name in TIMELINE.names if name not in _UNSHOWN)
_BESIDE = ("files_added", "files_removed", "tags", "user", "notebook")  # in no system table
_IN_SQL = tuple(name for name in TIMELINE.names if name not in _BESIDE)
_LETTERS = {"APPEND": "A", "COMPACT": "C", "OVERWRITE": "O", "ANALYZE": "S"}
_DRAWN = 40


# Columns that stay the same between runs; times and ids are only in the data.
_TRANSACTIONS_SHOWN = ("table", "state")
_QUEUES_SHOWN = ("table", "state", "mode", "visible", "waiting_rows", "dead_letters", "last_error")


_SCHEMA = pa.schema(
    [
        ("step", pa.string()),
        ("files", pa.int64()),
        ("buckets", pa.int64()),
        ("partitions", pa.int64()),
        ("bytes", pa.int64()),
    ]
)


@short_errors
class Reporting:
    """Each method returns a Report: `.data` is an Arrow table, `.sql` its query or "" without one.
    Instants are in the session's zone."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def snapshots(self, name: str) -> Report:
        """A table's snapshots, newest first; two can be compared. Without a Spark job."""
        return self._report(lambda scope: _timeline_of(scope, self._table(name), name))

    def diff(self, name: str, before: str, after: str) -> Report:
        """The difference of two states in rows, files and schema. Each state is a snapshot, a tag,
        or a time such as `2026-01-31 12:00:00`."""
        return self._report(lambda scope: difference_of(scope, self._table(name), before, after))

    def changes(self, name: str, start: str | None = None, end: str | None = None) -> Report:
        """The changes after `start` up to `end`, two snapshots or two tags, with the rows before
        updates. If both are None, the changes of the last ten snapshots."""
        full = self._full(name)

        def changes(scope: StatementScope) -> Report:
            if start is None or end is None:
                return changes_of(scope, full, *latest_range(scope, full))
            return changes_of(scope, full, start, end)

        return self._report(changes)

    def files(self, name: str, partition: str | None = None) -> Report:
        """The data files of a table, or of a partition such as `day=2026-11-20`."""
        return self._report(lambda scope: files_of(scope, self._table(name), name, partition))

    def partitions(self, name: str) -> Report:
        """The partitions of a table, with their share of small files."""
        return self._report(lambda scope: partitions_of(scope, self._table(name), name))

    def profile(self, name: str, effort: Effort = Effort.NEEDED) -> Report:
        """NULLs, bounds and distinct values of each column; by at most one Spark job."""
        return self._report(lambda scope: profile_of(scope, self._table(name), name, effort))

    def explain(
        self,
        text: str,
        parameters: Mapping[str, object] | None = None,
        *,
        frames: Mapping[str, object] | None = None,
    ) -> Report:
        """How a query prunes files, step by step. Runs nothing."""
        return self._report(lambda scope: _pruning_of(scope, text, dict(parameters or {})), frames)

    def queue(self) -> Report:
        """The coordinator, its open transactions, and its queues of small inserts."""
        return self._report(lambda _: queue_of(Administration(self._connection)))

    def _report(
        self,
        make: Callable[[StatementScope], Report],
        frames: Mapping[str, object] | None = None,
    ) -> Report:
        with statement_scope(self._connection, frames) as scope:
            return report_in_zone(make(scope), lambda: self._connection.zone)

    def _full(self, name: str) -> TableName:
        return self._connection.full_name(named(name))

    def _table(self, name: str) -> TableName:
        """Return the full name of a table; refuses a system table."""
        full = self._full(name)
        if full.system_table is not None:
            raise UnsupportedStatementError(
                f"`{full}` has no files of its own.", hint="Name the table without `$…`."
            )
        return full


# A report on a table's snapshots in time; two of them can be picked and compared.


def _timeline_of(scope: StatementScope, name: TableName, shown: str) -> Report:
    """Report the snapshots of a table that have not expired, the newest first. `shown` is the
    table's name in the report. Raises UnknownNameError."""
    snapshots = timeline(table_view(scope.catalog, name))
    kinds = Counter(snapshots.column("commit_kind").to_pylist())
    kind_counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
    summary = f"{shown}: {count_text(snapshots.num_rows, 'snapshot')}" + (
        f" ({kind_counts})" if kind_counts else ""
    )
    newest = snapshots.slice(0, _DRAWN).to_pylist()
    bars = tuple(
        Bar(
            str(snapshot["snapshot_id"]),
            snapshot["rows"] or 0,
            f"{snapshot['commit_kind']}, {count_text(snapshot['rows'] or 0, 'row')}",
            _LETTERS.get(snapshot["commit_kind"], "?"),
        )
        for snapshot in reversed(newest)
    )
    legend = ", ".join(f"{_LETTERS.get(kind, '?')} {kind}" for kind in sorted(kinds))
    chart = Chart(f"Rows added or removed by each commit ({legend})", bars, Shape.COLUMNS)
    actions = (
        Action(
            "Compare the two", 2, lambda rows: difference_of(scope.renewed(), name, *_ends(rows))
        ),
        Action("Changes between", 2, lambda rows: changes_of(scope.renewed(), name, *_ends(rows))),
    )
    query = snapshots_sql(table_text(name, "snapshots"), process_zone())
    section = Section(
        "", snapshots, query, _SHOWN, in_query=_IN_SQL,
        actions=actions if snapshots.num_rows > 1 else (), charts=(chart,) if bars else (),
    )  # fmt: skip
    note = retention_note(scope.catalog.load(name).schema)
    return Report("TIMELINE", summary, (section,), (note,) if note else ())


def _ends(rows: object) -> tuple[str, str]:
    """The ids of the earlier and the later snapshot of two picked rows."""
    ids = sorted(int(row["snapshot_id"]) for row in rows)  # type: ignore[attr-defined]
    return str(ids[0]), str(ids[1])


# A report on the coordinator: its open transactions, its queues of small inserts, and what it
# compacts.
#
# It is read again on each request; nothing here runs by itself.


def queue_of(administration: Administration) -> Report:
    """Report coordinator, transactions, queues and compactions.

    Raises SetupError without a coordinator.
    """
    status = administration.status_now()
    transactions = administration.transaction_rows()
    queues = administration.queue_rows()
    waiting = sum(queues.column("waiting_rows").to_pylist())
    summary = (
        f"{_state(status)}; {count_text(transactions.num_rows, 'transaction')} open; "
        f"{count_text(waiting, 'row')} of small inserts {'waits' if waiting == 1 else 'wait'}"
    )
    bars = tuple(
        Bar(queue["table"], queue["waiting_rows"], count_text(queue["waiting_rows"], "row"))
        for queue in queues.to_pylist()
    )
    charts = (Chart("Rows that wait to be loaded", bars),) if waiting else ()
    sections = (
        Section("Open transactions", transactions, "", _TRANSACTIONS_SHOWN),
        Section("Small inserts", queues, "", _QUEUES_SHOWN, charts=charts),
        Section("Compactions", administration.compaction_rows(), "", only_live=True),
        Section("Coordinator", _coordinator(status, administration.in_zone), "", only_live=True),
    )

    def refresh() -> Report | None:
        return None if administration.is_closed else queue_of(administration)

    return Report("QUEUE", summary, sections, refresh=refresh)


def _state(status: Status) -> str:
    if status.problem is not None:
        return f"The coordinator is not accepting requests: {status.problem}"
    if status.pause is not None:
        return f"The coordinator is paused by {status.pause.by or 'somebody'}"
    return "The coordinator accepts new transactions"


def _coordinator(status: Status, in_zone: Callable[[str], str]) -> pa.Table:
    rows = [
        ("state", _state(status)),
        ("warehouse", status.warehouse),
        ("address", status.address),
        ("started by", f"{status.user} on {status.host} (process {status.process})"),
        ("version", status.version),
        *(("being published", commit) for commit in status.pending_commits),
        *(
            ("stopped", f"{stopped_table.location}: {stopped_table.reason}")
            for stopped_table in status.stopped_tables
        ),
    ]
    names, values = zip(*rows, strict=True)
    return pa.table({"what": pa.array(names), "value": pa.array(list(map(in_zone, values)))})


# A report on how a query prunes files, table by table.


def _pruning_of(scope: StatementScope, text: str, parameters: Mapping[str, object]) -> Report:
    """Report what a query, or the query of an INSERT, reads: a section for each table. Runs
    nothing.

    Raises UnsupportedStatementError for other statements, and what the query itself would raise.
    """
    statements = parse_cell(text)
    if len(statements) != 1:
        raise UnsupportedStatementError(
            f"%paimon explain takes one query, not {len(statements)} statements.",
            hint="%paimon explain SELECT …; several statements: a cell with %%paimon --explain.",
        )
    statement = statements[0]
    if isinstance(statement, Explain):
        statement = statement.inner
    match statement:
        case Query():
            query = statement.query
        case Insert():
            query = statement.source
        case _:
            raise UnsupportedStatementError(
                f"%paimon explain takes a query or an INSERT, not "
                f"`{statement.text.split()[0].upper()}`.",
                hint="Other statements are explained by a cell with %%paimon --explain.",
            )
    bound = bind(query.parameters, parameters, statement.text, scope.zone)
    reads = table_reads(scope, statement.text, query, bound)
    text = with_values(statement.text, bound)
    opened = [read for read in reads if read.pruning_steps and read.opens_files]
    left = sum(read.pruning_steps[-1].files for read in opened)
    everything = sum(read.pruning_steps[0].files for read in reads if read.pruning_steps)
    summary = (
        f"{count_text(len(reads), 'table')}; {left:,} of {count_text(everything, 'file')} would be "
        "read"
        if reads
        else "The query reads no table."
    )
    notes = []
    if bound:
        notes.append(f"With {bindings_text(bound)}, the query is:\n    {text}")
    notes.append("Spark's own plan: %%paimon --explain")
    return Report("PRUNING", summary, tuple(map(_section, reads)), tuple(notes))


def _section(read: TableRead) -> Section:
    rows = [
        {
            "step": pruning_step.step,
            "files": pruning_step.files,
            "buckets": pruning_step.buckets,
            "partitions": pruning_step.partitions,
            "bytes": pruning_step.size_bytes,
        }
        for pruning_step in read.pruning_steps
    ]
    bars = tuple(
        Bar(pruning_step.step, pruning_step.files, _amount(pruning_step))
        for pruning_step in read.pruning_steps
    )
    charts = (Chart("Files left after each step", bars),) if bars else ()
    note = " ".join(
        f"{sentence[0].upper()}{sentence[1:]}." for sentence in (read.how, *read.conditions)
    )
    table = pa.Table.from_pylist(rows, schema=_SCHEMA) if rows else pa.table({})
    return Section(read.name, table, "", charts=charts, note=note)


def _amount(step: PruningStep) -> str:
    files = count_text(step.files, "file")
    return files if step.size_bytes is None else f"{files}, {size_text(step.size_bytes)}"
