"""Many notebooks, in real kernels, on one Spark server and one coordinator for a long time.

They insert and query, are culled and come back, and some are killed in the middle of an INSERT.
Whatever a notebook was told to be written is there once in the end; what it was not told about is
there once or not at all. The memory of all parts is recorded. `PAIMON_MAGICS_NOTEBOOKS`,
`PAIMON_MAGICS_MINUTES` and `PAIMON_MAGICS_PAUSE_S` (between two cells, at most) change the run.
"""

from __future__ import annotations

import ast
import os
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.magics.kernel import Done, Kernel
from tests.spark.shared_server import Place, family_mb, shared_place

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.soak]

NOTEBOOKS = int(os.environ.get("PAIMON_MAGICS_NOTEBOOKS", "30"))
MINUTES = float(os.environ.get("PAIMON_MAGICS_MINUTES", "60"))
PAUSE_S = float(os.environ.get("PAIMON_MAGICS_PAUSE_S", "30"))
NOTEBOOK_MB_MAX = 400
STARTS_AT_ONCE = 3
CELL_S_MAX = 600
LOOK_S = 15
SETTINGS = {
    "spark.connect.session.manager.defaultSessionTimeout": "60s",
    "spark.connect.execute.manager.detachedTimeout": "20s",
}
TABLES = """%%paimon
CREATE TABLE events (who INT, batch INT, k BIGINT);
CREATE TABLE small (who INT, batch INT, k BIGINT) TBLPROPERTIES
  ('auto_batch_load' = 'true', 'group_commit_interval_ms' = '5000')"""
ROWS = "SELECT who, batch, count(*), count(DISTINCT k) FROM {} GROUP BY who, batch"


class Killed(Exception):
    """The notebook was killed while its cell ran."""


@dataclass
class Ledger:
    """What one notebook was told: rows by table and batch. `unsure` are batches of killed cells."""

    rows: dict[tuple[str, int], int] = field(default_factory=dict)
    unsure: dict[tuple[str, int], int] = field(default_factory=dict)


@dataclass
class Memory:
    """The most memory of each part, in MB, and when the parts were looked at."""

    server: float = 0.0
    coordinator: float = 0.0
    notebook: float = 0.0
    all_notebooks: float = 0.0
    machine_used: float = 0.0
    looks: list[str] = field(default_factory=list)

    def look(self, place: Place, seconds: float) -> None:
        assert place.coordinator.running is not None
        server, coordinator = family_mb(place.server.pid), family_mb(place.coordinator.running.pid)
        sizes = [family_mb(kernel.pid) for kernel in tuple(place.notebooks)]
        self.server, self.coordinator = max(self.server, server), max(self.coordinator, coordinator)
        self.notebook = max([self.notebook, *sizes])
        self.all_notebooks = max(self.all_notebooks, sum(sizes))
        lines = Path("/proc/meminfo").read_text().splitlines()
        numbers = {name: int(rest.split()[0]) for name, rest in (line.split(":") for line in lines)}
        used = (numbers["MemTotal"] - numbers["MemAvailable"]) / 1000
        self.machine_used = max(self.machine_used, used)
        self.looks.append(
            f"{seconds:6.0f} s  server {server:6.0f}  coordinator {coordinator:5.0f}  notebooks "
            f"{len(sizes):3}, {max(sizes, default=0):4.0f} at most, {sum(sizes):6.0f} together  "
            f"machine {used:6.0f}"
        )
        print(self.looks[-1], flush=True)


class User:
    """Somebody at a notebook: cells with pauses between them, until the end."""

    def __init__(self, number: int, place: Place, starts: threading.Semaphore) -> None:
        self.number = number
        self.ledger = Ledger()
        self.done: Counter[str] = Counter()
        self._place = place
        self._starts = starts
        self._chance = random.Random(number)
        self._batch = 0
        self._kernel = self._new()

    def _new(self) -> Kernel:
        with self._starts:
            kernel = self._place.notebook()
        kernel.cell_seconds_max = CELL_S_MAX
        return kernel

    def work(self, ends: float, stop: threading.Event) -> None:
        steps = (self.insert, self.insert, self.insert_few, self.query, self.query, self.frame)
        while time.monotonic() < ends and not stop.wait(self._chance.uniform(0, PAUSE_S)):
            chance = self._chance.random()
            if chance < 0.03:
                self.be_culled()
            elif chance < 0.05:
                self.be_killed()
            else:
                self._chance.choice(steps)()

    def insert(self) -> None:
        cell, key, rows = self._insert_cell()
        self._kernel.run(cell)
        self.ledger.rows[key] = rows
        self.done["INSERT"] += 1

    def insert_few(self) -> None:
        self._batch += 1
        rows = [(self.number, self._batch, k) for k in range(5)]
        self._kernel.run(f"paimon_magics.active_session().insert('small', {rows})")
        self.ledger.rows["small", self._batch] = len(rows)
        self.done["small insert"] += 1

    def query(self) -> None:
        """A notebook reads what it has written."""
        shown = self._kernel.run(
            f"%%paimon\nSELECT count(*) AS n FROM events WHERE who = {self.number}"
        )
        told = [rows for (table, _), rows in self.ledger.rows.items() if table == "events"]
        unsure = sum(self.ledger.unsure.values())
        count = int(_text(shown).splitlines()[2])
        assert sum(told) <= count <= sum(told) + unsure, (count, sum(told), unsure)
        self.done["query"] += 1

    def frame(self) -> None:
        self._kernel.run(
            "frame = paimon_magics.active_session().run('SELECT k % 10 AS d, count(*) AS n "
            "FROM events GROUP BY 1').to_pandas()"
        )
        self.done["frame"] += 1

    def be_culled(self) -> None:
        self._kernel.cull()
        self._place.notebooks.remove(self._kernel)
        time.sleep(self._chance.uniform(0, PAUSE_S))
        self._kernel = self._new()
        self.done["culled"] += 1

    def be_killed(self) -> None:
        cell, key, rows = self._insert_cell()
        at = time.monotonic() + self._chance.uniform(0, 3)

        def kill(_: Done) -> bool:
            if time.monotonic() > at:
                self._kernel.kill()
                raise Killed
            return False

        try:
            done = self._kernel.execute(cell, meanwhile=kill)
            assert not done.error, done.error
            self.ledger.rows[key] = rows
            self._kernel.kill()
        except Killed:
            self.ledger.unsure[key] = rows
        self._place.notebooks.remove(self._kernel)
        self._kernel = self._new()
        self.done["killed"] += 1

    def _insert_cell(self) -> tuple[str, tuple[str, int], int]:
        self._batch += 1
        rows = self._chance.choice((10, 1_000, 50_000))
        cell = f"INSERT INTO events SELECT {self.number}, {self._batch}, id FROM range({rows})"
        return f"%%paimon\n{cell}", ("events", self._batch), rows


def _text(done: Done) -> str:
    return str(done.displays[-1]["text/plain"])


def rows_of(kernel: Kernel, table: str) -> dict[tuple[int, int], tuple[int, int]]:
    """The number of rows and of distinct keys of each batch."""
    query = ROWS.format(table)
    code = f"[tuple(r.values()) for r in paimon_magics.active_session().run('{query}').to_pylist()]"
    kernel.run(f"import json, pathlib\nrows = {code}\npathlib.Path('rows').write_text(repr(rows))")
    found_rows = ast.literal_eval((kernel.folder / "rows").read_text())
    return {(who, batch): (count, keys) for who, batch, count, keys in found_rows}


def check_ledger(place: Place, users: list[User]) -> None:
    """Every batch that was told is there once; what was not told is there once or not at all."""
    kernel = place.notebook()
    kernel.cell_seconds_max = CELL_S_MAX
    kernel.run("%paimon flush small")
    for table in ("events", "small"):
        there = rows_of(kernel, table)
        for user in users:
            for (of, batch), rows in user.ledger.rows.items():
                if of == table:
                    assert there.pop((user.number, batch), None) == (rows, rows), (table, batch)
            for (of, batch), rows in user.ledger.unsure.items():
                if of == table:
                    assert there.pop((user.number, batch), None) in (None, (rows, rows))
        assert there == {}


def test_many_notebooks_share_a_server_and_lose_or_double_nothing(tmp_path: Path) -> None:
    # A JVM as users have it.
    with shared_place(tmp_path, SETTINGS, {"SPARK_SUBMIT_OPTS": ""}) as place:
        began = time.monotonic()
        memory = Memory()
        place.notebook().run(TABLES)
        starts = threading.Semaphore(STARTS_AT_ONCE)
        with ThreadPoolExecutor(NOTEBOOKS) as aside:
            starting = [aside.submit(User, number, place, starts) for number in range(NOTEBOOKS)]
            users = [start.result() for start in starting]
            print(f"{NOTEBOOKS} notebooks after {time.monotonic() - began:.0f} s", flush=True)
            memory.look(place, time.monotonic() - began)
            ends = time.monotonic() + MINUTES * 60
            stop = threading.Event()
            working = [aside.submit(user.work, ends, stop) for user in users]
            while not all(work.done() for work in working):
                time.sleep(LOOK_S)
                memory.look(place, time.monotonic() - began)
                if any(work.done() and work.exception() for work in working):
                    stop.set()
            for work in working:
                work.result()
        check_ledger(place, users)
        done: Counter[str] = Counter()
        for user in users:
            done.update(user.done)
        print(dict(done), memory.server, memory.coordinator, memory.notebook, flush=True)
        assert memory.notebook < NOTEBOOK_MB_MAX
