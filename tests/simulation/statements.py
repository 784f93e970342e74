"""Statements of sessions: each begins a transaction, which has a place among small inserts, writes
files, and commits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from paimon_magics.coordinator.core.values import Committed, NotCommitted, Unknown
from paimon_magics.coordinator.inserts.queue.values import Mode
from paimon_magics.coordinator.protocol.documents import transaction_document
from paimon_magics.coordinator.runtime.work import waited
from paimon_magics.planning.commits.requests import (
    Append,
    CommitRequest,
    OverwritePartitions,
    Transaction,
)
from paimon_magics.settings import Settings
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.table_write import completed, write_spec
from paimon_magics.tables.writing.writer import write_batches
from tests.simulation.clients import Client
from tests.simulation.ledger import NEVER, Attempt, Change
from tests.simulation.owners import OwnerProcess
from tests.simulation.scheduler import current

__all__ = ["append", "by_itself", "overwrite", "truncate", "written"]

_TRIES_MAX = 60


def append(client: Client, name: TableName) -> str:
    """Append rows."""
    statement = _begin(client, name)
    if isinstance(statement, str):
        return statement
    return _finish(client, statement, Append(), 2)


def truncate(client: Client, name: TableName) -> str:
    """Remove all rows, unless others were committed meanwhile."""
    statement = _begin(client, name)
    if isinstance(statement, str):
        return statement
    return _finish(client, statement, OverwritePartitions(), 0)


def overwrite(client: Client, name: TableName) -> str:
    """Replace all rows, also those that are committed meanwhile. It stays open for a while, in
    which rows are inserted behind it, and the process may crash."""
    statement = _begin(client, name)
    if isinstance(statement, str):
        return statement
    world = client.world
    if world.random.random() < 0.5:
        world.crash_soon()
    for _ in range(world.random.choice((0, 1, 2, 4))):
        world.sleep_us(world.random.choice((1_000, 200_000, 900_000)))
        client.insert(name, labelled=world.random.random() < 0.7, mode=Mode.ASYNC)
        client.ask("renew", lambda owner: owner.coordinator.transactions.heartbeat(statement.id))
    change = OverwritePartitions(swallow_newer=True)
    return _finish(client, statement, change, world.random.choice((0, 2)))


@contextmanager
def by_itself() -> Iterator[None]:
    """Do something in a client's own process, where nothing fails."""
    task = current()
    assert task is not None
    task.depth += 1
    try:
        yield
    finally:
        task.depth -= 1


def written(table: Table, transaction: Transaction, rows: Sequence[int]) -> tuple[bytes, ...]:
    """Write rows into files of a transaction; the messages of its commit."""
    spec = write_spec(table, transaction, overwrite=False, slots=1, settings=Settings())
    data = pa.Table.from_pylist(
        [{"id": row, "name": f"r{row}"} for row in rows], arrow_schema(table.schema)
    )
    files = write_batches(spec, data.to_batches())
    return completed(table, spec, files, transaction.base_snapshot_id).messages


@dataclass(frozen=True, slots=True)
class _Statement:
    """A statement that has begun. Its place is between the steps `begun` and `placed`."""

    name: TableName
    id: str
    transaction: Transaction
    table: Table
    identity: str
    begun: int
    placed: int


def _begin(client: Client, name: TableName) -> _Statement | str:
    """Begin a statement; its outcome, where it can't go on."""
    scheduler = client.world.scheduler
    begun = scheduler.steps  # its place is after what was acknowledged before

    def begin(owner: OwnerProcess) -> Any:
        catalog = owner.served.catalog
        before = _identity(owner, catalog.load(name))
        id, transaction, _ = waited(
            owner.coordinator.transactions.begin_steps(
                name, None, f"k{client.number}", place_of=owner.group.holds.of_transaction
            )
        )
        table = catalog.load(name)
        if _identity(owner, table) != before:
            before = ""
        return id, transaction, table, before

    said = client.ask(f"begin on {name.table}", begin)
    scheduler.note(f"begin -> {said.outcome} {said.error!r}")
    if said.outcome != "done":
        return said.outcome
    id, transaction, table, identity = said.answer
    if not identity:
        return "unclear"  # left to its lease
    return _Statement(name, id, transaction, table, identity, begun, scheduler.steps)


def _finish(
    client: Client, statement: _Statement, change: Append | OverwritePartitions, count: int
) -> str:
    """Write so many rows, and commit."""
    world, id = client.world, statement.id
    rows = tuple(client.new_row() for _ in range(count))
    messages: tuple[bytes, ...] = ()
    if rows:
        try:
            with by_itself():
                messages = written(statement.table, statement.transaction, rows)
        except Exception as error:
            world.scheduler.note(f"the files could not be written: {error!r}")
            client.ask("abort", lambda owner: owner.coordinator.transactions.abort(id, "failed"))
            return "refused"
    attempt = Attempt(rows, statement.identity, "unclear", statement.begun)
    noted = Change(
        "truncate", statement.identity, "unclear", statement.begun, placed=statement.placed
    )
    if rows:
        client.ledger.attempts.append(attempt)
    if isinstance(change, OverwritePartitions):
        client.ledger.changes.append(noted)
    if world.happens("clients vanish"):
        return "unclear"
    request = CommitRequest(statement.transaction, change, messages)
    outcome = _committed(client, statement, request, rows)
    attempt.state = noted.state = outcome
    attempt.ended = noted.ended = world.scheduler.steps
    if outcome == "unclear":
        noted.ended = NEVER
    return outcome


def _committed(
    client: Client, statement: _Statement, request: CommitRequest, rows: tuple[int, ...]
) -> str:
    """Commit, until there is a clear answer."""
    what = f"commit {rows} to {statement.name.table}"
    is_unclear = False
    for tries in range(_TRIES_MAX):
        said = client.ask(
            what, lambda owner: _commit(owner, statement.id, request), may_repeat=True
        )
        outcome = said.outcome
        if said.is_unreachable:
            client.wait_before(tries)
            continue
        client.world.scheduler.note(
            f"commit -> {outcome} {type(said.answer).__name__} {said.error!r}"
        )
        if isinstance(said.answer, Unknown | NotCommitted) and is_unclear:
            return "unclear"
        if outcome != "unclear":
            # Anything else is not known, and never will be.
            is_known = outcome != "done" or isinstance(said.answer, Committed)
            return outcome if is_known else "unclear"
        is_unclear = True
        client.wait_before(tries)
    client.unanswered.append(f"{what}: never a clear answer")
    return "unclear"


def _commit(owner: OwnerProcess, id: str, request: CommitRequest) -> Any:
    if owner.coordinator.stored.opened(id) is None:
        document = transaction_document(request.transaction)
        return owner.coordinator.transactions.adopt(id, "sim", document, lambda _: request)
    return owner.coordinator.transactions.commit(id, request)


def _identity(owner: OwnerProcess, table: Table) -> str:
    """The table's id, without a call into the world."""
    with by_itself():
        return owner.coordinator.table_ids.id_of(table)
