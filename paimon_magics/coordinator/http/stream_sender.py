"""Who sends the messages of a stream, asked again while it goes on."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from starlette.requests import HTTPConnection
from starlette.types import Message, Receive

from paimon_magics.coordinator.protocol.principals import Principal

__all__ = ["UNAUTHORISED", "StreamSender"]

UNAUTHORISED = 4401
"""The code that a stream is closed with whose sender is not known, or not any more."""

_AGAIN_SECONDS = 5.0  # how long what a stream's token allows is taken as said


@dataclass(slots=True)
class StreamSender:
    """The sender of a WebSocket's messages. A stream may outlive its token: who it is, and what
    they may, is asked again every few seconds. When that has changed, no message is taken any more;
    those that were are answered."""

    ask: Callable[[HTTPConnection], Awaitable[Principal | None]]
    connection: HTTPConnection
    principal: Principal
    arriving: Receive
    has_ended: bool = False
    asked_at: float = field(default_factory=time.monotonic)

    async def receive(self) -> Message:
        """The next message; the end of the connection where its sender may send no more."""
        message = await self.arriving()
        if message["type"] == "websocket.receive" and (
            self.has_ended or time.monotonic() - self.asked_at > _AGAIN_SECONDS
        ):
            self.has_ended = self.has_ended or not await self._is_the_same()
            self.asked_at = time.monotonic()
        if self.has_ended:
            return {"type": "websocket.disconnect", "code": UNAUTHORISED}
        return message

    async def _is_the_same(self) -> bool:
        try:
            return await self.ask(self.connection) == self.principal
        except Exception:  # it can't be found out now
            return False
