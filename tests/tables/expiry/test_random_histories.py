"""Random histories: no live file is ever deleted, and no dead one is left after two cleanings."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.backends.s3 import s3_server
from tests.tables.expiry.random_histories import World, run

SEED = int(os.environ.get("BASE") or 1)


def warehouse(folder: Path, seed: int) -> dict[str, str]:
    return {"warehouse": str(folder / f"w{seed}")}


def test_history_with_crashes_keeps_live_files_and_leaves_no_dead_ones(tmp_path: Path) -> None:
    counts = run(SEED, warehouse(tmp_path, SEED), 100, checks_every=2).counts
    happened = {"commit", "expire", "clean", "tag", "branch", "roll back", "died"}
    assert happened <= counts.keys()


def test_model_notices_a_live_file_that_is_gone(tmp_path: Path) -> None:
    world: World = run(SEED, warehouse(tmp_path, SEED), 10)
    world.commit(world.write(None))
    path = sorted(world.live())[0]
    (Path(world.table().location) / path).unlink()
    with pytest.raises(AssertionError, match="live files are gone"):
        world.check()


def test_history_on_s3_keeps_live_objects_and_leaves_no_dead_ones() -> None:
    with s3_server() as server:
        run(SEED, server.bucket().options, 20, checks_every=5)


@pytest.mark.soak
@pytest.mark.parametrize("place", ["disk", "s3"])
def test_very_long_histories(place: str, tmp_path: Path) -> None:
    """With both, over 100,000 steps by default."""
    seeds = int(os.environ.get("PAIMON_MAGICS_EXAMPLES", "1000" if place == "disk" else "40"))
    for seed in range(SEED, SEED + seeds):
        if place == "disk":
            run(seed, warehouse(tmp_path, seed), 120)
        else:
            with s3_server() as server:
                run(seed, server.bucket().options, 60, checks_every=5)
