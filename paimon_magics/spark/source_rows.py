"""The rows that a task of the data source reads, and the division of reads among tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import types as spark_types
from pyspark.sql.datasource import InputPartition

from paimon_magics.errors import sent_to_driver
from paimon_magics.planning.reads.splits import PlainSplit, StoredFile, TaskSplit, pack_in_order
from paimon_magics.spark.python_workers import keep_modules
from paimon_magics.spark.types import arrow_schema, variant_columns
from paimon_magics.tables.reading.data_read import DataRead
from paimon_magics.tables.reading.spark_batches import spark_batches
from paimon_magics.tables.reading.split_reader import SplitReader, with_kind_names

if TYPE_CHECKING:
    import pyarrow as pa

_TASK_BYTES_MIN = 4 << 20  # a task of less takes longer to begin than to read


@dataclass(frozen=True)
class SplitRows(InputPartition):
    """Splits to be read one after the other, each with the number of its reader."""

    readers: tuple[SplitReader, ...]
    splits: tuple[tuple[int, TaskSplit], ...]
    variants: frozenset[str]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in batches of Spark's types."""
        rows = (
            with_kind_names(self.readers[number], batch)
            for number, split in self.splits
            for batch in self.readers[number].rows(split)
        )
        return spark_batches(rows, self.readers[0].files.batch_rows, self.variants)


@dataclass(frozen=True)
class GivenRows(InputPartition):
    """Rows that are known when the read is planned."""

    rows: pa.Table

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in batches of Spark's types."""
        return spark_batches(iter(self.rows.to_batches()), self.rows.num_rows or 1)


def parts_of(reads: Iterable[DataRead], slots: int) -> list[InputPartition]:
    """Divide reads into parts of about equal stored bytes, about as many as there are `slots`. The
    parts have the rows in the order of the reads."""
    readers: list[SplitReader] = []
    splits: list[tuple[int, TaskSplit]] = []
    variants: set[str] = set()
    for read in reads:
        read_splits = [*_raw_splits(read), *read.planned.splits]
        if not read_splits:
            continue
        variants |= variant_columns(read.schema.columns)
        _add_reader(readers, read.reader)
        splits += ((len(readers) - 1, split) for split in read_splits)
    sizes = [sum(file.size_bytes for file in split.files) for _, split in splits]
    capacity = max(-(-sum(sizes) // max(slots, 1)), _TASK_BYTES_MIN)
    sized = list(zip(splits, sizes, strict=True))
    return [
        _part(readers, [split for split, _ in bin_], frozenset(variants))
        for bin_ in pack_in_order(sized, lambda sized_split: sized_split[1], capacity)
    ]


def rows_of_part(part: object, schema: spark_types.StructType) -> Iterator[pa.RecordBatch]:
    """The rows of a part, in the columns of `schema`. Runs in a task."""
    if not isinstance(part, SplitRows | GivenRows):  # PySpark's own, for a read without parts
        return
    wanted = arrow_schema(schema)
    with sent_to_driver():
        for batch in part.batches():
            yield _in_columns(batch, wanted)
    keep_modules()


def _add_reader(readers: list[SplitReader], reader: SplitReader) -> None:
    """Add a reader, or make the last one read its files, too: reads of neighboring snapshots mostly
    differ only in the schemas of their files."""
    if readers:
        last = readers[-1]
        schemas = {**last.files.schemas, **reader.files.schemas}
        both = replace(reader, files=replace(reader.files, schemas=schemas))
        if replace(last, files=replace(last.files, schemas=schemas)) == both:
            readers[-1] = both
            return
    readers.append(reader)


def _part(
    readers: list[SplitReader], splits: list[tuple[int, TaskSplit]], variants: frozenset[str]
) -> SplitRows:
    first, last = splits[0][0], splits[-1][0]
    return SplitRows(
        tuple(readers[first : last + 1]),
        tuple((number - first, split) for number, split in splits),
        variants,
    )


def _raw_splits(read: DataRead) -> Iterator[TaskSplit]:
    """Splits of the files that a raw scan would read."""
    for raw in read.planned.raw:
        for path, rows, size in zip(raw.paths, raw.row_counts, raw.sizes_bytes, strict=True):
            yield PlainSplit((StoredFile(path, raw.format, raw.schema_id, rows, size),))


def _in_columns(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """The batch in exactly the types that Spark asks for."""
    columns = [batch.column(field.name).cast(field.type) for field in wanted]
    return type(batch).from_arrays(columns, schema=wanted)
