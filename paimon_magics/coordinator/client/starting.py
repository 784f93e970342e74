"""Find or start the embedded coordinator, which a user's notebooks share.

It runs in its own process and process session, so that it outlives the kernel and is not
interrupted with it. It ends by itself after a while without work. Each user has one state folder
for each warehouse: the running coordinator holds a lock on it, and one process at a time may start
a coordinator there. The catalog's options, credentials among them, are passed in the environment.
They are also sent to a running coordinator, whose own options may be old (`store_options`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import httpx

from paimon_magics.coordinator.client.addresses import Addresses, Token, ca_of, tls_context
from paimon_magics.coordinator.ownership.catalog_options import ENVIRONMENT as CATALOG_OPTIONS
from paimon_magics.coordinator.ownership.lease import (
    Lease,
    current_lease,
    is_renewed,
    owned_elsewhere,
)
from paimon_magics.coordinator.ownership.state_folder import (
    BY_ID,
    Running,
    StateFolder,
    binding_of,
    token_of,
)
from paimon_magics.coordinator.protocol.documents import OPTIONS_PATH
from paimon_magics.errors import PaimonMagicsError, SetupError
from paimon_magics.forks import FORKS_WAIT
from paimon_magics.redaction import redacted
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.catalog.warehouse_mark import read_warehouse_id
from paimon_magics.tables.stores.paths import canonical_endpoint, canonical_location
from paimon_magics.tables.stores.s3_access import s3_access, with_credentials
from paimon_magics.tables.stores.short_keys import KeySource, renew_tokens
from paimon_magics.tables.stores.store import Stores

_START_SECONDS_MAX = 60.0
_LOOK_SECONDS = 0.02
# Longer than the coordinator tries to reach a store.
_SEND_SECONDS_MAX = 30.0
_LOG_BYTES_MAX = 1024 * 1024
_OUTPUT_CHARACTERS_MAX = 600
_ELSE = (
    "Connect with coordinator='in-process' to work without a coordinator, or with another "
    "coordinator's address."
)
# The catalog options that identify a warehouse.
_IDENTITY = re.compile(r"metastore|uri|warehouse|catalog-key|.*endpoint")

_PROBE_SECONDS_MAX = 5.0
_SIGN_SECONDS = 2.0  # for a sign of life


def can_start() -> bool:
    """Whether this system has what a coordinator needs: POSIX's process sessions and locks."""
    return os.name == "posix"


def state_path(
    options: Mapping[str, str], environment: Mapping[str, str], id: str | None = None
) -> Path:
    """The state folder of a user's coordinator for the warehouse with these catalog options. The
    folder may not exist yet. `id` is the warehouse's id, if known: it finds the folder for any
    spelling of the warehouse. Without it, all spellings of its location lead to one folder.
    """
    base = environment.get("XDG_STATE_HOME") or ""
    # By the XDG specification a relative path counts as not set.
    root = Path(base) if os.path.isabs(base) else Path("~/.local/state").expanduser()
    root /= "paimon-magics"
    if id is not None and (root / BY_ID / id).is_dir():
        return (root / BY_ID / id).resolve()
    names = [_folder_name(_canonical(options))]
    # As older versions named it, by the options in their given spelling.
    names += [
        _folder_name({**options, "warehouse": options["warehouse"] + end}) for end in ("", "/")
    ]
    for path in [root / name for name in names]:
        bound = binding_of(path)
        if path.is_dir() and (id is None or bound is None or bound.id == id):
            return path
    if id is not None and (root / names[0]).is_dir():  # for an earlier warehouse at this place
        return root / f"{names[0]}-{id[:12]}"
    return root / names[0]


def _folder_name(options: Mapping[str, str]) -> str:
    identity = json.dumps(_identity(options), sort_keys=True)
    digest = hashlib.sha256(identity.encode()).hexdigest()[:12]
    name = re.sub(r"[^\w.-]+", "-", options.get("warehouse", "").rstrip("/").rpartition("/")[2])
    return f"{name[:40] or 'warehouse'}-{digest}"


def _identity(options: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in options.items() if _IDENTITY.fullmatch(key)}


def _canonical(options: Mapping[str, str]) -> dict[str, str]:
    """The options that identify a warehouse, in their one form."""
    identity = _identity(options)
    if identity.get("metastore") != "rest":
        identity["warehouse"] = canonical_location(identity["warehouse"])
    if identity["warehouse"].startswith("s3://"):
        endpoint = s3_access(options).endpoint
        identity = {key: value for key, value in identity.items() if not key.endswith("endpoint")}
        identity |= {} if endpoint is None else {"s3.endpoint": endpoint}
    for key, value in identity.items():
        if key.endswith("endpoint") or value.lower().startswith(("http://", "https://")):
            identity[key] = canonical_endpoint(value)
    return identity


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

    `idle_ms` is how long it runs without work. `problem` is why a running coordinator did not
    accept the catalog's options, "" if it did.
    """

    def __init__(self, catalog: Catalog, *, idle_ms: int) -> None:
        self._catalog = catalog
        self._idle_ms = idle_ms
        self._options = with_credentials(catalog.options)
        self._informed: Endpoint | None = None
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
            endpoint = self._running(folder, failed) or self._owner(failed)
            if endpoint is not None:
                self._send_options(endpoint)
            return endpoint or (self._start(folder) if start else None)
        except SetupError as error:
            raise SetupError(
                f"No coordinator could be started: {error.message}", hint=f"{error.hint} {_ELSE}"
            ) from error

    def renewed(self, refused: Endpoint) -> Endpoint | None:
        """See `Finder.renewed`: its token is that of a folder, which does not change."""
        return None

    def succeeded(self, silent: Endpoint) -> bool:
        """See `Finder.succeeded`: nothing stands by for it."""
        return False

    def _send_options(self, endpoint: Endpoint) -> None:
        """Send this session's catalog options to a running coordinator. If it does not accept them,
        it keeps its own options; later requests show whether those work.
        """
        if endpoint == self._informed:
            return
        try:
            answer = httpx.post(
                endpoint.address + OPTIONS_PATH,
                json={"options": self._options},
                headers={"Authorization": f"Bearer {endpoint.token}"},
                timeout=_SEND_SECONDS_MAX,
                trust_env=False,
                verify=self.tls,
            )
            self.problem = "" if answer.is_success else str(answer.json()["error"]["message"])
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            self.problem = f"they could not be sent to it: {error!r}"
            return
        self._informed = endpoint

    def _at(self, address: str, failed: Endpoint | None) -> Endpoint | None:
        """The owner that another coordinator named, if it is this user's."""
        lease = living_lease(self._catalog)
        if lease is None or lease.address != address or not is_loopback(address):
            return None
        return _endpoint(lease, failed)

    def _running(self, folder: StateFolder, failed: Endpoint | None) -> Endpoint | None:
        """The coordinator that holds the state folder, if any. Raises SetupError if it is the
        `failed` coordinator and does not end.
        """
        running = folder.running() if folder.is_held() else None
        if running is None:
            return None
        endpoint = Endpoint(running.address, folder.token())
        if endpoint != failed:
            return endpoint
        # It may be about to end; only after that can another coordinator be found or started.
        _wait_until(lambda: not folder.is_held(), seconds=_LOOK_SECONDS * 50)
        if folder.is_held():
            raise SetupError(
                f"The coordinator at {endpoint.address} (process {running.pid}) holds "
                f"{folder.path} and does not answer.",
                hint=f"End the process {running.pid}, then connect again.",
            )
        return None

    def _owner(self, failed: Endpoint | None) -> Endpoint | None:
        """The coordinator that owns the warehouse, if it is this user's and answers."""
        lease = _lease_here(self._catalog)  # a commit learns of a coordinator on another machine
        return None if lease is None else _endpoint(lease, failed)

    def _start(self, folder: StateFolder) -> Endpoint:
        with folder.turn("starting"):
            running = folder.running() if folder.is_held() else None
            if running is None:
                running = _begin(folder, self._options, self._idle_ms)
                self._informed = Endpoint(running.address, folder.token())
            endpoint = Endpoint(running.address, folder.token())
        self._send_options(endpoint)
        return endpoint


def _endpoint(lease: Lease, failed: Endpoint | None) -> Endpoint | None:
    """The coordinator of a lease on this machine, if its process holds its state folder."""
    token = token_of(lease.home)
    endpoint = None if token is None else Endpoint(lease.address, token)
    with contextlib.suppress(SetupError, OSError):  # another account's folder
        if endpoint != failed and StateFolder(Path(lease.home.folder)).is_held():
            return endpoint
    return None


def _known_id(stores: Stores, options: Mapping[str, str]) -> str | None:
    """The id of the warehouse; None if it has no id, or its store does not answer."""
    if options.get("metastore") == "rest":
        return None
    with contextlib.suppress(PaimonMagicsError, OSError):
        return read_warehouse_id(stores, options["warehouse"])
    return None


def _begin(folder: StateFolder, options: Mapping[str, str], idle_ms: int) -> Running:
    """Start a coordinator and wait until it answers. Raises SetupError with its output if it does
    not answer.
    """
    folder.retract()
    log_bytes = _cut(folder.log_file)
    root = str(Path(__file__).resolve().parents[3])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    arguments = ["--embedded", f"--state={folder.path}", f"--idle-ms={idle_ms}"]
    settings = {
        "PYTHONPATH": os.pathsep.join(paths),
        CATALOG_OPTIONS: json.dumps(dict(options)),
    }
    with folder.log_file.open("ab") as log, FORKS_WAIT:
        process = subprocess.Popen(
            [sys.executable, "-m", "paimon_magics.coordinator", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder.path,
            env={**os.environ, **settings},
            start_new_session=True,
        )
    # Without a wait for its end, the ended process would stay in the system's table.
    threading.Thread(target=process.wait, name="coordinator-process", daemon=True).start()
    answers = _wait_until(
        lambda: folder.running() is not None or process.poll() is not None, _START_SECONDS_MAX
    )
    running = folder.running()
    if running is not None:
        return running
    if not answers:
        process.kill()
    output = folder.log_file.read_bytes()[log_bytes:].decode(errors="replace").strip()
    raise SetupError(
        f"Its process {'has ended' if answers else 'does not answer'}. "
        f"{' '.join(redacted(output)[-_OUTPUT_CHARACTERS_MAX:].split())}",
        hint=f"The log {folder.log_file} may have details.",
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


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a coordinator, and its token."""

    address: str
    token: str

    def __repr__(self) -> str:
        return f"Endpoint({self.address})"


class Finder(Protocol):
    """Finds the coordinator that owns a warehouse's commits. For any thread. `tls` has the
    certificates that its clients trust.

    Every coordinator of a warehouse on disks or in an object store keeps a lease with its address
    there, and its token in a state folder that only its user can read. So a client whose
    coordinator is gone finds the next one, if that runs on the same machine for the same user.
    """

    tls: ssl.SSLContext

    def find(
        self, failed: Endpoint | None = None, address: str = "", *, start: bool = True
    ) -> Endpoint | None:
        """The coordinator's endpoint. `failed` is an endpoint that did not answer, or no longer
        owns the warehouse and may have named the owner's `address`. With `start`, a coordinator may
        be started.

        None when there is no endpoint other than `failed`. Raises SetupError when the owner is
        unreachable, or no coordinator can be started.
        """

    def renewed(self, refused: Endpoint) -> Endpoint | None:
        """The same endpoint with another token, after the token of `refused` was rejected. None if
        there is no other token. Raises SetupError if no token can be read.
        """

    def succeeded(self, silent: Endpoint) -> bool:
        """Whether `silent` shows no sign of life, and another coordinator owns the warehouse, as
        far as is known here. It takes seconds, and changes nothing.
        """


class At:
    """Finds a coordinator at known addresses: the first address that answers. When that coordinator
    is gone, it finds the next address, or the warehouse's next owner on this machine. The token is
    the new owner's if this user can read it, else the same.

    `catalog` is the warehouse's, once that is known. `tls` has the certificates that the client
    trusts.
    """

    def __init__(
        self,
        addresses: Addresses | str,
        token: Token | str,
        catalog: Catalog | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._addresses = Addresses.of(addresses) if isinstance(addresses, str) else addresses
        self._token = Token(token) if isinstance(token, str) else token
        self.tls = tls_context(self._addresses) if tls is None else tls
        self.catalog = catalog

    def key_source(self, ca: str) -> KeySource:
        """Where keys of the store come from, if this coordinator hands out any. The process asks
        with the token that is valid then. `ca` is the file of certificates that are trusted."""
        addresses = ",".join(self._addresses.all)
        renew_tokens(addresses, lambda: self._token.text)
        return KeySource(addresses, self._token.text, ca)

    def find(
        self, failed: Endpoint | None = None, address: str = "", *, start: bool = True
    ) -> Endpoint | None:
        """See `Finder.find`."""
        known = self._addresses
        if failed is None:
            return Endpoint(self._first(known.all) or known.all[0], self._token.text)
        if address in known and address != failed.address:
            return Endpoint(address, self._token.text)
        if not address and len(known.all) > 1:
            other = self._first(known.after(failed.address))
            if other is not None:
                return Endpoint(other, self._token.text)
        if not address and self.catalog is not None:
            lease = living_lease(self.catalog)
            address = "" if lease is None else lease.address
        if not is_loopback(address) or address == failed.address:
            return None
        lease = None if self.catalog is None else _lease_here(self.catalog)
        own = token_of(lease.home) if lease is not None and lease.address == address else None
        return Endpoint(address, own or self._token.text)

    def renewed(self, refused: Endpoint) -> Endpoint | None:
        """See `Finder.renewed`."""
        text = self._token.renewed(refused.token)
        return None if text is None else Endpoint(refused.address, text)

    def succeeded(self, silent: Endpoint) -> bool:
        """See `Finder.succeeded`."""
        others = [each for each in self._addresses.all if each != silent.address]
        lease = None if self.catalog is None else _lease_here(self.catalog)
        if lease is not None and lease.address not in (*others, silent.address):
            others.append(lease.address)
        if not others or not _problem_at(silent.address, self.tls, seconds=_SIGN_SECONDS):
            return False
        return any(
            not _problem_at(each, self.tls, "/health/owner", _SIGN_SECONDS) for each in others
        )

    def _first(self, addresses: tuple[str, ...]) -> str | None:
        """The first address that answers; the only one is not asked."""
        if len(self._addresses.all) == 1:
            return addresses[0] if addresses else None
        return next((address for address in addresses if not _problem_at(address, self.tls)), None)


def living_lease(catalog: Catalog) -> Lease | None:
    """The lease of the coordinator that owns the warehouse's commits, if it may be alive; None if
    there is none, or it can't be read.

    Raises SetupError, which names host and user, for a coordinator that only its own, other machine
    can reach. Finding out whether it is alive takes some seconds.
    """
    lease = _lease(catalog)
    if lease is None or lease.home.host == socket.gethostname():
        return lease
    if not is_renewed(catalog.stores.of(catalog.warehouse), catalog.warehouse, lease):
        return None
    raise owned_elsewhere(lease)


def _lease_here(catalog: Catalog) -> Lease | None:
    """Like `living_lease`, but None for a coordinator on another machine."""
    lease = _lease(catalog)
    return lease if lease is not None and lease.home.host == socket.gethostname() else None


def _lease(catalog: Catalog) -> Lease | None:
    """The lease of a coordinator that is reachable on its own machine only, if any."""
    if catalog.metastore == "rest":
        return None
    try:
        lease = current_lease(catalog.stores.of(catalog.warehouse), catalog.warehouse)
        if lease is None or lease.released or not is_loopback(lease.address):
            return None
        # A copy of a warehouse has a copy of its lease.
        id = read_warehouse_id(catalog.stores, catalog.warehouse) if lease.warehouse else None
    except (PaimonMagicsError, OSError):
        return None
    return lease if id in (None, lease.warehouse) else None


def check_answers(address: str, ca: str = "") -> None:
    """Ask a coordinator once whether it is alive, without its token, to detect a wrong address at
    once: a client's requests are repeated for a minute. At least one of several addresses must
    answer. `ca` is the file of trusted certificates. Raises SetupError if none answers.
    """
    addresses = Addresses.of(address)
    tls = tls_context(addresses, ca_of(ca, os.environ))
    problems = []
    for each in addresses.all:
        problem = _problem_at(each, tls)
        if not problem:
            return
        problems.append(f"{each}: {problem}")
    raise SetupError(
        f"No coordinator answers at {'; '.join(problems)}.",
        hint="Check that it is running, and check its address."
        + (
            " The setting coordinator_ca names the file of trusted certificates."
            if "CERT" in problems[0]
            else ""
        ),
    )


def _problem_at(
    address: str,
    tls: ssl.SSLContext,
    path: str = "/health/live",
    seconds: float = _PROBE_SECONDS_MAX,
) -> str:
    """Why no coordinator answers at an address; "" if a coordinator answers."""
    try:
        answer = httpx.get(address + path, timeout=seconds, trust_env=False, verify=tls)
        return "" if answer.is_success else f"it answers {answer.status_code}"
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return str(error) or type(error).__name__


def is_loopback(address: str) -> bool:
    """Whether an address is on this machine. Only then does an address that was read from a
    warehouse get a token.
    """
    try:
        return urlsplit(address).hostname in ("127.0.0.1", "localhost", "::1")
    except ValueError:
        return False
