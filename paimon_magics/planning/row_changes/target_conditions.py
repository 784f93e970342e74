"""Which rows of its target a MERGE needs, as conditions by which files are pruned.

A row of the target matters where ON can be TRUE for it, or where a clause NOT MATCHED BY SOURCE may
change it. Others are left out, and nothing is decided otherwise:

- MATCHED: ON is not TRUE for such a row, or no clause changes it.
- NOT MATCHED: a source row is inserted unless ON is TRUE for some row of the target. That hangs on
  ON alone: what the MATCHED clauses do to the row does not count.
- NOT MATCHED BY SOURCE: which rows match no source row is known of each row by itself, so that only
  those have to be seen that a clause would change.

The same holds for the commit: of rows that others have added meanwhile only those count that meet
these conditions, since no run of the statement on these source rows would do anything with others
(`Found`). Where the source is made of rows of the target, those count whatever ON says.
"""

from __future__ import annotations

from collections.abc import Callable

from paimon_magics.planning.row_changes.merge_query import users_text
from paimon_magics.planning.row_changes.merges import MergePlan
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.merge_into import MergeInto
from paimon_magics.statements.queries.tree import condition_filters
from paimon_magics.statements.statement import ColumnFilter, TextRange

__all__ = ["target_filters"]

_IsOwn = Callable[[str, str], bool]


def target_filters(
    merge: MergeInto, plan: MergePlan, schema: TableSchema
) -> tuple[ColumnFilter, ...]:
    """Return conditions that all rows of the target meet which matter to the MERGE. Their columns
    have the table's own names."""
    needed = [dict.fromkeys(_filters(merge, plan, schema, one)) for one in _needs(merge, plan)]
    return tuple(one for one in needed[0] if all(one in other for other in needed[1:]))


def _needs(merge: MergeInto, plan: MergePlan) -> list[tuple[tuple[TextRange, bool], ...]]:
    """What makes a row matter: all conditions of one of these. Each is a text, and whether columns
    of the source can be meant in it."""
    on = (merge.condition, True)
    found: list[tuple[tuple[TextRange, bool], ...]] = []
    if plan.numbered("NOT MATCHED"):
        found.append((on,))
    else:
        for _, clause in plan.numbered("MATCHED"):
            own = () if clause.condition is None else ((clause.condition, True),)
            found.append((on, *own))
    for _, clause in plan.numbered("NOT MATCHED BY SOURCE"):
        found.append(() if clause.condition is None else ((clause.condition, False),))
    return found


def _filters(
    merge: MergeInto,
    plan: MergePlan,
    schema: TableSchema,
    conditions: tuple[tuple[TextRange, bool], ...],
) -> list[ColumnFilter]:
    return [
        one
        for text, sees_source in conditions
        for one in _filters_of(merge, schema, text, _is_own(merge, plan, sees_source=sees_source))
    ]


def _is_own(merge: MergeInto, plan: MergePlan, *, sees_source: bool) -> _IsOwn:
    """Which columns in a text are certainly the target's. A bare name that both sides have is an
    error, which is Spark's to tell."""
    of_source = {name.lower() for name in plan.source_columns} if sees_source else set()

    def is_own(qualifier: str, name: str) -> bool:
        if qualifier:
            return qualifier.lower() == merge.target_alias.lower()
        return name.lower() not in of_source

    return is_own


def _filters_of(
    merge: MergeInto, schema: TableSchema, place: TextRange, is_own: _IsOwn
) -> list[ColumnFilter]:
    names = {name.lower(): name for name in schema.column_names}
    return [
        ColumnFilter(names[one.column.lower()], one.operator, one.values)
        for one in condition_filters(users_text(merge, place).text, is_own)
        if one.column.lower() in names
    ]
