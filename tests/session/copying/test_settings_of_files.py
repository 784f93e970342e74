"""Settings of Spark for its own files cut nothing off that COPY INTO loads or writes."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from paimon_magics import Session
from paimon_magics.errors import PaimonMagicsError
from paimon_magics.spark.exported_rows import write_files
from tests.session.rows import rows
from tests.session.spark_settings import settings

pytestmark = pytest.mark.spark

_LENIENT = {
    "spark.sql.files.ignoreCorruptFiles": "true",
    "spark.sql.files.ignoreMissingFiles": "true",
}


@pytest.mark.parametrize("mode", ["", "ON_ERROR = CONTINUE", "ON_ERROR = SKIP_FILE"])
def test_cut_file_is_not_loaded_as_a_whole(session: Session, tmp_path: Path, mode: str) -> None:
    packed = gzip.compress(b"".join(b"%d,%x\n" % (n, n * n) for n in range(50_000)))
    source = tmp_path / "files"
    source.mkdir()
    (source / "cut.csv.gz").write_bytes(packed[: len(packed) // 2])
    session.run("CREATE TABLE t (k INT, s STRING)")
    copy = f"COPY INTO t FROM '{source}' FILE_FORMAT = (TYPE = CSV) {mode}"
    with settings(session.spark, **_LENIENT), pytest.raises(PaimonMagicsError, match=r"cut\.csv"):
        session.run(copy)
    assert rows(session, "SELECT count(*) FROM t") == [(0,)]
    (source / "cut.csv.gz").write_bytes(packed)
    with settings(session.spark, **_LENIENT):
        session.run(copy)
    assert rows(session, "SELECT count(*) FROM t") == [(50_000,)]


def test_damaged_parquet_file_is_named(session: Session, tmp_path: Path) -> None:
    source = tmp_path / "files"
    session.spark.range(5).selectExpr("CAST(id AS INT) AS k").write.parquet(str(source))
    (source / "bad.parquet").write_bytes(b"PAR1 this is no Parquet file PAR1")
    session.run("CREATE TABLE t (k INT)")
    copy = f"COPY INTO t FROM '{source}' FILE_FORMAT = (TYPE = PARQUET)"
    with settings(session.spark, **_LENIENT), pytest.raises(PaimonMagicsError, match=r"bad\.parq"):
        session.run(copy)
    assert rows(session, "SELECT count(*) FROM t") == [(0,)]


def test_single_file_has_all_rows(session: Session, tmp_path: Path) -> None:
    session.run("CREATE TABLE t AS SELECT CAST(id AS INT) AS k FROM range(10)")
    with settings(session.spark, **{"spark.sql.files.maxRecordsPerFile": "3"}):
        (answer,) = rows(
            session, f"COPY INTO '{tmp_path}/one.csv' FROM t FILE_FORMAT = (TYPE = CSV) SINGLE=TRUE"
        )
    assert answer[1:] == (1, 10)
    assert sorted(map(int, (tmp_path / "one.csv").read_text().split())) == list(range(10))


def test_overwriting_removes_other_partitions(session: Session, tmp_path: Path) -> None:
    frame = session.spark.range(4).selectExpr("id", "id % 2 AS p")
    folder = str(tmp_path / "out")
    write_files(frame, "csv", folder, {}, partition_by=("p",))
    with settings(session.spark, **{"spark.sql.sources.partitionOverwriteMode": "dynamic"}):
        write_files(frame.where("p = 1"), "csv", folder, {}, partition_by=("p",), overwrite=True)
    assert [each.name for each in tmp_path.glob("out/p=*")] == ["p=1"]


@pytest.mark.parametrize("form", ["CSV", "JSON"])
@pytest.mark.parametrize("mode", ["", "ON_ERROR = CONTINUE"])
def test_column_of_the_name_for_corrupt_records_is_loaded(
    session: Session, tmp_path: Path, form: str, mode: str
) -> None:
    source = tmp_path / "files"
    source.mkdir()
    if form == "CSV":
        (source / "a.csv").write_text("k,_corrupt_record,s\n1,x,y\n")
    else:
        (source / "a.json").write_text('{"k": 1, "_corrupt_record": "x", "s": "y"}\n')
    more = "(TYPE = CSV, SKIP_HEADER = 1)" if form == "CSV" else "(TYPE = JSON)"
    for name in ("s", "_corrupt_record"):
        session.run("CREATE OR REPLACE TABLE t (k INT, _corrupt_record STRING, s STRING)")
        with settings(session.spark, **{"spark.sql.columnNameOfCorruptRecord": name}):
            session.run(f"COPY INTO t FROM '{source}' FILE_FORMAT = {more} FORCE = TRUE {mode}")
        assert rows(session, "SELECT * FROM t") == [(1, "x", "y")], name
