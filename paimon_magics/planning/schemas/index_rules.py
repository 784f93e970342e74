"""Rules on the options of indexes and of the layout inside files (`SchemaValidation`)."""

from __future__ import annotations

from collections.abc import Callable

from paimon_magics.errors import InvalidTableError, nearest
from paimon_magics.planning.options.values import double_value, integer_value
from paimon_magics.planning.schemas.table_schema import TableSchema, column_list
from paimon_magics.statements.data_types import (
    AtomicType,
    DataType,
    MapType,
    contains_type,
)

__all__ = [
    "FILE_INDEXES",
    "INDEX_RULES",
    "check_exist",
    "check_file_index",
    "check_file_index_type",
    "is_type",
]

_TEXTS = ("CHAR", "VARCHAR", "STRING")
_NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ")
_BINARIES = ("BINARY", "VARBINARY", "BYTES")
_FLOATS = ("FLOAT", "DOUBLE")

FILE_INDEXES = {
    "bitmap": (*_TEXTS, *_NUMBERS, *_FLOATS, "BOOLEAN"),
    "bloom-filter": (*_TEXTS, *_NUMBERS, *_FLOATS, *_BINARIES),
    "bsi": (*_NUMBERS, "DECIMAL"),
    "range-bitmap": (*_TEXTS, *_NUMBERS, *_FLOATS, "BOOLEAN", "DECIMAL"),
}
"""The file indexes, and the types of the columns that each can hold."""

_RANGE_BITMAP_PRECISIONS = {"DECIMAL": 18, "TIMESTAMP": 6, "TIMESTAMP_LTZ": 6}

_PRIMARY_KEY_INDEXES = (
    "pk-btree.index.columns",
    "pk-bitmap.index.columns",
    "pk-full-text.index.columns",
)


def _check_file_indexes(schema: TableSchema) -> None:
    """`validateFileIndex`."""
    declared: set[tuple[str, str]] = set()
    others: list[tuple[str, list[str]]] = []
    for key, value in schema.options:
        if not key.startswith("file-index."):
            continue
        rest = key.removeprefix("file-index.")
        if not rest.endswith(".columns"):
            if rest.count(".") == 2:
                others.append((key, rest.split(".")))
            continue
        index = rest.removesuffix(".columns")
        check_file_index(index, key)
        for name in column_list(value):
            column, bracket, _ = name.partition("[")
            check_exist(schema, (column,), key)
            declared.add((index, column))
            data_type = schema.column(column).type
            if bracket and not (
                isinstance(data_type, MapType)
                and isinstance(data_type.key, AtomicType)
                and data_type.key.name in ("CHAR", "VARCHAR", "STRING")
            ):
                raise InvalidTableError(
                    f"The option '{key}' names `{name}`, and `{column}` is not a MAP with text "
                    "keys.",
                    hint="Only a MAP with text keys can be indexed by key.",
                )
            value_type = data_type.value if isinstance(data_type, MapType) else data_type
            check_file_index_type(index, column, value_type if bracket else data_type)
    for key, (index, column, _) in others:
        if (index, column) not in declared:
            raise InvalidTableError(
                f"The option '{key}' is for the column `{column}`, which has no such index.",
                hint=f"Add `{column}` to 'file-index.{index}.columns'.",
            )


def check_file_index(index: str, key: str) -> None:
    """Raise InvalidTableError for a file index, in option `key`, that there is not."""
    if index not in FILE_INDEXES:
        raise InvalidTableError(
            f"There is no file index '{index}' (option '{key}').",
            hint=nearest(index, tuple(FILE_INDEXES), what="file indexes"),
        )


def check_file_index_type(index: str, column: str, data_type: DataType) -> None:
    """Raise InvalidTableError for a column whose values a file index can't hold
    (`FileIndexerFactory.validate`)."""
    if not is_type(data_type, *FILE_INDEXES[index]):
        raise InvalidTableError(
            f"The column `{column}` has a type that the file index '{index}' can't hold.",
            hint=f"Take the column out of 'file-index.{index}.columns'.",
        )
    assert isinstance(data_type, AtomicType)
    precision_max = _RANGE_BITMAP_PRECISIONS.get(data_type.name)
    if index == "range-bitmap" and precision_max and data_type.parameters[0] > precision_max:
        raise InvalidTableError(
            f"The column `{column}` has a precision above {precision_max}, which the file index "
            "'range-bitmap' can't hold.",
            hint="Take the column out of 'file-index.range-bitmap.columns'.",
        )


def _check_primary_key_indexes(schema: TableSchema) -> None:
    """`validatePrimaryKeyIndexColumns`, `…SortedIndexes`, `…FullTextIndex`."""
    indexed: set[str] = set()
    for key in _PRIMARY_KEY_INDEXES:
        names = column_list(schema.stored_option(key))
        if not names:
            continue
        check_exist(schema, names, key)
        for name in names:
            if name in indexed or names.count(name) > 1:
                raise InvalidTableError(
                    f"The column `{name}` has more than one primary-key index.",
                    hint="Name it once.",
                )
        indexed.update(names)
        full_text = key == "pk-full-text.index.columns"
        for given, what in (
            (schema.primary_keys, "a primary key"),
            (
                schema.deletion_vectors_enabled
                or (full_text and schema.merge_engine == "first-row"),
                "'deletion-vectors.enabled'",
            ),
            (
                not schema.flag("deletion-vectors.merge-on-read"),
                "'deletion-vectors.merge-on-read' = 'false'",
            ),
            (schema.bucket > 0 or schema.bucket == -2, "'bucket' above 0 or -2"),
            (
                not schema.flag("pk-clustering-override"),
                "'pk-clustering-override' = 'false'",
            ),
            (not full_text or len(names) == 1, "exactly one column"),
            (
                not full_text or is_type(schema.column(names[0]).type, "CHAR", "VARCHAR", "STRING"),
                "a text column",
            ),
        ):
            if not given:
                raise InvalidTableError(
                    f"The option '{key}' needs {what}.", hint=f"Change that, or leave out '{key}'."
                )


def _check_map_layout(schema: TableSchema) -> None:
    """`validateMapStorageLayout`, without its rules on compression."""
    for key, value in schema.options:
        if not (key.startswith("fields.") and key.endswith(".map.storage-layout")):
            continue
        name = key.removeprefix("fields.").removesuffix(".map.storage-layout")
        check_exist(schema, (name,), key)
        data_type = schema.column(name).type
        if not isinstance(data_type, MapType):
            raise InvalidTableError(
                f"The option '{key}' is for `{name}`, which is not a MAP.", hint="Leave it out."
            )
        if value.lower() not in ("default", "shared-shredding"):
            raise InvalidTableError(
                f"The option '{key}' can't be '{value}'.", hint="Use default or shared-shredding."
            )
        if value.lower() == "shared-shredding" and (
            not is_type(data_type.key, "STRING")
            or data_type.key.nullable
            or schema.file_format not in ("parquet", "orc")
            or schema.bucket == -2
            or schema.has_type("VARIANT")
            or contains_type(data_type.value, "BLOB")
        ):
            raise InvalidTableError(
                f"'{key}' = 'shared-shredding' needs a MAP<STRING NOT NULL, …>, the file format "
                "parquet or orc, no postponed buckets, no VARIANT column and no BLOB values.",
                hint=f"Leave out '{key}'.",
            )


def _check_variant_shredding(schema: TableSchema) -> None:
    """`validateVariantShreddingInferenceOptions`."""
    ratios: dict[str, float] = {}
    for key, low in (
        ("variant.shredding.maxInferBufferRow", 1),
        ("variant.shredding.adaptive.maxInferBufferRow", 1),
    ):
        if integer_value(key, schema.option(key) or "1") < low:
            raise InvalidTableError(f"The option '{key}' must be above 0.", hint="Raise it.")
    for key in (
        "variant.shredding.minFieldCardinalityRatio",
        "variant.shredding.adaptive.retentionRatio",
    ):
        ratios[key] = double_value(key, schema.option(key) or "0")
        if not 0 <= ratios[key] <= 1:
            raise InvalidTableError(
                f"The option '{key}' must be from 0 to 1.", hint="Correct its value."
            )
    admission, retention = ratios.values()
    mode = (schema.option("variant.shredding.inferenceMode") or "").lower()
    if mode == "adaptive" and retention > admission:
        raise InvalidTableError(
            "'variant.shredding.adaptive.retentionRatio' is above "
            "'variant.shredding.minFieldCardinalityRatio'.",
            hint="Lower 'variant.shredding.adaptive.retentionRatio'.",
        )


def check_exist(schema: TableSchema, names: tuple[str, ...], key: str) -> None:
    """Raise InvalidTableError for a column in option `key` that the table does not have."""
    for name in names:
        if name not in schema.column_names:
            raise InvalidTableError(
                f"The option '{key}' names the column `{name}`, which the table does not have.",
                hint=nearest(name, schema.column_names, what="columns"),
            )


def is_type(data_type: DataType, *names: str) -> bool:
    """Whether the type is atomic and has one of these names."""
    return isinstance(data_type, AtomicType) and data_type.name in names


INDEX_RULES: tuple[Callable[[TableSchema], None], ...] = (
    _check_file_indexes,
    _check_primary_key_indexes,
    _check_map_layout,
    _check_variant_shredding,
)
