"""What Java is not asked about in tests/oracle: times of day, deletion vectors, expired rows, and
what holds of every pick."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_magics.errors import InvalidTableError
from paimon_magics.planning.compaction.keyed_tables import (
    BucketFile,
    Moment,
    PickOptions,
    SortedRun,
    pick,
    pick_all,
    sorted_runs,
)
from paimon_magics.planning.compaction.steps import (
    Rewrite,
    RewriteRules,
    Upgrade,
    drops_deletes,
    steps_of,
)
from paimon_magics.planning.schemas.table_schema import TableSchema, plan_create_table
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable

NOON = Moment(now_ms=1_000_000, hour=12)


def table(**options: str) -> TableSchema:
    given = {"primary-key": "k", "bucket": "1", **options}
    text = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    statement = parse_statement(f"CREATE TABLE t (k INT, v INT) TBLPROPERTIES ({text})")
    assert isinstance(statement, CreateTable)
    return plan_create_table(statement)


def file(
    name: str, level: int = 0, size: int = 100, keys: tuple[int, int] = (0, 9), **more: int
) -> BucketFile:
    return BucketFile(name, level, size, *keys, **more)  # type: ignore[arg-type]


@st.composite
def buckets(draw: st.DrawFn) -> list[SortedRun]:
    levels = draw(st.lists(st.integers(0, 5), max_size=12))
    seen: set[int] = set()
    files = []
    for number, level in enumerate(levels):
        if level == 0 or level not in seen:
            seen.add(level)
            files.append(
                file(f"f{number}", level, draw(st.integers(1, 1000)), max_sequence_number=number)
            )
    return sorted_runs(files)


@given(runs=buckets(), trigger=st.integers(1, 7), forced=st.booleans())
def test_pick_empties_level_0(runs: list[SortedRun], trigger: int, forced: bool) -> None:
    actual = pick(runs, PickOptions(compaction_trigger=trigger, forces_level_0_up=forced), NOON)
    if actual is None:
        assert not forced or not any(run.level == 0 for run in runs)
        return
    assert actual.output_level > 0
    assert {f for run in runs if run.level == 0 for f in run.files} <= set(actual.files)
    assert actual.runs == tuple(runs[: len(actual.runs)])
    above = [run.level for run in runs[len(actual.runs) :]]
    assert all(level > actual.output_level for level in above)


@given(runs=buckets())
def test_repeated_compaction_terminates(runs: list[SortedRun]) -> None:
    options = PickOptions(compaction_trigger=2, forces_level_0_up=True)
    for round in range(20):
        actual = pick(runs, options, NOON)
        if actual is None:
            return
        merged = file(f"r{round}", actual.output_level, sum(f.size_bytes for f in actual.files))
        kept = [f for run in runs for f in run.files if f not in actual.files]
        runs = sorted_runs([*kept, merged])
    pytest.fail("it compacts for ever")


def test_level_0_runs_follow_the_order_of_writing() -> None:
    files = [
        file("b", max_sequence_number=5, min_sequence_number=1),
        file("a", max_sequence_number=5, min_sequence_number=1),
        file("older", max_sequence_number=4),
        file("first", max_sequence_number=5, min_sequence_number=0),
        file("later", max_sequence_number=5, min_sequence_number=1, created_ms=7),
    ]
    names = [run.files[0].name for run in sorted_runs(files)]
    assert names == ["first", "a", "b", "later", "older"]


@pytest.mark.parametrize(
    ("hours", "at", "joined"),
    [((22, 6), 23, 2), ((22, 6), 5, 2), ((22, 6), 6, 0), ((9, 17), 9, 2), ((9, 17), 17, 0)],
)
def test_larger_runs_join_in_off_peak_hours(hours: tuple[int, int], at: int, joined: int) -> None:
    runs = sorted_runs([file("new", size=100), file("old", level=5, size=150)])
    options = PickOptions(
        compaction_trigger=2,
        max_size_amplification_percent=1000,
        offpeak_hours=hours,
        offpeak_ratio=60,
    )
    actual = pick(runs, options, Moment(0, at))
    assert len(actual.runs if actual else ()) == joined


def test_full_compaction_is_due_after_the_optimization_interval() -> None:
    runs = sorted_runs([file("new", size=1), file("old", level=5, size=1000, created_ms=900_000)])
    due = PickOptions(optimization_interval_ms=99_999)
    assert pick(runs, due, NOON) == pick_all(runs, due)
    assert pick(runs, PickOptions(optimization_interval_ms=100_000), NOON) is None
    never_full = sorted_runs([file("new"), file("newer", max_sequence_number=1)])
    assert pick(never_full, PickOptions(optimization_interval_ms=1e12), NOON) is not None


def test_only_files_losing_rows_are_rewritten_at_the_highest_level() -> None:
    good = file("good", 5, keys=(0, 1))
    expired = BucketFile("expired", 5, 100, 2, 3, may_hold_expired_rows=True)
    deleted = BucketFile("deleted", 5, 100, 4, 5, has_deletion_vector=True)
    actual = pick_all(sorted_runs([deleted, good, expired]), PickOptions())
    assert actual is not None
    assert steps_of(actual, RewriteRules(5, 0)) == [
        Rewrite((((expired,),),)),
        Rewrite((((deleted,),),)),
    ]
    assert pick_all(sorted_runs([good]), PickOptions()) is None
    assert pick_all([], PickOptions()) is None


def test_file_with_deletes_is_rewritten_for_the_highest_level() -> None:
    runs = sorted_runs([file("plain", keys=(0, 1)), file("deletes", keys=(5, 6), deleted_rows=1)])
    actual = pick_all(runs, PickOptions())
    assert actual is not None
    plain, deletes = sorted(actual.files, key=lambda f: f.least_key)
    assert steps_of(actual, RewriteRules(5, 0)) == [Upgrade(plain), Rewrite((((deletes,),),))]


def test_deletes_are_dropped_where_no_older_rows_need_them() -> None:
    runs = sorted_runs([file("new"), file("newer", max_sequence_number=1), file("old", 5, 10_000)])
    actual = pick(runs, PickOptions(compaction_trigger=3, max_size_amplification_percent=500), NOON)
    assert actual is not None
    assert actual.output_level == 4

    def dropped(*, vectors: bool, chain: bool) -> bool:
        return drops_deletes(actual, runs, has_deletion_vectors=vectors, is_chain_table=chain)

    assert not dropped(vectors=False, chain=False)
    assert dropped(vectors=True, chain=False)
    assert not dropped(vectors=True, chain=True)


def test_pick_options_follow_the_table_options() -> None:
    plain = PickOptions.of(table())
    assert plain == PickOptions()
    of_options = PickOptions.of(
        table(
            **{
                "num-sorted-run.compaction-trigger": "3",
                "compaction.offpeak.start.hour": "22",
                "compaction.offpeak.end.hour": "6",
                "compaction.optimization-interval": "1 h",
                "compaction.total-size-threshold": "1 mb",
                "changelog-producer": "lookup",
            }
        )
    )
    assert of_options == PickOptions(
        compaction_trigger=3,
        level_count=4,
        offpeak_hours=(22, 6),
        optimization_interval_ms=3_600_000,
        total_size_threshold_bytes=1 << 20,
        forces_level_0_up=True,
    )
    with pytest.raises(InvalidTableError, match="compaction-trigger"):
        PickOptions.of(table(**{"num-sorted-run.compaction-trigger": "many"}))
