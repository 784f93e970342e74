"""A coordinator as its clients meet it: started, asked, refused, ended, started again."""

from __future__ import annotations

import getpass
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from paimon_magics.coordinator.client.addresses import token_of_user
from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.client.starting import At
from paimon_magics.coordinator.ownership.lease import current_lease
from paimon_magics.coordinator.process.network import LOOPBACK, listen
from paimon_magics.errors import (
    CommitConflictError,
    InvalidValueError,
    OutdatedPlanError,
    SetupError,
    UnknownNameError,
)
from paimon_magics.planning.commits.read_sets import ReadSet, RowSearch, read_files
from paimon_magics.planning.commits.requests import (
    Append,
    CommitReceipt,
    CommitRequest,
    OverwritePartitions,
)
from paimon_magics.planning.reads.predicates import ColumnPredicate
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.commits.commit import commit
from paimon_magics.tables.commits.decoded_request import decoded
from paimon_magics.tables.commits.fencing import EPOCH
from paimon_magics.tables.stores.store import LocalStore
from tests.coordinator.forking import FORKING
from tests.coordinator.process import (
    TABLE,
    Process,
    create_table,
    data_files,
    read,
    wait_until,
    write,
)

APPEND_TABLE = "CREATE TABLE t (k INT, v STRING)"


# What is in the store is asked of both in every run; what is only beside it, in `make soak`.
MOSTLY_SQLITE = pytest.mark.parametrize(
    "store_address", ["sqlite", pytest.param("postgres", marks=pytest.mark.soak)], indirect=True
)
OPTIONS = ("--cleanup-grace-ms=500", "--request-bytes-max=200000")


@pytest.fixture
def process(
    tmp_path: Path, store_address: str | None, request: pytest.FixtureRequest
) -> Iterator[Process]:
    """A coordinator; an indirect parameter shortens its leases, in milliseconds."""
    started = Process(
        tmp_path / "warehouse",
        tmp_path / "state",
        *OPTIONS,
        f"--lease-ms={getattr(request, 'param', 60_000)}",
        *([] if store_address is None else [f"--store={store_address}"]),
    )
    started.start()
    yield started
    started.close()


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """One coordinator for all tests of requests that it refuses."""
    folder = tmp_path_factory.mktemp("lasting")
    started = Process(folder / "warehouse", folder / "state", *OPTIONS)
    started.start()
    create_table(started.warehouse, APPEND_TABLE)
    yield started
    started.close()


def test_repeated_commit_requests_commit_once(process: Process) -> None:
    catalog = create_table(process.warehouse, APPEND_TABLE)
    client = process.client()
    transaction = client.begin(TABLE)
    request = CommitRequest(transaction, Append(), write(catalog, transaction, [{"k": 1}]))
    first = client.commit(request)
    assert (first.snapshot_id, first.commit_kind) == (1, "APPEND")
    assert client.commit(request) == first
    process.kill()
    process.start()
    assert client.commit(request) == first
    assert read(catalog) == [{"k": 1, "v": None}]
    with pytest.raises(CommitConflictError, match="other files"):
        client.commit(CommitRequest(transaction, OverwritePartitions()))


@MOSTLY_SQLITE
def test_statement_is_refused_when_its_read_set_changed(process: Process) -> None:
    catalog = create_table(process.warehouse, APPEND_TABLE)
    client = process.client()

    def commit_row(key: int, read: ReadSet) -> CommitReceipt:
        transaction = client.begin(TABLE)
        messages = write(catalog, transaction, [{"k": key}])
        return client.commit(CommitRequest(transaction, Append(), messages, (), read))

    def missing(key: int, snapshot_id: int) -> ReadSet:
        condition = ColumnPredicate("k", "=", (key,))
        return read_files(snapshot_id, [], RowSearch((condition,), adds_missing=True))

    first = commit_row(1, missing(1, 0))
    with pytest.raises(
        OutdatedPlanError, match=r"snapshot 1 \(APPEND by .* added rows that may match"
    ):
        commit_row(1, missing(1, 0))
    assert commit_row(2, missing(2, 0)).snapshot_id == 2
    assert first.snapshot_id == 1
    wait_until(lambda: len(data_files(process.warehouse)) == 2)
    assert read(catalog) == [{"k": 1, "v": None}, {"k": 2, "v": None}]


@MOSTLY_SQLITE
def test_commit_outranks_a_higher_epoch_of_the_table(process: Process) -> None:
    catalog = create_table(process.warehouse, APPEND_TABLE)
    client = process.client()
    for key in (1, 2):
        properties = ((EPOCH, "41"),) if key == 1 else ()
        transaction = client.begin(TABLE)
        rows = write(catalog, transaction, [{"k": key}])
        request = CommitRequest(transaction, Append(), rows, properties)
        if key == 1:
            commit(decoded(catalog.load(TABLE), request), catalog.publish)
        else:
            assert client.commit(request).snapshot_id == 2
    latest = catalog.load(TABLE).paimon.snapshot_manager().get_latest_snapshot()
    assert latest.properties[EPOCH] == "42"
    leases = process.warehouse / ".paimon-magics"
    assert [path.name for path in leases.glob("owner-*")] == ["owner-42.json"]


def test_coordinator_failing_to_start_releases_the_warehouse(tmp_path: Path) -> None:
    warehouse, state = tmp_path / "warehouse", tmp_path / "state"
    create_table(warehouse, APPEND_TABLE)
    (state / "running.json").mkdir(parents=True)  # where it would say that it runs
    with pytest.raises(AssertionError):
        Process(warehouse, state).start()
    lease = current_lease(LocalStore(), str(warehouse))
    assert lease is not None and (lease.epoch, lease.released) == (1, True)


def test_unusable_port_is_named() -> None:
    with listen(LOOPBACK, 0) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(SetupError, match=f"port {port} .* in use") as taken:
            listen(LOOPBACK, port)
    assert "--port" in taken.value.hint
    with pytest.raises(SetupError, match="port 70000 "):
        listen(LOOPBACK, 70000)


@MOSTLY_SQLITE
def test_transaction_begun_before_a_restart_commits_after_it(process: Process) -> None:
    catalog = create_table(process.warehouse, APPEND_TABLE)
    client = process.client()
    transaction = client.begin(TABLE)
    messages = write(catalog, transaction, [{"k": 1}])
    process.kill()
    process.start()
    assert client.commit(CommitRequest(transaction, Append(), messages)).snapshot_id == 1


@MOSTLY_SQLITE
@pytest.mark.parametrize("process", [4000], indirect=True)
def test_transaction_of_a_silent_owner_ends_and_loses_its_files(process: Process) -> None:
    catalog = create_table(process.warehouse, APPEND_TABLE)
    client = process.client()
    transaction = client.begin(TABLE)
    messages = write(catalog, transaction, [{"k": 1}])
    time.sleep(5)
    assert data_files(process.warehouse), "the owner's heartbeats keep it alive"
    client.close()
    deadline = time.monotonic() + 30
    while data_files(process.warehouse) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not data_files(process.warehouse)
    again = process.client()
    again.transactions.ended(transaction.commit_user, client.transactions.id_of(transaction))
    with pytest.raises(CommitConflictError, match="its lease expired"):
        again.commit(CommitRequest(transaction, Append(), messages))
    assert read(catalog) == []


@MOSTLY_SQLITE
def test_aborted_transaction_leaves_no_files(process: Process) -> None:
    catalog = create_table(process.warehouse, APPEND_TABLE)
    client = process.client()
    transaction = client.begin(TABLE)
    write(catalog, transaction, [{"k": 1}])
    client.abort(transaction)
    deadline = time.monotonic() + 10
    while data_files(process.warehouse) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not data_files(process.warehouse)


@MOSTLY_SQLITE
def test_commit_removes_files_of_discarded_attempts(process: Process) -> None:
    catalog = create_table(process.warehouse, APPEND_TABLE)
    client = process.client()
    transaction = client.begin(TABLE)
    write(catalog, transaction, [{"k": 1}])  # an attempt that Spark ran again
    request = CommitRequest(transaction, Append(), write(catalog, transaction, [{"k": 1}]))
    with pytest.raises(CommitConflictError):
        client.sweep(request)  # not committed: nothing of it is touched
    client.commit(request)
    assert len(data_files(process.warehouse)) == 1
    assert client.sweep(request) == 0
    assert len(data_files(process.warehouse)) == 1
    assert read(catalog) == [{"k": 1, "v": None}]


@pytest.mark.parametrize("store_address", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "table",
    [
        "CREATE TABLE t (k INT NOT NULL) TBLPROPERTIES ('primary-key' = 'k')",
        "CREATE TABLE t (k INT NOT NULL, p INT) PARTITIONED BY (p) "
        "TBLPROPERTIES ('primary-key' = 'k')",
    ],
    ids=["dynamic buckets", "cross-partition"],
)
def test_dynamic_buckets_take_a_single_transaction_at_a_time(process: Process, table: str) -> None:
    create_table(process.warehouse, table)
    first = process.client().begin(TABLE)
    impatient = RemoteCoordinator(At(process.address, process.token()), exclusive_wait_ms=0)
    with pytest.raises(CommitConflictError) as caught:
        impatient.begin(TABLE)
    assert "one transaction at a time may write it" in caught.value.message
    assert getpass.getuser() in caught.value.message
    headers = {"Authorization": f"Bearer {process.token()}"}
    listed = httpx.get(process.address + "/v1/transactions", headers=headers, trust_env=False)
    (open_one,) = listed.json()["transactions"]
    assert open_one["id"] in caught.value.message
    assert f"%paimon abort {open_one['id']}" in caught.value.hint
    notes = [path.name for path in process.warehouse.rglob("*pm-*")]
    assert all(name.startswith(first.file_prefix[:-1]) for name in notes), (
        "the refused one left some"
    )

    patient = process.client()
    ended = threading.Timer(1.0, lambda: process._clients[0].abort(first))
    ended.start()
    assert patient.begin(TABLE).commit_user != first.commit_user
    ended.join()


@pytest.mark.parametrize("name", ["token", "id"])
def test_binary_file_in_the_state_folder_is_named(tmp_path: Path, name: str) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    (state / name).write_bytes(b"\xff\xfe\x00\x80")
    arguments = [f"--state={state}", f"--warehouse={tmp_path / 'warehouse'}"]
    done = subprocess.run(
        [sys.executable, "-m", "paimon_magics.coordinator", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert f"{state / name} can't be read: it is not text" in done.stderr
    assert "remove it" in done.stderr
    assert "Traceback" not in done.stderr


def test_binary_token_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(SetupError, match="can't be read: it is not text"):
        token_of_user(None, {"PAIMON_COORDINATOR_TOKEN_FILE": str(file)}, "http://127.0.0.1:9")


@MOSTLY_SQLITE
def test_only_liveness_is_answered_without_the_token(process: Process) -> None:
    paths = ("/", "/metrics", "/v1/transactions", "/v1/coordinator", "/nothing")
    for path in paths:
        answer = httpx.get(process.address + path, trust_env=False)
        assert (answer.status_code, answer.json()["error"]["type"]) == (401, "Unauthorized")
    wrong = {"Authorization": "Bearer wrong"}
    assert httpx.get(process.address + "/metrics", headers=wrong, trust_env=False).is_error
    assert httpx.get(process.address + "/health/live", trust_env=False).json() == {"status": "live"}
    assert (process.state / "token").stat().st_mode & 0o777 == 0o600


@MOSTLY_SQLITE
def test_token_holder_gets_health_metrics_and_page(
    process: Process,
) -> None:
    create_table(process.warehouse, APPEND_TABLE)
    process.client().begin(TABLE)
    headers = {"Authorization": f"Bearer {process.token()}"}
    with httpx.Client(base_url=process.address, headers=headers, trust_env=False) as http:
        assert http.get("/health/ready").json() == {
            "status": "ready",
            "pause": None,
            "stopped_tables": [],
            "problems": [],
        }
        assert 'transactions{phase="active"} 1.0' in http.get("/metrics").text
        page = http.get("/")
        assert page.headers["content-type"].startswith("text/html")
        assert "<td>default.t</td>" in page.text
        (listed,) = http.get("/v1/transactions").json()["transactions"]
        shown = http.get(f"/v1/transactions/{listed['id']}").json()
        # A heartbeat may come between the two.
        assert shown | {"expires_at_ms": 0} == listed | {"expires_at_ms": 0}


@pytest.mark.parametrize(
    ("path", "body", "status", "named"),
    [
        ("/v1/transactions", b"{", 400, "not JSON"),
        ("/v1/transactions", b"[]", 400, "must be a JSON object"),
        ("/v1/transactions", b"{}", 400, "`table` is missing"),
        ("/v1/transactions", b'{"table": {"database": "default"}}', 400, "`table` is missing"),
        (
            "/v1/transactions",
            b'{"table": {"database": "..", "table": "t"}}',
            400,
            "is not a valid name of a database",
        ),
        (
            "/v1/transactions",
            b'{"table": {"database": "default", "table": "../../etc"}}',
            400,
            "is not a valid name of a table",
        ),
        (
            "/v1/transactions",
            b'{"table": {"database": "default", "table": "tt"}}',
            404,
            "There is no table `tt`",
        ),
        (
            "/v1/transactions",
            b'{"table": {"database": "default", "table": "\\ud800"}}',
            400,
            "surrogates not allowed",
        ),
        (
            "/v1/transactions",
            b'{"table": {"database": "default", "table": "t"}, "base_snapshot_id": -5}',
            400,
            "No snapshot has the id -5",
        ),
        ("/v1/transactions", b"[" * 100_000, 400, "nested too deeply"),
        ("/v1/nothing", b"{}", 404, "There is no endpoint POST /v1/nothing"),
        ("/v1/leases", b"[]", 400, "must be a JSON object"),
        ("/v1/tables/check", b"{", 400, "not JSON"),
        ("/v1/transactions/none/commit", b"{}", 404, "no such transaction"),
        ("/v1/transactions/none/heartbeat", b"", 404, "no such transaction"),
        ("/v1/transactions/none/abort", b"{}", 404, "no such transaction"),
        ("/v1/transactions", b" " * 200_001, 413, "more than 200,000 bytes"),
    ],
)
def test_bad_request_is_named_and_the_service_continues(
    lasting: Process, path: str, body: bytes, status: int, named: str
) -> None:
    headers = {"Authorization": f"Bearer {lasting.token()}"}
    answer = httpx.post(lasting.address + path, content=body, headers=headers, trust_env=False)
    assert answer.status_code == status
    assert named in answer.json()["error"]["message"]
    assert lasting.client().begin(TABLE).base_snapshot_id == 0


APPEND = {"kind": "append"}


@pytest.mark.parametrize(
    ("asked", "status", "named"),
    [
        ({"change": APPEND, "messages": ["AAAA"]}, 400, "can't be read"),
        ({"change": APPEND, "messages": ["%"]}, 400, "strings in Base64"),
        ({"change": APPEND, "messages": "AAAA"}, 400, "must be a list"),
        ({"change": {"kind": "rename"}, "messages": []}, 400, "names no change: 'rename'"),
        (
            {
                "change": {
                    "kind": "overwrite-partitions",
                    "specs": [{"nothing": "1"}],
                    "swallow_newer": True,
                },
                "messages": [],
            },
            400,
            "`nothing` is not a partition column of `default.t`",
        ),
    ],
)
def test_nonsensical_commit_is_refused_and_the_table_stays_usable(
    lasting: Process, asked: dict[str, object], status: int, named: str
) -> None:
    headers = {"Authorization": f"Bearer {lasting.token()}"}
    client = lasting.client()
    id = client.transactions.id_of(client.begin(TABLE))
    path = f"{lasting.address}/v1/transactions/{id}"
    answer = httpx.post(
        f"{path}/commit", json={"properties": {}, **asked}, headers=headers, trust_env=False
    )
    assert (answer.status_code, named in answer.json()["error"]["message"]) == (status, True)
    assert httpx.post(f"{path}/abort", json={}, headers=headers, trust_env=False).status_code == 200
    again = client.begin(TABLE)
    assert client.commit(CommitRequest(again, Append())).delta_rows == 0


@MOSTLY_SQLITE
def test_transaction_cannot_commit_files_of_another(process: Process) -> None:
    catalog = create_table(process.warehouse, APPEND_TABLE)
    client = process.client()
    theirs, own = client.begin(TABLE), client.begin(TABLE)
    messages = write(catalog, theirs, [{"k": 1}])
    with pytest.raises(InvalidValueError, match="does not belong to the transaction"):
        client.commit(CommitRequest(own, Append(), messages))
    assert client.commit(CommitRequest(theirs, Append(), messages)).snapshot_id == 1
    assert read(catalog) == [{"k": 1, "v": None}]


def test_body_growing_past_the_limit_is_refused(lasting: Process) -> None:
    headers = {"Authorization": f"Bearer {lasting.token()}"}

    def endless() -> Iterator[bytes]:
        for _ in range(100):
            yield b" " * 10_000

    try:
        answer = httpx.post(
            lasting.address + "/v1/transactions",
            content=endless(),
            headers=headers,
            trust_env=False,
        )
        assert answer.status_code == 413
    except httpx.TransportError:
        pass  # cut off while it was still sending
    assert httpx.get(lasting.address + "/health/live", trust_env=False).is_success


@pytest.mark.parametrize("store_address", ["sqlite"], indirect=True)
def test_client_errors_name_wrong_token_missing_table_or_coordinator(
    process: Process,
) -> None:
    with pytest.raises(SetupError, match="token is missing or wrong"):
        RemoteCoordinator(At(process.address, "wrong")).begin(TABLE)
    with pytest.raises(UnknownNameError, match="There is no table `nothing`"):
        process.client().begin(TableName("nothing", database="default"))
    process.kill()
    with pytest.raises(SetupError, match="can't be reached"):
        RemoteCoordinator(At(process.address, "any"), coordinator_wait_ms=0).begin(TABLE)


@pytest.mark.parametrize("store_address", ["sqlite"], indirect=True)
def test_client_waits_for_a_restarting_coordinator(process: Process) -> None:
    catalog = create_table(process.warehouse, APPEND_TABLE)
    client = process.client()
    delays: set[str] = set()

    def restart() -> None:
        while not client.delay():
            time.sleep(0.01)
        delays.add(client.delay())
        time.sleep(1)
        process.start()

    process.kill()
    restarting = threading.Thread(target=restart)
    restarting.start()
    transaction = client.begin(TABLE)
    restarting.join()
    messages = write(catalog, transaction, [{"k": 1}])
    process.kill()
    restarting = threading.Thread(target=restart)
    restarting.start()
    receipt = client.commit(CommitRequest(transaction, Append(), messages))
    restarting.join()
    assert receipt.snapshot_id == 1
    assert read(catalog) == [{"k": 1, "v": None}]
    assert delays == {f"waiting for the coordinator at {process.address}"}
    assert client.delay() == ""


@pytest.mark.parametrize("store_address", ["sqlite"], indirect=True)
def test_undelivered_commit_does_not_happen(process: Process) -> None:
    catalog = create_table(process.warehouse, APPEND_TABLE)
    client = RemoteCoordinator(At(process.address, process.token()), coordinator_wait_ms=300)
    transaction = client.begin(TABLE)
    request = CommitRequest(transaction, Append(), write(catalog, transaction, [{"k": 1}]))
    process.kill()
    with pytest.raises(SetupError, match="can't be reached"):
        client.commit(request)
    process.start()
    assert client.commit(request).snapshot_id == 1


def test_a_second_coordinator_on_the_same_store_does_not_start(process: Process) -> None:
    create_table(process.warehouse, APPEND_TABLE)
    second = subprocess.run(
        [
            sys.executable,
            "-m",
            "paimon_magics.coordinator",
            f"--warehouse={process.warehouse}",
            f"--state={process.state}",
            *process.options,
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert second.returncode == 2
    assert "in use by another" in second.stderr
    assert process.client().begin(TABLE).base_snapshot_id == 0


@MOSTLY_SQLITE
def test_coordinator_ended_by_a_signal_leaves_its_database_whole(process: Process) -> None:
    create_table(process.warehouse, APPEND_TABLE)
    process.client().begin(TABLE)
    assert process.end() == 0
    assert not list(process.state.glob("*-wal"))
    process.start()
    headers = {"Authorization": f"Bearer {process.token()}"}
    listed = httpx.get(process.address + "/v1/transactions", headers=headers, trust_env=False)
    assert [each["phase"] for each in listed.json()["transactions"]] == ["active"]


def commit_many(
    address: str, token: str, options: Mapping[str, str], writer: int, commits: int
) -> None:
    client = RemoteCoordinator(At(address, token))
    catalog = Catalog.open(options)
    for number in range(commits):
        transaction = client.begin(TABLE)
        rows = [{"k": writer * 1000 + number}]
        client.commit(CommitRequest(transaction, Append(), write(catalog, transaction, rows)))


@pytest.mark.slow
@pytest.mark.parametrize("commits", [10, pytest.param(50, marks=pytest.mark.soak)])
def test_concurrent_processes_lose_and_duplicate_no_commits(process: Process, commits: int) -> None:
    catalog = create_table(process.warehouse, APPEND_TABLE)
    options = {"warehouse": str(process.warehouse)}
    arguments = (process.address, process.token(), options)
    writers = [
        FORKING.Process(target=commit_many, args=(*arguments, writer, commits))
        for writer in range(8)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(300)
        assert writer.exitcode == 0
    keys = sorted(int(str(row["k"])) for row in read(catalog))
    assert keys == sorted(
        writer * 1000 + number for writer in range(8) for number in range(commits)
    )
    latest = catalog.load(TABLE).paimon.snapshot_manager().get_latest_snapshot()
    assert latest is not None and latest.id == 8 * commits


def commit_over_rest(
    address: str, token: str, options: Mapping[str, str], writer: int, commits: int
) -> None:
    from pypaimon import CatalogFactory

    rest = {"metastore": "rest", "uri": address, "token.provider": "bear", "token": token}
    table = CatalogFactory.create({**options, **rest}).get_table("default.t")
    schema = pa.schema([("k", pa.int32()), ("v", pa.string())])
    for number in range(commits):
        builder = table.new_batch_write_builder()
        writing = builder.new_write()
        key = writer * 1000 + number
        writing.write_arrow(pa.Table.from_pylist([{"k": key, "v": None}], schema=schema))
        builder.new_commit().commit(writing.prepare_commit())
        writing.close()


@pytest.mark.slow
@pytest.mark.parametrize("store_address", ["sqlite"], indirect=True)
def test_transactions_and_pypaimon_commits_share_a_table(process: Process) -> None:
    catalog = create_table(process.warehouse, APPEND_TABLE)
    options = {"warehouse": str(process.warehouse)}
    arguments = (process.address, process.token(), options)
    writers = [
        FORKING.Process(target=target, args=(*arguments, writer, 15))
        for writer, target in enumerate((commit_many, commit_over_rest) * 2)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(300)
        assert writer.exitcode == 0
    keys = sorted(int(str(row["k"])) for row in read(catalog))
    assert keys == sorted(writer * 1000 + number for writer in range(4) for number in range(15))
    latest = catalog.load(TABLE).paimon.snapshot_manager().get_latest_snapshot()
    assert latest is not None and latest.id == 60
