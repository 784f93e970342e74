"""Snapshots expire after commits, but never one that somebody still needs.

The last but one stays until it has been looked at whether a writer outside has overwritten it,
which is with the next commit.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from paimon_magics.coordinator.client.read_leases import ReadLeases
from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.client.starting import At
from paimon_magics.errors import CommitConflictError, InvalidValueError, SetupError
from paimon_magics.planning.commits.requests import Append, CommitReceipt, CommitRequest
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.version_changes import CreateBranch, CreateTag
from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.process import TABLE, Process, create_table, read, write
from tests.faults.owner import until
from tests.sampling import sampled
from tests.tables.reachability import missing, unreachable

ONE = (
    "CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ('snapshot.num-retained.min' = '1', "
    "'snapshot.time-retained' = '1 ms', 'manifest.merge-min-count' = '3')"
)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    """A coordinator whose leases last some seconds, and that expires snapshots at once."""
    started = Process(
        tmp_path / "warehouse",
        tmp_path / "state",
        "--lease-ms=2500",
        "--expire-every-ms=20",
        "--cleanup-grace-ms=200",
    )
    started.start()
    yield started
    started.close()


@pytest.fixture
def catalog(process: Process) -> Catalog:
    return create_table(process.warehouse, ONE)


def append(
    client: RemoteCoordinator, catalog: Catalog, *numbers: int, table: TableName = TABLE
) -> list[CommitReceipt]:
    receipts = []
    for number in numbers:
        transaction = client.begin(table)
        messages = write(catalog, transaction, [{"k": number, "v": "v"}])
        receipts.append(client.commit(CommitRequest(transaction, Append(), messages)))
    return receipts


def snapshots(catalog: Catalog, below: str = "") -> list[int]:
    folder = Path(catalog.load(TABLE).location) / below / "snapshot"
    return sorted(int(path.name[9:]) for path in folder.glob("snapshot-*"))


def keys(catalog: Catalog) -> list[object]:
    return sorted(row["k"] for row in read(catalog))  # type: ignore[type-var]


def test_old_snapshots_expire_after_a_commit(process: Process, catalog: Catalog) -> None:
    client = process.client()
    receipts = append(client, catalog, *range(6))
    until(lambda: snapshots(catalog) == [5, 6])
    assert keys(catalog) == list(range(6))
    table = catalog.load(TABLE)
    assert missing(table) == unreachable(table) == set()
    headers = {"Authorization": f"Bearer {process.token()}"}
    metrics = httpx.get(process.address + "/metrics", headers=headers, trust_env=False).text
    assert "paimon_coordinator_expired_snapshots_total 4.0" in metrics
    assert [receipt.snapshot_id for receipt in receipts] == [1, 2, 3, 4, 5, 6]


AGED = (
    "CREATE TABLE t (k INT, v STRING) PARTITIONED BY (v) TBLPROPERTIES "
    "('partition.expiration-time' = '7 d', 'partition.expiration-check-interval' = '{}'{})"
)


def commit_days(process: Process, catalog: Catalog, *days: str) -> None:
    client = process.client()
    transaction = client.begin(TABLE)
    messages = write(catalog, transaction, [{"k": 1, "v": day} for day in days])
    client.commit(CommitRequest(transaction, Append(), messages))


def days(catalog: Catalog) -> list[object]:
    return sorted(row["v"] for row in read(catalog))  # type: ignore[type-var]


def test_old_partitions_are_dropped_after_a_commit_that_says_why(process: Process) -> None:
    catalog = create_table(process.warehouse, AGED.format("1 h", ""))
    commit_days(process, catalog, "2020-01-01", "2999-01-01", "junk")
    until(lambda: days(catalog) == ["2999-01-01", "junk"])
    table = catalog.load(TABLE)
    latest = table.paimon.snapshot_manager().get_latest_snapshot()
    assert (latest.id, latest.commit_kind) == (2, "OVERWRITE")
    noted = {key.rpartition(".")[2]: text for key, text in latest.properties.items()}
    assert noted["operation"] == "EXPIRE PARTITIONS" and "coordinator" in noted["user"]
    headers = {"Authorization": f"Bearer {process.token()}"}
    metrics = httpx.get(process.address + "/metrics", headers=headers, trust_env=False).text
    assert "paimon_coordinator_expired_partitions_total 1.0" in metrics
    commit_days(process, catalog, "2020-01-02")  # the interval is not over
    time.sleep(0.5)
    assert days(catalog) == ["2020-01-02", "2999-01-01", "junk"]


@pytest.mark.parametrize(
    "option", [", 'write-only' = 'true'", ", 'partition.timestamp-formatter' = 'EEE'"]
)
def test_partitions_stay_where_their_table_leaves_them_to_others(
    process: Process, option: str
) -> None:
    """Or can't say how old they are: that is a problem of upkeep, and snapshots expire."""
    more = f"{option}, 'snapshot.num-retained.min' = '1', 'snapshot.time-retained' = '1 ms'"
    catalog = create_table(process.warehouse, AGED.format("1 ms", more))
    for number in range(3):
        commit_days(process, catalog, f"2020-01-0{number + 1}")
    if "EEE" in option:
        until(lambda: "'EEE'" in problem_of(process))
        until(lambda: 1 not in snapshots(catalog))
    time.sleep(0.3)
    assert len(days(catalog)) == 3


def test_automatic_tags_come_after_a_commit_and_old_ones_go(process: Process) -> None:
    catalog = create_table(
        process.warehouse,
        "CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ('tag.automatic-creation' = "
        "'process-time', 'tag.creation-period' = 'daily', 'snapshot.num-retained.min' = '1', "
        "'snapshot.time-retained' = '1 ms')",
    )
    client = process.client()
    client.change_versions(TABLE, CreateBranch("side"))
    append(client, catalog, 0)
    table = catalog.load(TABLE)
    folder = Path(table.location) / "tag"
    until(lambda: folder.exists() and len(list(folder.glob("tag-20*"))) == 1)
    client.change_versions(TABLE, CreateTag("short", None, "1 ms"))
    append(client, catalog, 1, 2)
    until(lambda: not (folder / "tag-short").exists())
    assert len(list(folder.glob("tag-*"))) == 1
    assert missing(table) == set()


def test_wrong_rules_of_tags_are_a_problem_and_snapshots_expire(process: Process) -> None:
    catalog = create_table(
        process.warehouse,
        "CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ('tag.automatic-creation' = "
        "'process-time', 'tag.creation-delay' = '3 d', 'snapshot.num-retained.min' = '1', "
        "'snapshot.time-retained' = '1 ms')",
    )
    append(process.client(), catalog, 0, 1, 2)
    until(lambda: "Tags of `default.t`" in problem_of(process))
    until(lambda: 1 not in snapshots(catalog))


@pytest.mark.parametrize(
    "option",
    ["'tag.creation-period-duration' = '9999999 d'", "'sink.process-time-zone' = 'GMT+99'"],
)
def test_unusable_rules_of_tags_do_not_stop_the_expiry(process: Process, option: str) -> None:
    """Other engines write such options; here CREATE TABLE refuses them."""
    catalog = create_table(
        process.warehouse,
        "CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ('tag.automatic-creation' = "
        "'process-time', 'snapshot.num-retained.min' = '1', 'snapshot.time-retained' = '1 ms')",
    )
    key, _, value = option.replace("'", "").partition(" = ")
    schema = Path(catalog.load(TABLE).location) / "schema" / "schema-0"
    document = json.loads(schema.read_text())
    document["options"][key] = value
    schema.write_text(json.dumps(document))
    append(process.client(), catalog, 0, 1, 2)
    until(lambda: f"'{key}' can't be '{value}'" in problem_of(process))
    until(lambda: 1 not in snapshots(catalog))


def test_failed_expiry_is_a_problem_until_it_succeeds(process: Process, catalog: Catalog) -> None:
    """That of another table changes nothing about it."""
    client, other = process.client(), TableName("other", "default")
    create_table(process.warehouse, ONE.replace("TABLE t ", "TABLE other "))
    reader = client.begin(TABLE)  # nothing expires while it may look at the table
    append(client, catalog, 0)
    lists = list(Path(catalog.load(TABLE).location).glob("manifest/manifest-list-*"))
    append(client, catalog, 1)
    for file in lists:
        file.write_bytes(b"damaged")
    client.abort(reader)
    append(client, catalog, 2)
    until(lambda: "`default.t`" in problem_of(process))
    before = expired(process)
    append(client, catalog, 0, 1, 2, table=other)
    until(lambda: expired(process) > before)
    assert "`default.t`" in problem_of(process)


def test_table_renamed_during_its_expiry_is_no_problem(tmp_path: Path) -> None:
    fault, new_name = tmp_path / "fault", TableName("u", "default")
    options = ["--lease-ms=2500", "--expire-every-ms=20"]
    process = Process(tmp_path / "warehouse", tmp_path / "state", *options)
    process.start(faults=f"@{fault}")
    try:
        catalog = create_table(process.warehouse, ONE)
        fault.write_text("expiry.data_removed=stop")
        append(process.client(), catalog, 0, 1, 2)
        until(process.is_stopped)
        catalog.rename_table(TABLE, new_name)
        process.go_on()
        append(process.client(), catalog, 3, 4, 5, table=new_name)
        until(lambda: expired(process) > 0)
        assert problem_of(process) == ""
    finally:
        process.close()


def problem_of(process: Process) -> str:
    """What the health says about upkeep."""
    headers = {"Authorization": f"Bearer {process.token()}"}
    url = process.address + "/health/ready"
    problems = httpx.get(url, headers=headers, trust_env=False).json()["problems"]
    return "".join(each["problem"] for each in problems if each["name"] == "upkeep")


def expired(process: Process) -> float:
    headers = {"Authorization": f"Bearer {process.token()}"}
    metrics = httpx.get(process.address + "/metrics", headers=headers, trust_env=False).text
    (line,) = [line for line in metrics.splitlines() if line.startswith(EXPIRED)]
    return float(line.split()[-1])


EXPIRED = "paimon_coordinator_expired_snapshots_total "


def test_a_receipt_outlives_its_snapshot(process: Process, catalog: Catalog) -> None:
    client = process.client()
    transaction = client.begin(TABLE)
    messages = write(catalog, transaction, [{"k": 0, "v": "v"}])
    request = CommitRequest(transaction, Append(), messages)
    receipt = client.commit(request)
    append(client, catalog, 1, 2, 3)
    until(lambda: snapshots(catalog) == [3, 4])
    assert client.commit(request) == receipt
    process.kill()
    process.start()
    assert client.commit(request) == receipt
    assert keys(catalog) == [0, 1, 2, 3]


def test_open_transaction_keeps_snapshots_since_its_base(
    process: Process, catalog: Catalog
) -> None:
    client = process.client()
    append(client, catalog, 0, 1, 2)
    until(lambda: snapshots(catalog) == [2, 3])
    open_ = client.begin(TABLE)
    messages = write(catalog, open_, [{"k": 9, "v": "v"}])
    append(client, catalog, 3, 4)
    process.kill()
    process.start()  # it is known again what the transaction needs
    append(client, catalog, 5)
    time.sleep(4)
    assert snapshots(catalog) == [3, 4, 5, 6]
    client.commit(CommitRequest(open_, Append(), messages))
    until(lambda: snapshots(catalog) == [6, 7])
    assert keys(catalog) == [0, 1, 2, 3, 4, 5, 9]


def test_begin_on_an_expired_snapshot_is_refused(process: Process, catalog: Catalog) -> None:
    client = process.client()
    append(client, catalog, 0, 1, 2)
    until(lambda: snapshots(catalog) == [2, 3])
    with pytest.raises(CommitConflictError, match=r"Snapshot 1 of .* has expired"):
        client.begin(TABLE, 1)
    append(client, catalog, 3, 4)
    until(lambda: snapshots(catalog) == [4, 5])


def test_snapshots_of_a_branch_expire_after_commits_to_it(
    process: Process, catalog: Catalog
) -> None:
    client, reader = process.client(), process.client()
    append(client, catalog, 0, 1)
    until(lambda: snapshots(catalog) == [1, 2])
    client.change_versions(TABLE, CreateBranch("b"))
    branch = TableName(TABLE.table, TABLE.database, branch="b")
    append(client, catalog, *range(10, 14), table=branch)
    until(lambda: snapshots(catalog, "branch/branch-b/") == [3, 4])
    assert reader.lease(branch, 3)
    append(client, catalog, 14, 15, table=branch)
    append(client, catalog, 2, 3, 4)
    until(lambda: snapshots(catalog) == [4, 5])
    assert snapshots(catalog, "branch/branch-b/") == [3, 4, 5, 6]
    reader.close()
    append(client, catalog, 16, table=branch)
    until(lambda: snapshots(catalog, "branch/branch-b/") == [6, 7])
    assert sorted(str(row["k"]) for row in read(catalog, branch)) == [str(n) for n in range(10, 17)]
    assert keys(catalog) == [0, 1, 2, 3, 4]
    assert missing(catalog.load(TABLE)) == unreachable(catalog.load(TABLE)) == set()


def test_a_read_lease_keeps_a_snapshot_until_the_last_reader_is_done(
    process: Process, catalog: Catalog
) -> None:
    client, reader = process.client(), process.client()
    append(client, catalog, 0)
    assert reader.lease(TABLE, 1)
    assert reader.lease(TABLE, 1)
    append(client, catalog, 1, 2)
    reader.release(TABLE, 1)
    time.sleep(4)  # longer than a lease: it is renewed
    append(client, catalog, 3)
    time.sleep(0.3)
    assert snapshots(catalog) == [1, 2, 3, 4]
    reader.release(TABLE, 1)
    numbers = itertools.count(4)

    def only_the_last_two_are_there() -> bool:
        # A renewal that is under way when the reader is done holds it for a lease more.
        append(client, catalog, next(numbers))
        time.sleep(0.6)
        return len(snapshots(catalog)) == 2

    until(only_the_last_two_are_there)
    assert not reader.lease(TABLE, 3)
    assert reader.lease(TABLE, snapshots(catalog)[-1])


def test_a_lease_outlives_the_coordinator_and_ends_with_its_holder(
    process: Process, catalog: Catalog
) -> None:
    client, reader = process.client(), process.client()
    append(client, catalog, 0)
    assert reader.lease(TABLE, 1)
    process.kill()
    process.start()
    append(client, catalog, 1, 2)
    time.sleep(4)
    append(client, catalog, 3)
    time.sleep(0.3)
    assert snapshots(catalog) == [1, 2, 3, 4]
    reader.close()
    append(client, catalog, 4)
    until(lambda: snapshots(catalog) == [4, 5])


def test_lease_taken_while_the_coordinator_is_down_keeps_its_snapshot(
    process: Process, catalog: Catalog
) -> None:
    client, reader = process.client(), process.client()
    append(client, catalog, 0)
    process.kill()
    assert reader.lease(TABLE, 1)
    process.start()
    append(client, catalog, 1)
    time.sleep(4)
    append(client, catalog, 2)
    time.sleep(0.3)
    assert snapshots(catalog) == [1, 2, 3]


def test_unreleased_lease_ends_after_the_maximum_time(process: Process, catalog: Catalog) -> None:
    client = process.client()
    reader = RemoteCoordinator(At(process.address, process.token()), read_lease_ms_max=500)
    append(client, catalog, 0)
    assert reader.lease(TABLE, 1)
    append(client, catalog, 1)
    time.sleep(4)
    append(client, catalog, 2)
    until(lambda: snapshots(catalog) == [2, 3])
    reader.close()


def test_leases_of_a_holder_are_bounded(process: Process, catalog: Catalog) -> None:
    def post(body: object) -> object:
        headers = {"Authorization": f"Bearer {process.token()}"}
        return httpx.post(
            process.address + "/v1/leases", json=body, headers=headers, trust_env=False
        )

    one = {"table": {"database": "default", "table": "t"}, "snapshot_id": 1}
    answer = post({"holder": "me", "leases": [one] * 1001})
    assert answer.status_code == 400 and "too many" in answer.text  # type: ignore[attr-defined]
    for body in ({"holder": ""}, {"holder": "me"}, {"holder": "me", "leases": [{}]}, []):
        assert post(body).status_code == 400  # type: ignore[attr-defined]
    leases = ReadLeases(lambda _: (_ for _ in ()).throw(InvalidValueError("no")), 1000)
    with pytest.raises(InvalidValueError):
        leases.take(TABLE, 1)
    away = ReadLeases(lambda _: (_ for _ in ()).throw(SetupError("away")), 1000)
    assert away.take(TableName("t", "default"), 1)
    away.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    sampled(
        ["expiry.data_removed", "expiry.decided", "expiry.snapshot_removed",
         "expiry.metadata_removed"]
    ),
)  # fmt: skip
def test_expiry_after_a_kill_continues_with_the_next_commit(
    process: Process, catalog: Catalog, tmp_path: Path, step: str
) -> None:
    client, fault = process.client(), tmp_path / "fault"
    process.kill()
    process.start(faults=f"@{fault}")
    holding = client.begin(TABLE)  # nothing expires while this may still look at it
    append(client, catalog, *range(4))
    transaction = client.begin(TABLE)
    messages = write(catalog, transaction, [{"k": 4, "v": "v"}])
    fault.write_text(f"{step}=kill")
    client.abort(holding)
    with ThreadPoolExecutor(1) as patient:
        request = CommitRequest(transaction, Append(), messages)
        answer = patient.submit(client.commit, request)
        assert process.has_died()
        process.start()
        assert answer.result(60).snapshot_id == 5
    assert keys(catalog) == list(range(5))
    append(client, catalog, 5)
    until(lambda: snapshots(catalog) == [5, 6])
    table = catalog.load(TABLE)
    assert keys(catalog) == list(range(6))
    assert missing(table) == unreachable(table) == set()


def test_file_whose_name_is_no_text_fails_no_answer(process: Process) -> None:
    """Health names a tag's file with it, and a folder beside the tables is listed."""
    catalog = create_table(process.warehouse, ONE)
    folder = Path(catalog.load(TABLE).location) / "tag"
    folder.mkdir()
    (Path(os.fsdecode(os.fsencode(folder) + b"/tag-\xff\xfe"))).write_bytes(b"{")
    append(process.client(), catalog, 0, 1, 2)
    until(lambda: "The tag file" in problem_of(process))
    os.makedirs(os.fsencode(process.warehouse / "default.db") + b"/o\xff/schema")
    headers = {"Authorization": f"Bearer {process.token()}"}
    tables = "/v1/paimon/databases/default/tables"
    for path in ("/health/ready", "/v1/coordinator", "/", "/metrics", tables):
        answer = httpx.get(process.address + path, headers=headers, trust_env=False, timeout=60)
        assert answer.status_code < 500, (path, answer.text)
