"""Which files are known to have bounds of floating-point columns that no reader prunes wrongly by.

The names of files tell: of those that are written here the footers are mended where they have to be
(`tables.writing.float_bounds`). Those of other writers, and those written here before, may leave
NaN out of
the bounds, so that conditions on such columns must not be judged by them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.statements.data_types import AtomicType, DataType, RowType, contains_type

__all__ = [
    "MENDED_PREFIXES",
    "floating_columns",
    "has_true_bounds",
    "is_floating",
    "judged_by_bounds",
]

MENDED_PREFIXES = {"data-file.prefix": "mdata-", "changelog-file.prefix": "mchangelog-"}
"""What stands behind a transaction's prefix in the names of such files, by the option that says
how files are called. Without a hyphen in it: the attempt's id follows."""

_FLOATING = ("FLOAT", "DOUBLE")
_MENDED = re.compile(r"pm-[0-9a-f]{32}-m(?:data|changelog)-[^/]*\.parquet", re.IGNORECASE)


def has_true_bounds(path: str) -> bool:
    """Whether the name of a file tells that its bounds are right, NaN and -0.0 among the values."""
    return _MENDED.fullmatch(path.rpartition("/")[2]) is not None


def is_floating(data_type: DataType) -> bool:
    """Whether the type is FLOAT or DOUBLE."""
    return isinstance(data_type, AtomicType) and data_type.name in _FLOATING


def floating_columns(columns: Sequence[Column]) -> tuple[str, ...]:
    """The columns with FLOAT or DOUBLE at any level."""
    return tuple(
        column.name
        for column in columns
        if any(contains_type(column.type, name) for name in _FLOATING)
    )


def judged_by_bounds(data_type: DataType) -> bool:
    """Whether conditions on floating-point values in a column of that type can be judged by bounds:
    on itself, or on a field in it. Elements of arrays and maps have none."""
    match data_type:
        case RowType(fields=fields):
            return any(judged_by_bounds(field.type) for field in fields)
        case _:
            return is_floating(data_type)
