"""A PostgreSQL server of the tests' own, on a Unix socket in a temporary folder."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

_Connection = psycopg.Connection[tuple[object, ...]]

_PASSWORD = "a password of the test's"
_SETTINGS = {
    "listen_addresses": "",
    "shared_buffers": "16MB",
    "max_connections": "20",
    "log_min_messages": "fatal",
    "recovery_init_sync_method": "syncfs",
}


class PostgresServer:
    """A server with a database owned by the role `coordinator`, which has no other rights; or with
    `primary` a server that follows that one. With a `port` it listens on 127.0.0.1, too."""

    def __init__(
        self, programs: Path, primary: PostgresServer | None = None, port: int | None = None
    ) -> None:
        self._programs = programs
        self._settings = dict(_SETTINGS)
        if port is not None:
            # Its socket's name has the port: clients that name a folder alone take the usual one.
            self._settings |= {"listen_addresses": "127.0.0.1", "port": str(port)}
        self.port = port
        self._user = _unprivileged_user()
        # Short, because a socket's path has 107 characters at most, and outside of pytest's
        # folders, which only their owner may enter.
        self.folder = Path(tempfile.mkdtemp(prefix="pg-"))
        if self._user is not None:
            shutil.chown(self.folder, self._user, pwd.getpwnam(self._user).pw_gid)
        self._data = self.folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        if primary is not None:
            self._copy(primary)
            self.start()
            return
        self._initialise()
        self.start()
        with self.administer("postgres") as connection:
            connection.execute(f"CREATE ROLE coordinator LOGIN PASSWORD $${_PASSWORD}$$".encode())
            connection.execute("CREATE DATABASE store OWNER coordinator")

    def start(self) -> None:
        """Start the server, perhaps after it was killed, and wait until it answers."""
        deadline = time.monotonic() + 60
        while not self._answers():
            assert time.monotonic() < deadline, (self.folder / "log").read_text()[-1000:]
            if self._process is None or self._process.poll() is not None:
                options = [f"-c{name}={value}" for name, value in self._settings.items()]
                with (self.folder / "log").open("ab") as log:
                    self._process = subprocess.Popen(
                        [
                            self._programs / "postgres",
                            f"-D{self._data}",
                            f"-k{self.folder}",
                            *options,
                        ],
                        stdout=log,
                        stderr=log,
                        **self._identity(),
                    )
            time.sleep(0.1)

    def kill(self) -> None:
        """End the server and all its sessions as if by a power cut, without harm to the disk."""
        assert self._process is not None
        pid = self._process.pid
        # Sessions are processes, which outlive the server for a moment and could still commit.
        sessions = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for each in (pid, *map(int, sessions)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        self._process.wait()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """All its processes stand still in the `with` block: connections are there, and nothing
        answers."""
        assert self._process is not None
        pid = self._process.pid
        os.kill(pid, signal.SIGSTOP)  # first, so that it starts no other
        sessions = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        frozen = [pid, *map(int, sessions)]
        for each in frozen:
            os.kill(each, signal.SIGSTOP)
        try:
            yield
        finally:
            for each in reversed(frozen):
                os.kill(each, signal.SIGCONT)

    def replica(self) -> PostgresServer:
        """Start a server that has every change before this one acknowledges it."""
        started = PostgresServer(self._programs, self)
        with self.administer("postgres") as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            connection.execute("SELECT pg_reload_conf()")
            deadline = time.monotonic() + 60
            asked = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
            while connection.execute(asked).fetchone() != (1,):
                assert time.monotonic() < deadline
                time.sleep(0.1)
        return started

    def promote(self) -> None:
        """Let a replica take writes, and wait until it does. It waits for no other replica."""
        with self.administer("postgres") as connection:
            assert connection.execute("SELECT pg_promote()").fetchone() == (True,)

    def remove(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)  # an immediate shutdown, without a checkpoint
            self._process.wait(60)
        shutil.rmtree(self.folder, ignore_errors=True)

    def empty_database(self) -> str:
        """Empty the database and end its sessions; return its address without the password."""
        self.end_sessions()
        with self.administer() as connection:
            schemas = connection.execute(
                "SELECT nspname FROM pg_namespace WHERE nspowner = 'coordinator'::regrole"
            ).fetchall()
            for (schema,) in schemas:
                connection.execute(f'DROP SCHEMA "{schema}" CASCADE'.encode())
        return f"postgresql://coordinator@/store?host={self.folder}"

    def end_sessions(self) -> None:
        """End the sessions of coordinators."""
        with self.administer() as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                "WHERE usename = 'coordinator'"
            )

    @property
    def environment(self) -> dict[str, str]:
        """The environment variable with the password for clients of the server."""
        return {"PGPASSWORD": _PASSWORD}

    def administer(self, database: str = "store") -> _Connection:
        """A superuser's connection."""
        return psycopg.connect(
            host=str(self.folder),
            user="postgres",
            password=_PASSWORD,
            dbname=database,
            port=self.port,
            autocommit=True,
        )

    def _answers(self) -> bool:
        try:
            self.administer("postgres").close()
        except psycopg.OperationalError:
            return False
        return True

    def _initialise(self) -> None:
        password = self.folder / "password"
        password.write_text(_PASSWORD)
        password.chmod(0o644)
        subprocess.run(
            [
                self._programs / "initdb",
                "--username=postgres",
                "--auth=scram-sha-256",
                f"--pwfile={password}",
                "--encoding=UTF8",
                "--locale=C",
                "--no-sync",
                f"--pgdata={self._data}",
            ],
            check=True,
            capture_output=True,
            **self._identity(),
        )

    def _copy(self, primary: PostgresServer) -> None:
        subprocess.run(
            [
                self._programs / "pg_basebackup",
                f"--host={primary.folder}",
                "--username=postgres",
                "--checkpoint=fast",
                "--write-recovery-conf",
                "--no-sync",
                f"--pgdata={self._data}",
            ],
            check=True,
            capture_output=True,
            env={**os.environ, **self.environment},
            **self._identity(),
        )

    def _identity(self) -> dict[str, object]:
        if self._user is None:
            return {"cwd": self.folder}
        group = pwd.getpwnam(self._user).pw_gid
        return {"cwd": self.folder, "user": self._user, "group": group, "extra_groups": []}


def start_postgres(port: int | None = None) -> PostgresServer:
    """Start a server, with a `port` on 127.0.0.1, too. Without PostgreSQL on the machine, skip the
    test; with CI=true, fail it."""
    programs = _programs()
    if programs is None:
        reason = "PostgreSQL is not installed: no initdb on PATH or in /usr/lib/postgresql"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return PostgresServer(programs, port=port)


def _programs() -> Path | None:
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = sorted(versions, key=lambda path: int(path.parts[-3]))
    return newest[-1].parent if newest else None


def _unprivileged_user() -> str | None:
    """The user to run the server as, since it refuses to run as root; None for this one."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    pytest.fail("there is neither a user `postgres` nor `nobody` to run PostgreSQL as")


class Line:
    """A proxy of the server whose connections can be cut during a commit."""

    def __init__(self, server: PostgresServer) -> None:
        self._behind = str(server.folder / ".s.PGSQL.5432")
        self._folder = Path(tempfile.mkdtemp(prefix="pg-"))
        self._path = str(self._folder / ".s.PGSQL.5432")
        self.address = f"postgresql://coordinator@/store?host={self._folder}"
        self._listening: socket.socket | None = None
        self._cut = ""
        self._for_good = False
        self.cuts = 0

    def __enter__(self) -> Line:
        self.mend()
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        shutil.rmtree(self._folder)

    def cut_commit(self, when: str, *, for_good: bool = False) -> None:
        """Cut the connection `before` the next commit arrives, or `after` it, before its answer.
        With `for_good` no new connections are taken until `mend`."""
        assert when in ("before", "after")
        self._cut, self._for_good = when, for_good

    def mend(self) -> None:
        """Take connections (again)."""
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(self._path)
        self._listening.listen()
        threading.Thread(target=self._accept, args=(self._listening,), daemon=True).start()

    def _close(self) -> None:
        if self._listening is not None:
            Path(self._path).unlink(missing_ok=True)
            self._listening.close()
            self._listening = None

    def _accept(self, listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listening.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._behind)
                threading.Thread(target=self._connect, args=(client, server), daemon=True).start()

    def _connect(self, client: socket.socket, server: socket.socket) -> None:
        with client, server:
            back = threading.Thread(target=self._pass, args=(server, client, False), daemon=True)
            back.start()
            self._pass(client, server, True)
            back.join()

    def _pass(self, source: socket.socket, target: socket.socket, asking: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if asking and self._cut and b"COMMIT" in data:
                    when, self._cut = self._cut, ""
                    self.cuts += 1
                    if self._for_good:
                        self._close()
                    if when == "after":
                        source.shutdown(socket.SHUT_WR)  # the answer can't be sent back
                        target.sendall(data)
                        time.sleep(0.3)
                    break
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
