"""Deletes and updates by key among small inserts, while coordinator and flusher die: each once, in
the order in which they were acknowledged. A model that carries them out one by one decides.

The short versions are in every run; `pytest -m soak` has the long ones.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from tests.coordinator.postgres import PostgresServer
from tests.coordinator.process import wait_until
from tests.faults.test_small_insert_crashes import Lived
from tests.faults.test_small_insert_soak import Killed

KEYS = 40
STEPS = ("flush.changed", "flush.written", "flush.noted", "commit.prepared", "flush.committed")

Statement = dict[str, Any]


def some_statement(chance: random.Random, number: int) -> Statement:
    """An insert, DELETE or UPDATE of some keys; `number` is in the rows that it writes."""
    keys = sorted({chance.randrange(KEYS) for _ in range(chance.randrange(1, 4))})
    kind = chance.random()
    if kind < 0.5:
        return {"rows": [[key, f"{number:07}"] for key in keys]}
    change: Statement = {"keys": [[key] for key in keys]}
    if kind < 0.7:
        change["where"] = [["name", chance.choice("<>"), f"{chance.randrange(number + 1):07}"]]
    if kind < 0.85:
        return {"delete": change}
    return {"update": {**change, "set": {"name": f"{number:07}u"}}}


def carry_out(rows: dict[int, str], statement: Statement) -> None:
    """The model: what a statement does to the rows, names by their keys."""
    if "rows" in statement:
        rows.update((key, name) for key, name in statement["rows"])
        return
    ((verb, change),) = statement.items()
    for (key,) in change["keys"]:
        for _, operator, value in change.get("where", []):
            if key in rows and not (rows[key] < value if operator == "<" else rows[key] > value):
                break
        else:
            if key in rows and verb == "delete":
                del rows[key]
            elif key in rows:
                rows[key] = change["set"]["name"]


class Changed(Killed):
    """Clients that insert, delete and update rows of the same keys."""

    def document(self, first: int) -> dict[str, object]:
        chance = random.Random(first)
        return {"statements": [some_statement(chance, n) for n in self._numbers(first)]}

    def check(self) -> None:
        ordered = sorted(each for some in self.acknowledged for each in some)
        assert [lsn for lsn, _ in ordered] == list(range(1, len(ordered) + 1))
        expected: dict[int, str] = {}
        for _, first in ordered:
            statements: Any = self.document(first)["statements"]
            for statement in statements:
                carry_out(expected, statement)
        found = self.served.rows()
        assert {row["id"]: row["name"] for row in found} == expected
        assert len(found) == len(expected) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("log", "statements", "kills"),
    [
        ("store", 1_600, 3),
        ("warehouse", 800, 2),
        pytest.param("postgres", 1_600, 3, marks=pytest.mark.soak),
        pytest.param("store", 400_000, 60, marks=pytest.mark.soak),
        pytest.param("warehouse", 80_000, 30, marks=pytest.mark.soak),
        pytest.param("postgres", 80_000, 30, marks=pytest.mark.soak),
    ],
)
def test_kills_lose_duplicate_and_reorder_no_change(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    log: str,
    statements: int,
    kills: int,
) -> None:
    option = f"--log={log}"
    if log == "postgres":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        for name, value in postgres.environment.items():
            monkeypatch.setenv(name, value)
        option = f"--store={postgres.empty_database()}"
    if statements > 10_000:
        kills = int(os.environ.get("PAIMON_MAGICS_KILLS", kills))
    with Lived(tmp_path, "key", option) as served:
        each = 50 if statements > 10_000 else 5
        changed = Changed(served, statements, clients=4, seed=20261125, rows_each=each)
        changed.run(kills)
        changed.check()
        assert changed.kills == kills
        print(f"{statements} statements, {changed.kills} kills: as one by one")


@pytest.mark.slow
@pytest.mark.parametrize("action", ["kill", pytest.param("raise", marks=pytest.mark.soak)])
def test_crash_at_each_step_applies_changes_once_and_in_order(tmp_path: Path, action: str) -> None:
    with Lived(tmp_path, "key") as served:
        chance = random.Random(20261125)
        expected: dict[int, str] = {}
        number = 0

        def send(count: int) -> None:
            nonlocal number
            for _ in range(count):
                statement = some_statement(chance, number)
                served.surely(statement, str(number))
                carry_out(expected, statement)
                number += 1

        for step in STEPS:
            send(3)
            served.flush_surely()
            served.arm(step, action)
            send(8)
            served.flush_surely()
            # A load without rows to write ends before some steps.
            while not served.has_struck:
                send(3)
                served.flush_surely()
            actual = {row["id"]: row["name"] for row in served.rows()}
            assert actual == expected, (step, action)
        wait_until(lambda: served.queue()["waiting_rows"] == 0)
