"""The views of statements that run at once in several threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from paimon_magics.spark.views import Views

pytestmark = pytest.mark.spark


@pytest.fixture
def views(spark: SparkSession) -> Iterator[Views]:
    made = Views(spark, kept_max=1)
    yield made
    made.close()


def in_another_thread(views: Views, spark: SparkSession, key: str) -> None:
    def statement() -> None:
        views.keep(key, spark.range(2))
        views.drop_passing()

    thread = threading.Thread(target=statement)
    thread.start()
    thread.join()


@pytest.mark.parametrize("other", ["same", "another"], ids="{} key".format)
@pytest.mark.parametrize("found", [False, True], ids=["made", "found"])
def test_statement_keeps_view_evicted_by_another_thread(
    views: Views, spark: SparkSession, other: str, found: bool
) -> None:
    name, _ = views.keep("same", spark.range(1))
    if found:
        views.drop_passing()
        again = views.find("same")
        assert again is not None and again[0] == name
    in_another_thread(views, spark, other)
    assert spark.table(name).count() == 1
    views.drop_passing()
    assert not spark.catalog.tableExists(name)
