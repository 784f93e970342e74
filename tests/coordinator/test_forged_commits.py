"""What a commit says of its transaction, of the log of small inserts and of its files counts only
as far as its sender may say it: nobody's acknowledged rows depend on others' claims."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pypaimon import CatalogFactory

from paimon_magics.coordinator.protocol.definition_changes import change_document
from paimon_magics.coordinator.protocol.documents import (
    request_document,
    transaction_document,
    transaction_of,
)
from paimon_magics.planning.commits.requests import (
    Append,
    CommitRequest,
    Transaction,
    commit_user_of,
    transaction_names,
)
from paimon_magics.planning.schemas.replacements import TableReplacement
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.commits.decoded_request import decoded
from paimon_magics.tables.commits.receipts import log_properties
from tests.coordinator.process import TABLE, Process, create_table, data_files, read, write
from tests.coordinator.test_foreign_paths import serialize_commit_message


class Team:
    """A coordinator with the tokens of ada, who may write everything, and of eve."""

    def __init__(self, folder: Path, sql: str, *eve: str) -> None:
        self.catalog = create_table(folder / "warehouse", sql)
        self.process = Process(folder / "warehouse", folder / "state")
        self.process.start()
        self.ada, self.eve = self.token("ada", "write"), self.token("eve", *eve)

    def token(self, name: str, *allow: str) -> str:
        body = {"name": name, "allow": list(allow)}
        answer = self.post("/v1/tokens", body, self.process.token())
        assert answer.status_code == 200, answer.text
        return str(answer.json()["token"])

    def post(self, path: str, body: object, token: str) -> httpx.Response:
        headers = {"authorization": f"Bearer {token}"}
        address = self.process.address + path
        return httpx.post(address, json=body, headers=headers, trust_env=False, timeout=60)

    def begin(self, token: str) -> tuple[str, Transaction]:
        body = {"table": {"database": "default", "table": "t"}, "owner": "somebody"}
        opened = self.post("/v1/transactions", body, token).json()
        return opened["id"], transaction_of(opened["transaction"])

    def commit(self, id: str, request: CommitRequest, token: str) -> httpx.Response:
        document = request_document(request) | {
            "transaction": transaction_document(request.transaction)
        }
        return self.post(f"/v1/transactions/{id}/commit", document, token)

    def keys(self) -> list[Any]:
        return sorted(row["k"] for row in read(self.catalog))


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Team]:
    sql = "CREATE TABLE t (k INT) TBLPROPERTIES ('commit.max-retries' = '0')"
    team = Team(tmp_path, sql, "change=default.t")
    yield team
    team.process.close()


def engine_commit(team: Team, token: str, commit_user: str, properties: Any = None) -> None:
    """A commit over the REST catalog, as an engine makes it."""
    options = {
        "metastore": "rest",
        "uri": team.process.address,
        "warehouse": str(team.process.warehouse),
        "token.provider": "bear",
        "token": token,
    }
    builder = CatalogFactory.create(options).get_table("default.t").new_batch_write_builder()
    builder.commit_user = commit_user
    writer, committer = builder.new_write(), builder.new_commit()
    committer.file_store_commit.commit_user = commit_user
    writer.write_arrow(pa.table({"k": pa.array([99], pa.int32())}))
    committer.commit(writer.prepare_commit())


@pytest.mark.parametrize("restarted", [False, True], ids=["open", "restarted"])
def test_engine_does_not_commit_as_another_users_transaction(team: Team, restarted: bool) -> None:
    id, transaction = team.begin(team.ada)
    rows = write(team.catalog, transaction, [{"k": 1}, {"k": 2}])
    if restarted:
        team.process.kill()
        team.process.start()
    with pytest.raises(RuntimeError, match="Commit failed"):
        engine_commit(team, team.eve, transaction.commit_user)
    answer = team.commit(id, CommitRequest(transaction, Append(), rows), team.ada)
    assert answer.status_code == 200, answer.text
    assert team.keys() == [1, 2]


def test_engine_commits_under_names_of_its_own(team: Team) -> None:
    _, own = transaction_names("eve", "0" * 16)
    engine_commit(team, team.eve, own)
    engine_commit(team, team.eve, str(uuid.uuid4()))
    _, nobody = transaction_names("", "0" * 16)
    engine_commit(team, team.eve, nobody)
    assert team.keys() == [99, 99, 99]


def opened_by_ada_elsewhere(catalog: Catalog) -> Transaction:
    """A transaction that the coordinator does not know, as after a takeover with other stores."""
    prefix, user = transaction_names("ada", "7" * 16)
    return Transaction(TABLE, user, prefix, 0)


@pytest.mark.parametrize("verb", ["commit", "abort"])
def test_others_transaction_is_not_adopted_by_its_file_names(team: Team, verb: str) -> None:
    transaction = opened_by_ada_elsewhere(team.catalog)
    rows = write(team.catalog, transaction, [{"k": 1}])
    files = data_files(team.process.warehouse)
    forged = replace(transaction, commit_user=commit_user_of(transaction.file_prefix))
    document = {
        **request_document(CommitRequest(forged, Append(makes_snapshot=True))),
        "transaction": transaction_document(forged),
        "owner": "ada",
        "reason": "x",
    }
    answer = team.post(f"/v1/transactions/{uuid.uuid4().hex}/{verb}", document, team.eve)
    assert (answer.status_code, "belongs to somebody else" in answer.text) == (403, True)
    assert data_files(team.process.warehouse) == files
    request = CommitRequest(transaction, Append(), rows)
    answer = team.commit(uuid.uuid4().hex, request, team.ada)
    assert answer.status_code == 200, answer.text
    assert team.keys() == [1]


def test_clients_set_no_properties_of_the_log(tmp_path: Path) -> None:
    options = "TBLPROPERTIES ('auto_batch_load' = 'true', 'group_commit_interval_ms' = '60000')"
    team = Team(tmp_path, f"CREATE TABLE t (k INT) {options}", "insert=default.t")
    try:
        team.post("/v1/inserts/default/t", {"rows": [[1]]}, team.ada)
        team.post("/v1/inserts/default/t/flush", {"wait_ms": 15_000}, team.ada)
        snapshot = team.catalog.load(TABLE).paimon.snapshot_manager().get_latest_snapshot()
        log = snapshot.properties["paimon-magics.log"]
        forged = log_properties(log, 2, 1_000, 0)
        for property in (*forged, ("paimon-magics.epoch", "900")):
            id, transaction = team.begin(team.eve)
            request = CommitRequest(transaction, Append(makes_snapshot=True), (), (property,))
            answer = team.commit(id, request, team.eve)
            assert answer.status_code == 400, answer.text
            assert f"`{property[0]}` is set by coordinators only" in answer.text
            team.post(f"/v1/transactions/{id}/abort", {"reason": "refused"}, team.eve)
        team.post("/v1/inserts/default/t", {"rows": [[2]]}, team.ada)
        flushed = team.post("/v1/inserts/default/t/flush", {"wait_ms": 15_000}, team.ada)
        assert flushed.status_code == 200, flushed.text
        assert team.keys() == [1, 2]
    finally:
        team.process.close()


@pytest.mark.parametrize(
    "claim",
    [
        {"level": 5},
        {"level": -1},
        {"level": 10_000},
        {"row_count": -5},
        {"file_size": -1},
        {"min_sequence_number": 9, "max_sequence_number": 3},
    ],
    ids=str,
)
def test_message_with_impossible_claims_on_its_file_is_refused(
    keyed: Team, claim: dict[str, int]
) -> None:
    id, transaction = keyed.begin(keyed.eve)
    messages = write(keyed.catalog, transaction, [{"k": 1, "v": "eve"}])
    table = keyed.catalog.load(TABLE)
    changed = decoded(table, CommitRequest(transaction, Append(), messages)).messages
    for message in changed:
        for file in message.new_files:
            for name, value in claim.items():
                setattr(file, name, value)
    bodies = tuple(serialize_commit_message(message, []) for message in changed)
    answer = keyed.commit(id, CommitRequest(transaction, Append(), bodies), keyed.eve)
    assert (answer.status_code, "No writer of Paimon" in answer.text) == (400, True), answer.text
    assert latest_id(keyed.catalog) == 0


def latest_id(catalog: Catalog) -> int:
    snapshot = catalog.load(TableName("t", "default")).paimon.snapshot_manager()
    latest = snapshot.get_latest_snapshot()
    return 0 if latest is None else int(latest.id)


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    keys = "TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1')"
    sql = f"CREATE TABLE t (k INT NOT NULL, v STRING) {keys}"
    team = Team(tmp_path_factory.mktemp("keyed"), sql, "insert=default.t")
    yield team
    team.process.close()


def test_replacement_as_a_load_of_the_log_is_refused_and_removes_no_row(team: Team) -> None:
    id, transaction = team.begin(team.ada)
    rows = write(team.catalog, transaction, [{"k": 1}])
    assert team.commit(id, CommitRequest(transaction, Append(), rows), team.ada).is_success
    schema = team.catalog.load(TABLE).schema
    claim = log_properties("log", 1, 5, 0)
    change = change_document(TableReplacement(TABLE, schema, schema.schema_id, properties=claim))
    body = {"id": uuid.uuid4().hex, "change": change, "repeated": False}
    answer = team.post("/v1/changes", body, team.ada)
    assert answer.status_code == 400, answer.text
    assert "paimon-magics.log" in answer.json()["error"]["message"]
    assert team.keys() == [1]
