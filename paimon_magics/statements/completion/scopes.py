"""The relations in scope at a place in an unfinished query, and their columns.

Works on tokens alone and never raises: open brackets, half-written clauses and unknown words are
normal in a text that is being written. What it does not understand is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from paimon_magics.statements.clauses.names import table_name_of
from paimon_magics.statements.lexing.tokens import (
    CLAUSE_WORDS,
    CLOSING,
    IDENTIFIER_KINDS,
    OPENING,
    QUERY_WORDS,
    Token,
    word_set,
)
from paimon_magics.statements.statement import TableName

_SET_WORDS = word_set("UNION EXCEPT INTERSECT MINUS SETMINUS")
_ENDS_LIST = word_set("FROM WHERE GROUP HAVING ORDER SORT CLUSTER DISTRIBUTE LIMIT WINDOW QUALIFY")
_NO_ALIAS = CLAUSE_WORDS | word_set("VERSION TIMESTAMP SYSTEM_VERSION SYSTEM_TIME FOR PARTITION BY")


@dataclass(frozen=True, slots=True)
class Group:
    """The content of a pair of brackets; `opening` is the index of the opening one, -1 for the
    whole statement."""

    items: tuple[Item, ...]
    opening: int = -1


Item = Token | Group


@dataclass(frozen=True, slots=True)
class Seen:
    """A relation in scope. `name` is the table's; it is None for a subquery or common table
    expression, whose columns are `columns` and all columns of the relations in `stars`."""

    alias: str
    name: TableName | None = None
    columns: tuple[str, ...] = ()
    stars: tuple[Seen, ...] = ()


def grouped(tokens: Sequence[Token]) -> Group:
    """Return the tokens as a tree of brackets. Open brackets are closed at the end, and a closing
    bracket without a counterpart is left out."""
    stack: list[tuple[int, str, list[Item]]] = [(-1, "", [])]
    for index, token in enumerate(tokens):
        if token.kind == "symbol" and token.text in OPENING:
            stack.append((index, token.text, []))
        elif token.kind == "symbol" and token.text in CLOSING:
            if len(stack) > 1 and stack[-1][1] == CLOSING[token.text]:
                opening, _, items = stack.pop()
                stack[-1][2].append(Group(tuple(items), opening))
        else:
            stack[-1][2].append(token)
    while len(stack) > 1:
        opening, _, items = stack.pop()
        stack[-1][2].append(Group(tuple(items), opening))
    return Group(tuple(stack[0][2]))


def segment_at(items: Sequence[Item], index: int) -> tuple[Item, ...]:
    """The operand of a set operation (`… UNION …`) that contains the item at `index`."""
    starts = [i + 1 for i, item in enumerate(items) if _is(item, _SET_WORDS)]
    first = max((start for start in starts if start <= index), default=0)
    last = min((start - 1 for start in starts if start > index), default=len(items))
    return tuple(items[first:last])


def relations_of(items: Sequence[Item], outer: Sequence[Seen] = ()) -> tuple[Seen, ...]:
    """The relations of FROM, JOIN, INSERT INTO and similar clauses at one level of brackets, in the
    order written. `outer` are common table expressions of the levels around it."""
    common = {seen.alias.lower(): seen for seen in outer}
    common |= {seen.alias.lower(): seen for seen in common_tables(items)}
    found: list[Seen] = []
    in_list = False
    index = 0
    while index < len(items):
        item = items[index]
        index += 1
        is_source = _is(item, {"USING"}) and not _is_column_list(items[index : index + 1])
        if (
            is_source
            or _is(item, {"FROM", "JOIN", "INTO", "UPDATE", "OVERWRITE", "TABLE"})
            or (in_list and _text(item) == ",")
        ):
            while index < len(items) and _is(items[index], {"TABLE", "LATERAL", "INTO"}):
                index += 1
            seen, index = _relation(items, index, common)
            in_list = _is(item, {"FROM"}) or _text(item) == ","
            if seen is not None:
                found.append(seen)
        elif _is(item, _ENDS_LIST | {"SELECT", "VALUES", "SET"}):
            in_list = False
    return tuple(found)


def _is_column_list(items: Sequence[Item]) -> bool:
    """Whether JOIN … USING goes on so, and not MERGE INTO … USING."""
    return any(isinstance(item, Group) and not _is_query(item) for item in items)


def common_tables(items: Sequence[Item]) -> tuple[Seen, ...]:
    """The common table expressions of the first WITH among these items."""
    found: list[Seen] = []
    index = next((i + 1 for i, item in enumerate(items) if _is(item, {"WITH"})), None)
    if index is None:
        return ()
    if index < len(items) and _is(items[index], {"RECURSIVE"}):
        index += 1
    while index < len(items):
        name = items[index]
        if not isinstance(name, Token) or name.kind not in IDENTIFIER_KINDS:
            break
        index += 1
        columns: tuple[str, ...] = ()
        if index < len(items) and isinstance(items[index], Group) and not _is_query(items[index]):
            columns = tuple(_names(items[index]))
            index += 1
        if index < len(items) and _is(items[index], {"AS"}):
            index += 1
        if index >= len(items) or not isinstance(items[index], Group):
            break
        seen = _derived(items[index], name.name, {one.alias.lower(): one for one in found})
        found.append(replace(seen, columns=columns, stars=()) if columns else seen)
        index += 1
        if index >= len(items) or _text(items[index]) != ",":
            break
        index += 1
    return tuple(found)


def _relation(
    items: Sequence[Item], index: int, common: dict[str, Seen]
) -> tuple[Seen | None, int]:
    """The relation that begins at `index`, and the index behind it."""
    if index >= len(items):
        return None, index
    item = items[index]
    if isinstance(item, Group):
        index += 1
        index, alias = _alias(items, index)
        if not _is_query(item):
            inner = relations_of((_FROM, *item.items), tuple(common.values()))
            return (inner[0] if inner else None), index
        return _derived(item, alias, common), index
    if item.kind not in IDENTIFIER_KINDS or item.upper in CLAUSE_WORDS:
        return None, index
    parts = [item.name]
    index += 1
    while index + 1 < len(items) and _text(items[index]) == ".":
        part = items[index + 1]
        if not isinstance(part, Token) or part.kind not in IDENTIFIER_KINDS:
            index += 1
            break
        parts.append(part.name)
        index += 2
    if index < len(items) and _is(items[index], {"VERSION", "TIMESTAMP", "FOR"}):
        while index < len(items) and not _is(items[index], {"OF"}):
            index += 1
        index += 2  # OF and its operand
    index, alias = _alias(items, index)
    if len(parts) == 1 and parts[0].lower() in common:
        seen = common[parts[0].lower()]
        return replace(seen, alias=alias or seen.alias), index
    name = table_name_of(parts)
    return (Seen(alias or parts[-1], name) if name is not None else None), index


def _alias(items: Sequence[Item], index: int) -> tuple[int, str]:
    if index < len(items) and _is(items[index], {"AS"}):
        index += 1
    item = items[index] if index < len(items) else None
    if isinstance(item, Token) and item.kind in IDENTIFIER_KINDS and item.upper not in _NO_ALIAS:
        return index + 1, item.name
    return index, ""


def _derived(group: Item, alias: str, common: dict[str, Seen]) -> Seen:
    """A subquery as a relation, with the names of its SELECT list."""
    assert isinstance(group, Group)
    items = segment_at(group.items, 0)
    start = next((i + 1 for i, item in enumerate(items) if _is(item, {"SELECT"})), len(items))
    relations = relations_of(items, tuple(common.values()))
    columns: list[str] = []
    stars: list[Seen] = []
    for expression in _expressions(items[start:]):
        last = expression[-1]
        if _text(last) == "*":
            qualifier = expression[0] if len(expression) > 1 else None
            named = qualifier.name.lower() if isinstance(qualifier, Token) else None
            stars += [r for r in relations if named is None or r.alias.lower() == named]
        elif isinstance(last, Token) and last.kind in IDENTIFIER_KINDS and last.upper != "END":
            columns.append(last.name)
    return Seen(alias, None, tuple(dict.fromkeys(columns)), tuple(stars))


def _expressions(items: Sequence[Item]) -> Iterator[list[Item]]:
    """The expressions of a SELECT list, which begins with the first item."""
    current: list[Item] = []
    for item in items:
        if _is(item, _ENDS_LIST):
            break
        if _text(item) == ",":
            if current:
                yield current
            current = []
        elif not (not current and _is(item, {"DISTINCT", "ALL"})):
            current.append(item)
    if current:
        yield current


def _names(item: Item) -> Iterator[str]:
    assert isinstance(item, Group)
    for inner in item.items:
        if isinstance(inner, Token) and inner.kind in IDENTIFIER_KINDS:
            yield inner.name


def _is_query(item: Item) -> bool:
    return isinstance(item, Group) and bool(item.items) and _is(item.items[0], QUERY_WORDS)


def _is(item: Item, words: frozenset[str] | set[str]) -> bool:
    return isinstance(item, Token) and item.kind == "word" and item.upper in words


def _text(item: Item) -> str:
    return item.text if isinstance(item, Token) else ""


_FROM = Token("word", "FROM", 0, 0, "FROM")
