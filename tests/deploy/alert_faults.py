"""The faults that the alerts in `deploy/monitoring/alerts.yaml` are about, each caused for real.

A function causes some, sees the alerts fire, mends them, and sees the alerts end. All run at the
same time, each with coordinators of its own.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from paimon_magics.coordinator.audit.entries import Entry, Outcome, entry_id
from paimon_magics.coordinator.store.state_store import open_store
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.table_changes import AlterTable
from tests.backends.s3 import Bucket, Reply, S3Server, s3_server
from tests.coordinator.postgres import start_postgres
from tests.coordinator.process import Process, create_table, wait_until, write
from tests.deploy.watched import Lab, Watched, inserted, state_of
from tests.faults.disk import mounted_disk

Fault = Callable[[Lab], None]


class Seen(NamedTuple):
    """Which alerts a function below sees fire and end, about which warehouse."""

    warehouse: str
    alerts: tuple[str, ...]


FAULTS: dict[Fault, Seen] = {}


def causes(warehouse: str, *alerts: str) -> Callable[[Fault], Fault]:
    def noted(fault: Fault) -> Fault:
        FAULTS[fault] = Seen(warehouse, alerts)
        return fault

    return noted


def commit(client: Any, catalog: Any, name: TableName, key: int) -> None:
    transaction = client.begin(name)
    messages = write(catalog, transaction, [{"k": key}])
    client.commit(CommitRequest(transaction, Append(), messages))


@causes(
    "alone",
    "PaimonCoordinatorDown",
    "PaimonNoOwner",
    "PaimonPaused",
    "PaimonCompactionsPaused",
    "PaimonCommitsSlow",
)
def one_coordinator_alone(lab: Lab) -> None:
    """Pauses, a machine that stands still in a commit, and a kill without anybody to take over."""
    place = lab.folder / "alone" / "warehouse"
    place.mkdir(parents=True)
    catalog = create_table(place, "CREATE TABLE t (k INT)")
    armed = lab.folder / "alone" / "armed"
    with lab.started("alone", faults=f"@{armed}") as alone:
        alone.is_quiet()
        for path, alert in (
            ("/v1/coordinator", "PaimonPaused"),
            ("/v1/compactions", "PaimonCompactionsPaused"),
        ):
            alone.do("POST", f"{path}/pause", {"owner": "ada"})
            alone.fires(alert)
            alone.is_ready()  # what has begun may be committed
            alone.do("POST", f"{path}/resume", {})
            alone.ends(alert)
        name, client = TableName("t", "default"), alone.process.client()
        armed.write_text("commit.prepared=stop")
        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(commit, client, catalog, name, 0)
            wait_until(alone.process.is_stopped, 60)
            time.sleep(7)
            alone.process.go_on()
            slow.result(60)
        alone.fires("PaimonCommitsSlow")
        for key in range(1, 130):  # a hundred quick ones to each slow one
            commit(client, catalog, name, key)
        alone.ends("PaimonCommitsSlow")
        alone.process.kill()
        alone.fires("PaimonCoordinatorDown")
        alone.fires("PaimonNoOwner")
        alone.start()
        alone.is_ready()
        alone.ends("PaimonNoOwner")
        alone.ends("PaimonCoordinatorDown")


@causes("audited", "PaimonCertificateEnds", "PaimonAuditWaits", "PaimonCoordinatorProblem")
def certificate_and_audit_log(lab: Lab) -> None:
    """A certificate near its end, and an audit log whose table can't be written."""
    folder = lab.folder / "audited"
    place, state = folder / "warehouse", state_of_new(folder)
    create_table(place, "CREATE TABLE t (k INT)")
    store = open_store(state)
    now_ms = int(time.time() * 1000)
    entries = [
        Entry(entry_id(now_ms, f"e{n:06}"), now_ms, "commit", outcome=Outcome.DONE)
        for n in range(100_001)
    ]
    store.audit.save([(each.id, each.body, True) for each in entries])
    store.close()
    (place / "ops.db").touch()  # the database of its table can't be made
    certificate = folder / "certificate.pem"
    lab.certificate(certificate, days=3)
    options = ("--audit-table=ops.audit", "--audit-every-ms=500", f"--tls-cert={certificate}")
    with lab.started("audited", *options) as audited:
        alert = audited.fires("PaimonCertificateEnds")
        assert "ends in 2d 23h" in alert["annotations"]["summary"]
        audited.fires("PaimonAuditWaits")
        audited.fires("PaimonCoordinatorProblem", fact="audit_waiting")
        audited.is_ready()
        lab.certificate(certificate, days=30)
        (place / "ops.db").unlink()
        audited.ends("PaimonCertificateEnds")
        audited.ends("PaimonAuditWaits")
        audited.ends("PaimonCoordinatorProblem")


@causes("full", "PaimonCoordinatorNotReady", "PaimonInsertsRefused")
def full_disk(lab: Lab) -> None:
    """No byte is left on the disk of the state folder."""
    folder = lab.folder / "full"
    folder.mkdir()
    create_table(folder / "warehouse", inserted("t"))
    with (
        mounted_disk(folder / "state", megabytes=24) as disk,
        lab.started("full", "--log-reserve-bytes=1000000") as full,
    ):
        assert full.insert("t", (1, 1)).status_code == 200
        disk.fill()
        full.is_unready("disk_free_bytes")
        assert (full.insert("t", (2, 2)).json()["error"]["type"]) == "NoRoom"
        alert = full.fires("PaimonCoordinatorNotReady")
        assert "disk_free_bytes" in alert["annotations"]["summary"]
        full.fires("PaimonInsertsRefused", reason="no_room")
        disk.mend()
        full.is_ready()
        assert full.insert("t", (3, 3)).status_code == 200
        full.ends("PaimonCoordinatorNotReady")
        full.ends("PaimonInsertsRefused")


@causes("bucket", "PaimonCoordinatorNotReady")
def changed_secret(lab: Lab) -> None:
    """The store takes another key from now on, and answers 403 to the coordinator's."""
    folder = lab.folder / "bucket"
    folder.mkdir()
    with s3_server() as server:
        bucket = Bucket(server.endpoint, key="old-key")
        create_table(bucket.options, inserted("t"))
        options = {"place": bucket.options["warehouse"], "catalog": bucket.options}
        with lab.started("bucket", "--ownership-lease-ms=6000", **options) as coordinator:
            assert coordinator.insert("t", (1, 1)).status_code == 200
            coordinator.do("POST", "/v1/inserts/default/t/flush")
            accept(server, "new-key")
            coordinator.is_unready("lease_seconds")
            alert = coordinator.fires("PaimonCoordinatorNotReady")
            assert "lease_seconds" in alert["annotations"]["summary"]
            wait_until(lambda: coordinator.insert("t", (2, 2)).status_code == 503, 30)
            coordinator.process.kill()
            rename_key(folder / "state.json", "old-key", "new-key")
            coordinator.start()
            coordinator.is_ready()
            assert coordinator.insert("t", (3, 3)).status_code == 200
            coordinator.do("POST", "/v1/inserts/default/t/flush")
            coordinator.ends("PaimonCoordinatorNotReady")


@causes("restored", "PaimonInsertsWait", "PaimonTableClosed", "PaimonCoordinatorProblem")
def waiting_and_closed(lab: Lab) -> None:
    """Rows that wait since ten minutes, and a log that was put back to an older state."""
    folder = lab.folder / "restored"
    place, state = folder / "warehouse", state_of_new(folder)
    create_table(place, inserted("w", "'bucket' = '1', 'bucket-key' = 'id'"))
    create_table(place, inserted("c"))
    (place / "default.db/w/bucket-0").touch()  # nothing can be loaded into it
    insert_in_the_past(lab, place, state)
    saved = folder / "saved"
    saved.mkdir()
    for file in state.glob("log.sqlite*"):
        shutil.copy(file, saved)
    with lab.started("restored") as restored:
        restored.fires("PaimonInsertsWait", table="default.w")
        restored.fires("PaimonCoordinatorProblem", fact="insert_overdue_seconds")
        restored.is_ready()  # other tables take inserts
        (place / "default.db/w/bucket-0").unlink()
        restored.do("POST", "/v1/inserts/default/w/flush")
        restored.ends("PaimonInsertsWait")
        restored.ends("PaimonCoordinatorProblem")
        assert restored.insert("c", (2, 2)).status_code == 200
        restored.do("POST", "/v1/inserts/default/c/flush")
        restored.process.kill()
        for file in state.glob("log.sqlite*"):
            file.unlink()
        for file in saved.iterdir():
            shutil.copy(file, state)
        restored.start()
        assert "ends with record 1" in restored.insert("c", (3, 3)).text
        restored.fires("PaimonTableClosed", table="default.c")
        restored.do("POST", "/v1/inserts/default/c/reopen", {"accept_loss": True})
        assert restored.insert("c", (3, 3)).status_code == 200
        restored.ends("PaimonTableClosed")


@causes(
    "team",
    "PaimonNoOwner",
    "PaimonStandbyUnable",
    "PaimonCoordinatorNotReady",
    "PaimonCoordinatorDown",
)
def two_on_postgresql(lab: Lab) -> None:
    """PostgreSQL frozen, then away; then the owner dies, and the other one can't take over."""
    folder = lab.folder / "team"
    folder.mkdir()
    place = folder / "warehouse"
    create_table(place, "CREATE TABLE t (k INT)")
    server = start_postgres()
    options = ("--standby", f"--store={server.empty_database()}", "--ownership-lease-ms=20000")
    members = []
    try:
        for name in ("first", "second"):
            (folder / name).mkdir()
            process = Process(
                place, state_of(folder / name), *options, environment=server.environment
            )
            members.append(Watched(lab, "team", process))
            members[-1].start()
            wait_until(lambda: members[0].probe("/health/owner")[0] == 200, 30)
        owner, standby = members
        instance = owner.process.address.partition("://")[2]
        standby.is_ready()
        with server.frozen():
            owner.is_unready("store_seconds", "running")
            owner.fires("PaimonCoordinatorNotReady")
        owner.is_ready()
        owner.ends("PaimonCoordinatorNotReady")
        server.kill()
        owner.is_unready("store_seconds", "running")
        owner.fires("PaimonCoordinatorNotReady")
        standby.fires("PaimonStandbyUnable")
        owner.process.kill()
        standby.fires("PaimonNoOwner")
        standby.fires("PaimonCoordinatorDown", instance=instance)
        assert standby.probe("/health/ready")[0] == 503
        server.start()
        standby.ends("PaimonNoOwner")
        standby.ends("PaimonStandbyUnable")
        assert standby.probe("/health/owner")[0] == 200
        standby.is_ready()
        owner.start()
        standby.ends("PaimonCoordinatorDown")
    finally:
        lab.prometheus.forget("team")
        for member in members:
            member.close()
        server.remove()


@causes(
    "tables",
    "PaimonDeadLetters",
    "PaimonTableStopped",
    "PaimonUpkeepFails",
    "PaimonCompactionsFail",
)
def tables_in_trouble(lab: Lab) -> None:
    """Tables that are damaged, or were changed around the coordinator."""
    place = lab.folder / "tables" / "warehouse"
    place.mkdir(parents=True)
    catalog = create_table(place, inserted("d", NULLS))
    create_table(place, "CREATE TABLE s (k INT)")
    create_table(place, f"CREATE TABLE u (k INT) TBLPROPERTIES ({AT_ONCE})")
    create_table(place, "CREATE TABLE c (k INT) TBLPROPERTIES ('auto_compact' = 'true')")
    options = ("--expire-every-ms=200", "--compact-settle-ms=50")
    with lab.started("tables", *options) as tables:
        tables.is_quiet()
        client = tables.process.client()
        mends = [
            unexpirable(client, catalog, place),
            rolled_back(tables, client, catalog),
            unloadable(tables, catalog),
            uncompactable(client, catalog, place),  # tried again after 30 s, then 60 s
        ]
        alerts = FAULTS[tables_in_trouble].alerts
        for alert in alerts:
            tables.fires(alert)
        assert tables.fires("PaimonTableStopped", table=f"{place}/default.db/s")
        tables.is_ready()
        lab.dashboard = {each: lab.prometheus.query(each) for each in lab.queries}
        for mend in mends:
            mend()
        for alert in alerts:
            tables.ends(alert)


AT_ONCE = (
    "'snapshot.num-retained.min' = '1', 'snapshot.num-retained.max' = '1', "
    "'snapshot.time-retained' = '1 ms'"
)
NULLS = "'alter-column-null-to-not-null.disabled' = 'false'"


def unloadable(tables: Watched, catalog: Any) -> Callable[[], object]:
    """Rows that a table takes no more when they are loaded."""
    assert tables.insert("d", (1, None)).status_code == 200
    statement = parse_statement("ALTER TABLE d ALTER COLUMN n SET NOT NULL")
    assert isinstance(statement, AlterTable)
    catalog.alter_table(TableName("d", "default"), statement.changes)
    tables.do("POST", "/v1/inserts/default/d/flush")
    return lambda: tables.do("DELETE", "/v1/inserts/default/d/dead-letters/1")


def rolled_back(tables: Watched, client: Any, catalog: Any) -> Callable[[], object]:
    """A commit that somebody else has taken back."""
    name = TableName("s", "default")
    for key in range(2):
        commit(client, catalog, name, key)
    catalog.load(name).paimon.rollback_to(1)
    document = {"table": {"database": "default", "table": "s"}}
    tables.call("POST", "/v1/tables/check", document)
    return lambda: tables.do("POST", "/v1/tables/resume", document)


def unexpirable(client: Any, catalog: Any, place: Path) -> Callable[[], object]:
    """A snapshot to expire whose manifests can't be read."""
    name = TableName("u", "default")
    reader = client.begin(name)  # nothing expires while it may look at the table
    commit(client, catalog, name, 0)
    lists = [*place.glob("default.db/u/manifest/manifest-list-*")]
    contents = {file: file.read_bytes() for file in lists}
    commit(client, catalog, name, 1)
    for file in lists:
        file.write_bytes(b"damaged")
    client.abort(reader)
    commit(client, catalog, name, 2)
    return lambda: [file.write_bytes(content) for file, content in contents.items()]


def uncompactable(client: Any, catalog: Any, place: Path) -> Callable[[], object]:
    """A data file that is not what it was."""
    name = TableName("c", "default")
    commit(client, catalog, name, 0)
    (file,) = place.glob("default.db/c/bucket-0/*.parquet")
    content = file.read_bytes()
    file.write_bytes(b"damaged")
    for key in range(1, 8):
        commit(client, catalog, name, key)
    return lambda: file.write_bytes(content)


def insert_in_the_past(lab: Lab, place: Path, state: Path) -> None:
    """Have rows in the log since ten minutes: by a coordinator whose clock is late."""
    late = (
        "import time; now = time.time; time.time = lambda: now() - 600; "
        "from paimon_magics.coordinator.__main__ import command; command()"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", late, f"--warehouse={place}", f"--state={state}", "--port=0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert running.stdout is not None
        process = Process(place, state)
        process.address = running.stdout.readline().split()[1]
        once = Watched(lab, "restored", process)
        for name in ("w", "c"):
            assert once.insert(name, (1, 1)).status_code == 200
        once.close()
    finally:
        running.kill()
        running.communicate()


def accept(server: S3Server, key: str) -> None:
    """Have the server know no other access key."""

    def between(environment: dict[str, Any], hand_on: Callable[[], Reply]) -> Reply:
        if f"Credential={key}/" in environment.get("HTTP_AUTHORIZATION", ""):
            return hand_on()
        return Reply.error("403 Forbidden", "InvalidAccessKeyId")

    server.between = between


def rename_key(file: Path, before: str, now: str) -> None:
    file.write_text(file.read_text().replace(before, now))


def state_of_new(folder: Path) -> Path:
    folder.mkdir()
    return state_of(folder)


def run_all(lab: Lab, faults: list[Fault]) -> dict[Fault, Any]:
    """Cause these at the same time; return a future of each."""
    assert threading.current_thread() is threading.main_thread()
    pool = ThreadPoolExecutor(len(faults))
    futures = {fault: pool.submit(_timed, fault, lab) for fault in faults}
    pool.shutdown(wait=True)
    return futures


def _timed(fault: Fault, lab: Lab) -> None:
    began = time.monotonic()
    try:
        fault(lab)
    finally:
        print(f"{fault.__name__}: {time.monotonic() - began:.0f} s", file=sys.stderr)
