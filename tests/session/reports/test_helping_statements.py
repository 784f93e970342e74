"""Statements of findings, run by the view that shows them."""

from __future__ import annotations

import os
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import paimon_magics.tables.commits.commit
from paimon_magics import Session
from paimon_magics.session.reports.health import Helper
from paimon_widgets.health_view import HealthView
from tests.coordinator.process import wait_until
from tests.session.evidence import files
from tests.session.rows import rows

pytestmark = pytest.mark.spark


@pytest.fixture
def view(session: Session) -> HealthView:
    """The health of a table whose bucket has six sorted runs, of rows with one key each."""
    session.run(
        "CREATE TABLE t (p STRING NOT NULL, k INT NOT NULL) PARTITIONED BY (p) TBLPROPERTIES "
        "('primary-key' = 'p,k', 'bucket' = '1', 'write-only' = 'true'); CREATE TABLE a (k INT)"
    )
    for k in range(6):
        session.run(f"INSERT INTO t VALUES ('x', {k})")
    return HealthView(session.health())


def run(view: HealthView, **more: Any) -> dict[str, Any] | None:
    """Click the first finding's button, as a page that was just loaded does."""
    statement = view.first["table"]["findings"][0]["statement"]
    return view.answer({"ask": "run", "statement": statement, "turn": view.first["turn"]} | more)


def kinds(session: Session) -> list[Any]:
    sql = "SELECT commit_kind FROM t$snapshots ORDER BY snapshot_id"
    return [kind for (kind,) in rows(session, sql)]


def test_suggested_statement_runs_once_and_shows_its_result(
    session: Session, view: HealthView
) -> None:
    partition = view.answer({"ask": "partition", "partition": "p=x"})
    assert partition is not None
    (finding,) = partition["findings"]
    assert finding["statement"].endswith("partitions => 'p=x')")
    asked = {"ask": "run", "statement": finding["statement"], "turn": 0}
    answer = view.answer(asked)
    assert answer is not None
    assert "problem" not in answer and "6 files became 1 file" in answer["outcome"]
    assert view.answer(asked) is None, "a second click, which waited for the first"
    assert kinds(session) == ["APPEND"] * 6 + ["COMPACT"]
    assert [each["word"] for each in answer["table"]["findings"]] == ["good"]
    assert (answer["part"]["partition"], view.selected) == ("p=x", ("default.t", "p=x"))
    assert {row["name"]: row["files"] for row in answer["tables"]["rows"]} == {
        "default.t": 1,
        "default.a": 0,
    }
    assert view.data.column("file_count").to_pylist() == [1]
    # A page that is loaded anew begins with it.
    assert view.first["turn"] == answer["turn"] == 1
    assert view.first["table"] == answer["table"]


def test_only_offered_statements_run(session: Session, view: HealthView) -> None:
    assert run(view, statement="DROP TABLE t") is None
    assert run(view, statement="") is None
    assert run(view, turn=1) is None
    view.answer({"ask": "table", "table": 0})
    assert run(view, statement="CALL sys.compact(table => 'default.t')") is None
    assert kinds(session) == ["APPEND"] * 6


def test_failed_statement_shows_its_error_and_can_run_again(
    session: Session, view: HealthView
) -> None:
    session.run("ALTER TABLE t RENAME TO other")
    failed = run(view)
    assert failed is not None
    assert failed["problem"].startswith("UnknownNameError: ")
    assert failed["table"] == view.first["table"]
    session.run("ALTER TABLE other RENAME TO t")
    done = run(view)
    assert done is not None and "problem" not in done
    assert kinds(session)[-1] == "COMPACT"


def test_interrupted_statement_is_reported_and_leaves_nothing(
    session: Session, view: HealthView, warehouse: Path
) -> None:
    before = files(warehouse)
    committing = paimon_magics.tables.commits.commit.__file__

    def press(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename == committing:
            sys.setprofile(None)
            os.kill(os.getpid(), signal.SIGINT)

    sys.setprofile(press)
    try:
        stopped = run(view)
    finally:
        sys.setprofile(None)
    assert stopped is not None
    assert stopped["problem"].startswith("Stopped. The statement left nothing behind")
    assert files(warehouse) == before
    done = run(view)
    assert done is not None and "problem" not in done


def test_stop_request_cancels_the_running_statement(session: Session, view: HealthView) -> None:
    shown = view.health_shown
    assert shown.helper is not None

    def slow(_: str) -> Any:
        return rows(session, "SELECT sum(id % 7) FROM range(20000000000000)")

    view.health_shown = replace(shown, helper=Helper(slow, shown.helper.look))
    answers: list[dict[str, Any] | None] = []
    thread = threading.Thread(target=lambda: answers.append(run(view)))
    thread.start()
    tracker = session.spark.sparkContext.statusTracker()
    wait_until(lambda: bool(tracker.getActiveJobsIds()))
    assert view.answer({"ask": "partitions", "find": ""}), "others are answered meanwhile"
    assert view.answer({"ask": "stop"}) is None
    thread.join(30)
    (answer,) = answers
    assert answer is not None and answer["problem"].startswith("Stopped.")
    wait_until(lambda: not tracker.getActiveJobsIds())
    view.health_shown = replace(view.health_shown, helper=shown.helper)
    done = run(view)
    assert done is not None and "problem" not in done
    assert kinds(session)[-1] == "COMPACT"
