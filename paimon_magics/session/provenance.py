"""What a session writes into its snapshots about where they come from."""

from __future__ import annotations

import getpass
import hashlib
import os

from paimon_magics.tables.provenance import PREFIX

__all__ = ["provenance"]

_HASH_CHARACTERS = 16


def provenance(
    statement: str, spark_version: str, *, rows: int, files: int
) -> tuple[tuple[str, str], ...]:
    """The properties of a snapshot: user, notebook, engine, a hash of the statement, rows, files.

    The statement itself is not kept: it may hold values that not every reader of the table may see.
    """
    noted = {
        "user": os.environ.get("JUPYTERHUB_USER") or _user(),
        "notebook": os.environ.get("JPY_SESSION_NAME", ""),
        "engine": f"spark {spark_version}",
        "statement": hashlib.sha256(statement.encode()).hexdigest()[:_HASH_CHARACTERS],
        "rows": str(rows),
        "files": str(files),
    }
    return tuple((PREFIX + key, value) for key, value in noted.items() if value)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return ""
