"""Writers for tests, in this process or in others: whole transactions without Spark."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from paimon_magics.coordinator.client.in_process import InProcessCommitter
from paimon_magics.coordinator.client.interface import CoordinatorClient
from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.client.starting import At
from paimon_magics.coordinator.ownership.catalog_options import ENVIRONMENT
from paimon_magics.planning.commits.requests import (
    Append,
    CommitReceipt,
    CommitRequest,
    Transaction,
)
from paimon_magics.settings import Settings
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.native_writer import native_table
from paimon_magics.tables.writing.write_spec import WriteSpec
from paimon_magics.tables.writing.writer import write_batches

TABLE = TableName("t", "default")


def open_catalog(warehouse: Path | str) -> Catalog:
    """The catalog of a warehouse, with the options of its store in PAIMON_CATALOG_OPTIONS."""
    options = json.loads(os.environ.get(ENVIRONMENT, "{}"))
    return Catalog.open(options | {"warehouse": str(warehouse)})


def committer_of(catalog: Catalog) -> InProcessCommitter:
    return InProcessCommitter(catalog, Settings())


def written(
    table: Table, transaction: Transaction, rows: Sequence[tuple[object, ...]]
) -> CommitRequest:
    """Write `rows` of an unpartitioned append table, and return the request to append them."""
    schema = arrow_schema(table.schema)
    task = WriteSpec(
        table=native_table(table, {"data-file.prefix": transaction.file_prefix + "data-"}),
        commit_user=transaction.commit_user,
        schema=schema.serialize().to_pybytes(),
        partition_keys=(),
        bucket_rule=None,
        overwrite=False,
        attempts_folder=transaction.attempts_folder,
    )
    columns = [
        pa.array(column, type=field.type)
        for column, field in zip(zip(*rows, strict=True), schema, strict=True)
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    return CommitRequest(transaction, Append(), write_batches(task, [batch]).messages)


def append(
    catalog: Catalog, committer: CoordinatorClient, rows: Sequence[tuple[object, ...]]
) -> CommitReceipt:
    """Run a whole transaction on `TABLE` that appends `rows`."""
    transaction = committer.begin(TABLE)
    return committer.commit(written(catalog.load(TABLE), transaction, rows))


def main(warehouse: str, writer: str, commits: str, coordinator: str = "") -> None:
    """Append (writer, n) for every n below `commits`, each in a commit of its own. `coordinator` is
    a coordinator's address, with its token in PAIMON_COORDINATOR_TOKEN; empty means none."""
    catalog = open_catalog(warehouse)
    committer: CoordinatorClient = committer_of(catalog)
    if coordinator:
        committer = RemoteCoordinator(At(coordinator, os.environ["PAIMON_COORDINATOR_TOKEN"]))
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(int(commits)):
        receipt = append(catalog, committer, [(int(writer), number)])
        print(receipt.snapshot_id, flush=True)
    committer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
