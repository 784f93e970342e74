from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql import SparkSession

from paimon_magics.spark.sizes import printed_plan

pytestmark = pytest.mark.spark


def test_concurrent_printed_plans_mix_neither_plans_nor_output(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """As by streams, each of which plans its micro-batches in a thread of its own."""
    before = sys.stdout
    ended = threading.Event()
    lines = []

    def print_lines() -> None:
        while not ended.wait(0.002):
            lines.append(f"row {len(lines)}")
            print(lines[-1])

    frames = [spark.range(number + 1000) for number in range(4)]
    other = threading.Thread(target=print_lines)
    other.start()
    with ThreadPoolExecutor(len(frames)) as pool:
        plans = list(pool.map(lambda frame: printed_plan(frame, "cost"), frames * 10))
    ended.set()
    other.join()
    for number, plan in enumerate(plans):
        assert f"Range (0, {number % len(frames) + 1000}," in plan
    assert sys.stdout is before
    assert capsys.readouterr().out.splitlines() == lines
