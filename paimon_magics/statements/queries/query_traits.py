"""Traits of a query that are seen in its tokens or its tree: used columns, determinism, functions
of a row's file, lists with NULL, and the number of rows.

They are a superset, from tokens alone: a column whose name does not occur in the query's text need
not be read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise

from paimon_magics.statements.lexing.tokens import IDENTIFIER_KINDS, Token, tokenize, word_set
from paimon_magics.statements.queries.rewriting import query_tokens
from paimon_magics.statements.statement import QueryText

# Words that use columns without naming them.
_NAMELESS = frozenset({"NATURAL", "PIVOT", "UNPIVOT", "TABLE", "IDENTIFIER", "COLUMNS"})
_BEFORE_A_STAR = frozenset({"SELECT", "DISTINCT", "ALL", ",", ".", "("})


_RANDOM = word_set(
    "input_file_block_length input_file_block_start input_file_name java_method "
    "monotonically_increasing_id rand randn random randstr reflect shuffle spark_partition_id "
    "try_reflect uniform uuid"
)


_NAMES = ("INPUT_FILE_NAME", "INPUT_FILE_BLOCK_START", "INPUT_FILE_BLOCK_LENGTH")
# Searched first: most statements have none of these names, and need not be split into tokens.
_NAME = re.compile("|".join(_NAMES), re.IGNORECASE)


_ADD_ROWS = word_set(
    "WITH JOIN LATERAL UNION VALUES TABLE PIVOT UNPIVOT CUBE ROLLUP SETS EXPLODE EXPLODE_OUTER "
    "POSEXPLODE POSEXPLODE_OUTER INLINE INLINE_OUTER STACK JSON_TUPLE TRANSFORM |>"
)


def used_names(statement: str, query: QueryText) -> frozenset[str] | None:
    """Return all names in the query, in lower case; None if it may use any column."""
    tokens = query_tokens(statement, query)
    if tokens and tokens[0].upper == "FROM":
        return None  # such a query returns all columns
    names = set()
    for index, token in enumerate(tokens):
        if token.kind in IDENTIFIER_KINDS:
            if token.kind == "word" and token.upper in _NAMELESS:
                return None
            names.add(token.name.lower())
        elif token.text == "|>" or (token.text == "*" and _is_all(tokens, index)):
            return None
    return frozenset(names)


def _is_all(tokens: list[Token], index: int) -> bool:
    """Whether a `*` means all columns: `SELECT *`, `t.*`; not `a * b`, and not `count(*)`."""
    before = tokens[index - 1] if index else None
    if before is None or before.upper not in _BEFORE_A_STAR:
        return False
    counts = before.text == "(" and index >= 2 and tokens[index - 2].upper == "COUNT"
    return not counts


# Whether a statement gives the same rows when it runs again on the same tables.
#
# Only then is one that changes rows run again by itself. The functions are those that Spark marks
# as not deterministic, without those that depend on the order of rows. Times, as of
# `current_timestamp()`, are those of the run that is committed. What a function of the user's own
# does is not known here: it counts as deterministic, as Spark assumes.


def random_part(text: str) -> str | None:
    """The first part of a statement that gives other values in each run: the name of a function, or
    TABLESAMPLE without REPEATABLE. None if there is none."""
    tokens = tokenize(text)
    words = {token.upper for token in tokens}
    if "TABLESAMPLE" in words and "REPEATABLE" not in words:
        return "TABLESAMPLE"
    for token, following in pairwise(tokens):
        name = token.name.lower() if token.kind in IDENTIFIER_KINDS else ""
        if following.text == "(" and name in _RANDOM:
            return name
    return None


# Finds calls of the functions that return a row's file: `input_file_name()` and its like.


def input_file_call(statement: str) -> str | None:
    """The first such call in a statement, in lower case; None if it has none."""
    if not _NAME.search(statement):
        return None
    tokens = list(tokenize(statement))
    for token, behind in pairwise(tokens):
        if token.upper in _NAMES and behind.text == "(":
            return f"{token.upper.lower()}()"
    return None


# Finds lists with NULL in a statement: `b IN (1, NULL)`.


def lists_null(statement: str, bound: Mapping[str, object]) -> bool:
    """Whether an IN list may have a NULL in it, written or as a value of `bound`; from tokens
    alone, so that others are taken for one, too."""
    words = [token.upper for token in tokenize(statement)]
    if "IN" not in words:
        return False
    return any(map(_has_null, bound.values())) or any(
        word == "NULL" and words[at - 1] not in ("IS", "NOT") for at, word in enumerate(words) if at
    )


def _has_null(value: object) -> bool:
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(_has_null, value))
    return value is None


# Tells queries that have no more rows than the one relation that they read.


def adds_no_rows(statement: str, query: QueryText) -> bool:
    """Whether the query is one SELECT from one table, without anything that makes several rows of
    one. A query without a group has one row even of none."""
    if len(query.references) != 1:
        return False
    tokens = query_tokens(statement, query)
    words = [token.upper for token in tokens]
    return (
        words[:1] == ["SELECT"]
        and words.count("SELECT") == words.count("FROM") == 1
        and _ADD_ROWS.isdisjoint(words)
        and not _is_joined(tokens, query.references[0].range.end)
    )


def _is_joined(tokens: list[Token], end: int) -> bool:
    """Whether a comma follows the table before the next clause."""
    for token in tokens:
        if token.start < end:
            continue
        if token.text == ",":
            return True
        if token.upper in ("WHERE", "GROUP", "ORDER", "HAVING", "LIMIT", "SORT", "WINDOW"):
            return False
    return False
