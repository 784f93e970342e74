"""A small Arrow stream that stands for much more than a request may have is refused unpacked."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from paimon_magics.coordinator.inserts.loading.rows import conformed_stream
from paimon_magics.coordinator.protocol.errors import OversizedError
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.types.type_text import from_paimon
from tests.coordinator.inserts.serving import SLOW, Served, table_sql

KIND = {"content-type": "application/vnd.apache.arrow.stream"}
NAME = TableName("t", "default")
LIMIT = 16 * 2**20


def stream(table: pa.Table, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def texts() -> bytes:
    return stream(pa.table({"name": pa.array(["a" * 2**20] * 40)}), "zstd")


def lz4() -> bytes:
    return stream(pa.table({"name": pa.array(["a" * 2**20] * 40)}), "lz4")


def numbers() -> bytes:
    return stream(pa.table({"id": pa.repeat(pa.scalar(0, pa.int64()), 3_000_000)}), "zstd")


def nulls() -> bytes:
    return stream(pa.table({"name": pa.nulls(60_000_000)}))


def lists_of_nulls() -> bytes:
    lists = pa.FixedSizeListArray.from_arrays(pa.nulls(60_000_000), 60_000_000)
    return stream(pa.table({"name": lists}))


def dictionary() -> bytes:
    indices = pa.repeat(pa.scalar(0, pa.int8()), 1_000)
    values = pa.DictionaryArray.from_arrays(indices, pa.array(["a" * 2**20]))
    return stream(pa.table({"name": values}))


def lists_of_dictionaries() -> bytes:
    indices = pa.repeat(pa.scalar(0, pa.int8()), 1_000)
    values = pa.DictionaryArray.from_arrays(indices, pa.array(["a" * 2**20]))
    return stream(pa.table({"name": pa.ListArray.from_arrays([0, 1_000], values)}))


def dictionary_batch() -> bytes:
    values = pa.DictionaryArray.from_arrays(pa.array([0]), pa.array(["a" * 40 * 2**20]))
    return stream(pa.table({"name": values}), "zstd")


def views() -> bytes:
    text = b"a" * 2**20
    view = struct.pack("<i4sii", len(text), text[:4], 0, 0)
    buffers = [None, pa.py_buffer(view * 1_000), pa.py_buffer(text)]
    return stream(pa.table({"name": pa.Array.from_buffers(pa.string_view(), 1_000, buffers)}))


BOMBS = [
    texts,
    lz4,
    numbers,
    nulls,
    lists_of_nulls,
    dictionary,
    lists_of_dictionaries,
    dictionary_batch,
    views,
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("sizes"), table_sql(options=SLOW)) as served:
        yield served


@pytest.mark.parametrize("bomb", BOMBS)
def test_stream_too_large_when_unpacked_is_refused(
    served: Served, bomb: Callable[[], bytes]
) -> None:
    body = bomb()
    assert len(body) < LIMIT
    answer = served.call("POST", "", body, KIND)
    assert answer.status_code == 413, answer.text
    assert "--request-bytes-max" in answer.json()["error"]["hint"]
    assert served.queue()["acknowledged"] == 0


ALLOWED = [
    pa.table({"id": pa.array(range(100_000)), "name": pa.array(["text"] * 100_000)}),
    pa.table({"name": pa.array(["a", None, "bc"] * 100).dictionary_encode()}),
    pa.table({"name": pa.array(["a", None, "a text of more than twelve"], pa.string_view())}),
    pa.table({"name": pa.nulls(1_000)}),
    pa.table({"name": pa.array([], pa.string_view())}),
    pa.table({"name": pa.array([b"a", None]).dictionary_encode()}),
]


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
@pytest.mark.parametrize("table", ALLOWED)
def test_streams_within_the_limit_are_read_unchanged(
    table: pa.Table, compression: str | None
) -> None:
    columns = Column(0, "id", from_paimon("BIGINT")), Column(1, "name", from_paimon("STRING"))
    schema = TableSchema(columns)
    rows, payload = conformed_stream(NAME, stream(table, compression), schema, LIMIT)
    plain = table.column("name").cast(pa.string())
    actual = pa.ipc.open_stream(payload).read_all()
    assert (rows, actual.column("name").to_pylist()) == (len(plain), plain.to_pylist())


def test_unpacked_size_limit_is_configurable() -> None:
    schema = TableSchema((Column(0, "id", from_paimon("BIGINT")),))
    body = stream(pa.table({"id": pa.repeat(pa.scalar(0, pa.int64()), 1_000)}), "zstd")
    assert conformed_stream(NAME, body, schema, 8_000)[0] == 1_000
    with pytest.raises(OversizedError, match="more than 7,999 bytes when it is unpacked"):
        conformed_stream(NAME, body, schema, 7_999)


def test_memory_error_is_not_blamed_on_the_rows() -> None:
    """A value of 1 MiB that stands in 2,000 rows, in a process that has no memory for them."""
    script = f"""
import resource
import pyarrow as pa
from paimon_magics.coordinator.inserts.loading.rows import conformed_stream, entries_of
from paimon_magics.coordinator.inserts.log.records import Format, Record
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.types.type_text import from_paimon
from tests.coordinator.inserts.test_stream_sizes import dictionary
schema = TableSchema((Column(0, "name", from_paimon("STRING")),))
body = dictionary()
record = Record(1, Format.ARROW, 0, 1_000, 0, body)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 200 * 2**20,) * 2)
for read in (
    lambda: conformed_stream(TableName("{NAME.table}", "{NAME.database}"), body, schema),
    lambda: entries_of([record], {{0: schema}}, schema),
):
    try:
        print(read())
    except MemoryError:
        print("no memory")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == ["no memory"] * 2, done
