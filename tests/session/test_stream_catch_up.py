"""A stream that catches up with many snapshots, a few in each micro-batch: what it needs does not
grow with what it has read. `make soak` has the thousand snapshots."""

from __future__ import annotations

import os
import statistics
from pathlib import Path
from typing import Any

import pytest

from paimon_magics import Session
from paimon_magics.planning.reads.stream_points import stream_request
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.reading import table_stream
from paimon_magics.tables.reading.table_stream import TableStream
from tests.faults.appending import append, committer_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EACH, ROWS = 10, 20
GROWTH_MB_MAX = 48
"""Of a Python process between the first third of the batches and the end: allocators keep some."""


def filled(session: Session, snapshots: int) -> None:
    """Make the table `t`, with as many snapshots of 20 rows."""
    session.run("DROP TABLE IF EXISTS t; CREATE TABLE t (k BIGINT, v STRING)")
    committer = committer_of(session.catalog)
    for number in range(snapshots):
        rows = [(number * ROWS + row, "v") for row in range(ROWS)]
        append(session.catalog, committer, rows)
    committer.close()


def planner_mb(pid: int | None = None) -> float:
    """The memory of what plans streams' batches among the descendants of this process, in MB. The
    machine has more such processes: other workers of the tests start them, too."""
    folder, result = Path(f"/proc/{pid or os.getpid()}"), 0.0
    try:
        if b"streaming_source_runner" in (folder / "cmdline").read_bytes():
            status = (folder / "status").read_text()
            result = int(status.split("VmRSS:")[1].split()[0]) / 1000
        threads = [thread.read_text() for thread in folder.glob("task/*/children")]
    except (OSError, IndexError):
        return result
    return result + sum(planner_mb(int(child)) for child in " ".join(threads).split())


def test_stream_limits_bytes_of_kept_manifests(
    module_session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(module_session, 12)
    monkeypatch.setattr(table_stream, "_KEPT_BYTES_MAX", 200_000)  # of five manifests and lists
    table = module_session.catalog.load(TableName("t", "default"))
    request = stream_request(table.schema, {"scan.snapshot-id": "1"})
    stream = TableStream(module_session.catalog, TableName("t", "default"), request)
    assert len(list(stream.reads(stream.begin(), stream.latest()))) == 12
    assert stream._manifests.columns._cache._bytes <= 200_000


@pytest.mark.parametrize("snapshots", [30, pytest.param(1000, marks=pytest.mark.soak)])
def test_a_limited_stream_catches_up_without_growing(
    module_session: Session, tmp_path: Path, snapshots: int
) -> None:
    session = module_session
    filled(session, snapshots)
    session.run("DROP TABLE IF EXISTS kept; CREATE TABLE kept (k BIGINT, v STRING)")
    session.spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", snapshots)
    limits = {
        "scan.snapshot-id": 1,
        "read.stream.maxSnapshotsPerTrigger": EACH,
        "read.stream.maxRowsPerTrigger": EACH * ROWS,
    }
    stream = session.write_stream(session.stream("t", **limits), "kept", checkpoint=tmp_path)
    sizes: list[tuple[int, float]] = []
    batches = snapshots // EACH
    while not stream.wait(0.5):
        sizes.append((stream.progress.epochs, planner_mb()))
        if sizes[-1][0] >= batches:
            break
    stream.process_all()
    told: list[dict[str, Any]] = [
        each
        if isinstance(each, dict)
        else {"numInputRows": each.numInputRows, "durationMs": each.durationMs}
        for each in stream.query.recentProgress
    ]
    stream.stop()
    assert stream.progress.epochs == batches
    assert session.table("kept").count() == snapshots * ROWS
    read = [each["numInputRows"] for each in told if each["numInputRows"]]
    assert all(rows <= EACH * ROWS for rows in read)
    early = max(size for epoch, size in sizes if epoch <= max(batches // 3, 1))
    assert sizes[-1][1] - early < GROWTH_MB_MAX, sizes
    if snapshots >= 1000:
        times = [each["durationMs"]["triggerExecution"] for each in told if each["numInputRows"]]
        fifth = len(times) // 5
        middle, last = times[fifth : 2 * fifth], times[-fifth:]
        print(statistics.median(middle), statistics.median(last), "ms;", sizes[0], sizes[-1], "MB")
        assert statistics.median(last) < 2 * statistics.median(middle), times
