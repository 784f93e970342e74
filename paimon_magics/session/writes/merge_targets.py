"""The rows of its target that a MERGE reads: columns that it needs, of files that can have rows
which matter to it (`planning/row_changes/target_conditions.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from paimon_magics.planning.reads.predicates import ColumnPredicate
from paimon_magics.planning.reads.views import row_id_columns
from paimon_magics.planning.row_changes.merge_query import needed_columns
from paimon_magics.planning.row_changes.merged_updates import MergedUpdate
from paimon_magics.planning.row_changes.merges import MergePlan
from paimon_magics.planning.row_changes.target_conditions import target_filters
from paimon_magics.session.connection import Connection
from paimon_magics.session.parameters import bind
from paimon_magics.session.planned_work import reads_of
from paimon_magics.session.queries.frames import frame_of_query
from paimon_magics.session.queries.selections import Conditions, Selection
from paimon_magics.session.writes.merge_places import MergePlaces, merge_places
from paimon_magics.statements.clauses.names import quoted, table_text
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.merge_into import MergeInto
from paimon_magics.statements.queries.used_columns import used_names
from paimon_magics.statements.statement import Query
from paimon_magics.tables.row_changes.looked_up_keys import LookedUpKeys
from paimon_magics.tables.splits.file_pruning import PruningStep
from paimon_magics.tables.table import Table

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame

__all__ = ["MergeOnTable", "MergeTarget", "merge_target", "target_conditions", "without_rows"]


@dataclass(frozen=True)
class MergeOnTable:
    """A MERGE with what is known of its table: what its clauses do, and the snapshot `chosen` that
    it changes. `merged` says what the merge engine makes of updated rows, in a table with keys."""

    connection: Connection
    merge: MergeInto
    plan: MergePlan
    table: Table
    chosen: Selection
    parameters: Mapping[str, object]
    merged: MergedUpdate | None = None

    @property
    def bound(self) -> dict[str, object]:
        """The values of the bind names from ON to the end."""
        merge = self.merge
        names = merge.within.parameters
        return bind(names, self.parameters, merge.text, self.connection.zone)

    @property
    def has_places(self) -> bool:
        """Whether rows of the target are changed by their places in files."""
        return not self.table.schema.is_primary_key_table and not self.plan.only_inserts


@dataclass(frozen=True)
class MergeTarget:
    """The rows of the table's snapshot as `frame`: the table's columns at the positions `needed`,
    and the columns `more`. Rows that matter meet `predicates`, by which files were left out in
    `pruning_steps`. `places` are set where rows without keys change."""

    frame: DataFrame
    needed: tuple[int, ...]
    more: tuple[str, ...]
    predicates: tuple[ColumnPredicate, ...]
    pruning_steps: tuple[PruningStep, ...]
    places: MergePlaces | None = None


def target_conditions(on: MergeOnTable) -> Conditions:
    """The conditions that rows of the target meet which matter, as the statement says them."""
    filters = target_filters(on.merge, on.plan, on.table.schema)
    bound = on.bound
    names = {value.text for one in filters for value in one.values if value.kind == "parameter"}
    return Conditions(filters, tuple((name, bound[name]) for name in sorted(names)))


def without_rows(on: MergeOnTable) -> MergeOnTable:
    """The same MERGE on the table before its first snapshot, to check the statement: its files are
    not looked at."""
    return replace(on, chosen=replace(on.chosen, snapshot_id=0))


def merge_target(
    on: MergeOnTable, conditions: Conditions, keys: LookedUpKeys | None = None
) -> MergeTarget:
    """Plan the read of the rows of files that can meet the conditions, where rows have places only
    of those with the values of `keys`; nothing runs. Raises
    UnsupportedStatementError for files whose rows can't be changed so."""
    merge, plan, table, schema = on.merge, on.plan, on.table, on.table.schema
    predicates = conditions.predicates(schema)
    if on.has_places:
        base = on.chosen.snapshot_id
        places = merge_places(on.connection, merge, plan, table, base, predicates, keys)
        steps = () if places.plan is None else places.plan.pruning_steps
        return MergeTarget(places.frame, places.needed, places.more, predicates, steps, places)
    compared = () if on.merged is None else on.merged.compared
    needed = needed_columns(merge, plan, schema.column_names, compared=compared)
    ids = row_id_columns(schema, used_names(merge.text, merge.within))
    names = [*(schema.columns[at].name for at in needed), *(one.name for one in ids)]
    listed = ", ".join(quoted(name) for name in names)
    query = parse_statement(f"SELECT {listed} FROM {table_text(table.name)}")
    assert isinstance(query, Query)
    position = query.query.references[0].range.start
    chosen = replace(on.chosen, position=position, conditions=conditions)
    frame = frame_of_query(on.connection, query.text, query.query, {}, selection=chosen)
    steps = reads_of(frame).planned[-1].pruning_steps
    return MergeTarget(frame, needed, (), predicates, steps)
