"""Two sessions change the same rows at the same time: no update is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import paimon_magics
from paimon_magics import Session
from paimon_magics.errors import OutdatedPlanError
from tests.session.writes.held_writes import run_while

pytestmark = pytest.mark.spark


def rows(session: Session, table: str) -> list[tuple[Any, ...]]:
    found = session.run(f"SELECT * FROM {table} ORDER BY k").to_pylist()
    return [tuple(row.values()) for row in found]


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        (", PRIMARY KEY (k) NOT ENFORCED) TBLPROPERTIES ('bucket' = '1')", "of the same keys"),
        (") TBLPROPERTIES ('write-only' = 'true')", "replaced the file"),
        (") TBLPROPERTIES ('deletion-vectors.enabled' = 'true')", "deleted rows of the file"),
        (
            ") TBLPROPERTIES ('row-tracking.enabled' = 'true', 'data-evolution.enabled' = 'true')",
            "rows that may match its condition",
        ),
    ],
    ids=["keys", "files", "vectors", "columns"],
)
def test_concurrent_updates_of_a_row_are_not_lost(
    session: Session, warehouse: Path, tmp_path: Path, keys: str, told: str
) -> None:
    session.run(
        f"CREATE TABLE counted (k INT NOT NULL, n INT{keys};"
        "INSERT INTO counted VALUES (1, 0), (2, 0)"
    )
    with paimon_magics.connect(warehouse, spark=session.spark) as other:

        def updated(set_to: str, key: int, meanwhile: str) -> Any:
            text = f"UPDATE counted SET n = {set_to} WHERE k = {key}"
            return run_while(lambda: session.run(meanwhile), other, text, tmp_path)

        add_ten = "UPDATE counted SET n = n + 10 WHERE k = 1"
        outcome = updated("held(n) + 1", 1, add_ten)
        assert told in str(outcome.notes)
        assert rows(session, "counted") == [(1, 11), (2, 0)]
        outcome = updated("held(n) + 1", 2, add_ten)
        assert "PRIMARY" not in keys or not outcome.notes  # another key, but not another file
        assert rows(session, "counted") == [(1, 21), (2, 1)]
        if "PRIMARY" in keys:
            insert = "INSERT INTO counted SELECT k, held(n) + 5 FROM counted WHERE k = 1"
            done = run_while(lambda: session.run(add_ten), other, insert, tmp_path)
            assert told in str(done.notes)
            assert rows(session, "counted") == [(1, 36), (2, 1)]
            session.run("UPDATE counted SET n = 21 WHERE k = 1")
        # What is not the same in each run is not run again by itself.
        error = updated("held(n) + int(rand())", 1, add_ten)
        assert isinstance(error, OutdatedPlanError)
        assert rows(session, "counted") == [(1, 31), (2, 1)]
        # What was taken away meanwhile stays away.
        assert updated("held(n) + 1", 2, "TRUNCATE TABLE counted").rows_updated == 0
        assert rows(session, "counted") == []
