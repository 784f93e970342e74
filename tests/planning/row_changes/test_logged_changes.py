"""Which DELETEs and UPDATEs can be carried out from the row of a key alone, and by which tables."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pytest

from paimon_magics.errors import PaimonMagicsError, UnsupportedStatementError
from paimon_magics.planning.reads.predicates import ColumnPredicate
from paimon_magics.planning.row_changes.logged_changes import (
    LoggedChange,
    check_takes_change,
    logged_change,
)
from paimon_magics.planning.schemas.table_schema import TableSchema, plan_create_table
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable, Delete, TableName, Update

T = TableName("t", "shop")
KEYED = "'primary-key' = 'k,p', 'bucket' = '2'"


def schema(options: str = KEYED, more: str = "PARTITIONED BY (p)") -> TableSchema:
    statement = parse_statement(
        "CREATE TABLE t (k BIGINT NOT NULL, p STRING NOT NULL, n INT, d DECIMAL(5, 2), day DATE, "
        f"ok BOOLEAN, f DOUBLE, s STRUCT<a: INT>) {more} "
        f"TBLPROPERTIES ('auto_batch_load' = 'true', {options})"
    )
    assert isinstance(statement, CreateTable)
    return plan_create_table(statement)


def change_of(text: str, of: TableSchema | None = None, **bound: object) -> LoggedChange | None:
    statement = parse_statement(text)
    assert isinstance(statement, Delete | Update)
    return logged_change(statement, T, of or schema(), bound)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("DELETE FROM shop.t WHERE k = 1 AND p = 'a'", LoggedChange(("k", "p"), ((1, "a"),))),
        (
            "DELETE FROM shop.t x WHERE x.k IN (1, :k) AND x.P = :p AND N IS NULL",
            LoggedChange(("k", "p"), ((1, "b"), (2, "b")), (ColumnPredicate("n", "is null"),)),
        ),
        (
            "DELETE FROM shop.t WHERE k = 1 AND k < 9 AND p = 'a' AND ok = TRUE AND d >= :d",
            LoggedChange(
                ("k", "p"),
                ((1, "a"),),
                (
                    ColumnPredicate("k", "=", (1,)),
                    ColumnPredicate("k", "<", (9,)),
                    ColumnPredicate("ok", "=", (True,)),
                    ColumnPredicate("d", ">=", (Decimal("1.5"),)),
                ),
            ),
        ),
        (
            "UPDATE shop.t SET n = -3, day = DATE '2026-11-25', d = (7.5), f = 2, ok = NULL "
            "WHERE k = 1 AND p = 'a' AND day < DATE '2026-01-01'",
            LoggedChange(
                ("k", "p"),
                ((1, "a"),),
                (ColumnPredicate("day", "<", (datetime.date(2026, 1, 1),)),),
                (
                    ("n", -3),
                    ("day", datetime.date(2026, 11, 25)),
                    ("d", Decimal("7.5")),
                    ("f", 2.0),
                    ("ok", None),
                ),
            ),
        ),
        ("DELETE FROM shop.t WHERE k = 1", None),  # a part of the key
        ("DELETE FROM shop.t WHERE k > 1 AND p = 'a'", None),
        ("DELETE FROM shop.t WHERE k = 1 AND p = 'a' OR n = 1", None),
        ("DELETE FROM shop.t WHERE k = 1 AND p = 'a' AND n + 1 = 2", None),
        ("DELETE FROM shop.t WHERE k = 1 AND p = 'a' AND n <> 2", None),
        ("DELETE FROM shop.t WHERE k = 1 AND p = 'a' AND f = 1", None),
        ("DELETE FROM shop.t WHERE k = 1 AND p = 'a' AND s.a = 1", None),
        (f"DELETE FROM shop.t WHERE p = 'a' AND k IN ({', '.join(map(str, range(1001)))})", None),
        ("UPDATE shop.t SET n = n + 1 WHERE k = 1 AND p = 'a'", None),
        ("UPDATE shop.t SET n = 2147483648 WHERE k = 1 AND p = 'a'", None),
        ("UPDATE shop.t SET n = DEFAULT WHERE k = 1 AND p = 'a'", None),
        ("UPDATE shop.t SET s.a = 1 WHERE k = 1 AND p = 'a'", None),
        ("UPDATE shop.t SET n = (1) + (2) WHERE k = 1 AND p = 'a'", None),
    ],
)
def test_statement_on_rows_by_key_becomes_a_logged_change(
    text: str, found: LoggedChange | None
) -> None:
    assert change_of(text, k=2, p="b", d=Decimal("1.5")) == found


@pytest.mark.parametrize(
    ("options", "more", "updates", "said"),
    [
        (f"{KEYED}, 'ignore-delete' = 'true'", "PARTITIONED BY (p)", False, "ignores deletes"),
        ("'primary-key' = 'k', 'bucket' = '2'", "PARTITIONED BY (p)", False, "several partitions"),
        (f"{KEYED}, 'merge-engine' = 'partial-update'", "", False, "no rows of the kind -D"),
        (
            f"{KEYED}, 'merge-engine' = 'partial-update', 'fields.n.aggregate-function' = 'sum'",
            "",
            True,
            "folds the values",
        ),
        (f"{KEYED}, 'rowkind.field' = 'p'", "", False, "holds the row kinds"),
        ("'primary-key' = 'k', 'bucket' = '-2'", "", False, "are assigned to buckets later"),
        (
            f"{KEYED}, 'deletion-vectors.enabled' = 'true', 'write-only' = 'true'",
            "",
            False,
            "appear only after a compaction",
        ),
        ("'bucket' = '-1'", "", False, "no primary key"),
    ],
)
def test_unsuitable_tables_take_no_logged_changes(
    options: str, more: str, updates: bool, said: str
) -> None:
    of = schema(options, more)
    with pytest.raises(UnsupportedStatementError, match=said):
        check_takes_change(T, of, updates=updates)
    kind = "UPDATE shop.t SET n = 1" if updates else "DELETE FROM shop.t"
    assert change_of(f"{kind} WHERE k = 1 AND p = 'a'", of) is None


def test_assignments_to_keys_fail_and_to_sequence_fields_are_not_logged() -> None:
    with pytest.raises(PaimonMagicsError, match="primary key column `k`"):
        change_of("UPDATE shop.t SET k = 2 WHERE k = 1 AND p = 'a'")
    # Another sequence could lose against the row that it replaces.
    of = schema(f"{KEYED}, 'sequence.field' = 'n'")
    assert change_of("UPDATE shop.t SET n = 1 WHERE k = 1 AND p = 'a'", of) is None
    assert change_of("UPDATE shop.t SET d = 1 WHERE k = 1 AND p = 'a'", of) is not None
