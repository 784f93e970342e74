"""What a kill in the first write of a streaming query leaves is cleared, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paimon_magics.session.streaming import clear_unbegun
from paimon_magics.tables.stores.store import open_store
from tests.backends.s3 import s3_server

ID = "031fdbb5-ae81-4802-80d0-5cd002296b47"
OF_A_KILL = {f"offsets/.0.{ID}.tmp", f"offsets/..0.{ID}.tmp.crc", f"commits/.0.{ID}.tmp"}
OTHERS = {"metadata", f".metadata.{ID}.tmp", "sources/0/0", "offsets/.0.crc", "offsets/.0.x.tmp"}


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A folder, and the options of its store."""
    if request.param == "local":
        yield str(tmp_path / "check[1]"), {}
        return
    with s3_server() as server:
        options = dict(server.bucket().options)
        yield f"{options['warehouse']}/check[1]", options


@pytest.mark.parametrize("begun", [None, "offsets/0", "commits/0", "commits/9.compact"])
def test_only_temporary_files_before_the_first_batch_are_cleared(
    place: tuple[str, dict[str, str]], begun: str | None
) -> None:
    folder, options = place
    store = open_store(folder, options)
    assert clear_unbegun(store, folder) == [], "nothing is there yet"
    files = OF_A_KILL | OTHERS | ({begun} if begun else set())
    for name in files:
        store.make_folder(f"{folder}/{name}".rpartition("/")[0])
        store.write(f"{folder}/{name}", b"v1")
    cleared = set(clear_unbegun(store, f"{folder}/"))
    gone = OF_A_KILL if begun is None else set()
    assert cleared == {f"{folder}/{name}" for name in gone}
    left = {name for name in files if store.read(f"{folder}/{name}") is not None}
    assert left == files - gone
