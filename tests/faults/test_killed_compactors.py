"""A compactor, or the coordinator that it commits by, that is killed at each step of a compaction,
for each kind of table that is compacted in its own way.

Whatever dies: no row is lost, doubled or brought back, nor a change of the changelog; files that
moved to another level stay; all others that no snapshot names go once the transaction has ended;
and the next compaction gets its buckets.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paimon_magics.coordinator.client.interface import CoordinatorClient
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.planning.reads.views import ViewKind
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.reading.data_read import ReadRequest, plan_data_read
from paimon_magics.tables.table import Table
from tests.coordinator.forking import Forked
from tests.coordinator.process import create_table, wait_until, write
from tests.faults.appending import committer_of
from tests.faults.compactor import Compactor
from tests.faults.test_coordinator_crashes import COMMIT_STEPS, Armed
from tests.tables.reachability import missing, unreachable

pytestmark = pytest.mark.slow

KEYED = "CREATE TABLE t (k INT NOT NULL, v STRING) TBLPROPERTIES ('primary-key' = 'k', "
KEYED += "'bucket' = '2', 'compaction.size-ratio' = '0', "
TABLES = {
    "lookup": KEYED + "'changelog-producer' = 'lookup')",
    "full-compaction": KEYED + "'changelog-producer' = 'full-compaction')",
    "first-row": KEYED + "'merge-engine' = 'first-row', 'changelog-producer' = 'lookup')",
    "vectors": KEYED + "'deletion-vectors.enabled' = 'true')",
    "vectors and lookup": KEYED + "'deletion-vectors.enabled' = 'true', "
    "'deletion-vectors.bitmap64' = 'true', 'changelog-producer' = 'lookup')",
    "append": "CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ('compaction.min.file-num' = '2')",
    "buckets": "CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ('bucket' = '1', 'bucket-key' = "
    "'k', 'compaction.min.file-num' = '2')",
}
COMPACTOR_STEPS = (
    "compaction.claimed", "attempt.noted", "compaction.written", "compaction.rewritten",
)  # fmt: skip
APPENDS = ("append", "buckets")
OWN_STEPS = ("manifest.written", "commit.prepared", "publish.linked")
"""Steps of a commit without a coordinator."""
FIRST = [{"k": k, "v": "old"} for k in range(300)]
SECOND = [{"k": k, "v": "new"} for k in range(3)]
THIRD = [{"k": k, "v": "new"} for k in range(298, 302)]


ALWAYS = {
    ("compaction.claimed", "lookup"),
    ("attempt.noted", "append"),
    ("compaction.rewritten", "vectors and lookup"),
    ("commit.stored", "first-row"),
    ("publish.linked", "vectors"),
    ("receipt.stored", "full-compaction"),
    ("commit.prepared", "buckets"),
}
"""Steps and tables that are tested without `make soak`: each of them once."""


def matrix(steps: tuple[str, ...]) -> list[object]:
    """Each step with each kind of table."""
    return [
        pytest.param(step, kind, marks=[] if (step, kind) in ALWAYS else [pytest.mark.soak])
        for step in steps
        for kind in TABLES
    ]


@pytest.fixture(scope="module")
def armed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Armed]:
    started = Armed(tmp_path_factory.mktemp("armed"), "--lease-ms=1000")
    yield started
    started.process.close()


def step_of(step: str, kind: str) -> str:
    """Rows of append tables are written by the writer of all statements, whose step has another
    name."""
    return "attempt.written" if (step, kind in APPENDS) == ("compaction.written", True) else step


def fill(client: CoordinatorClient, catalog: Catalog, name: TableName) -> Table:
    """Rows on the greatest level, newer ones of some keys on others and on level 0."""
    for rows in (FIRST, SECOND, THIRD):
        transaction = client.begin(name)
        client.commit(CommitRequest(transaction, Append(), write(catalog, transaction, rows)))
        if rows is FIRST and catalog.load(name).schema.is_primary_key_table:
            Compactor(client).compact(catalog, name, is_full=True)
    return catalog.load(name)


def expected(table: Table) -> Counter[tuple[Any, ...]]:
    """The rows once everything is compacted."""
    commits = [FIRST, SECOND, THIRD]
    if not table.schema.is_primary_key_table:
        return Counter((row["k"], row["v"]) for rows in commits for row in rows)
    if table.schema.merge_engine == "first-row":
        commits = commits[::-1]
    return Counter({row["k"]: row["v"] for rows in commits for row in rows}.items())


def rows(table: Table, kind: ViewKind = ViewKind.TABLE, **options: str) -> list[tuple[Any, ...]]:
    read = plan_data_read(table, ReadRequest(kind, options=options))
    return [tuple(row.values()) for batch in read.rows() for row in batch.to_pylist()]


def visible(table: Table) -> Counter[tuple[Any, ...]]:
    return Counter(rows(table))


def replayed(table: Table) -> Counter[tuple[Any, ...]]:
    """The rows that the changelog makes, each change of which must be possible."""
    latest = table.paimon.snapshot_manager().get_latest_snapshot().id
    found: Counter[tuple[Any, ...]] = Counter()
    for number in range(2, latest + 1):
        changes = rows(
            table,
            ViewKind.AUDIT_LOG,
            **{
                "incremental-between": f"{number - 1},{number}",
                "incremental-between-scan-mode": "changelog",
            },
        )
        for kind, *row in changes:
            change = 1 if kind in ("+I", "+U") else -1
            found[tuple(row)] += change
            assert found[tuple(row)] in (0, 1), (number, kind, row)
    return +found


def check(table: Table, client: CoordinatorClient, catalog: Catalog) -> None:
    """The table is whole, and compacted by the next one who tries."""
    assert missing(table) == set()
    Compactor(client).compact(catalog, table.name, is_full=True)
    assert visible(table) == expected(table)
    assert missing(table) == set()
    if table.schema.changelog_producer in ("lookup", "full-compaction"):
        assert replayed(table) == expected(table)


def started(warehouse: Path, name: TableName, how: str, fault: str, armed: Armed | None) -> Forked:
    """A compactor in a process of its own."""
    environment = {**os.environ, "PAIMON_MAGICS_FAULTS": fault}
    address = ""
    if armed is not None:
        address = armed.process.address
        environment["PAIMON_COORDINATOR_TOKEN"] = armed.process.token()
    arguments = [str(warehouse), name.table, how, address]
    return Forked("tests.faults.compactor", arguments, environment)


@pytest.mark.parametrize(("step", "kind"), matrix(COMPACTOR_STEPS))
def test_killed_compactor_leaves_no_files(armed: Armed, step: str, kind: str) -> None:
    catalog, name = armed.create_table(TABLES[kind])
    client = armed.process.client()
    table = fill(client, catalog, name)
    before = visible(table)
    assert unreachable(table) == set()
    how = "full" if kind == "full-compaction" else "minor"
    process = started(
        Path(str(armed.process.warehouse)), name, how, f"{step_of(step, kind)}=kill", armed
    )
    process.communicate(60)
    assert process.returncode == -9
    assert visible(table) == before
    wait_until(lambda: unreachable(table) == set())
    check(table, client, catalog)
    assert unreachable(table) == set()


@pytest.mark.parametrize(("step", "kind"), matrix(COMMIT_STEPS))
def test_compaction_survives_the_death_of_its_coordinator(
    armed: Armed, step: str, kind: str
) -> None:
    catalog, name = armed.create_table(TABLES[kind])
    client = armed.process.client()
    table = fill(client, catalog, name)
    armed.arm(step, "kill")
    how = "full" if kind == "full-compaction" else "minor"
    process = started(Path(str(armed.process.warehouse)), name, how, "", armed)
    assert armed.process.has_died(60)
    armed.start()
    answer, _ = process.communicate(120)
    assert json.loads(answer)["snapshot"] is not None
    assert unreachable(table) == set()
    check(table, client, catalog)
    assert unreachable(table) == set()


@pytest.mark.parametrize(("step", "kind"), matrix((*COMPACTOR_STEPS, *OWN_STEPS)))
def test_killed_in_process_compactor_compacts_once_or_not_at_all(
    tmp_path: Path, step: str, kind: str
) -> None:
    catalog = create_table(tmp_path, TABLES[kind])
    client, name = committer_of(catalog), TableName("t", "default")
    table = fill(client, catalog, name)
    before, snapshots = visible(table), latest(table)
    how = "full" if kind == "full-compaction" else "minor"
    process = started(tmp_path, name, how, f"{step_of(step, kind)}=kill", None)
    process.communicate(60)
    assert process.returncode == -9
    assert latest(table) == snapshots + (step == "publish.linked")
    if step != "publish.linked":
        assert visible(table) == before
    check(table, client, catalog)


def latest(table: Table) -> int:
    return int(table.paimon.snapshot_manager().get_latest_snapshot().id)


@pytest.mark.parametrize(
    "kind", ["vectors and lookup", pytest.param("append", marks=pytest.mark.soak)]
)
def test_compactor_with_a_failing_store_leaves_no_files(armed: Armed, kind: str) -> None:
    catalog, name = armed.create_table(TABLES[kind])
    client = armed.process.client()
    table = fill(client, catalog, name)
    before = visible(table)
    for step in COMPACTOR_STEPS:
        process = started(
            Path(str(armed.process.warehouse)), name, "minor", f"{step_of(step, kind)}=raise", armed
        )
        process.communicate(60)
        assert process.returncode != 0
        assert visible(table) == before
        wait_until(lambda: unreachable(table) == set())
    check(table, client, catalog)
