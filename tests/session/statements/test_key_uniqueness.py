"""A primary key without a partition column is unique in a partition only, unless keys can move."""

from __future__ import annotations

import pytest

from paimon_magics import Session
from tests.session.rows import rows

pytestmark = pytest.mark.spark

UNIQUE = "unique in its partition only"


@pytest.mark.parametrize("bucket", ["2", "-2"])
@pytest.mark.parametrize("query", ["", " AS SELECT 1 AS id, 'x' AS p"])
def test_create_table_notes_a_key_that_is_unique_per_partition(
    session: Session, bucket: str, query: str
) -> None:
    columns = "" if query else " (id INT, p STRING)"
    outcome = session.run(
        f"CREATE TABLE t{columns} PARTITIONED BY (p) "
        f"TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '{bucket}'){query}"
    )
    (note,) = (note for note in outcome.notes if UNIQUE in note)
    assert "lacks `p`" in note and f"'bucket' is {bucket}" in note
    session.run("INSERT INTO t VALUES (1, 'x'), (1, 'y')")
    assert rows(session, "SELECT id, p FROM t ORDER BY p") == [(1, "x"), (1, "y")]


def test_frame_that_creates_such_a_table_gets_the_note(session: Session) -> None:
    frame = [{"id": 1, "p": "x"}, {"id": 1, "p": "y"}]
    keys = {"primary_key": "id", "partition_by": "p"}
    outcome = session.write(frame, "t", create=True, options={"bucket": "1"}, **keys)
    assert UNIQUE in " ".join(outcome.notes)
    moving = session.write(frame, "u", create=True, **keys)
    assert UNIQUE not in " ".join(moving.notes)
    assert len(rows(session, "SELECT * FROM t")) == 2
    assert len(rows(session, "SELECT * FROM u")) == 1


@pytest.mark.parametrize(
    "options", ["'primary-key' = 'id'", "'primary-key' = 'id,p', 'bucket' = '2'"]
)
def test_key_that_is_unique_in_the_table_gets_no_note(session: Session, options: str) -> None:
    outcome = session.run(
        f"CREATE TABLE t (id INT, p STRING) PARTITIONED BY (p) TBLPROPERTIES ({options})"
    )
    assert UNIQUE not in " ".join(outcome.notes)
