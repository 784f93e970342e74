"""A compaction that writes changelogs and deletion vectors, aborted or refused: no file stays that
no snapshot names, and none is gone that one names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from paimon_magics.coordinator.client.interface import CoordinatorClient
from paimon_magics.errors import CompactionConflictError
from paimon_magics.planning.commits.requests import Append, CommitRequest, Compact, Transaction
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.compaction.messages import compaction_messages
from paimon_magics.tables.compaction.rewriting import rewrite_all
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.deletion_vector_files import vector_index
from tests.coordinator.process import read, write
from tests.faults.test_coordinator_crashes import Armed, wait_until_nothing_is_left
from tests.tables.commits.compacting import bodies
from tests.tables.compaction.compacted_tables import plan
from tests.tables.reachability import missing, unreachable

pytestmark = pytest.mark.slow

SQL = (
    "CREATE TABLE t (k INT NOT NULL, v STRING) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1', "
    "'changelog-producer' = 'lookup', 'deletion-vectors.enabled' = 'true', "
    "'compaction.size-ratio' = '0')"
)
FIRST = [{"k": k, "v": "old"} for k in range(500)]
SECOND = [{"k": k, "v": "new"} for k in range(3)]


@pytest.fixture(scope="module")
def armed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Armed]:
    started = Armed(tmp_path_factory.mktemp("armed"))
    yield started
    started.process.close()


def planned(client: CoordinatorClient, catalog: Catalog, name: TableName) -> CommitRequest:
    """A compaction of what a writer would pick, ready to be committed."""
    table = catalog.load(name)
    found = plan(table, is_full=False)
    transaction: Transaction = client.begin(name, found.snapshot_id)
    tasks = found.tasks(1)
    results = rewrite_all(found.spec(transaction), tasks)
    messages = compaction_messages(found, tasks, results, transaction)
    return CommitRequest(transaction, Compact(), bodies(table, messages))


def filled(client: CoordinatorClient, catalog: Catalog, name: TableName) -> Table:
    """Rows on the greatest level, and newer ones of some of their keys on level 0."""
    for rows in (FIRST, SECOND):
        transaction = client.begin(name)
        client.commit(CommitRequest(transaction, Append(), write(catalog, transaction, rows)))
        if rows is FIRST:
            client.commit(planned(client, catalog, name))
    return catalog.load(name)


def deleted(table: Table) -> list[list[int]]:
    index = vector_index(table, table.paimon.snapshot_manager().get_latest_snapshot())
    return [rows.tolist() for rows in index.vectors(((), 0)).values()]


def test_aborted_compaction_leaves_no_changelog_or_vectors(armed: Armed) -> None:
    catalog, name = armed.create_table(SQL)
    client = armed.process.client()
    table = filled(client, catalog, name)
    request = planned(client, catalog, name)
    assert len(unreachable(table)) >= 2, "a changelog file and an index file"
    client.abort(request.transaction)
    wait_until_nothing_is_left(catalog, name)
    assert unreachable(table) == set() and missing(table) == set()
    assert deleted(table) == []


def test_refused_compaction_keeps_the_vectors_of_the_other(armed: Armed) -> None:
    catalog, name = armed.create_table(SQL)
    client, other = armed.process.client(), armed.process.client()
    table = filled(client, catalog, name)
    request = planned(client, catalog, name)
    other.commit(planned(other, catalog, name))
    with pytest.raises(CompactionConflictError):
        client.commit(request)
    client.abort(request.transaction)
    wait_until_nothing_is_left(catalog, name)
    assert unreachable(table) == set() and missing(table) == set()
    assert deleted(table) == [[0, 1, 2]]
    actual = sorted((row["k"], row["v"]) for row in read(catalog, name))
    assert actual == [(k, "new" if k < 3 else "old") for k in range(500)]
