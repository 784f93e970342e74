"""Setting and unsetting options of an existing table, and renaming columns inside options.

Follows `SchemaManager.checkAlterTableOption`, `checkResetTableOption` and
`applyRenameColumnsToOptions` of Paimon 2.0.0. Paimon renames columns in a few options only. If
another option names the renamed column, the check of the whole schema refuses the rename.
"""

from __future__ import annotations

from dataclasses import replace

from paimon_magics.errors import InvalidTableError, UnknownNameError, nearest
from paimon_magics.planning.options.rules import (
    check_option_key,
    check_option_value,
    known_option,
)
from paimon_magics.planning.options.table_options import default_value
from paimon_magics.planning.options.values import boolean_value, integer_value
from paimon_magics.planning.schemas.table_schema import TableSchema, column_list

# Options whose value may only change from false to true.
_ONE_WAY = ("ignore-delete", "ignore-update-before")
_FIXED = {
    "type": "A table keeps its type.",
    "path": "A table keeps its location.",
    "location": "A table keeps its location.",
    "provider": "A table keeps its provider.",
}
_KEYED_BY_COLUMN = (
    "aggregate-function",
    "ignore-retract",
    "distinct",
    "list-agg-delimiter",
    "map.storage-layout",
    "map.shared-shredding.max-columns",
    "map.shared-shredding.column-placement-policy",
)
_KEYED_AND_VALUED_BY_COLUMNS = ("sequence-group", "nested-key")


def set_option(
    schema: TableSchema,
    key: str,
    value: str,
    has_snapshots: bool,
    *,
    may_be_unknown: bool = False,
) -> TableSchema:
    """Return the schema with one option set; the key `comment` sets the table's comment.

    Raises InvalidTableError for an option that can't change, or a value that can't be read, and
    UnknownNameError for a key that looks mistyped, unless it `may_be_unknown`.
    """
    if key == "comment":
        return replace(schema, comment=value)
    if key in ("primary-key", "partition"):
        keys = schema.primary_keys if key == "primary-key" else schema.partition_keys
        if column_list(value) == keys:
            return schema
        raise InvalidTableError(
            f"The option '{key}' can't change: it is ({', '.join(keys)}).",
            hint="Create a new table and copy the rows.",
        )
    _refuse_fixed(schema, key, value)
    if key in _FIXED:  # set to what it is
        return schema
    if not may_be_unknown:
        check_option_key(key)
    check_option_value(key, value)
    old = schema.stored_option(key)
    if old == value:
        return schema
    if has_snapshots:
        _check_change(schema, key, old, value)
    options = dict(schema.options)
    options[key] = value
    return replace(schema, options=tuple(options.items()))


def unset_option(
    schema: TableSchema, key: str, if_exists: bool, has_snapshots: bool
) -> TableSchema:
    """Return the schema without the option.

    Raises InvalidTableError for an option that can't change, and UnknownNameError for one that is
    not set, unless `if_exists`.
    """
    if key == "comment":
        return replace(schema, comment=None)
    if key in ("primary-key", "partition"):
        raise InvalidTableError(
            f"The option '{key}' can't be unset.", hint="Create a new table and copy the rows."
        )
    _refuse_fixed(schema, key, None)
    options = dict(schema.options)
    if key not in options:
        if if_exists:
            return schema
        raise UnknownNameError(
            f"The option '{key}' is not set.", hint=nearest(key, options, what="options set")
        )
    if has_snapshots:
        _refuse_immutable(key)
        if key == "bucket":
            raise InvalidTableError(
                "The option 'bucket' can't be unset on a table with data.", hint="Set it instead."
            )
        _refuse_clustering(schema, key)
    del options[key]
    return replace(schema, options=tuple(options.items()))


def layout_change(before: TableSchema, after: TableSchema) -> str:
    """The first option that differs between two schemas and can't change on a table with data; ""
    if there is none. Files that were written for one of them don't fit the other then."""
    if before.bucket_mode != after.bucket_mode:
        return "bucket"
    for key in sorted({*dict(before.options), *dict(after.options)}):
        old, new = before.stored_option(key), after.stored_option(key)
        if old == new:
            continue
        try:
            _check_change(before, key, old, default_value(key) or "" if new is None else new)
        except InvalidTableError:
            return key
    return ""


def renamed_in_options(
    options: tuple[tuple[str, str], ...], old: str, new: str
) -> tuple[tuple[str, str], ...]:
    """Return the options with a column renamed where Paimon renames it too."""
    return tuple(_renamed_option(key, value, old, new) for key, value in options)


def _renamed_option(key: str, value: str, old: str, new: str) -> tuple[str, str]:
    if key in ("bucket-key", "sequence.field"):
        return key, _renamed_list(value, old, new)
    parts = key.split(".", 2)
    if parts[0] != "fields" or len(parts) < 3:
        return key, value
    if parts[2] in _KEYED_BY_COLUMN and parts[1] == old:
        return f"fields.{new}.{parts[2]}", value
    if parts[2] in _KEYED_AND_VALUED_BY_COLUMNS:
        return f"fields.{_renamed_list(parts[1], old, new)}.{parts[2]}", _renamed_list(
            value, old, new
        )
    return key, value


def _renamed_list(text: str, old: str, new: str) -> str:
    return ",".join(new if name == old else name for name in column_list(text))


def _check_change(schema: TableSchema, key: str, old: str | None, value: str) -> None:
    _refuse_immutable(key)
    if key == "bucket":
        before = integer_value(key, old or default_value(key) or "-1")
        if -1 in (before, integer_value(key, value)):
            raise InvalidTableError(
                f"The option 'bucket' can't change from {before} to {value} on a table with data.",
                hint="Create a new table and copy the rows.",
            )
    if (
        key == "deletion-vectors.enabled"
        and not schema.flag("deletion-vectors.modifiable")
        and boolean_value(key, old or "false") != boolean_value(key, value)
    ):
        raise InvalidTableError(
            "The option 'deletion-vectors.enabled' can't change on a table with data: without "
            "a full compaction rows could appear twice.",
            hint="After a full compaction, set 'deletion-vectors.modifiable' = 'true', then change "
            "it.",
        )
    if key in _ONE_WAY and boolean_value(key, old or "false") and not boolean_value(key, value):
        raise InvalidTableError(
            f"The option '{key}' can't change from true to false.", hint="Leave it as it is."
        )
    _refuse_clustering(schema, key)


def _refuse_fixed(schema: TableSchema, key: str, value: str | None) -> None:
    if key not in _FIXED:
        return
    unchanged = key == "type" and value and value.lower() == schema.option("type")
    if not unchanged:
        raise InvalidTableError(f"The option '{key}' can't change.", hint=_FIXED[key])


def _refuse_immutable(key: str) -> None:
    known = known_option(key)
    if known is not None and known.immutable:
        raise InvalidTableError(
            f"The option '{key}' can't change on a table with data.",
            hint="Create a new table with this option and copy the rows.",
        )


def _refuse_clustering(schema: TableSchema, key: str) -> None:
    overriding = schema.stored_option("pk-clustering-override") is not None
    if key == "clustering.columns" and overriding:
        raise InvalidTableError(
            "The option 'clustering.columns' can't change with 'pk-clustering-override'.",
            hint="Create a new table and copy the rows.",
        )
