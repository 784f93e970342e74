"""A streaming job of Flink's and two sessions write the same tables through a coordinator that is
killed again and again, and started again or succeeded by another one: each row is there once, and
the job restarts for no other reason. In one table the sessions bring keys that Flink brings later,
and has other buckets for.

The short version is in every run; `pytest -m soak` has the long one.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import paimon_magics
from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.client.starting import At
from tests.backends.flink import Failure, FlinkJob, compiled_flink_job, flink_job
from tests.coordinator.balancer import Balancer
from tests.coordinator.process import Process, wait_until
from tests.coordinator.team import TOKEN, Team

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.oracle.java_reader import JavaPaimon

pytestmark = [pytest.mark.spark, pytest.mark.java, pytest.mark.slow]

TABLES = {
    "dynamic": "'primary-key' = 'id', 'dynamic-bucket.target-row-num' = '700'",
    "shared": "'primary-key' = 'id', 'dynamic-bucket.target-row-num' = '700'",
    "looked_up": "'primary-key' = 'id', 'bucket' = '2', 'changelog-producer' = 'lookup'",
    "append": "'bucket' = '-1'",
}
OPTIONS = {
    "parallelism.default": "2",
    "execution.checkpointing.interval": "2 s",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000",
    "restart-strategy.fixed-delay.delay": "500 ms",
}
A_SECOND = 300
"""How many keys Flink brings."""
AHEAD = 8 * A_SECOND
"""The first key of the table `shared` that sessions bring: Flink brings it seconds later."""
KEYS = 1_000_000
"""How far apart the keys of two writers are; Flink's begin with 0."""
FAILS_LATE = 15.0
"""How many seconds after a kill's end a request that began before it may still fail."""


@dataclass(frozen=True)
class Down:
    """From when to when, in seconds since 1970, the coordinator was not there."""

    begin: float
    end: float


class Inserting(threading.Thread):
    """A session that inserts new keys into all tables, by turns a query's and some values. It does
    so at least once. `ahead` are the keys that it brings before Flink into the table `shared`."""

    def __init__(self, session: paimon_magics.Session, first: int, ahead: Sequence[int]) -> None:
        super().__init__(daemon=True)
        self._session, self._next, self._ahead = session, first, list(ahead)
        self._enough = threading.Event()
        self.error: BaseException | None = None
        self.keys: dict[str, list[int]] = {table: [] for table in TABLES}

    def run(self) -> None:
        try:
            for number in itertools.count():
                for table in TABLES:
                    if number > 0 and self._enough.is_set():
                        return
                    self._insert(table, values=number % 2 == 1)
        except BaseException as error:
            self.error = error

    def end(self) -> None:
        """Let it finish the statement that it is at."""
        self._enough.set()
        self.join(120)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error

    def _insert(self, table: str, *, values: bool) -> None:
        count = 3 if values else 40
        if table == "shared":
            self._bring(count)
            return
        keys = range(self._next, self._next + count)
        rows = f"SELECT id, 'session' FROM range({keys.start}, {keys.stop})"
        if values:
            rows = "VALUES " + ", ".join(f"({key}, 'session')" for key in keys)
        self._session.run(f"INSERT INTO {table} {rows}")
        self.keys[table] += keys
        self._next = keys.stop

    def _bring(self, count: int) -> None:
        """Insert the last keys that Flink has not brought yet."""
        keys, self._ahead = self._ahead[-count:], self._ahead[:-count]
        if keys:
            rows = ", ".join(f"({key}, 'session')" for key in keys)
            self._session.run(f"INSERT INTO shared VALUES {rows}")
            self.keys["shared"] += keys


class Pair:
    """Two coordinators behind one address, used as one `Process`: where the owner is killed, the
    other one takes over, and the killed one stands by when it is started again."""

    def __init__(self, folder: Path) -> None:
        self._team = Team(folder, 2, "--log=warehouse")
        self._balancer = Balancer([each.address for each in self._team.members])
        self._killed = self._team.owner()
        self.address = self._balancer.address
        self.warehouse = self._team.warehouse

    def token(self) -> str:
        return TOKEN

    def kill(self) -> None:
        self._killed = self._team.owner()
        self._killed.kill()

    def start(self) -> None:
        succeeded = self._team.owner()
        assert succeeded is not self._killed
        self._killed.start()

    def close(self) -> None:
        self._balancer.close()
        self._team.close()


@pytest.fixture
def process(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Process | Pair]:
    started: Process | Pair
    if request.param == "succeeded":
        started = Pair(tmp_path)
    else:
        started = Process(tmp_path / "warehouse", tmp_path / "state")
        started.start()
    yield started
    started.close()


@pytest.fixture
def session(spark: SparkSession, process: Process | Pair) -> Iterator[paimon_magics.Session]:
    with paimon_magics.connect(
        coordinator=process.address,
        token=process.token(),
        spark=spark,
        inline_compaction=False,  # Flink's job compacts the tables
    ) as opened:
        for table, options in TABLES.items():
            key = "id BIGINT NOT NULL" if "primary-key" in options else "id BIGINT"
            opened.run(f"CREATE TABLE {table} ({key}, v STRING) TBLPROPERTIES ({options})")
        yield opened


def statements(process: Process | Pair, rows: int, a_second: int) -> list[str]:
    """Flink's: the keys 0 … rows - 1 into each table."""
    made = [
        "CREATE CATALOG lake WITH ('type' = 'paimon', 'metastore' = 'rest', "
        f"'uri' = '{process.address}', 'warehouse' = '{process.warehouse}', "
        f"'token.provider' = 'bear', 'token' = '{process.token()}')"
    ]
    for table in TABLES:
        made += [
            f"CREATE TEMPORARY TABLE source_{table} (id BIGINT) WITH ('connector' = 'datagen', "
            "'fields.id.kind' = 'sequence', 'fields.id.start' = '0', "
            f"'fields.id.end' = '{rows - 1}', 'rows-per-second' = '{a_second}')",
            f"INSERT INTO lake.`default`.`{table}` SELECT id, 'flink' FROM source_{table}",
        ]
    return made


def kill(process: Process | Pair, job: FlinkJob, chance: random.Random) -> Down:
    """Kill the coordinator while the job and the sessions are at work, and start it again, or let
    another one take over."""
    enough = job.checkpoints() + 2
    wait_until(lambda: job.checkpoints() >= enough or job.returncode() is not None, 90)
    assert job.returncode() is None, job.log()[-5000:]
    time.sleep(chance.random())  # any moment between two checkpoints
    begin = time.time()
    process.kill()
    time.sleep(chance.random() * 4)
    process.start()
    return Down(begin, time.time())


@pytest.mark.parametrize(
    ("process", "kills", "rows"),
    [
        ("restarted", 1, 3_600),
        pytest.param("restarted", 10, 45_000, marks=pytest.mark.soak),
        pytest.param("succeeded", 5, 24_000, marks=pytest.mark.soak),
    ],
    indirect=["process"],
)
def test_coordinator_kills_lose_no_rows_of_a_flink_stream_and_sessions(
    session: paimon_magics.Session,
    process: Process | Pair,
    spark: SparkSession,
    java_paimon: JavaPaimon,
    tmp_path: Path,
    kills: int,
    rows: int,
) -> None:
    seed = random.randrange(1_000_000)
    print("seed", seed)
    chance = random.Random(seed)
    committer = RemoteCoordinator(At(process.address, process.token()))
    second = paimon_magics.Session(session._connection.beside(committer=committer))
    writers = [
        Inserting(each, number * KEYS, range(AHEAD + number, min(rows, 3 * AHEAD), 2))
        for number, each in enumerate((session, second), 1)
    ]
    folder = tmp_path / "flink"
    folder.mkdir()
    options = {**OPTIONS, "execution.checkpointing.dir": (folder / "checkpoints").as_uri()}
    class_path = compiled_flink_job(spark, folder)
    for writer in writers:
        writer.start()
    with flink_job(class_path, options, statements(process, rows, A_SECOND)) as job:
        downs = [kill(process, job, chance) for _ in range(kills)]
        # Half a minute where nothing else runs; beside other tests it was two.
        wait_until(
            lambda: job.returncode() is not None, 240 + rows / 100, lambda: job.log()[-20_000:]
        )
        assert job.returncode() == 0, job.log()[-5000:]
        for writer in writers:
            writer.end()
    committer.close()
    print(
        f"{job.restarts()} restarts, {job.checkpoints()} checkpoints; keys of sessions:",
        [{table: len(keys) for table, keys in writer.keys.items()} for writer in writers],
    )
    check_failures(job.failures(), downs)
    for table in TABLES:
        brought = [key for writer in writers for key in writer.keys[table]]
        expected = sorted({*range(rows), *brought})
        actual = session.run(f"SELECT id FROM {table} ORDER BY id").to_arrow()["id"].to_pylist()
        assert actual == expected, differences(actual, expected)
        java = sorted(row[0] for row in java_paimon.rows(process.warehouse, f"default.{table}"))
        assert java == expected, differences(java, expected)
    # A reader of the changelog hears of each row of Flink's once.
    latest = (
        session.run("SELECT max(snapshot_id) FROM looked_up$snapshots").to_arrow()[0][0].as_py()
    )
    between = {"incremental-between": f"0,{latest}"}
    changes = session.table("looked_up$audit_log", **between).filter(f"id < {KEYS}").toPandas()
    assert sorted(changes["id"]) == list(range(rows)), differences(changes["id"], range(rows))
    assert set(changes["rowkind"]) == {"+I"}
    # Nor does it hear of keys that were moved to Flink's buckets.
    latest = session.run("SELECT max(snapshot_id) FROM shared$snapshots").to_arrow()[0][0].as_py()
    moves = "commit_kind = 'COMPACT' AND commit_user LIKE 'paimon-magics-%'"
    moved = session.run(f"SELECT count(*) FROM shared$snapshots WHERE {moves}").to_arrow()
    assert moved[0][0].as_py() > 0
    between = {"incremental-between": f"0,{latest}"}
    changes = session.table("shared$audit_log", **between).toPandas()
    assert set(changes["id"]) == set(range(rows)) and set(changes["rowkind"]) == {"+I"}
    # Each key is in the index of its bucket: new values take the place of the old ones.
    session.run("INSERT INTO dynamic SELECT id, 'new' FROM dynamic")
    actual = session.run("SELECT count(*), count(DISTINCT id), max(v) FROM dynamic").to_arrow()
    count = rows + sum(len(writer.keys["dynamic"]) for writer in writers)
    assert list(actual.to_pylist()[0].values()) == [count, count, "new"]


def check_failures(failures: Sequence[Failure], downs: Sequence[Down]) -> None:
    """Check that all were for kills. A committer that has committed what its checkpoint held fails
    once more by itself, so that the writers see it."""
    restored = [each for each in failures if "after committing the restored" in each.cause]
    assert len(restored) <= len(TABLES) * len(downs), [each.at for each in restored]
    for failure in failures:
        caused = any(each.begin <= failure.at <= each.end + FAILS_LATE for each in downs)
        reached_nobody = "RESTException: Error occurred while processing" in failure.cause
        assert failure in restored or (caused and reached_nobody), (downs, failure)


def differences(found: Iterable[int], expected: Iterable[int]) -> str:
    """What was lost, and what is there more than once or should not be."""
    lost, more = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
    return f"lost {len(lost)}: {sorted(lost)[:20]}; too many {len(more)}: {sorted(more)[:20]}"
