"""Commits of this project beside those of pypaimon, on copies of one table; and what stays of an
attempt that was not the last."""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.manifest.index_manifest_file import IndexManifestFile
from pypaimon.manifest.manifest_file_manager import ManifestFileManager
from pypaimon.manifest.manifest_list_manager import ManifestListManager
from pypaimon.write.commit_message_serializer import serialize_commit_message

from paimon_magics.errors import (
    CommitConflictError,
    InvalidValueError,
    SetupError,
    UnknownOutcomeError,
    UnsupportedStatementError,
)
from paimon_magics.planning.commits.requests import (
    Append,
    Change,
    CommitReceipt,
    CommitRequest,
    OverwritePartitions,
    OverwriteTouched,
    Transaction,
)
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.commits.commit import check_can_publish, commit, remove_run
from paimon_magics.tables.commits.decoded_request import decoded
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.snapshots.chain import roll_back
from paimon_magics.tables.stores.local_store import publish_local_file
from paimon_magics.tables.table import Table
from tests.tables.manifest_files import TABLE, create, stored

Rows = Sequence[dict[str, Any]]

TABLES = {
    "append": "CREATE TABLE t (k INT, v STRING)",
    "partitioned": "CREATE TABLE t (k INT, p STRING, n INT) PARTITIONED BY (p, n)",
    "primary key": "CREATE TABLE t (k INT NOT NULL, v STRING) "
    "TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '2', 'overwrite-upgrade' = 'false')",
    "dynamic buckets": "CREATE TABLE t (k INT NOT NULL, p STRING NOT NULL, v STRING) "
    "PARTITIONED BY (p) TBLPROPERTIES ('primary-key' = 'k,p', 'bucket' = '-1', "
    "'overwrite-upgrade' = 'false')",  # pypaimon has no such option
    "row tracking": "CREATE TABLE t (k INT, v STRING) "
    "TBLPROPERTIES ('row-tracking.enabled' = 'true')",
    "changelog": "CREATE TABLE t (k INT NOT NULL, v STRING) TBLPROPERTIES ("
    "'primary-key' = 'k', 'bucket' = '1', 'changelog-producer' = 'input', "
    "'overwrite-upgrade' = 'false')",
}


def rows_of(table: Table, number: int, p: str = "a", n: int | None = 1) -> Rows:
    values = {"k": number, "v": f"v{number}", "p": p, "n": n}
    return [{c.name: values[c.name] for c in table.schema.columns}]


def written(table: Table, rows: Rows) -> tuple[bytes, ...]:
    """Messages of pypaimon's own writer."""
    builder = table.paimon.new_batch_write_builder()
    write = builder.new_write()
    write.write_arrow(pa.Table.from_pylist(list(rows), schema=arrow_schema(table.schema)))
    messages = write.prepare_commit()
    write.close()
    fields = table.paimon.partition_keys_fields
    return tuple(serialize_commit_message(message, fields) for message in messages)


def request(
    table: Table, change: Change, messages: tuple[bytes, ...] = (), **transaction: Any
) -> CommitRequest:
    latest = table.paimon.snapshot_manager().get_latest_snapshot()
    base = 0 if latest is None else latest.id
    given = {"commit_user": "somebody", "base_snapshot_id": base, **transaction}
    opened = Transaction(table=table.name, file_prefix="pm-unused-", **given)
    return CommitRequest(opened, change, messages, (("a", "b"),))


def ours(
    table: Table, change: Change, messages: tuple[bytes, ...] = (), user: str = "somebody"
) -> CommitReceipt:
    commit_request = request(table, change, messages, commit_user=user)
    return commit(decoded(table, commit_request), publish_local_file, is_first_run=True)


def pypaimons(table: Table, change: Change, messages: tuple[bytes, ...]) -> None:
    """The same change by pypaimon's commit."""
    from pypaimon.write.commit_message_serializer import deserialize_commit_message
    from pypaimon.write.file_store_commit import FileStoreCommit

    paimon = table.paimon.copy(
        {"dynamic-partition-overwrite": str(isinstance(change, OverwriteTouched)).lower()}
    )
    decoded = [
        deserialize_commit_message(
            body, paimon.partition_keys_fields, paimon.trimmed_primary_keys_fields, version=14
        )
        for body in messages
    ]
    environment = paimon.catalog_environment
    publisher = environment.snapshot_commit(paimon.snapshot_manager())
    committer = FileStoreCommit(publisher, paimon, "somebody")
    identifier = 2**63 - 1
    match change:
        case Append():
            committer.commit(decoded, identifier, snapshot_properties={"a": "b"})
        case OverwriteTouched():
            committer.overwrite({}, decoded, identifier, snapshot_properties={"a": "b"})
        case OverwritePartitions(specs=specs) if len(specs) <= 1:
            spec = {k: int(v) if k == "n" and v else v for s in specs for k, v in s}
            committer.overwrite(spec, decoded, identifier, snapshot_properties={"a": "b"})
        case OverwritePartitions(specs=specs):
            committer.drop_partitions(
                [{k: int(v) if k == "n" and v else v for k, v in spec} for spec in specs],
                identifier,
            )


def described(table: Table) -> dict[str, Any]:
    """The latest snapshot, with the contents of its files in place of their names."""
    snapshot = table.paimon.snapshot_manager().get_latest_snapshot()
    document = {
        key: value
        for key, value in dataclasses.asdict(snapshot).items()
        if not key.endswith("_size") and key not in ("uuid", "time_millis", "base_manifest_list")
    }
    lists = ManifestListManager(table.paimon)
    manifests = ManifestFileManager(table.paimon)

    def entries(name: str | None) -> Any:
        metas = lists.read(name) if name else []
        found = [e for meta in metas for e in manifests.read(meta.file_name, drop_stats=False)]
        return sorted(
            (e.kind, str(e.partition.values), e.bucket, e.total_buckets, str(record(e)))
            for e in found
        )

    def record(entry: Any) -> Any:
        return ManifestFileManager._to_avro_record(entry)

    document["delta_manifest_list"] = entries(snapshot.delta_manifest_list)
    document["changelog_manifest_list"] = entries(snapshot.changelog_manifest_list)
    document["all"] = {
        (tuple(e.partition.values), e.bucket, e.file.file_name)
        for e in manifests.read_entries_parallel(lists.read_all(snapshot))
    }
    if snapshot.index_manifest:
        index = IndexManifestFile(table.paimon).read(snapshot.index_manifest)
        document["index_manifest"] = {
            (e.kind, tuple(e.partition.values), e.bucket, e.index_file.file_name) for e in index
        }
    return document


def copy_of(table: Table, warehouse: Path) -> Table:
    """The same table in another warehouse."""
    target = warehouse / "default.db" / "t"
    shutil.copytree(Path(table.location), target)
    return Catalog.open({"warehouse": str(warehouse)}).load(TABLE)


A, B = (("p", "a"), ("n", "1")), (("p", "b"),)
CHANGES = {
    "append": (Append(), True, tuple(TABLES)),
    "empty append": (Append(), False, ("append",)),
    "overwrite of all": (OverwritePartitions(), True, tuple(TABLES)),
    "truncate": (OverwritePartitions(), False, ("append", "partitioned", "dynamic buckets")),
    "overwrite of a partition": (OverwritePartitions((A,)), True, ("partitioned",)),
    "removal of a partition": (OverwritePartitions((B,)), False, ("partitioned",)),
    "removal of partitions": (OverwritePartitions((A, B)), False, ("partitioned",)),
    "removal of no partition": (
        OverwritePartitions(((("p", "x"),),)),
        False,
        ("partitioned",),
    ),
    "removal of null": (
        OverwritePartitions(((("p", "b"), ("n", None)),)),
        False,
        ("partitioned",),
    ),
    "dynamic overwrite": (OverwriteTouched(), True, ("append", "partitioned", "dynamic buckets")),
    "empty dynamic overwrite": (OverwriteTouched(), False, ("append", "partitioned")),
}
CASES = [(change, kind) for change, (_, _, kinds) in CHANGES.items() for kind in kinds]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_commit_matches_pypaimon(tmp_path: Path, name: str, kind: str) -> None:
    change, has_rows, _ = CHANGES[name]
    table = create(tmp_path / "one", TABLES[kind])
    for number, (p, n) in enumerate([("a", 1), ("b", 2), ("b", None)]):
        ours(table, Append(), written(table, rows_of(table, number, p, n)))
    messages = written(table, rows_of(table, 9)) if has_rows else ()
    other = copy_of(table, tmp_path / "other")
    receipt = ours(table, change, messages)
    pypaimons(other, change, messages)
    mine, theirs = described(table), described(other)
    if name == "removal of partitions":
        assert theirs.pop("properties") is None, "pypaimon has learned to keep them"
        assert mine.pop("properties") == {"a": "b"}
    assert mine == theirs
    assert receipt.snapshot_id in (mine["id"], None)
    assert (receipt.snapshot_id is None) == (mine["id"] == 3)


def test_snapshot_inherits_watermark_and_statistics(
    tmp_path: Path,
) -> None:
    table = create(tmp_path, TABLES["append"])
    ours(table, Append(), written(table, rows_of(table, 1)))
    folder = Path(table.location)
    (folder / "statistics").mkdir()
    statistics = {"snapshotId": 1, "schemaId": 0, "mergedRecordCount": 1}
    (folder / "statistics" / "stat-1").write_text(json.dumps(statistics))
    path = folder / "snapshot" / "snapshot-1"
    known = json.loads(path.read_text())
    path.write_text(json.dumps({**known, "watermark": 77, "statistics": "stat-1"}))
    ours(table, Append(), written(table, rows_of(table, 2)))
    latest = described(table)
    assert (latest["watermark"], latest["statistics"]) == (77, "stat-1")
    (folder / "statistics" / "stat-1").write_text(json.dumps({**statistics, "schemaId": 5}))
    ours(table, Append(), written(table, rows_of(table, 3)))
    latest = described(table)
    assert (latest["watermark"], latest["statistics"]) == (77, None)


def test_manifests_stay_few_and_all_snapshots_stay_readable(tmp_path: Path) -> None:
    table = create(
        tmp_path,
        "CREATE TABLE t (k INT, p STRING, n INT) PARTITIONED BY (p, n) "
        "TBLPROPERTIES ('manifest.merge-min-count' = '4')",
    )
    lists = ManifestListManager(table.paimon)
    for number in range(22):
        change = OverwriteTouched() if number % 5 == 4 else Append()
        ours(table, change, written(table, rows_of(table, number, "ab"[number % 2])))
        latest = table.paimon.snapshot_manager().get_latest_snapshot()
        assert len(lists.read_base(latest)) <= 4
    seen: list[set[int]] = []
    for snapshot_id in range(1, 23):
        past = table.paimon.copy({"scan.snapshot-id": str(snapshot_id)})
        builder = past.new_read_builder()
        actual = builder.new_read().to_arrow(builder.new_scan().plan().splits())
        seen.append(set(actual["k"].to_pylist()))
    expected: set[int] = set()
    for number in range(22):
        if number % 5 == 4:
            expected = {k for k in expected if k % 2 != number % 2}
        expected.add(number)
        assert seen[number] == expected


def referenced(table: Table) -> set[str]:
    """The names of the metadata files that the table's snapshots lead to."""
    lists = ManifestListManager(table.paimon)
    names: set[str] = set()
    for snapshot in table.paimon.snapshot_manager().list_snapshots():
        for name in (
            snapshot.base_manifest_list,
            snapshot.delta_manifest_list,
            snapshot.changelog_manifest_list,
        ):
            if name:
                names |= {name, *(meta.file_name for meta in lists.read(name))}
        names |= {snapshot.index_manifest} - {None}
    return names


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table that merges its manifests with the next commit."""
    sql = TABLES["append"] + " TBLPROPERTIES ('manifest.merge-min-count' = '2')"
    table = create(tmp_path, sql)
    for number in range(2):
        ours(table, Append(), written(table, rows_of(table, number)))
    return table


def keys(table: Table) -> list[int]:
    builder = table.paimon.new_read_builder()
    found = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    return sorted(found["k"].to_pylist())


def test_outrun_attempt_reuses_its_manifests_when_retried(table: Table) -> None:
    late: list[set[str]] = []

    def publish(path: str, content: bytes) -> bool:
        if len(late) < 2:
            late.append(stored(table) - referenced(table))
            ours(table, Append(), written(table, rows_of(table, 10 + len(late))), "faster")
        return publish_local_file(path, content)

    commit_request = request(table, Append(), written(table, rows_of(table, 5)))
    receipt = commit(decoded(table, commit_request), publish, token="mine")
    assert receipt.snapshot_id == 5
    assert keys(table) == [0, 1, 5, 11, 12]
    assert stored(table) == referenced(table)
    own = {name for name in stored(table) if "-mine-" in name}
    assert sorted(late[0] & own) == ["manifest-list-mine-1", "manifest-mine-0"]
    assert len(own) == 3, "what it adds, the list of that, and the list of what was there"


def test_error_for_an_invalid_message_names_the_table(table: Table) -> None:
    good = written(table, rows_of(table, 1))
    commit_request = request(table, Append(), (*good, good[0][:-1]))
    with pytest.raises(InvalidValueError, match=f"A commit message for `{table.name}`"):
        decoded(table, commit_request)
    assert gc.isenabled()


@pytest.mark.parametrize("is_clear", [True, False])
def test_expired_snapshots_matter_only_after_an_unclear_attempt(
    table: Table, is_clear: bool
) -> None:
    """An engine that commits often may keep a single snapshot."""

    def publish(path: str, content: bytes) -> bool:
        nonlocal tried
        if tried:
            return publish_local_file(path, content)
        tried = True
        for number in (50, 51):
            ours(table, Append(), written(table, rows_of(table, number)), f"{number}")
        snapshots = sorted(Path(path).parent.glob("snapshot-*"), key=lambda p: int(p.name[9:]))
        for snapshot in snapshots[:-1]:
            snapshot.unlink()
        if not is_clear:
            raise OSError("no answer")
        return False

    tried = False
    commit_request = request(table, Append(), written(table, rows_of(table, 60)))
    if is_clear:
        commit(decoded(table, commit_request), publish, is_first_run=True)
        assert {50, 51, 60} <= set(keys(table))
    else:
        with pytest.raises(UnknownOutcomeError):
            commit(decoded(table, commit_request), publish, is_first_run=True)


def test_unclear_attempt_is_looked_up_before_a_retry(table: Table) -> None:
    asked: list[str] = []

    def publish(path: str, content: bytes) -> bool:
        asked.append(Path(path).name)
        if len(asked) == 1:
            raise OSError("no answer, and nothing done")
        publish_local_file(path, content)
        raise OSError("no answer, but done")

    receipt = commit(
        decoded(table, request(table, Append(), written(table, rows_of(table, 5)))), publish
    )
    assert receipt.snapshot_id == 3
    assert asked == ["snapshot-3", "snapshot-3"]
    assert keys(table) == [0, 1, 5]
    assert stored(table) == referenced(table)


def test_files_of_a_snapshot_are_synced_before_publishing(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[str] = set()
    sync = os.fsync

    def noting(descriptor: int) -> None:
        sync(descriptor)
        synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))

    before = {str(path) for path in Path(table.location).rglob("*")}
    named: list[Path] = []

    def publish(path: str, content: bytes) -> bool:
        snapshot = json.loads(content)
        folder = Path(table.location, "manifest")
        lists = [snapshot["baseManifestList"], snapshot["deltaManifestList"]]
        for name in lists:
            actual = ManifestListManager(table.paimon).read(name)
            named.extend([folder / name, *(folder / meta.file_name for meta in actual)])
        assert {str(path) for path in named} - before <= synced
        assert {str(path) for path in data} <= synced
        assert {str(path.parent) for path in [*data, *named]} <= synced
        return publish_local_file(path, content)

    commit_request = request(table, Append(), written(table, rows_of(table, 5)))
    data = [path for path in Path(table.location).rglob("*.parquet") if str(path) not in before]
    assert data
    monkeypatch.setattr(os, "fsync", noting)
    assert commit(decoded(table, commit_request), publish).snapshot_id == 3
    assert named


def test_commit_of_a_missing_data_file_is_refused(table: Table) -> None:
    before = set(Path(table.location).rglob("*.parquet"))
    commit_request = request(table, Append(), written(table, rows_of(table, 5)))
    [data] = set(Path(table.location).rglob("*.parquet")) - before
    data.unlink()
    with pytest.raises(CommitConflictError, match="is gone, so the commit"):
        commit(decoded(table, commit_request), publish_local_file)
    assert keys(table) == [0, 1]
    assert stored(table) == referenced(table)


def test_refused_commit_leaves_no_files(table: Table) -> None:
    def refuse(snapshot_id: int) -> None:
        assert snapshot_id == 3
        raise CommitConflictError("not you")

    commit_request = request(table, Append(), written(table, rows_of(table, 5)))
    with pytest.raises(CommitConflictError, match="not you"):
        commit(decoded(table, commit_request), publish_local_file, check_before=refuse)
    assert keys(table) == [0, 1]
    assert stored(table) == referenced(table)


def test_commit_begun_before_a_rollback_is_refused(table: Table) -> None:
    """Its snapshot would have an id at which nobody looks for it: its files would be removed as
    those of a run that died, and its repetition would double its rows."""
    commit_request = request(table, Append(), written(table, rows_of(table, 5)))
    assert commit_request.transaction.base_snapshot_id == 2
    roll_back(table, publish_local_file, snapshot_id=1)
    with pytest.raises(CommitConflictError, match="was rolled back to before snapshot 2"):
        commit(decoded(table, commit_request), publish_local_file)
    assert keys(table) == [0]
    again = request(table, Append(), written(table, rows_of(table, 5)))
    receipt = commit(decoded(table, again), publish_local_file, token="second")
    assert receipt.snapshot_id == 2
    assert remove_run(table, again.transaction, "second") == 0
    assert commit(decoded(table, again), publish_local_file, token="third") == receipt
    assert keys(table) == [0, 5]


def test_second_deletion_of_the_same_file_is_refused(table: Table) -> None:
    """Two that delete one file: the second finds it deleted."""
    snapshot = table.paimon.snapshot_manager().get_latest_snapshot()
    lists, manifests = ManifestListManager(table.paimon), ManifestFileManager(table.paimon)
    [entry] = manifests.read_entries_parallel(lists.read_delta(snapshot), drop_stats=False)
    from pypaimon.write.commit_message import CommitMessage

    message = CommitMessage(
        partition=(), bucket=entry.bucket, new_files=[], deleted_files=[entry.file]
    )
    deleted = (serialize_commit_message(message, table.paimon.partition_keys_fields),)
    first = ours(table, Append(), deleted)
    assert (first.commit_kind, first.delta_rows) == ("OVERWRITE", -1)
    with pytest.raises(CommitConflictError, match="File deletion conflicts"):
        ours(table, Append(), deleted)
    assert stored(table) == referenced(table)


def test_unwritable_commit_is_refused_and_succeeds_later(table: Table) -> None:
    commit_request = request(table, Append(), written(table, rows_of(table, 5)))
    folder = Path(table.location) / "manifest"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    shutil.rmtree(folder)
    folder.write_text("in the way")
    with pytest.raises(SetupError, match="could not be prepared"):
        commit(decoded(table, commit_request), publish_local_file)
    folder.unlink()
    folder.mkdir()
    for name, content in before.items():
        (folder / name).write_bytes(content)
    assert commit(decoded(table, commit_request), publish_local_file).snapshot_id == 3


def test_leftovers_of_a_dead_run_are_removed_once_its_outcome_is_known(table: Table) -> None:
    class DiedError(BaseException):
        pass

    def die(path: str, content: bytes) -> bool:
        raise DiedError

    commit_request = request(table, Append(), written(table, rows_of(table, 5)))
    with pytest.raises(DiedError):
        commit(decoded(table, commit_request), die, token="dead")
    left = stored(table) - referenced(table)
    assert len(left) == 4 and all("-dead-" in name for name in left)
    receipt = commit(decoded(table, commit_request), publish_local_file, token="second")
    assert remove_run(table, commit_request.transaction, "second") == 0
    assert remove_run(table, commit_request.transaction, "dead") == 4
    assert stored(table) == referenced(table)
    assert commit(decoded(table, commit_request), publish_local_file, token="third") == receipt


def test_tables_with_non_avro_manifests_are_refused(tmp_path: Path) -> None:
    table = create(tmp_path, TABLES["append"] + " TBLPROPERTIES ('manifest.format' = 'orc')")
    with pytest.raises(UnsupportedStatementError, match=r"'manifest\.format' = 'orc'"):
        check_can_publish(table)
