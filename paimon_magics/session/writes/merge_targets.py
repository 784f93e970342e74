"""The rows of its target that a MERGE reads: columns that it needs, of files that can have rows
which matter to it (`planning/row_changes/target_conditions.py`).

Where the files are large, the source is asked first for the range of the values by which ON looks
rows up. The source is kept by Spark from then on, so that it is computed once, and what the range
was found of is what is joined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from paimon_magics.planning.reads.predicates import ColumnPredicate
from paimon_magics.planning.reads.views import row_id_columns
from paimon_magics.planning.row_changes.merge_query import needed_columns, users_text
from paimon_magics.planning.row_changes.merges import MergePlan
from paimon_magics.planning.row_changes.source_keys import (
    SourceKey,
    compare_alike,
    range_filters,
    source_keys,
)
from paimon_magics.planning.row_changes.target_conditions import target_filters
from paimon_magics.session.connection import Connection
from paimon_magics.session.parameters import bind
from paimon_magics.session.planned_work import Reads, note_reads, planned_bytes, reads_of
from paimon_magics.session.queries.frames import frame_of_query, read_plan
from paimon_magics.session.queries.relations import Relation
from paimon_magics.session.queries.selections import Conditions, Selection
from paimon_magics.session.writes.merge_places import MergePlaces, merge_places
from paimon_magics.spark.failures import translate
from paimon_magics.spark.progress import doing
from paimon_magics.spark.queries import binding_replacements, cancellable, frame_of_text
from paimon_magics.spark.source_keys import key_ranges, type_of, within
from paimon_magics.statements.clauses.names import quoted, table_text
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.merge_into import MergeInto
from paimon_magics.statements.queries.rewriting import joined_text
from paimon_magics.statements.queries.used_columns import used_names
from paimon_magics.statements.statement import Query
from paimon_magics.tables.manifests.live_files import ManifestCache, live_files
from paimon_magics.tables.row_changes.table_changes import plan_table_change
from paimon_magics.tables.snapshots.latest import read_snapshot
from paimon_magics.tables.splits.file_pruning import PruningStep
from paimon_magics.tables.table import Table

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame

__all__ = [
    "AskedSource",
    "MergeOnTable",
    "MergeTarget",
    "asked_source",
    "merge_target",
    "range_keys",
    "target_conditions",
    "without_rows",
]

_KEY = "__paimon_magics_key_"


@dataclass(frozen=True)
class MergeOnTable:
    """A MERGE with what is known of its table: what its clauses do, and the snapshot `chosen` that
    it changes."""

    connection: Connection
    merge: MergeInto
    plan: MergePlan
    table: Table
    chosen: Selection
    parameters: Mapping[str, object]

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


@dataclass(frozen=True)
class AskedSource:
    """The source of a MERGE, that Spark keeps, and the conditions that its range of keys adds."""

    frame: DataFrame
    conditions: Conditions


def target_conditions(on: MergeOnTable) -> Conditions:
    """The conditions that rows of the target meet which matter, as the statement says them."""
    filters = target_filters(on.merge, on.plan, on.table.schema)
    bound = on.bound
    names = {value.text for one in filters for value in one.values if value.kind == "parameter"}
    return Conditions(filters, tuple((name, bound[name]) for name in sorted(names)))


def range_keys(on: MergeOnTable, conditions: Conditions) -> tuple[SourceKey, ...]:
    """The values of the source whose range is worth a job: with it files may be left out of those
    that the conditions leave, and those are large."""
    certain = {one.column for one in conditions.filters if one.operator == "="}
    found = source_keys(on.merge, on.plan, on.table.schema)
    keys = tuple(key for key in found if key.column not in certain)
    least = on.connection.settings.source_range_from_bytes
    # Most tables are small as a whole: then no read is planned to know that.
    is_large = bool(keys) and _all_bytes(on) >= least and _size_bytes(on, conditions) >= least
    return keys if is_large else ()


def asked_source(
    on: MergeOnTable,
    keys: Sequence[SourceKey],
    conditions: Conditions,
    source: DataFrame,
    kept: ExitStack,
) -> AskedSource | None:
    """Find the ranges of `keys` by one job on the source, which Spark keeps from then on, until
    `kept` is closed. None where they say nothing, and where the source is the larger side."""
    reads = reads_of(source)
    is_of_tables = len(reads.planned) == len(reads.names)
    size_bytes = planned_bytes(reads) if is_of_tables else 0
    is_large = size_bytes > on.connection.settings.source_range_from_bytes
    if is_large and size_bytes > _size_bytes(on, conditions):
        return None
    keyed = _with_keys(on, keys, source)
    if keyed is None:
        return None
    level = source.storageLevel
    if not (level.useMemory or level.useDisk):  # else it is the user's to release
        kept.callback(source.persist().unpersist)
    frame, names = keyed
    try:
        with doing("looking up the source's keys"), cancellable(on.connection.spark):
            ranges = key_ranges(frame, names)
    except Exception as error:
        raise translate(error, statement=on.merge.text) from error
    if not ranges:
        return None
    filters, bound = range_filters(tuple(ranges.values()))
    read = note_reads(within(frame, ranges).drop(*names), reads)
    more = Conditions((*conditions.filters, *filters), (*conditions.bound, *sorted(bound.items())))
    return AskedSource(read, more)


def without_rows(on: MergeOnTable) -> MergeOnTable:
    """The same MERGE on the table before its first snapshot, to check the statement: its files are
    not looked at."""
    return replace(on, chosen=replace(on.chosen, snapshot_id=0))


def _with_keys(
    on: MergeOnTable, keys: Sequence[SourceKey], source: DataFrame
) -> tuple[DataFrame, dict[str, SourceKey]] | None:
    """The source with a column for each key that compares as its column of the target does; None if
    there is none. Nothing runs."""
    merge, spark, views, bound = on.merge, on.connection.spark, on.connection.views, on.bound
    replaced = binding_replacements(spark, merge.text, merge.within, bound)
    alias = quoted(merge.source_alias)

    def frame_of(keys: Mapping[str, SourceKey]) -> DataFrame:
        columns = [
            part
            for name, key in keys.items()
            for part in (", (", users_text(merge, key.value, replaced), f") AS {quoted(name)}")
        ]
        text = joined_text([f"SELECT {alias}.*", *columns, f" FROM {quoted(view)} AS {alias}"])
        frame = frame_of_text(spark, merge.text, text, bound)
        views.read_by(frame, {view})
        return frame

    try:
        view = views.pass_by(source)
        found: dict[str, SourceKey] = {}
        for number, key in enumerate(keys):
            name = f"{_KEY}{number}"
            try:
                of_value = type_of(frame_of({name: key}), name)
            except Exception:
                # The source alone does not say what it is: then the statement is wrong, or the
                # expression means the target. The join tells.
                continue
            column = on.table.schema.column(key.column)
            if of_value is not None and compare_alike(column.type, of_value):
                found[name] = key
        return (frame_of(found), found) if found else None
    finally:
        views.drop_passing()


def merge_target(on: MergeOnTable, conditions: Conditions) -> MergeTarget:
    """Plan the read of the rows of files that can meet the conditions; nothing runs. Raises
    UnsupportedStatementError for files whose rows can't be changed so."""
    merge, plan, table, schema = on.merge, on.plan, on.table, on.table.schema
    predicates = conditions.predicates(schema)
    if on.has_places:
        base = on.chosen.snapshot_id
        places = merge_places(on.connection, merge, plan, table, base, predicates)
        steps = () if places.plan is None else places.plan.pruning_steps
        return MergeTarget(places.frame, places.needed, places.more, predicates, steps, places)
    needed = needed_columns(merge, plan, schema.column_names)
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


def _all_bytes(on: MergeOnTable) -> int:
    """The size of all files of the table."""
    if not on.chosen.snapshot_id:
        return 0
    paimon = on.table.paimon
    manifests = on.connection.manifests(on.table.location, lambda: ManifestCache(paimon))
    files = live_files(manifests, read_snapshot(paimon, on.chosen.snapshot_id))
    return int(pc.sum(files["file_size"]).as_py() or 0)


def _size_bytes(on: MergeOnTable, conditions: Conditions) -> int:
    """The size of the files that can meet the conditions."""
    table, base = on.table, on.chosen.snapshot_id
    if not base:
        return 0
    if not on.has_places:
        filters, bound = conditions.filters, conditions.bound
        name = on.chosen.table
        relation = Relation(name, filters=filters, bound=bound, snapshot_id=base)
        planned = read_plan(on.connection, relation)[1].planned
        return planned_bytes(Reads(planned=(planned,)))
    manifests = on.connection.manifests(table.location, lambda: ManifestCache(table.paimon))
    snapshot = read_snapshot(table.paimon, base)
    changed = plan_table_change(table, snapshot, conditions.predicates(table.schema), manifests)
    return sum(unit.size_bytes for unit in changed.units)
