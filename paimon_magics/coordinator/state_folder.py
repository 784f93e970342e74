"""The folder in which one coordinator keeps its state: made, checked, held by one process.

It has the database, the token, the log, and where the running process answers. It lies on a local
disk: SQLite's log and the lock that tells whether a process is alive mean nothing on a network file
system. The lock ends with its process, however that ends; whoever gets it next knows that the one
before is dead.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import socket
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from paimon_magics.coordinator.lease import Home
from paimon_magics.errors import SetupError

try:
    import fcntl
except ImportError:  # not a POSIX system: the database's own lock remains
    fcntl = None  # type: ignore[assignment]

__all__ = ["Running", "StateFolder", "network_file_system"]

_NETWORK = re.compile(
    r"nfs\d?|cifs|smb\d?|smbfs|9p|afs|ceph|lustre|beegfs|gpfs|glusterfs|davfs\d?|"
    r"fuse\.(sshfs|s3fs|glusterfs|ceph|rclone|goofys|gcsfuse|blobfuse2?|davfs2?|nfs.*|juicefs)"
)
_MOUNTS = Path("/proc/self/mountinfo")


@dataclass(frozen=True, slots=True)
class Running:
    """Where the process that holds a state folder answers."""

    address: str
    pid: int
    version: str


class StateFolder:
    """A coordinator's folder. Making one makes the folder, readable by its owner alone.

    Raises SetupError for a folder that can't be made or written, or on a network file system.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[bytes] | None = None
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._id = self._kept("id", lambda: uuid.uuid4().hex)
        except OSError as error:
            raise SetupError(
                f"The coordinator's state folder {path} can't be used: {error.strerror or error}.",
                hint="Name another one on a local disk.",
            ) from error
        kind = network_file_system(path)
        if kind is not None:
            raise SetupError(
                f"The coordinator's state folder {path} is on a network file system ({kind}), "
                "where its database would not survive.",
                hint="Name a folder on a local disk of this machine.",
            )

    @property
    def database(self) -> Path:
        """The file of the coordinator's database."""
        return self.path / "coordinator.sqlite"

    @property
    def token_file(self) -> Path:
        """The file with the token."""
        return self.path / "token"

    @property
    def log_file(self) -> Path:
        """What a coordinator without a terminal prints."""
        return self.path / "coordinator.log"

    def home(self) -> Home:
        """What tells this folder from every other."""
        return Home(socket.gethostname(), str(self.path.resolve()), self._id)

    def token(self) -> str:
        """The token, made when there is none; readable by its owner alone."""
        return self._kept("token", lambda: secrets.token_urlsafe(32))

    def hold(self) -> None:
        """Keep the folder to this process until it ends; SetupError when another one has it."""
        self._lock = self.lock("lock")
        if self._lock is None:
            running = self.running()
            shown = f" (process {running.pid} at {running.address})" if running else ""
            raise SetupError(
                f"The state folder {self.path} is in use by another process{shown}.",
                hint="Stop that coordinator, or give this one another state folder.",
            )

    def is_held(self) -> bool:
        """Whether a process holds the folder at this moment."""
        lock = self.lock("lock")
        if lock is None:
            return True
        lock.close()
        return False

    def lock(self, name: str, *, wait: bool = False) -> IO[bytes] | None:
        """A lock of that name until it is closed, or until its process ends; None when another
        process has it and `wait` is not set."""
        file = (self.path / name).open("ab")
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except OSError:
                file.close()
                return None
        return file

    def announce(self, running: Running) -> None:
        """Say where this process answers."""
        temporary = self.path / f".running-{os.getpid()}.tmp"
        temporary.write_text(json.dumps(asdict(running)))
        temporary.replace(self.path / "running.json")

    def running(self) -> Running | None:
        """Where a process answers that holds the folder, or has held it; None when none has."""
        try:
            return Running(**json.loads((self.path / "running.json").read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def retract(self) -> None:
        """Take back what `announce` said."""
        with contextlib.suppress(OSError):
            (self.path / "running.json").unlink()

    def _kept(self, name: str, make: Callable[[], str]) -> str:
        """The text of a file that is made once, whole, readable by its owner alone."""
        path = self.path / name
        if not path.exists():
            temporary = self.path / f".{name}-{uuid.uuid4()}.tmp"
            with os.fdopen(
                os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w"
            ) as f:
                f.write(make() + "\n")
            try:
                with contextlib.suppress(FileExistsError):
                    os.link(temporary, path)
            finally:
                temporary.unlink()
        return path.read_text().strip()


def network_file_system(path: Path, mounts: str | None = None) -> str | None:
    """The kind of the network file system that holds `path`; None for a disk of this machine, and
    where that can't be told. `mounts` is the text of Linux' mountinfo."""
    if mounts is None:
        try:
            mounts = _MOUNTS.read_text()
        except OSError:
            return None
    place = path.resolve()
    best, kind = -1, ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, found = before.split(), after.split()
        if len(fields) < 5 or not found:
            continue
        mount = Path(re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields[4]))
        # Of two mounts on one folder the later one is seen.
        if place.is_relative_to(mount) and len(mount.parts) >= best:
            best, kind = len(mount.parts), found[0]
    return kind if _NETWORK.fullmatch(kind) else None
