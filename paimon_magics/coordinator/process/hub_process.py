"""A coordinator as a service of a JupyterHub: it answers first, and then starts its parts.

A hub ends when a service that it starts ends before its first answer, or answers nothing for half a
minute. So the web server runs before all else: it is live at once. Requests of the hub's users wait
for the parts. While the parts can't be started (a wrong option, a store that is away, another
owner), requests are answered 503 with the reason and the next step, and the start is tried again.
If the process dies at any step, the hub or its supervisor starts it again.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import threading
import time
from contextlib import ExitStack
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from paimon_magics.coordinator.http.answers import JSONResponse, error_answer
from paimon_magics.coordinator.http.authorisation import Authoriser
from paimon_magics.coordinator.http.hub import HUB_CACHE_MS, hub_service
from paimon_magics.coordinator.ownership.catalog_options import ENVIRONMENT as CATALOG_OPTIONS
from paimon_magics.coordinator.ownership.redacted_log import keep_secrets_out_of_logs
from paimon_magics.coordinator.process.composition import OwnerParts
from paimon_magics.coordinator.process.network import LOOPBACK, Network, listen
from paimon_magics.coordinator.process.place import Entrance, entrance_of, place_of
from paimon_magics.coordinator.process.server import Shutdown
from paimon_magics.coordinator.process.succession import (
    StartedParts,
    Succession,
    announce,
    serve_on,
    server_of,
    start_parts,
)
from paimon_magics.coordinator.protocol.errors import RETRY_AFTER, NotStartedError
from paimon_magics.coordinator.runtime.threads import Runtime
from paimon_magics.errors import PaimonMagicsError, SetupError

_HOLD_SECONDS = 20.0  # how long a request waits for the parts
_WAITING_MAX = 1_000  # requests that wait at once
_LOOK_SECONDS = 0.05
_SLOW = "The coordinator is still starting."
_SLOW_HINT = "Try again. If this persists, look at the coordinator's log."
_TRIES_AGAIN = "It tries to start again every few seconds."


class Beginning:
    """An ASGI application. `become` may be called from any thread, all else belongs to the event
    loop.

    `root` is the path prefix of all endpoints. Only principals of `authoriser` learn why the
    coordinator has not started; None means everybody, for reasons without anything of the
    warehouse.
    """

    def __init__(self, root: str, authoriser: Authoriser | None, *, tries_again: bool) -> None:
        self._root = root
        self._pages = (root, root + "/")
        self._authoriser = authoriser
        self._tries_again = tries_again
        self._app: ASGIApp | None = None
        self._waiting = 0
        routes = [] if authoriser is None else authoriser.routes()
        self._before = Router(routes=routes, default=self._answer)
        self.trouble: PaimonMagicsError | None = None
        """Why the coordinator has not started; None while it starts."""

    def become(self, app: ASGIApp) -> None:
        """Let `app` answer all requests from now on, including waiting requests."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "lifespan" and self._app is not None:
            await self._app(scope, receive, send)
        else:
            await self._before({**scope, "root_path": self._root}, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        own = {
            "/health/live": (200, "live"),
            "/health/owner": (503, "starting"),
            "/health/ready": (503, "starting"),
        }.get(scope["path"].removeprefix(self._root))
        answer: Response | None
        if self._authoriser is None and self.trouble is not None and scope["path"] in self._pages:
            # The hub waits for a status below 500 here.
            answer = PlainTextResponse(self.trouble.text())
        elif self._root and scope["path"] == self._root:
            answer = RedirectResponse(self._root + "/")
        elif own is not None:
            answer = JSONResponse({"status": own[1]}, status_code=own[0])
        else:
            answer = await self._refusal(scope)
        if answer is None and self._app is not None:
            await self._app(scope, receive, send)
            return
        await (answer or self._not_started())(scope, receive, send)

    async def _refusal(self, scope: Scope) -> Response | None:
        """The answer to somebody whom the hub does not know; None, after a wait for the parts, for
        others. Once the parts are there, they look at the sender themselves.
        """
        if self._authoriser is not None:
            connection = HTTPConnection(scope)
            try:
                principal = await self._authoriser.principal(connection)
            except SetupError as error:
                return error_answer(503, type(error).__name__, error.message, error.hint)
            if principal is None:
                return self._authoriser.challenge(connection)
        until = time.monotonic() + _HOLD_SECONDS
        self._waiting += 1
        try:
            while self._app is None and self.trouble is None:
                if time.monotonic() > until or self._waiting > _WAITING_MAX:
                    break
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            self._waiting -= 1
        return None

    def _not_started(self) -> Response:
        message, hint = _SLOW, _SLOW_HINT
        if self.trouble is not None:
            message = f"The coordinator of this hub has not started: {self.trouble.message}"
            hint = f"Ask the hub's administrator. {self.trouble.hint}".rstrip()
            if self._tries_again:
                hint = f"{hint} {_TRIES_AGAIN}"
        answer = error_answer(503, NotStartedError.__name__, message, hint)
        answer.headers["retry-after"] = RETRY_AFTER
        return answer


_AGAIN_MS = 5_000.0
_LEAVING_SECONDS = 3.0  # for a start that is under way when the process ends
_BODY_BYTES_MAX = 1 << 20

_log = logging.getLogger(__name__)


class HubProcess:
    """A process with `--hub`. It listens; its parts are started in a thread, and again after a
    failure. `ending` ends all of it. Raises SetupError if it can't listen.
    """

    def __init__(self, options: argparse.Namespace, ending: ExitStack) -> None:
        keep_secrets_out_of_logs(options.log_format)
        self.entrance = entrance_of(options, ending)
        hub = self.entrance.hub
        assert hub is not None
        self._options = options
        self._catalog_options = os.environ.get(CATALOG_OPTIONS)
        self._app = Beginning(hub.root, hub.authoriser, tries_again=True)
        self._shutdown = Shutdown(options.drain_ms / 1000)
        self._begun: StartedParts | None = None
        self._parts = ExitStack()
        self._is_closing = False
        self._rests = threading.Event()  # no start is under way
        self._rests.set()
        certificate = self.entrance.certificate
        reload = None if certificate is None else certificate.look
        self._shutdown.take_signals(self._wind_up, reload)
        self._server = server_of(
            self._app, self.entrance, self._shutdown, options.request_bytes_max
        )
        ending.callback(self._close)
        self._loop = Runtime().loop(
            "start", lambda: _AGAIN_MS if self._begun is None else None, self._round
        )

    @property
    def parts(self) -> OwnerParts | None:
        """The parts that answer for the warehouse; None before they have started."""
        begun = self._begun
        if begun is None:
            return None
        return begun.owner if begun.succession is None else begun.succession.parts

    @property
    def shutdown(self) -> Shutdown:
        """The request to end it."""
        return self._shutdown

    @property
    def demoted(self) -> Succession | None:
        """Its succession, if it ended in order to stand by again."""
        succession = None if self._begun is None else self._begun.succession
        return None if succession is None or not succession.next_socket else succession

    @property
    def announcement(self) -> str:
        """The line that it prints when it answers: its address, and where tokens come from."""
        return f"paimon-coordinator {self.entrance.address} tokens=hub"

    def serve(self) -> None:
        """Answer requests until the shutdown."""
        serve_on(self._server, self.entrance)

    def _round(self) -> None:
        self._rests.clear()
        try:
            if self._begun is None and not self._is_closing:
                self._begin()
        except Exception as error:  # whatever it is, the hub and its users go on
            if self._is_closing:
                return
            known = error if isinstance(error, PaimonMagicsError) else SetupError(str(error))
            self._app.trouble = known
            _log.error("The coordinator has not started: %s", known.text())
        finally:
            self._rests.set()

    def _begin(self) -> None:
        if self._catalog_options is not None:  # the attempt before has taken them
            os.environ[CATALOG_OPTIONS] = self._catalog_options
        with ExitStack() as ending:
            place = place_of(self._options, ending, self.entrance)
            begun = start_parts(self._options, place, self._shutdown, ending)
            announce(place, ending)
            if self._is_closing:
                return
            if begun.succession is not None:
                begun.succession.start()
            self._parts, self._begun = ending.pop_all(), begun
        self._app.trouble = None
        self._app.become(begun.app)
        _log.warning("The coordinator has started.")

    def _wind_up(self) -> None:
        if self._begun is not None:
            self._begun.wind_up()

    def _close(self) -> None:
        self._is_closing = True
        self._loop.stop()
        self._rests.wait(_LEAVING_SECONDS)
        self._parts.close()


def answer_only(error: PaimonMagicsError) -> None:
    """Answer, at the port where a hub expects its service, why that can't start, until a signal.

    Returns at once if no hub waits for an answer, or nothing can listen there.
    """
    url = urlsplit(os.environ.get("JUPYTERHUB_SERVICE_URL", ""))
    if not url.port:
        return
    root, authoriser = os.environ.get("JUPYTERHUB_SERVICE_PREFIX", "/").rstrip("/"), None
    try:
        authoriser = hub_service(HUB_CACHE_MS, is_local=False).authoriser
        listening = listen(LOOPBACK, url.port)
    except PaimonMagicsError:
        if authoriser is not None:
            return
        listening = listen(LOOPBACK, url.port)
    with listening:
        shutdown = Shutdown()
        shutdown.take_signals(lambda: None)
        app = Beginning(root, authoriser, tries_again=False)
        app.trouble = error
        entrance = Entrance(None, Network(), listening, listening)
        serve_on(server_of(app, entrance, shutdown, _BODY_BYTES_MAX), entrance)
