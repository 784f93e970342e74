"""A coordinator of the version before beside one of this version: who may stand beside whom.

There is no release yet: the version before is a commit of this repository, whose stores, leases,
notes and requests have the forms that the page about deployment names. Its tree is taken from the
history; where that is missing, the tests are skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from paimon_magics.planning.commits.requests import Append, CommitRequest
from tests.coordinator.inserts.serving import SLOW, Served, table_sql
from tests.coordinator.postgres import PostgresServer
from tests.coordinator.process import TABLE, create_table, read, write
from tests.coordinator.team import Team, Writer, flushed

_BEFORE = "06f6fa51"
"""The last commit before stores were paired with warehouses."""

_COMMIT = """
import sys
from pathlib import Path
from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.client.starting import At
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.process import TABLE, write

address, token, warehouse, key = sys.argv[1:]
client = RemoteCoordinator(At(address, token))
transaction = client.begin(TABLE)
rows = write(Catalog.open({"warehouse": warehouse}), transaction, [{"id": int(key), "name": "a"}])
print(client.commit(CommitRequest(transaction, Append(), rows)).snapshot_id)
"""


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The tree of the version before."""
    root = Path(__file__).parents[2]
    words = ["git", "-C", str(root), "archive", _BEFORE, "paimon_magics", "tests"]
    archive = subprocess.run(words, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"the history of the repository lacks the commit {_BEFORE}")
    folder = tmp_path_factory.mktemp("before")
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as tree:
        tree.extractall(folder, filter="data")
    yield folder


def of_before(tree: Path) -> dict[str, str]:
    """The variables with which a process runs that tree's code; it is not forked from this one."""
    return {"PYTHONPATH": str(tree), "LD_PRELOAD": ""}


def as_now(process_environment: dict[str, str]) -> None:
    process_environment.pop("LD_PRELOAD", None)
    process_environment["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")


def test_team_is_upgraded_one_by_one_under_writes(
    tmp_path: Path, before: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in postgres.environment.items():
        monkeypatch.setenv(name, value)
    catalog = create_table(tmp_path / "warehouse", "CREATE TABLE t (k INT)")
    create_table(
        tmp_path / "warehouse",
        f"CREATE TABLE inserted (k INT) TBLPROPERTIES ('auto_batch_load' = 'true', {SLOW})",
    )
    store = f"--store={postgres.empty_database()}"
    team = Team(tmp_path, 2, store, environment=of_before(before))
    writers: list[Writer] = []
    try:
        team.owner()
        kinds = ("commits", "inserts", "streams")
        writers = [Writer(team.addresses, kind, n, catalog) for n, kind in enumerate(kinds, 1)]
        for member in (team.standby(), team.owner()):  # the standby first
            for writer in writers:
                writer.wait_for_another()
            member.end()
            as_now(member.environment)
            member.start()
            team.owner()
        # And once more each, so that the version of now has taken over from itself.
        team.owner().kill()
        for writer in writers:
            writer.wait_for_another()
        for writer in writers:
            writer.end()
        flushed(team, "inserted")
        keys = sorted(int(str(row["k"])) for row in read(catalog))
        assert keys == writers[0].written
        from paimon_magics.statements.statement import TableName

        inserted = read(catalog, TableName("inserted", "default"))
        wanted = sorted([*writers[1].written, *writers[2].written])
        assert sorted(int(str(row["k"])) for row in inserted) == wanted
    finally:
        for writer in writers:
            writer._ending.set()
        team.close()


def test_state_of_the_version_before_is_taken_over_and_back(tmp_path: Path, before: Path) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        process = served.process
        process.end()

        def started(*, as_before: bool) -> None:
            process.environment |= of_before(before)
            if not as_before:
                as_now(process.environment)
            process.start()

        for number, as_before in enumerate((True, False, True, False), 1):
            started(as_before=as_before)
            assert (
                served.insert([[number, "a"]], idempotency_key=f"key-{number}").status_code == 200
            )
            for known in range(1, number):
                again = served.insert([[known, "a"]], idempotency_key=f"key-{known}")
                assert again.json().get("duplicate"), again.text
            process.kill()
        process.start()
        served.flush()
        assert sorted(map(int, served.ids())) == [1, 2, 3, 4]  # type: ignore[call-overload]


@pytest.mark.parametrize("of_client", ["before", "now"])
def test_client_and_coordinator_of_different_versions_commit(
    tmp_path: Path, before: Path, of_client: str
) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        process = served.process
        if of_client == "now":
            process.end()
            process.environment |= of_before(before)
            process.start()
            client = process.client()
            transaction = client.begin(TABLE)
            rows = write(served.catalog, transaction, [{"id": 7, "name": "a"}])
            client.commit(CommitRequest(transaction, Append(), rows))
        else:
            words = [process.address, process.token(), str(process.warehouse), "7"]
            environment = {**os.environ, "PYTHONPATH": str(before)}
            subprocess.run(
                [sys.executable, "-c", _COMMIT, *words],
                cwd=before,
                env=environment,
                check=True,
                timeout=120,
            )
        assert served.ids() == [7]
