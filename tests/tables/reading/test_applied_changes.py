"""Changes by key are carried out in order with the rows around them, as one after the other."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from paimon_magics.columnar.merging import KIND
from paimon_magics.planning.reads.predicates import ColumnPredicate
from paimon_magics.planning.schemas.table_schema import TableSchema, plan_create_table
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable
from paimon_magics.tables.reading.applied_changes import (
    Change,
    changed_rows,
    keys_of,
    merged_on_top,
)
from paimon_magics.tables.schema.types import arrow_schema

Row = dict[str, Any]
Key = tuple[int, str]


def schema(**options: str) -> TableSchema:
    statement = parse_statement(
        "CREATE TABLE t (p STRING NOT NULL, id BIGINT NOT NULL, seq BIGINT, v INT) "
        "PARTITIONED BY (p) TBLPROPERTIES ('primary-key' = 'p,id', 'bucket' = '1')"
    )
    assert isinstance(statement, CreateTable)
    found = plan_create_table(statement)
    return replace(found, options=(*found.options, *options.items()))


def table(of: TableSchema, rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, arrow_schema(of))


def batch(of: TableSchema, *rows: Row) -> pa.RecordBatch:
    (made,) = table(of, list(rows)).combine_chunks().to_batches()
    return made


def change(*keys: Key, where: tuple[ColumnPredicate, ...] = (), v: int | None = None) -> Change:
    named = pa.table(
        {"p": pa.array([p for _, p in keys]), "id": pa.array([id for id, _ in keys], pa.int64())}
    )
    return Change(named, where, None if v is None else {"v": pa.array([v], pa.int32())})


def row(id: int, v: int | None, seq: int = 0, p: str = "a") -> Row:
    return {"p": p, "id": id, "seq": seq, "v": v}


def after(of: TableSchema, stored: list[Row], *entries: pa.RecordBatch | Change) -> list[Row]:
    """The table's rows when the entries are loaded."""
    below = table(of, stored)
    written = changed_rows(of, entries, lambda keys: below)
    rows: list[Row] = merged_on_top(of, below, written).to_pylist()
    return sorted(rows, key=lambda each: (each["p"], each["id"]))


KINDS = [schema(), schema(**{"changelog-producer": "input"}), schema(**{"sequence.field": "seq"})]


@pytest.mark.parametrize("of", KINDS)
def test_reinserted_key_has_its_last_row(of: TableSchema) -> None:
    entries = batch(of, row(1, 1), row(2, 1)), change((1, "a"), (3, "a")), batch(of, row(1, 2))
    assert after(of, [row(1, 0), row(3, 0), row(4, 0)], *entries) == [
        row(1, 2),
        row(2, 1),
        row(4, 0),
    ]


@pytest.mark.parametrize("of", KINDS)
def test_condition_sees_the_effects_of_earlier_changes(of: TableSchema) -> None:
    large = (ColumnPredicate("v", ">", (5,)),)
    entries = (
        change((1, "a"), (2, "a"), where=large),  # only 2 is large
        batch(of, row(1, 9)),
        change((1, "a"), where=large),
        change((3, "a"), where=large, v=1),
        change((3, "a"), where=large),  # it is small now
        change((4, "a"), where=(ColumnPredicate("v", "is null"),), v=7),
        change((5, "a"), v=7),  # there is no such row
    )
    stored = [row(1, 0), row(2, 6), row(3, 8), row(4, None)]
    assert after(of, stored, *entries) == [row(3, 1), row(4, 7)]


def test_each_effective_change_writes_a_row_with_its_kind() -> None:
    of = KINDS[0]
    entries = change((1, "a")), change((2, "a"), v=5), batch(of, row(3, 1)), change((9, "a"))
    written = changed_rows(of, entries, lambda keys: table(of, [row(1, 0), row(2, 0)]))
    assert [(each["id"], each["v"], each[KIND]) for each in written.to_pylist()] == [
        (1, 0, 3),
        (2, 5, 2),
        (3, 1, 0),
    ]
    keys = keys_of(entries)
    assert keys is not None and keys.num_rows == 3


def test_rows_before_a_delete_are_written_only_with_a_changelog() -> None:
    entries = [each for n in range(2000) for each in (batch(KINDS[0], row(1, n)), change((1, "a")))]
    assert changed_rows(KINDS[0], entries, lambda keys: table(KINDS[0], [])).num_rows == 0
    # A changelog tells each of them.
    told = changed_rows(KINDS[1], entries[:40], lambda keys: table(KINDS[1], []))
    assert told.column(KIND).to_pylist() == [0, 3] * 20


def test_partial_update_record_restarts_after_a_delete() -> None:
    of = schema(
        **{"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}
    )
    entries = (
        batch(of, row(1, 5)),
        change((1, "a"), (2, "a")),
        batch(of, row(1, None), row(2, None)),
    )
    assert after(of, [row(2, 9)], *entries) == [row(1, None), row(2, None)]
    assert after(of, [row(1, 9)], change((1, "a"), v=4), batch(of, row(1, None))) == [row(1, 4)]


def carried_out(of: TableSchema, stored: list[Row], entries: list[Any]) -> list[Row]:
    """The model: one after the other."""
    state: dict[Key, tuple[int, Row | None]] = {
        (each["id"], each["p"]): (each["seq"], each) for each in stored
    }
    for entry in entries:
        if isinstance(entry, pa.RecordBatch):
            for one in entry.to_pylist():
                seq, _ = state.get((one["id"], one["p"]), (-1, None))
                if not of.sequence_fields or one["seq"] >= seq:
                    state[one["id"], one["p"]] = one["seq"], one
            continue
        for key in {(each["id"], each["p"]) for each in entry.keys.to_pylist()}:
            seq, one = state.get(key, (-1, None))
            tests = {">": lambda a, b: a > b, "<": lambda a, b: a < b}
            if one is None or any(
                one["v"] is None or not tests[c.operator](one["v"], c.values[0])
                for c in entry.conditions
            ):
                continue
            value = entry.assigned
            state[key] = seq, None if value is None else {**one, "v": value["v"][0].as_py()}
    rows = [each for _, each in state.values() if each is not None]
    return sorted(rows, key=lambda each: (each["p"], each["id"]))


@pytest.mark.parametrize("seed", range(30))
def test_batched_changes_equal_sequential_changes(seed: int) -> None:
    chance = random.Random(seed)
    of = KINDS[seed % len(KINDS)]

    def some() -> list[Row]:
        return [
            row(id, chance.choice([None, *range(6)]), chance.randrange(4), p)
            for id, p in {
                (chance.randrange(5), chance.choice("ab")) for _ in range(chance.randrange(1, 6))
            }
        ]

    def one() -> Any:
        if chance.random() < 0.5:
            return batch(of, *some())
        where = (ColumnPredicate("v", chance.choice("<>"), (chance.randrange(6),)),)
        return change(
            *((each["id"], each["p"]) for each in some()),
            where=where if chance.random() < 0.6 else (),
            v=chance.choice([None, None, chance.randrange(6)]),
        )

    stored, entries = some(), [one() for _ in range(chance.randrange(1, 12))]
    if keys_of(entries) is not None:
        assert after(of, stored, *entries) == carried_out(of, stored, entries), (stored, entries)
