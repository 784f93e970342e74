"""How rows change in their files: by whole files, or column by column. Those of a table with a
primary key do so where its merge engine takes no deletes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paimon_magics.planning.reads.predicates import ColumnPredicate
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.row_changes.evolving_plan import EvolvingChange, plan_evolving_change
from paimon_magics.tables.row_changes.keyed_files import plan_keyed_change
from paimon_magics.tables.row_changes.plan import AppendChange, plan_append_change
from paimon_magics.tables.table import Table

TableChange = AppendChange | EvolvingChange
"""A planned change of rows in their files."""


def plan_table_change(
    table: Table,
    snapshot: Any,
    predicates: Sequence[ColumnPredicate],
    manifests: ManifestCache,
) -> TableChange:
    """Plan a change of rows that meet `predicates` (and other conditions) on `snapshot`,
    pypaimon's. Raises UnsupportedStatementError for rows that can't be changed so."""
    if table.schema.is_primary_key_table:
        return plan_keyed_change(table, snapshot, predicates, manifests)
    plan = plan_evolving_change if table.schema.data_evolution_enabled else plan_append_change
    return plan(table, snapshot, predicates, manifests)
