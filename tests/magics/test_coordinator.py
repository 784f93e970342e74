"""The verbs about the coordinator, run through IPython: what it is, what is open, paused, ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from IPython.core.interactiveshell import InteractiveShell

from paimon_magics.errors import CommitConflictError, SetupError, UnconfirmedError, UnknownNameError
from paimon_magics.origin import user_name
from paimon_magics.session.opening import active_session
from tests.coordinator.process import TABLE, Process, create_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("verbs")
    started = Process(folder / "warehouse", folder / "state")
    started.start()
    create_table(folder / "warehouse", "CREATE TABLE t (k INT)")
    yield started
    started.close()


@pytest.fixture
def shared(
    shell: InteractiveShell,
    spark: SparkSession,
    process: Process,
    closed_at_the_end: None,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[InteractiveShell]:
    """A shell whose connection commits through a coordinator."""
    monkeypatch.setenv("PAIMON_COORDINATOR_TOKEN", process.token())
    shell.user_ns["spark"] = spark
    shell.run_cell(f"%paimon connect coordinator={process.address} spark=spark").raise_error()
    yield shell
    process.client().administration().resume()


def said(shell: InteractiveShell, line: str) -> str:
    done = shell.run_cell(f"%paimon {line}")
    done.raise_error()
    return str(done.result)


def test_loss_is_accepted_only_with_a_confirmation(
    shared: InteractiveShell, process: Process
) -> None:
    options = "TBLPROPERTIES ('auto_batch_load' = 'true')"
    create_table(Path(process.warehouse), f"CREATE TABLE small (k INT) {options}")
    with pytest.raises(UnconfirmedError, match="are given up for good") as raised:
        said(shared, "queue small accept-loss")
    assert "%paimon queue small accept-loss --yes" in raised.value.hint
    assert "accepts inserts again" in said(shared, "queue small accept-loss --yes")


@pytest.mark.parametrize("line", ["coordinator", "coordinator status"])
def test_coordinator_verb_shows_status(
    shared: InteractiveShell, process: Process, line: str
) -> None:
    shown = said(shared, line)
    assert f"Coordinator of {process.warehouse} at {process.address}" in shown
    assert "It accepts new transactions." in shown
    assert "0 transactions are open." in shown


def test_paused_coordinator_refuses_statements_until_resumed(
    shared: InteractiveShell,
) -> None:
    assert f"paused by {user_name()} since" in said(shared, "coordinator pause")
    assert "nothing new begins" in said(shared, "coordinator")
    failed = shared.run_cell("%%paimon\nINSERT INTO t VALUES (1)").error_in_exec
    assert isinstance(failed, SetupError)
    assert f"was paused by {user_name()} at" in failed.message
    assert "accepts new transactions" in said(shared, "coordinator resume")
    shared.run_cell("%%paimon\nINSERT INTO t VALUES (1)").raise_error()


def test_open_transactions_are_listed_drained_and_ended(
    shared: InteractiveShell, process: Process, capsys: pytest.CaptureFixture[str]
) -> None:
    client = process.client()
    transaction = client.begin(TABLE, engine="spark 4.3.0")
    id = client.transactions.id_of(transaction)
    listed = said(shared, "transactions")
    assert id in listed and "default.t" in listed and "spark 4.3.0" in listed
    drained = said(shared, "coordinator drain 0.3")
    assert "Waiting for 1 pending commit" in capsys.readouterr().out
    assert "After 0.3 s 1 is still pending:" in drained
    assert f"{id} on `default.t` of {user_name()}" in drained
    assert f"Transaction {id} is ended" in said(shared, f"abort {id}")
    assert "Nothing is pending." in said(shared, "coordinator drain")
    assert isinstance(shared.run_cell(f"%paimon abort {'0' * 32}").error_in_exec, UnknownNameError)


def test_history_names_user_of_truncate(shared: InteractiveShell, process: Process) -> None:
    shared.run_cell("%%paimon\nTRUNCATE TABLE t").raise_error()
    assert f" {user_name()} " in said(shared, "history t").splitlines()[2]


def test_resume_takes_a_table_name_and_refuses_unknown_tables(
    shared: InteractiveShell, process: Process
) -> None:
    assert "Table `default.t` accepts commits again" in said(shared, "coordinator resume t")
    failed = shared.run_cell("%paimon coordinator resume nothing").error_in_exec
    assert isinstance(failed, UnknownNameError)


@pytest.mark.parametrize(
    "line", ["coordinator", "coordinator pause", "transactions", f"abort {'0' * 32}"]
)
def test_coordinator_verbs_fail_in_session_without_coordinator(
    connected: InteractiveShell, line: str
) -> None:
    connected.run_cell(
        "%paimon connect --close warehouse=warehouse coordinator=in-process spark=spark"
    ).raise_error()
    failed = connected.run_cell(f"%paimon {line}").error_in_exec
    assert isinstance(failed, SetupError)
    assert "commits in its own process" in failed.message
    assert "coordinator=embedded" in failed.hint
    assert active_session() is not None


def test_committed_transaction_can_not_be_aborted(
    shared: InteractiveShell, process: Process
) -> None:
    from paimon_magics.planning.commits.requests import Append, CommitRequest

    client = process.client()
    transaction = client.begin(TABLE)
    client.commit(CommitRequest(transaction, Append()))
    id = client.transactions.id_of(transaction)
    failed = shared.run_cell(f"%paimon abort {id}").error_in_exec
    assert isinstance(failed, CommitConflictError)
    assert "it is committed" in failed.message
