"""What a statement reads of the table that it writes to: `INSERT INTO t SELECT … FROM t`.

Such rows are made of rows of the table, so that its commit is checked against what it has read, as
that of an UPDATE is. It stays an append: compactions, and rows that others add without having read
the table, don't stand in its way.
"""

from __future__ import annotations

from collections.abc import Mapping

from paimon_magics.planning.commits.read_sets import Found, ReadSet, read_keys, read_rows
from paimon_magics.planning.reads.predicates import column_predicates
from paimon_magics.planning.reads.read_points import POINT_OPTIONS
from paimon_magics.session.connection import Connection
from paimon_magics.session.queries.resolution import resolve
from paimon_magics.session.spark_settings import with_settings
from paimon_magics.statements.statement import Insert, TableName, TableReference
from paimon_magics.tables.table import Table

__all__ = ["own_read_set", "reads_now"]


def own_read_set(
    connection: Connection,
    insert: Insert,
    table: Table,
    state: tuple[int, str],
    bound: Mapping[str, object],
) -> ReadSet | None:
    """What the commit of an INSERT INTO is checked against, None where its query does not read the
    table as it is now. `state` tells the latest snapshot before the query was planned
    (`latest_state`), `bound` are the values of the bind names."""
    if insert.overwrite or table.schema.merge_engine == "first-row":
        return None  # an overwrite has a check of its own; first-row keeps rows that are there
    references = insert.source.references
    own = [one for one in references if reads_now(connection, insert.text, table, one)]
    if not own:
        return None
    snapshot_id, name = state
    if table.schema.is_primary_key_table:
        return read_keys(snapshot_id, manifest_list=name)
    filters = own[0].filters if len(own) == 1 else ()
    found = Found(column_predicates(filters, table.schema.columns, bound))
    return read_rows(snapshot_id, found, manifest_list=name)


def reads_now(connection: Connection, statement: str, table: Table, one: TableReference) -> bool:
    """Whether a reference in a statement's text reads the latest rows of the table."""
    if one.time_travel is not None or one.options:
        return False
    if one.name.object_name.lower() != table.name.object_name.lower():
        return False  # spares the catalog
    meaning = resolve(connection, one, statement)
    if not isinstance(meaning, TableName) or meaning != table.name:
        return False
    return not any(
        option in ("branch", *POINT_OPTIONS) for option in with_settings(connection, meaning, {})
    )
