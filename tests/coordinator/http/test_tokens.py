"""Tokens with names, scopes and ends: who sees and changes what, and what others learn of it."""

from __future__ import annotations

import json
import re
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pypaimon import CatalogFactory

from paimon_magics.coordinator.__main__ import main
from paimon_magics.coordinator.client.addresses import Addresses, Token
from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.client.starting import At
from paimon_magics.coordinator.http.guard import LoginThrottle
from paimon_magics.coordinator.protocol.principals import Grant, Principal, Scope, grants_of
from paimon_magics.errors import InvalidValueError, PaimonMagicsError, SetupError, UnknownNameError
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.system_tables.registry import table_view
from paimon_magics.tables.system_tables.versions import history
from tests.coordinator.process import Process, create_table, wait_until, write
from tests.coordinator.rest_server import client_options
from tests.oracle.java_reader import JavaPaimon

TABLES = ("orders", "orders_old", "salaries")


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("tokens")
    for name in TABLES:
        create_table(folder / "warehouse", f"CREATE TABLE {name} (k INT)")
    catalog = Catalog.open({"warehouse": str(folder / "warehouse")})
    catalog.create_database("finance")
    made = Process(folder / "warehouse", folder / "state")
    made.start()
    yield made
    made.close()


@pytest.fixture
def command(process: Process, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*words: str, code: int = 0) -> str:
        assert main(["token", *words, f"--state={process.state}"]) == code
        said = capsys.readouterr()
        return (said.out if code == 0 else said.err).strip()

    return run


def ask(process: Process, token: str, method: str, path: str, body: Any = None) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(trust_env=False, headers=headers) as http:
        return http.request(method, process.address + path, json=body)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("read", "read"),
        ("ADMIN", "admin"),
        ("write=shop", "write=shop.*"),
        (" write = shop.orders_* ", "write=shop.orders_*"),
        ("read=*.*", "read"),
        ("read=a.b.c", "read=a.b.c"),
    ],
)
def test_grant_round_trips_through_text(text: str, shown: str) -> None:
    assert str(Grant.of(text)) == shown
    assert Grant.of(shown) == Grant.of(text)


@pytest.mark.parametrize("text", ["", "all", "write=", "write=.t", "write=d.", "read=" + "x" * 300])
def test_invalid_grant_is_rejected_with_an_example(text: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        grants_of([text])
    assert "write=shop" in refused.value.hint


def test_grants_limit_scopes_to_tables() -> None:
    ada = Principal.granted("ada", grants_of(["read=shop.*", "write=shop.orders_*", "admin=own"]))
    assert ada.may(Scope.ADMIN) and not ada.may_everywhere(Scope.READ) and ada.is_limited
    may = [
        (scope, database, table)
        for scope in (Scope.READ, Scope.WRITE, Scope.ADMIN)
        for database in ("shop", "own", "shopping")
        for table in ("orders_1", "xorders_1", None)
        if ada.may_on(scope, database, table)
    ]
    assert may == [
        (Scope.READ, "shop", "orders_1"),
        (Scope.READ, "shop", "xorders_1"),
        (Scope.READ, "shop", None),
        (Scope.READ, "own", "orders_1"),
        (Scope.READ, "own", "xorders_1"),
        (Scope.READ, "own", None),
        (Scope.WRITE, "shop", "orders_1"),
        (Scope.WRITE, "own", "orders_1"),
        (Scope.WRITE, "own", "xorders_1"),
        (Scope.WRITE, "own", None),
        (Scope.ADMIN, "own", "orders_1"),
        (Scope.ADMIN, "own", "xorders_1"),
        (Scope.ADMIN, "own", None),
    ]
    assert Principal.granted("rita", grants_of(["read"])).grants is None
    regex = Principal.granted("eve", grants_of(["read=sh.p.*"]))
    assert not regex.may_on(Scope.READ, "shop", "t")


def test_token_is_added_listed_and_revoked(command: Any, process: Process) -> None:
    token = command("add", "etl", "--allow=write=default.orders*", "--expires=12h")
    assert re.fullmatch(r"pmt_[0-9a-f]{12}_[\w-]{43}", token)
    assert ask(process, token, "GET", "/v1/coordinator").status_code == 200
    listed = command("list")
    assert re.search(r"etl +write=default\.orders\* .* until ", listed)
    assert token.rpartition("_")[2] not in listed
    # Of the secret nothing is on the disk.
    secret = token.split("_", 2)[2].encode()
    assert not [f for f in process.state.iterdir() if f.is_file() and secret in f.read_bytes()]
    process.kill()  # and it is durable, and known where no coordinator runs
    assert "etl" in command("list")
    other = command("add", "offline", "--expires=never")
    process.start()
    assert ask(process, token, "GET", "/v1/coordinator").status_code == 200
    assert ask(process, other, "GET", "/v1/coordinator").status_code == 200
    assert "is revoked" in command("revoke", "etl")
    refused = ask(process, token, "GET", "/v1/coordinator")
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert "ended before" in command("revoke", "etl")
    assert "was revoked" in command("renew", "etl", code=2)
    assert "revoked 20" in command("list")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["add", "x", "--expires=soon"], "`soon` is not a duration"),
        (["add", "x", "--allow=everything"], "is not a known permission"),
        (["add", "service:x"], "not a valid name of a token"),
        (["add", ""], "not a valid name of a token"),
        (["revoke", "nobody"], "There is no token `nobody`"),
    ],
)
def test_wrong_token_command_is_named(command: Any, words: list[str], message: str) -> None:
    assert message in command(*words, code=2)


def test_only_administrators_of_everything_manage_tokens(command: Any, process: Process) -> None:
    for allow in ("write", "admin=default", "admin=default.*"):
        token = command("add", "climber", f"--allow={allow}")
        for method, path in (("GET", "/v1/tokens"), ("POST", "/v1/tokens")):
            body = {"name": "x", "allow": ["admin"]} if method == "POST" else None
            assert ask(process, token, method, path, body).status_code == 403
        for path in ("/", "/metrics"):
            code = ask(process, token, "GET", path).status_code
            assert code == (200 if allow == "write" else 403), (allow, path)
        assert ask(process, token, "POST", "/v1/coordinator/pause", {}).status_code == 403
    token = command("add", "root", "--allow=admin")
    assert ask(process, token, "GET", "/v1/tokens").status_code == 200


def test_hidden_table_is_indistinguishable_from_a_missing_table(
    command: Any, process: Process
) -> None:
    token = command("add", "rita", "--allow=read=default.orders*", "--allow=write=default.orders")
    root = "/v1/paimon/databases"

    def answered(method: str, path: str, body: Any = None) -> tuple[int, str]:
        answer = ask(process, token, method, path, body)
        return answer.status_code, answer.text

    assert ask(process, token, "GET", root).json()["databases"] == ["default"]
    assert ask(process, token, "GET", f"{root}/default/tables").json()["tables"] == [
        "orders",
        "orders_old",
    ]
    details = ask(process, token, "GET", f"{root}/default/table-details").json()["tableDetails"]
    assert [each["name"] for each in details] == ["orders", "orders_old"]
    everywhere = ask(process, token, "GET", "/v1/paimon/tables").json()["tables"]
    assert {each["object"] for each in everywhere} == {"orders", "orders_old"}

    # The hidden table, and one of the same length that is nowhere.
    for method, path, body in (
        ("GET", root + "/default/tables/{}", None),
        ("GET", root + "/default/tables/{}$branch_b", None),
        ("GET", root + "/default/tables/{}/snapshot", None),
        ("DELETE", root + "/default/tables/{}", None),
        ("POST", root + "/default/tables/{}", {"changes": []}),
        ("POST", root + "/default/tables/{}/commit", {"snapshot": {}}),
        ("GET", "/v1/inserts/default/{}", None),
        ("POST", "/v1/inserts/default/{}", [{"k": 1}]),
        ("POST", "/v1/transactions", {"table": {"database": "default", "table": "{}"}}),
        (
            "POST",
            "/v1/tables/versions",
            {
                "table": {"database": "default", "table": "{}"},
                "change": {"kind": "DeleteTags", "tags": ["x"]},
                "repeated": False,
            },
        ),
        (
            "POST",
            "/v1/leases",
            {
                "holder": "h",
                "leases": [{"table": {"database": "default", "table": "{}"}, "snapshot_id": 1}],
            },
        ),
        (
            "POST",
            "/v1/paimon/tables/rename",
            {
                "source": {"database": "default", "object": "{}"},
                "destination": {"database": "default", "object": "orders"},
            },
        ),
        ("GET", root + "/default/views/{}", None),
        ("DELETE", root + "/default/views/{}", None),
        ("POST", root + "/default/functions/{}", {"changes": []}),
        (
            "POST",
            "/v1/paimon/views/rename",
            {
                "source": {"database": "default", "object": "{}"},
                "destination": {"database": "default", "object": "orders"},
            },
        ),
        ("GET", root + "/{}", None),
        ("GET", root + "/{}/tables", None),
        ("GET", root + "/{}/views", None),
        ("GET", "/v1/databases/{}", None),
    ):
        is_database = path.endswith(("databases/{}", "/{}/tables", "/{}/views"))
        hidden, nowhere = ("finance", "nowhere") if is_database else ("salaries", "nosuches")
        code, text = answered(method, path.format(hidden), filled(body, hidden))
        other = answered(method, path.format(nowhere), filled(body, nowhere))
        assert (code, text) == (other[0], other[1].replace(nowhere, hidden)), (method, path)
        assert code == 404, (method, path, text)
        assert not set(TABLES) - {hidden} & set(re.findall(r"\w+", text))
    # What may be read and not written is refused by name.
    code, text = answered("DELETE", f"{root}/default/tables/orders_old")
    assert code == 403 and "`default.orders_old`" in text and "`alter`" in text
    code, text = answered("POST", "/v1/inserts/default/orders_old", [{"k": 1}])
    assert code == 403
    # Neither is a name taken by creating or renaming.
    for name in ("salaries", "nosuches"):
        made = {"identifier": {"database": "default", "object": name}, "schema": SCHEMA}
        assert answered("POST", f"{root}/default/tables", made)[0] == 403
        to = {"database": "default", "object": name}
        renamed = {"source": {"database": "default", "object": "orders"}, "destination": to}
        assert answered("POST", "/v1/paimon/tables/rename", renamed)[0] == 403
    assert answered("POST", "/v1/paimon/databases", {"name": "finance"})[0] == 403
    assert answered("DELETE", f"{root}/default")[0] == 403


SCHEMA = {
    "fields": [{"id": 0, "name": "k", "type": "INT"}],
    "partitionKeys": [],
    "primaryKeys": [],
    "options": {},
}


def filled(body: Any, name: str) -> Any:
    match body:
        case dict():
            return {key: filled(value, name) for key, value in body.items()}
        case list():
            return [filled(each, name) for each in body]
        case str():
            return body.replace("{}", name)
        case _:
            return body


def test_hidden_and_missing_tables_take_the_same_time(command: Any, process: Process) -> None:
    token = command("add", "timer", "--allow=read=default.orders")
    headers = {"Authorization": f"Bearer {token}"}
    took: dict[str, list[float]] = {"salaries": [], "nosuches": []}
    with httpx.Client(trust_env=False, headers=headers) as http:
        for _ in range(60):
            for name, seconds in took.items():
                began = time.perf_counter()
                http.get(f"{process.address}/v1/paimon/databases/default/tables/{name}")
                seconds.append(time.perf_counter() - began)
    hidden, nowhere = (statistics.median(seconds) for seconds in took.values())
    assert 0.5 < hidden / nowhere < 2


def test_transactions_of_hidden_tables_are_hidden_and_commits_name_users(
    command: Any, process: Process
) -> None:
    catalog = Catalog.open({"warehouse": str(process.warehouse)})
    wim = RemoteCoordinator(
        At(process.address, command("add", "wim", "--allow=write=default.orders"))
    )
    paid = RemoteCoordinator(
        At(process.address, command("add", "hr", "--allow=write=default.salaries"))
    )
    try:
        table = TableName("salaries", "default")
        with pytest.raises(UnknownNameError, match="There is no table `salaries`"):
            wim.begin(table)
        open_one = paid.begin(table)
        assert [t.id for t in wim.administration().transactions()] == []
        shown = paid.administration().transactions()
        assert [t.owner for t in shown if t.phase == "active"] == ["hr"]
        held = shown[0].id
        token = command("add", "wim", "--allow=admin=default.orders")
        for path in (f"/v1/transactions/{held}", f"/v1/transactions/{'0' * 32}"):
            assert ask(process, token, "GET", path).status_code == 404
        for word in ("abort", "heartbeat"):
            path = f"/v1/transactions/{held}/{word}"
            assert ask(process, token, "POST", path, {}).status_code in (404, 410)
        paid.commit(CommitRequest(open_one, Append(), write(catalog, open_one, [{"k": 1}])))
        assert history(table_view(catalog, table))["user"].to_pylist() == ["hr"]
    finally:
        wim.close()
        paid.close()


def test_client_continues_with_a_new_token_after_revocation(
    command: Any, process: Process, tmp_path: Path
) -> None:
    catalog = Catalog.open({"warehouse": str(process.warehouse)})
    file = tmp_path / "token"
    file.write_text(command("add", "job", "--allow=write") + "\n")
    at = At(Addresses.of(process.address), Token(read=file.read_text))
    client = RemoteCoordinator(at)
    table = TableName("orders", "default")
    try:
        transaction = client.begin(table)
        messages = write(catalog, transaction, [{"k": 1}])
        command("revoke", "job")
        file.write_text(command("add", "job", "--allow=write"))
        assert client.commit(CommitRequest(transaction, Append(), messages)).snapshot_id == 1
        command("revoke", "job")
        with pytest.raises(SetupError, match="token is wrong, expired or revoked"):
            client.warehouse()
    finally:
        client.close()


def test_refusal_of_a_limited_token_names_the_scope_on_all_tables(
    command: Any, process: Process
) -> None:
    token = command("add", "partial", "--allow=write=default.orders").strip()
    headers = {"Authorization": f"Bearer {token}"}
    refused = httpx.get(f"{process.address}/metrics", headers=headers, trust_env=False)
    assert refused.status_code == 403
    assert (
        "partial lacks permission for this request: it requires the scope `read` on all tables."
        in refused.text
    )
    assert "GRANT READ ON WAREHOUSE TO partial" in refused.text


def test_commit_is_refused_when_rights_are_revoked_after_begin(
    command: Any, process: Process, tmp_path: Path
) -> None:
    catalog = Catalog.open({"warehouse": str(process.warehouse)})
    file = tmp_path / "token"
    file.write_text(command("add", "narrowed", "--allow=write=default.orders"))
    client = RemoteCoordinator(At(Addresses.of(process.address), Token(read=file.read_text)))
    table = TableName("orders", "default")
    try:
        for allows, message in (
            (
                "read",
                "narrowed lacks permission for this on `default.orders`: it requires the scope",
            ),
            ("write=default.salaries", "There is no table `orders`"),
        ):
            transaction = client.begin(table)
            request = CommitRequest(transaction, Append(), write(catalog, transaction, [{"k": 9}]))
            before = len(history(table_view(catalog, table)))
            command("revoke", "narrowed")
            allowed = (f"--allow={allows}", "--allow=write=default.salaries")
            file.write_text(command("add", "narrowed", *allowed))
            with pytest.raises(PaimonMagicsError, match=message):
                client.commit(request)
            assert len(history(table_view(catalog, table))) == before
            command("revoke", "narrowed")
            file.write_text(command("add", "narrowed", "--allow=write=default.orders"))
            client.abort(transaction)
    finally:
        client.close()


def test_pypaimon_goes_on_when_its_token_is_renewed(command: Any, process: Process) -> None:
    token = command("add", "pypaimon", "--allow=write=default.orders_old", "--expires=90d")
    id = token.split("_")[1]
    catalog = CatalogFactory.create(client_options(process.address, Path(process.warehouse), token))
    assert catalog.list_tables("default") == ["orders_old"]
    admin = process.token()
    assert ask(process, admin, "POST", f"/v1/tokens/{id}/renew", {"expires_in_ms": 1}).is_success
    wait_until(lambda: ask(process, token, "GET", "/v1/config").status_code == 401)
    with pytest.raises(Exception, match=r"401|[Nn]ot ?[Aa]uthorized|ended"):
        catalog.list_tables("default")
    command("renew", id, "--expires=1h")
    table = catalog.get_table("default.orders_old")
    builder = table.new_batch_write_builder()
    writer, commit = builder.new_write(), builder.new_commit()
    import pyarrow as pa

    writer.write_arrow(pa.table({"k": pa.array([7], pa.int32())}))
    commit.commit(writer.prepare_commit())
    mine = Catalog.open({"warehouse": str(process.warehouse)})
    written = history(table_view(mine, TableName("orders_old", "default")))
    assert written["user"].to_pylist() == ["pypaimon"]


@pytest.mark.java
@pytest.mark.spark
def test_java_and_pypaimon_reread_a_rotated_token_file_during_a_job(
    command: Any, process: Process, tmp_path: Path, java_paimon: JavaPaimon
) -> None:
    catalog = Catalog.open({"warehouse": str(process.warehouse)})
    file = tmp_path / "token.json"

    def handed_out() -> None:
        """As a sidecar does: the token's time is short, so clients look again at each request."""
        command("revoke", "nightly")
        give()

    def give() -> None:
        soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 600))
        token = command("add", "nightly", "--allow=write=default.orders", "--expires=10m")
        document = {"AccessKeyId": "-", "AccessKeySecret": "-", "Expiration": soon}
        aside = file.with_suffix(".new")
        aside.write_text(json.dumps({**document, "SecurityToken": token}))
        aside.rename(file)

    options = {
        **client_options(process.address, Path(process.warehouse)),
        "token.provider": "dlf",
        "dlf.token-path": str(file),
        "dlf.region": "cn-none",
    }
    options.pop("token")
    table = TableName("orders", "default")
    before = len(history(table_view(catalog, table)))
    give()
    prepared = java_paimon.prepare(options, "default.orders", [(40,)])
    opened = CatalogFactory.create(options).get_table("default.orders")
    writer = opened.new_batch_write_builder()
    write, commit = writer.new_write(), writer.new_commit()
    write.write_arrow(pa.table({"k": pa.array([41], pa.int32())}))
    messages = write.prepare_commit()
    handed_out()
    java_paimon.commit(options, prepared)
    commit.commit(messages)
    assert history(table_view(catalog, table))["user"].to_pylist()[:2] == ["nightly"] * 2
    # The file still has the token that was revoked: nothing is committed.
    prepared = java_paimon.prepare(options, "default.orders", [(42,)])
    command("revoke", "nightly")
    with pytest.raises(Exception, match="NotAuthorizedException"):
        java_paimon.commit(options, prepared)
    assert len(history(table_view(catalog, table))) == before + 2


def test_throttle_counts_guesses_by_address_and_spares_known_tokens() -> None:
    now = 0.0
    guesses = LoginThrottle(clock=lambda: now)
    guesses.was_right("a", "good")
    for guess in range(20):
        assert guesses.wait_seconds("a", str(guess)) == 0
        guesses.was_wrong("a", str(guess))
    assert guesses.wait_seconds("a", "20") == 60
    assert guesses.wait_seconds("a", "good") == 0
    assert guesses.wait_seconds("b", "20") == 0
    now += 61
    assert guesses.wait_seconds("a", "20") == 0
    guesses.was_wrong("a", "good")  # it has ended
    for guess in range(20):
        guesses.was_wrong("a", str(guess))
    assert guesses.wait_seconds("a", "good") > 0


def test_repeated_token_guesses_are_throttled(tmp_path: Path) -> None:
    process = Process(tmp_path / "warehouse", tmp_path / "state")
    process.start()
    try:
        good = process.token()
        assert ask(process, good, "GET", "/v1/coordinator").is_success
        codes = [
            ask(process, f"{good}{n}", "GET", "/v1/coordinator").status_code for n in range(25)
        ]
        assert codes == [401] * 20 + [429] * 5
        assert ask(process, good, "GET", "/v1/coordinator").is_success
        answer = ask(process, "pmt_000000000000_" + "x" * 43, "GET", "/v1/coordinator")
        assert answer.status_code == 429 and int(answer.headers["retry-after"]) > 0
        assert good not in answer.text
    finally:
        process.close()


def test_token_function_without_a_token_is_rejected() -> None:
    for text in ("", "a\nb", "tökén"):
        with pytest.raises(PaimonMagicsError, match="contains no token"):
            Token(read=lambda text=text: text)  # type: ignore[misc]


def test_user_cannot_release_leases_of_another_user(process: Process, command: Any) -> None:
    catalog = Catalog.open({"warehouse": str(process.warehouse)})
    client = process.client()
    transaction = client.begin(TableName("orders_old", "default"))
    messages = write(catalog, transaction, [{"k": 1}])
    receipt = client.commit(CommitRequest(transaction, Append(), messages))
    ana, ben = (command("add", name, "--allow=read") for name in ("ana", "ben"))
    name = {"database": "default", "table": "orders_old"}
    of_snapshot = {"table": name, "snapshot_id": receipt.snapshot_id}

    def leased() -> float:
        said = ask(process, process.token(), "GET", "/metrics").text
        match = re.search(r"^paimon_coordinator_read_leases (\S+)$", said, re.MULTILINE)
        assert match is not None
        return float(match[1])

    def lease(token: str, *leases: object) -> None:
        answer = ask(process, token, "POST", "/v1/leases", {"holder": "h", "leases": leases})
        assert answer.status_code == 200, answer.text

    before = leased()
    lease(ana, of_snapshot)
    assert leased() == before + 1
    lease(ben)
    assert leased() == before + 1
    lease(ana)
    assert leased() == before


def test_upkeep_takes_the_right_to_maintain_and_tags_that_to_alter(
    process: Process, command: Any
) -> None:
    keeper = command("add", "keeper", "--allow=maintain=default.orders")
    editor = command("add", "editor", "--allow=alter=default.orders")
    changes = {
        "keeper": {"kind": "ClearConsumers", "including": "nobody", "excluding": None},
        "editor": {"kind": "DeleteTags", "tags": ["nothing"]},
    }
    statuses = {
        (name, kind): ask(
            process,
            token,
            "POST",
            "/v1/tables/versions",
            {
                "table": {"database": "default", "table": "orders"},
                "change": change,
                "repeated": False,
            },
        ).status_code
        for name, token in (("keeper", keeper), ("editor", editor))
        for kind, change in changes.items()
    }
    assert statuses == {
        ("keeper", "keeper"): 200,
        ("keeper", "editor"): 403,
        ("editor", "keeper"): 403,
        ("editor", "editor"): 200,
    }
