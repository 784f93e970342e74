"""Manifests that no condition needs are not opened, and no row is missed for that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from paimon_magics.coordinator.client.in_process import InProcessCommitter
from paimon_magics.planning.commits.requests import Append, CommitRequest, OverwriteTouched
from paimon_magics.settings import Settings
from paimon_magics.statements.statement import ColumnFilter, FilterValue
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.reading.data_read import ReadRequest, plan_data_read
from paimon_magics.tables.splits import table_scan
from tests.coordinator.process import TABLE, create_table, write

# One manifest for each commit, as in a large table whose manifests are full.
OPTIONS = "'manifest.merge-min-count' = '1000'"
APPEND = f"CREATE TABLE t (k INT, day STRING) PARTITIONED BY (day) TBLPROPERTIES ({OPTIONS})"
KEYED = (
    "CREATE TABLE t (k INT NOT NULL, day STRING NOT NULL) PARTITIONED BY (day) TBLPROPERTIES "
    f"('primary-key' = 'k,day', 'bucket' = '2', {OPTIONS})"
)
DAYS: Sequence[str | None] = ("a", "b", None, "c", "a")


class Opened(ManifestCache):
    """Notes which files of the manifest folder are opened."""

    def __init__(self, paimon: Any) -> None:
        super().__init__(paimon)
        self.names: list[str] = []

    def read(self, name: str) -> bytes:
        if not hasattr(self, "names"):
            return super().read(name)
        self.names.append(name)
        return super().read(name)

    @property
    def manifests(self) -> int:
        return sum("list" not in name for name in self.names)


@pytest.fixture(scope="module", params=["append", "keyed"])
def catalog(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """A table with a commit of one partition each; the last one takes the place of the first."""
    sql = APPEND if request.param == "append" else KEYED
    days = [day or "d" for day in DAYS] if request.param == "keyed" else DAYS
    catalog = create_table(tmp_path_factory.mktemp("warehouse"), sql)
    committer = InProcessCommitter(catalog, Settings())
    for number, day in enumerate(days):
        again = number == len(days) - 1
        transaction = committer.begin(TABLE)
        rows = write(catalog, transaction, [{"k": number, "day": day}], overwrite=again)
        change = OverwriteTouched() if again else Append()
        committer.commit(CommitRequest(transaction, change, rows))
    return catalog


@pytest.fixture
def narrowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave manifests out of a table that has few entries, too."""
    monkeypatch.setattr(table_scan, "FEW_ENTRIES", 0)


def condition(column: str, operator: str, *values: str) -> ColumnFilter:
    kind = "string" if column == "day" else "number"
    return ColumnFilter(column, operator, tuple(FilterValue(kind, value) for value in values))


@pytest.mark.parametrize(
    ("conditions", "keys", "opened"),
    [
        ([condition("day", "=", "a")], [4], 3),
        ([condition("day", "=", "b")], [1], 1),
        ([condition("day", "in", "b", "c")], [1, 3], 2),
        ([condition("day", "=", "x")], [], 0),
        ([condition("day", "=", "a"), condition("k", "=", "0")], [], 3),
        ([condition("day", "=", "a"), condition("k", "=", "4")], [4], 3),
        ([condition("k", "=", "3")], [3], 6),
        ([condition("k", ">", "100")], [], 6),
    ],
)
def test_manifests_of_other_partitions_are_not_opened(
    catalog: Catalog, narrowed: None, conditions: list[ColumnFilter], keys: list[int], opened: int
) -> None:
    table = catalog.load(TABLE)
    manifests = Opened(table.paimon)
    read = plan_data_read(table, ReadRequest(filters=conditions), manifests=manifests)
    actual = [row["k"] for batch in read.rows() for row in batch.to_pylist()]
    assert sorted(actual) == keys
    assert manifests.manifests <= opened
    steps = read.planned.pruning_steps
    assert (steps[0].step, steps[0].files) == ("all files", 4)


@pytest.mark.parametrize("operator", ["is null", "is not null", "=", "<", "<=", ">", ">=", "in"])
def test_pruned_plan_equals_a_plan_from_all_manifests(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, operator: str
) -> None:
    table = catalog.load(TABLE)
    for column, value in (("day", "b"), ("day", "a"), ("k", "1"), ("k", "4")):
        values = () if operator.startswith("is") else (value,)
        request = ReadRequest(filters=[condition(column, operator, *values)])
        actual = []
        for limit in (10_000, 0):
            monkeypatch.setattr(table_scan, "FEW_ENTRIES", limit)
            planned = plan_data_read(table, request).planned
            raw = {path for each in planned.raw for path in each.paths}
            actual.append(raw | {file.path for split in planned.splits for file in split.files})
        assert actual[0] == actual[1], (column, operator)


def test_without_conditions_every_row_is_read(catalog: Catalog, narrowed: None) -> None:
    read = plan_data_read(catalog.load(TABLE), ReadRequest())
    assert sorted(row["k"] for batch in read.rows() for row in batch.to_pylist()) == [1, 2, 3, 4]
    (step,) = read.planned.pruning_steps
    assert (step.step, step.files) == ("all files", 4)
    assert step.size_bytes
