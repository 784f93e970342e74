"""Tags, branches and rolling back on a real table: what is made, refused, and found again when a
change is asked for a second time because nobody heard the first answer."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from paimon_magics.errors import (
    InvalidTableError,
    PaimonMagicsError,
    StatementError,
    UnknownNameError,
)
from paimon_magics.planning.reads.read_points import AtTag
from paimon_magics.planning.schemas.table_schema import plan_create_table
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable, TableName
from paimon_magics.statements.version_changes import (
    CreateBranch,
    CreateTag,
    CreateTagFromTimestamp,
    DeleteBranches,
    DeleteTags,
    FastForward,
    RenameBranch,
    RenameTag,
    ReplaceTag,
    RollBackToSnapshot,
    RollBackToTag,
    RollBackToTimestamp,
    RollBackToWatermark,
    VersionChange,
)
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.catalog.stored_tables import load_stored
from paimon_magics.tables.expiry.expire_snapshots import remove_tag
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.snapshots.branches import list_branches
from paimon_magics.tables.snapshots.chain import (
    latest_document,
    list_snapshots,
    list_tags,
    load_tag,
    snapshot_by_id,
    tag_document,
)
from paimon_magics.tables.snapshots.tags_and_branches import VersionReceipt, change_version
from paimon_magics.tables.snapshots.time_travel import find_target
from paimon_magics.tables.system_tables.table_view import TableView
from paimon_magics.tables.system_tables.versions import tags
from paimon_magics.tables.table import StoredTable

NAME = TableName("t", "default")


class Versions:
    """A table with three snapshots, and changes of it."""

    def __init__(self, warehouse: Path) -> None:
        self.catalog = Catalog.open({"warehouse": str(warehouse)})
        statement = parse_statement("CREATE TABLE t (k INT)")
        assert isinstance(statement, CreateTable)
        self.catalog.create_table(NAME, plan_create_table(statement))
        for k in (1, 2, 3):
            self.append(k)

    def table(self, branch: str | None = None) -> StoredTable:
        return load_stored(self.catalog, TableName("t", "default", branch=branch))

    def append(self, k: int, branch: str | None = None) -> None:
        table = self.catalog.load(TableName("t", "default", branch=branch))
        builder = table.paimon.new_batch_write_builder()
        write = builder.new_write()
        write.write_arrow(pa.table({"k": [k]}, schema=arrow_schema(table.schema)))
        builder.new_commit().commit(write.prepare_commit())
        write.close()

    def change(
        self, change: VersionChange, branch: str | None = None, *, repeated: bool = False
    ) -> VersionReceipt:
        name = TableName("t", "default", branch=branch)
        return change_version(
            self.table(branch),
            change,
            self.catalog.publish,
            self.table,
            lambda tag: remove_tag(self.catalog.load(name), tag),
            repeated=repeated,
        )

    def ids(self, branch: str | None = None) -> list[int]:
        return [s["id"] for s in list_snapshots(self.table(branch), 0, None)]

    def tags(self) -> dict[str, int]:
        return {
            name: (load_tag(self.table(), name) or {})["id"] for name in list_tags(self.table())
        }

    def files(self) -> list[str]:
        location = Path(self.table().location)
        return sorted(
            str(p.relative_to(location)) + ("" if p.is_dir() else p.read_bytes().hex())
            for p in location.rglob("*")
        )


@pytest.fixture
def versions(tmp_path: Path) -> Versions:
    return Versions(tmp_path / "warehouse")


def test_tag_refers_to_the_latest_or_a_given_snapshot(versions: Versions) -> None:
    assert versions.change(CreateTag("latest")) == VersionReceipt(("latest",))
    versions.change(CreateTag("20261120", 1))
    assert versions.tags() == {"20261120": 1, "latest": 3}
    stored = load_tag(versions.table(), "latest")
    assert stored == snapshot_by_id(versions.table(), 3)


def test_tag_with_a_retention_time_records_its_creation_time(versions: Versions) -> None:
    versions.change(CreateTag("a", 1, "3 d"))
    stored = load_tag(versions.table(), "a")
    assert stored is not None and stored["tagTimeRetained"] == 3 * 86_400.0
    assert len(stored["tagCreateTime"]) in (6, 7)


ENDLESS = [
    "1000001 d",
    "999999999999 d",
    "9223372036854775807 ms",
    "99999999999999999999 d",
    f"{'9' * 5_000} d",
]


@pytest.mark.parametrize("retained", ENDLESS, ids=len)
def test_tag_with_an_unreachable_end_is_refused(versions: Versions, retained: str) -> None:
    versions.change(CreateTag("kept"))
    for change in (
        CreateTag("a", None, retained),
        CreateTag("kept", None, retained, False, True),
        ReplaceTag("kept", 1, retained),
        CreateTagFromTimestamp("a", 0, retained),
    ):
        with pytest.raises(StatementError) as raised:
            versions.change(change)
        assert f"'{retained[:40]}" in raised.value.message
        assert len(raised.value.message) < 300
        if len(retained) < 100:
            assert "the longest time is 1000000 d" in raised.value.message
    assert list_tags(versions.table()) == ["kept"]
    assert versions.change(CreateTag("a", None, "1000000 d")).changed == ("a",)


def test_foreign_tag_with_an_unreachable_end_never_expires(versions: Versions) -> None:
    versions.change(CreateTag("a", 2, "1 d"))
    path = Path(versions.table().location) / "tag" / "tag-a"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tagTimeRetained": 8.64e16}))
    table = versions.table()
    tag = load_tag(table, "a")
    assert tag is not None
    assert tag_document("a", tag)["tagTimeRetained"] is None
    actual = find_target(versions.catalog.load(NAME), AtTag("a"), "UTC")
    assert [id for id, _ in actual.identity] == [2]
    view = TableView(table, latest_document(table), {}, ManifestCache(table.paimon))
    assert tags(view).column("time_retained").to_pylist() == [None]
    assert versions.change(CreateBranch("b", "a")).changed == ("b",)
    assert versions.ids("b") == [2]
    versions.change(RollBackToTag("a"))
    assert versions.ids() == [1, 2]


def test_existing_tag_is_kept_or_replaced_as_requested(versions: Versions) -> None:
    versions.change(CreateTag("a", 1))
    assert versions.change(CreateTag("a", 2, if_not_exists=True)) == VersionReceipt()
    assert versions.tags() == {"a": 1}
    versions.change(CreateTag("a", 2, or_replace=True))
    assert versions.tags() == {"a": 2}
    versions.change(ReplaceTag("a", 3, "1 h"))
    assert versions.tags() == {"a": 3}


def test_a_tag_is_renamed_and_deleted(versions: Versions) -> None:
    versions.change(CreateTag("a", 2, "1 d"))
    content = load_tag(versions.table(), "a")
    assert versions.change(RenameTag("a", "b")) == VersionReceipt(("b",))
    assert load_tag(versions.table(), "b") == content
    assert versions.change(DeleteTags(("b", "nope"))) == VersionReceipt(("b",))
    assert versions.tags() == {}


def test_tag_is_created_from_a_timestamp(versions: Versions) -> None:
    times = [s["timeMillis"] for s in list_snapshots(versions.table(), 0, None)]
    receipt = versions.change(CreateTagFromTimestamp("a", times[1] - 1))
    assert (receipt.snapshot_id, receipt.commit_time_ms) == (2, times[1])
    with pytest.raises(UnknownNameError, match=str(times[2])):
        versions.change(CreateTagFromTimestamp("b", times[2] + 1))


def test_expired_snapshot_stays_usable_while_a_tag_keeps_it(versions: Versions) -> None:
    versions.change(CreateTag("a", 1))
    (Path(versions.table().location) / "snapshot" / "snapshot-1").unlink()
    versions.change(CreateTag("b", 1))
    assert versions.tags() == {"a": 1, "b": 1}
    assert versions.change(RollBackToSnapshot(1)).snapshot_id == 1
    assert versions.ids() == [1]


def test_rollback_removes_later_snapshots_and_their_tags(versions: Versions) -> None:
    for number in (1, 2, 3):
        versions.change(CreateTag(f"tag {number}", number))
    receipt = versions.change(RollBackToTag("tag 2"))
    assert receipt == VersionReceipt(snapshot_id=2, previous_snapshot_id=3)
    assert (versions.ids(), versions.tags()) == ([1, 2], {"tag 1": 1, "tag 2": 2})
    versions.append(4)
    assert versions.ids() == [1, 2, 3]


def test_rollback_picks_the_last_snapshot_by_time_or_watermark(
    versions: Versions,
) -> None:
    folder = Path(versions.table().location) / "snapshot"
    for number, mark in ((1, 10), (2, 20), (3, 30)):
        document = json.loads((folder / f"snapshot-{number}").read_text())
        document |= {"timeMillis": 1000 * number, "watermark": mark}
        (folder / f"snapshot-{number}").write_text(json.dumps(document))
    assert versions.change(RollBackToTimestamp(2999)).snapshot_id == 2
    assert versions.change(RollBackToWatermark(19)).snapshot_id == 1
    with pytest.raises(UnknownNameError, match="the earliest is 1000"):
        versions.change(RollBackToTimestamp(999))


def test_branch_is_created_fast_forwarded_renamed_and_deleted(versions: Versions) -> None:
    versions.change(CreateTag("a", 2))
    assert versions.change(CreateBranch("dev", "a")) == VersionReceipt(("dev",))
    assert versions.change(CreateBranch("empty")) == VersionReceipt(("empty",))
    assert (versions.ids("dev"), versions.ids("empty")) == ([2], [])
    versions.append(7, "dev")
    with pytest.raises(InvalidTableError, match="would be lost"):
        versions.change(FastForward("dev"))
    versions.change(RollBackToTag("a"))
    versions.change(FastForward("dev"))
    latest = latest_document(versions.table())
    assert latest == snapshot_by_id(versions.table("dev"), 3)
    versions.change(RenameBranch("dev", "old"))
    assert versions.change(DeleteBranches(("old",))) == VersionReceipt(("old",))
    assert list_branches(versions.table()) == ["empty"]


def test_branch_has_nothing_of_a_partly_removed_predecessor(versions: Versions) -> None:
    versions.change(CreateTag("a", 2))
    versions.change(CreateBranch("dev", "a"))
    versions.append(7, "dev")
    schema = Path(versions.table().location) / "branch/branch-dev/schema/schema-0"
    schema.unlink()
    assert list_branches(versions.table()) == []
    versions.change(CreateBranch("dev", "a"))
    assert versions.ids("dev") == [2]


def test_tag_of_a_branch_belongs_to_the_branch_only(versions: Versions) -> None:
    versions.change(CreateTag("a"))
    versions.change(CreateBranch("dev", "a"))
    versions.change(CreateTag("b"), "dev")
    assert list_tags(versions.table("dev")) == ["a", "b"]
    assert list_tags(versions.table()) == ["a"]


@pytest.mark.parametrize(
    ("change", "error", "message", "hint"),
    [
        (CreateTag("monday"), InvalidTableError, "names snapshot 2", "OR REPLACE"),
        (CreateTag(" "), InvalidTableError, "named", "blank"),
        (CreateTag("a/b"), InvalidTableError, "`a/b`", "slashes"),
        (CreateTag("x", 99), UnknownNameError, "snapshot 99", "$snapshots"),
        (CreateTag("x", 1, "3 dayz"), StatementError, "3 dayz", "12 h"),
        (ReplaceTag("mondy"), UnknownNameError, "`mondy`", "`monday`"),
        (ReplaceTag("monday", 99), UnknownNameError, "snapshot 99", "$snapshots"),
        (RenameTag("mondy", "x"), UnknownNameError, "`mondy`", "`monday`"),
        (RenameTag("monday", "sunday"), InvalidTableError, "`sunday`", "another name"),
        (RenameTag("monday", ".x"), InvalidTableError, "`.x`", "dot"),
        (CreateBranch("dev"), InvalidTableError, "`dev`", "sys.delete_branch"),
        (CreateBranch("main"), InvalidTableError, "`main`", "Choose"),
        (CreateBranch("123"), InvalidTableError, "`123`", "number"),
        (CreateBranch(" "), InvalidTableError, "named", "Choose"),
        (CreateBranch("x", "mondy"), UnknownNameError, "`mondy`", "`monday`"),
        (DeleteBranches(("dev", "dve")), UnknownNameError, "`dve`", "`dev`"),
        (DeleteBranches(("main",)), UnknownNameError, "`main`", "`dev`"),
        (RenameBranch("dve", "x"), UnknownNameError, "`dve`", "`dev`"),
        (RenameBranch("dev", "main"), InvalidTableError, "`main`", "Choose"),
        (FastForward("dve"), UnknownNameError, "`dve`", "`dev`"),
        (FastForward("dev"), InvalidTableError, "no snapshots", "Write"),
        (RollBackToTag("mondy"), UnknownNameError, "`mondy`", "`monday`"),
        (RollBackToSnapshot(99), UnknownNameError, "99: it has 1 to 3", "$tags"),
        (RollBackToSnapshot(0), UnknownNameError, "0: it has 1 to 3", "$tags"),
        (RollBackToTimestamp(5), UnknownNameError, "up to 5", "$snapshots"),
        (RollBackToWatermark(5), UnknownNameError, "no snapshot has one", "$snapshots"),
    ],
)
def test_invalid_change_is_refused_and_changes_nothing(
    versions: Versions,
    change: VersionChange,
    error: type[PaimonMagicsError],
    message: str,
    hint: str,
) -> None:
    versions.change(CreateTag("monday", 2))
    versions.change(CreateTag("sunday", 1))
    versions.change(CreateBranch("dev"))
    before = versions.files()
    with pytest.raises(error) as caught:
        versions.change(change)
    assert message in caught.value.message and hint in caught.value.hint
    assert versions.files() == before


def test_table_without_snapshots_refuses_tags_and_rollbacks(versions: Versions) -> None:
    versions.change(CreateBranch("empty"))
    for change in (CreateTag("a"), RollBackToSnapshot(1)):
        with pytest.raises(UnknownNameError, match=r"no snapshots? "):
            versions.change(change, "empty")


@pytest.mark.parametrize(
    ("before", "change"),
    [
        ([], CreateTag("a", 2, "1 d")),
        ([], CreateTag("a", 2, or_replace=True)),
        ([CreateTag("a", 1)], ReplaceTag("a", 2)),
        ([], CreateTagFromTimestamp("a", 5)),
        ([CreateTag("a", 1)], DeleteTags(("a",))),
        ([CreateTag("a", 1)], RenameTag("a", "b")),
        ([CreateTag("a", 2)], CreateBranch("dev", "a")),
        ([CreateBranch("dev")], DeleteBranches(("dev",))),
        ([CreateBranch("dev")], RenameBranch("dev", "b")),
        ([CreateTag("a", 3), CreateBranch("dev", "a")], FastForward("dev")),
        ([], RollBackToSnapshot(2)),
        ([CreateTag("a", 2)], RollBackToTag("a")),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, list) else "",
)
def test_repeated_change_has_no_further_effect(
    versions: Versions, before: list[VersionChange], change: VersionChange
) -> None:
    for each in before:
        versions.change(each)
    versions.change(change)
    done = versions.ids(), versions.tags(), list_branches(versions.table())
    versions.change(change, repeated=True)
    assert (versions.ids(), versions.tags(), list_branches(versions.table())) == done


def test_repeated_tag_on_another_snapshot_is_refused(versions: Versions) -> None:
    versions.change(CreateTag("a", 1))
    with pytest.raises(InvalidTableError, match="exists already"):
        versions.change(CreateTag("a", 2), repeated=True)


def test_interrupted_rename_of_a_tag_resumes(versions: Versions) -> None:
    versions.change(CreateTag("a", 1))
    folder = Path(versions.table().location) / "tag"
    (folder / "tag-b").write_bytes((folder / "tag-a").read_bytes())
    with pytest.raises(InvalidTableError, match="`b`"):
        versions.change(RenameTag("a", "b"))
    versions.change(RenameTag("a", "b"), repeated=True)
    assert versions.tags() == {"b": 1}
