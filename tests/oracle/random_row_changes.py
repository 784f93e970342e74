"""Statements at random that change the rows of a `ChangedTable`, and do the same to its model."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paimon_magics.errors import PaimonMagicsError, UnsupportedStatementError
from tests.oracle.changed_tables import ChangedTable, Column
from tests.oracle.random_expressions import (
    Asked,
    Scope,
    Term,
    condition_with_subqueries,
    value,
)
from tests.oracle.row_model import Counts, Row, RowModel, Values

Chance = random.Random

OTHERS: tuple[Row, ...] = (
    {"x": 1, "y": "a"}, {"x": None, "y": "b%"}, {"x": -1, "y": None}, {"x": 7, "y": "A"},
)  # fmt: skip
"""The rows of the table `o`, which statements read beside `t`."""
ASKED = Asked("o", OTHERS, {"x": "int", "y": "string"})


@dataclass(frozen=True)
class Step:
    """A statement, the model after it, and the rows that it counts; or the error that it is, whose
    text has the pattern `told`. With `may_pass` it is one or the other, by how the files lie.
    `rows` are those that it inserts."""

    sql: str
    after: RowModel
    counts: Counts | None = None
    error: type[PaimonMagicsError] | None = None
    told: str = ""
    may_pass: bool = False
    rows: Sequence[Row] = ()


def insert(chance: Chance, table: ChangedTable) -> Step:
    """INSERT INTO of VALUES, or of a query."""
    rows = [table.row(chance) for _ in range(chance.choice([1, 3, 8, 20]))]
    columns = list(table.columns)
    given = [each for each in columns if each.fixed or chance.random() < 0.8]
    shortened = chance.random() < 0.3 and len(given) < len(columns)
    if shortened:
        given = [each for each in given if each.default is None or chance.random() < 0.5]
        for row in rows:
            row.update({each.name: each.default for each in columns if each not in given})
    else:
        given = columns
    listed = ", ".join(f"({', '.join(table.text(c, row[c.name]) for c in given)})" for row in rows)
    names = f" ({', '.join(each.quoted for each in given)})" if shortened else ""
    unordered = table.is_keyed and len({table.model.key_of(row) for row in rows}) < len(rows)
    is_query = chance.random() < 0.4 and not unordered
    source = f"SELECT * FROM VALUES {listed}" if is_query else f"VALUES {listed}"
    after = table.model.copy()
    after.insert(rows)
    return Step(f"INSERT INTO t{names} {source}", after, rows=rows)


def delete(chance: Chance, table: ChangedTable) -> Step:
    """DELETE FROM; also with a condition on partitions alone."""
    alias, scope = _target(chance, table)
    refused = refusal_of_delete(table)
    if table.partitioned and not refused and chance.random() < 0.2:
        scope = replace(scope, columns=tuple(c for c in scope.columns if "`p`" in c.texts[0]))
    where = condition_with_subqueries(chance, scope)
    after = table.model.copy()
    if refused:  # (Whole partitions would be taken away all the same.)
        sql = f"DELETE FROM t{alias} WHERE ({where.sql}) AND k0 IS NOT NULL"
        if table.evolves or table.producer != "none":
            return Step(sql, after, error=UnsupportedStatementError, told=refused)
        # Rows are removed from files, where these need no merge.
        counts = after.delete(where.of)
        told = f"{refused}|appear after the next compaction"
        return Step(sql, after, counts, UnsupportedStatementError, told, may_pass=True)
    counts = after.delete(where.of)
    return Step(f"DELETE FROM t{alias} WHERE {where.sql}", after, counts)


def refusal_of_delete(table: ChangedTable) -> str:
    """What the refusal of deleting rows says; '' where it is allowed."""
    if table.evolves and "deletion-vectors.enabled" not in table.options:
        return "can only be deleted"
    if table.engine in ("append", "deduplicate"):
        return ""
    removes = table.options.get(f"{table.engine}.remove-record-on-delete") == "true"
    return "" if removes else "takes no deletes"


def update(chance: Chance, table: ChangedTable) -> Step:
    """UPDATE of some columns or fields."""
    alias, scope = _target(chance, table)
    where = condition_with_subqueries(chance, scope)
    texts, values, assigned = assignments(chance, table, scope)
    sql = f"UPDATE t{alias} SET {', '.join(texts)} WHERE {where.sql}"
    if table.engine == "aggregation":
        return Step(sql, table.model, error=UnsupportedStatementError, told="can not support")
    if moves(table, assigned):
        return Step(sql, table.model, error=UnsupportedStatementError, told="is a partition column")
    after = table.model.copy()
    return Step(sql, after, after.update(where.of, values))


def moves(table: ChangedTable, assigned: Collection[str]) -> bool:
    """Whether rows could leave the places that say their ids, which is refused."""
    return table.evolves and "p" in assigned


def _target(chance: Chance, table: ChangedTable) -> tuple[str, Scope]:
    alias = chance.choice(["", " AS q", " q"])
    scope = table.scope("q" if alias else "t")
    own = Asked(
        "t", [dict(row) for row in table.model.rows],
        {c.name: c.kind for c in table.columns if c.kind != "struct" and c.name.isidentifier()},
    )  # fmt: skip
    return alias, replace(scope, asked=(ASKED, own) if own.columns else (ASKED,))


def assignments(
    chance: Chance, table: ChangedTable, scope: Scope
) -> tuple[list[str], Values, set[str]]:
    """Texts of assignments, what they do to a row, and the assigned columns."""
    free = [each for each in table.columns if each.name not in table.keys and each.name != "u"]
    if table.partitioned and chance.random() < 0.6:
        free = [each for each in free if each.name != "p"]
    chosen = chance.sample(free, min(len(free), chance.choice([1, 1, 2, 3])))
    texts: list[str] = []
    made: list[Callable[[Mapping[str, Any]], Row]] = []
    for column in chosen:
        text, of = _assignment(chance, table, scope, column)
        texts.append(text)
        made.append(of)

    def values(row: Mapping[str, Any]) -> Row:
        return {name: each for of in made for name, each in of(row).items()}

    return texts, values, {column.name for column in chosen}


def _assignment(
    chance: Chance, table: ChangedTable, scope: Scope, column: Column
) -> tuple[str, Callable[[Mapping[str, Any]], Row]]:
    name = column.name
    if column.kind == "struct":
        a = small(value(chance, scope, "int"))
        if chance.random() < 0.6:
            return f"{column.quoted}.a = {a.sql}", lambda row: {name: _with_a(row, name, a)}
        return (
            f"{column.quoted} = named_struct('a', {a.sql}, 'b', 'new')",
            lambda row: {name: {"a": a.of(row), "b": "new"}},
        )
    if chance.random() < 0.1:
        return f"{column.quoted} = DEFAULT", lambda row: {name: column.default}
    if name == "p":
        parts = ["x", "new part"]
        part = chance.choice(parts)
        return f"p = '{part}'", lambda row: {name: part}
    of = value(chance, scope, column.kind)
    if column.kind == "int":
        of = small(of)
    if name in table.model.groups:
        number = chance.randrange(9)
        of = Term(f"coalesce({of.sql}, {number})", _otherwise(of, number))
    return f"{column.quoted} = {of.sql}", lambda row: {name: of.of(row)}


def _otherwise(term: Term, number: int) -> Callable[[Mapping[str, Any]], Any]:
    return lambda row: number if term.of(row) is None else term.of(row)


def _with_a(row: Mapping[str, Any], name: str, a: Term) -> Row:
    return {**(row[name] or {"a": None, "b": None}), "a": a.of(row)}


def small(term: Term) -> Term:
    """A number that does not grow from statement to statement."""

    def of(row: Mapping[str, Any]) -> Any:
        found = term.of(row)
        return None if found is None else (abs(found) % 97) * (1 if found >= 0 else -1)

    return Term(f"(({term.sql}) % 97)", of)
