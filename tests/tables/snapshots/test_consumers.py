"""What stands in place of a table's consumers is told by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_magics.errors import TableDamagedError
from paimon_magics.tables.snapshots.consumers import keep_progress, list_progress, progress_of
from paimon_magics.tables.table import Table
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
