"""The private parts of pypaimon 2.1 that this project needs: one function for each use.

No other module touches a private part of pypaimon, so this is the module to check against a new
version. Functions import pypaimon when they are called: tasks on executors load this module too.
"""

from __future__ import annotations

import datetime
import functools
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qsl

from paimon_magics.columnar.fields import whole_structs


def schema_path(manager: Any, schema_id: int) -> str:
    """The path of a schema file; `manager` is a SchemaManager."""
    return str(manager._to_schema_path(schema_id))


def forget_table(catalog: Any, identifier: Any) -> None:
    """Remove a table from a jdbc catalog, and leave its folder alone. (The catalog's own method
    also deletes the folder, and reports no failure.)"""
    with catalog.connection.transaction():
        for rows in ("paimon_tables", "paimon_table_properties"):
            _delete_rows(catalog, identifier, rows)


def _delete_rows(catalog: Any, identifier: Any, table: str) -> None:
    """Delete the rows about a table from a table of a jdbc catalog's database."""
    catalog.connection.execute(
        f"DELETE FROM {table} WHERE catalog_key = ? AND database_name = ? AND table_name = ?",
        (catalog.catalog_key, identifier.get_database_name(), identifier.get_table_name()),
    )


def schema_ids(manager: Any) -> list[int]:
    """The numbers of the schema files of a SchemaManager, in no order; none is read."""
    ids: list[int] = manager._list_versioned_files()
    return ids


def changed_schema(manager: Any, before: Any, changes: Sequence[Any]) -> Any:
    """The schema that pypaimon's schema changes make of `before`. It is not stored."""
    return manager._generate_table_schema(before, changes)


def manifest_record(entry: Any) -> dict[str, Any]:
    """A ManifestEntry as a manifest's Avro record."""
    from pypaimon.manifest.manifest_file_manager import ManifestFileManager

    record: dict[str, Any] = ManifestFileManager._to_avro_record(entry)
    return record


def read_statistics_of_row_ids() -> None:
    """Let pypaimon read manifests with statistics of `_ROW_ID` and `_SEQUENCE_NUMBER`. Java names
    them for files of tables with row tracking that it has compacted, where a column has no
    statistics (a STRUCT); pypaimon 2.1 takes the names for columns, and raises KeyError. Repeated
    calls have no effect."""
    from pypaimon.manifest.manifest_file_manager import ManifestFileManager
    from pypaimon.table.special_fields import SpecialFields

    of_columns = ManifestFileManager._get_value_stats_fields
    if of_columns.__name__ == "of_row_ids_too":
        return
    special = {f.name: f for f in (SpecialFields.ROW_ID, SpecialFields.SEQUENCE_NUMBER)}

    def of_row_ids_too(self: Any, file: dict[str, Any], schema: Any) -> list[Any]:
        names = file["_VALUE_STATS_COLS"] or ()
        if special.keys().isdisjoint(names):
            return list(of_columns(self, file, schema))
        known = special | {field.name: field for field in getattr(schema, "fields", schema)}
        return [known[name] for name in names]

    ManifestFileManager._get_value_stats_fields = of_row_ids_too


def write_nulls_as_java() -> None:
    """Let pypaimon serialize NULLs as Java does, because the bytes of a partition are its identity.
    For NULL, Java reserves space for a TIMESTAMP(4) to (9) and a DECIMAL of more than 18 digits,
    and pypaimon 2.1 does not. Repeated calls have no effect. Sources: `GenerateUtils`
    (`binaryWriterWriteNull`), `AbstractBinaryWriter`."""
    generic_row = _generic_row()
    serializer = generic_row.GenericRowSerializer
    as_written = serializer.to_bytes.__func__
    if hasattr(as_written, "__wrapped__"):
        return

    @functools.wraps(as_written)
    def with_room_for_nulls(cls: Any, row: Any) -> bytes:
        wide = wide_nulls(row)
        if not wide:
            return bytes(as_written(cls, row))
        values = [wide.get(place, value) for place, value in enumerate(row.values)]
        filled = generic_row.GenericRow(values, row.fields, row.row_kind)
        data = bytearray(as_written(cls, filled))
        slots = len(_ARITY) + cls._calculate_bit_set_width_in_bytes(len(values))
        for place in wide:
            cls._set_null_bit(data, len(_ARITY), place)
            data[slots + 8 * place : slots + 8 * place + 4] = bytes(4)  # the length, or nanoseconds
        return bytes(data)

    serializer.to_bytes = classmethod(with_room_for_nulls)


def open_local_files_at_once() -> None:
    """Let pypaimon open a local file for reading without a look whether it is there: a commit reads
    a dozen small files, and the look takes as long as the rest. Repeated calls have no effect."""
    from pypaimon.filesystem.local_file_io import LocalFileIO

    as_before = LocalFileIO.new_input_stream
    if hasattr(as_before, "__wrapped__"):
        return

    @functools.wraps(as_before)
    def opened(self: Any, path: str) -> Any:
        if type(self) is not LocalFileIO or not path.startswith("/"):
            return as_before(self, path)
        try:
            return open(path, "rb")
        except (FileNotFoundError, NotADirectoryError) as error:
            raise FileNotFoundError(f"File {path} does not exist") from error

    LocalFileIO.new_input_stream = opened


_ARITY = bytes(4)  # the number of fields, before each row


@functools.cache
def _generic_row() -> Any:
    from pypaimon.table.row import generic_row

    return generic_row


def wide_nulls(row: Any) -> dict[int, Any]:
    """The places of those NULLs in a pypaimon row for which Java reserves space, each with the zero
    of its type."""
    generic_row = _generic_row()
    if isinstance(row, generic_row.BinaryRow) or None not in row.values:
        return {}
    wide: dict[int, Any] = {}
    for place, (value, field) in enumerate(zip(row.values, row.fields, strict=True)):
        name = str(getattr(field.type, "type", "")).upper()
        if value is not None or not name.startswith(("TIMESTAMP", "DECIMAL", "NUMERIC")):
            continue
        precision, _ = generic_row._parse_type_precision_scale(field.type)
        if not name.startswith("TIMESTAMP"):
            if precision > _COMPACT_DECIMAL_PRECISION_MAX:
                wide[place] = Decimal(0)
        elif precision > _COMPACT_TIMESTAMP_PRECISION_MAX:
            zone = datetime.UTC if generic_row._is_ltz_type(name) else None
            wide[place] = datetime.datetime(1970, 1, 1, tzinfo=zone)
    return wide


_COMPACT_DECIMAL_PRECISION_MAX = 18
_COMPACT_TIMESTAMP_PRECISION_MAX = 3


def read_manifests_of_older_releases() -> None:
    """Let pypaimon read manifests of Paimon 0.9 and before, whose entries lack later fields.
    pypaimon 2.1 raises KeyError for them. Repeated calls have no effect."""
    from pypaimon.manifest import manifest_file_manager

    as_stored = manifest_file_manager._read_manifest_records
    if as_stored.__name__ == "with_later_fields":
        return

    def with_later_fields(*args: Any) -> Iterator[tuple[dict[str, Any], Any, bool]]:
        for record, partition, is_filtered in as_stored(*args):
            file = record["_FILE"]
            if "_VALUE_STATS_COLS" not in file:  # the last one of those that it expects
                record["_FILE"] = _LATER_FIELDS | file
            yield record, partition, is_filtered

    manifest_file_manager._read_manifest_records = with_later_fields


def read_keys_of_replaced_tables() -> None:
    """Let pypaimon read manifests of a table that has got another primary key, by CREATE OR REPLACE
    TABLE. They still name the files that went then, whose keys are no keys of the table, and
    pypaimon 2.1 can raise ValueError for them. Such keys stay as they are stored. Repeated calls
    have no effect."""
    from pypaimon.manifest import manifest_file_manager
    from pypaimon.table.row.binary_row import BinaryRow
    from pypaimon.table.row.generic_row import GenericRowDeserializer

    if manifest_file_manager.GenericRowDeserializer is not GenericRowDeserializer:
        return

    class OfAnyKey(GenericRowDeserializer):  # type: ignore[misc]  # pypaimon has no types
        @classmethod
        def from_bytes(cls, bytes_data: bytes, data_fields: list[Any]) -> Any:
            try:
                return super().from_bytes(bytes_data, data_fields)
            except (ValueError, IndexError, struct.error):
                if len(bytes_data) < len(_ARITY):
                    raise
                return BinaryRow(bytes_data, data_fields)

    manifest_file_manager.GenericRowDeserializer = OfAnyKey


# The fields of a data file that manifests have since some release up to Paimon 1.0.
_LATER_FIELDS = dict.fromkeys(
    (
        "_CREATION_TIME",
        "_DELETE_ROW_COUNT",
        "_EMBEDDED_FILE_INDEX",
        "_FILE_SOURCE",
        "_VALUE_STATS_COLS",
    )
)


def check_row_ids_since(detection: Any, snapshot_id: int | None) -> None:
    """Let a ConflictDetection check row ids from a snapshot on. pypaimon's own commit does this
    with the snapshot that its writers began on."""
    detection._row_id_check_from_snapshot = snapshot_id


def sync_table_properties(catalog: Any, identifier: Any, schema: Any) -> None:
    """Update a JdbcCatalog's copy of a table's options, as its `alter_table` does after it has
    stored the schema."""
    if not catalog._sync_all_properties():
        return
    with catalog.connection.transaction():
        _delete_rows(catalog, identifier, "paimon_table_properties")
        catalog._insert_table_properties(identifier, catalog._collect_table_properties(schema))


def store_options(paimon: Any) -> dict[str, str] | None:
    """The options with which the native library opens a table's files in this process; None for a
    store that it does not know."""
    from pypaimon.read.native_plan import _resolved_schema_file_io_options

    options: dict[str, str] | None = _resolved_schema_file_io_options(paimon)
    return options


def catalog_options(paimon: Any) -> dict[str, str]:
    """The options of the catalog that a table was loaded from."""
    from pypaimon.read.native_plan import _catalog_context_options

    options: dict[str, str] = _catalog_context_options(paimon)
    return options


def numbers_from_zero(write: Any) -> None:
    """Let a TableWrite not look for the sequence numbers of earlier files. Its scan fails for
    partitions that are NULL; the files' messages are numbered afterwards."""

    class _NoNumbers(dict[Any, Any]):
        def get(self, key: Any, default: Any = None) -> Any:
            return {}

    write.file_store_write.max_seq_numbers = _NoNumbers()


def take_buckets_below(paimon: Any, count: int) -> None:
    """Let the writers of a copy of a table take given buckets below `count`. Its `copy` refuses
    another number of buckets than the stored one."""
    from pypaimon.common.options.core_options import CoreOptions

    paimon.options.options.set(CoreOptions.BUCKET, count)


def with_commit_user(builder: Any, commit_user: str) -> Any:
    """A batch write builder (pypaimon's or the native one) that writes as this commit user."""
    return builder._with_commit_user(commit_user)


def open_files_by(is_ours: Callable[[str], bool], open_file_io: Callable[[str, Any], Any]) -> None:
    """Let pypaimon open locations for which `is_ours` holds by `open_file_io`, which gets the
    location and its Options. pypaimon 2.1 has a fixed list of schemes. Repeated calls have no
    effect."""
    from pypaimon.common.file_io import FileIO
    from pypaimon.common.options import Options

    of_pypaimon = FileIO.get
    if of_pypaimon.__name__ == "of_ours_too":
        return

    def of_ours_too(path: str, catalog_options: Any = None) -> Any:
        if is_ours(path):
            return open_file_io(path, catalog_options or Options({}))
        return of_pypaimon(path, catalog_options)

    FileIO.get = staticmethod(of_ours_too)


def innermost_file_io(file_io: Any) -> Any:
    """The FileIO that a CachingFileIO reads through."""
    return file_io._delegate


def replace_innermost_file_io(file_io: Any, inner: Any) -> None:
    """Let a CachingFileIO read through another FileIO."""
    file_io._delegate = inner


def write_whole_structs(paimon: Any) -> None:
    """Let the ORC files of a table, which is used for nothing else, be written right where a column
    holds STRUCTs (`columnar.whole_arrays`)."""
    write = paimon.file_io.write_orc

    def write_whole(path: str, data: Any, *args: Any, **options: Any) -> None:
        write(path, whole_structs(data), *args, **options)

    paimon.file_io.write_orc = write_whole


def rest_answer(
    catalog: Any, method: str, path: str, document: Mapping[str, Any] | None
) -> tuple[int, Any]:
    """Send a request to the server of a rest catalog, for what pypaimon has no method. `path` is
    below the catalog's, and may have parameters. Return the status and the answer's document, {}
    for one that is no JSON object."""
    from pypaimon.api.client import _get_headers

    api = catalog.rest_api
    client = api.client
    plain, _, query = path.partition("?")
    parameters = dict(parse_qsl(query))
    body = "" if document is None else json.dumps(document)
    where = f"{api.resource_paths.base_path}{plain}"
    headers = _get_headers(where, method, parameters, body, api.rest_auth_function)
    response = client.session.request(
        method,
        client.uri + where,
        params=parameters,
        data=body.encode() or None,
        headers=headers,
        timeout=client._timeout,
    )
    try:
        answer = response.json()
    except ValueError:
        answer = {}
    return response.status_code, answer if isinstance(answer, dict) else {}
