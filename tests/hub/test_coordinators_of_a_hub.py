"""A hub whose coordinator can't start, and a hub with several coordinators."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest

from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.postgres import start_postgres
from tests.coordinator.process import Process, create_table, read, wait_until
from tests.hub.hub import CONFIG, Hub, free_ports, install_proxy

pytestmark = pytest.mark.slow

_CONNECT = """
import time, paimon_magics
began = time.monotonic()
try:
    paimon_magics.connect()
except Exception as error:
    print(type(error).__name__, str(error), time.monotonic() - began < 20)
"""
_INSERT = """
import pathlib, time, paimon_magics
session = paimon_magics.connect()
for number in range(60):
    session.insert("t", [{"k": number}])
    pathlib.Path(PROGRESS).write_text(str(number))
    time.sleep(0.1)
print("done")
"""
_SECOND = "paimon-coordinator-2"
_TOKEN = "a token of the second coordinator"
_TEAM = """
load_subconfig("{example}")
options = ["--standby", "--store={store}", "--ownership-lease-ms=3000"]
(first,) = c.JupyterHub.services
first["command"] += options
c.JupyterHub.services.append(
    {{
        "name": "{second}",
        "url": "http://127.0.0.1:{port}",
        "api_token": "{token}",
        "oauth_client_allowed_scopes": first["oauth_client_allowed_scopes"],
        "oauth_no_confirm": True,
    }}
)
c.Spawner.environment["PAIMON_COORDINATOR"] += ",http://127.0.0.1:{port}/services/{second}"
"""


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            "c.JupyterHub.services[0]['command'].append('--warehouse=s3://lake/warehouse')",
            "The region of",
        ),
        ("c.JupyterHub.services[0]['command'].append('--no-such-option')", "--no-such-option"),
    ],
    ids=["warehouse", "option"],
)
def test_hub_stays_up_and_cells_say_why_its_coordinator_has_not_started(
    line: str, reason: str, tmp_path: Path
) -> None:
    config = tmp_path / "jupyterhub_config.py"
    config.write_text(f"load_subconfig({str(CONFIG)!r})\n{line}\n")
    hub = Hub(tmp_path, install_proxy(tmp_path), config=config)
    try:
        alice = hub.user("alice")
        alice.start_server()
        printed = alice.run(_CONNECT)
        assert printed.startswith("NotStartedError The coordinator of this hub has not started: ")
        assert reason in printed and "Ask the hub's administrator." in printed
        assert printed.rstrip().endswith("True")
        # Who has not logged in learns nothing of it.
        answer = httpx.get(f"{hub.coordinator}/v1/coordinator", trust_env=False)
        assert answer.status_code == 401 and reason not in answer.text
    finally:
        hub.stop()


def test_inserts_of_a_notebook_go_on_when_the_owner_among_a_hubs_coordinators_dies(
    tmp_path: Path,
) -> None:
    """One is a managed service, the other is started by somebody else."""
    server = start_postgres()
    folder = tmp_path / "hub"
    folder.mkdir()
    sql = "CREATE TABLE t (k INT) TBLPROPERTIES ('auto_batch_load' = 'true')"
    catalog = create_table(folder / "warehouse", sql)
    (port,) = free_ports(1)
    store = server.empty_database()
    config = tmp_path / "jupyterhub_config.py"
    config.write_text(
        _TEAM.format(example=CONFIG, second=_SECOND, port=port, token=_TOKEN, store=store)
    )
    # The hub does not wait for the second one: it is not there yet, and is started below.
    hub = Hub(folder, install_proxy(tmp_path), server.environment, config)
    second = Process(
        folder / "warehouse",
        tmp_path / "state",
        "--hub",
        "--standby",
        f"--store={store}",
        "--ownership-lease-ms=3000",
        environment={
            **server.environment,
            "JUPYTERHUB_API_TOKEN": _TOKEN,
            "JUPYTERHUB_API_URL": hub.api,
            "JUPYTERHUB_CLIENT_ID": f"service-{_SECOND}",
            "JUPYTERHUB_SERVICE_PREFIX": f"/services/{_SECOND}/",
        },
        port=port,
    )
    try:
        second.start()
        wait_until(lambda: owns(hub.coordinator))
        assert not owns(second.address)
        progress = tmp_path / "progress"
        alice = hub.user("alice")
        alice.start_server()
        with ThreadPoolExecutor() as pool:
            code = _INSERT.replace("PROGRESS", repr(str(progress)))
            printed = pool.submit(alice.run, code)
            wait_until(lambda: printed.done() or progress.exists(), 60)
            os.kill(managed(folder), signal.SIGKILL)
            assert printed.result(120).endswith("done\n")
        assert owns(second.address)
        check_rows(second, alice.token()["token"], catalog)
    finally:
        second.close()
        hub.stop()
        server.remove()


def owns(address: str) -> bool:
    try:
        return httpx.get(f"{address}/health/owner", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def managed(folder: Path) -> int:
    """The process of the coordinator that the hub has started."""
    state = f"--state={folder / 'coordinator'}"
    (one,) = [
        each for each in psutil.process_iter(["cmdline"]) if state in (each.info["cmdline"] or [])
    ]
    return int(one.pid)


def check_rows(coordinator: Process, token: str, catalog: Catalog) -> None:
    """Each row is there once."""
    answer = httpx.post(
        f"{coordinator.address}/v1/inserts/default/t/flush",
        json={},
        headers={"authorization": f"Bearer {token}"},
        trust_env=False,
        timeout=60,
    )
    assert answer.status_code == 200, answer.text
    assert sorted(int(str(row["k"])) for row in read(catalog)) == list(range(60))
