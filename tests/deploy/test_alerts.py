"""Every alert in `deploy/monitoring` fires while its fault is there, and ends after it; every query
of the dashboard finds something. All beside a real Prometheus, with faults that are real."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
import yaml

from tests.deploy.alert_faults import FAULTS, Fault, run_all, tables_in_trouble
from tests.deploy.prometheus import program
from tests.deploy.watched import Lab

MONITORING = Path(__file__).parents[2] / "deploy" / "monitoring"
RULES = MONITORING / "alerts.yaml"
RUNBOOK = MONITORING.parents[1] / "docs" / "coordinator-service.md"


def rules() -> list[dict[str, object]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def queries() -> list[str]:
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    return [each["expr"] for panel in dashboard["panels"] for each in panel["targets"]]


ALERTS = sorted(str(rule["alert"]) for rule in rules())


class Proof:
    """What became of the faults."""

    def __init__(self, lab: Lab, futures: dict[Fault, Future[None]]) -> None:
        self.lab = lab
        self._futures = futures

    def of(self, fault: Fault) -> None:
        """Raise what went wrong with a fault."""
        self._futures[fault].result()


@pytest.fixture(scope="module")
def proof(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Proof]:
    """All faults that the cases of this run need, caused at the same time."""
    folder = tmp_path_factory.mktemp("alerts")
    wanted = {
        item.callspec.params["fault"]
        for item in request.session.items
        if item.path == request.path
        and isinstance(item, pytest.Function)
        and hasattr(item, "callspec")
    }
    lab = Lab(folder, RULES, queries())
    try:
        yield Proof(lab, run_all(lab, [fault for fault in FAULTS if fault in wanted]))
    finally:
        lab.close()


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_alerts_fire_in_a_fault_and_end_after_it(proof: Proof, fault: Fault) -> None:
    proof.of(fault)
    warehouse, alerts = FAULTS[fault]
    assert {(alert, warehouse) for alert in alerts} <= proof.lab.fired & proof.lab.ended


@pytest.mark.slow
@pytest.mark.parametrize("fault", [tables_in_trouble], ids=["beside damaged tables"])
def test_every_query_of_the_dashboard_finds_something(proof: Proof, fault: Fault) -> None:
    proof.of(fault)
    actual = proof.lab.dashboard
    assert list(actual) == queries()
    for query, series in actual.items():
        assert series, query
        assert all(each["value"][1] != "NaN" for each in series), (query, series)


@pytest.mark.always
def test_every_alert_has_a_fault_that_proves_it() -> None:
    proven = {alert for seen in FAULTS.values() for alert in seen.alerts}
    assert sorted(proven) == ALERTS


@pytest.mark.always
def test_every_alert_has_a_line_on_what_to_do() -> None:
    lines = RUNBOOK.read_text().splitlines()
    known = [line.split("`")[1] for line in lines if line.startswith("| `Paimon")]
    assert sorted(known) == ALERTS


@pytest.mark.always
def test_prometheus_accepts_the_rules() -> None:
    check = [program("promtool"), "check", "rules", str(RULES)]
    completed = subprocess.run(check, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr
