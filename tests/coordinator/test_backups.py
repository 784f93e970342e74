"""`paimon-coordinator backup` and `restore`: what was acknowledged up to the backup is there
exactly once, what came later is named, and no right that was taken away comes back."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from paimon_magics.coordinator.http.authorisation import Tokens
from paimon_magics.coordinator.process.restoring import MAKING
from paimon_magics.coordinator.store.backups import Backup
from paimon_magics.coordinator.store.state_store import open_store
from paimon_magics.statements.statement import TableName
from tests.backends.s3 import S3Server
from tests.coordinator.commands import done, run
from tests.coordinator.inserts.serving import SLOW, TABLE, Served, table_sql
from tests.coordinator.inserts.test_log_on_s3 import post
from tests.coordinator.inserts.test_renaming import serve
from tests.coordinator.postgres import PostgresServer
from tests.coordinator.process import Process, create_table, read, wait_until

_Said = pytest.CaptureFixture[str]


class Kept:
    """A coordinator whose store is lost and restored, with the words that name both."""

    def __init__(self, served: Served, folder: Path, server: PostgresServer | None) -> None:
        self.served = served
        self.backup = folder / "backup.sqlite"
        self._server = server
        state = f"--state={served.process.state}"
        self.words = [state, *(o for o in served.process.options if o.startswith("--store="))]

    def lose(self) -> None:
        """Lose the store, as with its disk."""
        if self._server is None:
            shutil.rmtree(self.served.process.state)
            self.served.process.state.mkdir(mode=0o700)
        else:
            self._server.empty_database()

    def restore(self, *more: str) -> str:
        return done(
            "restore",
            *(more or (self.backup,)),
            *self.words,
            f"--warehouse={self.served.process.warehouse}",
            "--yes",
        )


@pytest.fixture(params=["store", "postgres"])
def kept(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Kept]:
    with serve(tmp_path, request.param, request) as served:
        is_postgres = request.param == "postgres"
        server = request.getfixturevalue("postgres") if is_postgres else None
        yield Kept(served, tmp_path, server)


def inserted(served: Served, *ids: int) -> None:
    for id in ids:
        answer = served.insert([[id, "a"]], idempotency_key=f"key-{id}")
        assert answer.status_code == 200, answer.text


def repeated(served: Served, *ids: int) -> bool:
    """Whether all of these inserts are known."""
    answers = [served.insert([[id, "a"]], idempotency_key=f"key-{id}") for id in ids]
    return all(answer.json().get("duplicate") for answer in answers)


def is_good(served: Served, token: str) -> bool:
    headers = {"authorization": f"Bearer {token}"}
    return served.call("GET", "//v1/config", headers=headers).status_code == 200


def new_token(served: Served, name: str) -> str:
    body = {"name": name, "allow": ["write"]}
    return str(served.call("POST", "/v1/tokens", body).json()["token"])


def test_acknowledged_rows_are_there_once_after_backup_loss_and_restore(kept: Kept) -> None:
    served = kept.served
    inserted(served, 1, 2)
    served.flush()
    inserted(served, 3, 4)
    done("backup", kept.backup, *kept.words)  # while it runs
    served.process.end()  # which loads what waits
    kept.lose()
    said = kept.restore()
    assert "records 3 to 4 waited in the store, and are in the table" in said, said
    served.process.start()
    assert repeated(served, 1, 2, 3, 4)
    inserted(served, 5)
    served.flush()
    assert sorted(map(str, served.ids())) == ["1", "2", "3", "4", "5"]


def test_rows_that_waited_in_a_backup_are_loaded_after_the_restore(kept: Kept) -> None:
    served = kept.served
    inserted(served, 1)
    served.flush()
    inserted(served, 2, 3)
    done("backup", kept.backup, *kept.words)
    served.process.kill()
    kept.lose()
    kept.restore()
    served.process.start()
    assert repeated(served, 1, 2, 3)
    served.flush()
    assert sorted(map(str, served.ids())) == ["1", "2", "3"]


class Ledger:
    """Clients that insert until they are stopped: what was acknowledged, and the longest wait."""

    def __init__(self, served: Served, clients: int) -> None:
        self.keys: list[int] = []
        self.slowest = 0.0
        self._served = served
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(n,)) for n in range(clients)]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(60)

    def _work(self, client: int) -> None:
        key = client * 1_000_000
        while not self._ending.is_set():
            began = time.monotonic()
            inserted(self._served, key)
            self.slowest = max(self.slowest, time.monotonic() - began)
            self.keys.append(key)
            key += 1


def test_backups_under_concurrent_inserts_have_all_that_was_acknowledged_before(
    tmp_path: Path,
) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        kept = Kept(served, tmp_path, None)
        ledger = Ledger(served, 4)
        try:
            wait_until(lambda: len(ledger.keys) > 20)
            for number in range(5):
                before = list(ledger.keys)
                began = time.monotonic()
                kept.backup = tmp_path / f"{number}.sqlite"
                done("backup", kept.backup, *kept.words)
                assert time.monotonic() - began < 60
            after = list(ledger.keys)
        finally:
            ledger.end()
        assert len(after) > len(before), "nobody was kept waiting by the backup"
        assert ledger.slowest < 10
        served.process.kill()
        kept.lose()
        kept.restore()
        served.process.start()
        served.call("POST", "/reopen", {"accept_loss": True})
        assert repeated(served, *before)
        served.flush()
        ids = list(map(int, served.ids()))  # type: ignore[call-overload]
        assert len(ids) == len(set(ids))
        assert set(before) <= set(ids) <= set(ledger.keys)


def test_backups_at_once_are_all_whole_and_a_users_own_file_in_the_state_folder_stays(
    tmp_path: Path,
) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        kept = Kept(served, tmp_path, None)
        inserted(served, 1)
        own = served.process.state / "backup-monday.sqlite"
        done("backup", own, *kept.words)
        files = [tmp_path / f"{number}.sqlite" for number in range(4)]
        with ThreadPoolExecutor() as pool:
            codes = list(pool.map(lambda file: run("backup", file, *kept.words)[0], files))
        assert codes == [0] * 4
        for file in (own, *files):
            assert Backup(file).acknowledged()[1]
        assert not list((served.process.state / MAKING).iterdir())


def test_what_an_interrupted_backup_left_goes_with_the_next(tmp_path: Path) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        kept = Kept(served, tmp_path, None)
        folder = served.process.state / MAKING
        folder.mkdir()
        left, notes = folder / f"{'a' * 32}.sqlite", folder / "my-notes.sqlite"
        left.touch()
        notes.touch()
        done("backup", kept.backup, *kept.words)
        assert not left.exists()
        assert notes.exists()


@pytest.mark.parametrize("loads", [False, True])
def test_table_whose_last_acknowledged_records_nobody_knows_is_named(
    tmp_path: Path, loads: bool, capfd: _Said
) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        kept = Kept(served, tmp_path, None)
        inserted(served, 1, 2)
        if loads:
            served.flush()
        done("backup", kept.backup, *kept.words)
        inserted(served, 3, 4)  # within the seconds before the loss
        served.process.kill()
        kept.lose()
        words = [*kept.words, f"--warehouse={served.process.warehouse}"]
        assert run("restore", kept.backup, *words)[0] == 2
        assert "Inserts into default.t that were acknowledged since" in capfd.readouterr().err
        said = kept.restore()
        assert "default.t: the store lacks the records after 2, if any" in said, said
        served.process.start()
        inserted(served, 3)  # its sender comes again
        served.flush()
        assert sorted(map(int, served.ids())) == [1, 2, 3]  # type: ignore[call-overload]


def test_table_with_nothing_to_lose_is_not_named(tmp_path: Path) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        kept = Kept(served, tmp_path, None)
        inserted(served, 1)
        served.process.end()  # which loads it
        done("backup", kept.backup, *kept.words)
        kept.lose()
        assert "lacks" not in kept.restore()


@pytest.mark.parametrize("exists", [False, True])
def test_restore_makes_nothing_of_another_warehouse(
    tmp_path: Path, exists: bool, capfd: _Said
) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        kept = Kept(served, tmp_path, None)
        inserted(served, 1)
        done("backup", kept.backup, *kept.words)
        served.process.kill()
        kept.lose()
        other = tmp_path / "other"
        if exists:
            create_table(other, table_sql())
        before = sorted(other.rglob("*"))
        for what in (kept.backup, "--in-place"):
            words = [what, *kept.words, f"--warehouse={other}", "--yes"]
            assert run("restore", *words)[0] == 2
            said = capfd.readouterr().err
            assert "is of the warehouse with the id" in said or "has used" in said, said
        assert sorted(other.rglob("*")) == before
        assert other.exists() == exists
        assert not (served.process.state / "warehouse.json").exists()
        kept.restore()
        served.process.start()
        assert repeated(served, 1)


def test_rows_after_the_backup_are_named_and_no_insert_is_taken_before_that_is_accepted(
    kept: Kept,
) -> None:
    served = kept.served
    inserted(served, 1, 2)
    done("backup", kept.backup, *kept.words)
    inserted(served, 3)
    served.flush()
    inserted(served, 4)
    served.process.kill()
    kept.lose()
    said = kept.restore()
    assert "records 1 to 2 waited in the store, and are in the table" in said, said
    served.process.start()
    wait_until(lambda: served.insert([[9, "z"]]).status_code == 409)
    assert sorted(map(str, served.ids())) == ["1", "2", "3"]
    answer = served.call("POST", "/reopen", {"accept_loss": True})
    assert answer.status_code == 200, answer.text
    assert repeated(served, 1, 2)
    inserted(served, 4)  # its sender comes again
    served.flush()
    assert sorted(map(str, served.ids())) == ["1", "2", "3", "4"]


def test_token_revoked_after_the_backup_stays_revoked(kept: Kept) -> None:
    served = kept.served
    etl, bi = new_token(served, "etl"), new_token(served, "bi")
    grant = {"to": ["user:ada"], "allow": ["read"]}
    assert served.call("POST", "/v1/grants", grant).status_code == 200
    done("backup", kept.backup, *kept.words)
    assert served.call("DELETE", "/v1/tokens/etl").status_code == 200
    served.process.kill()
    kept.lose()
    said = kept.restore()
    assert "2 tokens and 1 grants have ended" in said, said
    assert "paimon-coordinator token add 'bi' --allow write" in said
    assert "paimon-coordinator grant read --to 'ada'" in said
    served.process.start()
    assert not is_good(served, etl)
    assert not is_good(served, bi)
    assert is_good(served, new_token(served, "bi"))
    assert served.call("POST", "/v1/tokens/etl/renew", {}).json()["renewed"] == []


@pytest.mark.parametrize("step", ["", "restore.filled", "restore.rights_settled"])
def test_token_that_the_replaced_store_knows_as_revoked_is_not_due(
    tmp_path: Path, step: str
) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        kept = Kept(served, tmp_path, None)
        leaver, _ = new_token(served, "leaver"), new_token(served, "bi")
        done("backup", kept.backup, *kept.words)
        served.process.end()
        with closing(open_store(served.process.state)) as store:  # which tells no warehouse
            Tokens(store.tokens).revoke("leaver")
        if step:
            words = [*kept.words, f"--warehouse={served.process.warehouse}", "--yes"]
            code, _ = run("restore", kept.backup, *words, faults=f"{step}=kill")
            assert code == -signal.SIGKILL
        said = kept.restore()
        if not step:
            assert "'bi'" in said, said
            assert "leaver" not in said
        served.process.start()
        assert not is_good(served, leaver)


def test_tokens_stay_good_where_no_right_was_taken_away_since(kept: Kept) -> None:
    served = kept.served
    old, revoked = new_token(served, "etl"), new_token(served, "gone")
    served.call("DELETE", "/v1/tokens/gone")
    done("backup", kept.backup, *kept.words)
    late = new_token(served, "late")
    served.process.kill()
    kept.lose()
    assert "No rights were taken away since" in kept.restore()
    served.process.start()
    assert [is_good(served, token) for token in (old, revoked, late)] == [True, False, False]


def test_store_put_back_by_other_means_is_accepted_in_place(
    tmp_path: Path,
) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        kept = Kept(served, tmp_path, None)
        inserted(served, 1)
        token = new_token(served, "etl")
        served.process.end()
        shutil.copytree(served.process.state, tmp_path / "aside")
        served.process.start()
        inserted(served, 2)
        served.call("DELETE", "/v1/tokens/etl")
        served.process.end()
        shutil.rmtree(served.process.state)
        shutil.copytree(tmp_path / "aside", served.process.state)
        said = kept.restore("--in-place")
        assert "lacks the records 2 to 2" in said, said
        served.process.start()
        assert not is_good(served, token)
        served.call("POST", "/reopen", {"accept_loss": True})
        assert repeated(served, 1)
        served.flush()
        assert sorted(map(str, served.ids())) == ["1", "2"]


@pytest.mark.parametrize(
    "step",
    [
        "restore.written",
        "restore.exchanged",
        "restore.filled",
        "restore.rights_settled",
        "restore.settled",
        "pair.stored",
    ],
)
def test_restore_that_was_killed_can_be_repeated(tmp_path: Path, step: str, capfd: _Said) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        kept = Kept(served, tmp_path, None)
        inserted(served, 1, 2)
        token = new_token(served, "etl")
        done("backup", kept.backup, *kept.words)
        served.call("DELETE", "/v1/tokens/etl")
        served.process.kill()
        kept.lose()
        words = [*kept.words, f"--warehouse={served.process.warehouse}", "--yes"]
        code, _ = run("restore", kept.backup, *words, faults=f"{step}=kill")
        assert code == -signal.SIGKILL
        if step not in ("restore.written", "pair.stored"):
            with pytest.raises(AssertionError):
                served.process.start()
            assert "A restore of the store" in "".join(capfd.readouterr())
        kept.restore()
        served.process.start()
        assert not is_good(served, token)
        assert repeated(served, 1, 2)
        served.flush()
        assert sorted(map(str, served.ids())) == ["1", "2"]


def test_bad_input_is_refused_before_anything_is_changed(tmp_path: Path, capfd: _Said) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        kept = Kept(served, tmp_path, None)
        inserted(served, 1)
        done("backup", kept.backup, *kept.words)
        bad, content = tmp_path / "bad", bytearray(kept.backup.read_bytes())
        bad.write_bytes(b"no backup")
        short = tmp_path / "short"
        short.write_bytes(content[: len(content) // 2])
        warehouse = f"--warehouse={served.process.warehouse}"

        def refused(*words: object) -> str:
            code, output = run(*words, environment={"PAIMON_COORDINATOR_STORE": ""})
            assert (code, output) == (2, "")
            return capfd.readouterr().err

        assert "exists already" in refused("backup", kept.backup, *kept.words)
        assert "There is no state folder" in refused("backup", tmp_path / "x", "--state=/nowhere")
        assert "runs" in refused("restore", kept.backup, *kept.words, warehouse, "--yes")
        served.process.end()
        before = {path: path.read_bytes() for path in served.process.state.rglob("*.sqlite")}
        assert "is replaced by its state of" in refused(
            "restore", kept.backup, *kept.words, warehouse
        )
        assert "There is no backup" in refused("restore", tmp_path / "none", *kept.words, "--yes")
        for file in (bad, short):
            said = refused("restore", file, *kept.words, warehouse, "--yes")
            assert "is not a backup" in said or "is damaged" in said
        with Served(tmp_path / "other", table_sql()) as other:
            other.process.end()
            said = refused(
                "restore",
                kept.backup,
                f"--state={other.process.state}",
                f"--warehouse={other.process.warehouse}",
                "--yes",
            )
            assert "is of the warehouse with the id" in said
        assert "Either a backup's file or --in-place" in refused("restore", *kept.words)
        for path, old in before.items():
            assert path.read_bytes() == old, path
        served.process.start()
        assert repeated(served, 1)


def test_backup_of_a_stopped_coordinator_is_as_good(tmp_path: Path) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        kept = Kept(served, tmp_path, None)
        inserted(served, 1)
        served.process.kill()
        done("backup", kept.backup, *kept.words)
        assert kept.backup.stat().st_mode & 0o077 == 0
        kept.lose()
        kept.restore()
        served.process.start()
        assert repeated(served, 1)
        served.flush()
        assert served.ids() == [1]


def test_backup_moves_from_sqlite_to_postgresql(
    tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in postgres.environment.items():
        monkeypatch.setenv(name, value)
    address = postgres.empty_database()
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        kept = Kept(served, tmp_path, None)
        inserted(served, 1)
        done("backup", kept.backup, *kept.words)
        served.process.kill()
        kept.words.append(f"--store={address}")
        kept.restore()
        served.process.options.append(f"--store={address}")
        served.process.environment |= os.environ
        served.process.start()
        assert repeated(served, 1)
        served.flush()
        assert served.ids() == [1]


def test_state_is_restored_where_the_log_is_in_the_warehouse_on_s3(
    tmp_path: Path, s3: S3Server
) -> None:
    bucket = s3.bucket()
    catalog = create_table(bucket.options, table_sql(options=SLOW))
    state = tmp_path / "state"
    process = Process(bucket.options["warehouse"], state, "--log=warehouse", catalog=bucket.options)
    process.start()
    try:
        post(process, "", {"rows": [[1, "a"]]}, "one")
        words = [f"--state={state}", "--log=warehouse"]
        backup = tmp_path / "backup.sqlite"
        done("backup", backup, *words)
        post(process, "", {"rows": [[2, "a"]]}, "two")
        process.kill()
        shutil.rmtree(state)
        state.mkdir(mode=0o700)
        done("restore", backup, *words, f"--catalog={state.with_suffix('.json')}", "--yes")
        process.start()
        assert post(process, "", {"rows": [[2, "a"]]}, "two")["duplicate"]
        post(process, "/flush")
        assert [row["id"] for row in read(catalog, TABLE)] == [1, 2]
    finally:
        process.close()


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_help_has_an_example(command: str) -> None:
    said = done(command, "--help")
    assert f"paimon-coordinator {command} " in said.partition("example")[2]


def test_commands_leave_entries_in_the_audit_log(
    tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in postgres.environment.items():
        monkeypatch.setenv(name, value)
    store = f"--store={postgres.empty_database()}"
    audit = ("--audit-table=ops.audit", "--audit-every-ms=200")
    with Served(tmp_path, table_sql(options=SLOW), store, *audit) as served:
        kept = Kept(served, tmp_path, postgres)
        done("backup", kept.backup, *kept.words)
        done("rotate", "own-token", f"--state={served.process.state}")
        served.process.end()
        done("backup", tmp_path / "second.sqlite", *kept.words)
        kept.restore()
        served.process.start()

        def actions() -> set[object]:
            rows = read(served.catalog, TableName("audit", "ops"))
            return {row["action"] for row in rows}

        wait_until(lambda: {"back up", "rotate", "restore"} <= actions())


def test_token_that_was_revoked_without_a_coordinator_stays_revoked(tmp_path: Path) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        kept = Kept(served, tmp_path, None)
        token = new_token(served, "etl")
        done("backup", kept.backup, *kept.words)
        served.process.end()
        said = done("token", "revoke", "etl", *kept.words)
        assert "could not be told" not in said
        kept.lose()
        assert "1 tokens and 0 grants have ended" in kept.restore()
        served.process.start()
        assert not is_good(served, token)
