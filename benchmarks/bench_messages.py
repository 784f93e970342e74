"""Encoding and decoding the commit messages of a compaction of 10,000 buckets, which removes two
files of each and adds one, compared with pypaimon's own serialiser of the same bytes; in time of a
core."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

from measure import report
from pypaimon.data.timestamp import Timestamp
from pypaimon.manifest.schema.data_file_meta import DataFileMeta
from pypaimon.manifest.schema.simple_stats import SimpleStats
from pypaimon.schema.data_types import AtomicType, DataField
from pypaimon.table.row.generic_row import GenericRow
from pypaimon.write.commit_message import CommitMessage
from pypaimon.write.commit_message_serializer import (
    deserialize_commit_message,
    serialize_commit_message,
)

from paimon_magics.planning.commits.requests import CommitRequest, Compact
from paimon_magics.tables.commits.decoded_request import decoded
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.commit_messages import read_messages, write_message

MESSAGES = 10_000
RUNS = 3
KEYS = [DataField(0, "k", AtomicType("BIGINT"))]
COLUMNS = [
    *KEYS,
    *(DataField(number, f"c{number}", AtomicType("INT")) for number in range(1, 4)),
    DataField(4, "c4", AtomicType("STRING")),
]
TABLE = SimpleNamespace(partition_keys_fields=[], trimmed_primary_keys_fields=KEYS)


def main() -> None:
    bodies = [serialize_commit_message(message(bucket), []) for bucket in range(MESSAGES)]
    messages = list(read_messages(TABLE, bodies))
    table = cast(Table, SimpleNamespace(paimon=TABLE, name="t"))
    request = cast(CommitRequest, SimpleNamespace(messages=bodies, change=Compact()))
    theirs = [deserialize_commit_message(body, [], KEYS) for body in bodies]
    assert [write_message(TABLE, each) for each in messages] == bodies
    report(
        f"encode {MESSAGES:,} messages",
        cpu_ms(lambda: [write_message(TABLE, each) for each in messages]),
        "pypaimon",
        cpu_ms(lambda: [serialize_commit_message(their, []) for their in theirs]),
    )
    report(
        f"decode {MESSAGES:,} messages",
        cpu_ms(lambda: decoded(table, request)),
        "pypaimon",
        cpu_ms(lambda: [deserialize_commit_message(body, [], KEYS) for body in bodies]),
    )


def message(bucket: int) -> CommitMessage:
    """The message of a bucket."""
    before = [file(f"data-{bucket}-{number}.parquet", 0) for number in range(2)]
    after = [file(f"pm-00000000-mdata-{bucket}.parquet", 5)]
    return CommitMessage((), bucket, [], compact_before=before, compact_after=after)


def file(name: str, level: int) -> DataFileMeta:
    """The meta of a data file."""
    ends = [GenericRow([end], KEYS) for end in (0, 10**9)]
    bounds = [GenericRow([end, end, None, end, f"value-{end}"], COLUMNS) for end in (0, 10**6)]
    return DataFileMeta(
        file_name=name,
        file_size=1_000_000,
        row_count=20_000,
        min_key=ends[0],
        max_key=ends[1],
        key_stats=SimpleStats(*ends, [0]),
        value_stats=SimpleStats(*bounds, [0, 0, 7, 0, 0]),
        min_sequence_number=0,
        max_sequence_number=20_000,
        schema_id=0,
        level=level,
        extra_files=[],
        creation_time=Timestamp.from_epoch_millis(1_790_000_000_000),
        delete_row_count=0,
        file_source=1,
    )


def cpu_ms(action: Callable[[], object]) -> float:
    """The median time of a core that `action` takes, after a run that warms up."""
    times = []
    for _ in range(RUNS + 1):
        began = time.process_time()
        action()
        times.append((time.process_time() - began) * 1000)
    return statistics.median(times[1:])


if __name__ == "__main__":
    main()
