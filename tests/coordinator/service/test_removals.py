"""Removals on request: a coordinator keeps what somebody reads or writes, says who that is, and
takes them from those alone who may maintain the table."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.errors import CommitConflictError, InvalidValueError, SetupError
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.statements.removals import (
    ExpireSnapshots,
    ExpireTags,
    PurgeFiles,
    RemoveOrphanFiles,
)
from paimon_magics.statements.version_changes import CreateTag
from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.audit.test_audit import QUICK, entries
from tests.coordinator.process import TABLE, Process, create_table, write
from tests.coordinator.service.test_expiry import append, keys, snapshots
from tests.faults.owner import until
from tests.tables.reachability import missing, unreachable

SQL = "CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ('write-only' = 'true')"
LAST_SNAPSHOT = ExpireSnapshots(retain_max=1, retain_min=1)
PAST = "2020-01-01 00:00:00Z"


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    started = Process(
        tmp_path / "warehouse", tmp_path / "state", "--lease-ms=2500", "--cleanup-grace-ms=200"
    )
    started.start()
    yield started
    started.close()


@pytest.fixture
def catalog(process: Process) -> Catalog:
    return create_table(process.warehouse, SQL)


def age(catalog: Catalog) -> None:
    """Let all files of the table be old."""
    at = time.time() - 3 * 86_400
    for path in Path(catalog.load(TABLE).location).rglob("*"):
        os.utime(path, (at, at))


def post(process: Process, token: str, **members: Any) -> httpx.Response:
    document = {
        "id": "a",
        "table": {"database": "default", "table": "t"},
        "removal": {"kind": "ExpireTags"},
        "is_trial": False,
        **members,
    }
    headers = {"Authorization": f"Bearer {token}"}
    url = f"{process.address}/v1/tables/removals"
    return httpx.post(url, json=document, headers=headers, trust_env=False)


def test_expiry_waits_until_readers_had_time_to_say_what_they_read(
    process: Process, catalog: Catalog
) -> None:
    client = process.client()
    append(client, catalog, *range(4))
    trial = client.remove(TABLE, LAST_SNAPSHOT, is_trial=True)
    assert trial.snapshots in (2, 3) and trial.files > 0 and trial.size_bytes > 0
    assert snapshots(catalog) == [1, 2, 3, 4]
    receipt = client.remove(TABLE, LAST_SNAPSHOT)
    # The one before the latest stays until it is looked at whether it was overwritten.
    assert receipt.snapshots in (2, 3)
    assert missing(catalog.load(TABLE)) == unreachable(catalog.load(TABLE)) == set()
    assert keys(catalog) == [0, 1, 2, 3]


def test_open_transaction_keeps_its_base_and_is_named(process: Process, catalog: Catalog) -> None:
    client = process.client()
    append(client, catalog, 0, 1)
    client.begin(TABLE)
    append(client, catalog, 2, 3)
    receipt = client.remove(TABLE, LAST_SNAPSHOT)
    assert snapshots(catalog) == [2, 3, 4] and receipt.snapshots == 1
    (holder,) = [each for each in receipt.holders if each.kind == "transaction"]
    assert holder.snapshot_id == 2 and holder.name


def test_snapshot_that_is_read_stays_and_its_reader_is_named(
    process: Process, catalog: Catalog
) -> None:
    client = process.client()
    append(client, catalog, 0, 1)
    assert client.lease(TABLE, 1)
    append(client, catalog, 2)
    receipt = client.remove(TABLE, LAST_SNAPSHOT)
    assert snapshots(catalog)[0] == 1 and receipt.snapshots == 0
    assert [each.snapshot_id for each in receipt.holders if each.kind == "lease"] == [1]
    client.release(TABLE, 1)
    until(lambda: client.remove(TABLE, LAST_SNAPSHOT).snapshots > 0)


def test_orphan_cleaning_keeps_files_of_open_transactions_however_old(
    process: Process, catalog: Catalog
) -> None:
    client = process.client()
    append(client, catalog, 0)
    transaction = client.begin(TABLE)
    messages = write(catalog, transaction, [{"k": 1, "v": "v"}])
    folder = Path(catalog.load(TABLE).location)
    orphan = folder / "bucket-0" / "data-orphan.parquet"
    orphan.write_bytes(b"12345")
    age(catalog)
    trial = client.remove(TABLE, RemoveOrphanFiles(), is_trial=True)
    assert (trial.files, trial.size_bytes) == (1, 5) and orphan.exists()
    receipt = client.remove(TABLE, RemoveOrphanFiles())
    assert (receipt.files, receipt.size_bytes) == (1, 5) and not orphan.exists()
    client.commit(CommitRequest(transaction, Append(), messages))
    assert keys(catalog) == [0, 1] and missing(catalog.load(TABLE)) == set()


def test_commits_go_on_while_orphans_are_removed(process: Process, catalog: Catalog) -> None:
    client = process.client()
    append(client, catalog, 0)
    folder = Path(catalog.load(TABLE).location) / "bucket-0"
    for number in range(300):
        (folder / f"data-{number}.parquet").write_bytes(b"1")
    age(catalog)
    ended = threading.Event()
    errors: list[Exception] = []

    def clean() -> None:
        other = process.client()
        try:
            while not ended.is_set():
                before = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime())
                other.remove(TABLE, RemoveOrphanFiles(older_than=before))
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=clean)
    thread.start()
    try:
        append(client, catalog, *range(1, 15))
    finally:
        ended.set()
        thread.join()
    assert errors == [] and keys(catalog) == list(range(15))
    assert missing(catalog.load(TABLE)) == set()
    assert not list(folder.glob("data-*"))


def test_purge_is_refused_while_somebody_writes(process: Process, catalog: Catalog) -> None:
    client = process.client()
    append(client, catalog, 0)
    client.change_versions(TABLE, CreateTag("kept"))
    transaction = client.begin(TABLE)
    with pytest.raises(CommitConflictError, match="is being written"):
        client.remove(TABLE, PurgeFiles())
    assert (Path(catalog.load(TABLE).location) / "tag/tag-kept").exists()
    client.abort(transaction)


def test_wrong_requests_are_refused_by_the_member(process: Process, catalog: Catalog) -> None:
    client = process.client()
    append(client, catalog, 0)
    with pytest.raises(InvalidValueError, match="a time to come"):
        client.remove(TABLE, RemoveOrphanFiles(older_than="2999-01-01 00:00:00Z"))
    for removal, member in (
        ({"kind": "DropTable"}, "kind"),
        ({"kind": "ExpireTags", "older_than": 5}, "older_than"),
        ({}, "kind"),
    ):
        answer = post(process, process.token(), removal=removal)
        assert answer.status_code == 400 and f"`{member}`" in answer.text


def test_removal_takes_the_right_to_maintain(process: Process, catalog: Catalog) -> None:
    append(process.client(), catalog, 0)
    headers = {"Authorization": f"Bearer {process.token()}"}

    def token(name: str, allows: str) -> str:
        answer = httpx.post(
            f"{process.address}/v1/tokens",
            json={"name": name, "allow": [f"{allows}=default.*"]},
            headers=headers,
            trust_env=False,
        )
        return str(answer.json()["token"])

    for scope in ("read", "insert", "change", "alter"):
        assert post(process, token(scope, scope)).status_code == 403
    keeper = token("keeper", "maintain")
    assert post(process, keeper).status_code == 200
    assert post(process, keeper, removal={"kind": "PurgeFiles"}).status_code == 403
    elsewhere = {"database": "default", "table": "nothing"}
    assert post(process, keeper, table=elsewhere).status_code == 404


def test_removal_is_kept_in_the_audit_log(tmp_path: Path) -> None:
    process = Process(tmp_path / "warehouse", tmp_path / "state", *QUICK)
    process.start()
    try:
        catalog = create_table(process.warehouse, SQL)
        client = process.client()
        append(client, catalog, 0)
        (Path(catalog.load(TABLE).location) / "bucket-0/data-1.parquet").write_bytes(b"1")
        age(catalog)
        client.remove(TABLE, RemoveOrphanFiles())

        def holders_of() -> list[dict[str, Any]]:
            return [row for row in entries(catalog) if row["action"] == "remove files"]

        until(lambda: bool(holders_of()))
        (entry,) = holders_of()
        assert (entry["database_name"], entry["table_name"]) == ("default", "t")
        assert "RemoveOrphanFiles" in entry["detail"] and "1 files" in entry["detail"]
    finally:
        process.close()


def test_same_request_is_carried_out_once(process: Process, catalog: Catalog) -> None:
    client = process.client()
    append(client, catalog, 0, 1)
    client.change_versions(TABLE, CreateTag("a", 1, "1 ms"))
    time.sleep(0.05)
    first = post(process, process.token(), id="same").json()["receipt"]
    assert first["names"] == ["a"]
    assert post(process, process.token(), id="same").json()["receipt"] == first
    assert post(process, process.token(), id="other").json()["receipt"]["names"] == []


def test_nothing_is_removed_in_a_pause(process: Process, catalog: Catalog) -> None:
    client: RemoteCoordinator = process.client()
    append(client, catalog, 0, 1)
    headers = {"Authorization": f"Bearer {process.token()}"}
    url = f"{process.address}/v1/coordinator"
    httpx.post(f"{url}/pause", json={}, headers=headers, trust_env=False)
    try:
        with pytest.raises(SetupError, match="paused"):
            client.remove(TABLE, ExpireTags(older_than=PAST))
    finally:
        httpx.post(f"{url}/resume", headers=headers, trust_env=False)
    assert client.remove(TABLE, ExpireTags(older_than=PAST)).names == ()


def test_cleaning_that_dies_is_repeated_by_its_client(tmp_path: Path) -> None:
    fault = tmp_path / "fault"
    process = Process(tmp_path / "warehouse", tmp_path / "state", "--lease-ms=2500")
    process.start(faults=f"@{fault}")
    try:
        catalog = create_table(process.warehouse, SQL)
        client = process.client()
        append(client, catalog, 0)
        folder = Path(catalog.load(TABLE).location) / "bucket-0"
        (folder / "data-1.parquet").write_bytes(b"1")
        age(catalog)
        fault.write_text("orphans.deleted=kill")
        done: list[object] = []
        thread = threading.Thread(
            target=lambda: done.append(client.remove(TABLE, RemoveOrphanFiles()))
        )
        thread.start()
        assert process.has_died()
        process.start()
        thread.join(60)
        assert len(done) == 1 and not (folder / "data-1.parquet").exists()
        assert keys(catalog) == [0] and missing(catalog.load(TABLE)) == set()
    finally:
        process.close()
