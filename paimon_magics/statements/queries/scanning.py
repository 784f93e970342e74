"""Finds the relations of a query from its tokens alone.

It serves queries that sqlglot can't parse. It knows nothing of expressions, only the places where
Spark's grammar has a relation (after FROM, JOIN, TABLE and a comma of a FROM list), brackets, and
WITH. It refuses only what can't be Spark SQL at those places.
"""

from __future__ import annotations

from paimon_magics.statements.clauses.names import name_parts
from paimon_magics.statements.lexing.cursor import Cursor, RefusedHere
from paimon_magics.statements.lexing.tokens import (
    CLAUSE_WORDS,
    IDENTIFIER_KINDS,
    QUERY_WORDS,
    word_set,
)
from paimon_magics.statements.queries.references import read_relation

_SET_WORDS = word_set("UNION EXCEPT INTERSECT MINUS SETMINUS ALL DISTINCT")
_ENDS_FROM = word_set(
    "WHERE GROUP HAVING ORDER SORT CLUSTER DISTRIBUTE LIMIT OFFSET WINDOW QUALIFY SELECT "
    "UNION EXCEPT INTERSECT MINUS SETMINUS |>"
)


def scan_relations(cursor: Cursor) -> tuple[int, ...]:
    """Return the token indexes where table names begin, without CTEs, in the order written.

    Raises StatementSyntaxError if something other than a relation stands in a relation's place.
    """
    starts: list[int] = []
    _Scan(starts).level(cursor, frozenset(), is_query=True)
    return tuple(starts)


class _Scan:
    def __init__(self, starts: list[int]) -> None:
        self.starts = starts

    def level(self, cursor: Cursor, visible: frozenset[str], *, is_query: bool = False) -> None:
        """Read the content of one bracket (or the whole query) up to the cursor's stop."""
        if cursor.at("WITH") and not cursor.at("WITH", "("):
            visible = self.common_tables(cursor, visible)
            is_query = True
        selecting = is_query and cursor.at_any("FROM")
        in_list = False
        while not cursor.at_end:
            token = cursor.peek()
            after_dot = cursor.index > 0 and cursor.tokens[cursor.index - 1].text == "."
            if token.text in ("(", "[") and token.kind == "symbol":
                self.inside(cursor, visible)
            elif after_dot or token.kind not in ("word", "symbol"):
                cursor.next()
            elif token.upper == "SELECT":
                cursor.next()
                selecting, in_list = True, False
            elif token.upper == "FROM" and (selecting or _begins_term(cursor)):
                cursor.next()
                if not _is_distinct_from(cursor):
                    self.relation(cursor, visible)
                    selecting = in_list = True
            elif (token.upper == "JOIN" and _is_join(cursor)) or (in_list and token.text == ","):
                cursor.next()
                self.relation(cursor, visible)
            elif token.upper == "TABLE":
                self.table_word(cursor, visible)
            elif token.upper == "INSERT" and in_list:
                raise RefusedHere("FROM … INSERT")
            else:
                if token.upper in _ENDS_FROM or cursor.at("LATERAL", "VIEW"):
                    in_list = False
                cursor.next()

    def inside(self, cursor: Cursor, visible: frozenset[str]) -> None:
        """Read the bracket that comes next, and step over it."""
        inner = _bracket(cursor)
        self.level(inner, visible, is_query=inner.at_any(*QUERY_WORDS))

    def common_tables(self, cursor: Cursor, visible: frozenset[str]) -> frozenset[str]:
        """Read WITH and its tables; return all names that are visible to the query after it."""
        cursor.next()
        recursive = cursor.accept("RECURSIVE")
        while True:
            name = cursor.identifier("a name for the common table expression").lower()
            if cursor.at("("):
                cursor.skip_brackets()
            if cursor.accept("MAX", "RECURSION", "LEVEL"):
                cursor.next()
            cursor.accept("AS")
            if not cursor.at("("):
                cursor.fail("`(` and the query of the common table expression")
            self.inside(cursor, visible | {name} if recursive else visible)
            visible |= {name}
            if not cursor.accept(","):
                return visible

    def table_word(self, cursor: Cursor, visible: frozenset[str]) -> None:
        """Read TABLE t or TABLE(t), which name a relation, unless TABLE is a column's name."""
        begins = _begins_term(cursor)
        cursor.next()
        token = cursor.peek()
        if token.kind in IDENTIFIER_KINDS and token.upper not in CLAUSE_WORDS:
            self.relation(cursor, visible)
        elif cursor.at("("):
            inner = _bracket(cursor)
            if inner.peek().kind in IDENTIFIER_KINDS and not inner.at_any(*QUERY_WORDS):
                self.relation(inner, visible)
            self.level(inner, visible, is_query=inner.at_any(*QUERY_WORDS))
        elif begins:
            cursor.fail("a table's name")

    def relation(self, cursor: Cursor, visible: frozenset[str]) -> None:
        cursor.accept("LATERAL")
        token = cursor.peek()
        if token.text == "(":
            inner = _bracket(cursor)
            if inner.at_any(*QUERY_WORDS) or inner.peek().kind in ("string", "number"):
                self.level(inner, visible, is_query=True)
            else:
                self.relation_list(inner, visible)
        elif cursor.at("VALUES"):
            self.values(cursor, visible)
        elif token.kind not in IDENTIFIER_KINDS or token.upper in CLAUSE_WORDS:
            cursor.fail("a table's name")
        else:
            self.named(cursor, visible)

    def relation_list(self, cursor: Cursor, visible: frozenset[str]) -> None:
        """Read the content of a bracket that begins with a relation: `(a JOIN b ON …)`."""
        self.relation(cursor, visible)
        self.level(cursor, visible)

    def named(self, cursor: Cursor, visible: frozenset[str]) -> None:
        start = cursor.index
        parts = name_parts(cursor, "a table's name")
        if cursor.at("("):  # a table function; its arguments may hold queries
            self.inside(cursor, visible)
            return
        cursor.index = start
        read_relation(cursor)
        if len(parts) > 1 or parts[0].name.lower() not in visible:
            self.starts.append(start)

    def values(self, cursor: Cursor, visible: frozenset[str]) -> None:
        """Read VALUES rows, whose commas do not separate relations."""
        cursor.next()
        while True:
            if cursor.at("("):
                self.inside(cursor, visible)
            while not cursor.at_end and not cursor.at(",") and cursor.peek().upper != "AS":
                if cursor.peek().upper in CLAUSE_WORDS | _ENDS_FROM:
                    return
                if cursor.at("("):
                    self.inside(cursor, visible)
                else:
                    cursor.next()
            if not cursor.accept(","):
                return


def _bracket(cursor: Cursor) -> Cursor:
    """Return a cursor over the content of the bracket that comes next, and step over it."""
    closing = cursor.closing()
    inner = cursor.at_index(cursor.index + 1, closing)
    cursor.index = closing + 1
    return inner


def _begins_term(cursor: Cursor) -> bool:
    """Whether the next word begins a query or an operand of a set operation."""
    if cursor.index == 0:
        return True
    previous = cursor.tokens[cursor.index - 1]
    return previous.upper in _SET_WORDS


def _is_distinct_from(cursor: Cursor) -> bool:
    """Whether the FROM just read belongs to IS [NOT] DISTINCT FROM."""
    tokens, index = cursor.tokens, cursor.index
    return (
        index >= 3
        and tokens[index - 2].upper == "DISTINCT"
        and tokens[index - 3].upper in ("IS", "NOT")
    )


def _is_join(cursor: Cursor) -> bool:
    following = cursor.peek(1)
    return following.text == "(" or following.kind in IDENTIFIER_KINDS | {"end"}
