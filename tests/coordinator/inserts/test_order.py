"""Small inserts and everything else that is done to their table, in one order."""

from __future__ import annotations

import hashlib
import json
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory

from paimon_magics.coordinator.client.in_process import InProcessCommitter
from paimon_magics.coordinator.inserts.log.records import read_segments
from paimon_magics.errors import CommitConflictError
from paimon_magics.planning.commits.requests import Append, CommitRequest, OverwritePartitions
from paimon_magics.settings import Settings
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.table_changes import AlterTable
from paimon_magics.statements.version_changes import RollBackToSnapshot
from paimon_magics.tables.catalog.marks import TableIds
from paimon_magics.tables.commits.receipts import log_properties
from tests.coordinator.inserts.serving import SLOW, Served, table_sql
from tests.coordinator.process import create_table, wait_until, write

KEYED = "id BIGINT NOT NULL, name STRING"
BY_KEY = f"'primary-key' = 'id', 'bucket' = '1', {SLOW}"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A coordinator for all tests that leave it alone."""
    with Served(tmp_path_factory.mktemp("order"), table_sql()) as served:
        yield served


def rest_catalog(served: Served) -> Any:
    """The warehouse as an engine of another make sees it, through the REST catalog."""
    return CatalogFactory.create(
        {
            "metastore": "rest",
            "uri": served.process.address,
            "warehouse": str(served.process.warehouse),
            "token.provider": "bear",
            "token": served.process.token(),
        }
    )


def committed_by_rest(
    table: Any, rows: dict[str, list[object]], schema: pa.Schema, **overwrite: Any
) -> None:
    builder = table.new_batch_write_builder()
    if overwrite:
        builder = builder.overwrite(overwrite["partition"])
    writer, committer = builder.new_write(), builder.new_commit()
    writer.write_arrow(pa.table(rows, schema=schema))
    committer.commit(writer.prepare_commit())
    writer.close()
    committer.close()


class TestEnginesOverRest:
    SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])

    def test_overwrite_replaces_only_rows_acknowledged_before_it(self, shared: Served) -> None:
        with Served(shared.folder, table_sql(options=SLOW), shared=shared) as served:
            table = rest_catalog(served).get_table(str(served.name).replace("`", ""))
            served.insert([[1, "a"]])
            committed_by_rest(table, {"id": [9], "name": ["o"]}, self.SCHEMA, partition={})
            served.insert([[2, "b"]])
            served.flush()
            assert served.ids() == [9, 2]

    def test_keyed_overwrite_replaces_rows_acknowledged_before_it(self, shared: Served) -> None:
        with Served(shared.folder, table_sql(KEYED, BY_KEY), shared=shared) as served:
            table = rest_catalog(served).get_table(str(served.name).replace("`", ""))
            schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
            for number in range(2):
                served.insert([[1, f"insert {number}"], [2, "old"]])
                committed_by_rest(table, {"id": [2], "name": [f"{number}"]}, schema, partition={})
            served.insert([[1, "last"]])
            served.flush()
            assert served.rows() == [{"id": 1, "name": "last"}, {"id": 2, "name": "1"}]

    def test_commits_succeed_during_many_inserts(self, shared: Served) -> None:
        options = "'group_commit_interval_ms' = '20'"
        with Served(shared.folder, table_sql(options=options), shared=shared) as served:
            table = rest_catalog(served).get_table(str(served.name).replace("`", ""))
            done = threading.Event()
            inserted = 0

            def insert() -> None:
                nonlocal inserted
                while not done.is_set():
                    assert served.insert([[inserted, "a"]]).status_code == 200
                    inserted += 1

            thread = threading.Thread(target=insert)
            thread.start()
            for _ in range(5):
                committed_by_rest(table, {"id": [-1], "name": ["r"]}, self.SCHEMA)
            done.set()
            thread.join()
            served.flush()
            actual = served.ids()
            assert [id for id in actual if id != -1] == list(range(inserted))
            assert actual.count(-1) == 5

    def test_drop_and_rename_load_waiting_inserts_first(self, shared: Served) -> None:
        with Served(shared.folder, table_sql(options=SLOW), shared=shared) as served:
            catalog = rest_catalog(served)
            served.insert([[1, "a"]], idempotency_key="one")
            catalog.rename_table(f"default.{served.name.table}", "default.moved")
            assert served.insert([[2, "b"]]).status_code == 404
            before, served.name = served.name, TableName("moved", "default")
            served.path = "/v1/inserts/default/moved"
            assert served.ids() == [1]
            assert served.insert([[3, "c"]]).json()["lsn"] == 2
            catalog.drop_table("default.moved")
            assert served.insert([[4, "d"]]).status_code == 404
            shown = served.call("GET", "/v1/inserts").json()["tables"]
            assert {each["table"]["table"] for each in shown}.isdisjoint({before.table, "moved"})

    def test_rollback_removes_only_rows_acknowledged_before_it(self, shared: Served) -> None:
        with Served(shared.folder, table_sql(options=SLOW), shared=shared) as served:
            served.insert([[1, "a"]])
            served.flush()
            served.insert([[2, "b"]])
            served.process.client().change_versions(served.name, RollBackToSnapshot(1))
            served.insert([[3, "c"]])
            served.flush()
            assert served.ids() == [1, 3]


class TestDeletesThroughTheCore:
    """A conditional delete as a transaction: what matches is looked for at its base."""

    def delete(self, served: Served, keep: Any) -> None:
        client = served.process.client()
        transaction = client.begin(served.name)
        rows = [row for row in served.rows() if keep(row)]
        messages = write(served.catalog, transaction, rows, overwrite=True)
        client.commit(CommitRequest(transaction, OverwritePartitions(), messages))

    def test_delete_removes_only_rows_acknowledged_before_it(self, shared: Served) -> None:
        with Served(shared.folder, table_sql(options=SLOW), shared=shared) as served:
            for number in range(3):
                served.insert([[number, "x"], [number + 10, "y"]])
                self.delete(served, lambda row: row["name"] != "x")
                served.insert([[number, "x"]])
            served.flush()
            assert served.ids() == [10, 11, 12, 2]
            assert sorted(served.ids()) == [2, 10, 11, 12]  # type: ignore[type-var]

    def test_delete_of_a_key_spares_a_later_insert(self, shared: Served) -> None:
        columns = f"{KEYED}, kind STRING"
        options = f"{BY_KEY}, 'rowkind.field' = 'kind'"
        with Served(shared.folder, table_sql(columns, options), shared=shared) as served:
            served.insert([[1, "a", "+I"], [2, "a", "+I"]])
            client = served.process.client()
            transaction = client.begin(served.name)
            deleted = [{"id": id, "name": None, "kind": "-D"} for id in (1, 2)]
            messages = write(served.catalog, transaction, deleted)
            served.insert([[2, "b", "+I"]])  # acknowledged while the delete is under way
            client.commit(CommitRequest(transaction, Append(), messages))
            served.flush()
            assert served.rows() == [{"id": 2, "name": "b", "kind": "+I"}]

    def test_concurrent_deletes_follow_each_other(self, shared: Served) -> None:
        with Served(shared.folder, table_sql(options=SLOW), shared=shared) as served:
            for number in range(6):
                served.insert([[number, "x"]])
            clients = [threading.Thread(target=self.delete_one, args=(served, n)) for n in range(3)]
            for client in clients:
                client.start()
            for client in clients:
                client.join()
            served.flush()
            assert served.ids() == [3, 4, 5]

    def delete_one(self, served: Served, number: int) -> None:
        while True:
            try:
                self.delete(served, lambda row: row["id"] != number)
                return
            except CommitConflictError:  # the other was faster: planned anew
                time.sleep(0.01)


class TestUpsertsWithoutASequenceField:
    """Of two rows of one key that wins which came later in the order of the table."""

    def values_at(self, served: Served, snapshot_id: int) -> dict[object, object]:
        table = served.catalog.load(served.name).paimon
        table = table.copy({"scan.snapshot-id": str(snapshot_id)})
        builder = table.new_read_builder()
        rows = builder.new_read().to_arrow(builder.new_scan().plan().splits())
        return {row["id"]: row["name"] for row in rows.to_pylist()}

    def test_statement_is_ordered_among_inserts_by_its_begin(self, shared: Served) -> None:
        with Served(shared.folder, table_sql(KEYED, BY_KEY), shared=shared) as served:
            client = served.process.client()
            for number in range(3):
                served.insert([[1, f"before {number}"], [2, f"before {number}"]])
                transaction = client.begin(served.name)
                served.insert([[2, "while"], [3, "while"]])
                ours = [{"id": id, "name": f"statement {number}"} for id in (1, 2, 3)]
                served.insert([[3, "later"]])
                messages = write(served.catalog, transaction, ours)
                receipt = client.commit(CommitRequest(transaction, Append(), messages))
                at_once = self.values_at(served, receipt.snapshot_id or 0)
                assert at_once == dict.fromkeys((1, 2, 3), f"statement {number}")
                served.flush()
                actual = {row["id"]: row["name"] for row in served.rows()}
                assert actual == {1: f"statement {number}", 2: "while", 3: "later"}

    def test_rest_writer_is_ordered_by_its_sequence_numbers(self, shared: Served) -> None:
        """Paimon's numbers decide, which it gave while it wrote: a row that was acknowledged then
        may win or lose. What was loaded before the job began loses, what is acknowledged after its
        commit wins."""
        with Served(shared.folder, table_sql(KEYED, BY_KEY), shared=shared) as served:
            table = rest_catalog(served).get_table(str(served.name))
            schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
            served.insert([[id, "before"] for id in range(4)])
            served.flush()
            builder = table.new_batch_write_builder()
            writer, committer = builder.new_write(), builder.new_commit()
            rows = {"id": list(range(4)), "name": ["engine"] * 4}
            writer.write_arrow(pa.table(rows, schema=schema))
            messages = writer.prepare_commit()
            served.insert([[3, "while"], *([[9, "while"]] * 10), [0, "while"]])
            committer.commit(messages)
            actual = {row["id"]: row["name"] for row in served.rows()}
            assert actual == {0: "while", 1: "engine", 2: "engine", 3: "engine", 9: "while"}
            served.insert([[2, "after"]])
            served.flush()
            assert {row["id"]: row["name"] for row in served.rows()}[2] == "after"


def test_table_with_an_unsuitable_layout_refuses_only_small_inserts(shared: Served) -> None:
    """It has the option, and is written and dropped like any other."""
    sql = (
        "CREATE TABLE t (id BIGINT NOT NULL, p STRING) PARTITIONED BY (p) "
        "TBLPROPERTIES ('primary-key' = 'id', 'auto_batch_load' = 'true')"
    )
    with Served(shared.folder, sql, shared=shared) as served:
        refused = served.insert([[1, "a"]])
        assert (refused.status_code, refused.json()["error"]["type"]) == (
            400,
            "UnsupportedStatementError",
        )
        client = served.process.client()
        client.abort(client.begin(served.name))
        rest_catalog(served).drop_table(str(served.name))
        assert not served.catalog.table_exists(served.name)


def test_drain_loads_waiting_rows(tmp_path: Path) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        served.insert([[1, "a"]])
        administration = served.process.client().administration()
        left, _ = administration.drain(10_000, lambda count: None)
        assert (left, served.ids()) == ((), [1])


class TestTheBuffer:
    def test_buffer_has_acknowledged_records_after_the_snapshot(self, shared: Served) -> None:
        with Served(shared.folder, table_sql(options=SLOW), shared=shared) as served:
            queues = served.process.client().administration().queues
            assert queues.buffer(served.name).segments == ()
            served.insert([[1, "a"]])
            served.flush()
            served.insert([[2, "b"]])
            served.insert([[3, "c"]])
            actual = queues.buffer(served.name)
            assert (actual.snapshot_id, actual.published, actual.acknowledged) == (1, 1, 3)
            records, _ = read_segments(actual.segments, actual.published)
            assert [record.lsn for record in records] == [2, 3]

    def test_snapshot_and_buffer_together_have_each_row_once(self, shared: Served) -> None:
        options = "'group_commit_interval_ms' = '10'"
        with Served(shared.folder, table_sql(options=options), shared=shared) as served:
            queues = served.process.client().administration().queues
            done = threading.Event()
            acknowledged = 0

            def insert() -> None:
                nonlocal acknowledged
                while not done.is_set():
                    assert served.insert([[acknowledged, "a"]]).status_code == 200
                    acknowledged += 1

            thread = threading.Thread(target=insert)
            thread.start()
            seen = set()
            try:
                for _ in range(60):
                    before = acknowledged
                    actual = queues.buffer(served.name)
                    table = served.catalog.load(served.name).paimon
                    in_table = 0
                    if actual.snapshot_id:
                        snapshots = table.snapshot_manager()
                        in_table = snapshots.get_snapshot_by_id(actual.snapshot_id)
                        in_table = in_table.total_record_count
                    records, _ = read_segments(actual.segments, actual.published)
                    assert in_table == actual.published
                    assert in_table + len(records) == actual.acknowledged >= before
                    seen.add(actual.snapshot_id)
            finally:
                done.set()
                thread.join()
            assert len(seen) > 3  # it was loaded in between, many times


class TestAnotherFlusher:
    """A batch that is in the table although its log does not say so: somebody has published it who
    was thought to be unable to."""

    def forge(self, served: Served, first: int, last: int, dead: int = 0) -> None:
        """Publish a batch's rows beside the log, as a flusher that has stood still would."""
        (note,) = (served.process.warehouse / ".paimon-magics" / "logs").iterdir()
        id = json.loads(note.read_text())["log"]
        table_id = TableIds(served.catalog).id_of(served.catalog.load(served.name))
        queue = f"{id}-{hashlib.sha256(table_id.encode()).hexdigest()[:8]}"
        catalog = served.catalog
        committer = InProcessCommitter(catalog, Settings())
        transaction = committer.begin(served.name)
        rows = [{"id": n, "name": "a"} for n in range(first, last + 1)]
        messages = write(catalog, transaction, rows)
        properties = log_properties(queue, first, last, dead)
        committer.commit(CommitRequest(transaction, Append(), messages, properties))

    def test_foreign_load_of_the_waiting_records_is_not_repeated(self, tmp_path: Path) -> None:
        with Served(tmp_path, table_sql(options=SLOW)) as served:
            served.insert([[1, "a"]])
            served.insert([[2, "a"]])
            self.forge(served, 1, 2)
            assert served.flush() == {"lsn": 2, "snapshot_id": 1}
            served.insert([[3, "a"]])
            served.flush()
            assert served.ids() == [1, 2, 3]

    def test_foreign_load_of_a_part_closes_the_table(self, tmp_path: Path) -> None:
        with Served(tmp_path, table_sql(options=SLOW)) as served:
            for number in (1, 2, 3):
                served.insert([[number, "a"]])
            self.forge(served, 1, 2)
            assert served.call("POST", "/flush", {"wait_ms": 5_000}).status_code == 409
            assert "has records 1 to 2" in served.queue()["closed"]
            assert served.ids() == [1, 2]

    def test_foreign_load_during_a_flush_is_not_repeated(self, tmp_path: Path) -> None:
        fault = tmp_path / "fault"
        with Served(tmp_path, table_sql(options=SLOW), faults=f"@{fault}") as served:
            served.insert([[1, "a"]])
            fault.with_suffix(".part").write_text("flush.noted=stop")
            fault.with_suffix(".part").rename(fault)
            flushing = threading.Thread(target=served.flush)
            flushing.start()
            wait_until(lambda: not fault.exists())
            wait_until(served.process.is_stopped)
            self.forge(served, 1, 1)
            served.process.go_on()
            flushing.join()
            served.insert([[2, "a"]])
            served.flush()
            assert served.ids() == [1, 2]


class TestDrops:
    def drop(self, served: Served, *, repeated: bool = False, **facts: Any) -> Any:
        name = {"database": served.name.database, "table": served.name.table}
        change = {"kind": "TableDrop", "name": name, "if_exists": True, "only_empty": False}
        request = {
            "id": uuid.uuid4().hex,
            "change": {**change, "created_at_ms": None, **facts},
            "repeated": repeated,
        }
        answer = served.call("POST", "/v1/changes", request)
        assert answer.status_code == 200, answer.text
        return answer.json()["done"]

    def made_anew(self, served: Served) -> None:
        """A table of that name takes inserts, and nothing of the one before is left."""
        create_table(served.process.warehouse, table_sql(options=SLOW))  # type: ignore[arg-type]
        assert served.insert([[5, "new"]]).json()["lsn"] == 1
        served.flush()
        assert served.ids() == [5]
        queues = served.call("GET", "/v1/inserts").json()["tables"]
        assert [queue["waiting_rows"] for queue in queues] == [0]

    @pytest.mark.parametrize(
        ("facts", "repeated", "done"),
        [({"only_empty": True}, False, False), ({"created_at_ms": 1}, True, True)],
    )
    def test_drop_that_keeps_the_table_keeps_its_inserts(
        self, tmp_path: Path, facts: dict[str, Any], repeated: bool, done: bool
    ) -> None:
        with Served(tmp_path, table_sql(options=SLOW)) as served:
            served.insert([[1, "a"]])
            assert self.drop(served, repeated=repeated, **facts) is done
            assert served.insert([[2, "a"]]).status_code == 200
            served.flush()
            assert served.ids() == [1, 2]

    def test_damaged_table_is_dropped_with_its_waiting_rows(self, tmp_path: Path) -> None:
        with Served(tmp_path, table_sql(options=SLOW)) as served:
            served.insert([[1, "a"]])
            folder = served.process.warehouse / "default.db" / served.name.table
            (folder / "schema/schema-0").write_bytes(b"")
            assert self.drop(served) is True
            self.made_anew(served)

    def test_table_with_inserts_disabled_is_dropped_with_its_waiting_rows(
        self, tmp_path: Path
    ) -> None:
        with Served(tmp_path, table_sql(options=SLOW)) as served:
            served.insert([[1, "a"]])
            statement = parse_statement(
                f"ALTER TABLE {served.name} SET TBLPROPERTIES ('auto_batch_load' = 'false')"
            )
            assert isinstance(statement, AlterTable)
            served.catalog.alter_table(served.name, statement.changes)
            assert self.drop(served) is True
            self.made_anew(served)
