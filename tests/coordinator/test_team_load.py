"""The load generator of `benchmarks/bench_team.py`, small: what it says of its commits is so."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from paimon_magics.coordinator.client.starting import At
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.process import Process, create_table, read

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
NOTEBOOKS, TABLES, SECONDS = 8, 3, 1.0


def test_acknowledged_commits_of_a_team_are_in_their_tables_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    team = importlib.import_module("bench_team")
    warehouse = tmp_path / "warehouse"
    for number in range(TABLES):
        create_table(warehouse, f"CREATE TABLE team_{number} (writer INT, number INT)")
    catalog = Catalog.open({"warehouse": str(warehouse)})
    process = Process(warehouse, tmp_path / "state")
    process.start()
    try:
        place = At(process.address, process.token())
        times = team.run(warehouse, place, team.Load(NOTEBOOKS, TABLES, SECONDS, 0))
    finally:
        process.close()
    tables = [TableName(f"team_{number}", "default") for number in range(TABLES)]
    actual = sorted(row["number"] for table in tables for row in read(catalog, table))
    assert actual == sorted(times.numbers)
    assert len(times.numbers) == len(times.commits_ms) >= NOTEBOOKS
    assert team.doubled_or_lost(catalog, [*times.numbers, -1], TABLES) == ([], [-1])
