"""CALL of the procedures that remove snapshots, changelogs, tags, partitions and files: what goes,
what they return, and what a dry run and a preview say before."""

from __future__ import annotations

import datetime
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

import paimon_magics
from paimon_magics import Session
from paimon_magics.errors import (
    InvalidTableError,
    InvalidValueError,
    PaimonMagicsError,
    UnconfirmedError,
    UnknownNameError,
)
from tests.session.rows import rows

pytestmark = pytest.mark.spark

SNAPSHOTS = "SELECT snapshot_id FROM orders$snapshots ORDER BY 1"
LAST_SNAPSHOT = "CALL sys.expire_snapshots(table => 'orders', retain_max => 1, retain_min => 1)"


@pytest.fixture
def orders(session: Session) -> Session:
    """A table with four snapshots; the third replaces one partition."""
    session.run("CREATE TABLE orders (id INT, day STRING) PARTITIONED BY (day)")
    for number, day in ((1, "2020-01-01"), (2, "2020-01-02"), (4, "2999-12-31")):
        session.run(f"INSERT INTO orders VALUES ({number}, '{day}')")
    session.run("INSERT OVERWRITE orders PARTITION (day = '2020-01-01') SELECT 5")
    return session


def folder(session: Session) -> Path:
    return Path(session.warehouse) / "default.db" / "orders"


def data_files(session: Session) -> list[Path]:
    return sorted(folder(session).glob("day=*/bucket-*/*"))


def put(session: Session, path: str) -> Path:
    """A file that nothing refers to, three days old."""
    file = folder(session) / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"12345")
    os.utime(file, (time.time() - 3 * 86_400,) * 2)
    return file


def files_in(message: str) -> int:
    """How many files a message counts."""
    return int(re.search(r"([\d,]+) files?", message)[1].replace(",", ""))  # type: ignore[index]


def snapshots(session: Session) -> list[int]:
    return [number for (number,) in rows(session, SNAPSHOTS)]


def test_expire_snapshots_removes_them_with_the_files_of_theirs(orders: Session) -> None:
    before = rows(orders, "SELECT * FROM orders")
    assert len(data_files(orders)) == 4
    outcome = orders.run(LAST_SNAPSHOT)
    assert outcome.to_pylist() == [{"deleted_snapshots_count": 3}]
    assert str(outcome.to_arrow().schema.field(0).type) == "int32"
    assert outcome.table == "default.orders"
    assert outcome.message.startswith("`default.orders`: 3 snapshots removed, with ")
    assert snapshots(orders) == [4] and len(data_files(orders)) == 3
    assert rows(orders, "SELECT * FROM orders") == before
    assert orders.run(LAST_SNAPSHOT).to_pylist() == [{"deleted_snapshots_count": 0}]


def test_dry_run_counts_what_goes_and_removes_nothing(orders: Session) -> None:
    before = sorted(folder(orders).rglob("*"))
    counted = orders.run(LAST_SNAPSHOT, dry_run=True).message
    assert sorted(folder(orders).rglob("*")) == before
    gone = orders.run(LAST_SNAPSHOT)
    files = gone.message.partition("with ")[2].partition(" ")[0]
    assert f"3 snapshots would be removed, with {files} files (" in counted
    left = [path for path in before if path.is_file() and path.exists()]
    assert len([path for path in before if not path.exists()]) >= int(files) and left


def test_preview_shows_who_keeps_snapshots(orders: Session) -> None:
    orders.run("CALL sys.create_tag('orders', 'kept', 1)")
    orders.run("CALL sys.create_branch('orders', 'side', 'kept')")
    shown = orders.preview(LAST_SNAPSHOT)
    assert [(r["kind"], r["name"], r["snapshot_id"]) for r in shown.to_pylist()] == [
        ("tag", "kept", 1),
        ("branch", "side", 1),
    ]
    assert "3 snapshots would be removed" in shown.notes[0] and snapshots(orders) == [1, 2, 3, 4]
    notes = orders.run(LAST_SNAPSHOT).notes
    assert "Kept by 1 tag: `kept` (snapshot 1)." in notes
    assert "Kept by 1 branch: `side` (snapshot 1)." in notes
    assert rows(orders, "SELECT id FROM orders VERSION AS OF 'kept'") == [(1,)]


def test_time_is_read_in_the_zone_of_the_session(orders: Session) -> None:
    zone = orders.spark.conf.get("spark.sql.session.timeZone")
    try:
        orders.spark.conf.set("spark.sql.session.timeZone", "Pacific/Auckland")
        local = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=6)
        call = (
            "CALL sys.expire_snapshots(table => 'orders', retain_min => 1, "
            f"older_than => '{local:%Y-%m-%d %H:%M:%S}')"
        )
        # Auckland's clocks show a later time than this one: nothing is as old as that.
        assert orders.run(call).to_pylist() == [{"deleted_snapshots_count": 0}]
    finally:
        orders.spark.conf.set("spark.sql.session.timeZone", zone)


def test_expire_tags_removes_those_whose_time_is_over(orders: Session) -> None:
    orders.run("CALL sys.create_tag('orders', 'short', 1, '1 ms')")
    orders.run("CALL sys.create_tag('orders', 'long', 2, '1 d')")
    time.sleep(0.05)
    dry = orders.run("CALL sys.expire_tags('orders')", dry_run=True)
    assert dry.message.startswith("`default.orders`: 1 tag would be removed: `short`.")
    assert "Kept by 1 tag: `long`" in dry.message  # and not by the tag that goes
    outcome = orders.run("CALL sys.expire_tags(table => 'orders')")
    assert outcome.to_pylist() == [{"expired_tags": "short"}]
    none = orders.run("CALL sys.expire_tags(table => 'orders')").to_pylist()
    assert none == [{"expired_tags": "No expired tags."}]
    every = "CALL sys.expire_tags(table => 'orders', older_than => '2999-01-01')"
    with pytest.raises(UnconfirmedError, match="1 tag: `long`"):
        orders.run(every, confirm=False)
    assert orders.run(every, confirm=True).to_pylist() == [{"expired_tags": "long"}]


def test_expire_changelogs_removes_what_outlived_its_snapshot(session: Session) -> None:
    session.run(
        "CREATE TABLE orders (id INT NOT NULL, v STRING) TBLPROPERTIES ('primary-key' = 'id', "
        "'bucket' = '1', 'changelog-producer' = 'input', 'changelog.num-retained.min' = '20', "
        "'write-only' = 'true')"
    )
    for number in range(4):
        session.run(f"INSERT INTO orders VALUES ({number}, 'a')")
    session.run(LAST_SNAPSHOT)
    stored = folder(session) / "changelog"
    assert len(list(stored.glob("changelog-*"))) == 3
    call = "CALL sys.expire_changelogs(table => 'orders', retain_max => 2, retain_min => 1)"
    assert "2 changelogs would be removed" in session.run(call, dry_run=True).message
    assert session.run(call).to_pylist() == [{"result": "2"}]
    every = "CALL sys.expire_changelogs(table => 'orders', delete_all => true)"
    assert session.run(every).to_pylist() == [
        {"result": "Delete all separated changelogs success."}
    ]
    assert list(stored.glob("changelog-*")) == []
    assert len(rows(session, "SELECT * FROM orders")) == 4


PARTITIONS = "CALL sys.expire_partitions(table => 'orders', expiration_time => '1 d'{})"


def test_expire_partitions_drops_those_whose_values_are_old(orders: Session) -> None:
    orders.run("INSERT INTO orders VALUES (8, 'junk'), (9, NULL)")
    call = PARTITIONS.format(", timestamp_formatter => 'yyyy-MM-dd'")
    preview = orders.preview(call)
    assert {r["partition"] for r in preview.to_pylist()} == {"day=2020-01-01", "day=2020-01-02"}
    with pytest.raises(UnconfirmedError, match="2 partitions") as caught:
        orders.run(call, confirm=False)
    assert "--preview" in caught.value.hint
    assert "would be removed" in orders.run(call, dry_run=True).message
    outcome = orders.run(call, confirm=True)
    assert outcome.to_pylist() == [
        {"expired_partitions": "day=2020-01-01"},
        {"expired_partitions": "day=2020-01-02"},
    ]
    assert outcome.commit_kind == "OVERWRITE" and "sys.rollback" in outcome.notes[0]
    assert sorted(rows(orders, "SELECT id FROM orders")) == [(4,), (8,), (9,)]
    none = orders.run(call).to_pylist()
    assert none == [{"expired_partitions": "No expired partitions."}]


def test_max_expires_limits_partitions_that_are_dropped(orders: Session) -> None:
    outcome = orders.run(PARTITIONS.format(", max_expires => 1"), confirm=True)
    assert outcome.to_pylist() == [{"expired_partitions": "day=2020-01-01"}]


def test_partitions_expire_by_the_time_of_their_last_write(orders: Session) -> None:
    call = PARTITIONS.format(", expire_strategy => 'update-time'")
    assert orders.run(call).to_pylist() == [{"expired_partitions": "No expired partitions."}]
    now = call.replace("1 d", "1 ms")
    assert len(orders.run(now, confirm=True).to_pylist()) == 3
    assert rows(orders, "SELECT * FROM orders") == []


def test_partitions_whose_values_are_no_time_are_named(orders: Session) -> None:
    call = (
        "CALL sys.expire_partitions(table => 'orders', expiration_time => '1 d', "
        "timestamp_formatter => 'yyyyMMdd')"
    )
    sentence = "3 partitions can't expire, such as (2020-01-01)"
    assert sentence in orders.run(call, dry_run=True).message
    outcome = orders.run(call, confirm=True)
    assert sentence in outcome.notes[0] and "timestamp_formatter" in outcome.notes[0]
    right = call.replace("yyyyMMdd", "yyyy-MM-dd")
    assert "can't expire" not in orders.run(right, dry_run=True).message
    by_update = call.replace("yyyyMMdd'", "yyyyMMdd', expire_strategy => 'update-time'")
    assert "can't expire" not in orders.run(by_update, dry_run=True).message


def test_remove_orphan_files_deletes_what_nothing_refers_to(orders: Session) -> None:
    put(orders, "day=2020-01-01/bucket-0/data-1.parquet")
    put(orders, "manifest/manifest-1")
    young = put(orders, "manifest/manifest-2")
    os.utime(young)
    call = "CALL sys.remove_orphan_files(table => 'orders'{})"
    dry = orders.run(call.format(", dry_run => true"))
    assert dry.to_pylist() == [{"deletedFileCount": 2, "deletedFileTotalLenInBytes": 10}]
    assert "2 files (10 B) that nothing refers to would be removed" in dry.message
    assert dry.message == orders.run(call.format(""), dry_run=True).message
    preview = orders.preview(call.format("")).to_pylist()
    assert sorted((row["kind"], row["name"]) for row in preview) == [
        ("orphan", "day=2020-01-01/bucket-0/data-1.parquet"),
        ("orphan", "manifest/manifest-1"),
    ]
    outcome = orders.run(call.format(""))
    assert outcome.to_pylist() == [{"deletedFileCount": 2, "deletedFileTotalLenInBytes": 10}]
    assert "2 files (10 B) that nothing refers to removed" in outcome.message
    assert young.exists() and len(rows(orders, "SELECT * FROM orders")) == 3
    every = orders.run("CALL sys.remove_orphan_files(table => 'default.*', dry_run => true)")
    assert every.to_pylist() == [{"deletedFileCount": 0, "deletedFileTotalLenInBytes": 0}]
    put(orders, "manifest/manifest-3")
    of_all = "CALL sys.remove_orphan_files(table => 'default.*')"
    assert [r["name"] for r in orders.preview(of_all).to_pylist()] == ["orders/manifest/manifest-3"]


def test_purge_files_leaves_an_empty_table_with_one_snapshot(orders: Session) -> None:
    orders.run("CALL sys.create_tag('orders', 'kept', 1)")
    orders.run("CALL sys.create_branch('orders', 'side', 'kept')")
    with pytest.raises(UnconfirmedError, match=r"tags, branches and consumers"):
        orders.run("CALL sys.purge_files('orders')", confirm=False)
    dry = orders.run("CALL sys.purge_files('orders')", dry_run=True).message
    assert "would be removed" in dry and len(snapshots(orders)) == 4
    outcome = orders.run("CALL sys.purge_files('orders')", confirm=True)
    assert files_in(outcome.message) == files_in(dry) > 4 and outcome.notes == ()
    assert outcome.to_pylist() == [{"result": "Success"}]
    assert outcome.commit_kind == "OVERWRITE"
    assert snapshots(orders) == [5] and data_files(orders) == []
    assert rows(orders, "SELECT * FROM orders$tags") == []
    assert rows(orders, "SELECT * FROM orders$branches") == []
    orders.run("INSERT INTO orders VALUES (1, 'after')")
    assert rows(orders, "SELECT * FROM orders") == [(1, "after")]


def test_purge_keeps_what_is_read_and_says_so(spark: Any, tmp_path: Path) -> None:
    with paimon_magics.connect(tmp_path / "w", spark=spark, coordinator="embedded") as session:
        session.run("CREATE TABLE orders (id INT, day STRING) PARTITIONED BY (day)")
        for number in (1, 2, 3):
            session.run(f"INSERT INTO orders VALUES ({number}, '2020-01-01')")
        read = session.run("SELECT id FROM orders VERSION AS OF 2 ORDER BY id")
        purge = "CALL sys.purge_files('orders')"
        dry = session.run(purge, dry_run=True).message
        outcome = session.run(purge, confirm=True)
        assert files_in(outcome.message) == files_in(dry) > 0
        sentences = (
            "Kept by 1 snapshot that a session reads: snapshot 2.",
            "Snapshots from 2 on stay with their rows and files, which VERSION AS OF reads, until "
            "nobody reads them. Then repeat the call.",
        )
        assert outcome.notes == sentences and dry.endswith(" ".join(sentences))
        assert snapshots(session) == [2, 3, 4]
        assert rows(session, "SELECT id FROM orders VERSION AS OF 3 ORDER BY 1") == [
            (1,),
            (2,),
            (3,),
        ]
        assert read.to_pylist() == [{"id": 1}, {"id": 2}]


def test_remove_unexisting_files_makes_the_rest_readable_again(orders: Session) -> None:
    lost = next(p for p in data_files(orders) if "2020-01-02" in str(p))
    lost.unlink()
    call = "CALL sys.remove_unexisting_files(table => 'orders'{})"
    dry = orders.run(call.format(", dry_run => true"))
    assert [Path(r["fileName"]).name for r in dry.to_pylist()] == [lost.name]
    assert "1 file with 1 row that are gone would be taken out" in dry.message
    with pytest.raises(PaimonMagicsError):
        rows(orders, "SELECT * FROM orders")
    outcome = orders.run(call.format(""))
    assert len(outcome.to_pylist()) == 1 and outcome.snapshot_id == 5
    assert sorted(rows(orders, "SELECT id FROM orders")) == [(4,), (5,)]
    assert orders.run(call.format("")).to_pylist() == []


@pytest.mark.parametrize(
    ("call", "error", "message", "hint"),
    [
        ("expire_snapshots('orderz')", UnknownNameError, "orderz", "orders"),
        ("expire_snapshots('orders', 3)", InvalidValueError, "`retain_min` is 10", "retain_min =>"),
        ("expire_snapshots('orders', 0)", InvalidValueError, "`retain_max` is 0", "at most"),
        ("expire_snapshots('orders', 3, 5)", InvalidValueError, "nothing expires", "retain_max"),
        ("expire_snapshots('orders', 3, 0)", InvalidValueError, "always stays", "at least 1"),
        (
            "expire_snapshots(table => 'orders', older_than => 'yesterday')",
            InvalidValueError,
            "'yesterday' is not a time",
            "2026-01-31",
        ),
        (
            "expire_snapshots(table => 'orders', max_deletes => 0)",
            InvalidValueError,
            "`max_deletes` is 0",
            "at least 1",
        ),
        (
            "expire_snapshots(table => 'orders', options => 'snapshot.time-retaind=1 d')",
            InvalidValueError,
            "'snapshot.time-retaind' does not affect",
            "snapshot.time-retained",
        ),
        (
            "expire_snapshots(table => 'orders', retain_last => 5)",
            UnknownNameError,
            "no parameter `retain_last`",
            "retain_m",
        ),
        ("expire_snapshots('orders$files')", PaimonMagicsError, "orders", ""),
        ("expire_partitions('orders')", InvalidTableError, "unknown how old", "expiration_time"),
        ("expire_partitions('plain', '1 d')", InvalidTableError, "no partitions", "PARTITIONED"),
        ("expire_partitions('orders', 'x')", InvalidTableError, "expiration-time", ""),
        (
            "expire_partitions('orders', '1 d', 'dd.EEE')",
            InvalidValueError,
            "formatter 'dd.EEE' has 'EEE'",
            "update-time",
        ),
        (
            "expire_partitions('orders', '1 d', 'yyyy', 'dt')",
            InvalidValueError,
            "names no partition column",
            "'$day'",
        ),
        (
            "expire_partitions('orders', '1 d', NULL, NULL, 'x')",
            InvalidTableError,
            "no strategy 'x'",
            "values-time",
        ),
        ("remove_orphan_files('orderz')", UnknownNameError, "orderz", "orders"),
        ("remove_orphan_files('nope.*')", UnknownNameError, "database `nope`", ""),
        (
            "remove_orphan_files('orders', '2999-01-01')",
            InvalidValueError,
            "a time to come",
            "leave it out",
        ),
        (
            "remove_orphan_files(table => 'orders', mode => 'fast')",
            InvalidValueError,
            "no mode 'fast'",
            "'local'",
        ),
        ("remove_orphan_files('orders$branch_side')", InvalidValueError, "a branch", "default."),
        (
            "remove_orphan_files(table => 'orders', parallelism => 0)",
            InvalidValueError,
            "`parallelism` is 0",
            "Leave it out",
        ),
        ("purge_files('orderz')", UnknownNameError, "orderz", "orders"),
        ("expire_tags('orders', 'soon')", InvalidValueError, "'soon' is not a time", "2026-01-31"),
    ],
)
def test_wrong_call_names_the_mistake_and_removes_nothing(
    orders: Session, call: str, error: type[PaimonMagicsError], message: str, hint: str
) -> None:
    orders.run("CREATE TABLE plain (id INT)")
    orders.run("CALL sys.create_tag('orders', 'a', 1)")
    orders.run("CALL sys.create_branch('orders', 'side', 'a')")
    before = sorted(folder(orders).rglob("*"))
    with pytest.raises(error) as caught:
        orders.run(f"CALL sys.{call}", confirm=True)
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert sorted(folder(orders).rglob("*")) == before


def test_rows_that_wait_to_be_loaded_go_with_their_partition(spark: Any, tmp_path: Path) -> None:
    """They were acknowledged before, so none of them may come back."""
    with paimon_magics.connect(tmp_path / "w", spark=spark, coordinator="embedded") as session:
        session.run(
            "CREATE TABLE orders (id INT, day STRING) PARTITIONED BY (day) "
            "TBLPROPERTIES ('auto_batch_load' = 'true')"
        )
        session.run("INSERT INTO orders VALUES (1, '2020-01-01')")
        outcome = session.run(PARTITIONS.format(""), confirm=True)
        assert outcome.to_pylist() == [{"expired_partitions": "day=2020-01-01"}]
        time.sleep(1)
        assert rows(session, "SELECT id FROM orders") == []
