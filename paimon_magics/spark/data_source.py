"""Spark's Python data source `paimon`: tables read in batches and as streams.

    spark.read.format("paimon").load("shop.orders")
    spark.readStream.format("paimon").option("scan.mode", "latest").load("shop.orders$audit_log")

Spark calls the classes in separate processes, on the driver's machine for plans and on executors
for rows. So the registered class carries its `Place`, and a plan its readers. This module needs no
session. Spark's JVM passes options in lower case.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql import SparkSession
from pyspark.sql import datasource as spark_source
from pyspark.sql import types as spark_types
from pyspark.sql.datasource import InputPartition

from paimon_magics.errors import InvalidValueError, sent_to_driver
from paimon_magics.planning.reads.read_points import READ_OPTIONS, ScanMode
from paimon_magics.planning.reads.splits import PlainSplit, StoredFile, TaskSplit, pack_in_order
from paimon_magics.planning.reads.stream_points import StreamOffset, stream_request
from paimon_magics.planning.reads.views import shown_columns, view_named
from paimon_magics.spark.jvm import activate, is_connect
from paimon_magics.spark.python_workers import keep_modules
from paimon_magics.spark.types import arrow_schema, spark_schema, variant_columns
from paimon_magics.statements.clauses.names import named, quoted
from paimon_magics.statements.statement import ColumnFilter, FilterValue, TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.catalog.databases import Visibility
from paimon_magics.tables.reading.data_read import (
    DataRead,
    ReadRequest,
    plan_data_read,
    shown_schema,
)
from paimon_magics.tables.reading.spark_batches import spark_batches
from paimon_magics.tables.reading.split_reader import SplitReader, with_kind_names
from paimon_magics.tables.reading.table_stream import TableStream
from paimon_magics.tables.snapshots.targets import SnapshotChanges
from paimon_magics.tables.system_tables.registry import is_metadata, metadata_table

if TYPE_CHECKING:
    import pyarrow as pa


try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # PySpark 4.1

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """The base class that later versions require."""


if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = "paimon"
STREAM_FORMAT = "paimon_magics"
"""A second name of the data source, by which streams are read. The first one is that of Paimon's
own connector, where it is in Spark."""
TABLE_KEYS = ("table", "path")
"""The options that name the table."""
_MANY = 2**62
_PUSHES = "spark.sql.python.filterPushdown.enabled"
_TABLE_FOLDER = re.compile(r"(.*)/([^/]+)\.db/([^/]+)/?")


@dataclass(frozen=True, slots=True)
class Place:
    """Where tables are, for processes without a session. `catalog` are the catalog's options,
    `database` is that of names without one, `zone` the time zone of times in options, `slots` the
    number of tasks that can run at once; `visibility` limits what the user may see."""

    warehouse: str
    catalog: tuple[tuple[str, str], ...] = field(repr=False)
    database: str
    zone: str
    slots: int
    batch_rows: int
    visibility: Visibility | None = None


def asked_table(options: Mapping[str, str], place: Place) -> TableName:
    """The table that the options name: `table`, or the argument of `load`, which may be the path of
    a table's folder. Raises InvalidValueError if neither or both name a table, and for a folder in
    another warehouse."""
    named_by = {key: options[key] for key in TABLE_KEYS if key in options}
    if len(set(named_by.values())) != 1:
        raise InvalidValueError(
            f"The options name {'two tables' if named_by else 'no table'}.",
            hint='Name one table: .format("paimon").load("shop.orders"), or '
            '.option("table", …).load().',
        )
    text = next(iter(named_by.values()))
    if "/" in text:
        return _in_folder(text, place)
    name = named(text)
    return replace(name, catalog=None, database=name.database or place.database)


def register(spark: SparkSession, place: Place) -> None:
    """Register the data source for the tables at `place` in a Spark session, and let Spark push
    conditions into it. If Paimon's own connector is in Spark, the connector keeps the name
    `paimon`."""
    spark.conf.set(_PUSHES, "true")
    if not is_connect(spark):
        # Spark refuses names that are known in the active session, which may be another one.
        activate(spark)
    spark.dataSource.register(source_at(place, STREAM_FORMAT))
    try:
        spark.dataSource.register(source_at(place))
    except Exception as error:
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise


def source_at(place: Place, name: str = FORMAT) -> type[PaimonSource]:
    """The data source for the tables at `place`, to be registered under `name`. Spark's processes
    get it by value, since no module contains it by name."""
    return type("PaimonSource", (PaimonSource,), {"place": place, "format_name": name})


class PaimonSource(spark_source.DataSource):
    """The data source. `source_at` makes the class that is registered."""

    place: ClassVar[Place]
    format_name: ClassVar[str] = FORMAT

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return cls.format_name

    def schema(self) -> spark_types.StructType:
        """The columns of the table as it is now. Raises the errors of naming and loading it."""
        with sent_to_driver():
            if is_metadata(self.table):
                return _metadata_schema(metadata_table(self.catalog, self.table))
            return spark_schema(_columns(self.read_nothing()))

    def reader(self, schema: spark_types.StructType) -> spark_source.DataSourceReader:
        """A reader of the table's rows, or of changes between two snapshots."""
        return _Reader(self, schema)

    def streamReader(self, schema: spark_types.StructType) -> spark_source.DataSourceStreamReader:
        """A reader of the table as a stream."""
        return _StreamReader(self, schema)

    def __getstate__(self) -> dict[str, Any]:
        """Only the options: opened objects stay in their process."""
        return {"options": self.options}

    @cached_property
    def catalog(self) -> Catalog:
        """The catalog of the place."""
        catalog = Catalog.open(dict(self.place.catalog))
        catalog.visibility = self.place.visibility
        return catalog

    @cached_property
    def table(self) -> TableName:
        """The table that the options name."""
        return asked_table(self.options, self.place)

    @property
    def read_options(self) -> dict[str, str]:
        """The options without those that name the table."""
        return {key: value for key, value in self.options.items() if key not in TABLE_KEYS}

    def read_nothing(self) -> DataRead:
        """A read of no rows, which knows the table's columns."""
        kind = view_named(self.table.system_table)
        assert kind is not None
        table = self.catalog.load(_branch_of(self.table, self.read_options))
        request = ReadRequest(kind)
        return plan_data_read(table, request, target=SnapshotChanges((), ScanMode.DELTA))


class _Reader(spark_source.DataSourceReader):
    """Plans the read when a job starts, with the conditions that Spark has pushed."""

    def __init__(self, source: PaimonSource, schema: spark_types.StructType) -> None:
        self._source = source
        self._schema = schema
        self._filters: tuple[ColumnFilter, ...] = ()
        self._bound: dict[str, object] = {}

    def __getstate__(self) -> dict[str, Any]:
        """What tasks need."""
        return {"_schema": self._schema}

    def pushFilters(self, filters: list[spark_source.Filter]) -> Iterable[spark_source.Filter]:
        """Record conditions for pruning files; Spark also applies all of them itself."""
        self._filters, self._bound = _column_filters(filters)
        return filters

    def partitions(self) -> Sequence[spark_source.InputPartition]:
        """The parts of the read, one for each task."""
        with sent_to_driver():
            return self._planned()

    def _planned(self) -> Sequence[spark_source.InputPartition]:
        source = self._source
        if is_metadata(source.table):
            return [GivenRows(metadata_table(source.catalog, source.table))]
        kind = view_named(source.table.system_table)
        assert kind is not None
        options = source.read_options
        request = ReadRequest(
            kind,
            options={key: options[key.lower()] for key in READ_OPTIONS if key.lower() in options},
            zone=source.place.zone,
            filters=self._filters,
            bound=self._bound,
        )
        table = source.catalog.load(_branch_of(source.table, options))
        read = plan_data_read(table, request, batch_rows=source.place.batch_rows)
        return parts_of([read], source.place.slots)

    def read(self, partition: spark_source.InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        return rows_of_part(partition, self._schema)


class _StreamReader(SupportsTriggerAvailableNow, spark_source.DataSourceStreamReader):
    """Reads a table snapshot by snapshot. Its offsets are those of `StreamOffset`.

    PySpark 4.1 passes `latestOffset` neither the start of the batch nor a limit: the reader
    remembers where the last batch ended.
    """

    def __init__(self, source: PaimonSource, schema: spark_types.StructType) -> None:
        self._source = source
        self._schema = schema
        self._position: StreamOffset | None = None
        self._last: StreamOffset | None = None
        self._batch_at = time.monotonic()

    def __getstate__(self) -> dict[str, Any]:
        """What tasks need."""
        return {"_schema": self._schema}

    @cached_property
    def _stream(self) -> TableStream:
        source = self._source
        table = source.catalog.load(_branch_of(source.table, source.read_options))
        request = stream_request(table.schema, source.read_options)
        zone, rows = source.place.zone, source.place.batch_rows
        # The types as the table has them: Spark's schema has fewer.
        columns = shown_schema(source.read_nothing())
        return TableStream(
            source.catalog,
            source.table,
            request,
            zone=zone,
            columns=columns.empty_table().select(self._schema.names).schema,
            batch_rows=rows,
        )

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins."""
        with sent_to_driver():
            self._position = self._stream.begin()
            return self._stream.document(self._position)

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:
        """Where the next batch ends."""
        with sent_to_driver():
            return self._stream.document(self._end(start, limit))

    def _end(self, start: Any, limit: Any) -> StreamOffset:
        begins = self._position if start is None else StreamOffset.of(start)
        if begins is None:
            begins = self._stream.begin()
        limited = limit is None or type(limit).__name__ != "ReadAllAvailable"
        waited_ms = int((time.monotonic() - self._batch_at) * 1000)
        end = self._stream.end_of_batch(begins, self._last, limited=limited, waited_ms=waited_ms)
        if end != begins:
            self._batch_at = time.monotonic()
        self._position = begins
        return end

    def getDefaultReadLimit(self) -> Any:
        """Which limit holds by default: some, if the options have one."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

        limits = self._stream.limits
        return ReadMaxRows(limits.rows or _MANY) if limits.is_limited else ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any]:
        """The offset behind the latest snapshot, for the query's progress."""
        return self._stream.document(self._stream.latest())

    def prepareForTriggerAvailableNow(self) -> None:
        """End at the snapshot that is the latest one now."""
        self._last = self._stream.latest()

    def partitions(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Sequence[spark_source.InputPartition]:
        """The parts of a batch, in the order of its rows."""
        begins, ends = StreamOffset.of(start), StreamOffset.of(end)
        self._position = ends
        if begins == ends:  # PySpark 4.1 passes this when a query resumes
            return []
        with sent_to_driver():
            self._stream.check_same_table(begins)
            return parts_of(self._stream.reads(begins, ends), self._source.place.slots)

    def read(self, partition: spark_source.InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        return rows_of_part(partition, self._schema)

    def commit(self, end: dict[str, Any]) -> None:
        """Record for the consumer that everything before `end` is done."""
        with sent_to_driver():
            self._stream.keep(StreamOffset.of(end))


def _in_folder(path: str, place: Place) -> TableName:
    """The table in a folder of the warehouse."""
    match = _TABLE_FOLDER.fullmatch(path)
    if match is None:
        raise InvalidValueError(
            f"{path} is not the folder of a table.",
            hint="A table's folder is WAREHOUSE/DATABASE.db/TABLE. Or name it: 'shop.orders'.",
        )
    if _plain(match[1]) != _plain(place.warehouse):
        raise InvalidValueError(
            f"{path} is not in the current warehouse, {place.warehouse}.",
            hint="Connect to that warehouse: paimon_magics.connect(warehouse=…), or "
            "register(spark, warehouse=…).",
        )
    return replace(named(quoted(match[3])), database=match[2])


def _plain(warehouse: str) -> str:
    path = re.sub(r"^file:(//)?(?=/)", "", warehouse).rstrip("/")
    return os.path.abspath(path) if "://" not in path else path


def _branch_of(name: TableName, options: Mapping[str, str]) -> TableName:
    """The table itself, in the branch that the options name."""
    branch = options.get("branch", name.branch)
    return replace(name, system_table=None, branch=branch)


def _columns(read: DataRead) -> Sequence[Any]:
    return shown_columns(read.schema.columns, read.view)


def _metadata_schema(rows: pa.Table) -> spark_types.StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    arrow_schema = from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)
    assert isinstance(arrow_schema, spark_types.StructType)
    return arrow_schema


# Conditions that Spark pushes into the data source, as conditions of our planner. Spark also checks
# every row itself, so a condition without a counterpart is left out.

_PUSHED: dict[type[Any], str] = {
    spark_source.EqualTo: "=",
    spark_source.LessThan: "<",
    spark_source.LessThanOrEqual: "<=",
    spark_source.GreaterThan: ">",
    spark_source.GreaterThanOrEqual: ">=",
}


def _column_filters(
    filters: Iterable[spark_source.Filter],
) -> tuple[tuple[ColumnFilter, ...], dict[str, object]]:
    """Return the conditions on columns, and the values of their bind names."""
    bound: dict[str, object] = {}

    def bind(value: object) -> FilterValue:
        name = f"v{len(bound)}"
        bound[name] = value
        return FilterValue("parameter", name)

    conditions: list[ColumnFilter] = []
    for condition in filters:
        match condition:
            case spark_source.IsNull(attribute=(column,)):
                conditions.append(ColumnFilter(column, "is null"))
            case spark_source.IsNotNull(attribute=(column,)):
                conditions.append(ColumnFilter(column, "is not null"))
            case spark_source.In(attribute=(column,), value=values):
                conditions.append(ColumnFilter(column, "in", tuple(map(bind, values))))
            case spark_source.Filter() if type(condition) in _PUSHED:
                compared: Any = condition
                if len(compared.attribute) == 1:
                    operator, values = _PUSHED[type(condition)], (bind(compared.value),)
                    conditions.append(ColumnFilter(compared.attribute[0], operator, values))
    return tuple(conditions), bound


# The rows that a task of the data source reads, and the division of reads among tasks.


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
