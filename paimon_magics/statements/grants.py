"""GRANT, REVOKE and SHOW GRANTS: who may do what with which tables."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_magics.statements.statement import StatementText

SCOPES = ("READ", "INSERT", "CHANGE", "ALTER", "MAINTAIN", "WRITE", "ADMIN")
"""The scopes that can be granted."""


@dataclass(frozen=True, slots=True)
class GrantedTables:
    """Tables by pattern, in which `*` stands for any text. `database` is None for a table of the
    current database, `*` with `table` `*` for the whole warehouse."""

    database: str | None
    table: str


@dataclass(frozen=True, slots=True)
class ChangeGrants(StatementText):
    """GRANT or REVOKE of scopes on tables, or of roles.

    `grantees` are texts such as `user:alice`, `role:analysts` and `group:sales`.
    """

    is_revoke: bool
    scopes: tuple[str, ...]
    tables: GrantedTables | None
    roles: tuple[str, ...]
    grantees: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShowGrants(StatementText):
    """SHOW GRANTS [ON …] [TO …]."""

    tables: GrantedTables | None = None
    grantee: str | None = None
