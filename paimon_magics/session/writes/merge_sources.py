"""What a MERGE asks its source for before it reads its target: the range of the values by which ON
looks rows up, to leave files out, or the values themselves, to leave rows out.

Spark keeps the source from then on, so that it is computed once, and what was found is what is
joined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.planning.row_changes.merge_query import users_text
from paimon_magics.planning.row_changes.source_keys import (
    SourceKey,
    compare_alike,
    look_up_alike,
    range_filters,
    source_keys,
)
from paimon_magics.session.connection import Connection
from paimon_magics.session.planned_work import Reads, note_reads, planned_bytes, reads_of
from paimon_magics.session.queries.frames import read_plan
from paimon_magics.session.queries.relations import Relation
from paimon_magics.session.queries.selections import Conditions
from paimon_magics.session.writes.merge_rows import merged_rows
from paimon_magics.session.writes.merge_targets import MergeOnTable, merge_target, without_rows
from paimon_magics.spark.failures import translate
from paimon_magics.spark.progress import doing
from paimon_magics.spark.queries import binding_replacements, cancellable, frame_of_text
from paimon_magics.spark.sessions import is_one_process
from paimon_magics.spark.sizes import estimated_bytes
from paimon_magics.spark.source_keys import distinct_values, key_ranges, type_of, within
from paimon_magics.spark.spooled_rows import SpooledRows
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.data_types import AtomicType, DataType
from paimon_magics.statements.merge_into import MergeInto
from paimon_magics.statements.queries.rewriting import joined_text
from paimon_magics.tables.manifests.live_files import ManifestCache, live_files
from paimon_magics.tables.row_changes.looked_up_keys import LookedUpKeys
from paimon_magics.tables.row_changes.table_changes import plan_table_change
from paimon_magics.tables.snapshots.latest import read_snapshot

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame

__all__ = ["Asked", "SourceLookup", "asked"]

_KEY = "__paimon_magics_key_"
_LOOKUP_BYTES_MIN = 8 * 2**20
_LOOKUP_SOURCE_BYTES_MAX = 64 * 2**20


@dataclass(frozen=True)
class SourceLookup:
    """How rows of the target are looked up by the source's values: `columns` are the target's, by
    the names of the columns of `frame` that have the values. `keys` have them once they are asked
    for."""

    frame: DataFrame
    columns: Mapping[str, str]
    keys: LookedUpKeys

    def ask(self, connection: Connection, merge: MergeInto) -> None:
        """Find the values by one job. Raises errors of ours."""
        try:
            with doing("looking up the source's keys"), cancellable(connection.spark):
                found = distinct_values(self.frame, tuple(self.columns))
        except Exception as error:
            raise translate(error, statement=merge.text) from error
        values: dict[str, pa.Array] = {}
        for name, one in found.items():
            column = self.columns[name]
            if column not in values or len(one) < len(values[column]):
                values[column] = one
        if values:
            self.keys.write(values)


@dataclass(frozen=True)
class Asked:
    """What is known of a source: its rows as `source`, the conditions on the target's rows, the
    `keys` whose range is worth a job, since files may be left out by it and those that the
    statement's own conditions leave are large, and how rows are looked up."""

    source: DataFrame
    conditions: Conditions
    keys: tuple[SourceKey, ...] = ()
    lookup: SourceLookup | None = None


def asked(
    on: MergeOnTable, conditions: Conditions, source: DataFrame, kept: ExitStack | None
) -> Asked:
    """Ask the source for the range of its keys, where that is worth it, and plan to ask it for the
    keys. Spark keeps it until `kept` is closed; with None, nothing is asked."""
    certain = {one.column for one in conditions.filters if one.operator == "="}
    found = source_keys(on.merge, on.plan, on.table.schema)
    keys = tuple(key for key in found if key.column not in certain)
    all_bytes = _all_bytes(on) if keys else 0
    least = on.connection.settings.source_range_from_bytes
    # Most tables are small as a whole: then no read is planned to know that.
    is_large = bool(keys) and all_bytes >= least and _size_bytes(on, conditions) >= least
    known = Asked(source, conditions, keys if is_large else ())
    if kept is None:
        return known
    if known.keys:
        # What is wrong with the statement is told before a job runs.
        merged_rows(on, merge_target(without_rows(on), conditions), source)
        known = _ranged(on, known, kept)
    if keys and all_bytes >= min(_LOOKUP_BYTES_MIN, least):
        known = replace(known, lookup=_lookup(on, keys, source, known.source, kept))
    return known


def _ranged(on: MergeOnTable, known: Asked, kept: ExitStack) -> Asked:
    """Find the ranges of the keys by one job on the source, which Spark keeps from then on, until
    `kept` is closed. Nothing more is known where they say nothing, and where the source is the
    larger side."""
    source, conditions = known.source, known.conditions
    reads = reads_of(source)
    is_of_tables = len(reads.planned) == len(reads.names)
    size_bytes = planned_bytes(reads) if is_of_tables else 0
    is_large = size_bytes > on.connection.settings.source_range_from_bytes
    if is_large and size_bytes > _size_bytes(on, conditions):
        return known
    keyed = _with_keys(on, known.keys, source)
    if keyed is None:
        return known
    _keep(source, kept)
    frame, names = keyed
    try:
        with doing("looking up the source's keys"), cancellable(on.connection.spark):
            ranges = key_ranges(frame, names)
    except Exception as error:
        raise translate(error, statement=on.merge.text) from error
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
    kept: ExitStack,
) -> SourceLookup | None:
    """Plan to look rows of the target up by the values that a small source, which is `read`, has of
    the keys in ON, where rows without keys change. Spark keeps the source until `kept` is closed.
    Nothing runs.

    A source that has other values when it is read again would add rows that are there. So this is
    only for sources that Spark keeps where it does not lose them: in one process, with a disk."""
    keys = [key for key in keys if not key.null_safe]
    if not keys or not on.has_places or not is_one_process(on.connection.spark):
        return None
    size_bytes = estimated_bytes(read)
    if size_bytes is None or size_bytes > _LOOKUP_SOURCE_BYTES_MAX:
        return None
    keyed = _with_keys(on, keys, read, look_up_alike)
    if keyed is None or not _keep(source, kept):
        return None
    folder = SpooledRows()
    kept.callback(folder.remove)
    frame, found = keyed
    columns = {name: key.column for name, key in found.items()}
    return SourceLookup(frame, columns, LookedUpKeys(str(folder.folder / "keys.arrow")))


def _keep(source: DataFrame, kept: ExitStack) -> bool:
    """Let Spark keep the source until `kept` is closed, where it does not yet: else it is the
    user's to release. Returns whether rows that do not fit into memory are kept, too, and not
    computed anew."""
    level = source.storageLevel
    if level.useMemory or level.useDisk:
        return bool(level.useDisk)
    kept.callback(source.persist().unpersist)
    return True


def _with_keys(
    on: MergeOnTable,
    keys: Sequence[SourceKey],
    source: DataFrame,
    compares: Callable[[DataType, AtomicType], bool] = compare_alike,
) -> tuple[DataFrame, dict[str, SourceKey]] | None:
    """The source with a column for each key that `compares` as its column of the target does; None
    if there is none. Nothing runs."""
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
        frames: list[DataFrame] = []
        for number, key in enumerate(keys):
            name = f"{_KEY}{number}"
            try:
                frames.append(frame_of({name: key}))
                of_value = type_of(frames[-1], name)
            except Exception:
                # The source alone does not say what it is: then the statement is wrong, or the
                # expression means the target. The join tells.
                continue
            column = on.table.schema.column(key.column)
            if of_value is not None and compares(column.type, of_value):
                found[name] = key
        if not found:
            return None
        return frames[0] if len(keys) == 1 else frame_of(found), found
    finally:
        views.drop_passing()


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
