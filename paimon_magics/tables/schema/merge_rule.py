"""The merge rule of a primary-key table, from its options."""

from __future__ import annotations

from collections.abc import Mapping

from paimon_magics.columnar.aggregators import ColumnFunction
from paimon_magics.columnar.folding import MergeRule, SequenceGroup
from paimon_magics.columnar.merging import RunOrder
from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.options.merge_engines import MERGE_ENGINES
from paimon_magics.planning.schemas.table_schema import TableSchema, column_list, field_option_keys


def merge_rule(schema: TableSchema) -> MergeRule:
    """The rule by which a primary-key table's rows are merged. Raises UnsupportedStatementError
    for an unknown merge engine."""
    engine = schema.engine
    if engine.name not in MERGE_ENGINES:
        raise UnsupportedStatementError(
            f"The merge engine '{engine.name}' is not offered for reading.",
            hint=f"The merge engines offered are {', '.join(MERGE_ENGINES)}.",
        )
    order = RunOrder(
        keys=schema.trimmed_primary_keys,
        sequence_fields=schema.sequence_fields,
        descending=(schema.option("sequence.field.sort-order") or "").lower() == "descending",
    )
    groups, functions = _field_rules(schema)
    removing = column_list(schema.stored_option("partial-update.remove-record-on-sequence-group"))
    return MergeRule(
        engine=engine,
        order=order,
        ignore_deletes=schema.flag("ignore-delete"),
        removes_on_delete=engine.delete_option is not None and schema.flag(engine.delete_option),
        functions=functions,
        groups=groups,
        removing_groups=frozenset(removing),
        looks_up=engine.merges_values and schema.looks_up,
    )


def _field_rules(
    schema: TableSchema,
) -> tuple[tuple[SequenceGroup, ...], Mapping[str, ColumnFunction]]:
    engine = schema.engine
    if not engine.merges_values:
        return (), {}
    groups = []
    options: dict[str, dict[str, str]] = {}
    for key, columns, suffix in field_option_keys(schema):
        value = schema.stored_option(key) or ""
        if suffix == "sequence-group":
            if engine.skips_nulls:
                groups.append(SequenceGroup(columns, column_list(value)))
        else:
            for name in columns:
                options.setdefault(name, {})[suffix] = value
    default = schema.stored_option("fields.default-aggregate-function")
    ordering = {name for group in groups for name in group.columns}
    functions = {}
    for name in schema.column_names:
        function = options.get(name, {}).get("aggregate-function") or default
        function = function or engine.default_function
        if name in schema.primary_keys and engine.default_function is not None:
            # Rows of the kinds -U and -D retract nothing from the columns that identify a row.
            function = "primary-key"
        elif function is None or name in (*schema.primary_keys, *ordering):
            continue
        functions[name] = ColumnFunction(function, options.get(name, {}))
    return tuple(groups), functions
