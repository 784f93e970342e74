"""The example JupyterHub of `notebooks/jupyterhub`, started as its README says, and its users."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import websocket

CONFIG = Path(__file__).resolve().parents[2] / "notebooks" / "jupyterhub" / "jupyterhub_config.py"
SERVICE = "/services/paimon-coordinator"
_PASSWORD = "a password of the test's"
_SECONDS_MAX = 90
COMMIT_TEN = """
import os
from paimon_magics.coordinator.client.starting import At
from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.ownership.catalog_options import environment_options
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.process import TABLE, write

at = At(os.environ["PAIMON_COORDINATOR"], os.environ["PAIMON_COORDINATOR_TOKEN"])
client = RemoteCoordinator(at)
catalog = Catalog.open({**environment_options(os.environ), "warehouse": client.warehouse()})
for number in range(10):
    transaction = client.begin(TABLE)
    messages = write(catalog, transaction, [{"k": FIRST + number}])
    client.commit(CommitRequest(transaction, Append(), messages))
print("done by", os.environ["JUPYTERHUB_USER"])
"""
"""What a user runs in a kernel: ten commits of one row, whose keys begin with FIRST."""


class Hub:
    """A running hub with its proxy and its coordinator, all on 127.0.0.1."""

    def __init__(
        self,
        folder: Path,
        proxy: Path,
        variables: Mapping[str, str] | None = None,
        config: Path = CONFIG,
        coordinator: str = "",
    ) -> None:
        self.folder = folder
        self._browsers: list[httpx.Client] = []
        ports = free_ports(4)
        self.address = f"http://127.0.0.1:{ports[0]}"
        self.api = f"http://127.0.0.1:{ports[2]}/hub/api"
        self.coordinator = coordinator or f"http://127.0.0.1:{ports[1]}{SERVICE}"
        self._log = folder / "log"
        environment = {
            **os.environ,
            "PATH": os.pathsep.join(
                [str(proxy), str(Path(sys.executable).parent), os.environ["PATH"]]
            ),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "PAIMON_HUB_FOLDER": str(folder),
            "PAIMON_HUB_PASSWORD": _PASSWORD,
            "PAIMON_HUB_BIND": self.address,
            "TRAITLETS_APPLICATION_RAISE_CONFIG_FILE_ERROR": "1",
            "PAIMON_HUB_PORT": str(ports[0]),
            "PAIMON_HUB_COORDINATOR_PORT": str(ports[1]),
            **(variables or {}),
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "jupyterhub",
                    f"--config={config}",
                    f"--JupyterHub.hub_port={ports[2]}",
                    f"--ConfigurableHTTPProxy.api_url=http://127.0.0.1:{ports[3]}",
                    "--LocalProcessSpawner.interrupt_timeout=1",
                ],
                cwd=folder,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.wait_for(lambda: _answers(self.address + "/hub/api/"))
        if not coordinator:  # the hub starts it
            self.wait_for(lambda: _answers(self.coordinator + "/health/live"))

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _SECONDS_MAX
        while not condition():
            assert self._process.poll() is None and time.monotonic() < deadline, self.log()
            time.sleep(0.1)

    def log(self) -> str:
        return self._log.read_text()[-5000:]

    def stop(self) -> None:
        for browser in self._browsers:
            browser.close()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(30)
        finally:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)

    def user(self, name: str) -> User:
        user = User(self, name)
        self._browsers.append(user.browser)
        return user


class User:
    """Somebody who has logged in with a browser."""

    def __init__(self, hub: Hub, name: str) -> None:
        self.hub = hub
        self.name = name
        self.browser = httpx.Client(
            base_url=hub.address, follow_redirects=True, trust_env=False, timeout=60
        )
        page = self.browser.get("/hub/login")
        form = {"username": name, "password": _PASSWORD, "_xsrf": self.browser.cookies["_xsrf"]}
        logged_in = self.browser.post("/hub/login", data=form, params={"next": "/hub/token"})
        assert page.is_success and logged_in.is_success, self.hub.log()

    def api(self, method: str, path: str, body: Any = None) -> Any:
        token = next(
            c.value for c in self.browser.cookies.jar if (c.name, c.path) == ("_xsrf", "/hub/")
        )
        headers = {"X-XSRFToken": str(token), "Referer": self.hub.address + "/hub/token"}
        answer = self.browser.request(method, "/hub/api" + path, json=body, headers=headers)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def token(self, **options: Any) -> dict[str, Any]:
        """A new token of the user's, with its `id` and all their scopes."""
        made: dict[str, Any] = self.api("POST", f"/users/{self.name}/tokens", options)
        return made

    def revoke(self, token: dict[str, Any]) -> None:
        self.api("DELETE", f"/users/{self.name}/tokens/{token['id']}")

    def start_server(self) -> None:
        """Ask for the user's server; `run` waits for it."""
        self.api("POST", f"/users/{self.name}/server")

    def run(self, code: str) -> str:
        """What code prints in a notebook's kernel on the user's server."""
        self.hub.wait_for(lambda: self._server_is_ready())
        headers = {"Authorization": f"token {self.token()['token']}"}
        path = f"/user/{self.name}/api/kernels"
        started = self.browser.post(path, headers=headers, json={"name": "python3"})
        assert started.is_success, started.text
        address = (
            self.hub.address.replace("http", "ws", 1) + f"{path}/{started.json()['id']}/channels"
        )
        channel = websocket.create_connection(address, header=headers, timeout=_SECONDS_MAX)
        try:
            return _run(channel, code)
        finally:
            channel.close()

    def _server_is_ready(self) -> bool:
        servers = self.api("GET", f"/users/{self.name}")["servers"]
        return bool(servers.get("", {}).get("ready"))


def _run(channel: websocket.WebSocket, code: str) -> str:
    id = uuid.uuid4().hex
    header = {"msg_id": id, "msg_type": "execute_request", "username": "", "session": id}
    content = {"code": code, "silent": False, "allow_stdin": False}
    message = {"header": {**header, "version": "5.3"}, "parent_header": {}, "metadata": {}}
    channel.send(json.dumps({**message, "content": content, "channel": "shell"}))
    printed = []
    while True:
        answer = json.loads(channel.recv())
        if answer["parent_header"].get("msg_id") != id:
            continue
        match answer["msg_type"]:
            case "stream":
                printed.append(answer["content"]["text"])
            case "error":
                pytest.fail("\n".join(answer["content"]["traceback"]))
            case "status" if answer["content"]["execution_state"] == "idle":
                return "".join(printed)


def install_proxy(folder: Path) -> Path:
    """The folder with the hub's proxy: an installed one, else one from npm.

    Without either the test ends here, as a failure where CI=true.
    """
    found = shutil.which("configurable-http-proxy")
    if found is not None:
        return Path(found).parent
    npm = shutil.which("npm")
    if npm is None:
        reason = "JupyterHub's proxy is not installed: no configurable-http-proxy or npm on PATH"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    command = [npm, "install", "--no-audit", "--no-fund", "--silent", "configurable-http-proxy@5"]
    subprocess.run(command, cwd=folder, check=True, timeout=300)
    return folder / "node_modules" / ".bin"


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).is_success
    except httpx.TransportError:
        return False


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
