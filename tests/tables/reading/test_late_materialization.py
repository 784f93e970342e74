"""Merges that read values last: the same rows, and fewer bytes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pypaimon import Schema

from paimon_magics.errors import TableDamagedError
from paimon_magics.planning.reads.scans import LocalLimits
from paimon_magics.planning.reads.views import ViewKind
from paimon_magics.statements.statement import ColumnFilter, FilterValue, TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.reading import split_reader
from paimon_magics.tables.reading.data_read import DataRead, ReadRequest, plan_data_read
from paimon_magics.tables.reading.keyed_rows import few_rows, splits_of
from paimon_magics.tables.table import Table

FIELDS = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        ("op", pa.string()),
        ("n", pa.int32()),
        ("s", pa.string()),
        ("a", pa.list_(pa.int32())),
    ]
)
ROWS = 3000


def written(catalog: Catalog, options: dict[str, str], runs: list[np.ndarray[Any, Any]]) -> Table:
    """A table with a run for each array of keys."""
    options = {"bucket": "1", "write.native.enabled": "true", "write-only": "true"} | options
    schema = Schema.from_pyarrow_schema(FIELDS, primary_keys=["k"], options=options)
    catalog.paimon.create_database("default", True)
    catalog.paimon.create_table("default.t", schema, False)
    builder = catalog.paimon.get_table("default.t").new_batch_write_builder()
    for number, keys in enumerate(runs):
        writer, commit = builder.new_write(), builder.new_commit()
        deleted = keys % 7 == number
        rows = {
            "k": keys,
            "op": np.where(deleted, "-D", "+I"),
            "n": (keys * 31 % 97 + number * (keys % 3 - 1)).astype(np.int32),
            "s": [f"{number}: {key}" for key in keys],
            "a": [[number, int(key) % 5] if key % 4 else None for key in keys],
        }
        writer.write_arrow(pa.table(rows, schema=FIELDS))
        commit.commit(writer.prepare_commit())
        writer.close()
        commit.close()
        builder = catalog.paimon.get_table("default.t").new_batch_write_builder()
    return catalog.load(TableName("t", "default"))


def whole_rows(read: DataRead) -> list[dict[str, Any]]:
    return [row for batch in read.rows() for row in batch.to_pylist()]


def rows_of(read: DataRead) -> list[str]:
    assert read.planned.splits
    return sorted(str(row) for batch in read.rows() for row in batch.to_pylist())


@pytest.mark.parametrize(
    "options",
    [
        {"rowkind.field": "op"},
        {"rowkind.field": "op", "sequence.field": "n"},
        {"rowkind.field": "op", "ignore-delete": "true"},
        {"merge-engine": "first-row", "batch-scan-mode": "full"},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", [ViewKind.TABLE, ViewKind.AUDIT_LOG], ids=["table", "audit log"])
def test_late_materialization_gives_the_rows_of_a_plain_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], kind: ViewKind
) -> None:
    random = np.random.default_rng(5)
    runs = [random.permutation(ROWS)[: ROWS // part] for part in (1, 2, 10, 50)]
    table = written(Catalog.open({"warehouse": str(tmp_path)}), options, runs)
    for columns in (None, ["s"], ["a", "k"], ["k"]):
        read = plan_data_read(table, ReadRequest(kind, columns=columns), batch_rows=500)
        at_once = rows_of(read)
        monkeypatch.setattr(split_reader, "_LATE_BYTES_MIN", 0)
        (split,) = read.planned.splits
        late = split_reader.takes_late(read.reader.files, read.reader.rule, split.sections[0])
        assert late == (columns != ["k"])
        assert rows_of(read) == at_once
        monkeypatch.undo()


@pytest.mark.parametrize(
    "options",
    [
        {"rowkind.field": "op"},
        {"rowkind.field": "op", "sequence.field": "n", "file.format": "orc"},
        {"rowkind.field": "op", "merge-engine": "partial-update", "ignore-delete": "true"},
        {"merge-engine": "first-row", "batch-scan-mode": "full"},
    ],
    ids=str,
)
def test_few_rows_match_a_full_merge_of_the_wanted_keys(
    tmp_path: Path, options: dict[str, str]
) -> None:
    random = np.random.default_rng(5)
    runs = [random.permutation(ROWS)[: ROWS // part] for part in (1, 2, 10, 50)]
    table = written(Catalog.open({"warehouse": str(tmp_path)}), options, runs)
    every = {row["k"]: row for row in whole_rows(plan_data_read(table, ReadRequest()))}
    wanted = [int(key) for key in random.permutation(ROWS + 50)[:60]]
    condition = ColumnFilter("k", "in", tuple(FilterValue("number", str(key)) for key in wanted))
    value = ColumnFilter("s", "=", (FilterValue("string", "0: 7"),))  # is left to the caller
    read = plan_data_read(table, ReadRequest(filters=(condition, value)), batch_rows=500)
    actual = few_rows(read, splits_of(read), at_most(60))
    assert actual is not None
    rows = sorted(actual.to_pylist(), key=itemgetter("k"))
    assert rows == [every[key] for key in sorted(wanted) if key in every]
    assert few_rows(read, splits_of(read), at_most(10)) is None
    one = ColumnFilter("k", "=", (FilterValue("number", str(ROWS + 1)),))
    empty = plan_data_read(table, ReadRequest(filters=(one,)))
    nothing = few_rows(empty, splits_of(empty), at_most(1))
    assert nothing is not None and nothing.num_rows == 0
    assert nothing.schema.names == FIELDS.names
    # Each change of a key counts, although the key is named.
    changes = ReadRequest(options={"incremental-between": "0,2"}, filters=(condition,))
    window = plan_data_read(table, changes, batch_rows=500)
    few = few_rows(window, splits_of(window), at_most(10_000))
    assert few is not None
    keys = Counter(few.column("k").to_pylist())
    assert keys == Counter(row["k"] for row in whole_rows(window) if row["k"] in wanted)


def at_most(rows: int) -> LocalLimits:
    return LocalLimits(rows, 1 << 30, 1000, by_key=True)


def test_values_of_overwritten_rows_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(split_reader, "_LATE_BYTES_MIN", 0)
    keys = np.arange(ROWS)
    table = written(Catalog.open({"warehouse": str(tmp_path)}), {}, [keys, keys])
    read = plan_data_read(table, ReadRequest())
    (split,) = read.planned.splits
    first = min(split.files, key=lambda file: file.max_sequence_number)
    # What holds its values is gone: only the keys at the file's begin and its footer are left.
    content = bytearray(Path(first.path.removeprefix("file:")).read_bytes())
    chunk = pq.ParquetFile(first.path.removeprefix("file:")).metadata.row_group(0)
    place = next(i for i in range(chunk.num_columns) if chunk.column(i).path_in_schema == "s")
    column = chunk.column(place)
    begin = column.dictionary_page_offset or column.data_page_offset
    content[begin : begin + column.total_compressed_size] = bytes(column.total_compressed_size)
    Path(first.path.removeprefix("file:")).write_bytes(content)
    assert sum(batch.num_rows for batch in read.rows()) == ROWS
    # Changes are not merged, so that they need all of it.
    everything = plan_data_read(table, ReadRequest(options={"incremental-between": "0,2"}))
    with pytest.raises(TableDamagedError, match=first.path.rsplit("/", 1)[-1]):
        list(everything.rows())


def test_error_names_a_file_with_too_few_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(split_reader, "_LATE_BYTES_MIN", 0)
    keys = np.arange(ROWS)
    table = written(Catalog.open({"warehouse": str(tmp_path)}), {}, [keys, keys])
    read = plan_data_read(table, ReadRequest())
    (split,) = read.planned.splits
    chosen = split_reader.ChosenRows(replace(read.reader.files, system=()), split.files[0])
    actual = [batch.num_rows for batch in chosen.rows(np.array([0, 5, ROWS - 1]))]
    assert sum(actual) == 3
    with pytest.raises(TableDamagedError, match=split.files[0].path.rsplit("/", 1)[-1]):
        list(chosen.rows(np.array([ROWS])))
    chosen.close()
