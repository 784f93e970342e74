"""Avro files, as Paimon's manifests are, that a benchmark makes anew with other records."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import fastavro

__all__ = ["records_of", "replace_records"]


def records_of(file: Path) -> list[Any]:
    """The records of an Avro file."""
    return list(fastavro.reader(io.BytesIO(file.read_bytes())))


def replace_records(file: Path, records: Iterable[Any]) -> None:
    """Write an Avro file anew with other records of its schema."""
    schema = fastavro.reader(io.BytesIO(file.read_bytes())).writer_schema
    out = io.BytesIO()
    fastavro.writer(out, schema, records, codec="zstandard")  # type: ignore[arg-type]
    file.write_bytes(out.getvalue())
