"""The first rows of a table that is created for them: CREATE TABLE … AS, and tables of frames.

If writing the rows fails the table is dropped again, unless it may have rows: of this statement,
when its commit had no clear answer, or of others who found the table meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

from paimon_magics.errors import PaimonMagicsError, UnknownOutcomeError
from paimon_magics.session.connection import Connection
from paimon_magics.session.outcome import Outcome
from paimon_magics.statements.statement import TableName

__all__ = ["filled"]


def filled(connection: Connection, name: TableName, write: Callable[[], Outcome]) -> Outcome:
    """Run `write`, which fills the new table; return its outcome as that of creating the table.

    Raises what `write` raises. The table stays after an UnknownOutcomeError, if others have written
    rows to it, and if it can't be removed; the hint says so.
    """
    try:
        outcome = write()
    except UnknownOutcomeError as error:
        error.hint = f"{error.hint} The table `{name}` was created and stays.".strip()
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
    """Drop the table; return a sentence on why it stays, "" if it is dropped."""
    try:
        connection.inserted.pop(name, None)
        if not connection.catalog.table_exists(name):
            return ""
        if not connection.definitions.drop_table(name, if_exists=True, only_empty=True):
            return f"The table `{name}` stays: another statement has written rows to it."
    except (PaimonMagicsError, OSError) as error:
        return f"The table `{name}` was created and can't be removed: {error}"
    return ""
