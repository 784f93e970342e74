"""Keys that a streaming job brings for another bucket than the table has them in.

The writers are pypaimon's, which put rows into the bucket that they are told.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pypaimon import CatalogFactory, Schema

from paimon_magics.columnar.bucket_hash import binary_row_hash
from paimon_magics.columnar.hash_index import decode_hashes
from paimon_magics.coordinator.service.coordinator import Coordinator
from paimon_magics.coordinator.store.state_store import open_store
from paimon_magics.errors import OutdatedPlanError
from paimon_magics.planning.commits.requests import (
    BATCH_COMMIT_IDENTIFIER,
    Append,
    CommitRequest,
    OverwriteTouched,
)
from paimon_magics.settings import Settings
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.commits.commit import commit
from paimon_magics.tables.commits.decoded_request import DecodedRequest, decoded
from paimon_magics.tables.commits.dynamic_keys import StreamedKeysError
from paimon_magics.tables.commits.receipts import log_properties
from paimon_magics.tables.stores.local_store import publish_local_file
from paimon_magics.tables.writing.dynamic_buckets import hash_index_in
from tests.coordinator.rest_server import client_options, served
from tests.coordinator.service.test_hash_index_commits import told
from tests.sampling import only_in_soak
from tests.tables.manifest_files import TABLE

ARROW = pa.schema([("k", pa.int64()), ("v", pa.string()), ("p", pa.string())])
OPTIONS = {"bucket": "-1", "commit.max-retries": "3"}
Rows = Sequence[tuple[int, str]]


class Writer:
    """A streaming job, or with `batch` one batch, on a table as it is now."""

    def __init__(self, catalog: Any, *, batch: bool = False) -> None:
        table = catalog.get_table("default.t")
        self._batch = batch
        self._builder = (
            table.new_batch_write_builder() if batch else table.new_stream_write_builder()
        )
        self._write = self._builder.new_write()
        self._checkpoint = 0

    def put(self, bucket: int, rows: Rows, partition: str = "x") -> None:
        """Write rows that the next commit will have."""
        columns = [[k for k, _ in rows], [v for _, v in rows], [partition] * len(rows)]
        self._write.write_arrow(pa.table(columns, schema=ARROW), bucket=bucket)

    def prepare(self, bucket: int, rows: Rows, partition: str = "x") -> Any:
        self.put(bucket, rows, partition)
        return self._prepared()

    def commit(self, prepared: Any) -> None:
        identifier = () if self._batch else (self._checkpoint,)
        self._builder.new_commit().commit(prepared, *identifier)

    def write(self, bucket: int, rows: Rows, partition: str = "x") -> None:
        self.commit(self.prepare(bucket, rows, partition))

    def restart(self) -> None:
        """Begin anew from what was committed, as the same job."""
        self._write.close()
        self._write = self._builder.new_write()

    def commit_all(self) -> None:
        """Commit what was put."""
        self.commit(self._prepared())

    def _prepared(self) -> Any:
        self._checkpoint += 1
        return self._write.prepare_commit(*(() if self._batch else (self._checkpoint,)))

    def end(self) -> None:
        """Commit as Flink's job does when its sources have ended."""
        self._checkpoint = BATCH_COMMIT_IDENTIFIER - 1
        self.write(0, [(1, "end")])


class Lake:
    """A table with dynamic buckets behind a coordinator."""

    def __init__(self, catalog: Any, warehouse: Path, url: str = "") -> None:
        self.catalog, self.warehouse, self.url = catalog, warehouse, url

    def create(self, **options: str) -> None:
        keyed = Schema.from_pyarrow_schema(
            ARROW, partition_keys=["p"], primary_keys=["p", "k"], options={**OPTIONS, **options}
        )
        self.catalog.create_table("default.t", keyed, False)

    def batch(self, bucket: int, rows: Rows, partition: str = "x") -> None:
        Writer(self.catalog, batch=True).write(bucket, rows, partition)

    def rows(self, snapshot: int | None = None) -> list[tuple[int, str]]:
        table = self.catalog.get_table("default.t")
        if snapshot is not None:
            table = table.copy({"scan.snapshot-id": str(snapshot)})
        builder = table.new_read_builder()
        found = builder.new_read().to_arrow(builder.new_scan().plan().splits())
        return sorted((row["k"], row["v"]) for row in found.to_pylist())

    def loaded(self) -> Any:
        return Catalog.open({"warehouse": str(self.warehouse)}).load(TABLE)

    def kinds(self) -> list[str]:
        manager = self.loaded().paimon.snapshot_manager()
        last = manager.get_latest_snapshot().id
        return [manager.get_snapshot_by_id(each).commit_kind for each in range(1, last + 1)]

    def index(self) -> dict[int, set[int]]:
        """The hashes of each bucket."""
        table = self.loaded()
        latest = table.paimon.snapshot_manager().get_latest_snapshot()
        files = () if latest is None else hash_index_in(table, latest)
        return {
            file.bucket: set(decode_hashes(Path(file.path).read_bytes()).tolist()) for file in files
        }

    def buckets(self, keys: Iterable[int]) -> dict[int, int]:
        """The bucket of each of the keys that the index has."""
        found = {each: bucket for bucket, own in self.index().items() for each in own}
        wanted = {key: hashes(key).pop() for key in keys}
        return {key: found[each] for key, each in wanted.items() if each in found}

    def age(self, *, hours: int) -> None:
        """Make the snapshots as old as if they had been there for some hours."""
        for path in (self.warehouse / "default.db/t/snapshot").glob("snapshot-*"):
            document = json.loads(path.read_text())
            document["timeMillis"] -= hours * 3_600_000
            path.write_text(json.dumps(document))


def hashes(*keys: int) -> set[int]:
    return set(binary_row_hash([pa.array(keys, pa.int64())]).tolist())


@pytest.fixture
def coordinator(warehouse: Path, tmp_path: Path) -> Iterator[Coordinator]:
    catalog = Catalog.open({"warehouse": str(warehouse)})
    opened = Coordinator(catalog, open_store(tmp_path / "state"), Settings())
    opened.start()
    yield opened
    opened.stop()


@pytest.fixture
def lake(warehouse: Path, coordinator: Coordinator) -> Iterator[Lake]:
    with served({"warehouse": str(warehouse)}, coordinator=coordinator) as url:
        catalog = CatalogFactory.create(client_options(url, warehouse))
        catalog.create_database("default", True)
        yield Lake(catalog, warehouse, url)


@pytest.mark.parametrize("producer", ["none", "input"])
def test_rows_move_to_the_buckets_chosen_by_the_job(lake: Lake, producer: str) -> None:
    lake.create(**{"changelog-producer": producer})
    job = Writer(lake.catalog)
    job.write(0, [(1, "job")])
    lake.batch(1, [(5, "other"), (6, "other"), (7, "other")])
    before = lake.rows()
    job.write(2, [(5, "job"), (8, "job")])
    assert lake.kinds() == ["APPEND", "APPEND", "COMPACT", "APPEND"]
    assert lake.rows(3) == before, "a move changes no row"
    assert lake.rows() == [(1, "job"), (5, "job"), (6, "other"), (7, "other"), (8, "job")]
    assert lake.index() == {0: hashes(1), 1: hashes(6, 7), 2: hashes(5, 8)}
    job.write(2, [(5, "again")])
    lake.batch(2, [(8, "other")])
    assert dict(lake.rows())[5] == "again" and dict(lake.rows())[8] == "other"
    assert lake.kinds()[4:] == ["APPEND", "APPEND"], "each key is in one bucket now"


def test_keys_are_moved_again_for_each_batch(lake: Lake) -> None:
    lake.create()
    job = Writer(lake.catalog)
    for number in range(3):
        keys = range(number * 10, number * 10 + 4)
        lake.batch(1 + number, [(k, "other") for k in keys])
        job.write(number, [(k, "job") for k in keys[:2]])
    assert lake.kinds() == ["APPEND", "COMPACT", "APPEND"] * 3
    expected = [
        (k + n * 10, v) for n in range(3) for k, v in enumerate(["job"] * 2 + ["other"] * 2)
    ]
    assert lake.rows() == expected
    actual = lake.index()
    assert sum(map(len, actual.values())) == 12 == len(set.union(*actual.values()))


def test_moved_key_stays_moved_when_the_job_writes_its_old_bucket(lake: Lake) -> None:
    """A Java job assigns keys by the index as it was when the job met the partition, and adds to a
    bucket's index as that was when it began to write to the bucket. Here the index has been read
    before the job writes key 5 elsewhere."""
    lake.create()
    lake.batch(1, [(5, "other"), (6, "other")])
    job = Writer(lake.catalog)
    job.write(1, [(7, "job")])
    job.write(2, [(5, "job")])
    job.write(1, [(9, "job")])
    assert lake.kinds() == ["APPEND", "APPEND", "COMPACT", "APPEND", "APPEND"]
    assert lake.index() == {1: hashes(6, 7, 9), 2: hashes(5)}
    job.write(2, [(5, "again")])
    assert lake.rows() == [(5, "again"), (6, "other"), (7, "job"), (9, "job")]


def test_key_in_two_buckets_of_a_commit_goes_where_its_rows_are(lake: Lake) -> None:
    lake.create()
    lake.batch(1, [(5, "other"), (6, "other")])
    job = Writer(lake.catalog)
    job.put(1, [(7, "job")])
    job.write(2, [(5, "job")])
    assert lake.kinds() == ["APPEND", "COMPACT", "APPEND"]
    assert lake.index() == {1: hashes(6, 7), 2: hashes(5)}
    assert lake.rows() == [(5, "job"), (6, "other"), (7, "job")]


@pytest.mark.parametrize("seed", only_in_soak(range(3), ["1", "2"]))
def test_each_key_exists_once_in_any_order_of_job_and_batches(lake: Lake, seed: int) -> None:
    """Which of their rows of a key is the newest is by sequence numbers, which writers that run
    side by side count for themselves."""
    chance = random.Random(seed)
    lake.create()
    written: dict[int, set[str]] = defaultdict(set)
    chosen: dict[int, int] = {}  # the buckets of the job, which has met the partition at its begin
    job: Writer | None = None
    for number in range(30):
        of_job = job is not None and chance.random() < 0.6
        places = chosen if of_job else lake.buckets(range(30))
        rows: dict[int, list[tuple[int, str]]] = defaultdict(list)
        for key in chance.sample(range(30), 4):
            rows[places.setdefault(key, chance.randrange(4))].append((key, f"row {number}"))
        for bucket, own in rows.items():
            if not of_job:
                lake.batch(bucket, own)
            elif job is not None:
                job.put(bucket, own)
        if of_job and job is not None:
            job.commit_all()
        for key, value in (row for own in rows.values() for row in own):
            written[key].add(value)
        job = job or Writer(lake.catalog)
        if chance.random() < 0.1:
            job.restart()
            chosen = lake.buckets(range(30))
        actual = lake.rows()
        assert [key for key, _ in actual] == sorted(written), number
        assert all(value in written[key] for key, value in actual), number
        index = lake.index()
        assert set.union(*index.values()) == hashes(*written), number
        assert sum(map(len, index.values())) == len(written), number
        assert {**lake.buckets(range(30)), **chosen} == lake.buckets(range(30)), number
    assert "COMPACT" in lake.kinds()


def test_all_keys_with_the_same_hash_are_moved(lake: Lake) -> None:
    keys = np.random.default_rng(1).integers(0, 2**62, 400_000)  # no two below 2³² have one hash
    actual = binary_row_hash([pa.array(keys)])
    order = np.argsort(actual, kind="stable")
    at = int(np.flatnonzero(np.diff(actual[order]) == 0)[0])
    first, second = (int(keys[order[place]]) for place in (at, at + 1))
    lake.create()
    job = Writer(lake.catalog)
    job.write(0, [(-1, "job")])
    lake.batch(1, [(first, "a"), (second, "b"), (-2, "c")])
    job.write(0, [(first, "job")])
    assert lake.rows() == sorted([(-2, "c"), (-1, "job"), (first, "job"), (second, "b")])
    assert lake.index() == {0: hashes(-1, first), 1: hashes(-2)}
    lake.batch(0, [(second, "new")])
    assert dict(lake.rows())[second] == "new"


def test_bucket_without_keys_after_a_move_has_no_index(lake: Lake) -> None:
    lake.create()
    job = Writer(lake.catalog)
    lake.batch(0, [(1, "a"), (2, "b")])
    job.write(3, [(1, "x"), (2, "y")])
    assert lake.rows() == [(1, "x"), (2, "y")] and lake.index() == {3: hashes(1, 2)}


def test_move_leaves_other_partitions_unchanged(lake: Lake) -> None:
    lake.create()
    job = Writer(lake.catalog)
    lake.batch(0, [(1, "x")], "x")
    lake.batch(0, [(1, "y")], "y")
    job.write(1, [(1, "job")], "x")
    assert lake.rows() == [(1, "job"), (1, "y")]


def test_sequence_field_decides_between_moved_rows(lake: Lake) -> None:
    lake.create(**{"sequence.field": "v"})
    job = Writer(lake.catalog)
    lake.batch(1, [(1, "m"), (2, "m"), (3, "m")])
    job.write(0, [(1, "a"), (2, "z")])
    assert lake.rows() == [(1, "m"), (2, "z"), (3, "m")]


OBSTACLES = [
    ("merge-engine", "partial-update"),
    ("changelog-producer", "lookup"),
    ("deletion-vectors.enabled", "true"),
    ("ignore-delete", "true"),
]


@pytest.mark.parametrize(("key", "value"), OBSTACLES)
def test_job_is_refused_where_a_table_option_pins_keys(lake: Lake, key: str, value: str) -> None:
    lake.create(**{key: value})
    job = Writer(lake.catalog)
    lake.batch(1, [(5, "other")])
    with pytest.raises(Exception) as caught:
        job.write(2, [(5, "job")])
    assert f"In a table with '{key}' = '{value}', keys must stay" in told(caught)
    assert "restart this one so that it reads the current index" in told(caught)
    assert lake.kinds() == ["APPEND"]


@pytest.mark.parametrize(("key", "value"), OBSTACLES)
def test_batch_with_new_keys_is_refused_where_keys_are_pinned(
    lake: Lake, key: str, value: str
) -> None:
    lake.create(**{key: value})
    lake.batch(1, [(5, "before")])
    job = Writer(lake.catalog)
    job.write(0, [(1, "job")])
    late = Writer(lake.catalog, batch=True)
    with pytest.raises(Exception) as caught:
        late.write(1, [(5, "late"), (6, "late")])
    assert "adds 1 new keys to `default.t`" in told(caught)
    assert "last commit: snapshot 2). With" in told(caught)
    assert f"With '{key}' = '{value}', keys can't change buckets" in told(caught)
    assert "Let the streaming job write these rows, or stop it" in told(caught)
    lake.batch(1, [(5, "known")])
    job.write(0, [(6, "job"), (1, "again")])
    assert lake.kinds() == ["APPEND"] * 4
    assert lake.index() == {0: hashes(1, 6), 1: hashes(5)}


def test_statement_with_new_keys_is_refused_where_keys_are_pinned(
    lake: Lake, coordinator: Coordinator
) -> None:
    lake.create(**{"merge-engine": "partial-update"})
    job = Writer(lake.catalog)
    job.write(0, [(1, "job")])
    _, transaction, _ = coordinator.transactions.begin(TABLE, 1, "ada")
    known, new = (
        Writer(lake.catalog, batch=True).prepare(bucket, [(key, "late")])
        for bucket, key in ((0, 1), (1, 5))
    )
    table = lake.loaded()
    for change in (Append(), OverwriteTouched()):
        decoded_request = decoded(table, CommitRequest(transaction, change))
        with pytest.raises(StreamedKeysError, match="adds 1 new keys") as caught:
            commit(DecodedRequest(table, decoded_request.request, new, (0,)), publish_local_file)
        assert "'merge-engine' = 'partial-update'" in caught.value.message
    for properties, files in (((), known), (log_properties("log", 1, 1, 0), new)):
        own = replace(transaction, commit_user=f"{transaction.commit_user}-{len(properties)}")
        request = CommitRequest(own, Append(), (), properties)
        commit(DecodedRequest(table, request, files, (0,)), publish_local_file)
    assert lake.rows() == [(1, "late"), (5, "late")], "small inserts were acknowledged"


def test_ended_job_no_longer_blocks_new_keys(lake: Lake) -> None:
    lake.create(**{"changelog-producer": "lookup"})
    job = Writer(lake.catalog)
    job.write(0, [(1, "job")])
    with pytest.raises(Exception) as caught:
        lake.batch(1, [(5, "early")])
    assert "adds 1 new keys" in told(caught)
    job.end()
    lake.batch(1, [(5, "then")])
    other = Writer(lake.catalog)
    other.write(0, [(1, "other")])
    with pytest.raises(Exception) as caught:
        lake.batch(1, [(6, "early")])
    assert "adds 1 new keys" in told(caught)
    lake.age(hours=1)
    lake.batch(1, [(6, "then")])
    assert lake.index() == {0: hashes(1), 1: hashes(5, 6)}


def test_key_of_another_streaming_job_is_not_moved(lake: Lake) -> None:
    lake.create()
    first, second = Writer(lake.catalog), Writer(lake.catalog)
    second.write(1, [(2, "second")])
    first.write(0, [(1, "first")])
    with pytest.raises(Exception) as caught:
        second.write(3, [(1, "second")])
    assert "also writes the table" in told(caught)
    assert lake.rows() == [(1, "first"), (2, "second")]


def test_writer_with_an_index_from_before_a_move_is_refused(lake: Lake) -> None:
    lake.create()
    job = Writer(lake.catalog)
    lake.batch(1, [(5, "other"), (6, "other")])
    late, fine = (Writer(lake.catalog, batch=True) for _ in range(2))
    stray, kept = late.prepare(1, [(5, "late")]), fine.prepare(1, [(6, "fine")])
    job.write(2, [(5, "job")])
    with pytest.raises(Exception) as caught:
        late.commit(stray)
    assert "puts 1 row into bucket 1" in told(caught) and "moved for a streaming job" in told(
        caught
    )
    fine.commit(kept)
    job.write(2, [(7, "job")])
    assert lake.rows() == [(5, "job"), (6, "fine"), (7, "job")]


def test_statement_planned_before_a_move_is_replanned(lake: Lake, coordinator: Coordinator) -> None:
    lake.create()
    job = Writer(lake.catalog)
    lake.batch(1, [(5, "other"), (6, "other")])
    _, transaction, _ = coordinator.transactions.begin(TABLE, None, "ada")
    planned = [Writer(lake.catalog, batch=True) for _ in range(3)]
    moved, both, new = (
        writer.prepare(1, [(key, "late") for key in written])
        for writer, written in zip(planned, ((5,), (5, 9), (9,)), strict=True)
    )
    job.write(2, [(5, "job")])
    table = lake.loaded()
    decoded_request = decoded(table, CommitRequest(transaction, Append()))
    for files in (moved, both):
        with pytest.raises(OutdatedPlanError, match="moved keys to other buckets"):
            commit(DecodedRequest(table, decoded_request.request, files, (0,)), publish_local_file)
    # What does not concern the key that has gone is committed; its bucket's index stays without it.
    commit(DecodedRequest(table, decoded_request.request, new, (0,)), publish_local_file)
    lake.batch(1, [(6, "later")])
    assert lake.rows() == [(5, "job"), (6, "later"), (9, "late")]
    assert lake.index() == {1: hashes(6, 9), 2: hashes(5)}
