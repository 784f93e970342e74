"""A read of a table's data, or of a system table that shows it: planned, and its splits readable.

The same plan serves the table and `$audit_log`, `$binlog` and `$ro`; see `planning.reads.views`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from paimon_magics.columnar.fields import Field, can_evolve
from paimon_magics.columnar.folding import MergeRule
from paimon_magics.columnar.merging import KIND, SEQUENCE
from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.reads.predicates import ColumnPredicate, column_predicates
from paimon_magics.planning.reads.read_points import read_options, read_point
from paimon_magics.planning.reads.splits import PlainSplit, StoredFile, TaskSplit
from paimon_magics.planning.reads.views import KIND_NAMES, ROW_ID, RowView, ViewKind
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.clauses.names import table_text
from paimon_magics.statements.statement import ColumnFilter
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.reading.data_files import FileAccess, FileReader
from paimon_magics.tables.reading.split_reader import SplitReader
from paimon_magics.tables.schema.alterations import schema_of
from paimon_magics.tables.schema.history import TableSchemas
from paimon_magics.tables.schema.merge_options import merge_rule
from paimon_magics.tables.schema.types import fields_of
from paimon_magics.tables.snapshots.time_travel import (
    Difference,
    TableState,
    Target,
    find_target,
)
from paimon_magics.tables.splits.planning import PlannedSplits, plan_splits
from paimon_magics.tables.stores.paths import local_path
from paimon_magics.tables.table import Table

__all__ = ["DataRead", "plan_data_read", "row_view", "shown_schema"]


_LOCAL = "file"


@dataclass(frozen=True)
class DataRead:
    """What to read, and how: `planned` has raw files and splits, `reader` reads splits and raw
    files alike. `fields` are all of the schema that is read, `schemas` those of its files, `stores`
    the schemes of the places where files can lie."""

    schema: TableSchema
    target: Target
    view: RowView
    fields: tuple[Field, ...]
    planned: PlannedSplits
    reader: SplitReader
    schemas: TableSchemas
    stores: frozenset[str]
    predicates: tuple[ColumnPredicate, ...] = ()

    def with_columns(self, columns: Sequence[str]) -> DataRead:
        """The same read of fewer columns."""
        reader = self.reader
        names = tuple(columns)
        if isinstance(self.target, Difference):  # rows are compared as a whole
            return replace(self, reader=replace(reader, columns=names))
        needed = {*names, *(_needed(reader.rule) if reader.rule is not None else ())}
        wanted = tuple(field for field in self.fields if field.name in needed)
        files = replace(reader.files, wanted=wanted)
        return replace(self, reader=replace(reader, files=files, columns=names))

    @property
    def changed_parts(self) -> frozenset[tuple[int, int]]:
        """(schema id, field id) whose nested fields are others than those of the schema read."""
        today = {field.id: field for field in self.fields}
        return frozenset(
            (schema_id, field.id)
            for schema_id, fields in self.reader.files.schemas.items()
            for field in fields
            if field.parts and field.id in today and field.parts != today[field.id].parts
        )

    def rows(self) -> Iterator[pa.RecordBatch]:
        """All rows, read here; what Spark would scan by itself, too."""
        for raw in self.planned.raw:
            for path, rows in zip(raw.paths, raw.row_counts, strict=True):
                file = StoredFile(path, raw.format, raw.schema_id, rows, 0)
                yield from self._named(PlainSplit((file,)))
        for split in self.planned.splits:
            yield from self._named(split)

    def _named(self, split: TaskSplit) -> Iterator[pa.RecordBatch]:
        """Kinds by their names, as Spark shows them."""
        for batch in self.reader.rows(split):
            if not self.view.keeps_retracts:
                yield batch
                continue
            kinds = pa.array(KIND_NAMES).take(batch.column(0))
            yield batch.set_column(0, batch.schema.names[0], kinds)


def plan_data_read(
    table: Table,
    kind: ViewKind,
    *,
    options: Mapping[str, str] | None = None,
    columns: Sequence[str] | None = None,
    filters: Sequence[ColumnFilter] = (),
    bound: Mapping[str, object] | None = None,
    folder: ManifestCache | None = None,
    target: Target | None = None,
    unordered: bool = False,
    zone: str = "UTC",
    batch_rows: int = 65536,
) -> DataRead:
    """Plan a read of `columns` (all where None) with Paimon's read `options`.

    `filters` are conditions that the reader applies by itself, with the values `bound` to their
    bind names: files that can't hold such rows are left out. `target` is what the options name,
    where that is known, `unordered` says that rows may come in any order; `zone` is that of times
    in options.
    Raises UnknownNameError and InvalidValueError for options
    and points that the table does not have, UnsupportedStatementError for a view or merge that is
    not offered.
    """
    given = read_options(options or {})
    if target is None:
        target = find_target(table, read_point(given), zone).target
    schemas = TableSchemas(table.paimon)
    schema = _schema_read(schemas, table, target)
    table_schema = schema_of(schema)
    table_schema = replace(
        table_schema, options=tuple({**dict(table_schema.options), **given}.items())
    )
    view = row_view(table_schema, kind)
    fields = fields_of(schema.fields)
    rule = merge_rule(table_schema) if table_schema.is_primary_key_table else None
    names = tuple(field.name for field in fields) if columns is None else tuple(columns)
    predicates = column_predicates(filters, table_schema.columns, bound or {})
    folder = folder or ManifestCache(table.paimon)
    planned = plan_splits(
        table, table_schema, target, view, folder, schemas, predicates, unordered=unordered
    )
    own = _LOCAL if local_path(table.location) is not None else urlsplit(table.location).scheme
    stores = planned.stores_elsewhere | {own}
    stored = {schema_id: schemas.fields(schema_id) for schema_id in planned.schema_ids}
    _check_types(table, fields, stored)
    needed = set(names) if not isinstance(target, Difference) else {f.name for f in fields}
    if rule is not None:
        needed |= _needed(rule)
    files = FileReader(
        access=_access(table, stores),
        schemas=stored,
        wanted=tuple(field for field in fields if field.name in needed),
        system=(SEQUENCE, KIND) if rule is not None else (),
        batch_rows=batch_rows,
        table=table_text(replace(table.name, system_table=None)),
        with_row_ids=kind is ViewKind.ROW_TRACKING,
        legacy_instants=table_schema.stored_option("orc.timestamp-ltz.legacy.type") != "false",
        conditions=tuple(_conditions(fields, predicates, view)),
    )
    return DataRead(
        table_schema,
        target,
        view,
        fields,
        planned,
        SplitReader(files, rule, view, names),
        schemas,
        stores,
        predicates,
    )


def _access(table: Table, stores: frozenset[str]) -> FileAccess:
    """How tasks open files that lie in these stores."""
    if stores == {_LOCAL}:
        return FileAccess()
    if len(stores) == 1:
        return FileAccess(table.paimon.file_io)
    from pypaimon.filesystem.resolving_file_io import ResolvingFileIO

    return FileAccess(ResolvingFileIO(table.paimon.file_io.properties))


def _conditions(
    fields: Sequence[Field], predicates: Sequence[ColumnPredicate], view: RowView
) -> Iterator[tuple[Field, ColumnPredicate]]:
    """The conditions that speak of stored values: arrays of `$binlog` are none."""
    by_name = {field.name: field for field in fields}
    for one in predicates if view.kind is not ViewKind.BINLOG else ():
        yield by_name[one.column], one


def _check_types(
    table: Table, fields: Sequence[Field], schemas: Mapping[int, Sequence[Field]]
) -> None:
    """Raise UnsupportedStatementError for a column whose older files hold another type that is not
    cast exactly as Paimon does."""
    for schema_id, stored in schemas.items():
        by_id = {field.id: field for field in stored}
        for field in fields:
            found = by_id.get(field.id)
            if found is not None and not can_evolve(found, field):
                raise UnsupportedStatementError(
                    f"`{table.name}` has files whose column `{field.name}` is of another type "
                    f"({found.type} in schema {schema_id}, {field.type} now), which can't be read "
                    "as the new one.",
                    hint="Read it as it was then, with VERSION AS OF a snapshot of that time, or "
                    "rewrite the table with an engine that compacts.",
                )


def row_view(schema: TableSchema, kind: ViewKind) -> RowView:
    """The view of that kind of a table. Raises UnsupportedStatementError where it has none."""
    if kind is ViewKind.ROW_TRACKING and not schema.row_tracking_enabled:
        raise UnsupportedStatementError(
            "`$row_tracking` is of tables whose rows have ids, and this one's have none.",
            hint="Make the table with 'row-tracking.enabled' = 'true'.",
        )
    numbers = kind in (ViewKind.AUDIT_LOG, ViewKind.BINLOG) and schema.flag(
        "table-read.sequence-number.enabled"
    )
    return RowView(kind, numbers)


def shown_schema(read: DataRead) -> pa.Schema:
    """The Arrow schema of the rows."""
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
    return pa.schema([*system, *columns])


def _needed(rule: MergeRule) -> set[str]:
    """What a merge reads beside what is shown."""
    names = {*rule.order.keys, *rule.order.sequence_fields}
    for group in rule.groups:
        names |= set(group.columns)
    return names


def _schema_read(schemas: TableSchemas, table: Table, target: Target) -> Any:
    """pypaimon's schema that the rows have: of the past where a past state was asked for."""
    current = table.paimon.table_schema
    if isinstance(target, TableState) and target.is_past and target.snapshot is not None:
        return schemas.schema(target.snapshot.schema_id)
    return current
