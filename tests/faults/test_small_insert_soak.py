"""Small inserts for a long time: days of them by a simulated clock, and millions under kills.

The short versions are in every run; `pytest -m soak` has the long ones. `PAIMON_MAGICS_ROWS`,
`PAIMON_MAGICS_KILLS` and `PAIMON_MAGICS_HOURS` change how long they are.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import httpx
import pyarrow.compute as pc
import pytest

from paimon_magics.coordinator.core.values import Limits
from paimon_magics.coordinator.inserts.admission.items import Insert
from paimon_magics.coordinator.inserts.log.database import DatabaseLog
from paimon_magics.coordinator.inserts.log.registry import LogRegistry
from paimon_magics.coordinator.inserts.queue.values import Accepted, Answer, Mode
from paimon_magics.coordinator.runtime.threads import Runtime
from paimon_magics.coordinator.runtime.work import Clock
from paimon_magics.coordinator.service.coordinator import Coordinator
from paimon_magics.coordinator.store.sqlite import SqliteDatabase
from paimon_magics.coordinator.store.state_store import open_store
from paimon_magics.settings import Settings
from tests.coordinator.inserts.kept import group_commit
from tests.coordinator.inserts.serving import TABLE
from tests.coordinator.process import create_table
from tests.faults.test_small_insert_crashes import Lived

INTERVAL_MS = 10_000
PARTITIONS = BUCKETS = 2


def resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


class Simulated:
    """Group commit in this process, with a flusher of its own, by a clock that is moved on."""

    def __init__(self, folder: Path) -> None:
        catalog = create_table(
            folder / "warehouse",
            "CREATE TABLE t (id BIGINT, part STRING) PARTITIONED BY (part) TBLPROPERTIES "
            f"('auto_batch_load' = 'true', 'bucket' = '{BUCKETS}', 'bucket-key' = 'id', "
            f"'group_commit_interval_ms' = '{INTERVAL_MS}')",
        )
        self.catalog = catalog
        self.now_ms = 1_800_000_000_000
        state = folder / "state"
        state.mkdir()
        limits = Limits(receipt_retention_ms=1_000)
        runtime = Runtime(Clock(steady_ms=lambda: self.now_ms))
        self.coordinator = Coordinator(
            catalog, open_store(state), Settings(), limits, runtime=runtime
        )
        self.coordinator.start()
        log = DatabaseLog(SqliteDatabase(folder / "log.sqlite"))
        files = catalog.stores.of(catalog.warehouse)
        registry = LogRegistry(files, catalog.warehouse, log.id, log.name, "a test")
        self.group = group_commit(catalog, self.coordinator, log, registry)
        self.group.start()
        self.rows = 0

    def second(self, rate: int) -> None:
        """One second of inserts of one row each, and what they have begun carried out."""
        table_info = self.group.known_tables.load("default", "t")
        waiting: list[Future[Answer]] = []
        for _ in range(rate):
            part = f"p{self.rows // 3 % PARTITIONS}"
            body = json.dumps({"rows": [[self.rows, part]]}).encode()
            answer: Future[Answer] = Future()
            self.group.submit(
                Insert(table_info, table_info.validator.json(body), Mode.ASYNC, answer)
            )
            waiting.append(answer)
            self.rows += 1
        for answer in waiting:
            assert isinstance(answer.result(60), Accepted)
        table = self.group.tables[table_info.identity]
        deadline = time.monotonic() + 60
        while table.queue.flushing is not None:
            assert time.monotonic() < deadline, table.queue.last_error
            time.sleep(0.001)
        self.now_ms += 1_000

    def close(self) -> None:
        self.group.stop()
        self.coordinator.stop()


@pytest.mark.slow
@pytest.mark.parametrize("hours", [0.1, pytest.param(24, marks=pytest.mark.soak)])
def test_hours_of_single_rows_make_a_snapshot_an_interval(tmp_path: Path, hours: float) -> None:
    hours = float(os.environ.get("PAIMON_MAGICS_HOURS", hours)) if hours == 24 else hours
    simulated = Simulated(tmp_path)
    seconds = int(hours * 3600)
    resident: list[float] = []
    try:
        for second in range(seconds):
            simulated.second(rate=100)
            if (second + 1) % (seconds // 8) == 0:  # the flusher runs since the first interval
                flushers = simulated.group.flusher.pids
                assert flushers
                resident.append(resident_mb(os.getpid()) + sum(map(resident_mb, flushers)))
    finally:
        simulated.close()
    snapshots = simulated.catalog.load(TABLE).paimon.snapshot_manager()
    latest = snapshots.get_latest_snapshot()
    assert latest.total_record_count == simulated.rows == seconds * 100
    # An interval begins with its first row: the clock is moved on by whole seconds.
    assert seconds // 11 <= latest.id <= seconds // 10 + 1
    for id in range(1, latest.id + 1, max(latest.id // 500, 1)):
        properties = snapshots.get_snapshot_by_id(id).properties
        assert properties["paimon-magics.files"] == str(PARTITIONS * BUCKETS)
    print(f"{latest.id} snapshots, MB resident: {[round(each) for each in resident]}")
    assert resident[-1] < resident[len(resident) // 2] * 1.1 + 16


class Killed:
    """Clients that insert, each its own numbers in order, while coordinator and flusher die."""

    def __init__(
        self, served: Lived, rows: int, clients: int, seed: int, rows_each: int = 250
    ) -> None:
        self.served = served
        self.rows_each = rows_each
        self.rows = rows
        self.each = rows // clients
        self.clients = clients
        self.chance = random.Random(seed)
        self.kills = 0
        self.done = threading.Event()
        self.acknowledged: list[list[tuple[int, int]]] = [[] for _ in range(clients)]

    def insert(self, number: int) -> None:
        begin = number * self.each
        with httpx.Client(timeout=60, trust_env=False) as http:
            for first in range(begin, begin + self.each, self.rows_each):
                document = self.document(first)
                lsn = self._surely(http, document, f"l-{first}")
                self.acknowledged[number].append((lsn, first))

    def document(self, first: int) -> dict[str, object]:
        """The request that begins with the row `first`."""
        return {"rows": [[n, "a"] for n in self._numbers(first)]}

    def _numbers(self, first: int) -> range:
        """The rows of one request."""
        return range(first, min(first + self.rows_each, (first // self.each + 1) * self.each))

    def _surely(self, http: httpx.Client, document: dict[str, object], label: str) -> int:
        served = self.served
        deadline = time.monotonic() + 120
        body = json.dumps(document)
        while time.monotonic() < deadline:
            try:
                answer = http.post(
                    served.process.address + served.path,
                    content=body,
                    headers={
                        "authorization": f"Bearer {served.process.token()}",
                        "idempotency-key": label,
                    },
                )
                if answer.status_code == 200:
                    return int(answer.json()["lsn"])
                assert answer.status_code in (429, 503), answer.text
            except httpx.TransportError:
                pass
            served.start_if_dead()
            time.sleep(0.02)
        raise AssertionError(f"{label} was not acknowledged")

    def kill(self, kills: int) -> None:
        """So many of them, at random places among the rows."""
        each = self.rows / self.rows_each / kills
        places = [(number + self.chance.random()) * each for number in range(kills)]
        for place in places:
            while sum(map(len, self.acknowledged)) < place and not self.done.wait(0.005):
                pass
            self.done.wait(self.chance.uniform(0, 0.2))
            while not self.kill_one():
                self.served.start_if_dead()

    def kill_one(self) -> bool:
        """Kill the coordinator or its flusher; whether there was one."""
        with self.served._turn:
            running = self.served.process.running
            assert running is not None
            if running.poll() is not None:
                return False
            victim = running.pid
            if self.chance.random() < 0.5:
                children = Path(f"/proc/{victim}/task/{victim}/children").read_text().split()
                victim = int(children[0]) if children else victim
            os.kill(victim, signal.SIGKILL)
            self.kills += 1
        if self.chance.random() < 0.5:
            self.served.start_if_dead()
        return True

    def run(self, kills: int) -> None:
        threads = [threading.Thread(target=self.insert, args=(n,)) for n in range(self.clients)]
        killer = threading.Thread(target=self.kill, args=(kills,))
        for thread in [*threads, killer]:
            thread.start()
        for thread in threads:
            thread.join()
        self.done.set()
        killer.join()
        self.served.start_if_dead()
        self.served.flush_surely()

    def check(self) -> None:
        """What was acknowledged is visible, once, in the order of the acknowledgements."""
        table = self.served.catalog.load(TABLE).paimon
        builder = table.new_read_builder()
        found = builder.new_read().to_arrow(builder.new_scan().plan().splits())["id"]
        assert len(found) == self.rows
        assert len(pc.unique(found)) == self.rows
        ordered = sorted(each for some in self.acknowledged for each in some)
        assert [lsn for lsn, _ in ordered] == list(range(1, len(ordered) + 1))
        expected = [id for _, first in ordered for id in self._numbers(first)]
        assert found.to_pylist() == expected
        for some in self.acknowledged:
            assert some == sorted(some)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("log", "rows", "kills"),
    [
        ("store", 8_000, 3),
        pytest.param("store", 2_000_000, 100, marks=pytest.mark.soak),
        pytest.param("warehouse", 400_000, 30, marks=pytest.mark.soak),
    ],
)
def test_coordinator_and_flusher_kills_lose_and_duplicate_no_inserts(
    tmp_path: Path, log: str, rows: int, kills: int
) -> None:
    if rows >= 100_000:
        rows = int(os.environ.get("PAIMON_MAGICS_ROWS", rows))
        kills = int(os.environ.get("PAIMON_MAGICS_KILLS", kills))
    with Lived(tmp_path, "append", f"--log={log}") as served:
        each = 250 if rows >= 100_000 else 10
        killed = Killed(served, rows, clients=4, seed=20261122, rows_each=each)
        killed.run(kills)
        killed.check()
        print(f"{rows} rows, {killed.kills} kills: acknowledged = visible = distinct, in order")
        assert killed.kills == kills
