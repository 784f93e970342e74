"""Who sends a request, and what they may do: everywhere, or on the tables that grants name.

This module does no I/O. Tables that a principal may not read are hidden from it: `visibility`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from paimon_magics.coordinator.protocol.errors import NotTheirsError
from paimon_magics.errors import InvalidValueError, PaimonMagicsError, UnknownNameError
from paimon_magics.statements.statement import TableName

PRINCIPAL = "paimon_magics.principal"
"""The key of a request's principal in its ASGI scope."""

_FORM = "READ, WRITE or ADMIN, or one of them with tables: write=shop.orders_*"
_GRANTS_MAX = 200
_PATTERN_CHARACTERS_MAX = 255

Load = Callable[[TableName], Any]
"""Loads a table, or raises an error of ours."""

_PLACE = re.compile(r"([^/]+)\.db/([^/]+)/?$")


class Scope(StrEnum):
    """What a principal may do. ADMIN includes WRITE, WRITE includes READ."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"

    def includes(self, needed: Scope) -> bool:
        """Whether this scope includes the scope `needed`."""
        return _ORDER.index(self) >= _ORDER.index(needed)


_ORDER = tuple(Scope)


@dataclass(frozen=True, slots=True)
class Grant:
    """A scope on the tables whose names match two patterns, in which `*` stands for any text.

    Its text is `write=shop.orders_*`, `read=shop` for a whole database, or `admin` for everything.
    """

    scope: Scope
    database: str = "*"
    table: str = "*"

    @classmethod
    def of(cls, text: str) -> Grant:
        """Read a grant. Raises InvalidValueError."""
        name, equals, tables = text.strip().partition("=")
        try:
            scope = Scope(name.strip().lower())
        except ValueError:
            raise InvalidValueError(
                f"`{text}` is not a known permission.", hint=f"Write {_FORM.lower()}."
            ) from None
        if not equals:
            return cls(scope)
        database, dot, table = tables.strip().partition(".")
        parts = (database, table) if dot else (database,)
        if not all(parts) or any(len(part) > _PATTERN_CHARACTERS_MAX for part in parts):
            raise InvalidValueError(
                f"`{text}` names no tables.", hint=f"Write {_FORM.lower()}, or write=shop."
            )
        return cls(scope, database, table if dot else "*")

    def __str__(self) -> str:
        is_all = self.database == self.table == "*"
        return self.scope.value if is_all else f"{self.scope.value}={self.database}.{self.table}"

    @property
    def is_everywhere(self) -> bool:
        """Whether it is for all tables."""
        return self.database == self.table == "*"

    def matches(self, database: str, table: str | None) -> bool:
        """Whether it is for a table; with None, for every table of the database."""
        if not _matches(self.database, database):
            return False
        return self.table == "*" if table is None else _matches(self.table, table)


def grants_of(texts: Iterable[str]) -> tuple[Grant, ...]:
    """Read grants, each once. Raises InvalidValueError for no grants, too many, or an invalid
    grant.
    """
    grants = tuple(dict.fromkeys(map(Grant.of, texts)))
    if not 0 < len(grants) <= _GRANTS_MAX:
        raise InvalidValueError(
            f"{len(grants)} permissions were given.",
            hint=f"Give 1 to {_GRANTS_MAX}, each as {_FORM.lower()}.",
        )
    return grants


@dataclass(frozen=True, slots=True)
class Principal:
    """The sender of a request, and their greatest scope, None without a scope.

    `name` is None if no name is verified: then senders may claim any name. `grants` limit the scope
    to tables; None means everywhere. On the tables in `closed` (`closed_table`) everything requires
    ADMIN. `credential` is how they were identified, for the audit log. `is_own` marks the
    coordinator's own processes.
    """

    name: str | None
    scope: Scope | None
    grants: tuple[Grant, ...] | None = None
    closed: frozenset[str] = frozenset()
    credential: str = field(default="", compare=False)
    is_own: bool = False

    @classmethod
    def granted(cls, name: str, grants: tuple[Grant, ...], credential: str = "") -> Principal:
        """A principal with these grants."""
        scopes = [grant.scope for grant in grants]
        greatest = max(scopes, key=_ORDER.index, default=None)
        if any(g.is_everywhere and g.scope is greatest for g in grants):
            return cls(name, greatest, credential=credential)
        return cls(name, greatest, grants, credential=credential)

    @property
    def is_limited(self) -> bool:
        """Whether some tables are hidden from them."""
        return bool(self.closed) or not self.may_everywhere(Scope.READ)

    @property
    def is_free(self) -> bool:
        """Whether their permissions hold on all tables."""
        return self.grants is None and not self.closed

    def without(self, closed: frozenset[str]) -> Principal:
        """The principal, with these tables closed to all but administrators."""
        if not closed or self.is_own or self.may_everywhere(Scope.ADMIN):
            return self
        return replace(self, closed=closed)

    def may(self, needed: Scope) -> bool:
        """Whether the principal has this scope on at least one table."""
        return self.scope is not None and self.scope.includes(needed)

    def may_everywhere(self, needed: Scope) -> bool:
        """Whether the principal has this scope on all tables."""
        if self.grants is None:
            return self.may(needed)
        return any(g.is_everywhere and g.scope.includes(needed) for g in self.grants)

    def may_on(self, needed: Scope, database: str, table: str | None) -> bool:
        """Whether the principal has this scope on a table, or with None on a whole database."""
        if self.closed and table is not None and closed_table(database, table) in self.closed:
            needed = Scope.ADMIN
        if self.grants is None:
            return self.may(needed)
        return any(g.scope.includes(needed) and g.matches(database, table) for g in self.grants)

    def sees_database(self, database: str) -> bool:
        """Whether the principal may read something in a database."""
        if self.grants is None:
            return self.may(Scope.READ)
        return any(_matches(g.database, database) for g in self.grants)

    def sees_table(self, database: str, table: str) -> bool:
        """Whether the principal may read a table."""
        return self.may_on(Scope.READ, database, table)


@functools.lru_cache(maxsize=4_096)
def closed_table(database: str, table: str) -> str:
    """A table in `Principal.closed`: a digest, since principals without access must not learn its
    name.
    """
    return hashlib.sha256(f"{database}\0{table}".encode(errors="replace")).hexdigest()


def principal_document(principal: Principal) -> dict[str, Any]:
    """What a principal may do, as JSON."""
    grants = principal.grants
    return {
        "name": principal.name,
        "scope": None if principal.scope is None else principal.scope.value,
        "grants": None if grants is None else [str(grant) for grant in grants],
        "closed": sorted(principal.closed),
    }


def principal_of_document(document: Mapping[str, Any]) -> Principal:
    """The principal of such a document."""
    scope, grants = document["scope"], document["grants"]
    return Principal(
        document["name"],
        None if scope is None else Scope(scope),
        None if grants is None else tuple(map(Grant.of, grants)),
        frozenset(document["closed"]),
    )


@functools.lru_cache(maxsize=4_096)
def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)


def _matches(pattern: str, name: str) -> bool:
    return pattern == "*" or _pattern(pattern).fullmatch(name) is not None


# What a principal with grants sees of tables: only the tables that they may read. A hidden table
# gets the same answer as a missing table, in the same words, and after the same look at the store.
# So nobody can find out which names exist.


def check_table(principal: Principal, needed: Scope, name: TableName, load: Load) -> None:
    """Raise UnknownNameError for a table that is hidden from a principal, NotTheirsError if they
    lack the scope on it. `load` may block.
    """
    if principal.is_free:
        return
    database, table = name.database or "", name.table.partition("$")[0]
    if not principal.may_on(Scope.READ, database, table):
        with contextlib.suppress(PaimonMagicsError):
            load(replace(name, table=uuid.uuid4().hex, branch=None))
        if not principal.sees_database(database):
            raise UnknownNameError(f"There is no database `{database}`.")
        raise UnknownNameError(f"There is no table `{name.table}` in the database `{database}`.")
    check_right(principal, needed, database, table)


def check_right(principal: Principal, needed: Scope, database: str, table: str | None) -> None:
    """Raise NotTheirsError unless a principal has a scope on a table, or a whole database."""
    if not principal.may_on(needed, database, table):
        shown = f"`{database}`" if table is None else f"`{database}.{table}`"
        raise NotTheirsError(
            f"{principal.name} lacks permission for this on {shown}: it requires the scope "
            f"`{needed.value}` there.",
            hint=f"Ask an administrator for a token that allows {needed.value}={database}."
            f"{table or '*'}.",
        )


def sees_location(principal: Principal, location: str) -> bool:
    """Whether a principal may read the table that has this folder."""
    if principal.is_free:
        return True
    match = _PLACE.search(location)
    return match is not None and principal.may_on(Scope.READ, match[1], match[2])
