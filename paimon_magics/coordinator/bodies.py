"""The body of a request: one JSON object."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request

from paimon_magics.errors import InvalidValueError

__all__ = ["json_body"]


async def json_body(request: Request) -> dict[str, Any]:
    """The object in the body. Raises InvalidValueError for anything else."""
    try:
        body = json.loads(await request.body())
    except (ValueError, RecursionError) as error:
        raise InvalidValueError("The body is not JSON.") from error
    if not isinstance(body, dict):
        raise InvalidValueError("The body must be an object.")
    return body
