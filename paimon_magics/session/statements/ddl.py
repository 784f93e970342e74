"""CREATE, DROP, ALTER, SHOW, DESCRIBE and USE: definitions, changed in the catalog and shown."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from paimon_magics.errors import (
    PaimonMagicsError,
    SetupError,
    StatementError,
    UnknownNameError,
    UnsupportedStatementError,
    nearest,
)
from paimon_magics.planning.schemas.rules import check_stated
from paimon_magics.planning.schemas.table_schema import plan_create_table
from paimon_magics.planning.writes.inserts import check_writable
from paimon_magics.session.connection import Connection, located
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.queries.frames import frame_of_query
from paimon_magics.session.queries.resolution import tell_of_two
from paimon_magics.session.writes.first_rows import filled
from paimon_magics.session.writes.insert import partition_specs, remove_partitions, run_insert
from paimon_magics.session.writes.type_changes import harm_told
from paimon_magics.spark.queries import known_to_spark
from paimon_magics.spark.types import columns_of
from paimon_magics.spark.views import temporary_views
from paimon_magics.statements.kinds import Statement
from paimon_magics.statements.statement import (
    CreateDatabase,
    CreateTable,
    Describe,
    DescribeDatabase,
    DropDatabase,
    DropTable,
    Insert,
    PartitionItem,
    ShowColumns,
    ShowCreateTable,
    ShowDatabases,
    ShowOptions,
    ShowPartitions,
    ShowTables,
    TableName,
    UseDatabase,
)
from paimon_magics.statements.table_changes import AlterTable, DropPartitions, RenameTable
from paimon_magics.tables.catalog.database_marks import database_mark
from paimon_magics.tables.manifests.partitions import (
    list_partitions,
    partition_name,
    partition_value_text,
)
from paimon_magics.tables.schema.types import from_arrow_type
from paimon_magics.tables.system_tables import describe as descriptions
from paimon_magics.tables.system_tables.registry import is_metadata, metadata_table
from paimon_magics.tables.system_tables.sys_database import SYSTEM_DATABASE, catalog_table_names
from paimon_magics.tables.table import Table

if TYPE_CHECKING:
    import pyarrow

__all__ = ["run_definition"]

_SHOWN = ("comment", "location", "owner")
_Spec = tuple[tuple[str, str | None], ...]


def run_definition(
    connection: Connection, statement: Statement, parameters: Mapping[str, object]
) -> Outcome | None:
    """Run a statement about definitions; None when it is no such statement."""
    match statement:
        case CreateTable():
            return _create_table(connection, statement, parameters)
        case DropTable():
            return _drop_table(connection, statement)
        case AlterTable():
            return _alter_table(connection, statement, parameters)
        case CreateDatabase():
            return _create_database(connection, statement)
        case DropDatabase():
            return _drop_database(connection, statement)
        case UseDatabase():
            return _use(connection, statement)
        case ShowDatabases():
            names = _matching(connection.catalog.list_databases(), statement.pattern)
            return _listing(connection, statement, "SHOW DATABASES", {"namespace": names})
        case ShowTables():
            return _show_tables(connection, statement)
        case ShowPartitions():
            return _show_partitions(connection, statement, parameters)
        case ShowCreateTable():
            table = connection.load(statement.name, statement.text, 0)
            text = descriptions.create_statement(table)
            shown = {"createtab_stmt": [text]}
            outcome = _listing(connection, statement, "SHOW CREATE TABLE", shown)
            outcome.message = text
            return outcome
        case ShowOptions():
            return _show_options(connection, statement)
        case ShowColumns():
            table = connection.load(statement.name, statement.text, 0)
            columns = {"col_name": list(table.schema.column_names)}
            return _listing(connection, statement, "SHOW COLUMNS", columns)
        case Describe():
            return _describe(connection, statement)
        case DescribeDatabase():
            return _describe_database(connection, statement)
        case _:
            return None


def _create_table(
    connection: Connection, statement: CreateTable, parameters: Mapping[str, object]
) -> Outcome:
    name = connection.full_name(statement.name)
    exists = connection.tables.exists(name)
    if statement.or_replace and (exists or statement.must_exist):
        raise UnsupportedStatementError(
            "Replacing a table is not offered yet.",
            hint=f"Drop `{name}` first, or use CREATE TABLE IF NOT EXISTS.",
            statement=statement.text,
            position=statement.name_position,
        )
    if exists and statement.if_not_exists:
        return _done(statement, "CREATE TABLE", name, f"Table `{name}` exists already.")
    frame = None
    query_columns = None
    if statement.query is not None:
        frame = frame_of_query(connection, statement.text, statement.query, parameters)
        query_columns = columns_of(frame.schema)
    try:
        schema = plan_create_table(statement, query_columns)
        check_stated(schema)
        if statement.query is not None:
            check_writable(name, schema)
        created = connection.catalog.create_table(
            name, schema, if_not_exists=statement.if_not_exists
        )
    except PaimonMagicsError as error:
        raise located(error, statement.text, statement.name_position) from None
    if not created:
        return _done(statement, "CREATE TABLE", name, f"Table `{name}` exists already.")
    if known_to_spark(connection.spark, [name.database or "", name.object_name]):
        tell_of_two(connection, name)
    if statement.query is None:
        return _done(statement, "CREATE TABLE", name, f"Table `{name}` created.")
    return _fill(connection, statement, name, parameters)


def _fill(
    connection: Connection,
    statement: CreateTable,
    name: TableName,
    parameters: Mapping[str, object],
) -> Outcome:
    """The AS query of CREATE TABLE."""
    assert statement.query is not None
    insert = Insert(
        text=statement.text,
        offset=statement.offset,
        target=name,
        target_position=statement.name_position,
        overwrite=False,
        source=statement.query,
    )
    return filled(connection, name, lambda: run_insert(connection, insert, parameters))


def _drop_table(connection: Connection, statement: DropTable) -> Outcome:
    name = connection.full_name(statement.name)
    try:
        dropped = connection.catalog.drop_table(name, if_exists=statement.if_exists)
    except PaimonMagicsError as error:
        raise located(error, statement.text, _position(statement, name)) from None
    message = f"Table `{name}` dropped." if dropped else f"There is no table `{name}`."
    return _done(statement, "DROP TABLE", name, message)


def _alter_table(
    connection: Connection, statement: AlterTable, parameters: Mapping[str, object]
) -> Outcome:
    table = connection.load(statement.name, statement.text, statement.name_position)
    name = table.name
    match statement.changes:
        case (RenameTable(new_name=new_name),):
            target = replace(
                connection.full_name(new_name),
                database=new_name.database or name.database,
            )
            _placed(statement, lambda: connection.catalog.rename_table(name, target))
            return _done(statement, "ALTER TABLE", target, f"`{name}` is `{target}` now.")
        case (DropPartitions() as drop,):
            specs = partition_specs(connection, table, statement.text, drop.specs, parameters)
            kept = _existing(table, specs, drop, statement)
            if not kept:
                return _done(statement, "ALTER TABLE", name, "No partition to drop.")
            return remove_partitions(
                connection, table, statement.text, "ALTER TABLE … DROP PARTITION", kept
            )
        case _:
            told = harm_told(connection, table, statement.changes)
            _placed(statement, lambda: connection.catalog.alter_table(name, statement.changes))
            outcome = _done(statement, "ALTER TABLE", name, f"Table `{name}` altered.")
            if told is not None:
                outcome.notes = told.notes
            return outcome


def _existing(
    table: Table,
    specs: Sequence[_Spec],
    drop: DropPartitions,
    statement: AlterTable,
) -> list[_Spec]:
    """The specs that some partition matches; a spec without one is an error unless IF EXISTS."""
    found = [_partition_texts(table, values) for values in list_partitions(table)]
    kept = []
    for spec in specs:
        if any(_matches(texts, spec) for texts in found):
            kept.append(spec)
        elif not drop.if_exists:
            shown = ", ".join(
                f"{key} = {'NULL' if value is None else repr(value)}" for key, value in spec
            )
            raise UnknownNameError(
                f"`{table.name}` has no partition ({shown}).",
                hint="SHOW PARTITIONS lists them; DROP IF EXISTS PARTITION passes over them.",
                statement=statement.text,
                position=statement.name_position,
            )
    return kept


def _create_database(connection: Connection, statement: CreateDatabase) -> Outcome:
    properties = dict(statement.properties)
    if statement.comment is not None:
        properties["comment"] = statement.comment
    if statement.location is not None:
        properties["location"] = statement.location
    existed = connection.catalog.database_exists(statement.name)
    may_exist = statement.if_not_exists
    if properties and not existed and connection.catalog.metastore == "filesystem":
        connection.committer.create_database(statement.name, properties, if_not_exists=may_exist)
    else:
        connection.catalog.create_database(
            statement.name, if_not_exists=may_exist, properties=properties
        )
    word = "exists already" if existed else "created"
    return _told(statement, "CREATE DATABASE", f"Database `{statement.name}` {word}.")


def _drop_database(connection: Connection, statement: DropDatabase) -> Outcome:
    existed = connection.catalog.database_exists(statement.name)
    connection.catalog.drop_database(
        statement.name, if_exists=statement.if_exists, cascade=statement.cascade
    )
    if connection.database == statement.name:
        connection.database = connection.settings.database
    message = (
        f"Database `{statement.name}` dropped."
        if existed
        else f"There is no database `{statement.name}`."
    )
    return _told(statement, "DROP DATABASE", message)


def _use(connection: Connection, statement: UseDatabase) -> Outcome:
    ours = connection.settings.catalog_name
    database = statement.database
    if statement.catalog is not None and statement.catalog != ours:
        raise UnknownNameError(
            f"`{statement.catalog}` is not Paimon's catalog.",
            hint=f"Paimon's catalog is called `{ours}` here.",
        )
    exists = connection.catalog.database_exists(database)
    if statement.catalog is None and database == ours and not exists:
        database = connection.settings.database
    if not connection.catalog.database_exists(database):
        raise UnknownNameError(
            f"There is no database `{database}`.",
            hint=nearest(database, connection.catalog.list_databases(), what="databases"),
            statement=statement.text,
            position=max(statement.text.find(statement.database), 0),
        )
    connection.database = database
    return _told(statement, "USE", f"The current database is `{database}`.")


def _show_tables(connection: Connection, statement: ShowTables) -> Outcome:
    database = statement.database or connection.database
    if database == SYSTEM_DATABASE:
        found = catalog_table_names(connection.catalog)
    else:
        found = connection.catalog.list_tables(database)
    names = _matching(found, statement.pattern)
    views = _matching(temporary_views(connection.spark), statement.pattern)
    return _listing(
        connection,
        statement,
        "SHOW TABLES",
        {
            "namespace": [database] * len(names) + [""] * len(views),
            "tableName": names + views,
            "isTemporary": [False] * len(names) + [True] * len(views),
        },
    )


def _show_partitions(
    connection: Connection, statement: ShowPartitions, parameters: Mapping[str, object]
) -> Outcome:
    table = connection.load(statement.name, statement.text, 0)
    if not table.schema.is_partitioned:
        raise StatementError(
            f"Table `{table.name}` is not partitioned.",
            hint=f"Select from `{table.name}$files` to see how it is stored.",
            statement=statement.text,
            position=_position(statement, statement.name),
        )
    spec: _Spec = ()
    items: tuple[PartitionItem, ...] | None = statement.partition
    if items is not None:
        (spec,) = partition_specs(connection, table, statement.text, [items], parameters)
    shown = [
        partition_name(table, values, connection.zone)
        for values in list_partitions(table)
        if _matches(_partition_texts(table, values), spec)
    ]
    return _listing(connection, statement, "SHOW PARTITIONS", {"partition": sorted(shown)})


def _partition_texts(table: Table, values: Sequence[object]) -> dict[str, str | None]:
    """A partition's values in the text that PARTITION clauses are evaluated to."""
    texts: dict[str, str | None] = {}
    for key, value in zip(table.schema.partition_keys, values, strict=True):
        data_type = table.schema.column(key).type
        zone = "Z" if getattr(data_type, "name", "") == "TIMESTAMP_LTZ" else ""
        texts[key] = None if value is None else partition_value_text(value, data_type) + zone
    return texts


def _matches(texts: Mapping[str, str | None], spec: _Spec) -> bool:
    return all(texts[key] == value for key, value in spec)


def _show_options(connection: Connection, statement: ShowOptions) -> Outcome:
    table = connection.load(statement.name, statement.text, 0)
    options = dict(descriptions.option_rows(table.schema))
    if statement.key is not None:
        missing = f"Table {table.name} does not have property: {statement.key}"
        options = {statement.key: options.get(statement.key, missing)}
    return _listing(
        connection,
        statement,
        "SHOW TBLPROPERTIES",
        {"key": list(options), "value": list(options.values())},
    )


# DESCRIBE HISTORY t and DESCRIBE DETAIL t are Delta Lake's.
_OF_DELTA = ("HISTORY", "DETAIL")


def _describe(connection: Connection, statement: Describe) -> Outcome:
    full = connection.full_name(statement.name)
    if is_metadata(full):
        schema = metadata_table(connection.catalog, full).schema
        rows = [(f.name, descriptions.type_text(from_arrow_type(f.type)), "") for f in schema]
    else:
        try:
            table = connection.load(statement.name, statement.text, _position(statement, full))
        except UnknownNameError as error:
            if statement.column is not None and statement.name.object_name.upper() in _OF_DELTA:
                error.hint = (
                    f"%paimon history {statement.column} lists a table's snapshots, DESCRIBE "
                    f"EXTENDED {statement.column} shows where it lies."
                )
            raise
        if statement.column is not None:
            shown = descriptions.describe_column(table, statement.column)
            return _listing(
                connection,
                statement,
                "DESCRIBE",
                {"info_name": [row[0] for row in shown], "info_value": [row[1] for row in shown]},
            )
        rows = descriptions.describe_rows(table, extended=statement.extended)
    return _listing(
        connection,
        statement,
        "DESCRIBE",
        {
            "col_name": [row[0] for row in rows],
            "data_type": [row[1] for row in rows],
            "comment": [row[2] for row in rows],
        },
    )


def _describe_database(connection: Connection, statement: DescribeDatabase) -> Outcome:
    if not connection.catalog.database_exists(statement.name):
        raise UnknownNameError(
            f"There is no database `{statement.name}`.",
            hint=nearest(statement.name, connection.catalog.list_databases(), what="databases"),
        )
    rows = {
        "Catalog Name": connection.settings.catalog_name,
        "Namespace Name": statement.name,
        **_property_rows(connection, statement),
    }
    return _listing(
        connection,
        statement,
        "DESCRIBE DATABASE",
        {"info_name": list(rows), "info_value": list(rows.values())},
    )


def _property_rows(connection: Connection, statement: DescribeDatabase) -> dict[str, str]:
    """What a database has of properties, as Spark shows them: some by their names, the others
    together and only with EXTENDED."""
    catalog, name = connection.catalog, statement.name
    properties = catalog.database_properties(name)
    unknown = None
    if catalog.metastore == "filesystem" and database_mark(catalog, name) is not None:
        try:
            properties = connection.committer.database_properties(name)
        except SetupError as error:
            unknown = f"not known: {error.message}"
    rows = {key.capitalize(): properties[key] for key in _SHOWN if properties.get(key)}
    others = [(key, properties[key]) for key in sorted(properties) if key not in _SHOWN]
    if unknown is not None:
        rows["Properties"] = unknown
    elif others and statement.extended:
        rows["Properties"] = f"({', '.join(f'({key},{value})' for key, value in others)})"
    return rows


def _listing(
    connection: Connection,
    statement: Statement,
    kind: str,
    columns: Mapping[str, Sequence[object]],
) -> Outcome:
    import pyarrow as pa

    types = {"isTemporary": pa.bool_()}
    rows: pyarrow.Table = pa.table(
        {
            name: pa.array(values, type=types.get(name, pa.string()))
            for name, values in columns.items()
        }
    )
    return Outcome.of_rows(connection.spark, statement.text, kind, rows)


def _done(statement: Statement, kind: str, name: TableName, message: str) -> Outcome:
    return Outcome(statement=statement.text, kind=kind, table=str(name), message=message)


def _told(statement: Statement, kind: str, message: str) -> Outcome:
    return Outcome(statement=statement.text, kind=kind, message=message)


def _placed(statement: AlterTable, action: Callable[[], object]) -> None:
    try:
        action()
    except PaimonMagicsError as error:
        raise located(error, statement.text, statement.name_position) from None


def _position(statement: Statement, name: TableName) -> int:
    return max(statement.text.find(name.table), 0)


def _matching(names: Sequence[str], pattern: str | None) -> list[str]:
    """Spark's patterns of SHOW: `*` for any characters, `|` between alternatives."""
    if pattern is None:
        return list(names)
    alternatives = [
        re.compile(fnmatch.translate(part.strip().lower().replace("%", "*")))
        for part in pattern.split("|")
    ]
    return [name for name in names if any(a.match(name.lower()) for a in alternatives)]
