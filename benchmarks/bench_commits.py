"""The cost of a commit of one small file, as the 50th of a table and as the 5,000th, in this
process and over HTTP, compared with pypaimon's own commit of the same files.

The aim: under 20 ms over HTTP on a local disk when warm, and at most 1.5 times as much after 5,000
commits. Commits to a table with that many and to a fresh one alternate, so that other load of the
machine hits both. The time that the disk takes to make a small file durable is printed first, since
a commit waits for it several times. `COMMITS` in the environment makes it shorter.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
from measure import cpu_ms, file_sync_ms, timed

from paimon_magics.coordinator.client.in_process import InProcessCommitter
from paimon_magics.coordinator.client.interface import CoordinatorClient
from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.client.starting import At
from paimon_magics.planning.commits.requests import Append, CommitRequest, Transaction
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.settings import Settings
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.writing.native_writer import native_table
from paimon_magics.tables.writing.write_spec import WriteSpec
from paimon_magics.tables.writing.writer import write_batches

__all__ = ["append", "create", "started", "written"]

_COMMITS = int(os.environ.get("COMMITS", "5000"))
_FRESH = 30
_WINDOW = 40
_COLUMNS = (Column(0, "writer", AtomicType("INT")), Column(1, "number", AtomicType("INT")))


def create(catalog: Catalog, name: str) -> TableName:
    """Create a table without rows."""
    table = TableName(name, "default")
    catalog.create_table(table, TableSchema(_COLUMNS))
    return table


def written(
    catalog: Catalog, transaction: Transaction, number: int, partition_keys: tuple[str, ...] = ()
) -> tuple[bytes, ...]:
    """Write a file of one row, which has `number` in each column; return its commit messages."""
    table = catalog.load(transaction.table)
    schema = arrow_schema(table.schema)
    task = WriteSpec(
        table=native_table(table, {"data-file.prefix": transaction.file_prefix + "data-"}),
        commit_user=transaction.commit_user,
        schema=schema.serialize().to_pybytes(),
        partition_keys=partition_keys,
        bucket_rule=None,
        overwrite=False,
        attempts_folder=transaction.attempts_folder,
    )
    columns = [pa.array([number], pa.int32()).cast(field.type) for field in schema]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    return write_batches(task, [batch]).messages


def append(
    catalog: Catalog, committer: CoordinatorClient, name: TableName, number: int
) -> tuple[float, float]:
    """Run a transaction; return the times that `timed` measures of its commit."""
    transaction = committer.begin(name)
    request = CommitRequest(transaction, Append(), written(catalog, transaction, number))
    return timed(lambda: committer.commit(request))


@contextmanager
def started(warehouse: Path, state: Path, *options: str) -> Iterator[tuple[int, At]]:
    """A coordinator in a process of its own, until the end of the block: its process id and its
    address."""
    command = [sys.executable, "-m", "paimon_magics.coordinator", *options]
    process = subprocess.Popen(
        [*command, f"--warehouse={warehouse}", f"--state={state}"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        address = process.stdout.readline().split()[1]
        yield process.pid, At(address, (state / "token").read_text().strip())
    finally:
        process.terminate()
        process.wait()


def compare(
    how: str,
    pid: int,
    catalog: Catalog,
    commit: Callable[[TableName, int], tuple[float, float]],
) -> list[tuple[float, float]]:
    """Print the cost of a commit to a table with many commits, and to one with few; return the
    latter's times."""
    aged, fresh = (create(catalog, f"{how.replace(' ', '_')}_{age}") for age in ("aged", "fresh"))
    for number in range(_COMMITS - _WINDOW):
        commit(aged, number)
    for number in range(_FRESH):
        commit(fresh, number)
    times: dict[TableName, list[tuple[float, float]]] = {aged: [], fresh: []}
    cpu = {aged: 0.0, fresh: 0.0}
    for number in range(_WINDOW):
        for table in (fresh, aged):
            before_ms = cpu_ms(pid)
            times[table].append(commit(table, number))
            cpu[table] += (cpu_ms(pid) - before_ms) / _WINDOW
    for table, which in ((fresh, _FRESH + _WINDOW), (aged, _COMMITS)):
        median, _ = medians(times[table])
        print(
            f"{how}, commits up to the {which:>5,}th: median {median:>6.1f} ms; "
            f"a transaction takes {cpu[table]:>5.1f} ms of a core",
            flush=True,
        )
    ratio = medians(times[aged])[0] / medians(times[fresh])[0]
    print(f"{how}, late against early: {ratio:.2f} x, {cpu[aged] / cpu[fresh]:.2f} x in CPU time")
    return times[fresh]


def medians(times: list[tuple[float, float]]) -> tuple[float, float]:
    """The medians of the two times of `timed`."""
    return statistics.median(took for took, _ in times), statistics.median(cpu for _, cpu in times)


def pypaimons(catalog: Catalog) -> list[tuple[float, float]]:
    """The times that `timed` measures of pypaimon's own commits of the same files."""
    from pypaimon.write.commit_message_serializer import deserialize_commit_message

    committer = InProcessCommitter(catalog, Settings())
    name = create(catalog, "pypaimon")
    times = []
    for number in range(_FRESH + _WINDOW):
        transaction = committer.begin(name)
        table = catalog.load(name).paimon
        keys = table.partition_keys_fields, table.trimmed_primary_keys_fields
        bodies = written(catalog, transaction, number)
        messages = [deserialize_commit_message(body, *keys, version=14) for body in bodies]
        commit = table.new_batch_write_builder().new_commit()
        times.append(timed(partial(commit.commit, messages)))
        commit.close()
    return times[_FRESH:]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        print(f"making a small file durable: median {file_sync_ms(Path(folder)):.2f} ms")
        warehouse, state = Path(folder, "warehouse"), Path(folder, "state")
        catalog = Catalog.open({"warehouse": str(warehouse)})
        peer_ms, peer_cpu_ms = medians(pypaimons(catalog))
        in_process = partial(append, catalog, InProcessCommitter(catalog, Settings()))
        ours_ms, ours_cpu_ms = medians(compare("in this process", os.getpid(), catalog, in_process))
        print(
            f"in this process {ours_ms:.1f} ms, {ours_cpu_ms:.1f} ms of a core; pypaimon's own "
            f"commit, which makes nothing durable, {peer_ms:.1f} and {peer_cpu_ms:.1f} ms",
            flush=True,
        )
        with started(warehouse, state) as (pid, place):
            remote = RemoteCoordinator(place)
            try:
                compare("over HTTP", pid, catalog, partial(append, catalog, remote))
            finally:
                remote.close()


if __name__ == "__main__":
    main()
