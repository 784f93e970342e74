"""Commits of compactions, compared with Paimon's Java library: it refuses what we refuse, and it
reads, compacts and expires what we have committed."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.errors import CompactionConflictError
from paimon_magics.tables.table import Table
from tests.oracle.java_reader import JavaPaimon
from tests.oracle.test_expiry_in_java import THREE as NUMBERS
from tests.oracle.test_expiry_in_java import expire
from tests.tables.commits.compacting import Bucket, live_entries, live_names, rewrite
from tests.tables.commits.test_commit import copy_of
from tests.tables.commits.test_compaction_conflicts import compact
from tests.tables.manifest_files import create
from tests.tables.reachability import files, missing, unreachable

pytestmark = [pytest.mark.spark, pytest.mark.java]

KEYED = "CREATE TABLE t (k INT NOT NULL, v STRING) TBLPROPERTIES ('primary-key' = 'k', {})"
WRITE_ONLY = "'bucket' = '2', 'write-only' = 'true'"

THREE = {**NUMBERS, "write-only": "false"}
ONE = {**THREE, "snapshot.num-retained.min": "1"}

JavaCommits = Callable[[Path], Any]


@pytest.fixture(scope="module")
def java_commits(spark: Any) -> JavaCommits:
    thread = spark._jvm.java.lang.Thread.currentThread()
    compiler = spark._jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setSourceVersion(8)
    compiler.setTargetVersion(8)
    compiler.setParentClassLoader(thread.getContextClassLoader())
    compiler.cook(Path(__file__).with_name("Commits.java").read_text())
    constructor = compiler.getClassLoader().loadClass("Commits").getConstructors()[0]

    def of(warehouse: Path) -> Any:
        arguments = spark.sparkContext._gateway.new_array(spark._jvm.java.lang.Object, 1)
        arguments[0] = str(warehouse)
        return constructor.newInstance(arguments)

    return of


def moves(planned: Mapping[Bucket, list[Any]], levels: Mapping[str, int]) -> list[CommitMessage]:
    """Messages that move the planned files to new levels."""
    messages = []
    for bucket, entries in planned.items():
        before = [entry.file for entry in entries if entry.file.file_name in levels]
        after = [replace(file, level=levels[file.file_name]) for file in before]
        if before:
            messages.append(
                CommitMessage(
                    *bucket,
                    [],
                    total_buckets=entries[0].total_buckets,
                    compact_before=before,
                    compact_after=after,
                )
            )
    return messages


def chosen(chance: random.Random, planned: Mapping[Bucket, list[Any]]) -> dict[str, int]:
    """Other levels for some files."""
    return {
        entry.file.file_name: level
        for entries in planned.values()
        for entry in entries
        if chance.random() < 0.6
        for level in [chance.choice([1, 2, 5])]
        if level != entry.file.level
    }


@pytest.mark.parametrize("round", range(6))
def test_java_and_we_refuse_the_same_compactions(
    java_paimon: JavaPaimon, java_commits: JavaCommits, tmp_path: Path, round: int
) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    table = create(tmp_path / "one", KEYED.format(WRITE_ONLY))
    for number in range(5):
        first = chance.randrange(60)
        rows = [(first + step, f"v{number}") for step in range(chance.randrange(1, 12))]
        java_paimon.write(tmp_path / "one", "default.t", rows)
    planned, base = live_entries(table), 5
    if round % 2:  # somebody else compacts or adds rows between planning and commit
        levels = {name: 5 for name, _ in chance.sample(sorted(live_names(table).items()), 1)}
        compact(table, moves(planned, levels))
        java_paimon.write(tmp_path / "one", "default.t", [(1, "late")])
    other = copy_of(table, tmp_path / "other")
    levels = chosen(chance, planned)
    expected = java_commits(tmp_path / "other").move(
        "default.t", base, list(levels), list(levels.values())
    )
    actual = ""
    try:
        compact(table, moves(planned, levels))
    except CompactionConflictError as error:
        actual = error.message
    print(expected, actual)
    assert bool(actual) == bool(expected)
    assert ("would overlap" in actual) <= ("LSM conflicts" in expected or "deletion" in expected)
    assert live_names(table) == live_names(other)
    assert java_paimon.rows(tmp_path / "one", "default.t") == java_paimon.rows(
        tmp_path / "other", "default.t"
    )


TABLES = {
    "deduplicate": KEYED.format(WRITE_ONLY),
    "input changelog": KEYED.format(f"{WRITE_ONLY}, 'changelog-producer' = 'input'"),
    "partitioned": "CREATE TABLE t (k INT NOT NULL, v STRING NOT NULL) PARTITIONED BY (v) "
    f"TBLPROPERTIES ('primary-key' = 'k,v', {WRITE_ONLY})",
}


@pytest.mark.parametrize("kind", TABLES)
def test_java_reads_compacts_and_expires_after_our_compactions(
    java_paimon: JavaPaimon, java_commits: JavaCommits, tmp_path: Path, kind: str
) -> None:
    one = tmp_path / "one"
    table = create(one, TABLES[kind])
    for number in range(3):
        rows = [(k, "ab"[k % 2]) for k in range(number, number + 8)]
        java_paimon.write(one, "default.t", rows)
    rows = sorted(java_paimon.rows(one, "default.t"))
    planned = live_entries(table)
    oldest = {
        min(entries, key=lambda each: each.file.max_sequence_number).file.file_name: 4
        for entries in planned.values()
    }
    compact(table, moves(planned, oldest))
    assert sorted(java_paimon.rows(one, "default.t")) == rows
    compact(table, moves(live_entries(table), dict.fromkeys(oldest, 5)))
    java_paimon.write(one, "default.t", rows[:2])
    full = [{"k": k, "v": v} for k, v in rows]
    first, *others = sorted(live_entries(table), key=repr)
    compact(table, rewrite(table, full, 5, "", first))
    assert sorted(java_paimon.rows(one, "default.t")) == rows
    assert len(others) >= 1
    names = set(oldest) & set(live_names(table))
    assert names, "files that moved, and are still there"

    other = copy_of(table, tmp_path / "other")
    java_paimon.expire(tmp_path / "other", "default.t", THREE)
    expire(table, THREE)
    assert missing(table) == missing(other) == set()
    assert unreachable(table) == unreachable(other) == set()
    assert {Path(path).name for path in files(table) if "bucket-" in path} == {
        Path(path).name for path in files(other) if "bucket-" in path
    }
    aside = tmp_path / "aside"
    aside.mkdir()
    java_commits(one).compact("default.t", True, str(aside))
    assert sorted(java_paimon.rows(one, "default.t")) == rows
    assert set(live_names(table).values()) == {5}
    java_paimon.expire(one, "default.t", ONE)
    assert sorted(java_paimon.rows(one, "default.t")) == rows
    assert missing(table) == set()
    assert unreachable(table) == set()


def test_our_expiry_keeps_files_moved_by_java(
    java_paimon: JavaPaimon, java_commits: JavaCommits, tmp_path: Path
) -> None:
    table: Table = create(tmp_path, KEYED.format(WRITE_ONLY))
    java_paimon.write(tmp_path, "default.t", [(k, "a") for k in range(8)])
    names = list(live_names(table))
    assert java_commits(tmp_path).move("default.t", 1, names, [5] * len(names)) == ""
    java_paimon.write(tmp_path, "default.t", [(1, "b")])
    expire(table, ONE)
    assert missing(table) == set()
    assert len(java_paimon.rows(tmp_path, "default.t")) == 8


def test_concurrent_java_compaction_neither_loses_nor_doubles_rows(
    java_paimon: JavaPaimon, java_commits: JavaCommits, tmp_path: Path
) -> None:
    table = create(tmp_path / "one", KEYED.format(WRITE_ONLY))
    for number in range(3):
        java_paimon.write(tmp_path / "one", "default.t", [(k, f"v{number}") for k in range(8)])
    rows = sorted(java_paimon.rows(tmp_path / "one", "default.t"))
    planned = live_entries(table)
    full = rewrite(table, [{"k": k, "v": v} for k, v in rows])
    aside = tmp_path / "aside"
    aside.mkdir()
    java_commits(tmp_path / "one").compact("default.t", True, str(aside))
    with pytest.raises(CompactionConflictError) as caught:
        compact(table, full)
    assert caught.value.conflicting == tuple(range(len(planned)))
    assert sorted(java_paimon.rows(tmp_path / "one", "default.t")) == rows
    assert missing(table) == set()
    assert unreachable(table) == {
        str(path.relative_to(table.location))
        for message in full
        for file in message.compact_after
        for path in Path(table.location).rglob(file.file_name)
    }
