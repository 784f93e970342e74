"""The options of a Paimon table, one row for each: key, type, default, effect on the rows of a
read, and purpose.

Data only, taken from Paimon 2.0.0's `CoreOptions`; the page "Core Options" of Paimon's
documentation describes the options in full. Paimon's engines and this project read the same tables,
so an option that changes rows must not be ignored. Each one is `HONOURED` by the planner, the merge
or the readers, or is refused with the consequence that it would have, or is `IDLE` in a read: it is
for writers, compactions, streams or other engines, or only changes the speed or the order of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from paimon_magics.planning.options.changelog_producers import CHANGELOG_PRODUCERS
from paimon_magics.planning.options.merge_engines import MERGE_ENGINES

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
    "tag period",
    "time zone",
    "map",
    "choice",
]

HONOURED, IDLE = "honoured", "idle"
"""What an option means for a read. Files that are lost or corrupt are errors here whatever
`scan.ignore-lost-files` and `scan.ignore-corrupt-files` say."""

FIXED = True


@dataclass(frozen=True, slots=True)
class OptionDefinition:
    """One option. `default` is text, None without a default; `choices` are the values of a choice.

    `in_reads` is HONOURED, IDLE, or describes how the rows of a table that sets the option would be
    wrong: such a table is not read. `purpose` is shown by completion and by `%paimon help`. An
    `immutable` option can't change once the table has a snapshot.
    """

    key: str
    type: OptionType
    default: str | None
    choices: tuple[str, ...]
    in_reads: str
    purpose: str
    immutable: bool


def default_value(key: str) -> str | None:
    """Return an option's default as text; None if it has no default or the key is unknown."""
    option = OPTIONS.get(key)
    return option.default if option is not None else None


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

OLDER_KEYS: dict[str, tuple[str, ...]] = {
    key: tuple(older for older, newer in DEPRECATED_KEYS.items() if newer == key)
    for key in DEPRECATED_KEYS.values()
}
"""The older names of options that were renamed, by their name of today."""

# (key, type or the choices, default, in_reads, purpose[, FIXED])
_Row = (
    tuple[str, OptionType | tuple[str, ...], str | None, str, str]
    | tuple[str, OptionType | tuple[str, ...], str | None, str, str, bool]
)

# fmt: off
_CORE: tuple[_Row, ...] = (
    ("type", ("table", "format-table", "materialized-table", "object-table", "lance-table", "iceberg-table"), "table", HONOURED, "what kind of table it is", FIXED),
    ("bucket", "integer", "-1", HONOURED, "buckets in a partition; -1 dynamic, -2 postponed"),
    ("bucket-key", "string", None, HONOURED, "the columns whose hash chooses the bucket", FIXED),
    ("bucket-append-ordered", "boolean", "true", IDLE, "rows in a bucket of an append table keep their order"),
    ("bucket-function.type", ("default", "mod", "hive"), "default", HONOURED, "how the bucket is computed from the key", FIXED),
    ("data-file.external-paths", "string", None, HONOURED, "folders outside the table's, for its data files"),
    ("data-file.external-paths.strategy", ("none", "specific-fs", "round-robin", "entropy-inject", "weight-robin"), "none", IDLE, "how one of the external paths is chosen"),
    ("data-file.external-paths.specific-fs", "string", None, IDLE, "the store whose external path is used"),
    ("data-file.external-paths.weights", "string", None, IDLE, "how often each external path is chosen"),
    ("compaction.force-rewrite-all-files", "boolean", "false", IDLE, "a full compaction rewrites every file"),
    ("path", "string", None, HONOURED, "where the table is stored"),
    ("branch", "string", "main", "the rows would be those of that branch", "the branch that is read and written"),
    ("chain-table.enabled", "boolean", "false", "rows of the chain's other branches would be missing", "partitions are deltas on top of snapshots in another branch"),
    ("scan.fallback-snapshot-branch", "string", None, "rows of that branch would be missing", "the branch with the snapshots of a chained table"),
    ("scan.fallback-delta-branch", "string", None, "rows of that branch would be missing", "the branch with the deltas of a chained table"),
    ("chain-table.chain-partition-keys", "string", None, IDLE, "the last partition keys, along which chains run"),
    ("chain-table.streaming.merge-snapshot", "boolean", "false", IDLE, "a stream begins with snapshot and deltas merged"),
    ("chain-table.split.key-range-enabled", "boolean", "true", IDLE, "buckets of chained tables are read in ranges of keys"),
    ("file.format", "string", "parquet", IDLE, "format of data files: parquet, orc or avro"),
    ("file.compression.per.level", "map", "", IDLE, "codecs by level, as 0:lz4,1:zstd"),
    ("file.format.per.level", "map", "", IDLE, "formats by level, as 0:avro,3:parquet"),
    ("file.compression", "string", "zstd", IDLE, "codec of data files"),
    ("file.compression.zstd-level", "integer", "1", IDLE, "zstd compression level for data files"),
    ("data-file.prefix", "string", "data-", IDLE, "what names of data files begin with"),
    ("data-file.path-directory", "string", None, HONOURED, "folder in the table's for its data files", FIXED),
    ("changelog-file.prefix", "string", "changelog-", IDLE, "what names of changelog files begin with"),
    ("changelog-file.format", "string", None, IDLE, "format of changelog files, if different from data files"),
    ("changelog-file.compression", "string", None, IDLE, "codec of changelog files"),
    ("changelog-file.stats-mode", "string", None, IDLE, "which statistics are kept of changelog files"),
    ("file.suffix.include.compression", "boolean", "false", IDLE, "file names include the codec"),
    ("file.block-size", "memory size", None, IDLE, "size of a row group or stripe"),
    ("file-index.in-manifest-threshold", "memory size", "500 B", IDLE, "file indexes up to this size are stored in the manifest"),
    ("file-index.read.enabled", "boolean", "true", IDLE, "file indexes are used to leave files out"),
    ("variant.shreddingSchema", "string", None, IDLE, "which parts of a VARIANT are stored in separate columns"),
    ("variant.inferShreddingSchema", "boolean", "false", IDLE, "parts of a VARIANT become columns based on its values"),
    ("variant.shredding.maxSchemaWidth", "integer", "300", IDLE, "upper bound on shredded columns"),
    ("variant.shredding.maxSchemaDepth", "integer", "50", IDLE, "how deep values are inspected for shredding"),
    ("variant.shredding.minFieldCardinalityRatio", "double", "0.1", IDLE, "share of rows with a value that shreds it"),
    ("variant.shredding.maxInferBufferRow", "integer", "4096", IDLE, "rows that a file samples for shredding"),
    ("variant.shredding.adaptive.maxInferBufferRow", "integer", "256", IDLE, "rows that later files sample for shredding"),
    ("variant.shredding.adaptive.retentionRatio", "double", "0.05", IDLE, "share of rows that keeps a shredded column"),
    ("manifest.format", "string", "avro", IDLE, "format of manifests"),
    ("manifest.compression", "string", "zstd", IDLE, "codec of manifests"),
    ("manifest.target-file-size", "memory size", "8 mb", IDLE, "how large a manifest may grow"),
    ("manifest.full-compaction-threshold-size", "memory size", "16 mb", IDLE, "bytes of changed manifests that trigger a full rewrite"),
    ("manifest.merge-min-count", "integer", "30", IDLE, "number of small manifests that triggers a merge"),
    ("manifest-sort.enabled", "boolean", "false", IDLE, "commits sort manifest entries"),
    ("manifest-sort.partition-field", "string", None, IDLE, "the partition column by which manifests are sorted"),
    ("manifest-sort.max-rewrite-size", "memory size", "256 mb", IDLE, "upper bound on bytes of manifests sorted at a time"),
    ("upsert-key", "string", None, IDLE, "INSERT INTO replaces the rows that are equal in these columns"),
    ("partition.default-name", "string", "__DEFAULT_PARTITION__", HONOURED, "the folder of rows whose partition value is NULL"),
    ("partition.legacy-name", "boolean", "true", HONOURED, "folders name dates by days since 1970, as they used to"),
    ("snapshot.num-retained.min", "integer", "10", IDLE, "minimum number of snapshots kept"),
    ("snapshot.num-retained.max", "integer", "2147483647", IDLE, "maximum number of snapshots kept"),
    ("snapshot.time-retained", "duration", "1 h", IDLE, "how long snapshots are kept"),
    ("changelog.num-retained.min", "integer", None, IDLE, "minimum number of changelogs kept"),
    ("changelog.num-retained.max", "integer", None, IDLE, "maximum number of changelogs kept"),
    ("changelog.time-retained", "duration", None, IDLE, "how long changes are kept"),
    ("snapshot.expire.execution-mode", ("sync", "async"), "sync", IDLE, "whether a commit waits for expiring"),
    ("snapshot.expire.limit", "integer", "50", IDLE, "upper bound on snapshots that expire at a time"),
    ("snapshot.clean-empty-directories", "boolean", "false", IDLE, "expiry removes folders that it empties"),
    ("continuous.discovery-interval", "duration", "10 s", IDLE, "how often streams look for new snapshots"),
    ("scan.max-splits-per-task", "integer", "10", IDLE, "splits that wait for a task before planning pauses"),
    ("scan.bucket", "integer", None, HONOURED, "the one bucket that is read"),
    ("merge-engine", tuple(MERGE_ENGINES), "deduplicate", HONOURED, "how rows with the same key are merged", FIXED),
    ("ignore-delete", "boolean", "false", HONOURED, "deletes are ignored"),
    ("ignore-update-before", "boolean", "false", IDLE, "rows with -U are ignored"),
    ("sort-engine", ("min-heap", "loser-tree"), "loser-tree", IDLE, "how sorted runs are merged"),
    ("sort-spill-threshold", "integer", None, IDLE, "number of sorted runs from which a merge spills to disk"),
    ("sort-spill-buffer-size", "memory size", "64 mb", IDLE, "memory of a sort before it spills to disk"),
    ("spill-compression", "string", "zstd", IDLE, "codec of spilled data"),
    ("spill-compression.zstd-level", "integer", "1", IDLE, "zstd compression level for spilled data"),
    ("write-only", "boolean", "false", IDLE, "writers do not compact; another job does"),
    ("source.split.target-size", "memory size", "128 mb", IDLE, "bytes that one task reads"),
    ("source.split.open-file-cost", "memory size", "4 mb", IDLE, "bytes that opening a file counts as when work is split"),
    ("write-buffer-size", "memory size", "256 mb", IDLE, "memory of a writer before it sorts and writes"),
    ("write-buffer-spill.max-disk-size", "memory size", "9223372036854775807", IDLE, "upper bound on local disk used by buffers"),
    ("write-buffer-spillable", "boolean", "true", IDLE, "a full buffer may spill to local disk"),
    ("write-buffer-for-append", "boolean", "false", IDLE, "append tables are written through a buffer"),
    ("write-max-writers-to-spill", "integer", "10", IDLE, "number of partitions written at once from which buffers spill"),
    ("local-sort.max-num-file-handles", "integer", "128", IDLE, "upper bound on open files of a sort on disk"),
    ("page-size", "memory size", "64 kb", IDLE, "size of a page of memory"),
    ("cache-page-size", "memory size", "64 kb", IDLE, "size of a page in caches"),
    ("target-file-size", "memory size", None, IDLE, "how large a data file may grow"),
    ("target-file-row-num", "long", "9223372036854775807", IDLE, "number of rows after which a new file starts"),
    ("compaction.small-file-ratio", "double", "0.7", IDLE, "share of the target size below which a file is small"),
    ("blob.target-file-size", "memory size", None, IDLE, "target size of a file of BLOBs"),
    ("blob.split-by-file-size", "boolean", None, IDLE, "the size of BLOBs counts when work is split"),
    ("blob.copy-buffer-size", "memory size", "4 kb", IDLE, "buffer for copying BLOBs into files"),
    ("num-sorted-run.compaction-trigger", "integer", "5", IDLE, "number of sorted runs in a bucket that triggers a compaction"),
    ("num-sorted-run.stop-trigger", "integer", None, IDLE, "number of sorted runs in a bucket that blocks its writers"),
    ("num-levels", "integer", None, IDLE, "number of levels for sorted runs"),
    ("commit.force-compact", "boolean", "false", IDLE, "a commit waits for the compaction of its files"),
    ("write.sequence-number-init-mode", ("scan", "snapshot"), "scan", IDLE, "whether sequence numbers go on from files or snapshot"),
    ("commit.timeout", "duration", None, IDLE, "how long a commit is retried"),
    ("commit.max-retries", "integer", "10", IDLE, "how often a commit that lost a race is retried"),
    ("commit.min-retry-wait", "duration", "10 ms", IDLE, "the shortest wait before a commit is retried"),
    ("commit.max-retry-wait", "duration", "10 s", IDLE, "the longest wait before a commit is retried"),
    ("compaction.max-size-amplification-percent", "integer", "200", IDLE, "percent above the last level that trigger a full compaction"),
    ("compaction.force-up-level-0", "boolean", "false", IDLE, "compaction always takes all files of level 0"),
    ("compaction.size-ratio", "integer", "1", IDLE, "how much larger, in percent, the next run may be and still be merged"),
    ("compaction.offpeak.start.hour", "integer", "-1", IDLE, "the hour when off-peak hours begin"),
    ("compaction.offpeak.end.hour", "integer", "-1", IDLE, "the hour when off-peak hours end"),
    ("compaction.offpeak-ratio", "integer", "0", IDLE, "compaction.size-ratio for off-peak hours"),
    ("compaction.optimization-interval", "duration", None, IDLE, "how often a full compaction runs, which keeps $ro recent"),
    ("compaction.total-size-threshold", "memory size", None, IDLE, "buckets below this size are always compacted whole"),
    ("compaction.incremental-size-threshold", "memory size", None, IDLE, "bytes above the last level that trigger a full compaction"),
    ("compaction.min.file-num", "integer", "5", IDLE, "number of small files that triggers compaction of an append table"),
    ("compaction.file-num-limit", "integer", "100000", IDLE, "upper bound on files of one compaction"),
    ("compaction.delete-ratio-threshold", "double", "0.2", IDLE, "share of deleted rows above which a file is rewritten"),
    ("changelog-producer", tuple(CHANGELOG_PRODUCERS), "none", HONOURED, "how the changelog of a keyed table is produced"),
    ("changelog-producer.row-deduplicate", "boolean", "false", IDLE, "an update that changes nothing writes no -U and +U"),
    ("changelog-producer.row-deduplicate-ignore-fields", "string", None, IDLE, "columns whose changes don't count as an update"),
    ("table-read.sequence-number.enabled", "boolean", "false", HONOURED, "$audit_log and $binlog have _SEQUENCE_NUMBER, too"),
    ("key-value.sequence_number.enabled", "boolean", "false", IDLE, "internal: rows are read with _SEQUENCE_NUMBER"),
    ("sequence.field", "string", None, HONOURED, "the columns whose greatest value wins among rows of a key"),
    ("sequence.field.sort-order", ("ascending", "descending"), "ascending", HONOURED, "whether the largest or the smallest sequence wins"),
    ("sequence.snapshot-ordering", "boolean", "false", HONOURED, "among rows of one key, the row of the later snapshot wins", FIXED),
    ("aggregation.remove-record-on-delete", "boolean", "false", HONOURED, "a -D removes the whole row", FIXED),
    ("partial-update.remove-record-on-delete", "boolean", "false", HONOURED, "a -D removes the whole row", FIXED),
    ("partial-update.remove-record-on-sequence-group", "string", None, HONOURED, "a -D of these groups removes the row", FIXED),
    ("rowkind.field", "string", None, IDLE, "the column that says +I, -U, +U or -D", FIXED),
    ("scan.mode", ("default", "latest-full", "full", "latest", "compacted-full", "from-timestamp", "from-creation-timestamp", "from-file-creation-time", "from-snapshot", "from-snapshot-full", "incremental"), "default", HONOURED, "where a read begins"),
    ("scan.timestamp", "string", None, HONOURED, "the time that is read"),
    ("scan.timestamp-millis", "long", None, HONOURED, "the time that is read, in ms since 1970"),
    ("scan.watermark", "long", None, HONOURED, "the first snapshot with this watermark"),
    ("scan.file-creation-time-millis", "long", None, HONOURED, "only files created after this time (ms since 1970)"),
    ("scan.creation-time-millis", "long", None, HONOURED, "a read begins with files created at this time (ms since 1970)"),
    ("scan.snapshot-id", "long", None, HONOURED, "the snapshot that is read"),
    ("scan.tag-name", "string", None, HONOURED, "the tag that is read"),
    ("scan.version", "string", None, HONOURED, "the snapshot or tag that is read"),
    ("scan.bounded.watermark", "long", None, IDLE, "a stream ends at this watermark"),
    ("scan.manifest.parallelism", "integer", None, IDLE, "manifests that are read at once"),
    ("format-table.scan.list-parallelism", "integer", "64", IDLE, "number of folders of a format table that are listed at once"),
    ("streaming.read.snapshot.delay", "duration", None, IDLE, "how late streams see a snapshot"),
    ("scan.ignore-corrupt-files", "boolean", "false", IDLE, "files that can't be read are skipped"),
    ("scan.ignore-lost-files", "boolean", "false", IDLE, "files that are missing are skipped"),
    ("auto-create", "boolean", "false", IDLE, "the table's folder is created on first use"),
    ("streaming-read-overwrite", "boolean", "false", IDLE, "streams see the changes of overwrites"),
    ("streaming-read-append-overwrite", "boolean", "false", IDLE, "streams see rows that overwrites add to an append table"),
    ("dynamic-partition-overwrite", "boolean", "true", IDLE, "an overwrite replaces only partitions that get rows"),
    ("partition.expiration-strategy", "string", "values-time", IDLE, "whether a partition's age follows its values or its last write"),
    ("partition.expiration-time", "duration", None, IDLE, "the age at which a partition expires"),
    ("partition.expiration-check-interval", "duration", "1 h", IDLE, "how often expired partitions are checked for"),
    ("partition.expiration-max-num", "integer", "100", IDLE, "upper bound on partitions dropped at a time"),
    ("partition.expiration-batch-size", "integer", None, IDLE, "number of partitions dropped in one commit"),
    ("compaction.skip-expired-partitions", "boolean", "false", IDLE, "partitions that are due to expire are not compacted"),
    ("partition.timestamp-formatter", "string", None, IDLE, "format of the time in a partition's name"),
    ("partition.timestamp-pattern", "string", None, IDLE, "pattern of partition columns that form its time"),
    ("partition.timestamp-format.strict", "boolean", "false", IDLE, "a write of a partition whose time can't be read fails"),
    ("partition.end-input-to-done", "boolean", "false", IDLE, "the end of a batch marks its partitions as done"),
    ("scan.plan-sort-partition", "boolean", "false", IDLE, "partitions are read in order"),
    ("primary-key", "string", None, IDLE, "the columns that identify a row", FIXED),
    ("partition", "string", None, IDLE, "the partition columns, if PARTITIONED BY does not name them", FIXED),
    ("lookup.hash-load-factor", "double", "0.75", IDLE, "load factor of the hash tables of lookups"),
    ("lookup.cache-rows", "long", "10000", IDLE, "rows that a lookup keeps in memory"),
    ("lookup.continuous.discovery-interval", "duration", None, IDLE, "how often lookup joins look for new snapshots"),
    ("lookup.cache-file-retention", "duration", "1 h", IDLE, "how long a local lookup file is kept"),
    ("lookup.cache-max-disk-size", "memory size", "9223372036854775807", IDLE, "upper bound on local disk for lookups"),
    ("lookup.cache-spill-compression", "string", "zstd", IDLE, "codec of local lookup files"),
    ("lookup.cache-max-memory-size", "memory size", "256 mb", IDLE, "upper bound on memory for lookups"),
    ("lookup.blob-as-descriptor", "boolean", "false", IDLE, "lookup joins keep only references to BLOBs"),
    ("lookup.cache.high-priority-pool-ratio", "double", "0.25", IDLE, "share of the lookups' memory for indexes and filters"),
    ("lookup.cache.bloom.filter.enabled", "boolean", "true", IDLE, "lookup files have a Bloom filter"),
    ("lookup.cache.bloom.filter.fpp", "double", "0.05", IDLE, "false positive rate of the lookups' Bloom filter"),
    ("lookup.remote-file.enabled", "boolean", "false", IDLE, "lookup files are kept in the table's store, too"),
    ("lookup.remote-file.level-threshold", "integer", "-2147483648", IDLE, "the level from which lookup files are kept in the store"),
    ("read.batch-size", "integer", "1024", IDLE, "rows that are read at once"),
    ("write.batch-size", "integer", "1024", IDLE, "rows that are passed to a file writer at once"),
    ("write.batch-memory", "memory size", "128 mb", IDLE, "bytes that are passed to a file writer at once"),
    ("consumer-id", "string", None, IDLE, "the ID under which a consumer's progress is kept"),
    ("full-compaction.delta-commits", "integer", None, IDLE, "commits between full compactions"),
    ("stream-scan-mode", ("none", "compact-bucket-table", "file-monitor"), "none", IDLE, "internal: how a stream is read"),
    ("batch-scan-mode", ("none", "compact"), "none", HONOURED, "whether batch reads see files that are not compacted"),
    ("consumer.expiration-time", "duration", None, IDLE, "the age at which a consumer's progress expires"),
    ("consumer.mode", ("exactly-once", "at-least-once"), "exactly-once", IDLE, "whether a consumer's progress is exact, or readers advance independently"),
    ("consumer.ignore-progress", "boolean", "false", IDLE, "a new job ignores the consumer's progress"),
    ("consumer.changelog-only", "boolean", "false", IDLE, "a consumer protects changelogs, but no snapshots"),
    ("dynamic-bucket.target-row-num", "long", "2000000", IDLE, "number of rows after which a dynamic bucket is full"),
    ("dynamic-bucket.initial-buckets", "integer", None, IDLE, "number of dynamic buckets that a partition begins with", FIXED),
    ("dynamic-bucket.max-buckets", "integer", "-1", IDLE, "upper bound on dynamic buckets of a partition; -1 for none"),
    ("dynamic-bucket.assigner-parallelism", "integer", None, IDLE, "number of tasks that assign dynamic buckets"),
    ("incremental-between", "string", None, HONOURED, "the changes after the first snapshot or tag, up to the second"),
    ("incremental-between-scan-mode", ("auto", "delta", "changelog", "diff"), "auto", HONOURED, "which changes: of files, of the changelog, or between states"),
    ("incremental-between-timestamp", "string", None, HONOURED, "the changes between two times"),
    ("incremental-to-auto-tag", "string", None, HONOURED, "the changes from the previous automatic tag to this one"),
    ("incremental-between-tag-to-snapshot", "boolean", "false", HONOURED, "the changes between the snapshots of two tags"),
    ("end-input.check-partition-expire", "boolean", "false", IDLE, "partitions expire at the end of a batch"),
    ("metadata.stats-mode", "string", "truncate(16)", IDLE, "which statistics are kept of each file"),
    ("metadata.stats-mode.per.level", "map", "", IDLE, "statistics by level, as 0:none"),
    ("metadata.stats-dense-store", "boolean", "true", IDLE, "missing statistics take no space"),
    ("metadata.stats-keep-first-n-columns", "integer", "-1", IDLE, "upper bound on columns with statistics; -1 for all"),
    ("commit.callbacks", "string", "", IDLE, "Java classes that are called after a commit"),
    ("commit.callback.#.param", "string", None, IDLE, "the parameter of the callback class #"),
    ("tag.callbacks", "string", "", IDLE, "Java classes that are called after a tag"),
    ("tag.callback.#.param", "string", None, IDLE, "the parameter of the callback class #"),
    ("partition.mark-done-action", "string", "success-file", IDLE, "how a done partition is reported"),
    ("partition.mark-done-action.custom.class", "string", None, IDLE, "the Java class that reports done partitions"),
    ("partition.mark-done-action.http.url", "string", None, IDLE, "the URL that receives the report of a done partition"),
    ("partition.mark-done-action.http.params", "string", None, IDLE, "parameters sent with the report of a done partition"),
    ("partition.sink-strategy", ("NONE", "HASH", "PARTITION_DYNAMIC"), "NONE", IDLE, "how rows are shuffled by partition before they are written"),
    ("metastore.partitioned-table", "boolean", "false", IDLE, "partitions are also stored in the metastore"),
    ("metastore.tag-to-partition", "string", None, IDLE, "tags are partitions for Hive, under this name"),
    ("metastore.tag-to-partition.preview", ("none", "process-time", "watermark", "batch"), "none", IDLE, "previews of future tags are partitions for Hive, too"),
    ("tag.automatic-creation", ("none", "process-time", "watermark", "batch"), "none", IDLE, "which time triggers automatic tags"),
    ("tag.create-success-file", "boolean", "false", IDLE, "an automatic tag writes a success file"),
    ("tag.creation-period", ("daily", "hourly", "two-hours"), "daily", HONOURED, "how often automatic tags are created"),
    ("tag.creation-delay", "duration", "0 ms", IDLE, "how long an automatic tag waits for late rows"),
    ("tag.period-formatter", ("with_dashes", "without_dashes", "without_dashes_and_spaces"), "with_dashes", HONOURED, "format of the time in names of automatic tags"),
    ("tag.creation-period-duration", "tag period", None, IDLE, "how often tags are created, instead of tag.creation-period"),
    ("tag.num-retained-max", "integer", None, IDLE, "maximum number of automatic tags kept"),
    ("tag.default-time-retained", "tag retention", None, IDLE, "how long tags are kept"),
    ("tag.time-expire-enabled", "boolean", "true", IDLE, "tags expire by their retention time"),
    ("tag.automatic-completion", "boolean", "false", IDLE, "missed automatic tags are created later"),
    ("tag.batch.customized-name", "string", None, IDLE, "the name of the tag that a batch creates"),
    ("scan.plan-auto-tag-for-read.time-retained", "tag retention", None, IDLE, "how long a tag protects data that is being read from expiry"),
    ("snapshot.watermark-idle-timeout", "duration", None, IDLE, "the idle time after which a source no longer delays tags"),
    ("parquet.enable.dictionary", "integer", None, IDLE, "false: Parquet files have no dictionaries"),
    ("sink.watermark-time-zone", "time zone", "UTC", IDLE, "the time zone of automatic tags by watermark"),
    ("sink.process-time-zone", "time zone", None, IDLE, "the time zone of automatic tags by the clock"),
    ("local-merge-buffer-size", "memory size", None, IDLE, "memory for merging rows before the shuffle to buckets"),
    ("cross-partition-upsert.index-ttl", "duration", None, IDLE, "how long the index of keys that can change partition is kept"),
    ("cross-partition-upsert.bootstrap-parallelism", "integer", "10", IDLE, "threads that load the index of keys that can change partition"),
    ("zorder.var-length-contribution", "integer", "8", IDLE, "bytes of a text that count in z-order"),
    ("file-reader-async-threshold", "memory size", "10 mb", IDLE, "files of at least this size are read asynchronously"),
    ("commit.force-create-snapshot", "boolean", "false", IDLE, "an empty commit also creates a snapshot"),
    ("deletion-vectors.enabled", "boolean", "false", HONOURED, "deleted rows are marked instead of merged away"),
    ("deletion-vectors.modifiable", "boolean", "false", IDLE, "deletion-vectors.enabled may be changed later"),
    ("deletion-vector.index-file.target-size", "memory size", "2 mb", IDLE, "target size of a file of deletion vectors"),
    ("deletion-vectors.merge-on-read", "boolean", "false", HONOURED, "rows that are not compacted are also read, and merged"),
    ("deletion-vectors.bitmap64", "boolean", "false", IDLE, "deletion vectors of 64 bits, as Iceberg has them"),
    ("delete.force-produce-changelog", "boolean", "false", IDLE, "a DELETE also writes a changelog"),
    ("sort-compaction.range-strategy", ("SIZE", "QUANTITY"), "SIZE", IDLE, "whether a sort splits its work by bytes or rows"),
    ("sort-compaction.local-sample.magnification", "integer", "1000", IDLE, "number of sampled rows per task of a sort"),
    ("record-level.expire-time", "duration", None, IDLE, "the age at which a row expires"),
    ("record-level.time-field", "string", None, IDLE, "the column with a row's time, for its age"),
    ("fields.default-aggregate-function", "string", None, HONOURED, "aggregate function of columns that have none"),
    ("commit.user-prefix", "string", None, IDLE, "what the names of commit users begin with"),
    ("force-lookup", "boolean", "false", IDLE, "compaction always looks up older rows", FIXED),
    ("lookup-wait", "boolean", "true", IDLE, "a commit waits for the compaction that produces its changelog"),
    ("lookup-compact", ("RADICAL", "GENTLE"), "RADICAL", IDLE, "whether lookup compaction runs at once, or less often"),
    ("lookup-compact.max-interval", "integer", None, IDLE, "number of commits that a deferred lookup compaction may wait"),
    ("file-operation.thread-num", "integer", None, IDLE, "number of threads that delete or move files"),
    ("scan.fallback-branch", "string", None, "rows of that branch would be missing", "the branch that is read for partitions that this branch lacks"),
    ("scan.fallback-branch.read-fail-fast", "boolean", "false", IDLE, "an error in the fallback branch ends the read"),
    ("scan.primary-branch", "string", None, "rows of that branch would be missing", "the branch whose partitions are read first"),
    ("async-file-write", "boolean", "true", IDLE, "files are written while the next rows are made"),
    ("manifest.delete-file-drop-stats", "boolean", "false", IDLE, "entries of deleted files have no statistics"),
    ("data-file.thin-mode", "boolean", "false", IDLE, "key columns are not stored twice"),
    ("partition.idle-time-to-report-statistic", "duration", "0 ms", IDLE, "the idle time after which a partition's statistics go to Hive"),
    ("query-auth.enabled", "boolean", "false", "the filters and masks of the catalog's server are not applied", "the catalog restricts readable rows and columns"),
    ("materialized-table.definition-query", "string", None, IDLE, "internal: the query of a materialized table"),
    ("materialized-table.interval-freshness", "string", None, IDLE, "internal: how old a materialized table may be"),
    ("materialized-table.refresh-mode", ("CONTINUOUS", "FULL", "AUTOMATIC"), None, IDLE, "internal: how it is refreshed"),
    ("materialized-table.refresh-handler-description", "string", None, IDLE, "internal: description of the refresh job"),
    ("materialized-table.refresh-handler-bytes", "string", None, IDLE, "internal: the serialized refresh job"),
    ("alter-column-null-to-not-null.disabled", "boolean", "true", IDLE, "a nullable column can't become NOT NULL"),
    ("disable-explicit-type-casting", "boolean", "false", IDLE, "a column can't change to a narrower type"),
    ("add-column-before-partition", "boolean", "false", IDLE, "a new column stands before the partition columns, not last"),
    ("commit.strict-mode.last-safe-snapshot", "long", None, IDLE, "the snapshot after which compactions and overwrites of others abort a commit"),
    ("clustering.columns", "string", None, IDLE, "the columns by whose order files are clustered"),
    ("clustering.strategy", "string", "auto", IDLE, "plain order, z-order or Hilbert curve"),
    ("clustering.incremental", "boolean", "false", IDLE, "compaction clusters new files incrementally"),
    ("clustering.history-partition.limit", "integer", "5", IDLE, "number of older partitions that are fully sorted at a time"),
    ("clustering.history-partition.idle-to-full-sort", "duration", None, IDLE, "idle time after which a partition is sorted"),
    ("clustering.incremental.optimize-write", "boolean", "false", IDLE, "rows are clustered before they are written, too"),
    ("clustering.incremental.mode", ("global-sort", "local-sort"), "global-sort", IDLE, "sort globally, or within each task"),
    ("local-kv-db.block-size", "memory size", "4 kb", IDLE, "size of a block of the local store of keys"),
    ("row-tracking.enabled", "boolean", "false", HONOURED, "each row has an id that stays", FIXED),
    ("row-tracking.partition-group-on-commit", "boolean", "true", IDLE, "row IDs of a commit are consecutive within a partition"),
    ("data-evolution.enabled", "boolean", "false", HONOURED, "columns of a row may lie in different files", FIXED),
    ("data-evolution.reassign.skip-contiguous-row-count", "long", "1000000000", IDLE, "longer ranges of row IDs are not reassigned"),
    ("data-evolution.row-id-conflict-rewrite.max-size", "memory size", "256 mb", IDLE, "upper bound on bytes of updates that are moved"),
    ("data-evolution.row-sidecar.enabled", "boolean", "false", IDLE, "files get a row-oriented copy for point reads"),
    ("data-evolution.row-sidecar.max-selected-rows", "long", "4096", IDLE, "number of rows up to which the row-oriented copy is read"),
    ("data-evolution.row-sidecar.max-selection-ratio", "double", "0.05", IDLE, "share of rows up to which the row-oriented copy is read"),
    ("data-evolution.merge-into.file-pruning", "boolean", "true", IDLE, "MERGE INTO first finds the files that it touches"),
    ("data-evolution.merge-into.source-persist", "boolean", "false", IDLE, "MERGE INTO keeps its source between its steps"),
    ("data-evolution.compaction.rewrite-row-ids", "boolean", "false", IDLE, "obsolete: true is refused"),
    ("blob-compaction.enabled", "boolean", "false", IDLE, "compaction rewrites files of BLOBs, too"),
    ("snapshot.ignore-empty-commit", "boolean", None, IDLE, "an empty commit creates no snapshot"),
    ("index-file-in-data-file-dir", "boolean", "false", HONOURED, "index files are stored beside data files", FIXED),
    ("global-index.external-path", "string", None, IDLE, "folder of global indexes, if not the table's"),
    ("lookup.merge-buffer-size", "memory size", "8 mb", IDLE, "memory for merging the rows of one key in a lookup"),
    ("lookup.merge-records-threshold", "integer", "1024", IDLE, "number of rows of one key from which they are kept as bytes"),
    ("format-table.implementation", ("paimon", "engine"), "paimon", IDLE, "who reads a format table: Paimon or the engine"),
    ("format-table.partition-path-only-value", "boolean", "false", IDLE, "folder names of a format table contain only the values"),
    ("format-table.file.compression", "string", None, IDLE, "codec of a format table's files"),
    ("format-table.commit-hive-sync-url", "string", None, IDLE, "the Hive metastore that gets a format table's partitions"),
    ("blob-field", "string", None, IDLE, "binary columns that are stored as BLOBs", FIXED),
    ("blob-descriptor-field", "string", None, "its columns hold references to values that are stored elsewhere", "columns kept as references to bytes elsewhere", FIXED),
    ("blob-view-field", "string", None, "its columns hold rows of other tables", "columns whose BLOBs are looked up in another table when read", FIXED),
    ("blob-view.resolve.enabled", "boolean", "true", IDLE, "blob-view-field columns are resolved, not passed on"),
    ("blob-as-descriptor", "boolean", "false", IDLE, "a BLOB is read and written as a reference to its bytes"),
    ("blob-descriptor.source-table", "string", None, IDLE, "the table whose store is used to read references to BLOBs"),
    ("blob-write-null-on-missing-file", "boolean", "false", IDLE, "a BLOB whose file is missing becomes NULL"),
    ("blob-write-null-on-fetch-failure", "boolean", "false", IDLE, "a BLOB that can't be fetched becomes NULL"),
    ("commit.discard-duplicate-files", "boolean", "false", IDLE, "a commit skips files that the table already has"),
    ("postpone.batch-write-fixed-bucket", "boolean", "true", IDLE, "batches write postponed rows into real buckets"),
    ("postpone.merge-on-read", "boolean", "false", "rows that wait for a compaction would be missing", "postponed rows are also read"),
    ("postpone.batch-write-fixed-bucket.max-parallelism", "integer", "2048", IDLE, "upper bound on buckets that such a batch creates"),
    ("postpone.default-bucket-num", "integer", "1", IDLE, "number of buckets of a partition at its first compaction"),
    ("postpone.target-row-num-per-bucket", "long", None, IDLE, "number of rows per bucket, for estimating the number of buckets"),
    ("postpone.target-size-per-bucket", "memory size", "1 gb", IDLE, "bytes per bucket, for estimating the number of buckets"),
    ("global-index.row-count-per-shard", "long", "100000", IDLE, "number of rows in a part of a global index"),
    ("global-index.build.max-shard", "integer", "32", IDLE, "upper bound on parts of a global index build, where possible"),
    ("global-index.build.max-parallelism", "integer", "4096", IDLE, "upper bound on tasks that build a global index"),
    ("global-index.enabled", "boolean", "true", IDLE, "global indexes are used in reading"),
    ("global-index.search-mode", ("fast", "full", "detail"), None, IDLE, "how searches handle rows without a global index"),
    ("scalar-index.search-mode", ("fast", "full", "detail"), "fast", IDLE, "how filters handle rows without an index"),
    ("vector-index.search-mode", ("fast", "full", "detail"), "fast", IDLE, "how a vector search handles rows without an index"),
    ("full-text-index.search-mode", ("fast", "full", "detail"), "fast", IDLE, "how a full-text search handles rows without an index"),
    ("global-index.thread-num", "integer", "32", IDLE, "number of threads that read global indexes"),
    ("overwrite-upgrade", "boolean", "true", IDLE, "an overwrite moves its files to the highest level"),
    ("visibility-callback.enabled", "boolean", "false", IDLE, "a commit waits until compaction or index make its rows visible"),
    ("visibility-callback.timeout", "duration", "30 min", IDLE, "how long a commit waits until its rows are visible"),
    ("visibility-callback.check-interval", "duration", "10 s", IDLE, "how often a commit checks whether its rows are visible"),
    ("vector.file.format", "string", None, IDLE, "format of files of vectors"),
    ("vector-field", "string", None, IDLE, "array columns that are stored as vectors"),
    ("vector.target-file-size", "memory size", None, IDLE, "target size of a file of vectors"),
    ("vector-search.distribute.enabled", "boolean", "false", IDLE, "a vector search runs in many tasks"),
    ("vector-search.lateral-join.batch-size", "integer", "256", IDLE, "number of vectors that a search processes at once"),
    ("pk-vector.index.columns", "string", None, IDLE, "columns of vectors with an index beside the keys"),
    ("pk-btree.index.columns", "string", None, IDLE, "columns with a B-tree index beside the keys"),
    ("pk-bitmap.index.columns", "string", None, IDLE, "columns with a bitmap index beside the keys"),
    ("pk-full-text.index.columns", "string", None, IDLE, "columns of text with a full-text index beside the keys"),
    ("pk-clustering-override", "boolean", "false", IDLE, "files are sorted by clustering.columns instead of the key", FIXED),
    ("variant.shredding.inferenceMode", ("per-file", "adaptive"), "per-file", IDLE, "whether each file infers its shredded columns again"),
    ("global-index.column-update-action", ("THROW_ERROR", "DROP_PARTITION_INDEX", "IGNORE"), "THROW_ERROR", IDLE, "how an update of an indexed column is handled"),
    ("materialized-table.interval-freshness.time-unit", ("SECOND", "MINUTE", "HOUR", "DAY"), None, IDLE, "internal: the unit of that age"),
    ("materialized-table.logical-refresh-mode", ("CONTINUOUS", "FULL", "AUTOMATIC"), None, IDLE, "internal: the requested refresh mode"),
    ("materialized-table.refresh-status", ("INITIALIZING", "ACTIVATED", "SUSPENDED"), None, IDLE, "internal: the refresh status"),
)

# This project's own options, stored with the table like any other.
_OWN: tuple[_Row, ...] = (
    ("auto_batch_load", "boolean", None, IDLE, "small inserts are logged first and loaded together"),
    ("auto_compact", "boolean", None, IDLE, "the coordinator compacts the table by itself"),
    ("group_commit_rows", "positive", None, IDLE, "upper bound on queued rows before a load"),
    ("group_commit_data_bytes", "memory size", None, IDLE, "upper bound on queued bytes before a load"),
    ("group_commit_interval_ms", "positive", None, IDLE, "longest time that small inserts wait for a load"),
    ("group_commit_mode", ("async_mode", "sync_mode", "off_mode"), None, IDLE, "when a small insert is acknowledged"),
    ("orc.timestamp-ltz.writer-zone", "string", None, IDLE, "time zone of the writers of ORC files that don't record it"),
)
# fmt: on

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
    key, kind, default, in_reads, purpose = row[:5]
    is_fixed = len(row) > 5
    if isinstance(kind, tuple):
        return OptionDefinition(key, "choice", default, kind, in_reads, purpose, is_fixed)
    return OptionDefinition(key, kind, default, (), in_reads, purpose, is_fixed)


CORE_OPTIONS = {row[0]: _option(row) for row in _CORE}
OPTIONS = {row[0]: _option(row) for row in _OWN} | CORE_OPTIONS
"""This project's own options and Paimon's, by key."""
