"""Takes the steps of `frame_steps` on Spark Connect; the argument is a folder for the warehouse."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import paimon_magics
from paimon_magics.spark.narrowing import narrowed
from tests.session.queries.frame_steps import CREATE, INSERT, STEPS

_ANEW_MIN = 18
"""How many of the steps are planned anew at least: those without columns of frames, or joins."""


def main(folder: str) -> None:
    """Raise AssertionError for other rows than those of the queries."""
    server = SparkSession.builder.remote("local[2]").getOrCreate()
    session = paimon_magics.connect(
        folder, coordinator="in-process", spark=server, local_rows_max=0
    )
    session.run(CREATE)
    for _ in range(2):
        session.run(INSERT)
    anew = 0
    for name, steps in STEPS.items():
        frame = steps.made(session.table("kept"))
        found = sorted(str(tuple(row)) for row in frame.collect())
        expected = [tuple(row.values()) for row in session.run(steps.sql).to_pylist()]
        assert found == sorted(map(str, expected)), name
        anew += narrowed(frame, "run") is not frame
    assert anew >= _ANEW_MIN, anew
    assert session.table("kept").where("p = 1").count() == 50
    chosen = session.table("kept", columns=["k", "p"], where="p = 1")
    assert chosen.where(chosen.k < 10).join(chosen, "k").count() == 3
    session.close(stop_spark=True)


if __name__ == "__main__":
    main(sys.argv[1])
