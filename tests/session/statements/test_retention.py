"""CREATE TABLE says how far back the table can be read, and a setting keeps snapshots of new tables
longer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import paimon_magics
from paimon_magics import Session
from paimon_magics.errors import InvalidTableError

pytestmark = pytest.mark.spark

OPTION = "snapshot.time-retained"


def option_of(session: Session, table: str) -> str | None:
    rows = session.run(f"SHOW TBLPROPERTIES {table}").to_pylist()
    return {row["key"]: row["value"] for row in rows}.get(OPTION)


def test_create_table_notes_reach_of_time_travel(session: Session) -> None:
    for text in ("CREATE TABLE a (id INT)", "CREATE TABLE b AS SELECT 1 AS id"):
        (note,) = session.run(text).notes
        assert "last 60 min" in note and "the last 10" in note and OPTION in note
    chosen = session.run(f"CREATE TABLE c (id INT) TBLPROPERTIES ('{OPTION}' = '7 d')")
    assert chosen.notes == (), "who has chosen it knows it"
    assert "last 7 days" in session.reports.snapshots("c").notes[0]
    written_by_others = "CREATE TABLE d (id INT) TBLPROPERTIES ('write-only' = 'true')"
    assert session.run(written_by_others).notes == ()
    assert session.reports.snapshots("d").notes == ()


def test_setting_extends_snapshot_retention_of_new_tables(spark: Any, tmp_path: Path) -> None:
    with paimon_magics.connect(
        tmp_path, spark=spark, coordinator="in-process", snapshot_time_retained="7 d"
    ) as session:
        assert session.run("CREATE TABLE a (id INT)").notes == ()
        session.run(f"CREATE TABLE b (id INT) TBLPROPERTIES ('{OPTION}' = '2 h')")
        session.run("CREATE TABLE c AS SELECT 1 AS id")
        session.write([{"id": 1}], "d", create=True)
        kept = {name: option_of(session, name) for name in "abcd"}
        assert kept == {"a": "7 d", "b": "2 h", "c": "7 d", "d": "7 d"}


def test_invalid_retention_setting_is_refused_at_connect(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidTableError, match="'snapshot_time_retained' can't be 'soon'"):
        paimon_magics.connect(
            tmp_path, spark=spark, coordinator="in-process", snapshot_time_retained="soon"
        )
