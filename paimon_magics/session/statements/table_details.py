"""What is known of tables and partitions: SHOW TABLE EXTENDED, DESCRIBE DETAIL, and DESCRIBE of a
partition."""

from __future__ import annotations

import datetime
import fnmatch
import re
from collections.abc import Mapping, Sequence

import pyarrow as pa

from paimon_magics.errors import PaimonMagicsError, UnknownNameError, UnsupportedStatementError
from paimon_magics.planning.formatting import count_text
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.scope import StatementScope
from paimon_magics.session.statements.handler import listing
from paimon_magics.session.writes.partitions import PartitionSpec, partition_specs
from paimon_magics.spark.views import temporary_views
from paimon_magics.statements.statement import (
    DescribeDetail,
    PartitionItem,
    ShowTableExtended,
    TableName,
)
from paimon_magics.tables.catalog.stored_tables import load_stored
from paimon_magics.tables.commits.replaced_partitions import (
    PartitionSize,
    partition_texts,
    sizes_of_replaced,
)
from paimon_magics.tables.schema.history import created_at_ms
from paimon_magics.tables.snapshots.latest import latest_snapshot
from paimon_magics.tables.system_tables.describe import option_rows, type_text
from paimon_magics.tables.table import Table


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
