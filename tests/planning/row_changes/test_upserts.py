"""An INSERT into a table with `upsert-key` is the MERGE that its text would be read as."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paimon_magics.planning.row_changes.merges import FromSource, Upsert, on_terms, plan_merge
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import MergeInto, TableName

COLUMNS = (
    Column(0, "id", AtomicType("INT")),
    Column(1, "a `b` when then", AtomicType("INT")),
    Column(2, "version", AtomicType("BIGINT")),
)
PLAIN = TableName("orders", "shop")
ODD = TableName("s`.`t using", "MATCHED")


def schema(**options: str) -> TableSchema:
    stored = {name.replace("_", "-").replace("--", "."): text for name, text in options.items()}
    return TableSchema(COLUMNS, options=tuple(stored.items()))


def upsert(table: TableSchema) -> Upsert:
    planned = Upsert.of(table)
    assert planned is not None
    return planned


@pytest.mark.parametrize("target", [PLAIN, ODD])
@pytest.mark.parametrize(
    "planned",
    [
        Upsert(("id",)),
        Upsert(("id", "a `b` when then")),
        Upsert(("id",), ("version",)),
        Upsert(("a `b` when then",), ("version", "id"), ascending=False),
    ],
)
def test_merge_of_an_upsert_is_what_the_parser_reads_in_its_text(
    planned: Upsert, target: TableName
) -> None:
    merge = planned.merge(target)
    read = parse_statement(merge.text)
    assert isinstance(read, MergeInto)
    # The rows are a frame's: nothing looks up the source by its name.
    assert replace(read, source=merge.source, source_text="") == merge
    assert merge.text[merge.source.range.start : merge.source.range.end] == "frame"
    on = merge.text[merge.condition.start : merge.condition.end]
    assert on.count(" <=> ") == len(planned.keys)
    assert len(on_terms(merge)) == len(planned.keys)


def test_upsert_replaces_all_columns_of_rows_that_are_not_newer() -> None:
    table = schema(upsert_key="id", sequence__field="version")
    merge = upsert(table).merge(PLAIN)
    newer = merge.clauses[0].condition
    assert newer is not None
    assert merge.text[newer.start : newer.end] == "struct(t.`version`) <= struct(s.`version`)"
    plan = plan_merge(merge, table, ("version", "id", "a `b` when then"))
    values = (FromSource(1), FromSource(2), FromSource(0))
    assert [clause.effect for clause in plan.clauses] == ["update", "insert"]
    assert [clause.values for clause in plan.clauses] == [values, values]


@pytest.mark.parametrize("order", ["descending", "DESCENDING"])
def test_descending_sequence_takes_the_smaller_one(order: str) -> None:
    table = schema(upsert_key="id", sequence__field="version", sequence__field__sort_order=order)
    planned = upsert(table)
    assert not planned.ascending
    assert " >= struct(s.`version`)" in planned.merge(PLAIN).text


def test_rows_are_only_added_without_a_key_or_to_a_table_with_a_primary_key() -> None:
    assert Upsert.of(schema()) is None
    keyed = replace(schema(upsert_key="id"), primary_keys=("id",))
    assert Upsert.of(keyed) is None
