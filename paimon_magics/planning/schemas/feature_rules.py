"""Rules on single features: which options a feature needs, and which it excludes.

Each rule follows the functions of `SchemaValidation` in Paimon 2.0.0 that its docstring names.
"""

from __future__ import annotations

from collections.abc import Callable

from paimon_magics.errors import InvalidTableError, nearest
from paimon_magics.planning.options.values import double_value, integer_value
from paimon_magics.planning.schemas.table_schema import (
    TableSchema,
    check_columns_exist,
    column_list,
    field_option_keys,
)
from paimon_magics.statements.data_types import (
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    contains_type,
    family_of,
    is_type,
    types_of,
)

# By scan.mode: exactly one of these options must be set, and no option of another mode.
_SCAN_MODES = {
    "from-timestamp": ("scan.timestamp-millis", "scan.timestamp"),
    "from-snapshot": ("scan.snapshot-id", "scan.tag-name", "scan.watermark"),
    "from-snapshot-full": ("scan.snapshot-id",),
    "incremental": (
        "incremental-between",
        "incremental-between-timestamp",
        "incremental-to-auto-tag",
    ),
    "from-file-creation-time": ("scan.file-creation-time-millis",),
}


_WHOLE = types_of("integer", "date", "time", "timestamp", "timestamp_ltz")
FILE_INDEXES = {
    "bitmap": (*types_of("text", "float", "boolean"), *_WHOLE),
    "bloom-filter": (*types_of("text", "float", "binary"), *_WHOLE),
    "bsi": (*types_of("decimal"), *_WHOLE),
    "range-bitmap": (*types_of("text", "float", "boolean", "decimal"), *_WHOLE),
}
"""The file indexes, and the types of the columns that each can hold."""

_RANGE_BITMAP_PRECISIONS = {"DECIMAL": 18, "TIMESTAMP": 6, "TIMESTAMP_LTZ": 6}


# Rules on the options of indexes and of the layout inside files (`SchemaValidation`).


def declared_file_indexes(
    schema: TableSchema,
) -> tuple[list[tuple[str, str | None, str]], dict[tuple[str, str], dict[str, str]]]:
    """The file indexes that the options `file-index.*` ask for, each as its column, its key in a
    MAP column, and its kind; and the options of each kind and column. Raises InvalidTableError for
    an unknown or impossible index (`validateFileIndex`)."""
    declared: dict[tuple[str, str | None, str], None] = {}
    options: dict[tuple[str, str], dict[str, str]] = {}
    for key, value in schema.options:
        index, columns, rest = key.removeprefix("file-index.").rpartition(".columns")
        if not key.startswith("file-index."):
            continue
        if not columns or rest:
            if key.count(".") == 3:
                kind, column, option = key.removeprefix("file-index.").split(".")
                options.setdefault((kind, column), {})[option] = value
            continue
        if index not in FILE_INDEXES:
            raise InvalidTableError(
                f"There is no file index '{index}' (option '{key}').",
                hint=nearest(index, tuple(FILE_INDEXES), what="file indexes"),
            )
        for name in column_list(value):
            column, bracket, inside = name.partition("[")
            check_columns_exist(schema, (column,), f"The option '{key}'")
            data_type = schema.column(column).type
            if bracket:
                if not isinstance(data_type, MapType) or family_of(data_type.key) != "text":
                    raise InvalidTableError(
                        f"The option '{key}' names `{name}`, and `{column}` is not a MAP with text "
                        "keys.",
                        hint="Only a MAP with text keys can be indexed by key.",
                    )
                data_type = data_type.value
            check_file_index_type(index, column, data_type)
            declared[column, inside.removesuffix("]") if bracket else None, index] = None
    return list(declared), options


def _check_file_indexes(schema: TableSchema) -> None:
    """`validateFileIndex`."""
    declared, options = declared_file_indexes(schema)
    indexed = {(index, column) for column, _, index in declared}
    for (index, column), settings in options.items():
        if (index, column) not in indexed:
            key = f"file-index.{index}.{column}.{next(iter(settings))}"
            raise InvalidTableError(
                f"The option '{key}' is for the column `{column}`, which has no such index.",
                hint=f"Add `{column}` to 'file-index.{index}.columns'.",
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
    for kind in ("btree", "bitmap", "full-text"):
        key = f"pk-{kind}.index.columns"
        names = column_list(schema.stored_option(key))
        if not names:
            continue
        check_columns_exist(schema, names, f"The option '{key}'")
        for name in names:
            if name in indexed or names.count(name) > 1:
                raise InvalidTableError(
                    f"The column `{name}` has more than one primary-key index.",
                    hint="Name it once.",
                )
        indexed.update(names)
        is_text = kind == "full-text"
        has_vectors = schema.deletion_vectors_enabled
        _check_needs(
            f"The option '{key}'",
            (schema.primary_keys, "a primary key"),
            (
                has_vectors or (is_text and schema.engine.keeps_first_row),
                "'deletion-vectors.enabled'",
            ),
            (
                not schema.flag("deletion-vectors.merge-on-read"),
                "'deletion-vectors.merge-on-read' = 'false'",
            ),
            (schema.bucket > 0 or schema.bucket == -2, "'bucket' above 0 or -2"),
            (not schema.flag("pk-clustering-override"), "'pk-clustering-override' = 'false'"),
            (not is_text or len(names) == 1, "exactly one column"),
            (
                not is_text or family_of(schema.column(names[0]).type) == "text",
                "a text column",
            ),
        )


def _check_needs(what: str, *needs: tuple[object, str]) -> None:
    """Raise InvalidTableError for the first of the `needs` that is not met."""
    for is_met, need in needs:
        if not is_met:
            raise InvalidTableError(f"{what} needs {need}.", hint=f"Set that, or leave out {what}.")


def _check_map_layout(schema: TableSchema) -> None:
    """`validateMapStorageLayout`, without its rules on compression."""
    for key, columns, suffix in field_option_keys(schema):
        if suffix != "map.storage-layout":
            continue
        value = schema.stored_option(key) or ""
        layout = value.lower()
        check_columns_exist(schema, (column := ",".join(columns),), f"The option '{key}'")
        data_type = schema.column(column).type
        if not isinstance(data_type, MapType):
            raise InvalidTableError(
                f"The option '{key}' is for `{column}`, which is not a MAP.",
                hint="Leave it out.",
            )
        if layout not in ("default", "shared-shredding"):
            raise InvalidTableError(
                f"The option '{key}' can't be '{value}'.", hint="Use default or shared-shredding."
            )
        if layout == "shared-shredding" and (
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
    prefix = "variant.shredding."
    for name in ("maxInferBufferRow", "adaptive.maxInferBufferRow"):
        if schema.parsed(prefix + name, integer_value, 1) < 1:
            raise InvalidTableError(
                f"The option '{prefix}{name}' must be above 0.", hint="Raise it."
            )
    ratios = []
    for name in ("minFieldCardinalityRatio", "adaptive.retentionRatio"):
        ratios.append(schema.parsed(prefix + name, double_value, 0.0))
        if not 0 <= ratios[-1] <= 1:
            raise InvalidTableError(
                f"The option '{prefix}{name}' must be from 0 to 1.", hint="Correct its value."
            )
    mode = (schema.option("variant.shredding.inferenceMode") or "").lower()
    if mode == "adaptive" and ratios[1] > ratios[0]:
        raise InvalidTableError(
            "'variant.shredding.adaptive.retentionRatio' is above "
            "'variant.shredding.minFieldCardinalityRatio'.",
            hint="Lower 'variant.shredding.adaptive.retentionRatio'.",
        )


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
    _check_needs(
        "'chain-table.enabled'",
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
    check_columns_exist(schema, (field,), "The option 'record-level.time-field'")
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
            f"The option '{key}' can't be combined with 'scan.mode' = '{mode}'.",
            hint="Leave out one.",
        )
    if schema.stored_option("scan.fallback-branch") and schema.stored_option("scan.primary-branch"):
        raise _contradiction("'scan.fallback-branch'", "'scan.primary-branch'", "Leave out one.")


def _contradiction(option: str, other: str, hint: str) -> InvalidTableError:
    return InvalidTableError(f"{option} can't be combined with {other}.", hint=hint)


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
