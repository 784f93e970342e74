"""Everything that tasks need to read all columns of a table's data files: how to open the files,
and their schemas.

Runs on the driver, which has pypaimon; the resulting reader is pickled into tasks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from paimon_magics.columnar.fields import Field, can_evolve
from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.reads.splits import RowRange
from paimon_magics.statements.clauses.names import table_text
from paimon_magics.tables.manifests.file_paths import file_paths
from paimon_magics.tables.reading.data_files import FileAccess, FileReader
from paimon_magics.tables.schema.history import TableSchemas
from paimon_magics.tables.schema.types import arrow_type, fields_of, orc_legacy_zone
from paimon_magics.tables.splits.stored_files import schema_ids, stores_elsewhere
from paimon_magics.tables.stores.paths import local_path
from paimon_magics.tables.table import Table

_LOCAL = "file"
_BATCH_ROWS = 65_536


def own_store(table: Table) -> str:
    """The URI scheme of the store that the table's folder lies in."""
    return _LOCAL if local_path(table.location) is not None else urlsplit(table.location).scheme


def file_access(table: Table, stores: frozenset[str]) -> FileAccess:
    """How tasks open files that lie in these stores, named by their URI schemes."""
    if stores == {_LOCAL}:
        return FileAccess()
    if len(stores) == 1:
        return FileAccess(table.paimon.file_io)
    from pypaimon.filesystem.resolving_file_io import ResolvingFileIO

    return FileAccess(ResolvingFileIO(table.paimon.file_io.properties))


def data_paths(table: Table, files: pa.Table) -> pa.Array:
    """The paths of data files (`partition`, `bucket`, `file_name`, `external_path`)."""
    from pypaimon.utils.file_store_path_factory import canonical_data_file_path

    types = [arrow_type(table.schema.column(key).type) for key in table.schema.partition_keys]
    return file_paths(
        files, types, lambda values: str(canonical_data_file_path(table.paimon, values, 0, ""))
    )


def check_types(
    table: Table, fields: Sequence[Field], schemas: Mapping[int, Sequence[Field]]
) -> None:
    """Raise UnsupportedStatementError for a column with another type in older files, if it can't be
    cast exactly as Paimon does."""
    for schema_id, stored in schemas.items():
        by_id = {column.id: column for column in stored}
        for column in fields:
            before = by_id.get(column.id)
            if before is not None and not can_evolve(before, column):
                raise UnsupportedStatementError(
                    f"`{table.name}` has files whose column `{column.name}` is of another type, "
                    f"{before.type} in schema {schema_id}. It can't be read as {column.type}.",
                    hint="Read an earlier state, with VERSION AS OF a snapshot of that time, or "
                    "rewrite the table with an engine that compacts.",
                )


def whole_rows_reader(
    table: Table,
    schema_ids: Collection[int],
    stores_elsewhere: frozenset[str] = frozenset(),
    *,
    system: tuple[str, ...] = (),
    with_row_ids: bool = False,
    batch_rows: int = _BATCH_ROWS,
) -> FileReader:
    """A reader of all columns of the table's current schema, from files of the schemas
    `schema_ids`. Some may lie in the stores `stores_elsewhere`. For `system` and `with_row_ids` see
    `FileReader`.

    Raises UnsupportedStatementError for a change of types that can't be read.
    """
    schemas = TableSchemas(table.paimon)
    fields = fields_of(table.paimon.table_schema.fields)
    stored = {schema_id: schemas.fields(schema_id) for schema_id in sorted(schema_ids)}
    check_types(table, fields, stored)
    return FileReader(
        access=file_access(table, stores_elsewhere | {own_store(table)}),
        schemas=stored,
        wanted=fields,
        system=system,
        with_row_ids=with_row_ids,
        batch_rows=batch_rows,
        table=table_text(replace(table.name, system_table=None)),
        legacy_zone=orc_legacy_zone(table.schema),
    )


def files_reader(table: Table, files: pa.Table, **options: Any) -> FileReader:
    """A reader of whole rows of `files` (MANIFEST_ENTRIES); see `whole_rows_reader`."""
    return whole_rows_reader(table, schema_ids(files), stores_elsewhere(files), **options)


def updated_columns_reader(
    table: Table, ranges: Sequence[RowRange], columns: Collection[str]
) -> FileReader:
    """A reader of some columns, with row ids, of the files of `ranges`: that of `updated_rows`.

    Raises UnsupportedStatementError for a change of types that can't be read.
    """
    files = [file for row_range in ranges for file in row_range.files]
    stores = {urlsplit(file.path).scheme or _LOCAL for file in files}
    reader = whole_rows_reader(
        table, {file.schema_id for file in files}, frozenset(stores), with_row_ids=True
    )
    return replace(reader, wanted=tuple(f for f in reader.wanted if f.name in columns))


def reader_of_schema(
    table: Table,
    schema_id: int,
    schemas: TableSchemas,
    columns: Collection[str],
    stores_elsewhere: frozenset[str] = frozenset(),
) -> FileReader:
    """A reader of some columns of the files of one schema, as that schema has them."""
    fields = schemas.fields(schema_id)
    return FileReader(
        access=file_access(table, stores_elsewhere | {own_store(table)}),
        schemas={schema_id: fields},
        wanted=tuple(field for field in fields if field.name in columns),
        system=(),
        batch_rows=_BATCH_ROWS,
        table=table_text(replace(table.name, system_table=None)),
        legacy_zone=orc_legacy_zone(table.schema),
    )
