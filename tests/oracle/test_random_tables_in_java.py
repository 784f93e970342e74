"""Random tables, written and compacted by us and by Paimon's Java library in turns.

Before each compaction the table is copied: one is compacted here, the other by Java. Levels, rows,
row kinds and sequence numbers of the files, the rows in every view and the changes are the same,
and the rows are those from before. The table goes on with either. In the end one copy is expired by
Java and one by us: nothing is missing, and nothing is left that the compactions have written.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from paimon_magics.planning.reads.views import ViewKind
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.table_changes import AlterTable
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.reading.data_read import ReadRequest, plan_data_read
from tests.oracle.java_compactor import JavaCompact
from tests.oracle.java_reader import JavaPaimon
from tests.oracle.random_tables import RandomTable, random_table, shown
from tests.oracle.test_expiry_in_java import expire
from tests.tables.compaction import compacted_tables
from tests.tables.compaction.append_compactions import Lake
from tests.tables.manifest_files import TABLE
from tests.tables.reachability import files, missing, unreachable

pytestmark = [pytest.mark.spark, pytest.mark.java]

STEPS = 9
LAST = {"snapshot.time-retained": "1 ms", "snapshot.num-retained.min": "1", "write-only": "false"}
_VIEWS = {"": ViewKind.TABLE, "$ro": ViewKind.READ_OPTIMIZED, "$audit_log": ViewKind.AUDIT_LOG}
_VIEWS["$binlog"] = ViewKind.BINLOG
_FILE = (
    "partition", "bucket", "total_buckets", "level", "row_count", "delete_row_count", "schema_id",
    "min_sequence_number", "max_sequence_number", "file_source",
)  # fmt: skip
_SNAPSHOT = ("commit_kind", "total_record_count", "delta_record_count", "changelog_record_count")


class Twins:
    """A table of the generator's, in a warehouse that is copied before each compaction."""

    def __init__(
        self, seed: int, folder: Path, java: JavaPaimon, java_compact: JavaCompact
    ) -> None:
        self.chance = random.Random(seed)
        self.table: RandomTable = random_table(self.chance)
        self._folder, self._java, self._java_compact = folder, java, java_compact
        self._copies = 0
        self.lake = Lake.of(folder / "table", self.table.sql())
        self.left_by_java: set[str] = set()
        self.compactions = 0

    def write(self) -> None:
        rows, kinds = self.table.rows(self.chance)
        if self.chance.random() < 0.5 or set(kinds) != {"+I"}:
            self._java.write(uncached(self.lake), "default.t", rows, kinds=kinds)
            self.left_by_java = unreachable(self.lake.table)
        else:
            self.lake.append(*rows)

    def alter(self) -> None:
        sql = self.table.alteration(self.chance)
        if sql is not None:
            statement = parse_statement(sql)
            assert isinstance(statement, AlterTable)
            Catalog.open({"warehouse": str(self.lake.warehouse)}).alter_table(
                TABLE, statement.changes
            )

    def compact(self) -> None:
        """Compact both copies, compare them, and go on with one of them."""
        full = self.chance.random() < 0.4
        ours, theirs = self.lake, self._copy()
        first = self._latest(ours) + 1
        before = shown(self._rows(ours))
        done = self._compact(ours, full=full)
        assert self._java_compact(theirs.warehouse, full) is done
        if not done:
            return
        self.compactions += 1
        if self.table.expires_rows:
            assert set(shown(self._rows(ours))) <= set(before)
        elif not full and self._differ_by_a_second_pick(ours, theirs):
            if not self.table.hides_level_0 and self.table.shows_lone_rows_as_written:
                assert shown(self._rows(ours)) == before
        else:
            self._compare(ours, theirs, first)
        assert missing(ours.table) == set()
        assert unreachable(ours.table) <= self.left_by_java
        if self.chance.random() < 0.5:
            self.lake = theirs
            self.left_by_java = unreachable(theirs.table)

    def expire(self) -> None:
        """Expire all snapshots but the last, in both ways, and go on with one of the copies."""
        ours, theirs = self.lake, self._copy()
        before = shown(self._rows(ours))
        expire(ours.table, LAST)
        self._java.expire(uncached(theirs), "default.t", LAST)
        assert files(ours.table) == files(theirs.table)
        for lake in (ours, theirs):
            assert missing(lake.table) == set()
            assert unreachable(lake.table) <= self.left_by_java
            assert shown(self._rows(lake)) == before
            assert shown(_read(lake, ViewKind.TABLE, {})) == before
        if self.chance.random() < 0.5:
            self.lake = theirs

    def _compact(self, lake: Lake, *, full: bool) -> bool:
        if self.table.engine == "append":
            return lake.compact(full=full) is not None
        slots = self.chance.choice([1, 2])
        return not compacted_tables.compact(lake.table, is_full=full, slots=slots).is_empty

    def _differ_by_a_second_pick(self, ours: Lake, theirs: Lake) -> bool:
        """Whether buckets differ because one of both has picked a second time there. Each that
        differs must have had enough runs or files for it.

        The writer of append tables picks again only if its first compaction has ended by then,
        which depends on its threads (`AppendOnlyWriter.prepareCommit`). That of primary-key tables
        waits for it (`MergeTreeWriter.prepareCommit`), and so do we; but then it goes by the size
        of the new file, and encoders differ.
        """
        mine, found = _runs(ours), _runs(theirs)
        differing = [
            bucket for bucket in mine.keys() | found.keys() if mine[bucket] != found[bucket]
        ]
        for bucket in differing:
            assert max(mine[bucket], found[bucket]) >= self.table.trigger, bucket
        return bool(differing)

    def _compare(self, ours: Lake, theirs: Lake, first: int) -> None:
        if self.table.has_javas_files:
            assert _files(ours) == _files(theirs)
            assert _deleted(ours) == _deleted(theirs)
        views = {name: (kind, {}) for name, kind in _VIEWS.items() if self._has(name)}
        for name, (kind, options) in views.items():
            found = shown(self._rows(theirs, name))
            assert shown(self._rows(ours, name)) == found, name
            assert shown(_read(ours, kind, options)) == found, name
            assert shown(_read(theirs, kind, options)) == found, name
        if self.table.options.get("changelog-producer", "none") == "none":
            return
        for number in range(first, self._latest(ours) + 1):
            self._compare_changes(ours, theirs, number)

    def _compare_changes(self, ours: Lake, theirs: Lake, snapshot_id: int) -> None:
        assert _snapshot(ours, snapshot_id) == _snapshot(theirs, snapshot_id)
        options = {
            "incremental-between": f"{snapshot_id - 1},{snapshot_id}",
            "incremental-between-scan-mode": "changelog",
        }
        for name in ("$audit_log", "$binlog"):
            found = self._rows(theirs, name, options)
            mine = self._rows(ours, name, options)
            if name == "$binlog" and _has_lone_updates(found) and not _has_lone_updates(mine):
                # Java ends a file between the two rows of an update; `$audit_log` has both.
                found = mine
            assert shown(mine) == shown(found), (snapshot_id, name)
            assert shown(_read(ours, _VIEWS[name], options)) == shown(found), (snapshot_id, name)

    def _rows(
        self, lake: Lake, view: str = "", options: dict[str, str] | None = None
    ) -> list[tuple[Any, ...]]:
        return self._java.rows(uncached(lake), f"default.t{view}", options)

    def _has(self, view: str) -> bool:
        return self.table.engine != "append" or view == ""

    def _copy(self) -> Lake:
        self._copies += 1
        folder = self._folder / f"copy-{self._copies}"
        shutil.copytree(self.lake.warehouse, folder)
        return Lake.opened(folder)

    def _latest(self, lake: Lake) -> int:
        latest = lake.table.paimon.snapshot_manager().get_latest_snapshot()
        return int(latest.id)


def uncached(lake: Lake) -> dict[str, str]:
    """Java's catalog otherwise keeps a table's first schema."""
    return {"warehouse": str(lake.warehouse), "cache-enabled": "false"}


def _files(lake: Lake) -> list[tuple[Any, ...]]:
    return sorted(lake.files(*_FILE), key=repr)


def _runs(lake: Lake) -> Counter[tuple[bytes, int]]:
    """The sorted runs of each bucket; each file of an append table is one."""
    files = lake.files("partition", "bucket", "level", "file_name")
    runs = {(*bucket, level, level or name) for *bucket, level, name in files}
    return Counter((partition, bucket) for partition, bucket, *_ in runs)


def _deleted(lake: Lake) -> list[str]:
    return sorted(map(str, lake.vectors().values()))


def _read(lake: Lake, kind: ViewKind, options: dict[str, str]) -> list[tuple[Any, ...]]:
    read = plan_data_read(lake.table, ReadRequest(kind, options=options))
    return [tuple(row.values()) for batch in read.rows() for row in batch.to_pylist()]


def _has_lone_updates(binlog: list[tuple[Any, ...]]) -> bool:
    return any(kind == "-U" for kind, *_ in binlog)


def _snapshot(lake: Lake, snapshot_id: int) -> list[Any]:
    found = lake.table.paimon.snapshot_manager().get_snapshot_by_id(snapshot_id)
    return [getattr(found, name) for name in _SNAPSHOT]


def run(seed: int, folder: Path, java: JavaPaimon, java_compact: JavaCompact) -> int:
    """Everything that happens to the table of a seed; how often it was compacted."""
    twins = Twins(seed, folder, java, java_compact)
    for step in range(STEPS):
        if step and twins.chance.random() < 0.25:
            twins.alter()
        twins.write()
        if twins.chance.random() < 0.6:
            twins.compact()
        if twins.chance.random() < 0.1:
            twins.expire()
    if twins.lake.table.paimon.snapshot_manager().get_latest_snapshot() is not None:
        twins.expire()
    return twins.compactions


@pytest.mark.parametrize("seed", [0, 1, pytest.param(2, marks=pytest.mark.soak)])
def test_random_table_is_the_same_as_in_java(
    java_paimon: JavaPaimon, java_compact: JavaCompact, tmp_path: Path, seed: int
) -> None:
    run(seed, tmp_path, java_paimon, java_compact)


@pytest.mark.soak
def test_hundreds_of_random_tables_are_the_same_as_in_java(
    java_paimon: JavaPaimon, java_compact: JavaCompact, tmp_path: Path
) -> None:
    """PAIMON_MAGICS_SEED is the first seed, PAIMON_MAGICS_TABLES the number of tables."""
    first = int(os.environ.get("PAIMON_MAGICS_SEED") or random.randrange(2**32))
    tables = int(os.environ.get("PAIMON_MAGICS_TABLES") or 300)
    compactions, wrong = 0, []
    for seed in range(first, first + tables):
        folder = tmp_path / str(seed)
        try:
            compactions += run(seed, folder, java_paimon, java_compact)
        except Exception as error:
            wrong.append(f"seed {seed}: {random_table(random.Random(seed)).sql()}\n{error!r}")
            print(wrong[-1], flush=True)
        shutil.rmtree(folder, ignore_errors=True)
    print(f"seeds from {first}: {compactions} compactions")
    assert not wrong
