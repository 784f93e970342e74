"""What was removed from a table, and what keeps the rest: who still reads or writes it."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_magics.tables.snapshots.consumers import list_progress
from paimon_magics.tables.snapshots.latest import latest_snapshot
from paimon_magics.tables.snapshots.tagged import tag_snapshot
from paimon_magics.tables.table import MAIN_BRANCH, Table, branch_names


@dataclass(frozen=True, slots=True)
class Holder:
    """Something that keeps files of a table: its `kind` ("tag", "branch", "consumer", "lease",
    "transaction"), its name, and the snapshot from which on it keeps them, None for all."""

    kind: str
    name: str
    snapshot_id: int | None = None


@dataclass(frozen=True, slots=True)
class RemovalReceipt:
    """How many snapshots (or changelogs), and files with `size_bytes`, were removed or would be;
    `names` are those of tags, or on trial the first paths of orphans below the table's folder. The
    size is known of orphans, and before something is removed; else it is 0. `holders` keep other
    files of the table."""

    snapshots: int = 0
    names: tuple[str, ...] = ()
    files: int = 0
    size_bytes: int = 0
    holders: tuple[Holder, ...] = ()

    def __add__(self, other: RemovalReceipt) -> RemovalReceipt:
        """Both together; the holders are those of the later."""
        return RemovalReceipt(
            self.snapshots + other.snapshots,
            self.names + other.names,
            self.files + other.files,
            self.size_bytes + other.size_bytes,
            other.holders,
        )


def stored_holders(table: Table) -> list[Holder]:
    """The tags, other branches and consumers of a table or branch, by their files."""
    own = table.name.branch or MAIN_BRANCH
    folder = str(table.paimon.tag_manager().tag_directory())
    holders = []
    for file in sorted(table.store.names(folder, "tag-")):
        tagged = tag_snapshot(table.paimon, file.removeprefix("tag-"))
        if tagged is not None:  # else it was deleted meanwhile
            holders.append(Holder("tag", file.removeprefix("tag-"), int(tagged.id)))
    for branch in branch_names(table.paimon):
        if branch != own:
            latest = latest_snapshot(table.paimon, branch)
            holders.append(Holder("branch", branch, None if latest is None else latest.id))
    consumers = list_progress(table).items()
    return holders + [Holder("consumer", name, next_id) for name, next_id in sorted(consumers)]
