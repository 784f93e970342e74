"""Values of the source by which a MERGE finds rows of its target, and the ranges of those."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pytest

from paimon_magics.planning.reads.predicates import ColumnPredicate, column_predicates
from paimon_magics.planning.row_changes.merges import plan_merge
from paimon_magics.planning.row_changes.source_keys import (
    KeyRange,
    SourceKey,
    compare_alike,
    range_filters,
    source_keys,
)
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import MergeInto, TextRange
from paimon_magics.statements.types.type_text import from_paimon

COLUMNS = (
    Column(0, "id", AtomicType("INT", nullable=False)),
    Column(1, "day", AtomicType("DATE")),
    Column(2, "v", AtomicType("STRING")),
)
SCHEMA = TableSchema(COLUMNS, partition_keys=("day",))
SOURCE = ("id", "w", "moment", "kind")
CHANGES = "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"


def keys(on: str, clauses: str = CHANGES, schema: TableSchema = SCHEMA) -> dict[str, str]:
    merge = parse_statement(f"MERGE INTO shop.t USING s ON {on} {clauses}")
    assert isinstance(merge, MergeInto)
    found = source_keys(merge, plan_merge(merge, schema, SOURCE), schema)
    return {
        each.column: merge.text[each.value.start : each.value.end]
        + (" <=>" if each.null_safe else "")
        for each in found
    }


@pytest.mark.parametrize(
    ("on", "expected"),
    [
        ("t.id = s.id", {"id": "s.id"}),
        ("(s.id + 1 == shop.t.ID) AND v <=> lower(s.`w`)", {"id": "s.id + 1",
                                                            "v": "lower(s.`w`) <=>"}),
        ("t.day = CAST(s.moment AS DATE) AND t.id > s.id", {"day": "CAST(s.moment AS DATE)"}),
        ("t.day = date_add(moment, -:days) AND t.v = s.w", {"day": "date_add(moment, -:days)",
                                                           "v": "s.w"}),
        ("t.day BETWEEN s.moment AND s.moment AND t.id = s.id", {"id": "s.id"}),
        ("t.id = s.id OR t.v = s.w", {}),
        ("NOT t.id = s.id AND NOT (t.v = s.w)", {}),
        ("CASE WHEN t.id = s.id THEN true END AND t.v = s.w", {}),
        # Not a value of the source alone, or not one side of the comparison.
        ("t.id = s.id + t.id AND t.v = concat(s.w, v)", {}),
        ("t.v = s.w IS NULL AND t.id = s.id = true AND t.day = s.moment IN (1)", {}),
        ("t.v = s.w COLLATE UTF8_LCASE", {}),
        ("t.id + 1 = s.id AND abs(t.id) = s.id AND id = s.id", {}),
        # Other values when the rows are read again.
        ("t.id = s.id + rand() AND t.day = current_date()", {}),
        ("t.id = unix_timestamp() + s.id", {}),
    ],
)  # fmt: skip
def test_source_keys_are_expressions_equated_with_target_columns(
    on: str, expected: dict[str, str]
) -> None:
    assert keys(on) == expected


def test_not_matched_by_source_leaves_no_range() -> None:
    assert keys("t.id = s.id", CHANGES + " WHEN NOT MATCHED BY SOURCE AND id > 5 THEN DELETE") == {}


def test_data_evolution_tables_use_only_partition_keys() -> None:
    options = (("row-tracking.enabled", "true"), ("data-evolution.enabled", "true"))
    evolving = TableSchema(COLUMNS, partition_keys=("day",), options=options)
    on = "t.id = s.id AND t.day = s.moment"
    assert keys(on, schema=evolving) == {"day": "s.moment"}


def test_values_possibly_never_computed_by_spark_give_no_range() -> None:
    on = "t.id = CAST(s.w AS INT) AND t.v = s.w"
    only_pairs = "WHEN MATCHED THEN DELETE"
    assert keys(on, only_pairs) == {"id": "CAST(s.w AS INT)", "v": "s.w"}
    assert keys(f"{on} AND s.kind = 'n'", only_pairs) == {"v": "s.w"}
    assert keys(f"{on} AND t.v > 'a'", only_pairs) == {"id": "CAST(s.w AS INT)", "v": "s.w"}
    assert keys(f"{on} AND s.kind = 'n'") == {"id": "CAST(s.w AS INT)", "v": "s.w"}


ALIKE = [
    ("BIGINT", "TINYINT", True),
    ("TINYINT", "BIGINT", True),
    ("DECIMAL(20, 2)", "DECIMAL(10, 4)", True),
    ("DECIMAL(20, 2)", "BIGINT", True),
    ("DATE", "DATE", True),
    ("VARCHAR(5)", "STRING", True),
    # Spark rounds to 38 digits.
    ("DECIMAL(38, 30)", "INT", False),
    ("DECIMAL(38, 0)", "DECIMAL(38, 18)", False),
    # Spark casts the column, or the value, to something else.
    ("INT", "DECIMAL(10, 2)", False),
    ("INT", "STRING", False),
    ("STRING", "INT", False),
    ("BIGINT", "DOUBLE", False),
    ("DECIMAL(10, 2)", "DOUBLE", False),
    ("DATE", "TIMESTAMP(6) WITH LOCAL TIME ZONE", False),
    ("DATE", "STRING", False),
    # NaN, -0.0; time zones; padding; words that are no numbers.
    ("DOUBLE", "DOUBLE", False),
    ("FLOAT", "FLOAT", False),
    ("TIMESTAMP(6)", "TIMESTAMP(6)", False),
    ("TIME(3)", "INT", False),
    ("CHAR(5)", "STRING", False),
    ("BOOLEAN", "BOOLEAN", False),
    ("BYTES", "BYTES", False),
]


@pytest.mark.parametrize(("column", "value", "alike"), ALIKE)
def test_ranges_need_types_compared_alike_by_spark_and_files(
    column: str, value: str, alike: bool
) -> None:
    given = from_paimon(value)
    assert isinstance(given, AtomicType)
    assert compare_alike(from_paimon(column), given) is alike


def test_key_ranges_become_column_conditions() -> None:
    def of(column: str, least: object, greatest: object) -> KeyRange:
        key = SourceKey(column, TextRange(0, 1), null_safe=False, is_column=True)
        return KeyRange(key, least, greatest)  # type: ignore[arg-type]

    days = datetime.date(2026, 1, 1), datetime.date(2026, 1, 31)
    ranges = (of("id", 3, 3), of("day", *days), of("v", None, None))
    filters, bound = range_filters(ranges)
    assert column_predicates(filters, SCHEMA.columns, bound) == (
        ColumnPredicate("id", "=", (3,)),
        ColumnPredicate("day", ">=", (days[0],)),
        ColumnPredicate("day", "<=", (days[1],)),
        ColumnPredicate("v", "in", ()),
    )
    # What the column's type does not take is no condition.
    filters, bound = range_filters((of("id", Decimal("1.5"), Decimal(2)),))
    assert column_predicates(filters, SCHEMA.columns, bound) == ()
