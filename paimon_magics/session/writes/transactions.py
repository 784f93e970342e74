"""A transaction of a statement: begun in turn, and committed to a definite answer or aborted; and
the statement's runs, one after the other, until a plan is still right when it is committed.

If this process dies before the commit, the table is unchanged and unreferenced files stay; during
the commit, the committer settles it (`coordinator.client`); after it, the statement has taken
effect. Any other failure before the commit removes the statement's files.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from paimon_magics.coordinator.client.compacting import CompactionCommit, CompactionReceipt
from paimon_magics.coordinator.client.interface import Attempts
from paimon_magics.errors import (
    OutdatedPlanError,
    PaimonMagicsError,
    SetupError,
    UnknownOutcomeError,
)
from paimon_magics.faults import reach
from paimon_magics.planning.commits.read_sets import ReadSet
from paimon_magics.planning.commits.requests import (
    Append,
    CommitReceipt,
    CommitRequest,
    InsertChange,
    Transaction,
)
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.provenance import Operation, engine_name, provenance
from paimon_magics.session.scope import StatementScope
from paimon_magics.spark.failures import translate
from paimon_magics.spark.job_watching import doing
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.table_write import write_spec
from paimon_magics.tables.writing.write_spec import WriteSpec

_Receipt = TypeVar("_Receipt")
_Plan = TypeVar("_Plan")
_Written = TypeVar("_Written")


@dataclass(frozen=True, slots=True)
class ToCommit:
    """What a statement has written: the messages of its files, and their number as `files`. The
    snapshot records `rows` and the `operation`. With `repeated_attempts` a task may have run more
    than once, and may have left files of an attempt that did not count."""

    messages: tuple[bytes, ...]
    rows: int
    files: int
    operation: Operation
    change: InsertChange = field(default_factory=Append)
    read_set: ReadSet | None = None
    repeated_attempts: bool = False


def run_again(
    prepared: _Plan,
    run: Callable[[_Plan, Attempts], Outcome],
    again: Callable[[_Plan], _Plan],
    *,
    reruns_max: int,
    may_run_again: Callable[[_Plan], bool],
) -> Outcome:
    """Run a planned statement; where another commit has made its plan outdated, plan it `again` and
    run that. Raises OutdatedPlanError if it may not run again, or was outdated each time."""
    attempts = Attempts(reruns_max)
    while True:
        try:
            outcome = run(prepared, attempts)
        except OutdatedPlanError as error:
            attempts.next(error, may_run_again=may_run_again(prepared))
            prepared = again(prepared)
        else:
            outcome.notes = (*outcome.notes, *attempts.notes())
            return outcome


def begun(
    scope: StatementScope,
    table: TableName,
    base: tuple[int, str] | None,
    attempts: Attempts,
    *,
    compacts: bool = False,
) -> Transaction:
    """Wait for the statement's turn, which the progress display shows; return its transaction. One
    that only `compacts` does not wait. `base` is the `state_of` the snapshot that the statement was
    planned on, with "" if its manifest list is unknown; None is the latest snapshot."""
    base_id, base_name = (None, "") if base is None else base
    engine = engine_name(scope.spark.version)
    with doing(lambda: scope.committer.delay() or attempts.doing(table)):
        transaction = scope.committer.begin(
            table,
            base_id,
            engine,
            attempts.waits,
            compacts=compacts,
            base_manifest_list=base_name,
        )
    attempts.opened()
    attachment = scope.attachment
    if attachment is not None and not compacts:
        try:
            attachment.begun(transaction)
        except BaseException:
            _abort(scope, transaction)
            raise
    reach("statement.begun")
    return transaction


def append_spec(scope: StatementScope, table: Table, transaction: Transaction) -> WriteSpec:
    """What the writers of rows need to know that are added to a table."""
    slots, settings = scope.slots, scope.settings
    return write_spec(table, transaction, overwrite=False, slots=slots, settings=settings)


def transact(
    scope: StatementScope,
    transaction: Transaction,
    statement: str,
    write: Callable[[], tuple[ToCommit, _Written]],
) -> tuple[CommitReceipt, _Written]:
    """Write and commit. `write` returns what to commit, and a value for the caller. If either step
    fails, the transaction is aborted and its files are removed. Raises errors of ours."""
    started = time.monotonic()
    try:
        written, known = write()
        properties = provenance(
            scope,
            statement,
            written.operation,
            rows=written.rows,
            files=written.files,
            seconds=time.monotonic() - started,
        )
        if scope.attachment is not None:
            properties += scope.attachment.properties
    except BaseException as error:
        _abort(scope, transaction)
        if isinstance(error, Exception):
            raise translate(error, statement=statement) from error
        raise
    request = CommitRequest(
        transaction, written.change, written.messages, properties, written.read_set
    )
    receipt = committed(scope, request)
    if written.repeated_attempts:
        with suppress(SetupError):  # the rows are committed, and stay so with files left over
            scope.committer.sweep(request)
    return receipt, known


def committed(scope: StatementScope, request: CommitRequest) -> CommitReceipt:
    """Commit. A transaction that is certainly not committed is aborted and its files removed."""
    reach("statement.written")
    return _ended(scope, request, lambda: scope.committer.commit(request))


def committed_compaction(scope: StatementScope, request: CommitRequest) -> CompactionReceipt:
    """Commit the part of a compaction that conflicts with no other commit; else as `committed`."""
    return _ended(scope, request, CompactionCommit(scope.committer, request).run)


def _ended(
    scope: StatementScope, request: CommitRequest, commit: Callable[[], _Receipt]
) -> _Receipt:
    try:
        telling = doing(lambda: scope.committer.delay() or "committing")
    except KeyboardInterrupt:  # this thread was stopped before anything was asked of the committer
        _abort(scope, request.transaction)
        raise
    try:
        with telling:
            return _settled(request, commit)
    except UnknownOutcomeError:
        raise
    except PaimonMagicsError:  # certainly not committed
        _abort(scope, request.transaction)
        raise


def _abort(scope: StatementScope, transaction: Transaction) -> None:
    """End a transaction. If no coordinator answers, its lease ends it: the pending error is more
    useful than that one."""
    with suppress(SetupError):
        scope.committer.abort(transaction)


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
        f"It is unknown whether the commit to `{table}` happened: it was interrupted twice.",
        hint=f"Check `{table}$snapshots` before you run the statement again.",
    )
