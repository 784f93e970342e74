"""Deletion vectors whose index files lie beside the data files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from paimon_magics.statements.statement import TableName
from tests.session.rows import rows
from tests.tables.expiry.test_expire_snapshots import expire
from tests.tables.reachability import files, missing, unreachable

if TYPE_CHECKING:
    import paimon_magics

pytestmark = pytest.mark.spark

OPTIONS = "'index-file-in-data-file-dir' = 'true', 'deletion-vectors.enabled' = 'true'"


def test_deletion_vector_indexes_lie_in_bucket_folders_and_expire(
    session: paimon_magics.Session,
) -> None:
    session.run(
        "CREATE TABLE t (p STRING, k INT, v STRING) PARTITIONED BY (p) "
        f"TBLPROPERTIES ('primary-key' = 'p,k', 'bucket' = '1', {OPTIONS})"
    )
    session.run("INSERT INTO t SELECT 'x y/%z', id, uuid() FROM range(5000)")
    for key in (1, 2):
        session.run(f"INSERT INTO t VALUES ('x y/%z', {key}, 'new')")
    seen = "SELECT * FROM t WHERE k < 3 AND v = 'new' OR k > 4997 AND v <> 'new' ORDER BY k"
    actual = rows(session, seen)
    assert [key for _, key, _ in actual] == [1, 2, 4998, 4999]
    assert rows(session, "SELECT count(*) FROM t") == [(5000,)]
    table = session.catalog.load(TableName("t", "default"))
    index = [path for path in files(table) if "-index-" in path and "manifest" not in path]
    assert index and {Path(path).parent.name for path in index} == {"bucket-0"}
    assert not missing(table) and not unreachable(table)
    assert expire(table)
    assert rows(session, seen) == actual
    assert not missing(table) and not unreachable(table)
