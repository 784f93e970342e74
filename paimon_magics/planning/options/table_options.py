"""The options of a Paimon table, an option a row: its key, type, default, what it means for the rows
of a read, and what it is for.

Data only, taken from Paimon 2.0.0's `CoreOptions`; the page "Core Options" of Paimon's documentation
describes the options in full. Paimon's engines and this project read the same tables, so an option
that changes rows must not be passed over. Each one is `HONOURED` by the planner, the merge or the
readers, or is refused with the consequence that it would have, or is `IDLE` in a read: it is for
writers, compactions, streams or other engines, or only changes how fast or in what order rows come.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from paimon_magics.planning.options.traits import CHANGELOG_PRODUCERS, MERGE_ENGINES

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

HONOURED, IDLE = "honoured", "idle"
"""What an option means for a read. Files that are lost or corrupt are errors here whatever
`scan.ignore-lost-files` and `scan.ignore-corrupt-files` say."""

FIXED = True


@dataclass(frozen=True, slots=True)
class OptionDefinition:
    """One option. `default` is text, None without a default; `choices` are the values of a choice.

    `in_reads` is HONOURED, IDLE, or what would be wrong with the rows of a table that sets the
    option: such a table is not read. `purpose` is shown by completion and by `%paimon help`. An
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
    ("bucket-append-ordered", "boolean", "true", IDLE, "rows of a bucket of an append table keep their order"),
    ("bucket-function.type", ("default", "mod", "hive"), "default", HONOURED, "how the bucket is made of the key", FIXED),
    ("data-file.external-paths", "string", None, HONOURED, "folders outside the table's, for its data files"),
    ("data-file.external-paths.strategy", ("none", "specific-fs", "round-robin", "entropy-inject", "weight-robin"), "none", IDLE, "how one of the external paths is chosen"),
    ("data-file.external-paths.specific-fs", "string", None, IDLE, "the store whose external path is taken"),
    ("data-file.external-paths.weights", "string", None, IDLE, "how often each external path is chosen"),
    ("compaction.force-rewrite-all-files", "boolean", "false", IDLE, "a full compaction rewrites every file"),
    ("path", "string", None, HONOURED, "where the table is stored"),
    ("branch", "string", "main", "the rows would be those of that branch", "the branch that is read and written"),
    ("chain-table.enabled", "boolean", "false", "rows of the chain's other branches would be missing", "partitions are deltas upon snapshots in another branch"),
    ("scan.fallback-snapshot-branch", "string", None, "rows of that branch would be missing", "the branch with the snapshots of a chained table"),
    ("scan.fallback-delta-branch", "string", None, "rows of that branch would be missing", "the branch with the deltas of a chained table"),
    ("chain-table.chain-partition-keys", "string", None, IDLE, "the last partition keys, which chains go along"),
    ("chain-table.streaming.merge-snapshot", "boolean", "false", IDLE, "a stream begins with snapshot and deltas merged"),
    ("chain-table.split.key-range-enabled", "boolean", "true", IDLE, "buckets of chained tables are read in ranges of keys"),
    ("file.format", "string", "parquet", IDLE, "format of data files: parquet, orc or avro"),
    ("file.compression.per.level", "map", "", IDLE, "codecs by level, as 0:lz4,1:zstd"),
    ("file.format.per.level", "map", "", IDLE, "formats by level, as 0:avro,3:parquet"),
    ("file.compression", "string", "zstd", IDLE, "codec of data files"),
    ("file.compression.zstd-level", "integer", "1", IDLE, "how hard zstd tries for data files"),
    ("data-file.prefix", "string", "data-", IDLE, "what names of data files begin with"),
    ("data-file.path-directory", "string", None, HONOURED, "folder in the table's for its data files", FIXED),
    ("changelog-file.prefix", "string", "changelog-", IDLE, "what names of changelog files begin with"),
    ("changelog-file.format", "string", None, IDLE, "format of changelog files, where not that of data files"),
    ("changelog-file.compression", "string", None, IDLE, "codec of changelog files"),
    ("changelog-file.stats-mode", "string", None, IDLE, "which statistics are kept of changelog files"),
    ("file.suffix.include.compression", "boolean", "false", IDLE, "names of files tell their codec"),
    ("file.block-size", "memory size", None, IDLE, "size of a row group or stripe"),
    ("file-index.in-manifest-threshold", "memory size", "500 B", IDLE, "file indexes up to this size lie in the manifest"),
    ("file-index.read.enabled", "boolean", "true", IDLE, "file indexes are used to leave files out"),
    ("variant.shreddingSchema", "string", None, IDLE, "which parts of a VARIANT are stored in columns of their own"),
    ("variant.inferShreddingSchema", "boolean", "false", IDLE, "which parts of a VARIANT become columns, by its values"),
    ("variant.shredding.maxSchemaWidth", "integer", "300", IDLE, "shredded columns at most"),
    ("variant.shredding.maxSchemaDepth", "integer", "50", IDLE, "how deep values are looked into to shred them"),
    ("variant.shredding.minFieldCardinalityRatio", "double", "0.1", IDLE, "share of rows with a value that shreds it"),
    ("variant.shredding.maxInferBufferRow", "integer", "4096", IDLE, "rows that a file looks at to shred"),
    ("variant.shredding.adaptive.maxInferBufferRow", "integer", "256", IDLE, "rows that later files look at to shred"),
    ("variant.shredding.adaptive.retentionRatio", "double", "0.05", IDLE, "share of rows that keeps a shredded column"),
    ("manifest.format", "string", "avro", IDLE, "format of manifests"),
    ("manifest.compression", "string", "zstd", IDLE, "codec of manifests"),
    ("manifest.target-file-size", "memory size", "8 mb", IDLE, "how large a manifest may grow"),
    ("manifest.full-compaction-threshold-size", "memory size", "16 mb", IDLE, "bytes of changed manifests that rewrite them all"),
    ("manifest.merge-min-count", "integer", "30", IDLE, "small manifests from which they are merged"),
    ("manifest-sort.enabled", "boolean", "false", IDLE, "commits put entries of manifests in order"),
    ("manifest-sort.partition-field", "string", None, IDLE, "the partition column by which manifests are sorted"),
    ("manifest-sort.max-rewrite-size", "memory size", "256 mb", IDLE, "bytes of manifests that are sorted at a time at most"),
    ("upsert-key", "string", None, IDLE, "INSERT INTO replaces the rows that are equal in these columns"),
    ("partition.default-name", "string", "__DEFAULT_PARTITION__", HONOURED, "the folder of rows whose partition value is NULL"),
    ("partition.legacy-name", "boolean", "true", HONOURED, "folders name dates by days since 1970, as they used to"),
    ("snapshot.num-retained.min", "integer", "10", IDLE, "snapshots that are kept at least"),
    ("snapshot.num-retained.max", "integer", "2147483647", IDLE, "snapshots that are kept at most"),
    ("snapshot.time-retained", "duration", "1 h", IDLE, "how long snapshots are kept"),
    ("changelog.num-retained.min", "integer", None, IDLE, "changelogs that are kept at least"),
    ("changelog.num-retained.max", "integer", None, IDLE, "changelogs that are kept at most"),
    ("changelog.time-retained", "duration", None, IDLE, "how long changes are kept"),
    ("snapshot.expire.execution-mode", ("sync", "async"), "sync", IDLE, "whether a commit waits for expiring"),
    ("snapshot.expire.limit", "integer", "50", IDLE, "snapshots that expire at a time at most"),
    ("snapshot.clean-empty-directories", "boolean", "false", IDLE, "expiring removes folders that it empties"),
    ("continuous.discovery-interval", "duration", "10 s", IDLE, "how often streams look for new snapshots"),
    ("scan.max-splits-per-task", "integer", "10", IDLE, "splits that wait for a task before planning pauses"),
    ("scan.bucket", "integer", None, HONOURED, "the one bucket that is read"),
    ("merge-engine", tuple(MERGE_ENGINES), "deduplicate", HONOURED, "how rows with the same key are merged", FIXED),
    ("ignore-delete", "boolean", "false", HONOURED, "deletes are ignored"),
    ("ignore-update-before", "boolean", "false", IDLE, "rows with -U are ignored"),
    ("sort-engine", ("min-heap", "loser-tree"), "loser-tree", IDLE, "how sorted runs are merged"),
    ("sort-spill-threshold", "integer", None, IDLE, "sorted runs from which a merge goes to disk"),
    ("sort-spill-buffer-size", "memory size", "64 mb", IDLE, "memory of a sort before it goes to disk"),
    ("spill-compression", "string", "zstd", IDLE, "codec of what is put on disk for a while"),
    ("spill-compression.zstd-level", "integer", "1", IDLE, "how hard zstd tries for what is put on disk for a while"),
    ("write-only", "boolean", "false", IDLE, "writers do not compact; another job does"),
    ("source.split.target-size", "memory size", "128 mb", IDLE, "bytes that one task reads"),
    ("source.split.open-file-cost", "memory size", "4 mb", IDLE, "what opening a file counts for, when work is divided"),
    ("write-buffer-size", "memory size", "256 mb", IDLE, "memory of a writer before it sorts and writes"),
    ("write-buffer-spill.max-disk-size", "memory size", "9223372036854775807", IDLE, "local disk that buffers take at most"),
    ("write-buffer-spillable", "boolean", "true", IDLE, "a full buffer may go to local disk"),
    ("write-buffer-for-append", "boolean", "false", IDLE, "append tables are written through a buffer"),
    ("write-max-writers-to-spill", "integer", "10", IDLE, "partitions written at once from which buffers go to disk"),
    ("local-sort.max-num-file-handles", "integer", "128", IDLE, "files that a sort on disk has open at most"),
    ("page-size", "memory size", "64 kb", IDLE, "size of a page of memory"),
    ("cache-page-size", "memory size", "64 kb", IDLE, "size of a page in caches"),
    ("target-file-size", "memory size", None, IDLE, "how large a data file may grow"),
    ("target-file-row-num", "long", "9223372036854775807", IDLE, "rows from which a new file is begun"),
    ("compaction.small-file-ratio", "double", "0.7", IDLE, "share of the target size below which a file is small"),
    ("blob.target-file-size", "memory size", None, IDLE, "how large a file of BLOBs becomes"),
    ("blob.split-by-file-size", "boolean", None, IDLE, "the size of BLOBs counts when work is divided"),
    ("blob.copy-buffer-size", "memory size", "4 kb", IDLE, "buffer for copying BLOBs into files"),
    ("num-sorted-run.compaction-trigger", "integer", "5", IDLE, "sorted runs of a bucket that start a compaction"),
    ("num-sorted-run.stop-trigger", "integer", None, IDLE, "sorted runs of a bucket at which its writers stop"),
    ("num-levels", "integer", None, IDLE, "levels that sorted runs lie in"),
    ("commit.force-compact", "boolean", "false", IDLE, "a commit waits for a compaction of what it brings"),
    ("write.sequence-number-init-mode", ("scan", "snapshot"), "scan", IDLE, "whether sequence numbers go on from files or snapshot"),
    ("commit.timeout", "duration", None, IDLE, "how long a commit is tried again"),
    ("commit.max-retries", "integer", "10", IDLE, "how often a commit that lost a race is tried again"),
    ("commit.min-retry-wait", "duration", "10 ms", IDLE, "the shortest pause before a commit is tried again"),
    ("commit.max-retry-wait", "duration", "10 s", IDLE, "the longest pause before a commit is tried again"),
    ("compaction.max-size-amplification-percent", "integer", "200", IDLE, "percent above the last level that compact all"),
    ("compaction.force-up-level-0", "boolean", "false", IDLE, "compaction always takes all files of level 0"),
    ("compaction.size-ratio", "integer", "1", IDLE, "how much larger, in percent, the next run may be to be merged along"),
    ("compaction.offpeak.start.hour", "integer", "-1", IDLE, "the hour when the quiet hours begin"),
    ("compaction.offpeak.end.hour", "integer", "-1", IDLE, "the hour when the quiet hours end"),
    ("compaction.offpeak-ratio", "integer", "0", IDLE, "compaction.size-ratio for the quiet hours"),
    ("compaction.optimization-interval", "duration", None, IDLE, "how often all is compacted, so that $ro is not old"),
    ("compaction.total-size-threshold", "memory size", None, IDLE, "buckets below this size are always compacted whole"),
    ("compaction.incremental-size-threshold", "memory size", None, IDLE, "bytes above the last level that compact all"),
    ("compaction.min.file-num", "integer", "5", IDLE, "small files from which an append table is compacted"),
    ("compaction.file-num-limit", "integer", "100000", IDLE, "files that one compaction takes at most"),
    ("compaction.delete-ratio-threshold", "double", "0.2", IDLE, "share of deleted rows from which a file is rewritten"),
    ("changelog-producer", tuple(CHANGELOG_PRODUCERS), "none", HONOURED, "where the changes of a keyed table come from"),
    ("changelog-producer.row-deduplicate", "boolean", "false", IDLE, "an update that changes nothing makes no -U and +U"),
    ("changelog-producer.row-deduplicate-ignore-fields", "string", None, IDLE, "columns whose changes are not an update"),
    ("table-read.sequence-number.enabled", "boolean", "false", HONOURED, "$audit_log and $binlog have _SEQUENCE_NUMBER, too"),
    ("key-value.sequence_number.enabled", "boolean", "false", IDLE, "internal: rows are read with _SEQUENCE_NUMBER"),
    ("sequence.field", "string", None, HONOURED, "the columns whose greatest value wins among rows of a key"),
    ("sequence.field.sort-order", ("ascending", "descending"), "ascending", HONOURED, "whether the largest or the least sequence wins"),
    ("sequence.snapshot-ordering", "boolean", "false", HONOURED, "among rows of one key the later snapshot's wins", FIXED),
    ("aggregation.remove-record-on-delete", "boolean", "false", HONOURED, "a -D removes the whole row", FIXED),
    ("partial-update.remove-record-on-delete", "boolean", "false", HONOURED, "a -D removes the whole row", FIXED),
    ("partial-update.remove-record-on-sequence-group", "string", None, HONOURED, "a -D of these groups removes the row", FIXED),
    ("rowkind.field", "string", None, IDLE, "the column that says +I, -U, +U or -D", FIXED),
    ("scan.mode", ("default", "latest-full", "full", "latest", "compacted-full", "from-timestamp", "from-creation-timestamp", "from-file-creation-time", "from-snapshot", "from-snapshot-full", "incremental"), "default", HONOURED, "where a read begins"),
    ("scan.timestamp", "string", None, HONOURED, "the time that is read"),
    ("scan.timestamp-millis", "long", None, HONOURED, "the time that is read, in ms since 1970"),
    ("scan.watermark", "long", None, HONOURED, "the first snapshot with this watermark"),
    ("scan.file-creation-time-millis", "long", None, HONOURED, "only files made after this moment (ms since 1970)"),
    ("scan.creation-time-millis", "long", None, HONOURED, "a read begins with files made at this moment (ms since 1970)"),
    ("scan.snapshot-id", "long", None, HONOURED, "the snapshot that is read"),
    ("scan.tag-name", "string", None, HONOURED, "the tag that is read"),
    ("scan.version", "string", None, HONOURED, "the snapshot or tag that is read"),
    ("scan.bounded.watermark", "long", None, IDLE, "a stream ends at this watermark"),
    ("scan.manifest.parallelism", "integer", None, IDLE, "manifests that are read at once"),
    ("format-table.scan.list-parallelism", "integer", "64", IDLE, "folders of a format table that are listed at once"),
    ("streaming.read.snapshot.delay", "duration", None, IDLE, "how late streams see a snapshot"),
    ("scan.ignore-corrupt-files", "boolean", "false", IDLE, "files that can't be read are skipped"),
    ("scan.ignore-lost-files", "boolean", "false", IDLE, "files that are missing are skipped"),
    ("auto-create", "boolean", "false", IDLE, "the table's folder is made when it is first used"),
    ("streaming-read-overwrite", "boolean", "false", IDLE, "streams see the changes of overwrites"),
    ("streaming-read-append-overwrite", "boolean", "false", IDLE, "streams see the rows of an append table's overwrites"),
    ("dynamic-partition-overwrite", "boolean", "true", IDLE, "an overwrite replaces only partitions that get rows"),
    ("partition.expiration-strategy", "string", "values-time", IDLE, "whether a partition's age is by its values or its last write"),
    ("partition.expiration-time", "duration", None, IDLE, "the age at which a partition is dropped"),
    ("partition.expiration-check-interval", "duration", "1 h", IDLE, "how often old partitions are looked for"),
    ("partition.expiration-max-num", "integer", "100", IDLE, "partitions that are dropped at a time at most"),
    ("partition.expiration-batch-size", "integer", None, IDLE, "partitions that are dropped in one commit"),
    ("compaction.skip-expired-partitions", "boolean", "false", IDLE, "partitions that are due to be dropped are not compacted"),
    ("partition.timestamp-formatter", "string", None, IDLE, "how the time in a partition's name is written"),
    ("partition.timestamp-pattern", "string", None, IDLE, "which partition columns make up its time"),
    ("partition.timestamp-format.strict", "boolean", "false", IDLE, "a write of a partition whose time can't be read fails"),
    ("partition.end-input-to-done", "boolean", "false", IDLE, "the end of a batch marks its partitions as done"),
    ("scan.plan-sort-partition", "boolean", "false", IDLE, "partitions are read in order"),
    ("primary-key", "string", None, IDLE, "the columns that identify a row", FIXED),
    ("partition", "string", None, IDLE, "the partition columns, where PARTITIONED BY does not name them", FIXED),
    ("lookup.hash-load-factor", "double", "0.75", IDLE, "how full hash tables of lookups become"),
    ("lookup.cache-rows", "long", "10000", IDLE, "rows that a lookup keeps in memory"),
    ("lookup.continuous.discovery-interval", "duration", None, IDLE, "how often lookup joins look for new snapshots"),
    ("lookup.cache-file-retention", "duration", "1 h", IDLE, "how long a local lookup file is kept"),
    ("lookup.cache-max-disk-size", "memory size", "9223372036854775807", IDLE, "local disk for lookups at most"),
    ("lookup.cache-spill-compression", "string", "zstd", IDLE, "codec of local lookup files"),
    ("lookup.cache-max-memory-size", "memory size", "256 mb", IDLE, "memory for lookups at most"),
    ("lookup.blob-as-descriptor", "boolean", "false", IDLE, "lookup joins keep references to BLOBs alone"),
    ("lookup.cache.high-priority-pool-ratio", "double", "0.25", IDLE, "share of the lookups' memory for indexes and filters"),
    ("lookup.cache.bloom.filter.enabled", "boolean", "true", IDLE, "lookup files have a Bloom filter"),
    ("lookup.cache.bloom.filter.fpp", "double", "0.05", IDLE, "share of wrong hits of the lookups' Bloom filter"),
    ("lookup.remote-file.enabled", "boolean", "false", IDLE, "lookup files are kept in the table's store, too"),
    ("lookup.remote-file.level-threshold", "integer", "-2147483648", IDLE, "the level from which lookup files are kept in the store"),
    ("read.batch-size", "integer", "1024", IDLE, "rows that are read at once"),
    ("write.batch-size", "integer", "1024", IDLE, "rows that are handed to a file at once"),
    ("write.batch-memory", "memory size", "128 mb", IDLE, "bytes that are handed to a file at once"),
    ("consumer-id", "string", None, IDLE, "the name under which a reader's place is kept"),
    ("full-compaction.delta-commits", "integer", None, IDLE, "commits between full compactions"),
    ("stream-scan-mode", ("none", "compact-bucket-table", "file-monitor"), "none", IDLE, "internal: how a stream is read"),
    ("batch-scan-mode", ("none", "compact"), "none", HONOURED, "whether batch reads see files that are not compacted"),
    ("consumer.expiration-time", "duration", None, IDLE, "when a reader's place is forgotten"),
    ("consumer.mode", ("exactly-once", "at-least-once"), "exactly-once", IDLE, "whether a reader's place is exact, or moves on by itself"),
    ("consumer.ignore-progress", "boolean", "false", IDLE, "a new job does not begin where the reader was"),
    ("consumer.changelog-only", "boolean", "false", IDLE, "a reader's place keeps changelogs, and no snapshots"),
    ("dynamic-bucket.target-row-num", "long", "2000000", IDLE, "rows after which a dynamic bucket is full"),
    ("dynamic-bucket.initial-buckets", "integer", None, IDLE, "dynamic buckets that a partition begins with", FIXED),
    ("dynamic-bucket.max-buckets", "integer", "-1", IDLE, "dynamic buckets of a partition at most; -1 for any number"),
    ("dynamic-bucket.assigner-parallelism", "integer", None, IDLE, "tasks that choose dynamic buckets"),
    ("incremental-between", "string", None, HONOURED, "the changes after the first up to the second"),
    ("incremental-between-scan-mode", ("auto", "delta", "changelog", "diff"), "auto", HONOURED, "which changes: of files, of the log, or of states"),
    ("incremental-between-timestamp", "string", None, HONOURED, "the changes between two times"),
    ("incremental-to-auto-tag", "string", None, HONOURED, "the changes up to this automatic tag from the one before it"),
    ("incremental-between-tag-to-snapshot", "boolean", "false", HONOURED, "the changes between the snapshots of two tags"),
    ("end-input.check-partition-expire", "boolean", "false", IDLE, "the end of a batch drops old partitions"),
    ("metadata.stats-mode", "string", "truncate(16)", IDLE, "which statistics are kept of each file"),
    ("metadata.stats-mode.per.level", "map", "", IDLE, "statistics by level, as 0:none"),
    ("metadata.stats-dense-store", "boolean", "true", IDLE, "statistics take no room where there are none"),
    ("metadata.stats-keep-first-n-columns", "integer", "-1", IDLE, "only so many columns have statistics; -1 for all"),
    ("commit.callbacks", "string", "", IDLE, "Java classes that are called after a commit"),
    ("commit.callback.#.param", "string", None, IDLE, "what the callback class named # is given"),
    ("tag.callbacks", "string", "", IDLE, "Java classes that are called after a tag"),
    ("tag.callback.#.param", "string", None, IDLE, "what the callback class named # is given"),
    ("partition.mark-done-action", "string", "success-file", IDLE, "how others are told that a partition is done"),
    ("partition.mark-done-action.custom.class", "string", None, IDLE, "the Java class that tells of done partitions"),
    ("partition.mark-done-action.http.url", "string", None, IDLE, "the address that is told of a partition that is done"),
    ("partition.mark-done-action.http.params", "string", None, IDLE, "what is sent along when a partition is done"),
    ("partition.sink-strategy", ("NONE", "HASH", "PARTITION_DYNAMIC"), "NONE", IDLE, "how rows are sent to tasks by partition before they are written"),
    ("metastore.partitioned-table", "boolean", "false", IDLE, "the metastore knows the partitions, too"),
    ("metastore.tag-to-partition", "string", None, IDLE, "tags are partitions for Hive, under this name"),
    ("metastore.tag-to-partition.preview", ("none", "process-time", "watermark", "batch"), "none", IDLE, "tags to come are partitions for Hive, too"),
    ("tag.automatic-creation", ("none", "process-time", "watermark", "batch"), "none", IDLE, "which time automatic tags are created by"),
    ("tag.create-success-file", "boolean", "false", IDLE, "an automatic tag leaves a file that says it is there"),
    ("tag.creation-period", ("daily", "hourly", "two-hours"), "daily", HONOURED, "how often automatic tags are created"),
    ("tag.creation-delay", "duration", "0 ms", IDLE, "how long an automatic tag waits for late rows"),
    ("tag.period-formatter", ("with_dashes", "without_dashes", "without_dashes_and_spaces"), "with_dashes", HONOURED, "how automatic tags write their time"),
    ("tag.creation-period-duration", "duration", None, IDLE, "how often tags are made, in place of tag.creation-period"),
    ("tag.num-retained-max", "integer", None, IDLE, "automatic tags that are kept at most"),
    ("tag.default-time-retained", "tag retention", None, IDLE, "how long tags are kept"),
    ("tag.time-expire-enabled", "boolean", "true", IDLE, "tags expire by their time"),
    ("tag.automatic-completion", "boolean", "false", IDLE, "automatic tags that were missed are made later"),
    ("tag.batch.customized-name", "string", None, IDLE, "the name of the tag that a batch makes"),
    ("scan.plan-auto-tag-for-read.time-retained", "tag retention", None, IDLE, "how long a tag keeps what is read from expiring"),
    ("snapshot.watermark-idle-timeout", "duration", None, IDLE, "after how long an idle source no longer delays tags"),
    ("parquet.enable.dictionary", "integer", None, IDLE, "false: Parquet files have no dictionaries"),
    ("sink.watermark-time-zone", "string", "UTC", IDLE, "the time zone of automatic tags by watermark"),
    ("sink.process-time-zone", "string", None, IDLE, "the time zone of automatic tags by the clock"),
    ("local-merge-buffer-size", "memory size", None, IDLE, "memory for merging rows before they are sent to their buckets"),
    ("cross-partition-upsert.index-ttl", "duration", None, IDLE, "how long keys that can move are remembered"),
    ("cross-partition-upsert.bootstrap-parallelism", "integer", "10", IDLE, "threads that load keys which can move"),
    ("zorder.var-length-contribution", "integer", "8", IDLE, "bytes of a text that count in a z-order"),
    ("file-reader-async-threshold", "memory size", "10 mb", IDLE, "files from this size on are read ahead"),
    ("commit.force-create-snapshot", "boolean", "false", IDLE, "a commit of nothing is a snapshot, too"),
    ("deletion-vectors.enabled", "boolean", "false", HONOURED, "deleted rows are marked instead of merged away"),
    ("deletion-vectors.modifiable", "boolean", "false", IDLE, "deletion-vectors.enabled may be changed later"),
    ("deletion-vector.index-file.target-size", "memory size", "2 mb", IDLE, "how large a file of deletion vectors becomes"),
    ("deletion-vectors.merge-on-read", "boolean", "false", HONOURED, "rows that are not compacted are read, too, and merged"),
    ("deletion-vectors.bitmap64", "boolean", "false", IDLE, "deletion vectors of 64 bits, as Iceberg has them"),
    ("delete.force-produce-changelog", "boolean", "false", IDLE, "a DELETE writes changes, too"),
    ("sort-compaction.range-strategy", ("SIZE", "QUANTITY"), "SIZE", IDLE, "whether a sort divides its work by bytes or rows"),
    ("sort-compaction.local-sample.magnification", "integer", "1000", IDLE, "rows by which a sort divides its work, per task"),
    ("record-level.expire-time", "duration", None, IDLE, "the age at which a row is left out"),
    ("record-level.time-field", "string", None, IDLE, "the column with a row's time, for its age"),
    ("fields.default-aggregate-function", "string", None, HONOURED, "how columns without a function of their own are aggregated"),
    ("commit.user-prefix", "string", None, IDLE, "what the names of commit users begin with"),
    ("force-lookup", "boolean", "false", IDLE, "compaction always looks up older rows", FIXED),
    ("lookup-wait", "boolean", "true", IDLE, "a commit waits for the compaction that finds its changes"),
    ("lookup-compact", ("RADICAL", "GENTLE"), "RADICAL", IDLE, "compaction for lookups at once, or less often"),
    ("lookup-compact.max-interval", "integer", None, IDLE, "how many commits a late lookup compaction may wait"),
    ("file-operation.thread-num", "integer", None, IDLE, "files that are deleted or moved at once"),
    ("scan.fallback-branch", "string", None, "rows of that branch would be missing", "the branch that is read where this one has no partition"),
    ("scan.fallback-branch.read-fail-fast", "boolean", "false", IDLE, "an error in the fallback branch ends the read"),
    ("scan.primary-branch", "string", None, "rows of that branch would be missing", "the branch whose partitions are read first"),
    ("async-file-write", "boolean", "true", IDLE, "files are written while the next rows are made"),
    ("manifest.delete-file-drop-stats", "boolean", "false", IDLE, "entries of deleted files have no statistics"),
    ("data-file.thin-mode", "boolean", "false", IDLE, "key columns are not stored twice"),
    ("partition.idle-time-to-report-statistic", "duration", "0 ms", IDLE, "after how long without rows Hive is told its sizes"),
    ("query-auth.enabled", "boolean", "false", "the filters and masks of the catalog's server are not applied", "the catalog says which rows and columns one may read"),
    ("materialized-table.definition-query", "string", None, IDLE, "internal: the query of a materialized table"),
    ("materialized-table.interval-freshness", "string", None, IDLE, "internal: how old a materialized table may be"),
    ("materialized-table.refresh-mode", ("CONTINUOUS", "FULL", "AUTOMATIC"), None, IDLE, "internal: how it is refreshed"),
    ("materialized-table.refresh-handler-description", "string", None, IDLE, "internal: what refreshes it, in words"),
    ("materialized-table.refresh-handler-bytes", "string", None, IDLE, "internal: what refreshes it, serialised"),
    ("alter-column-null-to-not-null.disabled", "boolean", "true", IDLE, "a column that takes NULL can't be made NOT NULL"),
    ("disable-explicit-type-casting", "boolean", "false", IDLE, "a column can't be changed to a smaller type"),
    ("add-column-before-partition", "boolean", "false", IDLE, "a new column stands before the partition columns, not last"),
    ("commit.strict-mode.last-safe-snapshot", "long", None, IDLE, "commits end where others compacted or overwrote"),
    ("clustering.columns", "string", None, IDLE, "the columns by whose order files are clustered"),
    ("clustering.strategy", "string", "auto", IDLE, "plain order, z-order or Hilbert curve"),
    ("clustering.incremental", "boolean", "false", IDLE, "a compaction clusters what is new"),
    ("clustering.history-partition.limit", "integer", "5", IDLE, "how many older partitions are sorted whole at a time"),
    ("clustering.history-partition.idle-to-full-sort", "duration", None, IDLE, "idle time after which a partition is sorted"),
    ("clustering.incremental.optimize-write", "boolean", "false", IDLE, "rows are clustered before they are written, too"),
    ("clustering.incremental.mode", ("global-sort", "local-sort"), "global-sort", IDLE, "sorted over all tasks, or within each"),
    ("local-kv-db.block-size", "memory size", "4 kb", IDLE, "size of a block of the local store of keys"),
    ("row-tracking.enabled", "boolean", "false", HONOURED, "each row has an id that stays", FIXED),
    ("row-tracking.partition-group-on-commit", "boolean", "true", IDLE, "row ids of a commit follow each other by partition"),
    ("data-evolution.enabled", "boolean", "false", HONOURED, "columns of a row may lie in different files", FIXED),
    ("data-evolution.reassign.skip-contiguous-row-count", "long", "1000000000", IDLE, "longer runs of row ids stay as they are"),
    ("data-evolution.row-id-conflict-rewrite.max-size", "memory size", "256 mb", IDLE, "bytes up to which updates are moved"),
    ("data-evolution.row-sidecar.enabled", "boolean", "false", IDLE, "files get a copy by rows, for reading a few of them"),
    ("data-evolution.row-sidecar.max-selected-rows", "long", "4096", IDLE, "rows up to which the copy by rows is read"),
    ("data-evolution.row-sidecar.max-selection-ratio", "double", "0.05", IDLE, "share of rows up to which the copy is read"),
    ("data-evolution.merge-into.file-pruning", "boolean", "true", IDLE, "MERGE INTO first finds the files that it touches"),
    ("data-evolution.merge-into.source-persist", "boolean", "false", IDLE, "MERGE INTO keeps its source between its steps"),
    ("data-evolution.compaction.rewrite-row-ids", "boolean", "false", IDLE, "no longer of use: true is refused"),
    ("blob-compaction.enabled", "boolean", "false", IDLE, "compaction rewrites files of BLOBs, too"),
    ("snapshot.ignore-empty-commit", "boolean", None, IDLE, "a commit of nothing makes no snapshot"),
    ("index-file-in-data-file-dir", "boolean", "false", HONOURED, "index files lie beside data files", FIXED),
    ("global-index.external-path", "string", None, IDLE, "folder of global indexes, where not the table's"),
    ("lookup.merge-buffer-size", "memory size", "8 mb", IDLE, "memory for merging the rows of one key in a lookup"),
    ("lookup.merge-records-threshold", "integer", "1024", IDLE, "rows of one key from which they are kept as bytes"),
    ("format-table.implementation", ("paimon", "engine"), "paimon", IDLE, "who reads a format table: Paimon or the engine"),
    ("format-table.partition-path-only-value", "boolean", "false", IDLE, "folders of a format table are named by values alone"),
    ("format-table.file.compression", "string", None, IDLE, "codec of a format table's files"),
    ("format-table.commit-hive-sync-url", "string", None, IDLE, "the Hive that is told of a format table's partitions"),
    ("blob-field", "string", None, IDLE, "columns of bytes that are kept as BLOBs", FIXED),
    ("blob-descriptor-field", "string", None, "its columns hold places of values, which are read elsewhere", "columns kept as references to bytes elsewhere", FIXED),
    ("blob-view-field", "string", None, "its columns hold rows of other tables", "columns whose BLOBs are looked up in another table when read", FIXED),
    ("blob-view.resolve.enabled", "boolean", "true", IDLE, "blob-view-field columns are looked up, not handed on"),
    ("blob-as-descriptor", "boolean", "false", IDLE, "a BLOB is read and written as a reference to its bytes"),
    ("blob-descriptor.source-table", "string", None, IDLE, "the table whose store is used to read references to BLOBs"),
    ("blob-write-null-on-missing-file", "boolean", "false", IDLE, "a BLOB whose file is missing becomes NULL"),
    ("blob-write-null-on-fetch-failure", "boolean", "false", IDLE, "a BLOB that can't be fetched becomes NULL"),
    ("commit.discard-duplicate-files", "boolean", "false", IDLE, "a commit leaves out files that the table has already"),
    ("postpone.batch-write-fixed-bucket", "boolean", "true", IDLE, "batches write postponed rows into real buckets"),
    ("postpone.merge-on-read", "boolean", "false", "rows that wait for a compaction would be missing", "postponed rows are read, too"),
    ("postpone.batch-write-fixed-bucket.max-parallelism", "integer", "2048", IDLE, "buckets that such a batch makes at most"),
    ("postpone.default-bucket-num", "integer", "1", IDLE, "buckets of a partition that gets its first ones"),
    ("postpone.target-row-num-per-bucket", "long", None, IDLE, "rows by which the number of buckets is estimated"),
    ("postpone.target-size-per-bucket", "memory size", "1 gb", IDLE, "bytes by which the number of buckets is estimated"),
    ("global-index.row-count-per-shard", "long", "100000", IDLE, "rows in a part of a global index"),
    ("global-index.build.max-shard", "integer", "32", IDLE, "parts that a global index is built in at most, if it fits"),
    ("global-index.build.max-parallelism", "integer", "4096", IDLE, "tasks at most that build a global index"),
    ("global-index.enabled", "boolean", "true", IDLE, "global indexes are used in reading"),
    ("global-index.search-mode", ("fast", "full", "detail"), None, IDLE, "what searches do with rows that no global index has"),
    ("scalar-index.search-mode", ("fast", "full", "detail"), "fast", IDLE, "what filters do with rows that no index has"),
    ("vector-index.search-mode", ("fast", "full", "detail"), "fast", IDLE, "what a vector search does with rows that no index has"),
    ("full-text-index.search-mode", ("fast", "full", "detail"), "fast", IDLE, "what a full-text search does with rows that no index has"),
    ("global-index.thread-num", "integer", "32", IDLE, "threads that read global indexes"),
    ("overwrite-upgrade", "boolean", "true", IDLE, "an overwrite moves its files to the highest level"),
    ("visibility-callback.enabled", "boolean", "false", IDLE, "a commit waits until compaction or index show its rows"),
    ("visibility-callback.timeout", "duration", "30 min", IDLE, "how long a commit waits until its rows are shown"),
    ("visibility-callback.check-interval", "duration", "10 s", IDLE, "how often a commit looks whether its rows are shown"),
    ("vector.file.format", "string", None, IDLE, "format of files of vectors"),
    ("vector-field", "string", None, IDLE, "columns of arrays that are kept as vectors"),
    ("vector.target-file-size", "memory size", None, IDLE, "how large a file of vectors becomes"),
    ("vector-search.distribute.enabled", "boolean", "false", IDLE, "a vector search runs in many tasks"),
    ("vector-search.lateral-join.batch-size", "integer", "256", IDLE, "vectors that a search takes at once"),
    ("pk-vector.index.columns", "string", None, IDLE, "columns of vectors with an index beside the keys"),
    ("pk-btree.index.columns", "string", None, IDLE, "columns with a B-tree index beside the keys"),
    ("pk-bitmap.index.columns", "string", None, IDLE, "columns with a bitmap index beside the keys"),
    ("pk-full-text.index.columns", "string", None, IDLE, "columns of text with a full-text index beside the keys"),
    ("pk-clustering-override", "boolean", "false", IDLE, "files are sorted by clustering.columns instead of the key", FIXED),
    ("variant.shredding.inferenceMode", ("per-file", "adaptive"), "per-file", IDLE, "whether each file finds its shredded columns anew"),
    ("global-index.column-update-action", ("THROW_ERROR", "DROP_PARTITION_INDEX", "IGNORE"), "THROW_ERROR", IDLE, "what an update of an indexed column does"),
    ("materialized-table.interval-freshness.time-unit", ("SECOND", "MINUTE", "HOUR", "DAY"), None, IDLE, "internal: the unit of that age"),
    ("materialized-table.logical-refresh-mode", ("CONTINUOUS", "FULL", "AUTOMATIC"), None, IDLE, "internal: how it was asked to be refreshed"),
    ("materialized-table.refresh-status", ("INITIALIZING", "ACTIVATED", "SUSPENDED"), None, IDLE, "internal: whether it is being refreshed"),
)

# This project's own options, stored with the table like any other.
_OWN: tuple[_Row, ...] = (
    ("auto_batch_load", "boolean", None, IDLE, "small inserts are logged first and loaded together"),
    ("auto_compact", "boolean", None, IDLE, "the coordinator compacts the table by itself"),
    ("group_commit_rows", "positive", None, IDLE, "rows that wait at most before they are loaded"),
    ("group_commit_data_bytes", "memory size", None, IDLE, "bytes that wait at most before they are loaded"),
    ("group_commit_interval_ms", "positive", None, IDLE, "how long small inserts wait at most"),
    ("group_commit_mode", ("async_mode", "sync_mode", "off_mode"), None, IDLE, "when a small insert is acknowledged"),
    ("orc.timestamp-ltz.writer-zone", "string", None, IDLE, "the zone of the machines that wrote ORC files without it"),
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
