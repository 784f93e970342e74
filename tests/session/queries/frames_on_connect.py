"""Takes the steps of `frame_steps` on Spark Connect; the argument is a folder for the warehouse."""

from __future__ import annotations

import io
import sys
import tempfile
from contextlib import redirect_stdout

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import paimon_magics
from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.spark.narrowing import narrowed
from tests.session.queries.frame_steps import CREATE, INSERT, STEPS
from tests.session.queries.small_reads import settings

_FORMAT = "spark.paimon.file.format"
_ANEW_MIN = 18
"""How many of the steps are planned anew at least: those without joins, and without operators
on columns of frames."""


def main(folder: str) -> None:
    """Raise AssertionError for other rows than those of the queries."""
    builder = SparkSession.builder.remote("local[2]").config(_FORMAT, "orc")
    server = builder.getOrCreate()
    session = paimon_magics.connect(
        folder, coordinator="in-process", spark=server, local_rows_max=0
    )
    settings_are_looked_at(session)
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
    first_rows(session)
    rows_of_buckets(session)
    session.close(stop_spark=True)


def settings_are_looked_at(session: paimon_magics.Session) -> None:
    """Settings hold that Spark was started with, and those of later."""
    conf = session.spark.conf
    for key, value in ((_FORMAT, "orc"), ("spark.sql.timestampType", "TIMESTAMP_NTZ")):
        conf.set("spark.sql.timestampType", value if "timestamp" in key else "TIMESTAMP_LTZ")
        try:
            session.run("CREATE TABLE pinned (k INT)")
        except UnsupportedStatementError as error:
            assert f"{key} = {value}" in error.message
            conf.unset(key)
        else:
            raise AssertionError(f"{key} was passed over")
    session.run("CREATE TABLE pinned (k INT); INSERT INTO pinned VALUES (1)")
    session.run("INSERT INTO pinned VALUES (2)")
    conf.set("spark.paimon.paimon.default.pinned.scan.version", "1")
    assert session.table("pinned").count() == 1
    assert session.run("SELECT k FROM pinned").to_pylist() == [{"k": 1}]
    conf.unset("spark.paimon.paimon.default.pinned.scan.version")


def first_rows(session: paimon_magics.Session) -> None:
    """Methods that look at some rows read these here, and not the others."""
    session.run(
        "CREATE TABLE parts (k BIGINT, p INT) PARTITIONED BY (p); "
        "INSERT INTO parts SELECT id, CAST(id % 3 AS INT) FROM range(60)"
    )
    with settings(session, local_rows_max=10):
        table = session.table("parts")
        assert not is_local(narrowed(table, "run"))
        assert is_local(narrowed(table.limit(3), "run"))
        assert is_local(narrowed(table.where(table.p == 2).select("k"), "run", 4))
        assert len(table.limit(3).collect()) == 3
        assert {row.p for row in table.where(F.col("p") == 2).take(4)} == {2}
        assert len(table.drop("p").head(6)) == 6 and len(table.tail(2)) == 2
        assert table.first() is not None and not table.isEmpty() and table.where("p = 9").isEmpty()
        table.show(2)


def rows_of_buckets(session: paimon_magics.Session) -> None:
    """Rows reach the writers of their buckets without this machine's folders: there are none."""
    session.run(
        "CREATE TABLE buckets (k BIGINT NOT NULL, v BIGINT, PRIMARY KEY (k) NOT ENFORCED) "
        "TBLPROPERTIES ('bucket' = '2')"
    )
    tempfile.tempdir = "/nowhere/at/all"
    try:
        session.run("INSERT INTO buckets SELECT id % 1000, id FROM range(0, 200000, 1, 4)")
    finally:
        tempfile.tempdir = None
    query = "SELECT count(*) AS n, min(v) AS least FROM buckets"
    assert session.run(query).to_pylist() == [{"n": 1000, "least": 199_000}]


def is_local(frame: DataFrame) -> bool:
    shown = io.StringIO()
    with redirect_stdout(shown):
        frame.explain()
    return "LocalTableScan" in shown.getvalue()


if __name__ == "__main__":
    main(sys.argv[1])
