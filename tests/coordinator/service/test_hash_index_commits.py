"""Commits of two pypaimon writers to dynamic buckets through the REST catalog."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory, Schema

from tests.coordinator.rest_server import client_options, served

ARROW = pa.schema([("k", pa.int64()), ("v", pa.string()), ("p", pa.string())])


class Table:
    """A table with dynamic buckets, and rows that are written now and committed later."""

    def __init__(self, catalog: Any, name: str) -> None:
        self._catalog = catalog
        self._name = name

    def prepare(
        self, keys: Sequence[int], partition: str = "x", bucket: int | None = None, v: str = "v"
    ) -> tuple[Any, list[Any]]:
        table = self._catalog.get_table(self._name).copy({"commit.max-retries": "0"})
        builder = table.new_batch_write_builder()
        writing = builder.new_write()
        columns = [list(keys), [v] * len(keys), [partition] * len(keys)]
        rows = pa.table(columns, schema=ARROW)
        writing.write_arrow(rows, **({} if bucket is None else {"bucket": bucket}))
        messages = writing.prepare_commit()
        writing.close()
        return builder, messages

    def commit(self, prepared: tuple[Any, list[Any]]) -> None:
        prepared[0].new_commit().commit(prepared[1])

    def rows(self) -> list[tuple[Any, ...]]:
        builder = self._catalog.get_table(self._name).new_read_builder()
        found = builder.new_read().to_arrow(builder.new_scan().plan().splits())
        return sorted((row["k"], row["p"], row["v"]) for row in found.to_pylist())


@pytest.fixture
def table(warehouse: Path) -> Iterator[Table]:
    with served({"warehouse": str(warehouse)}) as url:
        catalog = CatalogFactory.create(client_options(url, warehouse))
        catalog.create_database("default", True)
        keyed = Schema.from_pyarrow_schema(
            ARROW,
            partition_keys=["p"],
            primary_keys=["p", "k"],
            options={"bucket": "-1", "dynamic-bucket.target-row-num": "3"},
        )
        catalog.create_table("default.t", keyed, False)
        yield Table(catalog, "default.t")


def told(caught: pytest.ExceptionInfo[BaseException]) -> str:
    error: BaseException | None = caught.value
    text = ""
    while error is not None:
        text, error = text + str(error), error.__cause__ or error.__context__
    return text


def test_commit_with_a_stale_index_gets_the_missing_keys(table: Table, warehouse: Path) -> None:
    table.commit(table.prepare([1]))
    first, second = table.prepare([1, 2], v="first"), table.prepare([3], v="second")
    table.commit(first)
    table.commit(second)
    assert [row[::2] for row in table.rows()] == [(1, "first"), (2, "first"), (3, "second")]
    assert len(list((warehouse / "default.db/t/index").iterdir())) == 3, "one of each snapshot"
    table.commit(table.prepare([1, 2, 3], v="new"))
    assert table.rows() == [(k, "x", "new") for k in (1, 2, 3)]


def test_index_keeps_buckets_absent_from_the_commit(table: Table) -> None:
    table.commit(table.prepare([1, 2, 3]))
    first, second = table.prepare([4, 5], v="first"), table.prepare([6], bucket=0, v="second")
    table.commit(first)
    table.commit(second)
    table.commit(table.prepare(range(1, 7), v="new"))
    assert table.rows() == [(k, "x", "new") for k in range(1, 7)]


def test_a_commit_that_puts_a_key_into_another_bucket_is_refused(table: Table) -> None:
    table.commit(table.prepare([1], bucket=0))
    first = table.prepare([5], bucket=1)
    second = table.prepare([5, 6], bucket=2)
    table.commit(first)
    with pytest.raises(Exception) as caught:
        table.commit(second)
    assert "puts 1 key into bucket 2 of the partition p = x" in told(caught)
    assert "that are in bucket 1" in told(caught)


def test_writers_of_different_partitions_do_not_conflict(table: Table) -> None:
    table.commit(table.prepare([1], "x"))
    first, second = table.prepare([2], "x"), table.prepare([2], "y")
    table.commit(first)
    table.commit(second)
    assert [row[:2] for row in table.rows()] == [(1, "x"), (2, "x"), (2, "y")]


def test_a_writer_that_adds_no_keys_is_not_refused(table: Table) -> None:
    table.commit(table.prepare([1, 2]))
    first, second = table.prepare([3]), table.prepare([1], v="new")
    table.commit(first)
    table.commit(second)
    assert table.rows() == [(1, "x", "new"), (2, "x", "v"), (3, "x", "v")]


def test_many_buckets_fill_up_in_sequence(table: Table) -> None:
    for first in range(0, 20, 4):
        table.commit(table.prepare(range(first, first + 6)))
    assert [row[0] for row in table.rows()] == list(range(22))


def test_an_overwrite_replaces_the_index_too(table: Table) -> None:
    table.commit(table.prepare([1, 2]))
    loaded = table._catalog.get_table("default.t")
    builder = loaded.new_batch_write_builder().overwrite({"p": "x"})
    writing = builder.new_write()
    writing.write_arrow(pa.table([[9], ["v"], ["x"]], schema=ARROW))
    builder.new_commit().commit(writing.prepare_commit())
    assert table.rows() == [(9, "x", "v")]
    table.commit(table.prepare([1, 9], v="new"))
    assert table.rows() == [(1, "x", "new"), (9, "x", "new")]
