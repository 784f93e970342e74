"""The merge rule of a primary-key table, from its options."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pypaimon.schema.schema_manager import SchemaManager

from paimon_magics.columnar.aggregators import ColumnFunction
from paimon_magics.columnar.folding import MergeRule, SequenceGroup
from paimon_magics.columnar.merging import RunOrder
from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.options.traits import MERGE_ENGINES
from paimon_magics.planning.schemas.table_schema import TableSchema, column_list, field_option_keys
from paimon_magics.tables.table import branch_names

_log = logging.getLogger(__name__)
_OPTIONS = ("data-file.external-paths", "global-index.external-path")


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


# The folders outside a table's own that its options name for its files.


def external_roots(paimon: Any) -> list[str]:
    """The folders that any schema of a table (pypaimon's `paimon`) or of its branches names. An
    unreadable schema adds no folders."""
    folders: dict[str, None] = {}
    for branch in branch_names(paimon):
        manager = SchemaManager(paimon.file_io, paimon.table_path, branch)
        for options in _options_of(manager):
            for key in _OPTIONS:
                roots = str(options.get(key) or "").split(",")
                folders |= {root.strip(): None for root in roots if root.strip()}
    return list(folders)


def _options_of(manager: Any) -> list[dict[str, str]]:
    latest = _read_schema(manager.latest)
    last = -1 if latest is None else latest.id
    schemas = (_read_schema(partial(manager.get_schema, id)) for id in range(last + 1))
    return [schema.options or {} for schema in schemas if schema is not None]


def _read_schema(read: Callable[[], Any]) -> Any:
    """A schema; None for one that is gone or can't be read."""
    try:
        return read()
    except Exception as error:
        _log.debug(
            "The external folders of a schema are unknown because it can't be read: %s", error
        )
        return None
