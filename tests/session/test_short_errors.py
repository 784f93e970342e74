"""Errors of the Python API are as short as those of cells, and nothing of them is lost."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from IPython.core.interactiveshell import InteractiveShell

import paimon_magics
from paimon_magics import Session
from paimon_magics.boundary import full_trace, is_entry, show_full_tracebacks
from paimon_magics.errors import (
    InvalidValueError,
    JobError,
    PaimonMagicsError,
    TableDamagedError,
    UnknownNameError,
    sent_to_driver,
)
from paimon_magics.session.outcome import ArrowBatches, Outcome
from paimon_magics.session.reports.administration import Administration
from paimon_magics.session.reports.health import Health
from paimon_magics.session.reports.layout import Layout
from paimon_magics.session.reports.report import Report
from paimon_magics.session.reports.surface import Reporting
from tests.magics.conftest import make_shell  # noqa: F401  (a fixture)

if TYPE_CHECKING:
    from collections.abc import Callable

    from traitlets.config import Config

pytestmark = pytest.mark.spark

PUBLIC = (Session, Outcome, ArrowBatches, Reporting, Administration, Report, Layout, Health)
SHOWN_BY = ("__str__", "__repr__", "_repr_html_", "__next__", "__arrow_c_stream__")


@pytest.mark.parametrize("public", PUBLIC, ids=lambda public: public.__name__)
def test_every_public_member_is_an_entry(public: type) -> None:
    members = {
        name: member
        for name, member in vars(public).items()
        if (not name.startswith("_") or name in SHOWN_BY)
        and (inspect.isfunction(member) or isinstance(member, property | classmethod))
    }
    assert members
    assert [name for name, member in members.items() if not is_entry(member)] == []


def test_every_package_function_that_can_fail_is_an_entry() -> None:
    offered = {name: getattr(paimon_magics, name) for name in paimon_magics.__all__}
    functions = {name for name, each in offered.items() if inspect.isfunction(each)}
    assert all(map(is_entry, (paimon_magics.connect, paimon_magics.doctor, paimon_magics.register)))
    # The others only look, or are called by IPython.
    assert functions - {"connect", "doctor", "register"} == {
        "active_session",
        "load_ipython_extension",
        "unload_ipython_extension",
    }
    assert {each for each in offered.values() if isinstance(each, type)} <= set(PUBLIC)


FAILING = {
    "run": (lambda s: s.run("SELECT * FROM nowhere"), UnknownNameError),
    "run a job": (lambda s: s.run("SELECT raise_error('no more tea')").to_arrow(), JobError),
    "explain": (lambda s: s.explain("SELECT * FROM nowhere"), UnknownNameError),
    "preview": (lambda s: s.preview("DROP TABLE nowhere"), UnknownNameError),
    "write": (lambda s: s.write(pa.table({"a": ["x"]}), "ids"), UnknownNameError),
    "write a value": (lambda s: s.write(pa.table({"id": ["x"]}), "ids"), InvalidValueError),
    "insert": (lambda s: s.insert("nowhere", [(1,)]), UnknownNameError),
    "insert_async": (
        lambda s: asyncio.run(s.insert_async("nowhere", [(1,)])),
        UnknownNameError,
    ),
    "delete": (lambda s: s.delete("nowhere", "true"), UnknownNameError),
    "table": (lambda s: s.table("nowhere"), UnknownNameError),
    "changes": (lambda s: list(s.changes("ids", from_snapshot=0)), InvalidValueError),
    "history": (lambda s: s.history("nowhere"), UnknownNameError),
    "layout": (lambda s: s.layout("nowhere"), UnknownNameError),
    "health": (lambda s: s.health("nowhere"), UnknownNameError),
    "reports": (lambda s: s.reports.files("nowhere"), UnknownNameError),
    "administration": (lambda s: s.administration.status(), PaimonMagicsError),
    "flush": (lambda s: s.flush("ids"), PaimonMagicsError),
    "an argument": (lambda s: s.run(5), InvalidValueError),
    "connect": (lambda s: paimon_magics.connect(display_row=5), PaimonMagicsError),
}


@pytest.fixture(scope="module")
def shop(module_session: Session) -> Session:
    module_session.run("CREATE TABLE ids (id INT)")
    return module_session


@pytest.mark.parametrize("name", FAILING)
def test_printed_traceback_shows_only_callers_lines_and_error(
    shop: Session, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    call, kind = FAILING[name]
    with pytest.raises(kind) as caught:
        call(shop)
    error = caught.value
    sys.__excepthook__(type(error), error, error.__traceback__)
    printed = capsys.readouterr().err
    assert printed.rstrip() == "".join(traceback.format_exception(error)).rstrip()
    assert printed.count("Traceback") == 1
    files = {frame.filename for frame in traceback.extract_tb(error.__traceback__)}
    assert {each for each in files if f"asyncio{os.sep}" not in each} == {__file__}
    assert str(error) in printed


def test_the_cause_and_the_whole_trace_are_kept(shop: Session) -> None:
    with pytest.raises(JobError) as caught:
        shop.run("SELECT raise_error('no more tea')").to_arrow()
    error = caught.value
    assert error.__cause__ is not None
    assert "pyspark" not in "".join(traceback.format_exception(error))
    whole = full_trace(error)
    assert f"{Path('session') / 'outcome.py'}" in whole and "direct cause" in whole


def test_the_whole_trace_is_shown_on_request(shop: Session) -> None:
    show_full_tracebacks(True)
    with pytest.raises(JobError) as caught:
        shop.run("SELECT raise_error('no more tea')").to_arrow()
    assert "direct cause" in "".join(traceback.format_exception(caught.value))
    assert paimon_magics.connect(shop.warehouse, full_tracebacks=False) is shop
    with pytest.raises(JobError) as caught:
        shop.run("SELECT raise_error('no more tea')").to_arrow()
    assert "direct cause" not in "".join(traceback.format_exception(caught.value))


def test_notebook_shows_error_like_a_cell_with_calling_lines(
    shop: Session,
    make_shell: Callable[[Config], InteractiveShell],  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    from traitlets.config import Config

    shell = make_shell(Config())
    shell.user_ns["session"] = shop
    capsys.readouterr()
    done = shell.run_cell("def load():\n    return session.run('SELECT ide FROM ids')\nload()")
    assert isinstance(done.error_in_exec, UnknownNameError)
    assert capsys.readouterr().out.splitlines() == [
        *done.error_in_exec.text().splitlines(),
        "  Cell In[1], line 3: load()",
        "  Cell In[1], line 2, in load: return session.run('SELECT ide FROM ids')",
    ]
    done = shell.run_cell("session.run('SELECT ide FROM ids')")
    assert capsys.readouterr().out.rstrip() == done.error_in_exec.text()  # type: ignore[union-attr]


def test_an_interrupt_shows_the_callers_lines_alone(shop: Session) -> None:
    def stop(_: Any) -> None:
        try:
            raise OSError("the connection to the JVM was closed")
        except OSError as error:
            raise KeyboardInterrupt from error

    with pytest.raises(KeyboardInterrupt) as caught:
        shop.run("SELECT 1").fetched(stop)
    printed = "".join(traceback.format_exception(caught.value))
    assert "JVM" not in printed and "outcome.py" not in printed


def test_task_error_reaches_driver_with_its_own_type(shop: Session) -> None:
    def damaged(batches: Any) -> Any:
        with sent_to_driver():
            raise TableDamagedError("The file x.parquet is cut short.", hint="Restore it.")
            yield from batches

    frame = shop.spark.range(1).mapInArrow(damaged, "id BIGINT")
    with pytest.raises(TableDamagedError) as caught:
        Outcome("SELECT", "SELECT", dataframe=frame).to_arrow()
    assert caught.value.message == "The file x.parquet is cut short."
    assert caught.value.hint == "Restore it."


def test_unknown_argument_of_entry_raises_type_error(shop: Session) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'params'") as caught:
        shop.run("SELECT 1", params={})  # type: ignore[call-arg]
    (frame,) = traceback.extract_tb(caught.value.__traceback__)
    assert frame.filename == __file__
