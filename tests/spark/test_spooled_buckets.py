"""Rows that go to the writers of their buckets through files, where all tasks run in one JVM."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from paimon_magics import Session
from paimon_magics.errors import PaimonMagicsError

pytestmark = pytest.mark.spark

ROWS = (
    "SELECT id % 101 AS k, id AS v, CAST(id AS DECIMAL(17, 3)) / 8 AS d, "
    "concat('t', id) AS t, CAST(id % 101 % 4 AS INT) AS p FROM range(0, 40400, 1, 7)"
)


def created(session: Session, name: str, partitions: str, options: str) -> None:
    keys = "k, p" if partitions else "k"
    session.run(
        f"CREATE TABLE {name} (k BIGINT NOT NULL, v BIGINT, d DECIMAL(17, 3), t STRING, "
        f"p INT NOT NULL, PRIMARY KEY ({keys}) NOT ENFORCED) {partitions} "
        f"TBLPROPERTIES ({options})"
    )


@pytest.mark.parametrize("buckets", ["'bucket' = '3'", "'bucket' = '-1'"])
@pytest.mark.parametrize("partitions", ["", "PARTITIONED BY (p)"])
def test_last_row_of_key_wins_across_tasks(
    module_session: Session,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    partitions: str,
    buckets: str,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    name = f"last_row_{len(partitions)}_{len(buckets)}"
    created(module_session, name, partitions, buckets)
    module_session.run(f"INSERT INTO {name} {ROWS}")
    query = (
        "SELECT count(*) AS n, min(v) AS least, sum(v - k) AS s, sum(d * 8 - v) AS d, "
        f"count_if(t = concat('t', v)) AS t FROM {name}"
    )
    actual = module_session.run(query).to_pylist()
    assert [{key: int(value) for key, value in row.items()} for row in actual] == [
        {"n": 101, "least": 40299, "s": 101 * 40299, "d": 0, "t": 101}
    ]
    assert not list(tmp_path.glob("paimon-magics-rows-*"))


def test_rows_too_large_for_buffers_are_written_like_spooled_rows(
    module_session: Session,
) -> None:
    told = []
    for name, options in {"spooled": "", "shuffled": ", 'write-buffer-size' = '512 kb'"}.items():
        created(module_session, name, "PARTITIONED BY (p)", f"'bucket' = '2'{options}")
        for _ in range(2):
            module_session.run(f"INSERT INTO {name} {ROWS}")
        rows = module_session.run(f"SELECT * FROM {name}$audit_log ORDER BY k").to_pylist()
        numbers = (
            f"SELECT max(max_sequence_number) AS n FROM {name}$files GROUP BY partition, bucket"
        )
        told.append((rows, sorted(row["n"] for row in module_session.run(numbers).to_pylist())))
    assert told[0] == told[1]


def test_failed_statement_leaves_no_spooled_file(
    module_session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    created(module_session, "fails", "", "'bucket' = '2'")
    bad = "CASE WHEN id = 90000 THEN CAST(concat('x', id) AS BIGINT) ELSE id END"
    with pytest.raises(PaimonMagicsError, match="x90000"):
        module_session.run(
            f"INSERT INTO fails SELECT id, {bad}, 0, '', 0 FROM range(0, 100000, 1, 4)"
        )
    assert module_session.run("SELECT count(*) AS n FROM fails").to_pylist() == [{"n": 0}]
    assert not list(tmp_path.glob("paimon-magics-rows-*"))


def test_empty_result_writes_no_files(module_session: Session) -> None:
    created(module_session, "nothing", "PARTITIONED BY (p)", "'bucket' = '2'")
    outcome = module_session.run(f"INSERT INTO nothing SELECT * FROM ({ROWS}) WHERE v < 0")
    assert outcome.files_written == 0
