"""The transactions that a client has opened: which ids it keeps, and which leases it renews."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from paimon_magics.coordinator.client.remote import ENDED_MAX, OpenTransactions
from paimon_magics.errors import CommitConflictError, UnknownNameError
from paimon_magics.planning.commits.requests import Append, CommitRequest, Transaction
from tests.coordinator.process import TABLE, Process, create_table, wait_until


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    started = Process(tmp_path / "warehouse", tmp_path / "state", "--lease-ms=2000")
    started.start()
    yield started
    started.close()


def transaction(number: int) -> Transaction:
    return Transaction(TABLE, f"user-{number}", f"pm-{number}-", 0)


def renewing() -> set[str]:
    """The threads that renew leases."""
    return {each.name for each in threading.enumerate() if each.name.startswith("lease-")}


def test_ids_of_open_transactions_stay_and_ended_ids_are_bounded() -> None:
    transactions = OpenTransactions(lambda _: True)
    transactions.opened("user-0", "id-0", 60)
    for number in range(1, 2 * ENDED_MAX):
        transactions.ended(f"user-{number}", f"id-{number}")
    assert len(transactions) == ENDED_MAX + 1
    assert transactions.id_of(transaction(0)) == "id-0"
    assert transactions.id_of(transaction(2 * ENDED_MAX - 1)) == f"id-{2 * ENDED_MAX - 1}"
    with pytest.raises(UnknownNameError, match="user-1, or it ended long ago"):
        transactions.id_of(transaction(1))
    transactions.close()


def test_lease_renewal_stops_when_the_coordinator_ends_the_transaction(
    process: Process,
) -> None:
    create_table(process.warehouse, "CREATE TABLE t (k INT, v STRING)")
    before = renewing()
    client = process.client()
    begun = client.begin(TABLE)
    assert len(renewing() - before) == 1
    client.administration().abort(client.transactions.id_of(begun))
    wait_until(lambda: renewing() == before)
    with pytest.raises(CommitConflictError, match="ended it"):
        client.commit(CommitRequest(begun, Append()))
