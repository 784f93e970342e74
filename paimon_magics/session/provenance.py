"""Provenance: the properties that a session writes into its snapshots on where they come from."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from paimon_magics.origin import notebook_name, user_name
from paimon_magics.planning.formatting import shortened
from paimon_magics.redaction import redacted
from paimon_magics.session.scope import StatementScope
from paimon_magics.statements.lexing.tokens import without_values
from paimon_magics.tables.snapshots.provenance import PREFIX

_HASH_CHARACTERS = 16
_TEXT_MAX = 2_000  # each snapshot has it


@dataclass(frozen=True, slots=True)
class Operation:
    """What a statement has done: the kind of statement, and its rows by what became of them."""

    name: str
    inserted: int = 0
    updated: int = 0
    deleted: int = 0


def engine_name(spark_version: str) -> str:
    """The name of the engine, as snapshots and transactions record it."""
    return f"spark {spark_version}"


def provenance(
    scope: StatementScope,
    statement: str,
    operation: Operation,
    *,
    rows: int = 0,
    files: int = 0,
    seconds: float | None = None,
) -> tuple[tuple[str, str], ...]:
    """The properties of a snapshot: who made it with what, and what the statement was and did.

    Secrets are never in the statement's text. The setting `statement_history` leaves out its
    values, or all of it: every reader of the table may see a snapshot.
    """
    text = ""
    if scope.settings.statement_history != "none":
        text = redacted(statement)
        if scope.settings.statement_history == "redacted":
            text = without_values(text)
    noted = {
        "user": user_name(),
        "notebook": notebook_name(),
        "engine": engine_name(scope.spark.version),
        "operation": operation.name,
        "statement": hashlib.sha256(statement.encode()).hexdigest()[:_HASH_CHARACTERS],
        "sql": shortened(text.strip(), _TEXT_MAX),
        "rows": str(rows),
        "files": str(files),
        "inserted": str(operation.inserted or ""),
        "updated": str(operation.updated or ""),
        "deleted": str(operation.deleted or ""),
        "seconds": "" if seconds is None else f"{seconds:.3f}",
    }
    return tuple((PREFIX + key, value) for key, value in noted.items() if value)
