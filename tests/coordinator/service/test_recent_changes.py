"""Requests for changes of definitions are known again, and cost no memory when they have ended."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import pytest

from paimon_magics.coordinator.protocol.definition_changes import TableCreation
from paimon_magics.coordinator.protocol.errors import NotTheirsError
from paimon_magics.coordinator.protocol.principals import Principal, Scope
from paimon_magics.coordinator.runtime.work import Steps, waited
from paimon_magics.coordinator.service.definition_changes import RecentChanges
from paimon_magics.errors import InvalidValueError, StatementError
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.statements.statement import TableName

BOB = Principal("bob", Scope.WRITE)
MIB = 2**20


def creation(number: int) -> TableCreation:
    schema = TableSchema((Column(0, "k", AtomicType("INT")),), comment=f"{number}" * MIB)
    return TableCreation(TableName("t", "d"), schema)


def ends(outcome: bool | Callable[[], Exception]) -> Steps[bool]:
    yield from ()
    if not isinstance(outcome, bool):
        raise outcome()
    return outcome


@pytest.mark.parametrize(
    "outcome",
    [
        True,
        lambda: NotTheirsError("no"),
        lambda: StatementError("no"),
        lambda: StatementError("no" * MIB),
    ],
)
def test_ended_change_keeps_no_memory(
    outcome: bool | Callable[[], Exception],
) -> None:
    recent = RecentChanges()
    tracemalloc.start()
    for number in range(40):
        try:
            waited(recent.once(BOB, f"{number}", creation(number % 10), ends(outcome)))
        except (NotTheirsError, StatementError):
            assert outcome is not True
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 8 * MIB


def test_change_id_is_refused_for_another_change() -> None:
    recent, change = RecentChanges(), creation(1)
    assert waited(recent.once(BOB, "1", change, ends(True)))
    assert waited(recent.once(BOB, "1", creation(1), ends(False)))
    with pytest.raises(InvalidValueError, match="given to another change"):
        waited(recent.once(BOB, "1", replace(change, if_not_exists=True), ends(True)))


def test_change_succeeds_after_the_missing_right_is_granted() -> None:
    recent, change = RecentChanges(), creation(1)
    with pytest.raises(NotTheirsError):
        waited(recent.once(BOB, "1", change, ends(lambda: NotTheirsError("no"))))
    assert waited(recent.once(BOB, "1", change, ends(True)))
