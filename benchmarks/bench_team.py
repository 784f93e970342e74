"""A team on one coordinator: 500 notebooks that commit to 50 tables, and small inserts beside them.

The aims, on two cores that the clients share: at 50 commits a second a 99th percentile of a commit
under 1 s; 1,000 idle streams in 300 MB. The notebooks are threads of two processes; each has a
client of its own, with which it begins a transaction, writes a file of one row and commits it, as a
session does. What the clients take of the cores is printed beside what the coordinator takes. In
the end every acknowledged commit must be in its table once.

`--store postgresql://…` keeps the coordinator's state there; a password comes from PGPASSWORD.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from bench_commits import create, started, written
from bench_small_inserts import create as create_insert_tables
from bench_small_inserts import streamed
from measure import family_cpu_ms, machine_cpu_ms, resident_mb

from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.client.starting import At
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog

__all__ = ["Load", "Times", "doubled_or_lost", "run"]

_PROCESSES = 2
_NUMBERS_A_NOTEBOOK = 10_000
_STREAMED_ROWS_A_SECOND = 10_000
_STREAMS = 8


@dataclass(frozen=True, slots=True)
class Load:
    """What the notebooks do: each commits to one of `tables`, together `commits_a_second` for
    `seconds`; 0 means one commit after the other. `first` is the number of the first row."""

    notebooks: int
    tables: int
    seconds: float
    commits_a_second: float
    first: int = 0


@dataclass(frozen=True, slots=True)
class Times:
    """What a phase took: the times of opening a transaction and of its commit in ms, the numbers of
    the rows of acknowledged commits, the time of cores that the notebooks used, and the seconds
    from the first opening to the end of the last commit."""

    begins_ms: list[float]
    commits_ms: list[float]
    numbers: list[int]
    cpu_ms: float
    seconds: float


def table_of(notebook: int, tables: int) -> TableName:
    """The table that a notebook writes."""
    return TableName(f"team_{notebook % tables}", "default")


def work(
    warehouse: str,
    address: str,
    token: str,
    notebooks: Sequence[int],
    load: Load,
    results: object,
) -> None:
    """Run some notebooks, a thread each; put their `Times` into the queue `results`."""
    catalog = Catalog.open({"warehouse": warehouse})
    begins: list[float] = []
    commits: list[float] = []
    numbers: list[int] = []
    failures: list[Exception] = []
    clients = [RemoteCoordinator(At(address, token)) for _ in notebooks]
    for client in clients:
        client.warehouse()  # connects, as every session does before its first commit
    ready = threading.Barrier(len(notebooks) + 1)
    used_ms = time.process_time() * 1000

    def notebook(number: int, client: RemoteCoordinator) -> None:
        name = table_of(number, load.tables)
        period = load.notebooks / load.commits_a_second if load.commits_a_second else 0.0
        ready.wait()
        began = time.perf_counter()
        due = began + period * number / load.notebooks
        count = load.first
        try:
            while due < began + load.seconds:
                time.sleep(max(0.0, due - time.perf_counter()))
                opening = time.perf_counter()
                transaction = client.begin(name)
                opened = time.perf_counter()
                row = number * _NUMBERS_A_NOTEBOOK + count
                request = CommitRequest(transaction, Append(), written(catalog, transaction, row))
                asked = time.perf_counter()
                client.commit(request)
                begins.append((opened - opening) * 1000)
                commits.append((time.perf_counter() - asked) * 1000)
                numbers.append(row)
                count += 1
                due = due + period if period else time.perf_counter()
        except Exception as error:  # told to the parent, which fails
            failures.append(error)

    threads = [
        threading.Thread(target=notebook, args=pair, daemon=True)
        for pair in zip(notebooks, clients, strict=True)
    ]
    for thread in threads:
        thread.start()
    ready.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    used_ms = time.process_time() * 1000 - used_ms
    for client in clients:
        client.close()
    if failures:
        results.put(failures[0])  # type: ignore[attr-defined]
    else:
        results.put(Times(begins, commits, numbers, used_ms, seconds))  # type: ignore[attr-defined]


def run(warehouse: Path, place: At, load: Load) -> Times:
    """Run all notebooks; raise what one of them raised."""
    found = place.find()
    assert found is not None
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    shared = str(warehouse), found.address, found.token
    processes = [
        context.Process(
            target=work,
            args=(*shared, range(at, load.notebooks, _PROCESSES), load, results),
        )
        for at in range(min(_PROCESSES, load.notebooks))
    ]
    for process in processes:
        process.start()
    parts = [results.get() for _ in processes]
    for process in processes:
        process.join()
    for part in parts:
        if isinstance(part, Exception):
            raise part
    return Times(
        [each for part in parts for each in part.begins_ms],
        [each for part in parts for each in part.commits_ms],
        [number for part in parts for number in part.numbers],
        sum(part.cpu_ms for part in parts),
        max(part.seconds for part in parts),
    )


def doubled_or_lost(
    catalog: Catalog, acknowledged: Sequence[int], tables: int
) -> tuple[list[int], list[int]]:
    """The acknowledged numbers that are in their table more than once, and those that are not."""
    found: Counter[int] = Counter()
    for table in range(tables):
        builder = catalog.load(table_of(table, tables)).paimon.new_read_builder()
        splits = builder.new_scan().plan().splits()
        rows = builder.new_read().to_arrow(splits).column("number").to_pylist()
        assert all(row // _NUMBERS_A_NOTEBOOK % tables == table for row in rows)
        found.update(rows)
    return (
        sorted(number for number, count in found.items() if count > 1),
        sorted(set(acknowledged) - set(found)),
    )


@contextmanager
def idle_streams(place: At, count: int) -> Iterator[None]:
    """Keep streams of small inserts open that send nothing, until the end of the block."""
    found = place.find()
    assert found is not None
    where = urlsplit(found.address)
    opened, ended = threading.Event(), threading.Event()

    async def one() -> asyncio.StreamWriter:
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        writer.write(
            f"GET /v1/inserts/default/events/stream HTTP/1.1\r\nHost: {where.netloc}\r\n"
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
            f"Authorization: Bearer {found.token}\r\n\r\n".encode()
        )
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 101 " in head, head
        return writer

    async def all_of_them() -> None:
        writers = []
        for _ in range(count):
            writers.append(await one())
        opened.set()
        while not ended.is_set():
            await asyncio.sleep(0.1)
        for writer in writers:
            writer.close()

    thread = threading.Thread(target=lambda: asyncio.run(all_of_them()), daemon=True)
    thread.start()
    assert opened.wait(120), "the streams did not open"
    try:
        yield
    finally:
        ended.set()
        thread.join()


def late(times: Sequence[float]) -> float:
    """The 99th percentile."""
    return statistics.quantiles(times, n=100, method="inclusive")[98]


def measured(what: str, warehouse: Path, pid: int, place: At, load: Load) -> list[int]:
    """Run a phase, print it, and return the numbers of its commits."""
    used_ms, all_ms, began = family_cpu_ms(pid), machine_cpu_ms(), time.perf_counter()
    times = run(warehouse, place, load)
    seconds = time.perf_counter() - began
    used_ms, all_ms = family_cpu_ms(pid) - used_ms, machine_cpu_ms() - all_ms
    commits = len(times.commits_ms)
    print(
        f"{load.notebooks} notebooks, {load.tables} tables, {what}: {commits:,} commits, "
        f"{commits / times.seconds:.0f} a second, commit p50 "
        f"{statistics.median(times.commits_ms):.0f} ms, p99 {late(times.commits_ms):.0f} ms, "
        f"longest {max(times.commits_ms):.0f} ms; opening p50 "
        f"{statistics.median(times.begins_ms):.0f} ms, p99 {late(times.begins_ms):.0f} ms\n"
        f"  of a core: coordinator {used_ms / seconds / 1000:.2f} ({used_ms / commits:.1f} ms a "
        f"commit), notebooks {times.cpu_ms / seconds / 1000:.2f}, all of the machine "
        f"{all_ms / seconds / 1000:.2f}; coordinator {resident_mb(pid):.0f} MB resident",
        flush=True,
    )
    return times.numbers


def beside_inserts(warehouse: Path, pid: int, place: At, load: Load) -> list[int]:
    """As `measured`, while streams insert rows."""
    found = place.find()
    assert found is not None
    streams: list[tuple[int, list[float]]] = []

    def insert() -> None:
        streams.append(
            streamed(
                found.address,
                found.token,
                _STREAMED_ROWS_A_SECOND / _STREAMS,
                seconds=load.seconds,
            )
        )

    inserting = threading.Thread(target=insert)
    inserting.start()
    numbers = measured("with small inserts", warehouse, pid, place, load)
    inserting.join()
    ((rows, times),) = streams
    print(
        f"  beside them {rows:,} rows of {_STREAMS} streams, {rows / load.seconds:,.0f} a second, "
        f"p50 {statistics.median(times):.1f} ms, p99 {late(times):.1f} ms",
        flush=True,
    )
    with httpx.Client(timeout=300, trust_env=False) as http:
        http.post(
            f"{found.address}/v1/inserts/default/events/flush",
            headers={"Authorization": f"Bearer {found.token}"},
            json={"wait_ms": 240_000},
        ).raise_for_status()
    return numbers


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--notebooks", type=int, default=500)
    parser.add_argument("--tables", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rate", type=float, default=50, help="commits a second")
    parser.add_argument("--idle-streams", type=int, default=1000)
    parser.add_argument("--store", help="the coordinator's store, as postgresql://…")
    parser.add_argument("--log", default="store", help="store or warehouse")
    arguments = parser.parse_args()
    options = [
        f"--log={arguments.log}",
        *([f"--store={arguments.store}"] if arguments.store else []),
    ]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        warehouse = folder / "warehouse"
        create_insert_tables(warehouse)
        catalog = Catalog.open({"warehouse": str(warehouse)})
        for table in range(arguments.tables):
            create(catalog, table_of(table, arguments.tables).table)
        pid, place = stack.enter_context(started(warehouse, folder / "state", *options))
        print(f"the coordinator has {resident_mb(pid):.0f} MB resident at first", flush=True)
        load = Load(arguments.notebooks, arguments.tables, arguments.seconds, arguments.rate)
        numbers = measured("alone", warehouse, pid, place, load)
        load = Load(
            arguments.notebooks, arguments.tables, arguments.seconds, arguments.rate, first=1_000
        )
        numbers += beside_inserts(warehouse, pid, place, load)
        load = Load(arguments.notebooks, arguments.tables, arguments.seconds, 0, first=2_000)
        numbers += measured("one after the other", warehouse, pid, place, load)
        doubled, lost = doubled_or_lost(catalog, numbers, arguments.tables)
        assert not doubled and not lost, (doubled, lost)
        print(f"each of the {len(numbers):,} acknowledged commits is in its table once")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        create_insert_tables(folder / "warehouse")
        pid, place = stack.enter_context(started(folder / "warehouse", folder / "state"))
        before_mb = resident_mb(pid)
        with idle_streams(place, arguments.idle_streams):
            used_ms, began = family_cpu_ms(pid), time.perf_counter()
            time.sleep(10)
            used = (family_cpu_ms(pid) - used_ms) / (time.perf_counter() - began) / 1000
            print(
                f"{arguments.idle_streams:,} idle streams: {resident_mb(pid):.0f} MB resident, "
                f"{before_mb:.0f} MB before them, {used:.3f} of a core"
            )


if __name__ == "__main__":
    main()
