"""The id of a warehouse: the same for all spellings, another for a copy."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from paimon_magics.errors import SetupError
from paimon_magics.tables.catalog.warehouse_mark import read_warehouse_id, warehouse_id
from paimon_magics.tables.stores.store import Stores

STORES = Stores({})


def mark_of(lake: Path | str) -> Path:
    return Path(lake) / ".paimon-magics" / "warehouse-id"


@pytest.fixture
def lake(tmp_path: Path) -> str:
    (tmp_path / "lake").mkdir()
    return str(tmp_path / "lake")


def test_reading_the_warehouse_id_writes_no_mark(tmp_path: Path, lake: str) -> None:
    assert read_warehouse_id(STORES, lake) is None
    assert read_warehouse_id(STORES, str(tmp_path / "absent")) is None
    assert list(tmp_path.rglob("*")) == [Path(lake)]


@pytest.mark.parametrize("spelling", ["{0}/", "file://{0}", "file:{0}", "{0}/../link", "{0}//."])
def test_all_spellings_of_a_warehouse_share_an_id(tmp_path: Path, lake: str, spelling: str) -> None:
    (tmp_path / "link").symlink_to(lake)
    id = warehouse_id(STORES, lake)
    assert warehouse_id(STORES, spelling.format(lake)) == id
    assert read_warehouse_id(STORES, spelling.format(lake)) == id


def test_concurrent_openers_agree_on_the_id_of_a_new_warehouse(lake: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: warehouse_id(STORES, lake), range(16)))) == 1


def test_unmarked_warehouse_takes_the_id_of_the_opened_state(lake: str) -> None:
    assert warehouse_id(STORES, lake, "0" * 32) == "0" * 32
    assert warehouse_id(STORES, lake, "1" * 32) == "0" * 32


def test_a_moved_warehouse_keeps_its_id(tmp_path: Path, lake: str) -> None:
    id = warehouse_id(STORES, lake)
    moved = Path(lake).rename(tmp_path / "moved")
    assert read_warehouse_id(STORES, str(moved)) == id
    assert warehouse_id(STORES, str(moved), id) == id
    Path(lake).mkdir()  # a new one in its old place
    assert warehouse_id(STORES, lake) != id
    assert warehouse_id(STORES, str(moved), id) == id


def test_copied_warehouse_gets_its_own_id(tmp_path: Path, lake: str) -> None:
    id = warehouse_id(STORES, lake)
    copy = str(shutil.copytree(lake, tmp_path / "copy"))
    before = read_warehouse_id(STORES, copy)
    assert warehouse_id(STORES, copy) == before != id
    assert warehouse_id(STORES, lake) == id
    shutil.rmtree(lake)
    assert warehouse_id(STORES, copy) == before


def test_state_of_the_original_refuses_a_copied_warehouse(tmp_path: Path, lake: str) -> None:
    id = warehouse_id(STORES, lake)
    copy = str(shutil.copytree(lake, tmp_path / "copy"))
    with pytest.raises(SetupError, match="is a copy of") as caught:
        warehouse_id(STORES, copy, id)
    assert lake in str(caught.value)
    assert copy in str(caught.value)
    mark_of(lake).unlink()  # what the hint says, where the copy replaces the original
    assert warehouse_id(STORES, copy, id) == id


def test_warehouse_mounted_under_two_names_is_not_a_copy(tmp_path: Path, lake: str) -> None:
    """As a folder that is mounted twice: the canonical locations differ."""
    id = warehouse_id(STORES, lake)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".paimon-magics").symlink_to(mark_of(lake).parent)
    assert warehouse_id(STORES, str(tmp_path / "other"), id) == id
    assert [path.name for path in mark_of(lake).parent.iterdir()] == ["warehouse-id"]


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\x00", b"[" * 100_000, b'{"id": 1}'])
def test_broken_mark_is_rewritten(lake: str, content: bytes) -> None:
    id = warehouse_id(STORES, lake)
    mark_of(lake).write_bytes(content)
    assert read_warehouse_id(STORES, lake) is None
    assert warehouse_id(STORES, lake, id) == id
    mark_of(lake).write_bytes(content)
    assert warehouse_id(STORES, lake) == warehouse_id(STORES, lake)


def test_mark_with_only_the_id_is_accepted(lake: str) -> None:
    warehouse_id(STORES, lake)
    mark_of(lake).write_text("0" * 32 + "\n")
    assert warehouse_id(STORES, lake) == "0" * 32
