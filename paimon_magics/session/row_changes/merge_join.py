"""Both sides of a MERGE: the questions to its source, the rows of its target that it reads, and the
rows that it makes of them.

Spark keeps the source from then on: it is computed once, and the rows that were analyzed are the
rows that are joined. A row of the target that more than one row of the source would change is
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.errors import PaimonMagicsError, StatementError
from paimon_magics.planning.reads.predicates import ColumnPredicate
from paimon_magics.planning.reads.views import row_id_columns
from paimon_magics.planning.row_changes.change_rules import (
    ChangeMethod,
    adds_changed_rows,
    check_stays,
)
from paimon_magics.planning.row_changes.merge_query import (
    SOURCE_MARK,
    TARGET_MARK,
    merge_query,
    needed_columns,
    target_filters,
    users_text,
)
from paimon_magics.planning.row_changes.merged_updates import MergedUpdate
from paimon_magics.planning.row_changes.merges import Join, MergePlan, assigned_columns
from paimon_magics.planning.row_changes.source_keys import (
    SourceKey,
    compare_alike,
    look_up_alike,
    range_filters,
    source_keys,
)
from paimon_magics.session.parameters import bind
from paimon_magics.session.planned_work import Reads, made_of, note_reads, planned_bytes, reads_of
from paimon_magics.session.queries.frames import frame_of_query
from paimon_magics.session.queries.planned_reads import read_plan
from paimon_magics.session.queries.relations import Conditions, Relation, Selection
from paimon_magics.session.row_changes.written_rows import placed_frame, with_row_id
from paimon_magics.session.scope import StatementScope, errors_translated
from paimon_magics.session.writes.exactness import check_policy
from paimon_magics.spark.job_watching import doing
from paimon_magics.spark.merge_rows import changed_rows, given_values, marked
from paimon_magics.spark.queries import binding_replacements, cancellable, frame_of_text
from paimon_magics.spark.sessions import is_one_process
from paimon_magics.spark.sizes import estimated_bytes
from paimon_magics.spark.source_keys import distinct_values, key_ranges, type_of, within
from paimon_magics.spark.spooled_rows import SpooledRows
from paimon_magics.statements.clauses.names import quoted, table_text
from paimon_magics.statements.data_types import AtomicType, DataType
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.queries.query_traits import used_names
from paimon_magics.statements.queries.rewriting import joined_text, replacements_for
from paimon_magics.statements.statement import MergeInto, Query, TableReference
from paimon_magics.tables.manifests.live_files import live_files
from paimon_magics.tables.row_changes.looked_up_keys import LookedUpKeys
from paimon_magics.tables.row_changes.selected_rows import FILE_COLUMN, PLACE_COLUMN
from paimon_magics.tables.row_changes.table_changes import TableChange, plan_table_change
from paimon_magics.tables.snapshots.latest import read_snapshot
from paimon_magics.tables.splits.pruning_steps import PruningStep
from paimon_magics.tables.table import Table

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame


from typing import TYPE_CHECKING

from paimon_magics.errors import InvalidValueError
from paimon_magics.spark.merge_rows import MatchCounts, match_counts

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame

_KEY = "__paimon_magics_key_"
_LOOKUP_BYTES_MIN = 8 * 2**20
_LOOKUP_SOURCE_BYTES_MAX = 64 * 2**20
_BROADCAST_BYTES_MAX = 10 * 2**20  # Spark's own default for files
_BROADCAST_ROWS_MAX = 100_000
_HASHED_BYTES_MAX = 64 * 2**20


@dataclass(frozen=True)
class MergeOnTable:
    """A MERGE with what is known of its table: what its clauses do, how rows are changed, and the
    snapshot `chosen` that it changes, whose delta manifest list is `manifest_list`. `merged` says
    what the merge engine makes of updated rows, in a table with keys."""

    scope: StatementScope
    merge: MergeInto
    plan: MergePlan
    table: Table
    chosen: Selection
    parameters: Mapping[str, object]
    method: ChangeMethod
    manifest_list: str
    merged: MergedUpdate | None = None

    @cached_property
    def bound(self) -> dict[str, object]:
        """The values of the bind names from ON to the end."""
        merge = self.merge
        return bind(merge.within.parameters, self.parameters, merge.text, self.scope.zone)

    @property
    def has_places(self) -> bool:
        """Whether rows of the target are changed by their places in files."""
        return not self.table.schema.is_primary_key_table and not self.plan.only_inserts


@dataclass(frozen=True)
class MergePlaces:
    """The target's rows with their places, as `frame`: the table's columns at the positions
    `needed`, and the columns `more` of places and row ids. `plan` is None for a table without
    snapshots. `updated` are the columns that get new values; None if no row is updated."""

    plan: TableChange | None
    updated: frozenset[str] | None
    needed: tuple[int, ...]
    more: tuple[str, ...]
    frame: DataFrame
    in_one_job: bool = False
    many: bool = False
    source_bytes: float | None = None

    def joined(self, source: DataFrame, join: Join) -> tuple[DataFrame, DataFrame]:
        """The frame and the source with hints for their join.

        Spark does not know how many rows come from tasks: it would collect them on the driver,
        where a single thread makes a table of them. Tables of a small source's rows are made by
        the tasks, unless the join is about the source's rows alone."""
        if not self.many:
            return self.frame, source
        size = self.source_bytes
        if size is not None and size <= _HASHED_BYTES_MAX and join != "RIGHT ANTI":
            return self.frame, made_of(source.hint("shuffle_hash"), source)
        return made_of(self.frame.hint("merge"), self.frame), source


@contextmanager
def _looking_up(scope: StatementScope) -> Iterator[None]:
    with doing("looking up the source's keys"), cancellable(scope.spark):
        yield


@dataclass(frozen=True)
class SourceLookup:
    """How rows of the target are looked up by the source's values: `columns` are the target's, by
    the names of the columns of `frame` that have the values. `keys` have them once they are asked
    for."""

    frame: DataFrame
    columns: Mapping[str, str]
    keys: LookedUpKeys

    def ask(self, scope: StatementScope, merge: MergeInto) -> None:
        """Find the values by one job. Raises errors of ours."""
        with errors_translated(merge.text), _looking_up(scope):
            by_name = distinct_values(self.frame, tuple(self.columns))
        values: dict[str, pa.Array] = {}
        for name, distinct in by_name.items():
            column = self.columns[name]
            if column not in values or len(distinct) < len(values[column]):
                values[column] = distinct
        if values:
            self.keys.write(values)


@dataclass(frozen=True)
class AnalyzedSource:
    """What is known of a source: its rows as `source`, the conditions on the target's rows, and how
    rows are looked up. A job finds the range of the `keys`: that may leave out files, and the
    statement's own conditions leave many bytes to read."""

    source: DataFrame
    conditions: Conditions
    keys: tuple[SourceKey, ...] = ()
    lookup: SourceLookup | None = None


def analyzed_source(
    on: MergeOnTable, conditions: Conditions, source: DataFrame, released: ExitStack | None
) -> AnalyzedSource:
    """Find the range of the source's keys, where that is worth a job, and plan to look up the keys.
    Spark keeps the source until `released` is closed; with None, nothing runs."""
    fixed = {condition.column for condition in conditions.filters if condition.operator == "="}
    candidates = source_keys(on.merge, on.plan, on.table.schema)
    keys = tuple(key for key in candidates if key.column not in fixed)
    all_bytes = _all_bytes(on) if keys else 0
    least = on.scope.settings.source_range_from_bytes
    # Most tables are small as a whole: then no read is planned to know that.
    is_large = bool(keys) and all_bytes >= least and _size_bytes(on, conditions) >= least
    known = AnalyzedSource(source, conditions, keys if is_large else ())
    if released is None:
        return known
    if known.keys:
        # An error in the statement is raised before a job runs.
        merged_rows(on, merge_target(_without_rows(on), conditions), source)
        known = _ranged(on, known, released)
    if keys and all_bytes >= min(_LOOKUP_BYTES_MIN, least):
        known = replace(known, lookup=_lookup(on, keys, source, known.source, released))
    return known


def _ranged(on: MergeOnTable, known: AnalyzedSource, released: ExitStack) -> AnalyzedSource:
    """Find the ranges of the keys by one job on the source, which Spark keeps until `released` is
    closed. Nothing is added where the ranges bound nothing, or the source is the larger side."""
    source, conditions = known.source, known.conditions
    reads = reads_of(source)
    is_of_tables = len(reads.planned) == len(reads.names)
    size_bytes = planned_bytes(reads) if is_of_tables else 0
    is_large = size_bytes > on.scope.settings.source_range_from_bytes
    if is_large and size_bytes > _size_bytes(on, conditions):
        return known
    keyed = _with_keys(on, known.keys, source)
    if keyed is None:
        return known
    _keep(source, released)
    frame, names = keyed
    with errors_translated(on.merge.text), _looking_up(on.scope):
        ranges = key_ranges(frame, names)
    if not ranges:
        return known
    filters, bound = range_filters(tuple(ranges.values()))
    read = note_reads(within(frame, ranges).drop(*names), reads)
    more = Conditions((*conditions.filters, *filters), (*conditions.bound, *sorted(bound.items())))
    return replace(known, source=read, conditions=more)


def _lookup(
    on: MergeOnTable,
    keys: Sequence[SourceKey],
    source: DataFrame,
    read: DataFrame,
    released: ExitStack,
) -> SourceLookup | None:
    """Plan to look up rows of the target by the key values of a small source, which is `read`. The
    keys are those in ON, and rows without keys change. Spark keeps the source until `released` is
    closed. Nothing runs.

    If a source returned other values on a second read, the MERGE would add rows that exist. So this
    is only for sources that Spark keeps without loss: in one process, with a disk."""
    keys = [key for key in keys if not key.null_safe]
    if not keys or not on.has_places or not is_one_process(on.scope.spark):
        return None
    size_bytes = estimated_bytes(read)
    if size_bytes is None or size_bytes > _LOOKUP_SOURCE_BYTES_MAX:
        return None
    keyed = _with_keys(on, keys, read, look_up_alike)
    if keyed is None or not _keep(source, released):
        return None
    folder = SpooledRows()
    released.callback(folder.remove)
    frame, by_name = keyed
    columns = {name: key.column for name, key in by_name.items()}
    return SourceLookup(frame, columns, LookedUpKeys(str(folder.folder / "keys.arrow")))


def _keep(source: DataFrame, released: ExitStack) -> bool:
    """Let Spark keep the source until `released` is closed. A source that Spark keeps already is
    the user's to release. Returns whether rows that don't fit into memory are kept, too, and not
    computed anew."""
    level = source.storageLevel
    if level.useMemory or level.useDisk:
        return bool(level.useDisk)
    released.callback(source.persist().unpersist)
    return True


def _with_keys(
    on: MergeOnTable,
    keys: Sequence[SourceKey],
    source: DataFrame,
    compares: Callable[[DataType, AtomicType], bool] = compare_alike,
) -> tuple[DataFrame, dict[str, SourceKey]] | None:
    """The source with a column for each key that `compares` as its column of the target does; None
    if there is none. Nothing runs."""
    merge, spark, views, bound = on.merge, on.scope.spark, on.scope.views, on.bound
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
        comparable: dict[str, SourceKey] = {}
        frames: list[DataFrame] = []
        for number, key in enumerate(keys):
            name = f"{_KEY}{number}"
            try:
                frames.append(frame_of({name: key}))
                with errors_translated(merge.text):
                    of_value = type_of(frames[-1], name)
            except StatementError:
                # The source alone does not say what it is: then the statement is wrong, or the
                # expression means the target. The join shows which.
                continue
            column = on.table.schema.column(key.column)
            if of_value is not None and compares(column.type, of_value):
                comparable[name] = key
        if not comparable:
            return None
        return frames[0] if len(keys) == 1 else frame_of(comparable), comparable
    finally:
        views.drop_passing()


def _all_bytes(on: MergeOnTable) -> int:
    """The size of all files of the table."""
    if not on.chosen.snapshot_id:
        return 0
    paimon = on.table.paimon
    manifests = on.scope.manifests(on.table)
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
        planned = read_plan(on.scope, relation)[1].planned
        return planned_bytes(Reads(planned=(planned,)))
    manifests = on.scope.manifests(table)
    snapshot = read_snapshot(table.paimon, base)
    changed = plan_table_change(table, snapshot, conditions.predicates(table.schema), manifests)
    return sum(unit.size_bytes for unit in changed.units)


# The rows that a MERGE writes: both sides joined, each row with what the clauses make of it.


def merged_rows(on: MergeOnTable, target: MergeTarget, source: DataFrame) -> DataFrame:
    """The rows to write, with their kinds, in the table's columns and types."""
    scope, merge, plan, bound = on.scope, on.merge, on.plan, on.bound
    columns = on.table.schema.columns
    rows_of_target, rows_of_source = target.frame, source
    if target.places is not None:
        rows_of_target, rows_of_source = target.places.joined(source, plan.join)
    replaced = [*binding_replacements(scope.spark, merge.text, merge.within, bound)]
    nested = [(reference, _nested_frame(on, reference)) for reference in merge.within.references]
    views = scope.views
    try:
        names = []
        for reference, frame in nested:
            names.append(views.pass_by(frame))
            replaced += replacements_for(reference, names[-1])
        left = views.pass_by(marked(rows_of_target, TARGET_MARK))
        right = views.pass_by(marked(rows_of_source, SOURCE_MARK))
        target_columns = {at: columns[at].name for at in target.needed}
        target_columns |= dict(enumerate(target.more, len(columns)))
        text = merge_query(merge, plan, (left, right), target_columns, replaced)
        joined = frame_of_text(scope.spark, merge.text, text, bound)
        views.read_by(joined, {left, right, *names})
    finally:
        views.drop_passing()
    with errors_translated(merge.text, merge.target_position):
        if scope.settings.store_assignment != "ansi":
            clause_values = given_values(plan, columns)
            values = joined.select(*(quoted(name) for name, _ in clause_values))
            stored = [column for _, column in clause_values]
            check_policy(scope.spark, values.toDF(*(column.name for column in stored)), stored)
        rows = changed_rows(scope.spark, joined, plan, columns, target.more, on.merged)
    return made_of(rows, target.frame, source, *(frame for _, frame in nested))


def _nested_frame(on: MergeOnTable, reference: TableReference) -> DataFrame:
    """The rows of a table that a subquery in a value reads."""
    text, place = on.merge.text, reference.range
    query = parse_statement(f"SELECT * FROM {text[place.start : place.end]}")
    assert isinstance(query, Query)
    try:
        return frame_of_query(on.scope, query.text, query.query, on.parameters, selection=on.chosen)
    except PaimonMagicsError as error:
        error.statement, error.position = text, place.start
        raise


# The rows of its target that a MERGE reads: columns that it needs, of files that can have rows
# which matter to it (`planning/row_changes/merge_query.py`).


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
    """The conditions that the relevant rows of the target meet, as the statement has them."""
    filters = target_filters(on.merge, on.plan, on.table.schema)
    bound = on.bound
    values = (value for condition in filters for value in condition.values)
    names = {value.text for value in values if value.kind == "parameter"}
    return Conditions(filters, tuple((name, bound[name]) for name in sorted(names)))


def _without_rows(on: MergeOnTable) -> MergeOnTable:
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
        places = merge_places(on, predicates, keys)
        steps = () if places.plan is None else places.plan.pruning_steps
        return MergeTarget(places.frame, places.needed, places.more, predicates, steps, places)
    compared = () if on.merged is None else on.merged.compared
    needed = needed_columns(merge, plan, schema.column_names, compared=compared)
    ids = row_id_columns(schema, used_names(merge.text, merge.within))
    names = [*(schema.columns[at].name for at in needed), *(column.name for column in ids)]
    listed = ", ".join(quoted(name) for name in names)
    query = parse_statement(f"SELECT {listed} FROM {table_text(table.name)}")
    assert isinstance(query, Query)
    position = query.query.references[0].range.start
    chosen = replace(on.chosen, position=position, conditions=conditions)
    frame = frame_of_query(on.scope, query.text, query.query, {}, selection=chosen)
    steps = reads_of(frame).planned[-1].pruning_steps
    return MergeTarget(frame, needed, (), predicates, steps)


# Its rows with their places, where the rows of an append table change.


def merge_places(
    on: MergeOnTable, predicates: Sequence[ColumnPredicate], keys: LookedUpKeys | None = None
) -> MergePlaces:
    """The rows of an append table's snapshot that a MERGE may change, of files that can meet
    `predicates`, with the values of `keys`. Nothing runs. Raises UnsupportedStatementError for rows
    that can't move."""
    scope, merge, plan, table, base = on.scope, on.merge, on.plan, on.table, on.chosen.snapshot_id
    schema = table.schema
    files = None
    if base:
        manifests = scope.manifests(table)
        files = plan_table_change(table, read_snapshot(table.paimon, base), predicates, manifests)
    updated = assigned_columns(merge, plan, schema)
    adds = adds_changed_rows(schema)
    more = row_id_columns(schema, used_names(merge.text, merge.within))
    if updated is not None:
        check_stays(table.schema, table.name, updated)
        if schema.row_tracking_enabled and adds:
            more = with_row_id(more)
    written = schema.column_names if adds else tuple(updated or ())
    needed = needed_columns(merge, plan, schema.column_names, written)
    columns = [schema.columns[at] for at in needed]
    placed = None if files is None else files.placed_files()
    frame = placed_frame(scope, table, base, placed, columns, more, keys)
    in_one_job = schema.bucket_mode == "BUCKET_UNAWARE" and not schema.is_partitioned
    many = files is not None and _are_many(files, in_one_job=in_one_job)
    names = (*(column.name for column in more), FILE_COLUMN, PLACE_COLUMN)
    return MergePlaces(files, updated, needed, names, frame, in_one_job, many)


def _are_many(files: TableChange, *, in_one_job: bool) -> bool:
    """Whether the rows of the files are too many to be sent to all tasks. Kept rows are sorted in
    as many tasks as Spark has partitions of a shuffle, which takes longer than sending some."""
    if in_one_job:  # rows are counted twice where files share them (data evolution)
        return sum(file.rows for unit in files.units for file in unit.files) > _BROADCAST_ROWS_MAX
    return sum(unit.size_bytes for unit in files.units) > _BROADCAST_BYTES_MAX


_TWICE = (
    "The ON search condition of the MERGE statement matched a single row from the target table "
    "with multiple rows of the source table, so that it would be updated or deleted more than once."
)


def counted_rows(changed: DataFrame, identity: Sequence[str]) -> MatchCounts:
    """Count the changed rows. `identity` are the columns that identify a row of the target. Raises
    InvalidValueError for a row that several source rows would change."""
    counts = match_counts(changed, identity)
    if counts.matches_max > 1:
        raise changed_twice()
    return counts


def changed_twice() -> InvalidValueError:
    """The error for a row that several source rows would change."""
    return InvalidValueError(
        _TWICE,
        hint="Nothing was written. Make the source have one row for each target row, or add "
        "a condition to WHEN MATCHED that only one of them meets.",
    )
