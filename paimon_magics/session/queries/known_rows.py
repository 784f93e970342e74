"""The results of aggregates that are known without reading a table's rows, as a relation of SQL."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from paimon_magics.session.connection import Connection
from paimon_magics.session.queries.held_snapshots import HeldSnapshots
from paimon_magics.session.queries.planned_reads import planned_read
from paimon_magics.session.queries.relations import Relation
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.queries.whole_aggregates import AggregateCall
from paimon_magics.statements.types.type_text import to_spark_sql
from paimon_magics.tables.reading.data_read import DataRead
from paimon_magics.tables.reading.known_rows import are_decided, known_bounds, row_count

__all__ = ["known_row"]


def known_row(
    connection: Connection,
    relation: Relation,
    calls: Sequence[AggregateCall],
    held: HeldSnapshots,
) -> str | None:
    """A relation of one row with the results of `calls`, named as they are; None where they are not
    known from manifests."""
    with_bounds = any(call.column is not None for call in calls)
    read = planned_read(connection, relation, held, with_entries=with_bounds).read
    if not are_decided(read, relation.filters):
        return None
    found = {call.name: _value(read, call) for call in calls}
    if None in found.values():
        return None
    values = ", ".join(value for value in found.values() if value is not None)
    names = ", ".join(map(quoted, found))
    return f"(VALUES ({values}) AS known ({names}))"


def _value(read: DataRead, call: AggregateCall) -> str | None:
    """The result of a call as a literal."""
    if call.column is None:
        rows = row_count(read)
        return None if rows is None else f"{rows}L"
    named = [one for one in read.schema.columns if one.name.lower() == call.column.lower()]
    if len(named) != 1:
        return None
    bounds = known_bounds(read, read.schemas.columns, named[0])
    if bounds is None:
        return None
    value = bounds.least if call.function == "min" else bounds.greatest
    match value:
        case None:
            text = "NULL"
        case datetime.date():
            text = f"'{value.isoformat()}'"
        case _:
            text = str(value)
    return f"CAST({text} AS {to_spark_sql(named[0].type)})"
