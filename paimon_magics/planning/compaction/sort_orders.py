"""By which columns, and how, a compaction sorts the rows of a table (`order_strategy`, `order_by`).

Source: `TableSorter.OrderType`, `CompactProcedure`.
"""

from __future__ import annotations

from dataclasses import dataclass

from paimon_magics.errors import (
    InvalidValueError,
    UnknownNameError,
    UnsupportedStatementError,
    nearest,
)
from paimon_magics.planning.options.values import integer_value
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.data_types import AtomicType

__all__ = ["SortOrder", "sort_order"]

_STRATEGIES = ("order", "zorder", "hilbert")
_UNORDERED = ("VARIANT", "BLOB")


@dataclass(frozen=True, slots=True)
class SortOrder:
    """The strategy is `order` (column after column), `zorder` or `hilbert`. Texts and binaries
    contribute `var_length_bytes` bytes to a Z curve."""

    strategy: str
    columns: tuple[str, ...]
    var_length_bytes: int = 8


def sort_order(schema: TableSchema, strategy: str | None, order_by: str | None) -> SortOrder | None:
    """The order that a call asks for; None for none.

    Raises InvalidValueError and UnknownNameError for what Paimon refuses,
    UnsupportedStatementError for a table that is not sorted.
    """
    name = (strategy or "none").lower()
    if name == "none":
        # As in Paimon, where only the word that is its default is refused with columns.
        if order_by is not None and (strategy is None or strategy == "NONE"):
            raise InvalidValueError(
                'order_strategy "none" cannot work with order_by columns.',
                hint="Give order_strategy => 'order', 'zorder' or 'hilbert'.",
            )
        return None
    if name not in _STRATEGIES:
        raise InvalidValueError(
            f"There is no order_strategy '{strategy}'.",
            hint=nearest(name, (*_STRATEGIES, "none"), what="strategies"),
        )
    columns = tuple(one.strip() for one in (order_by or "").split(",") if one.strip())
    if not columns:
        raise InvalidValueError(
            f"order_strategy '{name}' needs columns.", hint="Name them: order_by => 'a,b'."
        )
    for column in columns:
        _check_column(schema, column)
    if name == "hilbert" and len(columns) < 2:
        raise InvalidValueError(
            "A Hilbert curve needs two columns or more.",
            hint="Name another column in order_by, or use order_strategy => 'order'.",
        )
    key = "zorder.var-length-contribution"
    return SortOrder(name, columns, integer_value(key, schema.option(key) or "8"))


def _check_column(schema: TableSchema, name: str) -> None:
    names = [column.name for column in schema.columns]
    if name not in names:
        raise UnknownNameError(
            f"order_by has the column `{name}`, which the table lacks.",
            hint=nearest(name, names, what="columns"),
        )
    if name in schema.partition_keys:
        raise InvalidValueError(
            f"order_by has the partition column `{name}`: it is the same in all rows of a "
            "partition.",
            hint="Leave it out.",
        )
    kind = schema.column(name).type
    if not isinstance(kind, AtomicType) or kind.name in _UNORDERED:
        raise UnsupportedStatementError(
            f"Rows can't be sorted by `{name}`, which is a {kind}.",
            hint="Name columns of numbers, times or texts.",
        )
