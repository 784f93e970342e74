"""Loads take turns by users: who fills many tables or partitions delays others little."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from paimon_magics.coordinator.inserts.engine.loading import Lane, LongLoadError, Place
from paimon_magics.coordinator.runtime.work import Clock
from tests.coordinator.process import Process, create_table

TABLES, PARTITIONS = 6, 10_000
LOGGED = "TBLPROPERTIES ('auto_batch_load' = 'true', 'group_commit_interval_ms' = '200')"


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Process]:
    create_table(tmp_path / "warehouse", f"CREATE TABLE ada (k INT) {LOGGED}")
    for number in range(TABLES):
        sql = f"CREATE TABLE eve_{number} (k INT, p INT) PARTITIONED BY (p) {LOGGED}"
        create_table(tmp_path / "warehouse", sql)
    process = Process(tmp_path / "warehouse", tmp_path / "state")
    process.start()
    yield process
    process.close()


def token(coordinator: Process, name: str, allow: str) -> dict[str, str]:
    answer = httpx.post(
        f"{coordinator.address}/v1/tokens",
        json={"name": name, "allow": [allow]},
        headers={"Authorization": f"Bearer {coordinator.token()}"},
    )
    return {"Authorization": f"Bearer {answer.json()['token']}"}


def test_inserts_of_one_user_into_many_partitions_delay_no_other_user(
    coordinator: Process, tmp_path: Path
) -> None:
    url = f"{coordinator.address}/v1/inserts/default"
    ada = token(coordinator, "ada", "write=default.ada")
    eve = token(coordinator, "eve", "write=default.eve_*")

    def insert(number: int) -> None:
        rows = [[k, k] for k in range(PARTITIONS)]
        answer = httpx.post(f"{url}/eve_{number}", json={"rows": rows}, headers=eve, timeout=120)
        assert answer.status_code == 200

    senders = [threading.Thread(target=insert, args=(number,)) for number in range(TABLES)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    time.sleep(2)  # all of them are due
    for _ in range(2):
        httpx.post(f"{url}/ada", json={"rows": [[1]]}, headers=ada, timeout=60)
        answer = httpx.post(f"{url}/ada/flush", json={"wait_ms": 120_000}, headers=ada, timeout=150)
        assert answer.status_code == 200, answer.text
    folder = tmp_path / "warehouse" / "default.db"
    loaded = [n for n in range(TABLES) if (folder / f"eve_{n}/snapshot/snapshot-1").exists()]
    assert len(loaded) < TABLES - 1, "the other user's inserts were through before"


def test_users_take_turns_however_much_one_of_them_wants() -> None:
    lane, places = Lane(1, 10_000, Clock()), list[tuple[str, Place]]()
    for user in ("eve", "eve", "eve", "ada", "eve", "bob", "ada"):
        lane.enter(user, lambda place, user=user: places.append((user, place)))  # type: ignore[misc]
    for at in range(7):
        assert len(places) == at + 1, "a lane has one place"
        places[at][1].end()
        places[at][1].end()  # no second place for one
    assert [user for user, _ in places] == ["eve", "eve", "ada", "bob", "eve", "ada", "eve"]


def test_load_gives_up_its_place_only_where_it_lasts_and_others_wait() -> None:
    now = 0.0
    lane, places = Lane(1, 10_000, Clock(steady_ms=lambda: now)), list[Place]()
    lane.enter("eve", places.append)
    now = 20_000.0
    places[0].check()
    lane.enter("ada", places.append)
    with pytest.raises(LongLoadError, match="lasted 20 s"):
        places[0].check()
    places[0].end()
    assert places[0].lasted_ms == 20_000
    places[1].check()


def test_long_load_goes_on_in_the_lane_beyond_while_that_has_a_place() -> None:
    now = 0.0
    clock = Clock(steady_ms=lambda: now)
    beyond = Lane(1, 300_000, clock)
    lane, places = Lane(1, 10_000, clock, beyond), list[Place]()
    for user in ("eve", "eve", "ada"):
        lane.enter(user, places.append)
    now = 11_000.0
    places[0].check()
    assert len(places) == 2, "its place in the first lane is the next user's"
    places[0].check()
    now = 22_000.0
    with pytest.raises(LongLoadError):
        places[1].check()
    assert len(places) == 3
    beyond.enter("eve", places.append)
    assert len(places) == 3
    places[0].end()
    assert len(places) == 4
