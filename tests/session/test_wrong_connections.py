"""A wrong warehouse or setting is refused by name, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import paimon_magics
from paimon_magics import Session
from paimon_magics.errors import SetupError
from tests.session.evidence import files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_second_warehouse_requires_closing_the_first_session(
    session: Session, spark: SparkSession, warehouse: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    with pytest.raises(SetupError, match="connected to") as caught:
        paimon_magics.connect(other, spark=spark)
    assert str(warehouse) in caught.value.message and str(other) in caught.value.message
    assert "session.close()" in caught.value.hint
    assert paimon_magics.connect(warehouse, spark=spark) is session
    session.close()
    with paimon_magics.connect(other, spark=spark) as second:
        assert second.warehouse != session.warehouse
    with pytest.raises(SetupError, match="closed"):
        session.run("SELECT 1")


def test_with_block_leaves_a_session_open_that_was_open_before(
    session: Session, spark: SparkSession, warehouse: Path
) -> None:
    with paimon_magics.connect(warehouse, spark=spark) as same:
        assert same is session
        with paimon_magics.connect(warehouse, spark=spark):
            pass
    assert not session.closed
    session.run("SELECT 1")
    with session:
        pass
    assert session.closed


def test_file_as_warehouse_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        before = files(tmp_path)
        with pytest.raises(SetupError) as caught:
            paimon_magics.connect(path, spark=spark)
        assert str(tmp_path / "file") in caught.value.message and caught.value.hint
        assert files(tmp_path) == before


@pytest.mark.parametrize("warehouse", ["sssh://somewhere/warehouse", "hdsf://host/x"])
def test_a_warehouse_in_an_unknown_store_is_refused(spark: SparkSession, warehouse: str) -> None:
    with pytest.raises(SetupError) as caught:
        paimon_magics.connect(warehouse, spark=spark)
    assert warehouse.split(":")[0] in caught.value.message and caught.value.hint


def test_unsupported_catalog_is_refused_before_spark_starts(tmp_path: Path) -> None:
    program = (
        "import sys, paimon_magics; from pyspark import SparkContext\n"
        "try: paimon_magics.connect(sys.argv[1], catalog={'metastore': 'wrong'})\n"
        "except paimon_magics.errors.SetupError as error: print(error, SparkContext._gateway)"
    )
    place = str(tmp_path / "warehouse")
    actual = subprocess.run([sys.executable, "-c", program, place], text=True, capture_output=True)
    assert "wrong" in actual.stdout and actual.stdout.endswith(" None\n"), actual


@pytest.mark.parametrize(
    ("settings", "named", "hint"),
    [
        ({"displayrows": 5}, "displayrows", "`display_rows`"),
        ({"display_rows": "5"}, "display_rows", "20"),
        ({"display_rows": -1}, "display_rows", "20"),
        ({"catalog": {"warehouse": "x"}}, "Two warehouses", "Leave one"),
    ],
)
def test_a_wrong_setting_is_refused(
    spark: SparkSession, warehouse: Path, settings: dict[str, object], named: str, hint: str
) -> None:
    with pytest.raises(SetupError) as caught:
        paimon_magics.connect(warehouse, spark=spark, **settings)
    assert named in caught.value.message and hint in caught.value.hint
    assert paimon_magics.active_session() is None
    assert not os.path.exists(warehouse)


def test_argument_other_than_spark_session_is_refused(warehouse: Path) -> None:
    with pytest.raises(SetupError, match="not a SparkSession"):
        paimon_magics.connect(warehouse, spark="local[2]")  # type: ignore[arg-type]
