"""What cells do after a connect that failed, or after a connection that was closed: nothing, until
somebody has said where they are meant to run. And what a connect shows of its place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from IPython.core.interactiveshell import InteractiveShell

import paimon_magics
from paimon_magics.errors import PaimonMagicsError, SetupError
from paimon_magics.session.opening import active_session, usable_session
from paimon_magics.spark.sessions import UNIX_SOCKETS
from tests.backends.s3 import Bucket, s3_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.magics.conftest import Run

pytestmark = pytest.mark.spark

# Nothing answers there: the port is reserved, and no service's.
NOWHERE = (
    "warehouse=s3://lake/w catalog.s3.endpoint=http://127.0.0.1:1 catalog.s3.region=us-east-1 "
    "catalog.s3.path-style-access=true catalog.s3.access-key=AKIAABCDEFGHIJKLMNOP "
    "catalog.s3.secret-key=only-for-me-to-know"
)
CELLS = [
    "%%paimon\nCREATE TABLE t (k INT)",
    "%%paimon --dry-run\nSELECT 1",
    "%paimon tables",
    "%paimon snapshots t",
    "%paimon coordinator",
    "%paimon queue",
]


def failure(shell: InteractiveShell, cell: str) -> PaimonMagicsError:
    failed = shell.run_cell(cell).error_in_exec
    assert isinstance(failed, PaimonMagicsError), failed
    return failed


@pytest.fixture
def disconnected(
    shell: InteractiveShell, spark: SparkSession, closed_at_the_end: None
) -> InteractiveShell:
    shell.user_ns["spark"] = spark
    return shell


def test_cells_are_refused_after_failed_connect(
    disconnected: InteractiveShell, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = disconnected
    why = failure(shell, f"%paimon connect {NOWHERE}").message
    assert "127.0.0.1:1 can't be reached" in why
    for cell in CELLS:
        refused = failure(shell, cell)
        assert "Nothing ran: the last connect to s3://lake/w failed" in refused.message
        assert why in refused.message
        assert "%paimon connect warehouse=paimon-warehouse" in refused.hint
    assert isinstance(shell.run_cell("%paimon connect").error_in_exec, SetupError)
    with pytest.raises(SetupError, match="the last connect to s3://lake/w failed"):
        paimon_magics.connect()
    assert list(tmp_path.glob("paimon-warehouse*")) == []
    assert "only-for-me-to-know" not in capsys.readouterr().out
    shell.run_cell("%paimon connect warehouse=paimon-warehouse spark=spark").raise_error()
    home = tmp_path / "paimon-warehouse"
    assert f"New warehouse at {home}: no tables yet." in capsys.readouterr().out
    for cell in CELLS[:3]:
        shell.run_cell(cell).raise_error()


WRONG = ["warehouse=other", "warehose=s3://lake/w", "/lake", "warehouse=a warehouse=b", "master=x"]


def test_failed_connect_blocks_cells_until_open_connection_is_resumed(
    connected: InteractiveShell, run: Run, tmp_path: Path
) -> None:
    before = active_session()
    for words in WRONG:
        failure(connected, f"%paimon connect {words}")
        assert active_session() is before, "what was opened stays open for who holds it"
        refused = failure(connected, "%%paimon\nSELECT * FROM orders")
        assert f"returns to {tmp_path / 'warehouse'}, which is still open" in refused.hint
        assert usable_session() is None, "nor does the Tab key offer its names"
        assert run("session = %paimon connect") is None
        assert connected.user_ns["session"] is before
        run("%%paimon\nSHOW TABLES")


def test_python_connect_counts_and_closed_connection_is_not_replaced(
    connected: InteractiveShell, run: Run, tmp_path: Path
) -> None:
    with pytest.raises(SetupError, match="too"):
        paimon_magics.connect(tmp_path / "other")
    assert "the last connect to" in failure(connected, "%paimon tables").message
    assert paimon_magics.connect() is active_session()
    run("%paimon tables")
    run("%paimon config warehouse=other")
    assert "can't be connected to" in failure(connected, "%paimon connect").message
    run("%paimon config warehouse=")
    run("%paimon connect")
    run("%paimon connect --close")
    refused = failure(connected, "%%paimon\nCREATE TABLE t (k INT)")
    assert f"the connection to {tmp_path / 'warehouse'} is closed" in refused.message
    assert str(failure(connected, "%paimon connect")) == str(refused)
    assert not (tmp_path / "paimon-warehouse").exists()
    run("%paimon connect warehouse=paimon-warehouse")
    run("%%paimon\nSHOW TABLES")


def test_connect_reports_nonempty_folder_without_databases(
    disconnected: InteractiveShell, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data" / "lake" / "default.db").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    for words, is_new in (("data", True), ("data/lake", False), ("empty", False)):
        line = f"%paimon connect --close warehouse={words} spark=spark"
        disconnected.run_cell(line).raise_error()
        assert ("New warehouse at" in capsys.readouterr().out) == is_new


def test_connect_shows_store_access_and_accepts_warehouse_with_catalog(
    disconnected: InteractiveShell, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    with s3_server() as server:
        bucket = Bucket(server.endpoint, key="AKIAABCDEFGHIJKLMNOP", secret="only-for-me-to-know")
        options = dict(bucket.options)
        words = [f"catalog.{key}={value}" for key, value in options.items() if key != "warehouse"]
        line = f"%paimon connect warehouse={bucket.options['warehouse']} {' '.join(words)}"
        disconnected.run_cell(f"{line} spark=spark").raise_error()
        shown = capsys.readouterr().out
        assert (
            f"Store: S3: endpoint {server.endpoint}, region us-east-1, addressing path style, "
            "access key AKIA…MNOP (read and written)\n"
            f"New warehouse at {bucket.options['warehouse']}: no tables yet.\n"
        ) in shown
        assert "only-for-me-to-know" not in shown
        assert bucket.objects() == [], "nothing is left of what was tried"
        warehouse = options.pop("warehouse")
        session = active_session()
        assert paimon_magics.connect(warehouse, catalog=options) is session
        with pytest.raises(SetupError, match="Two warehouses are given"):
            paimon_magics.connect("s3://a/b", catalog=bucket.options)
        with pytest.raises(SetupError, match="with other catalog options: s3") as raised:
            paimon_magics.connect(catalog=bucket.options | {"s3.secret-key": "another-secret-key"})
        assert "--close" in raised.value.hint


def test_doctor_reports_setup_without_secrets(
    disconnected: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAIMON_COORDINATOR_TOKEN", "a-token-of-mine")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "in-the-environment")
    failure(disconnected, f"%paimon connect {NOWHERE}")
    told = disconnected.run_cell("%paimon doctor").result
    assert told["Connection"]["session"] == "none"
    assert "failed to s3://lake/w: " in told["Connection"]["last connect"]
    (advice,) = told.advice
    assert advice.problem.startswith("The last connect to s3://lake/w failed. ") and advice.remedy
    assert f"To do\n  1. {advice.problem}\n     {advice.remedy}" in str(told)
    with s3_server() as server:
        options = Bucket(server.endpoint, secret="only-for-me-to-know").options
        disconnected.user_ns["options"] = options
        with paimon_magics.connect(catalog=options, spark=disconnected.user_ns["spark"]) as session:
            told = session.doctor()
            assert told["Versions"]["paimon-magics"] == paimon_magics.__version__
            assert told["Spark"]["version"] == session.spark.version
            unix = session.spark.conf.get(UNIX_SOCKETS)
            way = {"true": "reached by Unix sockets", "false": "reached by TCP"}[str(unix)]
            assert told["Spark"]["Python processes"].startswith(way)
            assert told["Connection"]["warehouse"] == options["warehouse"]
            assert told["Catalog options"]["s3.secret-key"] == "***"
            assert told["Store"]["region"] == "us-east-1"
            assert told["Store"]["tried"] == "read and written"
            assert told["Coordinator"]["committer"] == "in-process"
            assert told["Settings"]["display_rows"] == "20"
            text = str(paimon_magics.doctor())
    assert text.startswith("Versions\n  Python   ") and text.endswith("To do\n  nothing")
    assert repr(told) == str(told)
    for secret in ("only-for-me-to-know", "a-token-of-mine", "in-the-environment"):
        assert secret not in text
