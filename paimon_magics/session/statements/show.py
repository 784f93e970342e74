"""SHOW and DESCRIBE: databases, tables and their definitions."""

from __future__ import annotations

import datetime
import fnmatch
import re
from collections.abc import Mapping, Sequence
from typing import assert_never

import pyarrow as pa

from paimon_magics.columnar.time_zones import process_zone
from paimon_magics.errors import (
    PaimonMagicsError,
    SetupError,
    StatementError,
    UnknownNameError,
    UnsupportedStatementError,
    nearest,
)
from paimon_magics.planning.commits.procedures import PROCEDURES
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.reports.view_queries import HISTORY_IN_SQL, history_sql
from paimon_magics.session.catalog_views import CatalogView
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.scope import StatementScope
from paimon_magics.session.statements.definitions import view_rows, view_statement
from paimon_magics.session.statements.handler import Handler, listing, position_of
from paimon_magics.session.writes.partitions import (
    PartitionSpec,
    matches,
    partition_specs,
)
from paimon_magics.spark.views import temporary_views
from paimon_magics.statements.clauses.names import table_text
from paimon_magics.statements.grammar.calls import NAMESPACE
from paimon_magics.statements.statement import (
    Describe,
    DescribeDatabase,
    DescribeDetail,
    DescribeHistory,
    PartitionItem,
    ShowColumns,
    ShowCreateTable,
    ShowCurrent,
    ShowDatabases,
    ShowOptions,
    ShowPartitions,
    ShowProcedures,
    ShowTableExtended,
    ShowTables,
    ShowViews,
    TableName,
)
from paimon_magics.tables.catalog.marks import database_mark
from paimon_magics.tables.catalog.stored_tables import load_stored
from paimon_magics.tables.commits.replaced_partitions import (
    PartitionSize,
    partition_texts,
    sizes_of_replaced,
)
from paimon_magics.tables.manifests.partitions import list_partitions, partition_name
from paimon_magics.tables.schema.history import created_at_ms
from paimon_magics.tables.schema.types import from_arrow_type
from paimon_magics.tables.snapshots.latest import latest_snapshot
from paimon_magics.tables.system_tables import describe as descriptions
from paimon_magics.tables.system_tables.describe import option_rows, type_text
from paimon_magics.tables.system_tables.registry import is_metadata, metadata_table, table_view
from paimon_magics.tables.system_tables.sys_database import SYSTEM_DATABASE, catalog_table_names
from paimon_magics.tables.system_tables.versions import history
from paimon_magics.tables.table import Table

Shown = (
    ShowDatabases
    | ShowTables
    | ShowPartitions
    | ShowCreateTable
    | ShowOptions
    | ShowColumns
    | ShowViews
    | ShowProcedures
    | ShowCurrent
    | Describe
    | DescribeDatabase
    | DescribeHistory
    | DescribeDetail
    | ShowTableExtended
)
"""The statements that `show_handler` is for."""

_SHOWN = ("comment", "location", "owner")


def show_handler(
    scope: StatementScope, statement: Shown, parameters: Mapping[str, object]
) -> Handler:
    """SHOW and DESCRIBE. They change nothing, and can't be planned without running."""
    return Handler(
        run=lambda: _run(scope, statement, parameters),
    )


def _run(scope: StatementScope, statement: Shown, parameters: Mapping[str, object]) -> Outcome:
    match statement:
        case ShowDatabases():
            names = matching_names(scope.catalog.list_databases(), statement.pattern)
            return listing(scope, statement, "SHOW DATABASES", {"namespace": names})
        case ShowTables():
            return _show_tables(scope, statement)
        case ShowViews():
            return _show_views(scope, statement)
        case ShowProcedures():
            shown = {
                "procedure": [f"{NAMESPACE}.{name}" for name in PROCEDURES],
                "parameters": [procedure.signature for procedure in PROCEDURES.values()],
            }
            return listing(scope, statement, "SHOW PROCEDURES", shown)
        case ShowCurrent():
            place = {
                "catalog": [scope.settings.catalog_name],
                "namespace": [scope.database],
            }
            return listing(scope, statement, "SHOW CURRENT NAMESPACE", place)
        case ShowPartitions():
            return _show_partitions(scope, statement, parameters)
        case ShowCreateTable():
            return _show_create(scope, statement)
        case ShowOptions():
            return _show_options(scope, statement)
        case ShowColumns():
            view = _view(scope, statement.name)
            if view is not None:
                shown = {"col_name": list(view.schema.column_names)}
                return listing(scope, statement, "SHOW COLUMNS", shown)
            table = scope.load(statement.name, statement.text, 0)
            columns = {"col_name": list(table.schema.column_names)}
            return listing(scope, statement, "SHOW COLUMNS", columns)
        case Describe():
            return _describe(scope, statement, parameters)
        case ShowTableExtended():
            return show_table_extended(scope, statement, parameters)
        case DescribeDetail():
            return describe_detail(scope, statement)
        case DescribeHistory():
            return history_of(scope, scope.full_name(statement.name))
        case DescribeDatabase():
            return _describe_database(scope, statement)
        case _:
            assert_never(statement)


def _show_create(scope: StatementScope, statement: ShowCreateTable) -> Outcome:
    view = _view(scope, statement.name)
    if view is None:
        table = scope.load(statement.name, statement.text, 0)
        text = descriptions.create_statement(table)
    else:
        text = view_statement(view)
    outcome = listing(scope, statement, "SHOW CREATE TABLE", {"createtab_stmt": [text]})
    outcome.message = text
    return outcome


def _show_tables(scope: StatementScope, statement: ShowTables) -> Outcome:
    database = statement.database or scope.database
    if database == SYSTEM_DATABASE:
        tables = catalog_table_names(scope.catalog)
    else:
        tables = scope.catalog.list_tables(database)
    names = matching_names(tables, statement.pattern)
    views = matching_names(temporary_views(scope.spark), statement.pattern)
    return listing(
        scope,
        statement,
        "SHOW TABLES",
        {
            "namespace": [database] * len(names) + [""] * len(views),
            "tableName": names + views,
            "isTemporary": [False] * len(names) + [True] * len(views),
        },
    )


def _view(scope: StatementScope, name: TableName) -> CatalogView | None:
    """The catalog's view of that name; None for other names."""
    full = scope.full_name(name)
    return None if scope.tables.exists(full) or full.system_table else scope.find_view(full)


def _show_views(scope: StatementScope, statement: ShowViews) -> Outcome:
    """The views of a database, and the user's temporary views, which every database has."""
    database = statement.database or scope.database
    scope.catalog.require_database(database)
    stored = matching_names(scope.list_views(database), statement.pattern)
    names = matching_names(temporary_views(scope.spark), statement.pattern)
    return listing(
        scope,
        statement,
        "SHOW VIEWS",
        {
            "namespace": [database] * len(stored) + [""] * len(names),
            "viewName": stored + names,
            "isTemporary": [False] * len(stored) + [True] * len(names),
        },
    )


def history_of(scope: StatementScope, name: TableName) -> Outcome:
    """A table's snapshots, newest first, with who made them. Raises UnknownNameError."""
    rows = history(table_view(scope.catalog, name))
    query = history_sql(table_text(name, "snapshots"), process_zone())
    return Outcome.of_rows(scope.spark, query, "HISTORY", rows, in_query=HISTORY_IN_SQL)


def _show_partitions(
    scope: StatementScope, statement: ShowPartitions, parameters: Mapping[str, object]
) -> Outcome:
    table = scope.load(statement.name, statement.text, 0)
    if not table.schema.is_partitioned:
        raise StatementError(
            f"Table `{table.name}` is not partitioned.",
            hint=f"Select from `{table.name}$files` to see how it is stored.",
            statement=statement.text,
            position=position_of(statement, statement.name),
        )
    spec: PartitionSpec = ()
    items: tuple[PartitionItem, ...] | None = statement.partition
    if items is not None:
        (spec,) = partition_specs(scope, table, statement.text, [items], parameters)
    shown = [
        partition_name(table, values, scope.zone)
        for values in list_partitions(table)
        if matches(partition_texts(table, values), spec)
    ]
    return listing(scope, statement, "SHOW PARTITIONS", {"partition": sorted(shown)})


def _show_options(scope: StatementScope, statement: ShowOptions) -> Outcome:
    view = _view(scope, statement.name)
    shown = view or scope.load(statement.name, statement.text, 0)
    options = dict(descriptions.option_rows(shown.schema))
    if statement.key is not None:
        full = f"{scope.settings.catalog_name}.{shown.name}"
        missing = f"Table {full} does not have property: {statement.key}"
        options = {statement.key: options.get(statement.key, missing)}
    return listing(
        scope,
        statement,
        "SHOW TBLPROPERTIES",
        {"key": list(options), "value": list(options.values())},
    )


def _describe(
    scope: StatementScope, statement: Describe, parameters: Mapping[str, object]
) -> Outcome:
    full = scope.full_name(statement.name)
    if is_metadata(full):
        rows: list[tuple[str, str, str | None]]
        schema = metadata_table(scope.catalog, full).schema
        rows = [(f.name, descriptions.type_text(from_arrow_type(f.type)), None) for f in schema]
    elif (view := _view(scope, full)) is not None:
        if statement.column is not None or statement.partition is not None:
            part = "partitions" if statement.column is None else "details of single columns"
            raise UnsupportedStatementError(
                f"`{full}` is a view: it has no {part}.",
                hint=f"DESCRIBE EXTENDED {table_text(full)} shows its columns and its query.",
            )
        rows = view_rows(view, extended=statement.extended)
    else:
        table = scope.load(statement.name, statement.text, position_of(statement, full))
        if statement.column is not None:
            shown = descriptions.describe_column(table, statement.column)
            return listing(
                scope,
                statement,
                "DESCRIBE",
                {"info_name": [row[0] for row in shown], "info_value": [row[1] for row in shown]},
            )
        rows = descriptions.describe_rows(table, extended=statement.extended)
        if statement.partition is not None:
            rows += partition_rows(scope, table, statement.text, statement.partition, parameters)
    return listing(
        scope,
        statement,
        "DESCRIBE",
        {
            "col_name": [row[0] for row in rows],
            "data_type": [row[1] for row in rows],
            "comment": [row[2] for row in rows],
        },
    )


def _describe_database(scope: StatementScope, statement: DescribeDatabase) -> Outcome:
    if not scope.catalog.database_exists(statement.name):
        raise UnknownNameError(
            f"There is no database `{statement.name}`.",
            hint=nearest(statement.name, scope.catalog.list_databases, what="databases"),
        )
    rows = {
        "Catalog Name": scope.settings.catalog_name,
        "Namespace Name": statement.name,
        **_property_rows(scope, statement),
    }
    return listing(
        scope,
        statement,
        "DESCRIBE DATABASE",
        {"info_name": list(rows), "info_value": list(rows.values())},
    )


def _property_rows(scope: StatementScope, statement: DescribeDatabase) -> dict[str, str]:
    """The properties of a database as Spark shows them: some in rows of their own, the others
    together and only with EXTENDED."""
    catalog, name = scope.catalog, statement.name
    properties = catalog.database_properties(name)
    unknown = None
    if catalog.metastore == "filesystem" and database_mark(catalog, name) is not None:
        try:
            properties = scope.committer.database_properties(name)
        except SetupError as error:
            unknown = f"not known: {error.message}"
    rows = {key.capitalize(): properties[key] for key in _SHOWN if properties.get(key)}
    others = [(key, properties[key]) for key in sorted(properties) if key not in _SHOWN]
    if unknown is not None:
        rows["Properties"] = unknown
    elif others and statement.extended:
        rows["Properties"] = f"({', '.join(f'({key},{value})' for key, value in others)})"
    return rows


# What is known of tables and partitions: SHOW TABLE EXTENDED, DESCRIBE DETAIL, and DESCRIBE of a
# partition.


def matching_names(names: Sequence[str], pattern: str | None) -> list[str]:
    """The names that match a SHOW pattern of Spark's: `*` for any characters, `|` between
    alternatives."""
    if pattern is None:
        return list(names)
    alternatives = [
        re.compile(fnmatch.translate(part.strip().lower().replace("%", "*")))
        for part in pattern.split("|")
    ]
    return [name for name in names if any(a.match(name.lower()) for a in alternatives)]


def partition_rows(
    scope: StatementScope,
    table: Table,
    statement: str,
    items: Sequence[PartitionItem],
    parameters: Mapping[str, object],
) -> list[tuple[str, str, str | None]]:
    """The rows of DESCRIBE on one partition. Raises UnknownNameError for a partition that does not
    exist, UnsupportedStatementError for a clause that names several."""
    (spec,) = partition_specs(scope, table, statement, [items], parameters)
    size = _size_of(table, statement, spec, items[0].position)
    texts = partition_texts(table, size.partition)
    values = ", ".join(f"{key}={value}" for key, value in texts.items())
    return [
        ("", "", ""),
        ("# Detailed Partition Information", "", ""),
        ("Database", table.name.database or "", ""),
        ("Table", table.name.object_name, ""),
        ("Partition Values", f"[{values}]", ""),
        ("Stored Rows", str(size.rows), ""),
        ("Files", str(size.files), ""),
        ("Bytes", str(size.size_bytes), ""),
    ]


def _size_of(table: Table, statement: str, spec: PartitionSpec, position: int) -> PartitionSize:
    sizes = sizes_of_replaced(table, specs=[spec])
    if len(sizes) == 1:
        return sizes[0]
    shown = ", ".join(f"{key} = {'NULL' if value is None else repr(value)}" for key, value in spec)
    if not sizes:
        raise UnknownNameError(
            f"`{table.name}` has no partition ({shown}).",
            hint="SHOW PARTITIONS lists them.",
            statement=statement,
            position=position,
        )
    raise UnsupportedStatementError(
        f"({shown}) is {count_text(len(sizes), 'partition')} of `{table.name}`.",
        hint=f"Give every partition column a value: {', '.join(table.schema.partition_keys)}. "
        f"SELECT * FROM {table.name}$partitions describes all partitions.",
        statement=statement,
        position=position,
    )


def show_table_extended(
    scope: StatementScope, statement: ShowTableExtended, parameters: Mapping[str, object]
) -> Outcome:
    """SHOW TABLE EXTENDED: what is known of each table, or of a partition, as a text."""
    database = statement.database or scope.database
    names = matching_names(scope.catalog.list_tables(database), statement.pattern)
    views = matching_names(temporary_views(scope.spark), statement.pattern)
    shown: list[tuple[str, str, bool, str]] = []
    for name in names:
        text = _information(scope, TableName(name, database), statement, parameters)
        shown.append((database, name, False, text))
    if statement.partition is None:
        shown += [("", view, True, f"Table: {view}\nType: VIEW\n") for view in views]
    elif not names:
        raise UnknownNameError(
            f"No table of `{database}` matches '{statement.pattern}'.",
            hint=f"SHOW TABLES IN {database} lists them.",
            statement=statement.text,
            position=statement.partition[0].position,
        )
    columns = ("namespace", "tableName", "isTemporary", "information")
    values = {column: [row[at] for row in shown] for at, column in enumerate(columns)}
    return listing(scope, statement, "SHOW TABLE EXTENDED", values)


def _information(
    scope: StatementScope,
    name: TableName,
    statement: ShowTableExtended,
    parameters: Mapping[str, object],
) -> str:
    try:
        table = scope.tables.load(name)
    except PaimonMagicsError as error:  # one table that can't be read hides no other
        if statement.partition is not None:
            raise
        return f"Database: {name.database}\nTable: {name.table}\nError: {error.message}\n"
    if statement.partition is not None:
        position = statement.partition[0].position
        (spec,) = partition_specs(scope, table, statement.text, [statement.partition], parameters)
        size = _size_of(table, statement.text, spec, position)
        texts = partition_texts(table, size.partition)
        values = ", ".join(f"{key}={value}" for key, value in texts.items())
        return (
            f"Partition Values: [{values}]\nStored Rows: {size.rows}\nFiles: {size.files}\n"
            f"Bytes: {size.size_bytes}\n"
        )
    schema = table.schema
    lines = [
        f"Catalog: {scope.settings.catalog_name}",
        f"Namespace: {name.database}",
        f"Table: {name.table}",
        "Type: MANAGED",
        "Provider: paimon",
        f"Location: {table.location}",
        *([f"Comment: {schema.comment}"] if schema.comment is not None else []),
        f"Table Properties: [{', '.join(f'{k}={v}' for k, v in option_rows(schema))}]",
    ]
    if schema.partition_keys:
        keys = ", ".join(f"`{key}`" for key in schema.partition_keys)
        lines.append(f"Partition Columns: [{keys}]")
    lines += ["Schema: root"]
    for column in schema.columns:
        nullable = str(column.type.nullable).lower()
        lines.append(f" |-- {column.name}: {type_text(column.type)} (nullable = {nullable})")
    return "\n".join(lines) + "\n"


def describe_detail(scope: StatementScope, statement: DescribeDetail) -> Outcome:
    """DESCRIBE DETAIL: one row on the table, with Delta Lake's names for what both have."""
    table = scope.load(statement.name, statement.text, 0)
    schema = table.schema
    sizes = sizes_of_replaced(table, specs=())
    created, snapshot = created_at_ms(table), latest_snapshot(table.paimon)
    row = {
        "format": "paimon",
        "id": load_stored(scope.catalog, table.name).table_id,
        "name": str(table.name),
        "description": schema.comment,
        "location": table.location,
        "createdAt": _instant(created),
        "lastModified": _instant(None if snapshot is None else snapshot.time_millis),
        "primaryKey": list(schema.primary_keys),
        "partitionColumns": list(schema.partition_keys),
        "bucket": schema.bucket,
        "numFiles": sum(size.files for size in sizes),
        "sizeInBytes": sum(size.size_bytes for size in sizes),
        "storedRows": sum(size.rows for size in sizes),
        "snapshotId": None if snapshot is None else int(snapshot.id),
        "schemaId": schema.schema_id,
        "properties": list(dict(option_rows(schema)).items()),
    }
    rows = pa.Table.from_pylist([row], _DETAIL)
    return Outcome.of_rows(scope.spark, statement.text, "DESCRIBE DETAIL", rows)


_DETAIL = pa.schema(
    [
        *((name, pa.string()) for name in ("format", "id", "name", "description", "location")),
        *((name, pa.timestamp("us", "UTC")) for name in ("createdAt", "lastModified")),
        *((name, pa.list_(pa.string())) for name in ("primaryKey", "partitionColumns")),
        ("bucket", pa.int32()),
        *((name, pa.int64()) for name in ("numFiles", "sizeInBytes", "storedRows")),
        *((name, pa.int64()) for name in ("snapshotId", "schemaId")),
        ("properties", pa.map_(pa.string(), pa.string())),
    ]
)


def _instant(milliseconds: int | None) -> datetime.datetime | None:
    if milliseconds is None:
        return None
    return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC)
