"""Changes of a table that stays: its columns and options, its tags and branches, roll-backs."""

from __future__ import annotations

import random
from typing import Any

from paimon_magics.coordinator.core.values import Done
from paimon_magics.coordinator.protocol.definition_changes import TableAlteration
from paimon_magics.coordinator.runtime.work import waited
from paimon_magics.coordinator.service.definition_changes import DefinitionChanges
from paimon_magics.coordinator.service.tags_and_branches import change_versions
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.table_changes import AddColumn, DropColumn, SetOptions, TableChange
from paimon_magics.statements.types.type_text import from_paimon
from paimon_magics.statements.version_changes import (
    CreateBranch,
    CreateTag,
    DeleteBranches,
    DeleteTags,
    RollBackToSnapshot,
    VersionChange,
)
from paimon_magics.tables.snapshots.latest import latest_snapshot_id
from tests.simulation.clients import Client
from tests.simulation.ledger import NEVER, Change
from tests.simulation.owners import OwnerProcess
from tests.simulation.statements import by_itself
from tests.simulation.world import mark_of

__all__ = ["alter", "change_version"]

_TRIES_MAX = 20


def alter(client: Client, name: TableName) -> str:
    """Change columns or options of a table, until there is a clear answer."""
    rng = client.world.random
    changes: tuple[TableChange, ...] = (
        rng.choice(
            (
                AddColumn((f"c{rng.randrange(3)}",), from_paimon("INT")),
                DropColumn((f"c{rng.randrange(3)}",)),
                SetOptions((("group_commit_interval_ms", rng.choice(("100", "700"))),)),
            )
        ),
    )
    base: list[int] = []
    outcome = "unclear"
    for tries in range(_TRIES_MAX):

        def work(owner: OwnerProcess, repeated: bool = tries > 0) -> Any:
            if not base:
                base.append(owner.served.catalog.load(name).schema.schema_id)
            change = TableAlteration(name, changes, base[0])
            waited(DefinitionChanges(owner.served, repeated=repeated).make(change))
            return Done()

        said = client.ask(f"alter {name.table}", work)
        outcome = said.outcome
        client.world.scheduler.note(f"alter {name.table} -> {outcome} {said.error!r}")
        if outcome != "unclear" and not said.is_unreachable:
            break
        client.wait_before(tries)
    return outcome


def change_version(client: Client, name: TableName) -> str:
    """Make or delete a tag or a branch, or roll the table back."""
    rng = client.world.random
    kind = rng.choice(("tag", "branch", "back"))
    noted: list[Change] = []
    begun = client.world.scheduler.steps
    locations: list[str] = []

    def work(owner: OwnerProcess) -> Any:
        with by_itself():
            table = owner.served.catalog.load(name)
            latest, identity = latest_snapshot_id(table), mark_of(table.location)
        locations.append(table.location)
        if kind == "back" and identity is not None:
            _note(client, noted, identity, begun)
        waited(change_versions(owner.served, name, _version_change(kind, latest, rng)))
        return Done()

    said = client.ask(f"{kind} {name.table}", work)
    if kind == "back" and locations and not noted:  # its first insert has marked it meanwhile
        identity = mark_of(locations[0])
        if identity is not None:
            _note(client, noted, identity, begun)
    client.world.scheduler.note(f"{kind} {name.table} -> {said.outcome} {said.error!r}")
    for change in noted:
        change.state = said.outcome
        change.ended = NEVER if said.outcome == "unclear" else client.world.scheduler.steps
    return said.outcome


def _note(client: Client, noted: list[Change], identity: str, begun: int) -> None:
    change = Change("rollback", identity, "unclear", begun)
    noted.append(change)
    client.ledger.changes.append(change)


def _version_change(kind: str, latest: int, rng: random.Random) -> VersionChange:
    number = rng.randrange(2)
    match kind, rng.random() < 0.6:
        case "tag", True:
            return CreateTag(f"tag{number}")
        case "tag", False:
            return DeleteTags((f"tag{number}",))
        case "branch", True:
            return CreateBranch(f"branch{number}")
        case "branch", False:
            return DeleteBranches((f"branch{number}",))
        case _:
            return RollBackToSnapshot(max(1, latest - rng.randrange(3)))
