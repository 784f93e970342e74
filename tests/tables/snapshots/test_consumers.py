"""Consumers are cleared by patterns. What stands in place of them is named by errors."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from paimon_magics.errors import InvalidValueError, TableDamagedError, UnknownNameError
from paimon_magics.planning.commits.requests import Append
from paimon_magics.statements.version_changes import ClearConsumers, ResetConsumer
from paimon_magics.tables.snapshots.consumers import keep_progress, list_progress, progress_of
from paimon_magics.tables.snapshots.upkeep import keep_up
from paimon_magics.tables.stores.local_store import publish_local_file
from paimon_magics.tables.table import Table
from tests.tables.commits.test_commit import ours, rows_of, written
from tests.tables.expiry.test_expire_snapshots import stored
from tests.tables.manifest_files import create


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return create(tmp_path, "CREATE TABLE t (k INT)")


def test_error_names_a_file_in_place_of_the_consumer_folder(table: Table) -> None:
    (Path(table.location) / "consumer").write_text("no folder")
    with pytest.raises(
        TableDamagedError, match=r"consumers of .*/consumer can't be read"
    ) as raised:
        list_progress(table)
    assert raised.value.hint == "Remove that file."
    with pytest.raises(TableDamagedError, match=r"/consumer/consumer-c"):
        progress_of(table, "c")
    with pytest.raises(TableDamagedError, match=r"consumers of .*/consumer"):
        keep_progress(table, "c", 2)


def test_error_names_a_folder_in_place_of_a_consumer_file(table: Table) -> None:
    (Path(table.location) / "consumer" / "consumer-c").mkdir(parents=True)
    with pytest.raises(TableDamagedError, match=r"/consumer/consumer-c can't be read"):
        progress_of(table, "c")
    keep_progress(table, "d", 2)
    assert list_progress(table) == {"d": 2}


def clear(table: Table, including: str | None, excluding: str | None = None) -> tuple[str, ...]:
    change = ClearConsumers(including, excluding)
    receipt = keep_up(table, stored(table), change, publish_local_file, lambda _: False)
    return receipt.changed


def test_pattern_that_backtracks_takes_no_time(table: Table) -> None:
    """Clients send patterns to the coordinator, which would answer nobody meanwhile."""
    keep_progress(table, "a" * 36 + "-", 1)
    began = time.process_time()
    assert clear(table, "(a+)+") == ()
    assert time.process_time() - began < 5
    assert clear(table, None, "(a|a)*-") == ()
    assert clear(table, "(a+)+-") == ("a" * 36 + "-",)


def test_consumer_is_not_set_to_a_snapshot_that_is_expiring(tmp_path: Path) -> None:
    table = create(tmp_path, "CREATE TABLE t (k INT, v STRING)")
    for number in range(3):
        ours(table, Append(), written(table, rows_of(table, number, "a")), str(number))
    (Path(table.location) / "snapshot" / "EARLIEST").write_text("3")
    with pytest.raises(UnknownNameError, match=r"no such snapshot \(it has 3 to 3\)"):
        keep_up(table, stored(table), ResetConsumer("c", 2), publish_local_file, lambda _: False)
    assert list_progress(table) == {}


def test_pattern_matches_whole_names(table: Table) -> None:
    for name in ("a", "ab", "b"):
        keep_progress(table, name, 1)
    assert clear(table, "b|c") == ("b",)
    assert clear(table, "a.*", "a") == ("ab",)


@pytest.mark.parametrize(
    "pattern", ["(", "a)|(b", "(?=a)b", r"(a)\1", "((a{1,999}){1,999}){1,999}"]
)
def test_unusable_pattern_is_refused_whatever_consumers_there_are(
    table: Table, pattern: str
) -> None:
    for _ in range(2):
        with pytest.raises(InvalidValueError, match="no pattern for names") as raised:
            clear(table, pattern)
        assert "RE2" in raised.value.hint
        keep_progress(table, "a", 1)
