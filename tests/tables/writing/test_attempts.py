"""Notes of task attempts: what a transaction wrote and did not commit goes, and nothing else."""

from __future__ import annotations

import datetime
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from paimon_magics.coordinator.client.in_process import InProcessCommitter
from paimon_magics.errors import JobError
from paimon_magics.planning.commits.requests import (
    Append,
    CommitRequest,
    OverwritePartitions,
    Transaction,
)
from paimon_magics.planning.schemas.table_schema import plan_create_table
from paimon_magics.settings import Settings
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable, TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.writing import attempts
from paimon_magics.tables.writing.attempts import Attempt
from paimon_magics.tables.writing.bucket_counts import BucketRule
from paimon_magics.tables.writing.native_writer import native_table
from paimon_magics.tables.writing.write_spec import WriteSpec
from paimon_magics.tables.writing.writer import write_batches
from tests.backends.s3 import Reply, S3Server, s3_server

TABLE = TableName("t", "default")
PARTITIONED = "CREATE TABLE t (k INT, p STRING) PARTITIONED BY (p)"
SECONDS = 20_000

Row = Mapping[str, object]


class Place:
    """A warehouse somewhere; `files` are the paths of all files in its table."""

    def __init__(self, options: dict[str, str], files: Callable[[], list[str]]) -> None:
        self.catalog = Catalog.open(options)
        self.files = files
        self.committer = InProcessCommitter(self.catalog, Settings(attempt_wait_ms_max=0))

    def create(self, sql: str) -> None:
        statement = parse_statement(sql)
        assert isinstance(statement, CreateTable)
        self.catalog.create_table(TABLE, plan_create_table(statement))

    def task(self, transaction: Transaction) -> WriteSpec:
        table = self.catalog.load(TABLE)
        table_schema = table.schema
        rule = None
        if table_schema.bucket_mode == "HASH_FIXED":
            rule = BucketRule(table_schema.bucket_keys, table_schema.bucket)
        prefix = f"{transaction.file_prefix}data-"
        return WriteSpec(
            table=native_table(table, {"data-file.prefix": prefix}),
            commit_user=transaction.commit_user,
            schema=arrow_schema(table_schema).serialize().to_pybytes(),
            partition_keys=table_schema.partition_keys,
            bucket_rule=rule,
            overwrite=False,
            attempts_folder=transaction.attempts_folder,
        )

    def write(self, transaction: Transaction, *batches: Sequence[Row]) -> CommitRequest:
        task = self.task(transaction)
        written = write_batches(task, (batch_of(task, rows) for rows in batches))
        return CommitRequest(transaction, Append(), written.messages)

    def data_files(self) -> list[str]:
        return [path for path in self.files() if path.endswith(".parquet")]

    def notes(self) -> list[str]:
        return [path for path in self.files() if "/.attempts" in path]


def batch_of(task: WriteSpec, rows: Sequence[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(row) for row in rows], schema=task.arrow_schema())


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as started:
        yield started


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "s3":
        bucket = request.getfixturevalue("server").bucket()
        return Place(bucket.options, lambda: bucket.objects("warehouse/default.db/t"))
    warehouse = tmp_path / "warehouse"
    table = warehouse / "default.db" / "t"
    return Place(
        {"warehouse": str(warehouse)},
        lambda: sorted(str(path) for path in table.rglob("*") if path.is_file()),
    )


PARTITIONS = {
    "INT": [-1, 0, None],
    "BIGINT": [2**40],
    "STRING": ["plain", "a b/c=d%e", "ünï", "", None],
    "DATE": [datetime.date(1969, 12, 31), datetime.date(2026, 11, 20)],
    "BOOLEAN": [True, False],
    "DECIMAL(9, 2)": [Decimal("-1.50")],
    "TIMESTAMP_NTZ": [datetime.datetime(2026, 11, 20, 12, 30, 15, 123456)],
    "TIMESTAMP": [datetime.datetime(1969, 1, 1, tzinfo=datetime.UTC)],
}


@pytest.mark.parametrize("sql_type", PARTITIONS)
def test_abort_removes_files_of_all_partitions(place: Place, sql_type: str) -> None:
    place.create(f"CREATE TABLE t (k INT, p {sql_type}) PARTITIONED BY (p)")
    before = place.files()
    transaction = place.committer.begin(TABLE)
    rows = [{"k": 1, "p": value} for value in PARTITIONS[sql_type]]
    place.write(transaction, rows)
    written = len(place.data_files())
    assert written >= len(rows) - 1  # "" and NULL are one partition
    assert place.committer.abort(transaction) == written
    assert place.files() == before


def test_abort_removes_files_of_all_buckets(place: Place) -> None:
    place.create(
        "CREATE TABLE t (k INT, p INT) PARTITIONED BY (p) "
        "TBLPROPERTIES ('primary-key' = 'p,k', 'bucket' = '3')"
    )
    before = place.files()
    transaction = place.committer.begin(TABLE)
    place.write(transaction, [{"k": k, "p": k % 2} for k in range(20)], [{"k": 1, "p": 7}])
    written = len(place.data_files())
    assert len({path.rpartition("/")[0] for path in place.data_files()}) == written > 4
    assert place.committer.abort(transaction) == written
    assert place.files() == before


def test_commit_keeps_only_the_files_in_its_messages(place: Place) -> None:
    place.create(PARTITIONED)
    transaction = place.committer.begin(TABLE)
    place.write(transaction, [{"k": 1, "p": "a"}, {"k": 1, "p": "only by the first attempt"}])
    request = place.write(transaction, [{"k": 1, "p": "a"}])
    other = place.committer.begin(TABLE)
    place.write(other, [{"k": 2, "p": "a"}])
    place.committer.commit(request)
    assert len(place.data_files()) == 2, "one of this transaction, one of the other"
    assert not [path for path in place.notes() if transaction.file_prefix[:-1] in path]
    assert place.committer.commit(request).snapshot_id == 1
    assert place.committer.abort(other) == 1
    assert len(place.data_files()) == 1
    assert place.notes() == []


def aborted_after_first(
    place: Place, transaction: Transaction, batches: Sequence[Sequence[Row]]
) -> int:
    """Write batches, and abort the transaction after the first; returns how many were asked for."""
    task = place.task(transaction)
    asked = 0

    def arriving() -> Iterator[pa.RecordBatch]:
        nonlocal asked
        for rows in batches:
            if asked == 1:
                place.committer.abort(transaction)
            asked += 1
            yield batch_of(task, rows)

    with pytest.raises(JobError, match="has ended"):
        write_batches(task, arriving())
    return asked


def test_attempt_outliving_its_transaction_removes_its_files(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "paimon_magics.tables.writing.writer._BATCH_ROWS", 1
    )  # each is written at once
    place.create(PARTITIONED)
    before = place.files()
    same_folder = [[{"k": k, "p": "a"}] for k in range(4)]
    assert aborted_after_first(place, place.committer.begin(TABLE), same_folder) == 4
    assert place.files() == before
    new_folder = [[{"k": k, "p": str(k)}] for k in range(4)]
    assert aborted_after_first(place, place.committer.begin(TABLE), new_folder) == 2, "it stops"
    assert place.files() == before


def test_attempt_begun_after_its_transaction_writes_nothing(place: Place) -> None:
    place.create(PARTITIONED)
    before = place.files()
    transaction = place.committer.begin(TABLE)
    place.committer.abort(transaction)
    with pytest.raises(JobError, match="has ended"):
        place.write(transaction, [{"k": 1, "p": "a"}])
    assert place.files() == before


def test_next_transaction_removes_late_files_of_a_dead_attempt(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.create(PARTITIONED)
    before = place.files()
    transaction = place.committer.begin(TABLE)
    assert transaction.attempts_folder is not None
    table = place.catalog.load(TABLE)
    dying = Attempt(table.store, transaction.attempts_folder)
    dying.note(pa.RecordBatch.from_pydict({"p": ["a"]}), pa.array([0]))
    place.committer.abort(transaction)
    assert place.notes(), "it may still create files"
    folder = f"{table.location}/p=a/bucket-0"
    table.store.make_folder(folder)
    name = f"{transaction.file_prefix}data-{dying.id}-x-0.parquet"
    table.store.write(f"{folder}/{name}", b"late")
    if dying._lock is not None:
        dying.end(clean=False)  # as the system does for the dead
    monkeypatch.setattr(attempts, "_DEAD_AFTER_MS", -SECONDS)
    place.committer.abort(place.committer.begin(TABLE))
    assert place.files() == before


def test_dead_writer_is_detected_on_a_local_disk(tmp_path: Path) -> None:
    place = Place({"warehouse": str(tmp_path)}, list)
    place.create(PARTITIONED)
    transaction = place.committer.begin(TABLE)
    stem = transaction.attempts_folder
    assert stem is not None
    writer = """
import sys, pyarrow as pa
from paimon_magics.tables.writing.attempts import Attempt
from paimon_magics.tables.stores.store import LocalStore
attempt = Attempt(LocalStore(), sys.argv[1])
attempt.note(pa.RecordBatch.from_pydict({"p": ["a"]}), pa.array([0]))
print(attempt.id, flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", writer, stem],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        ids = frozenset([process.stdout.readline().strip()])
        store = place.catalog.load(TABLE).store
        assert attempts.running_attempts(store, stem, ids) == ids
        process.send_signal(signal.SIGKILL)
        process.wait(20)
        assert attempts.running_attempts(store, stem, ids) == frozenset()


def test_clearing_up_does_not_list_the_table(server: S3Server) -> None:
    bucket = server.bucket()
    place = Place(bucket.options, lambda: bucket.objects("warehouse/default.db/t"))
    place.create(PARTITIONED)
    transaction = place.committer.begin(TABLE)
    place.committer.commit(
        place.write(transaction, [{"k": 1, "p": f"p{n}"} for n in range(30)]),
    )
    transaction = place.committer.begin(TABLE)
    place.write(transaction, [{"k": 2, "p": "p1"}, {"k": 2, "p": "new"}])
    listed: list[str] = []

    def between(request: dict[str, str], hand_on: Callable[[], Reply]) -> Reply:
        if "list-type=2" in request["QUERY_STRING"]:
            listed.append(request["QUERY_STRING"])
        return hand_on()

    before, server.between = server.between, between
    try:
        assert place.committer.abort(transaction) == 2
    finally:
        server.between = before
    of_data = [query for query in listed if "bucket-0" in query]
    assert len(of_data) == 2
    assert all("p%3Dp1" in query or "p%3Dnew" in query for query in of_data), of_data
    assert not [query for query in listed if query.endswith("default.db%2Ft%2F")], listed
    assert len(place.data_files()) == 30


def note(partition: object) -> bytes:
    """A note of the folder of a partition and bucket 0."""
    columns = {"": pa.array([0], pa.int32()), "p": pa.array([partition])}
    sink = pa.BufferOutputStream()
    table = pa.table(columns)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def leave_note(place: Place, prefix: str, id: str, content: bytes) -> None:
    """Leave a note beside the table that an attempt with this id would have left, and ended."""
    table = place.catalog.load(TABLE)
    stem = f"{table.location}/.attempts/{prefix.rstrip('-')}"
    table.store.make_folder(f"{table.location}/.attempts")
    table.store.write(f"{stem}.{id}.0", content)
    table.store.write(f"{stem}.{id}.ended", b"1")


def id_of(place: Place, transaction: Transaction) -> str:
    """The id of the attempt that wrote a transaction's file."""
    names = [path.rpartition("/")[2] for path in place.data_files()]
    ids = [attempts.attempt_of_file(name, transaction.file_prefix) for name in names]
    (id,) = [id for id in ids if id is not None]
    return id


def commit_row(place: Place, k: int) -> Transaction:
    transaction = place.committer.begin(TABLE)
    place.committer.commit(place.write(transaction, [{"k": k, "p": "a"}]))
    return transaction


def test_forged_note_of_a_committed_transaction_removes_no_file_of_the_table(
    place: Place,
) -> None:
    place.create(PARTITIONED)
    first = commit_row(place, 1)
    leave_note(place, first.file_prefix, id_of(place, first), note("a"))
    commit_row(place, 2)
    assert len(place.data_files()) == 2
    assert place.notes() == []


def test_forged_note_removes_no_file_that_only_a_tag_has(place: Place) -> None:
    place.create(PARTITIONED)
    first = commit_row(place, 1)
    table = place.catalog.load(TABLE)
    snapshot = table.store.read(f"{table.location}/snapshot/snapshot-1")
    assert snapshot is not None
    table.store.make_folder(f"{table.location}/tag")
    table.store.write(f"{table.location}/tag/tag-kept", snapshot)
    second = place.committer.begin(TABLE)
    written = place.write(second, [{"k": 2, "p": "a"}])
    place.committer.commit(replace(written, change=OverwritePartitions()))
    table.store.write(f"{table.location}/snapshot/EARLIEST", b"2")
    table.store.delete([f"{table.location}/snapshot/snapshot-1"])
    leave_note(place, first.file_prefix, id_of(place, first), note("a"))
    commit_row(place, 3)
    assert len(place.data_files()) == 3


def test_straggler_of_a_committed_transaction_is_removed_and_what_it_committed_stays(
    place: Place,
) -> None:
    place.create(PARTITIONED)
    first = commit_row(place, 1)
    committed = place.data_files()
    late = f"{first.file_prefix}data-0123456789ab-x-0.parquet"
    table = place.catalog.load(TABLE)
    path = f"{table.location}/p=a/bucket-0/{late}"
    table.store.write(path, b"late")
    leave_note(place, first.file_prefix, "0123456789ab", note("a"))
    commit_row(place, 2)
    assert not [path for path in place.files() if path.endswith(late)]
    assert set(committed) < set(place.data_files())


def test_note_too_large_for_an_attempt_is_not_read(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.create(PARTITIONED)
    first = commit_row(place, 1)
    late = f"{first.file_prefix}data-0123456789ab-x-0.parquet"
    table = place.catalog.load(TABLE)
    table.store.write(f"{table.location}/p=a/bucket-0/{late}", b"late")
    leave_note(place, first.file_prefix, "0123456789ab", note("a"))
    monkeypatch.setattr(attempts, "_NOTE_BYTES_MAX", 50)
    commit_row(place, 2)
    assert [path for path in place.files() if path.endswith(late)], "its folder was looked into"
    assert place.notes() == []


@pytest.mark.parametrize(
    "content",
    [b"garbage", note(1), note(None)[:-20], note("x")[:9], b"\xff" * 4096],
    ids=["text", "another type", "cut off", "its beginning", "bytes"],
)
def test_note_that_no_attempt_wrote_breaks_no_commit_and_is_removed(
    place: Place, content: bytes
) -> None:
    place.create(PARTITIONED)
    leave_note(place, "x-", "0123456789ab", content)
    commit_row(place, 1)
    commit_row(place, 2)
    assert len(place.data_files()) == 2
    assert place.notes() == []
