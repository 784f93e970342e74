"""A coordinator compacts tables by itself, in a process of its own."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from paimon_magics.coordinator.client.administration import CompactedTable
from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.manifests.live_files import ManifestCache, live_files
from paimon_magics.tables.snapshots.latest import latest_snapshot
from tests.coordinator.process import TABLE, Process, create_table, read, wait_until, write
from tests.tables.reachability import missing, unreachable

SETTLE = "--compact-settle-ms=50"
MERGED = "'primary-key' = 'k', 'bucket' = '1'"
Start = Callable[..., Process]


@pytest.fixture(scope="module")
def auto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A coordinator that looks after all tables, for several tests; each has its own table."""
    folder = tmp_path_factory.mktemp("auto")
    process = Process(folder / "warehouse", folder / "state", SETTLE, "--compact=auto")
    process.start()
    yield process
    process.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a coordinator of the test's warehouse; the same call again restarts it."""
    started: list[Process] = []

    def begin(*options: str, faults: str = "") -> Process:
        given = (SETTLE, "--lease-ms=2500", "--cleanup-grace-ms=200", *options)
        started.append(Process(tmp_path / "warehouse", tmp_path / "state", *given))
        started[-1].start(faults)
        return started[-1]

    yield begin
    for process in started:
        process.close()


def table(process: Process, options: str, name: TableName = TABLE) -> Catalog:
    sql = f"CREATE TABLE {name.table} (k INT NOT NULL, v STRING) TBLPROPERTIES ({options})"
    assert isinstance(process.warehouse, Path)
    return create_table(process.warehouse, sql)


def append(
    client: RemoteCoordinator, catalog: Catalog, *keys: int, name: TableName = TABLE
) -> None:
    for key in keys:
        transaction = client.begin(name)
        rows = [{"k": key, "v": "v"}, {"k": -1, "v": str(key)}]
        client.commit(CommitRequest(transaction, Append(), write(catalog, transaction, rows)))


def levels(catalog: Catalog, name: TableName = TABLE) -> list[int]:
    found = catalog.load(name)
    files = live_files(ManifestCache(found.paimon), latest_snapshot(found.paimon))
    return sorted(files["level"].to_pylist())


def values(catalog: Catalog, name: TableName = TABLE) -> list[tuple[object, object]]:
    return sorted((row["k"], row["v"]) for row in read(catalog, name))  # type: ignore[type-var]


def shown(client: RemoteCoordinator, name: TableName = TABLE) -> CompactedTable | None:
    tables = client.administration().compactions.status().tables
    return next((each for each in tables if each.table == name), None)


def is_in(client: RemoteCoordinator, state: str, name: TableName = TABLE) -> bool:
    found = shown(client, name)
    return found is not None and found.state == state


def test_bucket_at_the_trigger_is_compacted(auto: Process) -> None:
    process, catalog, client = auto, table(auto, MERGED), auto.client()
    append(client, catalog, *range(4))
    time.sleep(0.5)
    assert levels(catalog) == [0] * 4, "the trigger is five runs"
    append(client, catalog, 4)
    wait_until(lambda: levels(catalog) == [5])
    assert values(catalog) == [(-1, "4"), *((k, "v") for k in range(5))]
    snapshot = latest_snapshot(catalog.load(TABLE).paimon)
    assert snapshot.commit_kind == "COMPACT"
    assert snapshot.properties["paimon-magics.engine"] == "auto_compact"
    wait_until(lambda: is_in(client, "tidy"))
    metrics = httpx.get(
        f"{process.address}/metrics", headers={"Authorization": f"Bearer {process.token()}"}
    ).text
    assert "paimon_coordinator_compactions_buckets_total 0.0" not in metrics
    assert 'paimon_coordinator_compaction_tables{state="tidy"}' in metrics


def test_files_of_append_tables_are_compacted(auto: Process) -> None:
    name = TableName("a", "default")
    catalog = table(auto, "'bucket' = '-1'", name)
    append(auto.client(), catalog, *range(5), name=name)
    wait_until(lambda: len(levels(catalog, name)) == 1)
    assert len(read(catalog, name)) == 10


def test_rows_waiting_for_a_lookup_are_compacted_after_each_commit(auto: Process) -> None:
    name = TableName("v", "default")
    catalog = table(auto, f"{MERGED}, 'deletion-vectors.enabled' = 'true'", name)
    append(auto.client(), catalog, 1, name=name)
    wait_until(lambda: 0 not in levels(catalog, name))


def test_table_options_override_the_coordinators_compaction_setting(start: Start) -> None:
    process = start("--compact=off")
    other, asked = TableName("o", "default"), TableName("a", "default")
    catalog = table(process, MERGED, other)
    table(process, f"{MERGED}, 'auto_compact' = 'true'", asked)
    client = process.client()
    for name in (other, asked):
        append(client, catalog, *range(5), name=name)
    wait_until(lambda: levels(catalog, asked) == [5])
    assert shown(client, other) is None and levels(catalog, other) == [0] * 5


def test_compaction_pause_survives_a_restart(start: Start) -> None:
    process = start("--compact=auto")
    catalog, client = table(process, MERGED), process.client()
    assert client.administration().compactions.pause().by
    append(client, catalog, *range(5))
    wait_until(lambda: is_in(client, "due"))
    assert process.end() == 0
    process.start()
    client = process.client()
    status = client.administration().compactions.status()
    assert status.pause is not None and status.is_auto
    time.sleep(0.5)
    assert levels(catalog) == [0] * 5
    client.administration().compactions.resume()
    # What was committed before the restart is looked at, too.
    wait_until(lambda: levels(catalog) == [5])


def test_too_large_bucket_is_reported_and_not_compacted(start: Start) -> None:
    process = start("--compact=auto", "--compact-bytes-max=100")
    catalog, client = table(process, MERGED), process.client()
    append(client, catalog, *range(5))
    wait_until(lambda: (shown(client) or _NONE).large_buckets == 1)
    actual = shown(client)
    assert actual is not None
    assert "1 bucket" in actual.why and "CALL sys.compact" in actual.why
    assert levels(catalog) == [0] * 5
    page = httpx.get(process.address, headers={"Authorization": f"Bearer {process.token()}"}).text
    assert "too large for the coordinator" in page


def test_compactor_exceeding_its_memory_is_ended(start: Start) -> None:
    process = start("--compact=auto", "--compact-memory-bytes=1000000")
    catalog, client = table(process, MERGED), process.client()
    append(client, catalog, *range(5))
    wait_until(lambda: is_in(client, "failed"))
    actual = shown(client)
    assert actual is not None and "more than 977 KiB of memory" in actual.why
    assert levels(catalog) == [0] * 5


def test_table_of_a_streaming_job_is_not_compacted(auto: Process) -> None:
    name = TableName("s", "default")
    catalog, client = table(auto, MERGED, name), auto.client()
    loaded = catalog.load(name)
    write_of_stream = loaded.paimon.new_stream_write_builder()
    writer, commit = write_of_stream.new_write(), write_of_stream.new_commit()
    schema = pa.schema([pa.field("k", pa.int32(), nullable=False), ("v", pa.string())])
    writer.write_arrow(pa.table({"k": [1], "v": ["x"]}, schema=schema))
    commit.commit(writer.prepare_commit(1), 1)
    append(client, catalog, *range(5), name=name)
    wait_until(lambda: is_in(client, "left", name))
    actual = shown(client, name)
    assert actual is not None and "another engine" in actual.why
    assert 5 not in levels(catalog, name)


def test_killed_compactor_leaves_no_files(start: Start) -> None:
    process = start("--compact=auto", faults="compaction.written=stop")
    catalog, client = table(process, MERGED), process.client()
    append(client, catalog, *range(5))
    wait_until(lambda: is_in(client, "running"))
    stopped = _stopped_child(process)
    os.kill(stopped, signal.SIGKILL)
    wait_until(lambda: is_in(client, "failed"))
    loaded = catalog.load(TABLE)
    wait_until(lambda: not unreachable(loaded))  # the lease of its transaction has ended
    assert not missing(loaded) and levels(catalog) == [0] * 5
    assert len(values(catalog)) == 6


_NONE = CompactedTable(TABLE, "", 0, 0, 0, 0, None, "")


def _stopped_child(process: Process) -> int:
    assert process.running is not None
    found: list[int] = []

    def look() -> bool:
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                stat = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if stat[0] == "T" and int(stat[1]) == process.running.pid:  # type: ignore[union-attr]
                found.append(int(folder.name))
        return bool(found)

    wait_until(look)
    return found[0]
