"""The driver's part of a write: the specification for the writers of a transaction, and the
completion of their messages before the commit.

It is the same for all writers: tasks of a Spark job, the kernel, or the process that loads small
inserts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial

from paimon_magics.columnar.folding import folds_rows
from paimon_magics.errors import CommitConflictError
from paimon_magics.planning.commits.requests import Transaction
from paimon_magics.planning.reads.scans import MENDED_PREFIXES, floating_columns, is_floating
from paimon_magics.planning.row_changes.merged_updates import ALL_SEEN, UnseenCounts
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.planning.writes.file_rules import changelog_file_rules, data_file_rules
from paimon_magics.planning.writes.losses import ColumnLoss
from paimon_magics.planning.writes.row_origins import OriginCounts
from paimon_magics.settings import Settings
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.schema.history import identity_of, is_other_table
from paimon_magics.tables.schema.merge_rule import merge_rule
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.snapshots.latest import read_snapshot
from paimon_magics.tables.table import Table, publishes_itself
from paimon_magics.tables.writing.bucket_counts import (
    BucketRule,
    bucket_counts,
    check_bucket_counts,
    put_bucket_counts,
)
from paimon_magics.tables.writing.commit_messages import (
    BucketKey,
    read_messages,
    write_message,
    written_buckets,
)
from paimon_magics.tables.writing.dynamic_buckets import (
    DynamicBuckets,
    dynamic_buckets,
    put_index_files,
)
from paimon_magics.tables.writing.file_conversion import file_conversion
from paimon_magics.tables.writing.file_indexes import file_index_rules
from paimon_magics.tables.writing.float_bounds import FloatColumns, float_columns, mend_messages
from paimon_magics.tables.writing.native_writer import (
    GIVEN_BUCKET_OPTIONS,
    buffer_options,
    native_table,
)
from paimon_magics.tables.writing.own_writers import (
    POSTPONED_BUCKET,
    FlushTable,
    append_table,
    appends_itself,
    flush_table,
    postponed_table,
)
from paimon_magics.tables.writing.python_writer import python_table
from paimon_magics.tables.writing.sequence_numbers import next_numbers, number_rows
from paimon_magics.tables.writing.write_spec import WriteSpec, Written

_PREFIXES = {"data-file.prefix": "data-", "changelog-file.prefix": "changelog-"}
_NUMBERED_BUCKETS_MAX = 1_000  # some tens of kilobytes in each task
_ARITHMETIC = ("sum", "product")  # inf - inf and inf * 0 are NaN


def _check_schema(table: Table, transaction: Transaction) -> None:
    """A commit notices a schema that is replaced after the transaction began; this notices one that
    was replaced before. With the same number no schema needs to be read."""
    loaded, begun_on = identity_of(table.paimon.table_schema), transaction.base_schema
    if begun_on in ("", loaded) or publishes_itself(table):
        return
    is_same_number = begun_on.partition("@")[0] == loaded.partition("@")[0]
    if is_same_number or is_other_table(table, table):
        raise CommitConflictError(
            f"The schema of `{table.name}` was replaced while this statement was planned: the "
            "table was fast-forwarded to a branch, or its schema was rolled back.",
            hint="Nothing was written. Run the statement again.",
        )


def write_spec(
    table: Table,
    transaction: Transaction,
    *,
    overwrite: bool,
    slots: int,
    settings: Settings,
    gives_buckets: bool = False,
    rewrites: bool = False,
) -> WriteSpec:
    """The specification for the writers of the transaction, of which `slots` run at once. With
    `gives_buckets` rows come with their buckets, if these are fixed or keys can move between
    partitions. With `rewrites` the rows of an append table come from its files: the native writer
    writes them, which needs no catalog in the task.

    Raises CommitConflictError if the schema of `table` was replaced before the transaction began.
    """
    _check_schema(table, transaction)
    schema = table.schema
    prefix, mode = transaction.file_prefix, schema.bucket_mode
    describe = partial(
        WriteSpec,
        commit_user=transaction.commit_user,
        schema=arrow_schema(schema).serialize().to_pybytes(),
        partition_keys=schema.partition_keys,
        overwrite=overwrite,
        attempts_folder=transaction.attempts_folder,
    )
    if schema.postpones_buckets:
        own = postponed_table(table, prefix)
        return describe(table=own, bucket_rule=None, common_bucket=POSTPONED_BUCKET)
    rule, dynamic = _buckets(table, transaction, overwrite=overwrite, slots=slots)
    describe = partial(describe, bucket_rule=rule, dynamic_buckets=dynamic)
    if flushes_itself(schema) or (gives_buckets and mode == "KEY_DYNAMIC"):
        return describe(table=flush_table(table, prefix))
    is_native = schema.is_primary_key_table or schema.file_format == "parquet"
    if appends_itself(schema) and not (is_native and rewrites):
        return describe(table=append_table(table, prefix))
    prefixes = MENDED_PREFIXES if is_native else _PREFIXES
    options = {key: prefix + name for key, name in prefixes.items()} | _statistics_options(schema)
    if schema.is_primary_key_table:
        options |= buffer_options(schema, slots) | _native_formats(schema)
    takes_buckets = mode == "HASH_DYNAMIC" or (mode == "HASH_FIXED" and gives_buckets)
    if takes_buckets or mode == "POSTPONE_MODE" or _is_rescaled(table):
        options |= GIVEN_BUCKET_OPTIONS
    rows_max = settings.cross_partition_rows_max if mode == "KEY_DYNAMIC" else None
    return describe(
        table=native_table(table, options) if is_native else python_table(table, options),
        single_writer_rows_max=rows_max,
        float_columns=_float_columns(table) if is_native else None,
        file_indexes=file_index_rules(table),
        conversion=file_conversion(table),
    )


def with_numbers(
    spec: WriteSpec, table: Table, snapshot_id: int, manifests: ManifestCache
) -> WriteSpec:
    """The specification with the sequence numbers that follow those of a snapshot, so that writers
    don't read its manifests. It is unchanged without sequence numbers, or with too many buckets.

    Only for rows that replace rows of that snapshot, and whose commit fails if others have written
    the same keys since: newer rows of other keys may have these numbers.
    """
    if not isinstance(spec.table, FlushTable) or not snapshot_id or spec.overwrite:
        return spec
    snapshot = read_snapshot(table.paimon, snapshot_id)
    numbers = next_numbers(table.paimon, snapshot, manifests)
    if snapshot is None or len(numbers) > _NUMBERED_BUCKETS_MAX:
        return spec
    return replace(spec, table=replace(spec.table, first_numbers=tuple(numbers.items())))


def flushes_itself(schema: TableSchema) -> bool:
    """Whether `FlushWriter` writes the rows. It writes primary-key tables, unless keys can move
    between partitions. It also leaves out tables whose rows of a key are folded one by one, because
    the native writer is faster there."""
    if not schema.is_primary_key_table or schema.bucket_mode == "KEY_DYNAMIC":
        return False
    return not folds_rows(merge_rule(schema))


def _buckets(
    table: Table, transaction: Transaction, *, overwrite: bool, slots: int
) -> tuple[BucketRule | None, DynamicBuckets | None]:
    """How rows get their buckets; both are None if they have none, or the writer finds them."""
    schema = table.schema
    base_snapshot_id = 0 if overwrite else transaction.base_snapshot_id
    match schema.bucket_mode:
        case "HASH_FIXED":
            return BucketRule(schema.bucket_keys, schema.bucket, schema.bucket_function), None
        case "POSTPONE_MODE":
            default = int(schema.option("postpone.default-bucket-num") or 1)
            counts = tuple(bucket_counts(table, base_snapshot_id).items())
            return BucketRule(schema.bucket_keys, default, schema.bucket_function, counts), None
        case "HASH_DYNAMIC":
            prefix = transaction.file_prefix
            return None, dynamic_buckets(table, prefix, base_snapshot_id, slots)
    return None, None


@dataclass(frozen=True, slots=True)
class CompletedWrite:
    """What a transaction commits: the messages of its writers, the number of their rows, and the
    number, bytes and buckets of their data and changelog files. `files_each` is the greatest number
    of data files of a bucket. `unseen` are rows of an UPDATE without visible effect, `losses`
    values that were rounded or cut, `origins` the rows by where they come from."""

    messages: tuple[bytes, ...]
    rows: int
    files: int
    size_bytes: int
    buckets: frozenset[BucketKey]
    files_each: int
    unseen: UnseenCounts = ALL_SEEN
    losses: tuple[ColumnLoss, ...] = ()
    origins: OriginCounts = ()


def completed(
    table: Table,
    task: WriteSpec,
    written: Written,
    base_snapshot_id: int,
    manifests: ManifestCache | None = None,
) -> CompletedWrite:
    """Complete the messages of all writers: mend their files and bounds, number the rows of append
    tables, and add index files and numbers of buckets. `manifests` is a cache of the table's
    manifests.

    Raises CommitConflictError for rows of a partition that has another number of buckets.
    """
    messages = list(read_messages(table.paimon, written.messages))
    sizes_bytes = {
        file.file_name: int(file.file_size)
        for message in messages
        for file in [*message.new_files, *message.changelog_files]
    }
    is_changed = mend_messages(table, messages, written.odd_floats)
    is_changed |= number_rows(table, messages, 0 if task.overwrite else base_snapshot_id)
    put_index_files(table, messages, written.index_files)
    rule = task.bucket_rule
    if rule is not None and table.schema.bucket_mode == "POSTPONE_MODE":
        put_bucket_counts(messages, dict(rule.by_partition), rule.buckets)
        is_changed = True
    elif rule is not None and _is_rescaled(table):
        put_bucket_counts(messages, {}, rule.buckets)
        is_changed = True
    elif not task.overwrite:
        check_bucket_counts(table, messages, base_snapshot_id, manifests)
    bodies = written.messages
    if is_changed or written.index_files:
        bodies = tuple(write_message(table.paimon, message) for message in messages)
    buckets = written_buckets(table, messages)
    counts: Counter[tuple[object, int]] = Counter()
    for message in messages:
        counts[tuple(message.partition), message.bucket] += len(message.new_files)
    return CompletedWrite(
        bodies,
        written.rows,
        files=len(sizes_bytes),
        size_bytes=sum(sizes_bytes.values()),
        buckets=buckets,
        files_each=max(counts.values(), default=0),
        unseen=written.unseen,
        losses=written.losses,
        origins=written.origins,
    )


def _is_rescaled(table: Table) -> bool:
    """Whether rows are written into another number of buckets than the table's own."""
    schema = table.schema
    return schema.bucket_mode == "HASH_FIXED" and schema.bucket != table.paimon.total_buckets


def _float_columns(table: Table) -> FloatColumns | None:
    schema = table.schema
    names = floating_columns(schema.columns)
    merged = []
    if names and schema.is_primary_key_table:
        functions = merge_rule(schema).functions
        merged = [name for name, function in functions.items() if function.name in _ARITHMETIC]
    return float_columns(table, names, merged)


def _native_formats(schema: TableSchema) -> dict[str, str]:
    """The formats that the native writer writes for a primary-key table: Parquet with the table's
    compression. Files that are converted afterwards have any compression until then."""
    data, changelog = data_file_rules(schema, 0), changelog_file_rules(schema, 0)
    kinds = {"file": data, "changelog-file": changelog}
    return {
        key: value
        for kind, rules in kinds.items()
        for key, value in (
            (f"{kind}.format", "parquet"),
            (f"{kind}.compression", rules.compression if rules.format == "parquet" else "zstd"),
        )
    }


def _statistics_options(schema: TableSchema) -> dict[str, str]:
    # The native writer ignores NaN in the bounds of floating-point columns. Other engines sort NaN
    # above all numbers, and would prune files that have matching rows.
    return {
        f"fields.{column.name}.stats-mode": "none"
        for column in schema.columns
        if is_floating(column.type)
    }
