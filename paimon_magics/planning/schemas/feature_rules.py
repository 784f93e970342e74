"""What Paimon refuses about single features: which options they need beside them, and which not.

Each rule is one function of `SchemaValidation` in Paimon 2.0.0, named in its docstring.
"""

from __future__ import annotations

from collections.abc import Callable

from paimon_magics.errors import InvalidTableError, nearest
from paimon_magics.planning.options.values import double_value, integer_value
from paimon_magics.planning.schemas.table_schema import TableDefinition, column_list
from paimon_magics.statements.data_types import (
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    contains_type,
)

__all__ = ["FEATURE_RULES", "is_blob_column"]

_FILE_INDEXES = ("bitmap", "bloom-filter", "bsi", "range-bitmap")
_PRIMARY_KEY_INDEXES = (
    "pk-btree.index.columns",
    "pk-bitmap.index.columns",
    "pk-full-text.index.columns",
)
# scan.mode: the options of which exactly one must be set, and those that may not be set beside it.
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


def is_blob_column(data_type: DataType) -> bool:
    """Whether a column of this type is stored in blob files of its own (`BlobType`)."""
    match data_type:
        case AtomicType(name="BLOB") | ArrayType(element=AtomicType(name="BLOB")):
            return True
        case MapType(value=AtomicType(name="BLOB")):
            return True
    return False


def _check_deletion_vectors(definition: TableDefinition) -> None:
    """`validateForDeletionVectors`."""
    if not definition.deletion_vectors_enabled:
        return
    if definition.changelog_producer == "full-compaction":
        raise _contradiction(
            "'deletion-vectors.enabled'",
            "'changelog-producer' = 'full-compaction'",
            "Use none, input or lookup.",
        )
    if definition.merge_engine == "first-row" and not definition.flag("pk-clustering-override"):
        raise _contradiction(
            "'deletion-vectors.enabled'",
            "the merge engine first-row, which never deletes old rows",
            "Leave it out.",
        )


def _check_row_tracking(definition: TableDefinition) -> None:
    """`validateRowTracking`, without its part about vectors."""
    if definition.row_tracking_enabled:
        if definition.primary_keys:
            raise _contradiction("'row-tracking.enabled'", "a primary key", "Leave out one.")
        if definition.bucket != -1:
            raise _contradiction("'row-tracking.enabled'", "'bucket'", "Leave out 'bucket'.")
    if definition.data_evolution_enabled:
        if not definition.row_tracking_enabled:
            raise InvalidTableError(
                "'data-evolution.enabled' needs 'row-tracking.enabled'.",
                hint="Set 'row-tracking.enabled' = 'true' too.",
            )
        if definition.flag("clustering.incremental"):
            raise _contradiction(
                "'data-evolution.enabled'", "'clustering.incremental'", "Leave out one."
            )


def _check_blobs(definition: TableDefinition) -> None:
    """`validateBlobFields`, `validateRowTracking`, `validatePrimaryKeyBlobConfiguration`."""
    blobs = [c.name for c in definition.columns if is_blob_column(c.type)]
    for column in definition.columns:
        if not is_blob_column(column.type) and contains_type(column.type, "BLOB"):
            raise InvalidTableError(
                f"The column `{column.name}` holds a BLOB inside another type.",
                hint="BLOB, ARRAY<BLOB> and MAP<…, BLOB> are possible for whole columns only.",
            )
    for key in ("blob-field", "blob-descriptor-field", "blob-view-field"):
        for name in column_list(definition.stored_option(key)):
            if name not in blobs:
                raise InvalidTableError(
                    f"The option '{key}' names `{name}`, which is no BLOB column.",
                    hint=nearest(name, blobs, what="BLOB columns"),
                )
    if not blobs:
        return
    if len(blobs) == len(definition.columns):
        raise InvalidTableError("The table has BLOB columns only.", hint="Add another column.")
    for name in blobs:
        if name in (*definition.partition_keys, *definition.primary_keys, *definition.bucket_keys):
            raise InvalidTableError(
                f"The BLOB column `{name}` can't be a key.", hint="Use another column."
            )
    if not definition.primary_keys and not definition.data_evolution_enabled:
        raise InvalidTableError(
            f"The BLOB column `{blobs[0]}` needs 'data-evolution.enabled'.",
            hint="Set 'row-tracking.enabled' and 'data-evolution.enabled' to true.",
        )
    if definition.primary_keys and (
        definition.merge_engine != "deduplicate"
        or definition.changelog_producer != "none"
        or set(blobs) & set(definition.sequence_fields)
        or definition.flag("pk-clustering-override")
        or definition.stored_option("data-file.external-paths") is not None
    ):
        raise InvalidTableError(
            f"A primary-key table with the BLOB column `{blobs[0]}` needs the merge engine "
            "deduplicate, no changelog, no external paths and no BLOB as sequence field.",
            hint="Leave out those options.",
        )


def _check_clustering(definition: TableDefinition) -> None:
    """`validateIncrementalClustering`, `validatePkClusteringOverride`."""
    clustering = column_list(definition.stored_option("clustering.columns"))
    if definition.flag("clustering.incremental"):
        if definition.primary_keys:
            raise _contradiction("'clustering.incremental'", "a primary key", "Leave out one.")
        if definition.bucket != -1 and (
            definition.flag("bucket-append-ordered") or definition.deletion_vectors_enabled
        ):
            raise InvalidTableError(
                "'clustering.incremental' with buckets needs 'bucket-append-ordered' = 'false' and "
                "no deletion vectors.",
                hint="Set them so, or leave out 'bucket'.",
            )
    if not definition.flag("pk-clustering-override"):
        return
    if not clustering:
        raise InvalidTableError(
            "'pk-clustering-override' needs 'clustering.columns'.",
            hint="Set 'clustering.columns' to the columns to sort by.",
        )
    first_row = definition.merge_engine == "first-row"
    if not definition.deletion_vectors_enabled and not first_row:
        raise InvalidTableError(
            "'pk-clustering-override' needs 'deletion-vectors.enabled'.",
            hint="Set 'deletion-vectors.enabled' = 'true' too.",
        )
    for unwanted, what in (
        (definition.stored_option("record-level.expire-time"), "'record-level.expire-time'"),
        (
            definition.merge_engine not in ("deduplicate", "first-row"),
            f"the merge engine {definition.merge_engine}",
        ),
        (definition.sequence_fields, "'sequence.field'"),
        (
            definition.changelog_producer not in ("none", "input"),
            f"'changelog-producer' = '{definition.changelog_producer}'",
        ),
    ):
        if unwanted:
            raise _contradiction("'pk-clustering-override'", what, "Leave out one.")


def _check_chain_table(definition: TableDefinition) -> None:
    """`validateChainTable`."""
    if not definition.flag("chain-table.enabled"):
        return
    needs = (
        (definition.primary_keys, "a primary key"),
        (definition.partition_keys, "partition keys"),
        (definition.bucket > 0, "'bucket' above 0"),
        (definition.sequence_fields, "'sequence.field'"),
        (
            definition.changelog_producer in ("none", "input"),
            "'changelog-producer' none or input",
        ),
        (
            not definition.deletion_vectors_enabled or definition.merge_engine == "deduplicate",
            "the merge engine deduplicate with deletion vectors",
        ),
        (definition.stored_option("partition.timestamp-pattern"), "'partition.timestamp-pattern'"),
        (
            definition.stored_option("partition.timestamp-formatter"),
            "'partition.timestamp-formatter'",
        ),
        (
            definition.stored_option("partition.expiration-time") is None
            or definition.option("partition.expiration-strategy") == "values-time",
            "'partition.expiration-strategy' = 'values-time'",
        ),
    )
    for given, what in needs:
        if not given:
            raise InvalidTableError(f"'chain-table.enabled' needs {what}.", hint="Set it too.")
    chain = definition.stored_option("chain-table.chain-partition-keys")
    keys = column_list(chain)
    if chain is not None and (not keys or definition.partition_keys[-len(keys) :] != keys):
        raise InvalidTableError(
            f"'chain-table.chain-partition-keys' = '{chain}' must be the last partition keys of "
            f"{', '.join(definition.partition_keys)}.",
            hint="Name them in that order.",
        )


def _check_record_level_expire(definition: TableDefinition) -> None:
    """The `record-level.time-field` part of `validateTableSchema`."""
    field = definition.stored_option("record-level.time-field")
    if field is None:
        return
    _check_exist(definition, (field,), "record-level.time-field")
    match definition.column(field).type:
        case AtomicType(name="INT" | "BIGINT" | "TIMESTAMP" | "TIMESTAMP_LTZ"):
            return
    raise InvalidTableError(
        f"'record-level.time-field' names `{field}`, which is neither a number nor a timestamp.",
        hint="Use a column of the type INT, BIGINT or TIMESTAMP.",
    )


def _check_manifest_sort(definition: TableDefinition) -> None:
    """`validateManifestSort`."""
    if not definition.flag("manifest-sort.enabled"):
        return
    if not definition.data_evolution_enabled and not definition.partition_keys:
        raise InvalidTableError(
            "'manifest-sort.enabled' needs a partitioned table.", hint="Leave it out."
        )
    field = definition.stored_option("manifest-sort.partition-field")
    if field and field not in definition.partition_keys:
        raise InvalidTableError(
            f"'manifest-sort.partition-field' names `{field}`, which is no partition key.",
            hint=nearest(field, definition.partition_keys, what="partition keys"),
        )


def _check_file_indexes(definition: TableDefinition) -> None:
    """`validateFileIndex`, without the types that each index can hold."""
    declared: set[tuple[str, str]] = set()
    others: list[tuple[str, list[str]]] = []
    for key, value in definition.options:
        if not key.startswith("file-index."):
            continue
        rest = key.removeprefix("file-index.")
        if not rest.endswith(".columns"):
            if rest.count(".") == 2:
                others.append((key, rest.split(".")))
            continue
        index = rest.removesuffix(".columns")
        if index not in _FILE_INDEXES:
            raise InvalidTableError(
                f"There is no file index '{index}' (option '{key}').",
                hint=nearest(index, _FILE_INDEXES, what="file indexes"),
            )
        for name in column_list(value):
            column, bracket, _ = name.partition("[")
            _check_exist(definition, (column,), key)
            declared.add((index, column))
            data_type = definition.column(column).type
            if bracket and not (
                isinstance(data_type, MapType)
                and isinstance(data_type.key, AtomicType)
                and data_type.key.name in ("CHAR", "VARCHAR", "STRING")
            ):
                raise InvalidTableError(
                    f"The option '{key}' names `{name}`, and `{column}` is no map with text keys.",
                    hint="Only such maps can be indexed by key.",
                )
    for key, (index, column, _) in others:
        if (index, column) not in declared:
            raise InvalidTableError(
                f"The option '{key}' is for the column `{column}`, which has no such index.",
                hint=f"Add `{column}` to 'file-index.{index}.columns'.",
            )


def _check_primary_key_indexes(definition: TableDefinition) -> None:
    """`validatePrimaryKeyIndexColumns`, `…SortedIndexes`, `…FullTextIndex`."""
    indexed: set[str] = set()
    for key in _PRIMARY_KEY_INDEXES:
        names = column_list(definition.stored_option(key))
        if not names:
            continue
        _check_exist(definition, names, key)
        for name in names:
            if name in indexed or names.count(name) > 1:
                raise InvalidTableError(
                    f"The column `{name}` has more than one primary-key index.",
                    hint="Name it once.",
                )
        indexed.update(names)
        full_text = key == "pk-full-text.index.columns"
        for given, what in (
            (definition.primary_keys, "a primary key"),
            (
                definition.deletion_vectors_enabled
                or (full_text and definition.merge_engine == "first-row"),
                "'deletion-vectors.enabled'",
            ),
            (
                not definition.flag("deletion-vectors.merge-on-read"),
                "'deletion-vectors.merge-on-read' = 'false'",
            ),
            (definition.bucket > 0 or definition.bucket == -2, "'bucket' above 0 or -2"),
            (
                not definition.flag("pk-clustering-override"),
                "'pk-clustering-override' = 'false'",
            ),
            (not full_text or len(names) == 1, "exactly one column"),
            (
                not full_text or _is(definition.column(names[0]).type, "CHAR", "VARCHAR", "STRING"),
                "a text column",
            ),
        ):
            if not given:
                raise InvalidTableError(f"The option '{key}' needs {what}.", hint="Set it too.")


def _check_map_layout(definition: TableDefinition) -> None:
    """`validateMapStorageLayout`, without its limits on compressions."""
    for key, value in definition.options:
        if not (key.startswith("fields.") and key.endswith(".map.storage-layout")):
            continue
        name = key.removeprefix("fields.").removesuffix(".map.storage-layout")
        _check_exist(definition, (name,), key)
        data_type = definition.column(name).type
        if not isinstance(data_type, MapType):
            raise InvalidTableError(
                f"The option '{key}' is for `{name}`, which is no MAP.", hint="Leave it out."
            )
        if value.lower() not in ("default", "shared-shredding"):
            raise InvalidTableError(
                f"The option '{key}' can't be '{value}'.", hint="Use default or shared-shredding."
            )
        if value.lower() == "shared-shredding" and (
            not _is(data_type.key, "STRING")
            or data_type.key.nullable
            or definition.file_format not in ("parquet", "orc")
            or definition.bucket == -2
            or definition.has_type("VARIANT")
            or contains_type(data_type.value, "BLOB")
        ):
            raise InvalidTableError(
                f"'{key}' = 'shared-shredding' needs a MAP<STRING NOT NULL, …>, the file format "
                "parquet or orc, no postponed buckets, no VARIANT column and no BLOB values.",
                hint="Leave it out.",
            )


def _check_variant_shredding(definition: TableDefinition) -> None:
    """`validateVariantShreddingInferenceOptions`."""
    ratios: dict[str, float] = {}
    for key, low in (
        ("variant.shredding.maxInferBufferRow", 1),
        ("variant.shredding.adaptive.maxInferBufferRow", 1),
    ):
        if integer_value(key, definition.option(key) or "1") < low:
            raise InvalidTableError(f"The option '{key}' must be above 0.", hint="Raise it.")
    for key in (
        "variant.shredding.minFieldCardinalityRatio",
        "variant.shredding.adaptive.retentionRatio",
    ):
        ratios[key] = double_value(key, definition.option(key) or "0")
        if not 0 <= ratios[key] <= 1:
            raise InvalidTableError(f"The option '{key}' must be from 0 to 1.", hint="Change it.")
    admission, retention = ratios.values()
    mode = (definition.option("variant.shredding.inferenceMode") or "").lower()
    if mode == "adaptive" and retention > admission:
        raise InvalidTableError(
            "'variant.shredding.adaptive.retentionRatio' is above "
            "'variant.shredding.minFieldCardinalityRatio'.",
            hint="Lower it.",
        )


def _check_scan_mode(definition: TableDefinition) -> None:
    """`validateStartupMode`, `CoreOptions.startupMode`."""
    pinned = {
        key
        for keys in _SCAN_MODES.values()
        for key in keys
        if definition.stored_option(key) is not None
    }
    stored = definition.stored_option("scan.mode")
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
    if definition.stored_option("scan.fallback-branch") and definition.stored_option(
        "scan.primary-branch"
    ):
        raise _contradiction("'scan.fallback-branch'", "'scan.primary-branch'", "Leave out one.")


def _contradiction(one: str, other: str, hint: str) -> InvalidTableError:
    return InvalidTableError(f"{one} can't go with {other}.", hint=hint)


def _check_exist(definition: TableDefinition, names: tuple[str, ...], key: str) -> None:
    for name in names:
        if name not in definition.column_names:
            raise InvalidTableError(
                f"The option '{key}' names the column `{name}`, which the table does not have.",
                hint=nearest(name, definition.column_names, what="columns"),
            )


def _is(data_type: DataType, *names: str) -> bool:
    return isinstance(data_type, AtomicType) and data_type.name in names


FEATURE_RULES: tuple[Callable[[TableDefinition], None], ...] = (
    _check_deletion_vectors,
    _check_row_tracking,
    _check_blobs,
    _check_clustering,
    _check_chain_table,
    _check_record_level_expire,
    _check_manifest_sort,
    _check_file_indexes,
    _check_primary_key_indexes,
    _check_map_layout,
    _check_variant_shredding,
    _check_scan_mode,
)
