"""The kinds of rows of a primary-key table, by their numbers in `RowKind`."""

from __future__ import annotations

__all__ = [
    "DELETE",
    "INSERT",
    "KIND_NAMES",
    "OLDER",
    "PARTLY",
    "UNCHANGED",
    "UPDATED_KINDS",
    "UPDATE_AFTER",
    "UPDATE_BEFORE",
]

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)

KIND_NAMES = ("+I", "-U", "+U", "-D")
"""Their names in `$audit_log` and in `rowkind.field`."""

OLDER, UNCHANGED, PARTLY = range(len(KIND_NAMES), len(KIND_NAMES) + 3)
"""What an UPDATE computes in place of UPDATE_AFTER for a row that the merge engine would not take
as it is: one that would lose against the stored row, one of which no value would be taken, and one
of which some would. The first two are not written, the third is a +U in files."""

UPDATED_KINDS = (UPDATE_AFTER, PARTLY)
"""The kinds of rows that an UPDATE writes."""
