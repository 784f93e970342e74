"""Scenarios that Paimon's Spark connector was recorded with: compactions, changelogs, deletes.

A sample of each area; `make recorded` runs all of them. The steps that differ are exactly those
that `tests/data/scenarios-2.0.0/expected.toml` lists.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.recorded.expected import unexpected
from tests.recorded.runner import replayed
from tests.recorded.scenarios import recorded_scenarios

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SAMPLE = ("a28", "b12", "c07", "f07", "dv_pk", "dv_app", "app_small", "dml_merge")


@pytest.mark.parametrize("name", SAMPLE)
def test_scenarios_differ_only_in_listed_steps(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    replay = replayed(spark, recorded_scenarios()[name], tmp_path)
    assert [each.text for each in unexpected(replay)] == []
