"""Which rows of one table a query selects, for a statement that changes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from paimon_magics.planning.reads.predicates import ColumnPredicate, column_predicates
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.queries.rewriting import Replacement
from paimon_magics.statements.statement import ColumnFilter, TableName

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame

__all__ = ["Conditions", "Selection"]


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions on the rows of a table, with the values that are bound to the names in them."""

    filters: tuple[ColumnFilter, ...] = ()
    bound: tuple[tuple[str, object], ...] = ()

    def predicates(self, schema: TableSchema) -> tuple[ColumnPredicate, ...]:
        """Those by which files can be pruned."""
        return column_predicates(self.filters, schema.columns, dict(self.bound))


@dataclass(frozen=True, slots=True)
class Selection:
    """How a query selects rows of one table, to change them.

    All references to `table` read its snapshot `snapshot_id` (0 for none). The one that begins at
    `position` has all columns, or is `frame` if that is given. `replacements` make a query of the
    statement's text. With `shows_row_ids` tables that track rows have the ids as columns. With
    `conditions` only rows that meet them matter of the reference at `position`, and of its columns
    only those that the query names.
    """

    table: TableName
    snapshot_id: int
    position: int
    replacements: tuple[Replacement, ...]
    frame: DataFrame | None = None
    shows_row_ids: bool = False
    conditions: Conditions | None = None
