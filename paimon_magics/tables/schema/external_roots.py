"""The folders outside a table's own that its options name for its files."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from pypaimon.schema.schema_manager import SchemaManager

__all__ = ["external_roots"]

_OPTIONS = ("data-file.external-paths", "global-index.external-path")
_MAIN = "main"


def external_roots(paimon: Any) -> list[str]:
    """The folders that any schema of a table (pypaimon's `paimon`) or of its branches names. A
    schema that can't be read names none."""
    branches = [_MAIN, *(str(name) for name in paimon.branch_manager().branches())]
    found: dict[str, None] = {}
    for branch in branches:
        manager = SchemaManager(paimon.file_io, paimon.table_path, branch)
        for options in _options_of(manager):
            for key in _OPTIONS:
                roots = str(options.get(key) or "").split(",")
                found |= {root.strip(): None for root in roots if root.strip()}
    return list(found)


def _options_of(manager: Any) -> list[dict[str, str]]:
    options: list[dict[str, str]] = []
    with suppress(Exception):
        latest = manager.latest()
        for schema_id in range(0 if latest is None else latest.id + 1):
            with suppress(Exception):
                schema = manager.get_schema(schema_id)
                options += [] if schema is None else [schema.options or {}]
    return options
