"""SQL expressions at random, each with a function that says what it gives.

The functions are the letter of SQL's three-valued logic: None is NULL, of a condition UNKNOWN.
Numbers stay small, so that nothing overflows.
"""

from __future__ import annotations

import datetime
import math
import operator
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

Chance = random.Random
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Term:
    """An expression: its text, and its value for a row of all names that are in sight."""

    sql: str
    of: Callable[[Row], Any]


@dataclass(frozen=True)
class Seen:
    """A column in sight: the texts that may name it, its kind, and where a row has its value."""

    texts: tuple[str, ...]
    kind: str
    of: Callable[[Row], Any]


@dataclass(frozen=True)
class Asked:
    """A table that a subquery may read: its name, rows, and columns by their kinds."""

    name: str
    rows: Sequence[Row]
    columns: Mapping[str, str]


@dataclass(frozen=True)
class Scope:
    """What an expression may name."""

    columns: tuple[Seen, ...]
    asked: tuple[Asked, ...] = ()

    def of_kind(self, kind: str) -> list[Seen]:
        return [column for column in self.columns if column.kind == kind]


KINDS = ("int", "string", "bool", "date", "double", "decimal")
"""The kinds of values; `int` is INT and BIGINT."""

VALUES: dict[str, Callable[[Chance], Any]] = {
    "int": lambda c: c.choice([0, 1, -1, c.randrange(-9, 10), c.randrange(-90, 91)]),
    "string": lambda c: c.choice(["", "a", "A", "b%", "ä", "\U0001f600", "it's", "a b", "\\"]),
    "bool": lambda c: c.random() < 0.5,
    "date": lambda c: datetime.date(2024, 2, 27) + datetime.timedelta(c.randrange(5)),
    "double": lambda c: c.choice([0.0, -0.0, 1.5, -2.5, math.nan, math.inf, -math.inf]),
    "decimal": lambda c: Decimal(c.choice([0, 150, -150, 1, 99999])).scaleb(-2),
}


def literal(kind: str, value: Any) -> str:
    """The text of a value. NULLs have a type, as values in VALUES lists need one."""
    if value is None:
        return f"CAST(NULL AS {SQL[kind]})"
    match kind:
        case "string":
            escaped = value.replace("\\", "\\\\").replace("'", "\\'")
            return f"'{escaped}'"
        case "bool":
            return "true" if value else "false"
        case "date":
            return f"DATE '{value.isoformat()}'"
        case "double":
            return f"CAST('{str(value).replace('inf', 'Infinity')}' AS DOUBLE)"
        case "decimal":
            return f"CAST('{value}' AS DECIMAL(9, 2))"
    return str(value)


SQL = {
    "int": "INT", "string": "STRING", "bool": "BOOLEAN", "date": "DATE", "double": "DOUBLE",
    "decimal": "DECIMAL(9, 2)",
}  # fmt: skip


def constant(kind: str, value: Any) -> Term:
    return Term(literal(kind, value), lambda row: value)


def value(chance: Chance, scope: Scope, kind: str, depth: int = 2) -> Term:
    """An expression that gives a value of the kind."""
    seen = scope.of_kind(kind)
    if depth <= 0 or chance.random() < 0.3:
        if seen and chance.random() < 0.75:
            column = chance.choice(seen)
            return Term(chance.choice(column.texts), column.of)
        return constant(kind, None if chance.random() < 0.15 else VALUES[kind](chance))

    def inner(of_kind: str = kind) -> Term:
        return value(chance, scope, of_kind, depth - 1)

    how = chance.random()
    if how < 0.2:
        a, b = inner(), inner()
        return Term(f"coalesce({a.sql}, {b.sql})", lambda row: _first(a.of(row), b.of, row))
    if how < 0.4:
        when, a, b = condition(chance, scope, depth - 1), inner(), inner()
        sql = f"CASE WHEN {when.sql} THEN {a.sql} ELSE {b.sql} END"
        return Term(sql, lambda row: a.of(row) if when.of(row) is True else b.of(row))
    if how < 0.5:
        a, b = inner(), inner()
        return Term(
            f"nullif({a.sql}, {b.sql})",
            lambda row: None if compared("=", a.of(row), b.of(row)) is True else a.of(row),
        )
    match kind:
        case "int":
            return _number(chance, inner)
        case "string":
            a = inner()
            if chance.random() < 0.5:
                return Term(f"upper({a.sql})", lambda row: _if_known(str.upper, a.of(row)))
            b = inner()
            sql = f"substring(concat({a.sql}, {b.sql}), 1, 6)"
            return Term(sql, lambda row: _if_known(lambda x, y: (x + y)[:6], a.of(row), b.of(row)))
        case "bool":
            told = condition(chance, scope, depth - 1)
            return Term(f"({told.sql})", told.of)
    return inner()


def _number(chance: Chance, inner: Callable[..., Term]) -> Term:
    a = inner()
    how = chance.choice(["+", "-", "negative", "abs", "%", "length"])
    match how:
        case "+" | "-":
            b = inner()
            signed = operator.add if how == "+" else operator.sub
            sql = f"({a.sql} {how} {b.sql})"
            return Term(sql, lambda row: _if_known(signed, a.of(row), b.of(row)))
        case "negative":
            return Term(f"(-({a.sql}))", lambda row: _if_known(operator.neg, a.of(row)))
        case "abs":
            return Term(f"abs({a.sql})", lambda row: _if_known(abs, a.of(row)))
        case "%":
            by = chance.choice([2, 3, -5])
            return Term(f"({a.sql} % {by})", lambda row: _if_known(_remainder(by), a.of(row)))
    text = inner("string")
    return Term(f"length({text.sql})", lambda row: _if_known(len, text.of(row)))


def _remainder(by: int) -> Callable[[int], int]:
    """The remainder of a division that rounds to zero."""
    return lambda number: int(math.fmod(number, by))


def condition(chance: Chance, scope: Scope, depth: int = 2) -> Term:
    """A condition without a subquery."""
    if depth > 0 and chance.random() < 0.45:
        a = condition(chance, scope, depth - 1)
        how = chance.choice(["AND", "OR", "NOT"])
        if how == "NOT":
            return Term(f"NOT ({a.sql})", lambda row: negated(a.of(row)))
        b = condition(chance, scope, depth - 1)
        both = conjunction if how == "AND" else disjunction
        return Term(f"({a.sql} {how} {b.sql})", lambda row: both(a.of(row), b.of(row)))
    return _simple(chance, scope, depth)


def _simple(chance: Chance, scope: Scope, depth: int) -> Term:
    kinds = [column.kind for column in scope.columns]
    kind = chance.choice(kinds) if kinds and chance.random() < 0.9 else chance.choice(KINDS)
    a = value(chance, scope, kind, depth - 1)
    how = chance.random()
    if how < 0.5:
        sign = chance.choice(["=", "<>", "<", "<=", ">", ">=", "<=>", "="])
        b = value(chance, scope, kind, depth - 1)
        return Term(f"{a.sql} {sign} {b.sql}", lambda row: compared(sign, a.of(row), b.of(row)))
    if how < 0.65:
        no = chance.random() < 0.5
        sql = f"({a.sql}) IS {'NOT ' if no else ''}NULL"
        return Term(sql, lambda row: (a.of(row) is None) is not no)
    if how < 0.8:
        found = [None if chance.random() < 0.1 else VALUES[kind](chance) for _ in range(3)]
        listed = ", ".join(literal(kind, each) for each in found)
        return _negated_at_random(
            chance, a.sql, f"IN ({listed})", lambda row: contained(a.of(row), found)
        )
    if how < 0.9 and kind not in ("bool",):
        low, high = (value(chance, scope, kind, depth - 2) for _ in range(2))
        return _negated_at_random(
            chance, a.sql, f"BETWEEN {low.sql} AND {high.sql}",
            lambda row: conjunction(
                compared(">=", a.of(row), low.of(row)), compared("<=", a.of(row), high.of(row))
            ),
        )  # fmt: skip
    if kind == "string":
        start = chance.choice(["a", "A", "", "b", "it"])
        return _negated_at_random(
            chance, a.sql, f"LIKE '{start}%'",
            lambda row: _if_known(lambda x: x.startswith(start), a.of(row)),
        )  # fmt: skip
    if kind == "bool":
        return a
    return Term(f"({a.sql}) IS NULL", lambda row: a.of(row) is None)


def _negated_at_random(
    chance: Chance, left: str, right: str, of: Callable[[Row], bool | None]
) -> Term:
    if chance.random() < 0.5:
        return Term(f"({left}) NOT {right}", lambda row: negated(of(row)))
    return Term(f"({left}) {right}", of)


def condition_with_subqueries(chance: Chance, scope: Scope) -> Term:
    """A condition, in which subqueries may stand where Spark takes them."""
    plain = condition(chance, scope)
    if not scope.asked or chance.random() < 0.6:
        return plain
    asks = _subquery(chance, scope, chance.choice(scope.asked))
    match chance.choice(["alone", "AND", "OR", "NOT"]):
        case "AND":
            return Term(
                f"({plain.sql}) AND {asks.sql}",
                lambda row: conjunction(plain.of(row), asks.of(row)),
            )
        case "OR":
            return Term(
                f"({plain.sql}) OR {asks.sql}", lambda row: disjunction(plain.of(row), asks.of(row))
            )
        case "NOT":
            return Term(f"NOT ({asks.sql})", lambda row: negated(asks.of(row)))
    return asks


def _subquery(chance: Chance, scope: Scope, asked: Asked) -> Term:
    name, kind = chance.choice([*asked.columns.items()])
    where = condition(chance, _inside(asked), 1)
    rows = [row for row in asked.rows if where.of(row) is True]
    found = [row[name] for row in rows]
    outer = scope.of_kind(kind)
    a = value(chance, scope, kind, 1)
    match chance.choice(["IN", "IN", "EXISTS", "scalar"]):
        case "EXISTS" if outer:
            column = chance.choice(outer)
            text = column.texts[-1]
            sql = (
                f"EXISTS (SELECT 1 FROM {asked.name} AS i WHERE i.{name} = {text} "
                f"AND ({where.sql}))"
            )
            return Term(
                sql, lambda row: any(compared("=", each, column.of(row)) is True for each in found)
            )
        case "scalar" if kind in ("int", "date"):
            best = max((each for each in found if each is not None), default=None)
            sql = f"{a.sql} < (SELECT max({name}) FROM {asked.name} AS i WHERE {where.sql})"
            return Term(sql, lambda row: compared("<", a.of(row), best))
    return _negated_at_random(
        chance, a.sql, f"IN (SELECT {name} FROM {asked.name} AS i WHERE {where.sql})",
        lambda row: contained(a.of(row), found),
    )  # fmt: skip


def _inside(asked: Asked) -> Scope:
    return Scope(
        tuple(
            Seen((f"i.{name}",), kind, lambda row, name=name: row[name])
            for name, kind in asked.columns.items()
        )
    )


def conjunction(a: bool | None, b: bool | None) -> bool | None:
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


def disjunction(a: bool | None, b: bool | None) -> bool | None:
    return negated(conjunction(negated(a), negated(b)))


def negated(a: bool | None) -> bool | None:
    return None if a is None else not a


def contained(a: Any, found: Sequence[Any]) -> bool | None:
    told = [compared("=", a, each) for each in found]
    if True in told:
        return True
    return None if None in told else False


def compared(sign: str, a: Any, b: Any) -> bool | None:
    """What a comparison gives. NaN equals NaN and is above all numbers, as in Spark."""
    if sign == "<=>":
        return (a is None and b is None) or compared("=", a, b) is True
    if a is None or b is None:
        return None
    left, right = _ordered(a), _ordered(b)
    match sign:
        case "=":
            return bool(left == right)
        case "<>":
            return bool(left != right)
        case "<":
            return bool(left < right)
        case "<=":
            return bool(left <= right)
        case ">":
            return bool(left > right)
    return bool(left >= right)


def _ordered(a: Any) -> Any:
    if isinstance(a, float):
        return (True, 0.0) if math.isnan(a) else (False, a)
    return a.encode() if isinstance(a, str) else a


def _first(a: Any, otherwise: Callable[[Row], Any], row: Row) -> Any:
    return otherwise(row) if a is None else a


def _if_known(function: Callable[..., Any], *values: Any) -> Any:
    return None if None in values else function(*values)
