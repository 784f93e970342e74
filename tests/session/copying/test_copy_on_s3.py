"""COPY INTO from and to S3, without a jar for it."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import paimon_magics
from paimon_magics import Session
from paimon_magics.errors import InvalidValueError, UnknownNameError
from tests.backends.s3 import Bucket, s3_server
from tests.session.rows import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from paimon_magics.tables.stores.store import Store

pytestmark = pytest.mark.spark

CSV = "FILE_FORMAT = (TYPE = CSV)"


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with s3_server() as server:
        yield server.bucket()


@pytest.fixture
def session(spark: SparkSession, bucket: Bucket) -> Iterator[Session]:
    with paimon_magics.connect(catalog=bucket.options, spark=spark) as opened:
        yield opened


def store_beside(session: Session) -> tuple[Store, str]:
    """The store of the bucket, and a folder in it beside the warehouse."""
    warehouse = session.warehouse.rstrip("/")
    folder = f"{warehouse.rpartition('/')[0]}/files beside"
    return session.catalog.stores.of(folder), folder


def test_files_of_a_bucket_are_loaded_once(session: Session) -> None:
    store, folder = store_beside(session)
    store.write(f"{folder}/a.csv", b"1,Ann\n2,Bob\n")
    store.write(f"{folder}/b.csv", b"3,Cy\n")
    store.write(f"{folder}/below/c.csv", b"4,Di\n")
    session.run("CREATE TABLE t (id INT, name STRING)")
    first = session.run(f"COPY INTO t FROM '{folder}/' {CSV}")
    assert [(row["file_name"], row["rows_loaded"]) for row in first.to_pylist()] == [
        ("a.csv", 2), ("b.csv", 1)
    ]  # fmt: skip
    again = session.run(f"COPY INTO t FROM '{folder}' {CSV}")
    assert {row["status"] for row in again.to_pylist()} == {"SKIPPED"}
    more = session.run(f"COPY INTO t FROM '{folder}/be*/*.csv' {CSV}")
    assert [(row["file_name"], row["status"]) for row in more.to_pylist()] == [("c.csv", "LOADED")]
    assert rows(session, "SELECT id FROM t ORDER BY id") == [(1,), (2,), (3,), (4,)]
    with pytest.raises(UnknownNameError, match="no file or folder"):
        session.run(f"COPY INTO t FROM '{folder}/nothing' {CSV}")


def test_bad_rows_of_a_bucket_are_left_out(session: Session) -> None:
    store, folder = store_beside(session)
    store.write(f"{folder}/a.csv", b"1,Ann\nx,Bob\n")
    session.run("CREATE TABLE t (id INT, name STRING)")
    (row,) = session.run(f"COPY INTO t FROM '{folder}' {CSV} ON_ERROR = CONTINUE").to_pylist()
    assert (row["status"], row["rows_loaded"], row["errors_seen"]) == ("PARTIALLY_LOADED", 1, 1)


def test_rows_are_exported_to_a_bucket_and_replaced(session: Session) -> None:
    store, folder = store_beside(session)
    session.run("CREATE TABLE t (id INT, dt STRING); INSERT INTO t VALUES (1, 'x'), (2, 'y')")
    statement = f"COPY INTO '{folder}' FROM t FILE_FORMAT = (TYPE = PARQUET) PARTITION BY (dt)"
    session.run(statement)
    first = store.files_below(folder)
    assert len(first) == 2 and any("/dt=x/part-" in file for file in first)
    with pytest.raises(InvalidValueError, match="exists already"):
        session.run(statement)
    session.run(f"{statement} OVERWRITE = TRUE")
    second = store.files_below(folder)
    assert len(second) == 2 and not set(first) & set(second)
    session.run("CREATE TABLE back (id INT)")
    session.run(f"COPY INTO back FROM '{folder}/dt=*' FILE_FORMAT = (TYPE = PARQUET)")
    assert rows(session, "SELECT id FROM back ORDER BY id") == [(1,), (2,)]
    session.run(
        f"COPY INTO '{folder}/one.csv' FROM t FILE_FORMAT = (TYPE = CSV, HEADER = TRUE) "
        "SINGLE = TRUE"
    )
    content = store.read(f"{folder}/one.csv")
    assert content is not None and content.splitlines()[0] == b"id,dt"


def test_file_of_a_bucket_is_loaded_once_by_all_names_of_its_scheme(session: Session) -> None:
    store, folder = store_beside(session)
    store.write(f"{folder}/a.csv", b"1,Ann\n")
    session.run("CREATE TABLE t (id INT, name STRING)")
    session.run(f"COPY INTO t FROM '{folder}' {CSV}")
    beside = folder.removeprefix("s3://")
    bucket, _, name = beside.partition("/")
    for path in (
        f"s3a://{beside}/*.csv", f"s3n://{beside}/a.csv", f"s3://{bucket}//{name}//",
        f"S3A://{bucket}/x/../{name}/",
    ):  # fmt: skip
        again = session.run(f"COPY INTO t FROM '{path}' {CSV}")
        assert [row["status"] for row in again.to_pylist()] == ["SKIPPED"], path
    store.write(f"{folder}/b.csv", b"2,Bob\n")
    session.run(f"COPY INTO t FROM 's3a://{beside}/b.csv' {CSV}")
    again = session.run(f"COPY INTO t FROM '{folder}' {CSV}")
    assert {row["status"] for row in again.to_pylist()} == {"SKIPPED"}
    assert rows(session, "SELECT id FROM t ORDER BY id") == [(1,), (2,)]


def test_export_into_the_warehouse_is_refused_by_all_names_of_its_scheme(session: Session) -> None:
    session.run("CREATE TABLE t (id INT); INSERT INTO t VALUES (1)")
    warehouse = session.warehouse.rstrip("/").removeprefix("s3://")
    bucket, _, name = warehouse.partition("/")
    for place in (f"s3a://{warehouse}/default.db/t", f"s3n://{bucket}//{name}/x"):
        for confirm in (False, True):
            with pytest.raises(InvalidValueError, match="place of the warehouse"):
                session.run(
                    f"COPY INTO '{place}' FROM t FILE_FORMAT = (TYPE = CSV) OVERWRITE = TRUE",
                    confirm=confirm,
                )
    assert rows(session, "SELECT id FROM t") == [(1,)]


def test_doubled_quotes_of_files_in_a_bucket_are_one(session: Session) -> None:
    store, folder = store_beside(session)
    store.write(f"{folder}/a.csv", b'1,"ja""m"\n2,"mi,""lk"""\n')
    store.write(f"{folder}/b.csv.gz", gzip.compress(b'3,"""tea"""\n'))
    session.run("CREATE TABLE t (id INT, name STRING)")
    session.run(f"COPY INTO t FROM '{folder}' {CSV}")
    assert rows(session, "SELECT id, name FROM t ORDER BY id") == [
        (1, 'ja"m'), (2, 'mi,"lk"'), (3, '"tea"')
    ]  # fmt: skip


def test_copies_of_files_end_with_the_statement(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store, folder = store_beside(session)
    store.write(f"{folder}/a.csv", b"1,Ann\nx,Bob\n")
    session.run("CREATE TABLE t (id INT, name STRING)")
    statement = f"COPY INTO t FROM '{folder}' {CSV}"
    copied = "were copied to this machine"
    with pytest.raises(InvalidValueError, match=r"a\.csv"):
        session.run(statement)
    shown = session.preview(f"{statement} ON_ERROR = CONTINUE")
    assert [row["name"] for row in shown.to_pylist()] == ["Ann"]
    session.explain(statement)
    for more in ("VALIDATE", "ON_ERROR = CONTINUE"):
        outcome = session.run(f"{statement} {more}")
        assert any(copied in note for note in outcome.notes), outcome.notes
    assert [path for path in tmp_path.iterdir() if "-files-" in path.name] == []
