"""A coordinator that stood still for too long, while another one took its warehouse over."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from paimon_magics.errors import CommitConflictError
from tests.coordinator.inserts.serving import SLOW, TABLE, Served, table_sql
from tests.coordinator.process import Process, read, wait_until

LEASE = "--ownership-lease-ms=2000"


def flush_or_fail(served: Served) -> None:
    with contextlib.suppress(httpx.TransportError):
        served.call("POST", "/flush")


@pytest.mark.slow
def test_deposed_owner_acknowledges_no_inserts(tmp_path: Path) -> None:
    fault = tmp_path / "fault"
    with Served(tmp_path, table_sql(options=SLOW), LEASE, faults=f"@{fault}") as served:
        served.insert([[1, "a"]])
        served.flush()
        # It stops with an insert in its log of which nobody has heard.
        fault.with_suffix(".part").write_text("log.appended=stop")
        fault.with_suffix(".part").rename(fault)
        told: list[Any] = []
        asking = threading.Thread(target=lambda: told.append(served.insert([[2, "a"]])))
        asking.start()
        wait_until(lambda: not fault.exists())
        wait_until(served.process.is_stopped)
        newer = Process(served.process.warehouse, tmp_path / "other-state", LEASE)
        newer.start()
        try:
            served.process.go_on()
            asking.join()
            # Its row is in a log that may come back: nobody can say that it was not inserted.
            assert told[0].status_code == 502
            assert "taken over" in told[0].json()["error"]["message"], told[0].json()
            assert served.process.running is not None
            served.process.running.communicate(timeout=30)
            assert served.process.running.returncode == 3
            # The newer one knows that a log with rows is elsewhere.
            heir = Served.__new__(Served)
            heir.__dict__.update(served.__dict__)
            heir.process = newer
            answer = heir.insert([[3, "a"]])
            assert answer.status_code == 409
            assert "another log" in heir.queue()["closed"]
            assert read(served.catalog, TABLE) == [{"id": 1, "name": "a"}]
        finally:
            newer.end()
        # When the log comes back, what is in it is loaded.
        served.process.start()
        assert served.insert([[4, "a"]]).status_code == 200
        served.flush()
        assert served.ids() == [1, 2, 4]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "published"),
    [
        ("flush.noted", [1]),
        # Past its last look at who owns the warehouse, and nobody else has published there since.
        ("commit.prepared", [1, 2]),
    ],
)
def test_owner_deposed_while_loading_duplicates_no_rows(
    tmp_path: Path, step: str, published: list[int]
) -> None:
    fault = tmp_path / "fault"
    with Served(tmp_path, table_sql(options=SLOW), LEASE, faults=f"@{fault}") as served:
        served.insert([[1, "a"]])
        served.flush()
        served.insert([[2, "a"]])
        fault.with_suffix(".part").write_text(f"{step}=stop")
        fault.with_suffix(".part").rename(fault)
        flushing = threading.Thread(target=flush_or_fail, args=(served,))
        flushing.start()
        wait_until(served.process.is_stopped)
        newer = Process(served.process.warehouse, tmp_path / "other-state", LEASE)
        newer.start()
        try:
            # No statement gets in before rows that were acknowledged and are not there.
            with pytest.raises(CommitConflictError, match="another log"):
                newer.client().begin(TABLE)
            served.process.go_on()
            assert served.process.running is not None
            served.process.running.communicate(timeout=30)
            flushing.join()
            assert served.ids() == published
        finally:
            newer.end()
        served.process.start()
        served.flush()
        assert served.ids() == [1, 2]


@pytest.mark.slow
@pytest.mark.parametrize(
    "step", ["log.appended", pytest.param("commit.prepared", marks=pytest.mark.soak)]
)
def test_new_owner_continues_the_log_in_the_warehouse_at_its_end(tmp_path: Path, step: str) -> None:
    fault = tmp_path / "fault"
    log = "--log=warehouse"
    with Served(tmp_path, table_sql(options=SLOW), LEASE, log, faults=f"@{fault}") as served:
        served.insert([[1, "a"]])
        served.flush()
        served.insert([[2, "a"]])
        fault.with_suffix(".part").write_text(f"{step}=stop")
        fault.with_suffix(".part").rename(fault)
        is_insert = step.startswith("log")
        told: list[Any] = []

        def ask() -> None:
            with contextlib.suppress(httpx.TransportError):
                told.append(
                    served.insert([[3, "a"]]) if is_insert else served.call("POST", "/flush")
                )

        asking = threading.Thread(target=ask)
        asking.start()
        wait_until(served.process.is_stopped)
        newer = Process(served.process.warehouse, tmp_path / "other-state", LEASE, log)
        newer.start()
        try:
            heir = Served.__new__(Served)
            heir.__dict__.update(served.__dict__)
            heir.process = newer
            assert heir.insert([[4, "a"]], idempotency_key="four").status_code == 200
            heir.flush()
            # What was in the log is in the table, told or not; what was not is not.
            expected = [1, 2, 3, 4] if step == "log.appended" else [1, 2, 4]
            assert heir.ids() == expected
            served.process.go_on()
            asking.join()
            assert not is_insert or told[0].status_code == 502
            assert served.process.running is not None
            served.process.running.communicate(timeout=30)
            assert served.process.running.returncode in (3, 4)
            assert heir.insert([[4, "a"]], idempotency_key="four").json()["duplicate"]
            heir.insert([[5, "a"]])
            heir.flush()
            assert heir.ids() == [*expected, 5]
        finally:
            newer.end()
