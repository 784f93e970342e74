"""Merged manifests hold what the ones before held: by Paimon's rules, whoever wrote them."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pypaimon.manifest.manifest_file_manager import ManifestFileManager
from pypaimon.manifest.schema.manifest_entry import MANIFEST_ENTRY_SCHEMA

from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.tables.manifests.merging import MergeRules, merge_manifests
from paimon_magics.tables.manifests.names import MetadataNames, manifest_folder, remove_metadata
from paimon_magics.tables.manifests.writing import ManifestReader, Record, widest_schema
from paimon_magics.tables.table import Table
from tests.tables.manifest_files import create, entries, entry, live, stored, write

PLAIN = "CREATE TABLE t (k INT)"
BY_DAY = "CREATE TABLE t (k INT, dt STRING, n INT) PARTITIONED BY (dt, n)"
MANY = 1 << 40
"""More bytes than any manifest here has."""


def merge(table: Table, metas: list[Any], *, token: str = "merged", **rules: int) -> list[Any]:
    chosen = {"target_bytes": MANY, "count_min": 2, "full_bytes_min": MANY, **rules}
    return merge_manifests(table.paimon, metas, MergeRules(**chosen), MetadataNames(token))


def named(metas: list[Any]) -> list[str]:
    return [meta.file_name for meta in metas]


@pytest.fixture
def table(warehouse: Path) -> Table:
    return create(warehouse, PLAIN)


@pytest.fixture
def days(warehouse: Path) -> Table:
    return create(warehouse, BY_DAY)


def test_merge_rules_follow_table_options_and_paimons_defaults() -> None:
    schema = TableSchema((Column(0, "k", AtomicType("INT")),))
    assert MergeRules.of(schema) == MergeRules(8 << 20, 30, 16 << 20)
    options = (
        ("manifest.target-file-size", "1 kb"),
        ("manifest.merge-min-count", "7"),
        ("manifest.full-compaction-threshold-size", "3 mb"),
    )
    changed = dataclasses.replace(schema, options=options)
    assert MergeRules.of(changed) == MergeRules(1024, 7, 3 << 20)


def test_manifests_below_the_minimum_count_stay_unmerged(table: Table) -> None:
    metas = write(table, [[entry(table, f"f{n}")] for n in range(4)])
    assert merge(table, metas, count_min=5) == metas
    assert len(merge(table, metas, count_min=4)) == 1


def test_manifests_are_merged_as_soon_as_they_reach_the_target(table: Table) -> None:
    metas = write(table, [[entry(table, f"f{n}")] for n in range(7)])
    three = sum(meta.file_size for meta in metas[:3])
    merged = merge(table, metas, count_min=30, target_bytes=three)
    assert [meta.num_added_files for meta in merged] == [3, 3, 1]
    assert merged[2] == metas[6]
    assert [e.file.file_name for e in entries(table, merged)] == [f"f{n}" for n in range(7)]


def test_manifest_of_target_size_is_never_rewritten(table: Table) -> None:
    metas = write(table, [[entry(table, f"f{n}-{m}") for m in range(9)] for n in range(4)])
    smallest = min(meta.file_size for meta in metas)
    assert merge(table, metas, count_min=1, target_bytes=smallest) == metas


def test_merged_manifest_is_split_at_the_target_size(table: Table) -> None:
    metas = write(table, [[entry(table, f"f{n:05}") for n in range(500)] for _ in range(1)])
    metas += write(table, [[entry(table, f"g{n:05}", kind=1) for n in range(3)]])
    target = metas[0].file_size // 3
    # What they delete is not there, so every entry has to be looked at and stays.
    merged = merge(table, [*metas, *write(table, [[entry(table, "h")]])], target_bytes=target)
    assert len(merged) > 2
    assert len(entries(table, merged)) == 504


def test_file_added_and_deleted_leaves_no_entry(table: Table) -> None:
    metas = write(
        table,
        [
            [entry(table, "a"), entry(table, "b")],
            [entry(table, "c")],
            [entry(table, "a", kind=1), entry(table, "c", kind=1), entry(table, "d")],
        ],
    )
    merged = merge(table, metas)
    assert [(e.kind, e.file.file_name) for e in entries(table, merged)] == [(0, "b"), (0, "d")]
    everything = write(table, [[entry(table, "a")], [entry(table, "a", kind=1)]])
    assert merge(table, everything, token="nothing-left") == []


def test_deletion_of_a_file_in_an_unmerged_manifest_stays(table: Table) -> None:
    large = write(table, [[entry(table, "a"), *(entry(table, f"x{n}") for n in range(400))]])
    small = write(table, [[entry(table, "a", kind=1)], [entry(table, "b")]])
    merged = merge(table, large + small, target_bytes=large[0].file_size)
    assert merged[0] == large[0]
    assert [(e.kind, e.file.file_name) for e in entries(table, merged[1:])] == [(1, "a"), (0, "b")]
    assert live(table, merged) == live(table, large + small)


def test_file_identity_includes_the_level(table: Table) -> None:
    """A compaction that moves a file up deletes it on one level and adds it on another."""
    metas = write(
        table,
        [
            [entry(table, "a", _LEVEL=0)],
            [entry(table, "a", kind=1, _LEVEL=0), entry(table, "a", _LEVEL=5)],
        ],
    )
    [merged] = merge(table, metas)
    assert [(e.kind, e.file.level) for e in entries(table, [merged])] == [(0, 5)]
    assert (merged.min_level, merged.max_level) == (5, 5)


def test_full_merge_applies_deletions_to_large_manifests(days: Table) -> None:
    """Those of partitions without deletions are not even read, and stay as they are."""
    large = write(
        days,
        [
            [entry(days, f"{day}-{n}", (day, 1)) for n in range(300)]
            for day in ("2024-01-01", "2024-01-02", "2024-01-03")
        ],
    )
    small = write(
        days,
        [
            [entry(days, f"2024-01-02-{n}", ("2024-01-02", 1), kind=1) for n in range(100)],
            [entry(days, "new", ("2024-01-02", 1))],
        ],
    )
    target = min(meta.file_size for meta in large)
    merged = merge(days, large + small, target_bytes=target, full_bytes_min=1)
    assert named(merged)[:2] == named([large[0], large[2]])
    assert sum(meta.num_deleted_files for meta in merged) == 0
    assert live(days, merged) == live(days, large + small)
    assert len(entries(days, merged)) == 801


def test_full_merge_starts_at_its_size_threshold(table: Table) -> None:
    metas = write(table, [[entry(table, "a")], [entry(table, "a", kind=1)]])
    size = sum(meta.file_size for meta in metas)
    rules = {"count_min": 30}
    assert merge(table, metas, full_bytes_min=size + 1, **rules) == metas
    assert merge(table, metas, full_bytes_min=size, **rules) == []


def test_small_blocks_are_gathered_and_large_blocks_copied(table: Table) -> None:
    large = write(table, [[entry(table, f"f{n:05}") for n in range(2_000)]])
    single = write(table, [[entry(table, f"g{n:05}")] for n in range(60)])
    merged = merge(table, large + single)
    again = merge(table, merged + write(table, [[entry(table, "h")]]), token="again")
    [meta] = again
    before = [block.stored for block in ManifestReader(table.paimon, large[0]).blocks()]
    after = [block.stored for block in ManifestReader(table.paimon, meta).blocks()]
    assert len([block for block in before if block in after]) >= len(before) - 1 > 10
    assert len(after) <= len(before) + 4, "sixty small blocks became a few"
    assert len(entries(table, again)) == 2_061
    assert live(table, again) == live(table, [*large, *single]) | {((), 0, "h", 0)}


def test_manifest_list_statistics_match_the_entries(days: Table) -> None:
    """Copied from other manifests' statistics it is the same as counted entry by entry."""
    groups = [
        [
            entry(days, "a", ("x", None), _BUCKET=3, _TOTAL_BUCKETS=4, _LEVEL=2, _SCHEMA_ID=1),
            entry(days, "b", ("b", 9), _BUCKET=1, _TOTAL_BUCKETS=4),
        ],
        [entry(days, "c", (None, -4), _BUCKET=2, _TOTAL_BUCKETS=4, _FIRST_ROW_ID=70)],
        [entry(days, "d", ("é", None), _BUCKET=2, _TOTAL_BUCKETS=4, _FIRST_ROW_ID=50)],
    ]
    for chosen in (groups, groups[1:], groups[2:]):
        metas = write(days, chosen)
        [merged] = merge(days, metas, count_min=1, token=f"{len(chosen)}")
        expected = ManifestFileManager(days.paimon)._build_meta(
            "x", entries(days, metas), merged.file_size
        )
        for field in dataclasses.fields(merged):
            if field.name not in ("file_name", "partition_stats"):
                assert getattr(merged, field.name) == getattr(expected, field.name), field.name
        for bound in ("min_values", "max_values"):
            actual = getattr(merged.partition_stats, bound)
            wanted = getattr(expected.partition_stats, bound)
            assert [actual.get_field(n) for n in (0, 1)] == list(wanted.values)
        assert merged.partition_stats.null_counts == expected.partition_stats.null_counts


def test_manifests_of_another_compression_are_rewritten(warehouse: Path) -> None:
    table = create(warehouse, PLAIN)
    zstd = write(table, [[entry(table, "a")]])
    changed = dataclasses.replace(
        table, paimon=table.paimon.copy({"manifest.compression": "deflate"})
    )
    [merged] = merge(changed, zstd + write(changed, [[entry(table, "b")]]))
    assert ManifestReader(table.paimon, merged).codec == "deflate"
    assert [e.file.file_name for e in entries(table, [merged])] == ["a", "b"]


def extended(**fields: Any) -> dict[str, Any]:
    """A schema of manifests with more fields of a data file than this project knows."""
    schema = copy.deepcopy(MANIFEST_ENTRY_SCHEMA)
    file = schema["fields"][5]["type"]["fields"]  # type: ignore[index]
    for name, kind in fields.items():
        file.append({"name": name, "type": ["null", kind], "default": None})
    return schema


def test_fields_of_newer_paimon_releases_are_kept(table: Table) -> None:
    newer = extended(_NEW="string")
    metas = write(table, [[entry(table, "a", _NEW="x")]], newer)
    metas += write(table, [[entry(table, "b")], [entry(table, "a", kind=1), entry(table, "c")]])
    metas += write(table, [[entry(table, "d", _NEW="y")]], newer)
    merged = merge(table, metas)
    path = f"{manifest_folder(table.paimon)}/{merged[0].file_name}"
    with open(path, "rb") as file:
        records: list[Record] = list(fastavro.reader(file))  # type: ignore[arg-type]
    actual = {r["_FILE"]["_FILE_NAME"]: r["_FILE"]["_NEW"] for r in records}
    assert actual == {"b": None, "c": None, "d": "y"}


def test_manifests_of_incompatible_schemas_stay_apart(table: Table) -> None:
    schemas = [extended(_ONE="string"), extended(_OTHER="long")]
    assert widest_schema(schemas) is None
    metas = [meta for schema in schemas for meta in write(table, [[entry(table, "a")]], schema)]
    assert merge(table, metas) == metas
    assert merge(table, metas, full_bytes_min=1) == metas


def test_manifests_of_a_run_are_removed_by_its_token(table: Table) -> None:
    metas = write(table, [[entry(table, f"f{n}")] for n in range(5)])
    before = stored(table)
    two = metas[0].file_size + metas[1].file_size
    merged = merge(table, metas, token="run", target_bytes=two)
    assert stored(table) - before == {"manifest-run-0", "manifest-run-1"} == set(named(merged[:2]))
    assert remove_metadata(table.paimon, "run", {"manifest-run-0"}) == 1
    assert stored(table) - before == {"manifest-run-0"}
    assert remove_metadata(table.paimon, "run", ()) == 1
    assert stored(table) == before


FILES = st.integers(0, 30)
COMMITS = st.lists(
    st.tuples(st.lists(FILES, max_size=4, unique=True), st.booleans(), st.integers(0, 2)),
    min_size=1,
    max_size=25,
)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(commits=COMMITS, count_min=st.integers(1, 6), target=st.integers(1, 4), full=st.booleans())
def test_merging_never_changes_the_live_files(
    days: Table, commits: list[Any], count_min: int, target: int, full: bool
) -> None:
    """Commits add new files and delete some that are live; after each one manifests are merged."""
    model: dict[str, tuple[str, int]] = {}
    metas: list[Any] = []
    added = 0
    for number, (chosen, deletes, day) in enumerate(commits):
        records = []
        if deletes:
            names = sorted(model)
            for name in {names[n % len(names)] for n in chosen} if names else ():
                records.append(entry(days, name, model.pop(name), kind=1))
        else:
            for _ in chosen:
                added += 1
                model[f"f{added}"] = (f"day {day}", day)
                records.append(entry(days, f"f{added}", model[f"f{added}"]))
        if records:
            metas = metas + write(days, [records])
        size = max((meta.file_size for meta in metas), default=1)
        metas = merge(
            days,
            metas,
            token=f"{id(commits)}-{number}-{added}-{count_min}-{target}-{full}",
            count_min=count_min,
            target_bytes=size * target,
            full_bytes_min=size * 3 if full else MANY,
        )
        assert live(days, metas) == {(day, 0, name, 0) for name, day in model.items()}
