"""Other engines: they prepare a commit by themselves, and have the REST catalog publish it."""

from __future__ import annotations

import json
from typing import Any

from paimon_magics.coordinator.rest.commits import commit_prepared
from paimon_magics.coordinator.runtime.work import waited
from paimon_magics.coordinator.service.opening import open_transaction
from paimon_magics.errors import PaimonMagicsError, UnknownOutcomeError
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.commits.commit import commit
from paimon_magics.tables.commits.decoded_request import decoded
from tests.simulation.clients import Client
from tests.simulation.ledger import Attempt
from tests.simulation.owners import OwnerProcess
from tests.simulation.scheduler import current
from tests.simulation.statements import by_itself, written
from tests.simulation.world import mark_of

__all__ = ["append_by_engine"]


class _NoAnswerError(Exception):
    """Whether the snapshot was published is not known."""


def append_by_engine(client: Client, name: TableName) -> str:
    """Append rows as another engine does."""
    rows = tuple(client.new_row() for _ in range(2))
    attempt = Attempt(rows, "", "unclear", client.world.scheduler.steps)

    def publish(_: str, content: bytes) -> bool:
        task = current()
        assert task is not None
        depth, task.depth = task.depth, 0
        try:
            return _published(client, name, json.loads(content))
        finally:
            task.depth = depth

    outcome = "refused"
    with by_itself():
        try:
            catalog = Catalog.open({"warehouse": client.warehouse})
            table, transaction = open_transaction(catalog, name, None)
            attempt.table = mark_of(table.location) or ""
            messages = written(table, transaction, rows)
            if not attempt.table or mark_of(table.location) != attempt.table:
                return outcome
            client.ledger.attempts.append(attempt)
            decoded_request = decoded(table, CommitRequest(transaction, Append(), messages))
            commit(decoded_request, publish, is_first_run=True)
            outcome = "done"
        except UnknownOutcomeError:
            outcome = "unclear"
        except (PaimonMagicsError, OSError) as error:
            client.world.scheduler.note(f"the engine failed: {error!r}")
    attempt.state = outcome
    attempt.ended = client.world.scheduler.steps
    client.world.scheduler.note(f"engine appends {rows} -> {outcome}")
    return outcome


def _published(client: Client, name: TableName, snapshot: dict[str, Any]) -> bool:
    def work(owner: OwnerProcess) -> bool:
        return waited(
            commit_prepared(
                owner.served,
                name,
                snapshot,
                table_id=None,
                base_uuid=None,
                has_base_uuid=False,
                statistics=(),
            )
        )

    said = client.ask(f"engine commits to {name.table}", work, may_repeat=True)
    if said.answer is None:
        raise _NoAnswerError(f"{said.error!r}")
    return bool(said.answer)
