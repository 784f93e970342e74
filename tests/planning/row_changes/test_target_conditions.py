"""Which rows of its target a MERGE needs follows from ON and the conditions of its clauses."""

from __future__ import annotations

import datetime

import pytest

from paimon_magics.planning.reads.predicates import column_predicates, condition_text
from paimon_magics.planning.row_changes.merge_query import target_filters
from paimon_magics.planning.row_changes.merges import plan_merge
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import MergeInto

SCHEMA = TableSchema(
    (
        Column(0, "id", AtomicType("INT", nullable=False)),
        Column(1, "Day", AtomicType("DATE")),
        Column(2, "v", AtomicType("STRING")),
        Column(3, "price", AtomicType("DECIMAL", (20, 18))),
        Column(4, "ratio", AtomicType("DOUBLE")),
        Column(5, "code", AtomicType("CHAR", (4,))),
        Column(6, "at", AtomicType("TIMESTAMP_LTZ", (6,))),
    )
)
SOURCE = ("id", "w", "kind")
UPDATE = "WHEN MATCHED THEN UPDATE SET v = s.w "
INSERT = "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id) "
ORPHANS = "WHEN NOT MATCHED BY SOURCE"


def conditions(on: str, clauses: str) -> set[str]:
    merge = parse_statement(f"MERGE INTO shop.t USING s ON {on} {clauses}")
    assert isinstance(merge, MergeInto)
    found = target_filters(merge, plan_merge(merge, SCHEMA, SOURCE), SCHEMA)
    bound = {"day": datetime.date(2026, 1, 31)}
    return {condition_text(each) for each in column_predicates(found, SCHEMA.columns, bound)}


@pytest.mark.parametrize(
    ("on", "expected"),
    [
        ("t.id = s.id AND t.day >= DATE '2026-01-31'", {"Day >= '2026-01-31'"}),
        ("t.id = s.id AND (day = :day AND (v IN ('a', 'b')))",
         {"Day = '2026-01-31'", "v IN ('a', 'b')"}),
        ("shop.t.id > 5 AND shop.t.v IS NOT NULL", {"id > 5", "v IS NOT NULL"}),
        ("5 <= t.id AND t.id BETWEEN 1 AND 9", {"id >= 5", "id >= 1", "id <= 9"}),
        # The source's, or one that both have and Spark will refuse.
        ("t.id = s.id AND s.v = 'a' AND id = 5 AND kind = 'x'", set()),
        ("t.id = s.id OR t.v = 'a'", set()),
        ("NOT (t.v = 'a') AND NOT t.id = 5", set()),
        ("coalesce(t.v, 'a') = 'a' AND t.v = s.w", set()),
        # What Spark compares in another way than statistics would be.
        ("t.ratio = 1.5 AND t.code = 'ab' AND t.at = TIMESTAMP '2026-01-31 00:00:00'", set()),
        ("t.v = 5 AND t.id = '5' AND t.id = 5.5 AND t.price = 1e-1", set()),
        ("t.price < 2.5 AND t.v = 'a' COLLATE UTF8_LCASE", {"price < 2.5"}),
        ("t.id <=> 5 AND (t.v = 'a') IS NULL", set()),
    ],
)  # fmt: skip
def test_on_conditions_about_the_target_alone_filter_it(on: str, expected: set[str]) -> None:
    for clauses in (UPDATE, INSERT, UPDATE + INSERT):
        assert conditions(on, clauses) == expected, clauses


@pytest.mark.parametrize(
    ("clauses", "expected"),
    [
        ("WHEN MATCHED AND t.v = 'x' THEN DELETE", {"id > 5", "v = 'x'"}),
        ("WHEN MATCHED AND v = 'x' AND kind = 'k' THEN DELETE", {"id > 5", "v = 'x'"}),
        ("WHEN MATCHED AND t.v = 'x' THEN DELETE WHEN MATCHED AND t.v > 'y' THEN DELETE",
         {"id > 5"}),
        ("WHEN MATCHED AND t.v = 'x' AND s.id < 9 THEN DELETE "
         "WHEN MATCHED AND t.V = 'x' THEN UPDATE SET v = 'y'", {"id > 5", "v = 'x'"}),
        # A row that a clause leaves as it is has been matched nevertheless.
        (f"WHEN MATCHED AND t.v = 'x' THEN DELETE {INSERT}", {"id > 5"}),
        ("WHEN NOT MATCHED AND s.id = 7 THEN INSERT (id) VALUES (s.id)", {"id > 5"}),
    ],
)  # fmt: skip
def test_clause_conditions_filter_the_target_where_safe(clauses: str, expected: set[str]) -> None:
    assert conditions("t.id = s.id AND t.id > 5", clauses) == expected


@pytest.mark.parametrize(
    ("clauses", "expected"),
    [
        (f"{ORPHANS} THEN DELETE", set()),
        (f"{UPDATE} {ORPHANS} THEN DELETE", set()),
        (f"{ORPHANS} AND v = 'x' THEN DELETE", {"v = 'x'"}),
        (f"{ORPHANS} AND v = 'x' AND id = 3 THEN DELETE", {"v = 'x'", "id = 3"}),
        (f"{UPDATE} {INSERT} {ORPHANS} AND v = 'x' THEN DELETE", set()),
        (f"{UPDATE} {INSERT} {ORPHANS} AND id > 5 THEN DELETE", {"id > 5"}),
        (f"{UPDATE} {ORPHANS} AND id > 5 AND v = 'x' THEN DELETE "
         f"{ORPHANS} AND v = 'y' AND t.id > 5 THEN UPDATE SET v = ''", {"id > 5"}),
        (f"{UPDATE} {ORPHANS} AND id > 5 THEN DELETE {ORPHANS} THEN UPDATE SET v = ''", set()),
    ],
)  # fmt: skip
def test_not_matched_by_source_ignores_on_conditions(clauses: str, expected: set[str]) -> None:
    assert conditions("t.id = s.id AND t.id > 5", clauses) == expected
