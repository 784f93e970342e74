"""Columns with a global index of Paimon's engines: what becomes of it when they change."""

from __future__ import annotations

from pathlib import Path

import pytest
from pypaimon.globalindex.global_index_meta import GlobalIndexMeta
from pypaimon.index.index_file_handler import IndexFileHandler
from pypaimon.index.index_file_meta import IndexFileMeta
from pypaimon.manifest.index_manifest_entry import IndexManifestEntry
from pypaimon.table.row.generic_row import GenericRow
from pypaimon.write.commit_message import CommitMessage

from paimon_magics import Session
from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.commits.requests import Append, CommitRequest, Transaction
from paimon_magics.tables.commits.commit import commit
from paimon_magics.tables.commits.decoded_request import decoded
from paimon_magics.tables.stores.local_store import publish_local_file
from tests.session.rows import rows
from tests.tables.commits.compacting import bodies
from tests.tables.compaction.append_compactions import Lake

pytestmark = pytest.mark.spark


def add_index(lake: Lake, partition: str, column: str, first_id: int, last_id: int) -> None:
    """Commit an index of a column in a partition, as Paimon's `create_global_index` does. (Its file
    holds nothing: nobody reads it here.)"""
    table = lake.table
    folder = Path(table.location, "index")
    folder.mkdir(exist_ok=True)
    name = f"btree-{partition}-{column}.index"
    (folder / name).write_bytes(b"x" * 30)
    number = next(each.id for each in table.schema.columns if each.name == column)
    meta = GlobalIndexMeta(first_id, last_id, number, index_meta=b"")
    file = IndexFileMeta("btree", name, 30, 2, global_index_meta=meta)
    row = GenericRow([partition], table.paimon.partition_keys_fields)
    entry = IndexManifestEntry(0, row, 0, file)
    message = CommitMessage((partition,), 0, [], index_adds=[entry])
    opened = Transaction(table.name, f"indexer-{name}", "pm-unused-", 0)
    asked = CommitRequest(opened, Append(), bodies(table, [message]))
    commit(decoded(table, asked), publish_local_file, is_first_run=True)


def indexes(lake: Lake) -> set[str]:
    return {each.index_file.file_name for each in IndexFileHandler(lake.table.paimon).scan(None)}


def test_option_decides_whether_changed_column_loses_its_index(
    session: Session, warehouse: Path
) -> None:
    session.run(
        "CREATE TABLE t (k INT, v STRING, w STRING, p STRING) PARTITIONED BY (p) TBLPROPERTIES "
        "('row-tracking.enabled' = 'true', 'data-evolution.enabled' = 'true');"
        "INSERT INTO t VALUES (1, 'a', 'x', 'p'), (2, 'b', 'x', 'p'), (3, 'c', 'x', 'q')"
    )
    lake = Lake.opened(warehouse)
    ids = rows(session, "SELECT p, min(_ROW_ID), max(_ROW_ID) FROM t GROUP BY p")
    for partition, first_id, last_id in ids:
        add_index(lake, partition, "v", first_id, last_id)
        if partition == "p":
            add_index(lake, partition, "w", first_id, last_id)
    merge = (
        "MERGE INTO t USING (SELECT 1 AS k, 'new' AS v) s ON t.k = s.k AND t.p = 'p' "
        "WHEN MATCHED THEN UPDATE SET v = s.v"
    )
    update = "UPDATE t SET v = 'z' WHERE k = 2 AND p = 'p'"
    for statement in (merge, update):
        with pytest.raises(UnsupportedStatementError, match="has a global index"):
            session.run(statement)
    assert session.run("UPDATE t SET k = 9 WHERE p = 'q'").rows_updated == 1  # no index of it
    assert len(indexes(lake)) == 3
    option = "'global-index.column-update-action'"
    session.run(f"ALTER TABLE t SET TBLPROPERTIES ({option} = 'IGNORE')")
    session.run(merge)
    assert len(indexes(lake)) == 3
    session.run(f"ALTER TABLE t SET TBLPROPERTIES ({option} = 'DROP_PARTITION_INDEX')")
    session.run(update)
    assert indexes(lake) == {"btree-q-v.index", "btree-p-w.index"}
    assert rows(session, "SELECT * FROM t ORDER BY k") == [
        (1, "new", "x", "p"), (2, "z", "x", "p"), (9, "c", "x", "q")
    ]  # fmt: skip
    session.run("DELETE FROM t WHERE p = 'q'")
    assert rows(session, "SELECT k FROM t ORDER BY k") == [(1,), (2,)]
    session.run("INSERT OVERWRITE t PARTITION (p = 'p') VALUES (7, 'n', 'n')")
    session.run("TRUNCATE TABLE t")
    assert not indexes(lake)
