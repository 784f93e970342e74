"""DELETE and UPDATE on tables that take small inserts: by key in the log, else at their place."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from paimon_magics.errors import InvalidValueError, PaimonMagicsError
from tests.sampling import only_in_soak
from tests.session.rows import rows

if TYPE_CHECKING:
    from paimon_magics.session.session import Session

pytestmark = pytest.mark.spark

SLOW = "'group_commit_interval_ms' = '600000'"
KEYED = "'primary-key' = 'id', 'bucket' = '2'"


@pytest.fixture
def session(coordinated: Session) -> Session:
    return coordinated


def create(session: Session, options: str = KEYED, interval: str = SLOW, more: str = "") -> None:
    session.run(
        "DROP TABLE IF EXISTS orders; CREATE TABLE orders (id BIGINT NOT NULL, state STRING, "
        f"n INT NOT NULL{more}) TBLPROPERTIES ('auto_batch_load' = 'true', {options}, {interval})"
    )


def stored(session: Session) -> list[tuple[object, ...]]:
    return rows(session, "SELECT id, state, n FROM orders ORDER BY id")


def snapshots(session: Session) -> int:
    return len(rows(session, "SELECT snapshot_id FROM orders$snapshots"))


@pytest.mark.parametrize(
    "options", [KEYED, "'primary-key' = 'id'", f"{KEYED}, 'sequence.field' = 'n'"]
)
def test_changes_by_key_are_acknowledged_and_loaded_in_order_with_inserts(
    session: Session, options: str
) -> None:
    create(session, options)
    session.insert("orders", [(1, "a", 1), (2, "a", 1), (3, "a", 1)])
    session.flush("orders")
    outcome = session.run("DELETE FROM orders WHERE id = 1 OR id = 2")
    assert str(outcome).splitlines()[0] == (
        "DELETE `default.orders`: 2 keys acknowledged (record 2), carried out with others soon."
    )
    assert "is known when it is loaded" in outcome.notes[0]
    assert (outcome.rows_deleted, outcome.snapshot_id) == (None, None)
    session.insert("orders", [(1, "b", 2), (4, "b", 2)])
    assigned, last = ("state = 'c'", 2) if "sequence" in options else ("state = 'c', n = :n", 7)
    session.run(f"UPDATE orders SET {assigned} WHERE id = 4 AND state = 'b'", {"n": 7})
    session.delete("orders", "id = :id AND n < 5", {"id": 3})
    session.update("orders", {"state": "'never'"}, "id = 3")
    session.run("DELETE FROM orders WHERE id = 99")
    assert (len(stored(session)), snapshots(session)) == (3, 1)
    expected = [(1, "b", 2), (4, "c", last)]
    buffered = session.run("SELECT id, state, n FROM orders ORDER BY id", include_buffer=True)
    assert [tuple(each.values()) for each in buffered.to_arrow().to_pylist()] == expected
    session.flush("orders")
    assert (stored(session), snapshots(session)) == (expected, 2)


def test_visible_wait_returns_after_change_is_visible(session: Session) -> None:
    create(session)
    session.insert("orders", [(1, "a", 1), (2, "a", 1)])
    outcome = session.delete("orders", "id = 1", wait="visible")
    assert "visible in snapshot 1" in str(outcome)
    assert (outcome.snapshot_id, stored(session)) == (1, [(2, "a", 1)])
    outcome = session.run("UPDATE orders SET state = 'z' WHERE id = 2", wait="visible")
    assert (outcome.snapshot_id, stored(session)) == (2, [(2, "z", 1)])
    # A change of no row needs no snapshot.
    assert session.delete("orders", "id = 5", wait="visible").snapshot_id is None
    assert snapshots(session) == 2
    with pytest.raises(InvalidValueError, match="can't be 'seen'"):
        session.delete("orders", "id = 1", wait="seen")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("statement", "is_small"),
    [
        ("DELETE FROM orders AS o WHERE o.id = 1 AND o.state IS NOT NULL AND n >= 1", True),
        ("DELETE FROM orders WHERE id = 1 AND state LIKE 'a%'", False),
        ("DELETE FROM orders WHERE id = 1 AND n < 9999999999", False),
        ("UPDATE orders SET n = n + 1 WHERE id = 1", False),
    ],
)
def test_key_decidable_changes_go_to_log_and_others_see_its_rows(
    session: Session, statement: str, is_small: bool
) -> None:
    create(session)
    session.insert("orders", [(1, "a", 1), (2, "b", 2)])
    text = str(session.run(statement, dry_run=True))
    assert ("goes into the log of small inserts" in text) == is_small
    outcome = session.run(statement)
    assert ("acknowledged" in outcome.message) == is_small
    assert snapshots(session) == (0 if is_small else 2)
    session.flush("orders")
    assert stored(session) != [(1, "a", 1), (2, "b", 2)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (f"{KEYED}, 'ignore-delete' = 'true'", "ignores deletes"),
        (
            f"{KEYED}, 'merge-engine' = 'aggregation', 'changelog-producer' = 'lookup'",
            "merge engine aggregation, which takes no deletes",
        ),
    ],
)
def test_delete_is_refused_before_ack_if_table_takes_no_deletes(
    session: Session, options: str, said: str
) -> None:
    create(session, options)
    session.insert("orders", [(1, "a", 1)])
    with pytest.raises(PaimonMagicsError, match=said):
        session.run("DELETE FROM orders WHERE id = 1")
    assert session.flush("orders").message.startswith("All inserts of `default.orders` up to rec")
    assert stored(session) == [(1, "a", 1)]


def test_update_of_partial_update_table_keeps_other_columns(session: Session) -> None:
    engine = "'merge-engine' = 'partial-update', 'partial-update.remove-record-on-delete' = 'true'"
    create(session, f"{KEYED}, {engine}")
    session.insert("orders", [(1, "a", 1), (2, "a", 1)])
    session.run("UPDATE orders SET n = 5 WHERE id = 1; DELETE FROM orders WHERE id = 2")
    session.insert("orders", [(1, "b", 6), (2, None, 2)])
    session.run("UPDATE orders SET n = 7 WHERE id = 1 AND state = 'b'")
    session.flush("orders")
    assert (stored(session), snapshots(session)) == ([(1, "b", 7), (2, None, 2)], 1)


@pytest.mark.parametrize("bucket", only_in_soak(["2", "-1"], ["2"]))
def test_statements_keep_their_place_among_concurrent_inserts(
    session: Session, bucket: str
) -> None:
    """Each would read a snapshot that is outdated when it commits, if anything were loaded in
    between; and takes no row that was acknowledged after it has ended."""
    create(
        session, f"'primary-key' = 'id', 'bucket' = '{bucket}'", "'group_commit_interval_ms' = '20'"
    )
    done = threading.Event()
    acknowledged = [0]

    def insert() -> None:
        while not done.wait(0.002):
            number = acknowledged[0] + 1
            session.insert("orders", [(id, "s", number) for id in range(4)])
            acknowledged[0] = number

    thread = threading.Thread(target=insert)
    thread.start()
    try:
        while not stored(session):
            pass
        for statement in (
            "DELETE FROM orders WHERE id + 0 = 3",
            "UPDATE orders SET state = concat(state, 'u') WHERE id = 2",
            "MERGE INTO orders t USING (SELECT 1L AS id UNION ALL SELECT 9L) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET state = 'm' "
            "WHEN NOT MATCHED THEN INSERT (id, state, n) VALUES (s.id, 'm', 0)",
        ):
            before = acknowledged[0]
            outcome = session.run(statement)
            assert not [each for each in outcome.notes if "run again" in each]
            # What it has read has all that was acknowledged before it began.
            of_its_snapshot = rows(
                session,
                f"SELECT min(n) FROM orders VERSION AS OF {outcome.snapshot_id} WHERE id IN (0, 1)",
            )
            assert of_its_snapshot[0][0] >= before  # type: ignore[operator]
    finally:
        done.set()
        thread.join()
    session.flush("orders")
    last = acknowledged[0]
    assert stored(session) == [*((id, "s", last) for id in range(4)), (9, "m", 0)]
