"""The errors that ask for a confirmation before a statement takes much away."""

from __future__ import annotations

from collections.abc import Sequence

from paimon_magics.errors import UnconfirmedError
from paimon_magics.session.writes.replaced import rows_taken
from paimon_magics.session.writes.type_changes import HarmTold
from paimon_magics.statements.kinds import Statement
from paimon_magics.tables.commits.replaced_partitions import PartitionSize

__all__ = ["SEE_PREVIEW", "harmed", "taken_away", "unconfirmed"]

SEE_PREVIEW = "%%paimon --preview shows the rows of each partition."


def unconfirmed(statement: Statement, what: str, loss: str, instead: str) -> UnconfirmedError:
    """Return the error: `what` would take away `loss`, and what to do `instead`."""
    return UnconfirmedError(
        f"{what} takes away {loss}.",
        hint=f"To run it, begin the cell with %%paimon --yes. {instead}",
        statement=statement.text,
        position=0,
    )


def taken_away(
    statement: Statement, what: str, sizes: Sequence[PartitionSize], instead: str
) -> UnconfirmedError | None:
    """Return the error for rows that would be removed; None if there are none."""
    return unconfirmed(statement, what, rows_taken(sizes), instead) if sizes else None


def harmed(statement: Statement, told: HarmTold | None) -> UnconfirmedError | None:
    """Return the error for stored values that would become unreadable; None if there are none."""
    if told is None or not told.what:
        return None
    return UnconfirmedError(
        told.what,
        hint=f"{told.examined} To run it all the same, begin the cell with "
        f"%%paimon --yes. {told.way_back} {told.not_looked_at}".rstrip(),
        statement=statement.text,
        position=0,
    )
