"""A partitioned table with keys, written by pypaimon, and its layout."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_magics.planning.commits.requests import Append
from paimon_magics.session.reports.layout import Layout, layout_of
from paimon_magics.tables.catalog.catalog import Catalog
from tests.tables.commits.test_commit import ours, written
from tests.tables.manifest_files import TABLE, create

SQL = (
    "CREATE TABLE t (day STRING NOT NULL, k INT NOT NULL, v STRING) PARTITIONED BY (day) "
    "TBLPROPERTIES ('primary-key' = 'day,k', 'bucket' = '4')"
)


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """Three partitions with up to four buckets; the middle one was written to eight times."""
    folder: Path = tmp_path_factory.mktemp("warehouse")
    table = create(folder, SQL)
    for number in range(8):
        days = ("2026-11-19", "2026-11-20", "<b>&") if number == 0 else ("2026-11-20",)
        rows = [{"day": day, "k": k, "v": "x" * k} for day in days for k in range(20)]
        ours(table, Append(), written(table, rows), f"writer {number}")
    return layout_of(Catalog.open({"warehouse": str(folder)}), TABLE, "default.t")
