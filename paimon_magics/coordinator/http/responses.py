"""Answers with texts that may have been read from a store.

In Python the name of a file that is not UTF-8 has halves of surrogate pairs, which no encoder
takes. They become `?`, so that one such file fails no answer about others.
"""

from __future__ import annotations

import json
from typing import Any

from starlette import responses

__all__ = ["HTMLResponse", "JSONResponse"]


class JSONResponse(responses.JSONResponse):
    """Starlette's, for any text."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8", "replace")


class HTMLResponse(responses.HTMLResponse):
    """Starlette's, for any text."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return str(content).encode("utf-8", "replace")
