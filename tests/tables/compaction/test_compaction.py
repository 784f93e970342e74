"""Primary-key tables that are compacted: reads before and after, levels, schemas, key ranges."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from paimon_magics.planning.reads.views import ViewKind
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.table_changes import AlterTable
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.compaction import planning
from paimon_magics.tables.table import Table
from tests.tables.compaction.compacted_tables import compact, levels_of, plan, rows_of, write
from tests.tables.manifest_files import TABLE, create
from tests.tables.reachability import missing, unreachable

ENGINES = {
    "deduplicate": "",
    "partial-update": "'merge-engine' = 'partial-update', "
    "'partial-update.remove-record-on-delete' = 'true'",
    "sequence groups": "'merge-engine' = 'partial-update', 'fields.v.sequence-group' = 's'",
    "aggregation": "'merge-engine' = 'aggregation', 'fields.v.aggregate-function' = 'sum'",
    "sequence field": "'sequence.field' = 'v'",
    "per level": "'file.format.per.level' = '5:avro', 'num-levels' = '6'",
}
DELETES = {"deduplicate", "partial-update", "aggregation", "sequence field", "per level"}

ALL = {"num-sorted-run.compaction-trigger": "2", "compaction.size-ratio": "1000000"}
"""With these options a pick takes all there is."""
SECOND_PICKS = (
    "",
    "'changelog-producer' = 'lookup', ",
    "'deletion-vectors.enabled' = 'true', ",
    "'deletion-vectors.enabled' = 'true', 'changelog-producer' = 'lookup', ",
)


def table_of(folder: Path, options: str, buckets: int = 2) -> Table:
    more = f", {options}" if options else ""
    return create(
        folder,
        "CREATE TABLE t (k INT NOT NULL, p STRING NOT NULL, v INT, s STRING) PARTITIONED BY (p) "
        f"TBLPROPERTIES ('primary-key' = 'k,p', 'bucket' = '{buckets}'{more})",
    )


def some_rows(random_: random.Random, count: int = 25) -> list[dict[str, Any]]:
    found = {
        (row["k"], row["p"]): row
        for row in (
            {
                "k": random_.randrange(60),
                "p": random_.choice("ab"),
                "v": random_.choice([None, random_.randrange(100)]),
                "s": random_.choice([None, "x" * random_.randrange(30)]),
            }
            for _ in range(count)
        )
    }
    return list(found.values())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_a_compaction_changes_no_row(tmp_path: Path, engine: str, seed: int) -> None:
    table = table_of(tmp_path, ENGINES[engine])
    random_ = random.Random(seed)
    for number in range(10 if seed == 0 else 30):
        rows = some_rows(random_)
        kinds = [random_.choice([0, 0, 0, 3]) if engine in DELETES else 0 for _ in rows]
        write(table, rows, kinds)
        if random_.random() < 0.5:
            before = rows_of(table)
            again = random_.choice([None, ALL])
            is_full, slots = random_.random() < 0.3, random_.choice([1, 3])
            compact(table, is_full=is_full, slots=slots, again=again)
            assert rows_of(table) == before, number
    before = rows_of(table)
    compact(table, is_full=True)
    assert rows_of(table) == before
    assert {level for _, level, _ in levels_of(table)} == {5}
    assert sum(rows for *_, rows in levels_of(table)) == len(before)
    assert plan(table, is_full=True).is_empty


@pytest.mark.parametrize("options", SECOND_PICKS)
def test_repicked_files_leave_no_intermediate_files(tmp_path: Path, options: str) -> None:
    table = table_of(tmp_path, f"{options}'num-sorted-run.compaction-trigger' = '3'", buckets=1)
    write(table, [{"k": k, "p": "a", "v": k, "s": f"{k**9:x}" * 9} for k in range(500)])
    compact(table, is_full=True)
    for number in range(3):
        write(table, [{"k": number, "p": "a", "v": -1, "s": None}])
    planned = compact(table, is_full=False, again=ALL)
    assert {unit.pick.output_level for unit in planned.units} == {2}
    assert levels_of(table) == [(0, 3, 500)]
    assert [row[:3] for row in rows_of(table) if row[2] == "-1"] == [
        (str(k), "a", "-1") for k in range(3)
    ]
    snapshots = table.paimon.snapshot_manager()
    latest = snapshots.get_latest_snapshot()
    assert latest.id == planned.snapshot_id + 1, "one commit"
    assert (latest.changelog_record_count or 0) == (6 if "lookup" in options else 0)
    assert missing(table) == unreachable(table) == set()


def test_nothing_is_picked_below_the_trigger(tmp_path: Path) -> None:
    table = table_of(tmp_path, "", buckets=1)
    for number in range(4):
        write(table, [{"k": number, "p": "a", "v": 1, "s": None}])
        assert plan(table, is_full=False).is_empty
    write(table, [{"k": 9, "p": "a", "v": 1, "s": None}])
    assert len(plan(table, is_full=False).units) == 1


def test_single_file_is_upgraded_without_rewriting(tmp_path: Path) -> None:
    table = table_of(tmp_path, "", buckets=1)
    write(table, [{"k": 1, "p": "a", "v": 1, "s": None}])
    names = {path.name for path in Path(table.location).rglob("*.parquet")}
    planned = compact(table, is_full=True)
    assert planned.rewritten_bytes == 0
    assert levels_of(table) == [(0, 5, 1)]
    assert {path.name for path in Path(table.location).rglob("*.parquet")} == names


def test_full_compaction_removes_a_file_of_deletes(tmp_path: Path) -> None:
    table = table_of(tmp_path, "", buckets=1)
    write(table, [{"k": 1, "p": "a", "v": 1, "s": None}], [3])
    compact(table, is_full=True)
    assert levels_of(table) == []
    assert rows_of(table) == []


def test_deletes_stay_above_older_rows(tmp_path: Path) -> None:
    table = table_of(tmp_path, "'num-sorted-run.compaction-trigger' = '3'", buckets=1)
    write(table, [{"k": k, "p": "a", "v": k, "s": "x" * 1000} for k in range(2000)])
    compact(table, is_full=True)
    for number in range(3):
        write(table, [{"k": number, "p": "a", "v": None, "s": None}], [3])
    compact(table, is_full=False)
    assert levels_of(table) == [(0, 2, 3), (0, 3, 2000)]
    assert len(rows_of(table)) == 1997
    assert len(rows_of(table, ViewKind.AUDIT_LOG)) == 2000


def test_a_large_section_is_divided_by_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "_RANGE_BYTES_MIN", 100)
    table = table_of(tmp_path, "", buckets=1)
    random_ = random.Random(7)
    for _ in range(4):
        keys = random_.sample(range(5000), 2000)
        write(table, [{"k": k, "p": "a", "v": random_.randrange(9), "s": None} for k in keys])
    before = rows_of(table)
    planned = plan(table, is_full=True)
    tasks = planned.tasks(3)
    assert len(tasks) == 3
    assert [task.share for task in tasks] == [3, 3, 3]
    compact(table, is_full=True, slots=3)
    assert rows_of(table) == before
    assert len(levels_of(table)) == 3


def test_compaction_of_files_of_older_schemas_keeps_the_rows(tmp_path: Path) -> None:
    table = table_of(tmp_path, "", buckets=1)
    write(table, [{"k": k, "p": "a", "v": k, "s": "old"} for k in range(5)])
    catalog = Catalog.open({"warehouse": str(tmp_path)})
    for sql in ("ADD COLUMN w BIGINT", "ALTER COLUMN v TYPE BIGINT", "RENAME COLUMN s TO z"):
        statement = parse_statement(f"ALTER TABLE t {sql}")
        assert isinstance(statement, AlterTable)
        catalog.alter_table(TABLE, statement.changes)
    table = catalog.load(TABLE)
    write(table, [{"k": k, "p": "a", "v": 2**40, "z": "new", "w": k} for k in range(3, 8)])
    before = rows_of(table)
    compact(table, is_full=True)
    assert rows_of(table) == before
    assert len(before) == 8


def test_expired_rows_are_removed_once_no_older_rows_remain(tmp_path: Path) -> None:
    table = table_of(
        tmp_path,
        "'record-level.expire-time' = '100 s', 'record-level.time-field' = 'v', "
        "'num-sorted-run.compaction-trigger' = '2'",
        buckets=1,
    )
    # It is second 1,000: rows of a second before 900 are expired.
    texts = random.Random(1)
    write(
        table,
        [{"k": k, "p": "a", "v": 950, "s": f"{texts.getrandbits(400):x}"} for k in range(300)],
    )
    compact(table, is_full=True)
    write(table, [{"k": 1, "p": "a", "v": 10, "s": "old"}, {"k": 2, "p": "a", "v": None, "s": "n"}])
    write(table, [{"k": 3, "p": "a", "v": 899, "s": "old"}])
    compact(table, is_full=False)
    assert levels_of(table) == [(0, 1, 3), (0, 2, 300)]  # the older rows must not come back
    assert len(rows_of(table)) == 300
    compact(table, is_full=True)
    kept = {row[0]: row[3] for row in rows_of(table)}
    assert len(kept) == 298 and "1" not in kept and "3" not in kept
    assert kept["2"] == "n"
    assert plan(table, is_full=True).is_empty


def test_full_compaction_removes_expired_rows(tmp_path: Path) -> None:
    table = table_of(
        tmp_path,
        "'record-level.expire-time' = '100 s', 'record-level.time-field' = 'v'",
        buckets=1,
    )
    write(table, [{"k": 1, "p": "a", "v": 10, "s": "old"}, {"k": 2, "p": "a", "v": 901, "s": "n"}])
    assert len(rows_of(table)) == 2  # queries never filter
    compact(table, is_full=True)
    assert [row[0] for row in rows_of(table)] == ["2"]
