"""Find or start the embedded coordinator, which a user's notebooks share.

It runs in its own process and process session, so that it outlives the kernel and is not
interrupted with it. It ends by itself after a while without work. Each user has one state folder
for each warehouse: the running coordinator holds a lock on it, and one process at a time may start
a coordinator there. The catalog's options, credentials among them, are passed in the environment.
They are also sent to a coordinator that runs already, since its own may be old (`store_options`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx

from paimon_magics.coordinator.client.addresses import tls_context
from paimon_magics.coordinator.client.finding import Endpoint, is_loopback, lease_here, living_lease
from paimon_magics.coordinator.ownership.catalog_options import ENVIRONMENT as CATALOG_OPTIONS
from paimon_magics.coordinator.ownership.lease import Lease
from paimon_magics.coordinator.ownership.state_folder import (
    BY_ID,
    Running,
    StateFolder,
    binding_of,
    token_of,
)
from paimon_magics.coordinator.protocol.paths import OPTIONS_PATH
from paimon_magics.errors import PaimonMagicsError, SetupError
from paimon_magics.forks import FORKS_WAIT
from paimon_magics.redaction import redacted
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.catalog.warehouse_mark import read_warehouse_id
from paimon_magics.tables.stores.paths import canonical_endpoint, canonical_location
from paimon_magics.tables.stores.s3_access import s3_access, with_credentials
from paimon_magics.tables.stores.store import Stores

__all__ = ["Embedded", "can_start", "state_at", "state_path"]

_START_SECONDS_MAX = 60.0
_LOOK_SECONDS = 0.02
# Longer than the coordinator tries to reach a store.
_TELL_SECONDS_MAX = 30.0
_LOG_BYTES_MAX = 1024 * 1024
_SAID_CHARACTERS_MAX = 600
_ELSE = (
    "Connect with coordinator='in-process' to go on without one, or with the address of another."
)
# The catalog options that identify a warehouse.
_IDENTITY = re.compile(r"metastore|uri|warehouse|catalog-key|.*endpoint")


def can_start() -> bool:
    """Whether this system has what a coordinator needs: POSIX's process sessions and locks."""
    return os.name == "posix"


def state_path(
    options: Mapping[str, str], environment: Mapping[str, str], id: str | None = None
) -> Path:
    """The state folder of a user's coordinator for the warehouse with these catalog options, which
    may not be there yet. `id` is the warehouse's id, if it is known: by that the folder is found
    however the warehouse is spelled. Without it all spellings of its location lead to one folder.
    """
    base = environment.get("XDG_STATE_HOME") or ""
    # By the XDG specification a relative path counts as not set.
    root = Path(base) if os.path.isabs(base) else Path("~/.local/state").expanduser()
    root /= "paimon-magics"
    if id is not None and (root / BY_ID / id).is_dir():
        return (root / BY_ID / id).resolve()
    names = [_folder_name(_canonical(options))]
    # As older versions named it, by the options as they are spelled.
    names += [
        _folder_name({**options, "warehouse": options["warehouse"] + end}) for end in ("", "/")
    ]
    for path in [root / name for name in names]:
        bound = binding_of(path)
        if path.is_dir() and (id is None or bound is None or bound.id == id):
            return path
    if id is not None and (root / names[0]).is_dir():  # that of a warehouse that was here before
        return root / f"{names[0]}-{id[:12]}"
    return root / names[0]


def _folder_name(options: Mapping[str, str]) -> str:
    identity = {key: value for key, value in options.items() if _IDENTITY.fullmatch(key)}
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]
    name = re.sub(r"[^\w.-]+", "-", options.get("warehouse", "").rstrip("/").rpartition("/")[2])
    return f"{name[:40] or 'warehouse'}-{digest}"


def _canonical(options: Mapping[str, str]) -> dict[str, str]:
    """The options that identify a warehouse, in their one form."""
    found = {key: value for key, value in options.items() if _IDENTITY.fullmatch(key)}
    if found.get("metastore") != "rest":
        found["warehouse"] = canonical_location(found["warehouse"])
    if found["warehouse"].startswith("s3://"):
        endpoint = s3_access(options).endpoint
        found = {key: value for key, value in found.items() if not key.endswith("endpoint")}
        found |= {} if endpoint is None else {"s3.endpoint": endpoint}
    for key, value in found.items():
        if key.endswith("endpoint") or value.lower().startswith(("http://", "https://")):
            found[key] = canonical_endpoint(value)
    return found


def state_at(
    options: Mapping[str, str], environment: Mapping[str, str]
) -> tuple[Path, Running | None]:
    """The state folder of the user's coordinator, and the process that holds it, if any. The
    folder is not created."""
    path = state_path(options, environment, _known_id(Stores(options), options))
    if not path.is_dir():
        return path, None
    folder = StateFolder(path)
    return path, folder.running() if folder.is_held() else None


class Embedded:
    """A `Finder` of the user's own coordinator for a warehouse; starts it when there is none.

    `idle_ms` is how long it runs without work. `problem` is why a coordinator that was found did
    not take the catalog's options, "" if it did.
    """

    def __init__(self, catalog: Catalog, *, idle_ms: int) -> None:
        self._catalog = catalog
        self._idle_ms = idle_ms
        self._options = with_credentials(catalog.options)
        self._told: Endpoint | None = None
        self.problem = ""
        self.tls = tls_context(None)  # it is on this machine

    def find(
        self, failed: Endpoint | None = None, address: str = "", *, start: bool = True
    ) -> Endpoint | None:
        """See `Finder.find`."""
        if address:
            return self._at(address, failed)
        try:
            options = self._catalog.options
            id = _known_id(self._catalog.stores, options)
            folder = StateFolder(state_path(options, os.environ, id))
            found = self._running(folder, failed) or self._owner(failed)
            if found is not None:
                self._tell(found)
            return found or (self._start(folder) if start else None)
        except SetupError as error:
            raise SetupError(
                f"No coordinator could be started: {error.message}", hint=f"{error.hint} {_ELSE}"
            ) from error

    def renewed(self, refused: Endpoint) -> Endpoint | None:
        """See `Finder.renewed`: its token is that of a folder, which does not change."""
        return None

    def _tell(self, endpoint: Endpoint) -> None:
        """Send this session's catalog options to a coordinator that runs already. If it does not
        take them, it goes on with its own; later requests show whether those work."""
        if endpoint == self._told:
            return
        try:
            answer = httpx.post(
                endpoint.address + OPTIONS_PATH,
                json={"options": self._options},
                headers={"Authorization": f"Bearer {endpoint.token}"},
                timeout=_TELL_SECONDS_MAX,
                trust_env=False,
                verify=self.tls,
            )
            self.problem = "" if answer.is_success else str(answer.json()["error"]["message"])
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            self.problem = f"they could not be sent to it: {error!r}"
            return
        self._told = endpoint

    def _at(self, address: str, failed: Endpoint | None) -> Endpoint | None:
        """The owner that another coordinator named, if it is this user's."""
        lease = living_lease(self._catalog)
        if lease is None or lease.address != address or not is_loopback(address):
            return None
        return _endpoint(lease, failed)

    def _running(self, folder: StateFolder, failed: Endpoint | None) -> Endpoint | None:
        """The coordinator that holds the state folder, if any. Raises SetupError if that is the
        `failed` one and does not end."""
        running = folder.running() if folder.is_held() else None
        if running is None:
            return None
        endpoint = Endpoint(running.address, folder.token())
        if endpoint == failed:
            # It may be about to end; only then another one can be found or started.
            _wait_until(lambda: not folder.is_held(), seconds=_LOOK_SECONDS * 50)
            if folder.is_held():
                raise SetupError(
                    f"The coordinator at {endpoint.address} (process {running.pid}) holds "
                    f"{folder.path} and does not answer.",
                    hint=f"End the process {running.pid}, then connect again.",
                )
            return None
        return endpoint

    def _owner(self, failed: Endpoint | None) -> Endpoint | None:
        """The coordinator that owns the warehouse, if it is this user's and answers."""
        lease = lease_here(self._catalog)  # of one on another machine a commit hears
        return None if lease is None else _endpoint(lease, failed)

    def _start(self, folder: StateFolder) -> Endpoint:
        with folder.turn("starting"):
            running = folder.running() if folder.is_held() else None
            if running is None:
                _begin(folder, self._options, self._idle_ms)
                running = folder.running()
                assert running is not None
                self._told = Endpoint(running.address, folder.token())
                return self._told
            endpoint = Endpoint(running.address, folder.token())
        self._tell(endpoint)
        return endpoint


def _endpoint(lease: Lease, failed: Endpoint | None) -> Endpoint | None:
    token = token_of(lease.home)
    endpoint = None if token is None else Endpoint(lease.address, token)
    return None if endpoint == failed or not _is_alive(lease) else endpoint


def _is_alive(lease: Lease) -> bool:
    """Whether the process that wrote a lease on this machine holds its state folder."""
    try:
        return StateFolder(Path(lease.home.folder)).is_held()
    except SetupError:
        return False


def _known_id(stores: Stores, options: Mapping[str, str]) -> str | None:
    """The id of the warehouse; None for one that has none, or where its store does not answer."""
    if options.get("metastore") == "rest":
        return None
    with contextlib.suppress(PaimonMagicsError, OSError):
        return read_warehouse_id(stores, options["warehouse"])
    return None


def _begin(folder: StateFolder, options: Mapping[str, str], idle_ms: int) -> None:
    """Start a coordinator and wait until it answers. Raises SetupError with its output if it does
    not."""
    folder.retract()
    said_before = _cut(folder.log_file)
    root = str(Path(__file__).resolve().parents[3])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    with folder.log_file.open("ab") as log, FORKS_WAIT:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "paimon_magics.coordinator",
                "--embedded",
                f"--state={folder.path}",
                f"--idle-ms={idle_ms}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder.path,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(paths),
                CATALOG_OPTIONS: json.dumps(dict(options)),
            },
            start_new_session=True,
        )
    # Without a wait for its end, the ended process would stay in the system's table.
    threading.Thread(target=process.wait, name="coordinator-process", daemon=True).start()
    answers = _wait_until(
        lambda: folder.running() is not None or process.poll() is not None, _START_SECONDS_MAX
    )
    if folder.running() is not None:
        return
    if not answers:
        process.kill()
    said = folder.log_file.read_bytes()[said_before:].decode(errors="replace").strip()
    raise SetupError(
        f"Its process {'has ended' if answers else 'does not answer'}. "
        f"{' '.join(redacted(said)[-_SAID_CHARACTERS_MAX:].split())}",
        hint=f"The log {folder.log_file} may say more.",
    )


def _cut(log: Path) -> int:
    """Begin a new log file if the old one has grown large. Return the file's size in bytes."""
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size < _LOG_BYTES_MAX:
            return log.stat().st_size
        log.replace(log.with_suffix(".log.old"))
    return 0


def _wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    return True
