"""Tables that are made, renamed, dropped, altered, truncated, rolled back and written by many
clients at once, at a real coordinator that nobody kills.

The seed chooses what each client does; which of them is first is the machine's choice, so that a
seed repeats the mixture, not the run. `PAIMON_MAGICS_SEED` sets it, `PAIMON_MAGICS_SECONDS` how
long the long runs take.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from paimon_magics.coordinator.core.values import FINISHED
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.postgres import PostgresServer, start_postgres
from tests.coordinator.process import Process, read
from tests.faults.chaos import (
    DATABASES,
    DONE,
    NAMES,
    REFUSED,
    UNCLEAR,
    Client,
    Ledger,
    Sent,
    table_id_of,
)

CLIENTS = 6


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    started = start_postgres()
    yield started
    started.remove()


@pytest.mark.always
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seconds", [10, pytest.param(400, marks=pytest.mark.soak)])
@pytest.mark.parametrize("store", ["sqlite", "postgres", "warehouse"])
def test_concurrent_table_changes_lose_duplicate_and_block_nothing(
    tmp_path: Path, store: str, seconds: int, request: pytest.FixtureRequest
) -> None:
    if seconds > 10:
        seconds = int(os.environ.get("PAIMON_MAGICS_SECONDS", seconds))
    seed = int(os.environ.get("PAIMON_MAGICS_SEED", random.randrange(10**6)))
    print(f"seed {seed}")
    options, environment = [], {}
    if store == "postgres":
        server: PostgresServer = request.getfixturevalue("server")
        options, environment = [f"--store={server.empty_database()}"], server.environment
    elif store == "warehouse":
        options = ["--log=warehouse"]
    catalog = Catalog.open({"warehouse": str(tmp_path / "warehouse")})
    for database in DATABASES:
        catalog.create_database(database)
    process = Process(tmp_path / "warehouse", tmp_path / "state", *options, environment=environment)
    process.start()
    try:
        ledger = _run(process, seed, seconds)
        _check_process(process, ledger)
        _check_tables(catalog, ledger)
        assert process.end() == 0
    finally:
        process.close()


def _run(process: Process, seed: int, seconds: int) -> Ledger:
    ledger = Ledger()
    until = time.monotonic() + seconds
    clients = [
        Client(number, seed, ledger, process.address, process.token(), until)
        for number in range(CLIENTS)
    ]
    for client in clients:
        client.remote = process.client()
        client.start()
    for client in clients:
        client.join(seconds + 120)
        assert not client.is_alive(), f"{client.name} still waits for an answer"
        if client.error is not None:
            raise client.error
    print(dict(sorted(ledger.answers.items())))
    return ledger


def _check_process(process: Process, ledger: Ledger) -> None:
    """It is alive and well, and nothing waits."""
    assert process.running is not None
    assert process.running.poll() is None, "the coordinator has ended"
    headers = {"authorization": f"Bearer {process.token()}"}
    with httpx.Client(
        base_url=process.address, headers=headers, timeout=90, trust_env=False
    ) as http:
        for name in NAMES:
            answer = http.post(f"/v1/inserts/{name.database}/{name.table}/flush")
            assert answer.status_code in (200, 404), answer.text
        queues: list[dict[str, Any]] = http.get("/v1/inserts").json()["tables"]
        assert not [
            each
            for each in queues
            if each["waiting_rows"] or each["closed"] or each["held_by"] or each["dead_letters"]
        ]
        ready = http.get("/health/ready")
        assert ready.status_code == 200, ready.text
        transactions = http.get("/v1/transactions").json()["transactions"]
        assert {each["phase"] for each in transactions} <= set(FINISHED)
    assert not ledger.faults, ledger.faults[:5]


def _check_tables(catalog: Catalog, ledger: Ledger) -> None:
    """Each row is where and as often as it was answered."""
    rows: dict[int, list[dict[str, Any]]] = {}
    tables: dict[int, TableName] = {}
    for database in DATABASES:
        for table in catalog.list_tables(database):
            name = TableName(table, database)
            columns = catalog.load(name).schema.column_names
            id = table_id_of(columns)
            assert id not in tables, f"the table {id} is {name} and {tables[id]}"
            tables[id], rows[id] = name, read(catalog, name)
    created = {id for id, outcome in ledger.tables.items() if outcome is DONE}
    refused = {id for id, outcome in ledger.tables.items() if outcome is REFUSED}
    assert not refused & tables.keys(), "a refused table is there"
    gone = len(created - tables.keys())
    assert gone <= ledger.drops[DONE] + ledger.drops[UNCLEAR], "a table is lost"
    unclear = len(ledger.tables) - len(created) - len(refused)
    assert ledger.drops[DONE] <= gone + unclear, "a dropped table is there"
    by_table: dict[int, list[Sent]] = defaultdict(list)
    for sent in ledger.sent:
        by_table[sent.table].append(sent)
    strict = 0
    for id, name in tables.items():
        strict += _check_rows(catalog, ledger, id, name, rows[id], by_table[id])
    acknowledged = sum(each.outcome is DONE for each in ledger.sent)
    print(f"{len(created)} tables, {acknowledged} inserts taken, {strict} surely in a table")
    assert strict > 0


def _check_rows(
    catalog: Catalog,
    ledger: Ledger,
    id: int,
    name: TableName,
    rows: list[dict[str, Any]],
    sent: list[Sent],
) -> int:
    """Check a table's rows; return how many inserts must be in it."""
    found = Counter(row["n"] for row in rows)
    assert all(row[f"c{id}"] == id for row in rows), f"{name} has rows of another table"
    doubled = [n for n, times in found.items() if times > 1]
    assert not doubled, f"{name} has rows twice: {doubled[:5]}"
    assert found.keys() <= {n for each in sent for n in each.rows}
    snapshots = catalog.load(name).paimon.snapshot_manager()
    latest = snapshots.get_latest_snapshot()
    earliest = latest.id if latest else 0
    users = set()
    for number in range(1, earliest + 1):
        try:
            users.add(snapshots.get_snapshot_by_id(number).commit_user)
        except (FileNotFoundError, AttributeError):  # it has expired
            continue
    truncated = [ledger.truncations[user] for user in users & ledger.truncations.keys()]
    assert all(outcome is not REFUSED for _, _, outcome in truncated), "a refused TRUNCATE"
    tags = {tag for tag in catalog.load(name).paimon.tag_manager().list_tags()}
    rolled_back = [
        each for each in ledger.rollbacks if each.table == id or f"c{each.table}" in tags
    ]
    safe_from = max([each.ended for each in rolled_back] + [end for _, end, _ in truncated] + [0.0])
    strict = 0
    for each in sent:
        here = [n for n in each.rows if n in found]
        assert len(here) in (0, len(each.rows)), f"{name} has a part of {each}"
        if each.outcome is REFUSED:
            assert not here, f"{name} has what was refused: {each}"
        elif each.outcome is DONE and each.began > safe_from:
            assert here, f"{name} ({id}) has not what was acknowledged: {each}"
            strict += 1
        if not rolled_back and any(each.ended and each.ended < begin for begin, _, _ in truncated):
            assert not here, f"{name} has what was truncated: {each}"
    channels: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        if row["channel"]:
            channels[row["channel"]].append(row["n"])
    for channel, numbers in channels.items():
        assert numbers == sorted(numbers), f"{name} has not the order of the channel {channel}"
    return strict
