"""Runs queries both ways: read in this process, or by Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from paimon_magics import Session


@contextmanager
def settings(session: Session, **changes: object) -> Iterator[None]:
    """The session has other settings in the body, and forgets the reads that it keeps."""
    connection = session._connection
    before = connection.settings
    session._connection = replace(connection, settings=before.with_changes(changes))
    _forget(session)
    try:
        yield
    finally:
        session._connection = connection
        _forget(session)


def _forget(session: Session) -> None:
    session._connection.plans.clear_reads()
    session._connection.views._kept.clear()
