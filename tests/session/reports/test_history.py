"""Who made a table's snapshots."""

from __future__ import annotations

import getpass
import hashlib

import pytest

import paimon_magics
from paimon_magics.errors import UnknownNameError

pytestmark = pytest.mark.spark

INSERT = "INSERT INTO t SELECT CAST(id AS INT) FROM range(3)"


def test_a_snapshot_tells_its_user_notebook_statement_rows_and_files(
    session: paimon_magics.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", "reports/daily.ipynb")
    session.run("CREATE TABLE t (k INT)")
    session.run(INSERT)
    monkeypatch.delenv("JPY_SESSION_NAME")
    session.run("INSERT OVERWRITE t VALUES (1)")
    newest, oldest = session.history("t").to_arrow().to_pylist()
    assert (newest["snapshot_id"], newest["commit_kind"]) == (2, "OVERWRITE")
    assert (newest["notebook"], newest["rows"], newest["files"]) == (None, 1, 1)
    assert oldest["user"] == getpass.getuser()
    assert oldest["notebook"] == "reports/daily.ipynb"
    assert oldest["engine"] == f"spark {session.spark.version}"
    assert oldest["statement"] == hashlib.sha256(INSERT.encode()).hexdigest()[:16]
    assert oldest["rows"] == 3


def test_a_snapshot_of_another_engine_has_no_user_but_its_commit_user(
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


def test_the_history_of_a_table_that_is_not_there_names_the_nearest(
    session: paimon_magics.Session,
) -> None:
    session.run("CREATE TABLE orders (k INT)")
    with pytest.raises(UnknownNameError, match="There is no table `order`") as raised:
        session.history("order")
    assert "orders" in raised.value.hint
