"""What is known of tables that take inserts: as they were a moment ago."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from paimon_magics.coordinator.inserts.admission.validator import KnownTables, thresholds_of
from paimon_magics.coordinator.inserts.queue.values import Thresholds
from paimon_magics.coordinator.runtime.threads import Runtime
from paimon_magics.errors import InvalidTableError
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.tables.catalog.marks import TableIds
from tests.coordinator.inserts.serving import table_sql
from tests.coordinator.process import create_table


def test_frequently_used_table_is_refreshed_in_the_background(
    tmp_path: Path,
) -> None:
    catalog = create_table(tmp_path / "warehouse", table_sql())
    known = KnownTables(Runtime(), catalog, TableIds(catalog), Thresholds(), lambda: None)
    first = known.load("default", "t")
    looked = {first.loaded_ms}
    ends = time.monotonic() + 1.5
    while time.monotonic() < ends:
        table_info = known.fresh("default", "t")
        assert table_info is not None
        looked.add(table_info.loaded_ms)
        time.sleep(0.02)
    assert len(looked) >= 2
    time.sleep(1.1)
    assert known.fresh("default", "t") is None  # nobody asked meanwhile


@pytest.mark.parametrize("key", ["group_commit_rows", "group_commit_interval_ms"])
@pytest.mark.parametrize("value", ["0", "-5", "many"])
def test_invalid_table_options_are_named(key: str, value: str) -> None:
    schema = TableSchema((), options=(("auto_batch_load", "true"), (key, value)))
    with pytest.raises(InvalidTableError, match=key):
        thresholds_of(schema, Thresholds())
