"""Which files have bounds of floating-point columns that pruning can rely on.

File names tell. Files written here have their footers corrected where needed
(`tables.writing.float_bounds`). Files of other writers, and files written here before that, may
leave NaN out of the bounds, so that pruning by conditions on such columns would be wrong.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.statements.data_types import AtomicType, DataType, RowType, contains_type

__all__ = [
    "MENDED_PREFIXES",
    "OWN_PREFIXES",
    "floating_columns",
    "has_true_bounds",
    "is_floating",
    "judged_by_bounds",
]

MENDED_PREFIXES = {"data-file.prefix": "mdata-", "changelog-file.prefix": "mchangelog-"}
"""What follows the transaction's prefix in the names of such files of the native writer, by the
option that sets the prefix of file names. It has no hyphen inside, because the attempt's id
follows."""

OWN_PREFIXES = {"data-file.prefix": "wdata-", "changelog-file.prefix": "wchangelog-"}
"""The same for files of the writers of our own, which stamp them otherwise
(`planning.reports.view_queries`)."""

_FLOATING = ("FLOAT", "DOUBLE")
_MENDED = re.compile(r"pm-[0-9a-f]{32}-[mw](?:data|changelog)-[^/]*\.parquet", re.IGNORECASE)


def has_true_bounds(path: str) -> bool:
    """Whether a file's name says that its bounds are right even if values are NaN or -0.0."""
    return _MENDED.fullmatch(path.rpartition("/")[2]) is not None


def is_floating(data_type: DataType) -> bool:
    """Whether the type is FLOAT or DOUBLE."""
    return isinstance(data_type, AtomicType) and data_type.name in _FLOATING


def floating_columns(columns: Sequence[Column]) -> tuple[str, ...]:
    """The names of the columns with FLOAT or DOUBLE at any level."""
    return tuple(
        column.name
        for column in columns
        if any(contains_type(column.type, name) for name in _FLOATING)
    )


def judged_by_bounds(data_type: DataType) -> bool:
    """Whether a column of this type has bounds of floating-point values: its own, or those of a
    nested field. Elements of arrays and maps have no bounds."""
    match data_type:
        case RowType(fields=fields):
            return any(judged_by_bounds(field.type) for field in fields)
        case _:
            return is_floating(data_type)
