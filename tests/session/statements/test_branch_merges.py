"""CALL sys.merge_branch: the rows that only one branch has are added to another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_magics import Session
from paimon_magics.errors import (
    InvalidTableError,
    InvalidValueError,
    PaimonMagicsError,
    UnknownNameError,
    UnsupportedStatementError,
)
from tests.oracle.java_reader import JavaPaimon
from tests.session.rows import rows
from tests.session.statements.procedure_tables import check_refused, java_rows

pytestmark = pytest.mark.spark

MERGE = "CALL sys.merge_branch(table => 'events', source_branch => 'dev')"


@pytest.fixture
def events(session: Session) -> Session:
    session.run(
        "CREATE TABLE events (k INT, day STRING) PARTITIONED BY (day);"
        "INSERT INTO events VALUES (1, 'a'); INSERT INTO events VALUES (2, 'b');"
        "CALL sys.create_tag('events', 'two'); CALL sys.create_branch('events', 'dev', 'two');"
        "INSERT INTO `events$branch_dev` VALUES (3, 'a'), (4, 'c')"
    )
    return session


def keys(session: Session, table: str = "events") -> list[int]:
    return [key for (key,) in rows(session, f"SELECT k FROM `{table}` ORDER BY k")]


def test_rows_of_a_branch_are_added_once_and_read_by_java(
    events: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    events.run("INSERT INTO events VALUES (9, 'b')")
    assert "would add 2 rows of 2 files" in events.run(MERGE, dry_run=True).message
    outcome = events.run(MERGE)
    assert outcome.to_arrow().to_pylist() == [{"result": True}]
    assert (outcome.snapshot_id, outcome.commit_kind) == (4, "APPEND")
    assert keys(events) == [1, 2, 3, 4, 9]
    assert java_rows(java_paimon, warehouse, "default.events") == [
        (1, "a"),
        (2, "b"),
        (3, "a"),
        (4, "c"),
        (9, "b"),
    ]
    outcome = events.run(MERGE)
    assert (outcome.snapshot_id, outcome.message) == (
        None,
        "`default.events` has all rows of the branch `dev`.",
    )
    events.run("INSERT INTO `events$branch_dev` VALUES (5, 'a')")
    events.run(MERGE)
    assert keys(events) == [1, 2, 3, 4, 5, 9]


def test_branch_is_merged_into_another_branch(events: Session) -> None:
    events.run(
        "CALL sys.create_branch('events', 'other', 'two');"
        "CALL sys.merge_branch('events', 'dev', 'other')"
    )
    assert keys(events, "events$branch_other") == [1, 2, 3, 4]
    assert keys(events) == [1, 2]
    events.run("CALL sys.merge_branch('events', 'main', 'dev')")
    assert keys(events, "events$branch_dev") == [1, 2, 3, 4]


def test_merged_rows_survive_the_removal_of_their_branch(events: Session) -> None:
    events.run(MERGE)
    events.run("CALL sys.delete_branch('events', 'dev'); CALL sys.compact('events')", confirm=True)
    assert keys(events) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("before", "call", "error", "message"),
    [
        ("SELECT 1", "'events', 'dve'", UnknownNameError, "no branch `dve`"),
        ("SELECT 1", "'events', 'dev', 'dve'", UnknownNameError, "no branch `dve`"),
        ("SELECT 1", "'events', 'dev', 'dev'", InvalidValueError, "into itself"),
        ("SELECT 1", "'events', ' '", InvalidValueError, "must be names"),
        ("SELECT 1", "'events$branch_dev', 'dev'", InvalidTableError, "is a branch"),
        ("SELECT 1", "'event', 'dev'", UnknownNameError, "no table `event`"),
        (
            "INSERT OVERWRITE `events$branch_dev` VALUES (5, 'a')",
            "'events', 'dev'",
            InvalidTableError,
            "snapshot 4 is of the kind OVERWRITE",
        ),
        (
            "DELETE FROM events WHERE k = 1",
            "'events', 'dev'",
            InvalidTableError,
            "`default.events` can't be merged: its snapshot 3",
        ),
        (
            "ALTER TABLE events ADD COLUMN more INT",
            "'events', 'dev'",
            InvalidTableError,
            "columns of .* differ",
        ),
        (
            "CREATE TABLE keyed (k INT NOT NULL) TBLPROPERTIES ('primary-key'='k', 'bucket'='1');"
            "INSERT INTO keyed VALUES (1); CALL sys.create_branch('keyed', 'dev')",
            "'keyed', 'dev'",
            UnsupportedStatementError,
            "has a primary key",
        ),
        (
            "CREATE TABLE empty (k INT); CALL sys.create_branch('empty', 'dev')",
            "'empty', 'dev'",
            InvalidTableError,
            "has no snapshot",
        ),
    ],
)
def test_branch_that_can_t_be_merged_is_refused_and_nothing_is_written(
    events: Session, before: str, call: str, error: type[PaimonMagicsError], message: str
) -> None:
    events.run(before, confirm=True)
    snapshots = rows(events, "SELECT count(*) FROM events$snapshots")
    check_refused(events, f"merge_branch({call})", error, message)
    assert rows(events, "SELECT count(*) FROM events$snapshots") == snapshots
