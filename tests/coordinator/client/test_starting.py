"""The coordinator that a client starts for itself: one for all of a user's, while it is needed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.client.starting import (
    At,
    Embedded,
    Endpoint,
    living_lease,
    state_path,
)
from paimon_magics.coordinator.ownership.state_folder import (
    Running,
    StateFolder,
    network_file_system,
)
from paimon_magics.errors import SetupError
from paimon_magics.planning.commits.requests import Append, CommitReceipt, CommitRequest
from paimon_magics.tables.catalog.catalog import Catalog
from tests.backends.s3 import S3Server
from tests.coordinator.process import TABLE, Process, create_table, read, wait_until, write

APPEND_TABLE = "CREATE TABLE t (k INT, v STRING)"
ROOT = Path(__file__).parents[3]


@pytest.fixture
def catalog(tmp_path: Path, state_home: Path) -> Catalog:
    return create_table(tmp_path / "warehouse", APPEND_TABLE)


def folder_of(catalog: Catalog) -> StateFolder:
    return StateFolder(state_path(catalog.options, os.environ))


def process_of(catalog: Catalog) -> Running:
    running = folder_of(catalog).running()
    assert running is not None and folder_of(catalog).is_held()
    return running


def client(catalog: Catalog, idle_ms: int = 60_000) -> RemoteCoordinator:
    return RemoteCoordinator(Embedded(catalog, idle_ms=idle_ms))


def append(client: RemoteCoordinator, catalog: Catalog, key: int) -> CommitReceipt:
    transaction = client.begin(TABLE)
    rows = write(catalog, transaction, [{"k": key}])
    return client.commit(CommitRequest(transaction, Append(), rows))


def keys(catalog: Catalog) -> list[int]:
    return sorted(int(str(row["k"])) for row in read(catalog))


STARTER = """
import sys
from paimon_magics.coordinator.client.starting import Embedded
from paimon_magics.tables.catalog.catalog import Catalog
finder = Embedded(Catalog.open({"warehouse": sys.argv[1]}), idle_ms=60_000)
print("ready", flush=True)
sys.stdin.readline()
print(finder.find().address)
"""


def test_concurrent_clients_start_a_single_coordinator_that_outlives_them(catalog: Catalog) -> None:
    starters = [
        subprocess.Popen(
            [sys.executable, "-c", STARTER, catalog.warehouse],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for starter in starters:
        assert starter.stdout is not None and starter.stdout.readline() == "ready\n"
    addresses = {starter.communicate("go\n", timeout=120)[0].strip() for starter in starters}
    assert addresses == {process_of(catalog).address}
    assert os.getsid(process_of(catalog).pid) == process_of(catalog).pid, "a session of its own"
    assert living_lease(catalog) is None, "who only reads hinders nobody"
    with contextlib.closing(client(catalog)) as late:
        assert append(late, catalog, 1).snapshot_id == 1
    lease = living_lease(catalog)
    assert lease is not None and {lease.address} == addresses
    assert oct(folder_of(catalog).path.stat().st_mode)[-3:] == "700"
    assert oct(folder_of(catalog).token_file.stat().st_mode)[-3:] == "600"


def test_idle_coordinator_ends_and_the_next_starts_at_once(catalog: Catalog) -> None:
    with contextlib.closing(client(catalog, idle_ms=1500)) as first:
        transaction = first.begin(TABLE)
        messages = write(catalog, transaction, [{"k": 1}])
        before = process_of(catalog)
        with pytest.raises(AssertionError):
            wait_until(lambda: not folder_of(catalog).is_held(), seconds=3)
        assert first.commit(CommitRequest(transaction, Append(), messages)).snapshot_id == 1
        wait_until(lambda: not folder_of(catalog).is_held())
        assert folder_of(catalog).running() is None
        assert living_lease(catalog) is None
        assert append(first, catalog, 2).snapshot_id == 2, "the same client starts the next one"
    assert process_of(catalog).pid != before.pid
    assert keys(catalog) == [1, 2]


@pytest.mark.parametrize(
    "step", ["commit.stored", pytest.param("publish.linked", marks=pytest.mark.soak)]
)
def test_commit_survives_the_death_of_its_coordinator(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setenv("PAIMON_MAGICS_FAULTS", f"{step}=kill")
    with contextlib.closing(client(catalog)) as asking:
        transaction = asking.begin(TABLE)
        before = process_of(catalog)
        monkeypatch.delenv("PAIMON_MAGICS_FAULTS")
        request = CommitRequest(transaction, Append(), write(catalog, transaction, [{"k": 1}]))
        receipt = asking.commit(request)
        assert receipt.snapshot_id == 1
        assert process_of(catalog).pid != before.pid
        assert asking.commit(request) == receipt
        os.kill(process_of(catalog).pid, signal.SIGKILL)
        assert append(asking, catalog, 2).snapshot_id == 2
    assert keys(catalog) == [1, 2]


def test_client_uses_the_owning_coordinator_of_the_same_user(
    catalog: Catalog, tmp_path: Path
) -> None:
    service = Process(Path(catalog.warehouse), tmp_path / "service")
    service.start()
    try:
        with contextlib.closing(client(catalog)) as asking:
            assert append(asking, catalog, 1).snapshot_id == 1
            assert not folder_of(catalog).is_held()
            service.end()
            assert append(asking, catalog, 2).snapshot_id == 2
        assert process_of(catalog).address != service.address
    finally:
        service.close()


def test_error_names_the_coordinator_of_another_user(catalog: Catalog, tmp_path: Path) -> None:
    service = Process(Path(catalog.warehouse), tmp_path / "service")
    service.start()
    service.state.chmod(0o755)  # as good as another's: its token is not taken from there
    try:
        asking = client(catalog)
        with contextlib.closing(asking), pytest.raises(SetupError) as raised:
            asking.begin(TABLE)
        lease = living_lease(catalog)
        assert lease is not None
        assert f"The coordinator of {lease.who} at {service.address} " in str(raised.value)
        assert "its token" in raised.value.hint
        assert Embedded(catalog, idle_ms=1).find(Endpoint("x", "y"), "http://evil:1") is None
    finally:
        service.close()


SPELLINGS = ("{0}/link", "file://{0}/warehouse", "file:{0}/link/", "{0}//warehouse/.")


def test_sessions_that_spell_the_warehouse_differently_share_a_coordinator(
    catalog: Catalog, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(catalog.warehouse)
    others = [Catalog.open({"warehouse": text.format(tmp_path)}) for text in SPELLINGS]
    actual = Embedded(others[0], idle_ms=60_000).find()
    assert actual is not None
    for number, other in enumerate([catalog, *others]):
        assert Embedded(other, idle_ms=60_000).find(start=False) == actual
        with contextlib.closing(client(other)) as asking:
            assert append(asking, other, number).snapshot_id == number + 1
    os.kill(process_of(catalog).pid, signal.SIGKILL)
    wait_until(lambda: not folder_of(catalog).is_held())
    moved = Path(catalog.warehouse).rename(tmp_path / "moved")
    folder = folder_of(catalog).path
    other = Catalog.open({"warehouse": str(moved)})
    with contextlib.closing(client(other)) as asking:
        assert append(asking, other, 9).snapshot_id == len(others) + 2
        assert StateFolder(folder).is_held(), "a moved warehouse keeps its state"
        shutil.copytree(moved, tmp_path / "copy")
        copy = Catalog.open({"warehouse": str(tmp_path / "copy")})
        with contextlib.closing(client(copy)) as second:
            assert append(second, copy, 10).snapshot_id == len(others) + 3
        assert keys(other) == [*range(len(others) + 1), 9], "a copy has a state of its own"


def test_commit_works_after_the_warehouse_is_recreated(catalog: Catalog) -> None:
    with contextlib.closing(client(catalog)) as asking:
        assert append(asking, catalog, 1).snapshot_id == 1
    os.kill(process_of(catalog).pid, signal.SIGKILL)
    wait_until(lambda: not folder_of(catalog).is_held())
    shutil.rmtree(catalog.warehouse)
    create_table(Path(catalog.warehouse), APPEND_TABLE)
    with contextlib.closing(client(catalog)) as asking:
        assert append(asking, catalog, 2).snapshot_id == 1
    assert keys(catalog) == [2]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"warehouse": "s3://b/lake"}, {"warehouse": "s3a://b//lake/"}),
        (
            {"warehouse": "s3://b/lake", "s3.endpoint": "http://minio:9000"},
            {"warehouse": "s3n://b/lake", "fs.s3a.endpoint": "HTTP://MinIO:9000/"},
        ),
        (
            {"warehouse": "s3://b/lake", "s3.endpoint": "https://minio"},
            {"warehouse": "s3://b/lake", "s3.endpoint": "minio:443"},
        ),
    ],
)
def test_all_spellings_of_a_warehouse_share_a_state_folder(
    one: Mapping[str, str], other: Mapping[str, str]
) -> None:
    common = {"metastore": "filesystem"}
    assert state_path(common | dict(one), {}) == state_path(common | dict(other), {})


def test_state_folder_of_an_older_version_stays_in_use(state_home: Path, tmp_path: Path) -> None:
    options = {"metastore": "filesystem", "warehouse": f"file://{tmp_path}/lake"}
    old = state_home / "paimon-magics" / f"lake-{_old_digest(options)}"
    assert state_path(options, os.environ) != old
    old.mkdir(parents=True)
    assert state_path(options, os.environ) == old


def _old_digest(options: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()[:12]


def test_credentials_are_neither_on_the_command_line_nor_in_a_file(
    state_home: Path, s3: S3Server
) -> None:
    options = s3.bucket().options
    catalog = create_table(options, APPEND_TABLE)
    with contextlib.closing(client(catalog)) as asking:
        assert append(asking, catalog, 1).snapshot_id == 1
    secret = options["s3.secret-key"].encode()
    command = Path(f"/proc/{process_of(catalog).pid}/cmdline")
    if command.exists():
        assert b"--embedded" in command.read_bytes()
        assert secret not in command.read_bytes()
    kept = [path for path in folder_of(catalog).path.iterdir() if path.is_file()]
    assert kept and all(secret not in path.read_bytes() for path in kept)
    os.kill(process_of(catalog).pid, signal.SIGTERM)
    wait_until(lambda: not folder_of(catalog).is_held())


def test_jdbc_catalog_is_opened_with_its_options(tmp_path: Path, state_home: Path) -> None:
    (tmp_path / "warehouse").mkdir()
    catalog = create_table(
        {
            "metastore": "jdbc",
            "uri": f"jdbc:sqlite:{tmp_path / 'catalog.db'}",
            "warehouse": str(tmp_path / "warehouse"),
        },
        APPEND_TABLE,
    )
    with contextlib.closing(client(catalog)) as asking:
        assert append(asking, catalog, 1).snapshot_id == 1
    assert keys(catalog) == [1]


def test_failed_start_names_its_cause_and_the_next_step(catalog: Catalog, state_home: Path) -> None:
    state_home.write_text("no folder can be made here")
    for _ in range(2):
        with pytest.raises(SetupError) as raised, contextlib.closing(client(catalog)) as asking:
            asking.begin(TABLE)
        assert "No coordinator could be started" in raised.value.message
        assert str(state_home) in raised.value.message
        assert "coordinator='in-process'" in raised.value.hint
    state_home.unlink()
    (folder_of(catalog).path / "coordinator.sqlite").mkdir()
    with pytest.raises(SetupError, match="Its process has ended") as raised:
        client(catalog).begin(TABLE)
    assert "coordinator.sqlite" in raised.value.message, "what the process said"
    assert "coordinator.log" in raised.value.hint


def test_error_names_a_frozen_coordinator_process(catalog: Catalog) -> None:
    with contextlib.closing(client(catalog)) as asking:
        append(asking, catalog, 1)
        running = process_of(catalog)
        asking._requests._http.timeout = 1  # type: ignore[assignment]
        os.kill(running.pid, signal.SIGSTOP)
        try:
            with pytest.raises(SetupError, match=rf"process {running.pid}\) holds .* not answer"):
                asking.begin(TABLE)
        finally:
            os.kill(running.pid, signal.SIGCONT)
        assert append(asking, catalog, 2).snapshot_id == 2


MOUNTS = """
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:30 / /users rw,relatime shared:2 - nfs4 server:/users rw
31 30 0:31 / /users/ada/scratch rw shared:3 - xfs /dev/vdb rw
32 22 0:32 / /mnt/with\\040blank rw - fuse.sshfs host: rw
33 22 0:33 / /mnt/twice rw - ext4 /dev/vdc rw
34 22 0:34 / /mnt/twice rw - cifs //server/share rw
nonsense
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/x", None),
        ("/users/ada/.local/state", "nfs4"),
        ("/users/ada/scratch/x", None),
        ("/users2", None),
        ("/mnt/with blank/x", "fuse.sshfs"),
        ("/mnt/twice/x", "cifs"),
    ],
)
def test_a_network_file_system_is_recognised(path: str, kind: str | None) -> None:
    assert network_file_system(Path(path), MOUNTS) == kind


@pytest.mark.parametrize(
    ("environment", "root"),
    [
        ({"XDG_STATE_HOME": "/state"}, Path("/state")),
        ({"XDG_STATE_HOME": "relative"}, Path("~/.local/state").expanduser()),
        ({}, Path("~/.local/state").expanduser()),
    ],
)
def test_state_folder_follows_the_platform(environment: Mapping[str, str], root: Path) -> None:
    actual = state_path({"warehouse": "/data/my lake"}, environment)
    assert actual.parent == root / "paimon-magics"
    assert actual.name.startswith("my-lake-")


def test_state_folder_depends_on_the_warehouse_not_on_credentials() -> None:
    options = {"warehouse": "s3://b/w", "s3.endpoint": "http://a", "s3.secret-key": "1"}
    assert state_path(options, {}) == state_path(options | {"s3.secret-key": "2"}, {})
    others = ({"warehouse": "s3://b/v"}, {"s3.endpoint": "http://c"}, {"metastore": "jdbc"})
    assert len({state_path(options | other, {}) for other in ({}, *others)}) == 4


def test_state_folder_names_only_a_known_running_process(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "state")
    (folder.path / "running.json").write_text("{")
    assert folder.running() is None
    folder.announce(Running("http://127.0.0.1:1", 7, "0"))
    assert StateFolder(tmp_path / "state").running() == Running("http://127.0.0.1:1", 7, "0")
    folder.hold()
    assert folder.running() is None, "that was the process before"
    folder.let_go()
    assert not folder.is_held()
    assert folder.token() == StateFolder(tmp_path / "state").token()


def test_a_token_is_sent_to_this_machine_alone() -> None:
    finder = At("http://127.0.0.1:1", "secret")
    failed = finder.find()
    assert failed == Endpoint("http://127.0.0.1:1", "secret")
    assert "secret" not in repr(failed)
    assert finder.find(failed, "http://example.org:1") is None
    assert finder.find(failed, "http://127.0.0.1:2") == Endpoint("http://127.0.0.1:2", "secret")
