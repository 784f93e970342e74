"""A coordinator in a process of its own, and clients that insert a few rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.process import Process, create_table, read

TABLE = TableName("t", "default")
SLOW = "'group_commit_interval_ms' = '600000'"
QUICK = "'group_commit_interval_ms' = '100'"


def table_sql(columns: str = "id BIGINT, name STRING", options: str = QUICK) -> str:
    return f"CREATE TABLE t ({columns}) TBLPROPERTIES ('auto_batch_load' = 'true', {options})"


class Served:
    """A warehouse with a table, and a coordinator: its own, or that of `shared`."""

    def __init__(
        self,
        folder: Path,
        sql: str,
        *options: str,
        faults: str = "",
        shared: Served | None = None,
    ) -> None:
        self.name = TABLE
        self._shared = shared
        self._tables = 0
        if shared is not None:
            shared._tables += 1
            self.name = TableName(f"t{shared._tables}", "default")
            sql = sql.replace("CREATE TABLE t ", f"CREATE TABLE {self.name.table} ", 1)
            folder = shared.folder
        self.folder = folder
        self.catalog: Catalog = create_table(folder / "warehouse", sql)
        self.path = f"/v1/inserts/default/{self.name.table}"
        self._http = httpx.Client(timeout=60, trust_env=False)
        if shared is not None:
            self.process = shared.process
            return
        self.process = Process(folder / "warehouse", folder / "state", *options)
        self.process.start(faults)

    def close(self) -> None:
        self._http.close()
        if self._shared is None:
            self.process.close()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        """Send a request. `path` is appended to the table's path, unless it begins with `/v1` or
        with two slashes."""
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        if path.startswith("//"):
            path = path[1:]
        elif not path.startswith("/v1"):
            path = self.path + path
        return self._http.request(
            method,
            self.process.address + path,
            content=content,
            headers={"authorization": f"Bearer {self.process.token()}", **(headers or {})},
        )

    def insert(self, rows: Sequence[Sequence[object]], **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if "mode" in named:
            named["group_commit"] = named.pop("mode")
        return self.call("POST", "", {"rows": rows}, named)

    def flush(self) -> dict[str, Any]:
        answer = self.call("POST", "/flush")
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        return told

    def queue(self) -> dict[str, Any]:
        told: dict[str, Any] = self.call("GET", "").json()
        return told

    def rows(self) -> list[dict[str, object]]:
        """All rows of the table, by plain pypaimon."""
        return read(self.catalog, self.name)

    def ids(self) -> list[object]:
        return [row["id"] for row in self.rows()]
