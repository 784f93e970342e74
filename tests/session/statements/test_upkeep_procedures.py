"""CALL of the procedures for consumers, automatic tags, done partitions, and where the history
begins, as statements of a session."""

from __future__ import annotations

import datetime
import json
import shutil
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
from tests.session.rows import rows
from tests.session.statements.procedure_tables import check_refused, events

__all__ = ["events"]  # a fixture

pytestmark = pytest.mark.spark


def consumers(session: Session) -> list[tuple[object, ...]]:
    return rows(session, "SELECT * FROM events$consumers ORDER BY consumer_id")


def test_consumer_is_set_to_a_snapshot_and_forgotten(events: Session) -> None:
    assert rows(events, "CALL sys.reset_consumer('events', 'c1', 2)") == [(True,)]
    events.run("CALL sys.reset_consumer(table => 'events', consumerId => 'c2', nextSnapshotId=>3)")
    assert consumers(events) == [("c1", 2), ("c2", 3)]
    outcome = events.run("CALL sys.reset_consumer('events', 'c1')")
    assert outcome.message == (
        "Consumer `c1` of `default.events` forgotten: it keeps no snapshots any more."
    )
    assert consumers(events) == [("c2", 3)]
    outcome = events.run("CALL sys.reset_consumer('events', 'nobody')")
    assert "no consumer `nobody`" in outcome.message


def test_consumer_goes_to_no_snapshot_that_is_missing(events: Session) -> None:
    with pytest.raises(UnknownNameError, match=r"snapshot 99: .* \(it has 1 to 3\)"):
        events.run("CALL sys.reset_consumer('events', 'c1', 99)")
    assert consumers(events) == []


def test_consumers_are_cleared_by_regular_expressions(events: Session) -> None:
    for name in ("a1", "a2", "b"):
        events.run("CALL sys.reset_consumer('events', :name, 1)", {"name": name})
    outcome = events.run(
        "CALL sys.clear_consumers(table => 'events', includingConsumers => 'a.*', "
        "excludingConsumers => 'a2')"
    )
    assert outcome.message == "Consumers of `default.events` forgotten: `a1`."
    assert consumers(events) == [("a2", 1), ("b", 1)]
    events.run("CALL sys.clear_consumers('events', ' ', '')")
    assert consumers(events) == []


def test_done_partition_has_a_success_file_with_the_time_of_its_first_mark(
    session: Session, warehouse: Path
) -> None:
    session.run(
        "CREATE TABLE visits (k INT, site STRING, hour INT) PARTITIONED BY (site, hour);"
        "INSERT INTO visits VALUES (1, 'a/b', 1)"
    )
    call = "CALL sys.mark_partition_done('visits', 'site=a/b,hour=1; hour=2,site=c')"
    outcome = session.run(call)
    assert outcome.to_pylist() == [{"result": True}]
    (note,) = outcome.notes
    assert note.startswith("`default.visits` has no rows of `site=c/hour=2`. ")
    assert session.run("CALL sys.mark_partition_done('visits', 'site=a/b')").notes == ()
    mark = warehouse / "default.db/visits/site=a%2Fb/hour=1/_SUCCESS"
    first = json.loads(mark.read_text())
    assert first["creationTime"] == first["modificationTime"]
    session.run(call)
    again = json.loads(mark.read_text())
    assert again["creationTime"] == first["creationTime"] < again["modificationTime"]
    assert (warehouse / "default.db/visits/site=c/hour=2/_SUCCESS").exists()
    session.run("CALL sys.mark_partition_done('visits', 'site=c')")
    assert (warehouse / "default.db/visits/site=c/_SUCCESS").exists()
    assert rows(session, "SELECT k FROM visits") == [(1,)]


def test_the_end_of_a_write_marks_its_partitions_as_done(session: Session, warehouse: Path) -> None:
    # Paimon's `SparkWriteITCase.testMarkDone`, and what its `WriteHelper` does with each write.
    session.run(
        "CREATE TABLE t (a INT, b INT, c STRING) PARTITIONED BY (c) TBLPROPERTIES ("
        "'partition.end-input-to-done' = 'true', 'partition.mark-done-action' = 'success-file');"
    )
    outcome = session.run("INSERT INTO t VALUES (1, 1, 'aa'), (2, 2, NULL)")
    assert outcome.notes == ()
    folder = warehouse / "default.db/t"

    def marks() -> dict[str, int]:
        texts = {mark.parent.name: mark.read_text() for mark in folder.glob("c=*/_SUCCESS")}
        return {name: json.loads(text)["modificationTime"] for name, text in texts.items()}

    first = marks()
    assert set(first) == {"c=aa", "c=__DEFAULT_PARTITION__"}
    session.run("INSERT INTO t VALUES (3, 3, 'b/b')")
    assert marks() == {**first, "c=b%2Fb": marks()["c=b%2Fb"]}
    session.run("CALL sys.compact('t')")
    assert marks()["c=aa"] == first["c=aa"]  # it changes no rows
    session.run("DELETE FROM t WHERE c = 'aa'")
    session.run("CREATE TABLE whole (a INT) TBLPROPERTIES ('partition.end-input-to-done' = 'true')")
    session.run("INSERT INTO whole VALUES (1)")
    assert rows(session, "SELECT a FROM t ORDER BY a") == [(2,), (3,)]


@pytest.mark.parametrize(
    "action", ["done-partition", "success-file,mark-event", "http-report", "custom", "none"]
)
def test_writes_refuse_actions_on_done_partitions_that_are_not_offered(
    session: Session, action: str
) -> None:
    session.run(
        "CREATE TABLE t (a INT, c STRING) PARTITIONED BY (c) TBLPROPERTIES ("
        f"'partition.end-input-to-done' = 'true', 'partition.mark-done-action' = '{action}')"
    )
    for statement in ("INSERT INTO t VALUES (1, 'x')", "INSERT OVERWRITE t VALUES (1, 'x')"):
        with pytest.raises(PaimonMagicsError, match=r"partition\.mark-done-action"):
            session.run(statement)
    session.run("ALTER TABLE t SET TBLPROPERTIES ('partition.end-input-to-done' = 'false')")
    outcome = session.run("INSERT INTO t VALUES (1, 'x')")
    assert any("partition.mark-done-action" in note for note in outcome.notes)


def test_mark_of_a_day_is_in_the_folder_of_its_rows(session: Session, warehouse: Path) -> None:
    session.run(
        "CREATE TABLE days (k INT, day DATE) PARTITIONED BY (day);"
        "INSERT INTO days VALUES (1, DATE '2026-01-31');"
        "CALL sys.mark_partition_done('days', 'day=2026-01-31')"
    )
    unknown = session.run("CALL sys.mark_partition_done('days', 'day=2011-11-20')")
    assert "no rows of `day=" in unknown.notes[0]
    shutil.rmtree(warehouse / "default.db/days" / unknown.notes[0].split("`")[3])
    assert session.run("CALL sys.mark_partition_done('days', 'day=2026-01-31')").notes == ()
    folders = [path.name for path in (warehouse / "default.db/days").iterdir() if "=" in path.name]
    assert len(folders) == 1
    assert (warehouse / "default.db/days" / folders[0] / "_SUCCESS").exists()


@pytest.mark.parametrize(
    ("partitions", "error", "message"),
    [
        ("hours=1,site=a", UnknownNameError, "`hours` is not a partition column"),
        ("hour=1", InvalidValueError, "no value for `site`"),
        ("site=a,hour=one", InvalidValueError, "`hour` of `default.visits` can't be 'one'"),
        ("site", InvalidValueError, "'site' names no partition"),
        ("site=", InvalidValueError, "names no partition"),
        ("site=a,site=b", InvalidValueError, "two values for `site`"),
        ("site=a,hour=1;nope=1", UnknownNameError, "`nope`"),
        (" ; ", InvalidValueError, "names no partition"),
    ],
)
def test_mistaken_partition_is_named_and_none_is_marked(
    session: Session,
    warehouse: Path,
    partitions: str,
    error: type[PaimonMagicsError],
    message: str,
) -> None:
    session.run("CREATE TABLE visits (k INT, site STRING, hour INT) PARTITIONED BY (site, hour)")
    with pytest.raises(error, match=message) as caught:
        session.run(
            "CALL sys.mark_partition_done('visits', :partitions)", {"partitions": partitions}
        )
    assert caught.value.hint
    assert not list((warehouse / "default.db/visits").rglob("_SUCCESS"))


def test_action_of_a_metastore_is_refused_and_nothing_is_marked(
    session: Session, warehouse: Path
) -> None:
    session.run(
        "CREATE TABLE visits (k INT, site STRING) PARTITIONED BY (site) TBLPROPERTIES "
        "('partition.mark-done-action' = 'success-file,done-partition')"
    )
    with pytest.raises(UnsupportedStatementError, match="this catalog has none"):
        session.run("CALL sys.mark_partition_done('visits', 'site=a')")
    assert not list((warehouse / "default.db/visits").rglob("_SUCCESS"))


def test_automatic_tag_is_named_by_the_day_before(events: Session, warehouse: Path) -> None:
    outcome = events.run("CALL sys.trigger_tag_automatic_creation('events')")
    assert "no new automatic tag" in outcome.message
    events.run(
        "ALTER TABLE events SET TBLPROPERTIES ('tag.automatic-creation' = 'process-time', "
        "'sink.process-time-zone' = 'UTC', 'tag.num-retained-max' = '90')"
    )
    assert rows(events, "CALL sys.trigger_tag_automatic_creation('events')") == [(True,)]
    first = json.loads((warehouse / "default.db/events/snapshot/snapshot-1").read_text())
    written = datetime.datetime.fromtimestamp(first["timeMillis"] / 1000, datetime.UTC)
    day = (written - datetime.timedelta(days=1)).strftime("%Y-%m-%d")
    assert rows(events, "SELECT tag_name, snapshot_id FROM events$tags") == [(day, 1)]
    events.run("CALL sys.trigger_tag_automatic_creation('events')")
    assert rows(events, "SHOW TAGS events") == [(day,)]


def test_tag_whose_time_is_over_goes_with_the_next_automatic_tags(events: Session) -> None:
    events.run(
        "CALL sys.create_tag('events', 'short', 1, '1 ms'); CALL sys.create_tag('events', 'kept')"
    )
    events.run("CALL sys.trigger_tag_automatic_creation('events')")
    assert rows(events, "SHOW TAGS events") == [("kept",)]


def test_history_begins_after_a_gap(events: Session, warehouse: Path) -> None:
    folder = warehouse / "default.db/events/snapshot"
    (folder / "snapshot-2").unlink()
    call = "CALL sys.repair_earliest_snapshot(table => 'events', snapshot_id => {})"
    with pytest.raises(InvalidTableError, match="snapshot 2 does not exist") as caught:
        events.run(call.format(1))
    assert "1, 3" in caught.value.hint
    outcome = events.run(call.format(3))
    assert outcome.to_arrow().to_pylist() == [
        {"previous_earliest_snapshot_id": 1, "current_earliest_snapshot_id": 3}
    ]
    assert (folder / "EARLIEST").read_text() == "3"
    events.run("INSERT INTO events VALUES (4, 'd', 'tue')")
    with pytest.raises(UnknownNameError, match="must be one of 3 to 4"):
        events.run(call.format(5))
    with pytest.raises(InvalidTableError, match="does not follow a gap"):
        events.run(call.format(4))


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("repair('default.events')", "nothing to repair"),
        ("create_global_index('events', 'k', 'btree')", "row ids"),
        ("refresh_object_table('events')", "Flink"),
    ],
)
def test_procedure_that_is_not_offered_gives_the_reason(
    events: Session, call: str, reason: str
) -> None:
    check_refused(events, call, UnsupportedStatementError, reason)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        ("reset_consumer('event', 'c', 1)", UnknownNameError, "no table `event`"),
        ("reset_consumer('events', 'a/b', 1)", InvalidValueError, "a/b"),
        ("reset_consumer('events', '', 1)", InvalidValueError, "consumer"),
        ("reset_consumer('events', 'c', 0)", UnknownNameError, "snapshot 0"),
        ("reset_consumer('events', 'c', 'two')", InvalidValueError, "`nextSnapshotId`"),
        ("reset_consumer('events')", InvalidValueError, "needs `consumerId`"),
        ("reset_consumer('events', consumer => 'c')", InvalidValueError, "mixed"),
        ("reset_consumer(table => 'events', consumer => 'c')", UnknownNameError, "`consumer`"),
        ("clear_consumers('events', '[')", InvalidValueError, "no pattern"),
        ("clear_consumers('events$snapshots')", PaimonMagicsError, "snapshots"),
        ("trigger_tag_automatic_creation()", InvalidValueError, "needs `table`"),
        ("trigger_tag_automatic_creation('nope.events')", UnknownNameError, "`nope`"),
        ("repair_earliest_snapshot('events', 9)", UnknownNameError, "one of 1 to 3"),
    ],
)
def test_mistaken_upkeep_is_named_with_the_next_step(
    events: Session, call: str, error: type[PaimonMagicsError], message: str
) -> None:
    check_refused(events, call, error, message)
    assert consumers(events) == []
