"""Metadata of a format that a newer release of Paimon writes is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.catalog.stored_tables import load_stored
from paimon_magics.tables.snapshots.chain import create_tag
from paimon_magics.tables.snapshots.latest import latest_snapshot, read_snapshot
from paimon_magics.tables.snapshots.tagged import tag_snapshot
from tests.tables.compaction.compacted_tables import write
from tests.tables.manifest_files import TABLE, create

READS: dict[str, tuple[str, Callable[[Catalog], object]]] = {
    "schema": ("schema/schema-0", lambda catalog: catalog.load(TABLE)),
    "latest snapshot": (
        "snapshot/snapshot-1",
        lambda catalog: latest_snapshot(catalog.load(TABLE).paimon),
    ),
    "snapshot": (
        "snapshot/snapshot-1",
        lambda catalog: read_snapshot(catalog.load(TABLE).paimon, 1),
    ),
    "tag": ("tag/tag-first", lambda catalog: tag_snapshot(catalog.load(TABLE).paimon, "first")),
}


@pytest.mark.parametrize("what", READS)
def test_newer_format_version_is_refused(what: str, tmp_path: Path) -> None:
    table = create(tmp_path, "CREATE TABLE t (k INT NOT NULL) TBLPROPERTIES "
                             "('primary-key' = 'k', 'bucket' = '1')")  # fmt: skip
    write(table, [{"k": 1}])
    catalog = Catalog.open({"warehouse": str(tmp_path)})
    publish = catalog.stores.publish
    create_tag(load_stored(catalog, TABLE), "first", publish, snapshot_id=None, time_retained=None)
    name, read = READS[what]
    assert read(catalog) is not None
    path = Path(table.location) / name
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "version": 4}))
    with pytest.raises(UnsupportedStatementError, match="has version 4 of its format") as raised:
        read(Catalog.open({"warehouse": str(tmp_path)}))
    assert "newer release" in raised.value.hint
