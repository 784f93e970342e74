"""Leases are given up by finalizers, which run wherever Python collects garbage."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
import time
import weakref
from typing import Any

from paimon_magics.coordinator.client.read_leases import ReadLeases
from paimon_magics.coordinator.protocol.clock import (
    lease_members,
    lease_ms_of,
    now_ms,
    renewal_seconds,
)
from paimon_magics.statements.statement import TableName

TABLE = TableName("t", "default")


class Reader:
    """Refers to itself, so that only a collection of garbage ends it."""

    def __init__(self) -> None:
        self.own = self


class Collecting(TableName):
    """Python collects garbage while this name is looked up."""

    __slots__ = ()

    def __hash__(self) -> int:
        gc.collect()
        return super().__hash__()


def test_garbage_collection_during_take_releases_leases_without_deadlock() -> None:
    sent: list[list[int]] = []

    def post(document: Any) -> Any:
        sent.append([each["snapshot_id"] for each in document["leases"]])
        return {"expires_at_ms": int(time.time() * 1000) + 60_000, "gone": []}

    leases = ReadLeases(post, 3_600_000)
    leases.take(TABLE, 1)
    weakref.finalize(Reader(), leases.give_up, TABLE, 1)
    thread = threading.Thread(target=leases.take, args=(Collecting("u", "default"), 2), daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    leases.take(TABLE, 3)
    assert sent == [[1], [2], [2, 3]]
    leases.close()


def test_lease_duration_does_not_depend_on_the_client_clock() -> None:
    answer = lease_members(5_000, at_ms=4_000)
    assert lease_ms_of(answer) == 1_000
    apart = answer | {"expires_at_ms": answer["expires_at_ms"] - 300_000}
    assert lease_ms_of(apart) == lease_ms_of(answer)
    assert lease_ms_of({"expires_at_ms": now_ms() + 5_000}) > 4_000, "an older coordinator's"


def test_leases_are_renewed_in_time_and_seldom_whatever_the_coordinator_says() -> None:
    assert renewal_seconds({"lease_ms": 60_000}) == 15
    assert renewal_seconds({"lease_ms": 2_000}) == 0.5
    assert renewal_seconds({"lease_ms": 3_600_000}) == 20, "an hour: its clock was set back"
    for lease_ms in (0, -3_600_000):
        assert renewal_seconds({"lease_ms": lease_ms}) == 1, "its clock was set forward"
    assert renewal_seconds({"lease_ms": 1}) == 0.1


def test_client_with_a_slow_clock_renews_leases_in_time() -> None:
    renewed = threading.Event()
    sent: list[Any] = []

    def post(document: Any) -> Any:
        sent.append(document)
        if len(sent) > 1:
            renewed.set()
        return {"expires_at_ms": now_ms() + 300_000, "lease_ms": 400, "gone": []}

    leases = ReadLeases(post, 3_600_000)
    leases.take(TABLE, 1)
    assert renewed.wait(10)
    leases.close()


FORKING = """
import json, os, time
from paimon_magics.coordinator.client.read_leases import ReadLeases
from paimon_magics.statements.statement import TableName

TABLE = TableName("t", "default")
sent = []

def post(document):
    sent.append((document["holder"], [one["snapshot_id"] for one in document["leases"]]))
    return {"expires_at_ms": int(time.time() * 1000) + 60_000, "gone": []}

leases = ReadLeases(post, 3_600_000)
leases.take(TABLE, 1)
child = os.fork()
if child == 0:
    leases.take(TABLE, 2)
    leases.take(TABLE, 1)
    leases.give_up(TABLE, 1)  # as the copy of the parent's reader does
    leases.take(TABLE, 3)
    leases.close()
    print(json.dumps(sent), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


def test_a_forked_child_has_leases_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKING], stdout=subprocess.PIPE, text=True, check=True, timeout=60
    )
    (of_parent, first), *others = json.loads(done.stdout)
    assert first == [1]
    assert of_parent not in {holder for holder, _ in others}
    assert [leased for _, leased in others] == [[2], [2, 1], [2, 1, 3], []]
