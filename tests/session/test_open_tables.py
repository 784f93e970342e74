"""A statement reads each of its tables from the catalog once, whatever it does with it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from paimon_magics import Session

pytestmark = pytest.mark.spark


class CountingCatalog:
    """pypaimon's catalog, and how often each table was read by the session, not by a commit."""

    def __init__(self, catalog: Any) -> None:
        self._catalog = catalog
        self.reads: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def get_table(self, identifier: Any) -> Any:
        self.reads[identifier.get_object_name()] += 1
        return self._catalog.get_table(identifier)


@pytest.fixture
def reads(session: Session) -> Counter[str]:
    session.run(
        "CREATE TABLE source (k INT NOT NULL, v STRING) "
        "TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '2'); "
        "INSERT INTO source VALUES (1, 'a'), (2, 'b'); INSERT INTO source VALUES (1, 'c'); "
        "CREATE TABLE target (k INT, v STRING, day STRING) PARTITIONED BY (day); "
        "INSERT INTO target VALUES (1, 'a', 'mon')"
    )
    counting = CountingCatalog(session.catalog.paimon)
    session.catalog.paimon = counting
    return counting.reads


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM source",
        "SELECT * FROM source AS a JOIN source AS b ON a.k = b.k JOIN target ON a.k = target.k",
        "SELECT rowkind, k FROM `source$audit_log`",
        "SELECT * FROM source VERSION AS OF 1",
        "INSERT INTO target SELECT k, v, 'tue' FROM source",
        "INSERT OVERWRITE target SELECT k, v, 'tue' FROM source JOIN target USING (k, v)",
        "INSERT INTO target VALUES (3, 'c', 'wed')",
        "EXPLAIN INSERT INTO target SELECT k, v, 'tue' FROM source",
        "TRUNCATE TABLE target",
        "ALTER TABLE target DROP PARTITION (day = 'mon')",
        "DESCRIBE target",
        "SHOW PARTITIONS target",
    ],
)
def test_a_statement_reads_each_of_its_tables_once(
    session: Session, reads: Counter[str], statement: str
) -> None:
    session.run(statement)
    print(statement, dict(reads))
    assert reads and set(reads.values()) == {1}


def test_the_next_statement_sees_a_table_that_was_changed_in_between(
    session: Session, reads: Counter[str]
) -> None:
    session.run("ALTER TABLE target ADD COLUMN n INT; INSERT INTO target VALUES (5, 'e', 'fri', 9)")
    found = session.run("SELECT n FROM target WHERE k = 5").to_arrow().to_pylist()
    assert found == [{"n": 9}]
