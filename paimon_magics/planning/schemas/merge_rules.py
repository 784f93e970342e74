"""Rules on how rows are merged: merge engines, changelogs, sequences, `fields.*`.

The rules follow `SchemaValidation`, `PartialUpdateMergeFunction.Factory`,
`AggregateMergeFunction.Factory` and the aggregator factories of Paimon 2.0.0. Two rules are this
project's own, for tables that statements define (`STATED_MERGE_RULES`). They refuse unusable tables
that Paimon creates: an append table with a merge engine, and an aggregate function on a column of a
wrong type, which Paimon only notices when it merges the first row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from paimon_magics.errors import InvalidTableError, nearest
from paimon_magics.planning.options.table_options import CORE_OPTIONS
from paimon_magics.planning.options.values import choice_value
from paimon_magics.planning.schemas.table_schema import (
    TableSchema,
    check_columns_exist,
    column_list,
    field_option_keys,
)
from paimon_magics.statements.data_types import (
    ArrayType,
    DataType,
    MapType,
    RowType,
    family_of,
    is_type,
)

_AGGREGATES_OF_ANY_TYPE = (
    "first_non_null_value", "first_not_null_value", "first_value", "last_non_null_value",
    "last_value", "max", "min",
)  # fmt: skip
_AGGREGATE_TYPES: dict[str, tuple[str, Callable[[DataType], bool]]] = {
    **dict.fromkeys(("bool_and", "bool_or"), ("BOOLEAN", lambda t: family_of(t) == "boolean")),
    **dict.fromkeys(
        ("hll_sketch", "rbm32", "rbm64", "theta_sketch"),
        ("VARBINARY", lambda t: is_type(t, "VARBINARY", "BYTES")),
    ),
    **dict.fromkeys(
        ("product", "sum"), ("number", lambda t: family_of(t) in ("integer", "float", "decimal"))
    ),
    **dict.fromkeys(
        ("nested_partial_update", "nested_update"),
        (
            "ARRAY of STRUCT",
            lambda t: isinstance(t, ArrayType) and isinstance(t.element, RowType),
        ),
    ),
    "collect": ("ARRAY", lambda t: isinstance(t, ArrayType)),
    "listagg": ("STRING", lambda t: is_type(t, "STRING")),
    "merge_map": ("MAP", lambda t: isinstance(t, MapType)),
    "merge_map_with_keytime": (
        "MAP with STRUCT values",
        lambda t: isinstance(t, MapType) and isinstance(t.value, RowType),
    ),
}
_AGGREGATES = (*_AGGREGATES_OF_ANY_TYPE, *_AGGREGATE_TYPES)


def _check_field_options(schema: TableSchema) -> None:
    """`SchemaValidation.validateFieldsPrefix`."""
    for key, columns, suffix in field_option_keys(schema):
        check_columns_exist(schema, columns, f"The option '{key}'")
        if "." in suffix and not suffix.startswith(("map.", "pk-")):
            for name in columns:
                if len(columns) == 1 and isinstance(schema.column(name).type, RowType):
                    raise InvalidTableError(
                        f"The option '{key}' names a field inside the STRUCT `{name}`.",
                        hint="Only whole columns can have such options.",
                    )


def _check_merge_engine(schema: TableSchema) -> None:
    stored = schema.stored_option("merge-engine")
    if stored is not None:
        choice_value("merge-engine", stored, CORE_OPTIONS["merge-engine"].choices)


def _check_keys_to_merge(schema: TableSchema) -> None:
    stored = schema.stored_option("merge-engine")
    if stored is not None and not schema.primary_keys:
        raise InvalidTableError(
            f"The option 'merge-engine' = '{stored}' needs a primary key.",
            hint="Add PRIMARY KEY or the option 'primary-key', or leave 'merge-engine' out.",
        )


def _check_changelog_producer(schema: TableSchema) -> None:
    producer = schema.changelog_producer
    choice_value("changelog-producer", producer, CORE_OPTIONS["changelog-producer"].choices)
    if producer == "none":
        return
    if not schema.primary_keys:
        raise InvalidTableError(
            f"The option 'changelog-producer' = '{producer}' needs a primary key.",
            hint="Add PRIMARY KEY or the option 'primary-key', or leave 'changelog-producer' out.",
        )
    if schema.engine.keeps_first_row and not schema.producer.looks_up:
        raise InvalidTableError(
            f"The merge engine {schema.merge_engine} can't be combined with 'changelog-producer' = "
            f"'{producer}'.",
            hint="Use lookup or none.",
        )
    if schema.producer.looks_up and schema.stored_option("full-compaction.delta-commits"):
        raise InvalidTableError(
            "'full-compaction.delta-commits' can't be combined with 'changelog-producer' = "
            f"'{producer}'.",
            hint="Leave it out, or set 'changelog-producer' to full-compaction.",
        )
    if schema.flag("streaming-read-overwrite") and not schema.producer.is_input:
        raise InvalidTableError(
            "'streaming-read-overwrite' can't be combined with 'changelog-producer' = "
            f"'{producer}': readers would see changes twice.",
            hint="Leave out one of them.",
        )


def _check_sequence(schema: TableSchema) -> None:
    """`SchemaValidation.validateSequenceField`, `validateSnapshotSequenceOrdering`."""
    fields = schema.sequence_fields
    check_columns_exist(schema, fields, "The option 'sequence.field'")
    for name in fields:
        if fields.count(name) > 1:
            raise InvalidTableError(
                f"The option 'sequence.field' names `{name}` twice.", hint="Name it once."
            )
        if schema.stored_option(f"fields.{name}.aggregate-function") is not None:
            raise InvalidTableError(
                f"The sequence field `{name}` can't have an aggregate function.",
                hint=f"Leave out 'fields.{name}.aggregate-function'.",
            )
    if fields and schema.engine.keeps_first_row:
        raise InvalidTableError(
            f"The merge engine {schema.merge_engine} can't be combined with 'sequence.field'.",
            hint="Leave out 'sequence.field'.",
        )
    if fields and schema.is_cross_partition_update:
        raise InvalidTableError(
            "'sequence.field' can't be used where a key can move between partitions (the primary "
            f"key {', '.join(schema.primary_keys)} lacks partition keys of "
            f"{', '.join(schema.partition_keys)}).",
            hint="Add all partition keys to the primary key, or leave out 'sequence.field'.",
        )
    if schema.flag("sequence.snapshot-ordering") and (
        not schema.primary_keys or fields or not schema.write_only
    ):
        raise InvalidTableError(
            "'sequence.snapshot-ordering' needs a primary key, 'write-only' = 'true' and no "
            "'sequence.field'.",
            hint="Leave it out, or change the other options.",
        )


def _check_rowkind_field(schema: TableSchema) -> None:
    field = schema.rowkind_field
    if field is not None:
        check_columns_exist(schema, (field,), "The option 'rowkind.field'")
    if schema.flag("streaming-read-overwrite") and not schema.primary_keys:
        raise InvalidTableError(
            "'streaming-read-overwrite' needs a primary key.",
            hint="Use 'streaming-read-append-overwrite' for an append table.",
        )
    if schema.flag("table-read.sequence-number.enabled") and not schema.primary_keys:
        raise InvalidTableError(
            "'table-read.sequence-number.enabled' needs a primary key.", hint="Leave it out."
        )


def _aggregates(schema: TableSchema) -> Iterator[tuple[str, str, str]]:
    """Each column that is merged by an aggregate function, with the option and the function."""
    if not schema.primary_keys or not schema.engine.merges_values:
        return
    for name in schema.column_names:
        for key in (f"fields.{name}.aggregate-function", "fields.default-aggregate-function"):
            function = schema.stored_option(key)
            if function is not None:
                yield name, key, function
                break


def _check_aggregates(schema: TableSchema) -> None:
    """`SchemaValidation.validateMergeFunctionFactory`."""
    for _, key, function in _aggregates(schema):
        if function not in _AGGREGATES:
            raise InvalidTableError(
                f"There is no aggregate function '{function}' (option '{key}').",
                hint=nearest(function, _AGGREGATES, what="aggregate functions"),
            )


def _check_types_of_aggregates(schema: TableSchema) -> None:
    """The factories of aggregators, which Paimon asks at the first write."""
    for name, key, function in _aggregates(schema):
        if name in schema.primary_keys or name in schema.sequence_fields:
            continue
        wanted, fits = _AGGREGATE_TYPES.get(function, ("", lambda _: True))
        if not fits(schema.column(name).type):
            raise InvalidTableError(
                f"The aggregate function '{function}' of `{name}` needs a column of the type "
                f"{wanted}.",
                hint=f"Change '{key}' or the column's type.",
            )


def _check_partial_update(schema: TableSchema) -> None:
    """`PartialUpdateMergeFunction.Factory`."""
    if not schema.primary_keys or not schema.engine.skips_nulls:
        return
    protected: set[str] = set()
    sequences: set[str] = set()
    for key, columns, suffix in field_option_keys(schema):
        if suffix != "sequence-group":
            continue
        members = column_list(schema.stored_option(key))
        check_columns_exist(schema, members, f"The option '{key}'")
        for name in (*columns, *members):
            if name in schema.primary_keys:
                raise InvalidTableError(
                    f"The option '{key}' names `{name}`, which is in the primary key.",
                    hint="Leave it out of the sequence group.",
                )
        for name in members:
            if name in protected:
                raise InvalidTableError(
                    f"`{name}` is in more than one sequence group.", hint="Keep it in one group."
                )
        protected.update(members)
        sequences.update(columns)
    for name in schema.column_names:
        function = schema.stored_option(
            f"fields.{name}.aggregate-function"
        ) or schema.stored_option("fields.default-aggregate-function")
        skipped = name in sequences or name in schema.primary_keys
        if function not in (None, "last_non_null_value") and not skipped and name not in protected:
            raise InvalidTableError(
                f"The aggregate function '{function}' of `{name}` needs a sequence group.",
                hint=f"Add an option such as 'fields.<sequence column>.sequence-group' = '{name}'.",
            )
    on_group = column_list(schema.stored_option("partial-update.remove-record-on-sequence-group"))
    on_delete = schema.flag("partial-update.remove-record-on-delete")
    ignore = schema.flag("ignore-delete") or schema.flag("partial-update.ignore-delete")
    for has_option, option, has_other, other in (
        (on_delete, "partial-update.remove-record-on-delete", ignore, "ignore-delete"),
        (on_group, "partial-update.remove-record-on-sequence-group", ignore, "ignore-delete"),
        (on_delete, "partial-update.remove-record-on-delete", sequences, "sequence-group"),
    ):
        if has_option and has_other:
            raise InvalidTableError(
                f"'{option}' and '{other}' contradict each other.", hint="Leave out one of them."
            )
    for name in on_group:
        if name not in sequences:
            raise InvalidTableError(
                f"'partial-update.remove-record-on-sequence-group' names `{name}`, which is not a "
                "sequence column of a sequence group.",
                hint=nearest(name, sequences, what="sequence columns"),
            )


MERGE_RULES: tuple[Callable[[TableSchema], None], ...] = (
    _check_field_options,
    _check_merge_engine,
    _check_changelog_producer,
    _check_sequence,
    _check_rowkind_field,
    _check_aggregates,
    _check_partial_update,
)

STATED_MERGE_RULES: tuple[Callable[[TableSchema], None], ...] = (
    _check_keys_to_merge,
    _check_types_of_aggregates,
)
