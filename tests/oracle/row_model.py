"""What the rows of a table are after statements, in memory: a list of rows, merged by key where the
table has one.

Rows are dicts by column. A change that the model can't say the outcome of, because it depends on
when files are compacted or on the order of rows without one, raises `UnclearError`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
Condition = Callable[[Mapping[str, Any]], bool | None]
Values = Callable[[Mapping[str, Any]], Row]
"""The new values of a row's columns; those that are not named stay."""


class UnclearError(Exception):
    """The table may hold this or that afterwards."""


class MatchedTwiceError(Exception):
    """A MERGE would change a row by several rows of its source."""


@dataclass(frozen=True)
class Clause:
    """A clause of a MERGE: `values` is None for a DELETE. Conditions and values see a row of the
    table, a row of the source, or both, by the names that `pair` gives."""

    kind: str
    when: Condition
    values: Values | None


@dataclass
class Counts:
    updated: int = 0
    deleted: int = 0
    inserted: int = 0


@dataclass
class RowModel:
    """Rows, and how those of one key are merged. `groups` are sequence groups, by the column that
    decides; `functions` aggregate functions, by column."""

    engine: str
    columns: list[str]
    keys: tuple[str, ...] = ()
    sequence: str | None = None
    groups: dict[str, list[str]] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    """What is stored for NULL (`DefaultValueRow` of Paimon)."""
    rows: list[Row] = field(default_factory=list)
    deleted_at: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    """The greatest sequence of deleted keys: what has a lower one is hidden until a compaction has
    dropped the delete."""
    ghosts: dict[tuple[Any, ...], Row] = field(default_factory=dict)
    """Deleted rows of engines that fold: until a compaction has dropped the delete, a new row of
    the key begins with their values (`PartialUpdateMergeFunction.initRow`)."""

    def copy(self) -> RowModel:
        return copy.deepcopy(self)

    def insert(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self._insert(self._stored(row))

    def delete(self, condition: Condition) -> Counts:
        chosen = [row for row in self.rows if condition(row) is True]
        for row in chosen:
            self._remove(row)
        return Counts(deleted=len(chosen))

    def update(self, condition: Condition, values: Values) -> Counts:
        chosen = [row for row in self.rows if condition(row) is True]
        made = [{**row, **self._stored(values(row))} for row in chosen]
        for row, new in zip(chosen, made, strict=True):
            self._replace(row, new)
        return Counts(updated=len(chosen))

    def merge(
        self,
        source: Sequence[Row],
        on: Condition,
        pair: Callable[[Row | None, Row | None], Mapping[str, Any]],
        clauses: Sequence[Clause],
    ) -> Counts:
        """Apply a MERGE. Raises MatchedTwiceError before anything is changed."""
        changes: list[tuple[Row, Clause, Row | None]] = []
        added: list[Row] = []
        unmatched = list(source)
        for row in self.rows:
            matching = [each for each in source if on(pair(row, each)) is True]
            unmatched = [item for item in unmatched if not any(item is each for each in matching)]
            kind = "MATCHED" if matching else "NOT MATCHED BY SOURCE"
            found = [
                (row, clause, each)
                for each in matching or [None]
                if (clause := _deciding(clauses, kind, pair(row, each))) is not None
            ]
            if len(found) > 1:
                raise MatchedTwiceError
            changes += found
        for item in unmatched:
            given = pair(None, item)
            clause = _deciding(clauses, "NOT MATCHED", given)
            if clause is not None and clause.values is not None:
                added.append(clause.values(given))
        self._check_apart([*(row for row, _, _ in changes), *added])
        counts = Counts(inserted=len(added))
        made = [
            None
            if clause.values is None
            else {**row, **self._stored(clause.values(pair(row, each)))}
            for row, clause, each in changes
        ]
        for (row, _, _), new in zip(changes, made, strict=True):
            if new is None:
                counts.deleted += 1
                self._remove(row)
            else:
                counts.updated += 1
                self._replace(row, new)
        self.insert(added)
        return counts

    def key_of(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.keys)

    def _stored(self, given: Row) -> Row:
        return {
            name: self.defaults.get(name) if value is None else value
            for name, value in given.items()
        }

    def _check_apart(self, rows: Sequence[Row]) -> None:
        """Two rows of a key that one MERGE writes have no order."""
        keys = [self.key_of(row) for row in rows] if self.keys else []
        if len(keys) != len(set(keys)):
            raise UnclearError

    def _insert(self, row: Row) -> None:
        old = self._found(row)
        if old is None:
            if self.keys and self.sequence is not None:
                before = self.deleted_at.get(self.key_of(row))
                if before is not None and _rank(row[self.sequence]) < before:
                    raise UnclearError
            if self.keys and self.key_of(row) in self.ghosts:
                begun: Row = {**self.ghosts[self.key_of(row)]}
                self._merge_into(begun, row)
                if begun != row:
                    raise UnclearError
            self.rows.append(row)
        else:
            self._merge_into(old, row)

    def _replace(self, old: Row, new: Row) -> None:
        if self.keys:
            self._merge_into(old, new)
        else:
            old.update(new)

    def _merge_into(self, old: Row, new: Row) -> None:
        match self.engine:
            case "deduplicate":
                if self.sequence is None or _rank(new[self.sequence]) >= _rank(old[self.sequence]):
                    old.update(new)
            case "partial-update":
                grouped = {name for names in self.groups.values() for name in names}
                for by, names in self.groups.items():
                    if new[by] is not None and _rank(new[by]) >= _rank(old[by]):
                        old.update({name: new[name] for name in (by, *names)})
                for name, value in new.items():
                    if value is not None and name not in grouped and name not in self.groups:
                        old[name] = value
            case "aggregation":
                for name in self.columns:
                    if name not in self.keys:
                        how = self.functions.get(name, "last_non_null_value")
                        old[name] = _aggregated(how, old[name], new[name])

    def _found(self, row: Row) -> Row | None:
        if not self.keys:
            return None
        key = self.key_of(row)
        return next((each for each in self.rows if self.key_of(each) == key), None)

    def _remove(self, row: Row) -> None:
        if self.keys and self.sequence is not None:
            key = self.key_of(row)
            rank = _rank(row[self.sequence])
            self.deleted_at[key] = max(rank, self.deleted_at.get(key, rank))
        if self.engine in ("partial-update", "aggregation"):
            self.ghosts[self.key_of(row)] = row
        self.rows = [each for each in self.rows if each is not row]


def _deciding(clauses: Sequence[Clause], kind: str, given: Mapping[str, Any]) -> Clause | None:
    return next((each for each in clauses if each.kind == kind and each.when(given) is True), None)


def _rank(sequence: Any) -> tuple[bool, Any]:
    """A sequence's place: NULL is below all (`UserDefinedSeqComparator` of Paimon)."""
    return (sequence is not None, 0 if sequence is None else sequence)


def _aggregated(function: str, old: Any, new: Any) -> Any:
    match function:
        case "last_value":
            return new
        case "last_non_null_value":
            return old if new is None else new
    known = [each for each in (old, new) if each is not None]
    if len(known) < 2:
        return known[0] if known else None
    return {"sum": sum, "max": max, "min": min}[function](known)
