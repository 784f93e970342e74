"""How the merge engine merges the rows that an UPDATE writes into a table with keys.

Such a row is merged with the stored one by their key. An older row loses, NULL does not overwrite
everywhere, and a sum adds what it had already. A `MergedUpdate` determines which rows would have a
visible effect, as SQL text over their values before and after. Other rows get a special kind: the
writer drops and counts them.

Sources: `UserDefinedSeqComparator`, `PartialUpdateMergeFunction`, `FieldAggregator`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.reads.views import OLDER, PARTLY, UNCHANGED, UPDATE_AFTER
from paimon_magics.planning.schemas.table_schema import (
    Column,
    TableSchema,
    column_list,
    field_option_keys,
)
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.data_types import (
    AtomicType,
    DataType,
    MapType,
    MultisetType,
    contains_type,
    parts_of,
)
from paimon_magics.statements.statement import TableName

Text = Callable[[str], str]
"""The SQL text of a column's value."""

_REPLACES = ("last_value", "last_non_null_value")
_ADDS = ("sum", "product", "listagg", "collect", "nested_update", "nested_partial_update")
"""The aggregate functions that change a value by merging it with itself; NULL changes nothing."""


@dataclass(frozen=True, slots=True)
class _Assigned:
    """A column that is assigned, or whose sequence is. Its value is taken where the sequence
    `group` has one that is not less than the stored one; with `takes_null` a NULL is, too."""

    column: Column
    group: tuple[Column, ...]
    takes_null: bool

    @property
    def can_lose(self) -> bool:
        """Whether a value may not be taken."""
        return bool(self.group) or (self.column.type.nullable and not self.takes_null)

    def lost(self, before: Text, after: Text) -> str:
        """Whether the row would have another value, which is not taken."""
        old, new = before(self.column.name), after(self.column.name)
        return f"({self._changed(old, new)} AND NOT {self._taken(before, after)})"

    def seen(self, before: Text, after: Text) -> str:
        """Whether the row gets another value."""
        old, new = before(self.column.name), after(self.column.name)
        return f"({self._changed(old, new)} AND {self._taken(before, after)})"

    def _changed(self, old: str, new: str) -> str:
        if not _is_comparable(self.column.type):
            return f"({old} IS NOT NULL OR {new} IS NOT NULL)"
        return f"NOT ({old} <=> {new})"

    def _taken(self, before: Text, after: Text) -> str:
        terms = [] if self.takes_null else [f"{after(self.column.name)} IS NOT NULL"]
        if self.group:
            values = [after(column.name) for column in self.group]
            some = " OR ".join(f"{value} IS NOT NULL" for value in values)
            terms += [f"({some})", f"NOT {_is_less(self.group, after, before)}"]
        return f"({' AND '.join(terms)})" if terms else "true"


@dataclass(frozen=True, slots=True)
class MergedUpdate:
    """How the rows of an UPDATE are merged. Rows whose fields of `sequence` would get smaller lose
    against the stored ones. The columns `blank` are written as NULL, which leaves them as they are.
    """

    sequence: tuple[Column, ...] = ()
    descending: bool = False
    assigned: tuple[_Assigned, ...] = ()
    blank: tuple[Column, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether all rows are seen as they are written."""
        return self == MergedUpdate()

    @property
    def loses_nulls_only(self) -> bool:
        """Whether rows are seen as they are written where no assigned value is NULL."""
        return not (
            self.sequence or self.blank or any(assigned.group for assigned in self.assigned)
        )

    @property
    def compared(self) -> tuple[str, ...]:
        """The columns whose values before the UPDATE are needed."""
        names = [column.name for column in self.sequence]
        for assigned in self.assigned:
            names += [assigned.column.name, *(column.name for column in assigned.group)]
        return tuple(dict.fromkeys(names))

    def kind(self, before: Text, after: Text) -> str:
        """The kind of an updated row, or the reason for not writing it, as SQL of a TINYINT."""
        cases = []
        if self.sequence:
            less = _is_less(self.sequence, after, before, descending=self.descending)
            cases.append(f" WHEN {less} THEN {OLDER}Y")
        if self.assigned:
            lost = " OR ".join(column.lost(before, after) for column in self.assigned)
            seen = " OR ".join(column.seen(before, after) for column in self.assigned)
            part = f"CASE WHEN {seen} THEN {PARTLY}Y ELSE {UNCHANGED}Y END"
            cases.append(f" WHEN {lost} THEN {part}")
        return f"CASE{''.join(cases)} ELSE {UPDATE_AFTER}Y END" if cases else f"{UPDATE_AFTER}Y"


def merged_update(
    name: TableName,
    schema: TableSchema,
    assigned: Collection[str],
    nulls: Collection[str] = (),
) -> MergedUpdate:
    """How the rows of an UPDATE are merged that assigns the columns `assigned`. The columns `nulls`
    get NULL in all rows.

    Raises UnsupportedStatementError for a column that can't take the assigned value, or that would
    change without an assignment.
    """
    names = [name for name in schema.sequence_fields if name in assigned]
    sequence = tuple(map(schema.column, schema.sequence_fields)) if names else ()
    order = (schema.option("sequence.field.sort-order") or "").lower()
    descending = bool(sequence) and order == "descending"
    if not schema.engine.skips_nulls:
        return MergedUpdate(sequence, descending)
    groups, functions = _groups(schema), _functions(schema)
    rules = []
    for column in schema.columns:
        group = groups.get(column.name, ())
        if column.name in schema.primary_keys or column.name not in assigned:
            continue
        function = functions.get(column.name)
        if function is not None and function not in _REPLACES:
            raise _merged_error(name, column, function)
        takes_null = function == "last_value" or (bool(group) and function is None)
        if column.name in nulls and not takes_null and column.name not in schema.sequence_fields:
            raise _null_error(name, column)
        rules.append(_Assigned(column, group, takes_null))
    if not any(rule.can_lose for rule in rules):
        rules = []
    blank = tuple(column for column in schema.columns if functions.get(column.name) in _ADDS)
    for column in blank:
        if not column.type.nullable:
            raise _needed_error(name, column, functions[column.name])
    return MergedUpdate(sequence, descending, tuple(rules), blank)


def _groups(schema: TableSchema) -> Mapping[str, tuple[Column, ...]]:
    """The sequence columns that decide about a column; those decide about themselves."""
    groups: dict[str, tuple[Column, ...]] = {}
    for key, columns, suffix in field_option_keys(schema):
        if suffix == "sequence-group":
            members = column_list(schema.stored_option(key))
            group = tuple(map(schema.column, columns))
            groups.update((member, group) for member in (*members, *columns))
    return groups


def _functions(schema: TableSchema) -> Mapping[str, str]:
    """The aggregate functions of columns that have one."""
    default = schema.stored_option("fields.default-aggregate-function")
    ordering = {
        name
        for _, columns, suffix in field_option_keys(schema)
        if suffix == "sequence-group"
        for name in columns
    }
    without = {*schema.primary_keys, *schema.sequence_fields, *ordering}
    functions = {
        name: schema.stored_option(f"fields.{name}.aggregate-function") or default
        for name in schema.column_names
        if name not in without
    }
    return {name: function for name, function in functions.items() if function is not None}


def _is_less(
    fields: Sequence[Column], left_of: Text, right_of: Text, *, descending: bool = False
) -> str:
    """Whether the values of `left_of` come before those of `right_of`; NULL does in
    either order."""
    text = "false"
    for column in reversed(fields):
        left, right = left_of(column.name), right_of(column.name)
        pairs = [(left, right)]
        if isinstance(column.type, AtomicType) and column.type.name in ("FLOAT", "DOUBLE"):
            # Java's order has -0.0 before 0.0, which are equal in SQL.
            pairs.append((_is_positive(left), _is_positive(right)))
        for first, second in reversed(pairs):
            text = (
                f"CASE WHEN {first} <=> {second} THEN {text} WHEN {first} IS NULL THEN true "
                f"WHEN {second} IS NULL THEN false "
                f"ELSE {first} {'>' if descending else '<'} {second} END"
            )
    return f"({text})"


def _is_comparable(data_type: DataType) -> bool:
    """Whether Spark compares values of the type."""
    no_maps = not any(isinstance(part, MapType | MultisetType) for part in parts_of(data_type))
    return no_maps and not contains_type(data_type, "VARIANT")


def _is_positive(value: str) -> str:
    return f"(CAST({value} AS STRING) <> '-0.0')"


def _merged_error(name: TableName, column: Column, function: str) -> UnsupportedStatementError:
    return UnsupportedStatementError(
        f"UPDATE can't set {quoted(column.name)} of `{name}`: its aggregate function '{function}' "
        "would merge the new value with the stored value.",
        hint=f"INSERT INTO {name} the key, the sequence, and the value to merge into "
        f"{quoted(column.name)}.",
    )


def _null_error(name: TableName, column: Column) -> UnsupportedStatementError:
    return UnsupportedStatementError(
        f"UPDATE can't set {quoted(column.name)} of `{name}` to NULL: with the merge engine "
        "partial-update a NULL leaves a value as it is.",
        hint="DELETE the rows and INSERT them again, or put the column into a sequence group "
        f"('fields.<sequence column>.sequence-group' = '{column.name}'), in which NULL overwrites.",
    )


def _needed_error(name: TableName, column: Column, function: str) -> UnsupportedStatementError:
    return UnsupportedStatementError(
        f"UPDATE can't leave {quoted(column.name)} of `{name}` as it is: the column is NOT NULL, "
        f"and its aggregate function '{function}' would merge its value with itself.",
        hint=f"INSERT INTO {name} the key, the sequence, and the value to merge into "
        f"{quoted(column.name)}.",
    )


# How many rows of an UPDATE the merge engine would not take, or not as they are, and why.


@dataclass(frozen=True, slots=True)
class UnseenCounts:
    """The numbers of rows that were not written, because they are `older` than the stored ones or
    would change nothing (`unchanged`), and of rows that were changed `partly`."""

    older: int = 0
    unchanged: int = 0
    partly: int = 0

    @property
    def unwritten(self) -> int:
        """How many rows did not change."""
        return self.older + self.unchanged

    def __bool__(self) -> bool:
        return bool(self.older or self.unchanged or self.partly)

    def __add__(self, other: UnseenCounts) -> UnseenCounts:
        return UnseenCounts(
            self.older + other.older,
            self.unchanged + other.unchanged,
            self.partly + other.partly,
        )


ALL_SEEN = UnseenCounts()
"""Where each row is changed as it was assigned."""


def unseen_notes(schema: TableSchema, counts: UnseenCounts, be: str = "were") -> tuple[str, ...]:
    """A sentence for each reason for which rows did not change, or not as assigned. `be` is "were",
    or "would be" where nothing has been written."""
    notes = []
    if counts.older:
        fields = ", ".join(f"`{name}`" for name in schema.sequence_fields)
        notes.append(
            f"{_not_changed(counts.older, be)}: {'its' if counts.older == 1 else 'their'} sequence "
            f"({fields}, 'sequence.field') would decrease, so the old row would win."
        )
    if counts.unchanged:
        notes.append(f"{_not_changed(counts.unchanged, be)}: {_reason(schema)}.")
    if counts.partly:
        verb = "was" if counts.partly == 1 and be == "were" else be
        notes.append(
            f"{counts.partly:,} of the updated rows {verb} changed in part: {_reason(schema)}."
        )
    return tuple(notes)


def _not_changed(rows: int, be: str) -> str:
    if be == "were":
        return f"{count_text(rows, 'row')} {'was' if rows == 1 else 'were'} not changed"
    return f"{count_text(rows, 'row')} would not be changed"


def _reason(schema: TableSchema) -> str:
    suffixes = [suffix for _, _, suffix in field_option_keys(schema)]
    if "sequence-group" not in suffixes:
        return "with the merge engine partial-update a NULL leaves a value as it is"
    return (
        "with the merge engine partial-update a sequence group takes no values with a smaller or "
        "no sequence, and a NULL outside of groups leaves a value as it is"
    )
