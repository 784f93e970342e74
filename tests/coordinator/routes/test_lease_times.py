"""The clock that ends a lease says how long it lasts; the machine's clock may be set meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.client.starting import At
from paimon_magics.coordinator.core.values import Limits
from paimon_magics.coordinator.http.authorisation import TokenFile
from paimon_magics.coordinator.routes.app import Parts, application
from paimon_magics.coordinator.runtime.threads import Runtime
from paimon_magics.coordinator.runtime.work import Clock
from paimon_magics.coordinator.service.coordinator import Coordinator
from paimon_magics.coordinator.store.state_store import open_store
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.settings import Settings
from tests.coordinator.process import TABLE, create_table, write
from tests.coordinator.rest_server import TOKEN, serving

HOUR_MS = 3_600_000


@contextmanager
def served(folder: Path, *, set_by_ms: int, lease_ms: int) -> Iterator[tuple[str, Any]]:
    """A coordinator whose machine's clock was set by that much after it began; its URL and
    catalog."""
    catalog = create_table(folder / "warehouse", "CREATE TABLE t (k INT, v INT)")
    clock = Clock(wall_ms=lambda: time.time() * 1000 - set_by_ms)
    store = open_store(folder / "state")
    limits = Limits(lease_ms=lease_ms)
    coordinator = Coordinator(catalog, store, Settings(), limits, runtime=Runtime(clock))
    coordinator.start()
    parts = Parts(coordinator, catalog.warehouse)
    app = application(parts, TokenFile(TOKEN.__eq__), request_bytes_max=1_000_000)
    with serving(app) as url:
        yield url, catalog
    coordinator.stop()
    store.close()


@pytest.mark.parametrize("set_by_ms", [-HOUR_MS, 0, HOUR_MS])
def test_leases_are_as_long_as_they_last_when_the_machine_clock_was_set(
    tmp_path: Path, set_by_ms: int
) -> None:
    with served(tmp_path, set_by_ms=set_by_ms, lease_ms=20_000) as (url, _):
        client = RemoteCoordinator(At(url, TOKEN))
        key = client.key_of(client.begin(TABLE))
        once = client._requests.once
        answers = (
            once("POST", f"/v1/transactions/{key}/heartbeat")[1],
            once("POST", "/v1/transactions", {"table": {"database": "default", "table": "t"}})[1],
            once("POST", "/v1/leases", {"holder": "somebody", "leases": []})[1],
        )
        for answer in answers:
            assert 10_000 < answer["lease_ms"] <= 20_000
            assert 0 < answer["expires_at_ms"] - time.time() * 1000 <= 20_000
        client.close()


@pytest.mark.parametrize("set_by_ms", [-HOUR_MS, HOUR_MS])
def test_transaction_outlasts_its_lease_when_the_machine_clock_was_set(
    tmp_path: Path, set_by_ms: int
) -> None:
    with served(tmp_path, set_by_ms=set_by_ms, lease_ms=2_000) as (url, catalog):
        client = RemoteCoordinator(At(url, TOKEN))
        transaction = client.begin(TABLE)
        time.sleep(5)
        messages = write(catalog, transaction, [{"k": 1, "v": 1}])
        receipt = client.commit(CommitRequest(transaction, Append(), messages))
        assert receipt.snapshot_id == 1
        client.close()


@pytest.mark.parametrize("set_by_ms", [-HOUR_MS, HOUR_MS])
def test_times_of_transactions_and_pauses_are_those_of_the_machine_clock(
    tmp_path: Path, set_by_ms: int
) -> None:
    with served(tmp_path, set_by_ms=set_by_ms, lease_ms=20_000) as (url, catalog):
        client = RemoteCoordinator(At(url, TOKEN))
        began_ms = time.time() * 1000 - 1
        ended = client.begin(TABLE)
        messages = write(catalog, ended, [{"k": 1, "v": 1}])
        client.commit(CommitRequest(ended, Append(), messages))
        opened = client.begin(TABLE)
        once = client._requests.once
        once("POST", "/v1/coordinator/pause", {"owner": "ada"})
        listed = once("GET", "/v1/transactions")[1]["transactions"]
        shown = once("GET", f"/v1/transactions/{client.key_of(opened)}")[1]
        status = once("GET", "/v1/coordinator")[1]
        now_ms = time.time() * 1000 + 1
        moments = [
            at for each in (*listed, shown) for at in (each["begun_at_ms"], each["ended_at_ms"])
        ]
        moments = [at for at in moments if at]
        assert len(moments) == 4
        for at_ms in (*moments, status["pause"]["since_ms"]):
            assert began_ms <= at_ms <= now_ms
        assert 0 < shown["expires_at_ms"] - now_ms <= 20_000
        client.close()
