"""What DELETE and UPDATE may change, and what each assignment is about."""

from __future__ import annotations

import pytest

from paimon_magics.errors import InvalidValueError, UnknownNameError, UnsupportedStatementError
from paimon_magics.planning.row_changes.assignments import assigned_paths
from paimon_magics.planning.row_changes.change_rules import (
    ChangeMethod,
    check_moves,
    may_select_partitions,
    method_of_delete,
    method_of_update,
)
from paimon_magics.planning.row_changes.plain_values import plain_filters
from paimon_magics.planning.schemas.table_schema import TableSchema, plan_create_table
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable, Delete, TableName, Update

T = TableName("t", "shop")
COLUMNS = "k INT NOT NULL, a INT, s STRUCT<x: INT, y: STRUCT<z: INT>>, t STRING, p STRING"


def schema_of(options: str = "", keys: str = "k, p") -> TableSchema:
    key = f", PRIMARY KEY ({keys}) NOT ENFORCED" if keys else ""
    given = f"TBLPROPERTIES ({options})" if options else ""
    statement = parse_statement(f"CREATE TABLE t ({COLUMNS}{key}) PARTITIONED BY (p) {given}")
    assert isinstance(statement, CreateTable)
    return plan_create_table(statement)


@pytest.mark.parametrize(
    ("options", "delete", "update"),
    [
        ("'bucket' = '1'", ChangeMethod.KINDS, ChangeMethod.KINDS),
        ("'bucket' = '-1'", ChangeMethod.KINDS, ChangeMethod.KINDS),
        ("'ignore-delete' = 'true'", "ignores deletes", ChangeMethod.KINDS),
        ("'rowkind.field' = 't'", ChangeMethod.KINDS, ChangeMethod.KINDS),
        ("'merge-engine' = 'partial-update'", ChangeMethod.FILES, ChangeMethod.KINDS),
        (
            "'merge-engine' = 'partial-update', 'ignore-delete' = 'true', "
            "'partial-update.remove-record-on-delete' = 'true'",
            "ignores deletes",
            ChangeMethod.KINDS,
        ),
        (
            "'merge-engine' = 'partial-update', 'changelog-producer' = 'lookup'",
            "the changelog",
            ChangeMethod.KINDS,
        ),
        (
            "'merge-engine' = 'partial-update', 'partial-update.remove-record-on-delete' = 'true'",
            ChangeMethod.KINDS,
            ChangeMethod.KINDS,
        ),
        (
            "'merge-engine' = 'partial-update', 'fields.a.sequence-group' = 't', "
            "'partial-update.remove-record-on-sequence-group' = 'a'",
            ChangeMethod.FILES,
            ChangeMethod.KINDS,
        ),
        ("'merge-engine' = 'aggregation'", ChangeMethod.FILES, "can not support UPDATE"),
        (
            "'merge-engine' = 'aggregation', 'deletion-vectors.enabled' = 'true'",
            ChangeMethod.VECTORS,
            "can not support UPDATE",
        ),
        (
            "'merge-engine' = 'aggregation', 'sequence.snapshot-ordering' = 'true'",
            "orders rows",
            "can not support UPDATE",
        ),
        (
            "'merge-engine' = 'aggregation', 'aggregation.remove-record-on-delete' = 'true'",
            ChangeMethod.KINDS,
            "can not support UPDATE",
        ),
        (
            "'merge-engine' = 'first-row', 'ignore-delete' = 'true'",
            ChangeMethod.FILES,
            "can not support UPDATE",
        ),
        ("'deletion-vectors.enabled' = 'true'", ChangeMethod.KINDS, ChangeMethod.KINDS),
    ],
)
def test_merge_engine_determines_the_change_method(
    options: str, delete: ChangeMethod | str, update: ChangeMethod | str
) -> None:
    schema = schema_of(options if "bucket'" in options else f"'bucket' = '1', {options}")
    for method, expected in ((method_of_delete, delete), (method_of_update, update)):
        if isinstance(expected, ChangeMethod):
            assert method(T, schema) is expected
        else:
            with pytest.raises(UnsupportedStatementError, match=expected):
                method(T, schema)


def test_refused_merge_is_named_in_its_error() -> None:
    with pytest.raises(UnsupportedStatementError, match="can not support MERGE"):
        method_of_update(T, schema_of("'merge-engine' = 'aggregation', 'bucket' = '1'"), "MERGE")


def test_tables_without_keys_are_changed_by_vectors_or_files() -> None:
    assert method_of_delete(T, schema_of(keys="")) is ChangeMethod.FILES
    vectors = schema_of("'deletion-vectors.enabled' = 'true'", keys="")
    assert method_of_update(T, vectors) is ChangeMethod.VECTORS


def test_rowkind_field_is_refused_where_keys_move_between_partitions() -> None:
    moving = schema_of("'bucket' = '-1'", keys="k")
    assert method_of_delete(T, moving) is method_of_update(T, moving) is ChangeMethod.KINDS
    with pytest.raises(UnsupportedStatementError, match="move between partitions"):
        method_of_delete(T, schema_of("'bucket' = '-1', 'rowkind.field' = 't'", keys="k"))


def test_partial_update_rows_cannot_move_between_partitions() -> None:
    partial = schema_of("'bucket' = '-1', 'merge-engine' = 'partial-update'", keys="k")
    check_moves(T, partial, {"a"})
    check_moves(T, schema_of("'bucket' = '-1'", keys="k"), {"p"})
    with pytest.raises(UnsupportedStatementError, match="whatever its new value of `p`"):
        check_moves(T, partial, {"a", "p"})


def paths(text: str) -> list[tuple[str, tuple[str, ...], int]]:
    update = parse_statement(text)
    assert isinstance(update, Update)
    return [
        (each.column.name, each.fields, each.number) for each in assigned_paths(update, schema_of())
    ]


def test_assignments_resolve_columns_and_fields_after_table_names() -> None:
    assert paths("UPDATE t SET A = 1, s.X = 2, t.s.y.z = 3") == [
        ("a", (), 0), ("s", ("x",), 1), ("s", ("y", "z"), 2),
    ]  # fmt: skip
    assert paths("UPDATE t AS o SET o.t = 'x', k = o.k") == [("t", (), 0)]
    assert paths("UPDATE shop.t SET shop.t.a = 1, k = t.k") == [("a", (), 0)]


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        ("UPDATE t SET b = 1", UnknownNameError, "no column `b`"),
        ("UPDATE t SET s.w = 1", UnknownNameError, "no field `w`"),
        ("UPDATE t SET a.w = 1", InvalidValueError, "not a STRUCT"),
        ("UPDATE t SET a = 1, A = 2", InvalidValueError, "`a` is assigned twice"),
        ("UPDATE t SET s.y = NULL, s.y.z = 2", InvalidValueError, "`s.y` is assigned twice"),
        ("UPDATE t SET k = k + 1", UnsupportedStatementError, "primary key column `k`"),
        ("UPDATE t SET p = 'x'", UnsupportedStatementError, "primary key column `p`"),
    ],
)
def test_invalid_assignments_are_refused_with_their_position(
    text: str, error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match) as caught:
        paths(text)
    assert caught.value.position is not None  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("p = 'x' AND hour(now()) < 25", True),
        ("p IN (SELECT a FROM u)", True),
        ("p = 'x' OR a = 1", False),
        ("p = 'x' AND rand() < 0.5", False),
        ("my_function(p)", False),
        ("hash(*) = 1", False),
    ],
)
def test_partition_conditions_use_no_row_values(condition: str, expected: bool) -> None:
    assert may_select_partitions(condition, {"a", "k"}) is expected


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("k = 6 AND P == 'p0'", "k = 6, p = p0"),
        ("t.k IN (1, -2) and `p` = :day", "k in 1 -2, p = day"),
        ("p = 'ä -- no comment' /* one */", "p = ä -- no comment"),
        ("(k = 6)", "k = 6"),
        ("k = 6 OR k = 7 or t.K in (8, :k)", "k in 6 7 8 k"),
        ("p = 'a' AND (k = 6 OR k = 7)", "p = a, k in 6 7"),
        # Whatever is more than that is Spark's to evaluate.
        ("k = 6 OR p = 'p0'", None),
        ("k = 6 OR k = 7 AND p = 'a'", None),
        ("p = 'a' AND k = 6 OR k = 7", None),
        ("(k = 6 OR k > 7)", None),
        ("(k = 6 AND p = 'a')", None),
        ("NOT k = 6", None),
        ("k = 6 AND a = 1", None),
        ("k = 6 + 1", None),
        ("6 = k", None),
        ("k = 6.0", None),
        ("k = 6L", None),
        ("k = -'6'", None),
        ("k = NULL", None),
        ("k IN (6, NULL)", None),
        ("k IN (SELECT 6)", None),
        ("k <=> 6", None),
        ("x.k = 6", None),
        ("p = 'a''b'", None),
        (r"p = 'a\n'", None),
        ("p = 'a' 'b'", None),
        ("p = r'a'", None),
        ("p = X'61'", None),
        ("p = 'a' COLLATE UNICODE_CI", None),
        ("p = lower('a')", None),
    ],
)
def test_plain_key_conditions_become_filters(condition: str, found: str | None) -> None:
    delete = parse_statement(f"DELETE FROM shop.t WHERE {condition}")
    assert isinstance(delete, Delete)
    filters = plain_filters(delete, ("k", "p"))
    if filters is None:
        assert found is None
        return
    told = (" ".join((f.column, f.operator, *(v.text for v in f.values))) for f in filters)
    assert ", ".join(told) == found
