"""When files were made, from the wall-clock times of manifests."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_magics.tables.manifests.columns import creation_instant_ms, creation_instants

pytestmark = pytest.mark.skipif(not hasattr(time, "tzset"), reason="Windows has no tzset")

NATIVE = f"pm-{'0' * 32}-mdata-1.parquet"
UTC = datetime.UTC


def clock_ms(*parts: int) -> int:
    return int(datetime.datetime(*parts, tzinfo=UTC).timestamp() * 1000)  # type: ignore[misc,arg-type]


def instants(zone: str, *files: tuple[str, int | None]) -> list[Any]:
    names, clocks = zip(*files, strict=True)
    columns = {
        "file_name": pa.array(names, pa.large_string()),
        "creation_time": pa.array(clocks, pa.timestamp("ms")),
    }
    with pytest.MonkeyPatch.context() as there:
        there.setenv("TZ", zone)
        time.tzset()
        found: list[Any] = creation_instants(pa.table(columns)).to_pylist()
        alone = [creation_instant_ms(clock, name) for name, clock in files if clock is not None]
    time.tzset()
    assert alone == [instant for instant in found if instant is not None]
    return found


@pytest.mark.parametrize(
    ("zone", "utc_hour"), [("UTC", 12), ("Asia/Tokyo", 3), ("America/New_York", 17)]
)
def test_wall_clock_time_is_an_instant_of_this_zone(zone: str, utc_hour: int) -> None:
    noon = clock_ms(2026, 11, 30, 12, 0, 0, 123_000)
    found = instants(zone, ("data-1.parquet", noon), (NATIVE, noon), ("data-2.parquet", None))
    assert found == [noon + (utc_hour - 12) * 3_600_000, noon, None]


def test_file_without_a_time_has_no_instant() -> None:
    assert instants("Asia/Tokyo", ("data-1.parquet", None)) == [None]


@pytest.mark.parametrize(
    ("clock", "instant"),
    [
        # As `LocalDateTime.atZone`: the earlier one, and a missing time moves on by the gap.
        ((2026, 10, 25, 2, 30), (2026, 10, 25, 0, 30)),
        ((2026, 3, 29, 2, 30), (2026, 3, 29, 1, 30)),
    ],
)
def test_doubtful_wall_clock_time_is_resolved_as_in_java(
    clock: tuple[int, ...], instant: tuple[int, ...]
) -> None:
    found = instants("Europe/Berlin", ("data-1.parquet", clock_ms(*clock)))
    assert found == [clock_ms(*instant)]


PROGRAM = """
import json, sys, time, paimon_magics
with paimon_magics.connect(sys.argv[1], coordinator="in-process") as s:
    s.run("CREATE TABLE p (id INT, day STRING) PARTITIONED BY (day)")
    s.run("INSERT INTO p VALUES (1, 'a'), (2, 'a')")
    s.run("CREATE TABLE u (id INT NOT NULL) TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '1')")
    s.run("INSERT INTO u VALUES (1)")
    s.run("CREATE TABLE n AS SELECT id FROM range(50000)")
    now, hour, found = int(time.time() * 1000), 3_600_000, {}
    for table in "pun":
        for option in ("file-creation-time-millis", "creation-time-millis"):
            after = [now - hour, now + hour] if option[0] == "f" else [now + hour]
            found[f"{table} {option}"] = [
                s.run(f"SELECT count(*) c FROM {table} WITH ('scan.{option}' = '{at}')")
                .to_pylist()[0]["c"] for at in after
            ]
    sys_time = s.run("SELECT last_file_creation_time t FROM sys.partitions").to_pylist()[0]["t"]
    found["sys.partitions"] = abs(now - sys_time) < hour // 2
print(json.dumps(found))
"""


@pytest.mark.spark
@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/St_Johns"])
def test_files_are_chosen_by_the_instant_at_which_they_were_made(zone: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env={**os.environ, "TZ": zone},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "p file-creation-time-millis": [2, 0],
        "p creation-time-millis": [0],
        "u file-creation-time-millis": [1, 0],
        "u creation-time-millis": [0],
        "n file-creation-time-millis": [50000, 0],
        "n creation-time-millis": [0],
        "sys.partitions": True,
    }
