"""Rows page by page, in the order and under the conditions that the user asks for.

Rows that are in this process are sorted and filtered here. The rows of a query stay in Spark: a
page is fetched with some rows that follow it, and no more than that is kept.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from paimon_magics.columnar.row_filters import filtered, kinds_of
from paimon_magics.errors import StatementError
from paimon_magics.planning.reads.row_filters import (
    ColumnKind,
    RowFilter,
    condition_sql,
    filter_sql,
)
from paimon_magics.statements.clauses.names import quoted

if TYPE_CHECKING:
    import pyarrow as pa

    from paimon_magics.session.outcome import Outcome
    from paimon_magics.spark.handles import DataFrame

_WINDOW_ROWS = 1_000


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows from offset `offset` on. `total` is the number of all rows, None if it is not
    counted; `follow` says whether more rows come after these."""

    rows: pa.Table
    offset: int
    follow: bool
    total: int | None


class Rows(Protocol):
    """A source of pages. `kinds` says what can be asked of each column."""

    kinds: dict[str, ColumnKind]

    def page(self, row_filter: RowFilter, offset: int, count: int) -> Page:
        """Return at most `count` rows. Raises InvalidValueError and what Spark raises."""

    def sql(self, row_filter: RowFilter) -> str:
        """The query that gives these rows; "" where none does."""


class ArrowRows:
    """Rows in this process's memory. `query` is the query or table that gives them; `given` names
    the columns that it gives, None for all."""

    def __init__(self, rows: pa.Table, query: str, columns: Sequence[str] | None = None) -> None:
        self._rows, self._query, self._columns = rows, query, columns
        self.kinds = kinds_of(rows.schema)
        self._seen: tuple[RowFilter, pa.Table] = RowFilter(), rows

    def page(self, row_filter: RowFilter, offset: int, count: int) -> Page:
        """See Rows."""
        self.sql(row_filter)  # refuses invalid filters
        if self._seen[0] != row_filter:
            self._seen = row_filter, filtered(self._rows, row_filter, self.kinds)
        matching = self._seen[1]
        return Page(
            matching.slice(offset, count),
            offset,
            matching.num_rows > offset + count,
            matching.num_rows,
        )

    def sql(self, row_filter: RowFilter) -> str:
        """See Rows."""
        return filter_sql(self._query, row_filter, self.kinds, self._columns)


class QueryRows:
    """Rows of a query, which Spark sorts and filters.

    The Outcome is not kept alive, since it keeps its snapshots from expiring. If neither the query
    nor the user orders the rows, their order may differ from fetch to fetch.
    """

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = weakref.ref(outcome)
        self._query, self._columns = outcome.sql, outcome.in_query
        first = outcome.page()
        self.kinds = kinds_of(first.schema)
        self._window: tuple[RowFilter, int, pa.Table] = RowFilter(), 0, first

    def page(self, row_filter: RowFilter, offset: int, count: int) -> Page:
        """See Rows. One Spark job at most."""
        self.sql(row_filter)
        seen, start, rows = self._window
        end = start + rows.num_rows
        has_all = seen == row_filter and start <= offset and (offset + count < end)
        if not has_all:
            start, rows = offset, self._fetched(row_filter, offset, max(_WINDOW_ROWS, count) + 1)
            self._window = row_filter, start, rows
        matching = rows.slice(offset - start, count)
        follow = start + rows.num_rows > offset + count
        is_end = not follow and (matching.num_rows > 0 or offset == 0)
        total = offset + matching.num_rows if is_end else None
        return Page(matching, offset, follow, total)

    def sql(self, row_filter: RowFilter) -> str:
        """See Rows."""
        return filter_sql(self._query, row_filter, self.kinds, self._columns)

    def _fetched(self, row_filter: RowFilter, offset: int, count: int) -> pa.Table:
        outcome = self._outcome()
        if outcome is None:
            raise StatementError(
                "The session no longer keeps this result.", hint="Run its cell again."
            )

        def fetch(frame: DataFrame) -> pa.Table:
            for condition in row_filter.conditions:
                frame = frame.filter(condition_sql(condition, self.kinds))
            if row_filter.orders:
                names = [frame[quoted(order.column)] for order in row_filter.orders]
                frame = frame.orderBy(
                    *(
                        name.desc_nulls_last() if order.descending else name.asc_nulls_last()
                        for name, order in zip(names, row_filter.orders, strict=True)
                    )
                )
            return (frame.offset(offset) if offset else frame).limit(count).toArrow()

        return outcome.fetched(fetch)


def rows_of(outcome: Outcome) -> Rows:
    """Return the rows of an Outcome that shows rows. If all are fetched, no job is needed."""
    page = outcome.page()
    if page.num_rows <= outcome.display_rows:
        return ArrowRows(page, outcome.sql, outcome.in_query)
    return QueryRows(outcome)
