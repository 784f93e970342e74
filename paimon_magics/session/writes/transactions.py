"""A transaction of the committer: begun when its turn comes, and committed to a clear answer."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from paimon_magics.errors import (
    PaimonMagicsError,
    UnknownOutcomeError,
)
from paimon_magics.planning.commits.requests import (
    CommitReceipt,
    CommitRequest,
    Transaction,
)
from paimon_magics.session.connection import Connection
from paimon_magics.session.provenance import engine_name
from paimon_magics.session.writes.reruns import Attempts
from paimon_magics.spark.progress import doing
from paimon_magics.statements.statement import TableName

if TYPE_CHECKING:
    pass

__all__ = ["begun", "committed"]


def begun(
    connection: Connection, table: TableName, base: int | None, attempts: Attempts
) -> Transaction:
    """A transaction, whose turn is waited for; whoever looks on is told for what."""
    engine = engine_name(connection.spark.version)
    with doing(partial(attempts.doing, table)):
        transaction = connection.committer.begin(table, base, engine, attempts.waits)
    attempts.opened()
    return transaction


def committed(connection: Connection, request: CommitRequest) -> CommitReceipt:
    """Commit; a transaction that certainly has not happened is aborted, and its files removed."""
    try:
        with doing("committing"):
            return _settled(connection, request)
    except UnknownOutcomeError:
        raise
    except PaimonMagicsError:  # certainly not committed
        connection.committer.abort(request.transaction)
        raise


def _settled(connection: Connection, request: CommitRequest) -> CommitReceipt:
    """Commit. It is too late to stop: after an interrupt the same call finds the commit, or makes
    it. Who interrupts that too does not wait for the answer."""
    try:
        return connection.committer.commit(request)
    except KeyboardInterrupt:
        with suppress(KeyboardInterrupt):
            return connection.committer.commit(request)
    table = request.transaction.table
    raise UnknownOutcomeError(
        f"The commit to `{table}` was interrupted twice: whether it happened is not known.",
        hint=f"Look at `{table}$snapshots` before running the statement again.",
    )
