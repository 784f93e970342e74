"""Commit messages as bytes: those of pypaimon's own serialiser, in both directions."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import date
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from pypaimon.data.timestamp import Timestamp
from pypaimon.globalindex.global_index_meta import GlobalIndexMeta
from pypaimon.index.deletion_vector_meta import DeletionVectorMeta
from pypaimon.index.index_file_meta import IndexFileMeta
from pypaimon.manifest.index_manifest_entry import IndexManifestEntry
from pypaimon.manifest.schema.data_file_meta import DataFileMeta
from pypaimon.manifest.schema.simple_stats import SimpleStats
from pypaimon.schema.data_types import AtomicType, DataField
from pypaimon.table.row.generic_row import GenericRow, GenericRowSerializer
from pypaimon.write.commit_message import CommitMessage
from pypaimon.write.commit_message_serializer import (
    deserialize_commit_message,
    serialize_commit_message,
)

from paimon_magics.tables.writing.commit_messages import read_messages, write_message

_PARTITION = [DataField(0, "dt", AtomicType("DATE")), DataField(1, "p", AtomicType("STRING"))]
_KEY = [
    DataField(2, "k", AtomicType("STRING")),
    DataField(3, "n", AtomicType("BIGINT")),
    DataField(4, "d", AtomicType("DECIMAL(30, 2)")),
]
_LISTS = [
    each.name for each in fields(CommitMessage) if each.name.endswith(("files", "before", "after"))
]
_INDEXES = [each.name for each in fields(CommitMessage) if "index" in each.name]
_TEXTS = ("", "a", "sevenby", "eightbyt", "ein längerer Text, 字", "\0x" * 9)


def _table(partition: list[DataField], key: list[DataField]) -> Any:
    return SimpleNamespace(partition_keys_fields=partition, trimmed_primary_keys_fields=key)


def _row(random_: random.Random, row_fields: list[DataField]) -> GenericRow:
    values = {
        "DATE": date(2026, 11, random_.randint(1, 28)),
        "STRING": random_.choice(_TEXTS),
        "BIGINT": random_.randint(-(2**63), 2**63 - 1),
        "DECIMAL(30, 2)": Decimal(random_.randint(-(10**29), 10**29)) / 100,
    }
    chosen = [values[field.type.type] for field in row_fields]
    return GenericRow([None if random_.random() < 0.2 else each for each in chosen], row_fields)


def _statistics(random_: random.Random, row_fields: list[DataField]) -> SimpleStats:
    counts = [random_.choice([None, 0, 5, 2**40]) for _ in row_fields]
    return SimpleStats(_row(random_, row_fields), _row(random_, row_fields), counts)


def _file(random_: random.Random, key: list[DataField]) -> DataFileMeta:
    def maybe(value: Any) -> Any:
        return value if random_.random() < 0.5 else None

    def texts() -> list[str]:
        return [random_.choice(_TEXTS) for _ in range(random_.choice([0, 1, 3, 40]))]

    return DataFileMeta(
        file_name=f"data-{random_.random()}.parquet",
        file_size=random_.randint(0, 2**40),
        row_count=random_.randint(0, 2**40),
        min_key=_row(random_, key),
        max_key=_row(random_, key),
        key_stats=_statistics(random_, key),
        value_stats=_statistics(random_, _KEY * random_.randint(0, 30)),
        min_sequence_number=random_.randint(-1, 99),
        max_sequence_number=random_.randint(0, 2**60),
        schema_id=random_.randint(0, 9),
        level=random_.randint(0, 5),
        extra_files=texts(),
        creation_time=maybe(Timestamp.from_epoch_millis(random_.randint(0, 2**41))),
        delete_row_count=maybe(0),
        embedded_index=maybe(random_.randbytes(random_.choice([0, 5, 7, 8, 200]))),
        file_source=maybe(1),
        value_stats_cols=maybe(texts()),
        external_path=maybe("s3://elsewhere/file.parquet"),
        first_row_id=maybe(17),
        write_cols=maybe(texts()),
        write_cols_sequences=maybe([1, 2, 3]),
    )


def _index(random_: random.Random, kind: int, partition: GenericRow) -> IndexManifestEntry:
    vectors = {
        name: DeletionVectorMeta(name, 1, 2**20, random_.choice([None, 7]))
        for name in (f"data-{number}.parquet" for number in range(random_.randint(0, 40)))
    }
    whole = GlobalIndexMeta(0, 2**40, 3, random_.choice([None, [], [1, -2, 3]]), b"m" * 9, None)
    meta = IndexFileMeta(
        index_type=random_.choice(["HASH", "DELETION_VECTORS"]),
        file_name=f"index-{random_.random()}",
        file_size=random_.randint(0, 2**40),
        row_count=random_.randint(0, 2**40),
        dv_ranges=random_.choice([None, vectors]),
        external_path=random_.choice([None, "s3://elsewhere/index"]),
        global_index_meta=random_.choice([None, whole]),
    )
    return IndexManifestEntry(kind, partition, 3, meta)


def _message(
    random_: random.Random, partition_fields: list[DataField], key: list[DataField]
) -> CommitMessage:
    partition = _row(random_, partition_fields)
    message = CommitMessage(
        partition=tuple(partition.values),
        bucket=random_.randint(-2, 2**31 - 1),
        new_files=[],
        check_from_snapshot=random_.choice([None, -1, 2**40]),
        total_buckets=random_.choice([None, -1, 12]),
    )
    files = {name: [_file(random_, key) for _ in range(random_.randint(0, 2))] for name in _LISTS}
    indexes = {
        name: [
            _index(random_, 1 if name.endswith("deletes") else 0, partition)
            for _ in range(random_.randint(0, 2))
        ]
        for name in _INDEXES
    }
    return replace(message, **files, **indexes)


@pytest.mark.parametrize("key", [_KEY, []], ids=["keys", "append"])
@pytest.mark.parametrize("partition", [_PARTITION, []], ids=["partitions", "whole"])
def test_messages_match_pypaimons_serialiser(
    partition: list[DataField], key: list[DataField]
) -> None:
    random_ = random.Random(7)
    table = _table(partition, key)
    for _ in range(40):
        message = _message(random_, partition, key)
        body = write_message(table, message)
        assert body == serialize_commit_message(message, partition)
        [ours] = read_messages(table, [body])
        theirs = deserialize_commit_message(body, partition, key, version=14)
        for name in _LISTS:
            assert list(map(_members, getattr(ours, name))) == list(
                map(_members, getattr(theirs, name))
            )
        for name in _INDEXES:
            assert [_entry(each) for each in getattr(ours, name)] == [
                _entry(each) for each in getattr(theirs, name)
            ]
        assert (ours.partition, ours.bucket, ours.total_buckets, ours.check_from_snapshot) == (
            theirs.partition, theirs.bucket, theirs.total_buckets, theirs.check_from_snapshot,
        )  # fmt: skip
        assert write_message(table, ours) == body
        if key:
            read = [file for name in _LISTS for file in getattr(ours, name)]
            before = [file for name in _LISTS for file in getattr(message, name)]
            assert [file.min_key.values for file in read] == [f.min_key.values for f in before]


def _members(file: DataFileMeta) -> list[Any]:
    """The members of a file, with rows as their bytes."""
    stats = (file.key_stats, file.value_stats)
    rows = [file.min_key, file.max_key]
    rows += [row for each in stats for row in (each.min_values, each.max_values)]
    others = [
        getattr(file, each.name)
        for each in fields(DataFileMeta)
        if each.name not in ("min_key", "max_key", "key_stats", "value_stats")
    ]
    encoded = [GenericRowSerializer.to_bytes(row) for row in rows]
    return [*others, *encoded, *(each.null_counts for each in stats)]


def _entry(entry: IndexManifestEntry) -> tuple[Any, ...]:
    meta = entry.index_file
    return (
        entry.kind, entry.partition, entry.bucket,
        *(getattr(meta, each.name) for each in fields(IndexFileMeta)),
    )  # fmt: skip


def _body() -> bytes:
    message = CommitMessage((), 0, [replace(_file(random.Random(1), _KEY), external_path=None)])
    return write_message(_table([], _KEY), message)


@pytest.mark.parametrize(
    "damage",
    [
        lambda body: b"",
        lambda body: body[:-1],
        lambda body: body + b"\0",
        lambda body: body[: len(body) // 2],
        lambda body: b"\xff" * len(body),
        lambda body: body.replace(b"\0\0\0\x03\0", b"\0\0\0\x02\0", 1),
    ],
    ids=["empty", "one byte less", "one byte more", "half", "no message", "a key of two values"],
)
def test_damaged_bytes_are_refused(damage: Callable[[bytes], bytes]) -> None:
    body = damage(_body())
    assert body != _body()
    with pytest.raises(ValueError):
        list(read_messages(_table([], _KEY), [body]))


def test_truncated_messages_are_refused() -> None:
    body = _body()
    for size in range(len(body)):
        with pytest.raises(ValueError):
            list(read_messages(_table([], _KEY), [body[:size]]))
