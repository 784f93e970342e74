"""The body of a request: one JSON object."""

from __future__ import annotations

import json
import re
from typing import Any

from starlette.requests import Request

from paimon_magics.errors import InvalidValueError

__all__ = ["json_body", "json_value"]


_HINT = "Send a JSON object in UTF-8."
_MAY_BE_HALF = re.compile(rb"\\u[dD][89a-fA-F]")


def json_value(body: bytes) -> Any:
    """The value of a JSON text in UTF-8.

    Raises ValueError for anything else, and for texts with halves of characters, which can't be
    written to any file.
    """
    try:
        value = _DECODER.decode(body.decode())
        if _MAY_BE_HALF.search(body):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return value


async def json_body(request: Request) -> dict[str, Any]:
    """The object in the body. Raises InvalidValueError for anything else."""
    try:
        body = json_value(await request.body())
    except ValueError as error:
        raise InvalidValueError(f"The body is not JSON: {error}.", hint=_HINT) from error
    if not isinstance(body, dict):
        raise InvalidValueError("The body must be an object.", hint=_HINT)
    return body


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)  # to make one costs more than it does
