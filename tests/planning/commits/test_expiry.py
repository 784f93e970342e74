"""Which snapshots expire, as decisions on numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paimon_magics.errors import InvalidTableError
from paimon_magics.planning.commits.expiry import (
    NO_FLOOR,
    ExpiryRules,
    Retention,
    changelogs_end,
    snapshots_end,
)
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.statements.data_types import AtomicType

TABLE = TableSchema((Column(0, "k", AtomicType("INT")),))
NOW_MS = 10_000_000
HOUR_MS = 3_600_000


def rules(**options: str) -> ExpiryRules:
    named = tuple((key.replace("__", ".").replace("_", "-"), v) for key, v in options.items())
    result = ExpiryRules.of(replace(TABLE, options=named))
    assert result is not None
    return result


def test_default_expiry_rules_match_paimon() -> None:
    actual = rules()
    assert actual.snapshots == Retention(10, 2**31 - 1, HOUR_MS) == actual.changelogs
    assert (actual.limit, actual.keeps_changelogs, actual.removes_empty_folders) == (
        50,
        False,
        False,
    )
    assert actual.consumers_keep_snapshots and actual.consumer_time_ms is None


@pytest.mark.parametrize("key", ["write-only", "write.compaction-skip"])
def test_write_only_table_leaves_expiry_to_another_job(key: str) -> None:
    assert ExpiryRules.of(replace(TABLE, options=((key, "true"),))) is None


@pytest.mark.parametrize(
    ("key", "value", "keeps"),
    [
        ("changelog.num-retained.min", "11", True),
        ("changelog.num-retained.min", "10", False),
        ("changelog.time-retained", "2 h", True),
        ("changelog.time-retained", "1 min", False),
    ],
)
def test_changelogs_are_kept_separately_when_retained_longer(
    key: str, value: str, keeps: bool
) -> None:
    actual = ExpiryRules.of(replace(TABLE, options=((key, value),)))
    assert actual is not None and actual.keeps_changelogs is keeps


def test_changelog_only_consumers_retain_no_snapshots() -> None:
    options = {"consumer__changelog_only": "true"}
    assert rules(**options).consumers_keep_snapshots
    assert not rules(**options, changelog__time_retained="2 h").consumers_keep_snapshots


@pytest.mark.parametrize(("low", "high"), [("0", "5"), ("6", "5")])
def test_contradicting_retention_numbers_are_refused(low: str, high: str) -> None:
    with pytest.raises(InvalidTableError, match=r"snapshot\.num-retained\.min"):
        rules(snapshot__num_retained__min=low, snapshot__num_retained__max=high)


# Snapshots 1 to 20, of which the next after 12 was made less than an hour ago.
AGES = {n: NOW_MS - HOUR_MS - (1 if n <= 13 else -1) for n in range(1, 21)}

CASES = [
    # what, options, floor, the first that stays
    ("old ones", {}, NO_FLOOR, 11),
    ("old ones, however few stay", {"min": "1"}, NO_FLOOR, 13),
    ("however young, above the number", {"min": "1", "max": "4"}, NO_FLOOR, 17),
    ("but for what is needed", {"min": "1", "max": "4"}, 9, 9),
    ("but for what is needed from the first on", {"min": "1", "max": "4"}, 0, 1),
    ("at most so many", {"min": "1", "limit": "5"}, NO_FLOOR, 6),
    ("none where all must stay", {"min": "20"}, NO_FLOOR, 1),
    ("none where more must stay than there are", {"min": "30"}, NO_FLOOR, 1),
]


@pytest.mark.parametrize(("options", "floor", "first"), [case[1:] for case in CASES],
                         ids=[case[0] for case in CASES])  # fmt: skip
def test_snapshots_expire_by_count_age_limit_and_floor(
    options: dict[str, str], floor: int, first: int
) -> None:
    keys = {
        "min": "snapshot.num-retained.min",
        "max": "snapshot.num-retained.max",
        "limit": "snapshot.expire.limit",
    }
    named = tuple((keys[key], value) for key, value in options.items())
    actual = ExpiryRules.of(replace(TABLE, options=named))
    assert actual is not None
    assert snapshots_end(actual, 1, 20, floor, AGES.get, NOW_MS) == first


def test_removed_snapshot_does_not_retain_earlier_snapshots() -> None:
    ages = {n: ms for n, ms in AGES.items() if n not in (4, 5)}
    actual = rules(snapshot__num_retained__min="1")
    assert snapshots_end(actual, 1, 20, NO_FLOOR, ages.get, NOW_MS) == 13


def test_changelogs_expire_up_to_the_last_stored_changelog() -> None:
    actual = rules(changelog__num_retained__min="2", changelog__num_retained__max="9")
    ends = [
        changelogs_end(actual, 1, last, 20, NO_FLOOR, AGES.get, NOW_MS) for last in (1, 5, 12, 18)
    ]
    assert ends == [1, 5, 12, 14]
    assert changelogs_end(actual, 1, 18, 20, 3, AGES.get, NOW_MS) == 3
