"""The rows that DELETE, UPDATE and MERGE change: those that they write into a primary-key table,
and those of an append table by their places in files.

Rows of most tables with keys come with their kinds. Where a column has the kinds (`rowkind.field`),
a deleted row gets -D in it. Where keys can move between partitions, changed rows are written as
those of an INSERT, whose writer knows where each key is, and deletes it from its old partition;
deleted rows come with the buckets that their keys are in. Rows of postponed tables go into their
buckets at once, since nothing may wait there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.commits.read_sets import ReadSet
from paimon_magics.planning.commits.requests import Append
from paimon_magics.planning.reads.predicates import ColumnPredicate
from paimon_magics.planning.reads.views import ROW_ID
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.session.planned_work import made_of
from paimon_magics.session.queries.snapshot_leases import SnapshotLeases
from paimon_magics.session.scope import StatementScope, located
from paimon_magics.session.writes.prepare import PreparedWrite
from paimon_magics.spark.row_places import placed_rows
from paimon_magics.spark.updated_rows import with_buckets
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.tables.row_changes.looked_up_keys import LookedUpKeys, check_none_wait, key_files
from paimon_magics.tables.row_changes.selected_rows import PlacedFiles
from paimon_magics.tables.snapshots.latest import read_snapshot
from paimon_magics.tables.table import Table

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame

ROW_ID_COLUMN = Column(0, ROW_ID, AtomicType("BIGINT"))
"""Where a row with an id keeps it when it is written anew."""

_AT_ONCE = ("postpone.batch-write-fixed-bucket", "true")


def _written_at_once(table: Table) -> Table:
    """The table whose rows get their buckets when they are written."""
    if not table.schema.postpones_buckets:
        return table
    options = tuple({**dict(table.schema.options), **dict([_AT_ONCE])}.items())
    return replace(table, schema=replace(table.schema, options=options))


def check_seen(
    scope: StatementScope,
    table: Table,
    base_snapshot_id: int,
    predicates: Sequence[ColumnPredicate],
    place: tuple[str, int],
) -> None:
    """Raise UnsupportedStatementError if rows that meet `predicates` still wait for their buckets
    in the snapshot. `place` is the statement's text and the position of the table's name in it."""
    if not base_snapshot_id or table.schema.bucket_mode != "POSTPONE_MODE":
        return
    snapshot = read_snapshot(table.paimon, base_snapshot_id)
    manifests = scope.manifests(table)
    try:
        check_none_wait(table, snapshot, predicates, manifests)
    except UnsupportedStatementError as error:
        raise located(error, *place) from None


def keyed_rows(
    table: Table,
    rows: DataFrame,
    base_snapshot_id: int,
    *,
    again: Callable[[], PreparedWrite],
    read_set: ReadSet,
    has_buckets: bool = False,
    own_buckets: bool = False,
) -> PreparedWrite:
    """The write of `rows` with their kinds (column KIND) that were made of those of a snapshot.
    With `has_buckets` the rows have a column of their buckets, too; with `own_buckets` no two tasks
    of the frame have rows of one bucket. If the writer does not accept
    kinds beside the table's columns, `without_kinds` makes rows that it accepts."""
    table = _written_at_once(table)
    return PreparedWrite(
        table,
        rows,
        Append(),
        base_snapshot_id,
        again,
        has_kinds=has_buckets or _takes_kinds(table.schema),
        has_buckets=has_buckets,
        read_set=read_set,
        own_buckets=own_buckets,
        base_manifest_list=read_set.manifest_list,
    )


def with_key_buckets(
    scope: StatementScope,
    table: Table,
    rows: DataFrame,
    base_snapshot_id: int,
    predicates: Sequence[ColumnPredicate],
) -> DataFrame:
    """The rows of a snapshot with a column of the buckets that their keys are in. A row whose key
    was in other buckets of its partition before comes once for each: it is gone there already."""
    schema = table.schema
    names = [
        column
        for column in schema.columns
        if column.name in (*schema.primary_keys, *schema.partition_keys)
    ]
    files = None
    if base_snapshot_id:
        snapshot = read_snapshot(table.paimon, base_snapshot_id)
        manifests = scope.manifests(table)
        files = key_files(table, snapshot, predicates, manifests)
    places = placed_frame(scope, table, base_snapshot_id, files, names)
    located_rows = with_buckets(rows, places, [name.name for name in names])
    return made_of(located_rows, rows, places)


def _takes_kinds(schema: TableSchema) -> bool:
    """Whether the writer accepts kinds beside the table's columns."""
    return schema.rowkind_field is None and schema.bucket_mode != "KEY_DYNAMIC"


# Rows of append tables, by their places in a snapshot's files.


def placed_frame(
    scope: StatementScope,
    table: Table,
    snapshot_id: int,
    files: PlacedFiles | None,
    columns: Sequence[Column],
    more: Sequence[Column] = (),
    keys: LookedUpKeys | None = None,
) -> DataFrame:
    """`placed_rows` of files of a snapshot, 0 for none, which stays for as long as the frame does.
    Raises OutdatedPlanError if it has expired."""
    with SnapshotLeases(scope.committer) as leases:
        if snapshot_id:
            leases.require(table.name, snapshot_id)
        rows = placed_rows(scope.spark, files, columns, more, scope.slots, keys)
        return leases.noted(rows)


def with_row_id(ids: Sequence[Column]) -> tuple[Column, ...]:
    """The columns of ids, with the row's own among them."""
    has_own = any(column.name == ROW_ID for column in ids)
    return (*ids,) if has_own else (*ids, ROW_ID_COLUMN)
