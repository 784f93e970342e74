"""Reads a query inside a statement into a QueryText: its relations, bind parameters and extent.

Relations are found in sqlglot's tree, or by a scan of the tokens if sqlglot can't parse the query
or is known to misread it (TABLE as a query, `|>` pipes). A query that neither can read is a
StatementSyntaxError only if the scan is sure; otherwise Spark judges it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from paimon_magics.errors import StatementSyntaxError
from paimon_magics.statements.clauses.names import name_parts, try_table_name
from paimon_magics.statements.lexing.cursor import Cursor, RefusedHere
from paimon_magics.statements.lexing.tokens import (
    IDENTIFIER_KINDS,
    NOT_A_PATH,
    QUERY_WORDS,
    Token,
    tokenize,
    word_set,
)
from paimon_magics.statements.queries.qualifiers import references_of
from paimon_magics.statements.queries.references import (
    read_alias,
    read_relation,
    skip_clause,
)
from paimon_magics.statements.queries.scanning import scan_relations
from paimon_magics.statements.queries.tree import TreeRelation, masked, tree_relations
from paimon_magics.statements.statement import QueryText, TableName, TableReference, TextRange

_REFUSED_FUNCTIONS = frozenset(
    {
        *("vector_search", "hybrid_search", "full_text_search"),
        *("path_to_descriptor", "descriptor_to_string"),
        *("descriptor_to_presigned_url", "try_descriptor_to_presigned_url"),
    }
)
"""The functions of Paimon's `PaimonTableValuedFunctions` and `PaimonFunctions` that are not
offered: those that search, and those on BLOBs."""

_NAMES_RELATIONS = frozenset({"FROM", "JOIN", "TABLE"})
_BEHIND_VALUES = word_set(
    "UNION EXCEPT INTERSECT MINUS ORDER SORT CLUSTER DISTRIBUTE LIMIT OFFSET JOIN SELECT"
)


_INEXACT = re.compile(r"[\d.]+([eE][+-]?\d+)?[dDfF]|[\d.]+[eE][+-]?\d+")
_DOUBLE_DIGITS, _FLOAT_DIGITS = 15, 7
"""Digits of a number that every DOUBLE, every FLOAT holds."""


CHANGE_FUNCTIONS = {
    "paimon_incremental_query": ("incremental-between", 2),
    "paimon_incremental_between_timestamp": ("incremental-between-timestamp", 2),
    "paimon_incremental_to_auto_tag": ("incremental-to-auto-tag", 1),
}


def at_query(cursor: Cursor) -> bool:
    """Whether a query comes next, in brackets or not."""
    ahead = 0
    while cursor.peek(ahead).text == "(":
        ahead += 1
    return cursor.peek(ahead).upper in QUERY_WORDS


def read_query(
    cursor: Cursor, *, cuts: tuple[TextRange, ...] = (), target: int | None = None
) -> QueryText:
    """Read the query that extends from the cursor to its stop.

    `cuts` are ranges inside the query that do not belong to it; they are ignored. In a DELETE or
    UPDATE, which selects rows as a query does, `target` is the index of the token that begins the
    changed table's name. Raises
    StatementSyntaxError, or RefusedHere for a form that is not offered.
    """
    if cursor.at_end:
        cursor.fail("a query")
    start, end = cursor.position, cursor.tokens[cursor.stop - 1].end
    is_values = _is_values(cursor)
    parameters = bind_parameters(cursor, cuts)
    _refuse_functions(cursor)
    inner = _without(cursor, cuts)
    uses = _relations(inner, end, is_change=target is not None)
    if target is not None:
        uses.setdefault(target, TreeRelation(cursor.tokens[target].start))
    relations = [replace(read_relation(inner.at_index(i)), use=use) for i, use in uses.items()]
    references = references_of(relations, inner, _other_names(inner))
    references = tuple(
        sorted((*references, *_changes(inner)), key=lambda reference: reference.range.start)
    )
    cursor.index = cursor.stop
    return QueryText(
        TextRange(start, end),
        references,
        parameters,
        is_values and not references,
        cuts,
    )


def bind_parameters(cursor: Cursor, cuts: tuple[TextRange, ...] = ()) -> tuple[str, ...]:
    """Return the names of the `:name` markers from the cursor to its stop, in order of first use.

    Raises StatementSyntaxError at a `?` marker.
    """
    for token in cursor.tokens[cursor.index : cursor.stop]:
        if token.kind == "symbol" and token.text == "?":
            cursor.fail_at(
                token.start,
                "A positional parameter (`?`) is not offered: bind parameters have names.",
                "Write `:name` and give the value under that name.",
            )
    return tuple(dict.fromkeys(name for _, name in _markers(cursor)))


def parameter_ranges(text: str) -> tuple[tuple[TextRange, str], ...]:
    """The ranges of `:name` markers in a statement, and their names."""
    return tuple(_markers(Cursor(text, tokenize(text))))


def merging_places(text: str) -> tuple[int, ...]:
    """Return the positions of `:name` markers directly after a minus sign.

    Spark inserts values as text: with a negative value the two signs would begin a comment, and
    the rest of the line would be lost.
    """
    if "-:" not in text:
        return ()
    return tuple(
        place.start for place, _ in parameter_ranges(text) if text[: place.start].endswith("-")
    )


def with_markers_apart(text: str) -> str:
    """Return the text with a blank at each of the `merging_places`."""
    for place in reversed(merging_places(text)):
        text = f"{text[:place]} {text[place:]}"
    return text


def _markers(cursor: Cursor) -> Iterator[tuple[TextRange, str]]:
    for index in range(cursor.index, cursor.stop):
        token = cursor.tokens[index]
        if token.kind == "symbol" and token.text == ":" and _is_marker(cursor, index):
            name = cursor.tokens[index + 1]
            yield TextRange(token.start, name.end), name.name


def _is_marker(cursor: Cursor, index: int) -> bool:
    if index + 1 >= cursor.stop or cursor.tokens[index + 1].kind not in IDENTIFIER_KINDS:
        return False
    if index == 0:
        return True
    previous = cursor.tokens[index - 1]
    adjacent = previous.end == cursor.tokens[index].start
    if previous.kind in IDENTIFIER_KINDS and previous.upper not in NOT_A_PATH:
        # `v:field` is a path; `STRUCT<a : INT>` a type; `SELECT :a` and `LIMIT :n` are markers.
        return not adjacent and not _in_struct_type(cursor, index)
    return not (adjacent and (previous.text in (")", "]") or previous.kind == "quoted"))


def _in_struct_type(cursor: Cursor, index: int) -> bool:
    """Whether the token before `index` is the name of a field in STRUCT<…>."""
    before = cursor.tokens[index - 2] if index >= 2 else None
    if before is None or before.text not in ("<", ","):
        return False
    depth = 0
    for i in range(index - 2, 0, -1):
        text = cursor.tokens[i].text
        if text == ">":
            depth += 1
        elif text == "<":
            if depth == 0:
                return cursor.tokens[i - 1].upper == "STRUCT"
            depth -= 1
        elif text == ";":
            break
    return False


def _is_values(cursor: Cursor) -> bool:
    if not cursor.at("VALUES"):
        return False
    index = cursor.index
    while index < cursor.stop:
        if cursor.tokens[index].upper in _BEHIND_VALUES:
            return False
        index = cursor.brackets.get(index, index) + 1
    return True


def decimals_of_values(cursor: Cursor, stop: int) -> tuple[tuple[TextRange, str], ...]:
    """The DOUBLE and FLOAT literals of a VALUES list, which ends before token `stop`, that are read
    as DECIMALs: those in a column that also has a number of more digits than they hold. Spark gives
    each column one type, by which that number would change."""
    columns: dict[int, list[Token]] = {}
    index = cursor.index
    while index < stop:
        if cursor.tokens[index].text == "(":
            for column, token in _numbers(cursor, index):
                columns.setdefault(column, []).append(token)
        index = cursor.brackets.get(index, index) + 1
    decimals = []
    for numbers in columns.values():
        inexact = [token for token in numbers if _INEXACT.fullmatch(token.text)]
        has_float = any(token.text[-1] in "fF" for token in inexact)
        digits_max = _FLOAT_DIGITS if has_float else _DOUBLE_DIGITS
        if any(_digits(token.text) > digits_max for token in numbers if token not in inexact):
            decimals += inexact
    return tuple(
        (TextRange(token.start, token.end), f"{token.text.rstrip('dDfF')}BD") for token in decimals
    )


def _numbers(cursor: Cursor, index: int) -> Iterator[tuple[int, Token]]:
    """The values of the row in brackets from token `index` on that are a number, with or without a
    sign, and their columns."""
    column, begin, closing = 0, index + 1, cursor.brackets[index]
    index = begin
    while index <= closing:
        if index == closing or cursor.tokens[index].text == ",":
            token = cursor.tokens[index - 1]
            signs = cursor.tokens[begin : index - 1]
            if token.kind == "number" and all(sign.text in "+-" for sign in signs):
                yield column, token
            column, begin = column + 1, index + 1
        index = cursor.brackets.get(index, index) + 1


def _digits(number: str) -> int:
    """How many digits of a literal matter."""
    return len(re.sub(r"[eE].*|[^0-9]", "", number).strip("0"))


def _changes(cursor: Cursor) -> tuple[TableReference, ...]:
    """The tables that the query reads with functions for changes."""
    return tuple(
        change_reference(cursor.at_index(index))
        for index in range(cursor.index, cursor.stop - 1)
        if cursor.tokens[index].kind in IDENTIFIER_KINDS
        and cursor.tokens[index].name.lower() in CHANGE_FUNCTIONS
        and cursor.tokens[index + 1].text == "("
    )


def _refuse_functions(cursor: Cursor) -> None:
    for index in range(cursor.index, cursor.stop - 1):
        token = cursor.tokens[index]
        if cursor.tokens[index + 1].text != "(" or token.kind not in IDENTIFIER_KINDS:
            continue
        if token.name.lower() in _REFUSED_FUNCTIONS:
            raise RefusedHere(token.name.lower())
        previous = cursor.tokens[index - 1].upper if index else ""
        if token.upper == "IDENTIFIER" and previous in ("FROM", "JOIN", "TABLE", "INTO"):
            raise RefusedHere("IDENTIFIER(…) as a name")


def _relations(cursor: Cursor, end: int, *, is_change: bool) -> dict[int, TreeRelation]:
    """Map the token index of each relation to what sqlglot's tree says about its rows.

    The relations are found by a scan if the tree can't be trusted; nothing is known of their rows
    then. With `is_change` it is a DELETE or UPDATE, which names a table in any case.
    """
    tokens = cursor.tokens[cursor.index : cursor.stop]
    if not is_change and not any(t.upper in _NAMES_RELATIONS for t in tokens):
        return {}  # no tree for a long list of VALUES
    if not any(t.upper in ("TABLE", "|>") for t in tokens):
        start = tokens[0].start
        relations = tree_relations(_masked(cursor, start, end))
        if relations is not None:
            by_start = {t.start: i for i, t in enumerate(tokens, cursor.index)}
            by_index = {by_start.get(r.start + start, -1): r for r in relations}
            if -1 not in by_index:
                return by_index
    return {
        index: TreeRelation(tokens[index - cursor.index].start)
        for index in scan_relations(cursor.at_index(cursor.index))
    }


def _masked(cursor: Cursor, start: int, end: int) -> str:
    """The query's text for sqlglot, with clauses that it may not know and `$` in names masked."""
    blanks: list[TextRange] = []
    dollars: list[TextRange] = []
    probe = cursor.at_index(cursor.index)
    place = start
    while not probe.at_end:
        token = probe.peek()
        if token.start > place and token.start > start:
            blanks.append(TextRange(place - start, token.start - start))
        begins = probe.index
        if not skip_clause(probe):
            probe.next()
        if probe.index > begins + 1:
            blanks.append(TextRange(token.start - start, probe.last_end - start))
        elif token.kind == "word" and "$" in token.text:
            dollars.append(TextRange(token.start - start, token.end - start))
        place = probe.last_end
    return masked(cursor.text[start:end], blanks, dollars)


def _other_names(cursor: Cursor) -> frozenset[str]:
    """The lower-case names of subqueries and CTEs: after a bracket, or before `AS (`."""
    names = set()
    for index in range(cursor.index + 1, cursor.stop):
        token = cursor.tokens[index]
        if token.kind not in IDENTIFIER_KINDS:
            continue
        previous = cursor.tokens[index - 1]
        if previous.upper == "AS" and index >= 2:
            previous = cursor.tokens[index - 2]
        if (
            previous.text == ")"
            or previous.upper in ("WITH", "RECURSIVE")
            or (
                index + 2 < cursor.stop
                and cursor.tokens[index + 1].upper == "AS"
                and cursor.tokens[index + 2].text == "("
            )
        ):
            names.add(token.name.lower())
    return frozenset(names)


def _without(cursor: Cursor, cuts: tuple[TextRange, ...]) -> Cursor:
    """A cursor over the same text, without the tokens in the cuts."""
    if not cuts:
        return cursor.at_index(cursor.index)
    tokens = tuple(
        t
        for t in cursor.tokens[cursor.index : cursor.stop]
        if not any(c.start <= t.start < c.end for c in cuts)
    )
    return Cursor(cursor.text, tokens)


# Paimon's table functions that read changes, as references with read options.
#
# The functions are those of Paimon's `PaimonTableValuedFunctions`: `paimon_incremental_query('t',
# 2, 5)`, `paimon_incremental_between_timestamp('t', a, b)` and `paimon_incremental_to_auto_tag('t',
# 'tag')`. The first argument is a string with a table's name, in which `$` needs no back-quotes.
# Start and end may also be given in one string (`'2,5'`), as in Paimon's documentation. They may be
# constant expressions, which Spark evaluates.


def change_reference(cursor: Cursor) -> TableReference:
    """Read the function that comes next and its alias.

    Raises StatementSyntaxError for wrong arguments.
    """
    start = cursor.position
    function = cursor.next().name.lower()
    option, bounds = CHANGE_FUNCTIONS[function]
    end = cursor.closing()
    cursor.next()
    position = cursor.position
    name = _table(cursor.string("a table's name in quotes"), cursor.text, position)
    texts = []
    while cursor.accept(","):
        texts.append(_bound(cursor, end))
    if cursor.index != end or not 1 <= len(texts) <= bounds:
        expected = "a tag" if bounds == 1 else "the start (not included) and the end"
        cursor.fail_at(
            start,
            f"`{function}` takes a table's name and {expected}.",
            f"For example {_EXAMPLES[function]}.",
        )
    values = [_literal(text) for text in texts]
    cursor.index = end + 1
    after = cursor.last_end
    alias = read_alias(cursor)
    return TableReference(
        name=name,
        range=TextRange(start, after),
        has_alias=alias is not None,
        alias=alias or name.table,
        alias_position=after,
        options=((option, ",".join(value or "" for value in values)),),
        bounds=() if None not in values else tuple(texts),
    )


_EXAMPLES = {
    "paimon_incremental_query": "paimon_incremental_query('shop.orders', 2, 5)",
    "paimon_incremental_between_timestamp": "paimon_incremental_between_timestamp('shop.orders', "
    "'2026-01-31 00:00:00', '2026-02-01 00:00:00')",
    "paimon_incremental_to_auto_tag": "paimon_incremental_to_auto_tag('shop.orders', '2026-01-31')",
}


def _bound(cursor: Cursor, end: int) -> str:
    """The text of the argument that comes next; the function's bracket closes at token `end`."""
    start = cursor.position
    if cursor.index == end or cursor.at(","):
        cursor.fail("a snapshot, tag or time")
    while cursor.index < end and not cursor.at(","):
        if cursor.at("("):
            cursor.skip_brackets()
        else:
            cursor.next()
    return cursor.text[start : cursor.last_end]


def _literal(text: str) -> str | None:
    """The value of a literal; None for any other expression, which Spark evaluates."""
    inner = Cursor(text, tokenize(text))
    if inner.peek().kind == "string":
        value = inner.string("a snapshot, tag or time")
        return value if inner.at_end else None
    sign = "-" if inner.accept("-") else ""
    token = inner.peek()
    if token.kind != "number":
        return None
    inner.next()
    return sign + token.text.rstrip("lL") if inner.at_end else None


def _table(text: str, statement: str, position: int) -> TableName:
    inner = Cursor(text, tokenize(text))
    parts = name_parts(inner, "a table's name") if not inner.at_end else ()
    name = try_table_name(parts) if inner.at_end and parts else None
    if name is None:
        raise StatementSyntaxError(
            f"'{text}' can't name a Paimon table.",
            hint="Write 'table', 'database.table' or 'table$audit_log'.",
            statement=statement,
            position=position,
        )
    return name
