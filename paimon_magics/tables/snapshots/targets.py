"""What a read point names: a state of the table, changes, or the difference of two states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paimon_magics.planning.reads.read_points import (
    ScanMode,
)

__all__ = [
    "Difference",
    "Resolved",
    "SnapshotChanges",
    "TableState",
    "Target",
    "snapshot_ids",
    "snapshots_of",
]


@dataclass(frozen=True)
class TableState:
    """The table as a snapshot has it; None before the first. `snapshot` is pypaimon's value.

    `created_after_ms`: only files that were created later. `is_past`: it was asked for by number,
    tag or time, so that it has that snapshot's schema.
    """

    snapshot: Any
    is_past: bool = False
    created_after_ms: int | None = None


@dataclass(frozen=True)
class SnapshotChanges:
    """The files that the snapshots' own manifests add: `mode` DELTA or CHANGELOG. No snapshots:
    nothing changed."""

    snapshots: tuple[Any, ...]
    mode: ScanMode
    end: Any = None


@dataclass(frozen=True)
class Difference:
    """What tells the state after from the state before."""

    before: Any
    after: Any


Target = TableState | SnapshotChanges | Difference


@dataclass(frozen=True)
class Resolved:
    """What a point names, and whether tags keep all its snapshots from expiring."""

    target: Target
    kept_by_tag: bool = False

    @property
    def identity(self) -> tuple[tuple[int, str], ...]:
        """What tells the snapshots from others of the same numbers: a table that is dropped and
        made again counts its snapshots anew."""
        return tuple((one.id, _author(one)) for one in snapshots_of(self.target))


def snapshot_ids(target: Target) -> tuple[int, ...]:
    """The snapshots whose files are read, the first one first."""
    return tuple(snapshot.id for snapshot in snapshots_of(target))


def snapshots_of(target: Target) -> tuple[Any, ...]:
    """pypaimon's values of the snapshots whose files are read."""
    match target:
        case TableState(snapshot=snapshot):
            return () if snapshot is None else (snapshot,)
        case SnapshotChanges(snapshots=snapshots):
            return snapshots
        case Difference(before=before, after=after):
            return before, after


def _author(snapshot: Any) -> str:
    return f"{snapshot.uuid}/{snapshot.commit_user}/{snapshot.time_millis}"
