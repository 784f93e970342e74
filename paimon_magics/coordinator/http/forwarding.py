"""Proxies in front of a coordinator: what they report about the client, and who may send requests
unencrypted.

Headers such as X-Forwarded-For are trusted only if the connection comes from a proxy that the
administrator named; anybody else could forge them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from paimon_magics.coordinator.http.answers import error_answer
from paimon_magics.errors import SetupError

_Net = ipaddress.IPv4Network | ipaddress.IPv6Network
_HOPS_MAX = 20  # of X-Forwarded-For that are read


@dataclass(frozen=True, slots=True)
class Peers:
    """The trusted proxies, as networks."""

    all: tuple[_Net, ...] = ()

    @classmethod
    def of(cls, options: Sequence[str]) -> Peers:
        """Read comma-separated addresses and networks. Raises SetupError."""
        texts = [text for option in options for text in option.replace(" ", "").split(",") if text]
        try:
            return cls(tuple(ipaddress.ip_network(text, strict=False) for text in texts))
        except ValueError as error:
            raise SetupError(
                f"--behind-proxy takes addresses and networks: {error}.",
                hint="Write them as 10.0.0.7 or 10.0.0.0/24, separated by commas.",
            ) from error

    def __contains__(self, host: str) -> bool:
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return any(address in net for net in self.all)


class Forwarding:
    """An ASGI application around another application, which gets the client and scheme that a proxy
    reports.

    Without TLS it answers only the proxies and this machine. A request that a proxy received
    unencrypted is refused, unless `is_insecure`.
    """

    def __init__(self, app: ASGIApp, peers: Peers, *, is_insecure: bool = False) -> None:
        self._app = app
        self._peers = peers
        self._is_insecure = is_insecure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        host = (scope.get("client") or ("", 0))[0]
        is_proxy = host in self._peers
        if is_proxy:
            scope = _forwarded(scope, self._peers)
        is_plain = scope["scheme"] in ("http", "ws")
        # A proxy that says nothing of the scheme is taken to have ended TLS.
        is_named = is_proxy and "x-forwarded-proto" in Headers(scope=scope)
        if is_plain and not self._is_insecure and (is_named or not (is_proxy or is_loopback(host))):
            await _refuse(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _forwarded(scope: Scope, peers: Peers) -> Scope:
    """The scope with the client and scheme that a proxy names."""
    headers = Headers(scope=scope)
    changed = dict(scope)
    proto = headers.get("x-forwarded-proto", "").split(",")[-1].strip().lower()
    if proto in ("http", "https"):
        is_socket = scope["type"] == "websocket"
        changed["scheme"] = {"http": "ws", "https": "wss"}[proto] if is_socket else proto
    hops = ",".join(headers.getlist("x-forwarded-for")).split(",")[-_HOPS_MAX:]
    for hop in reversed([hop.strip().strip('"') for hop in hops]):
        client = address_in(hop)
        if client is None:  # the addresses before it come from an unknown writer
            break
        changed["client"] = (client, 0)
        if client not in peers:
            break
    return changed


def address_in(hop: str) -> str | None:
    """The address in a member of X-Forwarded-For, which may have a port."""
    for text in (hop, hop.rsplit(":", 1)[0].strip("[]")):
        try:
            return str(ipaddress.ip_address(text))
        except ValueError:
            continue
    return None


def is_loopback(host: str) -> bool:
    """Whether an address or name is this machine's loopback."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    answer = error_answer(
        403,
        "Insecure",
        "The request came unencrypted, so others can read its token.",
        "Use the https:// address and a new token, since others may have read this token.",
    )
    await answer(scope, receive, send)
