"""What administrators have granted to users, groups and roles, beside what tokens say themselves.

A grant is in force for the next request at this coordinator, and within two seconds at others with
the same store, streams and sessions that are open included.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.routing import Route

from paimon_magics.coordinator.http.authorisation import Authoriser, CachedRows, Rereading
from paimon_magics.coordinator.protocol.clock import now_ms
from paimon_magics.coordinator.protocol.principals import (
    Grant,
    Grantee,
    Principal,
    grants_of,
)
from paimon_magics.coordinator.store.tables import GrantTable, StoredGrant
from paimon_magics.errors import InvalidValueError, SetupError, UnknownNameError

_GRANTS_MAX = 20_000
_REMEMBERED_MAX = 10_000
_ROLE = "role:"


class Grants:
    """Rows of grants by grantee, and the rights that they gave to principals so far."""

    def __init__(self, rows: Iterable[StoredGrant]) -> None:
        self._by_grantee: dict[str, list[StoredGrant]] = defaultdict(list)
        for row in rows:
            self._by_grantee[row.grantee].append(row)
        # By identity: authorisers give out the same principal again, and its hash costs more than
        # all else here. The first one of a pair keeps its number from being used again.
        self._principals: dict[int, tuple[Principal, Principal]] = {}

    def to(self, principal: Principal) -> list[StoredGrant]:
        """The grants to a principal, their groups, and the roles that these have."""
        waiting = [f"user:{principal.name}", *(f"group:{group}" for group in principal.groups)]
        seen, granted = set(waiting), list[StoredGrant]()
        while waiting:
            for row in self._by_grantee.get(waiting.pop(), ()):
                granted.append(row)
                if row.text.startswith(_ROLE) and row.text not in seen:
                    seen.add(row.text)
                    waiting.append(row.text)
        return granted

    def applied_to(self, principal: Principal) -> Principal:
        """The principal with all grants to them, their groups and their roles."""
        if not self._by_grantee:
            return principal
        known = self._principals.get(id(principal))
        if known is None:
            scopes = [row.text for row in self.to(principal) if not row.text.startswith(_ROLE)]
            known = principal, principal.with_grants(tuple(map(Grant.of, scopes)))
            if len(self._principals) >= _REMEMBERED_MAX:
                self._principals.clear()
            self._principals[id(principal)] = known
        return known[1]


class StoredGrants(CachedRows[Grants]):
    """The grants in a store. For any thread. `when_taken` is called after one was taken back."""

    _used_seconds_max = 300.0  # while the store does not answer, nobody can revoke a grant

    def __init__(self, table: GrantTable, when_taken: Callable[[], object] = lambda: None) -> None:
        super().__init__(Grants(()))
        self._table = table
        self._when_taken = when_taken

    def applied_to(self, principal: Principal) -> Principal:
        """The principal with all grants to them, their groups and their roles."""
        return self._value.applied_to(principal)

    def all(self) -> list[StoredGrant]:
        """All grants, by grantee."""
        return self._table.all()

    def grant(
        self, grantees: Sequence[Grantee], texts: Sequence[str], by: str
    ) -> list[StoredGrant]:
        """Grant scopes on tables, or roles (`role:NAME`). Return what is new.

        Raises InvalidValueError for a wrong text, for too many grants, and for a role that would
        have itself.
        """
        allows = _texts(texts)
        rows = self._table.all()
        known = {(row.grantee, row.text) for row in rows}
        at_ms = now_ms()
        added = [
            StoredGrant(str(grantee), text, by, at_ms)
            for grantee in dict.fromkeys(grantees)
            for text in allows
            if (str(grantee), text) not in known
        ]
        if len(rows) + len(added) > _GRANTS_MAX:
            raise InvalidValueError(
                f"There would be more than {_GRANTS_MAX:,} grants.",
                hint="Grant to roles or groups, or on patterns of tables.",
            )
        _check_no_circle([*rows, *added])
        self._table.change(added, ())
        self.read()
        return added

    def revoke(self, grantees: Sequence[Grantee], texts: Sequence[str]) -> list[StoredGrant]:
        """Take grants back, with the very texts with which they were made. Return them.

        Raises UnknownNameError if a grantee has none of them: rights that a token, a hub or an
        issuer gives are not among the grants.
        """
        allows = _texts(texts)
        rows = {(row.grantee, row.text): row for row in self._table.all()}
        removed = [
            rows[key]
            for grantee in dict.fromkeys(grantees)
            for text in allows
            if (key := (str(grantee), text)) in rows
        ]
        if not removed:
            named = ", ".join(f"`{grantee}`" for grantee in grantees)
            raise UnknownNameError(
                f"{named} has no grant {', '.join(allows)}.",
                hint="SHOW GRANTS lists the grants. What a token allows is changed with "
                "`paimon-coordinator token allow`.",
            )
        self._table.change((), [(row.grantee, row.text) for row in removed])
        self._when_taken()
        self.read()
        return removed

    def _from_store(self) -> Grants:
        return Grants(self._table.all())


class GrantedRights:
    """An authoriser that adds the stored grants to what `others` know of a sender."""

    def __init__(self, grants: StoredGrants, others: Authoriser) -> None:
        self._grants = grants
        self._others = others
        self._rereading = Rereading(grants)

    async def principal(self, connection: HTTPConnection) -> Principal | None:
        """See `Authoriser.principal`."""
        principal = await self._others.principal(connection)
        if principal is None or principal.name is None or principal.is_own:
            return principal
        if not self._grants.is_fresh:
            await self._rereading.read()
        if not self._grants.is_usable:  # a revoked grant might count for ever
            raise SetupError("What is granted can't be read now.", hint="Try again.")
        return self._grants.applied_to(principal)

    def challenge(self, connection: HTTPConnection) -> Response:
        """See `Authoriser.challenge`."""
        return self._others.challenge(connection)

    def routes(self) -> list[Route]:
        """See `Authoriser.routes`."""
        return self._others.routes()


def _texts(texts: Sequence[str]) -> list[str]:
    """The texts of scopes and roles as they are stored. Raises InvalidValueError."""
    roles = [str(Grantee.of(text)) for text in texts if text.startswith(_ROLE)]
    scopes = [text for text in texts if not text.startswith(_ROLE)]
    if not texts:
        raise InvalidValueError("Nothing is granted.", hint="Name a scope or a role.")
    return list(dict.fromkeys([*roles, *(map(str, grants_of(scopes)) if scopes else ())]))


def _check_no_circle(rows: Iterable[StoredGrant]) -> None:
    roles: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row.grantee.startswith(_ROLE) and row.text.startswith(_ROLE):
            roles[row.grantee].add(row.text)
    for role in list(roles):
        waiting, seen = [role], set[str]()
        while waiting:
            for text in roles.get(waiting.pop(), ()):
                if text == role:
                    raise InvalidValueError(
                        f"The role `{role.removeprefix(_ROLE)}` would have itself.",
                        hint="Revoke one of the roles in the circle first.",
                    )
                if text not in seen:
                    seen.add(text)
                    waiting.append(text)
