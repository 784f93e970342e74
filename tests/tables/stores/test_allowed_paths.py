"""Only a table's own folder and named roots outside it can be read and deleted, by any spelling."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from paimon_magics.errors import InvalidValueError, SetupError
from paimon_magics.tables.stores.allowed_paths import AllowedPaths, PathRules
from paimon_magics.tables.stores.store import Stores

NO_ROOTS = PathRules(())
S3_TABLE = "s3://lake/wh/mine.db/t"


def allowed(
    location: str, warehouse: str, rules: PathRules = NO_ROOTS, named: tuple[str, ...] = ()
) -> AllowedPaths:
    return AllowedPaths(location, warehouse, rules, Stores({"warehouse": warehouse}), lambda: named)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"{S3_TABLE}/bucket-0/data-1.parquet", True),
        ("s3a://lake/wh/mine.db/t/bucket-0/data-1.parquet", True),
        (f"{S3_TABLE}/pt=..%2F..%2Fx/bucket-0/data-1.parquet", True),
        (S3_TABLE, False),
        (f"{S3_TABLE}/", False),
        (f"{S3_TABLE}2/bucket-0/data-1.parquet", False),
        (f"{S3_TABLE}/../orders/snapshot/snapshot-1", False),
        (f"{S3_TABLE}/./bucket-0/data-1.parquet", False),
        (f"{S3_TABLE}/.paimon-magics/token", False),
        (f"{S3_TABLE}/.paimon-magics-table", False),
        ("s3://lake/wh/secret.db/orders/snapshot/snapshot-1", False),
        ("s3://lake/wh/.paimon-magics/owner-1.json", False),
        ("s3://other/wh/mine.db/t/data-1.parquet", False),
        ("s3:/lake/wh/mine.db/t/data-1.parquet", False),
        ("gs://lake/wh/mine.db/t/data-1.parquet", False),
        ("/lake/wh/mine.db/t/data-1.parquet", False),
        ("lake/wh/mine.db/t/data-1.parquet", False),
        (f"{S3_TABLE}/data\0-1.parquet", False),
        ("", False),
    ],
)
def test_only_paths_below_the_table_folder_in_a_bucket_are_allowed(
    path: str, expected: bool
) -> None:
    assert allowed(S3_TABLE, "s3://lake/wh").allows(path) is expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("{wh}/mine.db/t/bucket-0/data-1.parquet", True),
        ("file://{wh}/mine.db/t/bucket-0/data-1.parquet", True),
        ("file:{wh}/mine.db/t/bucket-0/data-1.parquet", True),
        ("{wh}//mine.db/t/bucket-0/data-1.parquet", True),
        ("{wh}/mine.db/t/pt=%2E%2E/data-1.parquet", True),
        ("file://{wh}/mine.db/t/%2e%2e/%2e%2e/secret.db/orders/x", False),
        ("{wh}/mine.db/t/../../secret.db/orders/x", False),
        ("{wh}/mine.db/t/out/x", False),
        ("{wh}/mine.db/t/bucket-0/link", False),
        ("{wh}/secret.db/orders/x", False),
        ("file://host{wh}/mine.db/t/bucket-0/data-1.parquet", False),
        ("mine.db/t/bucket-0/data-1.parquet", False),
    ],
)
def test_only_paths_below_a_local_table_folder_are_allowed(
    tmp_path: Path, path: str, expected: bool
) -> None:
    warehouse = tmp_path / "wh"
    (warehouse / "mine.db/t/bucket-0").mkdir(parents=True)
    (warehouse / "secret.db/orders").mkdir(parents=True)
    (warehouse / "mine.db/t/out").symlink_to(warehouse / "secret.db/orders")
    (warehouse / "mine.db/t/bucket-0/link").symlink_to(warehouse / "secret.db/orders/x")
    paths = allowed(f"{warehouse}/mine.db/t", str(warehouse))
    assert paths.allows(path.format(wh=warehouse)) is expected


def test_warehouse_behind_a_link_allows_both_spellings(tmp_path: Path) -> None:
    (tmp_path / "disk/mine.db/t").mkdir(parents=True)
    (tmp_path / "wh").symlink_to(tmp_path / "disk")
    paths = allowed(f"{tmp_path}/wh/mine.db/t", f"{tmp_path}/wh")
    assert paths.allows(f"{tmp_path}/wh/mine.db/t/data-1.parquet")
    assert paths.allows(f"{tmp_path}/disk/mine.db/t/data-1.parquet")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("s3://lake/elsewhere/bucket-0/data-1.parquet", True),
        ("s3://lake/wh/shared/data-1.parquet", True),
        ("s3://lake/wh/secret.db/orders/x", False),
        ("s3://lake/wh/.paimon-magics/owner-1.json", False),
        ("s3://lake/elsewhere/.paimon-magics/owner-1.json", False),
        ("s3://lake/third/data-1.parquet", False),
    ],
)
@pytest.mark.parametrize("by", ["administrator", "table"])
def test_external_roots_allow_paths_below_them(path: str, expected: bool, by: str) -> None:
    roots = ("s3://lake/elsewhere/", "s3a://lake/wh/shared", "s3://lake/wh/secret.db")
    rules = PathRules(roots) if by == "administrator" else PathRules()
    named = () if by == "administrator" else roots
    assert allowed(S3_TABLE, "s3://lake/wh", rules, named).allows(path) is expected


def test_administrator_can_forbid_external_roots_of_tables() -> None:
    path = "s3://lake/elsewhere/data-1.parquet"
    paths = allowed(S3_TABLE, "s3://lake/wh", PathRules(()), ("s3://lake/elsewhere",))
    assert not paths.allows(path)
    with pytest.raises(InvalidValueError, match=r"'s3://lake/elsewhere/data-1.parquet' is outside"):
        paths.check([path])


def test_private_folders_are_never_allowed(tmp_path: Path) -> None:
    state = tmp_path / "outer/state"
    state.mkdir(parents=True)
    (state / "token").touch()
    rules = PathRules(None, (str(state),))
    paths = allowed(f"{tmp_path}/wh/d.db/t", f"{tmp_path}/wh", rules, (f"file://{tmp_path}/outer",))
    assert paths.allows(f"{tmp_path}/outer/data-1.parquet")
    assert not paths.allows(f"{state}/token")
    (tmp_path / "outer/link").symlink_to(state)
    assert not paths.allows(f"{tmp_path}/outer/link/token")


@pytest.mark.parametrize("root", ["{tmp}", "file://{tmp}/wh", "{tmp}/link", "elsewhere", "s3:/b"])
def test_invalid_or_enclosing_external_roots_are_refused(tmp_path: Path, root: str) -> None:
    (tmp_path / "wh").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "wh")
    with pytest.raises(SetupError, match="external root"):
        PathRules((root.format(tmp=tmp_path),)).check(str(tmp_path / "wh"))


def test_deletion_skips_disallowed_paths_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "wh/mine.db/t"
    folder.mkdir(parents=True)
    own, foreign = folder / "data-1.parquet", tmp_path / "token"
    own.touch()
    foreign.touch()
    with caplog.at_level(logging.WARNING):
        allowed(str(folder), f"{tmp_path}/wh").delete([str(own), str(foreign), f"{folder}/gone"])
    assert (own.exists(), foreign.exists()) == (False, True)
    assert f"'{foreign}' is not deleted" in caplog.text
