"""GRANT, REVOKE and SHOW GRANTS: the coordinator keeps what is granted, and enforces it."""

from __future__ import annotations

import re

from paimon_magics.columnar.time_zones import moment_text
from paimon_magics.coordinator.client.administration import GrantRow
from paimon_magics.planning.formatting import count_text
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.scope import StatementScope
from paimon_magics.session.statements.handler import listing
from paimon_magics.statements.statement import ChangeGrants, GrantedTables, ShowGrants


def change_grants(scope: StatementScope, statement: ChangeGrants) -> Outcome:
    """Carry out GRANT or REVOKE. Raises SetupError without a coordinator's service."""
    allows = [f"role:{role}" for role in statement.roles]
    if statement.tables is not None:
        place = _place(scope, statement.tables)
        is_everywhere = place == "*.*"
        allows += [s.lower() if is_everywhere else f"{s.lower()}={place}" for s in statement.scopes]
    grants = scope.committer.administration().grants
    change = grants.revoke if statement.is_revoke else grants.grant
    changed = change(list(statement.grantees), allows)
    word = "REVOKE" if statement.is_revoke else "GRANT"
    lines = [f"{row.allow} {'from' if statement.is_revoke else 'to'} {row.to}" for row in changed]
    done = "; ".join(lines) or "they had it before"
    return Outcome(
        statement=statement.text,
        kind=word,
        message=f"{word}: {count_text(len(changed), 'grant')} changed ({done}). In force within "
        "two seconds.",
    )


def show_grants(scope: StatementScope, statement: ShowGrants) -> Outcome:
    """SHOW GRANTS: all of them for administrators, for others those that are theirs."""
    rows = scope.committer.administration().grants.all()
    if statement.grantee is not None:
        rows = [row for row in rows if row.to == statement.grantee]
    if statement.tables is not None:
        place = _place(scope, statement.tables)
        rows = [row for row in rows if _covers(row, place)]
    columns = {
        "grantee": [row.to for row in rows],
        "scope": [_scope(row).upper() for row in rows],
        "tables": [_tables(row) for row in rows],
        "granted_by": [row.by for row in rows],
        "granted_at": [moment_text(row.at_ms, scope.zone) for row in rows],
    }
    return listing(scope, statement, "SHOW GRANTS", columns)


def _place(scope: StatementScope, tables: GrantedTables) -> str:
    return f"{tables.database or scope.database}.{tables.table}"


def _scope(row: GrantRow) -> str:
    return "ROLE" if row.is_role else row.allow.partition("=")[0]


def _tables(row: GrantRow) -> str:
    if row.is_role:
        return row.allow.removeprefix("role:")
    return row.allow.partition("=")[2] or "*.*"


def _covers(row: GrantRow, place: str) -> bool:
    pattern = ".*".join(map(re.escape, _tables(row).split("*")))
    return not row.is_role and re.fullmatch(pattern, place, re.DOTALL) is not None
