"""INSERT, OVERWRITE, TRUNCATE and DROP PARTITION, with the outcomes of Paimon's Spark connector.

`tests/data/statements.json` holds what that connector (Paimon 2.0.0) answered, statement by
statement: rows without regard to order, or that the statement fails.
"""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import paimon_magics
from paimon_magics import Session
from paimon_magics.errors import PaimonMagicsError
from tests.sampling import sampled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCENARIOS = json.loads(Path(__file__).parents[2].joinpath("data", "statements.json").read_text())
# The connector refuses the name of the NULL partition in these statements. Here it means NULL, as
# in SHOW PARTITIONS; `test_named_partitions.py` has those statements.
DEPARTURES = {
    "ALTER TABLE b05 DROP PARTITION (dt='__DEFAULT_PARTITION__',hh=1)",
    "INSERT OVERWRITE b09 PARTITION (p='__DEFAULT_PARTITION__',d='2024-01-02',n=1) VALUES (50)",
}
SETTINGS = ("spark.sql.sources.partitionOverwriteMode", "spark.sql.storeAssignmentPolicy")


@pytest.fixture
def session(spark: SparkSession, warehouse: Path) -> Iterator[Session]:
    """A session that casts given values as the connector does."""
    with paimon_magics.connect(warehouse, spark=spark, store_assignment="ansi") as opened:
        yield opened


@pytest.fixture(autouse=True)
def unchanged_settings(session: Session) -> Iterator[None]:
    yield
    for key in SETTINGS:
        session.spark.conf.unset(key)


def recorded(value: Any) -> Any:
    """A value in the form in which the outcomes were recorded."""
    match value:
        case datetime.datetime():
            return value.replace(tzinfo=None).isoformat(sep=" ")
        case datetime.date() | Decimal():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            return value


@pytest.mark.parametrize("scenario", sampled({each["scenario"]: each for each in SCENARIOS}))
def test_statements_give_the_recorded_outcomes_of_connector(
    session: Session, scenario: dict[str, Any]
) -> None:
    for step in scenario["steps"]:
        sql = step["sql"]
        if sql in DEPARTURES:
            continue
        if step.get("fails"):
            with pytest.raises(PaimonMagicsError):
                outcome = session.run(sql)
                pytest.fail(f"{sql}: {outcome}")
            continue
        outcome = session.run(sql)
        if "rows" in step:
            rows = [tuple(map(recorded, row.values())) for row in outcome.to_arrow().to_pylist()]
            expected = [tuple(row) for row in step["rows"]]
            assert sorted(rows, key=repr) == sorted(expected, key=repr), sql
