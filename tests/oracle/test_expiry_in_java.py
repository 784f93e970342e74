"""Snapshots expired by us and by Paimon's Java library, on two copies: the same files stay."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from paimon_magics.planning.commits.expiry import NO_FLOOR, ExpiryRules
from paimon_magics.planning.commits.requests import Append, OverwriteTouched
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.catalog.stored_tables import load_stored
from paimon_magics.tables.expiry.expire_snapshots import carry_out, decide
from paimon_magics.tables.snapshots.chain import create_tag
from paimon_magics.tables.table import Table
from tests.oracle.java_reader import JavaPaimon
from tests.sampling import sampled
from tests.tables.commits.test_commit import copy_of, ours, written
from tests.tables.manifest_files import TABLE, create
from tests.tables.reachability import files, missing, unreachable

pytestmark = [pytest.mark.spark, pytest.mark.java]

KEYED = "CREATE TABLE t (k INT NOT NULL, v STRING) TBLPROPERTIES ('primary-key' = 'k', {})"
TABLES = {
    "partitioned": "CREATE TABLE t (k INT, v STRING) PARTITIONED BY (v) "
    "TBLPROPERTIES ('manifest.merge-min-count' = '4')",
    "compacted": KEYED.format("'bucket' = '1', 'num-sorted-run.compaction-trigger' = '2'"),
    "changelog of input": KEYED.format(
        "'bucket' = '2', 'changelog-producer' = 'input', 'num-sorted-run.compaction-trigger' = '3'"
    ),
    "changelog of lookup": KEYED.format("'bucket' = '1', 'changelog-producer' = 'lookup'"),
    "deletion vectors": KEYED.format("'bucket' = '1', 'deletion-vectors.enabled' = 'true'"),
    "dynamic buckets": KEYED.format("'bucket' = '-1', 'dynamic-bucket.target-row-num' = '3'"),
}
COMMITS = 12
SOON = {"snapshot.time-retained": "1 ms", "snapshot.num-retained.min": "1"}
THREE = {**SOON, "snapshot.num-retained.min": "3"}
AT_MOST_THREE = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "3"}
TEN_CHANGELOGS = {**AT_MOST_THREE, "changelog.num-retained.max": "10"}
FIVE_CHANGELOGS = {**AT_MOST_THREE, "changelog.num-retained.max": "5"}


def filled(java: JavaPaimon, warehouse: Path, kind: str) -> Table:
    """A table with a dozen commits, by Java and by us, some of them overwrites."""
    table = create(warehouse, TABLES[kind])
    for number in range(COMMITS):
        rows = [(number % 5, "ab"[number % 2]), (number % 3 + 10, "ab"[number % 2])]
        replaces = number in (4, 9) and kind != "dynamic buckets"
        if kind == "dynamic buckets" or (kind == "partitioned" and number % 2):
            change = OverwriteTouched() if replaces else Append()
            shaped = [dict(zip(("k", "v"), row, strict=True)) for row in rows]
            ours(table, change, written(table, shaped), f"{number}")
        else:
            java.write(warehouse, "default.t", rows, overwrite={} if replaces else None)
    return table


def tag(table: Table, *snapshots: int) -> None:
    stored = load_stored(Catalog.open({"warehouse": warehouse_of(table)}), TABLE)
    for snapshot_id in snapshots:
        create_tag(
            stored, f"of-{snapshot_id}", table.store.create, snapshot_id=snapshot_id,
            time_retained=None,
        )  # fmt: skip


def consume(table: Table, snapshot_id: int) -> None:
    folder = Path(table.location) / "consumer"
    folder.mkdir()
    (folder / "consumer-somebody").write_text(json.dumps({"nextSnapshot": snapshot_id}))


def age(table: Table, *snapshots: int) -> None:
    for snapshot_id in snapshots:
        path = Path(table.location) / "snapshot" / f"snapshot-{snapshot_id}"
        document = json.loads(path.read_text())
        path.write_text(json.dumps({**document, "timeMillis": document["timeMillis"] - 7_200_000}))


def analyze(table: Table) -> None:
    """Give the snapshots table statistics: one file for the first six, another for the others."""
    folder = Path(table.location) / "statistics"
    folder.mkdir()
    for snapshot_id in range(1, COMMITS + 1):
        name = "stat-late" if snapshot_id > 6 else "stat-early"
        (folder / name).write_text("{}")
        path = Path(table.location) / "snapshot" / f"snapshot-{snapshot_id}"
        path.write_text(json.dumps({**json.loads(path.read_text()), "statistics": name}))


def warehouse_of(table: Table) -> str:
    return str(Path(table.location).parents[1])


def expire(table: Table, options: dict[str, str]) -> int:
    known = {**dict(table.schema.options), **options}
    schema = dataclasses.replace(table.schema, options=tuple(known.items()))
    rules = ExpiryRules.of(schema)
    assert rules is not None
    expiry = decide(table, rules, NO_FLOOR, int(time.time() * 1000))
    return 0 if expiry is None else carry_out(expiry)


def hints(table: Table) -> dict[str, str]:
    root = Path(table.location)
    return {str(p.relative_to(root)): p.read_text() for p in root.glob("*/*EST")}


CASES: dict[str, tuple[str, Callable[[Table], None], list[dict[str, str]], int]] = {
    # name: table, preparation, options of each expiry in turn, number of snapshots that stay
    "by number": ("partitioned", lambda t: None, [AT_MOST_THREE], 3),
    "by age": ("partitioned", lambda t: None, [THREE], 3),
    "of compacted files": ("compacted", lambda t: None, [THREE], 3),
    "with their changelogs": ("changelog of input", lambda t: None, [THREE], 3),
    "with looked-up changelogs": ("changelog of lookup", lambda t: None, [THREE], 3),
    "with deletion vectors": ("deletion vectors", lambda t: None, [THREE], 3),
    "with hash indexes": ("dynamic buckets", lambda t: None, [THREE], 3),
    "with statistics": ("partitioned", analyze, [THREE], 3),
    "but for the files of tags": ("partitioned", lambda t: tag(t, 2, 4, 8), [THREE], 3),
    "compacted, but for tags": ("compacted", lambda t: tag(t, 1, 6, 11), [THREE], 3),
    "up to a consumer": ("partitioned", lambda t: consume(t, 5), [THREE], 8),
    "that are old enough": (
        "partitioned", lambda t: age(t, *range(1, 8)), [{"snapshot.num-retained.min": "1"}], 6
    ),
    "of which some must stay": (
        "partitioned", lambda t: age(t, *range(1, 13)), [{"snapshot.num-retained.min": "4"}], 4
    ),
    "a few at a time": (
        "compacted", lambda t: None, [{**THREE, "snapshot.expire.limit": "2"}] * 3, 11
    ),
    "with empty folders": (
        "partitioned", lambda t: None, [{**SOON, "snapshot.clean-empty-directories": "true"}], 1
    ),
    "but not their changelogs": (
        "changelog of input", lambda t: None, [TEN_CHANGELOGS], 3
    ),
    "and some changelogs later": (
        "changelog of input",
        lambda t: tag(t, 5),
        [TEN_CHANGELOGS, FIVE_CHANGELOGS],
        3,
    ),
    "but not what was appended": (
        "compacted", lambda t: None, [TEN_CHANGELOGS], 3
    ),
    "and what was appended later": (
        "compacted",
        lambda t: None,
        [TEN_CHANGELOGS, FIVE_CHANGELOGS],
        3,
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", sampled([*CASES]))
def test_snapshots_expire_as_in_java(java_paimon: JavaPaimon, tmp_path: Path, what: str) -> None:
    kind, prepare, options, left = CASES[what]
    table = filled(java_paimon, tmp_path / "ours", kind)
    prepare(table)
    other = copy_of(table, tmp_path / "java")
    removed = 0
    before, lost = files(table), unreachable(table)
    for chosen in options:
        removed += expire(table, chosen)
        java_paimon.expire(tmp_path / "java", "default.t", chosen)
        assert files(table) == files(other)
        assert hints(table) == hints(other)
    latest = table.paimon.snapshot_manager().get_latest_snapshot()
    assert removed == latest.id - left > 0
    assert files(table) < before | {"snapshot/EARLIEST", *files(other)}
    if not (Path(table.location) / "changelog").exists():
        assert missing(table) == set()
        # Java's writers leave files of their own that nothing refers to.
        assert unreachable(table) <= lost
    rows = sorted(java_paimon.rows(tmp_path / "ours", "default.t"))
    assert rows == sorted(java_paimon.rows(tmp_path / "java", "default.t")) != []
    for name in (path.name for path in (Path(table.location) / "tag").glob("tag-*")):
        past = {"scan.tag-name": name.removeprefix("tag-")}
        assert java_paimon.rows(tmp_path / "ours", "default.t", past)
