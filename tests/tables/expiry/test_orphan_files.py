"""Orphans go, and nothing else: no file of a snapshot, tag, branch or changelog, none that may
still be committed, and none of anybody else."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paimon_magics import faults
from paimon_magics.errors import CommitConflictError, TableDamagedError
from paimon_magics.planning.commits.publications import Publication
from paimon_magics.planning.commits.requests import Append, OverwritePartitions, transaction_names
from paimon_magics.planning.schemas.table_schema import plan_create_table
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable, TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.expiry import orphan_files
from paimon_magics.tables.expiry.expire_snapshots import carry_out
from paimon_magics.tables.expiry.orphan_files import Moment, Orphans, moment_of, remove_orphans
from paimon_magics.tables.snapshots.branches import create_branch
from paimon_magics.tables.snapshots.chain import create_tag, delete_tag
from paimon_magics.tables.stores.local_store import publish_local_file
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.attempts import attempts_stem, open_attempts
from paimon_magics.tables.writing.cleanup import deletable
from tests.backends.s3 import S3Server, s3_server
from tests.tables.commits.test_commit import ours, rows_of, written
from tests.tables.expiry.test_expire_snapshots import CHANGELOGS, decided, expire, keys, stored
from tests.tables.manifest_files import create
from tests.tables.reachability import files, missing, unreachable

SQL = "CREATE TABLE t (k INT, v STRING, p STRING, n INT) PARTITIONED BY (p, n)"
DAY_MS = 86_400_000


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Four snapshots in two partitions; the third replaces everything. All files are old."""
    return filled(create(tmp_path, SQL))


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as started:
        yield started


def filled(table: Table) -> Table:
    for number in range(4):
        change = OverwritePartitions() if number == 2 else Append()
        rows = [*rows_of(table, number, "a"), *rows_of(table, number, "b")]
        ours(table, change, written(table, rows), f"{table.name} {number}")
    age(table)
    return table


def age(table: Table, days: int = 3) -> None:
    """Let all files and folders of the table be old."""
    at = time.time() - days * 86_400
    for path in Path(table.location).rglob("*"):
        os.utime(path, (at, at), follow_symlinks=False)


def put(table: Table, *paths: str, days: int = 3) -> list[Path]:
    at = time.time() - days * 86_400
    files = [Path(table.location) / path for path in paths]
    for path in files:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"12345")
        os.utime(path, (at, at))
    return files


def clean(
    table: Table,
    *,
    moment: Callable[[], Moment] | None = None,
    days: float = 1,
    dry_run: bool = False,
) -> Orphans:
    before_ms = int(time.time() * 1000 - days * DAY_MS)
    return remove_orphans(
        table, before_ms, moment or (lambda: moment_of(table, (), ())), dry_run=dry_run
    )


ORPHANS = (
    "manifest/manifest-1-0",
    "manifest/manifest-list-1-0",
    "index/index-1",
    "statistics/stat-1",
    "p=a/n=1/bucket-0/data-1.parquet",
    "p=a/n=1/bucket-0/data-1.parquet.index",
    "p=gone/n=7/bucket-postpone/data-2.parquet",
    "snapshot/.snapshot-9.tmp",
    "changelog/left.tmp",
    "branch/branch-b/snapshot/.snapshot-1.tmp",
)
OTHERS = (
    "notes.txt",
    "mine/data-1.parquet",
    "p=a/data-1.parquet",
    "p=a/n=1/other/data-1.parquet",
    "p=a/n=1/bucket-0/deeper/data-1.parquet",
    "snapshot/snapshot-77",
    "schema/schema-9.tmp",
    "consumer/consumer-a",
    "p=a/n=1/bucket-0/pack.managed.blob",
    "manifest/.paimon-magics-mark",
)


@pytest.mark.parametrize("path", ORPHANS)
def test_orphan_in_a_folder_of_paimon_is_removed(table: Table, path: str) -> None:
    (orphan,) = put(table, path)
    before = files(table) - {path}
    assert clean(table, dry_run=True) == Orphans(1, 5, (path,)) and orphan.exists()
    assert clean(table) == Orphans(1, 5)
    assert files(table) == before and clean(table) == Orphans()


@pytest.mark.parametrize("path", OTHERS)
def test_file_that_paimon_does_not_put_there_stays(table: Table, path: str) -> None:
    if path == "snapshot/snapshot-77":  # a later snapshot without a chain to it
        (Path(table.location) / "snapshot/LATEST").write_text("4")
    (other,) = put(table, path)
    if path == "snapshot/snapshot-77":
        other.write_bytes((other.parent / "snapshot-4").read_bytes())
    assert clean(table) == Orphans() and other.exists()


def test_links_are_neither_followed_nor_removed(table: Table, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "data-1.parquet").write_bytes(b"1")
    bucket = Path(table.location) / "p=a/n=1/bucket-1"
    bucket.symlink_to(elsewhere)
    (Path(table.location) / "manifest/link").symlink_to(elsewhere / "data-1.parquet")
    age(table)
    assert clean(table, days=-1) == Orphans()
    assert (elsewhere / "data-1.parquet").exists() and bucket.is_symlink()


def test_young_orphan_stays_until_it_is_old_enough(table: Table) -> None:
    put(table, "p=a/n=1/bucket-0/data-1.parquet", days=0)
    assert clean(table) == Orphans()
    time.sleep(0.05)
    assert clean(table, days=0) == Orphans(1, 5)


def test_live_files_of_tags_branches_and_snapshots_stay(table: Table) -> None:
    create_tag(stored(table), "kept", table.store.create, snapshot_id=1, time_retained=None)
    create_branch(stored(table), "b", table.store.create, tag="kept")
    assert expire(table) == 3
    delete_tag(stored(table), "kept")  # the branch's own tag stays
    put(table, *ORPHANS)
    age(table)
    assert clean(table).files == len(ORPHANS)
    assert missing(table) == unreachable(table) == set()


def test_files_that_a_forgotten_tag_leaves_are_orphans(table: Table) -> None:
    create_tag(stored(table), "kept", table.store.create, snapshot_id=1, time_retained=None)
    expire(table)
    delete_tag(stored(table), "kept")
    age(table)
    left = unreachable(table)
    assert left and clean(table).files == len(left)
    assert missing(table) == unreachable(table) == set()


@pytest.mark.parametrize("producer", ["none", "input"])
def test_changelogs_that_outlive_snapshots_keep_their_files(tmp_path: Path, producer: str) -> None:
    table = filled(
        create(
            tmp_path,
            "CREATE TABLE t (k INT NOT NULL, v STRING, p STRING NOT NULL, n INT NOT NULL) "
            "PARTITIONED BY (p, n) TBLPROPERTIES ('primary-key' = 'k,p,n', 'bucket' = '1', "
            f"'changelog-producer' = '{producer}')",
        )
    )
    assert expire(table, options=CHANGELOGS) == 3
    age(table)
    # The overwrite has left out the changelog files of its writer.
    assert clean(table).files == (2 if producer == "input" else 0)
    assert missing(table) == unreachable(table) == set()


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b"{}", b'{"version": 3}'])
def test_damaged_tags_and_consumers_are_named(table: Table, content: bytes) -> None:
    """And nothing is removed: what they keep is unknown."""
    before = files(table) | {"tag/tag-mine", "consumer/consumer-c"}
    tag, consumer = put(table, "tag/tag-mine", "consumer/consumer-c")
    tag.write_bytes(content)
    for remove in (clean, lambda table: deletable(table, "", ["data-1.parquet"])):
        with pytest.raises(TableDamagedError, match=r"The tag file .*/tag/tag-mine"):
            remove(table)
    tag.unlink()
    consumer.write_bytes(content)
    with pytest.raises(TableDamagedError, match=r"The consumer file .*/consumer/consumer-c"):
        expire(table)
    assert files(table) == before - {"tag/tag-mine"}


def test_damaged_manifest_lists_are_named(table: Table) -> None:
    some = next(Path(table.location).glob("manifest/manifest-list-*"))
    some.write_bytes(b"junk")
    with pytest.raises(TableDamagedError, match=f"{some.name}"):
        clean(table)


def test_copies_without_their_changelogs_do_not_stop_the_cleaning(tmp_path: Path) -> None:
    """An expiry leaves tags and branches their rows, and removes their changelogs, as Java's."""
    table = filled(
        create(
            tmp_path,
            "CREATE TABLE t (k INT NOT NULL, v STRING, p STRING NOT NULL, n INT NOT NULL) "
            "PARTITIONED BY (p, n) TBLPROPERTIES ('primary-key' = 'k,p,n', 'bucket' = '1', "
            "'changelog-producer' = 'input')",
        )
    )
    create_tag(stored(table), "mine", table.store.create, snapshot_id=2, time_retained=None)
    create_branch(stored(table), "side", table.store.create, tag="mine")
    assert expire(table) == 3
    age(table)
    clean(table)
    kept = files(table)
    orphan = put(table, "p=a/n=1/bucket-0/data-1.parquet")[0]
    assert clean(table).files == 1 and not orphan.exists()
    assert files(table) == kept
    tagged = table.paimon.copy({"scan.tag-name": "mine"})
    assert keys(dataclasses.replace(table, paimon=tagged)) == [0, 0, 1, 1]
    data = [name.rpartition("/")[2] for name in kept if "data-" in name]
    assert data and deletable(table, "", data) == []


def test_expiry_that_was_cut_short_does_not_stop_the_cleaning_after_a_transaction(
    table: Table,
) -> None:
    """Else neither ends: the expiry keeps what an open transaction may read."""
    faults._actions["expiry.data_removed"] = "raise"
    with pytest.raises(Exception, match=r"armed at expiry\.data_removed"):
        expire(table)
    for path in Path(table.location).glob("manifest/manifest-list-*"):
        if path.name in {_delta_list(table, 1), _delta_list(table, 2)}:
            path.unlink()
    assert "snapshot/snapshot-1" in files(table)
    assert deletable(table, "pm-0", ["pm-0123.parquet"], since=0) == ["pm-0123.parquet"]


def _delta_list(table: Table, snapshot_id: int) -> str:
    text = (Path(table.location) / f"snapshot/snapshot-{snapshot_id}").read_text()
    return str(json.loads(text)["deltaManifestList"])


def test_file_of_an_open_transaction_stays_however_old_it_is(table: Table) -> None:
    prefix, _ = transaction_names("me", "0123456789abcdef")
    other, _ = transaction_names("me", "fedcba9876543210")
    mine, theirs = put(
        table,
        f"p=a/n=1/bucket-0/{prefix}data-1.parquet",
        f"p=a/n=1/bucket-0/{other}data-1.parquet",
    )
    assert clean(table, moment=lambda: moment_of(table, [prefix], ())).files == 1
    assert mine.exists() and not theirs.exists()


def test_file_of_an_attempt_stays_while_its_note_is_fresh(table: Table) -> None:
    prefix, _ = transaction_names("me", "0123456789abcdef")
    stem = attempts_stem(table.location, prefix)
    open_attempts(table.store, stem)
    (mine,) = put(table, f"p=a/n=1/bucket-0/{prefix}data-1.parquet")
    assert clean(table) == Orphans() and mine.exists()
    age(table)  # whoever wrote it died
    assert clean(table).files == 2
    assert not mine.exists() and not Path(f"{stem}.open").exists()


def test_files_of_a_commit_that_may_be_published_again_stay(table: Table) -> None:
    """The snapshot that had them was overwritten by a writer outside."""
    latest = table.paimon.snapshot_manager().get_latest_snapshot()
    publication = Publication(
        "id", table.name, table.location, latest.id, latest.delta_manifest_list,
        latest.commit_user, latest.commit_identifier, "APPEND", 0, base_list=None,
    )  # fmt: skip
    root = Path(table.location)
    previous = (root / "snapshot/snapshot-3").read_bytes()
    (root / "snapshot/snapshot-4").unlink()
    (root / "snapshot/LATEST").write_text("3")
    assert previous and unreachable(table)
    receipt = clean(table, moment=lambda: moment_of(table, (), [publication]), dry_run=True)
    assert receipt.files == 1  # the base list, which the publication does not name
    assert clean(table, dry_run=True).files > receipt.files


def test_file_that_is_committed_meanwhile_stays(table: Table) -> None:
    """By a writer that leaves no notes and has no transaction, such as Flink."""
    messages = written(table, rows_of(table, 9))
    age(table)
    questions = 0

    def moment() -> Moment:
        nonlocal questions
        questions += 1
        if questions == 2:  # the folders were listed
            ours(table, Append(), messages, "flink")
        return moment_of(table, (), ())

    put(table, *ORPHANS[:2])
    assert clean(table, moment=moment).files == 2
    assert questions >= 2 and missing(table) == unreachable(table) == set()


def test_files_of_an_interrupted_expiry_wait_for_the_next_one(table: Table) -> None:
    expiry = decided(table)
    assert expiry is not None  # its process dies here
    assert clean(table) == Orphans()
    assert missing(table) == set()
    assert carry_out(expiry) == 3
    assert missing(table) == unreachable(table) == set()


def test_nothing_is_removed_where_a_manifest_is_gone(table: Table) -> None:
    put(table, *ORPHANS)
    manifests = Path(table.location) / "manifest"
    snapshot = table.paimon.snapshot_manager().get_latest_snapshot()
    (manifests / snapshot.delta_manifest_list).unlink()
    before = files(table)
    with pytest.raises(TableDamagedError, match=r"in use is unknown") as caught:
        clean(table)
    assert "expiry of another engine" in caught.value.hint and files(table) == before


def test_expiry_by_another_engine_meanwhile_stops_the_cleaning(table: Table) -> None:
    """It removes manifests that were about to be read, each time."""
    put(table, *ORPHANS)
    before = files(table)
    questions = 0

    def moment() -> Moment:
        nonlocal questions
        questions += 1
        present = moment_of(table, (), ())
        if questions <= 3:
            gone = f"main/0/{questions}"
            first = next(iter(present.states.values()))
            lost = type("Lost", (), {**vars(first), "delta_manifest_list": "manifest-list-lost"})
            return Moment(present.prefixes, {**present.states, gone: lost}, present.remains)
        return present

    with pytest.raises(CommitConflictError, match="expire while it is cleaned"):
        clean(table, moment=moment)
    assert files(table) == before


def test_many_orphans_are_removed_some_at_a_time(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orphan_files, "_HELD_MAX", 3)
    put(table, *(f"p={n % 5}/n=1/bucket-0/data-{n}.parquet" for n in range(10)))
    before = time.monotonic()
    assert clean(table).files == 10
    assert time.monotonic() - before < 30 and unreachable(table) == set()
    # Folders that became empty went, too.
    assert not (Path(table.location) / "p=3").exists()


def test_empty_folders_of_partitions_go_when_they_are_old(table: Table) -> None:
    root = Path(table.location)
    for folder in ("p=x/n=1/bucket-0", "p=y/n=1/bucket-0", "mine/empty"):
        (root / folder).mkdir(parents=True)
    age(table)
    os.utime(root / "p=y/n=1/bucket-0")
    assert clean(table) == Orphans()
    assert not (root / "p=x").exists()
    assert (root / "p=y/n=1/bucket-0").exists() and (root / "mine/empty").exists()


def test_cleaning_that_dies_is_finished_by_the_next(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orphan_files, "_HELD_MAX", 3)
    put(table, *ORPHANS)
    monkeypatch.setitem(faults._actions, "orphans.deleted", "raise")
    with pytest.raises(OSError, match="armed"):
        clean(table)
    assert missing(table) == set() and unreachable(table)
    clean(table)
    assert missing(table) == unreachable(table) == set()


def test_orphans_on_s3_go_and_live_objects_stay(server: S3Server) -> None:
    bucket = server.bucket()
    catalog = Catalog.open(bucket.options)
    statement = parse_statement(SQL)
    assert isinstance(statement, CreateTable)
    name = TableName("t", "default")
    catalog.create_table(name, plan_create_table(statement))
    table = catalog.load(name)
    from paimon_magics.tables.commits.commit import commit
    from paimon_magics.tables.commits.decoded_request import decoded
    from tests.tables.commits.test_commit import request

    for number in range(2):
        wanted = request(
            table, Append(), written(table, rows_of(table, number)), commit_user=f"u{number}"
        )
        commit(decoded(table, wanted), catalog.publish, is_first_run=True)
    below = table.location.removeprefix(f"s3://{bucket.name}/")
    before = bucket.objects(below)
    for path in (*ORPHANS, "notes.txt"):
        table.store.write(f"{table.location}/{path}", b"12345")
    time.sleep(1.1)  # its clock ticks in seconds
    assert clean(table, days=0) == Orphans(len(ORPHANS), 5 * len(ORPHANS))
    assert bucket.objects(below) == sorted([*before, f"{below}/notes.txt"])


def test_local_publishing_leaves_nothing_to_clean(table: Table) -> None:
    path = Path(table.location) / "snapshot/other"
    assert publish_local_file(str(path), b"1") and not publish_local_file(str(path), b"2")
    assert [p.name for p in path.parent.iterdir() if p.name.endswith(".tmp")] == []
