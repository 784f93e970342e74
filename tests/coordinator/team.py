"""Several coordinators of one warehouse, one of which owns it while the others stand by."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import httpx
import pyarrow as pa
from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.client.starting import At
from paimon_magics.errors import PaimonMagicsError, SetupError
from paimon_magics.planning.commits.requests import Append, CommitRequest, Transaction
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.process import TABLE, Process, wait_until, write

TOKEN = "a token that all of them have"

_AGAIN = ("BrokeOffError", "DeposedError", "StoreUnavailableError")

Own = tuple[int, Sequence[str], Mapping[str, str]]
"""A port (0 for a free one), options and variables of one member."""


class Team:
    """`count` coordinators, started; each has a state folder of its own, and all the same token.

    `each` returns for a member's number what is its own: a port, options, and variables of its
    environment.
    """

    def __init__(
        self,
        folder: Path,
        count: int,
        *options: str,
        lease_ms: int = 2_000,
        environment: Mapping[str, str] | None = None,
        each: Callable[[int], Own] = lambda _: (0, [], {}),
    ) -> None:
        self.warehouse = folder / "warehouse"
        self.members = []
        for number in range(count):
            state = folder / f"state-{number}"
            state.mkdir(mode=0o700)
            (state / "token").touch(0o600)
            (state / "token").write_text(TOKEN)
            port, own_options, own_environment = each(number)
            member = Process(
                self.warehouse,
                state,
                "--standby",
                f"--ownership-lease-ms={lease_ms}",
                *options,
                *own_options,
                environment={**(environment or {}), **own_environment},
                port=port,
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

        def look() -> bool:
            found.extend(self.owners())
            return bool(found)

        wait_until(look)
        (one,) = found
        return one

    def owners(self) -> list[Process]:
        """Those that say that they own it."""
        return [each for each in self.members if asked(each, "/health/owner") == 200]

    def standby(self) -> Process:
        """One that runs and stands by, once there is one."""
        standbys: list[Process] = []

        def look() -> bool:
            owner = self.owner()
            standbys.extend(each for each in self.members if each is not owner and is_alive(each))
            return bool(standbys)

        wait_until(look)
        return standbys[0]

    def close(self) -> None:
        for member in self.members:
            member.close()


class Writer:
    """A thread that writes one row after another until `end`: `commits` of one file, small
    `inserts` with labels, or messages of `streams` in a channel.

    `written` has the keys that were acknowledged, `slowest` the longest time that one took, in
    seconds. With `may_fail` a statement may fail, as where a disk is full: its key is in
    `doubtful`, and in the table once or not at all, and the next one is written. `pause_seconds`
    lie between two rows.
    """

    def __init__(
        self,
        addresses: str,
        kind: str,
        number: int,
        catalog: Catalog,
        *,
        may_fail: bool = False,
        pause_seconds: float = 0.0,
    ) -> None:
        self.kind = kind
        self.written: list[int] = []
        self.doubtful: list[int] = []
        self.failures: list[BaseException] = []
        self.slowest = 0.0
        self._may_fail = may_fail
        self._pause_seconds = pause_seconds
        self._first = number * 10_000_000
        self._catalog = catalog
        self._client = RemoteCoordinator(At(addresses, TOKEN))
        self._stream = InsertStream(addresses, f"channel-{number}")
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
        self._stream.close()
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        try:
            while not self._ending.wait(self._pause_seconds):
                key = self._first + len(self.written) + len(self.doubtful)
                began = time.monotonic()
                try:
                    self._write(key)
                except (PaimonMagicsError, OSError, ValueError) as error:  # of pypaimon-rust
                    if not self._may_fail:
                        raise
                    self.doubtful.append(key)
                    self.failures.append(error)
                    continue
                self.slowest = max(self.slowest, time.monotonic() - began)
                self.written.append(key)
        except BaseException as error:
            self._failure = error

    def _write(self, key: int) -> None:
        if self.kind == "streams":
            self._stream.insert(key)
            return
        if self.kind == "inserts":
            rows = pa.table({"k": pa.array([key], pa.int32())})
            name = TableName("inserted", "default")
            self._client.inserts().insert(name, rows, label=f"row-{key}").result()
            return
        transaction = self._begun()
        messages = write(self._catalog, transaction, [{"k": key}])
        self._client.commit(CommitRequest(transaction, Append(), messages))

    def _begun(self) -> Transaction:
        """A new transaction. Where the store does not work, or another request waits for it, none
        is opened and the statement fails (503): its user runs it again."""
        deadline = time.monotonic() + 60
        while True:
            try:
                return self._client.begin(TABLE)
            except SetupError as error:
                is_away = any(text in error.message for text in ("does not work", "is slow"))
                if not is_away or time.monotonic() > deadline:
                    raise
            time.sleep(0.2)


class InsertStream:
    """A channel of small inserts into `inserted`, over a WebSocket to any of the addresses."""

    def __init__(self, addresses: str, channel: str) -> None:
        self._addresses = addresses.split(",")
        self._channel = channel
        self._offset = 0
        self._socket: ClientConnection | None = None

    def insert(self, key: int) -> None:
        """Insert one row. After a lost connection, where the coordinator can't reach its store, is
        stopping, or is not the owner any more, the same message is sent over another connection,
        with its offset. Raises TimeoutError if it is not acknowledged within two minutes."""
        deadline = time.monotonic() + 120
        message = json.dumps({"columns": ["k"], "rows": [[key]]})
        while True:
            try:
                socket = self._connected()
                socket.send(message)
                (answer,) = json.loads(socket.recv(60))
                assert answer["offset"] == self._offset, answer
                error = answer.get("error", {})
                if error.get("type") in _AGAIN or "is stopping" in error.get("message", ""):
                    raise ConnectionError(error["message"])
                assert "error" not in answer, answer
                self._offset += 1
                return
            except (WebSocketException, OSError) as failure:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"key {key} was not acknowledged: {failure}") from failure
                self.close()
                self._addresses.append(self._addresses.pop(0))
                time.sleep(0.05)

    def close(self) -> None:
        """Leave the connection."""
        if self._socket is not None:
            socket, self._socket = self._socket, None
            with contextlib.suppress(WebSocketException, OSError):
                socket.close()

    def _connected(self) -> ClientConnection:
        if self._socket is None:
            url = self._addresses[0].replace("http", "ws", 1)
            opening = connect(
                f"{url}/v1/inserts/default/inserted/stream"
                f"?channel={self._channel}&offset={self._offset}",
                additional_headers={"authorization": f"Bearer {TOKEN}"},
                proxy=None,
                open_timeout=40,
            )
            self._socket = opening.__enter__()
        return self._socket


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
