"""The catalog on real warehouses, filesystem and jdbc: its files, and the errors of wrong input."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from paimon_magics.errors import (
    InvalidTableError,
    SetupError,
    StatementError,
    UnknownNameError,
    UnsupportedStatementError,
)
from paimon_magics.planning.schemas.table_schema import TableSchema, plan_create_table
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable, TableName
from paimon_magics.statements.table_changes import AlterTable, TableChange
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.catalog.names import check_name, check_new_table
from paimon_magics.tables.snapshots.tagged import check_tag_name, is_tag_name

T = TableName("t", "default")
NESTED = (
    "CREATE TABLE t (k INT, s STRUCT<a: STRING, b: ARRAY<STRUCT<x: DECIMAL(10, 2)> NOT NULL>>, "
    "ts TIMESTAMP COMMENT 'when', v VARCHAR(5) DEFAULT 'x') COMMENT 'all of it' "
    "TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '2')"
)


def table_schema(text: str = "CREATE TABLE t (k INT, v STRING)") -> TableSchema:
    statement = parse_statement(text)
    assert isinstance(statement, CreateTable)
    return plan_create_table(statement)


def changes(text: str) -> tuple[TableChange, ...]:
    statement = parse_statement(f"ALTER TABLE t {text}")
    assert isinstance(statement, AlterTable)
    return statement.changes


@pytest.fixture(params=["filesystem", "jdbc"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Catalog:
    options = {"metastore": request.param, "warehouse": str(tmp_path / "warehouse")}
    if request.param == "jdbc":
        options["uri"] = f"jdbc:sqlite:{tmp_path / 'catalog.db'}"
    return Catalog.open(options)


@pytest.fixture
def files(tmp_path: Path) -> Catalog:
    return Catalog.open({"warehouse": str(tmp_path / "warehouse")})


def stored_schema(catalog: Catalog, schema_id: int) -> dict[str, object]:
    path = Path(catalog.warehouse) / "default.db" / "t" / "schema" / f"schema-{schema_id}"
    return dict(json.loads(path.read_text()))


def test_opening_a_new_warehouse_writes_nothing(tmp_path: Path) -> None:
    catalog = Catalog.open({"warehouse": str(tmp_path / "new")})
    assert catalog.list_databases() == ["default"]
    assert catalog.list_tables("default") == []
    assert list(tmp_path.iterdir()) == []


def test_loaded_table_equals_created_table(catalog: Catalog) -> None:
    assert catalog.create_table(T, table_schema(NESTED))
    table = catalog.load(T)
    assert table.schema == table_schema(NESTED)
    assert table.location == f"{catalog.warehouse}/default.db/t"
    assert catalog.list_tables("default") == ["t"]


def test_schema_file_matches_java(files: Catalog) -> None:
    files.create_table(T, table_schema(NESTED))
    schema = stored_schema(files, 0)
    schema.pop("timeMillis")
    element = {"type": "ROW NOT NULL", "fields": [{"id": 3, "name": "x", "type": "DECIMAL(10, 2)"}]}
    assert schema == {
        "version": 3,
        "id": 0,
        "fields": [
            {"id": 0, "name": "k", "type": "INT NOT NULL"},
            {
                "id": 1,
                "name": "s",
                "type": {
                    "type": "ROW",
                    "fields": [
                        {"id": 2, "name": "a", "type": "STRING"},
                        {"id": 4, "name": "b", "type": {"type": "ARRAY", "element": element}},
                    ],
                },
            },
            {
                "id": 5,
                "name": "ts",
                "type": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
                "description": "when",
            },
            {"id": 6, "name": "v", "type": "VARCHAR(5)", "defaultValue": "'x'"},
        ],
        "highestFieldId": 6,
        "partitionKeys": [],
        "primaryKeys": ["k"],
        "options": {"bucket": "2"},
        "comment": "all of it",
    }


def test_added_fields_never_reuse_ids(files: Catalog) -> None:
    files.create_table(T, table_schema(NESTED))
    files.alter_table(T, changes("ADD COLUMN w STRUCT<p: INT, q: INT>"))
    files.alter_table(T, changes("DROP COLUMN w"))
    table = files.alter_table(T, changes("ADD COLUMN s.b.element.y INT FIRST"))
    table = files.alter_table(T, changes("ADD COLUMN w INT AFTER k"))
    assert table.schema.column("w").id == 11
    schema = stored_schema(files, 4)
    assert schema["highestFieldId"] == 11
    assert '"id": 10, "name": "y"' in json.dumps(schema)
    assert '"id": 3, "name": "x"' in json.dumps(schema)


def test_alterations_are_stored_as_planned(catalog: Catalog) -> None:
    catalog.create_table(T, table_schema(NESTED))
    for text in (
        "RENAME COLUMN v TO value",
        "ALTER COLUMN value SET DEFAULT 'y'",
        "ALTER COLUMN ts COMMENT 'then'",
        "ALTER COLUMN s.b.element.x TYPE DOUBLE",
        "ALTER COLUMN ts FIRST",
        "SET TBLPROPERTIES ('owner' = 'me', 'comment' = 'new')",
        "UNSET TBLPROPERTIES ('bucket')",
        "ALTER COLUMN value DROP DEFAULT",
    ):
        table = catalog.alter_table(T, changes(text))
    loaded = catalog.load(T).schema
    assert loaded == table.schema
    assert loaded.column_names == ("ts", "k", "s", "value")
    assert loaded.column("value").default is None
    assert loaded.column("ts").comment == "then"
    assert (loaded.options, loaded.comment) == ((("owner", "me"),), "new")
    assert loaded.schema_id == 8


def test_a_change_without_effect_stores_no_schema(files: Catalog) -> None:
    files.create_table(T, table_schema(NESTED))
    files.alter_table(T, changes("SET TBLPROPERTIES ('bucket' = '2')"))
    assert os.listdir(Path(files.warehouse) / "default.db/t/schema") == ["schema-0"]


def test_concurrent_creates_of_a_table_have_a_single_winner(tmp_path: Path) -> None:
    outcomes: list[str] = []
    start = threading.Barrier(8)

    def create(number: int) -> None:
        catalog = Catalog.open({"warehouse": str(tmp_path / "warehouse")})
        start.wait()
        try:
            catalog.create_table(T, table_schema(f"CREATE TABLE t (c{number} INT)"))
            outcomes.append(f"c{number}")
        except StatementError:
            outcomes.append("")

    threads = [threading.Thread(target=create, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [name for name in outcomes if name]
    assert len(outcomes) == 8
    assert len(winners) == 1
    loaded = Catalog.open({"warehouse": str(tmp_path / "warehouse")}).load(T)
    assert loaded.schema.column_names == (winners[0],)


def test_concurrent_alterations_of_a_table_all_take_effect(tmp_path: Path) -> None:
    warehouse = {"warehouse": str(tmp_path / "warehouse")}
    Catalog.open(warehouse).create_table(T, table_schema())
    failures: list[Exception] = []

    def alter(number: int) -> None:
        try:
            Catalog.open(warehouse).alter_table(T, changes(f"ADD COLUMN c{number} INT"))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=alter, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    loaded = Catalog.open(warehouse).load(T).schema
    assert set(loaded.column_names) == {"k", "v", *(f"c{n}" for n in range(6))}
    assert len({column.id for column in loaded.columns}) == 8


def test_databases_are_created_and_dropped(catalog: Catalog) -> None:
    assert catalog.database_exists("default")
    catalog.create_database("shop")
    catalog.create_database("shop", if_not_exists=True)
    assert catalog.list_databases() == ["default", "shop"]
    catalog.create_table(TableName("orders", "shop"), table_schema())
    with pytest.raises(StatementError, match="not empty: it has 1 table"):
        catalog.drop_database("shop")
    catalog.drop_database("shop", cascade=True)
    assert catalog.list_databases() == ["default"]
    catalog.drop_database("shop", if_exists=True)
    catalog.drop_database("default")
    assert catalog.list_tables("default") == []


def test_folders_with_invalid_database_names_are_not_listed(files: Catalog) -> None:
    for folder in (".db", ".trash.db", "shop.db"):
        (Path(files.warehouse) / folder).mkdir(parents=True)
    assert files.list_databases() == ["default", "shop"]


def test_tables_are_renamed_and_dropped(catalog: Catalog) -> None:
    catalog.create_table(T, table_schema())
    catalog.create_database("shop")
    catalog.rename_table(T, TableName("u", "shop"))
    assert (catalog.list_tables("default"), catalog.list_tables("shop")) == ([], ["u"])
    assert catalog.drop_table(TableName("u", "shop"))
    assert not catalog.drop_table(TableName("u", "shop"), if_exists=True)
    assert not catalog.table_exists(TableName("u", "shop"))


@pytest.mark.parametrize("drops_the_database", [False, True])
def test_drop_succeeds_while_a_transaction_clears_up(
    catalog: Catalog, drops_the_database: bool
) -> None:
    catalog.create_database("shop")
    name = TableName("t", "shop")
    catalog.create_table(name, table_schema())
    folder = Path(catalog.load(name).location.removeprefix("file:"))
    notes = folder / ".attempts"
    notes.mkdir()
    for number in range(3000):
        (notes / f"{number}.open").touch()

    listed = list(os.scandir(notes))

    def clear_up() -> None:
        for note in reversed(listed):
            Path(note).unlink(missing_ok=True)

    thread = threading.Thread(target=clear_up)
    thread.start()
    if drops_the_database:
        catalog.drop_database("shop", cascade=True)
    else:
        assert catalog.drop_table(name)
    thread.join()
    assert not folder.exists()
    assert not catalog.table_exists(name)


def test_rename_refuses_an_existing_folder(files: Catalog) -> None:
    files.create_table(T, table_schema())
    (Path(files.warehouse) / "default.db" / "u").mkdir()
    with pytest.raises(InvalidTableError, match="exists already"):
        files.rename_table(T, TableName("u", "default"))
    assert files.list_tables("default") == ["t"]


def test_folder_without_a_schema_is_not_listed_as_table(files: Catalog) -> None:
    files.create_table(T, table_schema())
    (Path(files.warehouse) / "default.db" / "leftover").mkdir()
    assert files.list_tables("default") == ["t"]


def test_branches_are_loaded_by_name(files: Catalog) -> None:
    files.create_table(T, table_schema())
    files.load(T).paimon.branch_manager().create_branch("b")
    branch = TableName("t", "default", branch="b")
    files.alter_table(branch, changes("ADD COLUMN w INT"))
    assert files.load(branch).schema.column_names == ("k", "v", "w")
    assert files.load(T).schema.column_names == ("k", "v")
    with pytest.raises(UnknownNameError, match="no branch `bb`"):
        files.load(TableName("t", "default", branch="bb"))
    with pytest.raises(UnsupportedStatementError, match="is a branch"):
        files.drop_table(branch)


def test_jdbc_catalog_refuses_branches(tmp_path: Path) -> None:
    uri = f"jdbc:sqlite:{tmp_path / 'catalog.db'}"
    catalog = Catalog.open({"metastore": "jdbc", "uri": uri, "warehouse": str(tmp_path / "w")})
    catalog.create_table(T, table_schema())
    with pytest.raises(UnsupportedStatementError, match="jdbc"):
        catalog.load(TableName("t", "default", branch="b"))


def test_if_not_exists_leaves_an_existing_table_unchanged(catalog: Catalog) -> None:
    catalog.create_table(T, table_schema())
    assert not catalog.create_table(T, table_schema(NESTED), if_not_exists=True)
    assert catalog.load(T).schema == table_schema()
    with pytest.raises(StatementError, match="exists already"):
        catalog.create_table(T, table_schema(NESTED))


def test_unknown_names_suggest_the_nearest(catalog: Catalog) -> None:
    catalog.create_table(TableName("orders", "default"), table_schema())
    with pytest.raises(UnknownNameError) as no_table:
        catalog.load(TableName("order", "default"))
    assert no_table.value.hint == "Did you mean `orders`?"
    with pytest.raises(UnknownNameError) as no_database:
        catalog.load(TableName("orders", "defualt"))
    assert "Did you mean `default`?" in no_database.value.hint
    assert "CREATE DATABASE defualt" in no_database.value.hint
    with pytest.raises(UnknownNameError):
        catalog.list_tables("nowhere")
    with pytest.raises(UnknownNameError):
        catalog.create_table(TableName("t", "nowhere"), table_schema())
    assert not catalog.table_exists(TableName("t", "nowhere"))


def test_a_system_table_can_not_be_loaded_for_writing(catalog: Catalog) -> None:
    catalog.create_table(T, table_schema())
    with pytest.raises(UnsupportedStatementError, match="system table"):
        catalog.load(TableName("t", "default", system_table="files"))


@pytest.mark.parametrize("name", ["a/b", "", ".hidden", "a$b", " a"])
def test_table_names_unusable_as_folders_are_refused(files: Catalog, name: str) -> None:
    with pytest.raises(InvalidTableError):
        files.create_table(TableName(name, "default"), table_schema())
    assert not Path(files.warehouse).exists()


def test_database_named_sys_is_refused(files: Catalog) -> None:
    with pytest.raises(InvalidTableError, match="sys"):
        files.create_database("sys")


def test_filesystem_catalog_refuses_locations_and_properties(files: Catalog) -> None:
    with pytest.raises(UnsupportedStatementError, match="location of its own"):
        files.create_table(T, table_schema("CREATE TABLE t (k INT) LOCATION '/elsewhere'"))
    with pytest.raises(UnsupportedStatementError, match="comment"):
        files.create_database("shop", properties={"comment": "x"})


def test_relative_warehouse_path_becomes_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Catalog.open({"warehouse": "lake"}).warehouse == str(tmp_path / "lake")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Catalog.open({"warehouse": "~/lake"}).warehouse == str(tmp_path / "lake")


def test_a_warehouse_can_be_a_file_uri(tmp_path: Path) -> None:
    catalog = Catalog.open({"warehouse": f"file://{tmp_path}/w"})
    catalog.create_table(T, table_schema())
    assert (tmp_path / "w/default.db/t/schema/schema-0").exists()
    assert catalog.load(T).schema == table_schema()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "'warehouse' is missing"),
        ({"warehouse": "{file}"}, "is a file"),
        ({"warehouse": "{file}/below"}, "is a file"),
        ({"warehouse": "s4://bucket/lake"}, "unknown scheme 's4'"),
        ({"warehouse": "file://tmp/lake"}, "names the host 'tmp'"),
        ({"metastore": "hive", "warehouse": "/x"}, "the metastore 'hive' is not offered"),
        ({"metastore": "rest", "warehouse": "x"}, "'uri' is missing"),
        (
            {"metastore": "rest", "uri": "http://127.0.0.1:1", "warehouse": "x"},
            "'token.provider' is missing",
        ),
        (
            {
                "metastore": "rest",
                "uri": "http://127.0.0.1:1",
                "warehouse": "x",
                "token.provider": "bear",
                "token": "t",
            },
            "http://127.0.0.1:1 can't be opened",
        ),
        ({"metastore": "jdbc", "uri": "jdbc:nope:x", "warehouse": "{new}"}, "can't be opened"),
    ],
)
def test_opening_refuses_an_invalid_warehouse(
    tmp_path: Path, options: dict[str, str], message: str
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    given = {k: v.format(file=file, new=tmp_path / "new") for k, v in options.items()}
    with pytest.raises(SetupError, match=message):
        Catalog.open(given)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_opening_reports_missing_write_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(SetupError, match="no permission to write"):
            Catalog.open({"warehouse": str(tmp_path / "lake")})
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize("name", ["a\x1b[31mred", "a\u202eb", "a\u2028b", "a\tb"])
def test_new_names_have_no_control_characters(name: str) -> None:
    """A terminal, a log line or a page would show something else. Existing ones can be used."""
    checks = (
        lambda: check_name(name, "database"),
        lambda: check_new_table(TableName(name, "default")),
        lambda: check_tag_name(name),
    )
    for check in checks:
        with pytest.raises(InvalidTableError, match="can't be named") as refusal:
            check()
        assert refusal.value.message.isprintable()
    assert is_tag_name(name)
