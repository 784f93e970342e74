"""A table that is made for its rows, when the commit of these gets no clear answer: it stays, with
the rows."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import paimon_magics
from paimon_magics import Session
from paimon_magics.errors import UnknownOutcomeError
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.process import Process, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

WAYS: dict[str, Callable[[Session], object]] = {
    "create_as": lambda session: session.run("CREATE TABLE create_as AS SELECT 1 AS k"),
    "of_a_frame": lambda session: session.write([{"k": 1}], "of_a_frame", create=True),
}


@pytest.mark.parametrize("table", WAYS)
def test_new_table_stays_when_its_commit_has_an_unknown_outcome(
    spark: SparkSession, tmp_path: Path, table: str
) -> None:
    """The coordinator dies when it has published, and the next one wants another token."""
    process = Process(tmp_path / "warehouse", tmp_path / "state")
    process.start("commit.published=kill")

    def replace() -> None:
        if process.has_died():
            (process.state / "token").write_text("another-token-than-before")
            process.start()

    other = threading.Thread(target=replace)
    try:
        with paimon_magics.connect(
            coordinator=process.address, token=process.token(), spark=spark
        ) as session:
            other.start()
            with pytest.raises(UnknownOutcomeError, match="no clear answer") as caught:
                WAYS[table](session)
        assert f"The table `default.{table}` was created and stays." in caught.value.hint
    finally:
        other.join()
        process.close()
    catalog = Catalog.open({"warehouse": str(tmp_path / "warehouse")})
    assert read(catalog, TableName(table, "default")) == [{"k": 1}]
