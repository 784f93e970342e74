"""Requests that nobody sends by mistake: names that lead out of the warehouse, broken headers,
and secrets that must not come back."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest

from paimon_magics.coordinator.http.authorisation import SCOPES
from tests.coordinator.process import Process, create_table

NAMES = (
    "..",
    "../t",
    "../../outside",
    "..%2f..%2foutside",
    "%2e%2e%2foutside",
    "..\\outside",
    "/etc/passwd",
    "....//outside",
    ".",
    ".paimon-magics",
    "a\x00b",
    "a\r\nSet-Cookie: x=1",
    "x" * 300,
    "x" * 250,  # too long with what becomes a file's name of it
    "ü" * 200,
    "t$files",
    "t$branch_../../outside",
    " ",
)
SECRET_ENDS = 12


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("hostile")
    create_table(folder / "lake" / "warehouse", "CREATE TABLE t (k INT)")
    create_table(
        folder / "lake" / "warehouse",
        "CREATE TABLE small (k INT) TBLPROPERTIES ('auto_batch_load' = 'true')",
    )
    (folder / "lake" / "outside.db" / "t" / "schema").mkdir(parents=True)
    (folder / "lake" / "outside").mkdir()
    made = Process(folder / "lake" / "warehouse", folder / "state", "--audit-table=ops.audit")
    with errors_into(said_of(made)):
        made.start()
    yield made
    made.close()


@contextlib.contextmanager
def errors_into(file: Path) -> Iterator[None]:
    """Give processes that are started meanwhile a file as their error stream."""
    before = os.dup(2)
    with file.open("wb") as stream:
        os.dup2(stream.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def said_of(process: Process) -> Path:
    """The file of what a coordinator logs."""
    return process.state.with_suffix(".log")


@pytest.fixture
def http(process: Process) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {process.token()}"}
    with httpx.Client(
        base_url=process.address, headers=headers, trust_env=False, timeout=60
    ) as client:
        yield client


def outside(process: Process) -> set[str]:
    """All that lies beside the warehouse."""
    lake = Path(process.warehouse).parent
    return {
        os.path.join(folder, name)
        for folder, folders, files in os.walk(lake)
        for name in [*folders, *files]
        if not folder.startswith(str(process.warehouse))
    }


def sent(process: Process, request: bytes) -> bytes:
    """The whole answer to bytes that no client library would send."""
    parts = urlsplit(process.address)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=20) as raw:
        raw.sendall(request)
        result = b""
        while more := raw.recv(65_536):
            result += more
        return result


CHUNKED = b"POST /v1/inserts/default/t HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
LONG = b"a" * 2_000_000


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(CHUNKED + b"2\r\n{}\r\n0\r\nT: " + LONG + b"\r\n\r\n", id="trailer"),
        pytest.param(CHUNKED + b"2;x=" + LONG + b"\r\n{}\r\n0\r\n\r\n", id="chunk extension"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\nX: " + LONG + b"\r\n\r\n", id="head"),
        pytest.param(b"GET /" + LONG + b" HTTP/1.1\r\nHost: x\r\n\r\n", id="target"),
    ],
)
def test_request_parts_outside_the_body_have_a_size_limit(
    process: Process, request_bytes: bytes
) -> None:
    parts = urlsplit(process.address)
    with socket.create_connection((str(parts.hostname), int(parts.port or 0))) as client:
        client.settimeout(10)  # the server closes an idle connection later
        answer = b""
        with contextlib.suppress(ConnectionError):  # it is closed before all is read
            client.sendall(request_bytes)
            while part := client.recv(1_000):
                answer += part
    assert answer[:13] in (b"", b"HTTP/1.1 431 ", b"HTTP/1.1 401 "), answer[:100]


def test_request_behind_a_large_head_is_not_answered_in_its_place(process: Process) -> None:
    parts = urlsplit(process.address)
    small = b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"
    large = b"GET /health/live HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 100_000 + b"\r\n\r\n"
    with socket.create_connection((str(parts.hostname), int(parts.port or 0))) as client:
        client.settimeout(10)
        answer = b""
        with contextlib.suppress(ConnectionError):
            client.sendall(small + large + small)
            while part := client.recv(1_000):
                answer += part
    statuses = [line[9:12] for line in answer.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]
    assert statuses.count(b"200") <= 1, answer
    assert statuses[-1:] in ([], [b"431"], [b"200"]), answer


def test_encoded_body_is_refused_by_its_encoding(process: Process) -> None:
    headers = {"Authorization": f"Bearer {process.token()}", "Content-Encoding": "gzip"}
    url = f"{process.address}/v1/inserts/default/t"
    answer = httpx.post(url, headers=headers, content=b"{}", trust_env=False)
    assert (answer.status_code, "gzip" in answer.text) == (415, True)


def test_names_in_paths_never_leave_the_warehouse_or_cause_errors(
    process: Process, http: httpx.Client
) -> None:
    before = outside(process)
    failed = {}
    for endpoint in SCOPES:
        method, path = endpoint.split(" ")
        if "{" not in path:
            continue
        for name in NAMES:
            for encoded in {quote(name, safe=""), quote(quote(name, safe=""), safe="")}:
                filled = re.sub(r"\{[^}]*\}", lambda _, text=encoded: text, path)
                answer = http.request(method, filled, json={} if method != "GET" else None)
                if answer.status_code >= 500 and answer.status_code != 501:
                    failed[endpoint, name[:30]] = answer.text[:200]
                assert "set-cookie" not in answer.headers
    assert failed == {}
    assert outside(process) == before


@pytest.mark.parametrize("name", NAMES)
def test_names_in_bodies_never_leave_the_warehouse_or_cause_errors(
    process: Process, http: httpx.Client, name: str
) -> None:
    before = outside(process)
    fields = [{"id": 0, "name": "k", "type": "INT"}]
    schema = {"fields": fields, "partitionKeys": [], "primaryKeys": [], "options": {}}
    here = {"database": "default", "object": name}
    there = {"database": name, "table": name}
    changes = [
        {"kind": "DeleteTags", "tags": [name]},
        {"kind": "CreateTag", "tag": name},
        {"kind": "CreateBranch", "branch": name},
        {"kind": "DeleteBranches", "branches": [name]},
        {"kind": "RenameBranch", "branch": name, "new_name": name},
        {"kind": "RollBackToTag", "tag": name},
    ]
    drops = [{"kind": "DatabaseDrop", "name": name, "if_exists": each} for each in (True, False)]
    t = {"database": "default", "table": "t"}
    creation = {"kind": "DatabaseCreation", "name": name}
    requests: list[tuple[str, dict[str, Any]]] = [
        ("/v1/paimon/databases", {"name": name}),
        *(
            ("/v1/changes", {"id": f"{name}{n}"[:100], "repeated": False, "change": each})
            for n, each in enumerate([creation, *drops])
        ),
        ("/v1/paimon/databases/default/tables", {"identifier": here, "schema": schema}),
        (
            "/v1/paimon/tables/rename",
            {"source": {"database": "default", "object": "t"}, "destination": here},
        ),
        ("/v1/paimon/databases/default/tables/t/tags", {"tagName": name}),
        ("/v1/paimon/databases/default/tables/t/branches", {"branch": name}),
        ("/v1/transactions", {"table": there}),
        ("/v1/transactions", {"table": {"database": "default", "table": name}}),
        ("/v1/leases", {"holder": name, "leases": [{"table": there, "snapshot_id": 1}]}),
        ("/v1/tables/check", {"table": there}),
        *(
            ("/v1/tables/versions", {"table": table, "change": each, "repeated": False})
            for each in changes
            for table in (t, there)
        ),
        ("/v1/paimon/databases/default/tables/t/consumers/reset", {"consumerId": name}),
        ("/v1/tokens", {"name": name, "allow": [f"read={name}"]}),
    ]
    for path, body in requests:
        answer = http.post(path, content=json.dumps(body).encode())
        assert answer.status_code < 500, (path, answer.text)
    assert outside(process) == before


def test_database_with_an_impossible_name_is_unknown(http: httpx.Client) -> None:
    answers = []
    for name in ("y" * 300, "nowhere"):
        for if_exists in (True, False):
            change = {"kind": "DatabaseDrop", "name": name, "if_exists": if_exists}
            body = {"id": f"{name[:7]}{if_exists}", "repeated": False, "change": change}
            answer = http.post("/v1/changes", json=body)
            answers.append((answer.status_code, answer.json().get("done")))
    assert answers == [(200, False), (404, None)] * 2


LARGE = ("9" * 25, "9" * 400, "9" * 5_000)


@pytest.mark.parametrize("digits", LARGE, ids=len)
def test_huge_numbers_get_client_errors(http: httpx.Client, digits: str) -> None:
    table = '{"database": "default", "table": "t"}'
    lease = f'{{"table": {table}, "snapshot_id": {digits}}}'
    drop = f'{{"kind": "TableDrop", "name": {table}, "created_at_ms": {digits}}}'
    tag = f'{{"kind": "CreateTag", "tag": "a", "snapshot_id": {digits}}}'
    rest = "/v1/paimon/databases/default/tables/t"
    for path, body in (
        ("/v1/leases", f'{{"holder": "h", "leases": [{lease}]}}'),
        ("/v1/transactions", f'{{"table": {table}, "base_snapshot_id": {digits}}}'),
        ("/v1/tokens", f'{{"name": "n", "allow": ["read"], "expires_in_ms": {digits}}}'),
        ("/v1/changes", f'{{"id": "{digits[:90]}", "repeated": false, "change": {drop}}}'),
        ("/v1/inserts/default/t/flush", f'{{"wait_ms": {digits}}}'),
        ("/v1/tables/versions", f'{{"table": {table}, "repeated": false, "change": {tag}}}'),
        (f"{rest}/tags", f'{{"tagName": "a", "snapshotId": {digits}}}'),
        (f"{rest}/rollback", f'{{"instant": {{"type": "snapshot", "snapshotId": {digits}}}}}'),
        (f"{rest}/consumers/reset", f'{{"consumerId": "c", "nextSnapshotId": {digits}}}'),
    ):
        answer = http.post(path, content=body.encode())
        assert 400 <= answer.status_code < 500, (path, answer.status_code, answer.text[:300])
    for path in ("databases", "databases/default/tables/t/snapshots", "databases/default/tables"):
        answer = http.get(f"/v1/paimon/{path}", params={"maxResults": digits})
        assert (answer.status_code, "maxResults" in answer.text) == (400, True)
    snapshots = http.get(f"{rest}/snapshots", params={"pageToken": digits})
    assert (snapshots.status_code, "is not a whole number" in snapshots.text) == (400, True)
    assert http.get(f"{rest}/snapshots/{digits[:245]}").status_code == 404


def test_requests_inject_no_headers_and_smuggle_no_requests(process: Process) -> None:
    host = urlsplit(process.address).netloc
    token = process.token()
    for line in (
        "GET /v1/config?x=%0d%0aSet-Cookie:%20a=1 HTTP/1.1",
        "GET /%0d%0aSet-Cookie:%20a=1 HTTP/1.1",
        "GET //evil.example/%2e%2e HTTP/1.1",
        "POST /dead-letters?table=%0d%0aSet-Cookie:%20a=1 HTTP/1.1",
    ):
        answer = sent(
            process,
            f"{line}\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
            "Paimon-User: a\x0bb\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode(),
        )
        head = answer.partition(b"\r\n\r\n")[0].lower()
        assert b"set-cookie" not in head
        assert b"\r\nlocation: //" not in head
        assert b" 500 " not in head.splitlines()[0]
    # Two lengths, or a length beside chunks, are how requests are smuggled past a proxy.
    for headers in (
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked, identity",
        "X: a\r\n b\r\nContent-Length: -1",
    ):
        answer = sent(
            process,
            f"POST /v1/leases HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
            f"{headers}\r\nConnection: close\r\n\r\n0\r\n\r\nGET /metrics HTTP/1.1\r\n"
            f"Host: {host}\r\n\r\n".encode(),
        )
        assert re.match(rb"HTTP/1.1 4\d\d ", answer), (headers, answer[:100])
        assert answer.count(b"HTTP/1.1 ") == 1, headers


def test_secrets_never_appear_in_answers_logs_or_files(
    process: Process, http: httpx.Client
) -> None:
    leave_midway(process)
    made = http.post("/v1/tokens", json={"name": "leak", "allow": ["admin"]})
    assert made.headers["cache-control"] == "no-store"
    token = made.json()["token"]
    wrong = token[:-3] + "xyz"
    said = []
    for path in ("/", "/metrics", "/openapi.json", "/v1/tokens", "/v1/coordinator", "/v1/config"):
        for secret in (token, process.token()):
            headers = {"Authorization": f"Bearer {secret}"}
            said.append(http.get(path, headers=headers).text)
    for path in (f"/v1/tokens/{token}", f"/v1/nowhere/{token}", f"/v1/paimon/{token}"):
        http.delete(path, headers={"Authorization": f"Bearer {token}"})
    for headers in ({"Authorization": f"Bearer {wrong}"}, {"Authorization": f"Basic {token}"}):
        answer = http.get("/", headers=headers)
        assert answer.status_code == 401
        said += [answer.text, str(dict(answer.headers))]
    assert process.end() == 0
    assert process.running is not None
    said.append(str(process.running.communicate()))
    log = said_of(process).read_text()
    assert "WARNING" in log  # of broken requests
    assert "Traceback" not in log
    said.append(log)
    names = (name for name in Path(process.state).rglob("*") if name.name != "token")
    said += [name.read_bytes().decode("latin-1") for name in names if name.is_file()]
    lake = Path(process.warehouse)
    said += [n.read_bytes().decode("latin-1") for n in lake.rglob("*") if n.is_file()]
    for secret in (token, wrong, process.token()):
        assert not [text for text in said if secret[-SECRET_ENDS:] in text], secret


def leave_midway(process: Process) -> None:
    """Send heads of requests without the bodies that they tell of, and inserts without waiting for
    answers, and close the connections."""
    place = urlsplit(process.address)
    for path in ("/v1/paimon/databases", "/v1/leases", "/v1/inserts/default/t", "/v1/tokens"):
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {place.netloc}\r\n"
            f"Authorization: Bearer {process.token()}\r\nContent-Length: 100\r\n\r\n"
        )
        with socket.create_connection((place.hostname or "", place.port or 0)) as connection:
            connection.sendall(head.encode() + b'{"half":')
            time.sleep(0.1)  # the request is being read when its connection ends
    insert = (
        f"POST /v1/inserts/default/small HTTP/1.1\r\nHost: {place.netloc}\r\n"
        f"Authorization: Bearer {process.token()}\r\nContent-Length: 14\r\n\r\n"
        '{"rows":[[1]]}'
    )
    for _ in range(20):
        with socket.create_connection((place.hostname or "", place.port or 0)) as connection:
            connection.settimeout(0.2)
            with contextlib.suppress(OSError):
                for _ in range(50):
                    connection.sendall(20 * insert.encode())
