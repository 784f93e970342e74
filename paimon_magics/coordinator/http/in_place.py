"""Requests to a coordinator whose warehouse is not in its place."""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from paimon_magics.coordinator.http.answers import error_answer
from paimon_magics.errors import PaimonMagicsError

__all__ = ["WhileInPlace"]


class WhileInPlace:
    """Answers requests below a path only while `misplaced` returns no error: what a warehouse seems
    to hold that is gone is not true."""

    def __init__(
        self, app: ASGIApp, path: str, misplaced: Callable[[], PaimonMagicsError | None]
    ) -> None:
        self._app = app
        self._path = path
        self._misplaced = misplaced

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass it on."""
        app, error = self._app, self._misplaced()
        if error is not None and scope["type"] == "http" and scope["path"].startswith(self._path):
            app = error_answer(503, type(error).__name__, error.message, error.hint)
        await app(scope, receive, send)
