"""Queries that give the rows of reports on changes: between two states, and of `$binlog`.

Pure. `changes` is a query with the table's columns and a column `change` ("added", "removed" or
"changed"); for updates, the struct `before` has the row before the update.
"""

from __future__ import annotations

from collections.abc import Sequence

from paimon_magics.planning.reads.views import SEQUENCE_NUMBER
from paimon_magics.statements.clauses.names import quoted

__all__ = [
    "CHANGES",
    "counts_sql",
    "grown_sql",
    "kinds_sql",
    "single_changes_sql",
]

CHANGES = ("added", "removed", "changed")


def counts_sql(changes: str, partition: str) -> str:
    """Count the changed rows by partition and kind of change. `partition` is the SQL expression of
    a row's partition (`PartitionNames.of_rows`)."""
    sums = ", ".join(f"count_if(`change` = '{word}') AS {word}" for word in CHANGES)
    return f"SELECT {partition} AS partition, {sums} FROM ({changes}) GROUP BY 1 ORDER BY 1"


def grown_sql(new_rows: str, partition: str) -> str:
    """Count as `counts_sql` does, where rows were only added."""
    none = ", ".join(f"CAST(0 AS BIGINT) AS {word}" for word in CHANGES[1:])
    return (
        f"SELECT {partition} AS partition, count(*) AS added, {none} FROM ({new_rows}) "
        "GROUP BY 1 ORDER BY 1"
    )


def kinds_sql(changes: str, columns: Sequence[str], *, is_paired: bool) -> str:
    """The changed rows with their `rowkind`; with `is_paired`, an update is two rows, -U and +U."""

    def row(kind: str, source: str = "") -> str:
        values = (f"{source}{quoted(name)} AS {quoted(name)}" for name in columns)
        return f"struct('{kind}' AS rowkind, {', '.join(values)})"

    if not is_paired:
        names = ", ".join(map(quoted, columns))
        return f"SELECT if(`change` = 'removed', '-D', '+I') AS rowkind, {names} FROM ({changes})"
    return (
        f"SELECT inline(CASE `change` WHEN 'changed' THEN array({row('-U', '`before`.')}, "
        f"{row('+U')}) WHEN 'removed' THEN array({row('-D')}) ELSE array({row('+I')}) END) "
        f"FROM ({changes})"
    )


def single_changes_sql(binlog: str, columns: Sequence[str]) -> str:
    """The rows of a query on a `$binlog`, where an update becomes two rows, -U and +U."""

    def row(kind: str, place: int) -> str:
        values = (
            f"{quoted(n) if n == SEQUENCE_NUMBER else f'get({quoted(n)}, {place})'} AS {quoted(n)}"
            for n in columns
        )
        return f"struct({kind} AS rowkind, {', '.join(values)})"

    # A column has one value for each row of the change.
    size = f"size({quoted(next(n for n in columns if n != SEQUENCE_NUMBER))})"
    before, after = row("'-U'", 0), row("'+U'", 1)
    single = f"array({row('rowkind', 0)})"
    return f"SELECT inline(if({size} = 2, array({before}, {after}), {single})) FROM ({binlog})"
