"""`paimon-coordinator move`: the same warehouse in another place, with nothing lost or doubled."""

from __future__ import annotations

import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import paimon_magics
from paimon_magics.errors import PaimonMagicsError
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.tables.catalog.catalog import Catalog
from tests.backends.s3 import S3Server
from tests.coordinator.commands import done, run
from tests.coordinator.inserts.serving import SLOW, TABLE, Served, table_sql
from tests.coordinator.inserts.test_identity import filled, has_everything_once, start_with
from tests.coordinator.inserts.test_log_on_s3 import post
from tests.coordinator.inserts.test_renaming import mostly, serve
from tests.coordinator.process import Process, create_table, read, write

_Said = pytest.CaptureFixture[str]


class Inserting:
    """A thread that inserts one row after another, each with a label, and repeats it until it is
    acknowledged."""

    def __init__(self, served: Served) -> None:
        self.acknowledged: list[int] = []
        self._served = served
        self._ending = threading.Event()
        self._headers = {"authorization": f"Bearer {served.process.token()}"}
        self._url = served.process.address + served.path
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def end(self) -> list[int]:
        self._ending.set()
        self._thread.join(60)
        return self.acknowledged

    def wait_for(self, count: int) -> None:
        deadline = time.monotonic() + 60
        while len(self.acknowledged) < count:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def _work(self) -> None:
        with httpx.Client(trust_env=False, timeout=30, headers=self._headers) as client:
            key = 100
            while not self._ending.is_set():
                try:
                    body = {"rows": [[key, "a"]]}
                    label = {"idempotency-key": f"row-{key}"}
                    answer = client.post(self._url, json=body, headers=label)
                except httpx.HTTPError:
                    time.sleep(0.05)
                    continue
                if answer.status_code == 200:
                    self.acknowledged.append(key)
                    key += 1


def words(served: Served) -> list[str]:
    options = served.process.options
    kept = [o for o in options if o.startswith(("--store=", "--log=", "--warehouse="))]
    return [f"--state={served.process.state}", "--yes", *kept]


@pytest.mark.parametrize("log", mostly("postgres"))
def test_moved_warehouse_has_each_acknowledged_row_once_under_running_inserts(
    tmp_path: Path, log: str, request: pytest.FixtureRequest
) -> None:
    with serve(tmp_path, log, request) as served:
        filled(served)
        inserting = Inserting(served)
        inserting.wait_for(20)
        served.process.end()
        target = tmp_path / "curated"
        said = done("move", target, *words(served))
        assert f"Start the coordinator with --warehouse {target}" in said
        start_with(served, target)
        served.catalog = Catalog.open({"warehouse": str(target)})
        inserting.wait_for(len(inserting.acknowledged) + 20)
        acknowledged = inserting.end()
        for number, label in ((1, "one"), (2, "two")):
            again = served.insert([[number, "ab"[number - 1]]], idempotency_key=label)
            assert again.json().get("duplicate"), again.text
        served.flush()
        ids = sorted(map(int, served.ids()))  # type: ignore[call-overload]
        assert ids == [1, 2, *acknowledged]


def test_who_comes_to_the_old_place_is_told_where_the_warehouse_is(
    tmp_path: Path, capfd: _Said
) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        filled(served)
        old = Catalog.open({"warehouse": str(tmp_path / "warehouse")})
        served.process.end()
        target = tmp_path / "curated"
        done("move", target, *words(served))
        with pytest.raises(AssertionError):
            served.process.start()
        assert f"was moved to {target}" in "".join(capfd.readouterr())
        with pytest.raises(PaimonMagicsError, match=f"was moved to {target}"):
            old.load(TABLE)
        start_with(served, target)
        served.catalog = Catalog.open({"warehouse": str(target)})
        has_everything_once(served)


def test_open_session_says_where_the_warehouse_went(
    tmp_path: Path, spark: object, capfd: _Said
) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        filled(served)
        served.flush()
        session = paimon_magics.connect(
            coordinator=served.process.address,
            token=served.process.token(),
            spark=spark,  # type: ignore[arg-type]
        )
        try:
            assert session.run("SELECT count(*) FROM default.t").to_arrow().num_rows == 1
            served.process.end()
            target = tmp_path / "curated"
            done("move", target, *words(served))
            start_with(served, target)
            for text in ("SELECT * FROM default.t", "INSERT INTO default.t SELECT 9, 'z'"):
                with pytest.raises(PaimonMagicsError) as raised:
                    session.run(text)
                assert f"was moved to {target}" in raised.value.text(), raised.value.text()
        finally:
            session.close()


def test_statement_that_is_open_is_not_left_behind(tmp_path: Path, capfd: _Said) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        client = served.process.client()
        transaction = client.begin(TABLE)
        messages = write(served.catalog, transaction, [{"id": 1, "name": "a"}])
        served.process.end()
        assert run("move", tmp_path / "curated", *words(served))[0] == 2
        assert "1 statements are open, on default.t" in capfd.readouterr().err
        served.process.start()
        client.commit(CommitRequest(transaction, Append(), messages))
        assert served.ids() == [1]


@pytest.fixture
def on_s3(tmp_path: Path, s3: S3Server) -> Iterator[tuple[Process, dict[str, str]]]:
    bucket = s3.bucket()
    create_table(bucket.options, table_sql(options=SLOW))
    process = Process(bucket.options["warehouse"], tmp_path / "state", catalog=bucket.options)
    process.start()
    post(process, "", {"rows": [[1, "a"]]}, "one")
    post(process, "/flush")
    post(process, "", {"rows": [[2, "b"]]}, "two")
    yield process, bucket.options
    process.close()


@pytest.mark.parametrize(
    "step", ["", "move.noted", "move.copied", "move.marked", "move.unmarked", "pair.stored"]
)
def test_move_on_s3_goes_on_where_it_was_killed(
    tmp_path: Path, on_s3: tuple[Process, dict[str, str]], step: str, capfd: _Said
) -> None:
    process, options = on_s3
    process.kill()
    file = tmp_path / "state.json"
    source, target = options["warehouse"], f"{options['warehouse']}-curated"
    command = ["move", target, f"--state={tmp_path / 'state'}", f"--catalog={file}", "--yes"]
    if step.startswith("move"):
        assert run(*command, faults=f"{step}=kill")[0] == -signal.SIGKILL
        with pytest.raises(AssertionError):
            process.start()
        assert f"moved to {target}" in "".join(capfd.readouterr())
    done(*command)
    done(*command)  # which has nothing left to do
    moved = {**options, "warehouse": target}
    again = Process(target, tmp_path / "state", catalog=moved)
    if step == "pair.stored":
        with pytest.raises(AssertionError):
            again.start(f"{step}=kill")
    again.start()
    try:
        assert post(again, "", {"rows": [[2, "b"]]}, "two")["duplicate"]
        assert post(again, "", {"rows": [[1, "a"]]}, "one")["duplicate"]
        assert post(again, "", {"rows": [[3, "c"]]}, "three")["lsn"] == 3
        post(again, "/flush")
        assert sorted(str(row["id"]) for row in read(Catalog.open(moved))) == ["1", "2", "3"]
        left = Catalog.open(options).stores.of(source).files_below(source)
        names = [path.rpartition("/")[2] for path in left]
        assert [name for name in names if not name.endswith(".db")] == ["moved.json"]
    finally:
        again.close()


@pytest.mark.parametrize("step", ["move.noted", "move.renamed", "move.unmarked"])
def test_rename_that_was_killed_goes_on(tmp_path: Path, step: str) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        filled(served)
        served.process.kill()
        target = tmp_path / "curated"
        assert run("move", target, *words(served), faults=f"{step}=kill")[0] == -signal.SIGKILL
        done("move", target, *words(served))
        start_with(served, target)
        served.catalog = Catalog.open({"warehouse": str(target)})
        has_everything_once(served)


def test_bad_targets_are_refused_before_anything_is_changed(tmp_path: Path, capfd: _Said) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        filled(served)
        filling = tmp_path / "full"
        filling.mkdir()
        (filling / "file").touch()

        def refused(target: object, *more: str) -> str:
            code, output = run("move", target, *(more or words(served)))
            assert (code, output) == (2, "")
            return capfd.readouterr().err

        assert "runs" in refused(tmp_path / "curated")
        served.process.end()
        before = sorted((tmp_path / "warehouse").rglob("*"))
        assert "is not empty" in refused(filling)
        (tmp_path / "disk" / "lost+found").mkdir(parents=True)
        assert "is not empty: it has lost+found" in refused(tmp_path / "disk")
        for name, leads in (("link", "elsewhere"), ("dangling", "nowhere")):
            (tmp_path / name).symlink_to(tmp_path / leads)
            (tmp_path / "elsewhere").mkdir(exist_ok=True)
            assert f"{tmp_path / name} is a link to" in refused(tmp_path / name)
        assert "is not another place" in refused(tmp_path / "warehouse")
        assert "is not another place" in refused(tmp_path / "warehouse" / "inner")
        assert "is not a whole path" in refused("curated")
        without = [word for word in words(served) if word != "--yes"]
        assert "--yes" in refused(tmp_path / "curated", *without)
        tables = [path for path in before if ".paimon-magics/owner" not in str(path)]
        assert set(tables) <= set((tmp_path / "warehouse").rglob("*"))
        served.process.start()
        has_everything_once(served)


@pytest.fixture
def other_disk() -> Iterator[Path]:
    """A folder on another file system than the tests' own."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        pytest.skip("there is no second file system")
    folder = Path(tempfile.mkdtemp(dir=memory))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("relative", [False, True])
def test_move_to_another_disk_refuses_a_table_behind_a_link(
    tmp_path: Path, other_disk: Path, relative: bool, capfd: _Said
) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        filled(served)
        served.process.end()
        table = tmp_path / "warehouse" / "default.db" / "t"
        shutil.move(table, tmp_path / "elsewhere")
        table.symlink_to("../../elsewhere" if relative else tmp_path / "elsewhere")
        assert run("move", other_disk / "curated", *words(served))[0] == 2
        assert f"{table} is a link to" in capfd.readouterr().err
        assert not (other_disk / "curated").exists()
        served.process.start()
        has_everything_once(served)


def test_rename_keeps_links_that_stay_good_and_refuses_the_others(
    tmp_path: Path, capfd: _Said
) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        filled(served)
        served.process.end()
        table = tmp_path / "warehouse" / "default.db" / "t"
        shutil.move(table, tmp_path / "elsewhere")
        table.symlink_to("../../elsewhere")
        (tmp_path / "deep").mkdir()
        assert run("move", tmp_path / "deep" / "curated", *words(served))[0] == 2
        assert f"{table} is a link to" in capfd.readouterr().err
        target = tmp_path / "curated"
        done("move", target, *words(served))
        start_with(served, target)
        served.catalog = Catalog.open({"warehouse": str(target)})
        has_everything_once(served)


def test_move_that_was_done_and_went_on_is_not_done_again(
    tmp_path: Path, other_disk: Path, capfd: _Said
) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        filled(served)
        served.process.end()
        (tmp_path / "warehouse" / "empty.db").mkdir()
        first, second = other_disk / "b", tmp_path / "c"
        done("move", first, *words(served))
        state = [f"--state={served.process.state}", "--yes"]
        done("move", second, *state, f"--warehouse={first}")
        assert (second / "empty.db").is_dir()
        assert run("move", first, *words(served))[0] == 2
        said = capfd.readouterr().err
        assert f"was moved to {first}" in said, said
        assert f"moved to {second}" in said, said
        assert not (first / ".paimon-magics" / "warehouse-id").exists()
        start_with(served, second)
        served.catalog = Catalog.open({"warehouse": str(second)})
        has_everything_once(served)


def test_help_has_an_example_of_a_move() -> None:
    assert "paimon-coordinator move s3://" in done("move", "--help")
