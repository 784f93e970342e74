"""Which values of a MERGE are checked by Spark's policy for what is stored."""

from __future__ import annotations

from paimon_magics.planning.row_changes.merges import plan_merge
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.spark.merge_rows import given_values
from paimon_magics.statements.data_types import AtomicType, RowField, RowType
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import MergeInto

INNER = RowType((RowField("shelf", AtomicType("TINYINT")),))
PLACE = RowType((RowField("hall", AtomicType("INT")), RowField("inner", INNER)))
SCHEMA = TableSchema((Column(0, "id", AtomicType("INT")), Column(1, "place", PLACE)))


def test_values_of_struct_fields_are_checked_like_columns() -> None:
    merge = parse_statement(
        "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET id = s.other, "
        "place.inner.shelf = s.id, place.hall = DEFAULT"
    )
    assert isinstance(merge, MergeInto)
    plan = plan_merge(merge, SCHEMA, ("id", "other"))
    actual = [(each.name, each.type) for _, each in given_values(plan, SCHEMA.columns)]
    assert actual == [("id", AtomicType("INT")), ("place.inner.shelf", AtomicType("TINYINT"))]
