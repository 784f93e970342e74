"""Applies changes of rows that are named by their keys, in order with inserts around them.

A change applies to the row of its key at that point: the table's row, merged with the rows that
came before the change. Keys are independent. So the first change of every key is applied at once,
then the second, and so on. Memory holds the rows that come in and the table's rows of their keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_magics.columnar.folding import merge_rows
from paimon_magics.columnar.key_numbers import key_numbers
from paimon_magics.columnar.merging import KIND, SEQUENCE, group_rows, is_retract
from paimon_magics.columnar.value_bounds import matching
from paimon_magics.planning.reads.predicates import ColumnPredicate
from paimon_magics.planning.reads.views import DELETE, INSERT, KIND_NAMES, UPDATE_AFTER
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.tables.schema.merge_rule import merge_rule

_Ints = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]


_KINDS = {name: kind for kind, name in enumerate(KIND_NAMES)}


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the rows with the `keys`, a table of the primary key's columns in their order,
    that meet all `conditions`: they get the values `assigned`, arrays of one value by column, or
    are deleted where that is None."""

    keys: pa.Table
    conditions: tuple[ColumnPredicate, ...] = ()
    assigned: Mapping[str, pa.Array] | None = None


def keys_of(entries: Sequence[pa.RecordBatch | Change]) -> pa.Table | None:
    """The keys that changes name, each once; None if there is no change."""
    named = [entry.keys for entry in entries if isinstance(entry, Change)]
    if not named:
        return None
    keys = pa.concat_tables(named)
    (numbers,) = key_numbers([keys])
    _, firsts = np.unique(numbers, return_index=True)
    return keys.take(pa.array(firsts)).combine_chunks()


def changed_rows(
    schema: TableSchema,
    entries: Sequence[pa.RecordBatch | Change],
    stored: Callable[[pa.Table], pa.Table],
) -> pa.Table:
    """The rows to write for rows and changes, in their order. They have the table's columns, and
    their kinds in a last column, KIND. `stored` returns the table's rows with some keys, and maybe
    others, in the table's columns. There is at least one change.

    Raises JobError for rows that the merge engine does not take.
    """
    keys = keys_of(entries)
    assert keys is not None
    below = stored(keys)
    (owners,) = _numbers(keys, [below.select(keys.column_names)])
    below = below.filter(pa.array(owners < keys.num_rows))
    timeline = _Timeline(schema, entries, keys, below)
    collapses = not needs_rows_below(schema) and schema.changelog_producer != "input"
    if collapses:
        timeline.forget_what_is_deleted()
    state = below
    for turn in range(timeline.turns):
        state = timeline.carry_out(turn, state)
    return timeline.written()


class _Timeline:
    """The rows that are inserted and the changes, each with its `place` among all of them and the
    number of its key; and what is written."""

    def __init__(
        self,
        schema: TableSchema,
        entries: Sequence[pa.RecordBatch | Change],
        keys: pa.Table,
        below: pa.Table,
    ) -> None:
        self._schema = schema
        self._keys = keys
        names = list(schema.primary_keys)
        batches = [
            (at, entry) for at, entry in enumerate(entries) if isinstance(entry, pa.RecordBatch)
        ]
        changes = [(at, entry) for at, entry in enumerate(entries) if isinstance(entry, Change)]
        self._changes = {at: entry for at, entry in changes}
        self._rows = pa.Table.from_batches([entry for _, entry in batches], below.schema)
        self._places = _repeated([(at, entry.num_rows) for at, entry in batches])
        self._change_places = _repeated([(at, entry.keys.num_rows) for at, entry in changes])
        named = pa.concat_tables([entry.keys for _, entry in changes])
        self._changed, own = _numbers(keys, [named, self._rows.select(names)])
        self._owners = np.where(own < keys.num_rows, own, -1)
        self._once()
        self._parts: list[tuple[pa.Table, int, _Ints]] = []

    @property
    def turns(self) -> int:
        """The maximum number of changes of one key."""
        return int(self._turns.max()) + 1 if len(self._turns) else 0

    def forget_what_is_deleted(self) -> None:
        """Leave out all rows and changes before the last unconditional DELETE of a key."""
        last = np.full(self._keys.num_rows, -1, dtype=np.int64)
        whole = [
            at
            for at, change in self._changes.items()
            if not change.conditions and change.assigned is None
        ]
        ends = np.isin(self._change_places, whole)
        np.maximum.at(last, self._changed[ends], self._change_places[ends])
        remains = self._change_places >= last[self._changed]
        self._changed, self._change_places = self._changed[remains], self._change_places[remains]
        named = self._owners >= 0
        gone = named & (self._places < np.where(named, last[self._owners], -1))
        self._rows = self._rows.filter(pa.array(~gone))
        self._places, self._owners = self._places[~gone], self._owners[~gone]
        self._order()

    def carry_out(self, turn: int, state: pa.Table) -> pa.Table:
        """Apply the change number `turn` of every key that has so many. `state` has the rows of
        these keys after the change before; returns those after this one."""
        chosen = self._turns == turn
        keys, places = self._changed[chosen], self._change_places[chosen]
        place_of = np.full(self._keys.num_rows, -1, dtype=np.int64)
        place_of[keys] = places
        (owners,) = _numbers(self._keys, [state.select(self._keys.column_names)])
        now = state.filter(pa.array(place_of[owners] >= 0))
        came = (self._owners >= 0) & (self._row_turns == turn)
        came &= np.where(came, place_of[self._owners], -1) >= 0
        merged = merged_on_top(self._schema, now, self._rows.filter(pa.array(came)))
        if not merged.num_rows:
            return merged
        (owners,) = _numbers(self._keys, [merged.select(self._keys.column_names)])
        by_place = np.argsort(place_of[owners], kind="stable")
        merged = merged.take(pa.array(by_place)).combine_chunks()
        present, firsts = np.unique(place_of[owners][by_place], return_index=True)
        ends = [*firsts[1:], merged.num_rows]
        left = [
            self._change(int(place), merged.slice(first, end - first))
            for place, first, end in zip(present, firsts, ends, strict=True)
        ]
        return pa.concat_tables(left)

    def written(self) -> pa.Table:
        """All rows to write, in their order."""
        parts = [(self._rows, INSERT, self._places), *self._parts]
        places = np.concatenate([places for _, _, places in parts])
        tables = [
            rows.append_column(KIND, pa.array(np.full(rows.num_rows, kind, np.int8)))
            for rows, kind, _ in parts
        ]
        order = np.argsort(places, kind="stable")
        return pa.concat_tables(tables).take(pa.array(order))

    def _change(self, place: int, rows: pa.Table) -> pa.Table:
        """Carry out one change on the rows of its keys; return them as they are afterwards."""
        change = self._changes[place]
        hit: _Bools = np.ones(rows.num_rows, dtype=bool)
        for condition in change.conditions:
            hit &= matching(condition, rows.column(condition.column).chunk(0))
        hits, others = rows.filter(pa.array(hit)), rows.filter(pa.array(~hit))
        places = np.full(hits.num_rows, place, dtype=np.int64)
        if change.assigned is None:
            self._parts.append((self._emptied(hits), DELETE, places))
            return others
        for name, value in change.assigned.items():
            field = hits.schema.field(name)
            column = value.take(pa.array(np.zeros(hits.num_rows, dtype=np.int64)))
            hits = hits.set_column(hits.schema.get_field_index(name), field, column)
        self._parts.append((hits, UPDATE_AFTER, places))
        return pa.concat_tables([others, hits])

    def _emptied(self, rows: pa.Table) -> pa.Table:
        """Rows to be deleted, as they are written. With partial-update the next row of the key is
        merged into that one, which so must have no values (`PartialUpdateMergeFunction`)."""
        schema = self._schema
        if schema.engine.keeps_last_row:
            return rows
        required = {*schema.primary_keys, *schema.sequence_fields}
        for at, field in enumerate(rows.schema):
            if field.nullable and field.name not in required:
                rows = rows.set_column(at, field, pa.nulls(rows.num_rows, field.type))
        return rows

    def _once(self) -> None:
        """Number the changes of each key, one entry's change of a key counted once."""
        pairs = np.unique(np.stack([self._changed, self._change_places]), axis=1)
        self._changed, self._change_places = pairs
        self._order()

    def _order(self) -> None:
        """Number the changes of each key from 0 up, and find the one that follows each row."""
        self._turns = _counted(self._changed)
        width = int(max(self._places.max(initial=0), self._change_places.max(initial=0))) + 1
        order = self._changed * width + self._change_places
        before = np.searchsorted(order, np.maximum(self._owners, 0) * width + self._places)
        first = np.searchsorted(self._changed, np.maximum(self._owners, 0))
        self._row_turns = before - first


def _repeated(counts: Sequence[tuple[int, int]]) -> _Ints:
    """Each number as often as its count says."""
    numbers = np.array([number for number, _ in counts], dtype=np.int64)
    return np.repeat(numbers, [count for _, count in counts])


def _numbers(keys: pa.Table, tables: Sequence[pa.Table]) -> list[_Ints]:
    """The position in `keys` of each row's key, for each table; a number from the count of `keys`
    on if `keys` lacks it."""
    numbers = key_numbers([keys, *tables])
    position = np.arange(max((int(each.max(initial=-1)) for each in numbers), default=-1) + 1)
    position += keys.num_rows
    position[numbers[0]] = np.arange(keys.num_rows)
    return [position[each] for each in numbers[1:]]


def _counted(sorted_numbers: _Ints) -> _Ints:
    """How many equal numbers come before each one."""
    first = np.searchsorted(sorted_numbers, sorted_numbers)
    return np.asarray(np.arange(len(sorted_numbers)) - first, dtype=np.int64)


# Merges rows that are not in a table yet with the table's rows of the same keys, as its merge
# engine will once they are written.
#
# The table's rows were merged before. Paimon's merge engines give the same result in two steps as
# in one, because compaction merges in steps too.


def needs_rows_below(schema: TableSchema) -> bool:
    """Whether merging new rows needs the table's rows of the same keys. It does not if the last row
    always wins."""
    return (
        not schema.engine.keeps_last_row
        or bool(schema.sequence_fields)
        or schema.flag("ignore-delete")
    )


def merged_on_top(schema: TableSchema, below: pa.Table, rows: pa.Table) -> pa.Table:
    """Merge `rows`, oldest first, with `below`, the table's rows of these keys: one row for each
    key, none for a deleted key.

    Both have the table's columns; `rows` may have their kinds in the column KIND, too. `below` is
    empty where `needs_rows_below` is false. Raises JobError for rows that the merge engine does not
    take.
    """
    kinds = _kinds(schema, rows)
    if KIND in rows.schema.names:
        rows = rows.drop_columns([KIND])
    rule = merge_rule(schema)
    order = replace(rule.order, keys=schema.primary_keys)
    rule = replace(rule, order=order, looks_up=False)  # `below` is merged already
    if not rows.num_rows:
        return below
    slices = [_numbered(rows, kinds, below.num_rows)]
    if below.num_rows:
        slices.insert(0, _numbered(below, np.zeros(below.num_rows, np.int8), 0))
    merged = merge_rows(group_rows(tuple(slices), rule.order), rule)
    alive = [
        batch.filter(pa.array(~is_retract(np.asarray(batch.column(KIND))))) for batch in merged
    ]
    columns = rows.schema.names
    return pa.Table.from_batches([batch.select(columns) for batch in alive], rows.schema)


def _numbered(rows: pa.Table, kinds: npt.NDArray[np.int8], at: int) -> pa.RecordBatch:
    numbered = rows.append_column(SEQUENCE, pa.array(np.arange(at, at + rows.num_rows)))
    (batch,) = numbered.append_column(KIND, pa.array(kinds)).combine_chunks().to_batches()
    return batch


def _kinds(schema: TableSchema, rows: pa.Table) -> npt.NDArray[np.int8]:
    if KIND in rows.schema.names:
        return np.asarray(rows.column(KIND)).astype(np.int8)
    if schema.rowkind_field is None:
        return np.zeros(rows.num_rows, np.int8)
    texts = rows.column(schema.rowkind_field).to_pylist()
    return np.array([_KINDS.get(text, 0) for text in texts], np.int8)
