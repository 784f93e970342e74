"""Rules on single features: which options a feature needs, and which it excludes.

Each rule follows the functions of `SchemaValidation` in Paimon 2.0.0 that its docstring names.
"""

from __future__ import annotations

from collections.abc import Callable

from paimon_magics.errors import InvalidTableError, nearest
from paimon_magics.planning.schemas.index_rules import INDEX_RULES, check_exist
from paimon_magics.planning.schemas.table_schema import TableSchema, column_list
from paimon_magics.statements.data_types import (
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    contains_type,
)

__all__ = ["FEATURE_RULES", "is_blob_column"]

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
    if schema.changelog_producer == "full-compaction":
        raise _contradiction(
            "'deletion-vectors.enabled'",
            "'changelog-producer' = 'full-compaction'",
            "Use none, input or lookup.",
        )
    if schema.merge_engine == "first-row" and not schema.flag("pk-clustering-override"):
        raise _contradiction(
            "'deletion-vectors.enabled'",
            "the merge engine first-row, which never deletes old rows",
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
        schema.merge_engine != "deduplicate"
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
    first_row = schema.merge_engine == "first-row"
    if not schema.deletion_vectors_enabled and not first_row:
        raise InvalidTableError(
            "'pk-clustering-override' needs 'deletion-vectors.enabled'.",
            hint="Set 'deletion-vectors.enabled' = 'true' too.",
        )
    for unwanted, what in (
        (schema.stored_option("record-level.expire-time"), "'record-level.expire-time'"),
        (
            schema.merge_engine not in ("deduplicate", "first-row"),
            f"the merge engine {schema.merge_engine}",
        ),
        (schema.sequence_fields, "'sequence.field'"),
        (
            schema.changelog_producer not in ("none", "input"),
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
            schema.changelog_producer in ("none", "input"),
            "'changelog-producer' none or input",
        ),
        (
            not schema.deletion_vectors_enabled or schema.merge_engine == "deduplicate",
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
