"""A table of a million files in 100,000 partitions: planning, a commit, `health`, and their memory.

The aims: with a filter that leaves few partitions, planning takes time and memory for what is left,
not for the table; a commit takes no more than on a small table; the memory of the coordinator does
not grow with the table. The table is made of entries of manifests, written by the writer of
manifests that commits use; there are no data files, since none is opened. Each measurement is made
in a process of its own, whose peak memory is printed beside the time. `FILES` and `PARTITIONS` in
the environment set the size; with `--folder` the table is made there once, and used again.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench_commits import started, written
from measure import family_cpu_ms, median_ms, peak_mb, resident_mb
from pypaimon.manifest.manifest_list_manager import ManifestListManager

from paimon_magics.coordinator.client.in_process import InProcessCommitter
from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.planning.schemas.table_schema import plan_create_table
from paimon_magics.session.reports.health import Health
from paimon_magics.session.reports.layout import layout_of
from paimon_magics.settings import Settings
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import ColumnFilter, CreateTable, FilterValue, TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.manifests.merging import MergeRules
from paimon_magics.tables.manifests.names import MetadataNames
from paimon_magics.tables.manifests.partitions import list_partitions
from paimon_magics.tables.manifests.writing import ManifestReader, ManifestWriter
from paimon_magics.tables.reading.data_read import ReadRequest, plan_data_read
from paimon_magics.tables.snapshots.latest import latest_snapshot
from paimon_magics.tables.writing.row_layouts import INT, LONG, TEXT, RowLayout

_FILES = int(os.environ.get("FILES", "1000000"))
_PARTITIONS = int(os.environ.get("PARTITIONS", "100000"))
_SHOPS = 100
_EPOCH, _FIRST_DAY = datetime.date(1970, 1, 1), datetime.date(2020, 1, 1)
_ROWS_A_FILE = 1_000_000
_FILE_BYTES = 10_000_000
_NAME = TableName("large", "default")
_SQL = (
    "CREATE TABLE large (id BIGINT, name STRING, amount BIGINT, price DOUBLE, note STRING, "
    "day DATE, shop INT) PARTITIONED BY (day, shop)"
)
_PARTITION = (INT, INT)
_COLUMNS = (LONG, TEXT, LONG, "d", TEXT, *_PARTITION)
_COMMITS = 20


def fill(catalog: Catalog) -> None:
    """Create the table: the first commit is a real one, whose entry is the pattern of all others.
    The files of a day lie together, as those of a table that is written day by day."""
    statement = parse_statement(_SQL)
    assert isinstance(statement, CreateTable)
    catalog.create_table(_NAME, plan_create_table(statement))
    committer = InProcessCommitter(catalog, Settings())
    transaction = committer.begin(_NAME)
    committer.commit(
        CommitRequest(transaction, Append(), written(catalog, transaction, 1, ("day", "shop")))
    )
    table = catalog.load(_NAME)
    paimon = table.paimon
    lists = ManifestListManager(paimon)
    latest = latest_snapshot(paimon)
    (meta,) = lists.read_all(latest)
    (pattern,) = ManifestReader(paimon, meta).records()
    names = MetadataNames("large")
    writer = ManifestWriter(paimon, names, MergeRules.of(table.schema).target_bytes)
    writer.add_records(_entries(pattern))
    list_name = names.manifest_list()
    size_bytes = int(lists.write(list_name, writer.close()))
    folder = Path(table.location, "snapshot")
    document = json.loads((folder / "snapshot-1").read_text())
    document |= {
        "id": 2,
        "baseManifestList": list_name,
        "baseManifestListSize": size_bytes,
        "totalRecordCount": _FILES * _ROWS_A_FILE + 1,
    }
    (folder / "snapshot-2").write_text(json.dumps(document))
    (folder / "LATEST").write_text("2")


def _entries(pattern: dict[str, Any]) -> Iterator[dict[str, Any]]:
    of_partition, of_columns = RowLayout(_PARTITION), RowLayout(_COLUMNS)
    arities = len(_PARTITION).to_bytes(4, "big"), len(_COLUMNS).to_bytes(4, "big")
    for number in range(_FILES):
        place = number * _PARTITIONS // _FILES
        day, shop = place // _SHOPS, place % _SHOPS
        values = (_FIRST_DAY.toordinal() - _EPOCH.toordinal() + day, shop)
        least = [number * _ROWS_A_FILE, f"a{number}", number % 977, number / 7, "n", *values]
        most = [(number + 1) * _ROWS_A_FILE - 1, f"z{number}", number % 977 + 99, number / 3 + 1,
                f"o{number % 10007}", *values]  # fmt: skip
        statistics = {
            "_MIN_VALUES": arities[1] + of_columns.packed(least),
            "_MAX_VALUES": arities[1] + of_columns.packed(most),
            "_NULL_COUNTS": [0, number % 5, 0, 0, number % 3, 0, 0],
        }
        file = {
            **pattern["_FILE"],
            "_FILE_NAME": f"data-{number:032x}-0.parquet",
            "_FILE_SIZE": _FILE_BYTES + number % 10007,
            "_ROW_COUNT": _ROWS_A_FILE,
            "_VALUE_STATS": statistics,
            "_VALUE_STATS_COLS": None,
        }
        partition = arities[0] + of_partition.packed(values)
        yield {**pattern, "_PARTITION": partition, "_FILE": file}


def _day(days: int) -> ColumnFilter:
    day = _FIRST_DAY + datetime.timedelta(days=days)
    return ColumnFilter("day", "=", (FilterValue("date", day.isoformat()),))


def _shop(number: int) -> ColumnFilter:
    return ColumnFilter("shop", "=", (FilterValue("number", str(number)),))


def _id(number: int) -> ColumnFilter:
    return ColumnFilter("id", "=", (FilterValue("number", str(number)),))


_FILTERS: dict[str, tuple[ColumnFilter, ...]] = {
    "all files": (),
    "one day of a thousand": (_day(500),),
    "one partition": (_day(500), _shop(42)),
    "one shop of a hundred": (_shop(42),),
    "one id": (_id(_FILES // 2 * _ROWS_A_FILE + 5),),
}


def _planning(folder: str, what: str) -> None:
    table = Catalog.open({"warehouse": folder}).load(_NAME)
    filters = _FILTERS[what]
    found: list[int] = []
    before_mb = resident_mb(os.getpid())

    def cold() -> None:
        planned = plan_data_read(table, ReadRequest(filters=filters)).planned
        found.append(sum(len(raw.paths) for raw in planned.raw) + len(planned.splits))

    first_ms = median_ms(cold, runs=1, warm_up=0)
    first_mb = peak_mb()
    manifests = ManifestCache(table.paimon)

    def warm() -> None:
        plan_data_read(table, ReadRequest(filters=filters), manifests=manifests)

    warm_ms = median_ms(warm, runs=3)
    print(
        f"planning, {what}: {first_ms / 1000:.2f} s, peak {first_mb:.0f} MB "
        f"({before_mb:.0f} MB before); with kept manifests {warm_ms / 1000:.2f} s, peak "
        f"{peak_mb():.0f} MB; {found[0]:,} files",
        flush=True,
    )


def _told(what: str, action: Callable[[], object]) -> None:
    before_mb = resident_mb(os.getpid())
    taken_ms = median_ms(action, runs=1, warm_up=0)
    print(
        f"{what}: {taken_ms / 1000:.2f} s, peak {peak_mb():.0f} MB ({before_mb:.0f} MB before)",
        flush=True,
    )


def _health(folder: str) -> None:
    catalog = Catalog.open({"warehouse": folder})
    _told("health", lambda: str(Health((layout_of(catalog, _NAME, "large"),))))


def _partitions(folder: str) -> None:
    table = Catalog.open({"warehouse": folder}).load(_NAME)
    _told("SHOW PARTITIONS", lambda: list_partitions(table))


def _commit(folder: str) -> None:
    """Commits through a coordinator, whose memory is what counts."""
    catalog = Catalog.open({"warehouse": folder})
    with (
        tempfile.TemporaryDirectory() as state,
        started(Path(folder), Path(state, "state")) as (pid, place),
    ):
        before_mb = resident_mb(pid)
        client = RemoteCoordinator(place)
        times = []
        used_ms = family_cpu_ms(pid)
        for number in range(_COMMITS):
            transaction = client.begin(_NAME)
            messages = written(catalog, transaction, number, ("day", "shop"))
            began = time.perf_counter()
            client.commit(CommitRequest(transaction, Append(), messages))
            times.append((time.perf_counter() - began) * 1000)
        used_ms = (family_cpu_ms(pid) - used_ms) / _COMMITS
        peak = Path(f"/proc/{pid}/status").read_text().split("VmHWM:")[1].split()[0]
        times.sort()
        print(
            f"a commit of one file through a coordinator: median {times[_COMMITS // 2]:.0f} ms, "
            f"longest {times[-1]:.0f} ms, {used_ms:.0f} ms of a core; the coordinator "
            f"{before_mb:.0f} MB before, peak {int(peak) / 1000:.0f} MB",
            flush=True,
        )
        client.close()


_MEASURED: dict[str, Callable[[str], None]] = {
    "commit": _commit,
    "health": _health,
    "partitions": _partitions,
    **{what: lambda folder, what=what: _planning(folder, what) for what in _FILTERS},  # type: ignore[misc]
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--only", choices=_MEASURED, action="append")
    parser.add_argument("--here", choices=_MEASURED, help="measure this in this process")
    arguments = parser.parse_args()
    if arguments.here is not None:
        _MEASURED[arguments.here](str(arguments.folder))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        if not (folder / "default.db").exists():
            began = time.perf_counter()
            fill(Catalog.open({"warehouse": str(folder)}))
            manifests = list(Path(folder, "default.db", "large", "manifest").glob("manifest-*"))
            size = sum(manifest.stat().st_size for manifest in manifests)
            print(
                f"{_FILES:,} files in {_PARTITIONS:,} partitions: {len(manifests)} files of "
                f"{size / 1e6:.0f} MB in the manifest folder, made in "
                f"{time.perf_counter() - began:.0f} s",
                flush=True,
            )
        for what in arguments.only or _MEASURED:
            command = [sys.executable, __file__, "--folder", str(folder), "--here", what]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
