"""The web server of a coordinator's process, and the request to shut it down."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from paimon_magics.coordinator.http.answers import AT_ONCE
from paimon_magics.coordinator.process.network import Certificate

_GRACE_SECONDS = 30  # for requests that wait for something that does not come
_HANDSHAKE_SECONDS = 10.0
_ARRIVING_SECONDS = 0.2
_TICKS = 10  # of uvicorn, in a second
END_SIGNALS = [
    getattr(signal, name)
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM")
    if hasattr(signal, name)
]
"""The signals that would end the process."""


_log = logging.getLogger(__name__)

_TOO_SLOW = 408
_HEAD_TOO_LARGE = 431
_SLOW_HEAD_SECONDS = 1.0  # a whole one comes in one or two packets
_FILES_MAX = 65_536
_VARIABLE = "PAIMON_COORDINATOR_HANDED_OVER"
_HARMLESS = "SIGHUP"  # files are read anew in any case
_PIPE_BYTES = 512
_HEAD = b"HTTP/1.1 200 OK\r\n%b%bcontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"


class Shutdown:
    """Whether the process is to end. For any thread.

    A signal begins to drain it: for `drain_seconds` everything is answered as before, but
    `is_draining` says that no new client should come. `was_signalled` tells whether a signal has
    come at all. `grace_seconds` is how long the requests under way may take then.
    """

    def __init__(self, drain_seconds: float = 0.0) -> None:
        self.is_requested = False
        self.is_draining = False
        self.was_signalled = False
        self.grace_seconds = _GRACE_SECONDS
        self.goes_on: Callable[[], bool] = lambda: False
        """Whether the process answers on although its parts end: a standby's, until a signal."""
        self._drain_seconds = drain_seconds

    def request(self) -> None:
        """End the process after the requests under way."""
        if not self.was_signalled and self.goes_on():
            return
        self.is_draining = True
        self.is_requested = True

    def take_signals(
        self, first: Callable[[], object], reload: Callable[[], bool] | None = None
    ) -> None:
        """Let a signal that would end the process drain it first, and a second signal end it at
        once. `first` is called in a thread of its own when it ends. SIGHUP calls `reload` instead,
        if given, which returns whether the new certificate is in use. Each signal leaves a line in
        the log.
        """

        def end(name: str, wait: float) -> None:
            _log.warning("%s: the coordinator ends%s.", name, f" in {wait:.0f} s" if wait else "")
            time.sleep(wait)
            self.request()
            first()

        def read_again() -> None:
            assert reload is not None
            end = "" if reload() else ": nothing has changed"
            _log.warning("SIGHUP: certificate and permissions were read again%s.", end)

        def requested(number: int, _: object) -> None:
            name = signal.Signals(number).name
            if name == "SIGHUP" and reload is not None:
                threading.Thread(target=read_again, daemon=True).start()
                return
            self.was_signalled = True
            wait = 0.0 if self.is_draining else self._drain_seconds
            self.is_draining = True
            if not wait:
                self.request()
            threading.Thread(target=end, args=(name, wait), daemon=True).start()

        for number in END_SIGNALS:
            signal.signal(number, requested)

    def request_after(self, seconds: float) -> None:
        """Request the shutdown after this time; until then requests are still answered."""
        timer = threading.Timer(seconds, self.request)
        timer.daemon = True
        timer.start()


class Server(uvicorn.Server):
    """Serves until a shutdown is requested. It handles no signals: uvicorn would end the process on
    a signal before its parts are closed.

    `certificate` is for the sockets that `run_on` gets as `encrypted`.
    """

    def __init__(
        self,
        app: ASGIApp,
        shutdown: Shutdown,
        request_bytes_max: int,
        bounds: Bounds,
        certificate: Certificate | None = None,
    ) -> None:
        self._connection = bounded(bounds)
        super().__init__(
            uvicorn.Config(
                app,
                interface="asgi3",  # else a callable that is no coroutine counts as ASGI 2
                http=self._connection,
                ws=_Stream,
                log_config=None,  # its records go to the process's log
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=_GRACE_SECONDS,
                ws_max_size=request_bytes_max,
                ws_per_message_deflate=False,
            )
        )
        self._shutdown = shutdown
        self._certificate = certificate
        self._encrypted: list[socket.socket] = []
        self._looked_at = 0.0

    def run_on(self, plain: list[socket.socket], encrypted: list[socket.socket]) -> None:
        """Serve on these sockets until the shutdown."""
        self._encrypted = encrypted
        self.run(sockets=plain)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen; uvicorn itself knows one context of TLS for all sockets."""
        await super().startup(sockets)
        loop = asyncio.get_running_loop()
        for listening in self._encrypted:
            assert self._certificate is not None
            server = await loop.create_server(
                lambda: self._connection(self.config, self.server_state, self.lifespan.state),
                sock=listening,
                ssl=self._certificate.context,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS,
                backlog=self.config.backlog,
            )
            self.servers.append(server)

    async def on_tick(self, counter: int) -> bool:
        """Return whether to end; uvicorn asks ten times a second."""
        if counter % _TICKS == 0:
            self._look()
        if self._shutdown.is_requested:
            self.config.timeout_graceful_shutdown = self._shutdown.grace_seconds
        return self._shutdown.is_requested or await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End; uvicorn would close a connection whose first request is just arriving."""
        for server in self.servers:
            server.close()
        await asyncio.sleep(_ARRIVING_SECONDS)
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone; uvicorn would take them here."""
        yield

    def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        passed = now - self._looked_at if self._looked_at else 0.0
        self._looked_at = now
        for connection in list(self.server_state.connections):
            if isinstance(connection, _BoundedConnection):
                connection.look(now, passed)
        if self._certificate is not None:
            self._certificate.look()


@dataclass(slots=True)
class Bounds:
    """How long a client may take, how many connections it may have, and the connections by client
    address. Otherwise a client that sends a byte at a time, or does not read its answer, would hold
    a connection for ever. The server looks once a second, which costs a request nothing.

    A head may take `head_seconds` and have `head_bytes_max`; a body may take `body_seconds` and a
    second more for each `body_bytes_per_second` of it; an answer may stand still for
    `answer_seconds`, a connection without a request for `idle_seconds`. An address other than those
    in `free` has at most `connections_max`, all together have `process_max`. A new connection
    beyond that replaces the connection that has been idle longest, then the one with the slowest
    head, of the same address or of the address with the most connections. It is refused only if
    each of these has a request under way. Streams are WebSockets: the server pings them instead.

    `resting` has the connections without a complete head, by address, in the order in which they
    began to rest.
    """

    head_seconds: float = 15.0
    head_bytes_max: int = 65_536
    body_seconds: float = 30.0
    body_bytes_per_second: int = 16_384
    answer_seconds: float = 60.0
    idle_seconds: float = 15.0
    connections_max: int = 1_024
    process_max: int = 1_000_000
    free: Any = ()
    opened: Counter[str] = field(default_factory=Counter)
    resting: defaultdict[str, dict[_BoundedConnection, None]] = field(
        default_factory=lambda: defaultdict(dict)
    )

    def admits(self, address: str) -> bool:
        """Whether a new connection may stay; another connection may be closed to make room
        for it."""
        if self.opened[address] >= self.connections_max and address not in self.free:
            return self._evicts(address)
        if self.opened.total() >= self.process_max:
            return self._evicts(self.opened.most_common(1)[0][0])
        return True

    def _evicts(self, address: str) -> bool:
        resting = self.resting[address]
        idle = next((connection for connection in resting if connection.is_idle), None)
        victim = idle or next((connection for connection in resting if connection.is_slow), None)
        if victim is not None:
            victim.leave()
        return victim is not None


class _Stream(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket. An HTTP answer to a refused stream completes the handshake. uvicorn
    overlooks that, and would log an error for each of them.
    """

    async def send(self, message: Any) -> None:
        """Send what the application sends."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            self.handshake_complete = True


class _BoundedConnection(HttpToolsProtocol):
    """uvicorn's connection, with bounds."""

    bounds: Bounds

    _in_head = False  # the head of a request has begun and is not complete
    _began = 0.0  # the loop's time at which its head, body or rest began
    _has_large_head = False
    _body_bytes = 0
    _pending_bytes = 0  # of a head, trailers or chunks' extensions, which no body's limit covers
    _arrived_bytes = 0  # upper bound on a head that this call completes
    _has_advanced = False  # a head was completed, or a body went on, by the bytes of this call
    _stuck: tuple[int, float] | None = None  # unsent bytes, and since when
    _is_ended = False
    _is_counted = False
    _address = ""

    @property
    def is_idle(self) -> bool:
        """Whether it has no request, not even the beginning of one."""
        return not self._in_head and not self._is_answering

    @property
    def is_slow(self) -> bool:
        """Whether the head of its request takes long."""
        return self.loop.time() - self._began > _SLOW_HEAD_SECONDS

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, or close it where there is no room for it."""
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        if not self.bounds.admits(self._address):
            transport.abort()
            return
        self._is_counted = True
        self.bounds.opened[self._address] += 1
        self._rest()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._forget()

    def leave(self) -> None:
        self._forget()
        self.transport.abort()

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over to a protocol of its own, which does not report its end here."""
        self._forget()
        super().handle_websocket_upgrade()

    def data_received(self, data: bytes) -> None:
        """Take bytes; refuse heads and trailers that grow too large."""
        if self._is_ended:
            return
        self._pending_bytes += len(data)
        self._arrived_bytes = self._pending_bytes
        self._has_advanced = False
        super().data_received(data)
        if self._pending_bytes > self.bounds.head_bytes_max and not self._is_ended:
            self._refuse(_HEAD_TOO_LARGE)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._began = self.loop.time()
        self._in_head = True
        self._body_bytes = 0
        if self._has_advanced and not self._has_large_head:
            self._pending_bytes = 0  # what came before in these bytes belongs to other requests

    def on_headers_complete(self) -> None:
        """Hand the request over, unless its head came as a whole and is too large."""
        self._in_head = False
        head_bytes_max = self.bounds.head_bytes_max
        if self._has_large_head:  # nothing behind such a head is answered
            return
        if self._arrived_bytes > head_bytes_max:
            head_bytes = len(self.url) + sum(len(name) + len(text) for name, text in self.headers)
            self._has_large_head = head_bytes > head_bytes_max
            if self._has_large_head:
                self._pending_bytes = head_bytes
                return
        self._has_advanced = True
        self._pending_bytes = 0
        self._began = self.loop.time()
        if self._is_counted:
            self.bounds.resting[self._address].pop(self, None)
        super().on_headers_complete()
        if self.cycle is None or self.cycle.scope is not self.scope:
            return  # a WebSocket
        self.headers = []  # what follows are trailers, which nothing here reads
        if self.scope["method"] == "POST":
            extensions: dict[str, Any] = {AT_ONCE: _AtOnce(self.cycle)}
            self.scope["extensions"] = extensions

    def on_response_complete(self) -> None:
        """Rest until the next request, unless it has come already."""
        super().on_response_complete()
        if self._is_counted and not self._is_answering:
            self._rest()

    def on_body(self, body: bytes) -> None:
        if self._has_large_head:
            return
        self._has_advanced = True
        self._pending_bytes = 0
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._has_large_head:
            super().on_message_complete()

    def look(self, now: float, passed: float) -> None:
        """End the connection if its client takes too long; `passed` seconds after the last look."""
        if self._is_ended:
            self.transport.abort()  # it has not read why it was ended
            return
        bounds = self.bounds
        if self.flow.read_paused:  # this process lets the client wait
            self._began += passed
        if not self._is_answering:
            # A first request must begin and arrive in time; later requests have the idle time.
            seconds = bounds.head_seconds if self._in_head or self.cycle is None else 0.0
            if seconds and now - self._began > seconds:
                self._refuse(_TOO_SLOW)
            elif not seconds and now - self._began > bounds.idle_seconds:
                self.transport.close()
        elif self.cycle.more_body:
            allowed = bounds.body_seconds + self._body_bytes / bounds.body_bytes_per_second
            if now - self._began > allowed:
                self._refuse(_TOO_SLOW)
        self._look_at_answer(now)

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _rest(self) -> None:
        if not self._in_head:
            self._began = self.loop.time()
        self.bounds.resting[self._address][self] = None

    def _forget(self) -> None:
        if not self._is_counted:
            return
        self._is_counted = False
        bounds, address = self.bounds, self._address
        bounds.resting[address].pop(self, None)
        bounds.opened[address] -= 1
        if bounds.opened[address] <= 0:
            del bounds.opened[address]
            del bounds.resting[address]

    def _look_at_answer(self, now: float) -> None:
        unsent = self.transport.get_write_buffer_size() if self.flow.write_paused else 0
        if not unsent:
            self._stuck = None
        elif self._stuck is None or unsent != self._stuck[0]:
            self._stuck = unsent, now
        elif now - self._stuck[1] > self.bounds.answer_seconds:
            self.transport.abort()

    def _refuse(self, status: int) -> None:
        self._is_ended = True
        cycle = self.cycle
        if cycle is None or self._in_head or not cycle.response_started:
            self.transport.write(
                STATUS_LINE[status] + b"connection: close\r\ncontent-length: 0\r\n\r\n"
            )
        self.transport.close()


class _AtOnce:
    """Answers a request with JSON and the status 200, by one call of the system: uvicorn writes
    head and body one after the other. False if nothing is done: the answer must be sent in the
    usual way.

    Its request refers to it, so it drops the request after the answer: only the garbage collector
    frees reference cycles.
    """

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle: RequestResponseCycle | None = cycle

    def __call__(self, content: bytes) -> bool:
        cycle = self._cycle
        if cycle is None or cycle.response_started or cycle.flow.write_paused:
            return False
        self._cycle = None
        if cycle.transport.is_closing():  # uvicorn may not know it yet
            cycle.disconnected = True
        if cycle.disconnected:
            return True  # like uvicorn, which drops an answer that nobody waits for
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        own = b"".join([b"%b: %b\r\n" % header for header in cycle.default_headers])
        close = b"" if cycle.keep_alive else b"connection: close\r\n"
        cycle.transport.write(_HEAD % (own, close, len(content), content))
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()
        return True


def process_connections_max() -> int:
    """Upper bound on a process's connections: half of its limit on open files, after raising that
    limit as far as allowed.
    """
    try:
        import resource
    except ImportError:  # Windows
        return _FILES_MAX
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    wanted = _FILES_MAX if hard == unlimited else min(hard, _FILES_MAX)
    if soft != unlimited and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return (_FILES_MAX if soft == unlimited else soft) // 2


def bounded(bounds: Bounds) -> type[_BoundedConnection]:
    """The class of connections within these bounds."""
    return type("Connection", (_BoundedConnection,), {"bounds": bounds})


# From a process that has lost a warehouse to the one that stands by in its place.
#
# The next process has the same id and command, and nothing of the memory before, except what is in
# `HandedOver`: above all the socket, so that nobody who connects meanwhile is refused.
#
# A signal that would end the process must not be lost in between. One that came before the last
# look is noted by the system in a pipe, in whatever thread it arrives; a later one waits until the
# next process has begun. Nothing has begun there, so it ends at once.


@dataclass(frozen=True, slots=True)
class HandedOver:
    """What the next process gets: the socket on which the coordinator listens, and digests of the
    tokens that have read its metrics. Without a process before, there is nothing."""

    listening: socket.socket | None = None
    scrapers: tuple[str, ...] = ()


def hand_over(
    handed: HandedOver,
    command: Sequence[str],
    environment: Mapping[str, str],
    was_signalled: Callable[[], bool],
) -> None:
    """Become the next process. Return only if a signal came, so that this one ends instead."""
    assert handed.listening is not None
    noted, noting = os.pipe()
    os.set_blocking(noting, False)
    os.set_blocking(noted, False)
    signal.set_wakeup_fd(noting, warn_on_full_buffer=False)
    signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
    if was_signalled():  # Python has called the handlers of those that came before
        handed.listening.close()
        return
    for file in (noted, handed.listening.fileno()):
        os.set_inheritable(file, True)
    document = {
        "listening": handed.listening.fileno(),
        "signals": noted,
        "scrapers": handed.scrapers,
    }
    os.execve(sys.executable, list(command), {**environment, _VARIABLE: json.dumps(document)})


def take_over_signals() -> bool:
    """Begin as the next process, if it is one: return whether a signal that came in between ends
    it. Until its own handlers are there, a signal ends it at once, with the code 0."""
    if _VARIABLE not in os.environ:
        return False
    came = {signal.Signals(number) for number in signal.sigpending()}
    with contextlib.suppress(BlockingIOError):
        came |= {signal.Signals(number) for number in os.read(_document()["signals"], _PIPE_BYTES)}
    os.close(_document()["signals"])
    if any(each in END_SIGNALS and each.name != _HARMLESS for each in came):
        return True
    for number in END_SIGNALS:
        is_harmless = signal.Signals(number).name == _HARMLESS
        signal.signal(number, signal.SIG_IGN if is_harmless else lambda *_: os._exit(0))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, END_SIGNALS)
    return False


@functools.cache
def handed_over() -> HandedOver:
    """What the process before has left to this one."""
    if _VARIABLE not in os.environ:
        return HandedOver()
    document = _document()
    os.environ.pop(_VARIABLE)  # child processes are no next ones
    os.set_inheritable(document["listening"], False)
    return HandedOver(socket.socket(fileno=document["listening"]), tuple(document["scrapers"]))


def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(os.environ[_VARIABLE])
    return document
