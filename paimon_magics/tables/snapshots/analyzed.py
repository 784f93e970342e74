"""The table statistics that a snapshot has from ANALYZE, and whether they are of its rows."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paimon_magics.tables.snapshots.latest import read_snapshot
from paimon_magics.tables.table import Table

_log = logging.getLogger(__name__)
_SNAPSHOTS_MAX = 100  # between the analyzed one and the present one
_SAME_ROWS = ("ANALYZE", "COMPACT")


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """What ANALYZE found in the snapshot `snapshot_id`: the number of rows, and for each column
    Paimon's `ColStats`. `is_current` says that the rows are still the same."""

    snapshot_id: int
    rows: int | None
    columns: Mapping[str, Mapping[str, Any]]
    is_current: bool


def table_statistics(table: Table, snapshot: Any) -> TableStatistics | None:
    """The statistics of pypaimon's `snapshot`; None if it has none, or they can't be read."""
    name = snapshot.statistics
    if not name:
        return None
    path = f"{table.paimon.path_factory().statistics_path()}/{name}"
    try:
        document = json.loads(table.paimon.file_io.read_file_utf8(path))
        analyzed = int(document["snapshotId"])
        return TableStatistics(
            analyzed,
            document.get("mergedRecordCount"),
            dict(document.get("colStats") or {}),
            _has_same_rows(table, analyzed, int(snapshot.id)),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        _log.debug("The statistics %s of `%s` can't be read: %s", name, table.name, error)
        return None


def _has_same_rows(table: Table, analyzed: int, present: int) -> bool:
    if present - analyzed > _SNAPSHOTS_MAX:
        return False
    between = (read_snapshot(table.paimon, id) for id in range(analyzed + 1, present + 1))
    return all(of is not None and of.commit_kind in _SAME_ROWS for of in between)
