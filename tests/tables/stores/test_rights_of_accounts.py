"""Folders of a warehouse on a local disk that another account of the machine has made."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paimon_magics.errors import SetupError
from paimon_magics.tables.stores.corruption import may_not
from paimon_magics.tables.stores.probes import folders_below
from paimon_magics.tables.stores.store import store_errors

NOBODY = 65534

pytestmark = pytest.mark.skipif(os.name != "posix", reason="Windows has other rights")


def as_another_account(question: Callable[[], Any]) -> Any:
    """The answer of a process whose account is not the folders' owner."""
    ends, begins = os.pipe()
    child = os.fork()
    if child == 0:
        answer: Any = "failed"
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            answer = question()
        finally:
            os.write(begins, json.dumps(answer).encode())
            os._exit(0)
    os.close(begins)
    with os.fdopen(ends) as reader:
        text = reader.read()
    os.waitpid(child, 0)
    return json.loads(text)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table's folder that all accounts may write; those in it can be read only."""
    for outer in (tmp_path, *tmp_path.parents):
        if outer == Path(tempfile.gettempdir()):
            break
        outer.chmod(0o755)
    folder = tmp_path / "lake" / "default.db" / "t"
    for name in ("snapshot", "bucket-0"):
        (folder / name).mkdir(parents=True)
    for each in (tmp_path / "lake", folder.parent, folder):
        each.chmod(0o777)
    for name in ("snapshot", "bucket-0"):
        (folder / name).chmod(0o555)
    return folder


def test_folders_that_this_account_may_not_write_are_listed(table: Path) -> None:
    lake = str(table.parents[1])

    def refused() -> list[str]:
        return list(folders_below(lake).refused)

    assert as_another_account(refused) == [str(table / "bucket-0"), str(table / "snapshot")]
    for name in ("snapshot", "bucket-0"):
        (table / name).chmod(0o777)
    assert as_another_account(refused) == []
    found = folders_below(lake)
    assert (found.looked_at, found.left_out) == (3, False)


def test_folder_that_was_removed_since_does_not_blame_the_one_above(table: Path) -> None:
    gone = str(table / ".attempts" / "a.0.tmp")
    told = as_another_account(lambda: may_not(gone))
    assert told.endswith(f"may not write {gone}, which is gone since")


def test_failed_opening_names_account_folder_owner_and_next_step(table: Path) -> None:
    def failure() -> list[str]:
        try:
            with store_errors("Opening a transaction on `t`"):
                (table / "snapshot" / "x").write_bytes(b"")
        except SetupError as error:
            return [error.message, error.hint]
        return []

    message, hint = as_another_account(failure)
    assert f"may not write {table / 'snapshot'} (owner " in message and "mode 0555" in message
    assert "several-people-on-one-machine" in hint and "can be reached" not in hint
