"""The checklist of docs/disasters.md, rehearsed: what is lost, and what is there again."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from paimon_magics.coordinator.client.interface import Definitions
from paimon_magics.planning.commits.procedures import plan_call
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.version_changes import Call
from tests.coordinator.commands import done
from tests.coordinator.inserts.serving import SLOW, TABLE, Served, table_sql
from tests.coordinator.inserts.test_renaming import mostly, serve
from tests.coordinator.test_backups import Kept, inserted, is_good, new_token, repeated

_PAGE = Path(__file__).parents[2] / "docs" / "disasters.md"


def kept_of(served: Served, folder: Path, log: str, request: pytest.FixtureRequest) -> Kept:
    server = request.getfixturevalue("postgres") if log == "postgres" else None
    return Kept(served, folder, server)


def test_options_of_the_page_are_those_of_the_commands() -> None:
    lines = re.findall(r"^paimon-coordinator (.*)$", _PAGE.read_text(), re.MULTILINE)
    assert {shlex.split(line)[0] for line in lines} == {"backup", "restore", "rotate", "move"}
    for line in lines:
        words = shlex.split(line)
        command = words[:2] if words[0] == "rotate" else words[:1]
        said = done(*command, "--help")
        for word in words:
            if word.startswith("--"):
                assert word in said, line


def test_sql_of_the_page_is_known() -> None:
    statements = re.findall(r"`(CALL [^`]+)`", _PAGE.read_text())
    assert statements
    for text in statements:
        call = parse_statement(text)
        assert isinstance(call, Call)
        assert plan_call(call, {}, "paimon").table == "shop.events", text


@pytest.mark.parametrize("log", mostly("postgres"))
def test_warehouse_is_put_back_and_the_store_is_newer(
    tmp_path: Path, log: str, request: pytest.FixtureRequest
) -> None:
    if log == "warehouse":
        pytest.skip("that log goes back with the warehouse")
    with serve(tmp_path, log, request) as served:
        kept = kept_of(served, tmp_path, log, request)
        inserted(served, 1)
        token = new_token(served, "etl")
        served.process.end()
        lake = tmp_path / "warehouse"
        shutil.copytree(lake, tmp_path / "copy")
        served.process.start()
        inserted(served, 2)
        served.process.end()
        shutil.rmtree(lake)
        shutil.copytree(tmp_path / "copy", lake)
        said = kept.restore("--in-place")
        assert "is gone; the latest is 1" in said, said
        served.process.start()
        assert not is_good(served, token)
        assert served.insert([[3, "a"]]).status_code == 409
        assert served.call("POST", "/reopen", {"accept_loss": True}).status_code == 200
        inserted(served, 3)
        served.flush()
        assert sorted(map(int, served.ids())) == [1, 3]  # type: ignore[call-overload]


def test_rights_are_kept_where_the_administrator_knows_the_store_as_the_last(
    tmp_path: Path,
) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        kept = Kept(served, tmp_path, None)
        token = new_token(served, "etl")
        served.process.end()
        lake = tmp_path / "warehouse"
        shutil.copytree(lake, tmp_path / "copy")
        served.process.start()
        served.process.end()
        shutil.rmtree(lake)
        shutil.copytree(tmp_path / "copy", lake)
        kept.restore("--in-place", "--keep-rights")
        served.process.start()
        assert is_good(served, token)


@pytest.mark.parametrize("log", mostly("store"))
def test_both_are_lost_and_put_back_to_different_moments(
    tmp_path: Path, log: str, request: pytest.FixtureRequest
) -> None:
    with serve(tmp_path, log, request) as served:
        kept = kept_of(served, tmp_path, log, request)
        lake = tmp_path / "warehouse"
        inserted(served, 1, 2)
        served.process.end()
        shutil.copytree(lake, tmp_path / "copy")  # of the warehouse, first
        served.process.start()
        inserted(served, 3)
        token = new_token(served, "etl")
        done("backup", kept.backup, *kept.words)  # then of the store
        inserted(served, 4)
        served.process.kill()
        shutil.rmtree(lake)
        shutil.copytree(tmp_path / "copy", lake)
        kept.lose()
        kept.restore()
        served.process.start()
        assert not is_good(served, token)
        served.call("POST", "/reopen", {"accept_loss": True})
        inserted(served, 5)
        served.flush()
        ids = sorted(map(int, served.ids()))  # type: ignore[call-overload]
        assert ids in ([1, 2, 5], [1, 2, 3, 5]), "each once, and nothing of after the backup"


def test_store_lost_without_a_backup_closes_tables_whose_rows_waited(tmp_path: Path) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        inserted(served, 1)
        served.flush()
        inserted(served, 2)
        token = new_token(served, "etl")
        served.process.kill()
        Kept(served, tmp_path, None).lose()
        served.process.start()
        assert not is_good(served, token)
        answer = served.insert([[3, "a"]])
        assert answer.status_code == 409, answer.text
        assert "are in another log" in answer.text
        served.call("POST", "/reopen", {"accept_loss": True})
        inserted(served, 3)
        served.flush()
        assert sorted(map(int, served.ids())) == [1, 3]  # type: ignore[call-overload]


def test_state_folder_beside_postgresql_is_replaced_by_an_empty_one(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with serve(tmp_path, "postgres", request) as served:
        inserted(served, 1)
        token = new_token(served, "etl")
        served.process.kill()
        shutil.rmtree(served.process.state)
        served.process.options.append("--ownership-lease-ms=1000")
        served.process.start()
        assert is_good(served, token)
        assert repeated(served, 1)


def test_table_that_was_dropped_comes_back_with_its_folder(tmp_path: Path) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        inserted(served, 1, 2)
        served.flush()
        folder = tmp_path / "warehouse" / "default.db" / "t"
        shutil.copytree(folder, tmp_path / "copy")
        Definitions(served.catalog, served.process.client().change_definition).drop_table(TABLE)
        assert served.insert([[3, "a"]]).status_code == 404
        shutil.copytree(tmp_path / "copy", folder)
        assert sorted(map(int, served.ids())) == [1, 2]  # type: ignore[call-overload]
        refused = served.insert([[3, "a"]])
        assert refused.status_code == 404
        assert "%paimon queue default.t accept-loss" in refused.text
        served.call("POST", "/reopen", {"accept_loss": True})
        assert served.insert([[3, "a"]], idempotency_key="key-3").status_code == 200
        served.flush()
        assert sorted(map(int, served.ids())) == [1, 2, 3]  # type: ignore[call-overload]
