"""Executors and drivers that die: every statement happened once or not at all, nothing is left.

The executors are processes of their own, the coordinator is one too and outlives all drivers. What
became of a statement whose driver died is told by the table, which holds what it held before or
what it should hold after, and nothing else. The seed of a run is in its failure's message, and
PAIMON_MAGICS_SEED repeats it; PAIMON_MAGICS_STATEMENTS is the number of statements.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
import pytest

from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.process import Process, create_table, read, wait_until
from tests.faults.cluster import Cluster, DriverDiedError
from tests.tables.reachability import missing, unreachable

pytestmark = [pytest.mark.spark, pytest.mark.slow]

Row = tuple[Any, ...]

STEPS = ("attempt.noted", "attempt.written")

COLUMNS = "k BIGINT NOT NULL, v STRING, p BIGINT NOT NULL"
TABLES = {
    "appended": f"CREATE TABLE appended ({COLUMNS}) PARTITIONED BY (p)",
    "upserted": f"CREATE TABLE upserted ({COLUMNS}) TBLPROPERTIES ('primary-key' = 'k', "
    "'bucket' = '2', 'changelog-producer' = 'input')",
    "overwritten": f"CREATE TABLE overwritten ({COLUMNS}) PARTITIONED BY (p) "
    "TBLPROPERTIES ('primary-key' = 'p,k', 'bucket' = '2')",
    "dynamic": f"CREATE TABLE dynamic ({COLUMNS}) PARTITIONED BY (p) "
    "TBLPROPERTIES ('primary-key' = 'p,k', 'dynamic-bucket.target-row-num' = '200')",
    "vectored": f"CREATE TABLE vectored ({COLUMNS}) "
    "TBLPROPERTIES ('deletion-vectors.enabled' = 'true')",
    "tracked": f"CREATE TABLE tracked ({COLUMNS}) PARTITIONED BY (p) "
    "TBLPROPERTIES ('row-tracking.enabled' = 'true')",
    "evolving": f"CREATE TABLE evolving ({COLUMNS}) PARTITIONED BY (p) TBLPROPERTIES "
    "('row-tracking.enabled' = 'true', 'data-evolution.enabled' = 'true', "
    "'deletion-vectors.enabled' = 'true')",
}
KEYLESS = ("appended", "vectored", "tracked", "evolving")

LEVELED = f"({COLUMNS}) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '2', 'write-only' = 'true', "
COMPACTED = {
    "looked_up": f"CREATE TABLE looked_up {LEVELED}'changelog-producer' = 'lookup')",
    "marked": f"CREATE TABLE marked {LEVELED}'deletion-vectors.enabled' = 'true')",
    "first_rows": f"CREATE TABLE first_rows {LEVELED}'merge-engine' = 'first-row')",
    "packed": f"CREATE TABLE packed ({COLUMNS}) TBLPROPERTIES ('compaction.min.file-num' = '2')",
}
INLINED = (
    f"CREATE TABLE inlined ({COLUMNS}) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '2', "
    "'changelog-producer' = 'lookup')"
)
COMPACTION_FAULTS = {
    "looked_up": "compaction.written=kill",
    "marked": "attempt.noted=kill",
    "first_rows": "compaction.written=raise",
    "packed": "attempt.written=kill",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clusters")


@pytest.fixture(scope="module")
def coordinator(folder: Path) -> Iterator[Process]:
    started = Process(
        folder / "warehouse",
        folder / "state",
        "--lease-ms=4000",
        "--cleanup-grace-ms=0",
    )
    started.start()
    yield started
    started.close()


@pytest.fixture(scope="module")
def cluster(folder: Path, coordinator: Process) -> Iterator[Cluster]:
    made = Cluster(folder / "spark", coordinator)
    made.start()
    yield made
    made.bury()


@pytest.fixture(scope="module")
def catalog(folder: Path) -> Catalog:
    for sql in (*TABLES.values(), *COMPACTED.values(), INLINED, f"CREATE TABLE plain ({COLUMNS})"):
        result = create_table(folder / "warehouse", sql)
    return result


def content(catalog: Catalog, name: str) -> Counter[Row]:
    rows = read(catalog, TableName(name, "default"))
    return Counter((row["k"], row["v"], row["p"]) for row in rows)


def settled(coordinator: Process) -> bool:
    """Whether every transaction is committed, or aborted, its files removed."""
    answer = httpx.get(
        f"{coordinator.address}/v1/transactions",
        headers={"Authorization": f"Bearer {coordinator.token()}"},
        trust_env=False,
    )
    return all(each["phase"] in ("committed", "aborted") for each in answer.json()["transactions"])


def nothing_is_left(catalog: Catalog, name: str) -> bool:
    table = catalog.load(TableName(name, "default"))
    assert missing(table) == set()
    return unreachable(table) == set()


ATTEMPTS = [f"{step}={action}" for step in STEPS for action in ("kill", "raise")]


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param([ATTEMPTS[0], ATTEMPTS[-1]], id="some"),
        pytest.param(ATTEMPTS, id="all", marks=pytest.mark.soak),
    ],
)
def test_failed_or_killed_attempts_do_not_count(
    cluster: Cluster, catalog: Catalog, faults: list[str]
) -> None:
    """Spark runs their tasks again; the first attempts' files go."""
    expected = {name: content(catalog, name) for name in (*TABLES, "plain")}
    for number, (name, fault) in enumerate(
        [*zip(cycle(TABLES), faults, strict=False), ("plain", "")]
    ):
        first = number * 1000
        value = "'new'"
        if fault:
            cluster.arm(fault)
        else:  # the executor with all that runs in it, in the middle of its writing
            value = f"killing(id, {first + 900})"
        answer = cluster.run(
            f"INSERT INTO {name} SELECT id, {value}, id % 3 "
            f"FROM range({first}, {first + 1000}, 1, 4)"
        )
        assert "snapshot" in answer and not cluster.is_armed(), answer
        expected[name] += Counter((k, "new", k % 3) for k in range(first, first + 1000))
        assert content(catalog, name) == expected[name], (name, fault)
        wait_until(lambda name=name: nothing_is_left(catalog, name))  # type: ignore[misc]


@pytest.mark.soak
@pytest.mark.parametrize("name", COMPACTED)
def test_compaction_with_failed_or_killed_tasks_happens_once(
    cluster: Cluster, catalog: Catalog, name: str
) -> None:
    expected = filled(cluster, name)
    cluster.arm(COMPACTION_FAULTS[name])
    answer = cluster.run(f"CALL sys.compact('{name}')")
    assert "snapshot" in answer and not cluster.is_armed(), answer
    assert content(catalog, name) == expected
    wait_until(lambda: nothing_is_left(catalog, name))


@pytest.mark.soak
@pytest.mark.parametrize("step", ["compaction.claimed", "compaction.rewritten"])
def test_driver_killed_in_a_compaction_does_not_block_the_next(
    cluster: Cluster, coordinator: Process, catalog: Catalog, step: str
) -> None:
    for name in COMPACTED:
        if not cluster.is_started():
            cluster.start()
        expected = filled(cluster, name)
        cluster.arm(f"{step}=kill")
        with pytest.raises(DriverDiedError):
            cluster.run(f"CALL sys.compact('{name}')")
        cluster.bury()
        wait_until(lambda: settled(coordinator), 120)
        wait_until(lambda name=name: nothing_is_left(catalog, name))  # type: ignore[misc]
        cluster.start()
        assert "snapshot" in cluster.run(f"CALL sys.compact('{name}')")
        assert content(catalog, name) == expected, name


@pytest.mark.soak
@pytest.mark.parametrize(
    "step", ["compaction.claimed", "compaction.written", "compaction.rewritten"]
)
def test_rows_of_an_insert_survive_a_kill_in_its_compaction(
    cluster: Cluster, coordinator: Process, catalog: Catalog, step: str
) -> None:
    """The driver, or an executor, dies while the buckets are compacted that an INSERT has written:
    its rows are there, once."""
    if not cluster.is_started():
        cluster.start()
    expected = filled(cluster, "inlined")
    cluster.arm(f"{step}=kill")
    insert = "INSERT INTO inlined SELECT id, 'more', id % 3 FROM range(250, 400, 1, 2)"
    if step != "compaction.written":  # which an executor reaches
        with pytest.raises(DriverDiedError):
            cluster.run(insert)
        cluster.bury()
        wait_until(lambda: settled(coordinator), 120)
        cluster.start()
    else:
        answer = cluster.run(insert)
        assert "snapshot" in answer and not cluster.is_armed(), answer
    expected -= Counter({row: 1 for row in expected if row[0] >= 250})
    expected += Counter((k, "more", k % 3) for k in range(250, 400))
    wait_until(lambda: nothing_is_left(catalog, "inlined"))
    assert "snapshot" in cluster.run("CALL sys.compact('inlined')")
    assert content(catalog, "inlined") == expected


def filled(cluster: Cluster, name: str) -> Counter[Row]:
    """Fill a table by three statements, and return the rows once they are compacted."""
    assert "error" not in cluster.run(f"TRUNCATE TABLE {name}")
    commits = [("old", range(200)), ("new", range(100, 300)), ("last", range(2))]
    for value, keys in commits:
        source = f"SELECT id, '{value}', id % 3 FROM range({keys.start}, {keys.stop}, 1, 2)"
        assert "snapshot" in cluster.run(f"INSERT INTO {name} {source}")
    rows = [(k, value, k % 3) for value, keys in commits for k in keys]
    if name == "packed":
        return Counter(rows)
    rows = rows[::-1] if name == "first_rows" else rows
    return Counter({row[0]: row for row in rows}.values())


@dataclass
class Model:
    """What the tables hold, by the statements so far."""

    tables: dict[str, Counter[Row]]

    def statement(self, number: int, chance: random.Random) -> tuple[str, str, Counter[Row]]:
        """A statement: its table, its text, and the table after it."""
        name = chance.choice(list(TABLES))
        first = chance.randrange(0, 3000)
        last = first + chance.randrange(1, 1500)
        value = f"s{number}"
        rows = Counter((k, value, k % 3) for k in range(first, last))
        source = f"SELECT id, '{value}', id % 3 FROM range({first}, {last}, 1, 4)"
        before = self.tables[name]
        if chance.random() < 0.6:
            kind = chance.choice(["DELETE", "UPDATE", "MERGE"])
            return name, *changing(name, kind, first, last, value, before)
        if name == "overwritten" and chance.random() < 0.6:
            p = chance.randrange(3)
            kept = Counter(row for row in before if row[2] != p)
            text = f"INSERT OVERWRITE {name} PARTITION (p = {p}) SELECT id, '{value}' "
            text += f"FROM range({first}, {last}, 1, 4)"
            return name, text, kept + Counter((k, value, p) for k in range(first, last))
        if name in KEYLESS:
            return name, f"INSERT INTO {name} {source}", before + rows
        keys = {(k, p) for k, _, p in rows}
        kept = Counter(row for row in before if (row[0], row[2]) not in keys)
        return name, f"INSERT INTO {name} {source}", kept + rows


def changing(
    name: str, kind: str, first: int, last: int, value: str, before: Counter[Row]
) -> tuple[str, Counter[Row]]:
    """A DELETE, UPDATE or MERGE of the keys in a range; and the table after it."""
    within = f"k >= {first} AND k < {last}"

    def chosen(k: int) -> bool:
        return first <= k < last

    match kind:
        case "DELETE":
            text = f"DELETE FROM {name} WHERE {within} AND v IS NOT NULL"
            return text, Counter({row: n for row, n in before.items() if not chosen(row[0])})
        case "UPDATE":
            text = f"UPDATE {name} SET v = '{value}' WHERE {within}"
            found = Counter[Row]()
            for (k, v, p), n in before.items():
                found[k, value if chosen(k) else v, p] += n
            return text, found
    text = (
        f"MERGE INTO {name} t USING (SELECT id AS k, '{value}' AS v, id % 3 AS p "
        f"FROM range({first}, {last}, 1, 4)) s ON t.k = s.k AND t.p = s.p "
        "WHEN MATCHED AND t.k % 5 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v "
        "WHEN NOT MATCHED THEN INSERT *"
    )
    found = Counter({(k, value, k % 3): 1 for k in range(first, last)})
    for (k, _, p), _ in before.items():
        if chosen(k) and p == k % 3:
            del found[k, value, p]
    for (k, v, p), n in before.items():
        if not (chosen(k) and p == k % 3):
            found[k, v, p] += n
        elif k % 5:
            found[k, value, p] += n
    return text, found


CHANGED = ("appended", "upserted", "dynamic", "vectored", "tracked", "evolving")
FAULTS = (
    *(f"{step}={action}" for step in STEPS for action in ("kill", "raise")),
    "statement.begun=kill",
    "statement.written=kill",
)
IN_EVERY_RUN = ("evolving", "UPDATE", "attempt.written=kill")


def struck_changes() -> Iterator[object]:
    """Each kind of statement on each kind of table with each fault that it can meet."""
    for name, kind, fault in itertools.product(CHANGED, ("MERGE", "UPDATE", "DELETE"), FAULTS):
        # The tasks of a DELETE by vectors write no files, so that they don't get there.
        if (
            kind != "DELETE"
            or name not in ("vectored", "evolving")
            or fault.startswith("statement")
        ):
            case = (name, kind, fault)
            yield pytest.param(*case, marks=[pytest.mark.soak] if case != IN_EVERY_RUN else [])


@pytest.mark.parametrize(("name", "kind", "fault"), list(struck_changes()))
def test_row_change_under_faults_happens_once_or_not_at_all(
    cluster: Cluster, coordinator: Process, catalog: Catalog, name: str, kind: str, fault: str
) -> None:
    """A task that fails or dies is run again. A driver that dies leaves the rows as they were."""
    if not cluster.is_started():
        cluster.start()
    source = "SELECT id, 'old', id % 3 FROM range(0, 3000, 1, 4)"
    assert "snapshot" in cluster.run(f"TRUNCATE TABLE {name}")
    assert "snapshot" in cluster.run(f"INSERT INTO {name} {source}")
    before = Counter((k, "old", k % 3) for k in range(3000))
    text, after = changing(name, kind, 2000, 4000, "new", before)
    cluster.arm(fault)
    if fault.startswith("statement"):
        with pytest.raises(DriverDiedError):
            cluster.run(text)
        cluster.bury()
        wait_until(lambda: settled(coordinator), 120)
        assert content(catalog, name) == before
        wait_until(lambda: nothing_is_left(catalog, name), 60)
        cluster.start()
    answer = cluster.run(text)
    assert "snapshot" in answer and not cluster.is_armed(), answer
    assert content(catalog, name) == after
    wait_until(lambda: nothing_is_left(catalog, name), 60)


VICTIMS = {"nobody": 4, "executor": 3, "driver": 2, "jvm": 1}
"""Who may be killed, and how often in ten statements."""
RESTARTED = ("driver", "jvm")
"""After whose death a new cluster starts."""


def chaos(
    coordinator: Process,
    cluster: Cluster,
    catalog: Catalog,
    chance: random.Random,
    seed: int,
    victims: list[str],
) -> Counter[str]:
    """Run statements, each while somebody is killed; return what happened."""
    model = Model({name: content(catalog, name) for name in TABLES})
    happened = Counter[str]()
    if not cluster.is_started():
        cluster.start()
    for number, victim in enumerate(victims):
        name, text, after = model.statement(number, chance)
        try:
            cluster.send(text)
            time.sleep(chance.uniform(0, 4) if victim != "nobody" else 0)
            match victim:
                case "executor":
                    cluster.kill_executor(chance.randrange(10))
                case "driver":
                    cluster.kill_driver()
                case "jvm":
                    cluster.kill_jvm()
            answer = cluster.answer()
        except DriverDiedError:
            answer = {"error": "DriverDied"}
        if victim == "jvm":
            for statement in ("INSERT INTO plain VALUES (1, 'x', 1)", "SELECT 1"):
                assert cluster.run(statement)["error"] == "SetupError"
        if victim in RESTARTED:
            cluster.bury()
        if "error" in answer:
            wait_until(lambda: settled(coordinator), 120)
        found = content(catalog, name)
        told = answer.get("error", "committed")
        message = f"seed {seed}, statement {number} of {name}, {victim} killed: {answer}"
        if told == "committed":
            assert found == after, message
        elif told in ("DriverDied", "UnknownOutcomeError"):
            assert found in (after, model.tables[name]), message
        else:
            assert found == model.tables[name], message
        print(message, flush=True)
        happened[f"{victim} killed: {told}"] += 1
        model.tables[name] = found
        if victim in RESTARTED and number + 1 < len(victims):
            cluster.start()
    for name, expected in model.tables.items():
        assert content(catalog, name) == expected, f"seed {seed}: {name}"
        wait_until(lambda name=name: nothing_is_left(catalog, name), 60)  # type: ignore[misc]
    return happened


def seed_of_run() -> int:
    return int(os.environ.get("PAIMON_MAGICS_SEED") or random.randrange(2**32))


def test_short_chaos_run_keeps_tables_equal_to_the_model(
    coordinator: Process, cluster: Cluster, catalog: Catalog
) -> None:
    """The driver's JVM is killed last, so that no second cluster is started. Of a driver that dies
    `test_killed_processes` has a short run."""
    seed = seed_of_run()
    chance = random.Random(seed)
    victims = ["executor", "jvm"]
    happened = chaos(coordinator, cluster, catalog, chance, seed, victims)
    assert happened.total() == len(victims)


@pytest.mark.soak
def test_long_chaos_run_keeps_tables_equal_to_the_model(
    coordinator: Process, cluster: Cluster, catalog: Catalog
) -> None:
    statements = int(os.environ.get("PAIMON_MAGICS_STATEMENTS") or 100)
    seed = seed_of_run()
    chance = random.Random(seed)
    victims = chance.choices(list(VICTIMS), weights=list(VICTIMS.values()), k=statements)
    print(chaos(coordinator, cluster, catalog, chance, seed, victims))
