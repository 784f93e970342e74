"""A client of the library OpenDAL, for stores that obstore does not know.

Listings of the library hold the interpreter's lock while they wait for an answer, in its calls that
block. They are made by its other calls, on an event loop in a thread of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
import shutil
import threading
from collections.abc import Coroutine, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from paimon_magics.tables.stores.object_client import (
    PART_BYTES,
    PARTS_AT_ONCE,
    NeverSentError,
    ObjectExistsError,
)

_ROWS_OF_A_PAGE = 1000
_ANSWER = re.compile(r"status: (\d+)")
_REASON = re.compile(r'code: "(\w*)", message: "(.*?)", request_id')
_T = TypeVar("_T")


class OpendalClient:
    """See `ObjectClient`. `service` and `config` are those of an operator; `timeout` is for one
    request, and failed ones are repeated `max_retries` times."""

    lists_in_order = True

    def __init__(
        self,
        service: str,
        config: dict[str, str],
        *,
        timeout: timedelta,
        max_retries: int,
        retry_timeout: timedelta,
    ) -> None:
        from opendal import Operator
        from opendal.layers import RetryLayer, TimeoutLayer

        seconds = timeout.total_seconds()
        timeouts = TimeoutLayer(timeout=seconds, io_timeout=seconds)
        self._operator = Operator(service, **config).layer(timeouts)
        if max_retries:
            longest = retry_timeout.total_seconds() / (max_retries + 1)
            self._operator = self._operator.layer(
                RetryLayer(max_times=max_retries, jitter=True, min_delay=0.05, max_delay=longest)
            )

    def put(self, key: str, content: bytes) -> None:
        """See `ObjectClient.put`."""
        with _failures():
            self._operator.write(key, content)

    def put_new(self, key: str, content: bytes, mark: tuple[str, str]) -> None:
        """See `ObjectClient.put_new`."""
        with _failures():
            self._operator.write(key, content, if_not_exists=True, user_metadata=dict([mark]))

    def put_file(self, key: str, file: Path) -> None:
        """See `ObjectClient.put_file`."""
        with _failures(), file.open("rb") as source:
            target = self._operator.open(key, "wb", chunk=PART_BYTES, concurrent=PARTS_AT_ONCE)
            shutil.copyfileobj(source, target, PART_BYTES)
            target.close()  # not after a failure: closing creates the object

    def get(self, key: str) -> bytes:
        """See `ObjectClient.get`."""
        with _failures():
            return bytes(self._operator.read(key))

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """See `ObjectClient.get_range`."""
        with _failures():
            return bytes(self._operator.read(key, offset=start, size=end - start))

    def mark(self, key: str, name: str) -> str:
        """See `ObjectClient.mark`."""
        with _failures():
            return str((self._operator.stat(key).user_metadata or {}).get(name, ""))

    def head(self, key: str) -> tuple[int, int]:
        """See `ObjectClient.head`."""
        with _failures():
            status = self._operator.stat(key)
        assert status.last_modified is not None, key
        return status.content_length, int(status.last_modified.timestamp() * 1000)

    def pages(
        self, folder: str, *, after: str | None = None, rows: int | None = None
    ) -> Iterator[list[str]]:
        """See `ObjectClient.pages`."""
        options: dict[str, Any] = {"recursive": True, "limit": rows or _ROWS_OF_A_PAGE}
        if after is not None:
            options["start_after"] = after
        with _failures():
            entries = _waited(self._lister(folder, options))
        while True:
            with _failures():
                page = _waited(_next(entries, options["limit"]))
            if not page:
                return
            yield [entry.path for entry in page]

    def statuses(self, folder: str) -> Iterator[list[tuple[str, int, int]]]:
        """See `ObjectClient.statuses`. A listing may not say when an object was written; then it is
        asked for."""
        for page in self.pages(folder):
            yield [(key, *self.head(key)) for key in page if not key.endswith("/")]

    def level(self, folder: str) -> tuple[list[str], list[tuple[str, int]]]:
        """See `ObjectClient.level`."""

        async def listed() -> list[Any]:
            return [entry async for entry in await self._lister(folder, {})]

        with _failures():
            entries = _waited(listed())
        below = [entry for entry in entries if entry.path != _prefix(folder)]
        return (
            [entry.path.rstrip("/") for entry in below if entry.metadata.is_dir],
            [(file.path, file.metadata.content_length) for file in below if file.metadata.is_file],
        )

    async def _lister(self, folder: str, options: dict[str, Any]) -> Any:
        return await self._operator.to_async_operator().list(_prefix(folder), **options)

    def delete(self, keys: Sequence[str]) -> None:
        """See `ObjectClient.delete`; a missing object is none to delete."""
        with _failures():
            for key in keys:
                self._operator.delete(key)

    def copy(self, source: str, target: str) -> None:
        """See `ObjectClient.copy`."""
        with _failures():
            self._operator.copy(source, target)


def _prefix(folder: str) -> str:
    return f"{folder.strip('/')}/".lstrip("/")


async def _next(entries: Any, count: int) -> list[Any]:
    """So many entries more; fewer at the end."""
    page: list[Any] = []
    async for entry in entries:
        page.append(entry)
        if len(page) == count:
            break
    return page


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="paimon-magics-listings", daemon=True).start()
    return loop


if hasattr(os, "register_at_fork"):  # a child of this process has none of its threads
    os.register_at_fork(after_in_child=_loop.cache_clear)


def _waited(work: Coroutine[Any, Any, _T]) -> _T:
    return asyncio.run_coroutine_threadsafe(work, _loop()).result()


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    """Raise the library's exceptions of the body as those of `ObjectClient`."""
    from opendal import exceptions

    try:
        yield
    except (exceptions.ConditionNotMatch, exceptions.AlreadyExists) as error:
        raise ObjectExistsError(_failure_text(error)) from error
    except exceptions.NotFound as error:
        raise FileNotFoundError(_failure_text(error)) from error
    except (exceptions.PermissionDenied, exceptions.ConfigInvalid) as error:
        raise PermissionError(_failure_text(error)) from error
    except Exception as error:
        if type(error).__module__ != exceptions.__name__:  # its classes have no common base
            raise
        text = str(error)
        if "signing credential" in text:
            raise PermissionError("no credentials were found") from error
        if "client error (Connect)" in text:
            raise NeverSentError("it can't be reached") from error
        raise OSError(_failure_text(error)) from error


def _failure_text(error: Exception) -> str:
    """The store's answer, or the first line of the library's message."""
    text = str(error)
    status, reason = _ANSWER.search(text), _REASON.search(text)
    if reason is not None and reason[1]:
        return f"{status[1] if status else ''} ({reason[1]}: {reason[2]})".strip()
    return f"status {status[1]}" if status is not None else text.splitlines()[0]
