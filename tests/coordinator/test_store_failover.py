"""PostgreSQL fails over to a replica while coordinators and their writers work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paimon_magics.statements.statement import TableName
from tests.coordinator.postgres import PostgresServer, start_postgres
from tests.coordinator.process import TABLE, create_table, read, wait_until
from tests.coordinator.team import Team, Writer, asked, flushed

INSERTED = TableName("inserted", "default")


@pytest.fixture
def servers() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """A primary and its synchronous replica."""
    primary = start_postgres()
    try:
        replica = primary.replica()
        yield primary, replica
        replica.remove()
    finally:
        primary.remove()


@pytest.mark.parametrize(
    "is_late",
    [
        pytest.param(False, id="at once"),
        pytest.param(True, id="after a lease", marks=pytest.mark.soak),
    ],
)
def test_promoted_replica_takes_over_without_lost_or_duplicate_rows(
    servers: tuple[PostgresServer, PostgresServer], tmp_path: Path, is_late: bool
) -> None:
    primary, replica = servers
    hosts = f"{primary.folder},{replica.folder}"
    team = Team(
        tmp_path,
        2,
        f"--store=postgresql://coordinator@/store?host={hosts}",
        environment=primary.environment,
    )
    try:
        catalog = create_table(team.warehouse, "CREATE TABLE t (k INT, v STRING)")
        create_table(
            team.warehouse,
            "CREATE TABLE inserted (k INT, v STRING) TBLPROPERTIES ('auto_batch_load' = 'true')",
        )
        team.owner()
        writers = [
            Writer(team.addresses, kind, number, catalog)
            for number, kind in enumerate(["commits", "inserts"])
        ]
        for writer in writers:
            writer.wait_for_another()
        primary.kill()
        if is_late:
            # Nobody owns the warehouse then: the owner steps down, and the other can't begin.
            wait_until(lambda: {asked(each, "/health/owner") for each in team.members} == {503})
        replica.promote()
        for writer in writers:
            writer.wait_for_another()
        for writer in writers:
            writer.end()
        flushed(team, INSERTED.table)
        for table, writer in ((TABLE, writers[0]), (INSERTED, writers[1])):
            keys = [int(str(row["k"])) for row in read(catalog, table)]
            assert sorted(keys) == sorted(writer.written)
    finally:
        team.close()
