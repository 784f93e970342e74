"""The kinds of rows of a primary-key table, by their numbers in `RowKind`."""

from __future__ import annotations

__all__ = ["DELETE", "INSERT", "KIND_NAMES", "UPDATE_AFTER", "UPDATE_BEFORE"]

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)

KIND_NAMES = ("+I", "-U", "+U", "-D")
"""Their names in `$audit_log` and in `rowkind.field`."""
