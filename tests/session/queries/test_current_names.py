"""What Spark would tell of its own catalog is told of the session's."""

from __future__ import annotations

import pytest

from paimon_magics import Session

pytestmark = pytest.mark.spark


def test_current_database_functions_follow_use(session: Session) -> None:
    session.run("CREATE DATABASE shop; CREATE TABLE shop.t (k INT); INSERT INTO shop.t VALUES (1)")
    query = "SELECT current_database(), current_schema() AS s, current_catalog() FROM shop.t"
    for database in ("default", "shop"):
        session.run(f"USE {database}")
        assert session.run(query).to_pylist() == [
            {"current_database()": database, "s": database, "current_catalog()": "paimon"}
        ]
        for word in ("NAMESPACE", "database", "SCHEMA"):
            shown = session.run(f"SHOW CURRENT {word}")
            assert shown.to_pylist() == [{"catalog": "paimon", "namespace": database}]
    assert session.run("SELECT k FROM shop.t WHERE current_database() = 'shop'").to_pylist()
