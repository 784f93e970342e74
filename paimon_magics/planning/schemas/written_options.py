"""Options that the writers don't apply: refused by name, or reported as not applied. Pure.

An option is refused if ignoring it would put rows where other engines don't look, leave files that
are never removed, or skip work that the table's owner relies on. It is only reported if every
reader finds the same rows without it, and another engine's compaction or commit makes up for it.
All other options of Paimon's `CoreOptions` are applied, or concern only reading, compaction,
streaming and memory. Tests compare an option of each kind with Paimon's Java library.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from paimon_magics.errors import InvalidTableError, UnsupportedStatementError, nearest
from paimon_magics.planning.options.formats import FILE_FORMATS
from paimon_magics.planning.options.values import integer_value
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.statement import TableName

SHREDDING_OPTIONS = ("variant.shreddingSchema", "variant.inferShreddingSchema")
"""The options by which parts of VARIANT values are stored as columns. Files without such columns
are valid, too."""

# option → (the value without effect, what any other value asks for)
_REFUSED = {
    "data-file.external-paths": ("", "files outside the table's folder"),
    "commit.callbacks": ("", "Java classes to be called at each commit"),
    "metadata.iceberg.storage": ("disabled", "Iceberg metadata at each commit"),
    "chain-table.enabled": ("false", "a chain of branches"),
    "pk-clustering-override": ("false", "files sorted by columns other than the key"),
    "commit.strict-mode.last-safe-snapshot": ("", "a check that belongs to one job"),
    "branch": ("main", "a branch other than the one named in the statement"),
    "vector.file.format": ("", "vectors in separate files"),
    "manifest.format": ("avro", "manifests of another format than Avro"),
}
_DATA_FOLDER = "data-file.path-directory"
_NOT_APPLIED = {
    "data-file.thin-mode": "false",
    "tag.automatic-creation": "none",
    "partition.expiration-time": "",
    "partition.mark-done-action": "success-file",
    "visibility-callback.enabled": "false",
    "commit.user-prefix": "",
    "clustering.columns": "",
    "data-evolution.row-sidecar.enabled": "false",
    # The native writer shreds, too, but leaves out field ids without which Java fails to read.
    **dict.fromkeys(SHREDDING_OPTIONS, "false"),
}
# Those of pypaimon's writer of manifests.
_MANIFEST_COMPRESSIONS = ("null", "deflate", "snappy", "zstd", "bzip2", "xz")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


def check_written_options(name: TableName, schema: TableSchema) -> None:
    """Raise UnsupportedStatementError for a table with an option that the writers don't apply and
    can't ignore; the message names it."""
    if schema.partition_keys and schema.flag(DONE_AT_END):
        check_actions(name, schema)
    for key, value, wanted in _refused(schema):
        raise UnsupportedStatementError(
            f"Table `{name}` has '{key}' = '{value}', which requires {wanted}; writing such tables "
            "is not offered yet.",
            hint="Write it with another engine, or unset that option.",
        )


def options_not_applied(schema: TableSchema) -> tuple[str, ...]:
    """The sorted keys of stored options that have no effect on what is written here."""
    keys = {
        key
        for key, idle in _NOT_APPLIED.items()
        if (schema.stored_option(key) or idle).lower() != idle
    }
    if schema.flag(DONE_AT_END):
        keys.discard(_DONE_ACTION)
    if schema.flag("clustering.incremental") and not schema.flag(
        "clustering.incremental.optimize-write"
    ):
        keys.discard("clustering.columns")  # as in Paimon only compactions sort by them
    return tuple(sorted(keys))


def _refused(schema: TableSchema) -> Iterator[tuple[str, str, str]]:
    for key, (idle, wanted) in _REFUSED.items():
        value = schema.stored_option(key)
        if value is not None and value.lower() != idle:
            yield key, value, wanted
    folder = schema.stored_option(_DATA_FOLDER)
    if folder is not None and (
        ":" in folder or folder.startswith("/") or ".." in folder.split("/")
    ):
        yield _DATA_FOLDER, folder, "files outside the table's folder"
    for key, value in schema.options:
        if key.endswith(".map.storage-layout") and value.lower() != "default":
            yield key, value, "another storage layout of maps"
    manifests = schema.stored_option("manifest.compression")
    if manifests is not None and manifests.lower() not in _MANIFEST_COMPRESSIONS:
        yield "manifest.compression", manifests, "a compression that manifests don't support"
    outside = schema.stored_option("global-index.external-path")
    if outside and not _SCHEME.match(outside.strip()):
        yield (
            "global-index.external-path",
            outside,
            "a folder without its store, such as file:/ or s3:/",
        )
    for key, shown, codec, file_format in _compressions(schema):
        traits = FILE_FORMATS.get(file_format)
        if traits is not None and traits.compressions and codec not in traits.compressions:
            yield key, shown, f"a compression that {file_format} files don't support"
    rows = schema.stored_option("target-file-row-num")
    traits = FILE_FORMATS.get(schema.file_format)
    if rows is not None and (traits is None or not traits.limits_rows):
        what = f"{schema.file_format} files with a limited number of rows"
        yield "target-file-row-num", rows, what


def _compressions(schema: TableSchema) -> Iterator[tuple[str, str, str, str]]:
    """Each option that chooses a codec: its key, its value, the codec, and the format of the
    files."""
    if schema.is_primary_key_table and schema.changelog_producer != "none":
        key = "changelog-file.compression"
        if schema.stored_option(key) is None:
            key = "file.compression"
        codec = (schema.option(key) or "zstd").lower()
        changelog = schema.stored_option("changelog-file.format") or schema.file_format
        yield key, codec, codec, changelog.lower()
    formats = values_by_level(schema, "file.format.per.level")
    for level, codec in values_by_level(schema, "file.compression.per.level").items():
        of_level = formats.get(level, schema.file_format)
        yield "file.compression.per.level", f"{level}:{codec}", codec, of_level
    codec = schema.stored_option("file.compression") or ""
    if codec:
        yield "file.compression", codec, codec.lower(), schema.file_format


def values_by_level(schema: TableSchema, key: str) -> dict[int, str]:
    """The values of an option such as `0:avro,5:parquet`, or `KEY.5`, by level, in small letters.
    Raises InvalidTableError for a level that is no number."""
    levels = {
        integer_value(name, name.removeprefix(f"{key}.")): value.strip().lower()
        for name, value in schema.options
        if name.startswith(f"{key}.")
    }
    for part in (schema.option(key) or "").split(","):
        level, colon, value = part.partition(":")
        if colon:
            levels[integer_value(key, level.strip())] = value.strip().lower()
    return levels


# How partitions are reported as done, by procedures, and at the end of a write as in Paimon's
# `WriteHelper.markDoneIfNeeded`.

DONE_AT_END = "partition.end-input-to-done"
_DONE_ACTION = "partition.mark-done-action"
_REASONS = {
    "done-partition": "it adds a partition `….done` to a metastore, and this catalog has none",
    "mark-event": "it sends an event to a metastore, and this catalog has none",
    "http-report": "whoever alters a table could make this process send requests to any address",
    "custom": "it names a Java class, and no Java runs here",
}


def check_actions(name: TableName, schema: TableSchema) -> None:
    """Raise UnsupportedStatementError for an action of 'partition.mark-done-action' that is not
    offered, InvalidTableError for one that Paimon does not have."""
    text = schema.option(_DONE_ACTION) or ""
    actions = [action.strip().lower() for action in text.split(",") if action.strip()]
    for action in actions:
        if action in _REASONS:
            raise UnsupportedStatementError(
                f"`{name}` has '{_DONE_ACTION}' = '{text}'. The action {action} is not carried "
                f"out here: {_REASONS[action]}.",
                hint=f"ALTER TABLE `{name.table}` SET TBLPROPERTIES ('{_DONE_ACTION}' = "
                "'success-file'), or mark the partition with the engine that has the action.",
            )
        if action != "success-file":
            raise InvalidTableError(
                f"`{name}` has '{_DONE_ACTION}' = '{text}', and there is no action {action}.",
                hint=nearest(
                    action, ["success-file", *_REASONS], what=f"values of '{_DONE_ACTION}'"
                ),
            )
