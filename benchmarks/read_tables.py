"""Tables that the benchmarks of reading read, and how ours is compared with the peer's.

The peer is Paimon's Spark connector where the environment variable PAIMON_SPARK_JAR names its jar.
Both read the same tables in one Spark session, in turn, and what both find must be equal. To cut
the sizes, set PAIMON_MAGICS_BENCH_ROWS, the number of rows after a merge.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench_writes import COLUMNS
from connector import JAR, connect
from measure import in_turns, report

import paimon_magics
from paimon_magics.statements.statement import TableName

ROWS = int(os.environ.get("PAIMON_MAGICS_BENCH_ROWS", "2000000"))
RUNS = 7
WARM_UP = 5  # the JVM compiles code that both use
VALUES = (
    "CAST(id % 1000 AS INT) AS a, id * 0.5D AS b, concat('value-', id) AS c, "
    "CAST(id % 100000 AS DECIMAL(12,2)) AS d, date_add(DATE'2024-01-01', CAST(id % 365 AS INT)) "
    "AS e, CAST(id % 4 AS INT) AS part"
)

Part = Callable[[paimon_magics.Session], None]
Steps = Callable[[Any], Any]


def run_parts(parts: Mapping[str, Part]) -> None:
    """Run the parts that the program's arguments name, or all, each in one session."""
    with tempfile.TemporaryDirectory() as folder:
        session = connect(folder)
        for name in sys.argv[1:] or parts:
            parts[name](session)
        session.close(stop_spark=True)


def keyed(session: paimon_magics.Session, name: str, rows: int) -> None:
    """Create a table whose two buckets have three runs of the same `rows` keys."""
    session.run(
        f"CREATE TABLE {name} ({COLUMNS}) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '2', "
        "'write-only' = 'true')"
    )
    for _ in range(3):
        session.run(f"INSERT INTO {name} SELECT id AS k, {VALUES} FROM range({rows})")


def in_steps(session: paimon_magics.Session, name: str, rows: int) -> None:
    """Create a table of `rows` keys in 40 files, whose keys follow one another."""
    session.run(
        f"CREATE TABLE {name} ({COLUMNS}) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '2')"
    )
    for start in range(0, rows, rows // 20):
        values = f"SELECT id AS k, {VALUES} FROM range({start}, {start + rows // 20})"
        session.run(f"INSERT INTO {name} {values}")


def stored_files(session: paimon_magics.Session, name: str) -> list[str]:
    """The data files of an unpartitioned table."""
    folder = Path(session.catalog.load(TableName(name, "default")).location)
    return [str(file) for file in folder.glob("bucket-*/*.parquet")]


def compare_sql(
    session: paimon_magics.Session,
    what: str,
    table: str,
    query: str,
    *,
    options: Mapping[str, str] | None = None,
    runs: int = RUNS,
    any_rows: bool = False,
) -> None:
    """Report a query of ours and of the connector's. `any_rows`: their rows may differ."""
    hints = ", ".join(f"'{key}' = '{value}'" for key, value in (options or {}).items())
    source = f"`{table}`" + (f" WITH ({hints})" if hints else "")

    def ours() -> Any:
        return session.run(query.format(source)).to_arrow().to_pylist()

    def connector() -> Any:
        if not options:
            named = f"connector.default.`{table}`"
            return session.spark.sql(query.format(named)).toArrow().to_pylist()
        reader = session.spark.read.format("paimon").options(**options)
        reader.table(f"connector.default.`{table}`").createOrReplaceTempView("peer")
        return session.spark.sql(query.format("peer")).toArrow().to_pylist()

    _compare(f"{what}, by SQL", ours, connector, runs=runs, any_rows=any_rows)


def compare_frames(
    session: paimon_magics.Session,
    what: str,
    table: str,
    steps: Steps,
    options: Mapping[str, str] | None = None,
) -> None:
    """Report the same steps on a frame of ours and on one of the connector's."""

    def ours() -> Any:
        return steps(session.table(table, **(options or {})))

    def connector() -> Any:
        reader = session.spark.read.format("paimon").options(**(options or {}))
        return steps(reader.table(f"connector.default.`{table}`"))

    _compare(f"{what}, a frame", ours, connector)


def _compare(
    what: str,
    ours: Callable[[], Any],
    connector: Callable[[], Any],
    *,
    runs: int = RUNS,
    any_rows: bool = False,
) -> None:
    if not JAR:
        ((ours_ms, _),) = in_turns(ours, runs=runs, warm_up=WARM_UP)
        report(what, ours_ms)
        return
    (ours_ms, found), (peer_ms, peer) = in_turns(ours, connector, runs=runs, warm_up=WARM_UP)
    report(what, ours_ms, "connector", peer_ms)
    if not any_rows and _sorted(found) != _sorted(peer):
        raise SystemExit(f"{what}: ours {str(found)[:300]}, the connector {str(peer)[:300]}")


def _sorted(found: Any) -> Any:
    return sorted(map(repr, found)) if isinstance(found, list) else found
