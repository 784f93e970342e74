"""A coordinator outlives who started it: keys, tokens and addresses come from who connects last,
and what its store refuses is told at once, without a secret anywhere."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import paimon_magics
from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.client.starting import Embedded, state_path
from paimon_magics.coordinator.ownership.state_folder import StateFolder
from paimon_magics.errors import SetupError
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from tests.backends.s3 import Bucket, Environment, Reply, S3Server, s3_server
from tests.coordinator.process import TABLE, Process, create_table, read, wait_until, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from paimon_magics import Session

KEYS = {
    "AKIAFIRSTFIRSTFIRST1": "the-first-secret-of-ada",
    "AKIASECONDSECONDSEC2": "the-second/secret+of=ada",
}
FIRST, SECOND = KEYS
INSERTS = TableName("i", database="default")
LAZY = "'auto_batch_load' = 'true', 'group_commit_interval_ms' = '600000'"


class KeyedServer:
    """A server that takes the requests of one access key only, or of several."""

    def __init__(self, server: S3Server) -> None:
        self.server = server
        self.taken: str | tuple[str, ...] = FIRST
        server.between = self._between

    def _between(self, environment: Environment, hand_on: Callable[[], Reply]) -> Reply:
        said = environment.get("HTTP_AUTHORIZATION", "")
        taken = (self.taken,) if isinstance(self.taken, str) else self.taken
        if any(f"Credential={key}/" in said for key in taken):
            return hand_on()
        return Reply.error("403 Forbidden", "InvalidAccessKeyId")


@pytest.fixture
def keyed(state_home: Path) -> Iterator[tuple[KeyedServer, dict[str, str]]]:
    with s3_server() as server:
        keyed = KeyedServer(server)
        yield keyed, Bucket(server.endpoint, FIRST, KEYS[FIRST]).options


def with_key(options: Mapping[str, str], key: str) -> dict[str, str]:
    return {**options, "s3.access-key": key, "s3.secret-key": KEYS[key]}


@contextlib.contextmanager
def connected(options: Mapping[str, str], idle_ms: int = 60_000) -> Iterator[RemoteCoordinator]:
    catalog = Catalog.open(options)
    with contextlib.closing(RemoteCoordinator(Embedded(catalog, idle_ms=idle_ms))) as client:
        yield client


def append(client: RemoteCoordinator, options: Mapping[str, str], key: int) -> int:
    catalog = Catalog.open(options)
    transaction = client.begin(TABLE)
    rows = write(catalog, transaction, [{"k": key}])
    return client.commit(CommitRequest(transaction, Append(), rows)).snapshot_id


def insert(client: RemoteCoordinator, key: int) -> Any:
    inserts = client.inserts()
    return inserts.insert(INSERTS, pa.table({"k": pa.array([key], pa.int32())})).result(90)


def log_of(options: Mapping[str, str]) -> str:
    folder = StateFolder(state_path(Catalog.open(options).options, os.environ))
    texts = [path.read_text(errors="replace") for path in folder.path.glob("coordinator.log*")]
    return "\n".join(texts)


def check_no_secret(*texts: str) -> None:
    for text in texts:
        assert all(secret not in text for secret in KEYS.values())


def test_refused_keys_are_reported_and_new_keys_come_from_a_session(
    keyed: tuple[KeyedServer, dict[str, str]],
) -> None:
    server, options = keyed
    create_table(options, "CREATE TABLE t (k INT)")
    create_table(options, f"CREATE TABLE i (k INT) TBLPROPERTIES ({LAZY})")
    renewed = with_key(options, SECOND)
    with connected(options) as first:
        assert append(first, options, 1) == 1
        assert insert(first, 1).mode == "async_mode"
        server.taken = SECOND
        started = time.monotonic()
        with pytest.raises(SetupError, match="InvalidAccessKeyId") as begun:
            first.begin(TABLE)
        with pytest.raises(SetupError, match="InvalidAccessKeyId") as flushed:
            first.administration().queues.flush(INSERTS, 60_000)
        assert time.monotonic() - started < 30, "the store's error, and no time-out"
        for raised in (begun, flushed):
            assert "your own coordinator" in raised.value.hint
        (waiting,) = first.administration().status().waiting
        assert "1 row of `default.i`" in waiting and "InvalidAccessKeyId" in waiting
        with connected(renewed) as second:
            assert append(second, renewed, 2) == 2
            assert second.administration().queues.flush(INSERTS, 60_000)[0] == 1
            status = second.administration().status()
            assert status.waiting == ()
            assert status.store["access key"] == "AKIA…SEC2"
        assert first.begin(TABLE), "it goes through what the second has brought"
    assert [row["k"] for row in read(Catalog.open(renewed), INSERTS)] == [1]
    said = log_of(renewed)
    assert "InvalidAccessKeyId" in said and "were renewed" in said
    check_no_secret(said, str(begun.value), repr(flushed.value), repr(status))


def test_options_that_do_not_work_are_not_adopted(
    keyed: tuple[KeyedServer, dict[str, str]],
) -> None:
    _, options = keyed
    create_table(options, "CREATE TABLE t (k INT)")
    with connected(options) as first:
        assert append(first, options, 1) == 1
        finder = Embedded(Catalog.open(options), idle_ms=60_000)
        opened = Catalog.open(options).options
        finder._options = with_key(opened, SECOND)  # which the server does not take
        assert finder.find() is not None
        assert "does not know the access key AKIA…SEC2" in finder.problem
        elsewhere = Bucket(options["s3.endpoint"], FIRST, KEYS[FIRST]).options
        finder._options, finder._informed = elsewhere, None
        assert finder.find() is not None
        assert "another warehouse" in finder.problem
        assert append(first, options, 2) == 2


def test_moved_store_is_recognised_by_the_coordinators_lease(
    keyed: tuple[KeyedServer, dict[str, str]],
) -> None:
    server, options = keyed
    create_table(options, "CREATE TABLE t (k INT)")
    with connected(options) as first:
        assert append(first, options, 1) == 1
        with s3_server() as moved:  # the same store behind another port
            server.server.stop()
            there = {**options, "s3.endpoint": moved.endpoint}
            with connected(there) as second:
                assert append(second, there, 2) == 2
                assert second.administration().status().store["endpoint"] == moved.endpoint
            server.server.start()


def test_successor_loads_rows_of_a_coordinator_with_refused_keys(
    keyed: tuple[KeyedServer, dict[str, str]],
) -> None:
    server, options = keyed
    create_table(options, f"CREATE TABLE i (k INT) TBLPROPERTIES ({LAZY})")
    folder = StateFolder(state_path(Catalog.open(options).options, os.environ))
    with connected(options, idle_ms=1_000) as first:
        insert(first, 7)
        server.taken = SECOND
        with pytest.raises(SetupError, match="InvalidAccessKeyId"):
            first.administration().queues.flush(INSERTS, 60_000)
        wait_until(lambda: not folder.is_held(), seconds=60)
    renewed = with_key(options, SECOND)
    with connected(renewed) as second:
        second.administration().queues.flush(INSERTS, 60_000)
    assert [row["k"] for row in read(Catalog.open(renewed), INSERTS)] == [7]
    check_no_secret(log_of(renewed))


def trouble_of_an_insert(session: Session) -> str:
    """What an insert says of a store that refuses the coordinator. The coordinator knows a table
    for a second without a look at the store: then the row is taken, with a note."""
    try:
        (note,) = session.run("INSERT INTO i VALUES (2)").notes
    except SetupError as refused:
        return str(refused)
    assert "Rows of `default.i` can't be loaded: " in note
    return note


@pytest.mark.spark
def test_session_reports_store_options_and_failed_loads_of_a_service(
    keyed: tuple[KeyedServer, dict[str, str]], spark: SparkSession, tmp_path: Path
) -> None:
    """Whose keys are not taken any more is the service, and not the session."""
    server, options = keyed
    create_table(options, f"CREATE TABLE i (k INT) TBLPROPERTIES ({LAZY})")
    create_table(options, "CREATE TABLE t (k INT)")
    server.taken = (FIRST, SECOND)
    process = Process(options["warehouse"], tmp_path / "service", catalog=options)
    process.start()
    ours = {**with_key(options, SECOND), "s3.region": "eu-west-1"}
    try:
        with paimon_magics.connect(
            catalog=ours, coordinator=process.address, token=process.token(), spark=spark
        ) as session:
            (note,) = session.store.notes
            assert (
                f"The coordinator at {process.address} reaches the store with other options: "
                in note
            )
            assert "region us-east-1 (here eu-west-1)" in note
            assert "access key AKIA…RST1 (here AKIA…SEC2)" in note
            assert not session.run("INSERT INTO i VALUES (1)").notes
            server.taken = SECOND
            with pytest.raises(SetupError, match="InvalidAccessKeyId"):
                session.flush("i")
            trouble = trouble_of_an_insert(session)
            with pytest.raises(SetupError, match="InvalidAccessKeyId") as refused:
                session.run("INSERT INTO t VALUES (1)")
            queues = str(session.administration.queue_rows().to_pylist())
        assert "gets its credentials from its administrator" in refused.value.hint
        assert all("InvalidAccessKeyId" in each for each in (trouble, queues))
        check_no_secret(note, trouble, queues, repr(refused.value))
    finally:
        process.close()
