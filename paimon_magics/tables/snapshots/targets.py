"""The target of a read point: a state of the table, changes, or the difference of two states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paimon_magics.planning.reads.read_points import (
    ScanMode,
)


@dataclass(frozen=True)
class TableState:
    """The state of the table at `snapshot` (pypaimon's Snapshot; None before the first one).

    `created_after_ms`: read only files that were created later. `is_past`: the read point names a
    number, tag or time, so the state is read with that snapshot's schema.
    """

    snapshot: Any
    is_past: bool = False
    created_after_ms: int | None = None


@dataclass(frozen=True)
class SnapshotChanges:
    """The files that `snapshots` add in their delta (`mode` DELTA) or changelog manifests.

    () means that nothing changed. `end` is the last snapshot of the range, which may not be among
    `snapshots`. `overwrites` are the numbers of those in the range that replace or remove rows,
    of which no changes are kept.
    """

    snapshots: tuple[Any, ...]
    mode: ScanMode
    end: Any = None
    overwrites: tuple[int, ...] = ()


@dataclass(frozen=True)
class Difference:
    """The difference between the state `before` and the state `after`."""

    before: Any
    after: Any


Target = TableState | SnapshotChanges | Difference


@dataclass(frozen=True)
class Resolved:
    """The target of a read point. `protected_by_tag`: tags keep all its snapshots from expiring."""

    target: Target
    protected_by_tag: bool = False

    @property
    def identity(self) -> tuple[tuple[int, str], ...]:
        """The snapshots' ids, each with a text that distinguishes snapshots with the same id. A
        table that is dropped and created again restarts its ids."""
        return tuple((snapshot.id, _author(snapshot)) for snapshot in snapshots_of(self.target))


def snapshot_ids(target: Target) -> tuple[int, ...]:
    """The ids of the snapshots whose files are read, the first one first."""
    return tuple(snapshot.id for snapshot in snapshots_of(target))


def snapshots_of(target: Target) -> tuple[Any, ...]:
    """The snapshots whose files are read, as pypaimon's Snapshots."""
    match target:
        case TableState(snapshot=snapshot):
            return () if snapshot is None else (snapshot,)
        case SnapshotChanges(snapshots=snapshots):
            return snapshots
        case Difference(before=before, after=after):
            return before, after


def _author(snapshot: Any) -> str:
    return f"{snapshot.uuid}/{snapshot.commit_user}/{snapshot.time_millis}"
