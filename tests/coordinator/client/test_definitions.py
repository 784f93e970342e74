"""Changes of definitions by sessions: with a coordinator it is the coordinator that makes them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import httpx
import pandas as pd
import pytest

import paimon_magics
from paimon_magics.errors import PaimonMagicsError, SetupError, UnknownNameError
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.process import Process, create_table, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ALLOWED = ("read=default.shared_*", "read=default.orders", "write=default.bob_*")


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("definitions")
    for name in ("orders", "bob_mine", "salaries", "shared_days"):
        create_table(folder / "warehouse", f"CREATE TABLE {name} (k INT, v STRING)")
    catalog = Catalog.open({"warehouse": str(folder / "warehouse")})
    catalog.create_database("finance")
    made = Process(
        folder / "warehouse", folder / "state", "--audit-table=ops.audit", "--audit-every-ms=200"
    )
    made.start()
    yield made
    made.close()


def token_of(process: Process, name: str, *allowed: str) -> str:
    answer = httpx.post(
        f"{process.address}/v1/tokens",
        json={"name": name, "allow": allowed},
        headers={"Authorization": f"Bearer {process.token()}"},
        trust_env=False,
    )
    return str(answer.json()["token"])


@pytest.fixture(scope="module")
def bob(process: Process) -> str:
    return token_of(process, "bob", *_ALLOWED)


@pytest.fixture
def session(spark: SparkSession, process: Process, bob: str) -> Iterator[paimon_magics.Session]:
    with paimon_magics.connect(coordinator=process.address, token=bob, spark=spark) as opened:
        yield opened


def names(process: Process) -> dict[str, list[str]]:
    """The tables of each database but the audit log's, which comes with the first entry."""
    catalog = Catalog.open({"warehouse": str(process.warehouse)})
    databases = [name for name in catalog.stored_databases() if name != "ops"]
    return {name: catalog.list_tables(name) for name in databases}


@pytest.mark.spark
@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE orders",
        "DROP TABLE IF EXISTS orders",
        "TRUNCATE TABLE orders",
        "ALTER TABLE orders SET TBLPROPERTIES ('snapshot.num-retained.max' = '5')",
        "ALTER TABLE orders ADD COLUMN x INT",
        "ALTER TABLE orders DROP COLUMN v",
        "ALTER TABLE orders RENAME TO bob_orders",
        "ALTER TABLE bob_mine RENAME TO theirs",
        "ALTER TABLE orders CREATE TAG t",
        "CALL sys.create_branch('orders', 'b')",
        "CREATE TABLE theirs (k INT)",
        "CREATE TABLE IF NOT EXISTS theirs AS SELECT 1 AS k",
        "CREATE DATABASE mine",
        "CREATE DATABASE IF NOT EXISTS finance",
        "COMMENT ON DATABASE default IS 'of bob'",
        "DROP DATABASE default CASCADE",
    ],
)
def test_statement_needs_rights_to_the_objects_it_changes(
    session: paimon_magics.Session, process: Process, statement: str
) -> None:
    before = names(process)
    with pytest.raises(SetupError, match="bob lacks permission for this"):
        session.run(statement)
    assert names(process) == before
    orders = Catalog.open({"warehouse": str(process.warehouse)}).load(
        TableName("orders", "default")
    )
    assert orders.schema.schema_id == 0


@pytest.mark.spark
def test_python_calls_need_the_same_rights(
    session: paimon_magics.Session, process: Process
) -> None:
    before = names(process)
    frame = pd.DataFrame({"k": [1]})
    with pytest.raises(SetupError, match="bob lacks permission for this"):
        session.write(frame, "theirs", create=True)
    assert names(process) == before


@pytest.mark.spark
@pytest.mark.parametrize(
    ("hidden", "free"),
    [
        ("DROP TABLE salaries", "DROP TABLE salarias"),
        ("ALTER TABLE salaries ADD COLUMN x INT", "ALTER TABLE salarias ADD COLUMN x INT"),
        ("ALTER TABLE salaries RENAME TO bob_s", "ALTER TABLE salarias RENAME TO bob_s"),
        ("SELECT * FROM salaries", "SELECT * FROM salarias"),
        ("SELECT * FROM `salaries$snapshots`", "SELECT * FROM `salarias$snapshots`"),
        ("DESCRIBE salaries", "DESCRIBE salarias"),
        ("SHOW CREATE TABLE salaries", "SHOW CREATE TABLE salarias"),
        ("ALTER TABLE salaries CREATE TAG t", "ALTER TABLE salarias CREATE TAG t"),
        ("TRUNCATE TABLE salaries", "TRUNCATE TABLE salarias"),
        ("INSERT INTO salaries VALUES (1, 'a')", "INSERT INTO salarias VALUES (1, 'a')"),
        ("DROP DATABASE finance", "DROP DATABASE finanse"),
        ("DROP DATABASE finance CASCADE", "DROP DATABASE finanse CASCADE"),
        ("USE finance", "USE finanse"),
        ("SHOW TABLES IN finance", "SHOW TABLES IN finanse"),
        ("DESCRIBE DATABASE finance", "DESCRIBE DATABASE finanse"),
        ("SELECT * FROM finance.x", "SELECT * FROM finanse.x"),
        ("CREATE TABLE finance.x (k INT)", "CREATE TABLE finanse.x (k INT)"),
    ],
)
def test_hidden_objects_look_like_missing_objects(
    session: paimon_magics.Session, process: Process, hidden: str, free: str
) -> None:
    before = names(process)
    said = []
    for statement in (hidden, free):
        with pytest.raises(PaimonMagicsError) as refused:
            session.run(statement)
        text = f"{type(refused.value).__name__} {refused.value.message} {refused.value.hint}"
        said.append(text.replace("salaries", "salarias").replace("finance", "finanse"))
        assert "ops" not in refused.value.hint
    assert said[0] == said[1]
    assert names(process) == before


@pytest.mark.spark
def test_lists_show_only_visible_objects(session: paimon_magics.Session) -> None:
    databases = session.run("SHOW DATABASES").to_arrow()["namespace"].to_pylist()
    assert databases == ["default"]
    tables = session.run("SHOW TABLES").to_arrow()["tableName"].to_pylist()
    assert tables == ["bob_mine", "orders", "shared_days"]
    listed = session.run("SELECT DISTINCT table_name FROM sys.tables").to_arrow()
    assert sorted(listed["table_name"].to_pylist()) == tables
    session.known_names.databases()
    session.known_names.tables("default")
    session.known_names.table(TableName("salaries", "default"))
    assert session.known_names.wait(20)
    assert session.known_names.databases() == ("default",)
    assert session.known_names.tables("default") == tuple(tables)
    assert session.known_names.table(TableName("salaries", "default")) is None
    assert "There is no table" in str(session.run("DROP TABLE IF EXISTS salaries"))
    assert "There is no database" in str(session.run("DROP DATABASE IF EXISTS finance CASCADE"))


@pytest.mark.spark
def test_changes_are_in_the_audit_log(
    session: paimon_magics.Session, process: Process, spark: SparkSession
) -> None:
    session.run(
        "CREATE TABLE bob_new (k INT); ALTER TABLE bob_new ADD COLUMN v INT; "
        "ALTER TABLE bob_new RENAME TO bob_newer; DROP TABLE bob_newer"
    )
    with pytest.raises(SetupError):
        session.run("DROP TABLE orders")
    session.close()
    with paimon_magics.connect(
        coordinator=process.address, token=process.token(), spark=spark
    ) as admin:

        def found() -> list[tuple[str, str, str]]:
            with contextlib.suppress(UnknownNameError):
                rows = admin.run(
                    "SELECT action, table_name, outcome FROM ops.audit WHERE user_name = 'bob' "
                    "AND (table_name LIKE 'bob_new%' OR table_name = 'orders') ORDER BY id"
                ).to_arrow()
                return [tuple(row.values()) for row in rows.to_pylist()]  # type: ignore[misc]
            return []

        wanted = [
            ("create table", "bob_new", "done"),
            ("alter table", "bob_new", "done"),
            ("rename table", "bob_new", "done"),
            ("drop table", "bob_newer", "done"),
        ]
        wait_until(lambda: set(wanted) <= set(found()), shown=lambda: str(found()))
        assert ("drop table", "orders", "refused") in found()
