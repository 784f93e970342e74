"""Files outside the table's folder (`data-file.external-paths`) are read where they are."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pytest
from pypaimon import Schema

from paimon_magics.errors import TableDamagedError
from paimon_magics.planning.commits.expiry import NO_FLOOR, ExpiryRules, Retention
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.expiry.expire_snapshots import carry_out, decide
from paimon_magics.tables.manifests.file_paths import external_files
from paimon_magics.tables.reading.data_read import DataRead, ReadRequest, plan_data_read
from paimon_magics.tables.stores.allowed_paths import PathRules
from paimon_magics.tables.system_tables.registry import metadata_table
from tests.backends.s3 import Bucket, S3Server

FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])


def files_of(read: DataRead) -> list[str]:
    raw = [path for files in read.planned.raw for path in files.paths]
    return raw + [file.path for split in read.planned.splits for file in split.files]


def write(
    catalog: Catalog,
    rows: dict[str, list[object]],
    place: str | None = None,
    options: Mapping[str, str] = MappingProxyType({}),
) -> None:
    table = catalog.paimon.get_table("default.t")
    if place is not None:
        table = table.copy({"data-file.external-paths": place, **options})
    builder = table.new_batch_write_builder()
    writer, commit = builder.new_write(), builder.new_commit()
    writer.write_arrow(pa.table(rows, schema=FIELDS))
    commit.commit(writer.prepare_commit())
    writer.close()
    commit.close()


@pytest.fixture(scope="module")
def bucket(s3: S3Server) -> Bucket:
    return s3.bucket()


@pytest.mark.parametrize("keys", [[], ["k"]], ids=["append", "primary key"])
def test_external_files_are_read(tmp_path: Path, keys: list[str]) -> None:
    catalog = Catalog.open({"warehouse": str(tmp_path / "warehouse")})
    elsewhere = [tmp_path / "one", tmp_path / "two"]
    options = {
        "data-file.external-paths": ",".join(f"file://{folder}" for folder in elsewhere),
        "data-file.external-paths.strategy": "round-robin",
        **({"bucket": "1"} if keys else {}),
    }
    catalog.paimon.create_database("default", True)
    schema = Schema.from_pyarrow_schema(FIELDS, primary_keys=keys, options=options)
    catalog.paimon.create_table("default.t", schema, False)
    for number in range(3):
        write(catalog, {"k": [1, 2 + number], "v": [f"new {number}", f"only {number}"]})
    read = plan_data_read(catalog.load(TableName("t", "default")), ReadRequest())
    paths = files_of(read)
    assert len(paths) == 3
    assert all(str(tmp_path / "warehouse") not in path for path in paths)
    actual = [row for batch in read.rows() for row in batch.to_pylist()]
    news = [row["v"] for row in actual if row["k"] == 1]
    assert sorted(news) == (["new 2"] if keys else ["new 0", "new 1", "new 2"])
    assert sorted(row["v"] for row in actual if row["k"] > 1) == ["only 0", "only 1", "only 2"]
    shown = metadata_table(catalog, TableName("t", "default", system_table="files"))
    assert sorted(shown.column("file_path").to_pylist()) == sorted(paths)
    for folder in elsewhere:
        shutil.rmtree(folder, ignore_errors=True)
    with pytest.raises(TableDamagedError, match=r"/(one|two)/bucket-0/"):
        list(read.rows())


@pytest.mark.parametrize("statement", ["table", "database"])
def test_drop_removes_external_files_of_its_table_only(tmp_path: Path, statement: str) -> None:
    catalog = Catalog.open({"warehouse": str(tmp_path / "warehouse")})
    place = tmp_path / "shared"
    options = {
        "data-file.external-paths": f"file://{place}",
        "data-file.external-paths.strategy": "round-robin",
    }
    catalog.paimon.create_database("default", True)
    for name in ("default.t", "default.other"):
        catalog.paimon.create_table(
            name, Schema.from_pyarrow_schema(FIELDS, options=options), False
        )
    write(catalog, {"k": [1], "v": ["one"]})
    catalog.paimon.get_table("default.t").create_tag("kept")
    write(catalog, {"k": [2], "v": ["two"]})
    table = catalog.load(TableName("t", "default"))
    mine = set(place.rglob("*.parquet"))
    assert set(external_files(table)) == {str(path) for path in mine}
    other = place / "bucket-0" / "data-of-another-table.parquet"
    other.write_bytes(b"")
    if statement == "table":
        catalog.drop_table(TableName("t", "default"), outside=external_files)
    else:
        catalog.drop_database("default", cascade=True, outside=external_files)
    assert set(place.rglob("*.parquet")) == {other}


@pytest.mark.parametrize("end", ["drop", "expiry"])
def test_external_files_stay_where_the_administrator_allows_none(
    tmp_path: Path, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"warehouse": str(tmp_path / "warehouse")}
    catalog = Catalog.open(options, PathRules(()))
    place = tmp_path / "shared"
    stored = {
        "data-file.external-paths": f"file://{place}",
        "data-file.external-paths.strategy": "round-robin",
    }
    catalog.paimon.create_database("default", True)
    schema = Schema.from_pyarrow_schema(FIELDS, options=stored)
    catalog.paimon.create_table("default.t", schema, False)
    write(catalog, {"k": [1], "v": ["one"]})
    (outside,) = place.rglob("*.parquet")
    name = TableName("t", "default")
    if end == "drop":
        catalog.drop_table(name, outside=external_files)
        assert not catalog.table_exists(name)
    else:
        builder = catalog.paimon.get_table("default.t").new_batch_write_builder()
        builder.new_commit().truncate_table()
        table = catalog.load(name)
        rules = ExpiryRules.of(table.schema)
        assert rules is not None
        rules = replace(rules, snapshots=Retention(1, 1, 0))
        expiry = decide(table, rules, NO_FLOOR, 1 << 60)
        assert expiry is not None
        assert carry_out(expiry) == 1
        assert f"{outside}' is not deleted" in caplog.text
    assert outside.exists()


def test_internal_and_external_files_are_read_together(tmp_path: Path) -> None:
    catalog = Catalog.open({"warehouse": str(tmp_path / "warehouse")})
    catalog.paimon.create_database("default", True)
    catalog.paimon.create_table("default.t", Schema.from_pyarrow_schema(FIELDS), False)
    write(catalog, {"k": [1], "v": ["here"]})
    elsewhere = {"data-file.external-paths.strategy": "round-robin"}
    write(catalog, {"k": [2], "v": ["there"]}, f"file://{tmp_path}/elsewhere", elsewhere)
    read = plan_data_read(catalog.load(TableName("t", "default")), ReadRequest())
    assert sorted("/elsewhere/" in path for path in files_of(read)) == [False, True]
    actual = [row["v"] for batch in read.rows() for row in batch.to_pylist()]
    assert sorted(actual) == ["here", "there"]


@pytest.mark.parametrize("keys", [[], ["k"]], ids=["append", "primary key"])
@pytest.mark.parametrize("resolving", [False, True], ids=["", "resolving-file-io"])
def test_files_in_another_store_than_the_table_are_read(
    tmp_path: Path, bucket: Bucket, keys: list[str], *, resolving: bool
) -> None:
    """pypaimon writes such only where the catalog resolves each path; we read them anyway."""
    options = {key: value for key, value in bucket.options.items() if key != "warehouse"}
    here = {"warehouse": str(tmp_path / "warehouse"), **options}
    catalog = Catalog.open({**here, "resolving-file-io.enabled": "true"})
    catalog.paimon.create_database("default", True)
    places = f"file://{tmp_path}/elsewhere", f"{bucket.options['warehouse']}/elsewhere"
    schema = Schema.from_pyarrow_schema(
        FIELDS,
        primary_keys=keys,
        options={
            "data-file.external-paths": places[0],
            "data-file.external-paths.strategy": "round-robin",
            **({"bucket": "1"} if keys else {}),
        },
    )
    catalog.paimon.create_table("default.t", schema, False)
    for number, place in enumerate(places):
        write(catalog, {"k": [1, 2 + number], "v": [f"new {number}", f"only {number}"]}, place)
    opened = catalog if resolving else Catalog.open(here)
    read = plan_data_read(opened.load(TableName("t", "default")), ReadRequest())
    assert read.stores == {"file", "s3"}
    assert len({path.partition(":")[0] for path in files_of(read)}) == 2
    # As a task has it, which gets it from the driver.
    reader = pickle.loads(pickle.dumps(read.reader))
    actual = [row for batch in replace(read, reader=reader).rows() for row in batch.to_pylist()]
    news = [row["v"] for row in actual if row["k"] == 1]
    assert sorted(news) == (["new 1"] if keys else ["new 0", "new 1"])
    assert sorted(row["v"] for row in actual if row["k"] > 1) == ["only 0", "only 1"]
