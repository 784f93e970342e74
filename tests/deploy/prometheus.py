"""A Prometheus of the tests' own, on the loopback, that knows the rules in `deploy/monitoring`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.backends.toxiproxy import free_port
from tests.coordinator.process import wait_until

JOB = "paimon-coordinator"
FOR = "2s"
"""What stands in the rules for their own durations."""


def program(name: str) -> str:
    """A program of Prometheus'. Without it on the machine, skip the test; with CI=true, fail it."""
    result = shutil.which(name)
    if result is None:
        reason = f"Prometheus is not installed: there is no {name} on PATH"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return result


def hastened(rules: Path) -> str:
    """The text of a file of rules whose alerts wait for seconds only."""
    document = yaml.safe_load(rules.read_text())
    for rule in (rule for group in document["groups"] for rule in group["rules"]):
        if "for" in rule:
            rule["for"] = FOR
    return str(yaml.safe_dump(document))


class Prometheus:
    """A server that scrapes its targets and evaluates `rules` once a second.

    `token` is what it sends, `authority` a file with the certificates that it trusts.
    """

    def __init__(self, folder: Path, rules: Path, token: str, authority: Path) -> None:
        server = program("prometheus")
        folder.mkdir()
        self._targets: dict[str, dict[str, Any]] = {}
        self._turn = threading.Lock()
        self._file = folder / "targets.json"
        self._write()
        (folder / "rules.yaml").write_text(hastened(rules))
        (folder / "token").write_text(token)
        config = {
            "global": {
                "scrape_interval": "1s",
                "scrape_timeout": "1s",
                "evaluation_interval": "1s",
            },
            "rule_files": [str(folder / "rules.yaml")],
            "scrape_configs": [
                {
                    "job_name": JOB,
                    "authorization": {"credentials_file": str(folder / "token")},
                    "tls_config": {"ca_file": str(authority)},
                    "file_sd_configs": [{"files": [str(self._file)], "refresh_interval": "1s"}],
                }
            ],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._log = folder / "log"
        self._url = f"http://127.0.0.1:{(port := free_port())}"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    server,
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{port}",
                    "--log.level=warn",
                ],
                stdout=log,
                stderr=log,
            )
        wait_until(self._is_ready, 60, lambda: self._log.read_text()[-2000:])

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def watch(self, address: str, warehouse: str) -> None:
        """Scrape a coordinator from now on, and wait until that was done."""
        scheme, _, instance = address.partition("://")
        labels = {"warehouse": warehouse, "__scheme__": scheme}
        with self._turn:
            self._targets[instance] = {"targets": [instance], "labels": labels}
            self._write()
        asked = f'up{{instance="{instance}"}} == 1'
        wait_until(lambda: bool(self.query(asked)), 60, lambda: f"{address} is not scraped")

    def forget(self, warehouse: str) -> None:
        """Scrape the coordinators of a warehouse no more."""
        with self._turn:
            for instance, target in list(self._targets.items()):
                if target["labels"]["warehouse"] == warehouse:
                    del self._targets[instance]
            self._write()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """What an expression says now: each series with its labels and value."""
        answer = self._get("/api/v1/query", {"query": expression})
        assert answer["status"] == "success", answer
        return list(answer["data"]["result"])

    def firing(self, name: str, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        """The alerts of that name that fire, "" for any, and have these labels."""
        return [
            alert
            for alert in self._get("/api/v1/alerts", {})["data"]["alerts"]
            if name in ("", alert["labels"]["alertname"])
            and alert["state"] == "firing"
            and labels.items() <= alert["labels"].items()
        ]

    def _write(self) -> None:
        whole = self._file.with_suffix(".new")
        whole.write_text(json.dumps(list(self._targets.values())))
        whole.replace(self._file)

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()[-2000:]
        try:
            return httpx.get(f"{self._url}/-/ready", trust_env=False, timeout=5).is_success
        except httpx.HTTPError:
            return False

    def _get(self, path: str, parameters: Mapping[str, str]) -> Any:
        last: Exception | None = None
        for _ in range(5):  # a machine under load
            try:
                answer = httpx.get(self._url + path, params=parameters, trust_env=False, timeout=10)
                return answer.json()
            except (httpx.HTTPError, ValueError) as error:
                last = error
                time.sleep(0.5)
        raise AssertionError(f"Prometheus does not answer: {last!r}")
