"""What a coordinator says of itself while something around it stands still, is full, or is gone."""

from __future__ import annotations

import re
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from paimon_magics.coordinator.core.values import Phase, TransactionState
from paimon_magics.coordinator.process.network import Certificate
from paimon_magics.coordinator.runtime.threads import Runtime
from paimon_magics.coordinator.service import health
from paimon_magics.coordinator.service.coordinator import Coordinator
from paimon_magics.coordinator.service.health import Fact, HealthMonitor, Noted, standard_monitor
from paimon_magics.coordinator.store.state_store import open_store
from paimon_magics.settings import Settings
from tests.coordinator.http.test_hostile_requests import errors_into
from tests.coordinator.postgres import start_postgres
from tests.coordinator.process import Process, create_table, wait_until

INSERTED = "CREATE TABLE t (k INT) TBLPROPERTIES ('auto_batch_load' = 'true')"
AT_ONCE_SECONDS = 1.0


class Observer:
    """Asks a process, with a deadline, as a probe without a token or with one."""

    def __init__(self, process: Process) -> None:
        self._address = process.address
        self._headers = {"Authorization": f"Bearer {process.token()}"}

    def ready(self, *, token: bool = True, by: str | None = None) -> tuple[int, Any]:
        answer = self._get("/health/ready", token=token, by=by)
        return answer.status_code, answer.json()

    def page(self) -> httpx.Response:
        return self._get("/", token=True)

    def token(self, name: str, allows: str) -> str:
        body = {"name": name, "allow": [allows]}
        url = f"{self._address}/v1/tokens"
        answer = httpx.post(url, json=body, headers=self._headers, trust_env=False)
        return str(answer.json()["token"])

    def metrics(self) -> dict[str, float]:
        lines = self._get("/metrics", token=True).text.splitlines()
        return {
            line.rsplit(" ", 1)[0].removeprefix("paimon_coordinator_"): float(line.split()[-1])
            for line in lines
            if line.startswith("paimon_coordinator_")
        }

    def insert(self, rows: Any = ((1,),)) -> httpx.Response:
        url = f"{self._address}/v1/inserts/default/t"
        body = {"rows": [list(row) for row in rows]}
        return httpx.post(url, json=body, headers=self._headers, trust_env=False, timeout=60)

    def post(self, path: str, body: Any = None) -> httpx.Response:
        url = self._address + path
        headers = self._headers
        return httpx.post(url, headers=headers, json=body or {}, trust_env=False, timeout=60)

    def _get(self, path: str, *, token: bool, by: str | None = None) -> httpx.Response:
        headers = self._headers if token else {}
        if by is not None:
            headers = {"Authorization": f"Bearer {by}"}
        return httpx.get(
            self._address + path, headers=headers, trust_env=False, timeout=AT_ONCE_SECONDS
        )


def started(tmp_path: Path, *options: str, **named: Any) -> Process:
    create_table(tmp_path / "warehouse", INSERTED)
    process = Process(tmp_path / "warehouse", tmp_path / "state", *options, **named)
    process.start()
    return process


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    made = started(tmp_path, "--ownership-lease-ms=3000")
    yield made
    made.close()


def test_frozen_store_makes_coordinator_unready_and_hides_names_from_probes(
    tmp_path: Path,
) -> None:
    postgres_server = start_postgres()
    process = started(
        tmp_path,
        f"--store={postgres_server.empty_database()}",
        environment=postgres_server.environment,
    )
    observer = Observer(process)
    try:
        assert observer.ready()[0] == 200 and observer.metrics()["ready"] == 1
        named = observer.token("ada", "read")
        assert observer.ready(by=named)[0] == 200
        with postgres_server.frozen():
            wait_until(lambda: observer.ready(token=False)[0] == 503, 40)
            status, shown = observer.ready(token=False)
            assert (status, shown["status"]) == (503, "not ready")
            assert set(shown["problems"]) <= {"running", "store_seconds", "thread_busy_seconds"}
            status, shown = observer.ready()
            assert status == 503 and shown["error"]["problems"][0]["blocks"]
            assert observer.metrics()["ready"] == 0
            page = observer.page()
            assert page.status_code == 200 and "Not accepting requests" in page.text
            # A token that was made is known by what was read last.
            assert observer.ready(by=named)[1]["error"]["problems"]
        wait_until(lambda: observer.ready()[0] == 200, 40)
    finally:
        process.close()
        postgres_server.remove()


def test_unreachable_warehouse_makes_coordinator_unready(process: Process, tmp_path: Path) -> None:
    observer = Observer(process)
    assert observer.ready()[0] == 200
    (tmp_path / "warehouse").rename(tmp_path / "away")
    (tmp_path / "warehouse").touch()
    wait_until(lambda: observer.ready(token=False) == (503, lease_is_in_doubt()), 20)
    assert "The warehouse's store does not work" in observer.ready()[1]["error"]["message"]
    (tmp_path / "warehouse").unlink()
    (tmp_path / "away").rename(tmp_path / "warehouse")
    wait_until(lambda: observer.ready()[0] == 200, 20)


def test_table_whose_commits_can_not_be_checked_is_a_problem(
    process: Process, tmp_path: Path
) -> None:
    observer = Observer(process)
    assert observer.insert([[1]]).status_code == 200
    assert observer.post("/v1/inserts/default/t/flush", {"wait_ms": 30_000}).status_code == 200
    first = tmp_path / "warehouse/default.db/t/snapshot/snapshot-1"
    content = first.read_bytes()
    first.unlink()
    first.mkdir()
    check = {"table": {"database": "default", "table": "t"}}
    for _ in range(4):
        assert observer.post("/v1/tables/check", check).status_code == 503
    assert "The check of earlier commits to" in str(observer.ready()[1]["problems"])
    first.rmdir()
    first.write_bytes(content)
    assert observer.post("/v1/tables/check", check).status_code == 200
    assert "The check of earlier commits to" not in str(observer.ready()[1])


def test_missing_warehouse_is_not_recreated(process: Process, tmp_path: Path) -> None:
    """As where its disk is not mounted any more: the folder is empty, or not there."""
    observer = Observer(process)
    assert observer.insert([[1]]).status_code == 200
    (tmp_path / "warehouse").rename(tmp_path / "away")
    wait_until(lambda: observer.ready(token=False) == (503, lease_is_in_doubt()), 20)
    assert "is gone: in its place is nothing" in observer.ready()[1]["error"]["message"]
    refused = [
        observer.insert([[2]]),
        observer.post("/v1/inserts/default/t/flush"),
        observer.post("/v1/paimon/databases", {"name": "other", "options": {}}),
        observer.post("/v1/transactions", {"table": {"database": "default", "table": "t"}}),
    ]
    assert {(each.status_code, "is gone" in each.text) for each in refused} == {(503, True)}
    assert not (tmp_path / "warehouse/other.db").exists()
    shutil.rmtree(tmp_path / "warehouse", ignore_errors=True)
    (tmp_path / "away").rename(tmp_path / "warehouse")
    wait_until(lambda: observer.ready()[0] == 200, 20)
    assert observer.insert([[3]]).status_code == 200


def test_unwritable_log_registry_makes_coordinator_unready(tmp_path: Path) -> None:
    process = started(tmp_path)
    try:
        observer = Observer(process)
        registry = tmp_path / "warehouse/.paimon-magics/logs"
        shutil.rmtree(registry, ignore_errors=True)
        registry.touch()
        refused = observer.insert([[1]])
        assert refused.status_code == 503 and str(registry) in refused.text, refused.text
        wait_until(lambda: observer.ready(token=False)[1].get("problems") == ["log_seconds"], 60)
        registry.unlink()
        wait_until(lambda: observer.ready()[0] == 200, 20)
        assert observer.insert([[1]]).status_code == 200
    finally:
        process.close()


def lease_is_in_doubt() -> dict[str, Any]:
    return {"status": "not ready", "problems": ["lease_seconds"]}


def test_full_disk_makes_coordinator_unready_and_counts_refused_inserts(tmp_path: Path) -> None:
    process = started(tmp_path, f"--log-reserve-bytes={2**62}")
    observer = Observer(process)
    try:
        assert observer.ready(token=False) == (
            503,
            {"status": "not ready", "problems": ["disk_free_bytes"]},
        )
        for _ in range(3):
            refused = observer.insert()
            assert (refused.status_code, refused.json()["error"]["type"]) == (507, "NoRoom")
        assert observer.metrics()['inserts_refused_total{reason="no_room"}'] == 3
    finally:
        process.close()


def test_waiting_rows_and_refused_inserts_are_in_the_metrics(
    process: Process, tmp_path: Path
) -> None:
    observer = Observer(process)
    bucket = tmp_path / "warehouse" / "default.db" / "t" / "bucket-0"
    bucket.touch()  # nothing can be loaded into it
    assert observer.insert().status_code == 200
    overdue = 'insert_overdue_seconds{table="default.t"}'
    wait_until(lambda: observer.metrics()[overdue] > 0.5, 30)
    assert observer.ready()[0] == 200  # others are taken
    assert observer.post("/v1/coordinator/pause").status_code == 200
    assert observer.insert().status_code == 503
    assert observer.metrics()['inserts_refused_total{reason="paused"}'] == 1
    bucket.unlink()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1, signal.SIGTERM])
def test_terminating_signal_is_logged(number: signal.Signals, tmp_path: Path) -> None:
    create_table(tmp_path / "warehouse", INSERTED)
    process = Process(tmp_path / "warehouse", tmp_path / "state")
    with errors_into(tmp_path / "log"):
        process.start()
    assert process.running is not None
    process.running.send_signal(number)
    process.running.communicate(timeout=30)
    assert process.running.returncode == 0
    assert f"{number.name}: the coordinator ends" in (tmp_path / "log").read_text()


def test_hang_up_signal_reloads_the_certificate(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = tmp_path / "certificate.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(certificate)
    create_table(tmp_path / "warehouse", INSERTED)
    process = Process(tmp_path / "warehouse", tmp_path / "state", f"--tls-cert={certificate}")
    with errors_into(tmp_path / "log"):
        process.start()
    try:
        assert process.running is not None
        process.running.send_signal(signal.SIGHUP)
        wait_until(lambda: "read again" in (tmp_path / "log").read_text(), 10)
        assert process.running.poll() is None
    finally:
        process.close()


def test_soon_expiring_certificate_is_a_problem(tmp_path: Path) -> None:
    import datetime

    authority, file = trustme.CA(), tmp_path / "certificate.pem"
    now = datetime.datetime.now(datetime.UTC)
    for days, is_problem in ((30, False), (3, True), (-1, True)):
        issued = authority.issue_cert(
            "127.0.0.1",
            not_before=now - datetime.timedelta(9),
            not_after=now + datetime.timedelta(days),
        )
        issued.private_key_and_cert_chain_pem.write_to_path(file)
        (fact,) = Certificate(file).facts()
        assert fact.value == pytest.approx(days * 86_400, abs=60)
        assert bool(fact.problem) is is_problem and not fact.blocks


def test_ended_thread_makes_coordinator_unready(tmp_path: Path) -> None:
    catalog = create_table(tmp_path / "warehouse", INSERTED)
    coordinator = Coordinator(catalog, open_store(tmp_path / "state"), Settings())
    runtime = Runtime()
    coordinator.start()
    monitor = standard_monitor(coordinator, runtime)

    def fail(_: Any) -> None:
        raise KeyError("foreign")

    owner = runtime.owner("fragile", fail, crashed=fail, fatal=(), ended=lambda _: None)
    owner.start()
    assert monitor.now().is_ready
    owner.put("anything")
    wait_until(lambda: not monitor.now().is_ready, 5)
    (problem,) = monitor.now().problems
    assert problem.subject == "fragile" and "has ended" in problem.problem
    coordinator.stop()


def test_part_with_failing_facts_is_a_problem() -> None:
    monitor = HealthMonitor()
    monitor.add("good", lambda: [Fact("running", 1)])
    monitor.add("broken", lambda: [Fact("part", 1 / 0)])
    health = monitor.now()
    assert not health.is_ready and [each.subject for each in health.problems] == ["broken"]


def test_look_failing_after_its_end_is_no_trouble(caplog: pytest.LogCaptureFixture) -> None:
    looks, closed = threading.Event(), threading.Event()

    def look() -> int:
        looks.set()
        closed.wait(20)
        raise RuntimeError("it was closed")

    runtime = Runtime()
    noted = Noted(runtime, "look", look, 200.0, 0)
    assert looks.wait(20)
    noted.stop()
    closed.set()
    wait_until(lambda: all(each.ended for each in runtime.progress() if each.name == "look"), 20)
    assert noted.trouble == ""
    assert "it was closed" not in caplog.text


def test_look_keeps_its_last_value_when_it_fails() -> None:
    answers: list[Any] = [1, RuntimeError("foreign"), 3]

    def look() -> int:
        if not answers:
            time.sleep(60)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return int(answer)

    noted = Noted(Runtime(), "look", look, 200.0, 0)
    wait_until(lambda: "foreign" in noted.problem and noted.value == 1, 5)
    wait_until(lambda: not noted.problem and noted.value == 3, 5)
    noted.stop()


def test_unreadable_transaction_document_stops_only_its_table(
    tmp_path: Path,
) -> None:
    catalog = create_table(tmp_path / "warehouse", INSERTED)
    store = open_store(tmp_path / "state")
    transaction = TransactionState(
        id="a", location="/w/default.db/t", phase=Phase.ACTIVE, owner="o", expires_at_ms=9
    )
    store.transactions.open(transaction, {"base_snapshot_id": 10**40})
    store.close()
    coordinator = Coordinator(catalog, open_store(tmp_path / "state"), Settings())
    coordinator.start()
    try:
        wait_until(lambda: bool(coordinator.state.stopped), 5)
        (stopped,) = coordinator.state.stopped.items()
        assert stopped[0] == "/w/default.db/t" and "transaction a" in stopped[1].reason
        problems = standard_monitor(coordinator, coordinator.runtime).now().problems
        assert any("/w/default.db/t" in f"{p.subject} {p.problem}" for p in problems)
    finally:
        coordinator.stop()


def test_unstarted_coordinator_can_be_stopped(tmp_path: Path) -> None:
    catalog = create_table(tmp_path / "warehouse", INSERTED)
    coordinator = Coordinator(catalog, open_store(tmp_path / "state"), Settings())
    coordinator.stop()


def test_every_fact_has_a_help_text_for_metrics() -> None:
    """`/metrics` fails as a whole for a fact without one."""
    package = Path(health.__file__).parents[1]
    texts = [path.read_text() for path in package.rglob("*.py")]
    facts = {name for text in texts for name in re.findall(r'\bFact\(\s*"(\w+)"', text)}
    assert {"permissions", "keys", "certificate_seconds"} <= facts
    assert facts <= health.NAMES.keys()
