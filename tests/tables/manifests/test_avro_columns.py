"""Avro files of any writer as columns: compressions, and schemas that are unions."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pytest

from paimon_magics.tables.manifests.avro_columns import avro_columns

INNER = {"type": "record", "name": "inner", "fields": [{"name": "n", "type": ["null", "long"]}]}
RECORD: dict[str, Any] = {
    "type": "record",
    "name": "outer",
    "fields": [
        {"name": "text", "type": "string"},
        {"name": "inner", "type": ["null", INNER], "default": None},
        {"name": "texts", "type": {"type": "array", "items": "string"}},
    ],
}
RECORDS = [
    {"text": f"text {place}", "inner": {"n": place or None}, "texts": ["a"] * place}
    for place in range(50)
]
CODECS = ["null", "deflate", "snappy", "zstandard"]


def written(schema: Any, records: list[dict[str, Any]], codec: str) -> bytes:
    content = io.BytesIO()
    fastavro.writer(content, schema, records, codec=codec, sync_interval=200)
    return content.getvalue()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("schema", [RECORD, ["null", RECORD]], ids=["record", "union"])
def test_records_of_any_schema_and_compression_are_read(schema: Any, codec: str) -> None:
    assert avro_columns(written(schema, RECORDS, codec)).to_pylist() == RECORDS


def test_block_without_records_is_accepted() -> None:
    content = written(RECORD, RECORDS[:1], "snappy")
    sync = content[-16:]
    empty = b"\x00" + b"\x08" + b"\x00" * 4 + sync  # no record, and four bytes: a checksum
    assert avro_columns(content + empty).to_pylist() == RECORDS[:1]


@pytest.mark.parametrize("codec", CODECS)
def test_damaged_files_raise_an_error(codec: str) -> None:
    content = written(["null", RECORD], RECORDS, codec)
    with pytest.raises(ValueError, match=r"it|block"):
        avro_columns(content[:-30])
    at = len(content) - 40
    damaged = content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]
    if codec in ("snappy", "zstandard", "deflate"):
        with pytest.raises(ValueError, match=r"damaged|it "):
            avro_columns(damaged)


def test_error_names_an_unknown_compression() -> None:
    content = written(RECORD, RECORDS, "bzip2")
    with pytest.raises(ValueError, match="compressed by bzip2, which is not offered"):
        avro_columns(content)


def test_null_record_is_refused() -> None:
    with pytest.raises(ValueError, match="one of its records is NULL"):
        avro_columns(written(["null", RECORD], [RECORDS[0], None], "null"))  # type: ignore[list-item]
