"""Tokens over HTTP, for administrators: made, listed, revoked.

`POST /v1/tokens` with `{name, allow, expires_in_ms?}` answers `{token, …}`, the only time that the
token's text is shown. `GET /v1/tokens` lists them, and `DELETE /v1/tokens/ID` ends one, or all
those of a name; `POST /v1/tokens/ID/renew` with `{expires_in_ms?}` gives them another end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from paimon_magics.coordinator.http.audited import tell
from paimon_magics.coordinator.http.bodies import json_body
from paimon_magics.coordinator.http.threads import run_in_threadpool
from paimon_magics.coordinator.http.tokens import Tokens
from paimon_magics.coordinator.protocol.members import member
from paimon_magics.coordinator.store.tokens import StoredToken

__all__ = ["token_document", "token_routes"]


def token_routes(tokens: Tokens) -> list[Route]:
    """The routes that make, list and revoke tokens."""

    async def add(request: Request) -> Response:
        body = await json_body(request)
        name = str(member(body, "name", str))
        allows = [str(one) for one in member(body, "allow", Sequence)]
        tell(request.scope, detail=f"`{name}` may {', '.join(allows)}")
        text, stored = await run_in_threadpool(tokens.add, name, allows, _expires_in_ms(body))
        answer = JSONResponse({"token": text, **token_document(stored)})
        answer.headers["cache-control"] = "no-store"
        return answer

    async def show(_: Request) -> Response:
        found = await run_in_threadpool(tokens.all)
        return JSONResponse({"tokens": [token_document(one) for one in found]})

    async def revoke(request: Request) -> Response:
        found = await run_in_threadpool(tokens.revoke, str(request.path_params["id"]))
        tell(request.scope, detail=_named(found))
        return JSONResponse({"revoked": [token_document(one) for one in found]})

    async def renew(request: Request) -> Response:
        expires_in_ms = _expires_in_ms(await json_body(request))
        found = await run_in_threadpool(tokens.renew, str(request.path_params["id"]), expires_in_ms)
        tell(request.scope, detail=_named(found))
        return JSONResponse({"renewed": [token_document(one) for one in found]})

    return [
        Route("/v1/tokens", add, methods=["POST"]),
        Route("/v1/tokens", show),
        Route("/v1/tokens/{id}", revoke, methods=["DELETE"]),
        Route("/v1/tokens/{id}/renew", renew, methods=["POST"]),
    ]


def _named(tokens: Sequence[StoredToken]) -> str:
    """Tokens for the audit log, which has no secrets."""
    return ", ".join(f"`{one.name}` (token {one.id})" for one in tokens)


def _expires_in_ms(body: dict[str, Any]) -> int | None:
    given = body.get("expires_in_ms")
    return None if given is None else int(member(body, "expires_in_ms", int))


def token_document(token: StoredToken) -> dict[str, Any]:
    """What administrators see of a token."""
    return {
        "id": token.id,
        "name": token.name,
        "allow": list(token.allows),
        "created_at_ms": token.created_at_ms,
        "expires_at_ms": token.expires_at_ms or None,
        "revoked_at_ms": token.revoked_at_ms or None,
    }
