"""Sessions that were open while their warehouse was moved: told so by each kind of statement."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import paimon_magics
from paimon_magics.errors import PaimonMagicsError
from tests.coordinator.commands import done
from tests.coordinator.inserts.serving import SLOW, Served, table_sql
from tests.coordinator.inserts.test_identity import start_with

STATEMENTS = (
    "SELECT * FROM default.t",
    "SELECT * FROM default.t$snapshots",
    "INSERT INTO default.t SELECT 9, 'z'",
    "INSERT INTO default.t VALUES (9, 'z')",
    "INSERT INTO default.unknown VALUES (9, 'z')",
    "DELETE FROM default.t WHERE id = 1",
    "TRUNCATE TABLE default.t",
    "CREATE TABLE default.other (k INT)",
    "ALTER TABLE default.t SET TBLPROPERTIES ('write-buffer-size' = '1 mb')",
    "DROP TABLE default.t",
    "CREATE DATABASE other",
    "SHOW TABLES IN default",
    "SHOW DATABASES",
    "DESCRIBE default.t",
    "CALL sys.create_tag('default.t', 'a')",
)


@pytest.mark.parametrize("used", [False, True], ids=["first", "later"])
def test_each_statement_of_an_open_session_says_where_the_warehouse_went(
    tmp_path: Path, spark: Any, used: bool
) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        served.insert([[1, "a"]])
        served.flush()
        session = paimon_magics.connect(
            coordinator=served.process.address, token=served.process.token(), spark=spark
        )
        try:
            if used:
                assert session.run("SELECT count(*) FROM default.t").to_arrow().num_rows == 1
            served.process.end()
            target = tmp_path / "curated"
            words = [f"--state={served.process.state}", "--yes"]
            done("move", target, *words, f"--warehouse={tmp_path / 'warehouse'}")
            start_with(served, target)
            works: dict[str, Callable[[], object]] = {
                text: lambda text=text: session.run(text).to_arrow() for text in STATEMENTS
            }
            works["session.insert"] = lambda: session.insert("default.t", [{"id": 9, "name": "z"}])
            untold = {}
            for name, work in works.items():
                try:
                    untold[name] = repr(work())
                except PaimonMagicsError as error:
                    if f"was moved to {target}" not in error.text():
                        untold[name] = error.text()
            assert untold == {}
        finally:
            session.close()
