"""Drops and roll-backs that broke off in the middle, and what they leave."""

from __future__ import annotations

import contextlib
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from paimon_magics.coordinator.client.interface import Definitions
from paimon_magics.errors import (
    CommitConflictError,
    PaimonMagicsError,
    UnknownOutcomeError,
    UnsupportedStatementError,
)
from paimon_magics.planning.commits.requests import Append, CommitReceipt, CommitRequest
from paimon_magics.planning.schemas.replacements import TableReplacement
from paimon_magics.planning.schemas.table_schema import plan_create_table
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable, TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.snapshots.latest import latest_state
from tests.coordinator.process import TABLE, Process, create_table, read, wait_until, write
from tests.faults.outside_writer import OutsideWriter

SQL = "CREATE TABLE t (k INT)"


def test_interrupted_drop_is_finished_at_the_next_start(tmp_path: Path) -> None:
    process = Process(tmp_path / "warehouse", tmp_path / "state")
    process.start(faults="drop.detached=kill")
    fields = [{"id": 0, "name": "id", "type": "BIGINT"}]
    schema = {
        "fields": fields,
        "partitionKeys": [],
        "primaryKeys": [],
        "options": {},
        "comment": "",
    }
    identifier = {"database": "default", "object": "t"}
    headers = {"authorization": f"Bearer {process.token()}"}
    dropped = tmp_path / "warehouse/.paimon-magics/dropped"
    with httpx.Client(headers=headers, trust_env=False, timeout=60) as client:
        tables = f"{process.address}/v1/paimon/databases/default/tables"
        body = {"identifier": identifier, "schema": schema}
        assert client.post(tables, json=body).status_code == 200
        with contextlib.suppress(httpx.HTTPError):
            client.delete(f"{tables}/t")
    assert process.has_died()
    assert len(list(dropped.iterdir())) == 1
    process.start()
    wait_until(lambda: not list(dropped.iterdir()))
    process.close()


def test_dropping_a_damaged_table_forgets_its_commits(tmp_path: Path) -> None:
    """Its successor, made on a machine whose clock is behind, is another table."""
    process = Process(tmp_path / "warehouse", tmp_path / "state")
    create_table(process.warehouse, SQL)
    schema = tmp_path / "warehouse/default.db/t/schema/schema-0"
    process.start()
    try:
        commit(process)
        schema.write_bytes(b"")
        headers = {"authorization": f"Bearer {process.token()}"}
        path = f"{process.address}/v1/paimon/databases/default/tables/t"
        assert httpx.delete(path, headers=headers, trust_env=False, timeout=60).status_code == 200
        create_table(process.warehouse, SQL)
        document = json.loads(schema.read_text())
        schema.write_text(
            json.dumps({**document, "timeMillis": document["timeMillis"] - 3_600_000})
        )
        assert commit(process).snapshot_id == 1
    finally:
        process.close()


def test_interrupted_rollback_does_not_stop_its_table(tmp_path: Path) -> None:
    process = Process(tmp_path / "warehouse", tmp_path / "state")
    create_table(process.warehouse, SQL)
    process.start(faults="chain.cut=kill")
    try:
        commit(process)
        commit(process)
        headers = {"authorization": f"Bearer {process.token()}"}
        path = f"{process.address}/v1/paimon/databases/default/tables/t/rollback"
        body = {"instant": {"type": "snapshot", "snapshotId": 1}}
        with contextlib.suppress(httpx.HTTPError):
            httpx.post(path, json=body, headers=headers, trust_env=False, timeout=60)
        assert process.has_died()
        process.start()
        assert commit(process).snapshot_id == 2
        assert read(Catalog.open({"warehouse": str(process.warehouse)})) == [{"k": 1}] * 2
    finally:
        process.close()


@pytest.mark.parametrize(
    ("step", "change", "branches"),
    [
        ("branch.begun", ("POST", "branches", {"branch": "c", "fromTag": "one"}), ["b"]),
        ("branch.unnamed", ("DELETE", "branches/b", None), []),
        ("chain.cut", ("POST", "branches/b/forward", {}), ["b"]),
        ("forward.schemas", ("POST", "branches/b/forward", {}), ["b"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_interrupted_change_of_branches_is_made_when_it_comes_again(
    tmp_path: Path, step: str, change: tuple[str, str, object], branches: list[str]
) -> None:
    process = Process(tmp_path / "warehouse", tmp_path / "state")
    catalog = create_table(process.warehouse, SQL)
    process.start(faults=f"@{tmp_path / 'fault'}")
    branch = TableName("t", "default", branch="b")

    def ask(method: str, path: str, body: object = None) -> httpx.Response:
        headers = {"authorization": f"Bearer {process.token()}"}
        url = f"{process.address}/v1/paimon/databases/default/tables/{path}"
        return httpx.request(
            method, url, json=body, headers=headers, trust_env=False, timeout=60
        ).raise_for_status()

    method, path, body = change
    try:
        commit(process)
        ask("POST", "t/tags", {"tagName": "one"})
        ask("POST", "t/branches", {"branch": "b", "fromTag": "one"})
        added = {"action": "addColumn", "fieldNames": ["v"], "dataType": "INT"}
        ask("POST", "t$branch_b", {"changes": [added | {"comment": None, "move": None}]})
        commit(process, branch)
        commit(process)
        commit(process)
        (tmp_path / "fault").write_text(f"{step}=kill")
        with contextlib.suppress(httpx.TransportError):
            ask(method, f"t/{path}", body)
        assert process.has_died()
        process.start()
        assert ask("GET", "t/branches").json()["branches"] == branches
        expected = 3
        if path.endswith("forward"):  # its own commits are gone, the branch has all of its
            expected = 1
            assert len(read(catalog, branch)) == 2
        assert len(read(catalog)) == expected
        if branches == ["b"]:
            ask(method, f"t/{path}", body)
        else:  # who makes it again gets nothing of what is left
            ask("POST", "t/branches", {"branch": "b"})
            assert read(catalog, branch) == []
        if path.endswith("forward"):
            assert read(catalog) == [{"k": 1, "v": None}] * 2
        elif step == "branch.begun":
            assert len(read(catalog, TableName("t", "default", branch="c"))) == 1
        before = len(read(catalog))
        commit(process)
        assert len(read(catalog)) == before + 1
    finally:
        process.close()


@pytest.mark.parametrize("step", ["commit.stored", "commit.published"])
def test_commit_to_a_table_dropped_during_an_outage_is_answered(tmp_path: Path, step: str) -> None:
    """A drop may have broken off with the process that had begun the commit."""
    process = Process(tmp_path / "warehouse", tmp_path / "state")
    catalog = create_table(process.warehouse, SQL)
    process.start(faults=f"{step}=kill")
    try:
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(commit, process)
            assert process.has_died()
            catalog.drop_table(TABLE)
            process.start()
            with pytest.raises(UnknownOutcomeError, match="There is no table `t`"):
                answer.result(timeout=60)
    finally:
        process.close()


def commit(process: Process, table: TableName = TABLE) -> CommitReceipt:
    """Append a row."""
    client, catalog = process.client(), Catalog.open({"warehouse": str(process.warehouse)})
    transaction = client.begin(table)
    return client.commit(
        CommitRequest(transaction, Append(), write(catalog, transaction, [{"k": 1}]))
    )


@pytest.mark.parametrize(
    ("fault", "ends"),
    [("raise", False), ("raise", True), ("kill", True)],
    ids=["failed", "failed, and the process ended", "died with the process"],
)
def test_rows_of_a_partly_dropped_table_do_not_close_its_successor(
    tmp_path: Path, fault: str, ends: bool
) -> None:
    """The drop fails after the table has lost its name, and a new one gets that before the rows
    that wait are looked at: they go with their table, in the next process as well."""
    process = Process(tmp_path / "warehouse", tmp_path / "state")
    sql = (
        "CREATE TABLE t (k INT) TBLPROPERTIES ('auto_batch_load' = 'true', "
        "'group_commit_interval_ms' = '3000')"
    )
    create_table(process.warehouse, sql)
    process.start(faults=f"drop.detached={fault}")
    headers = {"authorization": f"Bearer {process.token()}"}
    try:
        with httpx.Client(
            base_url=process.address, headers=headers, trust_env=False, timeout=60
        ) as client:
            rows = "/v1/inserts/default/t"
            assert client.post(rows, json={"rows": [[1]]}).status_code == 200
            (tmp_path / "warehouse/default.db/t/schema/schema-0").write_bytes(b"")  # nothing loads
            with contextlib.suppress(httpx.TransportError):
                dropped = client.delete("/v1/paimon/databases/default/tables/t")
                assert dropped.status_code >= 500, dropped.text
        if fault == "kill":
            assert process.has_died()
        elif ends:
            process.kill()
        if ends:
            process.start()
        with httpx.Client(
            base_url=process.address, headers=headers, trust_env=False, timeout=60
        ) as client:
            create_table(process.warehouse, sql)
            assert client.post(rows, json={"rows": [[2]]}).status_code == 200
            flushed = client.post(f"{rows}/flush", json={"wait_ms": 30_000})
            assert flushed.status_code == 200, flushed.text
            time.sleep(4)  # the first table's rows are looked at after three seconds
            problems = client.get("/health/ready").json()["problems"]
            assert not [each for each in problems if "dropped and created" in str(each)], problems
        assert read(Catalog.open({"warehouse": str(process.warehouse)})) == [{"k": 2}]
    finally:
        process.close()


def test_repeat_of_a_replacement_that_was_cut_off_says_where_the_rows_are(tmp_path: Path) -> None:
    """Another writer has added a row to the emptied table, so that they can't be put back."""
    process = Process(tmp_path / "warehouse", tmp_path / "state")
    catalog = create_table(process.warehouse, SQL)
    process.start(faults="replace.emptied=kill")
    try:
        commit(process)
        definitions = Definitions(catalog, process.client().change_definition)
        base = latest_state(catalog.load(TABLE))
        statement = parse_statement("CREATE TABLE t (other STRING)")
        assert isinstance(statement, CreateTable)
        replacement = TableReplacement(
            TABLE,
            plan_create_table(statement),
            0,
            base_snapshot_id=base[0],
            base_manifest_list=base[1],
        )
        with ThreadPoolExecutor() as pool:
            answer = pool.submit(definitions.replace_table, replacement)
            assert process.has_died()
            writer = OutsideWriter()
            writer.commit(process.warehouse, [{"k": 7}])
            writer.close()
            process.start()
            with pytest.raises(CommitConflictError) as refusal:
                answer.result(60)
        assert "after snapshot 2 had removed its rows" in refusal.value.message
        assert "VERSION AS OF 1" in refusal.value.hint
        assert read(catalog) == [{"k": 7}]
    finally:
        process.close()


def _by_another_table(catalog: Catalog, columns: str, options: str = "") -> TableReplacement:
    """A replacement that changes the partition columns, so that the table is dropped for it."""
    statement = parse_statement(f"CREATE TABLE t ({columns}) PARTITIONED BY (d) {options}")
    assert isinstance(statement, CreateTable)
    base = latest_state(catalog.load(TABLE))
    return TableReplacement(
        TABLE,
        plan_create_table(statement),
        0,
        base_snapshot_id=base[0],
        base_manifest_list=base[1],
        is_dropped=True,
    )


def test_table_stays_if_the_one_in_its_place_can_not_be_created(tmp_path: Path) -> None:
    process = Process(tmp_path / "warehouse", tmp_path / "state")
    catalog = create_table(process.warehouse, SQL)
    process.start(faults="replace.detached=raise")
    try:
        commit(process)
        rows = read(catalog)
        assert rows
        definitions = Definitions(catalog, process.client().change_definition)
        with pytest.raises(PaimonMagicsError):
            definitions.replace_table(_by_another_table(catalog, "k INT, d STRING"))
        assert read(catalog) == rows
        assert not list((tmp_path / "warehouse" / ".paimon-magics" / "dropped").iterdir())
        definitions.replace_table(_by_another_table(catalog, "k INT, d STRING"))
        assert catalog.load(TABLE).schema.partition_keys == ("d",)
    finally:
        process.close()


def test_replacement_by_another_table_is_checked_before_the_drop(tmp_path: Path) -> None:
    process = Process(tmp_path / "warehouse", tmp_path / "state")
    catalog = create_table(process.warehouse, SQL)
    process.start()
    try:
        commit(process)
        definitions = Definitions(catalog, process.client().change_definition)
        elsewhere = _by_another_table(catalog, "d STRING", "TBLPROPERTIES ('path' = '/tmp/x')")
        with pytest.raises(UnsupportedStatementError, match="keeps its location"):
            definitions.replace_table(elsewhere)
        planned = _by_another_table(catalog, "k INT, d STRING")
        writer = OutsideWriter()
        writer.commit(process.warehouse, [{"k": 7}])
        writer.close()
        with pytest.raises(CommitConflictError, match="Others have changed rows"):
            definitions.replace_table(planned)
        with pytest.raises(CommitConflictError, match="another definition"):
            definitions.replace_table(replace(planned, base_schema_id=1))
        assert {"k": 7} in read(catalog)
        definitions.replace_table(replace(planned, swallow_newer=True))
        assert read(catalog) == []
    finally:
        process.close()
