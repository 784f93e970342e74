"""What tests of procedures begin with, and look at: a table of three snapshots, its rows as Java
reads them, and calls that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_magics import Session
from paimon_magics.errors import PaimonMagicsError
from tests.oracle.java_reader import JavaPaimon

__all__ = ["check_refused", "events", "java_rows"]


@pytest.fixture
def events(session: Session) -> Session:
    """A session with the table `events`: two partitions, three snapshots with a row each."""
    session.run(
        "CREATE TABLE events (k INT, v STRING, day STRING) PARTITIONED BY (day);"
        "INSERT INTO events VALUES (1, 'a', 'mon'); INSERT INTO events VALUES (2, 'b', 'tue');"
        "INSERT INTO events VALUES (3, 'c', 'mon')"
    )
    return session


def java_rows(java: JavaPaimon, warehouse: Path, table: str) -> list[tuple[object, ...]]:
    """The sorted rows of a table, by its full name, as Java reads them without a cache."""
    fresh = {"warehouse": str(warehouse), "cache-enabled": "false"}
    return sorted(java.rows(fresh, table))


def check_refused(
    session: Session, call: str, error: type[PaimonMagicsError], message: str
) -> PaimonMagicsError:
    """Check that `CALL sys.…` raises the error with a next step; return it."""
    with pytest.raises(error, match=message) as refusal:
        session.run(f"CALL sys.{call}")
    assert refusal.value.hint, refusal.value.message
    return refusal.value
