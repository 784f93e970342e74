"""What is said of waiting rows when the coordinator can't tell what became of their batch."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.coordinator.inserts.serving import SLOW, Served, table_sql
from tests.coordinator.process import wait_until


def test_table_that_was_rolled_back_by_others_is_closed_with_a_plain_reason(
    tmp_path: Path,
) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        for number in (1, 2):
            served.insert([[number, "a"]])
            served.flush()
        served.insert([[3, "b"]])
        served.process.kill()
        served.process.start("flush.noted=kill")
        with pytest.raises(httpx.HTTPError):  # it dies when it has noted the batch
            served.call("POST", "/flush", {"wait_ms": 5_000})
        assert served.process.has_died()
        snapshots = tmp_path / "warehouse" / "default.db" / "t" / "snapshot"
        (snapshots / "snapshot-2").unlink()
        (snapshots / "LATEST").write_text("1")
        served.process.start()
        served.call("POST", "/flush", {"wait_ms": 1})
        wait_until(lambda: bool(served.queue()["closed"]), seconds=15)
        shown = str(served.queue()["closed"])
    assert "became visible is unknown: Snapshot 2 of `default.t` is gone" in shown
    assert "Halted" not in shown
