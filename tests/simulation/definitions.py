"""Changes of definitions in the server's process, as its routes make them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paimon_magics.coordinator.protocol.definition_changes import (
    TableCreation,
    TableDrop,
    TableRename,
)
from paimon_magics.coordinator.runtime.work import waited
from paimon_magics.coordinator.service.definition_changes import DefinitionChanges
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.statement import TableName
from tests.simulation.owners import OwnerProcess
from tests.simulation.scheduler import current
from tests.simulation.world import mark_of

__all__ = ["create", "drop", "rename"]

Begin = Callable[[str], Any]
"""Gets the identity of the table that is about to be dropped."""


def create(owner: OwnerProcess, name: TableName, schema: TableSchema, *, repeated: bool) -> bool:
    """Create a table; return whether it was created."""
    change = TableCreation(name, schema, if_not_exists=True)
    return waited(DefinitionChanges(owner.served, repeated=repeated).make(change))


def drop(owner: OwnerProcess, name: TableName, begun: Begin) -> None:
    """Drop a table."""
    task = current()
    assert task is not None
    task.depth += 1
    try:
        table = owner.served.catalog.find(name)
        identity = None if table is None else mark_of(table.location)
    finally:
        task.depth -= 1
    if identity is not None:
        begun(identity)
    task.before_drop = begun
    waited(DefinitionChanges(owner.served).make(TableDrop(name)))


def rename(owner: OwnerProcess, name: TableName, target: TableName) -> None:
    """Rename a table."""
    waited(DefinitionChanges(owner.served).make(TableRename(name, target)))
