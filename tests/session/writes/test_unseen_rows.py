"""An UPDATE counts the rows that the next read shows changed, and says why others stay."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from paimon_magics import Session
from paimon_magics.errors import UnsupportedStatementError

pytestmark = pytest.mark.spark

Row = tuple[Any, ...]

WHERE = {
    "by key": "k IN (1, 2, 3, 4, 5)",  # rows of few keys change without a job
    "by a job": "v <> 'other'",
}
PATHS = pytest.mark.parametrize("path", WHERE)


@pytest.fixture(scope="module")
def shop(module_session: Session) -> Session:
    return module_session


def made(shop: Session, name: str, columns: str, options: str, values: str) -> None:
    shop.run(
        f"CREATE TABLE {name} (k INT NOT NULL, {columns}, PRIMARY KEY (k) NOT ENFORCED)"
        f" TBLPROPERTIES ('bucket' = '1', {options}); INSERT INTO {name} VALUES {values}"
    )


def rows(shop: Session, name: str) -> list[Row]:
    return [
        tuple(each.values()) for each in shop.run(f"SELECT * FROM {name} ORDER BY k").to_pylist()
    ]


def named(path: str, name: str) -> str:
    return f"{name}_{path.replace(' ', '_')}"


@PATHS
def test_update_lowering_the_sequence_leaves_row_unchanged(shop: Session, path: str) -> None:
    table = named(path, "seq")
    made(
        shop,
        table,
        "seq INT, v STRING",
        "'sequence.field' = 'seq'",
        "(1, 5, 'a'), (2, 5, 'a'), (3, 5, 'a'), (4, 5, 'a'), (5, NULL, 'a')",
    )
    # smaller, NULL, equal, larger, NULL as it was
    outcome = shop.run(
        f"UPDATE {table} SET v = 'new', seq = CASE k WHEN 1 THEN 4 WHEN 3 THEN 5 WHEN 4 THEN 6 END "
        f"WHERE {WHERE[path]}"
    )
    assert rows(shop, table) == [
        (1, 5, "a"), (2, 5, "a"), (3, 5, "new"), (4, 6, "new"), (5, None, "new"),
    ]  # fmt: skip
    assert (outcome.rows_updated, outcome.rows_written) == (3, 3)
    assert outcome.notes[0] == (
        "2 rows were not changed: their sequence (`seq`, 'sequence.field') would decrease, so the "
        "old row would win."
    )
    none = shop.update(table, {"seq": "seq - 1"}, f"seq > 0 AND {WHERE[path]}")
    assert (none.rows_updated, none.rows_written) == (0, 0)
    assert none.notes[0].startswith("4 rows were not changed")
    plain = shop.update(table, {"v": "'x'"}, WHERE[path])
    assert (plain.rows_updated, plain.notes) == (5, ())


@PATHS
def test_sequence_fields_are_compared_in_order(shop: Session, path: str) -> None:
    values = "(1, 5, 5, 'a'), (2, 5, 5, 'a'), (3, 5, NULL, 'a'), (4, 5, 5, 'a'), (5, 5, 5, 'a')"
    change = (
        "SET v = 'new', a = CASE WHEN k = 1 THEN 6 WHEN k = 5 THEN 4 ELSE a END, "
        "b = CASE k WHEN 2 THEN 4 WHEN 3 THEN 0 WHEN 5 THEN 9 ELSE NULL END"
    )
    for order, updated in (("ascending", [1, 3]), ("descending", [2, 3, 5])):
        table = named(path, f"two_{order}")
        options = f"'sequence.field' = 'a,b', 'sequence.field.sort-order' = '{order}'"
        made(shop, table, "a INT, b INT, v STRING", options, values)
        outcome = shop.run(f"UPDATE {table} {change} WHERE {WHERE[path]}")
        assert [row[0] for row in rows(shop, table) if row[3] == "new"] == updated, order
        assert outcome.rows_updated == len(updated), order


MERGE = (
    "MERGE INTO {} t USING news s ON t.k = s.k WHEN MATCHED AND s.v = 'gone' THEN DELETE "
    "WHEN MATCHED THEN UPDATE SET seq = s.seq, v = s.v WHEN NOT MATCHED THEN INSERT *"
)


@pytest.mark.parametrize("options", ["'merge-engine' = 'deduplicate'", "'rowkind.field' = 'rk'"])
def test_merge_counts_only_visibly_changed_rows(shop: Session, options: str) -> None:
    values = ", ".join(f"({k}, 5.0, 'a', '+I')" for k in range(1, 6))
    columns = "seq DOUBLE, v STRING, rk STRING"
    news = pd.DataFrame(
        {
            "k": [1, 2, 3, 4, 5, 6],
            "seq": [4.0, 5.0, 6.0, None, 1.0, 1.0],
            "v": ["n", "n", "n", "n", "gone", "n"],
            "rk": "+I",
        }
    ).astype({"k": "int32"})
    counts = []
    by_text = f"merged_{len(options)}"
    for name in (by_text, f"{by_text}_by_python"):
        made(shop, name, columns, f"'sequence.field' = 'seq', {options}", values)
        if name == by_text:
            sql = MERGE.format(name)
            text = shop.preview(sql, frames={"news": news}).notes[0]
            assert "2 rows would be updated" in text and "2 rows would not be changed" in text
            outcome = shop.run(sql, frames={"news": news})
        else:
            outcome = (
                shop.merge(news, name, on="k")
                .when_matched_delete(condition="s.v = 'gone'")
                .when_matched_update({"seq": "s.seq", "v": "s.v"})
                .when_not_matched_insert()
                .run()
            )
        counts.append((outcome.rows_updated, outcome.rows_deleted, outcome.rows_inserted))
        assert outcome.notes[0].startswith("2 rows were not changed: their sequence (`seq`")
        shown = [(k, seq, v) for k, seq, v, _ in rows(shop, name)]
        assert shown == [(1, 5, "a"), (2, 5, "n"), (3, 6, "n"), (4, 5, "a"), (6, 1, "n")]
    assert counts == [(2, 1, 1)] * 2


@PATHS
def test_null_keeps_values_in_partial_updates(shop: Session, path: str) -> None:
    table = named(path, "partly")
    made(
        shop,
        table,
        "a INT, b INT, v STRING",
        "'merge-engine' = 'partial-update'",
        "(1, 1, 1, 'a'), (2, 1, 1, 'a'), (3, NULL, 1, 'a'), (4, 1, 1, 'a')",
    )
    # all NULL; in part; NULL as it was; not NULL
    outcome = shop.run(
        f"UPDATE {table} SET a = CASE k WHEN 4 THEN 2 END, b = CASE k WHEN 1 THEN NULL ELSE 2 END "
        f"WHERE {WHERE[path]}"
    )
    assert rows(shop, table) == [
        (1, 1, 1, "a"), (2, 1, 2, "a"), (3, None, 2, "a"), (4, 2, 2, "a"),
    ]  # fmt: skip
    assert (outcome.rows_updated, outcome.rows_written) == (3, 3)
    assert outcome.notes[:2] == (
        "1 row was not changed: with the merge engine partial-update a NULL leaves a value as it "
        "is.",
        "1 of the updated rows was changed in part: with the merge engine partial-update a NULL "
        "leaves a value as it is.",
    )
    for value in ("NULL", "DEFAULT", " null "):
        with pytest.raises(
            UnsupportedStatementError, match=r"can't set `a` of .* to NULL"
        ) as caught:
            shop.run(f"UPDATE {table} SET a ={value} WHERE {WHERE[path]}")
        assert "sequence-group" in (caught.value.hint or "")
    with pytest.raises(UnsupportedStatementError, match=r"can't set `b` of .* to NULL"):
        shop.run(f"MERGE INTO {table} t USING (SELECT 1 AS k) s ON t.k = s.k "
                 "WHEN MATCHED THEN UPDATE SET b = NULL")  # fmt: skip


@PATHS
def test_a_partial_update_with_a_smaller_sequence_is_not_written(shop: Session, path: str) -> None:
    table = named(path, "partly_seq")
    options = "'merge-engine' = 'partial-update', 'sequence.field' = 'seq'"
    made(shop, table, "seq INT, a INT, v STRING", options, "(1, 5, NULL, 'a'), (2, 5, 1, 'a')")
    outcome = shop.run(f"UPDATE {table} SET seq = 4 + k / 2, a = 7 WHERE {WHERE[path]}")
    assert rows(shop, table) == [(1, 5, None, "a"), (2, 5, 7, "a")]
    assert (outcome.rows_updated, outcome.rows_written) == (1, 1)


GROUPS = (
    "'merge-engine' = 'partial-update', 'fields.g.sequence-group' = 'a', "
    "'fields.h,i.sequence-group' = 'b'"
)


@PATHS
def test_sequence_groups_decide_about_their_columns(shop: Session, path: str) -> None:
    table = named(path, "grouped")
    made(
        shop,
        table,
        "g INT, a INT, h INT, i INT, b INT, v STRING",
        GROUPS,
        "(1, 5, 1, 5, 5, 1, 'a'), (2, 5, 1, 5, 5, 1, 'a'), (3, NULL, 1, 5, 5, 1, 'a'), "
        "(4, 5, 1, 5, 5, 1, 'a')",
    )
    # NULL overwrites; the first row's group gets smaller; the third has none
    outcome = shop.run(
        f"UPDATE {table} SET g = g - CASE WHEN k = 1 THEN 1 ELSE 0 END, "
        f"a = CASE k WHEN 2 THEN NULL ELSE 7 END WHERE {WHERE[path]}"
    )
    after = [row[:3] for row in rows(shop, table)]
    assert after == [(1, 5, 1), (2, 5, None), (3, None, 1), (4, 5, 7)]
    assert (outcome.rows_updated, outcome.rows_written) == (2, 2)
    assert outcome.notes[0] == (
        "2 rows were not changed: with the merge engine partial-update a sequence group takes no "
        "values with a smaller or no sequence, and a NULL outside of groups leaves a value as it "
        "is."
    )
    both = shop.run(
        f"UPDATE {table} SET i = i - k + 2, b = 9, v = 'x' WHERE k > 1 AND {WHERE[path]}"
    )
    after = [(row[0], *row[3:]) for row in rows(shop, table)]
    assert after == [
        (1, 5, 5, 1, "a"), (2, 5, 5, 9, "x"), (3, 5, 5, 1, "x"), (4, 5, 5, 1, "x"),
    ]  # fmt: skip
    assert both.rows_updated == 3
    assert both.notes[0].startswith("2 of the updated rows were changed in part: with the merge")


@PATHS
def test_an_update_does_not_aggregate_values_again(shop: Session, path: str) -> None:
    table = named(path, "summed")
    made(
        shop,
        table,
        "g INT, n INT, m INT, l ARRAY<INT>, w STRING, v STRING",
        "'merge-engine' = 'partial-update', 'fields.g.sequence-group' = 'n,m,l,w', "
        "'fields.n.aggregate-function' = 'sum', 'fields.m.aggregate-function' = 'max', "
        "'fields.l.aggregate-function' = 'collect', 'fields.w.aggregate-function' = 'last_value'",
        "(1, 1, 10, 3, array(1), 'w', 'a'), (2, 1, NULL, NULL, NULL, NULL, 'a')",
    )
    shop.run(f"UPDATE {table} SET v = 'x' WHERE {WHERE[path]}")
    shop.run(f"UPDATE {table} SET g = g + 1, w = NULL WHERE {WHERE[path]}")
    shop.run(
        f"MERGE INTO {table} t USING (SELECT 1 AS k) s ON t.k = s.k "
        "WHEN MATCHED THEN UPDATE SET v = 'm' "
        "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET v = 'y', g = t.g"
    )
    expected = [(1, 2, 10, 3, [1], None, "m"), (2, 2, None, None, None, None, "y")]
    assert rows(shop, table) == expected
    shop.run(f"CALL sys.compact('{table}')")
    assert rows(shop, table) == expected
    for statement in (
        f"UPDATE {table} SET n = n + 1 WHERE {WHERE[path]}",
        f"MERGE INTO {table} t USING (SELECT 1 AS k) s ON t.k = s.k "
        "WHEN MATCHED THEN UPDATE SET n = 1",
    ):
        with pytest.raises(UnsupportedStatementError, match=r"can't set `n`.*sum") as caught:
            shop.run(statement)
        assert "INSERT INTO" in (caught.value.hint or "")


def test_update_is_refused_for_aggregated_not_null_column(shop: Session) -> None:
    made(
        shop,
        "needed",
        "g INT, n INT NOT NULL, v STRING",
        "'merge-engine' = 'partial-update', 'fields.g.sequence-group' = 'n', "
        "'fields.n.aggregate-function' = 'sum'",
        "(1, 1, 10, 'a')",
    )
    with pytest.raises(UnsupportedStatementError, match=r"`n`.*NOT NULL.*sum"):
        shop.run("UPDATE needed SET v = 'x' WHERE k = 1")


def test_preview_counts_only_visibly_changed_rows(shop: Session) -> None:
    made(shop, "shown", "seq INT, v STRING", "'sequence.field' = 'seq'", "(1, 5, 'a'), (2, 5, 'a')")
    for condition in WHERE.values():
        text = shop.preview(f"UPDATE shown SET seq = 4 + k / 2, v = 'x' WHERE {condition}").notes[0]
        assert "1 row would be updated" in text
        assert "1 row would not be changed" in text
