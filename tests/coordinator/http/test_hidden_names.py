"""Errors of a coordinator name existing tables only to those who may see every table."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from websockets.sync.client import connect

from paimon_magics.coordinator.client.addresses import Addresses
from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.client.starting import At
from paimon_magics.errors import PaimonMagicsError
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.statements.statement import TableName
from tests.coordinator.client.test_definitions import token_of
from tests.coordinator.inserts.serving import Served, table_sql
from tests.coordinator.process import create_table, write

HIDDEN = ("layoffs_2027", "payrole", "zz_secret")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("hidden"), table_sql()) as served:
        for name in ("layoffs_2027", "carol_1", "carol_meantime"):
            sql = table_sql().replace("TABLE t ", f"TABLE {name} ")
            create_table(served.process.warehouse, sql)
        create_table(served.process.warehouse, "CREATE TABLE payroll (k INT, v STRING)")
        yield served


def change(served: Served, **members: object) -> None:
    name = {"database": "default", "table": members.pop("table")}
    body = {
        "id": uuid.uuid4().hex,
        "repeated": False,
        "change": {"name": name, "created_at_ms": None, **members},
    }
    answer = served.call("POST", "/v1/changes", body)
    assert answer.status_code == 200, answer.text


def rename(served: Served, table: str, to: str) -> None:
    new_name = {"database": "default", "table": to}
    change(served, kind="TableRename", table=table, new_name=new_name)


@pytest.mark.parametrize("table", ["carol_1", "carol_meantime"])
def test_stream_into_a_table_that_goes_names_no_hidden_table(served: Served, table: str) -> None:
    eve = token_of(served.process, f"eve_{table}", "insert=default.carol_*")
    address = served.process.address.replace("http", "ws", 1)
    with connect(
        f"{address}/v1/inserts/default/{table}/stream?channel=x&offset=0",
        additional_headers={"Authorization": f"Bearer {eve}"},
        proxy=None,
    ) as stream:
        stream.send('{"rows": [[1, "a"]]}')
        stream.recv(timeout=30)
        if table == "carol_1":
            rename(served, table, "zz_secret")
        else:
            change(served, kind="TableDrop", table=table, if_exists=False, only_empty=False)
        stream.send('{"rows": [[2, "b"]]}')
        answer = str(stream.recv(timeout=30))
    assert f"There is no table `{table}`" in answer
    assert not [name for name in HIDDEN if name in answer]


def test_refused_commit_and_its_reason_name_no_hidden_table(served: Served) -> None:
    token = token_of(served.process, "pay", "write=default.payroll")
    client = RemoteCoordinator(At(Addresses.of(served.process.address), token))
    try:
        transaction = client.begin(TableName("payroll", "default"))
        messages = write(served.catalog, transaction, [{"k": 1, "v": "a"}])
        rename(served, "payroll", "payrole")
        with pytest.raises(PaimonMagicsError, match="There is no table `payroll`") as raised:
            client.commit(CommitRequest(transaction, Append(), messages))
    finally:
        client.close()
    answer = served.call("GET", "/v1/transactions", headers={"authorization": f"Bearer {token}"})
    (reason,) = [row["reason"] for row in answer.json()["transactions"]]
    assert "There is no table `payroll`" in reason
    shown = raised.value.text() + answer.text
    assert not [name for name in HIDDEN if name in shown]


def test_administrator_and_unlimited_token_get_the_nearest_name(served: Served) -> None:
    create_table(served.process.warehouse, table_sql().replace("TABLE t ", "TABLE events "))
    every = token_of(served.process, "every", "write")
    some = token_of(served.process, "some", "write=default.event*")
    path, body = "/v1/inserts/default/event", {"rows": [[1, "a"]]}
    hints = {}
    for name, token in (("admin", served.process.token()), ("every", every), ("some", some)):
        answer = served.call("POST", path, body, {"authorization": f"Bearer {token}"})
        assert answer.status_code == 404
        hints[name] = answer.json()["error"]["hint"]
    meant = "Did you mean `events`?"
    assert hints == {"admin": meant, "every": meant, "some": ""}
