"""What the frame of a table was read from, and what a frame that was made of it needs of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pyspark.sql import DataFrame

from paimon_magics.planning.schemas.table_schema import Column as TableColumn
from paimon_magics.statements.statement import ColumnFilter

__all__ = ["Narrowed", "Source"]


@dataclass(frozen=True, slots=True)
class Narrowed:
    """What a frame needs of its table: the names of `columns` (None for all), and conditions on the
    source's `columns` that all its rows meet, with the values `bound` in them. With `rows` so many
    rows that meet the conditions are enough, whichever; None for all. `lists_null`: a condition may
    compare a column with a list that has NULL in it."""

    columns: frozenset[str] | None
    filters: tuple[ColumnFilter, ...] = ()
    bound: Mapping[str, object] = field(default_factory=dict)
    rows: int | None = None
    lists_null: bool = False


class Source(Protocol):
    """What a noted frame was read from."""

    @property
    def names(self) -> Sequence[str]:
        """The names of the frame's columns."""

    @property
    def columns(self) -> Sequence[TableColumn]:
        """Those of its columns that show a column of the table, by the names that the frame has for
        them, with the types by which the table's rows are compared."""

    @property
    def is_small(self) -> bool:
        """Whether a new frame of all its rows takes less time than the first one."""

    def row_count(self) -> int | None:
        """How many rows it has, where that is known without reading them."""

    def read(self, wanted: Narrowed) -> DataFrame | None:
        """A new frame of the same rows, without what is not wanted; None where it would read as
        much as the first one. A column that is wanted may not be left out, others may be there.
        With `wanted.rows` it may have fewer rows, but not fewer than these."""
