"""Provenance: the properties that a session writes into its snapshots on where they come from."""

from __future__ import annotations

import hashlib

from paimon_magics.origin import notebook_name, user_name
from paimon_magics.tables.snapshots.provenance import PREFIX

__all__ = ["engine_name", "provenance"]

_HASH_CHARACTERS = 16


def engine_name(spark_version: str) -> str:
    """The name of the engine, as snapshots and transactions record it."""
    return f"spark {spark_version}"


def provenance(
    statement: str, spark_version: str, *, rows: int, files: int
) -> tuple[tuple[str, str], ...]:
    """The properties of a snapshot: user, notebook, engine, a hash of the statement, rows, files.

    The statement itself is not kept: it may hold values that not every reader of the table may see.
    """
    noted = {
        "user": user_name(),
        "notebook": notebook_name(),
        "engine": engine_name(spark_version),
        "statement": hashlib.sha256(statement.encode()).hexdigest()[:_HASH_CHARACTERS],
        "rows": str(rows),
        "files": str(files),
    }
    return tuple((PREFIX + key, value) for key, value in noted.items() if value)
