"""Databases, tables, tags and branches on S3: of two writers of one file exactly one wins."""

from __future__ import annotations

import pickle
import threading
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from paimon_magics.errors import SetupError, StatementError, UnsupportedStatementError
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.table_changes import AlterTable, TableChange
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.catalog.stored_tables import load_stored
from paimon_magics.tables.snapshots.branches import (
    branch_exists,
    create_branch,
    drop_branch,
    list_branches,
    rename_branch,
)
from paimon_magics.tables.snapshots.chain import create_tag, latest_document, load_tag, roll_back
from tests.backends.s3 import Bucket, Environment, Reply, S3Server, s3_server
from tests.faults.appending import TABLE, append, committer_of

DEFINITION = TableSchema((Column(0, "a", AtomicType("INT")), Column(1, "b", AtomicType("INT"))))
FOLDER = "warehouse/default.db/t"


@pytest.fixture(scope="module")
def module_server() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def server(module_server: S3Server) -> Iterator[S3Server]:
    before = module_server.between
    yield module_server
    module_server.between = before


@pytest.fixture
def bucket(server: S3Server) -> Bucket:
    return server.bucket()


@pytest.fixture
def catalog(bucket: Bucket) -> Catalog:
    opened = Catalog.open(bucket.options)
    opened.create_table(TABLE, DEFINITION)
    return opened


def changes(sql: str) -> tuple[TableChange, ...]:
    statement = parse_statement(sql)
    assert isinstance(statement, AlterTable)
    return statement.changes


def just_before(path: str, action: Callable[[], None]) -> Callable[..., Reply]:
    """Another writer acts when a conditional PUT of the path has arrived, and is not yet done."""
    left = [True]
    guard = threading.Lock()

    def between(request: Environment, hand_on: Callable[[], Reply]) -> Reply:
        if request.get("HTTP_IF_NONE_MATCH") == "*" and request["PATH_INFO"].endswith(path):
            with guard:
                mine = left and left.pop()
            if mine:
                action()
        return hand_on()

    return between


def test_second_creator_of_a_table_gets_an_exists_error(server: S3Server, bucket: Bucket) -> None:
    first, second = Catalog.open(bucket.options), Catalog.open(bucket.options)
    other = TableSchema((Column(0, "theirs", AtomicType("STRING")),))
    created: list[bool] = []

    def create() -> None:
        created.append(second.create_table(TABLE, other))

    server.between = just_before("schema-0", create)
    with pytest.raises(StatementError, match="exists already"):
        first.create_table(TABLE, DEFINITION)
    assert created == [True]
    assert first.load(TABLE).schema.column_names == ("theirs",)
    assert first.create_table(TABLE, DEFINITION, if_not_exists=True) is False


def test_concurrent_alteration_is_planned_on_the_earlier_alteration(
    server: S3Server, bucket: Bucket, catalog: Catalog
) -> None:
    other = Catalog.open(bucket.options)
    sql = "ALTER TABLE t ADD COLUMN theirs INT"
    server.between = just_before("schema-1", lambda: void(other.alter_table(TABLE, changes(sql))))
    altered = catalog.alter_table(TABLE, changes("ALTER TABLE t ADD COLUMN ours INT"))
    assert altered.schema.column_names == ("a", "b", "theirs", "ours")
    assert altered.schema.schema_id == 2
    ids = [column.id for column in altered.schema.columns]
    assert ids == [0, 1, 2, 3], "no field id is given twice"


def test_contradicting_concurrent_alteration_is_refused(
    server: S3Server, bucket: Bucket, catalog: Catalog
) -> None:
    other = Catalog.open(bucket.options)
    sql = "ALTER TABLE t ADD COLUMN same INT"
    server.between = just_before("schema-1", lambda: void(other.alter_table(TABLE, changes(sql))))
    with pytest.raises(StatementError, match="same"):
        catalog.alter_table(TABLE, changes(sql))
    assert catalog.load(TABLE).schema.column_names == ("a", "b", "same")


def void(_: object) -> None:
    """Nothing."""


def test_tags_and_branches_are_created_once(bucket: Bucket, catalog: Catalog) -> None:
    committer = committer_of(catalog)
    for number in range(3):
        append(catalog, committer, [(0, number)])
    table = load_stored(catalog, TABLE)
    for created in (True, False):
        assert (
            create_tag(table, "v1", catalog.publish, snapshot_id=2, time_retained=None) is created
        )
        assert create_branch(table, "dev", catalog.publish, tag="v1") is created
    tag = load_tag(table, "v1")
    assert tag is not None and tag["id"] == 2
    assert list_branches(table) == ["dev"]
    branch = TableName("t", "default", branch="dev")
    assert latest_document(load_stored(catalog, branch)) == latest_of(catalog, 2)
    with pytest.raises(UnsupportedStatementError, match="rename a folder in one step"):
        rename_branch(table, "dev", "other")
    assert branch_exists(table, "dev") and not branch_exists(table, "other")
    assert drop_branch(table, "dev")
    assert [key for key in bucket.objects(FOLDER) if "/branch/" in key] == []


def latest_of(catalog: Catalog, snapshot_id: int) -> object:
    from paimon_magics.tables.snapshots.chain import snapshot_by_id

    return snapshot_by_id(load_stored(catalog, TABLE), snapshot_id)


def test_latest_hint_follows_commits_and_rollbacks(bucket: Bucket, catalog: Catalog) -> None:
    committer = committer_of(catalog)
    for number in range(3):
        append(catalog, committer, [(0, number)])
    table = load_stored(catalog, TABLE)
    hint = f"{table.location}/snapshot/LATEST"
    assert table.store.read(hint) == b"3"
    roll_back(table, catalog.publish, snapshot_id=1)
    assert table.store.read(hint) == b"1"
    assert [key for key in bucket.objects(f"{FOLDER}/snapshot")] == [
        f"{FOLDER}/snapshot/LATEST",
        f"{FOLDER}/snapshot/snapshot-1",
    ]
    assert append(catalog, committer, [(0, 9)]).snapshot_id == 2
    table.store.write(hint, b"1")  # a stale one is noticed
    assert append(catalog, committer, [(0, 10)]).snapshot_id == 3


def test_rename_is_refused_and_drop_removes_all_objects(bucket: Bucket, catalog: Catalog) -> None:
    append(catalog, committer_of(catalog), [(0, 0)])
    before = bucket.objects()
    with pytest.raises(UnsupportedStatementError, match="rename a folder in one step"):
        catalog.rename_table(TABLE, TableName("u", "default"))
    assert bucket.objects() == before
    assert catalog.drop_table(TABLE)
    assert bucket.objects(FOLDER) == []
    assert catalog.list_tables("default") == []


def test_each_manifest_is_written_by_a_single_request(server: S3Server, catalog: Catalog) -> None:
    committer = committer_of(catalog)
    append(catalog, committer, [(0, 0)])
    asked: Counter[tuple[str, str]] = Counter()

    def between(request: Environment, hand_on: Callable[[], Reply]) -> Reply:
        asked[request["REQUEST_METHOD"], request["PATH_INFO"]] += 1
        return hand_on()

    server.between = between
    append(catalog, committer, [(0, 1)])
    manifests = {(m, path): n for (m, path), n in asked.items() if "/manifest/" in path}
    assert {method for method, _ in manifests} == {"GET", "PUT"}
    assert {n for (method, _), n in manifests.items() if method == "PUT"} == {1}


def test_unreachable_store_is_reported_and_works_again_later(
    server: S3Server, bucket: Bucket, catalog: Catalog
) -> None:
    committer = committer_of(catalog)
    append(catalog, committer, [(0, 0)])
    server.stop()
    try:
        with pytest.raises(SetupError, match=r"s3://.* can't be opened"):
            Catalog.open(bucket.options)
        with pytest.raises(SetupError, match=r"s3://.*"):
            committer.begin(TABLE)
    finally:
        server.start()
    assert append(catalog, committer, [(0, 1)]).total_rows == 2


def test_read_only_credentials_are_refused_before_any_write(
    server: S3Server, bucket: Bucket, catalog: Catalog
) -> None:
    def read_only(request: Environment, hand_on: Callable[[], Reply]) -> Reply:
        if request["REQUEST_METHOD"] in ("PUT", "POST", "DELETE"):
            return Reply.error("403 Forbidden", "AccessDenied")
        return hand_on()

    append(catalog, committer_of(catalog), [(0, 0)])
    before = bucket.objects()
    server.between = read_only
    reader = Catalog.open(bucket.options)
    assert reader.load(TABLE).schema.column_names == ("a", "b")
    for attempt in (
        lambda: committer_of(reader).begin(TABLE),
        lambda: reader.create_table(TableName("u", "default"), DEFINITION),
        lambda: reader.alter_table(TABLE, changes("ALTER TABLE t ADD COLUMN c INT")),
    ):
        with pytest.raises(SetupError, match=r"403 Forbidden .AccessDenied"):
            attempt()
    assert bucket.objects() == before


def test_table_can_be_pickled_for_a_task(catalog: Catalog) -> None:
    append(catalog, committer_of(catalog), [(0, 7)])
    table = pickle.loads(pickle.dumps(catalog.load(TABLE).paimon))
    builder = table.new_read_builder()
    rows = builder.new_read().to_arrow(builder.new_scan().plan().splits()).to_pylist()
    assert rows == [{"a": 0, "b": 7}]
