"""A table is rolled back while a transaction is open, and others' snapshots take the ids of those
that are gone: the transaction's base is then another snapshot with the same id."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_magics.coordinator.client.interface import CoordinatorClient
from paimon_magics.coordinator.protocol.documents import transaction_document, transaction_of
from paimon_magics.errors import CommitConflictError, OutdatedPlanError
from paimon_magics.planning.commits.requests import (
    Append,
    Change,
    CommitRequest,
    OverwritePartitions,
    OverwriteTouched,
    Transaction,
)
from paimon_magics.settings import Settings
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.table_changes import AlterTable
from paimon_magics.statements.version_changes import RollBackToSnapshot
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.commits.receipts import log_properties
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.snapshots.latest import latest_snapshot_id, latest_state
from paimon_magics.tables.writing.table_write import completed, write_spec
from paimon_magics.tables.writing.writer import write_batches
from tests.coordinator.clients import CLIENTS, opened_client
from tests.coordinator.process import TABLE, create_table, read

APPEND = "CREATE TABLE t (k INT, v INT)"
KEYED = (
    "CREATE TABLE t (k INT NOT NULL, v INT) "
    "TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1', 'auto_batch_load' = 'false')"
)
DYNAMIC = KEYED.replace("'bucket' = '1'", "'bucket' = '-1'")
BUCKETED = (
    "CREATE TABLE t (k INT, v INT) TBLPROPERTIES ('bucket' = '2', 'bucket-key' = 'k', "
    "'auto_batch_load' = 'false')"
)
ALL = OverwritePartitions()


class World:
    """A table whose rows are written by whole transactions of a client."""

    def __init__(
        self, kind: str, folder: Path, client: CoordinatorClient, catalog: Catalog
    ) -> None:
        self.client, self.catalog = client, catalog

    def write(
        self,
        transaction: Transaction,
        keys: list[int],
        change: Change | None = None,
        **more: Any,
    ) -> CommitRequest:
        """The request that commits rows with these keys."""
        table, change = self.catalog.load(TABLE), change or Append()
        is_overwrite = not isinstance(change, Append)
        spec = write_spec(table, transaction, overwrite=is_overwrite, slots=1, settings=Settings())
        data = pa.Table.from_pylist([{"k": k, "v": k} for k in keys], arrow_schema(table.schema))
        written = write_batches(spec, data.to_batches())
        messages = completed(table, spec, written, transaction.base_snapshot_id).messages
        return CommitRequest(transaction, change, messages, **more)

    def append(self, *keys: int) -> None:
        self.client.commit(self.write(self.client.begin(TABLE), list(keys)))

    def roll_back(self, *newer: int, to: int = 2) -> None:
        """Roll back, and append each of the keys by a commit of its own."""
        self.client.change_versions(TABLE, RollBackToSnapshot(to))
        for key in newer:
            self.append(key)

    def keys(self) -> list[Any]:
        return sorted(row["k"] for row in read(self.catalog))  # type: ignore[type-var]


@pytest.fixture(params=CLIENTS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def world(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> Iterator[World]:
    sql = getattr(request, "param", APPEND)
    catalog = create_table(tmp_path / "warehouse", sql)
    with opened_client(kind, catalog, tmp_path) as client:
        world = World(kind, tmp_path, client, catalog)
        for key in range(1, 5):
            world.append(key)
        yield world


@pytest.mark.parametrize("world", [APPEND, KEYED], ids=["append", "keyed"], indirect=True)
@pytest.mark.parametrize(
    "change", [ALL, OverwriteTouched(), OverwriteTouched(only_unchanged=True)], ids=str
)
@pytest.mark.parametrize("newer", [(30, 40), (30, 40, 50)], ids=["same id", "beyond"])
def test_overwrite_is_refused_when_its_base_was_rolled_back_and_its_id_taken(
    world: World, change: Change, newer: tuple[int, ...]
) -> None:
    transaction = world.client.begin(TABLE, 4)
    request = world.write(transaction, [300], change)
    world.roll_back(*newer)
    with pytest.raises(CommitConflictError, match="rolled back to before snapshot 4") as raised:
        world.client.commit(request)
    assert isinstance(raised.value, OutdatedPlanError) == (
        change != ALL and change != OverwriteTouched()
    )
    assert world.keys() == [1, 2, *newer]


def test_overwrite_is_committed_when_its_base_is_still_there(world: World) -> None:
    transaction = world.client.begin(TABLE, 3)
    request = world.write(transaction, [300], OverwriteTouched(swallow_newer=False))
    world.roll_back(to=3)
    world.client.commit(request)
    assert world.keys() == [300]


def test_append_is_committed_after_a_roll_back_of_its_base(world: World) -> None:
    request = world.write(world.client.begin(TABLE), [300])
    world.roll_back(30, 40, 50)
    world.client.commit(request)
    assert world.keys() == [1, 2, 30, 40, 50, 300]


def test_transaction_is_not_opened_on_a_base_that_was_rolled_back_since_planning(
    world: World,
) -> None:
    base_id, name = latest_state(world.catalog.load(TABLE))
    world.client.begin(TABLE, base_id, base_manifest_list=name)
    world.roll_back()
    with pytest.raises(
        OutdatedPlanError, match=r"Snapshot 4 .* has expired, or the table was rolled"
    ):
        world.client.begin(TABLE, base_id)
    world.roll_back(30, 40)
    with pytest.raises(OutdatedPlanError, match="rolled back to before snapshot 4"):
        world.client.begin(TABLE, base_id, base_manifest_list=name)


@pytest.mark.parametrize("world", [DYNAMIC], ids=["dynamic buckets"], indirect=True)
@pytest.mark.parametrize("newer", [(30, 300), (30, 300, 50)], ids=["same id", "beyond"])
def test_keys_of_dynamic_buckets_are_not_added_on_an_index_that_was_rolled_back(
    world: World, newer: tuple[int, ...]
) -> None:
    """The session's client opens one such transaction at a time, a compaction stands in no line."""
    transaction = world.client.begin(TABLE, compacts=True)
    request = world.write(transaction, [300])
    world.roll_back(*newer)
    with pytest.raises(OutdatedPlanError, match="rolled back to before snapshot 4"):
        world.client.commit(request)
    assert world.keys() == sorted([1, 2, *newer])


@pytest.mark.parametrize("world", [BUCKETED], ids=["fixed buckets"], indirect=True)
def test_rows_are_not_added_to_buckets_that_were_rescaled_after_a_roll_back(world: World) -> None:
    transaction = world.client.begin(TABLE)
    request = world.write(transaction, [300])
    world.roll_back(30)
    statement = parse_statement("ALTER TABLE t SET TBLPROPERTIES ('bucket' = '3')")
    assert isinstance(statement, AlterTable)
    world.catalog.alter_table(TABLE, statement.changes)
    world.client.commit(world.write(world.client.begin(TABLE), [40], ALL))
    assert latest_snapshot_id(world.catalog.load(TABLE)) == 4
    with pytest.raises(OutdatedPlanError, match="written with 3 buckets"):
        world.client.commit(request)


@pytest.mark.parametrize("kind", ["in process"])  # no client commits records of a log
@pytest.mark.parametrize("newer", [(), (50,)], ids=["same id", "beyond"])
def test_records_of_a_log_are_not_published_twice_after_a_roll_back(
    world: World, newer: tuple[int, ...]
) -> None:
    batch = log_properties("log", 7, 9, 0)
    stalled = world.write(world.client.begin(TABLE), [300], properties=batch)
    world.roll_back()
    world.client.commit(world.write(world.client.begin(TABLE), [300], properties=batch))
    for key in (40, *newer):
        world.append(key)
    with pytest.raises(CommitConflictError, match="already has records up to 9"):
        world.client.commit(stalled)
    assert world.keys() == [1, 2, 40, *newer, 300]


@pytest.mark.parametrize("kind", ["in process"])
def test_log_batch_is_published_when_its_records_were_rolled_back(world: World) -> None:
    batch = log_properties("log", 7, 9, 0)
    stalled = world.write(world.client.begin(TABLE), [300], properties=batch)
    world.roll_back(30, 40, 50)
    world.client.commit(stalled)
    assert world.keys() == [1, 2, 30, 40, 50, 300]


def test_transaction_of_an_older_client_has_no_manifest_list(world: World) -> None:
    document = transaction_document(world.client.begin(TABLE))
    assert document.pop("base_manifest_list")
    transaction = transaction_of(document)
    assert transaction.base == (4, "")
    world.append(5)
    request = world.write(transaction, [300], OverwriteTouched(swallow_newer=True))
    assert world.client.commit(request).snapshot_id == 6
