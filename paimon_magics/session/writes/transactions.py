"""A transaction of the committer: begun in turn, and committed to a definite answer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from paimon_magics.coordinator.client.attempts import Attempts
from paimon_magics.coordinator.client.compactions import CompactionCommit, CompactionReceipt
from paimon_magics.errors import (
    PaimonMagicsError,
    SetupError,
    UnknownOutcomeError,
)
from paimon_magics.faults import reach
from paimon_magics.planning.commits.requests import (
    CommitReceipt,
    CommitRequest,
    Transaction,
)
from paimon_magics.session.connection import Connection
from paimon_magics.session.provenance import engine_name
from paimon_magics.spark.progress import doing
from paimon_magics.statements.statement import TableName

__all__ = ["begun", "committed", "committed_compaction"]

_Receipt = TypeVar("_Receipt")


def begun(
    connection: Connection,
    table: TableName,
    base: int | None,
    attempts: Attempts,
    *,
    compacts: bool = False,
) -> Transaction:
    """Wait for the statement's turn, which the progress display shows; return its transaction. One
    that only `compacts` takes no turn."""
    engine = engine_name(connection.spark.version)
    with doing(lambda: connection.committer.delay() or attempts.doing(table)):
        transaction = connection.committer.begin(
            table, base, engine, attempts.waits, compacts=compacts
        )
    attempts.opened()
    reach("statement.begun")
    return transaction


def committed(connection: Connection, request: CommitRequest) -> CommitReceipt:
    """Commit. A transaction that is certainly not committed is aborted and its files removed."""
    reach("statement.written")
    return _ended(connection, request, lambda: connection.committer.commit(request))


def committed_compaction(connection: Connection, request: CommitRequest) -> CompactionReceipt:
    """Commit what of a compaction conflicts with no other commit; otherwise as `committed`."""
    return _ended(connection, request, CompactionCommit(connection.committer, request).run)


def _ended(
    connection: Connection, request: CommitRequest, commit: Callable[[], _Receipt]
) -> _Receipt:
    try:
        with doing(lambda: connection.committer.delay() or "committing"):
            return _settled(request, commit)
    except UnknownOutcomeError:
        raise
    except PaimonMagicsError:  # certainly not committed
        with suppress(SetupError):  # where no coordinator answers, its lease ends it
            connection.committer.abort(request.transaction)
        raise


def _settled(request: CommitRequest, commit: Callable[[], _Receipt]) -> _Receipt:
    """Commit. After an interrupt the same call is repeated, which finds the commit or makes it: it
    is too late to stop. Raises UnknownOutcomeError after a second interrupt."""
    try:
        return commit()
    except KeyboardInterrupt:
        with suppress(KeyboardInterrupt):
            return commit()
    table = request.transaction.table
    raise UnknownOutcomeError(
        f"The commit to `{table}` was interrupted twice: whether it happened is not known.",
        hint=f"Look at `{table}$snapshots` before running the statement again.",
    )
