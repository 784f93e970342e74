"""The table of tokens that administrators have made. Of a token only a digest is stored."""

from __future__ import annotations

import json
from dataclasses import dataclass

from paimon_magics.coordinator.store.sql import Sql

__all__ = ["StoredToken", "TokenTable"]


@dataclass(frozen=True, slots=True)
class StoredToken:
    """A token without its secret. `digest` is the SHA-256 of the secret in hexadecimal; `allows`
    are the texts of its grants; times are in ms, 0 for none."""

    id: str
    name: str
    digest: str
    allows: tuple[str, ...]
    created_at_ms: int
    expires_at_ms: int = 0
    revoked_at_ms: int = 0

    def is_good(self, now_ms: int) -> bool:
        """Whether it may be used."""
        return not self.revoked_at_ms and (not self.expires_at_ms or now_ms < self.expires_at_ms)


class TokenTable:
    """The tokens, those that have ended among them."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def all(self) -> list[StoredToken]:
        """All tokens, in the order in which they were made."""
        rows = self._sql.read(
            "SELECT id, name, digest, allows, created_at_ms, expires_at_ms, revoked_at_ms "
            "FROM tokens ORDER BY created_at_ms, id"
        )
        return [
            StoredToken(id, name, digest, tuple(json.loads(allows)), made, end, revoked)
            for id, name, digest, allows, made, end, revoked in rows
        ]

    def add(self, token: StoredToken) -> None:
        """Store a new token."""
        self._sql.write(
            "INSERT INTO tokens (id, name, digest, allows, created_at_ms, expires_at_ms, "
            "revoked_at_ms) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
            token.id,
            token.name,
            token.digest,
            json.dumps(token.allows),
            token.created_at_ms,
            token.expires_at_ms,
            token.revoked_at_ms,
        )

    def renew(self, id: str, expires_at_ms: int) -> None:
        """Give a token another end, unless it was revoked."""
        self._sql.write(
            "UPDATE tokens SET expires_at_ms = ? WHERE id = ? AND revoked_at_ms = 0",
            expires_at_ms,
            id,
        )

    def revoke(self, id: str, now_ms: int) -> None:
        """Note that a token was revoked, if it was not before."""
        self._sql.write(
            "UPDATE tokens SET revoked_at_ms = ? WHERE id = ? AND revoked_at_ms = 0", now_ms, id
        )
