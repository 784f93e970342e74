"""Labels, channels and dead letters of a table that is renamed, dropped, or made anew."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from paimon_magics.statements.statement import TableName
from tests.coordinator.inserts.serving import SLOW, Served, table_sql
from tests.coordinator.inserts.test_order import rest_catalog
from tests.coordinator.postgres import PostgresServer
from tests.coordinator.process import create_table, wait_until
from tests.sampling import only_in_soak

NEW = TableName("renamed", "default")
LOGS = ("store", "postgres", "warehouse")


def mostly(log: str) -> list[Any]:
    """All logs: this one in every run, the others in `make soak`."""
    return only_in_soak(LOGS, {*LOGS} - {log})


def serve(folder: Path, log: str, request: pytest.FixtureRequest, faults: str = "") -> Served:
    """A coordinator with its log in SQLite, in PostgreSQL, or in the warehouse."""
    if log != "postgres":
        return Served(folder, table_sql(options=SLOW), f"--log={log}", faults=faults)
    server: PostgresServer = request.getfixturevalue("postgres")
    monkeypatch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    address = server.empty_database()
    return Served(folder, table_sql(options=SLOW), f"--store={address}", faults=faults)


def named(served: Served, name: TableName) -> None:
    """Speak of a table by this name from now on."""
    served.name, served.path = name, f"/v1/inserts/default/{name.table}"


def filled(served: Served) -> None:
    """A label, a channel, and a row that is not loaded."""
    served.insert([[1, "a"]], idempotency_key="one")
    served.insert([[2, "b"]], paimon_channel="c", paimon_offset="7")


def knows_what_was_inserted(served: Served) -> None:
    """What was inserted under the table's old name is answered as it was then, under the new."""
    again = served.insert([[1, "a"]], idempotency_key="one")
    assert again.json() == {"lsn": 1, "label": "one", "mode": "async_mode", "duplicate": True}
    assert served.insert([[9, "x"]], idempotency_key="one").status_code == 422
    assert served.insert([[2, "b"]], paimon_channel="c", paimon_offset="7").json()["duplicate"]
    assert served.insert([[5, "x"]], paimon_channel="c", paimon_offset="9").status_code == 416
    assert served.insert([[3, "c"]], paimon_channel="c", paimon_offset="8").json()["lsn"] == 3
    served.flush()
    assert served.ids() == [1, 2, 3]


@pytest.mark.slow
@pytest.mark.parametrize("log", mostly("postgres"))
def test_labels_and_channels_survive_a_kill_at_each_rename_step(
    tmp_path: Path, log: str, request: pytest.FixtureRequest
) -> None:
    fault = tmp_path / "fault"
    with serve(tmp_path, log, request, f"@{fault}") as served:
        filled(served)
        for number, step in enumerate(["rename.noted", "rename.done", "rename.moved"]):
            old, new = str(served.name), f"default.renamed{number}"
            fault.write_text(f"{step}=kill")
            with contextlib.suppress(Exception):  # it is answered before the log is told
                rest_catalog(served).rename_table(old, new)
                assert step == "rename.moved"
            wait_until(served.process.has_died)
            served.process.start(f"@{fault}")
            if step == "rename.noted":  # it has its old name, and is asked again
                assert served.insert([[1, "a"]], idempotency_key="one").json()["duplicate"]
                rest_catalog(served).rename_table(old, new)
                assert served.insert([[1, "a"]], idempotency_key="one").status_code == 404
            named(served, TableName(f"renamed{number}", "default"))
            assert served.insert([[1, "a"]], idempotency_key="one").json()["duplicate"]
        knows_what_was_inserted(served)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A coordinator for all tests that leave it alone."""
    with Served(tmp_path_factory.mktemp("renaming"), table_sql()) as served:
        yield served


@pytest.fixture
def served(shared: Served) -> Iterator[Served]:
    with Served(shared.folder, table_sql(options=SLOW), shared=shared) as served:
        yield served


def other(served: Served) -> TableName:
    return TableName(f"{served.name.table}_renamed", "default")


def test_rename_around_the_coordinator_keeps_inserts(served: Served) -> None:
    filled(served)
    served.catalog.rename_table(served.name, other(served))
    named(served, other(served))
    knows_what_was_inserted(served)


def test_refused_rename_leaves_the_table_unchanged(served: Served) -> None:
    filled(served)
    to = other(served)
    sql = table_sql(options=SLOW).replace("TABLE t ", f"TABLE {to.table} ")
    create_table(served.process.warehouse, sql)  # type: ignore[arg-type]
    assert rename(served, to).status_code == 409
    knows_what_was_inserted(served)


@pytest.mark.parametrize("taken", ["renamed", "dropped"])
def test_labels_do_not_apply_to_a_new_table_of_the_old_name(served: Served, taken: str) -> None:
    filled(served)
    catalog, name = rest_catalog(served), served.name
    if taken == "renamed":
        catalog.rename_table(f"default.{name.table}", f"default.{other(served).table}")
    else:
        catalog.drop_table(f"default.{name.table}")
    sql = table_sql(options=SLOW).replace("TABLE t ", f"TABLE {name.table} ")
    create_table(served.process.warehouse, sql)  # type: ignore[arg-type]
    answer = served.insert([[1, "new"]], idempotency_key="one").json()
    assert answer == {"lsn": 1, "label": "one", "mode": "async_mode"}
    served.flush()
    assert served.ids() == [1]


def test_rename_and_rename_back_keep_labels_and_rows(served: Served) -> None:
    filled(served)
    catalog, name, to = rest_catalog(served), served.name, other(served)
    catalog.rename_table(f"default.{name.table}", f"default.{to.table}")
    named(served, to)
    assert served.insert([[1, "a"]], idempotency_key="one").json()["duplicate"]
    catalog.rename_table(f"default.{to.table}", f"default.{name.table}")
    named(served, name)
    knows_what_was_inserted(served)


def test_dead_letters_follow_a_renamed_table(served: Served) -> None:
    from paimon_magics.statements.grammar.parsing import parse_statement
    from paimon_magics.statements.table_changes import AlterTable

    def alter(change: str) -> None:
        statement = parse_statement(f"ALTER TABLE t {change}")
        assert isinstance(statement, AlterTable)
        served.catalog.alter_table(served.name, statement.changes)

    alter("SET TBLPROPERTIES ('alter-column-null-to-not-null.disabled' = 'false')")
    served.insert([[1, None]])
    alter("ALTER COLUMN name SET NOT NULL")
    served.flush()
    to = other(served)
    rest_catalog(served).rename_table(f"default.{served.name.table}", f"default.{to.table}")
    named(served, to)
    (letter,) = served.call("GET", "/dead-letters").json()["dead_letters"]
    assert letter["lsn"] == 1
    alter("ALTER COLUMN name DROP NOT NULL")
    assert served.call("POST", "/dead-letters/1/retry").json()["lsn"] == 2
    served.flush()
    assert served.ids() == [1]


def test_waiting_rows_are_loaded_under_the_new_name_after_a_rename(
    tmp_path: Path,
) -> None:
    """The coordinator was started anew, and the renaming went around it."""
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        filled(served)
        served.process.kill()
        served.process.start()
        assert served.insert([[3, "c"]]).json()["lsn"] == 3
        served.catalog.rename_table(served.name, NEW)
        assert served.call("POST", "/flush").status_code == 404
        named(served, NEW)
        assert served.flush()["lsn"] == 3
        assert served.ids() == [1, 2, 3]
        assert served.insert([[1, "a"]], idempotency_key="one").json()["duplicate"]


@pytest.mark.parametrize("log", mostly("warehouse"))
def test_concurrent_renames_keep_labels_channels_and_rows(
    tmp_path: Path, log: str, request: pytest.FixtureRequest
) -> None:
    """One of them is carried out; the others find no table by its old name."""
    with serve(tmp_path, log, request) as served:
        filled(served)
        for turn in range(3):
            new = [TableName(f"n{turn}{number}", "default") for number in range(4)]
            with ThreadPoolExecutor(5) as pool:
                labels = pool.submit(repeat_label, served)
                statuses = [a.status_code for a in pool.map(lambda n: rename(served, n), new)]
                labels.result()
            assert sorted(statuses) == [200, 404, 404, 404]
            named(served, new[statuses.index(200)])
        knows_what_was_inserted(served)


@pytest.mark.parametrize("order", ["rename first", "drop first"])
def test_concurrent_rename_and_drop_leave_a_single_outcome(served: Served, order: str) -> None:
    filled(served)
    base = served.name.table
    for turn in range(4):
        new = TableName(f"{base}_{turn}", "default")
        calls = [lambda n=new: rename(served, n), lambda: drop(served)]
        if order == "drop first":
            calls.reverse()
        with ThreadPoolExecutor(2) as pool:
            answers = [each.result() for each in [pool.submit(call) for call in calls]]
        assert 200 in {answer.status_code for answer in answers}
        assert {answer.status_code for answer in answers} <= {200, 404}
        listed = served.call("GET", "/v1/paimon/databases/default/tables").json()["tables"]
        tables = [name for name in listed if name.startswith(base)]
        assert tables in ([], [new.table]), "a drop of the old name never takes the new one"
        if not tables:
            sql = table_sql(options=SLOW).replace("CREATE TABLE t ", f"CREATE TABLE {new.table} ")
            create_table(served.folder / "warehouse", sql)
        named(served, new)
        answer = served.insert([[turn, "x"]], idempotency_key=f"turn {turn}")
        assert answer.status_code == 200, answer.text
    served.flush()
    assert served.call("GET", "/health/ready").status_code in (200, 404)


def repeat_label(served: Served) -> None:
    """Send a labelled insert again under a name that may be gone."""
    for _ in range(5):
        again = served.insert([[1, "a"]], idempotency_key="one")
        assert again.status_code in (200, 404, 503), again.text
        assert again.status_code != 200 or again.json()["duplicate"]


def rename(served: Served, new: TableName) -> httpx.Response:
    """Rename the table as an engine does, and again while others change it."""
    path = "/v1/paimon/tables/rename"
    names = [{"database": n.database, "object": n.table} for n in (served.name, new)]
    body = dict(zip(("source", "destination"), names, strict=True))
    return until_clear(lambda: served.call("POST", path, body))


def drop(served: Served) -> httpx.Response:
    """Drop the table as an engine does, and again while others change it."""
    path = f"/v1/paimon/databases/default/tables/{served.name.table}"
    return until_clear(lambda: served.call("DELETE", path))


def until_clear(call: Callable[[], httpx.Response]) -> httpx.Response:
    """Repeat a request until its outcome is known."""
    answer = call()
    while answer.status_code == 503:
        answer = call()
    return answer
