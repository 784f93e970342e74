"""Who made a table's snapshots."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Any

import pytest

import paimon_magics
from paimon_magics.errors import SetupError, UnknownNameError

pytestmark = pytest.mark.spark


def test_history_shows_statement_user_and_row_counts(
    session: paimon_magics.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", "reports/daily.ipynb")
    session.run("CREATE TABLE t (k INT NOT NULL, v STRING) TBLPROPERTIES "
                "('primary-key' = 'k', 'bucket' = '1')")  # fmt: skip
    statements = [
        "INSERT INTO t SELECT CAST(id AS INT), 'a' FROM range(3)",
        "UPDATE t SET v = 'b' WHERE k < 2",
        "MERGE INTO t USING (SELECT 0 AS k UNION ALL SELECT 9) s ON t.k = s.k "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, 'm')",
        "DELETE FROM t WHERE v = 'a'",
        "CALL sys.compact('t')",
        "INSERT OVERWRITE t VALUES (1, 'c')",
        "TRUNCATE TABLE t",
    ]
    for text in statements:
        session.run(text)
    session.update("t", {"v": "'d'"}, where="k = 1")
    history = session.history("t").to_arrow().to_pylist()[::-1]
    kinds = ("rows_inserted", "rows_updated", "rows_deleted")
    assert [(row["operation"], *(row[kind] for kind in kinds)) for row in history] == [
        ("INSERT", 3, None, None),
        ("UPDATE", None, 2, None),
        ("MERGE", 1, None, 1),
        ("DELETE", None, None, 1),
        ("COMPACT", None, None, None),
        ("INSERT OVERWRITE", 1, None, None),
        ("TRUNCATE TABLE", None, None, None),
    ]
    assert [row["statement"] for row in history] == statements
    first = history[0]
    assert first["user"] == getpass.getuser()
    assert first["notebook"] == "reports/daily.ipynb"
    assert first["engine"] == f"spark {session.spark.version}"
    assert first["seconds"] > 0
    timeline = session.reports.snapshots("t").data
    for name in ("snapshot_id", "rows", "files_added", "files_removed", "user"):
        assert [row[name] for row in history] == timeline.column(name).to_pylist()[::-1]


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        ("text", "INSERT INTO t VALUES (42, 'private') -- for ada"),
        ("redacted", "INSERT INTO t VALUES (?, ?)"),
        ("none", None),
    ],
)
def test_statement_history_setting_redacts_statements(
    spark: Any, tmp_path: Path, setting: str, shown: str | None
) -> None:
    with paimon_magics.connect(
        tmp_path, spark=spark, coordinator="in-process", statement_history=setting
    ) as session:
        session.run("CREATE TABLE t (k INT, v STRING)")
        session.run("INSERT INTO t VALUES (42, 'private') -- for ada")
        (row,) = session.history("t").to_arrow().to_pylist()
        if shown is None:
            assert len(row["statement"]) == 16, "only a hash"
        else:
            assert row["statement"] == shown
    with pytest.raises(SetupError, match="`statement_history` can't be 'all'"):
        paimon_magics.connect(
            tmp_path, spark=spark, coordinator="in-process", statement_history="all"
        )


def test_snapshot_of_another_engine_has_only_its_commit_user(
    session: paimon_magics.Session,
) -> None:
    import pyarrow as pa
    from pypaimon import CatalogFactory

    session.run("CREATE TABLE t (k INT)")
    table = CatalogFactory.create({"warehouse": session.warehouse}).get_table("default.t")
    builder = table.new_batch_write_builder()
    writer = builder.new_write()
    writer.write_arrow(pa.table({"k": pa.array([1], pa.int32())}))
    builder.new_commit().commit(writer.prepare_commit())
    writer.close()
    (only,) = session.history("t").to_arrow().to_pylist()
    assert (only["user"], only["statement"]) == (None, None)
    assert only["commit_user"] == builder.commit_user


def test_history_of_missing_table_suggests_similar_name(
    session: paimon_magics.Session,
) -> None:
    session.run("CREATE TABLE orders (k INT)")
    with pytest.raises(UnknownNameError, match="There is no table `order`") as raised:
        session.history("order")
    assert "orders" in raised.value.hint
