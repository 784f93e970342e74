"""A writer that bypasses the coordinator: plain pypaimon, in a process of its own.

It takes commits as lines of JSON. On request it stops itself (SIGSTOP) where pypaimon's file IO has
found that the snapshot's file does not exist and is about to rename over it. SIGCONT continues it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


class OutsideWriter:
    """The test's side of the process. For one commit at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.outside_writer"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._expect("ready")

    def commit(
        self,
        warehouse: Path,
        rows: Sequence[Mapping[str, object]],
        *,
        table: str = "default.t",
        overwrite: bool = False,
    ) -> None:
        """Commit rows."""
        self._send(warehouse, table, rows, overwrite, stop=False)
        self._expect("committed")

    def stop_before_renaming(
        self,
        warehouse: Path,
        rows: Sequence[Mapping[str, object]],
        *,
        table: str = "default.t",
        overwrite: bool = False,
    ) -> str:
        """Begin to commit rows, stop before the rename, return the name of the snapshot's file."""
        self._send(warehouse, table, rows, overwrite, stop=True)
        name = self._expect("renaming")
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)
        return name

    def go_on(self) -> None:
        """Let it rename, and finish its commit."""
        os.kill(self._process.pid, signal.SIGCONT)
        self._expect("committed")

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def _send(
        self,
        warehouse: Path,
        table: str,
        rows: Sequence[Mapping[str, object]],
        overwrite: bool,
        *,
        stop: bool,
    ) -> None:
        assert self._process.stdin is not None
        asked = [str(warehouse), table, [dict(row) for row in rows], overwrite, stop]
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()

    def _expect(self, word: str) -> str:
        assert self._process.stdout is not None
        said = self._process.stdout.readline().split()
        assert said and said[0] == word, said
        return said[-1]


def main() -> None:
    import pyarrow as pa
    from pypaimon import CatalogFactory
    from pypaimon.schema.data_types import PyarrowFieldParser

    stopping = False
    rename = Path.rename

    def rename_late(self: Path, target: Any) -> Path:
        nonlocal stopping
        if stopping and Path(target).name.startswith("snapshot-"):
            stopping = False
            print("renaming", Path(target).name, flush=True)
            os.kill(os.getpid(), signal.SIGSTOP)
        return rename(self, target)

    Path.rename = rename_late  # type: ignore[method-assign]
    print("ready", flush=True)
    for line in sys.stdin:
        warehouse, name, rows, overwrite, stop = json.loads(line)
        table = CatalogFactory.create({"warehouse": warehouse}).get_table(name)
        builder = table.new_batch_write_builder()
        if overwrite:
            builder = builder.overwrite({})
        writing = builder.new_write()
        schema = PyarrowFieldParser.from_paimon_schema(table.fields)
        writing.write_arrow(pa.Table.from_pylist(rows, schema=schema))
        stopping = stop
        builder.new_commit().commit(writing.prepare_commit())
        writing.close()
        print("committed", flush=True)


if __name__ == "__main__":
    main()
