from __future__ import annotations

import io
import threading

import pytest
from pyspark.sql import SparkSession

from paimon_magics.spark.sizes import _PrintedHere, estimated_bytes

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("query", "size_bytes"),
    [
        ("SELECT id FROM range(1000000)", 8_000_000),
        ("SELECT id FROM range(1000000) WHERE false", 0),
    ],
)
def test_spark_tells_how_much_a_query_will_give_and_prints_nothing(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], query: str, size_bytes: int
) -> None:
    found = estimated_bytes(spark.sql(query))
    assert found == pytest.approx(size_bytes, rel=0.01, abs=16)
    assert capsys.readouterr().out == ""


def test_what_other_threads_print_meanwhile_is_printed() -> None:
    stream = io.StringIO()
    printed = _PrintedHere(stream)
    print("a plan", file=printed)
    other = threading.Thread(target=lambda: print("a row", file=printed, flush=True))
    other.start()
    other.join()
    assert (printed.text.getvalue(), stream.getvalue()) == ("a plan\n", "a row\n")
