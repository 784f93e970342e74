"""Who executes CALL of a procedure."""

from __future__ import annotations

from typing import get_args

from paimon_magics.session.statements.calls import _EXECUTORS
from paimon_magics.statements.maintenance import Maintenance
from paimon_magics.statements.removals import Removal
from paimon_magics.statements.version_changes import VersionChange


def test_every_kind_of_change_has_an_executor() -> None:
    kinds = {*get_args(VersionChange), *get_args(Maintenance), *get_args(Removal)}

    assert kinds == set(_EXECUTORS)


def test_only_removals_have_a_preview() -> None:
    previewed = {kind for kind, executor in _EXECUTORS.items() if executor.preview is not None}

    assert previewed == set(get_args(Removal))
