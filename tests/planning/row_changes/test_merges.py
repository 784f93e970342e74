"""A MERGE's plan says what each clause does to each column, and refuses what would not be that."""

from __future__ import annotations

import pytest

from paimon_magics.errors import PaimonMagicsError
from paimon_magics.planning.row_changes.merge_query import merge_query, needed_columns
from paimon_magics.planning.row_changes.merges import (
    ByField,
    FromSource,
    FromText,
    MergePlan,
    ToDefault,
    Unchanged,
    equated_columns,
    inserts_keys_of_on,
    plan_merge,
)
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.statements.data_types import AtomicType, RowField, RowType
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import MergeInto

PLACE = RowType((RowField("hall", AtomicType("INT")), RowField("Shelf", AtomicType("STRING"))))
SCHEMA = TableSchema(
    (
        Column(0, "id", AtomicType("INT", nullable=False)),
        Column(1, "v", AtomicType("STRING")),
        Column(2, "place", PLACE),
    ),
    primary_keys=("id",),
)
HEAD = "MERGE INTO shop.t USING s ON t.id = s.id "


def parsed(text: str) -> MergeInto:
    result = parse_statement(text)
    assert isinstance(result, MergeInto)
    return result


def plan(clauses: str, source: tuple[str, ...] = ("place", "V", "id", "more")) -> MergePlan:
    return plan_merge(parsed(HEAD + clauses), SCHEMA, source)


def test_clause_values_come_by_name_or_assignment() -> None:
    actual = plan(
        "WHEN MATCHED AND s.more THEN UPDATE SET shop.t.V = s.v, place.shelf = 'a', "
        "t.place.hall = DEFAULT WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT (id) "
        "VALUES (s.id)"
    )
    some, whole, insert = (clause.values for clause in actual.clauses)
    assert whole == (Unchanged(), FromSource(1), FromSource(0))
    assert some[0] == Unchanged()
    assert isinstance(some[1], FromText)
    assert isinstance(some[2], ByField)
    assert [(path, type(value)) for path, value in some[2].fields] == [
        (("Shelf",), FromText),
        (("hall",), ToDefault),
    ]
    assert isinstance(insert[0], FromText)
    assert insert[1:] == (ToDefault(), ToDefault())


def test_updated_row_keeps_its_key_despite_equal_source_values() -> None:
    """`'01' = 1` is true, and 1 is stored as another key."""
    for clause in (
        "SET id = s.id, v = s.v",
        "SET t.id = (s.id), v = s.v",
        "SET id = t.id, v = 'x'",
    ):
        (update,) = plan(f"WHEN MATCHED THEN UPDATE {clause}").clauses
        assert update.values[0] == Unchanged()


@pytest.mark.parametrize(
    ("clauses", "join"),
    [
        ("WHEN MATCHED THEN DELETE", "INNER"),
        ("WHEN NOT MATCHED THEN INSERT *", "RIGHT ANTI"),
        ("WHEN NOT MATCHED BY SOURCE THEN DELETE", "LEFT ANTI"),
        ("WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *", "RIGHT OUTER"),
        ("WHEN MATCHED THEN DELETE WHEN NOT MATCHED BY SOURCE THEN DELETE", "LEFT OUTER"),
        ("WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE THEN DELETE", "FULL OUTER"),
    ],
)
def test_clauses_determine_the_join_type(clauses: str, join: str) -> None:
    assert plan(clauses).join == join


def test_only_needed_target_columns_are_read() -> None:
    for clauses, expected in {
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *": (0,),
        "WHEN MATCHED AND t.v > 'a' THEN UPDATE SET *": (0, 1),
        "WHEN MATCHED THEN UPDATE SET v = s.v": (0, 1, 2),
        "WHEN MATCHED THEN DELETE": (0, 1, 2),
    }.items():
        merge = parsed(HEAD + clauses)
        assert needed_columns(merge, plan(clauses), SCHEMA.column_names) == expected, clauses


@pytest.mark.parametrize(
    ("clauses", "said"),
    [
        ("WHEN MATCHED THEN UPDATE SET nope = 1", "no column `nope`"),
        ("WHEN MATCHED THEN UPDATE SET place.nope = 1", "no field `nope`"),
        ("WHEN MATCHED THEN UPDATE SET v.a = 1", "no field `a`"),
        ("WHEN MATCHED THEN UPDATE SET v = 1, t.v = 2", "assigned twice"),
        ("WHEN MATCHED THEN UPDATE SET place.hall = 1, place = NULL", "assigned twice"),
        ("WHEN MATCHED THEN UPDATE SET id = s.id + 1", "primary key column `id`"),
        ("WHEN MATCHED THEN UPDATE SET id = DEFAULT", "primary key column `id`"),
        ("WHEN MATCHED THEN UPDATE SET id = s.more", "primary key column `id`"),
        ("WHEN NOT MATCHED THEN INSERT (v) VALUES (s.v)", "`id` of `shop.t` is NOT NULL"),
        ("WHEN NOT MATCHED THEN INSERT (id, place.hall) VALUES (1, 2)", "field of `place`"),
    ],
)
def test_invalid_merge_clauses_are_refused_with_their_position(clauses: str, said: str) -> None:
    with pytest.raises(PaimonMagicsError) as raised:
        plan(clauses)
    assert said in raised.value.message
    assert raised.value.position is not None


def test_star_requires_all_target_columns_in_the_source() -> None:
    for action in ("MATCHED THEN UPDATE SET *", "NOT MATCHED THEN INSERT *"):
        with pytest.raises(PaimonMagicsError, match="no `place`"):
            plan(f"WHEN {action}", ("id", "v"))
    with pytest.raises(PaimonMagicsError, match="two columns `ID`"):
        plan("WHEN MATCHED THEN DELETE", ("id", "ID"))


def test_columns_missing_in_the_source_can_be_left_to_the_table() -> None:
    merge = parsed(f"{HEAD}WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")
    update, insert = plan_merge(merge, SCHEMA, ("id", "place"), fills_missing=True).clauses
    assert update.values == (Unchanged(), Unchanged(), FromSource(1))
    assert insert.values == (FromSource(0), ToDefault(), FromSource(1))
    with pytest.raises(PaimonMagicsError, match=r"`id` of `shop.t` is NOT NULL"):
        plan_merge(merge, SCHEMA, ("v", "place"), fills_missing=True)


@pytest.mark.parametrize(
    ("condition", "pairs"),
    [
        ("t.id = s.id", {("id", "id")}),
        ("(s.`key` <=> shop.t.id AND t.v > 'a' AND f(t.v, 1) = s.v)", {("id", "key")}),
        ("t.id = s.id OR t.v = s.v", set()),
        ("NOT t.id = s.id", set()),
        ("NOT (t.id = s.id)", set()),
        ("t.id = s.id + 1", set()),
        ("t.id BETWEEN s.id AND s.id", set()),
    ],
)
def test_equated_columns_follow_from_the_on_condition(
    condition: str, pairs: set[tuple[str, str]]
) -> None:
    merge = parsed(f"MERGE INTO shop.t USING s ON {condition} WHEN MATCHED THEN DELETE")
    assert {(pair.target, pair.source) for pair in equated_columns(merge)} == pairs


@pytest.mark.parametrize(
    ("insert", "told"),
    [
        ("INSERT *", True),
        ("INSERT (id) VALUES (s.`id`)", True),
        ("INSERT (id) VALUES (s.id * 10)", False),
        ("INSERT (id) VALUES (s.more)", False),
    ],
)
def test_insert_of_the_key_in_the_on_condition_is_recognised(insert: str, told: bool) -> None:
    merge = parsed(f"{HEAD}WHEN NOT MATCHED THEN {insert}")
    made = plan_merge(merge, SCHEMA, ("id", "v", "place", "more"))
    assert inserts_keys_of_on(merge, made, SCHEMA) is told


def test_query_positions_map_back_to_the_users_text() -> None:
    merge = parsed(HEAD + "WHEN MATCHED AND shop.t.v > 'a' THEN UPDATE SET v = concat(s.v, t.v)")
    made = plan_merge(merge, SCHEMA, ("id", "v"))
    query = merge_query(merge, made, ("left", "right"), {0: "id", 1: "v", 2: "place"}, ())
    for text in ("concat(s.v", "t.id = s.id", "> 'a'"):
        position = query.original_position(query.text.index(text))
        assert merge.text[position:].startswith(text)
    assert "`t`.v > 'a'" in query.text
