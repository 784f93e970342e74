"""The order between a statement and the small inserts into the tables that it changes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from paimon_magics.errors import PaimonMagicsError
from paimon_magics.planning.writes.inserts import takes_small_inserts
from paimon_magics.session.connection import Connection
from paimon_magics.session.writes.small_inserts import flush_queue
from paimon_magics.statements.statement import TableName

__all__ = ["NOTHING_CHANGED", "Changed", "in_order"]


@dataclass(frozen=True, slots=True)
class Changed:
    """The tables that a statement changes. `takes_away`: afterwards no table has these names;
    `renamed_to` gives the new name of a single renamed table."""

    tables: Callable[[], Sequence[TableName]]
    takes_away: bool = False
    renamed_to: Callable[[], TableName] | None = None


_TOLD_SECONDS = 1.0

NOTHING_CHANGED = Changed(lambda: ())


@contextlib.contextmanager
def in_order(connection: Connection, changed: Changed) -> Iterator[list[str]]:
    """Run the body, a statement that is no small insert, in order with them. Inserts that were
    acknowledged before are made visible first, so that the statement sees them and a schema change
    finds none of the old schema waiting. While a table is dropped or renamed it takes no inserts,
    since nothing could load them. Yields notes for the statement's outcome: a long wait."""
    notes: list[str] = []
    if connection.committer.inserts() is None:
        yield notes
        return
    with contextlib.ExitStack() as places:
        for name in changed.tables():
            try:
                table = connection.tables.load(connection.full_name(name))
            except PaimonMagicsError:
                continue  # the statement's own error is better
            connection.inserted.pop(table.name, None)
            if not takes_small_inserts(table.schema) or table.name.branch is not None:
                continue
            if changed.takes_away:
                target = changed.renamed_to() if changed.renamed_to is not None else None
                places.enter_context(_taken_away(connection, table.name, target))
            else:
                notes += _loaded(connection, table.name)
        yield notes


def _loaded(connection: Connection, name: TableName) -> Iterator[str]:
    """Make visible what was acknowledged. Yields a note if that took long."""
    started = time.monotonic()
    lsn, _ = flush_queue(connection, name)
    seconds = time.monotonic() - started
    if seconds >= _TOLD_SECONDS:
        yield (
            f"Waited {seconds:.1f} s until the small inserts of `{name}` up to record {lsn}, which "
            "were acknowledged before, were loaded."
        )


@contextlib.contextmanager
def _taken_away(
    connection: Connection, name: TableName, renamed_to: TableName | None
) -> Iterator[None]:
    queues = connection.committer.administration().queues
    id = queues.begin_change(name, takes_away=True, renamed_to=renamed_to)
    done = False
    try:
        yield
        done = not connection.catalog.table_exists(name)
    finally:
        queues.end_change(name, id, done=done)
