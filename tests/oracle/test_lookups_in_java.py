"""Tables that look up or tell changes, compacted here as by Paimon's own library.

The same rows go to two tables: one is compacted by Java's writer after each of its commits, the
other by us. All levels, rows, changes and deletion vectors are the same.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.deletion_vector_files import vector_index
from tests.oracle.java_reader import JavaPaimon
from tests.tables.commits.compacting import live_entries
from tests.tables.compaction.compacted_tables import compact
from tests.tables.manifest_files import create

pytestmark = [pytest.mark.spark, pytest.mark.java]

ENGINES = {
    "deduplicate": {},
    "deduplicate by s": {"sequence.field": "s"},
    "partial-update": {
        "merge-engine": "partial-update",
        "partial-update.remove-record-on-delete": "true",
    },
    "sequence groups": {"merge-engine": "partial-update", "fields.s.sequence-group": "v"},
    "aggregation": {
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "sum",
        "fields.s.aggregate-function": "max",
        "fields.s.ignore-retract": "true",
        "fields.w.ignore-retract": "true",
    },
    "first-row": {"merge-engine": "first-row", "ignore-delete": "true"},
}
GIVES = {
    "lookup": {"changelog-producer": "lookup"},
    "lookup of changes": {
        "changelog-producer": "lookup",
        "changelog-producer.row-deduplicate": "true",
        "changelog-producer.row-deduplicate-ignore-fields": "w",
    },
    "vectors": {"deletion-vectors.enabled": "true"},
    "wide vectors, lookup": {
        "deletion-vectors.enabled": "true",
        "deletion-vectors.bitmap64": "true",
        "changelog-producer": "lookup",
    },
    "full-compaction": {
        "changelog-producer": "full-compaction",
        "num-sorted-run.compaction-trigger": "2",
        "compaction.max-size-amplification-percent": "0",
        "num-levels": "4",
    },
    "forced": {"force-lookup": "true"},
}
_NOT_FOR_FIRST_ROW = {"vectors", "wide vectors, lookup", "full-compaction"}
_KINDS = ("+I", "+I", "+U", "-D")
# What is picked depends on the sizes of files, and ours are smaller: so sizes differ by much.
_ROW_COUNTS = ((900, 200, 40, 8, 300, 60, 10, 1000, 100), (900, 8, 20, 60, 250, 8, 40, 900, 8))
CASES = [
    (engine, gives)
    for engine in ENGINES
    for gives in GIVES
    if engine != "first-row" or gives not in _NOT_FOR_FIRST_ROW
]


def two_tables(folder: Path, options: dict[str, str]) -> tuple[Table, Table]:
    """The table that Java compacts, and ours; in warehouses of their own."""
    given = {"primary-key": "k", "bucket": "1", "compaction.size-ratio": "40", **options}
    found = []
    for name, more in (("java", {}), ("ours", {"write-only": "true"})):
        pairs = ", ".join(f"'{key}' = '{value}'" for key, value in (given | more).items())
        sql = f"CREATE TABLE t (k INT NOT NULL, s INT, v INT, w STRING) TBLPROPERTIES ({pairs})"
        found.append(create(folder / name, sql))
    return found[0], found[1]


def files_of(table: Table) -> list[tuple[int, int, int, int, int]]:
    """Level, rows, rows that retract, least and greatest sequence number of each file."""
    entries = [item.file for each in live_entries(table).values() for item in each]
    return sorted(
        (f.level, f.row_count, f.delete_row_count, f.min_sequence_number, f.max_sequence_number)
        for f in entries
    )


def snapshots_of(table: Table) -> list[tuple[Any, ...]]:
    manager = table.paimon.snapshot_manager()
    latest = manager.get_latest_snapshot()
    found = [manager.get_snapshot_by_id(i) for i in range(1, latest.id + 1)]
    return [
        (s.commit_kind, s.total_record_count, s.delta_record_count, s.changelog_record_count)
        for s in found
    ]


def deleted_of(table: Table) -> list[int]:
    """How many rows are deleted in each file that has a vector."""
    index = vector_index(table, table.paimon.snapshot_manager().get_latest_snapshot())
    return sorted(len(rows) for rows in index.vectors(((), 0)).values())


def changes_of(java: JavaPaimon, folder: Path, snapshot_id: int) -> list[tuple[Any, ...]]:
    options = {
        "incremental-between": f"{snapshot_id - 1},{snapshot_id}",
        "incremental-between-scan-mode": "changelog",
    }
    return java.rows(folder, "default.t$audit_log", options)


# One in five, with each engine and each way of giving; `make soak` runs all.
@pytest.mark.parametrize(
    ("engine", "gives"),
    [
        pytest.param(*case, id="-".join(case), marks=[pytest.mark.soak] if number % 5 else [])
        for number, case in enumerate(CASES)
    ],
)
def test_lookup_compaction_matches_java(
    java_paimon: JavaPaimon, tmp_path: Path, engine: str, gives: str
) -> None:
    random_ = random.Random(f"{engine} {gives}")
    javas, ours = two_tables(tmp_path, ENGINES[engine] | GIVES[gives])
    deletes = engine not in ("sequence groups", "first-row")
    folders = tmp_path / "java", tmp_path / "ours"
    compacted = 0
    for step, count in enumerate(_ROW_COUNTS[CASES.index((engine, gives)) % 2]):
        keys = random_.sample(range(1100), count)
        rows = [
            (
                key,
                random_.choice([None, *range(5)]),
                random_.choice([None, *range(9)]),
                None if random_.random() < 0.2 else random_.randbytes(200).hex(),
            )
            for key in keys
        ]
        kinds = [random_.choice(_KINDS) if deletes and step else "+I" for _ in keys]
        for folder in folders:
            java_paimon.write(folder, "default.t", rows, kinds=kinds)
        compacted += not compact(ours, is_full=False).is_empty
        assert files_of(ours) == files_of(javas), step
        assert snapshots_of(ours) == snapshots_of(javas), step
        assert deleted_of(ours) == deleted_of(javas), step
        for name in ("t", "t$audit_log", "t$ro") if step % 3 == 2 else ("t",):
            first, second = (java_paimon.rows(folder, f"default.{name}") for folder in folders)
            assert sorted(first, key=repr) == sorted(second, key=repr), (step, name)
    assert compacted > 3
    for snapshot_id, (*_, changes) in enumerate(snapshots_of(ours), 1):
        if changes is None:  # in either table: they were compared
            continue
        first, second = (changes_of(java_paimon, folder, snapshot_id) for folder in folders)
        assert first == second, snapshot_id
    # Java goes on with what we wrote, and we with what Java did.
    java_paimon.write(folders[1], "default.t", [(1, 9, 9, "last")])
    reopened = Catalog.open({"warehouse": str(folders[1])}).load(TableName("t", database="default"))
    compact(replace(reopened), is_full=True)
    java_paimon.write(folders[0], "default.t", [(1, 9, 9, "last")])
    compact(javas, is_full=True)
    first, second = (java_paimon.rows(folder, "default.t") for folder in folders)
    assert sorted(first, key=repr) == sorted(second, key=repr)
    assert files_of(ours) == files_of(javas)
