"""Several coordinators of one warehouse, one of which owns it while the others stand by."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path

import httpx
import pyarrow as pa

from paimon_magics.coordinator.client.finding import At
from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.errors import SetupError
from paimon_magics.planning.commits.requests import Append, CommitRequest, Transaction
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.process import TABLE, Process, wait_until, write

TOKEN = "a token that all of them have"


class Team:
    """`count` coordinators, started; each has a state folder of its own, and all the same token."""

    def __init__(
        self,
        folder: Path,
        count: int,
        *options: str,
        lease_ms: int = 2_000,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.warehouse = folder / "warehouse"
        self.members = []
        for number in range(count):
            state = folder / f"state-{number}"
            state.mkdir(mode=0o700)
            (state / "token").touch(0o600)
            (state / "token").write_text(TOKEN)
            member = Process(
                self.warehouse,
                state,
                "--standby",
                f"--ownership-lease-ms={lease_ms}",
                *options,
                environment=environment,
            )
            self.members.append(member)
            member.start()

    @property
    def addresses(self) -> str:
        """The address of the team, for a session."""
        return ",".join(member.address for member in self.members)

    def owner(self) -> Process:
        """The one that owns the warehouse, once there is one."""
        found: list[Process] = []
        wait_until(lambda: bool(found) or bool(found.extend(self.owners()) or found))
        (one,) = found
        return one

    def owners(self) -> list[Process]:
        """Those that say that they own it."""
        return [one for one in self.members if asked(one, "/health/owner") == 200]

    def standby(self) -> Process:
        """One that runs and stands by."""
        owner = self.owner()
        return next(one for one in self.members if one is not owner and is_alive(one))

    def close(self) -> None:
        for member in self.members:
            member.close()


class Writer:
    """A thread that writes one row after another until `end`: `commits` of one file, or small
    `inserts` with labels. `written` has the keys that were acknowledged, `slowest` the longest time
    that one took, in seconds."""

    def __init__(self, addresses: str, kind: str, number: int, catalog: Catalog) -> None:
        self.kind = kind
        self.written: list[int] = []
        self.slowest = 0.0
        self._first = number * 10_000_000
        self._catalog = catalog
        self._client = RemoteCoordinator(At(addresses, TOKEN))
        self._ending = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def wait_for_another(self) -> None:
        """Wait until one more row is acknowledged."""
        count = len(self.written)
        wait_until(lambda: len(self.written) > count or self._failure is not None, 60)

    def end(self) -> None:
        """End after the row that is under way. Raises what went wrong."""
        self._ending.set()
        self._thread.join(120)
        assert not self._thread.is_alive()
        self._client.close()
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        try:
            while not self._ending.is_set():
                key = self._first + len(self.written)
                began = time.monotonic()
                self._write(key)
                self.slowest = max(self.slowest, time.monotonic() - began)
                self.written.append(key)
        except BaseException as error:
            self._failure = error

    def _write(self, key: int) -> None:
        if self.kind == "inserts":
            rows = pa.table({"k": pa.array([key], pa.int32())})
            name = TableName("inserted", "default")
            self._client.inserts().insert(name, rows, label=f"row-{key}").result()
            return
        transaction = self._begun()
        messages = write(self._catalog, transaction, [{"k": key}])
        self._client.commit(CommitRequest(transaction, Append(), messages))

    def _begun(self) -> Transaction:
        """A new transaction. Where the store does not work, none is opened and the statement fails
        (503): its user runs it again."""
        deadline = time.monotonic() + 60
        while True:
            try:
                return self._client.begin(TABLE)
            except SetupError as error:
                if "does not work" not in error.message or time.monotonic() > deadline:
                    raise
            time.sleep(0.2)


def asked(member: Process, path: str, token: str = "") -> int:
    """The status of its answer; 0 where it does not answer."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    try:
        url = member.address + path
        return httpx.get(url, headers=headers, trust_env=False, timeout=2).status_code
    except httpx.HTTPError:
        return 0


def is_alive(member: Process) -> bool:
    return asked(member, "/health/live") == 200


def flushed(team: Team, table: str) -> None:
    """Have the acknowledged rows of a table loaded."""
    answer = httpx.post(
        f"{team.owner().address}/v1/inserts/default/{table}/flush",
        json={},
        headers={"authorization": f"Bearer {TOKEN}"},
        trust_env=False,
        timeout=60,
    )
    assert answer.status_code == 200, answer.text
