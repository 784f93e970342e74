"""Coordinators that stand by: what they answer, and that one takes over when the owner dies."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from paimon_magics.coordinator.__main__ import main
from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.client.starting import At
from paimon_magics.coordinator.http.relaying import PASSED_ON
from paimon_magics.coordinator.process.succession import PeerNames
from paimon_magics.errors import SetupError
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.version_changes import CreateBranch, CreateTag, RollBackToSnapshot
from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.commands import done, run
from tests.coordinator.postgres import PostgresServer, start_postgres
from tests.coordinator.process import TABLE, Process, create_table, read, wait_until, write
from tests.coordinator.team import TOKEN, Team, Writer, asked, flushed

APPEND_TABLE = "CREATE TABLE t (k INT, v STRING)"
INSERTED_TABLE = (
    "CREATE TABLE inserted (k INT, v STRING) TBLPROPERTIES ('auto_batch_load' = 'true')"
)
INSERTED = TableName("inserted", "default")
LEASE_SECONDS = 2.0


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    started = start_postgres()
    yield started
    started.remove()


@pytest.fixture(params=["postgres", "warehouse"])
def team(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Team]:
    """Two coordinators, on one PostgreSQL or with the log in the warehouse."""
    options, environment = ["--log=warehouse"], {}
    if request.param == "postgres":
        postgres: PostgresServer = request.getfixturevalue("server")
        options, environment = [f"--store={postgres.empty_database()}"], postgres.environment
    started = Team(tmp_path, 2, *options, environment=environment)
    yield started
    started.close()


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    with httpx.Client(headers={"authorization": f"Bearer {TOKEN}"}, trust_env=False) as client:
        yield client


@pytest.mark.parametrize("team", ["postgres"], indirect=True)
def test_standby_forwards_requests_to_owner(team: Team, http: httpx.Client) -> None:
    owner, standby = team.owner(), team.standby()
    assert team.owners() == [owner]
    ready = http.get(f"{standby.address}/health/ready")
    assert (ready.status_code, ready.json()) == (
        200,
        {"status": "standby", "owner": owner.address},
    )
    assert http.get(f"{owner.address}/health/ready").json()["status"] == "ready"
    for member, value in ((owner, "1.0"), (standby, "0.0")):
        metrics = http.get(f"{member.address}/metrics").text
        assert f"\npaimon_coordinator_owner {value}\n" in metrics
    assert asked(standby, "/health/ready", "wrong") == 401
    probe = httpx.get(f"{standby.address}/health/ready", trust_env=False)
    assert (probe.status_code, probe.json()) == (200, {"status": "standby"})
    started = httpx.get(f"{standby.address}/health/startup", trust_env=False)
    assert (started.status_code, started.json()) == (200, {"status": "started"})
    for path in ("/metrics", "/v1/coordinator", "/v1/paimon/databases"):
        assert asked(standby, path) == asked(standby, path, "wrong") == 401
    # What is asked of one and of the other is answered the same, whatever is in the address.
    for path in ("/v1/transactions", "/v1/paimon/databases/a%2Fb%20%25?x=%2F&y=", "/nothing", "/"):
        one, other = (http.get(member.address + path) for member in (owner, standby))
        assert (one.status_code, one.headers["content-type"]) == (
            other.status_code,
            other.headers["content-type"],
        )
    body = b'{"columns": ["k"], "rows": [' + b"[1]," * 200_000 + b"[2]]}"
    create_table(team.warehouse, INSERTED_TABLE)
    answer = http.post(
        f"{standby.address}/v1/inserts/default/inserted",
        content=iter([body[:70_000], body[70_000:]]),  # without a length
        headers={"content-type": "application/json", "group_commit": "sync_mode"},
        timeout=60,
    )
    assert answer.status_code == 200, answer.text
    assert len(read(Catalog.open({"warehouse": str(team.warehouse)}), INSERTED)) == 200_001


def test_killed_owner_is_succeeded_without_lost_or_duplicate_rows(
    team: Team,
) -> None:
    catalog = create_table(team.warehouse, APPEND_TABLE)
    create_table(team.warehouse, INSERTED_TABLE)
    team.owner()
    writers = [
        Writer(team.addresses, kind, number, catalog)
        for number, kind in enumerate(["commits", "commits", "inserts", "inserts"])
    ]
    takeovers = []
    for _ in range(2):
        for writer in writers:
            writer.wait_for_another()
        owner = team.owner()
        owner.kill()
        died = time.monotonic()
        wait_until(lambda: bool(team.owners()))
        takeovers.append(time.monotonic() - died)
        owner.start()  # as a supervisor does; it stands by
    print("takeovers in seconds:", takeovers)
    for writer in writers:
        writer.end()
    assert max(takeovers) < 3 * LEASE_SECONDS, "a takeover takes a lease and the start of the parts"
    flushed(team, INSERTED.table)
    for table, kind in ((TABLE, "commits"), (INSERTED, "inserts")):
        keys = [key for writer in writers if writer.kind == kind for key in writer.written]
        assert sorted(int(str(row["k"])) for row in read(catalog, table)) == sorted(keys)


def test_command_with_a_standbys_folder_names_the_owner(
    team: Team, capfd: pytest.CaptureFixture[str]
) -> None:
    owner, standby = team.owner(), team.standby()
    words = ["token", "list", f"--state={standby.state}"]
    assert "id" in done(*words)  # the owner has the same token
    done("rotate", "own-token", "--overlap=0m", f"--state={standby.state}")
    wait_until(lambda: asked(standby, "/metrics", standby.token()) == 200)
    assert run(*words)[0] == 2
    said = capfd.readouterr().err
    assert "is a standby" in said
    assert f"at {owner.address}." in said


@pytest.mark.parametrize("team", ["postgres"], indirect=True)
def test_frozen_owner_is_succeeded_and_becomes_standby(team: Team) -> None:
    catalog = create_table(team.warehouse, APPEND_TABLE)
    owner, standby = team.owner(), team.standby()
    client = RemoteCoordinator(At(standby.address, TOKEN))
    opened = client.begin(TABLE)
    request = CommitRequest(opened, Append(), write(catalog, opened, [{"k": 1}]))
    assert owner.running is not None
    owner.running.send_signal(signal.SIGSTOP)
    # The store's session of the one that stands still is ended, else the lock would stay.
    assert client.commit(request).snapshot_id == 1
    assert team.owners() == [standby]
    owner.go_on()
    wait_until(lambda: asked(owner, "/health/ready", TOKEN) == 200)
    assert asked(owner, "/health/owner") == 503
    assert client.commit(request).snapshot_id == 1
    commit_row(RemoteCoordinator(At(owner.address, TOKEN)), catalog, 2)
    assert sorted(row["k"] for row in read(catalog)) == [1, 2]
    client.close()
    assert [standby.end(), owner.end()] == [0, 0]


@pytest.mark.parametrize("team", ["warehouse"], indirect=True)
def test_stream_through_a_standby_must_reconnect_after_the_owner_dies(team: Team) -> None:
    create_table(team.warehouse, INSERTED_TABLE)
    owner, standby = team.owner(), team.standby()
    url = standby.address.replace("http", "ws") + "/v1/inserts/default/inserted/stream?channel=c"
    headers = {"authorization": f"Bearer {TOKEN}"}
    with pytest.raises(InvalidStatus, match="401"), connect(url, proxy=None):
        pass
    with connect(url + "&offset=0", additional_headers=headers, proxy=None) as stream:
        stream.send(json.dumps({"columns": ["k"], "rows": [[1]]}))
        assert json.loads(stream.recv())[0]["offset"] == 0
        owner.kill()
        with pytest.raises(ConnectionClosed) as closed:
            stream.recv()
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1012
    with connect(
        url + "&offset=0", additional_headers=headers, proxy=None, open_timeout=20
    ) as stream:
        for key in (1, 2):
            stream.send(json.dumps({"columns": ["k"], "rows": [[key]]}))
        answers: list[dict[str, object]] = []
        while len(answers) < 2:
            answers += json.loads(stream.recv())
        assert [(one["offset"], one.get("duplicate", False)) for one in answers] == [
            (0, True),
            (1, False),
        ]


@pytest.mark.parametrize("team", ["warehouse"], indirect=True)
def test_standby_hands_on_why_a_stream_is_refused(team: Team) -> None:
    team.owner()
    address = team.standby().address.replace("http", "ws")
    headers = {"authorization": f"Bearer {TOKEN}"}
    # What one coordinator has passed on goes no further: as if there were no owner.
    for more, status, kind in (
        ({}, 404, "UnknownNameError"),
        ({PASSED_ON: "1"}, 503, "NoOwnerError"),
    ):
        with (
            pytest.raises(InvalidStatus) as raised,
            connect(
                f"{address}/v1/inserts/default/none/stream",
                additional_headers={**headers, **more},
                proxy=None,
                open_timeout=40,
            ),
        ):
            pass
        answer = raised.value.response
        assert (answer.status_code, json.loads(answer.body)["error"]["type"]) == (status, kind)
        assert answer.headers.get_all("content-length") == [str(len(answer.body))]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "Give --store postgresql"),
        (["--log=warehouse", "--embedded"], "--embedded"),
        (["--log=warehouse", "--peer=lake-1"], "--peer can't be `lake-1`"),
    ],
)
def test_unsuitable_standby_options_are_named(
    tmp_path: Path, options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--standby", f"--warehouse={tmp_path}/w", f"--state={tmp_path}/s", *options]
    assert main(given) == 2
    assert says in capsys.readouterr().err


def test_tokens_are_sent_only_to_named_peers() -> None:
    named = PeerNames.of(["https://lake-*.example.org:8123, https://other.example.org"])
    for trusted in (
        "https://lake-1.example.org:8123",
        "https://other.example.org/lake",
        "https://other.example.org:443",
        "http://127.0.0.1:9",
        "http://localhost:1",
    ):
        assert trusted in named
    for other in (
        "http://lake-1.example.org:8123",
        "https://lake-1.example.org:8124",
        "https://lake-1.evil.org.example.org:8123",
        "https://example.org:8123",
        "https://lake-1.example.org:8123@evil.org",
        "https://evil.org/?https://other.example.org",
        "ftp://other.example.org",
        "https://other.example.org:x",
        "",
    ):
        assert other not in named
    with pytest.raises(SetupError, match="--peer can't be"):
        PeerNames.of(["lake-1:8123"])


def commit_row(client: RemoteCoordinator, catalog: Catalog, key: int) -> None:
    transaction = client.begin(TABLE)
    client.commit(CommitRequest(transaction, Append(), write(catalog, transaction, [{"k": key}])))


def test_files_that_a_branch_has_stay_when_a_former_owner_ends_their_transaction(
    tmp_path: Path,
) -> None:
    """The first owner's store has the transaction as open. The second one has committed it."""
    sql = (
        "CREATE TABLE t (k INT NOT NULL, p INT, v STRING) PARTITIONED BY (p) "
        "TBLPROPERTIES ('primary-key' = 'k')"
    )
    team = Team(tmp_path, 2, "--log=warehouse", "--lease-ms=3000", "--cleanup-grace-ms=1000")
    try:
        catalog = create_table(team.warehouse, sql)
        first, second = team.owner(), team.standby()
        client = RemoteCoordinator(At(team.addresses, TOKEN))
        for k in (1, 2):
            transaction = client.begin(TABLE)
            request = CommitRequest(
                transaction, Append(), write(catalog, transaction, [{"k": k, "p": 1, "v": "a"}])
            )
            if k == 2:
                first.kill()
                wait_until(lambda: asked(second, "/health/owner") == 200)
            client.commit(request)
        client.change_versions(TABLE, CreateTag("kept", 2))
        client.change_versions(TABLE, CreateBranch("b", "kept"))
        client.change_versions(TABLE, RollBackToSnapshot(1))
        client.close()
        first.start()
        second.kill()
        wait_until(lambda: asked(first, "/health/owner") == 200)
        wait_until(lambda: not _open_transactions(first))
        time.sleep(2)
        branch = TableName("t", "default", branch="b")
        assert sorted(row["k"] for row in read(catalog, branch)) == [1, 2]
    finally:
        team.close()


def test_roll_back_by_another_owner_does_not_stop_its_table_at_the_former_one(
    tmp_path: Path,
) -> None:
    """Each has a store of its own: the first one still watches what the second has rolled back."""
    team = Team(tmp_path, 2, "--log=warehouse", "--watch-every-ms=500")
    try:
        catalog = create_table(team.warehouse, APPEND_TABLE)
        first, second = team.owner(), team.standby()
        client = RemoteCoordinator(At(team.addresses, TOKEN))

        def append(k: int) -> None:
            transaction = client.begin(TABLE)
            messages = write(catalog, transaction, [{"k": k, "v": "a"}])
            client.commit(CommitRequest(transaction, Append(), messages))

        append(1)
        append(2)
        first.kill()
        wait_until(lambda: asked(second, "/health/owner") == 200)
        client.change_versions(TABLE, RollBackToSnapshot(1))
        first.start()
        second.kill()
        wait_until(lambda: asked(first, "/health/owner") == 200)
        time.sleep(2)  # it would look at what it watches
        append(3)
        assert sorted(row["k"] for row in read(catalog)) == [1, 3]
        client.close()
    finally:
        team.close()


def _open_transactions(member: Process) -> list[object]:
    answer = httpx.get(
        f"{member.address}/v1/transactions",
        headers={"authorization": f"Bearer {TOKEN}"},
        trust_env=False,
    )
    transactions = answer.json()["transactions"]
    return [state for state in transactions if state["phase"] in ("active", "aborting")]
