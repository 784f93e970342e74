"""Rows of primary-key tables flushed from a writer's buffers: the native writer is the oracle."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from pypaimon.utils.file_store_path_factory import canonical_data_file_path

from paimon_magics.columnar.merging import KIND, SEQUENCE
from paimon_magics.errors import JobError
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.settings import Settings
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.commit_messages import read_messages
from paimon_magics.tables.writing.native_writer import buffer_options, native_table
from paimon_magics.tables.writing.own_writers import FlushTable, flush_table
from paimon_magics.tables.writing.table_write import completed, write_spec
from paimon_magics.tables.writing.writer import write_batches
from tests.faults.appending import TABLE, committer_of
from tests.tables.manifest_files import create
from tests.tables.writing.test_file_indexes import catalog_of

COLUMNS = "(k BIGINT, t STRING, a INT, b STRING, d TIMESTAMP_NTZ, kind STRING)"
ENGINES = {
    "deduplicate": "",
    "deduplicate, input": "'changelog-producer' = 'input', 'rowkind.field' = 'kind'",
    "deduplicate, kinds": "'rowkind.field' = 'kind'",
    "deduplicate, ignore-delete": "'rowkind.field' = 'kind', 'ignore-delete' = 'true'",
    "deduplicate, ignore-update-before": "'rowkind.field' = 'kind', "
    "'changelog-producer' = 'input', 'ignore-update-before' = 'true'",
    "deduplicate, sequence": "'sequence.field' = 'd,a', 'rowkind.field' = 'kind'",
    "deduplicate, descending": "'sequence.field' = 'a', 'sequence.field.sort-order' = 'descending'",
    "first-row": "'merge-engine' = 'first-row'",
    "first-row, ignore-delete": "'merge-engine' = 'first-row', 'rowkind.field' = 'kind', "
    "'ignore-delete' = 'true'",
    "partial-update": "'merge-engine' = 'partial-update'",
    "partial-update, sequence": "'merge-engine' = 'partial-update', 'sequence.field' = 'a', "
    "'changelog-producer' = 'input'",
    "partial-update, ignore-delete": "'merge-engine' = 'partial-update', "
    "'rowkind.field' = 'kind', 'ignore-delete' = 'true'",
    "partial-update, remove": "'merge-engine' = 'partial-update', 'rowkind.field' = 'kind', "
    "'partial-update.remove-record-on-delete' = 'true'",
}


def table_of(folder: Path, options: str, keys: str = "k,t", buckets: int = 1) -> Table:
    given = f"'primary-key' = '{keys}', 'bucket' = '{buckets}'"
    return create(
        folder,
        f"CREATE TABLE t {COLUMNS} TBLPROPERTIES ({given}{', ' if options else ''}{options})",
    )


def random_rows(table: Table, seed: int, count: int) -> pa.RecordBatch:
    chance = random.Random(seed)
    rows = [
        {
            "k": chance.randrange(-9, 9),
            "t": chance.choice(["", "a", "\u00e4", "\U0001f600", "\uffee"]),
            "a": chance.choice([None, chance.randrange(-3, 3)]),
            "b": chance.choice([None, f"b{chance.randrange(99)}"]),
            "d": chance.choice([None, chance.randrange(-(10**15), 10**15)]),
            "kind": chance.choice(["+I", "+U", "-U", "-D", "+I"]),
        }
        for _ in range(count)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(table.schema))


def stored(table: Table, message: Any, files: Sequence[Any]) -> Iterator[list[tuple[Any, ...]]]:
    """The rows of files, with their kinds and sequence numbers, in the files' order."""
    names = [SEQUENCE, KIND, *table.schema.column_names]
    for file in files:
        path = canonical_data_file_path(table.paimon, (), message.bucket, file.file_name)
        read = pyarrow.orc.read_table if path.endswith(".orc") else pq.read_table
        yield list(zip(*(read(path)[name].to_pylist() for name in names), strict=True))


def told(file: Any) -> tuple[Any, ...]:
    """What a message says of a file that does not depend on the writer."""
    return (
        file.row_count,
        file.delete_row_count,
        file.min_sequence_number,
        file.max_sequence_number,
        file.level,
        file.file_source,
        file.schema_id,
        list(file.min_key.values),
        list(file.max_key.values),
        list(file.key_stats.min_values.values),
        list(file.key_stats.max_values.values),
        list(file.key_stats.null_counts),
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_flush_writer_writes_the_rows_of_the_native_writer(engine: str, tmp_path: Path) -> None:
    table = table_of(tmp_path, ENGINES[engine])
    for seed in range(6):
        rows = random_rows(table, seed, 10 + 40 * seed)
        batches = [rows.slice(start, 30) for start in range(0, rows.num_rows, 30)]
        actual = []
        for opened in (
            native_table(table, buffer_options(table.schema, slots=1)),
            flush_table(table, "pm-flushed-"),
        ):
            writer = opened.writer("somebody", overwrite=False)
            for batch in batches:
                writer.write(batch, 0)
            messages = list(read_messages(table.paimon, writer.messages()))
            writer.close()
            files = [(each, [*each.new_files, *each.changelog_files]) for each in messages]
            actual.append([[*stored(table, *both), *map(told, both[1])] for both in files])
        assert actual[0] and actual[0] == actual[1], f"{engine}, seed {seed}"


def test_row_kinds_may_come_as_an_extra_column(tmp_path: Path) -> None:
    table = table_of(tmp_path, "", keys="k")
    rows = random_rows(table, 1, 3)
    rows = rows.set_column(0, rows.schema.field(0), pa.array([1, 2, 3], pa.int64()))
    writer = flush_table(table, "pm-flushed-").writer("somebody", overwrite=False)
    writer.write(rows.append_column(KIND, pa.array([3, 0, 2], pa.int8())), 0)
    [message] = read_messages(table.paimon, writer.messages())
    [actual] = stored(table, message, message.new_files)
    assert [row[1:3] for row in actual] == [(3, 1), (0, 2), (2, 3)]
    assert message.new_files[0].delete_row_count == 1


def commit_rows(table: Table, rows: pa.RecordBatch, *, overwrite: bool = False) -> Any:
    """Write and commit rows as a statement does; return the message of the only bucket."""
    committer = committer_of(catalog_of(table))
    transaction = committer.begin(TABLE)
    spec = write_spec(table, transaction, overwrite=overwrite, slots=1, settings=Settings())
    assert isinstance(spec.table, FlushTable)
    written = completed(table, spec, write_batches(spec, [rows]), transaction.base_snapshot_id)
    [message] = read_messages(table.paimon, written.messages)
    committer.commit(CommitRequest(transaction, Append(), written.messages))
    return message


def test_sequence_numbers_continue_within_a_bucket(tmp_path: Path) -> None:
    table = table_of(tmp_path, "")
    ranges = []
    for seed in range(3):
        [file] = commit_rows(table, random_rows(table, seed, 50)).new_files
        ranges.append((file.min_sequence_number // 50, file.max_sequence_number))
    assert ranges == [(0, 49), (1, 99), (2, 149)]
    [file] = commit_rows(table, random_rows(table, 3, 50), overwrite=True).new_files
    assert file.max_sequence_number == 49


def test_full_buffer_is_flushed_to_separate_files(tmp_path: Path) -> None:
    table = table_of(tmp_path, "'write-buffer-size' = '100 kb', 'target-file-size' = '1 gb'")
    opened = flush_table(table, "pm-flushed-")
    writer = opened.writer("somebody", overwrite=False)
    batches = [random_rows(table, seed, 500) for seed in range(12)]
    size_bytes = sum(batch.nbytes for batch in batches)
    for batch in batches:
        writer.write(batch, 0)
        writer.write(batch.slice(0, 1), 1)  # a small bucket waits, the largest is flushed
    messages = list(read_messages(table.paimon, writer.messages()))
    large, small = (message.new_files for message in messages)
    assert 1 < len(large) < 12 and size_bytes > 2 * 100 * 1024
    assert len(small) == 1
    assert len({file.file_name for file in [*large, *small]}) == len(large) + 1
    ranges = [(file.min_sequence_number, file.max_sequence_number) for file in large]
    assert ranges == sorted(ranges) and ranges[-1][1] == 5_999
    latest = {row[2:4]: row[0] for rows in stored(table, messages[0], large) for row in rows}
    given = [row for batch in batches for row in batch.select(["k", "t"]).to_pylist()]
    assert latest == {(row["k"], row["t"]): number for number, row in enumerate(given)}


def test_files_have_the_format_of_level_0(tmp_path: Path) -> None:
    options = "'file.format.per.level' = '0:orc', 'changelog-producer' = 'input', "
    table = table_of(tmp_path, f"{options}'changelog-file.format' = 'parquet'")
    rows = random_rows(table, 1, 200)
    rows = rows.set_column(4, rows.schema.field(4), pa.nulls(200, rows.schema.field(4).type))
    message = commit_rows(table, rows)
    [data], [changelog] = message.new_files, message.changelog_files
    assert data.file_name.endswith(".orc") and changelog.file_name.endswith(".parquet")
    [of_data] = stored(table, message, [data])
    [of_changelog] = stored(table, message, [changelog])
    assert len(of_data) == data.row_count < len(of_changelog) == 200
    assert set(of_data) < set(of_changelog)


def test_failed_merge_leaves_no_files(tmp_path: Path) -> None:
    table = table_of(tmp_path, "'merge-engine' = 'first-row', 'rowkind.field' = 'kind'")
    writer = flush_table(table, "pm-flushed-").writer("somebody", overwrite=False)
    writer.write(random_rows(table, 1, 300), 0)
    with pytest.raises(JobError, match="ignore-delete"):
        writer.messages()
    writer.close()
    assert not list(Path(table.location).glob("bucket-*/*"))


def test_buffered_slice_does_not_keep_its_batch_in_memory(tmp_path: Path) -> None:
    table = table_of(tmp_path, "'write-buffer-size' = '2 mb'", keys="k", buckets=2)
    count, few = 5_000, 50
    size_bytes = 0
    before = pa.total_allocated_bytes()
    writer = flush_table(table, "pm-flushed-").writer("somebody", overwrite=False)
    for number in range(40):
        keys = range(number * count, (number + 1) * count)
        rows = pa.RecordBatch.from_pylist(
            [{"k": key, "t": "t", "b": "b" * 100} for key in keys],
            schema=arrow_schema(table.schema),
        )
        size_bytes += rows.nbytes
        writer.write(rows.slice(0, count - few), 0)
        writer.write(rows.slice(count - few), 1)  # as rows that come sorted by bucket
        del rows
    held = pa.total_allocated_bytes() - before
    writer.close()
    assert size_bytes > 16 * 2**20 and held < 6 * 2**20, (size_bytes, held)


def test_buffer_size_is_capped_at_the_limit_of_arrow(tmp_path: Path) -> None:
    for given, expected in {"64 mb": 64 * 2**20, "3 gb": 2**30}.items():
        table = table_of(tmp_path / given[0], f"'write-buffer-size' = '{given}'")
        assert flush_table(table, "pm-").buffer_bytes == expected
