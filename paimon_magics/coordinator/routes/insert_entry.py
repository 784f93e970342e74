"""What all endpoints of small inserts share: finding the named table, checking whether it accepts
inserts now, and handing an insert over.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from paimon_magics.coordinator.http.limits import REQUEST_BYTES_MAX, run_in_threadpool
from paimon_magics.coordinator.inserts.admission.items import Insert
from paimon_magics.coordinator.inserts.admission.validator import (
    TableInfo,
    ValidatedInsert,
    mode_of,
)
from paimon_magics.coordinator.inserts.engine.group_commit import GroupCommit
from paimon_magics.coordinator.inserts.loading.rows import conformed_stream
from paimon_magics.coordinator.inserts.log.log import DiskReserve
from paimon_magics.coordinator.inserts.log.records import Format
from paimon_magics.coordinator.inserts.queue.values import (
    Accepted,
    Answer,
    Arrival,
    Mode,
    Reason,
    Refused,
)
from paimon_magics.coordinator.protocol.errors import RESUME_HINT, PausedError
from paimon_magics.coordinator.protocol.principals import Principal, Scope, check_right
from paimon_magics.coordinator.routes.insert_requests import Named
from paimon_magics.coordinator.service.coordinator import Coordinator
from paimon_magics.errors import (
    CommitConflictError,
    InvalidValueError,
    PaimonMagicsError,
    SetupError,
    StatementError,
)
from paimon_magics.statements.statement import TableName

_IN_LOOP_BYTES_MAX = 64 * 1024


class NoRoomError(SetupError):
    """The disk of the log is almost full."""


class NoMemoryError(SetupError):
    """The coordinator does not have enough memory to check an insert."""


class InsertRequest(NamedTuple):
    """An insert as it was sent: JSON, or an Arrow stream; the text of its mode, its name and its
    sender. `seen` is the version of the table that the sender has seen."""

    table: TableName
    body: bytes
    is_stream: bool
    mode: str | None
    named: Named
    principal: Principal
    user: str
    seen: str | None = None


class InsertEntry:
    """The entry of inserts into group commit. `disk` is the log's disk, if it is on this machine. A
    request has at most `bytes_max` bytes, also unpacked. `refused` counts the refused inserts, by
    reason.
    """

    def __init__(
        self,
        group: GroupCommit,
        coordinator: Coordinator,
        disk: DiskReserve | None = None,
        bytes_max: int = REQUEST_BYTES_MAX,
    ) -> None:
        self._group = group
        self._tables = group.known_tables
        self._coordinator = coordinator
        self._disk = disk
        self._bytes_max = bytes_max
        self.refused: Counter[str] = Counter(dict.fromkeys(("paused", "stopped", "no_room"), 0))

    def known(self, database: str, table: str) -> TableInfo | None:
        """A table, if it was loaded within the last second; else None."""
        return self._tables.fresh(database, table)

    async def load(self, database: str, table: str) -> TableInfo:
        """Load the table of that name."""
        return await run_in_threadpool(self._tables.load, database, table)

    async def table_info(self, name: TableName, seen: str | None = None) -> TableInfo:
        """The table of that name, loaded again if the client has `seen` another version, for
        example since it has changed the table itself."""
        table_info = self._tables.fresh(name.database or "", name.table)
        if table_info is None or (seen is not None and seen != table_info.version):
            return await self.load(name.database or "", name.table)
        return table_info

    def problem(self, table_info: TableInfo) -> PaimonMagicsError | None:
        """Why no insert is accepted now: the warehouse is not in its place, the coordinator is
        paused, the table is stopped, or the disk is full. None if inserts are accepted.
        """
        if (misplaced := self._coordinator.misplaced) is not None:
            return misplaced
        state = self._coordinator.state
        if state.pause is not None:
            return PausedError(state.pause)
        stopped = state.stopped.get(table_info.location)
        if stopped is not None:
            return CommitConflictError(stopped.reason, hint=RESUME_HINT)
        if self._disk is not None and (problem := self._disk.problem):
            return NoRoomError(problem, hint="Free space on it, then send the insert again.")
        return None

    def check(self, table_info: TableInfo) -> None:
        """Raise the error of `problem`, and count it."""
        match self.problem(table_info):
            case None:
                return
            case PausedError() as error:
                self.refused["paused"] += 1
            case NoRoomError() as error:
                self.refused["no_room"] += 1
            case error:
                self.refused["stopped"] += 1
        raise error

    async def insert(
        self,
        request: InsertRequest,
        receive: Receive,
        table_info: TableInfo | None = None,
    ) -> Answer:
        """Check an insert, hand it over, and wait for its answer. Raises what `hand_over` raises,
        and ClientDisconnect when `receive` reports that the client has gone before its rows are
        visible: a gone client must not keep its place.
        """
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if await self.hand_over(request, future, table_info) is Mode.ASYNC:
            return await future
        return await _unless_gone(future, receive)

    async def hand_over(
        self,
        request: InsertRequest,
        future: asyncio.Future[Answer],
        table_info: TableInfo | None = None,
    ) -> Mode:
        """Check an insert and hand it over; return when its answer comes in `future`.

        `table_info` is its table, if that is known and accepts inserts. An insert that the table
        refuses now may repeat an accepted insert: the table may have changed since then. Raises
        StatementErrors for other inserts, NotTheirsError for changes of rows by a sender who may
        only insert.
        """
        try:
            if table_info is None:
                # Each coroutine costs a small insert as much as a check of one of its values.
                name, seen = request.table, request.seen
                table_info = self._tables.fresh(name.database or "", name.table)
                if table_info is None or seen is not None:
                    table_info = await self.table_info(name, seen)
                self.check(table_info)
            body = request.body
            check: Callable[[bytes], ValidatedInsert]
            if request.is_stream:
                check = partial(validated_stream, table_info, bytes_max=self._bytes_max)
            else:
                check = table_info.validator.json
            if len(body) > _IN_LOOP_BYTES_MAX:  # it would delay other requests
                validated = await run_in_threadpool(check, body)
            else:
                validated = check(body)
            if table_info.changes_by_values or validated.format is Format.CHANGES:
                name = table_info.name
                check_right(request.principal, Scope.CHANGE, name.database or "", name.table)
        except StatementError as error:
            future.set_result(await self._repeated(request, error))
            return Mode.ASYNC
        except MemoryError as error:
            raise _no_memory() from error
        mode = mode_of(request.mode, table_info.mode)
        key, offset, _, digest = request.named
        user = request.user
        self._group.submit(Insert(table_info, validated, mode, future, key, offset, digest, user))
        return mode

    async def _repeated(self, request: InsertRequest, error: StatementError) -> Answer:
        """The answer to an insert that repeats an accepted insert. Raises `error` for others."""
        key, offset, _, digest = request.named
        if key:
            mode = mode_of(request.mode, Mode.ASYNC)
            arrival = Arrival(0, 0, 0, mode, key, offset, digest)
            future = await run_in_threadpool(self._group.repeated, request.table, arrival)
            if future is not None:
                match answer := await asyncio.wrap_future(future):
                    case Accepted() | Refused(reason=Reason.MISMATCH):
                        return answer
        raise error


async def _unless_gone(future: asyncio.Future[Answer], receive: Receive) -> Answer:
    leaving = asyncio.ensure_future(_gone(receive))
    try:
        both: set[asyncio.Future[Any]] = {future, leaving}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()
    if not future.done():
        future.cancel()
        raise ClientDisconnect
    return future.result()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def validated_stream(
    table_info: TableInfo, body: bytes, bytes_max: int | None = None
) -> ValidatedInsert:
    """Check that an Arrow stream fits the table, and has at most `bytes_max` bytes unpacked. Raises
    InvalidValueError."""
    try:
        rows, payload = conformed_stream(table_info.name, body, table_info.schema, bytes_max)
    except StatementError:
        raise
    except MemoryError as error:
        raise _no_memory() from error
    except ValueError as error:  # Arrow's errors among them
        raise InvalidValueError(
            f"The rows do not fit `{table_info.name}`: {error}.",
            hint=f"No row was inserted. `%paimon describe {table_info.name}` shows the columns.",
        ) from error
    return ValidatedInsert(Format.ARROW, table_info.schema.schema_id, rows, payload)


def _no_memory() -> NoMemoryError:
    return NoMemoryError(
        "The coordinator does not have enough memory to check the insert.",
        hint="No row was accepted. Send less at once, or send the insert again later.",
    )
