"""Tokens with names, scopes and ends, which administrators make and revoke.

A token is `pmt_ID_SECRET`. The id finds its row; of the secret, 256 random bits, the SHA-256 is
stored and compared in constant time. Rows are read again after a few seconds, so that a token that
was revoked at another coordinator of the same store ends here, too. While the store does not
answer, the last rows count for some minutes: nobody can revoke a token then.

If the process dies between storing a token and answering, nobody has the token; it shows in the
list and can be revoked.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from paimon_magics.coordinator.protocol.clock import now_ms
from paimon_magics.coordinator.protocol.principals import Principal, grants_of
from paimon_magics.coordinator.store.tokens import StoredToken, TokenTable
from paimon_magics.errors import InvalidValueError, UnknownNameError

__all__ = ["Tokens", "is_name"]

_TOKEN = re.compile(r"pmt_([0-9a-f]{12})_([\w-]{43})")
_NAME = re.compile(r"[^\s\x00-\x1f\x7f](?:[^\x00-\x1f\x7f]{0,98}[^\s\x00-\x1f\x7f])?")
_FRESH_SECONDS = 5.0
_USED_SECONDS_MAX = 600.0
_MS_MAX = 100 * 365 * 86_400_000
# Compared where there is no row, so that an unknown id takes as long as a wrong secret.
_NOBODY = StoredToken("", "", "0" * 64, (), 0, revoked_at_ms=1)


class Tokens:
    """The tokens in a store. For any thread."""

    def __init__(self, table: TokenTable) -> None:
        self._table = table
        self._turn = threading.Lock()
        self._known: Mapping[str, tuple[StoredToken, Principal]] = {}
        self._read_at = float("-inf")

    @staticmethod
    def is_one(text: str) -> bool:
        """Whether a text has the form of such a token."""
        return _TOKEN.fullmatch(text) is not None

    @property
    def is_fresh(self) -> bool:
        """Whether the rows were read just now."""
        return time.monotonic() - self._read_at < _FRESH_SECONDS

    @property
    def is_usable(self) -> bool:
        """Whether the rows count where the store does not answer."""
        return time.monotonic() - self._read_at < _USED_SECONDS_MAX

    def principal(self, text: str) -> Principal | None:
        """Whose token a text is, by the rows that were read last; None for one that is none, or has
        ended."""
        found = _TOKEN.fullmatch(text)
        if found is None:
            return None
        stored, principal = self._known.get(found[1], (_NOBODY, None))
        digest = hashlib.sha256(found[2].encode()).hexdigest()
        is_right = hmac.compare_digest(digest, stored.digest)
        return principal if is_right and stored.is_good(now_ms()) else None

    def add(
        self, name: str, allows: Sequence[str], expires_in_ms: int | None = None
    ) -> tuple[str, StoredToken]:
        """Make a token; return its text, which is not kept, and what is stored of it.

        Raises InvalidValueError for a name that is none, and for permissions or a time that are
        wrong."""
        if not is_name(name):
            raise InvalidValueError(
                f"`{name}` can't be the name of a token.",
                hint="Use 1 to 100 printable characters; names of services of a hub begin with "
                "`service:`.",
            )
        grants = grants_of(allows)
        now = now_ms()
        id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        stored = StoredToken(
            id,
            name,
            hashlib.sha256(secret.encode()).hexdigest(),
            tuple(map(str, grants)),
            now,
            _end_ms(expires_in_ms, now),
        )
        self._table.add(stored)
        self.read()
        return f"pmt_{id}_{secret}", stored

    def all(self) -> list[StoredToken]:
        """All tokens, those that have ended among them."""
        return self._table.all()

    def revoke(self, named: str) -> list[StoredToken]:
        """End the token with an id, or all those of a name. Return them. Raises
        UnknownNameError."""
        now = now_ms()
        good = [one for one in self._named(named) if one.is_good(now)]
        for one in good:
            self._table.revoke(one.id, now)
        self.read()
        return good

    def renew(self, named: str, expires_in_ms: int | None = None) -> list[StoredToken]:
        """Give the token with an id, or all of a name, another end from now, also after the old
        one: clients whose token can't be exchanged go on with it. Return them; none that was
        revoked.
        Raises UnknownNameError, and InvalidValueError for a time that is wrong."""
        end = _end_ms(expires_in_ms, now_ms())
        found = [one for one in self._named(named) if not one.revoked_at_ms]
        for one in found:
            self._table.renew(one.id, end)
        self.read()
        return [replace(one, expires_at_ms=end) for one in found]

    def _named(self, named: str) -> list[StoredToken]:
        found = [one for one in self._table.all() if named in (one.id, one.name)]
        if not found:
            raise UnknownNameError(
                f"There is no token `{named}`.",
                hint="`paimon-coordinator token list` shows ids and names.",
            )
        return found

    def read(self) -> None:
        """Read the rows. Raises errors of the store."""
        began = time.monotonic()
        known = {
            one.id: (one, Principal.granted(one.name, grants_of(one.allows), f"token {one.id}"))
            for one in self._table.all()
        }
        with self._turn:
            if began > self._read_at:
                self._known, self._read_at = known, began


def is_name(name: str) -> bool:
    """Whether a text can be the name of a token's user. Names of a hub's services can't."""
    return _NAME.fullmatch(name) is not None and not name.startswith("service:")


def _end_ms(expires_in_ms: int | None, now: int) -> int:
    if expires_in_ms is None:
        return 0
    if not 0 < expires_in_ms <= _MS_MAX:
        raise InvalidValueError(
            "The token would end before it is used, or after a hundred years.",
            hint="Say how long it is good, as 90d or 12h.",
        )
    return now + expires_in_ms
