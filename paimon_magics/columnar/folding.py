"""The merge engines: they merge the rows of one key, in their order, into one row.

Engines that only choose rows, or the last value that is not NULL, work on all keys at once. Only
keys with several rows in tables with sequence groups or aggregate functions are folded row by row.
Sources: `DeduplicateMergeFunction`, `FirstRowMergeFunction`, `PartialUpdateMergeFunction`,
`AggregateMergeFunction`, `ReducerMergeFunctionWrapper`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_magics.columnar.aggregators import Aggregator, ColumnFunction
from paimon_magics.columnar.merging import (
    KIND,
    SEQUENCE,
    Groups,
    RunOrder,
    first_rows,
    is_retract,
    last_rows,
)
from paimon_magics.errors import JobError
from paimon_magics.planning.options.merge_engines import MergeEngine
from paimon_magics.planning.reads.views import DELETE, INSERT, UPDATE_BEFORE

_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SequenceGroup:
    """`fields.<columns>.sequence-group`: a row changes `members` only where its `columns` are not
    older than those of the record."""

    columns: tuple[str, ...]
    members: tuple[str, ...]


@dataclass(frozen=True)
class MergeRule:
    """How the rows of a key become one.

    `functions` are the columns' aggregate functions. With `removes_on_delete`, a -D removes the
    record so far. `removing_groups` are columns of sequence groups for which a -D does so. With
    `in_key_order`, results are in the order of keys. With `looks_up`, compactions merge rows with
    the key's earlier result on any level, so that rows of lower levels include those of higher
    levels (Paimon's `LookupMergeFunction`); the rows then have the column LEVEL.
    """

    engine: MergeEngine
    order: RunOrder
    ignore_deletes: bool = False
    removes_on_delete: bool = False
    functions: Mapping[str, ColumnFunction] = field(default_factory=dict)
    groups: tuple[SequenceGroup, ...] = ()
    removing_groups: frozenset[str] = frozenset()
    in_key_order: bool = False
    looks_up: bool = False


def retract_error(engine: MergeEngine) -> JobError:
    """The error for -U and -D rows that the engine can't merge by the table's options."""
    options = ["'ignore-delete'"]
    if engine.delete_option is not None:
        options.append(f"'{engine.delete_option}'")
    return JobError(
        f"A table with the merge engine {engine.name} has -U or -D rows, but no option defines how "
        "to apply them.",
        hint=f"Set {' or '.join(options)} to 'true'.",
    )


def folds_rows(rule: MergeRule) -> bool:
    """Whether the rows of a key are merged one after the other, not all keys at once."""
    if rule.engine.skips_nulls:
        return bool(rule.groups or rule.functions)
    return rule.engine.merges_values


def merge_rows(groups: Groups, rule: MergeRule) -> Iterator[pa.RecordBatch]:
    """One row for each key, or none. Raises JobError for rows that the engine can't merge."""
    if rule.looks_up:
        groups = groups.of_latest_levels()
    if rule.engine.keeps_whole_rows:
        rows = winning_rows(groups, rule)
        yield from ((groups.taken(rows),) if rule.in_key_order else groups.filtered(rows))
    else:
        yield _folded(groups, rule) if folds_rows(rule) else _last_values(groups, rule)


def winning_rows(groups: Groups, rule: MergeRule) -> _Ints:
    """The numbers of the rows that stay, for an engine that keeps whole rows."""
    if rule.engine.keeps_first_row:
        return first_rows(groups)
    return last_rows(groups, ignore_retracts=rule.ignore_deletes)


def _last_values(groups: Groups, rule: MergeRule) -> pa.RecordBatch:
    """The last value of each column that is not NULL, since the last -D that removed the record."""
    kinds = groups.kinds()[groups.order]
    retracts = is_retract(kinds)
    alone = groups.alone
    since = groups.starts.copy()
    used = np.ones(len(kinds), dtype=bool)
    result_kinds = np.where(alone, kinds[groups.starts], INSERT).astype(np.int8)
    last = groups.ends - 1
    if retracts.any():
        several = np.repeat(~alone, groups.ends - groups.starts)
        if rule.removes_on_delete:
            deletes = kinds == DELETE
            places = np.maximum.accumulate(np.where(deletes, np.arange(len(kinds)), -1))[last]
            since = np.maximum(since, places)
        elif not rule.ignore_deletes and (retracts & several).any():
            raise retract_error(rule.engine)
        # A retract row gives no values, unless it begins the record.
        used = ~retracts
        used[since] = True
        added = np.add.reduceat(~retracts, groups.starts) > 0
        removed = rule.removes_on_delete & (kinds[last] == DELETE)
        result_kinds = np.where(~alone & (removed | ~added), DELETE, result_kinds).astype(np.int8)
    if rule.ignore_deletes and retracts.any():
        counted = np.maximum.accumulate(np.where(~retracts, np.arange(len(kinds)), -1))[last]
        last = np.where(counted >= groups.starts, counted, groups.ends - 1)
    arrays = []
    schema = groups.slices[0].schema
    for name in schema.names:
        if name == KIND:
            arrays.append(pa.array(result_kinds))
            continue
        column = groups.column(name)
        if name == SEQUENCE or (column.null_count == 0 and used.all()):
            arrays.append(column.take(pa.array(groups.order[last])))
            continue
        valid = np.asarray(column.is_valid())[groups.order] & used
        places = np.maximum.accumulate(np.where(valid, np.arange(len(valid)), -1))[groups.ends - 1]
        has_value = places >= since
        taken = pa.array(groups.order[np.where(has_value, places, 0)], mask=~has_value)
        arrays.append(column.take(taken))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _folded(groups: Groups, rule: MergeRule) -> pa.RecordBatch:
    """Merge row by row, for keys with several rows."""
    schema = groups.slices[0].schema
    names = [name for name in schema.names if name not in (SEQUENCE, KIND)]
    folder = (
        _PartialUpdate(schema, names, rule)
        if rule.engine.skips_nulls
        else (_Aggregation(schema, names, rule))
    )
    columns = {name: groups.column(name) for name in schema.names}
    several = np.flatnonzero(~groups.alone)
    rows = np.concatenate(
        [groups.order[groups.starts[g] : groups.ends[g]] for g in several]
        or [np.zeros(0, dtype=np.int64)]
    )
    values = {name: columns[name].take(pa.array(rows)).to_pylist() for name in schema.names}
    results: dict[str, list[Any]] = {name: [] for name in schema.names}
    place = 0
    for group in several:
        folder.reset()
        for _ in range(groups.ends[group] - groups.starts[group]):
            folder.add([values[name][place] for name in names], values[KIND][place])
            place += 1
        row, kind = folder.result()
        for name, value in zip(names, row, strict=True):
            results[name].append(value)
        results[KIND].append(kind)
        results[SEQUENCE].append(values[SEQUENCE][place - 1])
    # Folded rows are appended to the others, and each key takes its row.
    sources = groups.order[groups.starts].copy()
    sources[several] = groups.stored_rows + np.arange(len(several))
    taken = pa.array(sources)
    arrays = [
        pa.concat_arrays([columns[f.name], pa.array(results[f.name], type=f.type)]).take(taken)
        for f in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class _Aggregation:
    """`AggregateMergeFunction`."""

    def __init__(self, schema: pa.Schema, names: list[str], rule: MergeRule) -> None:
        self._rule = rule
        self._aggregators = [
            Aggregator(name, schema.field(name).type, _function_of(name, rule)) for name in names
        ]
        self.reset()

    def reset(self) -> None:
        self._row: list[Any] = [None] * len(self._aggregators)
        self._deleted = False
        for aggregator in self._aggregators:
            aggregator.reset()

    def add(self, values: list[Any], kind: int) -> None:
        self._deleted = self._rule.removes_on_delete and kind == DELETE
        if self._deleted:
            self._row = list(values)
            return
        retracts = kind in (UPDATE_BEFORE, DELETE)
        self._row = [
            aggregator.retract(old, value) if retracts else aggregator.agg(old, value)
            for aggregator, old, value in zip(self._aggregators, self._row, values, strict=True)
        ]

    def result(self) -> tuple[list[Any], int]:
        return self._row, DELETE if self._deleted else INSERT


def _function_of(name: str, rule: MergeRule) -> ColumnFunction:
    if name in rule.order.keys:
        return ColumnFunction("primary-key")
    if name in rule.order.sequence_fields:
        return ColumnFunction("last_value")
    return rule.functions.get(name, ColumnFunction("last_non_null_value"))


class _PartialUpdate:
    """`PartialUpdateMergeFunction` with sequence groups or aggregate functions."""

    def __init__(self, schema: pa.Schema, names: list[str], rule: MergeRule) -> None:
        self._rule = rule
        self._names = names
        places = {name: place for place, name in enumerate(names)}
        self._aggregators = {
            places[name]: Aggregator(name, schema.field(name).type, function)
            for name, function in rule.functions.items()
            if name in places
        }
        for name in rule.order.keys:
            self._aggregators[places[name]] = Aggregator(
                name, schema.field(name).type, ColumnFunction("primary-key")
            )
        self._group_of: dict[int, tuple[int, ...]] = {}
        for group in rule.groups:
            columns = tuple(places[name] for name in group.columns if name in places)
            for name in (*group.members, *group.columns):
                if name in places and len(columns) == len(group.columns):
                    self._group_of[places[name]] = columns
        self._removing = {places[name] for name in rule.removing_groups if name in places}
        self.reset()

    def reset(self) -> None:
        self._row: list[Any] = [None] * len(self._names)
        self._deleted = False
        self._inserted = False
        self._filled = False
        for aggregator in self._aggregators.values():
            aggregator.reset()

    def add(self, values: list[Any], kind: int) -> None:
        self._deleted = False
        if kind in (UPDATE_BEFORE, DELETE):
            if not self._filled:
                self._row = list(values)
                self._filled = True
            if self._rule.ignore_deletes:
                return
            if self._rule.groups:
                self._retract(values, kind)
                return
            if self._rule.removes_on_delete:
                if kind == DELETE:
                    self._deleted = True
                    self._row = list(values)
                return
            raise retract_error(self._rule.engine)
        self._update(values)
        self._inserted = self._filled = True

    def result(self) -> tuple[list[Any], int]:
        return self._row, DELETE if self._deleted or not self._inserted else INSERT

    def _update(self, values: list[Any]) -> None:
        done: set[int] = set()
        for place, value in enumerate(values):
            aggregate = self._aggregators.get(place)
            group = self._group_of.get(place)
            old = self._row[place]
            if group is None:
                if aggregate is not None:
                    self._row[place] = aggregate.agg(old, value)
                elif value is not None:
                    self._row[place] = value
                continue
            if place in done:
                continue
            if all(values[member] is None for member in group):
                done.update(group)
            elif self._is_not_older(values, group):
                if place in group:
                    for member in group:
                        self._row[member] = values[member]
                    done.update(group)
                else:
                    self._row[place] = value if aggregate is None else aggregate.agg(old, value)
            elif aggregate is not None:
                self._row[place] = aggregate.agg_reversed(old, value)

    def _retract(self, values: list[Any], kind: int) -> None:
        done: set[int] = set()
        for place, value in enumerate(values):
            group = self._group_of.get(place)
            if group is None or place in done:
                continue
            aggregate = self._aggregators.get(place)
            if all(values[member] is None for member in group):
                done.update(group)
            elif self._is_not_older(values, group):
                if place in group:
                    if kind == DELETE and self._removing.intersection(group):
                        self._deleted = True
                        self._row = list(values)
                        return
                    for member in group:
                        self._row[member] = values[member]
                    done.update(group)
                elif aggregate is None:
                    self._row[place] = None
                else:
                    self._row[place] = aggregate.retract(self._row[place], value)
            elif aggregate is not None:
                self._row[place] = aggregate.retract(self._row[place], value)

    def _is_not_older(self, values: list[Any], group: tuple[int, ...]) -> bool:
        """Whether a row's columns of the group are not less than the record's; NULL is least."""
        for place in group:
            new, old = values[place], self._row[place]
            if new == old:
                continue
            if new is None or old is None:
                return bool(old is None)
            if isinstance(new, str):
                return bool(new.encode() > old.encode())
            return bool(new > old)
        return True
