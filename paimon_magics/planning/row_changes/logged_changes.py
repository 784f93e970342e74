"""DELETE and UPDATE of rows that are named by their keys, as small changes: they go into the log of
small inserts, and are carried out in order with these when they are loaded.

Such a change gives every key column its values, and may have further conditions that compare
columns with values. An UPDATE assigns plain values. Everything can be decided from the row of a key
alone, without Spark. This module decides which statements are such changes, and which tables accept
them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from paimon_magics.errors import PaimonMagicsError, UnsupportedStatementError
from paimon_magics.planning.reads.predicates import (
    ColumnPredicate,
    PredicateValue,
    column_predicates,
    few_values,
)
from paimon_magics.planning.row_changes.assignments import assigned_paths
from paimon_magics.planning.row_changes.change_rules import (
    ChangeMethod,
    method_of_delete,
    method_of_update,
)
from paimon_magics.planning.row_changes.plain_values import computed, plain_filters, plain_values
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.planning.writes.inserts import level_zero_hidden_by, takes_small_inserts
from paimon_magics.statements.statement import Delete, RowChange, TableName, Update

_KEYS_MAX = 1000
"""Keys of one statement. More of them are better read by a statement of its own."""


@dataclass(frozen=True, slots=True)
class LoggedChange:
    """The change of the rows with the `keys`, tuples of values of `columns`, which are the primary
    key's. Rows that do not meet all `conditions` stay as they are. `assigned` are the new values by
    column, None for a DELETE."""

    columns: tuple[str, ...]
    keys: tuple[tuple[PredicateValue, ...], ...]
    conditions: tuple[ColumnPredicate, ...] = ()
    assigned: tuple[tuple[str, object], ...] | None = None


def check_takes_change(name: TableName, schema: TableSchema, *, updates: bool) -> None:
    """Raise UnsupportedStatementError if key deletes (with `updates`, key updates) can't be logged,
    because loading them later would give wrong rows."""
    verb = "UPDATE" if updates else "DELETE"
    method = (method_of_update if updates else method_of_delete)(name, schema)
    why = ""
    if not schema.is_primary_key_table:
        why = "it has no primary key"
    elif method is not ChangeMethod.KINDS:
        why = f"its merge engine {schema.merge_engine} takes no rows of the kind -D"
    elif _folds(schema):
        # `PartialUpdateMergeFunction`, `AggregateMergeFunction`: the next row of a deleted key is
        # folded into what the row of the kind -D has.
        why = f"its merge engine {schema.merge_engine} folds the values of a key's rows"
    elif schema.rowkind_field is not None:
        why = f"its column `{schema.rowkind_field}` holds the row kinds ('rowkind.field')"
    elif schema.bucket_mode not in ("HASH_FIXED", "HASH_DYNAMIC"):
        why = "its rows are assigned to buckets later"
    elif not set(schema.partition_keys) <= set(schema.primary_keys):
        why = "its primary key lacks partition columns, so a key may be in several partitions"
    elif level_zero_hidden_by(schema) is not None:
        why = f"its rows appear only after a compaction ({level_zero_hidden_by(schema)})"
    if why:
        raise UnsupportedStatementError(
            f"Table `{name}` takes no {verb} through small inserts: {why}.",
            hint=f"Nothing was accepted. Run {verb} as a statement of a session, which sees all "
            "rows acknowledged before it.",
        )


def _folds(schema: TableSchema) -> bool:
    ends = (".aggregate-function", ".sequence-group")
    return schema.engine.merges_values and (
        not schema.engine.skips_nulls or any(key.endswith(ends) for key, _ in schema.options)
    )


def pinned_columns(schema: TableSchema) -> frozenset[str]:
    """The columns that a small UPDATE can't assign: a row of another key is another row, and one
    with a lower sequence would lose against the row that it replaces."""
    return frozenset({*schema.primary_keys, *schema.partition_keys, *schema.sequence_fields})


def logged_change(
    change: RowChange, name: TableName, schema: TableSchema, bound: Mapping[str, object]
) -> LoggedChange | None:
    """A DELETE or UPDATE as a small change; None if the statement is not a small change, or the
    table accepts none. `bound` are the values of bind names.

    Raises the errors of a wrong assignment.
    """
    updates = isinstance(change, Update)
    if not takes_small_inserts(schema) or name.branch is not None:
        return None
    try:
        check_takes_change(name, schema, updates=updates)
    except PaimonMagicsError:
        return None  # the statement raises it, or does it another way
    filters = plain_filters(change, schema.column_names)
    if filters is None:
        return None
    predicates = column_predicates(filters, schema.columns, bound)
    assigned = _assigned(change, schema, bound) if isinstance(change, Update) else ()
    if len(predicates) != len(filters) or assigned is None:
        return None
    key_values = few_values(predicates, schema.primary_keys, _KEYS_MAX)
    if key_values is None:
        return None
    return LoggedChange(
        schema.primary_keys,
        tuple(product(*key_values)),
        tuple(_further(predicates, schema.primary_keys)),
        None if isinstance(change, Delete) else assigned,
    )


def _further(
    predicates: Sequence[ColumnPredicate], keys: Collection[str]
) -> Iterable[ColumnPredicate]:
    """The conditions that the keys alone do not meet."""
    for predicate in predicates:
        alone = sum(other.column == predicate.column for other in predicates) == 1
        if predicate.column not in keys or not alone:
            yield predicate


def _assigned(
    update: Update, schema: TableSchema, bound: Mapping[str, object]
) -> tuple[tuple[str, object], ...] | None:
    """The values by column. None if a value depends on the row or on Spark, if a column is pinned,
    or if NULL would not be stored as NULL."""
    assigned: list[tuple[str, object]] = []
    pinned = pinned_columns(schema)
    is_partial = schema.engine.skips_nulls
    for value in plain_values(update, schema.columns, assigned_paths(update, schema)) or ():
        values = None if value.sources else computed(value, {}, 1, bound)
        if values is None or value.column.name in pinned:
            return None
        if values[0] is None and (value.column.default is not None or is_partial):
            return None
        assigned.append((value.column.name, values[0]))
    return tuple(assigned) if assigned else None
