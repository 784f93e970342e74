"""The hub of `deploy/hub/systemd`: what a user's kernel can see, read and reach.

The hub's configuration, its spawner, the script of networks and the coordinator's unit are those
that are installed. What starts units is `tests.hub.units`, since a test's machine has no systemd.
"""

from __future__ import annotations

import ast
import json
import os
import pwd
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
import pytest

from tests.coordinator.postgres import PostgresServer, start_postgres
from tests.coordinator.process import create_table, wait_until
from tests.hub import units
from tests.hub.hub import Hub, User, free_ports, install_proxy
from tests.hub.packages import install

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy" / "hub"
PACKAGES = ["jupyterhub-systemdspawner==1.0.2"]
_UNIT = DEPLOY / "systemd" / "paimon-hub-coordinator@.service"

pytestmark = pytest.mark.slow

_LOOK = """
import os, pathlib, socket
seen = {"environment": "\\n".join(f"{k}={v}" for k, v in os.environ.items())}
others = []
for process in pathlib.Path("/proc").iterdir():
    if process.name.isdigit():
        if process.stat().st_uid != os.getuid():
            others.append(process.name)
        for name in ("environ", "cmdline"):
            try:
                seen[f"{process}/{name}"] = (process / name).read_bytes().decode(errors="replace")
            except OSError:
                pass
def failed(*_): pass
for root in FOLDERS:
    for folder, folders, files in os.walk(root, onerror=failed):
        for name in files:
            path = os.path.join(folder, name)
            try:
                if os.path.isfile(path) and os.path.getctime(path) > SINCE:
                    seen[path] = open(path, "rb").read(10_000_000).decode(errors="replace")
            except OSError:
                pass
reached = []
for host, port in PLACES:
    try:
        with socket.create_connection((host, port), 2) as one:
            one.settimeout(2)
            reached.append((host, port))
            one.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
            seen[f"{host}:{port}"] = one.recv(100_000).decode(errors="replace")
    except OSError:
        pass
home = pathlib.Path.home()
seen.pop(str(home / "seen"), None)
(home / "seen").write_text("\\n".join(f"== {k}\\n{v}" for k, v in seen.items()))
print({
    "user": os.getuid(), "home": str(home), "others": others, "reached": reached,
    "privileges": pathlib.Path("/proc/self/status").read_text(),
})
"""
_INSERT = """
import os, pyarrow
from paimon_magics.coordinator.client.starting import At
from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.statements.statement import TableName
at = At(os.environ["PAIMON_COORDINATOR"], os.environ["PAIMON_COORDINATOR_TOKEN"])
rows = pyarrow.table({"k": pyarrow.array([7], pyarrow.int32())})
try:
    RemoteCoordinator(at).inserts().insert(TableName("t", "default"), rows, label="one").result()
    print("acknowledged")
except Exception as error:
    print(error)
"""


@dataclass
class Machine:
    """A hub, its coordinator and its store, with the secrets of each; all is removed at the end."""

    folder: Path
    hub: Hub
    secrets: dict[str, str]
    ports: dict[str, int]
    prefix: str
    accounts: str
    since: float
    users: dict[str, User] = field(default_factory=dict)

    def user(self, name: str) -> User:
        """A user who has logged in and has a server."""
        if name not in self.users:
            self.users[name] = self.hub.user(name)
            self.users[name].start_server()
        return self.users[name]


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    _check_machine()
    # Not below /tmp, where units see nothing.
    folder = Path(tempfile.mkdtemp(prefix="paimon-hub-", dir="/var/lib"))
    folder.chmod(0o755)
    number = secrets.randbelow(100) + 100
    accounts = f"ph{number}-"
    names = [f"{accounts}{name}" for name in ("coordinator", "bob", "carol")]
    environment = {
        "PAIMON_HUB_PREFIX": f"10.{number}",
        "PAIMON_HUB_BRIDGE": f"t{number}ph",
        "PAIMON_HUB_ACCOUNTS": accounts,
        "UNITS": str(folder / "units"),
        "UNITS_KEEP": " ".join(sorted({str(ROOT), sys.prefix, sys.base_prefix, *_paths()})),
    }
    try:
        server = start_postgres()
        try:
            yield from _hub_on(folder, environment, server)
        finally:
            server.remove()
    finally:
        for name in names:
            with suppress(KeyError):
                _end_processes(pwd.getpwnam(name).pw_uid)
                subprocess.run(["userdel", name], check=False, stderr=subprocess.DEVNULL)
        for user in range(1, 4):
            subprocess.run(
                [str(DEPLOY / "systemd" / "network"), "remove", str(user)],
                env={**os.environ, **environment},
                check=False,
            )
        words = ["ip", "link", "delete", environment["PAIMON_HUB_BRIDGE"]]
        subprocess.run(words, check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(folder)


def _check_machine() -> None:
    reason = ""
    if os.geteuid() != 0:
        reason = "only root makes accounts and namespaces"
    elif any(shutil.which(each) is None for each in ("ip", "unshare", "setpriv", "useradd")):
        reason = "this machine lacks ip, unshare, setpriv or useradd"
    else:
        tried = (
            "unshare --mount --net --propagation private sh -c 'ip link add test0 type bridge "
            "&& ip link add test1 type veth peer name test2 "
            "&& mount -t proc -o hidepid=2 proc /proc'"
        )
        if subprocess.run(tried, shell=True, check=False, capture_output=True).returncode:
            reason = "this machine allows no networks or mounts of its own"
    if reason:
        pytest.skip(reason)


def _hub_on(folder: Path, environment: dict[str, str], server: PostgresServer) -> Iterator[Machine]:
    prefix, accounts = environment["PAIMON_HUB_PREFIX"], environment["PAIMON_HUB_ACCOUNTS"]
    began = time.time()
    etc, state, programs = folder / "etc", folder / "state", folder / "programs"
    for each in (etc, state, folder / "units" / "hold"):
        each.mkdir(mode=0o700, parents=True)
    (folder / "units").chmod(0o700)
    (folder / "homes").mkdir()
    install(PACKAGES, programs / "python")
    for name in ("systemd-run", "systemctl"):
        script = programs / "bin" / name
        script.parent.mkdir(exist_ok=True)
        line = f'exec {sys.executable} {units.__file__} {name} "$@"'
        script.write_text(f"#!/bin/sh\n{line}\n")
        script.chmod(0o755)
    for file in (DEPLOY / "paimon.py", DEPLOY / "systemd" / "jupyterhub_config.py"):
        shutil.copy(file, etc)
    (etc / "site.py").write_text(
        "import os\n"
        "c.JupyterHub.authenticator_class = 'shared-password'\n"
        "c.SharedPasswordAuthenticator.user_password = os.environ['PAIMON_HUB_PASSWORD']\n"
        "c.Authenticator.allowed_users = {'bob', 'carol'}\n"
        "c.JupyterHub.load_groups = {'paimon-readers': {'users': ['carol']},"
        " 'paimon-writers': {'users': ['bob']}, 'paimon-admins': {'users': []}}\n"
        # The code under test, which an installation has beside the hub.
        "c.Spawner.environment.update({'PYTHONPATH': os.environ['PYTHONPATH']})\n"
    )
    (port,) = free_ports(1)
    coordinator = f"http://{prefix}.0.1:{port}"
    known = {
        "store key of the coordinator": secrets.token_hex(16),
        "password of the database": server.environment["PGPASSWORD"],
        "token of the coordinator at the hub": secrets.token_hex(16),
        "password of the hub": "a password of the test's",
    }
    variables = {
        **environment,
        "PAIMON_HUB_HOMES": str(folder / "homes"),
        "PAIMON_HUB_NETWORK": str(DEPLOY / "systemd" / "network"),
        "PAIMON_HUB_HIDDEN": f"-{etc} -{state}",
        "PAIMON_HUB_COORDINATORS": f"paimon-coordinator-{port}={coordinator}",
        "PAIMON_HUB_COORDINATOR_TOKENS": known["token of the coordinator at the hub"],
        "STATE_DIRECTORY": str(state),
    }
    subprocess.run(
        [variables["PAIMON_HUB_NETWORK"], "up"], env={**os.environ, **variables}, check=True
    )
    proxy = install_proxy(state)
    variables["PATH"] = os.pathsep.join(
        [str(programs / "bin"), str(proxy), str(Path(sys.executable).parent), os.environ["PATH"]]
    )
    variables["PYTHONPATH"] = os.pathsep.join([*_paths(), str(programs / "python")])
    hub = Hub(
        state,
        proxy,
        variables,
        etc / "jupyterhub_config.py",
        coordinator=f"{coordinator}/services/paimon-coordinator-{port}",
    )
    process: subprocess.Popen[bytes] | None = None
    try:
        process = _start_coordinator(folder, variables, hub, server, known, port)
        wait_until(lambda: _owns(hub.coordinator), 60)
        known["cookie secret of the hub"] = (state / "cookie-secret").read_text().strip()
        ports = {
            "the hub's API": int(hub.api.split(":")[2].split("/")[0]),
            "coordinator": port,
            "the hub's pages": int(hub.address.rsplit(":", 1)[1]),
        }
        yield Machine(folder, hub, known, ports, prefix, accounts, began)
    finally:
        for user in ("bob", "carol"):
            file = folder / "units" / f"paimon-hub-{user}.pid"
            if file.exists():
                units.end(int(file.read_text()))
        hub.stop()
        if process is not None:
            process.terminate()
            process.wait(60)


def _start_coordinator(
    folder: Path,
    variables: dict[str, str],
    hub: Hub,
    server: PostgresServer,
    known: dict[str, str],
    port: int,
) -> subprocess.Popen[bytes]:
    """As the unit says, with its account, folder and addresses exchanged for the test's."""
    account = variables["PAIMON_HUB_ACCOUNTS"] + "coordinator"
    subprocess.run(["useradd", "--system", "--user-group", account], check=True)
    for each in ("warehouse", f"coordinator-{port}"):
        (folder / each).mkdir(mode=0o700)
    create_table(
        folder / "warehouse",
        "CREATE TABLE t (k INT) TBLPROPERTIES ('auto_batch_load' = 'true')",
    )
    subprocess.run(
        ["chown", "-R", f"{account}:", folder / "warehouse", folder / f"coordinator-{port}"],
        check=True,
    )
    server.folder.chmod(0o711)  # the coordinator's account reaches its socket
    text = (
        _UNIT.read_text().replace("%i", str(port)).replace("10.88", variables["PAIMON_HUB_PREFIX"])
    )
    text = text.replace("/var/lib/paimon-coordinator-", f"{folder}/coordinator-")
    text = text.replace("/opt/paimon-magics/bin", str(Path(sys.executable).parent))
    lines = [line.partition("=") for line in text.splitlines() if "=" in line and line[0] != "#"]
    values = {
        "PATH": os.environ["PATH"],
        **server.environment,
        "PAIMON_WAREHOUSE": str(folder / "warehouse"),
        "PAIMON_STORE": server.empty_database(),
        "PAIMON_CATALOG_OPTIONS": json.dumps(
            {"s3.secret-key": known["store key of the coordinator"]}
        ),
        "JUPYTERHUB_API_TOKEN": known["token of the coordinator at the hub"],
        "PYTHONPATH": variables["PYTHONPATH"],
    }
    environment = dict(
        value.partition("=")[::2] for name, _, value in lines if name == "Environment"
    )
    environment["JUPYTERHUB_API_URL"] = re.sub(
        r":\d+/", f":{hub.api.split(':')[2].split('/')[0]}/", environment["JUPYTERHUB_API_URL"]
    )
    (command,) = [value for name, _, value in lines if name == "ExecStart"]
    command = re.sub(r"\$\{(\w+)\}", lambda match: shlex.quote(values[match[1]]), command)
    wanted = ("NoNewPrivileges", "ProtectProc", "ProtectHome", "CapabilityBoundingSet", "UMask")
    properties = {name: value for name, _, value in lines if name in wanted}
    keep = os.environ.get("UNITS_KEEP")
    units.UNITS, units.KEEP = folder / "units", variables["UNITS_KEEP"].split()
    assert keep is None
    return units.started(
        shlex.split(command), account, str(folder), properties, {**values, **environment}
    )


def _paths() -> list[str]:
    return [path for path in sys.path if Path(path).is_dir()]


def _owns(address: str) -> bool:
    try:
        return httpx.get(f"{address}/health/owner", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def _end_processes(uid: int) -> None:
    """End the processes of an account that this test has made."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.uids().real == uid:
                process.kill()
                process.wait(10)


def test_kernel_sees_nothing_of_others_and_no_secret_of_hub_store_or_database(
    machine: Machine,
) -> None:
    bob, carol = machine.user("bob"), machine.user("carol")
    bobs = ast.literal_eval(bob.run("import os; print(dict(os.environ))"))
    bob.run("import os; open(os.path.expanduser('~/mine'), 'w').write('a note of bob')")
    server = bobs["JUPYTERHUB_SERVICE_URL"].split("/")[2].split(":")
    known = {
        **machine.secrets,
        "token of bob's server": bobs["JUPYTERHUB_API_TOKEN"],
        "token of bob at the coordinator": bobs["PAIMON_COORDINATOR_TOKEN"],
        "file of bob": "a note of " + "bob",
    }
    gateway = f"{machine.prefix}.0.1"
    allowed = {(gateway, machine.ports[name]) for name in ("the hub's API", "coordinator")}
    places = [(host, port) for host in (gateway, "127.0.0.1") for port in machine.ports.values()]
    places += [(server[0], int(server[1])), ("127.0.0.1", int(server[1])), *METADATA]
    # No secret is older than this test.
    code = f"SINCE = {machine.since}\nFOLDERS = {FOLDERS}\nPLACES = {places}\n{_LOOK}"
    actual = ast.literal_eval(carol.run(code))
    account = pwd.getpwnam(f"{machine.accounts}carol")
    assert (actual["user"], actual["home"]) == (account.pw_uid, account.pw_dir)
    assert actual["others"] == []
    assert set(actual["reached"]) == allowed
    assert "NoNewPrivs:\t1" in actual["privileges"]
    assert "CapBnd:\t0000000000000000" in actual["privileges"]
    seen = (Path(account.pw_dir) / "seen").read_text()
    assert "PAIMON_COORDINATOR_TOKEN" in seen and "/etc/passwd" in seen
    assert [name for name, secret in known.items() if secret in seen] == []


METADATA = [
    ("169.254.169.254", 80),
    ("169.254.170.2", 80),
    ("100.100.100.200", 80),
    ("fd00:ec2::254", 80),
    ("169.254.169.253", 53),
]
FOLDERS = ["/etc", "/home", "/opt", "/root", "/run", "/srv", "/tmp", "/var", "/dev/shm"]


def test_what_a_user_may_do_reaches_the_coordinator_by_the_hubs_roles(machine: Machine) -> None:
    assert machine.user("bob").run(_INSERT) == "acknowledged\n"
    assert "carol lacks permission" in machine.user("carol").run(_INSERT)


def test_unit_of_a_user_has_limits_of_memory_and_processor(machine: Machine) -> None:
    machine.user("carol").run("print()")
    started = (machine.folder / "units" / "started").read_text()
    (carols,) = [line for line in started.splitlines() if "paimon-hub-carol" in line]
    for limit in ("'MemoryMax': '4294967296'", "'CPUQuota': '200%'", "'TasksMax': '1024'"):
        assert limit in carols
