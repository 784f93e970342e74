"""A coordinator that is told to be a hub's service, without the hub."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from paimon_magics.coordinator.http.hub import hub_service
from paimon_magics.errors import SetupError
from tests.coordinator.process import Process

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
