"""The owner counts what clients do by their own addresses, also where a standby passes it on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.coordinator.process import create_table
from tests.coordinator.team import TOKEN, Team

EVE, ADA, OTHER = "127.0.0.2", "127.0.0.3", "127.0.0.4"


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Team]:
    create_table(tmp_path / "warehouse", "CREATE TABLE t (k INT)")
    team = Team(tmp_path, 2, "--log=warehouse", lease_ms=4_000)
    yield team
    team.close()


def status_of(address: str, token: str, client: str, **headers: str) -> int:
    with httpx.Client(transport=httpx.HTTPTransport(local_address=client), timeout=20) as http:
        sent = {"Authorization": f"Bearer {token}", **headers}
        return http.get(f"{address}/v1/principal", headers=sent).status_code


def wrong(number: int) -> str:
    return f"pmt_{number:012x}_" + "x" * 43


def new_token(owner: str, name: str) -> str:
    answer = httpx.post(
        f"{owner}/v1/tokens",
        json={"name": name, "allow": ["read"]},
        headers={"Authorization": f"Bearer {TOKEN}"},
    )
    return str(answer.json()["token"])


def test_wrong_tokens_through_a_standby_shut_out_their_sender_alone(team: Team) -> None:
    owner, standby = team.owner().address, team.standby().address
    codes = [status_of(standby, wrong(number), EVE) for number in range(22)]
    assert codes == [401] * 20 + [429] * 2
    assert status_of(standby, new_token(owner, "ada"), ADA) == 200
    assert status_of(owner, wrong(99), EVE) == 429, "an address is the same in both ways"
    assert status_of(owner, new_token(owner, "bob"), ADA) == 200


def test_clients_can_not_name_another_address_for_themselves(team: Team) -> None:
    owner, standby = team.owner().address, team.standby().address
    mark = "paimon-coordinator-passed-on"
    codes = [
        status_of(owner, wrong(number), EVE, **{mark: key, "x-forwarded-for": f"10.0.0.{number}"})
        for number, key in enumerate(["1", "", "a key that nobody has"] * 8)
    ]
    assert codes == [401] * 20 + [429] * 4
    codes = [
        status_of(standby, wrong(number), OTHER, **{"x-forwarded-for": f"10.0.0.{number}"})
        for number in range(22)
    ]
    assert codes == [401] * 20 + [429] * 2
