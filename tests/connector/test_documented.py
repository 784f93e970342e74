"""What the connector's documentation offers has the answer here that docs/connector.md gives.

The examples of a page run from top to bottom, in a database of their own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import paimon_magics
from paimon_magics import Session, errors
from paimon_magics.errors import PaimonMagicsError
from tests.connector.documented import Feature, Page, pages
from tests.coordinator.rest_server import TOKEN, served

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def unchanged_settings(spark: SparkSession) -> Iterator[None]:
    """Takes back what an example has SET."""
    before = spark.conf.getAll
    yield
    for key in spark.conf.getAll:
        if key not in before:
            spark.conf.unset(key)


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.title)
def test_examples_of_a_page_behave_as_the_page_says(
    page: Page, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lake = tmp_path / "lake"
    lake.mkdir()
    names: dict[str, Any] = {"paimon_magics": paimon_magics, "spark": spark, "lake": str(lake)}
    with ExitStack() as stack:
        if page.alone:
            names["url"] = stack.enter_context(served({"warehouse": str(lake)}))
            names["token"] = TOKEN
        else:
            names["session"] = stack.enter_context(_session_of(page, lake, spark))
            names["folder"] = str(tmp_path / "checkpoints")
        wrong = [text for each in page.features for text in _wrong(page, each, names)]
        assert "\n".join(wrong) == ""


@contextmanager
def _session_of(page: Page, lake: Path, spark: SparkSession) -> Iterator[Session]:
    with paimon_magics.connect(lake, spark=spark) as session:
        session.run(f"CREATE DATABASE {page.database}; USE {page.database}; {page.setup}")
        try:
            yield session
        finally:
            if page.teardown:
                session.run(page.teardown)


def _wrong(page: Page, feature: Feature, names: dict[str, Any]) -> Iterator[str]:
    """What an example does otherwise than the page says; nothing if it does that."""
    where = f"{feature.section}, {feature.what}: "
    session = None if page.alone else names["session"]
    try:
        result = _ran(page, feature, names)
    except PaimonMagicsError as error:
        kind = getattr(errors, feature.error)
        if not feature.use or not isinstance(error, kind) or feature.use not in error.hint:
            yield f"{where}{error!r}, hint {error.hint!r}"
        return
    if feature.use:
        yield f"{where}it is not refused"
    if feature.check and session is not None:
        result = session.run(feature.check)
    if feature.rows is not None and (actual := _texts(result)) != list(feature.rows):
        yield f"{where}{actual}"


def _ran(page: Page, feature: Feature, names: dict[str, Any]) -> Any:
    """What the example returns: its last statement, or its last expression."""
    session = None if page.alone else names["session"]
    if session is not None:
        session.run(f"USE paimon; USE {page.database}; {feature.setup}")
    if feature.sql:
        assert session is not None
        return session.run(feature.sql)
    *lines, last = ast.parse(feature.python).body
    if isinstance(last, ast.With):  # a session of its own; what its last expression is counts
        last.body[-1:] = ast.parse(f"result = {ast.unparse(last.body[-1])}").body
    elif isinstance(last, ast.Expr):
        last = ast.parse(f"result = {ast.unparse(last)}").body[0]
    names["result"] = None
    exec(compile(ast.Module([*lines, last], []), "<example>", "exec"), names)
    return names["result"]


def _texts(result: Any) -> list[str]:
    """The rows of a result as texts; of a plain value one."""
    if isinstance(result, paimon_magics.Outcome):
        result = result.to_pylist()
    return [_text(row) for row in (result if isinstance(result, list) else [result])]


def _text(row: Any) -> str:
    values: Iterable[object] = [row]
    if isinstance(row, Mapping):
        values = row.values()
    elif isinstance(row, tuple):
        values = row
    return ", ".join("NULL" if value is None else str(value) for value in values)
