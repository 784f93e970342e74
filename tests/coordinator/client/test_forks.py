"""A client that a process inherits by a fork: each process has connections and work of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.process import create_table, read

ROOT = Path(__file__).parents[3]
INSERTED = TableName("inserted", "default")

# `in_child` runs a function in a forked child, and returns a function that waits for its answer.
BEGINNING = """
import json, os, signal, sys, threading, time
import pyarrow as pa
from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.client.starting import Embedded, state_path
from paimon_magics.coordinator.ownership.state_folder import StateFolder
from paimon_magics.errors import PaimonMagicsError
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.process import TABLE, write

catalog = Catalog.open({"warehouse": sys.argv[1]})
client = RemoteCoordinator(Embedded(catalog, idle_ms=30_000))
INSERTED = TableName("inserted", "default")
ABSENT = TableName("absent", "default")

def begin_insert(key, table=INSERTED):
    rows = pa.table({"k": pa.array([key], pa.int32())})
    return client.inserts().insert(table, rows, label=f"row-{key}")

def insert(key, table=INSERTED):
    try:
        begin_insert(key, table).result(120)
        return "taken"
    except (PaimonMagicsError, TimeoutError) as error:
        return f"{type(error).__name__}: {error}"

def commit(key):
    transaction = client.begin(TABLE)
    rows = write(catalog, transaction, [{"k": key}])
    client.commit(CommitRequest(transaction, Append(), rows))

def in_child(work):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        answer = "failed"
        try:
            answer = work()
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        finally:
            os.write(writing, json.dumps(answer).encode())
            os._exit(0)
    os.close(writing)
    def answered():
        with os.fdopen(reading) as answer:
            text = answer.read()
        os.waitpid(child, 0)
        return json.loads(text)
    return answered

def sockets():
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if target.startswith("socket:"):
            found.add(target)
    return sorted(found)

def coordinator():
    return StateFolder(state_path(catalog.options, os.environ)).running().pid
"""


@pytest.fixture
def catalog(tmp_path: Path, state_home: Path) -> Catalog:
    create_table(
        tmp_path / "warehouse",
        "CREATE TABLE inserted (k INT) TBLPROPERTIES ('auto_batch_load' = 'true', "
        "'group_commit_interval_ms' = '200')",
    )
    return create_table(tmp_path / "warehouse", "CREATE TABLE t (k INT)")


def answer_of(catalog: Catalog, script: str) -> Any:
    """What a process prints last, as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", f"{BEGINNING}\n{script}", catalog.warehouse],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def keys(catalog: Catalog, table: TableName) -> list[int]:
    return sorted(int(str(row["k"])) for row in read(catalog, table))


def test_parent_and_child_each_get_their_own_answers(catalog: Catalog) -> None:
    script = """
commit(0)
child = in_child(lambda: [insert(key, ABSENT) for key in range(100)])
mine = [insert(key) for key in range(100)]
print(json.dumps([mine, child()]))
"""
    mine, of_child = answer_of(catalog, script)
    assert set(mine) == {"taken"}
    assert len(of_child) == 100
    assert all(answer.startswith("UnknownNameError") for answer in of_child), set(of_child)


def test_a_child_inserts_and_commits_after_its_parent_did(catalog: Catalog) -> None:
    script = """
def work(begin):
    commit(begin)
    return [insert(key) for key in range(begin, begin + 20)]
first = work(0)
children = [in_child(lambda begin=begin: work(begin)) for begin in (100, 200)]
answers = [first, work(300), *[child() for child in children]]
import httpx
folder = StateFolder(state_path(catalog.options, os.environ))
httpx.post(folder.running().address + "/v1/inserts/default/inserted/flush", json={}, timeout=60,
    headers={"authorization": f"Bearer {folder.token()}"}, trust_env=False).raise_for_status()
print(json.dumps(answers))
"""
    answers = answer_of(catalog, script)
    assert answers == [["taken"] * 20] * 4
    begins = (0, 100, 200, 300)
    assert keys(catalog, TableName("t", "default")) == list(begins)
    assert keys(catalog, INSERTED) == [key for at in begins for key in range(at, at + 20)]


def test_pending_insert_stays_with_the_parent(catalog: Catalog) -> None:
    script = """
insert(0)
os.kill(coordinator(), signal.SIGSTOP)
waiting = [begin_insert(key) for key in range(1, 4)]
def look():
    try:
        return [one.result(120).lsn for one in waiting]
    except (PaimonMagicsError, TimeoutError) as error:
        return f"{type(error).__name__}: {error}"
child = in_child(look)
seen = child()
os.kill(coordinator(), signal.SIGCONT)
print(json.dumps([seen, [one.result(120).duplicate for one in waiting], insert(4)]))
"""
    seen, duplicates, last = answer_of(catalog, script)
    assert seen.startswith("UnknownOutcomeError") and "forked" in seen
    assert duplicates == [False] * 3
    assert last == "taken"


def test_a_child_leaves_the_connections_of_its_parent_alone(catalog: Catalog) -> None:
    script = """
commit(0)
insert(0)
mine = sockets()
def work():
    inherited = set(sockets()) & set(mine)
    client.close()
    return sorted(inherited)
child = in_child(work)
inherited = child()
insert(1)
commit(1)
print(json.dumps([mine, inherited, sockets()]))
"""
    before, inherited, after = answer_of(catalog, script)
    assert before and inherited == []
    assert set(before) <= set(after), "the parent goes on with its connections"


def test_child_neither_ends_nor_renews_transactions_of_its_parent(catalog: Catalog) -> None:
    script = """
commit(0)
transaction = client.begin(TABLE)
client.lease(TABLE, 1)
def work():
    threads = sorted(one.name for one in threading.enumerate())
    try:
        client.abort(transaction)
        refused = ""
    except PaimonMagicsError as error:
        refused = f"{type(error).__name__}: {error}"
    client.lease(TABLE, 1)
    client.release(TABLE, 1)
    client.close()
    return [threads, refused]
answer = in_child(work)()
client.commit(CommitRequest(transaction, Append(), write(catalog, transaction, [{"k": 1}])))
print(json.dumps(answer))
"""
    threads, refused = answer_of(catalog, script)
    assert threads == ["MainThread"]
    assert refused.startswith("UnknownNameError") and "forked" in refused
    assert keys(catalog, TableName("t", "default")) == [0, 1]


def test_child_forked_during_startup_finds_the_coordinator(
    catalog: Catalog,
) -> None:
    script = """
client.look_ahead()
deadline = time.monotonic() + 20
while not state_path(catalog.options, os.environ).is_dir() and time.monotonic() < deadline:
    time.sleep(0.001)
child = in_child(lambda: insert(1))
print(json.dumps([insert(0), child()]))
"""
    assert answer_of(catalog, script) == ["taken", "taken"]


def test_children_of_multiprocessing_insert_through_the_inherited_client(
    catalog: Catalog,
) -> None:
    script = """
import multiprocessing
insert(0)
with multiprocessing.get_context("fork").Pool(2) as pool:
    answers = pool.map(insert, range(1, 41))
print(json.dumps([answers, insert(41)]))
"""
    answers, last = answer_of(catalog, script)
    assert answers == ["taken"] * 40
    assert last == "taken"
