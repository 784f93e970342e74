"""The lease on a warehouse: taken, kept, succeeded, lost; on a disk and in an S3 bucket."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_magics.coordinator.ownership.lease import (
    Claims,
    Fate,
    Home,
    Lease,
    LeaseFolder,
    LeaseWatch,
    Owner,
    current_lease,
    epoch_in,
    is_renewed,
    lease_of,
)
from paimon_magics.coordinator.ownership.ownership import Ownership
from paimon_magics.coordinator.protocol.clock import now_ms
from paimon_magics.errors import SetupError
from paimon_magics.tables.commits.fencing import DeposedError
from paimon_magics.tables.stores.store import LocalStore, Store, open_store
from tests.coordinator.process import wait_until
from tests.faults.disk import mounted_disk

LEASE = Lease(3, "i", Home("h", "/s", "x"), "http://127.0.0.1:1", "ada", 7, 1000, 50_000)


@pytest.fixture(params=["disk", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Store, str]:
    """A store and a warehouse in it."""
    if request.param == "disk":
        return LocalStore(), str(tmp_path / "warehouse")
    bucket = request.getfixturevalue("s3").bucket()
    return open_store(bucket.options["warehouse"], bucket.options), bucket.options["warehouse"]


@pytest.fixture
def owner(place: tuple[Store, str]) -> Iterator[Callable[..., Ownership]]:
    """Makes coordinators' sides of the lease; by default with homes of their own."""
    made: list[Ownership] = []

    def make(
        home: str, lease_ms: int = 60_000, now_ms: Callable[[], float] | None = None
    ) -> Ownership:
        made.append(
            Ownership(
                *place,
                Owner(
                    Home("host", f"/state/{home}", home),
                    f"http://127.0.0.1:{len(made) + 1}",
                    "ada",
                    len(made) + 1,
                ),
                lease_ms,
                now_ms,
            )
        )
        return made[-1]

    yield make
    for ownership in made:
        ownership.release()


def test_first_lease_has_epoch_1_and_names_its_owner(
    owner: Callable[..., Ownership], place: tuple[Store, str]
) -> None:
    first = owner("a")
    assert current_lease(*place) is None
    assert (first.acquire(), first.acquire()) == (1, 1)
    first.check()
    lease = current_lease(*place)
    assert lease is not None
    assert (lease.epoch, lease.user, lease.pid, lease.released) == (1, "ada", 1, False)
    assert lease.address == "http://127.0.0.1:1"


def test_released_lease_is_taken_at_once(
    owner: Callable[..., Ownership], place: tuple[Store, str]
) -> None:
    first, second = owner("a"), owner("b")
    first.acquire()
    first.release()
    assert second.acquire() == 2
    assert second.succeeded_another
    store, warehouse = place
    # A renewal writes a file of its own first.
    wait_until(lambda: store.names(f"{warehouse}/.paimon-magics") == ["owner-2.json"])
    with pytest.raises(DeposedError):
        first.check()


def test_the_next_process_on_the_same_state_folder_takes_over_at_once(
    owner: Callable[..., Ownership],
) -> None:
    owner("a").acquire()
    heir = owner("a")
    assert heir.acquire() == 2
    assert not heir.succeeded_another


def test_renewed_lease_is_respected_and_its_owner_named(
    owner: Callable[..., Ownership],
) -> None:
    owner("a", lease_ms=2000).acquire()
    with pytest.raises(SetupError, match=r"The coordinator of ada on host \(process 1\)"):
        owner("b", lease_ms=2000).acquire()


def test_expired_lease_is_succeeded_and_its_owner_deposed(
    owner: Callable[..., Ownership], place: tuple[Store, str]
) -> None:
    lost: list[DeposedError] = []
    first, second = owner("a", lease_ms=400), owner("b", lease_ms=400)
    first.when_lost(lost.append)
    first.acquire()
    fence = first.fence()
    with first._turn:  # as if its process had stopped: nothing is renewed
        started = time.monotonic()
        assert second.acquire() == 2
        assert time.monotonic() - started >= 0.4
    for refused in (first.check_time, first.check, first.acquire, fence.check):
        with pytest.raises(DeposedError, match="taken over by ada on host"):
            refused()
    assert len(lost) == 1 and lost[0].address == "http://127.0.0.1:2"
    second.check()
    first.release()
    lease = current_lease(*place)
    assert lease is not None and lease.epoch == 2 and not lease.released


class LateStore(LocalStore):
    """A disk that first lets `before` happen when a lease is created, or fails by `error`."""

    before: Callable[[], object] | None = None
    error: Exception | None = None

    def create(self, path: str, content: bytes) -> bool:
        before, self.before = self.before, None
        if before is not None:
            before()
        return super().create(path, content)

    def names(self, folder: str, prefix: str = "") -> list[str]:
        error, self.error = self.error, None
        if error is not None:
            raise error
        return super().names(folder, prefix)


def sides(store: Store, folder: Path, *names: str, lease_ms: int = 60_000) -> list[Ownership]:
    homes = [Home("host", f"/state/{name}", name) for name in names]
    return [
        Ownership(
            store, str(folder / "warehouse"), Owner(home, f"http://{home.id}", "ada", 1), lease_ms
        )
        for home in homes
    ]


def test_lease_created_after_its_epoch_is_ignored(tmp_path: Path) -> None:
    """The request to create it took so long that others own a higher epoch, and have removed the
    object that it would have met."""
    store = LateStore()
    late, first, second = sides(store, tmp_path, "late", "first", "second")

    def others() -> None:
        first.acquire()
        first.release()
        assert second.acquire() == 2

    store.before = others
    with ThreadPoolExecutor(1) as pool:
        acquired = pool.submit(late.acquire)
        wait_until(lambda: second.epoch == 2)
        assert LateStore().names(str(tmp_path / "warehouse/.paimon-magics")) == ["owner-2.json"]
        second.check()
        second.release()
        assert acquired.result(30) == 3
    late.release()


def test_unexpected_error_ends_neither_standby_nor_release(tmp_path: Path) -> None:
    store = LateStore()
    first, second = sides(store, tmp_path, "first", "second")
    store.error = RuntimeError("foreign")
    assert first.stand_by() == 1
    store.error = KeyError("foreign")
    first.release()
    assert first.is_lost
    assert second.epoch == 0


def test_unchallenged_owner_continues_with_the_next_epoch_after_a_stall(
    owner: Callable[..., Ownership],
) -> None:
    now = [0.0]
    first = owner("a", lease_ms=60_000, now_ms=lambda: now[0])
    assert first.acquire() == 1
    now[0] += 59_000  # earlier than others would take it for run out
    first.check_time()
    assert first.epoch == 2
    assert first.fence().epoch == 2


def test_owner_continues_once_the_disk_has_room_for_its_lease(
    tmp_path: Path,
) -> None:
    now = [0.0]
    with mounted_disk(tmp_path / "warehouse") as disk:
        owner = Owner(Home("host", "/state/a", "a"), "http://127.0.0.1:1", "ada", 1)
        place = LocalStore(), str(disk.folder)
        first = Ownership(*place, owner, 60_000, lambda: now[0])
        assert first.acquire() == 1
        disk.fill()
        now[0] += 60_000
        for _ in range(2):
            with pytest.raises(SetupError, match=r"could not be written: .*No space left"):
                first.check()
        with pytest.raises(SetupError, match="No space left"):
            Ownership(*place, owner, 60_000).acquire()
        disk.mend()
        first.check()
        assert first.epoch == 2
        # It was written, but the answer was lost.
        late = current_lease(*place)
        assert late is not None
        document = replace(late, epoch=3).document()
        assert place[0].create(f"{disk.folder}/.paimon-magics/owner-3.json", document)
        now[0] += 60_000
        first.check_time()
        assert first.epoch == 4
        first.release()


def test_fence_outranks_an_epoch_without_a_lease(
    owner: Callable[..., Ownership], place: tuple[Store, str]
) -> None:
    first = owner("a")
    fence = first.fence()
    assert fence.above(0) is fence and fence.above(1) is fence
    assert fence.above(7).epoch == 8
    lease = current_lease(*place)
    assert lease is not None and lease.epoch == 8
    first.check()
    store, warehouse = place
    store.create(f"{warehouse}/.paimon-magics/owner-9.json", LEASE.document())
    with pytest.raises(DeposedError, match=r"ada on h \(process 7\) \(epoch 9\)"):
        first.fence().above(9)


def test_owner_continues_its_epochs_after_its_leases_are_removed(
    owner: Callable[..., Ownership], place: tuple[Store, str]
) -> None:
    now = [0.0]
    first = owner("a", lease_ms=60_000, now_ms=lambda: now[0])
    first.fence().above(4)
    store, warehouse = place
    store.delete([f"{warehouse}/.paimon-magics/owner-5.json"])
    first.check()
    now[0] += 60_000
    assert first.fence().epoch == 5
    first.check_time()
    assert first.epoch == 6


@pytest.mark.parametrize("place", ["disk"], indirect=True)
def test_concurrent_acquirers_yield_a_single_owner(owner: Callable[..., Ownership]) -> None:
    sides = [owner(str(number), lease_ms=3000) for number in range(8)]
    owned, refused = [], []

    def take(side: Ownership) -> None:
        try:
            owned.append(side.acquire())
        except SetupError as error:
            refused.append(error)

    threads = [threading.Thread(target=take, args=(side,)) for side in sides]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert owned == [1]
    assert len(refused) == 7


@pytest.mark.parametrize("place", ["disk"], indirect=True)
def test_torn_lease_expires_like_any_other(
    owner: Callable[..., Ownership], place: tuple[Store, str]
) -> None:
    store, warehouse = place
    store.create(f"{warehouse}/.paimon-magics/owner-5.json", b"")
    assert owner("a", lease_ms=300).acquire() == 6


@pytest.mark.parametrize("place", ["disk"], indirect=True)
def test_lease_expires_when_unchanged_for_its_whole_length(
    place: tuple[Store, str],
) -> None:
    store, warehouse = place
    now = [5.0]
    leases = LeaseFolder(store, warehouse)
    watch = LeaseWatch(leases, lambda: now[0])
    assert leases.create(replace(LEASE, epoch=1))

    def has_run_out(after_ms: float) -> bool:
        now[0] += after_ms
        watch.look()
        return watch.has_run_out(lease_ms=7)

    assert [has_run_out(ms) for ms in (0, 999, 1)] == [False, False, True]
    store.write(f"{warehouse}/.paimon-magics/owner-1.json", b"torn")
    assert [has_run_out(ms) for ms in (0, 6, 1)] == [False, False, True]


@pytest.mark.parametrize("apart_ms", [-300_000, -700, 700, 300_000])
def test_takeover_time_does_not_depend_on_clock_differences(
    owner: Callable[..., Ownership],
    place: tuple[Store, str],
    apart_ms: int,
) -> None:
    store, warehouse = place
    mine = round(time.time() * 1000)
    theirs = replace(LEASE, epoch=1, expires_at_ms=mine + apart_ms + LEASE.lease_ms)
    store.create(f"{warehouse}/.paimon-magics/owner-1.json", theirs.document())
    started = time.monotonic()
    assert owner("b", lease_ms=900).acquire() == 2
    assert 1.0 <= time.monotonic() - started < 3.0, "a busy machine may look late"


@pytest.mark.parametrize("place", ["disk"], indirect=True)
def test_standby_waits_while_the_lease_is_renewed_and_then_takes_over(
    owner: Callable[..., Ownership],
) -> None:
    first = owner("a", lease_ms=600)
    first.acquire()
    sides = [owner(name, lease_ms=600) for name in ("b", "c")]
    seen: list[Lease | None] = []
    owned: list[tuple[Ownership, float]] = []
    answers = [False]

    def wait(side: Ownership) -> None:
        with contextlib.suppress(SetupError):  # it is released while it waits
            side.stand_by(lambda: answers[0], seen.append)
            owned.append((side, time.monotonic()))

    threads = [threading.Thread(target=wait, args=(side,)) for side in sides]
    for thread in threads:
        thread.start()
    time.sleep(1.5)  # two leases and a half
    assert not owned
    assert {lease.expires_at_ms for lease in seen if lease} and len(seen) > 10
    with first._turn:  # as if its process had stopped
        time.sleep(1.0)
        assert not owned, "its own store does not answer: it must not take what it can't serve"
        answers[0] = True
        died = time.monotonic()
        while not owned:
            assert time.monotonic() - died < 0.3
            time.sleep(0.01)
    heir, _ = owned[0]
    assert heir.epoch == 2 and heir.succeeded_another
    with pytest.raises(DeposedError):
        first.check()
    heir.release()
    other = sides[1] if heir is sides[0] else sides[0]
    while len(owned) < 2:
        time.sleep(0.01)
    assert other.epoch == 3
    other.release()
    for thread in threads:
        thread.join()


def test_lease_document_round_trips_and_torn_documents_are_ignored() -> None:
    assert lease_of(LEASE.document(), 3) == LEASE
    for torn in (b"", b"{", b"[]", b"{}", LEASE.document()[:-1], b"\xff"):
        assert lease_of(torn, 3) is None


def test_highest_epoch_counts_and_other_names_are_ignored() -> None:
    names = ["owner-9.json", "owner-10.json", "owner-11.json.tmp", "owner-012.json", "claim-1"]
    assert epoch_in(names) == 10
    assert epoch_in([]) == 0


def test_the_fate_of_a_transaction_is_claimed_once(place: tuple[Store, str]) -> None:
    ours, theirs = Claims(*place, "ours"), Claims(*place, "theirs")
    assert ours.take("pm-1-", Fate.REMOVAL)
    assert not theirs.take("pm-1-", Fate.COMMIT)
    assert theirs.take("pm-1-", Fate.REMOVAL), "the same decision can be taken up again"
    assert theirs.take("pm-2-", Fate.COMMIT)
    ours.drop("pm-1-")
    assert theirs.take("pm-1-", Fate.COMMIT)
    ours.drop_older(int(time.time() * 1000) + 1000)
    assert ours.take("pm-1-", Fate.REMOVAL) and ours.take("pm-2-", Fate.REMOVAL)
    ours.drop_older(0)
    assert not theirs.take("pm-2-", Fate.COMMIT)


def test_claim_follows_its_coordinator_until_another_takes_it_up(
    place: tuple[Store, str],
) -> None:
    ours, theirs = Claims(*place, "ours"), Claims(*place, "theirs")
    assert ours.take("pm-1-", Fate.COMMIT)
    assert ours.take("pm-1-", Fate.REMOVAL), "the commit was refused"
    assert not theirs.take("pm-1-", Fate.COMMIT)
    assert ours.take("pm-2-", Fate.COMMIT)
    assert theirs.take("pm-2-", Fate.COMMIT)
    assert not ours.take("pm-2-", Fate.REMOVAL)


@pytest.mark.parametrize("content", [b"[" * 100_000, b"\0", b"{}"])
def test_unreadable_lease_counts_by_its_epoch(tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / "warehouse/.paimon-magics"
    folder.mkdir(parents=True)
    (folder / "owner-2.json").write_bytes(content)
    (side,) = sides(LocalStore(), tmp_path, "a", lease_ms=200)
    assert side.acquire() == 3
    side.release()


def test_a_folder_in_the_place_of_a_lease_is_named(tmp_path: Path) -> None:
    (tmp_path / "warehouse/.paimon-magics/owner-1.json").mkdir(parents=True)
    (side,) = sides(LocalStore(), tmp_path, "a")
    with pytest.raises(SetupError, match=r"owner-1\.json is a folder"):
        side.acquire()


def test_renewal_changes_the_lease_document() -> None:
    assert replace(LEASE, expires_at_ms=50_001).document() != LEASE.document()


@pytest.mark.parametrize("apart_ms", [-300_000, 300_000])
def test_live_lease_is_recognised_without_comparing_clocks(
    place: tuple[Store, str], apart_ms: int
) -> None:
    store, warehouse = place
    leases = LeaseFolder(store, warehouse)
    lease = replace(LEASE, epoch=1, expires_at_ms=now_ms() + apart_ms)
    assert leases.create(lease)
    assert not is_renewed(store, warehouse, lease)
    stop = threading.Event()

    def renew() -> None:
        number = 0
        while not stop.wait(0.1):
            number += 1
            leases.write(replace(lease, expires_at_ms=lease.expires_at_ms + number))

    renewer = threading.Thread(target=renew)
    renewer.start()
    seen = is_renewed(store, warehouse, lease)
    stop.set()
    renewer.join()
    assert seen
