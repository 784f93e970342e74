"""A coordinator that is told to be a hub's service, without the hub."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from paimon_magics.coordinator.http.hub import hub_service
from paimon_magics.errors import SetupError
from tests.coordinator.forking import Forked
from tests.coordinator.process import Process, wait_until

ENVIRONMENT = {
    "JUPYTERHUB_API_TOKEN": "secret",
    "JUPYTERHUB_API_URL": "http://127.0.0.1:1/hub/api",
    "JUPYTERHUB_CLIENT_ID": "service-paimon-coordinator",
    "JUPYTERHUB_SERVICE_NAME": "paimon-coordinator",
    "JUPYTERHUB_SERVICE_PREFIX": "/services/paimon-coordinator/",
    "JUPYTERHUB_SERVICE_URL": "http://127.0.0.1:0",
}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    started = Process(tmp_path / "warehouse", tmp_path / "state", "--hub", environment=ENVIRONMENT)
    started.start()
    yield started
    started.close()


def test_coordinator_that_another_machine_reaches_needs_no_url_of_the_hub(
    environment: pytest.MonkeyPatch,
) -> None:
    environment.setenv("JUPYTERHUB_SERVICE_URL", "http://coordinator:8124")
    assert hub_service(1000, is_local=False).port == 8124
    environment.delenv("JUPYTERHUB_SERVICE_URL")
    assert hub_service(1000, 8125, is_local=False).port == 8125


def test_port_other_than_the_hubs_is_refused(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("JUPYTERHUB_SERVICE_URL", "http://127.0.0.1:8124")
    assert hub_service(1000, 8124).port == 8124
    with pytest.raises(SetupError, match=r"expects the coordinator at .*8124, but --port is 8125"):
        hub_service(1000, 8125)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--no-such-option"], "unrecognized arguments: --no-such-option"),
        (["--log-bytes-max=many"], "invalid int value: 'many'"),
        (["--root-path=/x"], "has the path that the hub gives"),
        (["--store=mysql://db/x"], "Write it as postgresql://"),
    ],
)
def test_coordinator_that_cant_start_stays_live_and_tells_nobody_but_its_log_and_users(
    options: list[str], reason: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    variables = {**ENVIRONMENT, "JUPYTERHUB_SERVICE_URL": f"http://127.0.0.1:{port}"}
    arguments = [f"--state={tmp_path / 's'}", f"--warehouse={tmp_path / 'w'}", "--hub"]
    process = Forked(
        "paimon_magics.coordinator", [*arguments, *options], {**os.environ, **variables}
    )
    address = f"http://127.0.0.1:{port}/services/paimon-coordinator"
    try:
        with httpx.Client(trust_env=False) as http:
            wait_until(lambda: is_live(http, address))
            # The hub waits for any answer below 500 here.
            assert http.get(f"{address}/").status_code == 302
            assert http.get(f"{address}/health/ready").status_code == 503
            nobody = http.get(f"{address}/v1/coordinator")
            assert nobody.status_code == 401 and reason not in nobody.text
        assert process.poll() is None
    finally:
        process.terminate()
        process.communicate(timeout=30)
    assert reason in capfd.readouterr().err


def is_live(http: httpx.Client, address: str) -> bool:
    try:
        return http.get(f"{address}/health/live").is_success
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("name", sorted(ENVIRONMENT.keys() - {"JUPYTERHUB_SERVICE_NAME"}))
def test_missing_hub_variable_is_named(environment: pytest.MonkeyPatch, name: str) -> None:
    environment.delenv(name)
    with pytest.raises(SetupError, match=f"{name} is not set") as raised:
        hub_service(1000)
    assert "jupyterhub_config.py" in raised.value.hint


@pytest.mark.parametrize(
    "url", ["http://0.0.0.0:8124", "http://hub.example.org:8124", "https://127.0.0.1:8124", "x"]
)
def test_an_address_for_other_machines_is_refused(
    environment: pytest.MonkeyPatch, url: str
) -> None:
    environment.setenv("JUPYTERHUB_SERVICE_URL", url)
    with pytest.raises(SetupError, match=r"on 127\.0\.0\.1 only"):
        hub_service(1000)


def test_coordinator_stays_live_and_admits_nobody_while_the_hub_is_down(process: Process) -> None:
    assert process.address.endswith("/services/paimon-coordinator")
    with httpx.Client(trust_env=False) as http:
        assert http.get(process.address + "/health/live").is_success
        for path in ("/", "/v1/transactions", "/v1/config"):
            answer = http.get(process.address + path, headers={"Authorization": "token t"})
            assert answer.status_code == 503
            assert "The hub can't check the token" in answer.json()["error"]["message"]
        assert http.get(process.address + "/v1/transactions").status_code == 401
        page = http.get(process.address)
        assert (page.status_code, page.headers["location"]) == (
            307,
            "/services/paimon-coordinator/",
        )
        login = http.get(process.address + "/", headers={"X-Forwarded-Proto": "https"})
        assert (login.status_code, "/oauth2/authorize?" in login.headers["location"]) == (302, True)
        cookie = login.headers["set-cookie"].lower()
        assert "httponly" in cookie and "secure" in cookie and "samesite=lax" in cookie
        back = f"{process.address}/oauth_callback"
        assert http.get(back).status_code == 400
        assert http.get(back, params={"error": "denied"}).status_code == 400
        assert http.get(back, params={"code": "c"}).status_code == 403
    assert not (process.state / "token").exists()
