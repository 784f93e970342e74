"""Statements that Spark runs as they are, and the names in them that could be tables."""

from __future__ import annotations

import itertools

from paimon_magics.errors import StatementSyntaxError
from paimon_magics.statements.clauses.names import try_table_name
from paimon_magics.statements.clauses.properties import read_properties
from paimon_magics.statements.lexing.cursor import Cursor
from paimon_magics.statements.lexing.tokens import (
    CLAUSE_WORDS,
    IDENTIFIER_KINDS,
    NAME_BEFORE,
    STATEMENT_WORDS,
    Token,
    tokenize,
    word_set,
)
from paimon_magics.statements.statement import PassThrough, TableName

_NAME_NO_TABLE = word_set("SET RESET ADD LIST DFS DECLARE BEGIN CLEAR")
"""First words of statements on settings, files or variables, which never name tables."""

_NO_NAMES = (
    CLAUSE_WORDS
    | STATEMENT_WORDS
    | word_set(
        "IF EXISTS TEMPORARY TEMP GLOBAL VIEW FUNCTION FUNCTIONS VIEWS CATALOGS LIKE BY IN IS "
        "NULL LAZY OPTIONS TBLPROPERTIES COMMENT CASE THEN ELSE END DISTINCT ALL BETWEEN "
        "EXTENDED INTO OVERWRITE DIRECTORY LOCAL USING DATABASE SCHEMA NAMESPACE TABLES "
        "PARTITIONS PARTITIONED COLUMNS CATALOG CURRENT QUERY"
    )
)


def pass_through(cursor: Cursor) -> PassThrough:
    """Return the cursor's whole statement, with every name in it that could be a table's."""
    tokens = cursor.tokens
    cursor.index = cursor.stop
    if not tokens or tokens[0].upper in _NAME_NO_TABLE:
        return PassThrough(cursor.text, cursor.offset)
    return PassThrough(cursor.text, cursor.offset, _names(tokens))


def passed(text: str, offset: int) -> PassThrough:
    """A statement that could be Paimon's, for Spark."""
    return pass_through(Cursor(text, tokenize(text), offset=offset))


def leading_words(text: str) -> str:
    """The words by which a statement is known, up to the first name or value: `CREATE TEMPORARY
    VIEW`. Of a statement that can't be split into tokens, its first word."""
    try:
        tokens = tokenize(text)
    except StatementSyntaxError:
        return text.split(None, 1)[0].upper()
    rest = itertools.takewhile(lambda token: token.upper in _NO_NAMES, tokens[1:])
    return " ".join(token.upper for token in (*tokens[:1], *rest))


def file_options(text: str) -> tuple[str, tuple[str, ...], int] | None:
    """The format behind USING in lower case, the names in OPTIONS, and where these begin; None for
    a statement without them, or whose OPTIONS are not as Spark writes them."""
    tokens = tokenize(text)
    words = [token.upper for token in tokens]
    if "USING" not in words or "OPTIONS" not in words:
        return None
    cursor = Cursor(text, tokens)
    cursor.index = words.index("USING") + 1
    kind = cursor.peek().name.lower()
    cursor.index = words.index("OPTIONS") + 1
    start = cursor.position
    try:
        return kind, tuple(key for key, _ in read_properties(cursor)), start
    except StatementSyntaxError:
        return None


def names_in(text: str) -> tuple[TableName, ...]:
    """Return every name that could be a table's in a text that is not parsed otherwise, such as a
    script (BEGIN … END); () for a text that can't be split into tokens."""
    try:
        return tuple(name for name, _ in _names(tokenize(text)))
    except StatementSyntaxError:
        return ()


def _names(tokens: tuple[Token, ...]) -> tuple[tuple[TableName, int], ...]:
    """The names after the first word, and their positions."""
    names: list[tuple[TableName, int]] = []
    index = 1
    while index < len(tokens):
        chain = _chain(tokens, index)
        if not chain:
            index += 1
            continue
        following = tokens[index + 2 * len(chain) - 1 :][:1]
        is_call = bool(following) and following[0].text == "("
        is_named = tokens[index - 1].upper in NAME_BEFORE
        is_keyword = len(chain) == 1 and chain[0].upper in _NO_NAMES
        name = try_table_name(chain)
        if name is not None and not is_keyword and (is_named or not is_call):
            names.append((name, chain[0].start))
        index += 2 * len(chain) - 1
    return tuple(names)


def _chain(tokens: tuple[Token, ...], index: int) -> list[Token]:
    """The parts of the dotted name that begins at `index`."""
    chain: list[Token] = []
    while index < len(tokens) and tokens[index].kind in IDENTIFIER_KINDS:
        chain.append(tokens[index])
        if index + 1 >= len(tokens) or tokens[index + 1].text != ".":
            break
        index += 2
    return chain
