"""The order between a statement and the small inserts into the tables that it changes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

from paimon_magics.errors import PaimonMagicsError
from paimon_magics.planning.writes.inserts import takes_small_inserts
from paimon_magics.session.scope import StatementScope
from paimon_magics.session.writes.small_inserts import flush_queue
from paimon_magics.statements.statement import TableName

Changed = Callable[[], Sequence[TableName]]
"""Gives the tables whose rows a statement changes. DROP and RENAME come in order with small inserts
by themselves (`Definitions`)."""

_TOLD_SECONDS = 1.0


def nothing_changed() -> Sequence[TableName]:
    """The tables of a statement that changes no rows."""
    return ()


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
