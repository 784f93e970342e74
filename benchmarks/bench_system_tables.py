"""The time of the system tables about files for a table of 100,000 files, compared with pypaimon's.

The aim: a few seconds. The files are entries of one manifest, with keys and statistics of eleven
columns; there are no data files, since none is opened. `FILES` in the environment sets the number.
"""

from __future__ import annotations

import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from avro_files import records_of, replace_records
from pypaimon.table.system import system_table_loader

from paimon_magics.coordinator.client.in_process import InProcessCommitter
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.planning.schemas.table_schema import plan_create_table
from paimon_magics.settings import Settings
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable, TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.system_tables.registry import metadata_table
from paimon_magics.tables.writing.bucket_counts import BucketRule
from paimon_magics.tables.writing.native_writer import native_table
from paimon_magics.tables.writing.write_spec import WriteSpec
from paimon_magics.tables.writing.writer import write_batches

FILES = int(os.environ.get("FILES", "100000"))
_RUNS = 5
NAME = TableName("files", "default")
_TYPES = (
    *("INT", "BIGINT", "STRING", "DOUBLE", "DATE"),
    *("TIMESTAMP", "DECIMAL(12,2)", "BOOLEAN", "SMALLINT", "FLOAT"),
)


def main() -> None:
    """Print the median of five runs for each table, and the time of one run of pypaimon's."""
    with tempfile.TemporaryDirectory() as folder:
        catalog = Catalog.open({"warehouse": folder})
        fill(catalog)
        for system_table in ("files", "file_key_ranges", "partitions", "buckets"):
            name = TableName(NAME.table, NAME.database, system_table=system_table)
            taken = [seconds(lambda n=name: metadata_table(catalog, n)) for _ in range(_RUNS)]
            print(f"{system_table:16} {statistics.median(taken):6.2f} s")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(f"{'peak memory':16} {peak:6} MB")
        paimon = catalog.load(NAME).paimon
        builder = system_table_loader.load("files", paimon).new_read_builder()
        took = seconds(lambda: builder.new_read().to_arrow(builder.new_scan().plan().splits()))
        print(f"{'pypaimon, files':16} {took:6.2f} s")


def seconds(work: Callable[[], object]) -> float:
    """The seconds that `work` takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def fill(catalog: Catalog, *, buckets: bool = False) -> None:
    """Create a table whose one manifest has `FILES` entries. With `buckets`, the files of a
    partition are each in a bucket of their own."""
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(_TYPES))
    statement = parse_statement(
        f"CREATE TABLE files (k INT NOT NULL, {columns}, p STRING NOT NULL) PARTITIONED BY (p) "
        "TBLPROPERTIES ('primary-key' = 'p,k', 'bucket' = '1')"
    )
    assert isinstance(statement, CreateTable)
    catalog.create_table(NAME, plan_create_table(statement))
    committer = InProcessCommitter(catalog, Settings())
    opened = committer.begin(NAME)
    table = catalog.load(NAME)
    schema = arrow_schema(table.schema)
    task = WriteSpec(
        table=native_table(table, {"data-file.prefix": opened.file_prefix + "data-"}),
        commit_user=opened.commit_user,
        schema=schema.serialize().to_pybytes(),
        partition_keys=table.schema.partition_keys,
        bucket_rule=BucketRule(table.schema.bucket_keys, table.schema.bucket),
        overwrite=False,
        attempts_folder=opened.attempts_folder,
    )
    strings = pa.array([str(number) for number in range(10)])
    rows = pa.RecordBatch.from_arrays(
        [_column(strings, field.type) for field in schema], schema=schema
    )
    committer.commit(CommitRequest(opened, Append(), write_batches(task, [rows]).messages))
    (manifest,) = (
        path
        for path in Path(table.location, "manifest").glob("manifest-*")
        if "list" not in path.name
    )
    replace_records(manifest, _entries(records_of(manifest), buckets))


def _column(strings: pa.Array, data_type: pa.DataType) -> pa.Array:
    numbers = strings.cast(pa.int32())
    if pa.types.is_string(data_type):
        return strings
    if pa.types.is_timestamp(data_type):
        return numbers.cast(pa.int64()).cast(data_type)
    return numbers.cast(data_type)


def _entries(entries: list[Any], buckets: bool) -> Iterator[Any]:
    for number in range(FILES):
        entry = entries[number % len(entries)]
        file = {**entry["_FILE"], "_FILE_NAME": f"{number:08}-{entry['_FILE']['_FILE_NAME']}"}
        bucket = number // len(entries) if buckets else entry["_BUCKET"]
        yield {**entry, "_BUCKET": bucket, "_FILE": file}


if __name__ == "__main__":
    main()
