"""What a commit of one small file costs when many came before it, in this process and over HTTP.

The aim: the median around commit 5,000 is at most 1.5 times that around commit 50, and under 20 ms
on a local disk. Then fifty writers commit to one table through a coordinator: how many attempts
were refused. `COMMITS` (5,000) and `WRITERS` (50) in the environment make it shorter.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pyarrow as pa

from paimon_magics.coordinator.client import CoordinatorClient
from paimon_magics.coordinator.finding import At
from paimon_magics.coordinator.in_process import InProcessCommitter
from paimon_magics.coordinator.remote import RemoteCoordinator
from paimon_magics.errors import CommitConflictError
from paimon_magics.planning.commits import Append, CommitRequest
from paimon_magics.planning.definitions import Column, TableDefinition
from paimon_magics.settings import Settings
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog import Catalog
from paimon_magics.tables.native import native_table
from paimon_magics.tables.types import arrow_schema
from paimon_magics.tables.writing import WriteTask, write_batches

_COMMITS = int(os.environ.get("COMMITS", "5000"))
_WRITERS = int(os.environ.get("WRITERS", "50"))
_COMMITS_A_WRITER = 100
_COLUMNS = (Column(0, "writer", AtomicType("INT")), Column(1, "number", AtomicType("INT")))


def append(catalog: Catalog, committer: CoordinatorClient, name: TableName, number: int) -> float:
    """One transaction; how long its commit took, in ms."""
    transaction = committer.begin(name)
    table = catalog.load(name)
    schema = arrow_schema(table.definition)
    task = WriteTask(
        table=native_table(table, {"data-file.prefix": transaction.file_prefix + "data-"}),
        commit_user=transaction.commit_user,
        schema=schema.serialize().to_pybytes(),
        partition_keys=(),
        bucket_rule=None,
        overwrite=False,
        attempts_folder=transaction.attempts_folder,
    )
    columns = [pa.array([number], type=field.type) for field in schema]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    request = CommitRequest(transaction, Append(), write_batches(task, [batch]).messages)
    started = time.perf_counter()
    committer.commit(request)
    return (time.perf_counter() - started) * 1000


def windows(how: str, catalog: Catalog, committer: CoordinatorClient) -> None:
    name = TableName(how.replace(" ", "_"), "default")
    catalog.create_table(name, TableDefinition(_COLUMNS))
    times = [append(catalog, committer, name, number) for number in range(_COMMITS)]
    ends = [end for end in (70, 520, _COMMITS) if end <= _COMMITS]
    medians = [statistics.median(times[end - 40 : end]) for end in ends]
    for end, median in zip(ends, medians, strict=True):
        print(f"{how}, median of the 40 commits up to {end:>6,}: {median:>8.1f} ms", flush=True)
    print(f"{how}, the last against the first: {medians[-1] / medians[0]:.2f} x", flush=True)


def many_writers(catalog: Catalog, committer: CoordinatorClient) -> None:
    name = TableName("many", "default")
    catalog.create_table(name, TableDefinition(_COLUMNS))
    refused = [0] * _WRITERS

    def write(writer: int) -> None:
        for number in range(_COMMITS_A_WRITER):
            try:
                append(catalog, committer, name, number)
            except CommitConflictError:
                refused[writer] += 1

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(_WRITERS)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - started
    attempts = _WRITERS * _COMMITS_A_WRITER
    print(
        f"{_WRITERS} writers, {attempts:,} commits: {sum(refused) / attempts:.2%} refused, "
        f"{attempts / seconds:.0f} commits a second",
        flush=True,
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        warehouse, state = Path(folder, "warehouse"), Path(folder, "state")
        catalog = Catalog.open({"warehouse": str(warehouse)})
        windows("in this process", catalog, InProcessCommitter(catalog, Settings()))
        command = [sys.executable, "-m", "paimon_magics.coordinator"]
        process = subprocess.Popen(
            [*command, f"--warehouse={warehouse}", f"--state={state}"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        address = process.stdout.readline().split()[1]
        remote = RemoteCoordinator(At(address, (state / "token").read_text().strip()))
        try:
            windows("over HTTP", catalog, remote)
            many_writers(catalog, remote)
        finally:
            remote.close()
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
