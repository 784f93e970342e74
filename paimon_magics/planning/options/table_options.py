"""The options of a Paimon table: key, type, default, and whether it may change later.

Data only, taken from Paimon 2.0.0's `CoreOptions`. The page "Core Options" of Paimon's
documentation says what each key means. `DEPRECATED_KEYS` are older names that Paimon still reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OptionType = Literal[
    "string",
    "integer",
    "long",
    "positive",
    "double",
    "boolean",
    "memory size",
    "duration",
    "tag retention",
    "map",
    "choice",
]


@dataclass(frozen=True, slots=True)
class OptionDefinition:
    """One option. `default` is text, None without a default; `choices` are the values of a choice.

    An `immutable` option can't change once the table has a snapshot.
    """

    key: str
    type: OptionType
    default: str | None = None
    choices: tuple[str, ...] = ()
    immutable: bool = False


def default_value(key: str) -> str | None:
    """Return an option's default as text; None if it has no default or the key is unknown."""
    known = CORE_OPTIONS.get(key) or OWN_OPTIONS.get(key)
    return known.default if known is not None else None


STRING: OptionType = "string"
INTEGER: OptionType = "integer"
LONG: OptionType = "long"
POSITIVE: OptionType = "positive"
DOUBLE: OptionType = "double"
BOOLEAN: OptionType = "boolean"
MEMORY_SIZE: OptionType = "memory size"
DURATION: OptionType = "duration"
RETENTION: OptionType = "tag retention"
MAP: OptionType = "map"
IMMUTABLE = True

DEPRECATED_KEYS = {
    "parquet.variant.shreddingSchema": "variant.shreddingSchema",
    "snapshot.expire.clean-empty-directories": "snapshot.clean-empty-directories",
    "first-row.ignore-delete": "ignore-delete",
    "deduplicate.ignore-delete": "ignore-delete",
    "partial-update.ignore-delete": "ignore-delete",
    "write.compaction-skip": "write-only",
    "log.scan": "scan.mode",
    "log.scan.timestamp-millis": "scan.timestamp-millis",
    "orc.write.batch-size": "write.batch-size",
    "changelog-producer.lookup-wait": "lookup-wait",
    "delete-file.thread-num": "file-operation.thread-num",
    "sink.clustering.by-columns": "clustering.columns",
    "sink.clustering.strategy": "clustering.strategy",
    "blob.stored-descriptor-fields": "blob-descriptor-field",
}

# (key, type or the choices, default[, IMMUTABLE])
_Row = (
    tuple[str, OptionType | tuple[str, ...], str | None]
    | tuple[str, OptionType | tuple[str, ...], str | None, bool]
)

_CORE: tuple[_Row, ...] = (
    (
        "type",
        (
            "table",
            "format-table",
            "materialized-table",
            "object-table",
            "lance-table",
            "iceberg-table",
        ),
        "table",
        IMMUTABLE,
    ),
    ("bucket", INTEGER, "-1"),
    ("bucket-key", STRING, None, IMMUTABLE),
    ("bucket-append-ordered", BOOLEAN, "true"),
    ("bucket-function.type", ("default", "mod", "hive"), "default", IMMUTABLE),
    ("data-file.external-paths", STRING, None),
    (
        "data-file.external-paths.strategy",
        ("none", "specific-fs", "round-robin", "entropy-inject", "weight-robin"),
        "none",
    ),
    ("data-file.external-paths.specific-fs", STRING, None),
    ("data-file.external-paths.weights", STRING, None),
    ("compaction.force-rewrite-all-files", BOOLEAN, "false"),
    ("path", STRING, None),
    ("branch", STRING, "main"),
    ("chain-table.enabled", BOOLEAN, "false"),
    ("scan.fallback-snapshot-branch", STRING, None),
    ("scan.fallback-delta-branch", STRING, None),
    ("chain-table.chain-partition-keys", STRING, None),
    ("chain-table.streaming.merge-snapshot", BOOLEAN, "false"),
    ("chain-table.split.key-range-enabled", BOOLEAN, "true"),
    ("file.format", STRING, "parquet"),
    ("file.compression.per.level", MAP, ""),
    ("file.format.per.level", MAP, ""),
    ("file.compression", STRING, "zstd"),
    ("file.compression.zstd-level", INTEGER, "1"),
    ("data-file.prefix", STRING, "data-"),
    ("data-file.path-directory", STRING, None, IMMUTABLE),
    ("changelog-file.prefix", STRING, "changelog-"),
    ("changelog-file.format", STRING, None),
    ("changelog-file.compression", STRING, None),
    ("changelog-file.stats-mode", STRING, None),
    ("file.suffix.include.compression", BOOLEAN, "false"),
    ("file.block-size", MEMORY_SIZE, None),
    ("file-index.in-manifest-threshold", MEMORY_SIZE, "500 B"),
    ("file-index.read.enabled", BOOLEAN, "true"),
    ("variant.shreddingSchema", STRING, None),
    ("variant.inferShreddingSchema", BOOLEAN, "false"),
    ("variant.shredding.maxSchemaWidth", INTEGER, "300"),
    ("variant.shredding.maxSchemaDepth", INTEGER, "50"),
    ("variant.shredding.minFieldCardinalityRatio", DOUBLE, "0.1"),
    ("variant.shredding.maxInferBufferRow", INTEGER, "4096"),
    ("variant.shredding.adaptive.maxInferBufferRow", INTEGER, "256"),
    ("variant.shredding.adaptive.retentionRatio", DOUBLE, "0.05"),
    ("manifest.format", STRING, "avro"),
    ("manifest.compression", STRING, "zstd"),
    ("manifest.target-file-size", MEMORY_SIZE, "8 mb"),
    ("manifest.full-compaction-threshold-size", MEMORY_SIZE, "16 mb"),
    ("manifest.merge-min-count", INTEGER, "30"),
    ("manifest-sort.enabled", BOOLEAN, "false"),
    ("manifest-sort.partition-field", STRING, None),
    ("manifest-sort.max-rewrite-size", MEMORY_SIZE, "256 mb"),
    ("upsert-key", STRING, None),
    ("partition.default-name", STRING, "__DEFAULT_PARTITION__"),
    ("partition.legacy-name", BOOLEAN, "true"),
    ("snapshot.num-retained.min", INTEGER, "10"),
    ("snapshot.num-retained.max", INTEGER, "2147483647"),
    ("snapshot.time-retained", DURATION, "1 h"),
    ("changelog.num-retained.min", INTEGER, None),
    ("changelog.num-retained.max", INTEGER, None),
    ("changelog.time-retained", DURATION, None),
    ("snapshot.expire.execution-mode", ("sync", "async"), "sync"),
    ("snapshot.expire.limit", INTEGER, "50"),
    ("snapshot.clean-empty-directories", BOOLEAN, "false"),
    ("continuous.discovery-interval", DURATION, "10 s"),
    ("scan.max-splits-per-task", INTEGER, "10"),
    ("scan.bucket", INTEGER, None),
    (
        "merge-engine",
        ("deduplicate", "partial-update", "aggregation", "first-row"),
        "deduplicate",
        IMMUTABLE,
    ),
    ("ignore-delete", BOOLEAN, "false"),
    ("ignore-update-before", BOOLEAN, "false"),
    ("sort-engine", ("min-heap", "loser-tree"), "loser-tree"),
    ("sort-spill-threshold", INTEGER, None),
    ("sort-spill-buffer-size", MEMORY_SIZE, "64 mb"),
    ("spill-compression", STRING, "zstd"),
    ("spill-compression.zstd-level", INTEGER, "1"),
    ("write-only", BOOLEAN, "false"),
    ("source.split.target-size", MEMORY_SIZE, "128 mb"),
    ("source.split.open-file-cost", MEMORY_SIZE, "4 mb"),
    ("write-buffer-size", MEMORY_SIZE, "256 mb"),
    ("write-buffer-spill.max-disk-size", MEMORY_SIZE, "9223372036854775807"),
    ("write-buffer-spillable", BOOLEAN, "true"),
    ("write-buffer-for-append", BOOLEAN, "false"),
    ("write-max-writers-to-spill", INTEGER, "10"),
    ("local-sort.max-num-file-handles", INTEGER, "128"),
    ("page-size", MEMORY_SIZE, "64 kb"),
    ("cache-page-size", MEMORY_SIZE, "64 kb"),
    ("target-file-size", MEMORY_SIZE, None),
    ("target-file-row-num", LONG, "9223372036854775807"),
    ("compaction.small-file-ratio", DOUBLE, "0.7"),
    ("blob.target-file-size", MEMORY_SIZE, None),
    ("blob.split-by-file-size", BOOLEAN, None),
    ("blob.copy-buffer-size", MEMORY_SIZE, "4 kb"),
    ("num-sorted-run.compaction-trigger", INTEGER, "5"),
    ("num-sorted-run.stop-trigger", INTEGER, None),
    ("num-levels", INTEGER, None),
    ("commit.force-compact", BOOLEAN, "false"),
    ("write.sequence-number-init-mode", ("scan", "snapshot"), "scan"),
    ("commit.timeout", DURATION, None),
    ("commit.max-retries", INTEGER, "10"),
    ("commit.min-retry-wait", DURATION, "10 ms"),
    ("commit.max-retry-wait", DURATION, "10 s"),
    ("compaction.max-size-amplification-percent", INTEGER, "200"),
    ("compaction.force-up-level-0", BOOLEAN, "false"),
    ("compaction.size-ratio", INTEGER, "1"),
    ("compaction.offpeak.start.hour", INTEGER, "-1"),
    ("compaction.offpeak.end.hour", INTEGER, "-1"),
    ("compaction.offpeak-ratio", INTEGER, "0"),
    ("compaction.optimization-interval", DURATION, None),
    ("compaction.total-size-threshold", MEMORY_SIZE, None),
    ("compaction.incremental-size-threshold", MEMORY_SIZE, None),
    ("compaction.min.file-num", INTEGER, "5"),
    ("compaction.file-num-limit", INTEGER, "100000"),
    ("compaction.delete-ratio-threshold", DOUBLE, "0.2"),
    ("changelog-producer", ("none", "input", "full-compaction", "lookup"), "none"),
    ("changelog-producer.row-deduplicate", BOOLEAN, "false"),
    ("changelog-producer.row-deduplicate-ignore-fields", STRING, None),
    ("table-read.sequence-number.enabled", BOOLEAN, "false"),
    ("key-value.sequence_number.enabled", BOOLEAN, "false"),
    ("sequence.field", STRING, None),
    ("sequence.field.sort-order", ("ascending", "descending"), "ascending"),
    ("sequence.snapshot-ordering", BOOLEAN, "false", IMMUTABLE),
    ("aggregation.remove-record-on-delete", BOOLEAN, "false", IMMUTABLE),
    ("partial-update.remove-record-on-delete", BOOLEAN, "false", IMMUTABLE),
    ("partial-update.remove-record-on-sequence-group", STRING, None, IMMUTABLE),
    ("rowkind.field", STRING, None, IMMUTABLE),
    (
        "scan.mode",
        (
            "default",
            "latest-full",
            "full",
            "latest",
            "compacted-full",
            "from-timestamp",
            "from-creation-timestamp",
            "from-file-creation-time",
            "from-snapshot",
            "from-snapshot-full",
            "incremental",
        ),
        "default",
    ),
    ("scan.timestamp", STRING, None),
    ("scan.timestamp-millis", LONG, None),
    ("scan.watermark", LONG, None),
    ("scan.file-creation-time-millis", LONG, None),
    ("scan.creation-time-millis", LONG, None),
    ("scan.snapshot-id", LONG, None),
    ("scan.tag-name", STRING, None),
    ("scan.version", STRING, None),
    ("scan.bounded.watermark", LONG, None),
    ("scan.manifest.parallelism", INTEGER, None),
    ("format-table.scan.list-parallelism", INTEGER, "64"),
    ("streaming.read.snapshot.delay", DURATION, None),
    ("scan.ignore-corrupt-files", BOOLEAN, "false"),
    ("scan.ignore-lost-files", BOOLEAN, "false"),
    ("auto-create", BOOLEAN, "false"),
    ("streaming-read-overwrite", BOOLEAN, "false"),
    ("streaming-read-append-overwrite", BOOLEAN, "false"),
    ("dynamic-partition-overwrite", BOOLEAN, "true"),
    ("partition.expiration-strategy", STRING, "values-time"),
    ("partition.expiration-time", DURATION, None),
    ("partition.expiration-check-interval", DURATION, "1 h"),
    ("partition.expiration-max-num", INTEGER, "100"),
    ("partition.expiration-batch-size", INTEGER, None),
    ("compaction.skip-expired-partitions", BOOLEAN, "false"),
    ("partition.timestamp-formatter", STRING, None),
    ("partition.timestamp-pattern", STRING, None),
    ("partition.timestamp-format.strict", BOOLEAN, "false"),
    ("partition.end-input-to-done", BOOLEAN, "false"),
    ("scan.plan-sort-partition", BOOLEAN, "false"),
    ("primary-key", STRING, None, IMMUTABLE),
    ("partition", STRING, None, IMMUTABLE),
    ("lookup.hash-load-factor", DOUBLE, "0.75"),
    ("lookup.cache-rows", LONG, "10000"),
    ("lookup.continuous.discovery-interval", DURATION, None),
    ("lookup.cache-file-retention", DURATION, "1 h"),
    ("lookup.cache-max-disk-size", MEMORY_SIZE, "9223372036854775807"),
    ("lookup.cache-spill-compression", STRING, "zstd"),
    ("lookup.cache-max-memory-size", MEMORY_SIZE, "256 mb"),
    ("lookup.blob-as-descriptor", BOOLEAN, "false"),
    ("lookup.cache.high-priority-pool-ratio", DOUBLE, "0.25"),
    ("lookup.cache.bloom.filter.enabled", BOOLEAN, "true"),
    ("lookup.cache.bloom.filter.fpp", DOUBLE, "0.05"),
    ("lookup.remote-file.enabled", BOOLEAN, "false"),
    ("lookup.remote-file.level-threshold", INTEGER, "-2147483648"),
    ("read.batch-size", INTEGER, "1024"),
    ("write.batch-size", INTEGER, "1024"),
    ("write.batch-memory", MEMORY_SIZE, "128 mb"),
    ("consumer-id", STRING, None),
    ("full-compaction.delta-commits", INTEGER, None),
    ("stream-scan-mode", ("none", "compact-bucket-table", "file-monitor"), "none"),
    ("batch-scan-mode", ("none", "compact"), "none"),
    ("consumer.expiration-time", DURATION, None),
    ("consumer.mode", ("exactly-once", "at-least-once"), "exactly-once"),
    ("consumer.ignore-progress", BOOLEAN, "false"),
    ("consumer.changelog-only", BOOLEAN, "false"),
    ("dynamic-bucket.target-row-num", LONG, "2000000"),
    ("dynamic-bucket.initial-buckets", INTEGER, None, IMMUTABLE),
    ("dynamic-bucket.max-buckets", INTEGER, "-1"),
    ("dynamic-bucket.assigner-parallelism", INTEGER, None),
    ("incremental-between", STRING, None),
    ("incremental-between-scan-mode", ("auto", "delta", "changelog", "diff"), "auto"),
    ("incremental-between-timestamp", STRING, None),
    ("incremental-to-auto-tag", STRING, None),
    ("incremental-between-tag-to-snapshot", BOOLEAN, "false"),
    ("end-input.check-partition-expire", BOOLEAN, "false"),
    ("metadata.stats-mode", STRING, "truncate(16)"),
    ("metadata.stats-mode.per.level", MAP, ""),
    ("metadata.stats-dense-store", BOOLEAN, "true"),
    ("metadata.stats-keep-first-n-columns", INTEGER, "-1"),
    ("commit.callbacks", STRING, ""),
    ("commit.callback.#.param", STRING, None),
    ("tag.callbacks", STRING, ""),
    ("tag.callback.#.param", STRING, None),
    ("partition.mark-done-action", STRING, "success-file"),
    ("partition.mark-done-action.custom.class", STRING, None),
    ("partition.mark-done-action.http.url", STRING, None),
    ("partition.mark-done-action.http.params", STRING, None),
    ("partition.sink-strategy", ("NONE", "HASH", "PARTITION_DYNAMIC"), "NONE"),
    ("metastore.partitioned-table", BOOLEAN, "false"),
    ("metastore.tag-to-partition", STRING, None),
    ("metastore.tag-to-partition.preview", ("none", "process-time", "watermark", "batch"), "none"),
    ("tag.automatic-creation", ("none", "process-time", "watermark", "batch"), "none"),
    ("tag.create-success-file", BOOLEAN, "false"),
    ("tag.creation-period", ("daily", "hourly", "two-hours"), "daily"),
    ("tag.creation-delay", DURATION, "0 ms"),
    (
        "tag.period-formatter",
        ("with_dashes", "without_dashes", "without_dashes_and_spaces"),
        "with_dashes",
    ),
    ("tag.creation-period-duration", DURATION, None),
    ("tag.num-retained-max", INTEGER, None),
    ("tag.default-time-retained", RETENTION, None),
    ("tag.time-expire-enabled", BOOLEAN, "true"),
    ("tag.automatic-completion", BOOLEAN, "false"),
    ("tag.batch.customized-name", STRING, None),
    ("scan.plan-auto-tag-for-read.time-retained", RETENTION, None),
    ("snapshot.watermark-idle-timeout", DURATION, None),
    ("parquet.enable.dictionary", INTEGER, None),
    ("sink.watermark-time-zone", STRING, "UTC"),
    ("sink.process-time-zone", STRING, None),
    ("local-merge-buffer-size", MEMORY_SIZE, None),
    ("cross-partition-upsert.index-ttl", DURATION, None),
    ("cross-partition-upsert.bootstrap-parallelism", INTEGER, "10"),
    ("zorder.var-length-contribution", INTEGER, "8"),
    ("file-reader-async-threshold", MEMORY_SIZE, "10 mb"),
    ("commit.force-create-snapshot", BOOLEAN, "false"),
    ("deletion-vectors.enabled", BOOLEAN, "false"),
    ("deletion-vectors.modifiable", BOOLEAN, "false"),
    ("deletion-vector.index-file.target-size", MEMORY_SIZE, "2 mb"),
    ("deletion-vectors.merge-on-read", BOOLEAN, "false"),
    ("deletion-vectors.bitmap64", BOOLEAN, "false"),
    ("delete.force-produce-changelog", BOOLEAN, "false"),
    ("sort-compaction.range-strategy", ("SIZE", "QUANTITY"), "SIZE"),
    ("sort-compaction.local-sample.magnification", INTEGER, "1000"),
    ("record-level.expire-time", DURATION, None),
    ("record-level.time-field", STRING, None),
    ("fields.default-aggregate-function", STRING, None),
    ("commit.user-prefix", STRING, None),
    ("force-lookup", BOOLEAN, "false", IMMUTABLE),
    ("lookup-wait", BOOLEAN, "true"),
    ("lookup-compact", ("RADICAL", "GENTLE"), "RADICAL"),
    ("lookup-compact.max-interval", INTEGER, None),
    ("file-operation.thread-num", INTEGER, None),
    ("scan.fallback-branch", STRING, None),
    ("scan.fallback-branch.read-fail-fast", BOOLEAN, "false"),
    ("scan.primary-branch", STRING, None),
    ("async-file-write", BOOLEAN, "true"),
    ("manifest.delete-file-drop-stats", BOOLEAN, "false"),
    ("data-file.thin-mode", BOOLEAN, "false"),
    ("partition.idle-time-to-report-statistic", DURATION, "0 ms"),
    ("query-auth.enabled", BOOLEAN, "false"),
    ("materialized-table.definition-query", STRING, None),
    ("materialized-table.interval-freshness", STRING, None),
    ("materialized-table.refresh-mode", ("CONTINUOUS", "FULL", "AUTOMATIC"), None),
    ("materialized-table.refresh-handler-description", STRING, None),
    ("materialized-table.refresh-handler-bytes", STRING, None),
    ("alter-column-null-to-not-null.disabled", BOOLEAN, "true"),
    ("disable-explicit-type-casting", BOOLEAN, "false"),
    ("add-column-before-partition", BOOLEAN, "false"),
    ("commit.strict-mode.last-safe-snapshot", LONG, None),
    ("clustering.columns", STRING, None),
    ("clustering.strategy", STRING, "auto"),
    ("clustering.incremental", BOOLEAN, "false"),
    ("clustering.history-partition.limit", INTEGER, "5"),
    ("clustering.history-partition.idle-to-full-sort", DURATION, None),
    ("clustering.incremental.optimize-write", BOOLEAN, "false"),
    ("clustering.incremental.mode", ("global-sort", "local-sort"), "global-sort"),
    ("local-kv-db.block-size", MEMORY_SIZE, "4 kb"),
    ("row-tracking.enabled", BOOLEAN, "false", IMMUTABLE),
    ("row-tracking.partition-group-on-commit", BOOLEAN, "true"),
    ("data-evolution.enabled", BOOLEAN, "false", IMMUTABLE),
    ("data-evolution.reassign.skip-contiguous-row-count", LONG, "1000000000"),
    ("data-evolution.row-id-conflict-rewrite.max-size", MEMORY_SIZE, "256 mb"),
    ("data-evolution.row-sidecar.enabled", BOOLEAN, "false"),
    ("data-evolution.row-sidecar.max-selected-rows", LONG, "4096"),
    ("data-evolution.row-sidecar.max-selection-ratio", DOUBLE, "0.05"),
    ("data-evolution.merge-into.file-pruning", BOOLEAN, "true"),
    ("data-evolution.merge-into.source-persist", BOOLEAN, "false"),
    ("data-evolution.compaction.rewrite-row-ids", BOOLEAN, "false"),
    ("blob-compaction.enabled", BOOLEAN, "false"),
    ("snapshot.ignore-empty-commit", BOOLEAN, None),
    ("index-file-in-data-file-dir", BOOLEAN, "false", IMMUTABLE),
    ("global-index.external-path", STRING, None),
    ("lookup.merge-buffer-size", MEMORY_SIZE, "8 mb"),
    ("lookup.merge-records-threshold", INTEGER, "1024"),
    ("format-table.implementation", ("paimon", "engine"), "paimon"),
    ("format-table.partition-path-only-value", BOOLEAN, "false"),
    ("format-table.file.compression", STRING, None),
    ("format-table.commit-hive-sync-url", STRING, None),
    ("blob-field", STRING, None, IMMUTABLE),
    ("blob-descriptor-field", STRING, None, IMMUTABLE),
    ("blob-view-field", STRING, None, IMMUTABLE),
    ("blob-view.resolve.enabled", BOOLEAN, "true"),
    ("blob-as-descriptor", BOOLEAN, "false"),
    ("blob-descriptor.source-table", STRING, None),
    ("blob-write-null-on-missing-file", BOOLEAN, "false"),
    ("blob-write-null-on-fetch-failure", BOOLEAN, "false"),
    ("commit.discard-duplicate-files", BOOLEAN, "false"),
    ("postpone.batch-write-fixed-bucket", BOOLEAN, "true"),
    ("postpone.merge-on-read", BOOLEAN, "false"),
    ("postpone.batch-write-fixed-bucket.max-parallelism", INTEGER, "2048"),
    ("postpone.default-bucket-num", INTEGER, "1"),
    ("postpone.target-row-num-per-bucket", LONG, None),
    ("postpone.target-size-per-bucket", MEMORY_SIZE, "1 gb"),
    ("global-index.row-count-per-shard", LONG, "100000"),
    ("global-index.build.max-shard", INTEGER, "32"),
    ("global-index.build.max-parallelism", INTEGER, "4096"),
    ("global-index.enabled", BOOLEAN, "true"),
    ("global-index.search-mode", ("fast", "full", "detail"), None),
    ("scalar-index.search-mode", ("fast", "full", "detail"), "fast"),
    ("vector-index.search-mode", ("fast", "full", "detail"), "fast"),
    ("full-text-index.search-mode", ("fast", "full", "detail"), "fast"),
    ("global-index.thread-num", INTEGER, "32"),
    ("overwrite-upgrade", BOOLEAN, "true"),
    ("visibility-callback.enabled", BOOLEAN, "false"),
    ("visibility-callback.timeout", DURATION, "30 min"),
    ("visibility-callback.check-interval", DURATION, "10 s"),
    ("vector.file.format", STRING, None),
    ("vector-field", STRING, None),
    ("vector.target-file-size", MEMORY_SIZE, None),
    ("vector-search.distribute.enabled", BOOLEAN, "false"),
    ("vector-search.lateral-join.batch-size", INTEGER, "256"),
    ("pk-vector.index.columns", STRING, None),
    ("pk-btree.index.columns", STRING, None),
    ("pk-bitmap.index.columns", STRING, None),
    ("pk-full-text.index.columns", STRING, None),
    ("pk-clustering-override", BOOLEAN, "false", IMMUTABLE),
    ("variant.shredding.inferenceMode", ("per-file", "adaptive"), "per-file"),
    (
        "global-index.column-update-action",
        ("THROW_ERROR", "DROP_PARTITION_INDEX", "IGNORE"),
        "THROW_ERROR",
    ),
    ("materialized-table.interval-freshness.time-unit", ("SECOND", "MINUTE", "HOUR", "DAY"), None),
    ("materialized-table.logical-refresh-mode", ("CONTINUOUS", "FULL", "AUTOMATIC"), None),
    ("materialized-table.refresh-status", ("INITIALIZING", "ACTIVATED", "SUSPENDED"), None),
)

# This project's own options, stored with the table like any other.
_OWN: tuple[_Row, ...] = (
    ("auto_batch_load", BOOLEAN, None),
    ("auto_compact", BOOLEAN, None),
    ("group_commit_rows", POSITIVE, None),
    ("group_commit_data_bytes", MEMORY_SIZE, None),
    ("group_commit_interval_ms", POSITIVE, None),
    ("group_commit_mode", ("async_mode", "sync_mode", "off_mode"), None),
    ("orc.timestamp-ltz.writer-zone", STRING, None),
)

# Keys that connectors define (Flink, Spark), and those for Iceberg metadata and ORC.
_ENGINE_KEYS = """
changelog-producer.compaction-interval changelog.precommit-compact.buffer-size
changelog.precommit-compact.thread-num commit.custom-listeners
compaction.bucket-distribution-strategy end-input.watermark
filesystem.job-level-settings.enabled legacy-timestamp-mapping.enabled lookup.async
lookup.async-thread-number lookup.bootstrap-parallelism lookup.cache
lookup.dynamic-partition.refresh-interval lookup.dynamic-partition.refresh.async
lookup.refresh.async lookup.refresh.async.pending-snapshot-count
lookup.refresh.full-load-threshold lookup.refresh.time-periods-blacklist
metadata.iceberg.compaction.max.file-num metadata.iceberg.compaction.min.file-num
metadata.iceberg.database metadata.iceberg.delete-after-commit.enabled
metadata.iceberg.format-version metadata.iceberg.glue.skip-archive
metadata.iceberg.hadoop-conf-dir metadata.iceberg.hive-client-class
metadata.iceberg.hive-conf-dir metadata.iceberg.hive-skip-update-stats
metadata.iceberg.manifest-compression metadata.iceberg.manifest-legacy-version
metadata.iceberg.previous-versions-max metadata.iceberg.storage
metadata.iceberg.storage-location metadata.iceberg.table metadata.iceberg.uri
orc.column.encoding.direct orc.dictionary.key.threshold orc.timestamp-ltz.legacy.type
partition.idle-time-to-done partition.mark-done-action.mode
partition.mark-done.recover-from-state partition.time-interval precommit-compact
read.allow.fullScan read.changelog read.shuffle-bucket-with-partition
read.stream.maxBytesPerTrigger read.stream.maxFilesPerTrigger read.stream.maxRowsPerTrigger
read.stream.maxTriggerDelayMs read.stream.minRowsPerTrigger requiredSparkConfsCheck.enabled
scan.bounded scan.dedicated-split-generation scan.infer-parallelism scan.infer-parallelism.max
scan.max-snapshot.count scan.parallelism scan.partitions scan.remove-normalize
scan.split-enumerator.batch-size scan.split-enumerator.mode scan.watermark.alignment.group
scan.watermark.alignment.max-drift scan.watermark.alignment.update-interval
scan.watermark.emit.strategy scan.watermark.idle-timeout sink.clustering.sample-factor
sink.clustering.sort-in-cluster sink.committer-cpu sink.committer-memory
sink.committer-operator-chaining sink.coordinator-commit.enabled
sink.cross-partition.managed-memory sink.key-only-deletes.enabled
sink.managed.writer-buffer-memory sink.operator-uid.suffix sink.parallelism
sink.savepoint.auto-tag sink.use-managed-memory-allocator
sink.writer-coordinator.cache-expire-after-access sink.writer-coordinator.cache-memory
sink.writer-coordinator.cache-soft-values sink.writer-coordinator.enabled
sink.writer-coordinator.page-size sink.writer-coordinator.prefetch-manifests sink.writer-cpu
sink.writer-memory sink.writer-refresh-detectors source.checkpoint-align.enabled
source.checkpoint-align.timeout source.operator-uid.suffix
source.split.target-size-with-column-pruning unaware-bucket.compaction.parallelism
unaware-bucket.no-shuffle vector-search.lateral-join.parallelism
write.data-evolution.update-conflict-retry.max-attempts
write.data-evolution.update-conflict-retry.wait-ms write.merge-schema
write.merge-schema.explicit-cast write.merge-schema.type-widening write.use-v2-write
"""
ENGINE_OPTIONS = frozenset(_ENGINE_KEYS.split())

# Prefixes that any key may follow: they belong to a file format, a callback or an engine.
OPEN_FAMILIES = (
    "alluxio.", "avro.", "blob-descriptor.", "commit.callback.", "csv.", "dfs.", "field.",
    "file-index.", "file.compression.per.level.", "file.format.per.level.", "flink.", "fs.",
    "hadoop.", "hive.", "json.", "lance.", "metadata.iceberg.", "metadata.stats-mode.per.level.",
    "mosaic.", "orc.", "parquet.", "schema.", "spark.", "tag.callback.", "text.", "vortex.",
)  # fmt: skip

# What may follow `fields.<columns>.`.
FIELD_OPTIONS = (
    "aggregate-function", "count-limit", "default-value", "distinct", "ignore-retract",
    "list-agg-delimiter", "map.shared-shredding.column-placement-policy",
    "map.shared-shredding.max-columns", "map.storage-layout", "nested-key",
    "nested-key-null-strategy", "nested-sequence-field", "pk-vector.distance.metric",
    "pk-vector.index.type", "sequence-group", "stats-mode", "ts-field",
)  # fmt: skip


def _option(row: _Row) -> OptionDefinition:
    key, kind, default = row[0], row[1], row[2]
    immutable = len(row) == 4
    if isinstance(kind, tuple):
        return OptionDefinition(key, "choice", default, kind, immutable)
    return OptionDefinition(key, kind, default, (), immutable)


CORE_OPTIONS = {row[0]: _option(row) for row in _CORE}
OWN_OPTIONS = {row[0]: _option(row) for row in _OWN}
