"""An owner that stood still and was succeeded: what it answers until it stands by again."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.client.starting import At
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.statements.statement import TableName
from tests.coordinator.postgres import PostgresServer, start_postgres
from tests.coordinator.process import TABLE, Process, create_table, read, wait_until, write
from tests.coordinator.team import TOKEN, Team, asked, flushed

INSERTED = "CREATE TABLE inserted (k INT) TBLPROPERTIES ('auto_batch_load' = 'true')"


LEASE_SECONDS = 2.0


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    started = start_postgres()
    yield started
    started.remove()


@pytest.fixture(params=["postgres", "warehouse"])
def start_team(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Team]]:
    """Starts the team. A test that reads its log starts it itself: what processes of a fixture
    write after that is in no test's capture."""
    options, environment = ["--log=warehouse"], {}
    if request.param == "postgres":
        postgres: PostgresServer = request.getfixturevalue("server")
        options, environment = [f"--store={postgres.empty_database()}"], postgres.environment
    with ExitStack() as ending:

        def start() -> Team:
            team = Team(tmp_path, 2, *options, environment=environment)
            ending.callback(team.close)
            return team

        yield start


@pytest.fixture
def team(start_team: Callable[[], Team]) -> Team:
    return start_team()


def succeeded(team: Team) -> Process:
    """The owner, frozen until the other one owns the warehouse."""
    owner, standby = team.owner(), team.standby()
    assert owner.running is not None
    owner.running.send_signal(signal.SIGSTOP)
    wait_until(lambda: asked(standby, "/health/owner") == 200)
    return owner


class Probes:
    """Asks a coordinator for a path all the time, until `end`."""

    def __init__(self, member: Process, path: str, token: str) -> None:
        self.answers: list[tuple[int, str]] = []
        self.slowest = 0.0
        self.at: list[float] = []
        self._url = member.address + path
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def end(self) -> list[tuple[int, str]]:
        self._ending.set()
        self._thread.join(60)
        return self.answers

    def shown(self) -> str:
        """Moments of changes, with what was answered from then on."""
        lines, before = [], None
        for at, (status, text) in zip(self.at, self.answers, strict=True):
            if status != before:
                lines.append(f"{at - self.at[0]:.1f} s: {status} {text[:80]}")
            before = status
        return "; ".join(lines)

    def _work(self) -> None:
        while not self._ending.wait(0.02):
            began = time.monotonic()
            try:
                answer = httpx.get(self._url, headers=self._headers, trust_env=False, timeout=20)
                self.answers.append((answer.status_code, answer.text))
            except httpx.HTTPError as error:
                self.answers.append((0, repr(error)))
            self.slowest = max(self.slowest, time.monotonic() - began)
            self.at.append(began)


def test_demoted_owner_answers_probes_and_metrics_and_logs_why(
    capfd: pytest.CaptureFixture[str], start_team: Callable[[], Team]
) -> None:
    team = start_team()
    create_table(team.warehouse, INSERTED)
    scraper = httpx.post(
        f"{team.owner().address}/v1/tokens",
        json={"name": "prometheus", "allow": ["read"]},
        headers={"authorization": f"Bearer {TOKEN}"},
        trust_env=False,
    ).json()["token"]
    assert asked(team.owner(), "/metrics", scraper) == 200
    if "--log=warehouse" in team.owner().options:
        scraper = TOKEN  # named tokens are each coordinator's own there
    owner = succeeded(team)
    standby = next(member for member in team.members if member is not owner)
    owner.go_on()
    live = Probes(owner, "/health/live", "")
    metrics = Probes(owner, "/metrics", scraper)
    wait_until(
        lambda: asked(owner, "/health/ready") == 200 and asked(owner, "/health/owner") == 503
    )
    time.sleep(1)
    lively, measured = live.end(), metrics.end()
    print("slowest", live.slowest, metrics.slowest, live.shown(), metrics.shown())
    assert {status for status, _ in lively} == {200}, "the port is never closed"
    assert {status for status, _ in measured} == {200}
    assert "\npaimon_coordinator_owner 0.0\n" in measured[-1][1]
    logged = capfd.readouterr().err
    (line,) = [one for one in logged.splitlines() if "stands by again" in one]
    assert "taken over by" in line and standby.address in line


@pytest.mark.parametrize("delay", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0])
def test_first_sigterm_ends_demoted_owner_at_any_moment(team: Team, delay: float) -> None:
    owner = succeeded(team)
    owner.go_on()
    time.sleep(delay)
    assert owner.end() == 0


def test_clients_of_frozen_owner_go_on_at_the_next_one_without_doubling(team: Team) -> None:
    catalog = create_table(team.warehouse, "CREATE TABLE t (k INT)")
    create_table(team.warehouse, INSERTED)
    owner, standby = team.owner(), team.standby()
    addresses = f"{owner.address},{standby.address}"
    opened = [RemoteCoordinator(At(addresses, TOKEN)) for _ in range(3)]
    transaction = opened[0].begin(TABLE)
    request = CommitRequest(transaction, Append(), write(catalog, transaction, [{"k": 1}]))
    inserted = TableName("inserted", "default")
    rows = [pa.table({"k": pa.array([key], pa.int32())}) for key in (1, 2)]
    opened[1].inserts().insert(inserted, rows[0]).result()

    def statement() -> None:
        begun = opened[2].begin(TABLE)
        opened[2].commit(CommitRequest(begun, Append(), write(catalog, begun, [{"k": 2}])))

    works = {
        "commit": lambda: opened[0].commit(request),
        "insert": lambda: opened[1].inserts().insert(inserted, rows[1]).result(),
        "statement": statement,
    }
    took: dict[str, float] = {}

    def timed(name: str) -> None:
        began = time.monotonic()
        works[name]()
        took[name] = time.monotonic() - began

    assert owner.running is not None
    owner.running.send_signal(signal.SIGSTOP)
    threads = [threading.Thread(target=timed, args=(name,), daemon=True) for name in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
    print("seconds after the owner stood still:", took)
    assert took.keys() == works.keys()
    assert max(took.values()) < LEASE_SECONDS + 20, "its own time-out is 120 s"
    owner.go_on()
    wait_until(lambda: asked(owner, "/health/ready", TOKEN) == 200)
    flushed(team, "inserted")
    assert sorted(row["k"] for row in read(catalog)) == [1, 2]
    assert sorted(row["k"] for row in read(catalog, inserted)) == [1, 2]


@pytest.mark.parametrize("team", ["warehouse"], indirect=True)
def test_long_request_to_a_living_owner_is_not_given_up(team: Team) -> None:
    """A client that asks a standby, too, sees another one that owns the warehouse all the time."""
    create_table(
        team.warehouse,
        "CREATE TABLE inserted (k INT) TBLPROPERTIES ('auto_batch_load' = 'true', "
        "'group_commit_interval_ms' = '8000')",
    )
    owner, standby = team.owner(), team.standby()
    client = RemoteCoordinator(At(f"{standby.address},{owner.address}", TOKEN))
    rows = pa.table({"k": pa.array([1], pa.int32())})
    inserted = TableName("inserted", "default")
    began = time.monotonic()
    receipt = client.inserts().insert(inserted, rows, label="one", mode="sync_mode").result()
    print("seconds", time.monotonic() - began)
    assert not receipt.duplicate


@pytest.mark.parametrize("start_team", ["postgres"], indirect=True)
def test_probe_without_token_learns_no_names_while_database_is_stopped(
    capfd: pytest.CaptureFixture[str], start_team: Callable[[], Team], server: PostgresServer
) -> None:
    team = start_team()
    owner, standby = team.owner(), team.standby()
    wrong = f"pmt_{'0' * 12}_{'x' * 43}"
    server.kill()
    try:
        texts = []
        wait_until(lambda: asked(owner, "/health/ready") == 503, 60)
        for path in ("/health/ready", "/health/owner", "/health/startup", "/v1/coordinator"):
            for token in ("", wrong):
                texts.append(shown(owner, path, token)[1])
        owner.kill()
        wait_until(lambda: "takeover" in shown(standby, "/health/ready")[1], 60)
        status, text = shown(standby, "/health/ready")
        assert (status, text) == (503, '{"status":"not ready","problems":["owner","takeover"]}')
        for path in ("/health/ready", "/health/owner", "/metrics", "/v1/coordinator"):
            for token in ("", wrong):
                texts.append(shown(standby, path, token)[1])
        for text in texts:
            for name in (str(server.folder), "PostgreSQL", "database", owner.address, "root"):
                assert name not in text, text
        assert "not writable" in shown(standby, "/health/ready", TOKEN)[1]
        assert "can't take over. This coordinator's database" in capfd.readouterr().err
    finally:
        server.start()


def shown(member: Process, path: str, token: str = "") -> tuple[int, str]:
    """The status and text of its answer."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    answer = httpx.get(member.address + path, headers=headers, trust_env=False, timeout=40)
    return answer.status_code, answer.text


def test_owner_that_stands_still_while_it_publishes_loses_no_file(
    team: Team, tmp_path: Path
) -> None:
    """Its successor loads the rows again, and removes the files of the first load: by then the
    first owner's snapshot must not appear any more."""
    catalog = create_table(team.warehouse, INSERTED)
    name = TableName("inserted", "default")
    first, second = team.owner(), team.standby()
    armed = tmp_path / "faults"
    first.kill()
    wait_until(lambda: asked(second, "/health/owner") == 200)
    first.start(f"@{armed}")
    second.kill()
    wait_until(lambda: asked(first, "/health/owner") == 200)
    second.start()
    assert inserted(first, 1).status_code == 200
    flushed(team, "inserted")
    armed.write_text("commit.prepared=stop")
    assert [inserted(first, k).status_code for k in (2, 3)] == [200, 200]
    flushing = threading.Thread(target=flush_at, args=(first,))
    flushing.start()
    wait_until(first.is_stopped)
    wait_until(lambda: asked(second, "/health/owner") == 200)
    time.sleep(2)
    first.go_on()
    assert inserted(second, 4).status_code == 200
    flushed(team, "inserted")
    flushing.join()
    wait_until(lambda: sorted(row["k"] for row in read(catalog, name)) == [1, 2, 3, 4])
    time.sleep(1)
    assert sorted(row["k"] for row in read(catalog, name)) == [1, 2, 3, 4]


@pytest.mark.parametrize("start_team", ["postgres"], indirect=True)
@pytest.mark.parametrize("step", ["rights.compared", "pair.stored"])
def test_owner_that_stands_still_while_it_notes_its_start_leaves_the_next_note(
    team: Team, tmp_path: Path, step: str
) -> None:
    """Its successor notes another start. What the former owner writes then must not hide that, or
    every later start takes the warehouse for an older one."""
    first, second = team.owner(), team.standby()
    armed = tmp_path / "faults"
    asked_for = {"authorization": f"Bearer {TOKEN}"}
    tokens = f"{first.address}/v1/tokens"
    body = {"name": "etl", "allow": ["write"]}
    first.kill()
    wait_until(lambda: asked(second, "/health/owner") == 200)
    first.start(f"@{armed}")
    if step == "pair.stored":
        armed.write_text(f"{step}=stop")
    second.kill()
    if step == "rights.compared":
        wait_until(lambda: asked(first, "/health/owner") == 200)
        httpx.post(tokens, json=body, headers=asked_for, trust_env=False).raise_for_status()
        armed.write_text(f"{step}=stop")
        with suppress(httpx.HTTPError):
            httpx.delete(f"{tokens}/etl", headers=asked_for, trust_env=False, timeout=1)
    wait_until(first.is_stopped)
    second.start()
    wait_until(lambda: asked(second, "/health/owner") == 200)
    first.go_on()
    wait_until(lambda: asked(first, "/health/ready", TOKEN) == 200)
    second.kill()
    wait_until(lambda: asked(first, "/health/owner") == 200)
    second.start()
    first.kill()
    wait_until(lambda: asked(second, "/health/owner") == 200)


def inserted(member: Process, k: int) -> httpx.Response:
    return httpx.post(
        f"{member.address}/v1/inserts/default/inserted",
        json={"rows": [[k]]},
        headers={"authorization": f"Bearer {TOKEN}", "idempotency-key": f"k{k}"},
        trust_env=False,
        timeout=60,
    )


def flush_at(member: Process) -> None:
    """Ask for a flush; a member that stands still gives no answer."""
    with suppress(httpx.HTTPError):
        httpx.post(
            f"{member.address}/v1/inserts/default/inserted/flush",
            headers={"authorization": f"Bearer {TOKEN}"},
            trust_env=False,
            timeout=30,
        )
