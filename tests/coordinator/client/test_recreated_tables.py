"""A statement never commits to another table that has taken the name of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paimon_magics.coordinator.client.interface import CoordinatorClient
from paimon_magics.errors import CommitConflictError
from paimon_magics.planning.commits.requests import (
    CommitRequest,
    OverwritePartitions,
    Transaction,
)
from paimon_magics.planning.schemas.table_schema import plan_create_table
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable, TableName
from paimon_magics.statements.table_changes import AlterTable
from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.clients import CLIENTS, opened_client
from tests.coordinator.process import TABLE, create_table, read
from tests.faults.appending import append, written

SQL = "CREATE TABLE t (k INT, v INT)"
OLD = TableName("old", "default")


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return create_table(tmp_path / "warehouse", SQL)


@pytest.fixture(params=CLIENTS)
def client(
    request: pytest.FixtureRequest, catalog: Catalog, tmp_path: Path
) -> Iterator[CoordinatorClient]:
    with opened_client(request.param, catalog, tmp_path) as opened:
        yield opened


def overwrite(transaction: Transaction) -> CommitRequest:
    """What TRUNCATE, and an INSERT OVERWRITE of no rows, ask for."""
    return CommitRequest(transaction, OverwritePartitions())


@pytest.mark.parametrize("way", ["dropped", "renamed"])
def test_commit_is_refused_when_another_table_takes_the_name(
    catalog: Catalog, client: CoordinatorClient, way: str
) -> None:
    append(catalog, client, [(1, 1)])
    transactions = [client.begin(TABLE) for _ in range(2)]
    appending = written(catalog.load(TABLE), transactions[0], [(2, 2)])
    if way == "dropped":
        catalog.drop_table(TABLE)
    else:
        catalog.rename_table(TABLE, OLD)
    statement = parse_statement(SQL)
    assert isinstance(statement, CreateTable)
    catalog.create_table(TABLE, plan_create_table(statement))
    append(catalog, client, [(100, 100)])
    for request in (overwrite(transactions[1]), appending):
        with pytest.raises(CommitConflictError, match=r"`default\.t` is another table now"):
            client.commit(request)
    assert [row["k"] for row in read(catalog)] == [100]
    if way == "renamed":
        assert [row["k"] for row in read(catalog, OLD)] == [1]


def test_transaction_commits_after_its_table_is_altered(
    catalog: Catalog, client: CoordinatorClient
) -> None:
    append(catalog, client, [(1, 1)])
    transaction = client.begin(TABLE)
    statement = parse_statement("ALTER TABLE t ADD COLUMN w INT")
    assert isinstance(statement, AlterTable)
    catalog.alter_table(TABLE, statement.changes)
    client.commit(overwrite(transaction))
    assert read(catalog) == []
