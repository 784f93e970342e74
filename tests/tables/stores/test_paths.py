"""Spellings of locations: what is one place has one canonical form, what is not has two."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.stores.paths import (
    canonical_endpoint,
    canonical_location,
    location_spellings,
    plain_location,
)


@pytest.mark.parametrize(
    "spelling",
    [
        "{0}/lake",
        "{0}/lake/",
        "{0}//lake",
        "{0}/./other/../lake",
        "file:{0}/lake",
        "file://{0}/lake/",
        "file://localhost{0}/lake",
        "file://{0}/l%61ke",
        "{0}/link",
        "file://{0}/link/",
    ],
)
def test_all_spellings_of_a_folder_are_the_same_location(tmp_path: Path, spelling: str) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    assert canonical_location(spelling.format(tmp_path)) == str(tmp_path.resolve() / "lake")


def test_relative_path_is_resolved_below_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert canonical_location("lake") == canonical_location(str(tmp_path / "lake"))


@pytest.mark.parametrize(
    ("spelling", "other"),
    [
        ("s3a://bucket/lake", "s3://bucket/lake"),
        ("s3n://bucket//lake/", "s3://bucket/lake"),
        ("S3://bucket/x/../lake", "s3://bucket/lake"),
        ("s3://bucket/", "s3://bucket"),
        ("hdfs://NameNode:8020/lake", "hdfs://namenode/lake"),
        ("abfs://c@Account.dfs.core.windows.net/l", "abfss://c@account.dfs.core.windows.net/l"),
        ("wasbs://c@account.blob.core.windows.net/l", "abfss://c@account.dfs.core.windows.net/l"),
    ],
)
def test_spellings_of_a_remote_folder_are_the_same_location(spelling: str, other: str) -> None:
    assert canonical_location(spelling) == canonical_location(other)


@pytest.mark.parametrize(
    ("location", "other"),
    [
        ("s3://bucket/lake", "s3://bucket/Lake"),
        ("s3://bucket/a%20b", "s3://bucket/a b"),
        ("s3://bucket/lake", "s3://bucket2/lake"),
        ("hdfs://a:9000/lake", "hdfs://a/lake"),
        ("gs://bucket/lake", "s3://bucket/lake"),
    ],
)
def test_different_places_are_different_locations(location: str, other: str) -> None:
    assert canonical_location(location) != canonical_location(other)


def test_case_of_names_matters_only_on_case_sensitive_disks(
    tmp_path: Path,
) -> None:
    (tmp_path / "lake").mkdir()
    is_one = os.path.exists(tmp_path / "LAKE")
    assert (canonical_location(f"{tmp_path}/LAKE") == canonical_location(f"{tmp_path}/lake")) is (
        is_one
    )
    (tmp_path / "Link").symlink_to(tmp_path / "lake")  # no reason to take one for the other
    assert canonical_location(f"{tmp_path}/lake").endswith("/lake")


def test_a_plain_location_keeps_links_and_schemes(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    assert plain_location(f"file://{tmp_path}/link//") == f"{tmp_path}/link"
    assert plain_location("s3a://bucket//lake/.") == "s3a://bucket/lake"


def test_spellings_of_an_endpoint_have_the_same_form() -> None:
    forms = [
        "https://MinIO.example:443/",
        "https://minio.example",
        "minio.example",
        "HTTPS://minio.example.",
    ]
    assert {canonical_endpoint(form) for form in forms} == {"https://minio.example"}
    assert canonical_endpoint("http://minio:80") == "http://minio"
    assert canonical_endpoint("http://minio:443") == "http://minio:443"


@pytest.mark.parametrize(
    ("location", "other"),
    [
        ("s3://b/in/a.csv", "s3a://b/in/a.csv"),
        ("s3n://b//in/./a.csv", "s3://b/in/a.csv"),
        ("abfs://c@acc.blob.core.windows.net/a", "wasbs://c@acc.blob.core.windows.net/a"),
        ("wasb://c@acc.blob.core.windows.net/a", "abfss://c@acc.dfs.core.windows.net/a"),
        ("hdfs://nn/in/a.csv", "hdfs://nn:8020/in/a.csv"),
    ],
)
def test_spellings_of_a_location_name_each_other(location: str, other: str) -> None:
    assert other in location_spellings(location)
    assert location_spellings(location) & location_spellings(other)


def test_spellings_of_other_places_are_other_ones() -> None:
    assert not location_spellings("s3://b/a") & location_spellings("s3://c/a")
    assert not location_spellings("gs://b/a") & location_spellings("s3://b/a")


def test_local_file_that_is_not_there_is_missing_for_pypaimon(tmp_path: Path) -> None:
    catalog = Catalog.open({"warehouse": str(tmp_path)})
    name = TableName("t", "default")
    catalog.create_table(name, TableSchema((Column(0, "k", AtomicType("INT")),)))
    file_io = catalog.load(name).paimon.file_io
    present = tmp_path / "file"
    present.write_text("text")
    assert file_io.read_file_utf8(str(present)) == file_io.read_file_utf8(f"file:{present}")
    for missing in (tmp_path / "other", present / "below"):
        with pytest.raises(FileNotFoundError, match=f"File {missing} does not exist"):
            file_io.read_file_utf8(str(missing))
