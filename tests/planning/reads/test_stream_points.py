"""Where streams begin, and how much a batch takes."""

from __future__ import annotations

import pytest

from paimon_magics.errors import (
    InvalidValueError,
    PaimonMagicsError,
    UnknownNameError,
    UnsupportedStatementError,
)
from paimon_magics.planning.reads.stream_points import (
    AtFull,
    AtSnapshotFull,
    FromSnapshot,
    FromTime,
    Limits,
    Next,
    SnapshotSize,
    StreamOffset,
    StreamStart,
    admitted,
    check_streamable,
    stream_request,
)
from paimon_magics.planning.reads.views import ViewKind
from paimon_magics.planning.schemas.table_schema import TableSchema, plan_create_table
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable, TableName


def schema(options: str = "") -> TableSchema:
    created = parse_statement(f"CREATE TABLE t (k INT NOT NULL, v STRING) {options}")
    assert isinstance(created, CreateTable)
    return plan_create_table(created)


STARTS: list[tuple[dict[str, str], StreamStart]] = [
    ({}, AtFull()),
    ({"scan.mode": "latest-full"}, AtFull()),
    ({"scan.mode": "latest"}, Next()),
    ({"SCAN.MODE": "LATEST"}, Next()),
    ({"scan.snapshot-id": "7"}, FromSnapshot(7)),
    ({"scan.mode": "from-snapshot", "scan.snapshot-id": "7"}, FromSnapshot(7)),
    ({"scan.mode": "from-snapshot-full", "scan.snapshot-id": "7"}, AtSnapshotFull(7)),
    ({"scan.timestamp-millis": "12"}, FromTime(12)),
    ({"scan.mode": "from-timestamp", "scan.timestamp": "2026-01-31"}, FromTime("2026-01-31")),
    ({"log.scan": "latest"}, Next()),
]


@pytest.mark.parametrize(("options", "start"), STARTS)
def test_stream_starts_at_the_point_in_its_options(
    options: dict[str, str], start: StreamStart
) -> None:
    assert stream_request(schema(), options).start == start


def test_stream_options_override_the_stored_start() -> None:
    stored = schema("TBLPROPERTIES ('scan.mode' = 'latest', 'consumer-id' = 'me')")
    assert stream_request(stored, {}).start == Next()
    assert stream_request(stored, {}).consumer_id == "me"
    assert stream_request(stored, {"scan.mode": "full"}).start == AtFull()


REFUSED: list[tuple[dict[str, str], type[PaimonMagicsError], str]] = [
    ({"scan.mode": "from-snapshot"}, InvalidValueError, "scan.snapshot-id"),
    ({"scan.mode": "latest", "scan.snapshot-id": "1"}, InvalidValueError, "contradict"),
    ({"scan.snapshot-id": "1", "scan.timestamp": "2026-01-31"}, InvalidValueError, "contradict"),
    ({"scan.snapshot-id": "x"}, InvalidValueError, "scan.snapshot-id"),
    ({"scan.mode": "compacted-full"}, UnsupportedStatementError, "compacted-full"),
    ({"scan.tag-name": "a"}, UnsupportedStatementError, "batch reads"),
    ({"incremental-between": "1,2"}, UnsupportedStatementError, "batch reads"),
    ({"streaming-read-overwrite": "true"}, UnsupportedStatementError, "passes over"),
    ({"read.changelog": "true"}, UnsupportedStatementError, "$audit_log"),
    ({"consumer.expiration-time": "1 d"}, InvalidValueError, "belongs to the table"),
    ({"bucket": "1"}, InvalidValueError, "belongs to the table"),
    ({"read.stream.maxRows": "1"}, UnknownNameError, "read.stream.maxRowsPerTrigger"),
    ({"read.stream.maxRowsPerTrigger": "0"}, InvalidValueError, "above 0"),
    ({"read.stream.minRowsPerTrigger": "1"}, InvalidValueError, "belong together"),
    ({"consumer-id": "a/b"}, InvalidValueError, "'consumer-id'"),
    ({"consumer.mode": "exactly"}, InvalidValueError, "`exactly-once`"),
    ({"source.split.target-size": "x"}, InvalidValueError, "'source.split.target-size'"),
]


@pytest.mark.parametrize(("options", "kind", "said"), REFUSED)
def test_invalid_stream_options_are_refused(
    options: dict[str, str], kind: type[PaimonMagicsError], said: str
) -> None:
    with pytest.raises(kind) as raised:
        stream_request(schema(), options)
    assert said in f"{raised.value.message} {raised.value.hint}"


def test_tables_without_changes_to_read_are_refused() -> None:
    name = TableName("t", "default")
    keyed = "TBLPROPERTIES ('primary-key' = 'k', 'merge-engine' = 'partial-update'{})"
    with pytest.raises(UnsupportedStatementError, match="partial-update"):
        check_streamable(name, schema(keyed.format("")), ViewKind.TABLE)
    looked_up = keyed.format(", 'changelog-producer' = 'lookup'")
    check_streamable(name, schema(looked_up), ViewKind.AUDIT_LOG)
    with pytest.raises(UnsupportedStatementError, match="no changes"):
        check_streamable(name, schema(), ViewKind.READ_OPTIMIZED)


SIZES = [SnapshotSize(n, rows, 1, 10) for n, rows in ((3, 5), (4, 0), (5, 5), (6, 50), (7, 1))]


@pytest.mark.parametrize(
    ("limits", "end"),
    [
        (Limits(), 8),
        (Limits(snapshots=2), 5),
        (Limits(rows=10), 6),
        (Limits(rows=1), 4),  # one snapshot at least
        (Limits(files=3, rows=1000), 6),
        (Limits(size_bytes=20), 5),
        (Limits(rows_min=1000, delay_ms_max=500), 3),
        (Limits(rows_min=1000, delay_ms_max=50), 8),
    ],
)
def test_a_batch_takes_whole_snapshots_up_to_its_limits(limits: Limits, end: int) -> None:
    assert admitted(StreamOffset(3), SIZES, limits, waited_ms=100) == StreamOffset(end)


def test_offset_round_trips_through_a_checkpoint() -> None:
    for offset in (StreamOffset(3), StreamOffset(3, full=True)):
        assert StreamOffset.of(offset.document()) == offset
    with pytest.raises(InvalidValueError, match="not a Paimon offset"):
        StreamOffset.of({"partition-0": 5})
