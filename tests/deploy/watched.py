"""Coordinators that a Prometheus watches, and waiting for alerts about them."""

from __future__ import annotations

import datetime
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import trustme

from tests.coordinator.process import Process, wait_until
from tests.deploy.prometheus import Prometheus

TOKEN = "a token that all of them have"
_SECONDS = 90.0
"""How long an alert may take to fire or to end, on a machine with other work."""


class Lab:
    """A Prometheus and what its coordinators share. `warehouse` labels keep them apart.

    `fired` and `ended` have the alerts that did, by the names of warehouses. `dashboard` has what
    Prometheus answers to `queries`, once that was asked.
    """

    def __init__(self, folder: Path, rules: Path, queries: Sequence[str]) -> None:
        self.folder = folder
        self.queries = queries
        self.dashboard: dict[str, list[dict[str, Any]]] = {}
        self.authority = trustme.CA()
        self.authority_file = folder / "authority.pem"
        self.authority.cert_pem.write_to_path(str(self.authority_file))
        self.tls = ssl.create_default_context(cafile=str(self.authority_file))
        self.prometheus = Prometheus(folder / "prometheus", rules, TOKEN, self.authority_file)
        self.fired: set[tuple[str, str]] = set()
        self.ended: set[tuple[str, str]] = set()

    def close(self) -> None:
        self.prometheus.close()

    def certificate(self, file: Path, days: int) -> None:
        """Put a certificate that ends in so many days in the place of that file."""
        begin = datetime.datetime.now(datetime.UTC) - datetime.timedelta(1)
        issued = self.authority.issue_cert(
            "127.0.0.1", not_before=begin, not_after=begin + datetime.timedelta(days + 1)
        )
        whole = file.with_suffix(".new")
        issued.private_key_and_cert_chain_pem.write_to_path(str(whole))
        whole.replace(file)

    @contextmanager
    def started(self, warehouse: str, *options: str, **named: Any) -> Iterator[Watched]:
        """A coordinator in a folder of its own."""
        folder = self.folder / warehouse
        folder.mkdir(exist_ok=True)
        place = named.pop("place", folder / "warehouse")
        faults = named.pop("faults", "")
        process = Process(place, state_of(folder), *options, **named)
        watched = Watched(self, warehouse, process)
        try:
            watched.start(faults)
            yield watched
            watched.is_quiet()
        finally:
            self.prometheus.forget(warehouse)
            watched.close()

    def fires(self, warehouse: str, name: str, **labels: str) -> dict[str, Any]:
        """Wait until an alert about a warehouse fires; return it."""
        asked = {"warehouse": warehouse, **labels}
        firing: list[dict[str, Any]] = []

        def look() -> bool:
            firing[:] = self.prometheus.firing(name, asked)
            return bool(firing)

        wait_until(look, _SECONDS, lambda: f"{name} of {asked} does not fire")
        self.fired.add((name, warehouse))
        return firing[0]

    def ends(self, warehouse: str, name: str, **labels: str) -> None:
        """Wait until no such alert fires any more."""
        asked = {"warehouse": warehouse, **labels}
        assert (name, warehouse) in self.fired
        wait_until(
            lambda: not self.prometheus.firing(name, asked),
            _SECONDS,
            lambda: f"{name} of {asked} does not end",
        )
        self.ended.add((name, warehouse))

    def is_quiet(self, warehouse: str) -> None:
        """Wait until no alert about a warehouse fires."""
        firing = self.prometheus.firing
        about = {"warehouse": warehouse}
        wait_until(lambda: not firing("", about), _SECONDS, lambda: str(firing("", about)))


class Watched:
    """One coordinator of a lab, and a client that may do everything."""

    def __init__(self, lab: Lab, warehouse: str, process: Process) -> None:
        self.lab = lab
        self.warehouse = warehouse
        self.process = process
        self._http = httpx.Client(
            verify=lab.tls,
            headers={"Authorization": f"Bearer {TOKEN}"},
            trust_env=False,
            timeout=60,
        )

    def start(self, faults: str = "") -> None:
        """Start it, again perhaps, and have it scraped."""
        self.process.start(faults)
        self.lab.prometheus.watch(self.process.address, self.warehouse)

    def close(self) -> None:
        self._http.close()
        self.process.close()

    def fires(self, name: str, **labels: str) -> dict[str, Any]:
        return self.lab.fires(self.warehouse, name, **labels)

    def ends(self, name: str, **labels: str) -> None:
        self.lab.ends(self.warehouse, name, **labels)

    def is_quiet(self) -> None:
        """Wait until no alert about it fires, and a round of Prometheus has found none."""
        time.sleep(2)
        self.lab.is_quiet(self.warehouse)

    def call(self, method: str, path: str, body: Any = None) -> httpx.Response:
        return self._http.request(method, self.process.address + path, json=body)

    def do(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request that must succeed; return the answer's document."""
        answer = self.call(method, path, body)
        assert answer.is_success, (path, answer.text)
        return answer.json()

    def insert(self, table: str, row: tuple[object, ...]) -> httpx.Response:
        return self.call("POST", f"/v1/inserts/default/{table}", {"rows": [list(row)]})

    def probe(self, path: str) -> tuple[int, dict[str, Any]]:
        """The answer to a probe, which has no token; nothing in it may be a secret or a name."""
        answer = httpx.get(
            self.process.address + path,
            verify=self.lab.tls,
            trust_env=False,
            timeout=10,
        )
        for hidden in (TOKEN, str(self.lab.folder), "default", "postgresql"):
            assert hidden not in answer.text, answer.text
        return answer.status_code, answer.json()

    def is_unready(self, *facts: str) -> None:
        """Wait until readiness is denied because of one of these facts, or more."""

        def look() -> bool:
            status, shown = self.probe("/health/ready")
            return status == 503 and bool(set(shown["problems"]) & set(facts))

        wait_until(look, _SECONDS, lambda: str(self.probe("/health/ready")))
        assert self.probe("/health/live") == (200, {"status": "live"})

    def is_ready(self) -> None:
        """Wait until it is ready again."""
        wait_until(
            lambda: self.probe("/health/ready")[0] == 200,
            _SECONDS,
            lambda: str(self.probe("/health/ready")),
        )
        assert self.probe("/health/startup") == (200, {"status": "started"})


def state_of(folder: Path) -> Path:
    """A state folder with the token of all."""
    state = folder / "state"
    state.mkdir(mode=0o700, exist_ok=True)
    state.chmod(0o700)
    (state / "token").touch(0o600)
    (state / "token").write_text(TOKEN)
    return state


def inserted(name: str, options: str = "'bucket' = '-1'") -> str:
    """The text that makes a table for small inserts, which are loaded when somebody asks."""
    slow = "'auto_batch_load' = 'true', 'group_commit_interval_ms' = '600000'"
    return f"CREATE TABLE {name} (id BIGINT, n BIGINT) TBLPROPERTIES ({slow}, {options})"
