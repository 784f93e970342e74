"""Files of object stores are read with the catalog's keys where Spark has no jar for a store."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import paimon_magics
from paimon_magics import Session
from paimon_magics.errors import InvalidValueError, UnknownNameError
from tests.backends.s3 import S3Server

pytestmark = pytest.mark.spark


def parquet(*values: int) -> bytes:
    body = io.BytesIO()
    pq.write_table(pa.table({"k": list(values)}), body)
    return body.getvalue()


@pytest.fixture(scope="module")
def session(spark: SparkSession, s3: S3Server) -> Iterator[Session]:
    with paimon_magics.connect(catalog=s3.bucket().options, spark=spark) as opened:
        yield opened


@pytest.fixture(scope="module")
def folder(session: Session) -> str:
    """A folder of the warehouse's bucket, with files of two formats."""
    store = session.catalog.stores.of(session.catalog.options["warehouse"])
    bucket = session.catalog.options["warehouse"].split("/")[2]
    folder = f"s3a://{bucket}/landing"
    store.write(f"{folder}/a b.parquet", parquet(1, 2))
    store.write(f"{folder}/all/_SUCCESS", b"")
    store.write(f"{folder}/all/day=1/x.parquet", parquet(3))
    store.write(f"{folder}/all/day=2/y.parquet", parquet(4, 5))
    store.write(f"{folder}/rows.csv", b"k,v\n1,one\n2,two\n")
    return folder


def test_object_store_file_and_partitioned_folder_are_read(session: Session, folder: str) -> None:
    one = session.run(f"SELECT sum(k) AS k FROM parquet.`{folder}/a b.parquet`")
    assert one.to_arrow().to_pylist() == [{"k": 3}]
    assert any("1 file" in note and "copied to this machine" in note for note in one.notes)
    rows = session.run(f"SELECT day, sum(k) AS k FROM parquet.`{folder}/all` GROUP BY 1 ORDER BY 1")
    assert rows.to_arrow().to_pylist() == [{"day": 1, "k": 3}, {"day": 2, "k": 9}]
    text = session.run(f"SELECT v FROM csv.`{folder}/rows.csv` WHERE k = 2")
    assert text.to_arrow().to_pylist() == [{"v": "two"}]


def test_quotes_and_line_ends_of_csv_files_are_found_as_on_a_disk(
    session: Session, folder: str
) -> None:
    store = session.catalog.stores.of(folder)
    store.write(f"{folder}/quoted/m.csv", b'id,note\n1,"one\n2,two"\n2,"says ""hi"""\n')
    for path in (f"{folder}/quoted/m.csv", f"{folder}/quoted"):
        outcome = session.run(f"SELECT * FROM csv.`{path}`")
        assert outcome.to_pylist() == [
            {"id": 1, "note": "one\n2,two"}, {"id": 2, "note": 'says "hi"'}
        ]  # fmt: skip
        assert any("line breaks" in note for note in outcome.notes)


def test_missing_files_and_patterns_are_refused(session: Session, folder: str) -> None:
    with pytest.raises(UnknownNameError, match=r"no file or folder `s3a://.*/nothing`"):
        session.run(f"SELECT * FROM parquet.`{folder}/nothing`")
    with pytest.raises(InvalidValueError, match="is a pattern"):
        session.run(f"SELECT * FROM parquet.`{folder}/*.parquet`")
