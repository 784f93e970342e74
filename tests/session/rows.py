"""The rows that a query of a session gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paimon_magics import Session


def rows(
    session: Session,
    query: str,
    parameters: Mapping[str, object] | None = None,
    **options: Any,
) -> list[tuple[Any, ...]]:
    """All of them, in the query's order; `options` are those of `Session.run`."""
    found = session.run(query, parameters, **options).to_arrow()
    return [tuple(row.values()) for row in found.to_pylist()]
