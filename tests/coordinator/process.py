"""A coordinator in a process of its own, and a writer of rows without Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.client.starting import At
from paimon_magics.planning.commits.requests import Transaction
from paimon_magics.planning.schemas.table_schema import plan_create_table
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable, TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.writing.bucket_counts import BucketRule
from paimon_magics.tables.writing.native_writer import native_table
from paimon_magics.tables.writing.write_spec import WriteSpec
from paimon_magics.tables.writing.writer import write_batches
from tests.coordinator.forking import Forked

TABLE = TableName("t", database="default")


class Process:
    """A coordinator's process, to be started, killed and started again on the same port, as by a
    supervisor."""

    def __init__(
        self,
        warehouse: Path | str,
        state: Path,
        *options: str,
        environment: Mapping[str, str] | None = None,
        catalog: Mapping[str, str] | None = None,
        port: int = 0,
    ) -> None:
        self.warehouse = warehouse
        self.state = state
        self.options = [*options, f"--warehouse={warehouse}"]
        if catalog is not None:
            file = state.with_suffix(".json")
            file.write_text(json.dumps(dict(catalog)))
            self.options = [*options, f"--catalog={file}"]
        self.environment = {**os.environ, **(environment or {})}
        self._port = str(port)
        self.running: Forked | subprocess.Popen[str] | None = None
        self.address = ""
        self._clients: list[RemoteCoordinator] = []

    def close(self) -> None:
        for client in self._clients:
            client.close()
        if self.running is not None and self.running.poll() is None:
            self.kill()

    def start(self, faults: str = "") -> None:
        environment = {**self.environment, "PAIMON_MAGICS_FAULTS": faults}
        arguments = [f"--state={self.state}", f"--port={self._port}", *self.options]
        if "LD_PRELOAD" in environment:  # a forked process has its libraries already
            self.running = subprocess.Popen(
                [sys.executable, "-m", "paimon_magics.coordinator", *arguments],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        else:
            self.running = Forked("paimon_magics.coordinator", arguments, environment)
        assert self.running.stdout is not None
        line = self.running.stdout.readline()
        if not line:
            self.running.communicate()
        assert line.startswith("paimon-coordinator "), line
        self.address = line.split()[1]
        if self._port == "0":  # an advertised address has another port
            self._port = self.address.rsplit(":", 1)[1]

    def kill(self) -> None:
        assert self.running is not None
        self.running.kill()
        self.running.communicate()

    def is_stopped(self) -> bool:
        """Whether a signal has stopped it, until it is continued."""
        assert self.running is not None
        return (
            Path(f"/proc/{self.running.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"
        )

    def go_on(self) -> None:
        assert self.running is not None
        self.running.send_signal(signal.SIGCONT)

    def has_died(self, seconds: float = 20) -> bool:
        assert self.running is not None
        try:
            self.running.communicate(timeout=seconds)
            return self.running.returncode == -signal.SIGKILL
        except subprocess.TimeoutExpired:
            return False

    def end(self) -> int:
        assert self.running is not None
        self.running.terminate()
        self.running.communicate(timeout=30)
        return self.running.wait()

    def client(self, token: str | None = None) -> RemoteCoordinator:
        """A client, by default with the token of the process. `close` closes it."""
        self._clients.append(RemoteCoordinator(At(self.address, token or self.token())))
        return self._clients[-1]

    def token(self) -> str:
        return (self.state / "token").read_text().strip()


def create_table(warehouse: Path | Mapping[str, str], sql: str) -> Catalog:
    """Create a table, unless it exists, in a warehouse's folder or in the catalog of these options.
    Return the catalog."""
    options = {"warehouse": str(warehouse)} if isinstance(warehouse, Path) else warehouse
    catalog = Catalog.open(options)
    statement = parse_statement(sql)
    assert isinstance(statement, CreateTable)
    name = TableName(statement.name.table, "default")
    catalog.create_table(name, plan_create_table(statement), if_not_exists=True)
    return catalog


def write(
    catalog: Catalog,
    transaction: Transaction,
    rows: Sequence[Mapping[str, object]],
    *,
    overwrite: bool = False,
) -> tuple[bytes, ...]:
    """Write rows as a Spark task would; return the commit messages."""
    table = catalog.load(transaction.table)
    table_schema = table.schema
    schema = arrow_schema(table_schema)
    rule = None
    if table_schema.bucket_mode == "HASH_FIXED":
        rule = BucketRule(table_schema.bucket_keys, table_schema.bucket)
    task = WriteSpec(
        table=native_table(
            table,
            {
                "data-file.prefix": transaction.file_prefix + "data-",
                "changelog-file.prefix": transaction.file_prefix + "changelog-",
            },
        ),
        commit_user=transaction.commit_user,
        schema=schema.serialize().to_pybytes(),
        partition_keys=table_schema.partition_keys,
        bucket_rule=rule,
        overwrite=overwrite,
        attempts_folder=transaction.attempts_folder,
    )
    batch = pa.RecordBatch.from_pylist([dict(row) for row in rows], schema=schema)
    return write_batches(task, [batch]).messages


def read(catalog: Catalog, table: TableName = TABLE) -> list[dict[str, object]]:
    """All rows, by plain pypaimon."""
    builder = catalog.load(table).paimon.new_read_builder()
    splits = builder.new_scan().plan().splits()
    rows: list[dict[str, object]] = builder.new_read().to_arrow(splits).to_pylist()
    return rows


def data_files(warehouse: Path) -> set[str]:
    # Folders may be removed meanwhile; `walk` skips them.
    names = (name for _, _, files in os.walk(warehouse) for name in files)
    return {name for name in names if name.endswith(".parquet")}


def wait_until(
    condition: Callable[[], bool], seconds: float = 30, shown: Callable[[], str] = str
) -> None:
    """Wait for a condition. A failure says what `shown` returns then."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it has not come true {shown()}"
        time.sleep(0.05)
