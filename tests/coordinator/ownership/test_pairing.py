"""Copies and backups of warehouses and stores: each goes on as the same one, or is refused with the
next step, so that no revoked token works again and no row is doubled."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from paimon_magics.coordinator.ownership.pairing import (
    Pairing,
    Standing,
    WarehousePair,
    standing,
)
from paimon_magics.coordinator.store.state_store import open_store
from paimon_magics.coordinator.store.tables import StorePair
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.stores.store import LocalStore
from tests.coordinator.inserts.serving import SLOW, Served, table_sql
from tests.coordinator.inserts.test_identity import filled, has_everything_once, start_with
from tests.coordinator.inserts.test_renaming import mostly, serve
from tests.coordinator.postgres import PostgresServer
from tests.coordinator.process import Process

_Said = pytest.CaptureFixture[str]


def test_new_store_of_a_warehouse_that_had_another_one_says_so(tmp_path: Path) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:

        def problems() -> tuple[str, ...]:
            return served.process.client().administration().status().problems

        assert problems() == ()
        served.process.end()
        served.process.state.rename(tmp_path / "right")
        served.process.start()  # with an empty folder, as after a wrong --store
        (said,) = problems()
        assert "was used with another one (start 1, by " in said
        served.process.end()
        served.process.start()
        assert problems() == ()


def refused(process: Process, said: _Said) -> str:
    """Why a coordinator does not start."""
    said.readouterr()
    with pytest.raises(AssertionError):
        process.start()
    return "".join(said.readouterr())


class Copies:
    """The store and the warehouse of a coordinator, copied aside while it does not run."""

    def __init__(self, served: Served, folder: Path, server: PostgresServer | None) -> None:
        self._served = served
        self._folder = folder
        self._server = server

    def _places(self, what: str) -> tuple[Path, Path]:
        process = self._served.process
        at = process.state if what == "store" else Path(process.warehouse)
        return at, self._folder / f"saved-{what}"

    def save(self, what: str) -> None:
        at, saved = self._places(what)
        if what == "store" and self._server is not None:
            self._in_postgres("saved_", "paimon_coordinator")
            return
        shutil.copytree(at, saved, symlinks=True)

    def put_back(self, what: str) -> None:
        at, saved = self._places(what)
        if what == "store" and self._server is not None:
            self._in_postgres("paimon_coordinator", "saved_")
            return
        shutil.rmtree(at)
        shutil.copytree(saved, at, symlinks=True)

    def _in_postgres(self, target: str, source: str) -> None:
        assert self._server is not None
        self._server.end_sessions()
        with self._server.administer() as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {target} CASCADE".encode())
            connection.execute(f"CREATE SCHEMA {target} AUTHORIZATION coordinator".encode())
            rows = connection.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = %s", (source,)
            ).fetchall()
            for (table,) in rows:
                connection.execute(
                    f"CREATE TABLE {target}.{table} (LIKE {source}.{table} INCLUDING ALL)".encode()
                )
                connection.execute(
                    f"INSERT INTO {target}.{table} SELECT * FROM {source}.{table}".encode()
                )
                connection.execute(f"ALTER TABLE {target}.{table} OWNER TO coordinator".encode())


@pytest.fixture(params=mostly("postgres"))
def log(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def copies(tmp_path: Path, log: str, request: pytest.FixtureRequest) -> Callable[[Served], Copies]:
    server = request.getfixturevalue("postgres") if log == "postgres" else None
    return lambda served: Copies(served, tmp_path, server)


def test_store_put_back_to_before_a_revocation_is_refused(
    tmp_path: Path,
    log: str,
    request: pytest.FixtureRequest,
    copies: Callable[[Served], Copies],
    capfd: _Said,
) -> None:
    with serve(tmp_path, log, request) as served:
        body = {"name": "etl", "allow": ["write"]}
        token = served.call("POST", "/v1/tokens", body).json()["token"]
        served.process.end()
        copy = copies(served)
        copy.save("store")
        served.process.start()
        assert served.call("DELETE", "/v1/tokens/etl").status_code == 200
        served.process.kill()
        copy.put_back("store")
        said = refused(served.process, capfd)
        assert "is older than the warehouse" in said, said
        assert "paimon-coordinator restore --in-place" in said
        assert token not in said


def test_dump_of_a_running_store_lacks_a_revocation_of_the_same_run(
    tmp_path: Path, request: pytest.FixtureRequest, capfd: _Said
) -> None:
    with serve(tmp_path, "postgres", request) as served:
        served.call("POST", "/v1/tokens", {"name": "etl", "allow": ["write"]})
        copy = Copies(served, tmp_path, request.getfixturevalue("postgres"))
        running, copy._served.process.state = served.process, served.process.state
        server: PostgresServer = request.getfixturevalue("postgres")
        with server.administer() as connection:  # as pg_dump does, without ending the session
            connection.execute("CREATE SCHEMA aside AUTHORIZATION coordinator")
            connection.execute("CREATE TABLE aside.pairing AS TABLE paimon_coordinator.pairing")
            connection.execute("CREATE TABLE aside.tokens AS TABLE paimon_coordinator.tokens")
        assert served.call("DELETE", "/v1/tokens/etl").status_code == 200
        running.kill()
        server.end_sessions()
        with server.administer() as connection:
            for table in ("pairing", "tokens"):
                connection.execute(f"DELETE FROM paimon_coordinator.{table}".encode())
                connection.execute(
                    f"INSERT INTO paimon_coordinator.{table} TABLE aside.{table}".encode()
                )
            connection.execute("DROP SCHEMA aside CASCADE")
        assert "is older than the warehouse" in refused(running, capfd)


def test_warehouse_put_back_to_an_earlier_state_is_refused(
    tmp_path: Path,
    log: str,
    request: pytest.FixtureRequest,
    copies: Callable[[Served], Copies],
    capfd: _Said,
) -> None:
    if log == "warehouse":
        pytest.skip("that log goes back with the warehouse; see the next test")
    with serve(tmp_path, log, request) as served:
        filled(served)
        served.process.end()
        copy = copies(served)
        copy.save("warehouse")
        served.process.start()
        assert served.insert([[3, "c"]], idempotency_key="three").status_code == 200
        served.flush()
        served.process.kill()
        copy.put_back("warehouse")
        said = refused(served.process, capfd)
        assert "is older than the store" in said, said
        assert "paimon-coordinator restore --in-place" in said


@pytest.mark.parametrize("what", ["store", "warehouse"])
def test_both_put_back_to_the_same_moment_go_on(
    tmp_path: Path,
    log: str,
    request: pytest.FixtureRequest,
    copies: Callable[[Served], Copies],
    what: str,
) -> None:
    with serve(tmp_path, log, request) as served:
        filled(served)
        served.process.end()
        copy = copies(served)
        copy.save("store")
        copy.save("warehouse")
        served.process.start()
        served.insert([[9, "z"]])
        served.process.kill()
        copy.put_back(what)
        copy.put_back("warehouse" if what == "store" else "store")
        served.process.start()
        has_everything_once(served)


def test_copy_that_replaces_its_original_keeps_labels_and_numbers(
    tmp_path: Path, log: str, request: pytest.FixtureRequest, capfd: _Said
) -> None:
    """As the refusal says: the original's id is removed, then the copy is the warehouse."""
    with serve(tmp_path, log, request) as served:
        filled(served)
        served.process.kill()
        lake = tmp_path / "warehouse"
        shutil.copytree(lake, tmp_path / "copy")
        (lake / ".paimon-magics" / "warehouse-id").unlink()
        start_with(served, tmp_path / "copy")
        served.catalog = Catalog.open({"warehouse": str(tmp_path / "copy")})
        has_everything_once(served)
        served.process.kill()
        served.process.options = [
            o for o in served.process.options if not o.startswith("--warehouse=")
        ]
        served.process.options.append(f"--warehouse={lake}")
        said = refused(served.process, capfd)
        assert "belongs to the warehouse" in said or "is older than the store" in said, said


def test_copy_whose_original_is_out_of_reach_leaves_the_original_behind(
    tmp_path: Path, log: str, request: pytest.FixtureRequest, capfd: _Said
) -> None:
    """The copy goes on as the warehouse; the original, which comes back, is refused."""
    if log == "warehouse":
        pytest.skip("without a log outside, a copy has all that it needs")
    with serve(tmp_path, log, request) as served:
        filled(served)
        served.process.kill()
        lake = tmp_path / "warehouse"
        shutil.copytree(lake, tmp_path / "copy")
        lake.rename(tmp_path / "away")
        start_with(served, tmp_path / "copy")
        served.catalog = Catalog.open({"warehouse": str(tmp_path / "copy")})
        has_everything_once(served)
        served.process.kill()
        (tmp_path / "copy").rename(tmp_path / "copy-away")
        (tmp_path / "away").rename(lake)
        said = ""
        try:
            start_with(served, lake)
        except AssertionError:
            said = "".join(capfd.readouterr())
        assert "is older than the store" in said, said


def test_state_copied_to_another_machine_is_refused_after_the_first_went_on(
    tmp_path: Path, capfd: _Said
) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        filled(served)
        served.process.end()
        shutil.copytree(tmp_path / "state", tmp_path / "other")
        served.process.start()
        served.process.end()
        other = Process(tmp_path / "warehouse", tmp_path / "other")
        assert "is older than the warehouse" in refused(other, capfd)


@pytest.mark.parametrize("step", ["pair.stored", "pair.noted"])
def test_kill_while_the_pair_is_written_lets_the_next_start_go_on(
    tmp_path: Path, step: str
) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        filled(served)
        served.process.kill()
        for _ in range(2):
            with pytest.raises(AssertionError):
                served.process.start(f"{step}=kill")
        served.process.start()
        has_everything_once(served)


def test_revocation_without_a_warehouse_is_noted_by_the_next_start(tmp_path: Path) -> None:
    store = open_store(tmp_path / "state")
    pairing = Pairing(LocalStore(), str(tmp_path), store.pair, name="a store", who="me")
    pairing.begin()
    store.tokens.revoke("any", 1)
    assert pairing.compared()[0] is Standing.SAME
    pairing.begin()
    _, stored, noted = pairing.compared()
    assert stored is not None
    assert noted is not None
    assert stored.rights == noted.rights == 1
    store.close()


def test_note_of_a_former_start_does_not_hide_the_latest_one(tmp_path: Path) -> None:
    store = open_store(tmp_path / "state")

    def started() -> Pairing:
        pairing = Pairing(LocalStore(), str(tmp_path), store.pair, name="a store", who="me")
        pairing.begin()
        return pairing

    def only_note() -> Path:
        (path,) = (tmp_path / ".paimon-magics").glob("store-*")
        return path

    former = started()
    former_note = only_note()
    # An older version, whose note has no number in its name, ran in between.
    content = former_note.read_bytes()
    former_note.rename(tmp_path / ".paimon-magics" / f"{former_note.stem.removesuffix('-1')}.json")
    present = started()
    assert only_note() != former_note
    former_note.write_bytes(content)  # a process that stood still in the middle of its write
    assert present.compared()[0] is Standing.SAME
    store.tokens.revoke("any", 1)
    former.note_rights()
    _, _, noted = present.compared()
    assert noted is not None
    assert (noted.starts, noted.rights) == (2, 0)
    present.note_rights()
    _, _, noted = present.compared()
    assert noted is not None
    assert noted.rights == 1
    started()
    assert only_note().stem.endswith("-3")
    store.close()


def test_pairs_are_compared_by_marks_before_counts() -> None:
    stored = StorePair("s", 5, "e", "", 2)

    def noted(starts: int, mark: str, rights: int = 2) -> WarehousePair:
        return WarehousePair("s", starts, mark, rights)

    assert standing(None, None) is Standing.SAME
    assert standing(stored, noted(5, "e")) is Standing.SAME
    assert standing(stored, noted(5, "e", 1)) is Standing.SAME
    assert standing(stored, noted(5, "e", 3)) is Standing.STORE_OLDER
    assert standing(stored, noted(5, "x")) is Standing.STORE_OLDER
    assert standing(stored, noted(6, "f")) is Standing.STORE_OLDER
    assert standing(stored, noted(4, "d")) is Standing.WAREHOUSE_OLDER
    assert standing(stored, None) is Standing.WAREHOUSE_OLDER
    unconfirmed = StorePair("s", 5, "e", "d", 2)
    assert standing(unconfirmed, noted(4, "d")) is Standing.SAME
    assert standing(StorePair("s", 1, "a", "never", 0), None) is Standing.SAME


def test_copy_with_its_log_becomes_a_warehouse_of_its_own(tmp_path: Path, capfd: _Said) -> None:
    with Served(tmp_path, table_sql(options=SLOW), "--log=warehouse") as served:
        filled(served)
        served.process.kill()
        shutil.copytree(tmp_path / "warehouse", tmp_path / "copy")
        other = Process(tmp_path / "copy", tmp_path / "other", "--log=warehouse")
        said = refused(other, capfd)
        folder = tmp_path / "copy" / ".paimon-magics" / "log"
        assert f"remove the folder {folder}" in said, said
        shutil.rmtree(folder)
        try:
            other.start()
        finally:
            other.close()
        served.process.start()
        has_everything_once(served)
