"""The client's side of a coordinator's own compactions: what they do, pause and resume."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paimon_magics.coordinator.core import Pause
from paimon_magics.coordinator.protocol.documents import table_of
from paimon_magics.coordinator.protocol.members import member
from paimon_magics.origin import user_name
from paimon_magics.statements.statement import TableName

__all__ = ["CompactedTable", "CompactionAdministration", "CompactionStatus"]

_Ask = Callable[[str, str, Any], tuple[str, Any]]


@dataclass(frozen=True, slots=True)
class CompactedTable:
    """A table that the coordinator looks after. `state` is tidy, due, waiting, running, left or
    failed; `buckets` with `size_bytes` to read are above their triggers since `since_ms`,
    `large_buckets` are too large for the coordinator. `why` says what stands in the way."""

    table: TableName
    state: str
    buckets: int
    size_bytes: int
    large_buckets: int
    large_bytes: int
    since_ms: int | None
    why: str


@dataclass(frozen=True, slots=True)
class CompactionStatus:
    """What the coordinator compacts by itself. `is_auto` if that includes tables whose options say
    nothing on it. `compacted_buckets` and `compacted_bytes` count since its start."""

    is_auto: bool
    pause: Pause | None
    workers: int
    compacted_buckets: int
    compacted_bytes: int
    tables: tuple[CompactedTable, ...]


class CompactionAdministration:
    """Requests about compactions. `ask` is as in `administration.Ask`."""

    def __init__(self, ask: _Ask) -> None:
        self._ask = ask

    def status(self) -> CompactionStatus:
        """What is compacted, and what waits. Raises UnknownNameError if the coordinator is of an
        earlier version, which compacts nothing."""
        _, found = self._ask("GET", "/v1/compactions", None)
        pause = found["pause"]
        return CompactionStatus(
            is_auto=member(found, "auto", bool),
            pause=None if pause is None else Pause(str(pause["by"]), int(pause["since_ms"])),
            workers=member(found, "workers", int),
            compacted_buckets=member(found, "compacted_buckets", int),
            compacted_bytes=member(found, "compacted_bytes", int),
            tables=tuple(_table(one) for one in found["tables"]),
        )

    def pause(self) -> Pause:
        """Let no compaction of the coordinator's begin. Return who has paused them, and when."""
        _, found = self._ask("POST", "/v1/compactions/pause", {"owner": user_name()})
        return Pause(member(found, "by", str), member(found, "since_ms", int))

    def resume(self) -> None:
        """End the pause."""
        self._ask("POST", "/v1/compactions/resume", None)


def _table(document: Any) -> CompactedTable:
    since_ms = document["since_ms"]
    return CompactedTable(
        table=table_of(document["table"]),
        state=member(document, "state", str),
        buckets=member(document, "buckets", int),
        size_bytes=member(document, "bytes", int),
        large_buckets=member(document, "large_buckets", int),
        large_bytes=member(document, "large_bytes", int),
        since_ms=None if since_ms is None else int(since_ms),
        why=member(document, "why", str),
    )
