"""The body of a request: one JSON object."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from paimon_magics.coordinator.protocol.json_text import json_value
from paimon_magics.errors import InvalidValueError

__all__ = [
    "json_body",
]


_HINT = "Send a JSON object in UTF-8."


async def json_body(request: Request) -> dict[str, Any]:
    """Return the object in the body. Raises InvalidValueError for anything else."""
    try:
        body = json_value(await request.body())
    except ValueError as error:
        raise InvalidValueError(f"The body is not JSON: {error}.", hint=_HINT) from error
    if not isinstance(body, dict):
        raise InvalidValueError("The body must be a JSON object.", hint=_HINT)
    return body
