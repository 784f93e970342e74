"""Bounds of a file's columns, which come from the footer where it has them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_magics.columnar.binary_rows import decode_rows
from paimon_magics.planning.writes.file_rules import FileRules, Statistics
from paimon_magics.tables.writing.key_value_files import (
    FileCreation,
    KeyValueFiles,
    KeyValueFileWriter,
)

SCHEMA = pa.schema(
    [
        ("n", pa.struct([("x", pa.int32()), ("y", pa.map_(pa.string(), pa.int32()))])),
        ("l", pa.list_(pa.string())),
        ("c", pa.string()),
        ("a.b", pa.binary()),
        ("i", pa.int32()),
    ]
)


def values(draw: random.Random, count: int, lengths: tuple[int, ...]) -> list[str | None]:
    letters = "aäz\uffee\U0001f600"
    return [
        None if draw.random() < 0.3 else draw.choice(letters) * draw.choice(lengths)
        for _ in range(count)
    ]


def rows(draw: random.Random, lengths: tuple[int, ...]) -> pa.RecordBatch:
    count = draw.randrange(1, 40)
    texts = values(draw, count, lengths)
    binaries = [
        None if each is None else each.encode()[::-1] for each in values(draw, count, lengths)
    ]
    columns: dict[str, Any] = {
        "n": [{"x": 1, "y": [("k", 1)]} if draw.random() < 0.5 else None for _ in range(count)],
        "l": [["a"] * draw.randrange(3) for _ in range(count)],
        "c": texts,
        "a.b": binaries,
        "i": list(range(count)),
    }
    if draw.random() < 0.2:
        columns["c"] = [None] * count
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
@pytest.mark.parametrize("chance_of_long", [0.0, 0.2, 1.0])
def test_bounds_of_texts_and_binaries_are_exact(
    tmp_path: Path, file_format: str, chance_of_long: float
) -> None:
    statistics = dict.fromkeys(SCHEMA.names, Statistics())
    files = KeyValueFiles(
        creation=FileCreation(),
        schema=SCHEMA.serialize().to_pybytes(),
        keys=(),
        floats=(),
        rules=FileRules(file_format, "none", 1, statistics, row_group_rows=50),
        target_bytes=1 << 30,
        schema_id=0,
        level=0,
        system="none",
    )
    for seed in range(12):
        draw = random.Random(seed)
        writer = KeyValueFileWriter(files, str(tmp_path), f"f{seed}")
        given = []
        for _ in range(draw.randrange(1, 12)):
            lengths = (0, 1, 20, 5_000) if draw.random() < chance_of_long else (0, 1, 20)
            given.append(rows(draw, lengths))
            writer.write(given[-1])
            if draw.random() < 0.3:
                writer.write_waiting()
        [file] = writer.finish()
        ends = pa.array([file.value_bounds.least, file.value_bounds.greatest], pa.large_binary())
        actual = dict(zip(SCHEMA.names, decode_rows(ends, SCHEMA.types), strict=True))
        table = pa.Table.from_batches(given)
        for name in ("c", "a.b"):
            known = [each for each in table[name].to_pylist() if each is not None]
            by_bytes = sorted(
                known, key=lambda each: each.encode() if isinstance(each, str) else each
            )
            expected = [by_bytes[0], by_bytes[-1]] if known else [None, None]
            assert actual[name].to_pylist() == expected, (name, seed)
        assert file.value_bounds.null_counts[2:4] == (
            table["c"].null_count,
            table["a.b"].null_count,
        )
        if file_format == "parquet":
            assert pq.ParquetFile(tmp_path / file.name).metadata.num_rows == table.num_rows
