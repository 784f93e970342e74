"""The error for a statement that is recognized but not offered, with an alternative."""

from __future__ import annotations

from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.statements.dialects.alternatives import INSTEAD
from paimon_magics.statements.statement import Refused

_LISTED = "%paimon help lists the offered statements."


def refused(statement: Refused) -> UnsupportedStatementError:
    """Return the error for `statement`."""
    name, hint = statement.name, instead_of(statement.kind)
    if "BRANCH" in statement.kind:
        hint = (
            "Use CALL sys.create_branch, sys.rename_branch, sys.delete_branch or sys.fast_forward; "
            f"the system table `{name or 't'}$branches` lists branches."
        )
    about = f" on `{name}`" if name is not None else ""
    return UnsupportedStatementError(
        f"{statement.kind}{about} is not offered yet.",
        hint=hint,
        statement=statement.text,
        position=0,
    )


def instead_of(kind: str) -> str:
    """The alternative to a statement of this kind, found by its first words."""
    prefixes = [words for words in INSTEAD if kind.startswith(words)]
    return INSTEAD[max(prefixes, key=len)] if prefixes else _LISTED
