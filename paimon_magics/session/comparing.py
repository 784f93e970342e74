"""What tells two states of a table from each other: rows, files, and the schema.

Which files are other ones is read from manifests, here. Rows are compared by Spark, in the
partitions alone whose files are others; an append table that only got files has exactly their rows
more, which no job need count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.updates import changed_columns
from paimon_magics.planning.amounts import count_text
from paimon_magics.planning.definitions import Column, TableDefinition
from paimon_magics.planning.read_points import AtTimestamp, AtVersion
from paimon_magics.session.connection import Connection
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.reading import frame_of_query
from paimon_magics.session.reports import Report, Section
from paimon_magics.statements.names import quoted, table_text, text_literal
from paimon_magics.statements.parsing import parse_cell
from paimon_magics.statements.statement import Query, TableName
from paimon_magics.statements.type_text import to_spark_sql
from paimon_magics.tables.catalog import Table
from paimon_magics.tables.file_layouts import named_files
from paimon_magics.tables.latest_snapshots import read_snapshot
from paimon_magics.tables.system_tables import table_view
from paimon_magics.tables.table_schemas import TableSchemas
from paimon_magics.tables.time_travel import State, find_target

__all__ = ["difference_of"]

_SAMPLE = 100
_WORDS = ("added", "removed", "changed")
_PARTITIONS_MAX = 100


@dataclass(frozen=True, slots=True)
class _Side:
    """One state: what it was called, its snapshot, and the version that a query names."""

    text: str
    snapshot: Any
    version: str
    columns: tuple[Column, ...]
    files: pa.Table

    @property
    def id(self) -> int:
        return int(self.snapshot.id)


@dataclass(frozen=True, slots=True)
class _Query:
    """Rows with their kind in `change`; where updates have both rows, `is_paired`."""

    text: str
    keys: tuple[str, ...]


def difference_of(connection: Connection, name: TableName, before: str, after: str) -> Report:
    """What changed from one state to another, each a snapshot, a tag or a time.

    Raises UnknownNameError for a state that is not there.
    """
    table = connection.catalog.load(name)
    sides = _side(connection, table, before), _side(connection, table, after)
    gone, new = _other_files(*sides)
    counts, sample, query, note = _rows(connection, table, sides, gone, new)
    hidden = () if table.definition.partition_keys else ("partition",)

    sections = [
        Section("Rows", counts, query, note=note, hidden=hidden, in_query=()),
        *([sample] if sample is not None else []),
        Section(
            "Files",
            _files(gone, new),
            f"SELECT * FROM {table_text(name, 'files')} VERSION AS OF {sides[1].id}",
            hidden=hidden,
            in_query=(),
        ),
    ]
    schema = _schema_changes(connection, table, sides)
    if schema.num_rows:
        sections.append(Section("Schema", schema, table_text(name, "schemas"), in_query=()))
    sums = [pc.sum(counts.column(word)).as_py() or 0 for word in _WORDS]
    rows_said = ", ".join(f"{n:,} {word}" for n, word in zip(sums, _WORDS, strict=True) if n)
    summary = (
        f"{name}, snapshot {sides[0].id} to {sides[1].id}: "
        f"{f'rows {rows_said}' if rows_said else 'the same rows'}; "
        f"{count_text(new.num_rows, 'file')} added, {gone.num_rows:,} removed; "
        f"{'another schema' if schema.num_rows else 'the same schema'}"
    )
    return Report("DIFFERENCE", summary, tuple(sections))


def _side(connection: Connection, table: Table, text: str) -> _Side:
    zone = connection.spark.conf.get("spark.sql.session.timeZone") or "UTC"
    is_time = "-" in text[1:5] and text[:4].isdigit()
    target = find_target(table, AtTimestamp(text) if is_time else AtVersion(text), zone).target
    assert isinstance(target, State) and target.snapshot is not None
    snapshot = target.snapshot
    view = table_view(connection.catalog, table.name, int(snapshot.id))
    columns = TableSchemas(table.paimon).columns(snapshot.schema_id)
    version = text_literal(str(snapshot.id) if is_time else text)
    return _Side(text, snapshot, version, columns, named_files(view))


def _other_files(before: _Side, after: _Side) -> tuple[pa.Table, pa.Table]:
    """The files that only one of the two states has."""

    def not_in(files: pa.Table, others: pa.Table) -> pa.Table:
        names = others.column("file_name").combine_chunks()
        return files.filter(pc.invert(pc.is_in(files.column("file_name"), value_set=names)))

    return not_in(before.files, after.files), not_in(after.files, before.files)


def _files(gone: pa.Table, new: pa.Table) -> pa.Table:
    """Files, rows and bytes that came and went, for each partition."""
    parts = []
    for files, sign in ((new, "added"), (gone, "removed")):
        grouped = files.group_by(["partition"], use_threads=False).aggregate(
            [("file_name", "count"), ("record_count", "sum"), ("file_size_in_bytes", "sum")]
        )
        for row in grouped.to_pylist():
            parts.append(
                {
                    "partition": row["partition"],
                    "files": sign,
                    "file_count": row["file_name_count"],
                    "record_count": row["record_count_sum"],
                    "file_size_in_bytes": row["file_size_in_bytes_sum"],
                }
            )
    schema = pa.schema(
        [
            ("partition", pa.string()),
            ("files", pa.string()),
            ("file_count", pa.int64()),
            ("record_count", pa.int64()),
            ("file_size_in_bytes", pa.int64()),
        ]
    )
    found = pa.Table.from_pylist(parts, schema=schema)
    return found.sort_by([("partition", "ascending"), ("files", "ascending")])


def _rows(
    connection: Connection,
    table: Table,
    sides: tuple[_Side, _Side],
    gone: pa.Table,
    new: pa.Table,
) -> tuple[pa.Table, Section | None, str, str]:
    """How many rows of each partition changed, some of them, the query that says which, and a note
    on how that was found out."""
    before, after = sides
    definition = table.definition
    shared = _shared(before.columns, after.columns)
    same_deletes = before.snapshot.index_manifest == after.snapshot.index_manifest
    if not gone.num_rows and not new.num_rows and same_deletes:
        text = _query(table.name, after, before, definition, shared, ())
        return _no_counts(), None, text, "Both states have the same files."
    only_grew = (
        not definition.is_primary_key_table
        and not gone.num_rows
        and same_deletes
        and before.id < after.id
        and not definition.data_evolution_enabled
        and all(read_snapshot(table.paimon, side.id) is not None for side in sides)
    )
    if only_grew:
        option = "'incremental-between-scan-mode' = 'diff'"
        text = (
            f"SELECT * FROM {_named(table.name)} WITH "
            f"('incremental-between' = '{before.id},{after.id}', {option})"
        )
        sample = _fetched(connection, text, _SAMPLE)
        kinds = pa.array(["+I"] * sample.num_rows, pa.string())
        sample = sample.add_column(0, "rowkind", kinds)
        note = "Files were only added: their rows are counted without a Spark job."
        return _grown(new), _sample(sample, text), text, note
    touched = sorted({*gone.column("partition").to_pylist(), *new.column("partition").to_pylist()})
    text = _query(table.name, before, after, definition, shared, touched)
    return (*_compared(connection, text, definition), text, "Compared by Spark.")


def _compared(
    connection: Connection, text: str, definition: TableDefinition
) -> tuple[pa.Table, Section | None]:
    keys = [quoted(key) for key in definition.partition_keys]
    shown = (
        "concat_ws('/', "
        + ", ".join(
            f"concat('{name}=', CAST({key} AS STRING))"
            for name, key in zip(definition.partition_keys, keys, strict=True)
        )
        + ")"
        if keys
        else "''"
    )
    sums = ", ".join(f"count_if(`change` = '{word}') AS {word}" for word in _WORDS)
    counts = _fetched(
        connection,
        f"SELECT {shown} AS partition, {sums} FROM ({text}) GROUP BY 1 ORDER BY 1",
        None,
    )
    order = definition.primary_keys or definition.partition_keys
    by = f" ORDER BY {', '.join(map(quoted, order))}" if order else ""
    sample = _fetched(connection, f"{text}{by}", _SAMPLE)
    return counts, _sample(_kinds(sample), text + by) if sample.num_rows else None


def _query(
    name: TableName,
    before: _Side,
    after: _Side,
    definition: TableDefinition,
    shared: Sequence[tuple[str, Column]],
    touched: Sequence[str],
) -> str:
    """The query whose rows are those that differ: `change`, the columns, and for a table with keys
    the row before as `before`."""
    where = _in_partitions(definition, touched)
    old = ", ".join(
        f"{quoted(was)} AS {quoted(column.name)}" if was != column.name else quoted(was)
        for was, column in shared
    )
    now = ", ".join(quoted(column.name) for _, column in shared)
    table = _named(name)
    one = f"SELECT {old} FROM {table} VERSION AS OF {before.version}{where}"
    other = f"SELECT {now} FROM {table} VERSION AS OF {after.version}{where}"
    if not definition.is_primary_key_table:
        return (
            f"SELECT 'removed' AS `change`, * FROM ({one} EXCEPT ALL {other}) "
            f"UNION ALL SELECT 'added' AS `change`, * FROM ({other} EXCEPT ALL {one})"
        )
    keys = [quoted(key) for key in definition.primary_keys]
    joined = " AND ".join(f"was.{key} = now.{key}" for key in keys)
    same = " AND ".join(
        f"{_comparable('was', column)} <=> {_comparable('now', column)}" for _, column in shared
    )
    values = ", ".join(
        f"coalesce(now.{quoted(c.name)}, was.{quoted(c.name)}) AS {quoted(c.name)}"
        if c.name in definition.primary_keys
        else f"if(now.{keys[0]} IS NULL, was.{quoted(c.name)}, now.{quoted(c.name)}) "
        f"AS {quoted(c.name)}"
        for _, c in shared
    )
    return (
        f"SELECT CASE WHEN was.{keys[0]} IS NULL THEN 'added' WHEN now.{keys[0]} IS NULL THEN "
        f"'removed' ELSE 'changed' END AS `change`, {values}, "
        f"if(was.{keys[0]} IS NULL, NULL, struct(was.*)) AS `before` "
        f"FROM ({one}) AS was FULL OUTER JOIN ({other}) AS now ON {joined} WHERE NOT ({same})"
    )


def _comparable(side: str, column: Column) -> str:
    name = f"{side}.{quoted(column.name)}"
    # Maps can't be compared; their text can.
    return f"CAST({name} AS STRING)" if "MAP<" in to_spark_sql(column.type) else name


def _in_partitions(definition: TableDefinition, touched: Sequence[str]) -> str:
    """A condition that leaves out the partitions whose files are the same, where they are few and
    their names are values of text."""
    keys = definition.partition_keys
    if len(keys) != 1 or not touched or len(touched) > _PARTITIONS_MAX:
        return ""
    (key,) = keys
    kind = to_spark_sql(definition.column(key).type)
    values = [text.partition("=")[2] for text in touched]
    is_text = any(word in kind for word in ("CHAR", "STRING"))
    if not is_text or any("__DEFAULT" in value or not value.strip() for value in values):
        return ""
    literals = ", ".join(map(text_literal, values))
    return f" WHERE {quoted(key)} IN ({literals})"


def _shared(before: Sequence[Column], after: Sequence[Column]) -> list[tuple[str, Column]]:
    """The columns that both states have: what each was called, and what it is now."""
    old = {column.id: column.name for column in before}
    return [(old[column.id], column) for column in after if column.id in old]


def _kinds(rows: pa.Table) -> pa.Table:
    """Rows with their kind, an update as two: before and after."""
    kinds: list[str] = []
    found: list[dict[str, object]] = []
    for row in rows.to_pylist():
        change, before = row.pop("change"), row.pop("before", None)
        if change == "changed" and before is not None:
            kinds += ["-U", "+U"]
            found += [before, row]
        else:
            kinds.append("-D" if change == "removed" else "+I")
            found.append(row)
    fields = [field for field in rows.schema if field.name not in ("change", "before")]
    table = pa.Table.from_pylist(found, schema=pa.schema(fields))
    return table.add_column(0, "rowkind", pa.array(kinds, pa.string()))


def _sample(rows: pa.Table, query: str) -> Section | None:
    if not rows.num_rows:
        return None
    note = f"At most {_SAMPLE} of them." if rows.num_rows >= _SAMPLE else ""
    is_paired = "-U" in rows.column("rowkind").to_pylist()
    heading = "Rows that differ" + (", before (-U) and after (+U)" if is_paired else "")
    return Section(
        heading, rows, query, note=note,
        changed=changed_columns(rows),
    )  # fmt: skip


_COUNTS = pa.schema([("partition", pa.string()), *((word, pa.int64()) for word in _WORDS)])


def _no_counts() -> pa.Table:
    return _COUNTS.empty_table()


def _grown(new: pa.Table) -> pa.Table:
    grouped = new.group_by(["partition"], use_threads=False).aggregate([("record_count", "sum")])
    grouped = grouped.sort_by([("partition", "ascending")])
    rows = [
        {
            "partition": one["partition"],
            "added": one["record_count_sum"],
            "removed": 0,
            "changed": 0,
        }
        for one in grouped.to_pylist()
    ]
    return pa.Table.from_pylist(rows, schema=_COUNTS)


def _schema_changes(connection: Connection, table: Table, sides: tuple[_Side, _Side]) -> pa.Table:
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
    options = [dict(schemas.schema(side.snapshot.schema_id).options) for side in sides]
    for key in sorted({*options[0], *options[1]}):
        was, now = options[0].get(key), options[1].get(key)
        if was != now:
            rows.append((key, "option", was, now))
    names = ("name", "change", "before", "after")
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    return pa.table({n: pa.array(c, pa.string()) for n, c in zip(names, columns, strict=True)})


def _fetched(connection: Connection, text: str, limit: int | None) -> pa.Table:
    (statement,) = parse_cell(text)
    assert isinstance(statement, Query), text
    frame = frame_of_query(connection, statement.text, statement.query, {})
    outcome = Outcome(text, "SELECT", dataframe=frame)
    return outcome.fetched(lambda frame: (frame if limit is None else frame.limit(limit)).toArrow())


def _named(name: TableName) -> str:
    parts = (name.database, replace(name, database=None).object_name)
    return ".".join(quoted(part) for part in parts if part is not None)
