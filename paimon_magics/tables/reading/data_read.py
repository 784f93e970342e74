"""Plans a read of a table's data, or of a system table that shows its data.

The same plan serves the table, `$audit_log`, `$binlog`, `$ro` and `$row_tracking`; see
`planning.reads.views`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from paimon_magics.columnar.fields import Field
from paimon_magics.columnar.folding import MergeRule
from paimon_magics.columnar.merging import KIND, SEQUENCE
from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.reads.predicates import ColumnPredicate, column_predicates
from paimon_magics.planning.reads.read_points import check_readable, point_of_read, read_options
from paimon_magics.planning.reads.splits import PlainSplit, StoredFile, TaskSplit, file_splits
from paimon_magics.planning.reads.views import (
    PLACE_COLUMNS,
    ROW_ID,
    RowView,
    ViewKind,
    metadata_columns,
)
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.clauses.names import table_text
from paimon_magics.statements.statement import ColumnFilter
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.reading.data_files import FileReader
from paimon_magics.tables.reading.split_reader import SplitReader, with_kind_names
from paimon_magics.tables.reading.table_files import check_types, file_access, own_store
from paimon_magics.tables.schema.alterations import schema_of
from paimon_magics.tables.schema.history import TableSchemas
from paimon_magics.tables.schema.merge_rule import merge_rule
from paimon_magics.tables.schema.types import arrow_type, fields_of, orc_legacy_zone
from paimon_magics.tables.snapshots.targets import Difference, TableState, Target
from paimon_magics.tables.snapshots.time_travel import find_target
from paimon_magics.tables.splits.planning import PlannedSplits, TableScan
from paimon_magics.tables.splits.table_scan import plan_splits
from paimon_magics.tables.table import Table


@dataclass(frozen=True)
class DataRead:
    """A planned read. `planned` has its raw files and splits, `reader` reads both. `fields` are
    all fields of the schema that is read, `schemas` the table's schemas, `stores` the URI schemes
    of the stores that its files can lie in."""

    target: Target
    scan: TableScan
    fields: tuple[Field, ...]
    planned: PlannedSplits
    reader: SplitReader
    schemas: TableSchemas
    stores: frozenset[str]

    @property
    def schema(self) -> TableSchema:
        """The schema that is read."""
        return self.scan.schema

    @property
    def view(self) -> RowView:
        """What the read shows: the table, or one of its system tables."""
        return self.scan.view

    @property
    def predicates(self) -> Sequence[ColumnPredicate]:
        """The conditions by which files were pruned."""
        return self.scan.predicates

    def with_columns(self, columns: Sequence[str]) -> DataRead:
        """The same read of fewer columns."""
        reader = self.reader
        names = tuple(columns)
        if isinstance(self.target, Difference):  # it compares whole rows
            return replace(self, reader=replace(reader, columns=names))
        needed = {*names, *_needed(reader.rule, self.view)}
        wanted = tuple(field for field in self.fields if field.name in needed)
        files = replace(reader.files, wanted=wanted)
        return replace(self, reader=replace(reader, files=files, columns=names))

    @property
    def changed_parts(self) -> frozenset[tuple[int, int]]:
        """(schema id, field id) of stored fields whose nested fields differ from those of the
        schema that is read."""
        today = {field.id: field for field in self.fields}
        return frozenset(
            (schema_id, field.id)
            for schema_id, fields in self.reader.files.schemas.items()
            for field in fields
            if field.parts and field.id in today and field.parts != today[field.id].parts
        )

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Read all rows in this process, also the raw files that Spark would scan."""
        for raw in self.planned.raw:
            for path, rows in zip(raw.paths, raw.row_counts, strict=True):
                file = StoredFile(path, raw.format, raw.schema_id, rows, 0)
                yield from self.named(PlainSplit((file,)))
        for split in self.planned.splits:
            yield from self.named(split)

    def named(self, split: TaskSplit) -> Iterator[pa.RecordBatch]:
        """The rows of a split, with row kinds by name (`+I`) as Spark shows them."""
        return (with_kind_names(self.reader, batch) for batch in self.reader.rows(split))


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What a query asks of a table, in one of its views.

    `columns` are the columns that it needs, None for all. `metadata` are the names of metadata
    columns that it shows, of those that the view has. `options` are Paimon's read options,
    `zone` is the time zone of times in them. `filters` are conditions by which files and row groups
    are pruned, with the values `bound` to their bind names. `unordered`: rows may come in any
    order. If `partitions` (serialized) are given, only these are read. Of a state of a table with
    keys, only files of `level_min` and above are read. `with_entries`: see `TableScan`.
    """

    kind: ViewKind = ViewKind.TABLE
    columns: Sequence[str] | None = None
    metadata: frozenset[str] = frozenset()
    options: Mapping[str, str] = field(default_factory=dict)
    zone: str = "UTC"
    filters: Sequence[ColumnFilter] = ()
    bound: Mapping[str, object] = field(default_factory=dict)
    unordered: bool = False
    partitions: frozenset[bytes] | None = None
    level_min: int = 0
    with_entries: bool = False


def plan_data_read(
    table: Table,
    request: ReadRequest,
    *,
    target: Target | None = None,
    manifests: ManifestCache | None = None,
    batch_rows: int = 65536,
) -> DataRead:
    """Plan a read; files that can't hold matching rows are pruned.

    `target` is the target that the options name, if known; `manifests` is a cache of the table's
    manifests. Raises UnknownNameError and InvalidValueError for options and points in time that the
    table does not have, UnsupportedStatementError for a view or merge that is not offered.
    """
    check_readable(replace(table.name, system_table=None), table.schema)
    options = read_options(request.options)
    if target is None:
        point = point_of_read(table.schema, options)
        target = find_target(table, point, request.zone).target
    schemas = TableSchemas(table.paimon)
    stored_schema = _schema_read(schemas, table, target)
    schema = schema_of(stored_schema)
    schema = replace(schema, options=tuple({**dict(schema.options), **options}.items()))
    fields = fields_of(stored_schema.fields)
    scan = TableScan(
        table.name,
        schema,
        row_view(schema, request.kind, request.metadata),
        column_predicates(request.filters, schema.columns, request.bound),
        request.unordered,
        request.partitions,
        request.level_min,
        request.with_entries,
    )
    manifests = manifests or ManifestCache(table.paimon)
    planned = plan_splits(table, scan, target, manifests, schemas)
    _check_places(scan, planned)
    stores = planned.stores_elsewhere | {own_store(table)}
    stored = {schema_id: schemas.fields(schema_id) for schema_id in planned.schema_ids}
    check_types(table, fields, stored)
    rule = merge_rule(schema) if schema.is_primary_key_table else None
    names = tuple(f.name for f in fields) if request.columns is None else tuple(request.columns)
    needed = {f.name for f in fields} if isinstance(target, Difference) else set(names)
    needed |= _needed(rule, scan.view)
    files = FileReader(
        access=file_access(table, stores),
        schemas=stored,
        wanted=tuple(field for field in fields if field.name in needed),
        system=(SEQUENCE, KIND) if rule is not None else (),
        batch_rows=batch_rows,
        table=table_text(replace(table.name, system_table=None)),
        with_row_ids=request.kind is ViewKind.ROW_TRACKING,
        first_place=0 if scan.view.shows_places else None,
        legacy_zone=orc_legacy_zone(schema),
        conditions=tuple(_conditions(fields, scan.predicates, scan.view)),
    )
    reader = SplitReader(files, rule, scan.view, names)
    return DataRead(target, scan, fields, planned, reader, schemas, stores)


def _check_places(scan: TableScan, planned: PlannedSplits) -> None:
    """Raise UnsupportedStatementError where the place of a row is shown that no file has as it
    is."""
    names = [column.name for column in scan.view.metadata if column.name in PLACE_COLUMNS]
    if not names or all(file_splits(split) is not None for split in planned.splits):
        return
    table = table_text(replace(scan.name, system_table=None))
    raise UnsupportedStatementError(
        f"`{names[0]}` can't tell where rows of {table} are stored: they are put together from "
        "several files, so no single file has these rows as they are shown.",
        hint=f"CALL sys.compact(table => '{table}') merges them into files of their own. Tables "
        "without a primary key and those with deletion vectors always have places.",
    )


def _conditions(
    fields: Sequence[Field], predicates: Sequence[ColumnPredicate], view: RowView
) -> Iterator[tuple[Field, ColumnPredicate]]:
    """The conditions on stored values. `$binlog` has none, since it shows arrays of them."""
    by_name = {field.name: field for field in fields}
    for predicate in predicates if view.kind is not ViewKind.BINLOG else ():
        yield by_name[predicate.column], predicate


def row_view(
    schema: TableSchema, kind: ViewKind, metadata: frozenset[str] = frozenset()
) -> RowView:
    """The view of a kind, with the metadata columns of these names. Raises
    UnsupportedStatementError for a table that does not have it."""
    if kind is ViewKind.ROW_TRACKING and not schema.row_tracking_enabled:
        raise UnsupportedStatementError(
            "`$row_tracking` needs a table with row ids, and this table has none.",
            hint="Create the table with 'row-tracking.enabled' = 'true'.",
        )
    numbers = kind in (ViewKind.AUDIT_LOG, ViewKind.BINLOG) and schema.flag(
        "table-read.sequence-number.enabled"
    )
    return RowView(kind, numbers, metadata_columns(schema, kind, metadata))


def shown_schema(read: DataRead) -> pa.Schema:
    """The Arrow schema of the rows of a read, with its system columns."""
    by_name = {field.name: field.type for field in read.fields}
    wrapped = read.view.kind is ViewKind.BINLOG
    system = []
    if read.view.keeps_retracts:
        system.append(pa.field("rowkind", pa.string()))
        if read.view.sequence_numbers:
            system.append(pa.field(SEQUENCE, pa.int64()))
    columns = [
        pa.field(name, pa.list_(pa.field("element", by_name[name])) if wrapped else by_name[name])
        for name in read.reader.columns
    ]
    if read.view.kind is ViewKind.ROW_TRACKING:
        columns += [pa.field(ROW_ID, pa.int64()), pa.field(SEQUENCE, pa.int64())]
    columns += [pa.field(column.name, arrow_type(column.type)) for column in read.view.metadata]
    return pa.schema([*system, *columns])


def _needed(rule: MergeRule | None, view: RowView) -> set[str]:
    """The columns that a merge and metadata columns need whatever columns are shown."""
    names = set(view.partition_keys)
    if rule is not None:
        names |= {*rule.order.keys, *rule.order.sequence_fields}
    for group in () if rule is None else rule.groups:
        names |= set(group.columns)
    return names


def _schema_read(schemas: TableSchemas, table: Table, target: Target) -> Any:
    """pypaimon's schema of the rows: the snapshot's own for time travel, else the current one."""
    current = table.paimon.table_schema
    if isinstance(target, TableState) and target.is_past and target.snapshot is not None:
        return schemas.schema(target.snapshot.schema_id)
    return current
