"""A compactor without Spark, in this process or in one of its own that a test may kill."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass

from paimon_magics.coordinator.client.compacting import (
    Compacted,
    CompactionReceipt,
    Messages,
    commit_compaction,
    compact_plan,
)
from paimon_magics.coordinator.client.interface import Attempts, CoordinatorClient
from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.client.starting import At
from paimon_magics.errors import PaimonMagicsError, UnknownOutcomeError
from paimon_magics.planning.commits.requests import CommitRequest, Transaction
from paimon_magics.settings import Settings
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.compaction.planning import CompactionScope
from paimon_magics.tables.compaction.plans import Plan, planned, rewritten_here
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.table import Table
from tests.faults.appending import committer_of, open_catalog


@dataclass(frozen=True)
class Compactor:
    """A `CompactionEngine` whose rewrites run in this process."""

    client: CoordinatorClient
    reruns_max: int = 20
    claims_wait_ms: int = 60_000

    def planned(self, table: Table, scope: CompactionScope) -> Plan | None:
        return planned(table, scope, ManifestCache(table.paimon))

    def begun(self, table: TableName, base: int, attempts: Attempts) -> Transaction:
        return self.client.begin(table, base, compacts=True)

    def rewritten(self, plan: Plan, transaction: Transaction) -> Messages:
        return Messages(rewritten_here(plan, transaction, threads=2, settings=Settings()))

    def provenance(self, rows: int, files: int) -> tuple[tuple[str, str], ...]:
        return ()

    def committed(self, request: CommitRequest) -> CompactionReceipt:
        try:
            return commit_compaction(self.client, request)
        except UnknownOutcomeError:
            raise
        except PaimonMagicsError:
            self.client.abort(request.transaction)
            raise

    def wait(self, seconds: float, reason: str) -> None:
        time.sleep(seconds)

    def compact(self, catalog: Catalog, name: TableName, *, is_full: bool) -> Compacted:
        """Compact all of a table that there is to compact."""
        scope = CompactionScope(is_full)
        plan = self.planned(catalog.load(name), scope)
        return (
            Compacted()
            if plan is None
            else compact_plan(self, plan, scope, claims_wait_ms=self.claims_wait_ms)
        )


def main(warehouse: str, table: str, how: str, coordinator: str) -> None:
    """Compact a table once, and print the number of its new snapshot, or what went wrong.
    `coordinator` is an address, with the token in PAIMON_COORDINATOR_TOKEN; empty means none."""
    catalog = open_catalog(warehouse)
    client: CoordinatorClient = committer_of(catalog)
    if coordinator:
        client = RemoteCoordinator(At(coordinator, os.environ["PAIMON_COORDINATOR_TOKEN"]))
    try:
        done = Compactor(client).compact(
            catalog, TableName(table, "default"), is_full=how == "full"
        )
        answer: dict[str, object] = {"snapshot": done.receipt and done.receipt.snapshot_id}
    except PaimonMagicsError as error:
        answer = {"error": type(error).__name__, "message": str(error)}
    print(json.dumps(answer), flush=True)
    client.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
