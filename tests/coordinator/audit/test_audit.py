"""The audit log: who did what, when, from where, in a table that administrators read."""

from __future__ import annotations

import datetime
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pypaimon import CatalogFactory

from paimon_magics.coordinator.__main__ import main
from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.client.starting import At
from paimon_magics.coordinator.http.authorisation import ACTIONS, SCOPES, UNAUDITED
from paimon_magics.errors import PaimonMagicsError
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.schema.types import arrow_schema
from tests.coordinator.process import TABLE, Process, create_table, read, wait_until, write
from tests.coordinator.rest_server import client_options

AUDIT = TableName("audit", "ops")
QUICK = ("--audit-table=ops.audit", "--audit-every-ms=200")
SLOW = ("--audit-table=ops.audit", "--audit-every-ms=3600000")
TABLES = "/v1/paimon/databases/default/tables"


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    create_table(tmp_path / "warehouse", "CREATE TABLE salaries (k INT)")
    return create_table(
        tmp_path / "warehouse",
        "CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ('auto_batch_load' = 'true')",
    )


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    made = Process(tmp_path / "warehouse", tmp_path / "state", *QUICK)
    yield made
    made.close()


def ask(process: Process, token: str, method: str, path: str, body: Any = None) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(trust_env=False, headers=headers, timeout=60) as http:
        return http.request(method, process.address + path, json=body)


def named(process: Process, name: str, *allow: str) -> str:
    body = {"name": name, "allow": allow}
    return str(ask(process, process.token(), "POST", "/v1/tokens", body).json()["token"])


def commit(process: Process, catalog: Catalog, token: str, number: int = 1) -> int:
    """Commit a row as a session does; return the snapshot."""
    client = RemoteCoordinator(At(process.address, token))
    try:
        transaction = client.begin(TABLE)
        rows = write(catalog, transaction, [{"k": number, "v": "s"}])
        return client.commit(CommitRequest(transaction, Append(), rows)).snapshot_id
    finally:
        client.close()


def entries(catalog: Catalog) -> list[dict[str, Any]]:
    """The rows of the log, in the order of their ids, by plain pypaimon."""
    if not catalog.database_exists("ops") or not catalog.table_exists(AUDIT):
        return []
    found: list[dict[str, Any]] = read(catalog, AUDIT)
    return sorted(found, key=lambda row: str(row["id"]))


def test_every_changing_endpoint_is_audited_or_exempt_for_a_reason() -> None:
    changing = {each for each in SCOPES if not each.startswith("GET ")}
    assert changing == set(ACTIONS) | set(UNAUDITED)
    assert not set(ACTIONS) & set(UNAUDITED)


def test_audit_table_records_user_action_table_outcome_and_address(
    process: Process, catalog: Catalog
) -> None:
    process.start()
    began = datetime.datetime.now(datetime.UTC)
    tokens = {
        "etl": named(process, "etl", "write=default.t"),
        "eve": named(process, "eve", "read=default.t"),
        "mal": named(process, "mal", "write=default.salaries"),
        "root": named(process, "root", "admin"),
        "reader": named(process, "reader", "read"),
    }
    assert commit(process, catalog, tokens["etl"]) == 1
    options = client_options(process.address, Path(process.warehouse))
    table = CatalogFactory.create({**options, "token": tokens["etl"]}).get_table("default.t")
    builder = table.new_batch_write_builder()
    writer, committer = builder.new_write(), builder.new_commit()
    writer.write_arrow(pa.table({"k": pa.array([2], pa.int32()), "v": ["rest"]}))
    committer.commit(writer.prepare_commit())
    for name in ("etl", "root"):
        path = "/v1/inserts/default/t"
        assert ask(process, tokens[name], "POST", path, {"rows": [[3, "s"]]}).status_code == 200
    ask(process, tokens["root"], "POST", "/v1/inserts/default/t/flush")
    body = {"identifier": {"database": "default", "object": "made"}, "schema": SCHEMA}
    assert ask(process, tokens["root"], "POST", TABLES, body).status_code == 200
    assert ask(process, tokens["root"], "DELETE", f"{TABLES}/made").status_code == 200
    # Refused: by its scope, because the table is hidden, because the token is wrong.
    begin = {"table": {"database": "default", "table": "t"}}
    assert ask(process, tokens["eve"], "POST", "/v1/transactions", begin).status_code == 403
    assert ask(process, tokens["mal"], "POST", "/v1/transactions", begin).status_code == 404
    assert ask(process, tokens["eve"], "DELETE", f"{TABLES}/t").status_code == 403
    assert ask(process, tokens["eve"], "GET", f"{TABLES}/salaries").status_code == 404
    assert ask(process, "nonsense", "GET", "/v1/config%0a%0d").status_code == 401
    assert ask(process, process.token(), "DELETE", "/v1/tokens/eve").status_code == 200

    wait_until(lambda: any(row["action"] == "revoke token" for row in entries(catalog)))
    told = entries(catalog)
    seen = [
        (row["user_name"], row["action"], row["table_name"], row["snapshot_id"], row["outcome"])
        for row in told
    ]
    added = (None, "add token", None, None, "done")
    assert Counter(seen) == Counter(
        {
            added: 5,
            ("etl", "commit", "t", 1, "done"): 1,
            ("etl", "commit", "t", 2, "done"): 1,
            ("etl", "load", "t", 3, "done"): 1,
            ("root", "load", "t", 3, "done"): 1,
            ("root", "create table", "made", None, "done"): 1,
            ("root", "drop table", "made", None, "done"): 1,
            ("eve", "POST /v1/transactions", "t", None, "refused"): 1,
            ("mal", "POST /v1/transactions", "t", None, "refused"): 1,
            ("eve", "drop table", "t", None, "refused"): 1,
            ("eve", f"GET {TABLES}/salaries", "salaries", None, "refused"): 1,
            (None, "GET /v1/config\\n\\r", None, None, "refused"): 1,
            (None, "revoke token", None, None, "done"): 1,
        }
    )
    assert {row["address"] for row in told if row["action"] != "load"} == {"127.0.0.1"}
    by_token = {row["credential"] for row in told if row["user_name"] == "etl"} - {None}
    assert by_token == {f"token {tokens['etl'].split('_')[1]}"}
    assert all(began <= row["requested_at"] <= datetime.datetime.now(datetime.UTC) for row in told)
    assert "`eve` may read=default.t" in {row["detail"] for row in told}
    # No token is in it, and nobody but an administrator learns that it is there.
    assert not [each for each in [*tokens.values(), process.token()] if each in str(told)]
    hidden, nowhere = (
        ask(process, tokens["reader"], "GET", f"/v1/paimon/databases/ops/tables/{name}")
        for name in ("audit", "other")
    )
    assert (hidden.status_code, nowhere.status_code) == (404, 404)
    assert hidden.text.replace("audit", "other") == nowhere.text
    listed = "/v1/paimon/databases/ops/tables"
    assert ask(process, tokens["reader"], "GET", listed).json()["tables"] == []
    assert ask(process, tokens["root"], "GET", listed).json()["tables"] == ["audit"]
    with pytest.raises(PaimonMagicsError, match="There is no table `audit`"):
        RemoteCoordinator(At(process.address, named(process, "w", "write"))).begin(AUDIT)


SCHEMA = {
    "fields": [{"id": 0, "name": "k", "type": "INT"}],
    "partitionKeys": [],
    "primaryKeys": [],
    "options": {},
}


def test_buttons_of_the_page_are_requests_of_its_reader(process: Process, catalog: Catalog) -> None:
    process.start()
    inserts = "/v1/inserts/default/t"
    ada = named(process, "ada", "write")
    for number in range(3):
        ask(process, ada, "POST", inserts, {"rows": [[number, "x"]]})
    schema = Path(catalog.load(TABLE).location) / "schema"
    changed = json.loads((schema / "schema-0").read_text())
    changed["id"], changed["fields"][1]["type"] = 1, "INT"
    process.kill()
    (schema / "schema-1").write_text(json.dumps(changed))
    process.start()
    ask(process, ada, "POST", f"{inserts}/flush", {"wait_ms": 30_000})

    def letters() -> list[int]:
        answer = ask(process, process.token(), "GET", f"{inserts}/dead-letters").json()
        return [letter["lsn"] for letter in answer["dead_letters"]]

    assert letters() == [1, 2, 3]
    page = ask(process, ada, "GET", "/").text
    forms = [
        dict(re.findall(r'name="(\w+)" value="([^"]*)"', form))
        for form in re.findall(r'<form method="post".*?</form>', page)
    ]

    def press(form: dict[str, str], button: str) -> int:
        fields = {key: value for key, value in form.items() if key not in ("retry", "discard")}
        with httpx.Client(trust_env=False) as browser:
            address = f"{process.address}/dead-letters"
            return browser.post(address, data={**fields, button: "1"}).status_code

    assert press(forms[0], "discard") == 303
    assert press(forms[1], "retry") == 400
    ask(process, process.token(), "POST", "/v1/tokens/ada/allow", {"allow": ["insert"]})
    wait_until(lambda: press(forms[1], "discard") == 403)
    ask(process, process.token(), "DELETE", "/v1/tokens/ada")
    wait_until(lambda: ask(process, ada, "GET", "/v1/principal").status_code == 401)
    assert press(forms[1], "discard") == 403
    assert letters() == [2, 3], "who may not, and whose token was revoked, discards no rows"

    def entries_of() -> set[tuple[object, ...]]:
        names = ("action", "user_name", "outcome", "database_name", "table_name")
        rows = [row for row in entries(catalog) if "letter" in row["action"]]
        return {tuple(row[name] for name in names) for row in rows}

    of_table = ("default", "t")
    expected = {
        ("discard dead letter", "ada", "done", *of_table),
        ("retry dead letter", "ada", "refused", *of_table),
        ("discard dead letter", "ada", "refused", *of_table),
    }
    wait_until(lambda: entries_of() >= expected)


def test_audit_log_keeps_every_commit_after_a_kill(tmp_path: Path, catalog: Catalog) -> None:
    process = Process(tmp_path / "warehouse", tmp_path / "state", *SLOW)
    try:
        process.start()
        token = named(process, "etl", "write=default.t")
        acknowledged = [commit(process, catalog, token, number) for number in range(5)]
        process.kill()
        assert entries(catalog) == []
        # Killed between the snapshot and the answer.
        process.start("commit.published=kill")
        client = RemoteCoordinator(At(process.address, token))
        transaction = client.begin(TABLE)
        messages = write(catalog, transaction, [{"k": 9, "v": "s"}])
        request = CommitRequest(transaction, Append(), messages)
        answers: list[int] = []
        thread = threading.Thread(
            target=lambda: answers.append(client.commit(request).snapshot_id), daemon=True
        )
        thread.start()
        assert process.has_died()
        process.start()
        thread.join(60)
        client.close()
        process.end()
    finally:
        process.close()
    commits = [row for row in entries(catalog) if row["action"] == "commit"]
    done = [row["snapshot_id"] for row in commits if row["outcome"] == "done"]
    assert done == [*acknowledged, *answers]
    assert [row["outcome"] for row in commits if row["snapshot_id"] is None] == ["unknown"]
    assert len({row["id"] for row in commits}) == len(commits) == 7


def test_audit_table_expires_old_days_and_counts_excess_refusals(
    tmp_path: Path, catalog: Catalog
) -> None:
    process = Process(tmp_path / "warehouse", tmp_path / "state", *SLOW)
    try:
        process.start()
        named(process, "etl", "write")
        process.end()
        process.start()
        client = process.client()
        transaction = client.begin(AUDIT)
        old = {"day": "2020-01-01", "id": "1", "action": "old"}
        row = {name: old.get(name) for name in arrow_schema(catalog.load(AUDIT).schema).names}
        client.commit(CommitRequest(transaction, Append(), write(catalog, transaction, [row])))
        change = {"action": "setOption", "key": "partition.expiration-time", "value": "30 d"}
        path = "/v1/paimon/databases/ops/tables/audit"
        assert ask(process, process.token(), "POST", path, {"changes": [change]}).is_success
        assert "old" in {row["action"] for row in entries(catalog)}
        with httpx.Client(trust_env=False, headers={"Authorization": "Bearer no"}) as http:
            for _ in range(800):
                assert http.get(f"{process.address}/").status_code in (401, 429)
        metrics = ask(process, process.token(), "GET", "/metrics").text
        (line,) = [each for each in metrics.splitlines() if each.startswith(NOT_KEPT_METRIC)]
        not_kept = float(line.split()[1])
        assert 0 < not_kept <= 600
        process.end()
    finally:
        process.close()
    told = entries(catalog)
    assert "old" not in {row["action"] for row in told}
    assert "alter table" in {row["action"] for row in told}
    refused = [row for row in told if row["outcome"] == "refused"]
    assert len(refused) == 800 - not_kept


NOT_KEPT_METRIC = "paimon_coordinator_audit_not_kept_total "


@pytest.mark.parametrize("name", ["audit", "ops.", ".audit", "a.b.c", "../x.audit", "ops.t$b"])
def test_invalid_audit_table_name_is_rejected(name: str, tmp_path: Path) -> None:
    state, warehouse = f"--state={tmp_path / 's'}", f"--warehouse={tmp_path / 'w'}"
    assert main([state, warehouse, f"--audit-table={name}"]) != 0
