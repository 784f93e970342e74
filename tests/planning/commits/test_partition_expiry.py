"""Which partitions expire: by their values, in every form that Paimon's options describe, or by the
time of their last file."""

from __future__ import annotations

import datetime
from dataclasses import replace

import pytest

from paimon_magics.errors import InvalidTableError, InvalidValueError, PaimonMagicsError
from paimon_magics.planning.commits.partition_expiry import PartitionExpiry, StoredPartition
from paimon_magics.planning.schemas.table_schema import TableSchema, plan_create_table
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.removals import ExpirePartitions
from paimon_magics.statements.statement import CreateTable

NOW = datetime.datetime(2026, 3, 15, 12, tzinfo=datetime.UTC)
DAY_MS = 86_400_000


def schema(keys: str = "dt, h", **options: str) -> TableSchema:
    statement = parse_statement(
        f"CREATE TABLE t (id INT, dt STRING, h STRING, dt1 STRING) PARTITIONED BY ({keys})"
    )
    assert isinstance(statement, CreateTable)
    named = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    return replace(plan_create_table(statement), options=tuple(named.items()))


def rules(keys: str = "dt, h", **members: str | int) -> PartitionExpiry:
    call = ExpirePartitions(**{"expiration_time": "1 d", **members})  # type: ignore[arg-type]
    expiry = PartitionExpiry.of(schema(keys), call)
    assert expiry is not None
    return expiry


@pytest.mark.parametrize(
    ("values", "members", "expected"),
    [
        (("2026-01-02", "x"), {}, "2026-01-02 00:00:00"),
        (("2026-1-2", "x"), {}, "2026-01-02 00:00:00"),
        (("2026-01-02 03:04:05", "x"), {}, "2026-01-02 03:04:05"),
        (("2026-01-02 03:04:05.5", "x"), {}, "2026-01-02 03:04:05.500000"),
        (("2026-04-31", "x"), {}, "2026-05-01 00:00:00"),
        (("junk", "x"), {}, None),
        ((None, "x"), {}, None),
        (("20260102", "x"), {"timestamp_formatter": "yyyyMMdd"}, "2026-01-02 00:00:00"),
        (("2026-01-02", "x"), {"timestamp_formatter": "yyyyMMdd"}, None),
        (("20260231", "x"), {"timestamp_formatter": "yyyyMMdd"}, None),
        (("2026", "x"), {"timestamp_formatter": "yyyy"}, "2026-01-01 00:00:00"),
        (
            ("2026-01-02", "7"),
            {"timestamp_pattern": "$dt $h:00:00"},
            "2026-01-02 07:00:00",
        ),
        (
            ("20260102", "07"),
            {"timestamp_pattern": "$dt-$h", "timestamp_formatter": "yyyyMMdd-HH"},
            "2026-01-02 07:00:00",
        ),
        (
            ("20260102T07", "x"),
            {"timestamp_pattern": "$dt", "timestamp_formatter": "yyyyMMdd'T'HH"},
            "2026-01-02 07:00:00",
        ),
        (("2026-01-02", None), {"timestamp_pattern": "$dt"}, None),
    ],
)
def test_time_is_read_from_the_values_of_a_partition(
    values: tuple[str | None, ...], members: dict[str, str], expected: str | None
) -> None:
    time = rules(**members).time_of(values)
    assert (None if time is None else str(time)) == expected


def test_longest_name_of_a_column_counts_in_a_pattern() -> None:
    expiry = rules("dt, dt1", timestamp_pattern="$dt1")
    assert str(expiry.time_of(("junk", "2026-01-02"))) == "2026-01-02 00:00:00"


def test_only_partitions_that_are_older_expire_and_in_order() -> None:
    texts = ["2026-03-14 11:59:59", "2026-03-14 12:00:00", "2026-03-01", "2027-01-01", "junk"]
    partitions = [StoredPartition((text, "a"), 0) for text in texts]
    gone = rules().expired(partitions, NOW)
    assert [p.values[0] for p in gone] == ["2026-03-01", "2026-03-14 11:59:59"]
    assert len(rules(max_expires=1).expired(partitions, NOW)) == 1


def test_clocks_of_the_zone_count_for_values_and_instants_for_files() -> None:
    zone = datetime.timezone(datetime.timedelta(hours=13))
    there = NOW.astimezone(zone)  # the next day, at one
    old = StoredPartition(("2026-03-14 20:00:00", "a"), 0)
    assert rules().expired([old], there) == [old] and rules().expired([old], NOW) == []
    by_file = rules(expire_strategy="update-time")
    at_ms = int(NOW.timestamp() * 1000) - DAY_MS
    young, aged = (StoredPartition(("x", None), at_ms + d) for d in (0, -1))
    assert by_file.expired([young, aged], NOW) == by_file.expired([young, aged], there) == [aged]


def test_options_of_the_table_count_where_the_call_gives_nothing() -> None:
    table = schema(
        "dt, h", partition__expiration_time="7 d", partition__timestamp_formatter="yyyyMMdd"
    )
    expiry = PartitionExpiry.of(table)
    assert expiry is not None and expiry.age_ms == 7 * DAY_MS and expiry.check_ms == DAY_MS / 24
    assert str(expiry.time_of(("20260102", "x"))) == "2026-01-02 00:00:00"
    called = PartitionExpiry.of(table, ExpirePartitions("1 d", "yyyy-MM-dd"))
    assert called is not None and called.age_ms == DAY_MS
    assert called.time_of(("20260102", "x")) is None
    assert PartitionExpiry.of(schema()) is None


@pytest.mark.parametrize(
    ("members", "error", "message"),
    [
        ({"expire_strategy": "x"}, InvalidTableError, "no strategy 'x'"),
        ({"expiration_time": "x"}, InvalidTableError, "expiration-time"),
        ({"timestamp_formatter": "dd"}, InvalidValueError, "no year"),
        ({"timestamp_formatter": "yyyy-MMM"}, InvalidValueError, "'MMM'"),
        ({"timestamp_formatter": "yyyy yyyy"}, InvalidValueError, "'yyyy'"),
        ({"timestamp_formatter": "yyyy'T"}, InvalidValueError, "quote"),
        ({"timestamp_pattern": "dt"}, InvalidValueError, "'\\$dt' or '\\$h'"),
        ({"max_expires": 0}, InvalidValueError, "`max_expires` is 0"),
        ({"options": "partition.expiration-tim=1 d"}, InvalidValueError, "does not affect"),
        ({"options": "x"}, InvalidValueError, "not an option with its value"),
    ],
)
def test_rules_that_can_not_be_are_refused(
    members: dict[str, str | int], error: type[PaimonMagicsError], message: str
) -> None:
    with pytest.raises(error) as caught:
        rules(**members)
    assert message.replace("\\", "") in f"{caught.value.message} {caught.value.hint}"
