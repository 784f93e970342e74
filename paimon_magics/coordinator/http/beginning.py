"""The answers of a hub's coordinator before its parts have started.

A hub ends at its start when a service of its own ends, or answers nothing for half a minute. So the
web server runs before all else: it is live at once. Requests of the hub's users wait for the
parts. While the parts can't be started they are answered 503, with the reason and the next step.
"""

from __future__ import annotations

import asyncio
import time

from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from paimon_magics.coordinator.http.answers import JSONResponse, error_answer
from paimon_magics.coordinator.http.authorisation import Authoriser
from paimon_magics.coordinator.protocol.errors import RETRY_AFTER, NotStartedError
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
