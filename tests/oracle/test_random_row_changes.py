"""Random tables whose rows are changed by random INSERT, DELETE, UPDATE and MERGE statements.

After each statement the table's rows are those of a model in memory, whose conditions and values
are evaluated by the tests; Paimon's Java library reads the same, and writes and compacts, too.
Row ids stay, changelogs lead from each state to the next, and a statement that fails leaves the
table as it was.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import paimon_magics
from paimon_magics.errors import PaimonMagicsError
from paimon_magics.planning.reads.views import ViewKind
from paimon_magics.settings import Settings
from paimon_magics.tables.reading.data_read import ReadRequest, plan_data_read
from tests.oracle.changed_tables import ChangedTable, changed_table
from tests.oracle.java_compactor import JavaCompact
from tests.oracle.java_reader import JavaPaimon
from tests.oracle.random_merges import misuse, random_step
from tests.oracle.random_row_changes import OTHERS, Step, insert
from tests.oracle.random_tables import shown
from tests.oracle.row_model import UnclearError
from tests.oracle.test_random_tables_in_java import uncached
from tests.tables.compaction.append_compactions import Lake
from tests.tables.reachability import missing, unreachable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.java]

STEPS = 10
_TOLD = {"incremental-between-scan-mode": "changelog"}


class ChangedRows:
    """A table of the generator's beside its model."""

    def __init__(
        self,
        seed: int,
        session: paimon_magics.Session,
        lake: Lake,
        java: JavaPaimon,
        java_compact: JavaCompact,
    ) -> None:
        self.chance = random.Random(seed)
        self.table: ChangedTable = changed_table(self.chance)
        self.session, self.lake, self._java = session, lake, java
        self._java_compact = java_compact
        self.left_by_java: set[str] = set()
        self.done: list[str] = []
        self._ids: dict[int, tuple[int, int]] = {}
        self._told: dict[str, str] = {}
        self._told_until = 0

    def prepare(self) -> None:
        self._run(self.table.sql())
        rows = ", ".join(
            f"({'NULL' if row['x'] is None else row['x']}, "
            f"{'NULL' if row['y'] is None else repr(row['y'])})"
            for row in OTHERS
        )
        self._run(f"CREATE TABLE o (x INT, y STRING); INSERT INTO o VALUES {rows}")
        self._statement(insert(self.chance, self.table))

    def step(self) -> None:
        chance = self.chance
        match chance.choices(
            ["statement", "misuse", "alter", "compact", "java"], [10, 1.5, 1.5, 2, 1]
        )[0]:
            case "misuse" if self.table.model.rows:
                self._statement(misuse(chance, self.table))
            case "alter":
                sql = self.table.alteration(chance)
                if sql is not None:
                    self._run(sql)
                    self._compare()
                    self._told = self._rows_by_key()
            case "compact":
                self._compact()
                self._compare()
                self._replay()
            case "java" if self.table.options.get("bucket") != "-2":
                self._write_by_java()
                self._compare()
                self._replay()
            case _:
                self._statement(random_step(chance, self.table))

    def end(self) -> None:
        """What can be asked of the table once nothing more happens to it."""
        expected = self._expected()
        assert shown(self._java.rows(uncached(self.lake), "default.t")) == expected
        query = self.session.run("SELECT * FROM t").to_arrow().to_pylist()
        assert shown([tuple(row.values()) for row in query]) == expected
        assert missing(self.lake.table) == set()
        assert unreachable(self.lake.table) <= self.left_by_java

    def _run(self, sql: str) -> Any:
        self.done.append(sql)
        return self.session.run(sql)

    def _statement(self, step: Step) -> None:
        before = self._latest()
        try:
            outcome = self._run(step.sql)
        except PaimonMagicsError as error:
            if step.error is None:
                raise
            assert isinstance(error, step.error) and re.search(step.told, error.message), error
            assert self._latest() == before
            assert unreachable(self.lake.table) <= self.left_by_java
            self._compare(by_java=False)
            return
        assert step.error is None or step.may_pass
        if step.counts is not None and outcome.rows_written is not None:
            for name in ("updated", "deleted", "inserted"):
                found = getattr(outcome, f"rows_{name}")
                assert found is None or found == getattr(step.counts, name), name
        rows_before = {row["u"]: row for row in self.table.model.rows if "u" in row}
        self.table.model = step.after
        self._compare()
        self._check_ids(rows_before)
        self._replay()

    def _compare(self, *, by_java: bool = True) -> None:
        expected = self._expected()
        assert shown(_read(self.lake, ViewKind.TABLE, {})) == expected
        if by_java and self.chance.random() < 0.3:
            assert shown(self._java.rows(uncached(self.lake), "default.t")) == expected

    def _expected_rows(self) -> list[list[Any]]:
        names = [column.name for column in self.table.columns]
        return [[row[name] for name in names] for row in self.table.model.rows]

    def _expected(self) -> list[str]:
        return shown(self._expected_rows())

    def _check_ids(self, before: dict[int, dict[str, Any]]) -> None:
        """Rows keep their ids, those that did not change their sequence numbers, too."""
        if not self.table.tracks_rows:
            return
        found = self.session.run("SELECT u, _ROW_ID, _SEQUENCE_NUMBER FROM t").to_arrow()
        assert len(set(found["_ROW_ID"].to_pylist())) == found.num_rows
        many = Counter(found["u"].to_pylist())  # a MERGE may insert one number twice
        ids = {
            row["u"]: (row["_ROW_ID"], row["_SEQUENCE_NUMBER"])
            for row in found.to_pylist()
            if many[row["u"]] == 1
        }
        after = {row["u"]: row for row in self.table.model.rows}
        for number, (id, sequence) in ids.items():
            if number in self._ids:
                assert id == self._ids[number][0]
                if shown([[before[number]]]) != shown([[after[number]]]):
                    assert sequence > self._ids[number][1]
        self._ids = ids

    def _replay(self) -> None:
        """The changes that are told lead from the rows before to the rows after."""
        since, self._told_until = self._told_until, self._latest()
        table = self.table
        exact = table.producer == "lookup"
        if table.options.get("bucket") == "-2":
            return  # their changes are told by later compactions
        if not exact and not (
            table.producer == "input" and table.engine == "deduplicate" and not table.model.sequence
        ):
            return
        numbers = range(since + 1, self._told_until + 1)
        snapshots = self.lake.table.paimon.snapshot_manager()
        if "OVERWRITE" in {snapshots.get_snapshot_by_id(each).commit_kind for each in numbers}:
            self._told = self._rows_by_key()  # no changes are told of it
        for number in numbers:
            options = {**_TOLD, "incremental-between": f"{number - 1},{number}"}
            told = _read(self.lake, ViewKind.AUDIT_LOG, options)
            if self.chance.random() < 0.3:
                java = self._java.rows(uncached(self.lake), "default.t$audit_log", options)
                assert shown(java) == shown(told)
            for kind, *row in told:
                key = shown([self._key(row)])[0]
                if kind in ("+I", "+U"):
                    assert not exact or key not in self._told
                    self._told[key] = shown([row])[0]
                else:
                    gone = self._told.pop(key, None)
                    assert not exact or gone == shown([row])[0]
        assert self._told == self._rows_by_key()

    def _rows_by_key(self) -> dict[str, str]:
        return {shown([self._key(row)])[0]: shown([row])[0] for row in self._expected_rows()}

    def _key(self, row: Sequence[Any]) -> list[Any]:
        return [
            row[at] for at, each in enumerate(self.table.columns) if each.name in self.table.keys
        ]

    def _write_by_java(self) -> None:
        try:
            step = insert(self.chance, self.table)
        except UnclearError:
            return
        names = [column.name for column in self.table.columns]
        self.done.append(f"-- by Java: {step.sql}")
        rows = [tuple(row[name] for name in names) for row in step.rows]
        self._java.write(uncached(self.lake), "default.t", rows)
        self.left_by_java |= unreachable(self.lake.table)
        self.table.model = step.after

    def _compact(self) -> None:
        full = self.chance.random() < 0.5
        if self.chance.random() < 0.3 and self.table.options.get("bucket") != "-2":
            self.done.append(f"-- compacted by Java, full: {full}")
            self._java_compact(uncached(self.lake), full)
            self.left_by_java |= unreachable(self.lake.table)
        else:
            how = "full" if full else "minor"
            self._run(f"CALL sys.compact(table => 't', compact_strategy => '{how}')")

    def _latest(self) -> int:
        latest = self.lake.table.paimon.snapshot_manager().get_latest_snapshot()
        return 0 if latest is None else int(latest.id)


def _read(lake: Lake, kind: ViewKind, options: dict[str, str]) -> list[tuple[Any, ...]]:
    read = plan_data_read(lake.table, ReadRequest(kind, options=options))
    return [tuple(row.values()) for batch in read.rows() for row in batch.to_pylist()]


def run(
    seed: int,
    folder: Path,
    spark: SparkSession,
    java: JavaPaimon,
    java_compact: JavaCompact,
    steps: int = STEPS,
) -> None:
    """Everything that happens to the table of a seed. A failure's notes tell it."""
    # Of every other table a MERGE reads what the source's keys leave.
    asked = 0 if seed % 2 else Settings().source_range_from_bytes
    # Spark's tasks read half of the tables, small as they are.
    local = 0 if seed // 2 % 2 else Settings().local_rows_max
    with paimon_magics.connect(
        folder, spark=spark, source_range_from_bytes=asked, local_rows_max=local
    ) as session:
        changed = ChangedRows(seed, session, Lake.opened(folder), java, java_compact)
        try:
            changed.prepare()
            for _ in range(steps):
                changed.step()
            changed.end()
        except Exception as error:
            error.add_note(f"seed {seed}:\n" + ";\n".join(changed.done))
            raise


@pytest.mark.parametrize("seed", [8, 11])
def test_random_row_changes_match_the_model(
    spark: SparkSession,
    java_paimon: JavaPaimon,
    java_compact: JavaCompact,
    tmp_path: Path,
    seed: int,
) -> None:
    run(seed, tmp_path, spark, java_paimon, java_compact, 5)


def test_tables_compacted_by_java_with_row_ids_can_be_changed(
    spark: SparkSession, java_compact: JavaCompact, tmp_path: Path
) -> None:
    """Java names `_ROW_ID` among the columns with statistics where a column has none (seed 20006).
    (pypaimon reads these for each commit that removes files, and for expiry.)"""
    with paimon_magics.connect(tmp_path, spark=spark) as session:
        session.run(
            "CREATE TABLE t (k INT, v STRUCT<a: INT>) TBLPROPERTIES "
            "('row-tracking.enabled' = 'true', 'compaction.min.file-num' = '2');"
            "INSERT INTO t VALUES (1, NULL); INSERT INTO t VALUES (2, NULL)"
        )
        lake = Lake.opened(tmp_path)
        java_compact(uncached(lake), True)
        assert unreachable(lake.table) == set()
        session.run("UPDATE t SET v.a = 3 WHERE k = 2")
        actual = session.run("SELECT k, v.a, _ROW_ID FROM t ORDER BY k").to_pylist()
        assert [tuple(row.values()) for row in actual] == [(1, None, 0), (2, 3, 1)]
        assert session.run("INSERT OVERWRITE t VALUES (4, NULL)").rows_written == 1
        assert session.run("DELETE FROM t WHERE k = 4").rows_deleted == 1


@pytest.mark.soak
def test_row_changes_of_hundreds_of_tables_match_the_model(
    spark: SparkSession, java_paimon: JavaPaimon, java_compact: JavaCompact, tmp_path: Path
) -> None:
    """PAIMON_MAGICS_SEED is the first seed, PAIMON_MAGICS_TABLES the number of tables."""
    first = int(os.environ.get("PAIMON_MAGICS_SEED") or random.randrange(2**32))
    tables = int(os.environ.get("PAIMON_MAGICS_TABLES") or 300)
    wrong = []
    for seed in range(first, first + tables):
        folder = tmp_path / str(seed)
        try:
            run(seed, folder, spark, java_paimon, java_compact)
        except Exception as error:
            wrong.append(f"{type(error).__name__}: {error}\n{error.__notes__[0]}")
            print("".join(traceback.format_exception(error)), flush=True)
        shutil.rmtree(folder, ignore_errors=True)
    print(f"seeds from {first}")
    assert not wrong
