"""What is written beside a table that was renamed meanwhile does not bring its folder back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from paimon_magics.coordinator.service.opening import open_on
from paimon_magics.errors import InvalidTableError, UnknownNameError
from paimon_magics.planning.commits.requests import Transaction
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.commits.receipts import EpochNote, note_epoch
from paimon_magics.tables.snapshots.consumers import keep_progress
from paimon_magics.tables.table import Table
from tests.coordinator.process import TABLE, create_table

OTHER = TableName("other", "default")


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return create_table(tmp_path / "warehouse", "CREATE TABLE t (k INT)")


def _note(table: Table, transaction: Transaction) -> None:
    note_epoch(table, "a-query", EpochNote(1, transaction, "key"))


@pytest.mark.parametrize(
    "write",
    [
        lambda table, _: open_on(table, None),
        lambda table, _: keep_progress(table, "me", 1),
        _note,
    ],
    ids=["a transaction", "a consumer", "an epoch"],
)
def test_what_comes_after_a_rename_is_refused_and_the_name_stays_free(
    catalog: Catalog, write: Callable[[Table, Transaction], object]
) -> None:
    before = catalog.load(TABLE)
    transaction = open_on(before, None)
    catalog.rename_table(TABLE, OTHER)
    with pytest.raises(UnknownNameError, match="was dropped or renamed meanwhile"):
        write(before, transaction)
    assert not Path(before.location).exists()
    write(catalog.load(OTHER), transaction)
    catalog.rename_table(OTHER, TABLE)


def test_notes_that_an_earlier_version_left_alone_do_not_stop_a_rename(catalog: Catalog) -> None:
    left = Path(catalog.load(TABLE).location).parent / "other" / ".attempts"
    left.mkdir(parents=True)
    (left / "pm-0123456789abcdef.open").write_bytes(b"1")
    (left / "pm-fedcba9876543210.open").write_bytes(b"1")
    catalog.rename_table(TABLE, OTHER)
    assert catalog.table_exists(OTHER)


@pytest.mark.parametrize("other", ["other/file", "other/.attempts/pm-0.a.0", "other/bucket-0/x"])
def test_folder_with_anything_else_stops_a_rename(catalog: Catalog, other: str) -> None:
    file = Path(catalog.load(TABLE).location).parent / other
    file.parent.mkdir(parents=True)
    file.write_bytes(b"")
    with pytest.raises(InvalidTableError, match="exists already"):
        catalog.rename_table(TABLE, OTHER)
    assert file.exists()


def test_mark_that_was_written_beside_a_rename_does_not_stop_another(catalog: Catalog) -> None:
    left = Path(catalog.load(TABLE).location).parent / "other"
    left.mkdir()
    (left / ".paimon-magics-table").write_bytes(b"{}")
    catalog.rename_table(TABLE, OTHER)
    assert catalog.table_exists(OTHER)
