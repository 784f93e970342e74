"""MERGE statements at random on a `ChangedTable`, statements that fail, and which comes next."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paimon_magics.errors import InvalidValueError, PaimonMagicsError, UnsupportedStatementError
from tests.oracle.changed_tables import ChangedTable, Column
from tests.oracle.random_expressions import (
    Scope,
    Seen,
    Term,
    compared,
    condition,
    conjunction,
    value,
)
from tests.oracle.random_row_changes import (
    OTHERS,
    Step,
    assignments,
    delete,
    insert,
    moves,
    refusal_of_delete,
    small,
    update,
)
from tests.oracle.row_model import (
    Clause,
    Condition,
    MatchedTwiceError,
    Row,
    UnclearError,
    Values,
)

Chance = random.Random


@dataclass(frozen=True)
class Merge:
    """A MERGE as text, and what the model does for it. `assigned` are the columns that an UPDATE
    clause gives values."""

    sql: str
    source: Sequence[Row]
    on: Condition
    clauses: Sequence[Clause]
    assigned: frozenset[str]

    @property
    def deletes(self) -> bool:
        return any(each.kind != "NOT MATCHED" and each.values is None for each in self.clauses)


def pair(target: Row | None, source: Row | None) -> Mapping[str, Any]:
    """A row of both sides, by `t.name` and `s.name`; the table's columns by their names, too."""
    result = {} if target is None else {**target, **{f"t.{n}": v for n, v in target.items()}}
    if source is not None:
        result |= {f"s.{name}": each for name, each in source.items()}
    return result


def random_step(chance: Chance, table: ChangedTable) -> Step:
    """A statement whose outcome is known."""
    makers = {"insert": insert, "delete": delete, "update": update, "merge": merge}
    while True:
        try:
            return makers[chance.choices([*makers], [3, 3, 4, 5])[0]](chance, table)
        except UnclearError:
            continue


def merge(chance: Chance, table: ChangedTable) -> Step:
    """MERGE INTO."""
    made = _merge(chance, table)
    if table.engine == "aggregation":
        return Step(made.sql, table.model, error=UnsupportedStatementError, told="can not support")
    refused = refusal_of_delete(table)
    if made.deletes and refused:
        return Step(made.sql, table.model, error=UnsupportedStatementError, told=refused)
    if moves(table, made.assigned):
        return Step(
            made.sql, table.model, error=UnsupportedStatementError, told="is a partition column"
        )
    after = table.model.copy()
    try:
        counts = after.merge(made.source, made.on, pair, made.clauses)
    except MatchedTwiceError:
        return Step(made.sql, table.model, error=InvalidValueError, told="more than once")
    return Step(made.sql, after, counts)


@dataclass(frozen=True)
class _Source:
    """The source: its text, rows, and columns; `is_whole` if it has all columns of the table."""

    sql: str
    rows: Sequence[Row]
    columns: Sequence[Column]
    is_whole: bool

    def scope(self, *, bare: bool) -> Scope:
        seen = []
        for column in self.columns:
            if column.kind != "struct":
                texts = (column.quoted,) if bare else ()
                of = _named(f"s.{column.name}")
                seen.append(Seen((*texts, f"s.{column.quoted}"), column.kind, of))
        return Scope(tuple(seen))


def _named(name: str) -> Callable[[Mapping[str, Any]], Any]:
    return lambda row: row[name]


def _merge(chance: Chance, table: ChangedTable) -> Merge:
    source = _source(chance, table)
    target_scope = table.scope("t", bare=False)
    on, by_keys = _on(chance, table, source, target_scope)
    takes_all = source.is_whole and by_keys and not table.tracks_rows
    both = Scope((*target_scope.columns, *source.scope(bare=False).columns))
    texts: list[str] = []
    clauses: list[Clause] = []
    assigned: set[str] = set()
    has_keys = all(any(c.name == key for c in source.columns) for key in table.keys)
    kinds = _kinds(chance, inserts=has_keys)
    for at, kind in enumerate(kinds):
        scope = {
            "MATCHED": both,
            "NOT MATCHED": source.scope(bare=True),
            "NOT MATCHED BY SOURCE": table.scope("t"),
        }[kind]
        is_last = kind not in kinds[at + 1 :]
        when = None if is_last and chance.random() < 0.5 else condition(chance, scope, 1)
        if kind == "NOT MATCHED":
            text, values = _insertion(chance, table, source, scope)
            names: set[str] = set()
        else:
            takes = takes_all and kind == "MATCHED"
            text, values, names = _change(chance, table, scope, takes_all=takes)
        assigned |= names
        word = kind
        if kind == "NOT MATCHED" and chance.random() < 0.2:
            word = "NOT MATCHED BY TARGET"
        texts.append(f"WHEN {word}{f' AND {when.sql}' if when else ''} THEN {text}")
        clauses.append(Clause(kind, when.of if when else _always, values))
    sql = f"MERGE INTO t AS t USING {source.sql} ON {on.sql} {' '.join(texts)}"
    return Merge(sql, source.rows, on.of, clauses, frozenset(assigned))


def _always(row: Mapping[str, Any]) -> bool:
    return True


def _kinds(chance: Chance, *, inserts: bool) -> list[str]:
    possible = ["MATCHED"] * 3 + ["NOT MATCHED BY SOURCE"] + ["NOT MATCHED"] * (3 if inserts else 0)
    return sorted(chance.sample(possible, chance.choice([1, 2, 2, 3])))


def _source(chance: Chance, table: ChangedTable) -> _Source:
    if chance.random() < 0.15:
        columns = [Column("x", "int", "INT"), Column("y", "string", "STRING")]
        return _Source("o AS s", OTHERS, columns, is_whole=False)
    is_whole = chance.random() < 0.5
    keys = [c for c in table.columns if c.name in (*table.keys, "k0", "p")]
    more = [Column("x", "int", "INT"), Column("y", "string", "STRING")]
    columns = list(table.columns) if is_whole else [*keys, *more]
    rows = []
    for _ in range(chance.choice([1, 4, 8])):
        whole = table.row(chance)
        rows.append({c.name: whole[c.name] if c.name in whole else table.value(chance, c)
                     for c in columns})  # fmt: skip
    if chance.random() < 0.85:
        names = table.keys or ("k0",)
        rows = list({tuple(row[name] for name in names): row for row in rows}.values())
    listed = ", ".join(
        f"({', '.join(table.text(c, row[c.name]) for c in columns)})" for row in rows
    )
    names_text = ", ".join(column.quoted for column in columns)
    sql = f"(SELECT * FROM VALUES {listed} AS v({names_text})) AS s"
    return _Source(sql, rows, columns, is_whole)


def _on(chance: Chance, table: ChangedTable, source: _Source, target: Scope) -> tuple[Term, bool]:
    """Mostly the keys, or another condition over both sides; and whether the keys are equal."""
    names = [each.name for each in source.columns]
    keys = [key for key in table.keys or ("k0",) if key in names]
    scope = source.scope(bare=False)
    if not keys or chance.random() < 0.15:
        ints = [each for each in target.of_kind("int") if "u" not in each.texts[-1]]
        right = scope.of_kind("int")
        if ints and right:
            a, b = chance.choice(ints), chance.choice(right)
            return _equal(a, b, "="), False
        return condition(chance, Scope((*target.columns, *scope.columns)), 1), False
    on: Term | None = None
    for key in keys:
        a = next(each for each in target.columns if each.texts[-1] == f"t.`{key}`")
        b = next(each for each in scope.columns if each.texts[-1] == f"s.`{key}`")
        one = _equal(a, b, "<=>" if key == "p" and not table.is_keyed else "=")
        on = one if on is None else _both(on, one)
    assert on is not None
    if chance.random() < 0.2:
        more = condition(chance, Scope((*target.columns, *scope.columns)), 1)
        on = _both(on, Term(f"({more.sql})", more.of))
    return on, keys == list(table.keys or ("k0",))


def _equal(a: Seen, b: Seen, operator: str) -> Term:
    sql = f"{a.texts[-1]} {operator} {b.texts[-1]}"
    return Term(sql, lambda row: compared(operator, a.of(row), b.of(row)))


def _both(a: Term, b: Term) -> Term:
    return Term(f"{a.sql} AND {b.sql}", lambda row: conjunction(a.of(row), b.of(row)))


def _change(
    chance: Chance, table: ChangedTable, scope: Scope, *, takes_all: bool
) -> tuple[str, Values | None, set[str]]:
    """The text of an action on rows of the table, the values that it gives, and the columns that
    it assigns."""
    if chance.random() < 0.35:
        return "DELETE", None, set()
    names = {each.name for each in table.columns}
    if takes_all and chance.random() < 0.4:
        return "UPDATE SET *", lambda row: {name: row[f"s.{name}"] for name in names}, names
    texts, values, assigned = assignments(chance, table, scope)
    return f"UPDATE SET {', '.join(texts)}", values, assigned


def _insertion(
    chance: Chance, table: ChangedTable, source: _Source, scope: Scope
) -> tuple[str, Values]:
    if source.is_whole and chance.random() < 0.5:
        names = [each.name for each in table.columns]
        return "INSERT *", lambda row: {name: row[f"s.{name}"] for name in names}
    given: dict[str, Term] = {}
    has = {each.name for each in source.columns}
    for column in table.columns:
        name = column.name
        if name in (*table.keys, "p") and name in has:
            given[name] = Term(f"s.{column.quoted}", _named(f"s.{name}"))
        elif name == "u" or name in table.model.groups:
            number = table.value(chance, column)
            given[name] = Term(str(number), lambda row, number=number: number)
        elif column.kind != "struct" and (name == "k0" or chance.random() < 0.7):
            of = value(chance, scope, column.kind)
            given[name] = small(of) if column.kind == "int" else of
    listed = ", ".join(table.column(name).quoted for name in given)
    texts = ", ".join(each.sql for each in given.values())
    defaults = {each.name: each.default for each in table.columns}
    return (
        f"INSERT ({listed}) VALUES ({texts})",
        lambda row: {**defaults, **{name: each.of(row) for name, each in given.items()}},
    )


def misuse(chance: Chance, table: ChangedTable) -> Step:
    """A statement that is wrong, or fails in the middle of its job; the table has rows."""
    name = next(c.quoted for c in table.columns if c.name not in (*table.keys, "u"))
    key = table.columns[0].quoted
    failing = "CAST(raise_error('never') AS INT) = 1"
    wrong = [
        "DELETE FROM t WHERE nope = 1",
        f"UPDATE t SET nope = 1 WHERE {key} IS NOT NULL",
        f"DELETE FROM t WHERE {failing}",
        f"UPDATE t SET {name} = NULL, {name} = NULL",
        f"UPDATE t SET {name} = NULL WHERE {failing}",
        f"MERGE INTO t USING o ON o.x > 0 WHEN MATCHED THEN UPDATE SET {name} = NULL",
        f"MERGE INTO t USING o ON {failing} WHEN NOT MATCHED BY SOURCE THEN DELETE",
        "MERGE INTO t USING o ON true WHEN NOT MATCHED THEN INSERT (nope) VALUES (1)",
    ]
    wrong += [f"UPDATE t SET {column} = NULL" for column in table.keys[:1]]
    return Step(chance.choice(wrong), table.model, error=PaimonMagicsError)
