"""What a session can do with one statement: run it, plan it, preview what it deletes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from paimon_magics.errors import PaimonMagicsError, UnconfirmedError, UnsupportedStatementError
from paimon_magics.planning.writes.inserts import takes_small_inserts
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.row_changes.previews import ChangedRows
from paimon_magics.session.scope import StatementScope
from paimon_magics.session.writes.merged_schemas import HarmReport
from paimon_magics.session.writes.outcomes import Replaced, rows_back, rows_taken
from paimon_magics.session.writes.small_inserts import flush_queue
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.subjects import Statement
from paimon_magics.statements.version_changes import Call
from paimon_magics.tables.snapshots.latest import latest_snapshot_id
from paimon_magics.tables.table import Table

CONFIRM = "begin the cell with %%paimon --yes, or give session.run confirm=True."
SEE_PREVIEW = "%%paimon --preview shows the rows of each partition."
_TOLD_SECONDS = 1.0


Changed = Callable[[], Sequence[TableName]]
"""Gives the tables whose rows a statement changes. DROP and RENAME come in order with small inserts
by themselves (`Definitions`)."""


def nothing_changed() -> Sequence[TableName]:
    """The tables of a statement that changes no rows."""
    return ()


@dataclass(frozen=True, slots=True)
class Standing:
    """What a statement would remove beside rows, as a `line`, and what keeps the rest: `rows`."""

    rows: pa.Table
    line: str


@dataclass(frozen=True, slots=True)
class Handler:
    """The capabilities of one statement. None means that its kind lacks the capability. Each raises
    errors of ours.

    - `run` runs the statement.
    - `dry_run` plans and checks it and returns a sentence; without it nothing can be checked.
    - `explain` returns a line for each decision, and Spark's plan in the given EXPLAIN mode;
      without it the sentence of `dry_run` is the explanation.
    - `preview` returns what the statement would delete or change, for kinds that can do so.
    - `unconfirmed` returns the error that asks for a confirmation, None if not much would be lost;
      its argument is Spark's partitionOverwriteMode in lower case.

    `changed` are the tables whose small inserts are loaded before `run`. `needs` are the tables
    that must exist for planning; `creates` is a table that exists only after `run`.
    """

    run: Callable[[], Outcome]
    dry_run: Callable[[], str] | None = None
    explain: Callable[[str], list[str]] | None = None
    preview: Callable[[], Replaced | ChangedRows | Standing] | None = None
    unconfirmed: Callable[[str], UnconfirmedError | None] | None = None
    changed: Changed = nothing_changed
    needs: tuple[TableName, ...] = ()
    creates: TableName | None = None


# The outcomes of statements that define and show: a message, or columns of text.


def listing(
    scope: StatementScope,
    statement: Statement,
    kind: str,
    columns: Mapping[str, Sequence[object]],
) -> Outcome:
    """Return rows of text columns; `isTemporary` alone is BOOLEAN."""
    types = {"isTemporary": pa.bool_()}
    rows = pa.table(
        {
            name: pa.array(values, type=types.get(name, pa.string()))
            for name, values in columns.items()
        }
    )
    return Outcome.of_rows(scope.spark, statement.text, kind, rows)


def done(statement: Statement, kind: str, name: TableName, message: str) -> Outcome:
    """Return the outcome, with its message, of a statement on a table."""
    return Outcome(statement=statement.text, kind=kind, table=str(name), message=message)


def database_outcome(statement: Statement, kind: str, message: str) -> Outcome:
    """Return the outcome, with its message, of a statement on a database."""
    return Outcome(statement=statement.text, kind=kind, message=message)


def position_of(statement: Statement, name: TableName) -> int:
    """The offset of the table's name in the statement; 0 if it is not found."""
    return max(statement.text.find(name.table), 0)


# The errors that ask for a confirmation before a statement deletes much.


def unconfirmed(statement: Statement, what: str, loss: str, instead: str) -> UnconfirmedError:
    """Return the error: `what` would remove `loss`, and what to do `instead`."""
    return UnconfirmedError(
        f"{what} removes {loss}.",
        hint=f"To run it, {CONFIRM} {instead}",
        statement=statement.text,
        position=0,
    )


def taken_away(
    statement: Statement, what: str, replaced: Replaced, instead: str = SEE_PREVIEW
) -> UnconfirmedError | None:
    """Return the error for rows that would be removed by a new snapshot; None if there are none."""
    if not replaced.sizes:
        return None
    instead = f"{way_back(replaced.table)} {instead}"
    return unconfirmed(statement, what, rows_taken(replaced.sizes), instead)


def way_back(table: Table) -> str:
    """Return how to restore a table's present rows after a change of them."""
    return rows_back(table.name, latest_snapshot_id(table))


def harmed(statement: Statement, harm: HarmReport | None) -> UnconfirmedError | None:
    """Return the error for stored values that would become unreadable; None if there are none."""
    if harm is None or not harm.what:
        return None
    return UnconfirmedError(
        harm.what,
        hint=f"{harm.examined} To run it anyway, {CONFIRM} {harm.way_back} "
        f"{harm.not_looked_at}".rstrip(),
        statement=statement.text,
        position=0,
    )


def no_preview(call: Call) -> UnsupportedStatementError:
    """Return the error for a procedure that neither removes rows nor files."""
    return UnsupportedStatementError(
        f"`CALL {'.'.join(call.procedure)}` has no preview.",
        hint="Without --yes the cell asks first, and names what it takes away. --dry-run says "
        "what it would do; `%paimon diff TABLE SNAPSHOT..` shows how rows differ from a state.",
        statement=call.text,
        position=0,
    )


# How a statement would run, without running it: `--explain` and `--dry-run`.


def explained(scope: StatementScope, handler: Handler, mode: str, planned: set[str]) -> list[str]:
    """Return a line for each decision; Spark's plan of a query follows as EXPLAIN gives it.

    `planned` is as in `dry_run_sentence`.
    """
    if handler.explain is not None and not _awaited(scope, handler, planned):
        return handler.explain(mode)
    return [dry_run_sentence(scope, handler, planned)]


def dry_run_sentence(scope: StatementScope, handler: Handler, planned: set[str]) -> str:
    """Return what the statement would do. Raises the errors that it would raise before its job
    starts.

    `planned` collects the tables that earlier statements of the cell would create. Statements that
    need those can't be checked yet.
    """
    awaited = _awaited(scope, handler, planned)
    if awaited:
        shown = ", ".join(f"`{name}`" for name in awaited)
        return f"Not checked: an earlier statement would create {shown} first."
    sentence = "Would run." if handler.dry_run is None else handler.dry_run()
    if handler.creates is not None:
        planned.add(str(scope.full_name(handler.creates)))
    return sentence


def explanation(
    scope: StatementScope, statement: str, lines: list[str], query: str | None = None
) -> Outcome:
    """Return the lines as an Outcome with a single row, whose value is all lines as one text."""
    rows = pa.table({"plan": pa.array(["\n".join(lines)], type=pa.string())})
    outcome = Outcome.of_rows(scope.spark, statement, "EXPLAIN", rows, query)
    outcome.message = "\n".join(lines)
    return outcome


def _awaited(scope: StatementScope, handler: Handler, planned: set[str]) -> list[str]:
    """The tables that the statement needs and that are only `planned`."""
    ours = (None, scope.settings.catalog_name)
    names = {str(scope.full_name(n)) for n in handler.needs if n.catalog in ours}
    return sorted(names & planned)


# The order between a statement and the small inserts into the tables that it changes.


@contextlib.contextmanager
def in_order(scope: StatementScope, changed: Changed) -> Iterator[list[str]]:
    """Run the body, a statement that is not a small insert, in order with them. Inserts that were
    acknowledged before are made visible first, so that the statement sees them. Yields notes for
    the statement's outcome: a long wait."""
    notes: list[str] = []
    if scope.committer.inserts() is None:
        yield notes
        return
    for name in changed():
        try:
            table = scope.tables.load(scope.full_name(name))
        except PaimonMagicsError:
            continue  # the statement's own error is better
        scope.connection.recent.forget(table.name)
        if takes_small_inserts(table.schema) and table.name.branch is None:
            notes += _loaded(scope, table.name)
    yield notes


def _loaded(scope: StatementScope, name: TableName) -> Iterator[str]:
    """Make visible what was acknowledged. Yields a note if that took long."""
    started = time.monotonic()
    lsn, _ = flush_queue(scope, name)
    seconds = time.monotonic() - started
    if seconds >= _TOLD_SECONDS:
        yield (
            f"Waited {seconds:.1f} s until the small inserts of `{name}` up to record {lsn}, which "
            "were acknowledged before, were loaded."
        )
