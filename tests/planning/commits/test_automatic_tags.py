"""Which automatic tags a table gets by its options, and which of them go."""

from __future__ import annotations

import datetime

import pytest

from paimon_magics.errors import InvalidTableError
from paimon_magics.planning.commits.automatic_tags import AutomaticTags, TaggedTime
from paimon_magics.planning.schemas.table_schema import TableSchema

HOUR = 3_600_000
DAY = 24 * HOUR
FIRST = 1_795_824_000_000  # 2026-11-28 00:00 UTC


def rules(**options: str) -> AutomaticTags:
    keys = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    merged = {"tag.automatic-creation": "process-time", **keys}
    parsed = AutomaticTags.of(TableSchema(columns=(), options=tuple(merged.items())))
    assert parsed is not None
    return parsed


def utc(moment_ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(moment_ms / 1000, datetime.UTC).replace(tzinfo=None)


def created(of: AutomaticTags, tags: dict[str, int], *hours: int) -> list[tuple[str, int]]:
    """The tags for snapshots numbered from 1, at these hours after `FIRST`."""
    every = [TaggedTime(i + 1, FIRST + h * HOUR, None) for i, h in enumerate(hours)]
    first = of.first_snapshot(tags)
    return of.created(tags, [each for each in every if each.snapshot_id >= first], utc)


def test_first_snapshot_of_each_day_gets_the_tag_of_the_day_before() -> None:
    assert created(rules(), {}, 1, 5, 25, 26, 49) == [
        ("2026-11-27", 1),
        ("2026-11-28", 3),
        ("2026-11-29", 5),
    ]


def test_tags_go_on_after_the_last_one_there_is() -> None:
    assert created(rules(), {"2026-11-27": 1, "mine": 9}, 1, 5, 25) == [("2026-11-28", 3)]
    assert created(rules(), {"2026-11-28": 3}, 1, 5, 25, 26) == []


def test_late_rows_count_until_the_delay_is_over() -> None:
    of = rules(tag__creation_delay="2 h")
    assert created(of, {"2026-11-27": 1}, 1, 25, 26) == [("2026-11-28", 3)]


def test_missed_days_get_tags_where_the_table_completes_them() -> None:
    assert created(rules(), {"2026-11-27": 1}, 1, 73, 74) == [("2026-11-30", 2)]
    of = rules(tag__automatic_completion="true")
    assert created(of, {"2026-11-27": 1}, 1, 73, 74) == [("2026-11-28", 2), ("2026-11-29", 3)]


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"tag__creation_period": "hourly"}, "2026-11-28 04"),
        (
            {"tag__creation_period": "hourly", "tag__period_formatter": "without_dashes"},
            "20261128 04",
        ),
        (
            {
                "tag__creation_period": "hourly",
                "tag__period_formatter": "without_dashes_and_spaces",
            },
            "2026112804",
        ),
        ({"tag__creation_period": "two-hours"}, "2026-11-28 02"),
        ({"tag__period_formatter": "without_dashes"}, "20261127"),
        ({"tag__creation_period_duration": "15 min"}, "202611280445"),
    ],
)
def test_tag_is_named_by_the_period_and_its_formatter(options: dict[str, str], name: str) -> None:
    assert created(rules(**options), {}, 5) == [(name, 1)]


def test_watermarks_count_where_the_table_says_so() -> None:
    of = rules(tag__automatic_creation="watermark")
    snapshots = [TaggedTime(1, FIRST, None), TaggedTime(2, FIRST, -(2**63)), TaggedTime(3, 0, DAY)]
    assert of.created({}, snapshots, utc) == [("1970-01-01", 3)]


def test_surplus_tags_are_the_oldest_automatic_ones() -> None:
    of = rules(tag__num_retained_max="2")
    tags = {"2026-11-27": 1, "2026-11-28": 3, "2026-11-29": 7, "mine": 2}
    assert of.surplus(tags) == ["2026-11-27"]
    assert rules().surplus(tags) == []


def test_delay_must_be_shorter_than_the_period() -> None:
    with pytest.raises(InvalidTableError, match="not shorter than the period"):
        rules(tag__creation_period="hourly", tag__creation_delay="1 h")


def test_table_without_the_option_creates_no_tags() -> None:
    assert AutomaticTags.of(TableSchema(columns=(), options=())) is None
