"""Manifests of a table, made up and read back, without data files."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pypaimon.manifest.manifest_file_manager import ManifestFileManager
from pypaimon.manifest.manifest_list_manager import ManifestListManager
from pypaimon.manifest.schema.file_entry import FileEntry
from pypaimon.table.row.generic_row import GenericRow, GenericRowSerializer

from paimon_magics.planning.schemas.table_schema import plan_create_table
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable, TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.manifests.names import MetadataNames, manifest_folder
from paimon_magics.tables.manifests.writing import ManifestWriter, Record
from paimon_magics.tables.table import Table

TABLE = TableName("t", database="default")
_TOKENS = itertools.count()


def create(warehouse: Path, sql: str) -> Table:
    """The table of a CREATE TABLE t statement."""
    statement = parse_statement(sql)
    assert isinstance(statement, CreateTable)
    catalog = Catalog.open({"warehouse": str(warehouse)})
    catalog.create_table(TABLE, plan_create_table(statement))
    return catalog.load(TABLE)


def entry(
    table: Table, name: str, partition: Sequence[Any] = (), *, kind: int = 0, **file: Any
) -> Record:
    """An entry that adds (kind 0) or deletes (kind 1) the file `name`."""
    encoded = GenericRowSerializer.to_bytes(
        GenericRow(list(partition), table.paimon.partition_keys_fields)
    )
    empty = GenericRowSerializer.to_bytes(GenericRow([], []))
    none = {"_MIN_VALUES": empty, "_MAX_VALUES": empty, "_NULL_COUNTS": []}
    return {
        "_VERSION": 2,
        "_KIND": kind,
        "_PARTITION": encoded,
        "_BUCKET": file.pop("_BUCKET", 0),
        "_TOTAL_BUCKETS": file.pop("_TOTAL_BUCKETS", -1),
        "_FILE": {
            "_FILE_NAME": name,
            "_FILE_SIZE": 1000,
            "_ROW_COUNT": 10,
            "_MIN_KEY": empty,
            "_MAX_KEY": empty,
            "_KEY_STATS": none,
            "_VALUE_STATS": none,
            "_MIN_SEQUENCE_NUMBER": 0,
            "_MAX_SEQUENCE_NUMBER": 0,
            "_SCHEMA_ID": 0,
            "_LEVEL": 0,
            "_EXTRA_FILES": [],
            "_VALUE_STATS_COLS": [],
            **file,
        },
    }


def write(table: Table, manifests: Iterable[Iterable[Record]], schema: Any = None) -> list[Any]:
    """One manifest for each list of entries; what a list of manifests would say of them, as it is
    read back from such a list."""
    names = MetadataNames(f"made-{next(_TOKENS)}")
    metas = []
    for records in manifests:
        writer = ManifestWriter(table.paimon, names, 1 << 30, schema)
        writer.add_records(records)
        metas += writer.close()
    lists = ManifestListManager(table.paimon)
    name = names.manifest_list()
    lists.write(name, metas)
    read: list[Any] = lists.read(name)
    return read


def entries(table: Table, metas: Iterable[Any]) -> list[Any]:
    """pypaimon's values of all entries, in order."""
    manager = ManifestFileManager(table.paimon)
    return [entry for meta in metas for entry in manager.read(meta.file_name, drop_stats=False)]


def live(table: Table, metas: Iterable[Any]) -> set[tuple[Any, ...]]:
    """The files that are added and not deleted, by pypaimon's way of merging entries."""
    return {
        (tuple(entry.partition.values), entry.bucket, entry.file.file_name, entry.kind)
        for entry in FileEntry.merge_entries(entries(table, metas))
    }


def stored(table: Table) -> set[str]:
    """The names of all metadata files."""
    return {path.name for path in Path(manifest_folder(table.paimon)).iterdir()}
