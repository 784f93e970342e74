"""The state folder of one coordinator: made, checked, and locked by one process.

It has the database, the token, the log, and the address of the running process. It must be on a
local disk: SQLite's write-ahead log, and the lock that shows whether a process is alive, don't work
on a network file system. The lock ends with its process in any case, so the next holder knows that
the previous process is dead.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from paimon_magics.coordinator.ownership.lease import Home
from paimon_magics.errors import SetupError
from paimon_magics.redaction import conceal

try:
    import fcntl
except ImportError:  # not a POSIX system: the database's own lock remains
    fcntl = None  # type: ignore[assignment]

_NETWORK = re.compile(
    r"nfs\d?|cifs|smb\d?|smbfs|9p|afs|ceph|lustre|beegfs|gpfs|glusterfs|davfs\d?|"
    r"fuse\.(sshfs|s3fs|glusterfs|ceph|rclone|goofys|gcsfuse|blobfuse2?|davfs2?|nfs.*|juicefs)"
)
_MOUNTS = Path("/proc/self/mountinfo")
_EXCLUSIVE = 0 if fcntl is None else fcntl.LOCK_EX
_SHARED = 0 if fcntl is None else fcntl.LOCK_SH
_PROBES_SECONDS_MAX = 1.0
_PAUSE_SECONDS = 0.02
BY_ID = "ids"
"""The folder, beside state folders of one user, with links to them by their warehouses' ids."""


@dataclass(frozen=True, slots=True)
class Running:
    """The process that holds a state folder: its address, process id and version."""

    address: str
    pid: int
    version: str


@dataclass(frozen=True, slots=True)
class Binding:
    """The warehouse that a state folder belongs to: its id and its last location."""

    id: str
    location: str


class StateFolder:
    """A coordinator's state folder. The constructor makes it, readable by its owner alone.

    Raises SetupError for a folder that can't be made or written, or on a network file system.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[bytes] | None = None
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._id = self._read_or_make("id", lambda: uuid.uuid4().hex)
        except OSError as error:
            raise SetupError(
                f"The coordinator's state folder {path} can't be used: {error.strerror or error}.",
                hint="Name another folder, on a local disk, that you may write to.",
            ) from error
        kind = network_file_system(path)
        if kind is not None:
            raise SetupError(
                f"The coordinator's state folder {path} is on a network file system ({kind}), "
                "where its database is not safe.",
                hint="Name a folder on a local disk of this machine.",
            )

    @property
    def token_file(self) -> Path:
        """The file with the token."""
        return self.path / "token"

    @property
    def log_file(self) -> Path:
        """The file for the output of a coordinator without a terminal."""
        return self.path / "coordinator.log"

    def home(self) -> Home:
        """The identity of this folder, which no other folder has."""
        return Home(socket.gethostname(), str(self.path.resolve()), self._id)

    def binding(self) -> Binding | None:
        """The warehouse that the folder belongs to; None before it is bound."""
        return binding_of(self.path)

    def bind(self, binding: Binding) -> None:
        """Note the warehouse that the folder belongs to. Only the process that holds the folder
        may."""
        if binding != self.binding():
            self._write("warehouse.json", json.dumps(asdict(binding)))

    def name_by_id(self, id: str) -> None:
        """Make the folder discoverable by its warehouse's id among the state folders beside it,
        unless another folder has that id.
        """
        names = self.path.parent / BY_ID
        with contextlib.suppress(OSError):
            names.mkdir(exist_ok=True, mode=0o700)
            if not (names / id).exists():  # or its target is missing
                (names / id).unlink(missing_ok=True)
                (names / id).symlink_to(Path("..", self.path.name))

    def token(self) -> str:
        """The token, which is made if there is none; only the owner can read its file."""
        token = self._read_or_make("token", lambda: secrets.token_urlsafe(32))
        conceal(token)
        return token

    def hold(self) -> None:
        """Lock the folder until this process ends. Raises SetupError when another process has the
        lock.
        """
        deadline = time.monotonic() + _PROBES_SECONDS_MAX
        while (lock := self._locked("lock", _EXCLUSIVE)) is None:
            if time.monotonic() > deadline:
                running = self.running()
                shown = f" (process {running.pid} at {running.address})" if running else ""
                raise SetupError(
                    f"The state folder {self.path} is in use by another process{shown}.",
                    hint="Stop that coordinator, or give this coordinator another state folder.",
                )
            time.sleep(_PAUSE_SECONDS)  # another process may just be checking whether it is held
        self._lock = lock
        self.retract()  # the announcement of the process before, which is dead

    def let_go(self) -> None:
        """Let another process have the folder."""
        if self._lock is not None:
            _unlock(self._lock)
            self._lock.close()

    def is_held(self) -> bool:
        """Whether a process holds the folder at this moment."""
        lock = self._locked("lock", _SHARED)
        if lock is None:
            return True
        _unlock(lock)
        lock.close()
        return False

    @contextlib.contextmanager
    def turn(self, name: str) -> Iterator[None]:
        """Wait until no other process is in a block of this name, and keep others out meanwhile."""
        lock = self._locked(name, _EXCLUSIVE, wait=True)
        assert lock is not None
        with lock:
            try:
                yield
            finally:
                _unlock(lock)

    def _locked(self, name: str, kind: int, *, wait: bool = False) -> IO[bytes] | None:
        """Return a lock, which lasts until its file is closed or the process ends. Return None
        when another process holds it and `wait` is not set."""
        file = (self.path / name).open("ab")
        if fcntl is not None:
            try:
                fcntl.flock(file, kind if wait else kind | fcntl.LOCK_NB)
            except OSError:
                file.close()
                return None
        return file

    def announce(self, running: Running) -> None:
        """Note the address of this process."""
        self._write("running.json", json.dumps(asdict(running)))

    def running(self) -> Running | None:
        """The process that holds the folder, or held it last and died; None if no process is
        noted."""
        try:
            return Running(**json.loads((self.path / "running.json").read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def retract(self) -> None:
        """Remove what `announce` wrote."""
        with contextlib.suppress(OSError):
            (self.path / "running.json").unlink()

    def _write(self, name: str, text: str) -> None:
        temporary = self.path / f".{name}-{os.getpid()}.tmp"
        with temporary.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path / name)

    def _read_or_make(self, name: str, make: Callable[[], str]) -> str:
        """Return the text of a file. The file is created once, atomically, readable by its owner
        alone.
        """
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
        try:
            return path.read_text().strip()
        except UnicodeDecodeError as error:
            raise SetupError(
                f"The file {path} can't be read: it is not text.",
                hint="Restore it from a backup. Or remove it: the next start makes a new file.",
            ) from error


def _unlock(lock: IO[bytes]) -> None:
    """End a lock, which would outlive its file in a process that was forked meanwhile."""
    if fcntl is not None and not lock.closed:
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_UN)


def binding_of(folder: Path) -> Binding | None:
    """The warehouse that a state folder belongs to; None if it is not bound, or does not exist."""
    try:
        return Binding(**json.loads((folder / "warehouse.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None


def token_of(home: Home) -> str | None:
    """Return the token in a coordinator's folder, None unless the folder is on this machine and
    this user's own.

    Anybody who can write to the warehouse may have named the folder. So it must have the home's id,
    and be closed to other users.
    """
    folder = Path(home.folder)
    if home.host != socket.gethostname() or not folder.is_absolute():
        return None
    try:
        status = folder.stat()
        mine = status.st_uid == os.getuid() and not status.st_mode & 0o077
        if not mine or (folder / "id").read_text().strip() != home.id:
            return None
        return (folder / "token").read_text().strip()
    except (OSError, ValueError, AttributeError):  # no getuid: not a POSIX system
        return None


def network_file_system(path: Path, mounts: str | None = None) -> str | None:
    """Return the kind of the network file system that holds `path`; None for a local disk, or when
    it is unknown. `mounts` is the text of Linux's mountinfo."""
    if mounts is None:
        try:
            mounts = _MOUNTS.read_text()
        except OSError:
            return None
    place = path.resolve()
    best, kind = -1, ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(), after.split()
        if len(fields) < 5 or not kinds:
            continue
        mount = Path(re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields[4]))
        # Of two mounts on one folder the later one is visible.
        if place.is_relative_to(mount) and len(mount.parts) >= best:
            best, kind = len(mount.parts), kinds[0]
    return kind if _NETWORK.fullmatch(kind) else None
