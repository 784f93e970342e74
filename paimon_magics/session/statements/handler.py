"""What a session can do with one statement: run it, plan it, preview what it takes away."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paimon_magics.errors import UnconfirmedError
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.writes.ordering import Changed, nothing_changed
from paimon_magics.session.writes.replaced import Replaced
from paimon_magics.session.writes.row_previews import ChangedRows
from paimon_magics.statements.statement import TableName

__all__ = ["Handler"]


@dataclass(frozen=True, slots=True)
class Handler:
    """The capabilities of one statement. None means that its kind lacks the capability. Each raises
    errors of ours.

    - `run` runs the statement.
    - `dry_run` plans and checks it and returns a sentence; without it nothing can be checked.
    - `explain` returns a line for each decision, and Spark's plan in the given EXPLAIN mode;
      without it the sentence of `dry_run` is the explanation.
    - `preview` returns what the statement would take away or change, for kinds that can do so.
    - `unconfirmed` returns the error that asks for a confirmation, None if not much would be lost;
      its argument is Spark's partitionOverwriteMode in lower case.

    `changed` are the tables whose small inserts are loaded before `run`. `needs` are the tables
    that must exist for planning; `creates` is a table that exists only after `run`.
    """

    run: Callable[[], Outcome]
    dry_run: Callable[[], str] | None
    explain: Callable[[str], list[str]] | None
    preview: Callable[[], Replaced | ChangedRows] | None
    unconfirmed: Callable[[str], UnconfirmedError | None] | None
    changed: Changed = nothing_changed
    needs: tuple[TableName, ...] = ()
    creates: TableName | None = None
