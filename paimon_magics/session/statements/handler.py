"""What a session can do with one statement: run it, plan it, show what it takes away."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paimon_magics.errors import UnconfirmedError
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.writes.ordering import NOTHING_CHANGED, Changed
from paimon_magics.session.writes.replaced import Replaced
from paimon_magics.statements.statement import TableName

__all__ = ["Handler"]


@dataclass(frozen=True, slots=True)
class Handler:
    """The capabilities of a kind of statement, for one statement. None says that the kind does not
    have the capability. Each raises errors of ours.

    - `run` does what the statement says.
    - `dry_run` plans and checks it, and gives a sentence; without it nothing can be checked.
    - `explain` gives a line for each decision, and Spark's plan in the given EXPLAIN mode; without
      it the sentence of `dry_run` is the explanation.
    - `preview` gives what the statement would take away, for kinds whose purpose that is.
    - `unconfirmed` gives the error that asks for a confirmation, None where nothing much would be
      lost; its argument is Spark's partitionOverwriteMode in lower case.

    `changed` are the tables whose small inserts are loaded before `run`. `needs` are the tables
    that must be there for planning, `creates` is one that is there only after `run`.
    """

    run: Callable[[], Outcome]
    dry_run: Callable[[], str] | None
    explain: Callable[[str], list[str]] | None
    preview: Callable[[], Replaced] | None
    unconfirmed: Callable[[str], UnconfirmedError | None] | None
    changed: Changed = NOTHING_CHANGED
    needs: tuple[TableName, ...] = ()
    creates: TableName | None = None
