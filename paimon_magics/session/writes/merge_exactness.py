"""Rows that a program gives to a MERGE are stored unchanged or refused, like those of a write.

A value that a clause computes is cast as Spark casts it; one that a clause takes from the frame as
it is, `s.price` or `*`, is the program's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.session.connection import Connection
from paimon_magics.session.writes.exactness import check_exact
from paimon_magics.statements.merge_into import DeleteAction, MergeInto

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame

__all__ = ["check_own_rows"]

_OF_SOURCE = re.compile(r"[\s(]*s\s*\.\s*(?:`((?:[^`]|``)+)`|(\w+))[\s)]*", re.IGNORECASE)


def check_own_rows(connection: Connection, merge: MergeInto, source: DataFrame) -> None:
    """Raise InvalidValueError for the first value of `source`, the MERGE's `s`, that a column would
    change. It names row, column and type."""
    if connection.settings.store_assignment == "ansi":
        return
    schema = connection.load(merge.target, merge.text, merge.target_position).schema
    places = {name.lower(): place for place, name in enumerate(source.columns)}
    stored: dict[int, list[Column]] = {}
    for name, column in dict.fromkeys(_taken(merge, schema)):
        if name.lower() in places:
            stored.setdefault(places[name.lower()], []).append(column)
    while stored:
        check_exact(source, [stored.get(at, [None])[-1] for at in range(len(places))])
        stored = {at: columns[:-1] for at, columns in stored.items() if columns[1:]}


def _taken(merge: MergeInto, schema: TableSchema) -> Iterator[tuple[str, Column]]:
    """The source's columns that clauses take as they are, with the columns that store them."""
    by_name = {column.name.lower(): column for column in schema.columns}
    for clause in merge.clauses:
        action = clause.action
        if isinstance(action, DeleteAction):
            continue
        if action.assignments is None:
            yield from ((column.name, column) for column in schema.columns)
            continue
        for assignment in action.assignments:
            column = by_name.get(assignment.path[-1].lower())
            value = assignment.value
            if column is None or value is None:
                continue
            taken = _OF_SOURCE.fullmatch(merge.text[value.start : value.end])
            if taken is not None:
                yield (taken[1] or "").replace("``", "`") or taken[2], column
