"""Replaces ranges of the user's text, and maps positions back to it.

SQL is never generated from a tree: Spark runs the user's own text, in which a view's name replaces
a table's, and the relation's alias replaces qualifiers of columns that name the database.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paimon_magics.statements.clauses.names import quoted, text_literal
from paimon_magics.statements.lexing.tokens import (
    CLOSING,
    IDENTIFIER_KINDS,
    NOT_A_PATH,
    OPENING,
    STATEMENT_WORDS,
    Token,
    tokenize,
    word_set,
)
from paimon_magics.statements.statement import QueryText, TableReference, TextRange

Replacement = tuple[TextRange, str]


_DATABASE = frozenset({"CURRENT_DATABASE", "CURRENT_SCHEMA", "DATABASE", "SCHEMA"})
_CATALOG = frozenset({"CURRENT_CATALOG"})
# Searched first: most queries have none of these names, and need not be split into tokens.
_CALL = re.compile("|".join(sorted(_DATABASE | _CATALOG)), re.IGNORECASE)
_BEFORE_ITEM = frozenset({"SELECT", "DISTINCT", "ALL", ","})
_BEHIND_ITEM = frozenset({",", "FROM", "WHERE", "LIMIT", "UNION", "EXCEPT", "INTERSECT", "ORDER"})


ROW_ID_COLUMNS = ("_ROW_ID", "_SEQUENCE_NUMBER")
FILE_PATH, ROW_INDEX, PARTITION, BUCKET = METADATA_COLUMNS = (
    "__paimon_file_path",
    "__paimon_row_index",
    "__paimon_partition",
    "__paimon_bucket",
)

_HIDDEN = {name.lower(): name for name in (*ROW_ID_COLUMNS, *METADATA_COLUMNS)}


@dataclass(frozen=True, slots=True)
class RewrittenText:
    """A text that consists of pieces of the user's text and of replacements.

    `_pieces` are (start in this text, start in the user's text, is a replacement), in order.
    """

    text: str
    _pieces: tuple[tuple[int, int, bool], ...]

    def original_position(self, position: int) -> int:
        """Return the position in the user's text for a position in the rewritten text.

        A position inside a replacement gives the beginning of the replaced range.
        """
        index = bisect_right(self._pieces, position, key=lambda piece: piece[0]) - 1
        start, original, is_replacement = self._pieces[max(index, 0)]
        return original if is_replacement else original + max(position - start, 0)


def query_tokens(statement: str, query: QueryText) -> list[Token]:
    """The tokens of a query inside a statement."""
    place = query.range
    return [token for token in tokenize(statement) if place.start <= token.start < place.end]


def rewrite(text: str, range: TextRange, replacements: Sequence[Replacement]) -> RewrittenText:
    """Return the text in `range` with the replacements applied.

    Replacements may come in any order; they must lie in `range` and not overlap. An empty range
    inserts; insertions at one place keep their order. Raises ValueError otherwise, which is an
    error of the caller, never of the user.
    """
    result: list[str] = []
    pieces: list[tuple[int, int, bool]] = []
    length = 0
    place = range.start

    def add(piece: str, original: int, is_replacement: bool) -> None:
        nonlocal length
        if piece:
            pieces.append((length, original, is_replacement))
            result.append(piece)
            length += len(piece)

    for target, new in sorted(replacements, key=lambda r: (r[0].start, r[0].end)):
        if not place <= target.start <= target.end <= range.end:
            raise ValueError(f"{target} overlaps another replacement or lies outside {range}")
        add(text[place : target.start], place, False)
        add(new, target.start, True)
        place = target.end
    add(text[place : range.end], place, False)
    pieces.append((length, range.end, True))
    return RewrittenText("".join(result), tuple(pieces))


def joined_text(parts: Sequence[str | RewrittenText]) -> RewrittenText:
    """Return one text of the parts. A part that is a plain text was not written by the user: a
    position in it gives the beginning of the user's text after it, or the end of the last one."""
    result: list[str] = []
    pieces: list[tuple[int, int, bool]] = []
    length = waiting = 0
    for part in parts:
        if isinstance(part, str):
            pieces.append((length, -1, True))
            waiting += 1
        else:
            first = part._pieces[0][1]
            for index in range(len(pieces) - waiting, len(pieces)):
                pieces[index] = (pieces[index][0], first, True)
            waiting = 0
            pieces += [(length + start, at, is_new) for start, at, is_new in part._pieces[:-1]]
        text = part if isinstance(part, str) else part.text
        result.append(text)
        length += len(text)
    last = next((p._pieces[-1][1] for p in reversed(parts) if isinstance(p, RewrittenText)), 0)
    for index in range(len(pieces) - waiting, len(pieces)):
        pieces[index] = (pieces[index][0], last, True)
    pieces.append((length, last, True))
    return RewrittenText("".join(result), tuple(pieces))


def replacements_for(reference: TableReference, view_name: str) -> tuple[Replacement, ...]:
    """Return the replacements by which a query reads the view (named without quotes) instead."""
    return replacements_by(reference, quoted(view_name))


def replacements_by(reference: TableReference, view: str) -> tuple[Replacement, ...]:
    """Return the replacements by which a query reads a relation, given as SQL, instead."""
    alias = quoted(reference.alias)
    replacements: list[Replacement] = []
    if reference.has_alias or reference.alias_position < 0:
        replacements.append((reference.range, view))
    elif reference.alias_position == reference.range.end:
        replacements.append((reference.range, f"{view} AS {alias}"))
    else:
        place = TextRange(reference.alias_position, reference.alias_position)
        replacements += [(reference.range, view), (place, f" AS {alias}")]
    replacements += [(q, alias) for q in reference.qualifiers]
    return tuple(replacements)


def cuts_of(query: QueryText) -> tuple[Replacement, ...]:
    """Return the replacements that make a query's text a query of its own.

    Ranges that do not belong to it are removed. DEFAULT, which Spark only reads in an INSERT,
    becomes NULL, which Paimon replaces by the column's default.
    """
    defaults = ((word, "NULL") for word in query.defaults)
    return (*((cut, "") for cut in query.cuts), *defaults, *query.decimals)


# `current_database()` and its like in a query: they return the session's names, not Spark's own.
#
# Spark evaluates them by its own catalog, which USE does not change here.


def current_names(
    statement: str, query: QueryText, catalog: str, database: str
) -> tuple[Replacement, ...]:
    """The replacements by which calls of `current_database`, `current_schema`, `database`, `schema`
    and `current_catalog` become texts. A call that is a whole column of a SELECT keeps its name."""
    if not _CALL.search(statement):
        return ()
    tokens = query_tokens(statement, query)
    replacements = []
    for at, token in enumerate(tokens[:-2]):
        name = token.upper if token.kind == "word" else ""
        is_call = tokens[at + 1].text == "(" and tokens[at + 2].text == ")"
        is_member = at > 0 and tokens[at - 1].text == "."
        if not is_call or is_member or name not in _DATABASE | _CATALOG:
            continue
        text = text_literal(database if name in _DATABASE else catalog)
        if _is_column(tokens, at):
            text += f" AS {quoted(f'{token.text}()')}"
        replacements.append((TextRange(token.start, tokens[at + 2].end), text))
    return tuple(replacements)


def _is_column(tokens: Sequence[Token], at: int) -> bool:
    """Whether the call at `at` is a column of a SELECT, without an alias."""
    behind = tokens[at + 3].upper or tokens[at + 3].text if at + 3 < len(tokens) else ";"
    ends = behind in _BEHIND_ITEM or behind in CLOSING or behind == ";"
    before = tokens[at - 1].upper or tokens[at - 1].text if at else ""
    return ends and before in _BEFORE_ITEM and _clause_of(tokens, at) == "SELECT"


def _clause_of(tokens: Sequence[Token], at: int) -> str:
    """The word that begins the clause of a token: SELECT, FROM, …; "" in brackets of a call."""
    depth = 0
    for token in reversed(tokens[:at]):
        if token.text in CLOSING:
            depth += 1
        elif token.text in OPENING:
            if not depth:
                return ""
            depth -= 1
        elif not depth and token.upper in ("SELECT", "FROM", "WHERE", "BY", "HAVING", "ON"):
            return token.upper
    return ""


# `sys.max_pt('t')`: the greatest value of a table's first partition column, as text. A statement
# that has it is read again with the text in its place, so that no other files are planned.


@dataclass(frozen=True, slots=True)
class NewestPartition:
    """A call of `max_pt` in a statement, and its argument; None for one that is no text."""

    range: TextRange
    table: str | None


def newest_partitions(text: str) -> tuple[NewestPartition, ...]:
    """The calls of `max_pt`, `sys.max_pt` and `CATALOG.sys.max_pt` in a statement."""
    if "max_pt" not in text.lower():
        return ()
    tokens = tokenize(text)
    calls = []
    for at, token in enumerate(tokens[:-1]):
        if token.kind != "word" or token.upper != "MAX_PT" or tokens[at + 1].text != "(":
            continue
        first = at
        while first >= 2 and tokens[first - 1].text == ".":
            first -= 2
        qualifiers = [each.name.lower() for each in tokens[first:at:2]]
        end = next((i for i in range(at + 2, len(tokens)) if tokens[i].text == ")"), None)
        if end is None or qualifiers[-1:] not in ([], ["sys"]):
            continue
        argument = tokens[at + 2] if end == at + 3 and tokens[at + 2].kind == "string" else None
        place = TextRange(tokens[first].start, tokens[end].end)
        calls.append(NewestPartition(place, None if argument is None else argument.value))
    return tuple(calls)


# Calls of functions that the catalog may keep: `f(`, `db.f(`, `catalog.db.f(`.

_BEFORE_CALL = word_set(
    "SELECT DISTINCT ALL WHERE AND OR NOT ON HAVING BY WHEN THEN ELSE CASE BETWEEN IN LIKE ILIKE "
    "RLIKE REGEXP RETURN LIMIT OFFSET DIV QUALIFY FROM ESCAPE DEFAULT"
)
_NO_CALL = NOT_A_PATH | STATEMENT_WORDS | _BEFORE_CALL


# A name before a bracket, with the word or dot before it. Searched first: VALUES can be long.
_NAME_CALLED = re.compile(r"(?:(\w++|\.)\s++)?(?<![\w.])([\w.]++)\s*+\(")
_BETWEEN = re.compile(r"--|/\*|`")


def called_names(
    text: str, ignored: frozenset[str] = frozenset()
) -> tuple[tuple[tuple[str, ...], TextRange], ...]:
    """The names before brackets where an expression may stand: their parts, and their ranges;
    without the names of one part that are `ignored`, in capitals. The name of a function of the
    catalog may be in one pair of back-quotes, as Spark shows it."""
    no_calls = _NO_CALL | ignored
    if not _may_have_calls(text, no_calls):
        return ()
    tokens = tokenize(text)
    calls = []
    for at, token in enumerate(tokens[:-1]):
        if token.kind not in IDENTIFIER_KINDS or tokens[at + 1].text != "(":
            continue
        first = at
        while first >= 2 and tokens[first - 1].text == ".":
            first -= 2
        parts = tuple(each.name for each in tokens[first : at + 1 : 2])
        is_word = first == at and token.kind == "word" and token.upper in no_calls
        if is_word or not _may_call(tokens, first) or _is_expression_name(tokens, at + 1):
            continue
        if len(parts) == 1 and token.kind == "quoted":
            parts = tuple(parts[0].split("."))
        calls.append((parts, TextRange(tokens[first].start, token.end)))
    return tuple(calls)


def _may_have_calls(text: str, no_calls: frozenset[str]) -> bool:
    """Whether a quick look at a text, which takes its strings for names, leaves it open whether it
    calls a function. It can't tell which words comments and quotes are about."""
    if _BETWEEN.search(text):
        return "(" in text
    return any(
        "." in (before, name[0])
        or (name.upper() not in no_calls and (before is None or before.upper() in _BEFORE_CALL))
        for before, name in (match.groups() for match in _NAME_CALLED.finditer(text))
    )


def _may_call(tokens: Sequence[Token], first: int) -> bool:
    """Whether an expression may begin at a token."""
    if not first:
        return True
    before = tokens[first - 1]
    if before.kind in IDENTIFIER_KINDS:
        return before.kind == "word" and before.upper in _BEFORE_CALL
    return before.kind not in ("string", "number") and before.text not in (")", "]", ".", "::")


def _is_expression_name(tokens: Sequence[Token], opening: int) -> bool:
    """Whether the brackets list the columns of a common table expression: `AS (` is behind them."""
    depth = 0
    for at in range(opening, len(tokens)):
        depth += (tokens[at].text in CLOSING.values()) - (tokens[at].text in CLOSING)
        if not depth:
            return [each.upper or each.text for each in tokens[at + 1 : at + 3]] == ["AS", "("]
    return False


# Columns that a table has but `*` does not show: the ids and sequence numbers of its rows, and
# where each row is stored.
#
# Spark's own hidden columns do not survive a view, so that the view of such a table has them as
# columns, and `*` leaves them out. Source: `BaseScan`, `SparkTable.metadataColumns` of
# Paimon's Spark connector.

_SHOWING_ALL = frozenset({"NATURAL", "PIVOT", "UNPIVOT", "TABLE"})


def hidden_columns_named(text: str) -> frozenset[str]:
    """The hidden columns that a text may name."""
    lowered = text.lower()
    return frozenset(name for lower, name in _HIDDEN.items() if lower in lowered)


def hidden_columns_of(statement: str, reference: TableReference) -> frozenset[str]:
    """The hidden columns that a statement may name of a table: by its alias, or in the SELECT that
    reads it."""
    if not hidden_columns_named(statement):
        return frozenset()
    tokens = tokenize(statement)
    select = _select_of(tokens, reference.range.start)
    named = set()
    for at, token in enumerate(tokens):
        if token.kind in IDENTIFIER_KINDS:
            column = _HIDDEN.get(token.name.lower())
        else:  # IDENTIFIER('t.…')
            column = _HIDDEN.get((token.value or "").rpartition(".")[2].strip("`").lower())
        if column is None:
            continue
        if at and tokens[at - 1].text == ".":
            is_own = tokens[at - 2].name.lower() == reference.alias.lower()
        else:
            is_own = select is None or _select_of(tokens, token.start) == select
        if is_own or token.kind not in IDENTIFIER_KINDS:
            named.add(column)
    return frozenset(named)


def all_columns_word(statement: str, query: QueryText) -> str | None:
    """The first word of a query that uses all columns of a table without a star, hidden ones among
    them; None without one."""
    tokens = query_tokens(statement, query)
    if tokens and tokens[0].upper == "FROM" and all(t.upper != "SELECT" for t in tokens):
        return "FROM"
    for token in tokens:
        if token.text == "|>" or (token.kind == "word" and token.upper in _SHOWING_ALL):
            return token.text
    return None


def stars_without_hidden(
    statement: str,
    query: QueryText,
    references: Sequence[tuple[TableReference, Sequence[str]]],
) -> tuple[Replacement, ...]:
    """The replacements by which `*` and `t.*` leave the hidden columns of `references` out. Only
    stars of the SELECT that reads a table show its columns."""
    tokens = query_tokens(statement, query)
    hidden: dict[int, list[str]] = {}
    for reference, columns in references:
        select = _select_of(tokens, reference.range.start)
        for star in _stars(tokens, select) if select is not None else ():
            owner = tokens[star - 2] if tokens[star - 1].text == "." else None
            if owner is None or owner.name.lower() == reference.alias.lower():
                alias = quoted(reference.alias)
                hidden.setdefault(star, []).extend(f"{alias}.{column}" for column in columns)
    return tuple(_exception(tokens, star, names) for star, names in hidden.items())


def _exception(tokens: Sequence[Token], star: int, names: Sequence[str]) -> Replacement:
    """Add the names to what a star leaves out."""
    listed = ", ".join(names)
    behind = tokens[star + 1 : star + 3]
    if [token.upper for token in behind] == ["EXCEPT", "("]:
        place = behind[1].end
        return TextRange(place, place), f"{listed}, "
    place = tokens[star].end
    return TextRange(place, place), f" EXCEPT ({listed})"


def _select_of(tokens: Sequence[Token], position: int) -> int | None:
    """The index of the innermost SELECT that a position in the text belongs to."""
    depth = 0
    for index in range(len(tokens) - 1, -1, -1):
        token = tokens[index]
        if token.start >= position:
            continue
        if token.text in CLOSING:
            depth += 1
        elif token.text in CLOSING.values():
            depth = max(depth - 1, 0)
        elif not depth and token.kind == "word" and token.upper == "SELECT":
            return index
    return None


def _stars(tokens: Sequence[Token], select: int) -> Iterator[int]:
    """The indexes of the stars among the columns of a SELECT, also in calls: `struct(*)`."""
    depth, below = 0, None
    for index in range(select + 1, len(tokens)):
        token = tokens[index]
        if token.text in CLOSING.values():
            depth += 1
        elif token.text in CLOSING:
            depth -= 1
            below = below if below is not None and depth >= below else None
        elif token.kind == "word" and token.upper == "SELECT" and depth and below is None:
            below = depth
        elif not depth and token.kind == "word" and token.upper == "FROM":
            return
        elif below is None and token.text == "*" and _is_all(tokens, index):
            yield index


def _is_all(tokens: Sequence[Token], index: int) -> bool:
    """Whether a star means all columns: `SELECT *`, `, *`, `struct(*)` or `t.*`; not a product, and
    not `count(*)`."""
    before = tokens[index - 1]
    if before.text == ".":
        return tokens[index - 2].kind in IDENTIFIER_KINDS
    if before.text == "(":
        return tokens[index - 2].kind == "word" and tokens[index - 2].upper != "COUNT"
    return before.text == "," or before.upper in ("SELECT", "DISTINCT", "ALL")
