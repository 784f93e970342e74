"""The memory of notebooks, of a Spark server that they share, and of a coordinator.

    python benchmarks/bench_capacity.py [own] [shared] [server] [tables] [writers] [inserts]

Notebooks are real kernels, with a coordinator in a process of its own: `own` is one with a Spark of
its own, `shared` one on a Spark server, `server` that server by the number of its notebooks. Each
line is the sum of the
shares (PSS) of a process and its descendants, and of their resident pages (RSS). `--notebooks`
names the numbers of notebooks on one server, `--tables` and `--writers` those of the coordinator's
lines, `--rows` the rows of the query, `--pause` the seconds without work before it is looked at
again. Linux only. docs/capacity.md has the figures.
"""

from __future__ import annotations

import argparse
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from bench_commits import create, started
from bench_small_inserts import create as create_insert_tables
from bench_small_inserts import streamed
from bench_team import Load, run
from jupyter_client.manager import KernelManager
from measure import family_cpu_ms, family_mb

from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.client.starting import At
from paimon_magics.planning.schemas.table_schema import plan_create_table
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable, TableName
from paimon_magics.tables.catalog.catalog import Catalog

PARTS = ("own", "shared", "server", "tables", "writers", "inserts")
_CELL_S_MAX = 300
_SETTLES_S = 5
_RETURNS_S = 110  # an idle JVM returns its heap after a minute or more
_OPEN_S = 2
_FILL = """%%paimon
CREATE TABLE IF NOT EXISTS big (k BIGINT, v DOUBLE, s STRING);
INSERT OVERWRITE big SELECT id, id * 0.5, concat('name ', id % 1000) FROM range({rows})"""
_QUERY = (
    "%%paimon\nSELECT s, count(*) AS n, sum(v) AS total FROM big GROUP BY s ORDER BY total DESC"
)
_VIEWS = ("%%paimon\nSELECT * FROM big", "%paimon layout big", "%paimon health big")


class Kernel:
    """A kernel as a user's server starts it."""

    def __init__(self, folder: Path, variables: dict[str, str]) -> None:
        self._manager = KernelManager(kernel_name="python3")
        environment = {**os.environ, "IPYTHONDIR": str(folder / "ipython"), **variables}
        self._manager.start_kernel(cwd=str(folder), env=environment)
        self._client = self._manager.blocking_client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=_CELL_S_MAX)
        self.pid = int(self._manager.provisioner.pid)

    def run(self, code: str) -> None:
        """Run a cell that must succeed."""
        message = self._client.execute(code)
        ends = time.monotonic() + _CELL_S_MAX
        while True:
            try:
                answer = self._client.get_shell_msg(timeout=max(0.1, ends - time.monotonic()))
            except queue.Empty:
                raise TimeoutError(code) from None
            if answer["parent_header"].get("msg_id") == message:
                assert answer["content"]["status"] == "ok", answer["content"]
                return

    def stop(self) -> None:
        """End it as culling does."""
        self._client.stop_channels()
        self._manager.shutdown_kernel()


@contextmanager
def spark_server() -> Iterator[tuple[int, str]]:
    """A server that notebooks share, until the end of the block: its process id and address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "paimon_magics.spark.connect_server", f"--port={port}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().split()[-1]
            yield process.pid, address
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def show(what: str, pid: int) -> None:
    """Print the memory of a process and its descendants, after it has settled."""
    time.sleep(_SETTLES_S)
    share, resident = family_mb(pid)
    print(f"{what:<62} {share:>7,.0f} MB {resident:>7,.0f} MB", flush=True)


def variables_of(place: At) -> dict[str, str]:
    """What a hub puts into the environment of a user's server."""
    at = place.find()
    assert at is not None
    return {"PAIMON_COORDINATOR": at.address, "PAIMON_COORDINATOR_TOKEN": at.token or ""}


def notebook(what: str, folder: Path, variables: dict[str, str], asked: argparse.Namespace) -> None:
    """Measure one notebook, from its beginning to its idle end."""
    rows = asked.rows
    kernel = Kernel(folder, variables)
    try:
        show(f"{what}: a kernel before %load_ext", kernel.pid)
        kernel.run("%load_ext paimon_magics\nimport paimon_magics")
        kernel.run("%paimon connect")
        show(f"{what}: idle after connect", kernel.pid)
        kernel.run(_FILL.format(rows=rows))
        kernel.run(_QUERY)
        show(f"{what}: after INSERT and query of {rows:,} rows", kernel.pid)
        for code in _VIEWS:
            kernel.run(code)
        show(f"{what}: after a grid, layout and health as widgets", kernel.pid)
        time.sleep(asked.pause)
        show(f"{what}: the same, {asked.pause:.0f} s later", kernel.pid)
        kernel.run("frame = paimon_magics.active_session().run('SELECT * FROM big').to_pandas()")
        show(f"{what}: with {rows:,} rows as a pandas frame", kernel.pid)
    finally:
        kernel.stop()


def measure_own(folder: Path, asked: argparse.Namespace) -> None:
    """A notebook with a Spark of its own."""
    with started(folder / "warehouse", folder / "state") as (_, place):
        notebook("own Spark", folder, variables_of(place), asked)


def measure_shared(folder: Path, asked: argparse.Namespace) -> None:
    """A notebook on a server."""
    with (
        started(folder / "warehouse", folder / "state") as (_, place),
        spark_server() as (pid, address),
    ):
        variables = {**variables_of(place), "SPARK_REMOTE": address}
        notebook("on a server", folder, variables, asked)
        show("the server after these statements", pid)


def measure_server(folder: Path, asked: argparse.Namespace) -> None:
    """The server by the number of its notebooks: idle, and after each has written and read."""
    with started(folder / "warehouse", folder / "state") as (_, place), ExitStack() as stack:
        pid, address = stack.enter_context(spark_server())
        variables = {**variables_of(place), "SPARK_REMOTE": address}
        show("server: no notebook", pid)
        kernels: list[Kernel] = []
        for count in asked.notebooks:
            more = []
            while len(kernels) < count:
                kernels.append(Kernel(folder, variables))
                stack.callback(kernels[-1].stop)
                more.append(kernels[-1])
                kernels[-1].run("%load_ext paimon_magics\n%paimon connect")
            show(f"server: {count} notebooks, idle", pid)
            for number, kernel in enumerate(more):
                name = f"t{len(kernels)}_{number}"
                kernel.run(
                    f"%%paimon\nCREATE TABLE {name} (k BIGINT, v STRING);\n"
                    f"INSERT INTO {name} SELECT id, 'x' FROM range(100000);\n"
                    f"SELECT v, count(*) FROM {name} GROUP BY v"
                )
            show(f"server: {count} notebooks, each has written and read", pid)
            sizes = [family_mb(kernel.pid) for kernel in kernels]
            print(
                f"  a notebook of these: PSS {sum(a for a, _ in sizes) / count:.0f} MB on average, "
                f"{max(a for a, _ in sizes):.0f} MB at most; RSS {max(b for _, b in sizes):.0f} MB",
                flush=True,
            )


def measure_tables(folder: Path, asked: argparse.Namespace) -> None:
    """The coordinator by the number of tables with a queue of small inserts."""
    with started(folder / "warehouse", folder / "state") as (pid, place):
        at = place.find()
        assert at is not None
        catalog = Catalog.open({"warehouse": str(folder / "warehouse")})
        show("coordinator: no table", pid)
        made = 0
        with httpx.Client(
            timeout=300, trust_env=False, headers={"Authorization": f"Bearer {at.token}"}
        ) as http:
            for count in asked.tables:
                for number in range(made, count):
                    insert_table(catalog, f"queue_{number}")
                    http.post(
                        f"{at.address}/v1/inserts/default/queue_{number}", json={"rows": [[1, "a"]]}
                    ).raise_for_status()
                made = count
                show(f"coordinator: {count:,} tables, a small insert in the queue of each", pid)


def insert_table(catalog: Catalog, name: str) -> None:
    """Make a table that takes small inserts, and loads none of them meanwhile."""
    statement = parse_statement(
        f"CREATE TABLE {name} (id BIGINT, v STRING) TBLPROPERTIES "
        "('auto_batch_load' = 'true', 'group_commit_interval_ms' = '86400000')"
    )
    assert isinstance(statement, CreateTable)
    catalog.create_table(TableName(name, "default"), plan_create_table(statement))


def measure_writers(folder: Path, asked: argparse.Namespace) -> None:
    """The coordinator by the number of notebooks that commit to 50 tables, each after its last."""
    tables = 50
    with started(folder / "warehouse", folder / "state") as (pid, place):
        catalog = Catalog.open({"warehouse": str(folder / "warehouse")})
        for number in range(tables):
            create(catalog, f"team_{number}")
        for round, writers in enumerate(asked.writers):
            load = Load(writers, tables, 20, 20, first=round * 1_000)
            used_ms, began = family_cpu_ms(pid), time.perf_counter()
            commits = len(run(folder / "warehouse", place, load).numbers)
            seconds = time.perf_counter() - began
            used = (family_cpu_ms(pid) - used_ms) / seconds / 1000
            show(
                f"coordinator: {writers} writers, {commits / seconds:.0f} commits a second, "
                f"{used:.2f} core",
                pid,
            )
        at = place.find()
        assert at is not None
        client = RemoteCoordinator(At(at.address, at.token))
        for _ in range(asked.open):
            client.begin(TableName("team_0", "default"))
        show(f"coordinator: {asked.open:,} open transactions", pid)
        client.close()


def measure_inserts(folder: Path, asked: argparse.Namespace) -> None:
    """The coordinator by small inserts a second, by eight streams."""
    create_insert_tables(folder / "warehouse")
    with started(folder / "warehouse", folder / "state") as (pid, place):
        at = place.find()
        assert at is not None and urlsplit(at.address).hostname
        for rate in asked.rates:
            used_ms, began = family_cpu_ms(pid), time.perf_counter()
            rows, _ = streamed(at.address, at.token or "", rate / 8, seconds=20)
            seconds = time.perf_counter() - began
            used = (family_cpu_ms(pid) - used_ms) / seconds / 1000
            show(f"coordinator: {rows / seconds:,.0f} rows/s inserted, {used:.2f} core", pid)


def numbers(text: str) -> Sequence[int]:
    """Numbers that commas separate, in order."""
    return sorted(int(word) for word in text.split(","))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", choices=PARTS)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--pause", type=float, default=_RETURNS_S, help="seconds without work")
    parser.add_argument("--notebooks", type=numbers, default=(1, 10, 30))
    parser.add_argument("--tables", type=numbers, default=(100, 1_000, 10_000))
    parser.add_argument("--writers", type=numbers, default=(10, 50, 500))
    parser.add_argument("--open", type=int, default=1_000)
    parser.add_argument("--rates", type=numbers, default=(100, 1_000, 10_000))
    arguments = parser.parse_args()
    for part in arguments.parts or PARTS:
        with tempfile.TemporaryDirectory() as folder:
            globals()[f"measure_{part}"](Path(folder), arguments)


if __name__ == "__main__":
    main()
