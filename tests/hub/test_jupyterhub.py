"""The example hub at work: its users, their scopes, their servers, and the coordinator between."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.client.starting import At
from paimon_magics.errors import SetupError
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.system_tables.registry import table_view
from paimon_magics.tables.system_tables.versions import history
from tests.coordinator.process import TABLE, create_table, read
from tests.hub.hub import COMMIT_TEN, SERVICE, Hub, User, install_proxy

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    proxy = install_proxy(tmp_path_factory.mktemp("proxy"))
    folder = tmp_path_factory.mktemp("hub")
    create_table(folder / "warehouse", "CREATE TABLE t (k INT)")
    started = Hub(folder, proxy)
    yield started
    started.stop()


@pytest.fixture(scope="module")
def catalog(hub: Hub) -> Catalog:
    return Catalog.open({"warehouse": str(hub.folder / "warehouse")})


@pytest.fixture(scope="module", autouse=True)
def ended(hub: Hub) -> list[str]:
    """Tokens that the coordinator has known, one revoked, one expired by the time of the last test:
    it forgets them meanwhile."""
    carol = hub.user("carol")
    revoked, expiring = carol.token(), carol.token(expires_in=3)
    for token in (revoked, expiring):
        RemoteCoordinator(At(hub.coordinator, token["token"])).warehouse()
    carol.revoke(revoked)
    return [revoked["token"], expiring["token"]]


def client(user: User) -> RemoteCoordinator:
    return RemoteCoordinator(At(user.hub.coordinator, user.token()["token"]))


def test_users_write_the_same_table_at_once_from_their_servers(hub: Hub, catalog: Catalog) -> None:
    users = [hub.user("alice"), hub.user("bob")]
    for user in users:
        user.start_server()
    with ThreadPoolExecutor() as pool:
        code = [COMMIT_TEN.replace("FIRST", str(first)) for first in (0, 100)]
        printed = list(pool.map(User.run, users, code))
    assert printed == ["done by alice\n", "done by bob\n"]
    keys = sorted(int(str(row["k"])) for row in read(catalog))
    assert keys == [*range(10), *range(100, 110)]
    by = [row["user"] for row in history(table_view(catalog, TABLE)).to_pylist()]
    assert sorted(by) == ["alice"] * 10 + ["bob"] * 10


def test_user_without_the_role_can_read_but_not_write(hub: Hub, catalog: Catalog) -> None:
    carol = hub.user("carol")
    reading = client(carol)
    assert reading.warehouse() == catalog.warehouse
    with pytest.raises(SetupError, match="carol lacks permission for this on `default") as no:
        reading.begin(TABLE)
    assert no.value.hint == "Ask an administrator: GRANT INSERT ON default.t TO carol."
    reading.close()
    headers = {"Authorization": f"Bearer {carol.token()['token']}"}
    address = f"{hub.coordinator}/v1/paimon/databases/default/tables/t"
    assert httpx.get(address, headers=headers, trust_env=False).is_success
    dropped = httpx.delete(address, headers=headers, trust_env=False)
    assert (dropped.status_code, dropped.json()["code"]) == (403, 403)


def test_administrator_aborts_a_transaction_of_another_user(hub: Hub) -> None:
    alice, bob, dora = (client(hub.user(name)) for name in ("alice", "bob", "dora"))
    transaction = alice.begin(TABLE)
    id = alice.transactions.id_of(transaction)
    for other in (bob, dora):
        other.transactions.ended(transaction.commit_user, id)
    with pytest.raises(SetupError, match="belongs to alice, not to bob"):
        bob.abort(transaction)
    dora.abort(transaction)
    shown = dora._requests.repeat("GET", f"/v1/transactions/{id}")
    assert (shown["owner"], shown["phase"] in ("aborting", "aborted")) == ("alice", True)
    for each in (alice, bob, dora):
        each.close()


def test_page_requires_a_login_at_the_hub(hub: Hub) -> None:
    page = f"{SERVICE}/"
    with httpx.Client(base_url=hub.address, trust_env=False, follow_redirects=True) as nobody:
        assert "/hub/login" in str(nobody.get(page).url)
    carol = hub.user("carol").browser
    shown = carol.get(page)
    assert shown.url.path == page and "<h1>Paimon coordinator</h1>" in shown.text
    assert shown.headers["cache-control"] == "no-store"
    assert "frame-ancestors 'self'" in shown.headers["content-security-policy"]
    cookies = {cookie.name: cookie for cookie in carol.cookies.jar if cookie.path == page}
    (session,) = [cookie for name, cookie in cookies.items() if "state" not in name]
    assert session.has_nonstandard_attr("HttpOnly")
    # The cookie opens that page and nothing else.
    for path in ("v1/transactions", "metrics"):
        assert carol.get(page + path).status_code == 401
    assert carol.post(f"{page}v1/transactions", json={}).status_code == 401
    # Neither a cookie from elsewhere nor a login that somebody else has begun does.
    carol.cookies.set(session.name, "2|1:0|10:1|4:name|4:dG9r|0", path=page, domain=session.domain)
    forged = carol.get(page, follow_redirects=False)
    assert (forged.status_code, "/oauth2/authorize" in forged.headers["location"]) == (302, True)
    lured = carol.get(f"{page}oauth_callback", params={"code": "c", "state": "somebody's"})
    assert lured.status_code == 403


def test_page_refuses_a_token_without_scopes(hub: Hub) -> None:
    begun = hub.user("dora").token(scopes=["self"])
    answer = httpx.get(
        f"{hub.coordinator}/", headers={"Authorization": f"token {begun['token']}"}, trust_env=False
    )
    assert answer.status_code == 403
    assert "requires the scope `read` on all tables." in answer.json()["error"]["message"]


def test_revoked_or_expired_token_is_refused(ended: list[str], hub: Hub) -> None:
    def refused(token: str) -> bool:
        try:
            RemoteCoordinator(At(hub.coordinator, token)).warehouse()
        except SetupError as error:
            assert "PAIMON_COORDINATOR_TOKEN" in error.hint
            return "has expired" in error.message
        return False

    assert refused("nobody's")
    hub.wait_for(lambda: all(map(refused, ended)))
