"""A statement reads each of its tables from the catalog once, whatever it does with it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from paimon_magics import Session

pytestmark = pytest.mark.spark


class CountingCatalog:
    """pypaimon's catalog, and how often each table was read from it."""

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


# A session's committer reads the table that is written when the transaction begins, and again when
# it commits: what others did in between is what it is there to notice.
COMMITTED = 1 + 2


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SELECT * FROM source", {"source": 1}),
        (
            "SELECT * FROM source AS a JOIN source AS b ON a.k = b.k JOIN target ON a.k = target.k",
            {"source": 1, "target": 1},
        ),
        ("SELECT rowkind, k FROM `source$audit_log`", {"source": 1}),
        ("SELECT * FROM source VERSION AS OF 1", {"source": 1}),
        (
            "INSERT INTO target SELECT k, v, 'tue' FROM source",
            {"source": 1, "target": COMMITTED},
        ),
        (
            "INSERT OVERWRITE target SELECT k, v, 'tue' FROM source JOIN target USING (k, v)",
            {"source": 1, "target": COMMITTED},
        ),
        ("INSERT INTO target VALUES (3, 'c', 'wed')", {"target": COMMITTED}),
        (
            "EXPLAIN INSERT INTO target SELECT k, v, 'tue' FROM source",
            {"source": 1, "target": 1},
        ),
        ("TRUNCATE TABLE target", {"target": COMMITTED}),
        ("ALTER TABLE target DROP PARTITION (day = 'mon')", {"target": COMMITTED}),
        ("DESCRIBE target", {"target": 1}),
        ("SHOW PARTITIONS target", {"target": 1}),
    ],
)
def test_a_statement_reads_each_of_its_tables_once(
    session: Session, reads: Counter[str], statement: str, expected: dict[str, int]
) -> None:
    session.run(statement)
    assert reads == expected


def test_next_statement_sees_the_changed_table(session: Session, reads: Counter[str]) -> None:
    session.run("ALTER TABLE target ADD COLUMN n INT; INSERT INTO target VALUES (5, 'e', 'fri', 9)")
    actual = session.run("SELECT n FROM target WHERE k = 5").to_arrow().to_pylist()
    assert actual == [{"n": 9}]
