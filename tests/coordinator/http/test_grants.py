"""GRANT and REVOKE: what users, groups and roles may do, and when that counts."""

from __future__ import annotations

import copy
import datetime
import json
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import httpx
import pytest
from pypaimon.write.commit_message import CommitMessage

import paimon_magics
from paimon_magics.coordinator.__main__ import main
from paimon_magics.coordinator.client.addresses import Addresses
from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.client.starting import At
from paimon_magics.coordinator.http.oidc import GrantsFile, Issuer
from paimon_magics.coordinator.http.stored_grants import StoredGrants
from paimon_magics.coordinator.protocol.documents import request_document, transaction_document
from paimon_magics.coordinator.protocol.principals import Grant, Grantee, Principal, Scope
from paimon_magics.coordinator.service.commit_rights import _loses_rows
from paimon_magics.coordinator.store.state_store import open_store
from paimon_magics.errors import (
    InvalidValueError,
    SetupError,
    StatementSyntaxError,
    UnknownNameError,
)
from paimon_magics.planning.commits.requests import (
    Append,
    CommitRequest,
    OverwritePartitions,
    OverwriteTouched,
)
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.writing.commit_messages import read_messages
from tests.coordinator.client.test_definitions import token_of
from tests.coordinator.process import Process, create_table, read, wait_until, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# ---- what a scope includes ----


@pytest.mark.parametrize(
    ("scope", "included"),
    [
        ("read", "read"),
        ("insert", "read insert"),
        ("change", "read insert change"),
        ("alter", "read alter"),
        ("maintain", "read maintain"),
        ("write", "read insert change alter maintain write"),
        ("admin", "read insert change alter maintain write admin"),
    ],
)
def test_scope_includes(scope: str, included: str) -> None:
    includes = Scope(scope).includes
    assert " ".join(needed.value for needed in Scope if includes(needed)) == included


def test_two_scopes_on_everything_count_together() -> None:
    both = Principal.granted("ann", (Grant(Scope.INSERT), Grant(Scope.MAINTAIN)))
    assert both.may_everywhere(Scope.INSERT)
    assert both.may_everywhere(Scope.MAINTAIN)
    assert both.may_on(Scope.MAINTAIN, "shop", "orders")
    assert not both.may(Scope.CHANGE)


# ---- what is stored ----


@pytest.fixture
def grants(tmp_path: Path) -> Iterator[StoredGrants]:
    store = open_store(tmp_path)
    yield StoredGrants(store.grants)
    store.close()


def of(grants: StoredGrants, *groups: str, name: str = "ann") -> Principal:
    return grants.applied_to(Principal.granted(name, (), groups=groups))


def test_groups_and_roles_give_their_grants(grants: StoredGrants) -> None:
    grants.grant([Grantee.of("group:sales")], ["role:analysts"], "root")
    grants.grant([Grantee.of("role:analysts")], ["role:readers", "insert=shop.new_*"], "root")
    grants.grant([Grantee.of("role:readers")], ["read=shop"], "root")
    assert not of(grants).may(Scope.READ)
    ann = of(grants, "sales")
    assert ann.may_on(Scope.READ, "shop", "orders")
    assert ann.may_on(Scope.INSERT, "shop", "new_orders")
    assert not ann.may_on(Scope.INSERT, "shop", "orders")
    grants.revoke([Grantee.of("group:sales")], ["role:analysts"])
    assert not of(grants, "sales").may(Scope.READ)


def test_grants_add_to_a_tokens_rights(grants: StoredGrants) -> None:
    grants.grant([Grantee.of("ann")], ["change=shop.orders"], "root")
    token = Principal.granted("ann", (Grant.of("read=shop"),), "token 1")
    ann = grants.applied_to(token)
    assert ann.may_on(Scope.CHANGE, "shop", "orders")
    assert ann.may_on(Scope.READ, "shop", "others")
    assert ann.credential == "token 1"


def test_circle_of_roles_is_refused(grants: StoredGrants) -> None:
    grants.grant([Grantee.of("role:a")], ["role:b"], "root")
    grants.grant([Grantee.of("role:b")], ["role:c"], "root")
    with pytest.raises(InvalidValueError, match="would have itself"):
        grants.grant([Grantee.of("role:c")], ["role:a"], "root")
    assert len(grants.all()) == 2


def test_revoke_names_what_is_missing(grants: StoredGrants) -> None:
    with pytest.raises(UnknownNameError, match=r"`user:ann` has no grant read=shop\.\*"):
        grants.revoke([Grantee.of("ann")], ["read=shop"])


# ---- files of an issuer's grants ----


def test_grants_file_is_read_again_and_a_broken_one_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "grants.json"
    path.write_text(json.dumps({"eng": ["read=shop"]}))
    file = GrantsFile(str(path))
    issuer = Issuer("https://issuer", "lake", scope_claim="groups", file=file)
    claims = {"groups": ["eng"]}
    assert issuer.grants(claims) == (Grant.of("read=shop"),)
    path.write_text(json.dumps({"eng": ["write=shop", "read"]}))
    assert file.look()
    assert issuer.grants(claims) == (Grant.of("write=shop"), Grant.of("read"))
    path.write_text("{")
    assert not file.look()
    assert issuer.grants(claims) == (Grant.of("write=shop"), Grant.of("read"))
    (fact,) = file.facts()
    assert "can't be read" in fact.problem
    path.unlink()
    assert not file.look()
    path.write_text(json.dumps({"eng": ["read=shop"]}))
    assert file.look()
    assert issuer.grants(claims) == (Grant.of("read=shop"),)
    assert not next(file.facts()).problem


# ---- at a coordinator ----


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("grants")
    for name in ("orders", "logs", "salaries"):
        columns = "(k INT NOT NULL, v STRING)"
        options = "'primary-key' = 'k', 'bucket' = '1', 'auto_batch_load' = 'true'"
        create_table(
            folder / "warehouse", f"CREATE TABLE {name} {columns} TBLPROPERTIES ({options})"
        )
    create_table(folder / "warehouse", "CREATE TABLE plain (k INT, v STRING)")
    process = Process(folder / "warehouse", folder / "state", "--audit-table=ops.audit")
    process.start()
    yield process
    process.close()


def ask(process: Process, token: str, method: str, path: str, body: object = None) -> int:
    answer = httpx.request(
        method,
        f"{process.address}{path}",
        json=body,
        headers={"Authorization": f"Bearer {token}"},
        trust_env=False,
    )
    return answer.status_code


INSERT = "/v1/inserts/default/orders"


@pytest.mark.parametrize(
    ("scope", "insert", "delete", "flush", "drop"),
    [
        ("read", 403, 403, 403, 403),
        ("insert", 200, 403, 200, 403),
        ("change", 200, 200, 200, 403),
        ("maintain", 403, 403, 403, 403),
        ("alter", 403, 403, 403, 200),
        ("write", 200, 200, 200, 200),
    ],
)
def test_each_request_takes_its_scope(
    process: Process, scope: str, insert: int, delete: int, flush: int, drop: int
) -> None:
    token = token_of(process, f"user_{scope}", f"{scope}=default.orders", f"{scope}=default.tmp_*")
    row = {"rows": [[1, "a"]]}
    assert ask(process, token, "POST", INSERT, row) == insert
    assert ask(process, token, "POST", INSERT, {"delete": {"keys": [[1]]}}) == delete
    assert ask(process, token, "POST", f"{INSERT}/flush", {"wait_ms": 0}) in (flush, 504)
    create_table(process.warehouse, f"CREATE TABLE tmp_{scope} (k INT)")
    path = f"/v1/paimon/databases/default/tables/tmp_{scope}"
    assert ask(process, token, "DELETE", path) == drop


@pytest.mark.parametrize("allowed", ["read", "read=default.orders", "alter", "maintain=default.*"])
def test_commit_needs_a_scope_that_adds_rows(process: Process, allowed: str) -> None:
    token = token_of(process, f"only_{allowed.partition('=')[0]}", allowed)
    table = {"database": "default", "table": "orders"}
    assert ask(process, token, "POST", "/v1/transactions", {"table": table}) == 403
    compacting = {"table": table, "compacts": True}
    may = 200 if allowed.startswith("maintain") else 403
    assert ask(process, token, "POST", "/v1/transactions", compacting) == may
    path = "/v1/paimon/databases/default/tables/orders/commit"
    snapshot = {"id": 1, "commitKind": "APPEND", "commitUser": "u"}
    assert ask(process, token, "POST", path, {"snapshot": snapshot}) == 403


PLAIN = TableName("plain", "default")


def test_insert_scope_commits_no_removal(process: Process) -> None:
    token = token_of(process, "ingest", "insert=default.plain")
    client = RemoteCoordinator(At(Addresses.of(process.address), token))
    catalog = Catalog.open({"warehouse": str(process.warehouse)})
    try:
        transaction = client.begin(PLAIN)
        rows = write(catalog, transaction, [{"k": 1, "v": "a"}])
        client.commit(CommitRequest(transaction, Append(), rows))
        again = client.begin(PLAIN)
        for removal in (OverwritePartitions(), OverwriteTouched()):
            with pytest.raises(SetupError, match="requires the scope `change`"):
                client.commit(CommitRequest(again, removal))
        document = request_document(CommitRequest(again, OverwritePartitions()))
        adopted = {**document, "transaction": transaction_document(again)}
        unknown = f"/v1/transactions/{uuid.uuid4().hex}/commit"
        assert ask(process, token, "POST", unknown, adopted) == 403
        client.abort(again)
    finally:
        client.close()
    commit = "/v1/paimon/databases/default/tables/plain/commit"
    for kind in ("APPEND", "COMPACT", "OVERWRITE", "ANALYZE"):
        snapshot = {"id": 2, "commitKind": kind, "commitUser": "u"}
        assert ask(process, token, "POST", commit, {"snapshot": snapshot}) == 403
    assert read(catalog, PLAIN) == [{"k": 1, "v": "a"}]


def test_compaction_that_loses_rows_is_told_from_others(process: Process) -> None:
    catalog = Catalog.open({"warehouse": str(process.warehouse)})
    client = process.client()
    transaction = client.begin(PLAIN)
    bodies = write(catalog, transaction, [{"k": 1, "v": "a"}, {"k": 2, "v": "b"}])
    (written,) = read_messages(catalog.load(PLAIN).paimon, bodies)
    client.abort(transaction)
    (file,) = written.new_files
    less = copy.copy(file)
    less.row_count = 1

    def loses(before: Sequence[object], after: Sequence[object], is_keyed: bool) -> bool:
        message = CommitMessage(
            written.partition, 0, [], compact_before=list(before), compact_after=list(after)
        )
        return _loses_rows([message], is_keyed)

    assert not loses([file], [file], is_keyed=False)
    assert loses([file], [less], is_keyed=False)
    assert loses([file], [], is_keyed=False)
    assert not loses([file], [less], is_keyed=True)  # two rows of one key
    assert loses([file], [], is_keyed=True)
    assert loses([], [file], is_keyed=True)
    assert loses([less], [file], is_keyed=True)


def test_values_that_delete_take_the_scope_change(process: Process) -> None:
    columns = "(k INT NOT NULL, v STRING, op STRING)"
    options = "'primary-key' = 'k', 'bucket' = '1', 'auto_batch_load' = 'true'"
    create_table(
        process.warehouse,
        f"CREATE TABLE kinds {columns} TBLPROPERTIES ({options}, 'rowkind.field' = 'op')",
    )
    path, row = "/v1/inserts/default/kinds", {"rows": [[1, "a", "-D"]]}
    for scope, status in (("insert", 403), ("change", 200)):
        token = token_of(process, f"kinds_{scope}", f"{scope}=default.kinds")
        assert ask(process, token, "POST", path, row) == status


@pytest.mark.parametrize("text", ["write=", "write=.t", "write=" + "x" * 300])
def test_unclear_patterns_are_refused(text: str) -> None:
    with pytest.raises(InvalidValueError):
        Grant.of(text)


def test_pattern_matches_in_linear_time() -> None:
    grant = Grant.of("read=" + "*".join("a" * 40) + ".t")
    began = time.monotonic()
    assert not grant.matches("a" * 250 + "b", "t")
    assert grant.matches("a" * 250, "t")
    assert time.monotonic() - began < 5
    assert Grant.of("read=a*b*c.x*").matches("a-b-b-c", "xyz")
    assert not Grant.of("read=ab*ba.t").matches("aba", "t")


def test_revoked_grants_end_though_others_look_meanwhile(grants: StoredGrants) -> None:
    ann = Principal.granted("ann", ())
    grants.grant([Grantee.of(f"u{i}") for i in range(500)], ["read"], "root")
    for _ in range(10):
        grants.grant([Grantee.of("ann")], ["admin"], "root")
        with ThreadPoolExecutor(4) as threads:
            looking = [
                threads.submit(lambda: [grants.applied_to(ann) for _ in range(20)])
                for _ in range(4)
            ]
            grants.revoke([Grantee.of("ann")], ["admin"])
            for each in looking:
                each.result()
        assert not grants.applied_to(ann).may(Scope.READ)


@pytest.fixture
def eve(spark: SparkSession, process: Process) -> Iterator[paimon_magics.Session]:
    token = token_of(process, "eve", "read=default.logs")
    with paimon_magics.connect(coordinator=process.address, token=token, spark=spark) as session:
        yield session


def change(process: Process, path: str, to: str, *allow: str) -> None:
    assert ask(process, process.token(), "POST", path, {"to": [to], "allow": allow}) == 200


def refusal(session: paimon_magics.Session, statement: str) -> str:
    try:
        session.run(statement)
    except SetupError as error:
        return error.text()
    return ""


@pytest.mark.spark
def test_grants_count_in_running_sessions(eve: paimon_magics.Session, process: Process) -> None:
    with pytest.raises(UnknownNameError):
        eve.run("SELECT * FROM orders")
    change(process, "/v1/grants", "eve", "insert=default.orders")
    wait_until(lambda: "orders" in str(eve.run("SHOW TABLES")))
    eve.run("INSERT INTO orders VALUES (7, 'eve')")
    for statement in (
        "DELETE FROM orders WHERE k = 7",
        "INSERT OVERWRITE orders VALUES (8, 'x')",
        "TRUNCATE TABLE orders",
    ):
        text = refusal(eve, statement)
        assert (
            "eve lacks permission for this on `default.orders`: it requires the scope `change`"
            in text
        )
        assert "GRANT CHANGE ON default.orders TO eve" in text
    assert "`alter`" in refusal(eve, "ALTER TABLE orders ADD COLUMN x INT")
    assert eve.run("SELECT v FROM orders WHERE k = 7").to_arrow().to_pylist() == [{"v": "eve"}]

    change(process, "/v1/grants", "role:fixers", "change=default.orders")
    change(process, "/v1/grants", "eve", "role:fixers")
    eve.run("DELETE FROM orders WHERE k = 7")
    shown = eve.run("SHOW GRANTS").to_arrow().to_pylist()
    assert {(row["grantee"], row["scope"], row["tables"]) for row in shown} == {
        ("user:eve", "INSERT", "default.orders"),
        ("user:eve", "ROLE", "fixers"),
        ("role:fixers", "CHANGE", "default.orders"),
    }
    change(process, "/v1/grants/revoke", "eve", "role:fixers")
    assert "`change`" in refusal(eve, "DELETE FROM orders WHERE k = 8")
    change(process, "/v1/grants/revoke", "eve", "insert=default.orders")
    wait_until(lambda: "orders" not in str(eve.run("SHOW TABLES")))


@pytest.mark.spark
def test_only_administrators_grant(eve: paimon_magics.Session, process: Process) -> None:
    assert "`admin`" in refusal(eve, "GRANT ADMIN ON WAREHOUSE TO eve")
    assert "`admin`" in refusal(eve, "REVOKE READ ON DATABASE default FROM ROLE fixers")
    other = token_of(process, "other", "read")
    with pytest.raises(SetupError, match="another token"):
        paimon_magics.connect(coordinator=process.address, token=other)


@pytest.mark.spark
def test_statements_grant_revoke_and_show(spark: SparkSession, process: Process) -> None:
    token = process.token()
    with paimon_magics.connect(coordinator=process.address, token=token, spark=spark) as admin:
        done = admin.run("GRANT READ, INSERT ON log_* TO zed, ROLE `data team`")
        assert "4 grants changed" in str(done.message)
        admin.run("GRANT ROLE `data team` TO GROUP 'a@b'")
        admin.run("GRANT MAINTAIN ON DATABASE shop TO zed")
        rows = admin.run("SHOW GRANTS TO USER zed").to_arrow().to_pylist()
        assert [(row["scope"], row["tables"]) for row in rows] == [
            ("INSERT", "default.log_*"),
            ("MAINTAIN", "shop.*"),
            ("READ", "default.log_*"),
        ]
        zone = spark.conf.get("spark.sql.session.timeZone")
        spark.conf.set("spark.sql.session.timeZone", "Pacific/Kiritimati")
        try:
            told = admin.run("SHOW GRANTS TO USER zed").to_pylist()[0]["granted_at"]
        finally:
            spark.conf.set("spark.sql.session.timeZone", zone)
        there = datetime.datetime.now(ZoneInfo("Pacific/Kiritimati")).replace(tzinfo=None)
        clock, _, name = told.rpartition(" ")
        assert name == "Pacific/Kiritimati"
        assert abs(there - datetime.datetime.fromisoformat(clock)) < datetime.timedelta(minutes=10)
        rows = admin.run("SHOW GRANTS ON log_days").to_arrow().to_pylist()
        assert {row["grantee"] for row in rows} == {"user:zed", "role:data team"}
        admin.run("REVOKE READ ON default.log_* FROM zed")
        with pytest.raises(UnknownNameError, match="has no grant"):
            admin.run("REVOKE READ ON default.log_* FROM zed")


@pytest.mark.spark
def test_grants_need_a_coordinator(session: paimon_magics.Session) -> None:
    with pytest.raises(SetupError):
        session.run("GRANT READ ON DATABASE default TO eve")


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("GRANT SELECT ON t TO eve", "Write READ. The scopes are READ, INSERT"),
        ("GRANT REED ON t TO eve", "Did you mean `READ`?"),
        ("GRANT READ TO eve", "Expected `ON`"),
        ("GRANT READ ON t", "Expected `TO`"),
        ("REVOKE READ ON t TO eve", "Expected `FROM`"),
        ("GRANT READ ON t TO", "Expected the name of a user, role or group"),
    ],
)
def test_wrong_grants_name_the_place(statement: str, said: str) -> None:
    from paimon_magics.statements.grammar.parsing import parse_cell

    with pytest.raises(StatementSyntaxError) as caught:
        parse_cell(statement)
    assert said in caught.value.text()


# ---- from the command line ----


def test_tokens_and_grants_change_from_the_command_line(
    process: Process, capsys: pytest.CaptureFixture[str]
) -> None:
    state = f"--state={process.state}"
    token = token_of(process, "zoe", "read=default.logs")
    assert ask(process, token, "POST", "/v1/inserts/default/logs", {"rows": [[1, "a"]]}) == 403
    assert main(["token", "allow", "zoe", "insert=default.logs", state]) == 0
    assert ask(process, token, "POST", "/v1/inserts/default/logs", {"rows": [[1, "a"]]}) == 200
    assert main(["grant", "change=default.logs", "--to=zoe", state]) == 0
    assert main(["grants", state]) == 0
    assert "user:zoe change=default.logs" in " ".join(capsys.readouterr().out.split())
    assert main(["revoke", "change=default.logs", "--from=zoe", state]) == 0
    assert main(["revoke", "change=default.logs", "--from=zoe", state]) == 2
    assert main(["token", "revoke", "zoe", state]) == 0
    assert main(["token", "renew", "zoe", state]) == 2
    assert "was revoked" in capsys.readouterr().err


def test_grants_change_where_no_coordinator_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkdir(tmp_path / "state")
    state = f"--state={tmp_path / 'state'}"
    assert main(["grant", "read=shop", "--role=sales", "--to=group:eng", state]) == 0
    assert main(["grants", state]) == 0
    out = capsys.readouterr().out
    assert "group:eng may role:sales." in out
    assert "group:eng read=shop.*" in " ".join(out.split())
