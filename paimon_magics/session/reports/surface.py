"""What `session.reports` offers: reports on a table or on the coordinator."""

from __future__ import annotations

from collections.abc import Mapping

from paimon_magics.boundary import short_errors
from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.session.connection import Connection
from paimon_magics.session.reports.administration import Administration
from paimon_magics.session.reports.changes import changes_of, latest_range
from paimon_magics.session.reports.difference import difference_of
from paimon_magics.session.reports.files import files_of, partitions_of
from paimon_magics.session.reports.profile import Effort, profile_of
from paimon_magics.session.reports.pruning import pruning_of
from paimon_magics.session.reports.queue import queue_of
from paimon_magics.session.reports.report import Report, told_in_zone
from paimon_magics.session.reports.snapshots import timeline_of
from paimon_magics.statements.clauses.given_names import named
from paimon_magics.statements.statement import TableName

__all__ = ["Reporting"]


@short_errors
class Reporting:
    """Each method returns a Report: `.data` is an Arrow table, `.sql` its query or "" without one.
    Instants are in the session's zone."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def snapshots(self, name: str) -> Report:
        """A table's snapshots, newest first; two can be compared. Without a Spark job."""
        return self._told(timeline_of(self._connection, self._table(name), name))

    def diff(self, name: str, before: str, after: str) -> Report:
        """The difference of two states in rows, files and schema. Each state is a snapshot, a tag,
        or a time such as `2026-01-31 12:00:00`."""
        return self._told(difference_of(self._connection, self._table(name), before, after))

    def changes(self, name: str, start: str | None = None, end: str | None = None) -> Report:
        """The changes after `start` up to `end`, two snapshots or two tags, with the rows before
        updates. If both are None, the changes of the last ten snapshots."""
        full = self._full(name)
        if start is None or end is None:
            start, end = latest_range(self._connection, full)
        return self._told(changes_of(self._connection, full, start, end))

    def files(self, name: str, partition: str | None = None) -> Report:
        """The data files of a table, or of a partition such as `day=2026-11-20`."""
        return self._told(files_of(self._connection, self._table(name), name, partition))

    def partitions(self, name: str) -> Report:
        """The partitions of a table, with their share of small files."""
        return self._told(partitions_of(self._connection, self._table(name), name))

    def profile(self, name: str, effort: Effort = Effort.NEEDED) -> Report:
        """NULLs, bounds and distinct values of each column; by at most one Spark job."""
        return self._told(profile_of(self._connection, self._table(name), name, effort))

    def explain(
        self,
        text: str,
        parameters: Mapping[str, object] | None = None,
        *,
        frames: Mapping[str, object] | None = None,
    ) -> Report:
        """How a query prunes files, step by step. Runs nothing."""
        with self._connection.naming(frames):
            return self._told(pruning_of(self._connection, text, dict(parameters or {})))

    def queue(self) -> Report:
        """The coordinator, its open transactions, and its queues of small inserts."""
        return self._told(queue_of(Administration(self._connection)))

    def _told(self, report: Report) -> Report:
        return told_in_zone(report, lambda: self._connection.zone)

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
