"""What the options of a table mean for the rows of a read: honoured, refused, or without influence.

Paimon's engines and this project read the same tables, so an option that changes rows must not be
passed over. Every option of Paimon's core is in one of three groups here. `HONOURED` ones are
looked at by the planner, the merge or the readers. `REFUSED` ones would give other rows: a table
that sets one is not read. `WITHOUT_INFLUENCE` are those of writers, of compactions, of streams, of
other engines, and those that only change how fast or in what order rows come.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.clauses.names import table_text, text_literal
from paimon_magics.statements.statement import TableName

_HONOURED_KEYS = """
bucket bucket-key bucket-function.type data-file.external-paths data-file.path-directory
index-file-in-data-file-dir partition.default-name partition.legacy-name merge-engine
ignore-delete changelog-producer sequence.field sequence.field.sort-order
sequence.snapshot-ordering aggregation.remove-record-on-delete
partial-update.remove-record-on-delete partial-update.remove-record-on-sequence-group
fields.default-aggregate-function table-read.sequence-number.enabled deletion-vectors.enabled
deletion-vectors.merge-on-read row-tracking.enabled data-evolution.enabled scan.bucket scan.mode
scan.timestamp scan.timestamp-millis scan.watermark scan.file-creation-time-millis
scan.creation-time-millis scan.snapshot-id scan.tag-name scan.version batch-scan-mode
incremental-between incremental-between-scan-mode incremental-between-timestamp
incremental-to-auto-tag incremental-between-tag-to-snapshot tag.creation-period
tag.period-formatter type path
"""
HONOURED = frozenset(_HONOURED_KEYS.split())
"""`scan.mode` is refused with the values that only a stream can have."""

REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "branch": "the rows would be those of that branch",
        "blob-descriptor-field": "its columns hold places of values, which are read elsewhere",
        "blob-view-field": "its columns hold rows of other tables",
        "chain-table.enabled": "rows of the chain's other branches would be missing",
        "postpone.merge-on-read": "rows that wait for a compaction would be missing",
        "query-auth.enabled": "the filters and masks of the catalog's server are not applied",
        "scan.fallback-branch": "rows of that branch would be missing",
        "scan.fallback-delta-branch": "rows of that branch would be missing",
        "scan.fallback-snapshot-branch": "rows of that branch would be missing",
        "scan.primary-branch": "rows of that branch would be missing",
    }
)
"""Each with what would be wrong with the rows."""

_KEYS_WITHOUT_INFLUENCE = """
add-column-before-partition alter-column-null-to-not-null.disabled async-file-write auto-create
blob-as-descriptor blob-compaction.enabled blob-descriptor.source-table blob-field
blob-view.resolve.enabled blob-write-null-on-fetch-failure blob-write-null-on-missing-file
blob.copy-buffer-size blob.split-by-file-size blob.target-file-size bucket-append-ordered
cache-page-size chain-table.chain-partition-keys chain-table.split.key-range-enabled
chain-table.streaming.merge-snapshot changelog-file.compression changelog-file.format
changelog-file.prefix changelog-file.stats-mode changelog-producer.row-deduplicate
changelog-producer.row-deduplicate-ignore-fields changelog.num-retained.max
changelog.num-retained.min changelog.time-retained clustering.columns
clustering.history-partition.idle-to-full-sort clustering.history-partition.limit
clustering.incremental clustering.incremental.mode clustering.incremental.optimize-write
clustering.strategy commit.callback.#.param commit.callbacks commit.discard-duplicate-files
commit.force-compact commit.force-create-snapshot commit.max-retries commit.max-retry-wait
commit.min-retry-wait commit.strict-mode.last-safe-snapshot commit.timeout commit.user-prefix
compaction.delete-ratio-threshold compaction.file-num-limit compaction.force-rewrite-all-files
compaction.force-up-level-0 compaction.incremental-size-threshold
compaction.max-size-amplification-percent compaction.min.file-num compaction.offpeak-ratio
compaction.offpeak.end.hour compaction.offpeak.start.hour compaction.optimization-interval
compaction.size-ratio compaction.skip-expired-partitions compaction.small-file-ratio
compaction.total-size-threshold consumer-id consumer.changelog-only consumer.expiration-time
consumer.ignore-progress consumer.mode continuous.discovery-interval
cross-partition-upsert.bootstrap-parallelism cross-partition-upsert.index-ttl
data-evolution.compaction.rewrite-row-ids data-evolution.merge-into.file-pruning
data-evolution.merge-into.source-persist data-evolution.reassign.skip-contiguous-row-count
data-evolution.row-id-conflict-rewrite.max-size data-evolution.row-sidecar.enabled
data-evolution.row-sidecar.max-selected-rows data-evolution.row-sidecar.max-selection-ratio
data-file.external-paths.specific-fs data-file.external-paths.strategy
data-file.external-paths.weights data-file.prefix data-file.thin-mode
delete.force-produce-changelog deletion-vector.index-file.target-size deletion-vectors.bitmap64
deletion-vectors.modifiable disable-explicit-type-casting dynamic-bucket.assigner-parallelism
dynamic-bucket.initial-buckets dynamic-bucket.max-buckets dynamic-bucket.target-row-num
dynamic-partition-overwrite end-input.check-partition-expire file-index.in-manifest-threshold
file-index.read.enabled file-operation.thread-num file-reader-async-threshold file.block-size
file.compression file.compression.per.level file.compression.zstd-level file.format
file.format.per.level file.suffix.include.compression force-lookup
format-table.commit-hive-sync-url format-table.file.compression format-table.implementation
format-table.partition-path-only-value format-table.scan.list-parallelism
full-compaction.delta-commits full-text-index.search-mode global-index.build.max-parallelism
global-index.build.max-shard global-index.column-update-action global-index.enabled
global-index.external-path global-index.row-count-per-shard global-index.search-mode
global-index.thread-num ignore-update-before key-value.sequence_number.enabled
local-kv-db.block-size local-merge-buffer-size local-sort.max-num-file-handles lookup-compact
lookup-compact.max-interval lookup-wait lookup.blob-as-descriptor lookup.cache-file-retention
lookup.cache-max-disk-size lookup.cache-max-memory-size lookup.cache-rows
lookup.cache-spill-compression lookup.cache.bloom.filter.enabled lookup.cache.bloom.filter.fpp
lookup.cache.high-priority-pool-ratio lookup.continuous.discovery-interval lookup.hash-load-factor
lookup.merge-buffer-size lookup.merge-records-threshold lookup.remote-file.enabled
lookup.remote-file.level-threshold manifest-sort.enabled manifest-sort.max-rewrite-size
manifest-sort.partition-field manifest.compression manifest.delete-file-drop-stats manifest.format
manifest.full-compaction-threshold-size manifest.merge-min-count manifest.target-file-size
materialized-table.definition-query materialized-table.interval-freshness
materialized-table.interval-freshness.time-unit materialized-table.logical-refresh-mode
materialized-table.refresh-handler-bytes materialized-table.refresh-handler-description
materialized-table.refresh-mode materialized-table.refresh-status metadata.stats-dense-store
metadata.stats-keep-first-n-columns metadata.stats-mode metadata.stats-mode.per.level
metastore.partitioned-table metastore.tag-to-partition metastore.tag-to-partition.preview
num-levels num-sorted-run.compaction-trigger num-sorted-run.stop-trigger overwrite-upgrade
page-size parquet.enable.dictionary partition partition.end-input-to-done
partition.expiration-batch-size partition.expiration-check-interval partition.expiration-max-num
partition.expiration-strategy partition.expiration-time partition.idle-time-to-report-statistic
partition.mark-done-action partition.mark-done-action.custom.class
partition.mark-done-action.http.params partition.mark-done-action.http.url partition.sink-strategy
partition.timestamp-format.strict partition.timestamp-formatter partition.timestamp-pattern
pk-bitmap.index.columns pk-btree.index.columns pk-clustering-override pk-full-text.index.columns
pk-vector.index.columns postpone.batch-write-fixed-bucket
postpone.batch-write-fixed-bucket.max-parallelism postpone.default-bucket-num
postpone.target-row-num-per-bucket postpone.target-size-per-bucket primary-key read.batch-size
record-level.expire-time record-level.time-field row-tracking.partition-group-on-commit
rowkind.field scalar-index.search-mode scan.bounded.watermark scan.fallback-branch.read-fail-fast
scan.ignore-corrupt-files scan.ignore-lost-files scan.manifest.parallelism
scan.max-splits-per-task scan.plan-auto-tag-for-read.time-retained scan.plan-sort-partition
sink.process-time-zone sink.watermark-time-zone snapshot.clean-empty-directories
snapshot.expire.execution-mode snapshot.expire.limit snapshot.ignore-empty-commit
snapshot.num-retained.max snapshot.num-retained.min snapshot.time-retained
snapshot.watermark-idle-timeout sort-compaction.local-sample.magnification
sort-compaction.range-strategy sort-engine sort-spill-buffer-size sort-spill-threshold
source.split.open-file-cost source.split.target-size spill-compression
spill-compression.zstd-level stream-scan-mode streaming-read-append-overwrite
streaming-read-overwrite streaming.read.snapshot.delay tag.callback.#.param tag.callbacks
tag.automatic-completion tag.automatic-creation tag.batch.customized-name tag.create-success-file
tag.creation-delay tag.creation-period-duration tag.default-time-retained tag.num-retained-max
tag.time-expire-enabled target-file-row-num target-file-size upsert-key
variant.inferShreddingSchema variant.shredding.adaptive.maxInferBufferRow
variant.shredding.adaptive.retentionRatio variant.shredding.inferenceMode
variant.shredding.maxInferBufferRow variant.shredding.maxSchemaDepth
variant.shredding.maxSchemaWidth variant.shredding.minFieldCardinalityRatio
variant.shreddingSchema vector-field vector-index.search-mode vector-search.distribute.enabled
vector-search.lateral-join.batch-size vector.file.format vector.target-file-size
visibility-callback.check-interval visibility-callback.enabled visibility-callback.timeout
write-buffer-for-append write-buffer-size write-buffer-spill.max-disk-size write-buffer-spillable
write-max-writers-to-spill write-only write.batch-memory write.batch-size
write.sequence-number-init-mode zorder.var-length-contribution
"""
WITHOUT_INFLUENCE = frozenset(_KEYS_WITHOUT_INFLUENCE.split())
"""Files that are lost or corrupt are errors here whatever `scan.ignore-lost-files` and
`scan.ignore-corrupt-files` say."""

_NOT_SET = ("", "main", "false")


def check_readable(name: TableName, schema: TableSchema) -> None:
    """Raise UnsupportedStatementError for a table with an option in REFUSED."""
    for key, consequence in REFUSED.items():
        value = schema.stored_option(key)
        if value is None or value.strip().lower() in _NOT_SET:
            continue
        if key != "branch" or value != name.branch:
            table = table_text(name)
            raise UnsupportedStatementError(
                f"{table} can't be read here: its option '{key}' = '{value}' is not honoured, "
                f"and {consequence}.",
                hint=f"Read it with Flink or Spark, or remove the option: ALTER TABLE {table} "
                f"UNSET TBLPROPERTIES ({text_literal(key)}).",
            )
