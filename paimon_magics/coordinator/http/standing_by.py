"""The answers of a coordinator while it stands by, and once it owns the warehouse.

While it stands by, requests are relayed to the owner. In a takeover there is no owner for a moment:
requests wait, unread, for the next owner. After `_HOLD_SECONDS` they are answered 503, with an
error that names the unresponsive owner, or says that there is none.

It answers the paths below `/health`, and `/metrics`, itself. `/metrics` requires a token that the
owner accepts, or the token of its own state folder. Only clients with such a token see the owner's
address. While no owner can check tokens, the kind of trouble is said to everybody, names of hosts
and databases only to who has the token of the state folder; the log has them. A token that has read
the metrics within the last hour may read them on.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable

import httpx
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    generate_latest,
)
from prometheus_client.registry import Collector
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paimon_magics.coordinator.http.answers import JSONResponse, error_answer
from paimon_magics.coordinator.http.authorisation import bearer_token
from paimon_magics.coordinator.http.relaying import PASSED_ON, Relay
from paimon_magics.coordinator.ownership.lease import Lease
from paimon_magics.coordinator.protocol.errors import NoOwnerError

_log = logging.getLogger(__name__)

_HOLD_SECONDS = 30.0  # how long a request waits for an owner
_WAITING_MAX = 1_000  # requests that wait at once
_LOOK_SECONDS = 0.05
_SCRAPERS_MAX = 8  # tokens
_SCRAPER_SECONDS = 3_600.0
_OTHER = (
    "Another coordinator owns the warehouse's commits. This coordinator is a standby that is not "
    "configured to trust its address."
)
_OTHER_HINT = "Ask the administrator: the log of this standby has the address for --peer."
_TROUBLE = "This standby can't take over now: its log has the reason."
_UNKNOWN = "There is none at the moment: a standby takes over when the lease expires."


class StandingBy:
    """An ASGI application. `saw` and `become` may be called from any thread, all else belongs to
    the event loop.

    `address` is its own address, `root` the path prefix of all endpoints, `accepts` says whether a
    text is the token of its own state folder. A token is relayed to an owner whose address
    `may_trust` allows, over TLS that `tls` trusts.
    """

    def __init__(
        self,
        address: str,
        root: str,
        accepts: Callable[[str], bool],
        may_trust: Callable[[str], bool],
        tls: ssl.SSLContext,
    ) -> None:
        self._address = address
        self._root = root
        self._accepts = accepts
        self._may_trust = may_trust
        self._tls = tls
        self.mark = ""
        """By what the owner knows this standby; "" before it does."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lease: Lease | None = None
        self._owner: ASGIApp | None = None
        self._is_leaving = False
        self._scrapers: OrderedDict[str, float] = OrderedDict()
        self._relay: Relay | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._waiting = 0
        self._trouble = ""
        self._registry = CollectorRegistry()
        is_owner = Gauge(
            "paimon_coordinator_owner",
            "Whether this coordinator owns the warehouse's commits.",
            registry=self._registry,
        )
        is_owner.set(0)
        gauge = Gauge(
            "paimon_coordinator_held_requests",
            "Requests that wait for a coordinator that owns the warehouse.",
            registry=self._registry,
        )
        gauge.set_function(lambda: self._waiting)
        self._answers = Counter(
            "paimon_coordinator_relayed_total",
            "Requests to a standby coordinator, by outcome.",
            ["outcome"],
            registry=self._registry,
        )

    def measure(self, collector: Collector) -> None:
        """Have further metrics in `/metrics` while it stands by."""
        self._registry.register(collector)

    @property
    def trouble(self) -> str:
        """Why it can't take over, for the error of requests that find no owner, and the log."""
        return self._trouble

    @trouble.setter
    def trouble(self, why: str) -> None:
        before, self._trouble = self._trouble, why
        if why and why != before:
            _log.error("This standby can't take over. %s", why)

    def saw(self, lease: Lease | None) -> None:
        """Note the lease of the present owner; None if there is no readable lease."""
        before, self._lease = self._lease, lease
        is_other = lease is not None and (before is None or before.address != lease.address)
        if lease is not None and is_other and not self._may_trust(lease.address):
            _log.warning(" ".join(_untrusted(lease)))
        self._give_up_others()

    def become(self, owner: ASGIApp) -> None:
        """Let `owner` answer all requests from now on, including waiting requests."""
        self._owner = owner
        self._lease = None
        self._give_up_others()

    def step_down(self) -> None:
        """Answer as a standby from now on, for the moment until the process ends for another one:
        nothing is passed on."""
        self._is_leaving = True
        self._owner = None
        self._give_up_others()

    def _give_up_others(self) -> None:
        """Abandon the open requests at a coordinator that is no longer the owner."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._present_relay)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        self._loop = self._loop or asyncio.get_running_loop()
        if scope["type"] == "lifespan":
            await _live_through(receive, send)
        elif self._owner is not None:
            if scope["path"] == self._root + "/metrics":
                send = self._noting(scope, send)
            await self._owner(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._pass_on(scope, receive, send)
        else:
            path = scope["path"].removeprefix(self._root)
            own = {
                "/health/live": self._live,
                "/health/owner": self._not_owner,
                "/health/ready": self._ready,
                "/health/startup": self._started,
                "/metrics": self._metrics,
            }.get(path)
            if own is None or scope["method"] not in ("GET", "HEAD"):
                await self._pass_on(scope, receive, send)
            else:
                await (await own(scope))(scope, receive, send)

    # ---- its own ----

    async def _live(self, _: Scope) -> Response:
        return JSONResponse({"status": "live"})

    async def _started(self, _: Scope) -> Response:
        return JSONResponse({"status": "started"})

    async def _not_owner(self, scope: Scope) -> Response:
        shown, lease = {"status": "standby"}, self._lease
        is_known = self._accepts(bearer_token(HTTPConnection(scope)) or "")
        if is_known and lease is not None and not lease.released:
            shown |= {"owner": lease.address, "who": lease.who}
        return JSONResponse(shown, status_code=503)

    async def _ready(self, scope: Scope) -> Response:
        answer = await self._owners_answer(scope, "/health/ready")
        if isinstance(answer, Response):
            return answer
        lease = self._lease
        shown = {"status": "standby"}
        if "pause" in answer.json():  # which the owner shows only to known principals
            shown["owner"] = "" if lease is None or lease.released else lease.address
        return JSONResponse(shown)

    async def _metrics(self, scope: Scope) -> Response:
        token = bearer_token(HTTPConnection(scope)) or ""
        if not self._accepts(token):
            answer = await self._owners_answer(scope, "/metrics")
            if not isinstance(answer, Response):
                self._note(token)
            elif answer.status_code != 503 or not self._is_scraper(token):
                return answer
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)

    # ---- who reads the metrics ----

    @property
    def scrapers(self) -> list[str]:
        """Digests of the tokens that have read the metrics. They may read those of a standby also
        while no owner can check them."""
        return list(self._scrapers)

    def remember(self, scrapers: Iterable[str]) -> None:
        """Take over the digests of another process."""
        now = time.monotonic()
        self._scrapers.update(dict.fromkeys(scrapers, now))

    def _noting(self, scope: Scope, send: Send) -> Send:
        """Remember the token of a request if its answer is 200."""
        token = bearer_token(HTTPConnection(scope)) or ""

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                self._note(token)
            await send(message)

        return sending

    def _note(self, token: str) -> None:
        digest = _digest(token)
        self._scrapers[digest] = time.monotonic()
        self._scrapers.move_to_end(digest)
        while len(self._scrapers) > _SCRAPERS_MAX:
            self._scrapers.popitem(last=False)

    def _is_scraper(self, token: str) -> bool:
        noted = self._scrapers.get(_digest(token))
        return noted is not None and time.monotonic() - noted < _SCRAPER_SECONDS

    async def _owners_answer(self, scope: Scope, path: str) -> httpx.Response | Response:
        """The owner's answer to a path if it is 200. Else the response to send: 503 if no owner
        answers.
        """
        relay = self._present_relay()
        answer = None if relay is None else await relay.get(path, scope)
        if answer is None:
            if path != "/metrics" and not self._knows(scope):
                problems = ["owner", *(["takeover"] if self.trouble else [])]
                shown = {"status": "not ready", "problems": problems}
                return JSONResponse(shown, status_code=503)
            return self._no_owner(scope)
        if answer.is_success:
            return answer
        kind = answer.headers.get("content-type")
        return Response(answer.content, status_code=answer.status_code, media_type=kind)

    # ---- the owner's ----

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the owner answer, once there is an owner."""
        until = time.monotonic() + _HOLD_SECONDS
        was_passed_on = any(name == PASSED_ON.encode() for name, _ in scope["headers"])
        self._waiting += 1
        try:
            while self._owner is None:
                relay = self._present_relay()
                if self._is_leaving or (relay is not None and was_passed_on):
                    break  # it goes no further; its sender sees the new owner, too
                if relay is not None and await _relay(relay, scope, receive, send):
                    self._answers.labels("passed_on").inc()
                    return
                if time.monotonic() > until or self._waiting > _WAITING_MAX:
                    break
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            self._waiting -= 1
        if self._owner is not None:
            self._answers.labels("taken_over").inc()
            await self._owner(scope, receive, send)
            return
        self._answers.labels("no_owner").inc()
        await self._no_owner(scope)(scope, receive, send)

    def _present_relay(self) -> Relay | None:
        """The relay to the present owner. None if there is no owner, it may not be trusted, or this
        address had the last lease.
        """
        lease = self._lease
        address = "" if lease is None or lease.released else lease.address
        if address == self._address or self._is_leaving:
            address = ""
        if self._relay is not None and self._relay.address != address:
            task = asyncio.ensure_future(self._relay.close())
            self._ending.add(task)  # the loop keeps no reference
            task.add_done_callback(self._ending.discard)
            self._relay = None
        if self._relay is None and address and self._may_trust(address):
            self._relay = Relay(address, self._root, self._tls)
        if self._relay is not None and self.mark:
            self._relay.mark = self.mark
        return self._relay

    def _knows(self, scope: Scope) -> bool:
        """Whether a request has the token of the own state folder. No other can be checked while
        no owner answers, so nobody else learns hosts, users and databases."""
        return self._accepts(bearer_token(HTTPConnection(scope)) or "")

    def _no_owner(self, scope: Scope) -> Response:
        lease, shows = self._lease, self._knows(scope)
        if self._is_leaving:
            message = "This coordinator owns the warehouse's commits no longer."
            hint = "Send the request again: it stands by in a moment, and passes requests on."
        elif lease is None or lease.released:
            message, hint = "No coordinator owns the warehouse's commits yet.", _UNKNOWN
        elif not self._may_trust(lease.address):
            message, hint = _untrusted(lease) if shows else (_OTHER, _OTHER_HINT)
        else:
            who = f" of {lease.who} at {lease.address}" if shows else ""
            message = f"The coordinator{who} owns the warehouse's commits, but does not answer."
            hint = (
                f"Send the request again: a standby takes over {lease.lease_ms / 1000:.0f} s after "
                "the owner ends."
            )
        trouble = self.trouble if shows or not self.trouble else _TROUBLE
        return error_answer(503, NoOwnerError.__name__, message, f"{hint} {trouble}".rstrip())


def _untrusted(lease: Lease) -> tuple[str, str]:
    """A message about an owner whose address may not get tokens, and its hint."""
    message = (
        f"The coordinator at {lease.address} owns the warehouse's commits. This coordinator is a "
        "standby that is not configured to trust that address."
    )
    hint = (
        "Send the request there. Or ask the administrator to start this standby with --peer "
        f"{lease.address}."
    )
    return message, hint


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


async def _relay(relay: Relay, scope: Scope, receive: Receive, send: Send) -> bool:
    pass_on = relay.pass_on_socket if scope["type"] == "websocket" else relay.pass_on
    return await pass_on(scope, receive, send)


async def _live_through(receive: Receive, send: Send) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return
