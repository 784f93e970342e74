"""Statements that change rows where the warehouse's disk has too little room: each happens once or
not at all, and leaves no files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from paimon_magics.errors import PaimonMagicsError
from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.process import TABLE, Process, wait_until
from tests.faults.disk import Disk, mounted_disk
from tests.sampling import sampled
from tests.session.rows import rows
from tests.tables.reachability import missing, unreachable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from paimon_magics import Session

pytestmark = pytest.mark.spark

KINDS = {
    "looked_up": "'primary-key' = 'k', 'bucket' = '2', 'changelog-producer' = 'lookup'",
    "files": "'row-tracking.enabled' = 'true'",
    "dynamic": "'primary-key' = 'k'",
    "vectors": "'deletion-vectors.enabled' = 'true'",
    "evolving": "'row-tracking.enabled' = 'true', 'data-evolution.enabled' = 'true', "
    "'deletion-vectors.enabled' = 'true'",
    "marked": "'primary-key' = 'k', 'bucket' = '1', 'deletion-vectors.enabled' = 'true'",
}
STATEMENTS = {
    "DELETE": "DELETE FROM t WHERE k % 3 = 0",
    "key": "UPDATE t SET v = 'one' WHERE k = 7",
    "MERGE": "MERGE INTO t USING (SELECT id AS k, uuid() AS v FROM range(20, 60)) s ON t.k = s.k "
    "WHEN MATCHED AND t.k % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET v = 'merged' "
    "WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, 'new')",
    "UPDATE": "UPDATE t SET v = 'new' WHERE k % 3 = 0",
}
PAGE_BYTES = 4096


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
    with mounted_disk(tmp_path_factory.mktemp("full") / "warehouse") as disk:
        yield disk


@pytest.fixture(scope="module")
def process(disk: Disk, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    started = Process(disk.folder, tmp_path_factory.mktemp("state"), "--cleanup-grace-ms=100")
    started.start()
    yield started
    started.close()


@pytest.fixture(scope="module")
def connected(spark: SparkSession, process: Process) -> Iterator[Session]:
    import paimon_magics

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PAIMON_COORDINATOR_TOKEN", process.token())
        with paimon_magics.connect(coordinator=process.address, spark=spark) as session:
            yield session


def after(statement: str) -> dict[int, str]:
    """The values by key that a statement of STATEMENTS leaves."""
    rows = {k: "old" for k in range(40)}
    match statement:
        case "DELETE":
            return {k: v for k, v in rows.items() if k % 3}
        case "key":
            return rows | {7: "one"}
        case "UPDATE":
            return rows | {k: "new" for k in range(0, 40, 3)}
    merged = {k: "merged" for k in range(21, 40, 2)} | {k: "new" for k in range(40, 60)}
    return {k: v for k, v in rows.items() if k < 20} | merged


def content(session: Session) -> list[tuple[object, ...]]:
    return rows(session, "SELECT k, v FROM t ORDER BY k")


@pytest.mark.parametrize(("kind", "statement"), sampled(list(KINDS), list(STATEMENTS), one_in=4))
def test_statement_on_a_full_disk_happens_once_or_not_at_all(
    connected: Session, disk: Disk, kind: str, statement: str, pytestconfig: pytest.Config
) -> None:
    """The room grows by a page (in each run, by some) until it is enough, so that there was none
    at each place where something is written."""
    step = PAGE_BYTES * (1 if "soak" in pytestconfig.option.markexpr else 5)
    session = connected
    session.run(
        f"DROP TABLE IF EXISTS t; CREATE TABLE t (k BIGINT NOT NULL, v STRING) TBLPROPERTIES "
        f"({KINDS[kind]}); INSERT INTO t SELECT id, 'old' FROM range(40)"
    )
    table = Catalog.open({"warehouse": str(disk.folder)}).load(TABLE)
    before, refused = content(session), 0
    assert before == [(k, "old") for k in range(40)]
    while True:
        disk.fill(refused * step)
        try:
            outcome = session.run(STATEMENTS[statement])
        except PaimonMagicsError as error:
            assert content(session) == before, error
            assert "No space left on device" in error.message
            refused += 1
        else:
            disk.mend()
            break
        disk.mend()
        wait_until(lambda: unreachable(table) == set())
        assert missing(table) == set() and content(session) == before
    assert 0 < refused < 100
    if kind == "marked" and content(session) == before:
        # Rows of level 0 are seen once the bucket has been compacted, for which there was no room.
        assert [note for note in outcome.notes if "No space left" in note], outcome.notes
        session.run("CALL sys.compact('t')")
    assert content(session) == sorted(after(statement).items())
    wait_until(lambda: unreachable(table) == set())
    assert missing(table) == set()
