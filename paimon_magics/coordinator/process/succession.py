"""Standing by: waiting for the ownership of a warehouse, taking over, and stepping down.

The lease in the warehouse decides who owns it (`ownership.ownership`). Only then is the store
opened, whose last owner may still have a session there. A coordinator whose own store accepts no
writes does not take over. A coordinator whose store accepted no write for a whole lease steps down,
since another coordinator may reach the store.

If a part can't be started after a takeover, the lease is released, and the process stays a standby.
If the process dies at any step, its lease expires.
"""

from __future__ import annotations

import argparse
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from starlette.types import ASGIApp

from paimon_magics.coordinator.client.addresses import trusting
from paimon_magics.coordinator.http.forwarding import Forwarding, is_loopback
from paimon_magics.coordinator.http.standing_by import StandingBy
from paimon_magics.coordinator.ownership.folder_token import introduce, key_of
from paimon_magics.coordinator.ownership.lease import Lease
from paimon_magics.coordinator.ownership.ownership import Ownership
from paimon_magics.coordinator.ownership.redacted_log import keep_secrets_out_of_logs
from paimon_magics.coordinator.ownership.state_folder import Running
from paimon_magics.coordinator.process.composition import OwnerParts, ownership_of, start_owner
from paimon_magics.coordinator.process.place import Entrance, Place, place_of
from paimon_magics.coordinator.process.server import (
    Bounds,
    Server,
    Shutdown,
    handed_over,
    process_connections_max,
)
from paimon_magics.coordinator.routes.metrics import Collected, fact_metrics
from paimon_magics.coordinator.runtime.threads import Loop, Runtime
from paimon_magics.coordinator.service.health import Fact, HealthMonitor, Noted
from paimon_magics.coordinator.store.state_store import store_trouble
from paimon_magics.errors import PaimonMagicsError, SetupError
from paimon_magics.version import __version__

_LOOK_MS = 500.0
_PROBE_MS = 10_000.0
_UNWRITABLE = "This coordinator's database is not writable: {}."
_FILES_MS = 1_000.0
_ENDING_SECONDS = 3.0  # for the parts of a coordinator that owns the warehouse no longer
_GRACE_SECONDS = 1  # for the requests that they have

_log = logging.getLogger(__name__)

_PORTS = {"http": 80, "https": 443}


class Succession:
    """One process's way from standing by to owning, and to its end. For any thread.

    `app` always answers; `parts` has the parts that answer for the warehouse, None before the
    takeover.
    """

    def __init__(self, options: argparse.Namespace, place: Place, shutdown: Shutdown) -> None:
        self._options = options
        self._place = place
        self._shutdown = shutdown
        self._lease_ms = options.ownership_lease_ms
        peers = PeerNames.of(options.peer)
        peer_tls = trusting(options.peer_ca or "")
        place.trust_again(peer_tls, options.peer_ca)
        self.app = StandingBy(
            place.address,
            place.root,
            (lambda token: False) if place.hub else place.own_token.accepts,
            peers.__contains__,
            peer_tls,
        )
        self.app.remember(handed_over().scrapers)
        self.parts: OwnerParts | None = None
        self._ending = ExitStack()
        self._runtime = Runtime()
        self._database = Noted(
            self._runtime,
            "database",
            lambda: store_trouble(place.store_address),
            _PROBE_MS,
            "",
        )
        self._measure(place)
        self._closing = threading.Event()
        self._ownership: Ownership | None = None
        self._why = ""
        self.next_socket: socket.socket | None = None
        """The listening socket for the process that stands by next; None unless this one ends for
        it."""
        shutdown.goes_on = self._goes_on
        self._turn = threading.RLock()
        self._loop: Loop | None = None
        self._pause_ms = 0.0
        self._writable_ms = 0.0
        if ownership_of(options, place, self._ending) is None:
            raise SetupError(
                "A coordinator in front of a REST catalog can't stand by: nobody owns that "
                "warehouse, and several coordinators may work there.",
                hint="Leave out --standby.",
            )

    def _measure(self, place: Place) -> None:
        """Have the health of a standby in its metrics."""
        monitor = HealthMonitor()
        monitor.add("taking over", self._facts)
        if place.certificate is not None:
            monitor.add("its certificate", place.certificate.facts)
        self.app.measure(Collected(lambda: fact_metrics(monitor.now())))

    def _facts(self) -> Iterator[Fact]:
        """Whether it could take over, as far as it knows while there is an owner."""
        database, ownership = self._database, self._ownership
        why = database.problem or database.value
        problem = self.app.trouble or (_UNWRITABLE.format(why) if why else "")
        if not problem and ownership is not None and ownership.trouble:
            problem = f"The lease of the warehouse can't be read: {ownership.trouble}"
        yield Fact("takeover", int(not problem), problem)

    def _goes_on(self) -> bool:
        """Whether it answers on as a standby although its parts end: since it has lost the
        warehouse, maybe before they had started. The store may have shown that before the lease
        did."""
        parts, ownership = self.parts, self._ownership
        if self.next_socket is not None or ownership is None:
            return False
        if parts is None:
            return True
        if not ownership.is_lost and parts.coordinator.state_thread.failure is not None:
            with suppress(PaimonMagicsError, OSError):
                ownership.check()
        return ownership.is_lost or bool(self._why)

    def _saw(self, lease: Lease | None) -> None:
        if lease is not None and not lease.released:
            self.app.trouble = ""  # another one has taken over, or goes on
        self.app.saw(lease)

    def start(self) -> None:
        """Begin to stand by."""
        self._loop = self._runtime.loop("succession", lambda: self._pause_ms, self._round)

    def wind_up(self) -> None:
        """Release clients that wait until their rows are visible."""
        if self.parts is not None:
            self.parts.wind_up()

    def close(self) -> None:
        """End; give the ownership back."""
        self._closing.set()
        with self._turn:
            ownership = self._ownership
        if ownership is not None and self.parts is None:
            ownership.release()
        self._database.stop()
        if self._loop is not None:
            self._loop.end()
        self._ending.close()

    def _round(self) -> None:
        if self._closing.is_set():
            return
        if self.parts is not None:
            self._watch(self.parts)
            return
        self._introduce()
        # Others have the length of a lease to take over before this coordinator tries again.
        self._pause_ms = self._lease_ms
        with ExitStack() as ending:
            try:
                parts = self._taken_over(ending)
            except Exception as error:  # after any error, another coordinator may succeed
                if not self._closing.is_set():
                    self.app.trouble = f"This coordinator could not take over: {error}"
                return
            self.parts = parts
            self._ending = ending.pop_all()
        self._database.stop()
        self.app.become(parts.app)
        self._pause_ms, self._writable_ms = _LOOK_MS, self._runtime.clock.steady_ms()

    def _introduce(self) -> None:
        """Let the owner know whose word on clients to believe; without, this one counts as their
        address."""
        place = self._place
        if self.app.mark:
            return
        key = key_of(place.folder.token_file)
        try:
            warehouse = place.catalog.warehouse
            introduce(place.catalog.stores.of(warehouse), warehouse, key)
        except PaimonMagicsError as error:
            _log.info("The owner does not know this standby yet: %s", error)
        else:
            self.app.mark = key

    def _taken_over(self, ending: ExitStack) -> OwnerParts:
        ownership = ownership_of(self._options, self._place, ending)
        assert ownership is not None
        with self._turn:
            if self._closing.is_set():
                raise SetupError("The coordinator is stopping.")
            self._ownership = ownership
        epoch = ownership.stand_by(self._may_take, self._saw)
        began = time.monotonic()
        parts = start_owner(self._options, self._place, ownership, self._shutdown, ending)
        self.app.trouble = ""
        seconds = time.monotonic() - began
        _log.info("Owns the warehouse since epoch %d, answers after %.2f s.", epoch, seconds)
        print(f"owns the warehouse since epoch {epoch}, answers after {seconds:.2f} s", flush=True)
        return parts

    def _may_take(self) -> bool:
        trouble = store_trouble(self._place.store_address)
        self.app.trouble = _UNWRITABLE.format(trouble) if trouble else ""
        return not trouble

    def _watch(self, parts: OwnerParts) -> None:
        """Step down when another coordinator has taken over, or when the store has accepted no
        writes for a whole lease."""
        if self.next_socket is not None:
            return
        now_ms = self._runtime.clock.steady_ms()
        lost = None if self._ownership is None else self._ownership.lost
        if lost is not None:
            self._step_down(parts, f"{lost.message} {lost.hint}".rstrip())
        elif not parts.coordinator.state_thread.waits_for_store:
            self._writable_ms = now_ms
        elif now_ms - self._writable_ms > self._lease_ms:
            self._step_down(parts, "Its store has accepted no writes for a whole lease.")

    def _step_down(self, parts: OwnerParts, why: str) -> None:
        """Answer as a standby at once, end the parts, and end the process for the one that stands
        by next. Parts that don't end in time end with it: they acknowledge nothing any more."""
        self._why = why
        _log.warning("The coordinator stands by again. %s", why)
        self.app.step_down()
        parts.wind_up()
        ended = threading.Thread(target=self._ending.pop_all().close, name="ending", daemon=True)
        ended.start()
        ended.join(_ENDING_SECONDS)
        # The server closes its own. Until the next one answers, clients wait in the queue of this.
        self.next_socket = self._place.entrance.listening.dup()
        self._shutdown.grace_seconds = _GRACE_SECONDS
        self._shutdown.request()


@dataclass(frozen=True, slots=True)
class PeerNames:
    """The other coordinators to which a token may be passed on: schemes, patterns of hosts, ports.

    The address of a warehouse's owner is read from the warehouse, where everybody who writes tables
    could have put another one. So a token goes only to addresses that the administrator named, and
    to this machine's loopback.
    """

    all: tuple[tuple[str, str, int], ...] = ()

    @classmethod
    def of(cls, options: Sequence[str]) -> PeerNames:
        """Read comma-separated addresses. Raises SetupError."""
        peers = []
        for text in (text.strip() for option in options for text in option.split(",")):
            parts = _parts(text)
            if parts is None:
                raise SetupError(
                    f"--peer can't be `{text}`.",
                    hint=(
                        "Write the address of another coordinator, such as "
                        "https://lake-1.example.org:8123 or https://lake-*.example.org:8123."
                    ),
                )
            peers.append(parts)
        return cls(tuple(peers))

    def __contains__(self, address: str) -> bool:
        parts = _parts(address)
        if parts is None:
            return False
        scheme, host, port = parts
        return is_loopback(host) or any(
            (scheme, port) == (peer[0], peer[2]) and _fits(host, peer[1]) for peer in self.all
        )


def _fits(host: str, pattern: str) -> bool:
    """Whether a host matches a pattern; each `*` stands for text without dots."""
    labels, wanted = host.split("."), pattern.split(".")
    return len(labels) == len(wanted) and all(map(fnmatchcase, labels, wanted))


def _parts(address: str) -> tuple[str, str, int] | None:
    try:
        parts = urlsplit(address)
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        return None
    return (parts.scheme, parts.hostname, port) if parts.hostname else None


@dataclass(frozen=True, slots=True)
class CoordinatorProcess:
    """A started process whose web server does not run yet. It has an `owner`, or a `succession`
    if it stands by."""

    server: Server
    place: Place
    shutdown: Shutdown
    owner: OwnerParts | None
    succession: Succession | None

    @property
    def parts(self) -> OwnerParts | None:
        """The parts that answer for the warehouse; None while it stands by."""
        return self.owner if self.succession is None else self.succession.parts

    @property
    def demoted(self) -> Succession | None:
        """Its succession, if it ended in order to stand by again."""
        return (
            None if self.succession is None or not self.succession.next_socket else self.succession
        )

    @property
    def entrance(self) -> Entrance:
        """Where it listens."""
        return self.place.entrance

    @property
    def announcement(self) -> str:
        """The line that it prints when it answers: its address, and where tokens come from."""
        token_file = self.place.folder.token_file
        return f"paimon-coordinator {self.place.address} token-file={token_file}"

    def serve(self) -> None:
        """Answer requests until the shutdown."""
        how = "" if self.succession is None else ", standing by"
        _log.info("Answers at %s%s (version %s).", self.place.address, how, __version__)
        serve_on(self.server, self.place.entrance)


@dataclass(frozen=True, slots=True)
class StartedParts:
    """The parts of a process behind its entrance: an owner's, or a succession that stands by."""

    place: Place
    owner: OwnerParts | None
    succession: Succession | None

    @property
    def app(self) -> ASGIApp:
        """What answers requests."""
        part = self.succession or self.owner
        assert part is not None
        return part.app

    def wind_up(self) -> None:
        """Release clients that wait until their rows are visible."""
        part = self.succession or self.owner
        assert part is not None
        part.wind_up()


def start_parts(
    options: argparse.Namespace, place: Place, shutdown: Shutdown, ending: ExitStack
) -> StartedParts:
    """Start the parts that answer for a place, or those that stand by; `ending` stops and closes
    them. A standby still has to be started. Raises errors of ours.
    """
    files = Runtime().loop("files", lambda: _FILES_MS, place.reread_keys)
    ending.callback(files.end)
    if options.standby:
        succession = Succession(options, place, shutdown)
        ending.callback(succession.close)
        return StartedParts(place, None, succession)
    ownership = ownership_of(options, place, ending)
    owner = start_owner(options, place, ownership, shutdown, ending)
    return StartedParts(place, owner, None)


def announce(place: Place, ending: ExitStack) -> None:
    """Let this machine's sessions and commands find the process until it ends."""
    ending.callback(place.folder.retract)
    place.folder.announce(Running(place.inner_address, os.getpid(), __version__))


def begin(options: argparse.Namespace, ending: ExitStack) -> CoordinatorProcess:
    """Begin a process as the owner of a warehouse, or standing by until it is. `ending` stops and
    closes its parts. Raises errors of ours when it can't start."""
    keep_secrets_out_of_logs(options.log_format)
    shutdown = Shutdown(options.drain_ms / 1000)
    place = place_of(options, ending)
    begun = start_parts(options, place, shutdown, ending)
    # Clients that wait until their rows are visible are released when the process ends.
    shutdown.take_signals(begun.wind_up, place.reread())
    if begun.succession is not None:
        begun.succession.start()
    server = server_of(begun.app, place.entrance, shutdown, options.request_bytes_max)
    announce(place, ending)
    if begun.owner is not None and begun.owner.idling is not None:
        begun.owner.idling.start()
    return CoordinatorProcess(server, place, shutdown, begun.owner, begun.succession)


def server_of(
    app: ASGIApp, entrance: Entrance, shutdown: Shutdown, request_bytes_max: int
) -> Server:
    """The web server of an application, which does not run yet."""
    network = entrance.network
    if not network.is_local or network.peers.all:
        app = Forwarding(app, network.peers, is_insecure=network.is_insecure)
    bounds = Bounds(free=network.peers, process_max=process_connections_max())
    return Server(app, shutdown, request_bytes_max, bounds, entrance.certificate)


def serve_on(server: Server, entrance: Entrance) -> None:
    """Answer requests until the shutdown."""
    outer = [entrance.listening]
    inner = [] if entrance.inner is entrance.listening else [entrance.inner]
    if entrance.certificate is None:
        server.run_on(outer + inner, [])
    else:
        server.run_on(inner, outer)
