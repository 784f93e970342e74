"""Writes the rows of a frame into files, by one Spark job whose tasks return commit messages.

Rows are shuffled so that one task owns a (partition, bucket), and rows of a bucket of a primary-key
table arrive in the statement's order. Nothing is committed here. The files of a failed job are left
to the caller, which finds them by the transaction's prefix.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as spark_types

from paimon_magics.columnar.bucket_hash import SEED
from paimon_magics.planning.reads.views import PARTLY
from paimon_magics.planning.writes.distributions import (
    BUCKET_COLUMN,
    ByAssigner,
    ByBucket,
    ByGivenBucket,
    Distribution,
    Gathered,
    InPlace,
    OneWriter,
    OwnBuckets,
)
from paimon_magics.spark.arrow_stages import map_in_arrow
from paimon_magics.spark.decimal_columns import HashedDecimals, with_hashed_decimals
from paimon_magics.spark.jvm import is_connect
from paimon_magics.spark.losses import without_losses
from paimon_magics.spark.sessions import is_one_process
from paimon_magics.spark.sizes import estimated_bytes
from paimon_magics.spark.spooled_rows import SPOOLED, SpooledRows, SpooledWriteTasks, SpoolTasks
from paimon_magics.spark.task_reports import reports_folder
from paimon_magics.spark.task_units import RESULT_SCHEMA, UnitResults, unit_results
from paimon_magics.spark.transfer import all_written, collected
from paimon_magics.spark.writing_tasks import (
    TaskWritten,
    WriteTasks,
    with_buckets_assigned,
    with_owners_of,
)
from paimon_magics.statements.clauses.names import quoted, text_literal
from paimon_magics.tables.writing.commit_messages import bucket_of_message
from paimon_magics.tables.writing.own_writers import FlushTable
from paimon_magics.tables.writing.write_spec import WriteSpec, Written
from paimon_magics.tables.writing.writer import GROUP_BITS, GROUP_SHIFT

_OWNER = "__paimon_magics_owner"
_HASH = "__paimon_magics_hash"
_ORDER = "__paimon_magics_order"
_TOO_MANY = "the source has more partitions than a statement's row order can number"
_WRITER = "__paimon_magics_writer"

# By Spark's estimate. Shuffling few rows takes less time than planning a second job. Spooled rows
# are not compressed, unlike Spark's shuffles.
_SPOOLED_BYTES_MIN = 2**20
_SPOOLED_BYTES_MAX = 4 * 2**30
_FREE_SPACE_FACTOR = 4

_INITIAL_TASKS = "spark.sql.adaptive.coalescePartitions.initialPartitionNum"


_MODULUS = 1_000_003  # keeps sums of partition numbers far from overflow


_KEYS_MAX = 8  # of more keys, `_null_bits` has no bits in the first word
_NULL_BITS_START = 8  # after the row kind
_BITS = 32
_MASK = 0xFFFFFFFF
_MIX_1, _MIX_2, _MIX_3 = 0xCC9E2D51, 0x1B873593, 0xE6546B64
_HEADER_BYTES = 8
_SPARK_SEED, _INT_BYTES = 42, 4  # of Spark's `hash` of an INT


@dataclass(frozen=True, slots=True)
class JobWritten:
    """What a job wrote. `repeated_attempts` tells that a task may have run more than once, so that
    files of an attempt that did not count may be left. If requested, `kinds` are the numbers of
    rows by the number of their kind, and `changes_twice` is whether two rows would change one row
    of the table: then not everything was written."""

    written: Written
    repeated_attempts: bool
    kinds: tuple[int, ...] = ()
    changes_twice: bool = False


@dataclass(frozen=True, slots=True)
class RowOrder:
    """How rows come to the writers. The statement's order `is_kept` for primary-key tables whose
    last row of a key must win. If rows with kinds may change one row of the table twice, which is
    checked, `changed_once` are the keys that identify a row: rows of a key follow each other."""

    is_kept: bool = False
    changed_once: tuple[str, ...] = ()


def write_frame(
    spark: SparkSession,
    frame: DataFrame,
    task: WriteSpec,
    distribution: Distribution,
    *,
    slots: int,
    order: RowOrder,
) -> JobWritten:
    """Run the job that writes `frame`, whose columns are the table's own.

    `slots` is how many tasks can run at once; `order` is what the writers need. Raises what Spark
    raises; the caller must then remove every file of the job.
    """
    run = partial(_run, spark, frame, task, slots=slots, order=order)
    job, is_second = run(distribution), False
    if any(result.gave_up for result in job.results):
        # More partitions than the table had: write again with gathered rows. The messages of the
        # first run are discarded, and with them the files of tasks that did not give up.
        job, is_second = run(Gathered(task.partition_keys)), True
    elif isinstance(distribution, OwnBuckets) and _share_buckets(job.results):
        # Files of one bucket that several tasks write are no single sorted run.
        job, is_second = run(distribution.otherwise), True
    return JobWritten(
        written=all_written([result.written for result in job.results]),
        repeated_attempts=is_second or job.repeated_attempts,
        kinds=tuple(sum(result.kinds[kind] for result in job.results) for kind in range(PARTLY + 1))
        if order.changed_once
        else (),
        changes_twice=any(result.changes_twice for result in job.results),
    )


def _spools(
    spark: SparkSession,
    frame: DataFrame,
    task: WriteSpec,
    distribution: Distribution,
    slots: int,
    order: RowOrder,
) -> bool:
    """Whether rows go to the writers of their buckets through our own files. The rows come in the
    statement's order, but not partition by partition, so that they must fit into the writers'
    buffers where there are partitions."""
    if not isinstance(task.table, FlushTable) or order.changed_once:
        return False
    # The server of Spark Connect may be on another machine, which does not have the folder.
    if is_connect(spark) or not is_one_process(spark):
        return False
    dynamic = task.dynamic_buckets
    if not isinstance(distribution, ByBucket | ByGivenBucket | ByAssigner) or (
        dynamic is not None and dynamic.index
    ):
        return False
    size_bytes = estimated_bytes(without_losses(frame))
    limit_bytes = _SPOOLED_BYTES_MAX
    if task.partition_keys:
        limit_bytes = min(limit_bytes, slots * task.table.buffer_bytes)
    if size_bytes is None or not _SPOOLED_BYTES_MIN <= size_bytes <= limit_bytes:
        return False
    # The estimate may be too low, and others write there, too.
    return shutil.disk_usage(tempfile.gettempdir()).free >= _FREE_SPACE_FACTOR * size_bytes


def _run_spooled(
    spark: SparkSession,
    frame: DataFrame,
    task: WriteSpec,
    distribution: Distribution,
    slots: int,
) -> UnitResults[TaskWritten]:
    """As `_run`, in two jobs: rows to files, and files to writers."""
    spread = spread_text(frame, task.partition_keys)
    owned = _owned(frame, task, distribution)
    has_hash = _HASH in owned.columns
    placed = owned.withColumn(_WRITER, F.expr(_writer_text(spread, slots)))
    placed, decimals = with_hashed_decimals(placed)
    spool = SpooledRows()
    try:
        owners = (_OWNER, *task.partition_keys)
        spooling = SpoolTasks(str(spool.folder), _WRITER, owners, decimals)
        spooled, repeated = collected(
            spark, frame.schema, lambda: map_in_arrow(placed, spooling, SPOOLED)
        )
        files: dict[int, list[str]] = {}
        for row in sorted(spooled, key=lambda row: int(row["source"])):
            files.setdefault(row["writer"], []).append(row["path"])
        tasks = WriteTasks(
            task,
            _OWNER if task.dynamic_buckets is None else None,
            _HASH if has_hash else None,
            None,
            (),
            HashedDecimals(()),
            reports_folder(),
        )
        writing = SpooledWriteTasks(tuple(map(tuple, files.values())), tasks)
        rows: list[Row] = []
        if files:
            numbers = spark.range(0, len(files), 1, len(files))
            rows = numbers.mapInArrow(writing, RESULT_SCHEMA).collect()
        return unit_results(spark, rows, repeated=repeated)
    finally:
        spool.remove()


def _share_buckets(results: Sequence[TaskWritten]) -> bool:
    """Whether two tasks wrote files of one bucket."""
    written = [
        {bucket_of_message(message) for message in result.written.messages} for result in results
    ]
    return len(frozenset().union(*written)) < sum(map(len, written))


def _run(
    spark: SparkSession,
    frame: DataFrame,
    task: WriteSpec,
    distribution: Distribution,
    *,
    slots: int,
    order: RowOrder,
) -> UnitResults[TaskWritten]:
    """Run the job once, or twice where a batch of rows was too large."""
    if _spools(spark, frame, task, distribution, slots, order):
        return _run_spooled(spark, frame, task, distribution, slots)
    partitions_max = distribution.partitions_max if isinstance(distribution, InPlace) else None
    task = replace(task, partitions_max=partitions_max)
    schema = frame.schema
    if isinstance(distribution, InPlace):
        # Before the number of tasks decreases: Spark copies rows for computations after that.
        frame, decimals = with_hashed_decimals(frame)
        placed, bucket_column = _place(frame, task, distribution, slots=slots, order=order)
    else:
        placed, bucket_column = _place(frame, task, distribution, slots=slots, order=order)
        placed, decimals = with_hashed_decimals(placed)
    names = placed.columns
    tasks = WriteTasks(
        task,
        bucket_column,
        _HASH if _HASH in names else None,
        _ORDER if _ORDER in names else None,
        order.changed_once,
        decimals,
        reports_folder(),
    )
    rows, repeated = collected(spark, schema, lambda: map_in_arrow(placed, tasks, RESULT_SCHEMA))
    return unit_results(spark, rows, repeated=repeated)


def _place(
    frame: DataFrame,
    task: WriteSpec,
    distribution: Distribution,
    *,
    slots: int,
    order: RowOrder,
) -> tuple[DataFrame, str | None]:
    """Send each row to the task that writes it. Return the frame, and the name of its column with
    the bucket; None if the writer computes it."""
    partitions = [quoted(key) for key in task.partition_keys]
    spread = spread_text(frame, task.partition_keys)
    match distribution:
        case OneWriter():
            return _in_order(frame, lambda numbered: numbered.repartition(1)), None
        case InPlace(writers):
            return frame.coalesce(writers), None
        case OwnBuckets():
            return frame, None
        case Gathered(()):
            return _in_order(frame, lambda numbered: _gathered(numbered, distribution)), None
        case Gathered():
            gathered = _gathered(frame, distribution)
            ordered = gathered.withColumn(_ORDER, F.expr(group_text(spread)))
            return ordered.sortWithinPartitions(_ORDER), None
    if order.is_kept or partitions:
        number = group_text(f"floor(({spread}) / {slots})")
        if order.is_kept:
            frame = frame.withColumn(_ORDER, F.monotonically_increasing_id())
            number = f"{number} | {ordinal_text(_ORDER)}"
        frame = frame.withColumn(_ORDER, F.expr(number))
    routed = _to_owners(_owned(frame, task, distribution), spread, slots)
    dynamic = task.dynamic_buckets
    bucket_column: str | None = _OWNER if dynamic is None else None
    if dynamic is not None and dynamic.index:
        # A known key may be in a bucket of another assigner, so rows are sent on to their bucket's
        # owner. Where there is no index yet, an assigner uses only buckets of its own.
        assigned = map_in_arrow(
            routed, partial(with_buckets_assigned, task, _HASH, _OWNER), routed.schema
        )
        routed = _to_owners(assigned, spread, slots)
        bucket_column = _OWNER
    sort_keys = [_ORDER] if order.is_kept or partitions else []
    sort_keys += map(quoted, order.changed_once)
    return (routed.sortWithinPartitions(*sort_keys) if sort_keys else routed), bucket_column


def _gathered(frame: DataFrame, distribution: Gathered) -> DataFrame:
    """The rows gathered by partition. Spark sizes the tasks itself and splits skewed ones, since
    several writers may share a partition of an append table."""
    keys = [quoted(key) for key in distribution.keys]
    if distribution.tasks is None:
        return frame.hint("rebalance", *keys)
    conf = frame.sparkSession.conf
    tasks_max = conf.get(_INITIAL_TASKS, None) or conf.get("spark.sql.shuffle.partitions")
    return frame.hint("rebalance", min(distribution.tasks, int(tasks_max or 1)), *keys)


def _in_order(frame: DataFrame, shuffle: Callable[[DataFrame], DataFrame]) -> DataFrame:
    """The frame after a shuffle, its rows in the statement's order within each partition."""
    numbered = frame.withColumn(_ORDER, F.monotonically_increasing_id())
    return shuffle(numbered).sortWithinPartitions(_ORDER).drop(_ORDER)


def _owned(frame: DataFrame, task: WriteSpec, distribution: Distribution) -> DataFrame:
    """The frame with the owner of each row; see `_with_owners`."""
    if isinstance(distribution, ByGivenBucket):
        return frame.withColumnRenamed(BUCKET_COLUMN, _OWNER)
    return _with_owners(frame, task)


def _with_owners(frame: DataFrame, task: WriteSpec) -> DataFrame:
    """The frame with a column of each row's owner, and one of its key hash where buckets are
    dynamic. The owner is the bucket, or the assigner of dynamic buckets. Rows of a partition with
    the same owner must meet in one task."""
    rule, dynamic = task.bucket_rule, task.dynamic_buckets
    schema = task.arrow_schema()
    if dynamic is not None:
        hashed = row_hash([schema.field(key) for key in dynamic.keys])
        if hashed is not None:
            frame = frame.withColumn(_HASH, F.expr(hashed))
        else:
            frame = _with_owners_by_python(frame, task, _HASH)
        return frame.withColumn(_OWNER, F.expr(f"abs({_HASH} % {dynamic.assigners})"))
    assert rule is not None
    if rule.function == "default" and not rule.by_partition:
        hashed = row_hash([schema.field(key) for key in rule.keys])
        if hashed is not None:
            return frame.withColumn(_OWNER, F.expr(f"abs({hashed} % {rule.buckets})"))
    return _with_owners_by_python(frame, task, _OWNER)


def _to_owners(frame: DataFrame, spread: str, slots: int) -> DataFrame:
    """Send each owner's rows to one of `slots` tasks, a partition's owners to different tasks."""
    return frame.repartitionById(slots, F.expr(_writer_text(spread, slots)))


def _writer_text(spread: str, slots: int) -> str:
    """The number of the task that writes a row, as SQL text."""
    return f"CAST(pmod({spread} + {_OWNER}, {slots}) AS INT)"


def _with_owners_by_python(frame: DataFrame, task: WriteSpec, name: str) -> DataFrame:
    column = spark_types.StructField(name, spark_types.IntegerType())
    schema = spark_types.StructType([*frame.schema.fields, column])
    return map_in_arrow(frame, partial(with_owners_of, task, name), schema)


# The numbers by which written rows are spread over tasks and sorted in them, as texts of SQL.
#
# Texts, because PySpark asks the JVM several times for each part of an expression that is built of
# columns.


def group_text(partition: str) -> str:
    """The high bits of the sort key, as SQL text: they bring the partitions of a task one after the
    other, or a few at a time. The writer separates the buckets of a partition batch by batch.

    One LONG is the whole key, with the order of the rows in its low bits: Spark has a radix sort
    for one number, and compares rows to sort by several columns.
    """
    number = f"pmod(CAST({partition} AS BIGINT), {1 << GROUP_BITS}L)"
    return f"shiftleft(CAST({number} AS BIGINT), {GROUP_SHIFT})"


def ordinal_text(number: str) -> str:
    """The low bits of the sort key: the statement's order of rows, which a shuffle loses. `number`
    is (source partition, position), as Spark numbers each row. The job fails where it would reach
    into the high bits."""
    beyond = f"raise_error({text_literal(_TOO_MANY)})"
    fits = f"{number} < {1 << GROUP_SHIFT}L"
    return f"CASE WHEN {fits} THEN {number} ELSE CAST({beyond} AS BIGINT) END"


def spread_text(frame: DataFrame, partition_keys: tuple[str, ...]) -> str:
    """A number for each partition that spreads partitions almost evenly over the tasks, as the SQL
    text of a LONG.

    A hash would often give one of two tasks three of four partitions. The values of partitions tend
    to be consecutive, so numbers, days and the last digits of texts are used as they are.
    """
    total = "0L"
    for key in partition_keys:
        value = quoted(key)
        match frame.schema[key].dataType:
            case spark_types.IntegralType():
                number = f"pmod(CAST({value} AS BIGINT), {_MODULUS})"
            case spark_types.DateType():
                number = f"CAST(unix_date({value}) AS BIGINT)"
            case spark_types.StringType():
                tens = f"ascii(substring({value}, -2, 1)) * 10"
                before = f"hash(substring({value}, 1, length({value}) - 2))"
                ones = f"ascii(substring({value}, -1, 1))"
                number = f"CAST({before} AS BIGINT) + {tens} + {ones}"
            case _:
                number = f"CAST(hash({value}) AS BIGINT)"
        total = f"{total} + coalesce({number}, 0L)"
    return total


# Paimon's hash of a row's keys as an expression that Spark runs in the JVM.
#
# It equals `columnar.bucket_hash` bit for bit, for keys of fixed width. Other keys have no such
# expression here, and are hashed by that kernel in a Python stage of its own. The expression saves
# that stage, which takes every row to Python and back.
#
# The hash is 32-bit Murmur3 over the words of Java's `BinaryRow`: eight bytes of row kind and null
# bits, then eight bytes for each key. All arithmetic is on LONGs of which the low 32 bits count,
# and no step overflows, so that ANSI mode makes no difference. Every step uses the one before it
# only once, so that the expression grows linearly with the key and Spark plans it quickly:
#
# - A rotation by n bits is a multiplication by 2^n modulo 2^32 - 1. Java's remainder of a negative
#   number is negative, so that taking 1 before and adding it after keeps both 0 and 2^32 - 1.
# - The final steps need their input twice. Spark's own hash of an INT ends with the same steps. So
#   the inverse of its other steps computes the INT whose Spark hash is the wanted one.


def row_hash(keys: Sequence[pa.Field]) -> str | None:
    """The hash of `keys`, Arrow fields of a frame's columns, as the SQL text of an INT.

    None if a key is not of a fixed width of 64 bits at most.
    """
    if len(keys) > _KEYS_MAX:
        return None
    words = [_null_bits(keys), "0"]
    for key in keys:
        key_words = _words(key)
        if key_words is None:
            return None
        words += key_words
    state = str(SEED)
    for word in words:
        mixed = f"{_rotated(f'({word} * {_signed(_MIX_1)}L)', 15)} * {_MIX_2}L"
        state = f"({_rotated(f'({state} ^ ({mixed}))', 13)} * 5 + {_MIX_3}L)"
    return _ended(state, len(words) * 4)


def _ended(state: str, length_bytes: int) -> str:
    """Murmur3's final steps, as Spark's hash of the INT that has `state` before them."""
    ended = f"(({state} ^ {length_bytes ^ _INT_BYTES}) & {_MASK}L)"
    mixed = f"({_rotated(f'(({ended} - {_MIX_3}L) * {_inverse(5)}L)', 32 - 13)} ^ {_SPARK_SEED})"
    number = f"({_rotated(f'({mixed} * {_inverse(_MIX_2)}L)', 32 - 15)} * {_inverse(_MIX_1)}L)"
    return f"hash(CAST(shiftright(shiftleft({number}, {_BITS}), {_BITS}) AS INT))"


def _rotated(value: str, bits: int) -> str:
    """The low 32 bits of `value` rotated left by `bits`, as a number that is not negative."""
    return f"((({value} & {_MASK}L) * {1 << bits}L - 1) % {_MASK}L + 1)"


def _null_bits(keys: Sequence[pa.Field]) -> str:
    """The first word of the row: a bit for each key that is NULL."""
    bits = [
        f"IF(isnull({quoted(key.name)}), {1 << (_NULL_BITS_START + position)}L, 0L)"
        for position, key in enumerate(keys)
        if key.nullable
    ]
    return f"({' + '.join(bits)})" if bits else "0"


def _words(key: pa.Field) -> tuple[str, str] | None:
    """The two 32-bit words of a key's slot, zero for NULL; None for types of no fixed width."""
    name = quoted(key.name)
    if pa.types.is_boolean(key.type):
        words = f"CAST({name} AS INT)", "0"
    elif pa.types.is_date32(key.type):
        words = f"unix_date({name})", "0"
    elif pa.types.is_int8(key.type):
        words = f"({name} & 255)", "0"
    elif pa.types.is_int16(key.type):
        words = f"({name} & 65535)", "0"
    elif pa.types.is_int32(key.type):
        words = name, "0"
    elif pa.types.is_int64(key.type):
        words = f"({name} & {_MASK}L)", f"shiftright({name}, {_BITS})"
    else:
        return None
    if not key.nullable:
        return words
    return f"coalesce({words[0]}, 0)", f"coalesce({words[1]}, 0)"


def _inverse(factor: int) -> int:
    """The inverse of `factor` modulo 2^32, as a signed number."""
    return _signed(pow(factor, -1, 1 << _BITS))


def _signed(bits: int) -> int:
    return bits - (1 << _BITS) if bits >> (_BITS - 1) else bits
