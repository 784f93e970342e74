"""Commits through the REST catalog that a writer outside overwrites, and what its clients change on
purpose."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pypaimon import CatalogFactory
from pypaimon.schema.data_types import AtomicType, PyarrowFieldParser
from pypaimon.schema.schema_change import SchemaChange

from paimon_magics.coordinator.core.values import Done, Halted, Refusal
from paimon_magics.planning.commits.expiry import NO_FLOOR, ExpiryRules, Retention
from paimon_magics.planning.commits.requests import OverwritePartitions
from paimon_magics.tables.expiry.expire_snapshots import carry_out, decide
from tests.coordinator.process import TABLE, Process, create_table, read
from tests.coordinator.rest_server import TOKEN, client_options, served
from tests.faults.outside_writer import OutsideWriter
from tests.faults.owner import APPEND, KEYED, LATER, OLD, OURS, THEIRS, Owner, Start, of, until
from tests.tables.reachability import files, missing, unreachable


class Client:
    """Plain pypaimon through the REST catalog of an owner's coordinator."""

    def __init__(self, url: str, owner: Owner) -> None:
        self.url = url
        self.catalog = CatalogFactory.create(client_options(url, owner.warehouse))

    def commit(
        self, *rows: Mapping[str, object], table: str = "default.t", user: str | None = None
    ) -> None:
        self.prepared(*rows, table=table, user=user)()

    def prepared(
        self, *rows: Mapping[str, object], table: str = "default.t", user: str | None = None
    ) -> Callable[[], None]:
        """Write rows; the result commits them."""
        loaded = self.catalog.get_table(table)
        builder = loaded.new_batch_write_builder()
        if user is not None:
            builder._with_commit_user(user)
        writing = builder.new_write()
        schema = PyarrowFieldParser.from_paimon_schema(loaded.fields)
        writing.write_arrow(pa.Table.from_pylist([dict(row) for row in rows], schema=schema))
        messages = writing.prepare_commit()
        writing.close()
        return lambda: builder.new_commit().commit(messages)

    def post(self, path: str, body: object) -> httpx.Response:
        return self._post(f"/v1/paimon/databases/default/tables/{path}", body)

    def change_versions(self, change: object) -> httpx.Response:
        """What a session's statement asks for."""
        table = {"database": "default", "table": "t"}
        body = {"table": table, "change": change, "repeated": False}
        return self._post("/v1/tables/versions", body)

    def _post(self, path: str, body: object) -> httpx.Response:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        return httpx.post(self.url + path, json=body, headers=headers, trust_env=False)


def rows_of(table: Any) -> list[tuple[Any, ...]]:
    """All rows of a table of plain pypaimon's."""
    builder = table.new_read_builder()
    found = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    return of(*found.to_pylist())


def lose_an_overwrite(owner: Owner, outside: OutsideWriter) -> None:
    """A commit that replaced rows is overwritten by a writer outside: nobody can repeat it."""
    outside.stop_before_renaming(owner.warehouse, [THEIRS])
    owner.commit([OURS], OverwritePartitions())
    outside.go_on()


@pytest.fixture
def client(start: Start, request: pytest.FixtureRequest) -> Iterator[tuple[Owner, Client]]:
    """An owner with a table, and a client of its REST catalog; an indirect parameter is its SQL."""
    owner = start(getattr(request, "param", APPEND), grace_ms=1)
    options = {"warehouse": str(owner.warehouse)}
    with served(options, owner.catalog.publish, coordinator=owner.coordinator) as url:
        yield owner, Client(url, owner)


Both = tuple[Owner, Client]


@pytest.mark.parametrize(
    "client",
    [
        APPEND,
        KEYED.replace("'bucket'", "'changelog-producer' = 'input', 'bucket'"),
    ],
    indirect=True,
    ids=["append", "upsert"],
)
def test_overwritten_client_commit_is_republished_once(
    client: Both, outside: OutsideWriter
) -> None:
    owner, engine = client
    outside.stop_before_renaming(owner.warehouse, [THEIRS])
    engine.commit(OURS, user="an engine")
    before = owner.snapshot(2)
    outside.go_on()
    assert owner.rows() == of(OLD, THEIRS)
    overwritten = {
        f"manifest/{before.base_manifest_list}",
        f"manifest/{before.delta_manifest_list}",
    }
    assert overwritten <= unreachable(owner.catalog.load(TABLE))
    engine.commit(LATER)
    assert owner.rows() == of(OLD, OURS, THEIRS, LATER)
    again = owner.snapshot(3)
    assert (again.commit_user, again.commit_identifier) == ("an engine", before.commit_identifier)
    assert again.properties == {"paimon-magics.republished": "2"}
    assert again.changelog_record_count == before.changelog_record_count
    assert owner.latest() == 4
    assert owner.look() == Done()
    assert owner.latest() == 4
    table = owner.catalog.load(TABLE)
    until(lambda: not overwritten & files(table))
    assert missing(table) == set()


def test_rollback_through_the_catalog_is_no_loss(client: Both) -> None:
    owner, engine = client
    engine.commit(OURS)
    owner.commit([LATER])
    answer = engine.post("t/rollback", {"instant": {"type": "snapshot", "snapshotId": 1}})
    assert answer.is_success, answer.text
    assert owner.look() == Done()
    assert owner.rows() == of(OLD)
    engine.commit(THEIRS)
    assert owner.look() == Done()
    assert owner.rows() == of(OLD, THEIRS)


def test_renamed_table_is_watched_under_its_new_name(client: Both, outside: OutsideWriter) -> None:
    owner, engine = client
    outside.stop_before_renaming(owner.warehouse, [THEIRS])
    engine.commit(OURS)
    outside.go_on()
    engine.catalog.rename_table("default.t", "default.u")
    location = str(owner.warehouse / "default.db" / "u")
    assert owner.coordinator.watching.before_change(location) == Done()
    table = CatalogFactory.create({"warehouse": str(owner.warehouse)}).get_table("default.u")
    assert rows_of(table) == of(OLD, OURS, THEIRS)


def test_commits_to_a_branch_are_watched_too(client: Both, outside: OutsideWriter) -> None:
    owner, engine = client
    engine.catalog.get_table("default.t").branch_manager().create_branch("b")
    branch = "default.t$branch_b"
    outside.stop_before_renaming(owner.warehouse, [THEIRS], table=branch)
    engine.commit(OURS, table=branch)
    outside.go_on()
    engine.commit(LATER, table=branch)
    assert rows_of(engine.catalog.get_table(branch)) == of(OURS, THEIRS, LATER)
    assert owner.rows() == of(OLD)


@pytest.mark.parametrize("by_statement", [False, True], ids=["by an engine", "by a statement"])
def test_fast_forwarded_commits_are_watched(
    client: Both, outside: OutsideWriter, by_statement: bool
) -> None:
    owner, engine = client
    assert engine.post("t/tags", {"tagName": "x", "snapshotId": 1}).is_success
    assert engine.post("t/branches", {"branch": "b", "fromTag": "x"}).is_success
    engine.commit(OURS, table="default.t$branch_b")
    outside.stop_before_renaming(owner.warehouse, [THEIRS])
    if by_statement:
        change = {"kind": "FastForward", "branch": "b"}
        assert engine.change_versions(change).is_success
    else:
        assert engine.post("t/branches/b/forward", {}).is_success
    assert owner.rows() == of(OLD, OURS)
    outside.go_on()
    assert owner.rows() == of(OLD, THEIRS)
    assert owner.look() == Done()
    assert owner.rows() == of(OLD, OURS, THEIRS)


def test_a_stopped_table_tells_a_client_why(client: Both, outside: OutsideWriter) -> None:
    owner, engine = client
    lose_an_overwrite(owner, outside)
    with pytest.raises(Exception) as caught:
        engine.commit(LATER)
    causes = str(caught.value.__cause__)
    assert "it replaced rows" in causes, causes
    assert owner.rows() == of(OLD, THEIRS)
    engine.catalog.drop_table("default.t")
    create_table(owner.warehouse, APPEND)
    engine.commit(LATER)
    assert owner.rows() == of(LATER)


def test_new_table_in_place_of_a_stopped_table_takes_commits(
    client: Both, outside: OutsideWriter
) -> None:
    owner, _ = client
    lose_an_overwrite(owner, outside)
    assert isinstance(owner.look(), Halted)
    owner.catalog.drop_table(TABLE)
    create_table(owner.warehouse, APPEND)
    owner.commit([LATER])
    assert owner.rows() == of(LATER)


def test_commit_repeated_after_its_snapshot_expired_happens_once(
    client: Both,
) -> None:
    owner, engine = client
    engine.commit(OURS, user="an engine")
    snapshot = json.loads((folder(owner) / "snapshot-2").read_text())
    for _ in range(3):
        owner.commit([LATER])
    for number in (1, 2, 3, 4):
        (folder(owner) / f"snapshot-{number}").unlink()
    (folder(owner) / "EARLIEST").write_text("5")
    # As it was sent first, and as a client prepares it anew on top of the latest.
    latest = json.loads((folder(owner) / "snapshot-5").read_text())
    renewed = snapshot | {"id": 6, "uuid": "another"}
    for body in (
        {"snapshot": snapshot, "baseSnapshotUuid": None},
        {"snapshot": renewed, "baseSnapshotUuid": latest["uuid"]},
    ):
        assert engine.post("t/commit", body).json() == {"success": True}
    assert owner.latest() == 5
    assert owner.rows() == of(OLD, OURS, LATER, LATER, LATER)


def removed_by(engine: Client, way: str) -> None:
    """Remove all snapshots after the first one on purpose."""
    if way == "rollback":
        answer = engine.post("t/rollback", {"instant": {"type": "snapshot", "snapshotId": 1}})
    elif way == "statement":
        answer = engine.change_versions({"kind": "RollBackToSnapshot", "snapshot_id": 1})
    else:
        answer = engine.post("t/branches/b/forward", {})
    assert answer.is_success, answer.text


@pytest.mark.parametrize("is_certain", [True, False], ids=["answered", "unanswered"])
@pytest.mark.parametrize("way", ["rollback", "statement", "forward"])
def test_repeated_commit_brings_no_removed_rows_back(
    client: Both, way: str, is_certain: bool
) -> None:
    owner, engine = client
    assert engine.post("t/tags", {"tagName": "x", "snapshotId": 1}).is_success
    assert engine.post("t/branches", {"branch": "b", "fromTag": "x"}).is_success
    engine.commit(OURS, user="an engine")
    sent = json.loads((folder(owner) / "snapshot-2").read_text())
    if not is_certain:  # as after a death between the publication and its second note
        watching = owner.coordinator.watching
        (noted,) = watching.published_by(owner.location, "an engine")
        watching.note(replace(noted, certain=False))
    removed_by(engine, way)
    first = json.loads((folder(owner) / "snapshot-1").read_text())
    again = {"snapshot": sent, "baseSnapshotUuid": first["uuid"]}
    assert engine.post("t/commit", again).json() == {"success": True}
    assert owner.rows() == of(OLD)
    engine.commit(LATER)  # which takes its id
    latest = json.loads((folder(owner) / "snapshot-2").read_text())
    renewed = sent | {"id": 3, "uuid": "another"}
    body = {"snapshot": renewed, "baseSnapshotUuid": latest["uuid"]}
    assert engine.post("t/commit", body).json() == {"success": True}
    assert owner.rows() == of(OLD, LATER)
    assert owner.look() == Done()
    # The same files in a new commit, by another writer; its base list is that of snapshot 1.
    body["snapshot"] = renewed | {"commitUser": "another engine"}
    assert engine.post("t/commit", body).json() == {"success": True}
    assert (owner.latest(), owner.rows()) == (3, of(OLD, OURS))


@pytest.mark.parametrize("client", [APPEND, KEYED], indirect=True, ids=["append", "upsert"])
def test_rows_of_a_schema_that_was_fast_forwarded_over_are_refused(client: Both) -> None:
    owner, engine = client
    assert engine.post("t/tags", {"tagName": "x", "snapshotId": 1}).is_success
    assert engine.post("t/branches", {"branch": "b", "fromTag": "x"}).is_success
    for name, column in (("default.t$branch_b", "theirs"), ("default.t", "ours")):
        added = SchemaChange.add_column(column, AtomicType("STRING"))
        engine.catalog.alter_table(name, [added])
    rows = {**OURS, "ours": "x"}
    id, request = owner.begin([rows])
    send, _ = engine.prepared(rows), engine.commit(rows)
    assert engine.post("t/branches/b/forward", {}).is_success
    refusal = owner.coordinator.transactions.commit(id, request)
    assert isinstance(refusal, Refusal) and "The schema 1 of" in refusal.reason
    with pytest.raises(Exception) as refused:
        send()
    assert "another schema 1" in f"{refused.value} {refused.value.__cause__}"
    assert owner.latest() == 1
    engine.commit({**LATER, "theirs": "y"})
    assert owner.rows() == of({**OLD, "theirs": None}, {**LATER, "theirs": "y"})


def expire(owner: Owner, *, changelogs: int = 1) -> None:
    """What Paimon's writers do after a commit with `snapshot.num-retained.max` = 1, by themselves;
    more `changelogs` outlive their snapshots."""
    table = owner.catalog.load(TABLE)
    one = Retention(count_min=1, count_max=1, time_ms=0)
    rules = ExpiryRules.of(table.schema)
    assert rules is not None
    rules = replace(
        rules,
        snapshots=one,
        changelogs=replace(one, count_max=changelogs),
        keeps_changelogs=changelogs > 1,
    )
    expiry = decide(table, rules, NO_FLOOR, int(time.time() * 1000))
    assert expiry is not None and carry_out(expiry) > 0


@pytest.mark.parametrize("changelogs", [1, 9], ids=["none is kept", "changelogs are kept"])
def test_snapshots_expired_by_an_engine_are_no_loss(client: Both, changelogs: int) -> None:
    owner, engine = client
    written = [OLD]
    for number in range(10, 13):
        for by_engine in (True, False):
            rows = {"k": 2 * number + by_engine, "v": "new"}
            if by_engine:
                engine.commit(rows)
            else:
                owner.commit([rows])
            written.append(rows)
            expire(owner, changelogs=changelogs)
    assert owner.look() == Done()
    assert owner.latest() == len(written)
    assert owner.rows() == of(*written)
    owner.commit([LATER], OverwritePartitions())
    expire(owner, changelogs=changelogs)
    engine.commit(OURS)
    assert owner.look() == Done()
    assert owner.rows() == of(LATER, OURS)


def test_expiry_by_an_outside_writer_is_no_loss(client: Both, outside: OutsideWriter) -> None:
    owner, engine = client
    engine.commit(OURS)
    outside.commit(owner.warehouse, [THEIRS])
    expire(owner)
    assert owner.look() == Done()
    assert owner.rows() == of(OLD, OURS, THEIRS)


def test_overwritten_and_expired_commit_stops_the_table(
    client: Both, outside: OutsideWriter
) -> None:
    owner, engine = client
    outside.stop_before_renaming(owner.warehouse, [THEIRS])
    engine.commit(OURS)
    outside.go_on()
    outside.commit(owner.warehouse, [LATER])
    expire(owner)
    stopped = owner.look()
    assert isinstance(stopped, Halted) and "napshot 2 of" in stopped.reason
    assert owner.rows() == of(OLD, THEIRS, LATER)


def test_replaced_table_stays_watched(client: Both, outside: OutsideWriter) -> None:
    owner, engine = client
    engine.commit(OURS)
    schema = {"fields": [{"id": 0, "name": "z", "type": "INT"}], "options": {}}
    assert engine.post("t/replace", {"schema": schema}).is_success
    assert owner.look() == Done()
    assert (owner.latest(), owner.rows()) == (3, [])
    expire(owner)
    engine.commit({"z": 1})
    assert owner.look() == Done()
    assert owner.rows() == [(1,)]


def folder(owner: Owner) -> Path:
    return owner.warehouse / "default.db" / "t" / "snapshot"


@pytest.mark.slow
def test_client_commit_is_watched_even_if_unanswered(
    tmp_path: Path, outside: OutsideWriter
) -> None:
    """Nobody answers the client, which finds its commit in the table by itself."""
    process = Process(tmp_path / "warehouse", tmp_path / "state", "--watch-every-ms=600000")
    process.start(faults="publish.linked=kill")
    try:
        catalog = create_table(process.warehouse, APPEND)
        outside.stop_before_renaming(process.warehouse, [THEIRS])
        options = client_options(process.address, process.warehouse)
        table = CatalogFactory.create({**options, "token": process.token()}).get_table("default.t")
        builder = table.new_batch_write_builder()
        writing = builder.new_write()
        schema = PyarrowFieldParser.from_paimon_schema(table.fields)
        writing.write_arrow(pa.Table.from_pylist([OURS], schema=schema))
        table = table.copy({"commit.max-retries": "0"})
        with pytest.raises(Exception):  # noqa: B017
            table.new_batch_write_builder().new_commit().commit(writing.prepare_commit())
        assert process.has_died()
        assert of(*read(catalog)) == of(OURS)
        process.start()
        engine = {"Authorization": f"Bearer {process.token()}"}
        look = f"{process.address}/v1/tables/check"
        body = {"table": {"database": "default", "table": "t"}}
        done = {"status": "done"}
        assert httpx.post(look, json=body, headers=engine, trust_env=False).json() == done
        outside.go_on()
        assert of(*read(catalog)) == of(THEIRS)
        assert httpx.post(look, json=body, headers=engine, trust_env=False).json() == done
        assert of(*read(catalog)) == of(OURS, THEIRS)
    finally:
        process.close()
