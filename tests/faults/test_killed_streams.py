"""Streams whose processes are killed while their sources change: each change arrives once.

Drivers, their JVMs, executors and Python workers die at random moments, many of them in the first
second of a stream, drivers and tasks at the steps of an epoch, too; the coordinator, which dies as
well, is a process of its own, and takes the changes of the sources as small inserts. Streams run
beside each other: rows of a table without keys; the changes of a table with keys into another; and
the same changes as rows, so that each of them is counted. The long run adds counts of the rows, of
which one stream writes the changed ones (`upsert`), and one all of them (`complete`).
PAIMON_MAGICS_KILLS is the number of kills of the long run, and PAIMON_MAGICS_SEED repeats the
choices of one.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql import SparkSession

from paimon_magics import Session, connect
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.snapshots.latest import latest_snapshot_id
from tests.coordinator.inserts.serving import Served
from tests.coordinator.process import create_table, wait_until
from tests.faults.cluster import Cluster, DriverDiedError
from tests.faults.test_killed_clusters import seed_of_run, settled
from tests.faults.test_small_change_crashes import some_statement
from tests.tables.reachability import missing, unreachable

pytestmark = [pytest.mark.spark, pytest.mark.slow]

LOADED = "'auto_batch_load' = 'true', 'group_commit_interval_ms' = '400'"
KEYED = "'primary-key' = 'id', 'bucket' = '2', 'changelog-producer' = 'input'"
COLUMNS = "id BIGINT NOT NULL, name STRING"
VICTIMS = {
    "driver": 3, "step": 3, "jvm": 1, "executor": 4, "python": 2, "task": 2, "coordinator": 1
}  # fmt: skip
"""Who is killed, and how often in sixteen times. `step` is a driver at a step of an epoch."""
STEPS = {
    "step": ("epoch.noted", "statement.written", "epoch.committed"),
    "task": ("attempt.written", "attempt.noted"),
}
LIMITS = {"scan.snapshot-id": "1", "read.stream.maxSnapshotsPerTrigger": "10"}
GROUPS = "id % 20 AS part"
STREAMS: dict[str, dict[str, Any]] = {
    "kept": {"source": "t", "columns": ["*"]},
    "followed": {"source": "t1$audit_log", "columns": ["*"]},
    "told": {"source": "t1$audit_log", "columns": ["rowkind AS kind", "id", "name"]},
}
"""The streams by their targets."""
COUNTS: dict[str, dict[str, Any]] = {
    "counted": {"source": "t", "columns": [GROUPS], "counts": "part", "mode": "upsert"},
    "whole": {"source": "t", "columns": [GROUPS], "counts": "part", "mode": "complete"},
}
TARGETS = {
    "kept": f"({COLUMNS})",
    "followed": f"({COLUMNS}) TBLPROPERTIES ({KEYED})",
    "told": f"(kind STRING, {COLUMNS})",
    "counted": "(part BIGINT NOT NULL, count BIGINT) TBLPROPERTIES ('primary-key' = 'part')",
    "whole": "(part BIGINT, count BIGINT)",
}


class Source:
    """A coordinator with the tables `t` and `t1`, which change until `stop`."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        options = ("--lease-ms=4000", "--cleanup-grace-ms=0")
        sql = f"CREATE TABLE t ({COLUMNS}) TBLPROPERTIES ({LOADED}"
        self.plain = Served(folder, f"{sql})", *options)
        self.keyed = Served(folder, f"{sql}, {KEYED})", shared=self.plain)
        self._chance = chance
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._change)
        self.statements = 0
        self.error: Exception | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the changes; all of them are in the tables."""
        self._ended.set()
        self._thread.join()
        if self.error is not None:
            raise self.error
        for each in (self.plain, self.keyed):
            each.flush()

    def close(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self.keyed.close()
        self.plain.close()

    def _change(self) -> None:
        try:
            while not self._ended.wait(self._chance.uniform(0, 0.3)):
                number = self.statements
                rows = [[number, f"r{part}"] for part in range(self._chance.randrange(1, 4))]
                self._surely(self.plain, {"rows": rows})
                statements = [some_statement(self._chance, number) for _ in range(3)]
                self._surely(self.keyed, {"statements": statements})
                self.statements += 1
        except Exception as error:
            self.error = error

    def _surely(self, served: Served, document: Any) -> None:
        for _ in range(400):
            with contextlib.suppress(httpx.TransportError):  # killed: it may come twice then
                answer = served.call("POST", "", document)
                if answer.status_code == 200:
                    return
                assert answer.status_code in (429, 503), answer.text  # nothing of it was taken
            time.sleep(0.05)
        raise AssertionError("the coordinator takes no changes")


@pytest.fixture
def seed() -> int:
    return seed_of_run()


@pytest.fixture
def source(tmp_path: Path, seed: int) -> Iterator[Source]:
    made = Source(tmp_path, random.Random(seed + 1))
    yield made
    made.close()


@pytest.fixture
def cluster(tmp_path: Path, source: Source) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "spark", source.plain.process)
    yield made
    made.bury()


def strike(cluster: Cluster, victim: str, chance: random.Random) -> None:
    """Kill somebody, after a while: half of the times within the first second."""
    if victim in STEPS:
        cluster.arm(f"{chance.choice(STEPS[victim])}=kill")
        with contextlib.suppress(AssertionError):  # a table may have had no change meanwhile
            wait_until(lambda: not cluster.is_armed(), 30)
    else:
        time.sleep(chance.uniform(0, chance.choice((1, 5))))
    match victim:
        case "driver":
            cluster.kill_driver()
        case "jvm":
            cluster.kill_jvm()
        case "executor":
            wait_until(lambda: cluster.kill_executor(chance.randrange(10)))
        case "python":
            wait_until(lambda: cluster.kill_python(chance.randrange(100)))
        case "coordinator":
            cluster.coordinator.kill()
            cluster.coordinator.start()


def ask(cluster: Cluster, asked: dict[str, Any]) -> int:
    """Have a driver start the streams that do not run, another one if it is dead; how many it
    started."""
    for _ in range(3):
        try:
            if not cluster.is_started():
                cluster.start()
            answer = cluster.run(asked)
            assert "error" not in answer, answer
            return int(answer["started"])
        except DriverDiedError:
            cluster.bury()
    raise AssertionError("no driver lives")


def run_until_killed(
    cluster: Cluster, asked: dict[str, Any], victims: list[str], chance: random.Random
) -> Counter[str]:
    """Let streams run, and kill somebody again and again; who it was, and how often streams had to
    be started again."""
    happened = Counter[str]()
    for victim in victims:
        happened["starts"] += ask(cluster, asked)
        strike(cluster, victim, chance)
        happened[victim] += 1
        if victim in ("driver", "jvm"):
            cluster.bury()
    return happened


def rows_of(session: Session, query: str) -> Counter[tuple[Any, ...]]:
    found = session.run(query).to_arrow()
    return Counter(tuple(row.values()) for row in found.to_pylist())


def changes_of(session: Session, name: str) -> Counter[tuple[Any, ...]]:
    """How often the changelog of a table has each change."""
    last = latest_snapshot_id(session.catalog.load(TableName(name, "default")))
    return rows_of(
        session, f"SELECT * FROM paimon_incremental_query('{name}$audit_log', 0, {last})"
    )


def nothing_is_left(catalog: Catalog, name: str) -> bool:
    table = catalog.load(TableName(name, "default"))
    assert missing(table) == set()
    return {each for each in unreachable(table) if not each.startswith(".streams/")} == set()


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(2, id="short"),
        pytest.param(
            int(os.environ.get("PAIMON_MAGICS_KILLS", "30")), marks=pytest.mark.soak, id="long"
        ),
    ],
)
@pytest.mark.timeout(3000)
def test_killed_stream_delivers_each_change_once(
    cluster: Cluster, source: Source, spark: SparkSession, tmp_path: Path, seed: int, kills: int
) -> None:
    chance = random.Random(seed)
    catalog = source.plain.catalog
    chosen = STREAMS | (COUNTS if kills > 2 else {})
    for target in chosen:
        create_table(tmp_path / "warehouse", f"CREATE TABLE {target} {TARGETS[target]}")
    streams = [
        {"target": target, "checkpoint": str(tmp_path / target), "options": LIMITS, **stream}
        for target, stream in chosen.items()
    ]
    victims = ["executor", "task"]  # `test_streams` has a driver's death in each run
    if kills > len(victims):
        victims = chance.choices(list(VICTIMS), weights=list(VICTIMS.values()), k=kills)
    source.start()
    happened = run_until_killed(cluster, {"streams": streams}, victims, chance)
    source.stop()
    (tmp_path / "spark" / "fault").unlink(missing_ok=True)
    told = f"seed {seed}, {dict(happened)}, {source.statements} changes"
    ask(cluster, {"streams": streams, "finish": True})
    cluster.bury()
    wait_until(lambda: settled(source.plain.process), 60)
    process = source.plain.process
    session = connect(spark=spark, coordinator=process.address, token=process.token())
    assert rows_of(session, "SELECT * FROM kept") == rows_of(session, "SELECT * FROM t"), told
    changes = changes_of(session, "t1")
    assert rows_of(session, "SELECT * FROM told") == changes, told
    assert changes_of(session, "followed") == changes, told
    assert rows_of(session, "SELECT * FROM followed") == rows_of(session, "SELECT * FROM t1"), told
    for name in chosen.keys() & COUNTS.keys():
        counts = rows_of(session, f"SELECT {GROUPS}, count(*) AS count FROM t GROUP BY 1")
        assert rows_of(session, f"SELECT * FROM {name}") == counts, f"{name}: {told}"
    session.close()
    for name in chosen:
        wait_until(lambda name=name: nothing_is_left(catalog, name), 60)  # type: ignore[misc]
    print(told)
