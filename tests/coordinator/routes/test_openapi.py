"""The published OpenAPI document: every endpoint is in it, and none fails whatever is sent."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.core.result import Ok

from paimon_magics.coordinator.http.authorisation import PUBLIC, SCOPES
from tests.coordinator.process import Process, create_table

EXAMPLES = int(os.environ.get("PAIMON_MAGICS_EXAMPLES", "4"))
# What a coordinator may answer to anything that is sent: no failure of its own.
NOT_OFFERED, UNAVAILABLE, TOO_LATE = 501, 503, 504


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("openapi")
    create_table(folder / "warehouse", "CREATE TABLE t (k INT)")
    made = Process(folder / "warehouse", folder / "state")
    made.start()
    yield made
    made.close()


def published(process: Process) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {process.token()}"}
    answer = httpx.get(f"{process.address}/openapi.json", headers=headers, trust_env=False)
    assert answer.status_code == 200
    document: dict[str, Any] = answer.json()
    return document


def test_the_document_has_every_endpoint_with_its_scope(process: Process) -> None:
    assert httpx.get(f"{process.address}/openapi.json", trust_env=False).status_code == 401
    actual = {
        f"{method.upper()} {path}": operation.get("x-scope")
        for path, operations in published(process)["paths"].items()
        for method, operation in operations.items()
    }
    listed = {which: scope.value for which, scope in SCOPES.items() if ":path}" not in which}
    assert actual == listed | {
        "GET /health/live": None,
        "GET /health/owner": None,
        "GET /health/ready": None,
        "GET /health/startup": None,
        "POST /dead-letters": None,
    }
    assert set(PUBLIC) == {which.split(" ")[1] for which, scope in actual.items() if scope is None}


def test_no_endpoint_fails_on_fuzzed_requests(process: Process) -> None:
    schema = schemathesis.openapi.from_dict(published(process))
    operations = [each.ok() for each in schema.get_all_operations() if isinstance(each, Ok)]
    assert len(operations) > 90
    token = process.token()
    failures: dict[str, str] = {}
    with httpx.Client(base_url=process.address, trust_env=False, timeout=60) as http:
        for operation in operations:
            fuzz(operation, http, token, failures)
        headers = {"Authorization": f"Bearer {token}"}
        assert http.get("/v1/coordinator", headers=headers).json()["problem"] is None
    assert failures == {}


def fuzz(operation: Any, http: httpx.Client, token: str, failures: dict[str, str]) -> None:
    which = f"{operation.method.upper()} {operation.path}"
    count: Counter[str] = Counter()

    @seed(1)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def run(case: Any) -> None:
        # Every other request is about a table that is there.
        count[which] += 1
        there = {"database": "default", "table": "t"} if count[which] % 2 else {}
        case.path_parameters.update({k: v for k, v in there.items() if k in case.path_parameters})
        sent = case.as_transport_kwargs(base_url=str(http.base_url))
        headers = {**dict(sent.get("headers") or {}), "Authorization": f"Bearer {token}"}
        answer = http.request(
            sent["method"],
            sent["url"],
            params=sent.get("params"),
            json=sent.get("json"),
            headers=headers,
        )
        good = answer.status_code < 500 or answer.status_code in (
            NOT_OFFERED,
            UNAVAILABLE,
            TOO_LATE,
        )
        if not good or token in answer.text:
            failures.setdefault(which, f"{answer.status_code} {answer.text[:300]} {sent}")

    run()
