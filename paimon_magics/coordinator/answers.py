"""Errors as a coordinator answers them, in one form for every client."""

from __future__ import annotations

from starlette.responses import JSONResponse

from paimon_magics.errors import SetupError

__all__ = ["StoppedError", "error_answer"]


class StoppedError(SetupError):
    """The coordinator answers nothing any more, until it is started again."""


def error_answer(status: int, kind: str, message: str, hint: str) -> JSONResponse:
    """An error as JSON: as our own client reads it, and as clients of Paimon's REST catalog do."""
    return JSONResponse(
        {
            "error": {"type": kind, "message": message, "hint": hint},
            "message": f"{message} {hint}".rstrip(),
            "code": status,
            "resourceType": None,
            "resourceName": None,
        },
        status_code=status,
    )
