"""A warehouse on a disk that may only be read: its tables are read, and nothing is written."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import paimon_magics
from paimon_magics.errors import SetupError
from tests.session.rows import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def warehouse(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """A warehouse with a table, which this process may read only."""
    folder = tmp_path / "warehouse"
    with paimon_magics.connect(folder, spark=spark, coordinator="in-process") as session:
        session.run("CREATE TABLE t (k INT); INSERT INTO t VALUES (1), (2)")
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    if os.geteuid() != 0:
        for path in folders:
            path.chmod(0o555)
        yield folder
        for path in folders:
            path.chmod(0o755)
        return
    mounted = tmp_path / "mounted"  # root may write everywhere else
    mounted.mkdir()
    for arguments in (["--bind", folder, mounted], ["-o", "remount,ro,bind", mounted]):
        if subprocess.run(["mount", *map(str, arguments)], capture_output=True).returncode:
            pytest.skip("root that may not mount can't be kept from writing")
    yield mounted
    subprocess.run(["umount", str(mounted)], check=True)


def test_read_only_warehouse_is_read_and_refuses_writes(
    spark: SparkSession, warehouse: Path
) -> None:
    with paimon_magics.connect(warehouse, spark=spark) as session:
        assert session.store.read_only
        assert session.coordinator == "in-process", "a coordinator could do nothing there"
        with pytest.raises(SetupError, match=r"can only read: the account .* may not write") as no:
            session.reports.queue()
        assert "embedded" not in no.value.hint and "Ask the owner" in no.value.hint
        assert rows(session, "SELECT k FROM t WHERE k > 1") == [(2,)]
        assert rows(session, "SELECT count(*) FROM t$snapshots") == [(1,)]
        for text in (
            "INSERT INTO t VALUES (3)", "DELETE FROM t WHERE k = 1", "CREATE TABLE u (k INT)",
            "CREATE DATABASE d", "DROP TABLE t",
        ):  # fmt: skip
            with pytest.raises(SetupError):
                session.run(text, confirm=True)
        assert rows(session, "SELECT k FROM t ORDER BY k") == [(1,), (2,)]
