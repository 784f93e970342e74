"""Who sends a request, and what they may do: everywhere, or on the tables that grants name.

This module does no I/O. Tables that a principal may not read are hidden from it (`visibility`).
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from paimon_magics.coordinator.protocol.errors import NotTheirsError
from paimon_magics.errors import InvalidValueError

PRINCIPAL = "paimon_magics.principal"
"""The key of a request's principal in its ASGI scope."""

_FORM = "a scope (READ, INSERT, CHANGE, ALTER, MAINTAIN, WRITE, ADMIN), or one with tables: "
_FORM += "write=shop.orders_*"
_GRANTS_MAX = 200
_PATTERN_CHARACTERS_MAX = 255


class Scope(StrEnum):
    """What a principal may do with tables. Each scope includes READ.

    INSERT adds rows, by a key also in place of others. CHANGE deletes and replaces rows, so it
    includes INSERT. ALTER creates, alters and drops tables, views, tags and branches. MAINTAIN
    compacts and expires. WRITE is all of these. ADMIN is everything, also for the coordinator.
    """

    READ = "read"
    INSERT = "insert"
    CHANGE = "change"
    ALTER = "alter"
    MAINTAIN = "maintain"
    WRITE = "write"
    ADMIN = "admin"

    def includes(self, needed: Scope) -> bool:
        """Whether this scope is enough for what takes `needed`."""
        return needed in _INCLUDED[self]


_INCLUDED: dict[Scope, frozenset[Scope]] = {
    Scope.READ: frozenset({Scope.READ}),
    Scope.INSERT: frozenset({Scope.READ, Scope.INSERT}),
    Scope.CHANGE: frozenset({Scope.READ, Scope.INSERT, Scope.CHANGE}),
    Scope.ALTER: frozenset({Scope.READ, Scope.ALTER}),
    Scope.MAINTAIN: frozenset({Scope.READ, Scope.MAINTAIN}),
    Scope.WRITE: frozenset(Scope) - {Scope.ADMIN},
    Scope.ADMIN: frozenset(Scope),
}
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
        if not all(0 < len(part) <= _PATTERN_CHARACTERS_MAX for part in parts):
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
class Grantee:
    """A user, a group of a hub or an issuer, or a role. Its text is `role:analysts`."""

    kind: str
    name: str

    @classmethod
    def of(cls, text: str) -> Grantee:
        """Read a grantee; a name alone is that of a user. Raises InvalidValueError."""
        kind, colon, name = text.partition(":")
        kind = kind.lower()
        if not colon or kind not in GRANTEE_KINDS:
            kind, name = "user", text
        is_plain = name.isprintable() and name == name.strip()
        if not 0 < len(name) <= _PATTERN_CHARACTERS_MAX or not is_plain:
            raise InvalidValueError(
                f"`{text}` can't be the name of a {kind}.",
                hint=f"Use 1 to {_PATTERN_CHARACTERS_MAX} printable characters.",
            )
        return cls(kind, name)

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


GRANTEE_KINDS = ("user", "group", "role")
"""To whom something can be granted."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The sender of a request, and their greatest scope, None without a scope.

    `name` is None where no name is verified: then senders may call themselves as they like.
    `grants` say on which tables; None is everywhere. On the tables in `closed` (`closed_table`)
    everything takes ADMIN. `credential` is by what they are known, for the audit log; `is_own` are
    the coordinator's own processes. `groups` are those that a hub or an issuer names.
    """

    name: str | None
    scope: Scope | None
    grants: tuple[Grant, ...] | None = None
    closed: frozenset[str] = frozenset()
    credential: str = field(default="", compare=False)
    is_own: bool = False
    groups: tuple[str, ...] = ()

    @classmethod
    def granted(
        cls,
        name: str,
        grants: tuple[Grant, ...],
        credential: str = "",
        groups: tuple[str, ...] = (),
    ) -> Principal:
        """A principal with these grants."""
        greatest = max((grant.scope for grant in grants), key=_ORDER.index, default=None)
        needs_others = any(not (greatest and greatest.includes(g.scope)) for g in grants)
        is_everywhere = any(g.is_everywhere and g.scope is greatest for g in grants)
        everywhere = is_everywhere and not needs_others
        limits = None if everywhere else grants
        return cls(name, greatest, limits, credential=credential, groups=groups)

    def with_grants(self, grants: tuple[Grant, ...]) -> Principal:
        """The principal with more grants."""
        if not grants or self.name is None:
            return self
        own = self.grants
        if own is None:
            own = () if self.scope is None else (Grant(self.scope),)
        union = tuple(dict.fromkeys((*own, *grants)))
        more = Principal.granted(self.name, union, self.credential, self.groups)
        return replace(more, closed=self.closed)

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
        """Whether the principal has this scope, on some table at least."""
        if self.grants is not None:
            return any(grant.scope.includes(needed) for grant in self.grants)
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


def _matches(pattern: str, name: str) -> bool:
    """Whether a name matches a pattern; in time that grows with their lengths alone."""
    first, *others = pattern.split("*")
    if not others:
        return pattern == name
    *middle, last = others
    if not name.startswith(first):
        return False
    at = len(first)
    for part in middle:
        at = name.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return name.endswith(last) and len(name) - len(last) >= at


def grantee_text(name: str | None) -> str:
    """A user's name as GRANT takes it."""
    text = name or "NAME"
    return text if text.isidentifier() else "`" + text.replace("`", "``") + "`"


def check_right(principal: Principal, needed: Scope, database: str, table: str | None) -> None:
    """Raise NotTheirsError unless a principal has a scope on a table, or a whole database."""
    if not principal.may_on(needed, database, table):
        shown = f"`{database}`" if table is None else f"`{database}.{table}`"
        raise NotTheirsError(
            f"{principal.name} lacks permission for this on {shown}: it requires the scope "
            f"`{needed.value}` there.",
            hint=f"Ask an administrator: GRANT {needed.value.upper()} ON {database}."
            f"{table or '*'} TO {grantee_text(principal.name)}.",
        )
