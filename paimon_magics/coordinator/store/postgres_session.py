"""A session with a PostgreSQL server, in which nothing waits for longer than a deadline.

libpq's own limits notice a server that is gone. One that stands still (its processes are stopped,
its disk does not answer) keeps its connections: so each wait has a deadline here, after which the
connection is closed. What it was doing there ends before another session gets the owner's lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from concurrent.futures import Future
from typing import Any

import psycopg

__all__ = ["Session", "connected"]

CONNECT_SECONDS = 2  # the shortest that libpq knows; there may be several hosts
_OPTIONS: dict[str, Any] = {
    "connect_timeout": CONNECT_SECONDS,
    # Both ends close a silent connection.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
    # Of several hosts, choose the one that takes writes.
    "target_session_attrs": "read-write",
}


class Session(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose statements raise psycopg.OperationalError when `deadline`, in the time of
    time.monotonic, has passed. It must be closed then."""

    deadline = float("inf")

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        """See `psycopg.Connection.wait`."""
        return super().wait(_until(gen, self.deadline), *args, **kwargs)


def connected(address: str, application: str, deadline: float) -> Session:
    """Connect to a server until a deadline. Raises psycopg's errors."""
    answer: Future[Session] = Future()

    def connect() -> None:
        try:
            session = Session.connect(
                address, autocommit=True, application_name=application, **_OPTIONS
            )
        except BaseException as error:
            answer.set_exception(error)
        else:
            answer.set_result(session)

    # In a thread, since nothing ends the look-up of a host's name.
    threading.Thread(target=connect, name="postgres-connect", daemon=True).start()
    try:
        session = answer.result(max(0.0, deadline - time.monotonic()))
    except TimeoutError as error:
        answer.add_done_callback(_close)
        raise psycopg.OperationalError("the server does not answer") from error
    session.deadline = deadline
    return session


def _close(answer: Future[Session]) -> None:
    if answer.exception() is None:
        answer.result().close()


def _until(gen: Generator[Any, Any, Any], deadline: float) -> Generator[Any, Any, Any]:
    """The same steps, as long as the deadline has not passed. The wait comes back ten times a
    second at least."""
    try:
        step = next(gen)
        while True:
            ready = yield step
            if time.monotonic() > deadline:
                raise psycopg.OperationalError("the server does not answer")
            step = gen.send(ready)
    except StopIteration as end:
        return end.value
