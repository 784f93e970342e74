"""The request that a thread or task works on, for the lines that it logs."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

HEADER = b"x-request-id"
"""The header by which a client names its request, and an answer repeats the name."""

_ID = re.compile(rb"[\w.:-]{1,64}")


@dataclass(frozen=True, slots=True)
class RequestId:
    """The id of a request, and the table that its path names, "" for none. Work that no request
    has asked for has a table alone.
    """

    id: str
    table: str = ""


CURRENT: ContextVar[RequestId | None] = ContextVar("paimon_magics_request", default=None)
"""The request that is being answered; threads that work for it inherit it."""


@contextmanager
def about(table: object) -> Iterator[None]:
    """Have lines that are logged in the `with` block name this table, and the request if any."""
    current = CURRENT.get()
    token = CURRENT.set(RequestId(current.id if current else "", str(table)))
    try:
        yield
    finally:
        CURRENT.reset(token)


def request_id(wanted: bytes | None) -> str:
    """The id that a client has given its request if it is a plain word, else a new one."""
    if wanted is not None and _ID.fullmatch(wanted):
        return wanted.decode()
    return secrets.token_hex(8)
