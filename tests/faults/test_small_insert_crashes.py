"""Small inserts while the coordinator or its flusher dies at every step: once, and in order."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.coordinator.inserts.serving import QUICK, Served, table_sql
from tests.coordinator.postgres import PostgresServer
from tests.coordinator.process import wait_until

STEPS = (
    "log.sealed",
    "log.appended",
    "flush.begun",
    "begin.stored",
    "attempt.noted",
    "attempt.written",
    "flush.written",
    "flush.noted",
    "commit.stored",
    "manifest.written",
    "commit.prepared",
    "publish.linked",
    "commit.published",
    "receipt.stored",
    "flush.committed",
    "flush.forgotten",
)
# An error there stops the thread that owns the transactions, and nothing goes on before a restart.
ENDS_THE_COORDINATOR = ("begin.stored", "commit.stored", "receipt.stored")
LAYOUTS = {
    "append": ("id BIGINT, name STRING", QUICK),
    "key": ("id BIGINT NOT NULL, name STRING", f"'primary-key' = 'id', 'bucket' = '2', {QUICK}"),
}


class Lived(Served):
    """A coordinator that dies when a fault says so, and is started again."""

    def __init__(self, folder: Path, layout: str, *more: str) -> None:
        self._fault = folder / "fault"
        columns, options = LAYOUTS[layout]
        super().__init__(
            folder,
            table_sql(columns, options),
            "--cleanup-grace-ms=0",
            "--lease-ms=2000",
            "--ownership-lease-ms=2000",
            *more,
            faults=f"@{self._fault}",
        )
        self._turn = threading.Lock()

    def arm(self, step: str, action: str) -> None:
        part = self._fault.with_suffix(".part")
        part.write_text(f"{step}={action}")
        part.rename(self._fault)

    @property
    def has_struck(self) -> bool:
        return not self._fault.exists()

    def start_if_dead(self) -> None:
        with self._turn:
            running = self.process.running
            assert running is not None
            if running.poll() is not None:
                running.communicate()
                self.process.start(f"@{self._fault}")

    def insert_surely(self, row: list[object], label: str) -> int:
        """Repeat an insert until it is acknowledged; its lsn."""
        return self.surely({"rows": [row]}, label)

    def surely(self, document: Any, label: str) -> int:
        """Repeat a request until it is acknowledged; its lsn."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                answer = self.call("POST", "", document, {"idempotency-key": label})
                if answer.status_code == 200:
                    return int(answer.json()["lsn"])
                assert answer.status_code in (429, 503), answer.text
            except httpx.TransportError:
                pass
            self.start_if_dead()
            time.sleep(0.02)
        raise AssertionError(f"{label} was not acknowledged")

    def flush_surely(self) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                if self.call("POST", "/flush").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            self.start_if_dead()
            time.sleep(0.05)
        raise AssertionError("it was not loaded")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "action", "log", "steps"),
    [
        # Each step once, by a death or an error; all of them in `make soak`.
        ("append", "kill", "warehouse", STEPS[::3]),
        ("key", "kill", "store", STEPS[1::3]),
        ("append", "raise", "store", STEPS[2::3]),
        pytest.param("append", "kill", "warehouse", STEPS, marks=pytest.mark.soak),
        pytest.param("append", "raise", "store", STEPS, marks=pytest.mark.soak),
        pytest.param("key", "kill", "store", STEPS, marks=pytest.mark.soak),
        pytest.param("append", "kill", "store", STEPS, marks=pytest.mark.soak),
        pytest.param("key", "raise", "store", STEPS, marks=pytest.mark.soak),
    ],
    ids=lambda each: f"{len(each)} steps" if isinstance(each, tuple) else each,
)
def test_crash_at_each_step_keeps_inserts_once_and_in_order(
    tmp_path: Path, layout: str, action: str, log: str, steps: tuple[str, ...]
) -> None:
    with Lived(tmp_path, layout, f"--log={log}") as served:
        number = 0
        lsns: list[int] = []

        def insert(count: int) -> None:
            nonlocal number
            for _ in range(count):
                lsns.append(served.insert_surely([number, "a"], str(number)))
                number += 1

        for step in steps:
            if action == "raise" and step in ENDS_THE_COORDINATOR:
                continue
            insert(1)
            served.flush_surely()
            served.arm(step, action)
            insert(5)
            served.flush_surely()
            wait_until(lambda: served.has_struck)
            insert(2)
            served.flush_surely()
            ids = served.ids()
            assert (ids if layout == "append" else sorted(ids)) == list(range(number)), step  # type: ignore[type-var]
        assert lsns == list(range(1, number + 1))


@pytest.mark.slow
def test_random_coordinator_kills_keep_each_insert_once_and_in_order(tmp_path: Path) -> None:
    clients, each = 4, 40
    with Lived(tmp_path, "append") as served:
        chance = random.Random(20261121)
        done = threading.Event()
        acknowledged: list[list[tuple[int, int]]] = [[] for _ in range(clients)]

        def client(number: int) -> None:
            for n in range(each):
                id = number * each + n
                lsn = served.insert_surely([id, "a"], f"label-{id}")
                acknowledged[number].append((lsn, id))

        def kill() -> None:
            seen = 0
            while not done.wait(chance.uniform(0.3, 1.0)):
                count = sum(map(len, acknowledged))
                if count == seen:  # where a start takes long, nothing would ever come through
                    continue
                seen = count
                with served._turn:
                    running = served.process.running
                    assert running is not None
                    if running.poll() is None:
                        running.kill()

        threads = [threading.Thread(target=client, args=(n,)) for n in range(clients)]
        killer = threading.Thread(target=kill)
        for thread in [*threads, killer]:
            thread.start()
        for thread in threads:
            thread.join()
        done.set()
        killer.join()
        served.start_if_dead()
        served.flush_surely()
        ordered = sorted(item for some in acknowledged for item in some)
        assert [id for _, id in ordered] == served.ids()
        assert sorted(id for _, id in ordered) == list(range(clients * each))


@pytest.mark.slow
def test_database_kills_lose_and_duplicate_no_inserts(
    tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in postgres.environment.items():
        monkeypatch.setenv(name, value)
    address = postgres.empty_database()
    with Lived(tmp_path, "append", f"--store={address}") as served:
        lsns: list[int] = []

        def insert(first: int) -> None:
            for number in range(first, first + 15):
                lsns.append(served.insert_surely([number, "a"], str(number)))

        for turn in range(2):
            asking = threading.Thread(target=insert, args=(turn * 15,))
            asking.start()
            wait_until(lambda turn=turn: len(lsns) > turn * 15 + 3)  # type: ignore[misc]
            postgres.kill()
            time.sleep(0.5)
            postgres.start()
            asking.join()
        served.flush_surely()
        assert served.ids() == list(range(30))
        assert lsns == list(range(1, 31))
