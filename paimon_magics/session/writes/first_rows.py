"""The first rows of a table that is made for them: CREATE TABLE … AS, and tables of frames.

Where the rows fail the table is taken away again, unless it may have rows: those whose commit had
no clear answer, or others', who found the table in between.
"""

from __future__ import annotations

from collections.abc import Callable

from paimon_magics.errors import PaimonMagicsError, UnknownOutcomeError
from paimon_magics.session.connection import Connection
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.writes.ordering import Changed, in_order
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.snapshots.latest import latest_snapshot_id

__all__ = ["filled"]


def filled(connection: Connection, name: TableName, write: Callable[[], Outcome]) -> Outcome:
    """The outcome of `write`, which fills the new table, as that of making the table.

    Raises what `write` raises. The table stays, which the hint says, after an UnknownOutcomeError,
    with rows of others, and where it can't be removed.
    """
    try:
        outcome = write()
    except UnknownOutcomeError as error:
        error.hint = f"{error.hint} The table `{name}` was made and stays.".strip()
        raise
    except BaseException as error:
        stays = _stays(connection, name)
        if stays and isinstance(error, PaimonMagicsError):
            error.hint = f"{error.hint} {stays}".strip()
        raise
    outcome.kind = "CREATE TABLE"
    outcome.message = f"Table `{name}` created. {outcome.message}"
    return outcome


def _stays(connection: Connection, name: TableName) -> str:
    """Take the table away, or say why it stays."""
    try:
        with in_order(connection, Changed(lambda: (name,), takes_away=True)):
            if connection.catalog.table_exists(name):
                if latest_snapshot_id(connection.catalog.load(name)) > 0:
                    return f"The table `{name}` stays: it has been written meanwhile."
                connection.catalog.drop_table(name, if_exists=True)
    except (PaimonMagicsError, OSError) as error:
        return f"The table `{name}` was made and can't be removed: {error}"
    return ""
