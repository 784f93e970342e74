"""How a statement would run, without running it: `--explain` and `--dry-run`."""

from __future__ import annotations

import pyarrow as pa

from paimon_magics.session.connection import Connection
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.statements.handler import Handler

__all__ = ["dry_run_sentence", "explained", "explanation"]


def explained(connection: Connection, handler: Handler, mode: str, planned: set[str]) -> list[str]:
    """Return a line for each decision; Spark's plan of a query follows as EXPLAIN gives it.

    `planned` is as in `dry_run_sentence`.
    """
    if handler.explain is not None and not _awaited(connection, handler, planned):
        return handler.explain(mode)
    return [dry_run_sentence(connection, handler, planned)]


def dry_run_sentence(connection: Connection, handler: Handler, planned: set[str]) -> str:
    """Return what the statement would do. Raises the errors that it would raise before its job
    starts.

    `planned` collects the tables that earlier statements of the cell would create. Statements that
    need those can't be checked yet.
    """
    awaited = _awaited(connection, handler, planned)
    if awaited:
        shown = ", ".join(f"`{name}`" for name in awaited)
        return f"Not checked: an earlier statement would create {shown} first."
    sentence = "Would run." if handler.dry_run is None else handler.dry_run()
    if handler.creates is not None:
        planned.add(str(connection.full_name(handler.creates)))
    return sentence


def explanation(
    connection: Connection, statement: str, lines: list[str], query: str | None = None
) -> Outcome:
    """Return the lines as an Outcome with a single row, whose value is all lines as one text."""
    rows = pa.table({"plan": pa.array(["\n".join(lines)], type=pa.string())})
    outcome = Outcome.of_rows(connection.spark, statement, "EXPLAIN", rows, query)
    outcome.message = "\n".join(lines)
    return outcome


def _awaited(connection: Connection, handler: Handler, planned: set[str]) -> list[str]:
    """The tables that the statement needs and that are only `planned`."""
    ours = (None, connection.settings.catalog_name)
    names = {str(connection.full_name(n)) for n in handler.needs if n.catalog in ours}
    return sorted(names & planned)
