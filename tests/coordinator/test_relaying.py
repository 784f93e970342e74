"""What a client sees when the owner dies with a request that was passed on to it."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from paimon_magics.coordinator.http.relaying import Relay
from tests.backends.toxiproxy import free_port

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 20\r\n\r\n"


@contextlib.asynccontextmanager
async def passed_on(answer: bytes) -> AsyncIterator[Callable[..., Awaitable[httpx.Response]]]:
    """Ask through one that stands by, whose owner sends `answer` and dies."""

    async def owner(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(owner, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    relay = Relay(address, "", ssl.create_default_context())

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert await relay.pass_on(scope, receive, send)

    port = free_port()
    standing_by = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=port, lifespan="off", log_config=None)
    )
    serving = asyncio.ensure_future(standing_by.serve())
    try:
        while not standing_by.started:
            await asyncio.sleep(0.01)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            yield client.request
    finally:
        standing_by.should_exit = True
        await serving
        await relay.close()
        listening.close()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/tables", 503),
        ("POST", "/v1/commit", 503),
        ("POST", "/v1/databases", 502),
    ],
)
@pytest.mark.parametrize("answer", [b"", HEAD], ids=["nothing said", "head of an answer"])
def test_an_owner_that_dies_before_its_answer_is_told_of(
    method: str, path: str, status: int, answer: bytes
) -> None:
    async def ask() -> httpx.Response:
        async with passed_on(answer) as request:
            return await request(method, path)

    found = asyncio.run(ask())
    assert found.status_code == status
    assert "may have been carried out" in found.text


def test_an_answer_that_breaks_off_is_never_taken_for_whole(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def ask() -> None:
        async with passed_on(HEAD + b'{"half":') as request:
            with pytest.raises(httpx.RemoteProtocolError):
                await request("GET", "/v1/tables")

    asyncio.run(ask())
    assert "has not ended an answer" in caplog.text
    assert "Traceback" not in caplog.text
