"""The difference of two states of a table: rows, files, and the schema.

This process compares the files, by manifests. Spark compares the rows, only in partitions whose
files differ. An append table that only gained files has gained exactly their rows, which needs no
job.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.differences import changed_columns
from paimon_magics.columnar.time_zones import process_zone, rules_of
from paimon_magics.errors import InvalidValueError, UnknownNameError
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.reads.read_points import AtTimestamp, AtVersion
from paimon_magics.planning.reports.partition_names import KeyKind, PartitionNames, key_kind
from paimon_magics.planning.reports.view_queries import (
    CHANGES,
    changed_files_sql,
    counts_sql,
    grown_sql,
    kinds_sql,
)
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.queries.frames import frame_of_query
from paimon_magics.session.reports.report import Report, Section
from paimon_magics.session.scope import StatementScope
from paimon_magics.statements.clauses.names import quoted, table_text, text_literal
from paimon_magics.statements.grammar.parsing import parse_cell
from paimon_magics.statements.statement import Query, TableName
from paimon_magics.statements.types.type_text import to_spark_sql
from paimon_magics.tables.schema.history import TableSchemas
from paimon_magics.tables.snapshots.latest import earliest_snapshot_id, read_snapshot
from paimon_magics.tables.snapshots.tagged import tag_snapshot
from paimon_magics.tables.snapshots.targets import TableState
from paimon_magics.tables.snapshots.time_travel import find_target
from paimon_magics.tables.system_tables.partitions import NamedFiles, named_files
from paimon_magics.tables.system_tables.registry import table_view
from paimon_magics.tables.table import Table

_SAMPLE = 100
_PARTITIONS_MAX = 100


_DAYS = {"today": 0, "yesterday": 1}
_EMPTY = "0"
"""The name of the state before the first snapshot."""


def difference_of(scope: StatementScope, name: TableName, before: str, after: str) -> Report:
    """Report what changed from one state to another, each a snapshot, a tag or a time; 0 is the
    empty state before the first snapshot, also where that has expired.

    Raises UnknownNameError for a state that does not exist, InvalidValueError for two empty ones.
    """
    table = scope.catalog.load(name)
    sides = _sides_of(scope, table, before, after)
    gone, new = _other_files(*sides)
    counts, sample, query, note = _rows(scope, table, sides, gone, new)
    keys = table.schema.partition_keys
    hidden = () if keys else ("partition",)
    versions = sides[0].version, sides[1].version
    names = _partition_names(table.schema, *sides)
    files_query = changed_files_sql(table_text(name, "files"), names, *versions)
    sections = [
        Section("Rows", counts, query, note=note, hidden=hidden),
        *([sample] if sample is not None else []),
        Section("Files", _files(gone, new), files_query, hidden=hidden),
    ]
    schema = _schema_changes(scope, table, sides)
    if schema.num_rows:
        sections.append(Section("Schema", schema, ""))
    sums = [pc.sum(counts.column(word)).as_py() or 0 for word in CHANGES]
    rows_said = ", ".join(f"{n:,} {word}" for n, word in zip(sums, CHANGES, strict=True) if n)
    summary = (
        f"{name}, snapshot {sides[0].id} to {sides[1].id}: "
        f"{f'rows {rows_said}' if rows_said else 'the same rows'}; "
        f"{count_text(new.num_rows, 'file')} added, {gone.num_rows:,} removed; "
        f"{'another schema' if schema.num_rows else 'the same schema'}"
        f"{names.told_in(scope.zone)}"
    )
    return Report("DIFFERENCE", summary, tuple(sections))


def changed_rows(
    table: Table, before: Side, after: Side, gone: pa.Table, new: pa.Table
) -> tuple[str, list[str]]:
    """Return the query for the rows that differ, as `planning.reports.view_queries` takes it, and
    its columns. `gone` are the files that only `before` has, `new` those that only `after` has."""
    shared = _shared(before.columns, after.columns)
    touched = {*gone.column("partition").to_pylist(), *new.column("partition").to_pylist()}
    text = _query(table.name, before, after, table.schema, shared, sorted(touched))
    return text, [column.name for _, column in shared]


def overwritten_rows(
    scope: StatementScope, table: Table, snapshot: str, names: Sequence[str]
) -> str:
    """Return the query for the rows that differ between a snapshot and the one before, with the
    columns `rowkind` and `names`; columns that the snapshot lacks are NULL."""
    after = _side_of(scope, table, snapshot)
    columns = {column.name: column for column in after.columns}
    if snapshot == "1":
        changes = f"SELECT 'added' AS `change`, * FROM {named_table(table.name)} VERSION AS OF 1"
        shown, is_paired = list(columns), False
    else:
        before = _side_of(scope, table, str(int(snapshot) - 1))
        changes, shown = changed_rows(table, before, after, *_other_files(before, after))
        is_paired = table.schema.is_primary_key_table
    types = {column.name: to_spark_sql(column.type) for column in table.schema.columns}
    values = (
        quoted(name)
        if name in shown
        else f"CAST(NULL AS {types.get(name, 'BIGINT')}) AS {quoted(name)}"
        for name in names
    )
    return (
        f"SELECT rowkind, {', '.join(values)} "
        f"FROM ({kinds_sql(changes, shown, is_paired=is_paired)})"
    )


def _other_files(before: Side, after: Side) -> tuple[pa.Table, pa.Table]:
    """The files that only `before` has, and those that only `after` has."""

    def not_in(files: pa.Table, others: pa.Table) -> pa.Table:
        names = others.column("file_name").combine_chunks()
        return files.filter(pc.invert(pc.is_in(files.column("file_name"), value_set=names)))

    return not_in(before.files, after.files), not_in(after.files, before.files)


def _files(gone: pa.Table, new: pa.Table) -> pa.Table:
    """Added and removed files, rows and bytes, for each partition."""
    parts = []
    for files, sign in ((new, "added"), (gone, "removed")):
        grouped = files.group_by(["partition"], use_threads=False).aggregate(
            [("file_name", "count"), ("record_count", "sum"), ("file_size_in_bytes", "sum")]
        )
        partitions, *sums = grouped.columns
        signs = pa.array([sign] * grouped.num_rows, pa.string())
        names = ("partition", "files", "file_count", "record_count", "file_size_in_bytes")
        parts.append(pa.table([partitions, signs, *sums], names=names))
    return pa.concat_tables(parts).sort_by([("partition", "ascending"), ("files", "ascending")])


def _rows(
    scope: StatementScope,
    table: Table,
    sides: tuple[Side, Side],
    gone: pa.Table,
    new: pa.Table,
) -> tuple[pa.Table, Section | None, str, str]:
    """Return the numbers of changed rows for each partition, a sample of the rows, the query for
    the numbers, and a note on how they were found."""
    before, after = sides
    schema = table.schema
    shared = _shared(before.columns, after.columns)
    partition = _partition_names(schema, before, after).of_rows()
    same_deletes = before.index_manifest == after.index_manifest
    if not gone.num_rows and not new.num_rows and same_deletes:
        text = _query(table.name, after, before, schema, shared, ())
        note = "Both states have the same files."
        return _COUNTS.empty_table(), None, counts_sql(text, partition), note
    only_grew = (
        not schema.is_primary_key_table
        and not gone.num_rows
        and same_deletes
        and before.id < after.id
        and not schema.data_evolution_enabled
        and all(is_kept(table, side) for side in sides)
    )
    if only_grew:
        option = "'incremental-between-scan-mode' = 'diff'"
        text = (
            f"SELECT * FROM {named_table(table.name)} WITH "
            f"('incremental-between' = '{before.id},{after.id}', {option})"
        )
        if before.snapshot is None:
            text = f"SELECT * FROM {after.source(table.name, before)}"
        with_kinds = text.replace("SELECT *", "SELECT '+I' AS rowkind, *", 1)
        note = "Files were only added: their rows are counted without a Spark job."
        sample = _sample(scope, f"{with_kinds} LIMIT {_SAMPLE}")
        return _grown(new), sample, grown_sql(text, partition), note
    text, names = changed_rows(table, before, after, gone, new)
    counted = counts_sql(text, partition)
    counts = rows_of_query(scope, counted)
    order = schema.primary_keys or schema.partition_keys
    by = f" ORDER BY {', '.join(map(quoted, order))}" if order else ""
    some = f"{text}{by} LIMIT {_SAMPLE}"
    sample = None
    if counts.num_rows:
        is_paired = schema.is_primary_key_table
        sample = _sample(scope, kinds_sql(some, names, is_paired=is_paired))
    return counts, sample, counted, "Compared by Spark."


def _partition_names(schema: TableSchema, before: Side, after: Side) -> PartitionNames:
    twice = {*before.named.twice, *after.named.twice}
    return PartitionNames.of(schema, process_zone(), sorted(twice))


def _query(
    name: TableName,
    before: Side,
    after: Side,
    schema: TableSchema,
    shared: Sequence[tuple[str, Column]],
    touched: Sequence[str],
) -> str:
    """Return the query for the rows that differ, with the columns `change`, the table's, and for a
    primary-key table `before`, the row before."""
    where = _in_partitions(schema, touched)
    old = ", ".join(
        f"{quoted(was)} AS {quoted(column.name)}" if was != column.name else quoted(was)
        for was, column in shared
    )
    now = ", ".join(quoted(column.name) for _, column in shared)
    earlier = f"SELECT {old} FROM {before.source(name, after)}{where}"
    later = f"SELECT {now} FROM {after.source(name, before)}{where}"
    if not schema.is_primary_key_table:
        return (
            f"SELECT 'removed' AS `change`, * FROM ({earlier} EXCEPT ALL {later}) "
            f"UNION ALL SELECT 'added' AS `change`, * FROM ({later} EXCEPT ALL {earlier})"
        )
    keys = [quoted(key) for key in schema.primary_keys]
    joined = " AND ".join(f"was.{key} = now.{key}" for key in keys)
    same = " AND ".join(
        f"{_comparable('was', column)} <=> {_comparable('now', column)}" for _, column in shared
    )
    values = ", ".join(
        f"coalesce(now.{quoted(c.name)}, was.{quoted(c.name)}) AS {quoted(c.name)}"
        if c.name in schema.primary_keys
        else f"if(now.{keys[0]} IS NULL, was.{quoted(c.name)}, now.{quoted(c.name)}) "
        f"AS {quoted(c.name)}"
        for _, c in shared
    )
    return (
        f"SELECT CASE WHEN was.{keys[0]} IS NULL THEN 'added' WHEN now.{keys[0]} IS NULL THEN "
        f"'removed' ELSE 'changed' END AS `change`, {values}, "
        f"if(was.{keys[0]} IS NULL, NULL, struct(was.*)) AS `before` "
        f"FROM ({earlier}) AS was FULL OUTER JOIN ({later}) AS now ON {joined} WHERE NOT ({same})"
    )


def _comparable(side: str, column: Column) -> str:
    name = f"{side}.{quoted(column.name)}"
    # Spark can't compare maps, but can compare their text.
    return f"CAST({name} AS STRING)" if "MAP<" in to_spark_sql(column.type) else name


def _in_partitions(schema: TableSchema, touched: Sequence[str]) -> str:
    """A WHERE condition for the `touched` partitions, whose files differ; "" if they are too many
    or their names are not strings."""
    keys = schema.partition_keys
    if len(keys) != 1 or not touched or len(touched) > _PARTITIONS_MAX:
        return ""
    (key,) = keys
    values = [text.partition("=")[2] for text in touched]
    is_text = key_kind(schema.column(key).type) is KeyKind.TEXT
    if not is_text or any("__DEFAULT" in value or not value.strip() for value in values):
        return ""
    literals = ", ".join(map(text_literal, values))
    return f" WHERE {quoted(key)} IN ({literals})"


def _shared(before: Sequence[Column], after: Sequence[Column]) -> list[tuple[str, Column]]:
    """The columns that both states have: each one's old name, and the column as it is after."""
    old = {column.id: column.name for column in before}
    return [(old[column.id], column) for column in after if column.id in old]


def _sample(scope: StatementScope, query: str) -> Section | None:
    rows = rows_of_query(scope, query)
    if not rows.num_rows:
        return None
    is_paired = "-U" in rows.column("rowkind").to_pylist()
    changes = rows.num_rows - rows.column("rowkind").to_pylist().count("-U")
    note = f"At most {_SAMPLE} of them." if changes >= _SAMPLE else ""
    heading = "Rows that differ" + (", before (-U) and after (+U)" if is_paired else "")
    return Section(heading, rows, query, note=note, changed=changed_columns(rows))


_COUNTS = pa.schema([("partition", pa.string()), *((word, pa.int64()) for word in CHANGES)])


def _grown(new: pa.Table) -> pa.Table:
    grouped = new.group_by(["partition"], use_threads=False).aggregate([("record_count", "sum")])
    grouped = grouped.sort_by([("partition", "ascending")])
    none = pa.array([0] * grouped.num_rows, pa.int64())
    return pa.Table.from_arrays([*grouped.columns, none, none], schema=_COUNTS)


def _schema_changes(scope: StatementScope, table: Table, sides: tuple[Side, Side]) -> pa.Table:
    before, after = ({column.id: column for column in side.columns} for side in sides)
    rows: list[tuple[str, str, str | None, str | None]] = []
    for id in sorted({*before, *after}):
        old, new = before.get(id), after.get(id)
        if old is None and new is not None:
            rows.append((new.name, "added", None, to_spark_sql(new.type)))
        elif new is None and old is not None:
            rows.append((old.name, "dropped", to_spark_sql(old.type), None))
        elif old is not None and new is not None:
            if old.name != new.name:
                rows.append((new.name, "renamed", old.name, new.name))
            if old.type != new.type:
                rows.append((new.name, "type", to_spark_sql(old.type), to_spark_sql(new.type)))
    schemas = TableSchemas(table.paimon)
    if any(side.snapshot is None for side in sides):
        return _changes_table(rows)
    options = [dict(schemas.schema(side.snapshot.schema_id).options) for side in sides]
    for key in sorted({*options[0], *options[1]}):
        was, now = options[0].get(key), options[1].get(key)
        if was != now:
            rows.append((key, "option", was, now))
    return _changes_table(rows)


def _changes_table(rows: Sequence[tuple[str, str, str | None, str | None]]) -> pa.Table:
    names = ("name", "change", "before", "after")
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    return pa.table({n: pa.array(c, pa.string()) for n, c in zip(names, columns, strict=True)})


def rows_of_query(scope: StatementScope, text: str) -> pa.Table:
    """Run a query on Paimon's tables and return its rows."""
    (statement,) = parse_cell(text)
    assert isinstance(statement, Query), text
    frame = frame_of_query(scope, statement.text, statement.query, {})
    return Outcome(text, "SELECT", dataframe=frame).to_arrow()


# States of a table that reports compare: snapshots, tags, times, and the empty state.


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two states: the caller's name for it, its snapshot, and the version that a query
    names. The state before the first snapshot has no snapshot, and version "0"."""

    text: str
    snapshot: Any
    version: str
    columns: tuple[Column, ...]
    named: NamedFiles

    @property
    def files(self) -> pa.Table:
        """The data files, with their partitions."""
        return self.named.files

    @property
    def id(self) -> int:
        """The snapshot's number; 0 for the empty state."""
        return 0 if self.snapshot is None else int(self.snapshot.id)

    @property
    def index_manifest(self) -> Any:
        """The name of the snapshot's index manifest, None without one."""
        return None if self.snapshot is None else self.snapshot.index_manifest

    def source(self, name: TableName, other: Side) -> str:
        """The rows of the state in a FROM clause. Those of the empty state have the columns of the
        `other` one."""
        if self.snapshot is None:
            return f"(SELECT * FROM {named_table(name)} VERSION AS OF {other.version} WHERE false)"
        return f"{named_table(name)} VERSION AS OF {self.version}"


def _sides_of(scope: StatementScope, table: Table, before: str, after: str) -> tuple[Side, Side]:
    """The two states that a caller names; 0 is the empty one, and so is a time before the table's
    first snapshot. Raises UnknownNameError for a state that does not exist, InvalidValueError for
    two empty ones."""
    sides = [_side(scope, table, text.strip()) for text in (before, after)]
    stored = next((side for side in sides if side is not None), None)
    if stored is None:
        raise InvalidValueError(
            f"Both states of `{table.name}` are the empty one before its first snapshot.",
            hint=f"Name a snapshot, a tag or a time: %paimon diff {table.name} 0..1.",
        )
    files = replace(stored.named, files=stored.files.slice(0, 0), twice=())
    empty = replace(stored, text=_EMPTY, snapshot=None, version=_EMPTY, named=files)
    first, second = (side or empty for side in sides)
    return first, second


def _side(scope: StatementScope, table: Table, text: str) -> Side | None:
    """The state that a text names; None for the empty one."""
    if text == _EMPTY:
        return None
    try:
        return _side_of(scope, table, text)
    except UnknownNameError:
        # Its first snapshot is number 1: where that has expired, the state of a time before the
        # one that is first now is gone.
        is_time = isinstance(_point(scope, table, text), AtTimestamp)
        if is_time and earliest_snapshot_id(table.paimon, table.store) in (None, 1):
            return None
        raise


def _point(scope: StatementScope, table: Table, text: str) -> AtTimestamp | AtVersion:
    if text.lower() in _DAYS and tag_snapshot(table.paimon, text) is None:
        today = datetime.datetime.now(rules_of(scope.zone)).date()
        return AtTimestamp(str(today - datetime.timedelta(days=_DAYS[text.lower()])))
    is_time = "-" in text[1:5] and text[:4].isdigit()
    return AtTimestamp(text) if is_time else AtVersion(text)


def _side_of(scope: StatementScope, table: Table, text: str) -> Side:
    """The state of a snapshot, a tag or a time; `yesterday` and `today` are when that day began,
    unless a tag has the name. Raises UnknownNameError if there is none."""
    point = _point(scope, table, text)
    is_time = isinstance(point, AtTimestamp)
    target = find_target(table, point, scope.zone).target
    assert isinstance(target, TableState) and target.snapshot is not None
    snapshot = target.snapshot
    view = table_view(scope.catalog, table.name, int(snapshot.id))
    columns = TableSchemas(table.paimon).columns(snapshot.schema_id)
    version = text_literal(str(snapshot.id) if is_time else text)
    return Side(text, snapshot, version, columns, named_files(view, scope.zone))


def is_kept(table: Table, side: Side) -> bool:
    """Whether the snapshot has not expired; the empty state never does."""
    return side.snapshot is None or read_snapshot(table.paimon, side.id) is not None


def named_table(name: TableName) -> str:
    """The name as SQL."""
    parts = (name.database, replace(name, database=None).object_name)
    return ".".join(quoted(part) for part in parts if part is not None)
