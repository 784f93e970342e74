"""Reads GRANT, REVOKE and SHOW GRANTS.

Spark has no such statements. The words are those of other databases, the scopes those of the
coordinator's tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from paimon_magics.errors import likely_meant
from paimon_magics.statements.grammar.databases import DATABASE_WORDS
from paimon_magics.statements.lexing.cursor import Cursor
from paimon_magics.statements.lexing.tokens import IDENTIFIER_KINDS
from paimon_magics.statements.statement import SCOPES, ChangeGrants, GrantedTables, ShowGrants

_KINDS = ("USER", "ROLE", "GROUP")
# What other databases call a scope.
_OTHER_WORDS = {
    "SELECT": "READ",
    "UPDATE": "CHANGE",
    "DELETE": "CHANGE",
    "MERGE": "CHANGE",
    "MODIFY": "WRITE",
    "ALL": "WRITE",
    "CREATE": "ALTER",
    "DROP": "ALTER",
    "USAGE": "READ",
    "OWNERSHIP": "ADMIN",
}


def read_change(cursor: Cursor, *, is_revoke: bool) -> ChangeGrants:
    """Read what follows GRANT or REVOKE."""
    roles: list[str] = []
    scopes: list[str] = []
    tables = None
    if cursor.accept("ROLE"):
        roles = _several(cursor, partial(_name, what="the name of a role"))
    else:
        scopes = _several(cursor, _scope)
        cursor.expect("ON")
        tables = _tables(cursor)
    cursor.expect("FROM" if is_revoke else "TO")
    grantees = _several(cursor, _grantee)
    return ChangeGrants(
        *(cursor.text, cursor.offset, is_revoke, tuple(scopes), tables),
        *(tuple(roles), tuple(grantees)),
    )


read_grant = partial(read_change, is_revoke=False)
"""Reads what follows GRANT."""

read_revoke = partial(read_change, is_revoke=True)
"""Reads what follows REVOKE."""


def read_show_grants(cursor: Cursor) -> ShowGrants:
    """Read what follows SHOW GRANTS."""
    tables = _tables(cursor) if cursor.accept("ON") else None
    grantee = _grantee(cursor) if cursor.accept_any("TO", "FOR", "OF") else None
    return ShowGrants(cursor.text, cursor.offset, tables, grantee)


def _several(cursor: Cursor, read: Callable[[Cursor], str]) -> list[str]:
    texts = [read(cursor)]
    while cursor.accept(","):
        texts.append(read(cursor))
    return texts


def _scope(cursor: Cursor) -> str:
    token = cursor.peek()
    if token.upper not in SCOPES:
        ours = _OTHER_WORDS.get(token.upper)
        hint = f"Write {ours}." if ours else likely_meant(token.upper, SCOPES)
        cursor.fail_at(
            token.start,
            f"`{token.text}` is no scope." if token.text else "The scope is missing.",
            f"{hint} The scopes are {', '.join(SCOPES)}.".strip(),
        )
    return cursor.next().upper


def _grantee(cursor: Cursor) -> str:
    is_kind = cursor.peek(1).kind in (*IDENTIFIER_KINDS, "string")
    kind = cursor.accept_any(*_KINDS) if is_kind else ""
    return f"{(kind or 'USER').lower()}:{_name(cursor, 'the name of a user, role or group')}"


def _name(cursor: Cursor, what: str) -> str:
    if cursor.peek().kind == "string":
        return cursor.string(what)
    return cursor.identifier(what)


def _tables(cursor: Cursor) -> GrantedTables:
    if cursor.accept("WAREHOUSE") or cursor.accept("CATALOG"):
        return GrantedTables("*", "*")
    if cursor.at_any(*DATABASE_WORDS) and cursor.peek(1).text != ".":
        cursor.next()
        return GrantedTables(_pattern(cursor), "*")
    if cursor.at("TABLE") and cursor.peek(1).text != ".":
        cursor.next()
    first = _pattern(cursor)
    if not cursor.accept("."):
        return GrantedTables(None, first)
    return GrantedTables(first, _pattern(cursor))


def _pattern(cursor: Cursor) -> str:
    """Names and `*` that follow each other without a space: `orders_*`."""
    parts: list[str] = []
    end = cursor.position
    while cursor.position == end and not cursor.at_end:
        token = cursor.peek()
        if token.text != "*" and token.kind not in IDENTIFIER_KINDS:
            break
        if token.text != "*" and {".", "*"} & set(token.name):
            cursor.fail_at(
                token.start,
                f"A name with a dot or a star can't be granted: {token.text}.",
                "Grant a pattern that covers it: db.*",
            )
        parts.append("*" if token.text == "*" else token.name)
        end = token.end
        cursor.next()
    if not parts:
        cursor.fail("the name of a table, `db.*`, DATABASE db or WAREHOUSE")
    return "".join(parts)
