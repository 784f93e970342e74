"""Two sessions, each a process with a Spark of its own, change the same rows at the same time: no
update is lost, and no row is added twice."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.process import Process, create_table, read, wait_until
from tests.faults.cluster import Cluster
from tests.tables.reachability import missing, unreachable

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.soak]

KINDS = {
    "keyed": "'primary-key' = 'k', 'bucket' = '1'",
    "looked_up": "'primary-key' = 'k', 'bucket' = '1', 'changelog-producer' = 'lookup'",
    "dynamic": "'primary-key' = 'k'",
    "files": "'write-only' = 'true'",
    "vectors": "'deletion-vectors.enabled' = 'true'",
    "tracked": "'row-tracking.enabled' = 'true'",
    "columns": "'row-tracking.enabled' = 'true', 'data-evolution.enabled' = 'true'",
}
COUNTED = {
    "keyed": 50,
    "looked_up": 20,
    "files": 20,
    "vectors": 20,
    "tracked": 10,
    "columns": 10,
}
"""How often each of both sessions counts in a table of a kind."""
ADDED = {"keyed": 50, "files": 20}
"""How often each of both sessions adds rows to a table of a kind, where not 6 times."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("two")


@pytest.fixture(scope="module")
def coordinator(folder: Path) -> Iterator[Process]:
    started = Process(folder / "warehouse", folder / "state", "--cleanup-grace-ms=0")
    started.start()
    yield started
    started.close()


@pytest.fixture(scope="module")
def sessions(folder: Path, coordinator: Process) -> Iterator[list[Cluster]]:
    made = [Cluster(folder / name, coordinator, "local[1]") for name in ("one", "other")]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(Cluster.start, made))
    yield made
    for each in made:
        each.bury()


def table(folder: Path, name: str, kind: str) -> Catalog:
    sql = f"CREATE TABLE {name} (k BIGINT NOT NULL, n INT, who STRING) TBLPROPERTIES ({kind})"
    return create_table(folder / "warehouse", sql)


def rows(catalog: Catalog, name: str) -> list[tuple[object, object]]:
    found = read(catalog, TableName(name, "default"))
    return sorted((row["k"], row["n"]) for row in found)  # type: ignore[type-var]


def nothing_is_left(catalog: Catalog, name: str) -> bool:
    found = catalog.load(TableName(name, "default"))
    assert missing(found) == set()
    return unreachable(found) == set()


@pytest.mark.parametrize("kind", COUNTED)
def test_concurrent_updates_of_two_sessions_are_all_counted(
    sessions: list[Cluster], folder: Path, kind: str
) -> None:
    """By an UPDATE, and by a MERGE; one that is refused names who came between, and is tried anew.
    Nobody else's row changes."""
    name, times = f"counted_{kind}", COUNTED[kind]
    catalog = table(folder, name, KINDS[kind])
    assert "snapshot" in sessions[0].run(f"INSERT INTO {name} VALUES (1, 0, ''), (2, 0, '')")
    statements = (
        f"UPDATE {name} SET n = n + 1 WHERE k = 1",
        f"MERGE INTO {name} t USING (SELECT 1 AS k) s ON t.k = s.k "
        "WHEN MATCHED THEN UPDATE SET n = t.n + 1",
    )

    def count(session: Cluster) -> int:
        refused = 0
        for number in range(times):
            answer = session.run(statements[number % 2])
            while "snapshot" not in answer:
                assert answer["error"] == "OutdatedPlanError", answer
                assert "snapshot" in str(answer["message"]), answer
                refused += 1
                answer = session.run(statements[number % 2])
        return refused

    with ThreadPoolExecutor(2) as pool:
        refused = list(pool.map(count, sessions))
    print(kind, "refused after all retries:", refused)
    assert rows(catalog, name) == [(1, 2 * times), (2, 0)]
    wait_until(lambda: nothing_is_left(catalog, name), 60)


@pytest.mark.parametrize("kind", KINDS)
def test_concurrent_merges_of_two_sessions_insert_missing_rows_once(
    sessions: list[Cluster], folder: Path, kind: str
) -> None:
    name = f"added_{kind}"
    catalog = table(folder, name, KINDS[kind])
    steps = ADDED.get(kind, 6)

    def add(session: Cluster) -> None:
        for step in range(steps):
            answer: dict[str, object] = {}
            while "snapshot" not in answer:
                answer = session.run(
                    f"MERGE INTO {name} t USING (SELECT id AS k FROM range({step * 5}, "
                    f"{step * 5 + 10})) s ON t.k = s.k "
                    "WHEN NOT MATCHED THEN INSERT (k, n) VALUES (s.k, 1)"
                )
                assert answer.get("error") in (None, "OutdatedPlanError"), answer

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(add, sessions))
    assert rows(catalog, name) == [(k, 1) for k in range(steps * 5 + 5)]
    wait_until(lambda: nothing_is_left(catalog, name), 60)
