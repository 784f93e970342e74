"""Rules on single features: which options a feature needs, and which it excludes.

Each rule follows the functions of `SchemaValidation` in Paimon 2.0.0 that its docstring names.
"""

from __future__ import annotations

from collections.abc import Callable

from paimon_magics.errors import InvalidTableError, nearest
from paimon_magics.planning.options.values import double_value, integer_value
from paimon_magics.planning.schemas.table_schema import TableSchema, column_list
from paimon_magics.statements.data_types import (
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    contains_type,
)

# By scan.mode: the options of which exactly one must be set. The others must not be set then.
_TIME_OPTIONS = ("scan.timestamp-millis", "scan.timestamp")
_SNAPSHOT_OPTIONS = ("scan.snapshot-id", "scan.tag-name", "scan.watermark")
_INCREMENTAL_OPTIONS = (
    "incremental-between", "incremental-between-timestamp", "incremental-to-auto-tag"
)  # fmt: skip
_FILE_TIME_OPTIONS = ("scan.file-creation-time-millis",)
_SCAN_MODES = {
    "from-timestamp": _TIME_OPTIONS,
    "from-snapshot": _SNAPSHOT_OPTIONS,
    "from-snapshot-full": ("scan.snapshot-id",),
    "incremental": _INCREMENTAL_OPTIONS,
    "from-file-creation-time": _FILE_TIME_OPTIONS,
}


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


# Rules on the options of indexes and of the layout inside files (`SchemaValidation`).


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
                schema.deletion_vectors_enabled or (full_text and schema.engine.keeps_first_row),
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


def is_blob_column(data_type: DataType) -> bool:
    """Whether a column of this type is stored in blob files of its own (`BlobType`)."""
    match data_type:
        case AtomicType(name="BLOB") | ArrayType(element=AtomicType(name="BLOB")):
            return True
        case MapType(value=AtomicType(name="BLOB")):
            return True
    return False


def _check_deletion_vectors(schema: TableSchema) -> None:
    """`validateForDeletionVectors`."""
    if not schema.deletion_vectors_enabled:
        return
    if schema.producer.compacts_fully:
        raise _contradiction(
            "'deletion-vectors.enabled'",
            f"'changelog-producer' = '{schema.changelog_producer}'",
            "Use none, input or lookup.",
        )
    if schema.engine.keeps_first_row and not schema.flag("pk-clustering-override"):
        raise _contradiction(
            "'deletion-vectors.enabled'",
            f"the merge engine {schema.merge_engine}, which never deletes old rows",
            "Leave out 'deletion-vectors.enabled'.",
        )


def _check_row_tracking(schema: TableSchema) -> None:
    """`validateRowTracking`, without its rules on vectors."""
    if schema.row_tracking_enabled:
        if schema.primary_keys:
            raise _contradiction("'row-tracking.enabled'", "a primary key", "Leave out one.")
        if schema.bucket != -1:
            raise _contradiction("'row-tracking.enabled'", "'bucket'", "Leave out 'bucket'.")
    if schema.data_evolution_enabled:
        if not schema.row_tracking_enabled:
            raise InvalidTableError(
                "'data-evolution.enabled' needs 'row-tracking.enabled'.",
                hint="Set 'row-tracking.enabled' = 'true' too.",
            )
        if schema.flag("clustering.incremental"):
            raise _contradiction(
                "'data-evolution.enabled'", "'clustering.incremental'", "Leave out one."
            )


def _check_blobs(schema: TableSchema) -> None:
    """`validateBlobFields`, `validateRowTracking`, `validatePrimaryKeyBlobConfiguration`."""
    blobs = [c.name for c in schema.columns if is_blob_column(c.type)]
    for column in schema.columns:
        if not is_blob_column(column.type) and contains_type(column.type, "BLOB"):
            raise InvalidTableError(
                f"The column `{column.name}` holds a BLOB inside another type.",
                hint="BLOB, ARRAY<BLOB> and MAP<…, BLOB> are possible for whole columns only.",
            )
    for key in ("blob-field", "blob-descriptor-field", "blob-view-field"):
        for name in column_list(schema.stored_option(key)):
            if name not in blobs:
                raise InvalidTableError(
                    f"The option '{key}' names `{name}`, which is not a BLOB column.",
                    hint=nearest(name, blobs, what="BLOB columns"),
                )
    if not blobs:
        return
    if len(blobs) == len(schema.columns):
        raise InvalidTableError("The table has BLOB columns only.", hint="Add another column.")
    for name in blobs:
        if name in (*schema.partition_keys, *schema.primary_keys, *schema.bucket_keys):
            raise InvalidTableError(
                f"The BLOB column `{name}` can't be a key.", hint="Use another column."
            )
    if not schema.primary_keys and not schema.data_evolution_enabled:
        raise InvalidTableError(
            f"The BLOB column `{blobs[0]}` needs 'data-evolution.enabled'.",
            hint="Set 'row-tracking.enabled' and 'data-evolution.enabled' to true.",
        )
    if schema.primary_keys and (
        not schema.engine.keeps_last_row
        or schema.changelog_producer != "none"
        or set(blobs) & set(schema.sequence_fields)
        or schema.flag("pk-clustering-override")
        or schema.stored_option("data-file.external-paths") is not None
    ):
        raise InvalidTableError(
            f"A primary-key table with the BLOB column `{blobs[0]}` needs the merge engine "
            "deduplicate, no changelog, no external paths and no BLOB as sequence field.",
            hint="Leave out those options.",
        )


def _check_clustering(schema: TableSchema) -> None:
    """`validateIncrementalClustering`, `validatePkClusteringOverride`."""
    clustering = column_list(schema.stored_option("clustering.columns"))
    if schema.flag("clustering.incremental"):
        if schema.primary_keys:
            raise _contradiction("'clustering.incremental'", "a primary key", "Leave out one.")
        if schema.bucket != -1 and (
            schema.flag("bucket-append-ordered") or schema.deletion_vectors_enabled
        ):
            raise InvalidTableError(
                "'clustering.incremental' with buckets needs 'bucket-append-ordered' = 'false' and "
                "no deletion vectors.",
                hint="Change these options, or leave out 'bucket'.",
            )
    if not schema.flag("pk-clustering-override"):
        return
    if not clustering:
        raise InvalidTableError(
            "'pk-clustering-override' needs 'clustering.columns'.",
            hint="Set 'clustering.columns' to the columns to sort by.",
        )
    if not schema.deletion_vectors_enabled and not schema.engine.keeps_first_row:
        raise InvalidTableError(
            "'pk-clustering-override' needs 'deletion-vectors.enabled'.",
            hint="Set 'deletion-vectors.enabled' = 'true' too.",
        )
    for unwanted, what in (
        (schema.stored_option("record-level.expire-time"), "'record-level.expire-time'"),
        (
            not schema.engine.keeps_whole_rows,
            f"the merge engine {schema.merge_engine}",
        ),
        (schema.sequence_fields, "'sequence.field'"),
        (
            schema.producer.of_compactions,
            f"'changelog-producer' = '{schema.changelog_producer}'",
        ),
    ):
        if unwanted:
            raise _contradiction("'pk-clustering-override'", what, "Leave out one.")


def _check_chain_table(schema: TableSchema) -> None:
    """`validateChainTable`."""
    if not schema.flag("chain-table.enabled"):
        return
    needs = (
        (schema.primary_keys, "a primary key"),
        (schema.partition_keys, "partition keys"),
        (schema.bucket > 0, "'bucket' above 0"),
        (schema.sequence_fields, "'sequence.field'"),
        (
            not schema.producer.of_compactions,
            "'changelog-producer' none or input",
        ),
        (
            not schema.deletion_vectors_enabled or schema.engine.keeps_last_row,
            "the merge engine deduplicate with deletion vectors",
        ),
        (schema.stored_option("partition.timestamp-pattern"), "'partition.timestamp-pattern'"),
        (
            schema.stored_option("partition.timestamp-formatter"),
            "'partition.timestamp-formatter'",
        ),
        (
            schema.stored_option("partition.expiration-time") is None
            or schema.option("partition.expiration-strategy") == "values-time",
            "'partition.expiration-strategy' = 'values-time'",
        ),
    )
    for given, what in needs:
        if not given:
            raise InvalidTableError(f"'chain-table.enabled' needs {what}.", hint="Set it too.")
    chain = schema.stored_option("chain-table.chain-partition-keys")
    keys = column_list(chain)
    if chain is not None and (not keys or schema.partition_keys[-len(keys) :] != keys):
        raise InvalidTableError(
            f"'chain-table.chain-partition-keys' = '{chain}' must be the last partition keys of "
            f"{', '.join(schema.partition_keys)}.",
            hint="Name them in that order.",
        )


def _check_record_level_expire(schema: TableSchema) -> None:
    """The `record-level.time-field` part of `validateTableSchema`."""
    field = schema.stored_option("record-level.time-field")
    if field is None:
        return
    check_exist(schema, (field,), "record-level.time-field")
    match schema.column(field).type:
        case AtomicType(name="INT" | "BIGINT" | "TIMESTAMP" | "TIMESTAMP_LTZ"):
            return
    raise InvalidTableError(
        f"'record-level.time-field' names `{field}`, which is neither a number nor a timestamp.",
        hint="Use a column of the type INT, BIGINT or TIMESTAMP.",
    )


def _check_manifest_sort(schema: TableSchema) -> None:
    """`validateManifestSort`."""
    if not schema.flag("manifest-sort.enabled"):
        return
    if not schema.data_evolution_enabled and not schema.partition_keys:
        raise InvalidTableError(
            "'manifest-sort.enabled' needs a partitioned table.", hint="Leave it out."
        )
    field = schema.stored_option("manifest-sort.partition-field")
    if field and field not in schema.partition_keys:
        raise InvalidTableError(
            f"'manifest-sort.partition-field' names `{field}`, which is not a partition key.",
            hint=nearest(field, schema.partition_keys, what="partition keys"),
        )


def _check_scan_mode(schema: TableSchema) -> None:
    """`validateStartupMode`, `CoreOptions.startupMode`."""
    pinned = {
        key
        for keys in _SCAN_MODES.values()
        for key in keys
        if schema.stored_option(key) is not None
    }
    stored = schema.stored_option("scan.mode")
    mode = (stored or "default").lower()
    if mode == "default":
        mode = next((m for m, keys in _SCAN_MODES.items() if pinned & set(keys)), "latest-full")
    allowed = set(_SCAN_MODES.get(mode, ()))
    if mode in _SCAN_MODES and len(pinned & allowed) != 1:
        raise InvalidTableError(
            f"'scan.mode' = '{mode}' needs exactly one of {', '.join(sorted(allowed))}.",
            hint="Set one of them.",
        )
    for key in sorted(pinned - allowed):
        if mode in ("from-creation-timestamp", "compacted-full") and key == "scan.watermark":
            continue
        raise InvalidTableError(
            f"The option '{key}' can't go with 'scan.mode' = '{mode}'.", hint="Leave out one."
        )
    if schema.stored_option("scan.fallback-branch") and schema.stored_option("scan.primary-branch"):
        raise _contradiction("'scan.fallback-branch'", "'scan.primary-branch'", "Leave out one.")


def _contradiction(one: str, other: str, hint: str) -> InvalidTableError:
    return InvalidTableError(f"{one} can't go with {other}.", hint=hint)


FEATURE_RULES: tuple[Callable[[TableSchema], None], ...] = (
    _check_deletion_vectors,
    _check_row_tracking,
    _check_blobs,
    _check_clustering,
    _check_chain_table,
    _check_record_level_expire,
    _check_manifest_sort,
    *INDEX_RULES,
    _check_scan_mode,
)
