"""Writes a table with pypaimon-rust, in the kernel or in a Spark task.

A `NativeTable` is a small picklable description: the table's location, its schema as resolved on
the driver, and options that reach the store. A task needs neither the catalog nor pypaimon, whose
import takes a second. For the same reason this module has its heavy imports in functions.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from paimon_magics.errors import PaimonMagicsError, SetupError, UnsupportedStatementError
from paimon_magics.planning.options.values import memory_size_bytes
from paimon_magics.planning.reads.read_points import POINT_OPTIONS
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.planning.schemas.written_options import SHREDDING_OPTIONS
from paimon_magics.tables.pypaimon_internals import catalog_options, with_commit_user
from paimon_magics.tables.stores.s3_access import native_options, s3_access
from paimon_magics.tables.stores.store import S3_SCHEMES, is_reached_by_client, open_object_store
from paimon_magics.tables.writing.format_writers import DICTIONARY_OPTION

if TYPE_CHECKING:
    from paimon_magics.tables.table import Table


GIVEN_BUCKET_OPTIONS = {"bucket": "32767"}  # the most buckets that Paimon can number
"""Options with which the native writer takes the buckets that it is given, whatever the table's
bucket mode, and leaves a hash index to the caller."""

_BUFFER_BYTES = 128 * 2**20  # with it a writer of one bucket takes at most 700 MB
_BUFFER_BYTES_MIN = 8 * 2**20


@dataclass(frozen=True, slots=True)
class NativeTable:
    """How to open one table natively.

    `schema_json` is the schema in the form of Paimon's schema files, with the options that this use
    of the table adds. `io_options` reach the store. With `through_catalog` they are the catalog's
    options: a REST catalog hands out tokens, so that the task must ask it.
    """

    database: str
    name: str
    branch: str
    location: str
    schema_json: str
    io_options: tuple[tuple[str, str], ...]
    through_catalog: bool = False

    def __repr__(self) -> str:
        # io_options may hold credentials.
        return f"NativeTable({self.database}.{self.name}, {self.location})"

    def writer(self, commit_user: str, *, overwrite: bool) -> NativeWriter:
        """A writer of new files. With `overwrite` they replace others, and sequence numbers
        restart."""
        staging = None
        opened = self
        if is_reached_by_client(self.location) and not self.through_catalog:
            staging = _Staging(self.location, dict(self.io_options))
            opened = replace(self, location=staging.folder)
        builder = with_commit_user(opened.open().new_batch_write_builder(), commit_user)
        return NativeWriter(builder.with_overwrite({}) if overwrite else builder, staging)

    def with_file_prefix(self, addition: str) -> NativeTable:
        """The same table with `addition` appended to the prefixes of its new files' names."""
        schema = json.loads(self.schema_json)
        for key in ("data-file.prefix", "changelog-file.prefix"):
            if key in schema["options"]:
                schema["options"][key] += addition
        return replace(self, schema_json=json.dumps(schema))

    def without_dictionaries(self) -> NativeTable:
        """The same table without dictionaries in new files, unless its own options ask for them."""
        schema = json.loads(self.schema_json)
        schema["options"].setdefault(DICTIONARY_OPTION, "false")
        return replace(self, schema_json=json.dumps(schema))

    def open(self) -> Any:
        """Open the `pypaimon_rust.datafusion.Table`; raises SetupError without pypaimon-rust."""
        try:
            from pypaimon_rust.datafusion import PaimonCatalog
            from pypaimon_rust.datafusion import Table as RustTable
        except ImportError as error:
            raise SetupError(
                f"pypaimon-rust can't be imported by this Python: {error}.",
                hint="Install paimon-magics for the Python that runs Spark's executors.",
            ) from error
        if self.through_catalog:
            table = PaimonCatalog(dict(self.io_options)).get_table((self.database, self.name))
            return table.copy_with_resolved_schema(self.schema_json)
        return RustTable.from_resolved_schema(
            self.location,
            self.schema_json,
            database=self.database,
            table=self.name,
            branch=self.branch,
            options=dict(self.io_options),
        )


class NativeWriter:
    """The native writer; rows of one (partition, bucket) keep their order. With `staging` its files
    are uploaded when they are finished."""

    def __init__(self, builder: Any, staging: _Staging | None = None) -> None:
        self._staging = staging
        self._builder = builder
        self._writer = builder.new_write()
        self._messages: list[Any] = []

    def write(self, rows: Any, bucket: int | None) -> None:
        """Write a RecordBatch: rows of one partition and of `bucket`, or of any partitions and
        buckets if `bucket` is None. Raises ValueError for rows that the table can't take."""
        if bucket is None:
            self._writer.write_arrow(rows)
        else:
            self._writer.write_arrow(rows, bucket)

    def messages(self) -> list[bytes]:
        """Finish and return the commit messages; nothing may be written after."""
        self._messages = list(self._writer.prepare_commit())
        if self._staging is not None:
            self._staging.upload()
        return [message.serialize() for message in self._messages]

    def abort(self) -> None:
        """Delete the files of the messages that were returned; they must not be committed."""
        if self._staging is not None:
            self._staging.delete()
        else:
            self._builder.new_commit().abort(self._messages)

    def close(self) -> None:
        """Close the writer, and delete files that are in no returned message."""
        self._writer.close()
        if self._staging is not None:
            self._staging.close()


def buffer_options(schema: TableSchema, slots: int) -> dict[str, str]:
    """Options that bound the memory of a writer of primary-key rows: Paimon's `write-buffer-size`,
    under the native writer's own name for it.

    The size is that of each open bucket of a writer. The fixed buckets of a table are spread over
    `slots` writers; the default gives each of a writer's buckets an equal part of its memory.
    """
    stored_option = schema.stored_option("write-buffer-size")
    if stored_option is not None:
        size_bytes = memory_size_bytes("write-buffer-size", stored_option)
    else:
        together = max(1, -(-schema.bucket // slots))
        size_bytes = max(_BUFFER_BYTES // together, _BUFFER_BYTES_MIN)
    return {"write.parquet-buffer-size": f"{size_bytes} b"}


def native_table(table: Table, options: Mapping[str, str] | None = None) -> NativeTable:
    """The description of `table`; `options` override those stored with it.

    Raises UnsupportedStatementError for a table whose files the native engine can't reach.
    """
    from pypaimon.common.json_util import JSON

    paimon = table.paimon
    effective = {str(k): str(v) for k, v in paimon.table_schema.options.items() if v is not None}
    effective |= dict(options or {})
    for key in POINT_OPTIONS:  # the engine refuses to write what is read as it was
        effective.pop(key, None)
    for key in [key for key in effective if key.startswith("file-index.")]:
        effective.pop(key)  # module `file_indexes`; the engine has one kind of index, bloom filters
    if table.schema.is_primary_key_table:
        # Rows that are written have no deletion vectors; with some engines the option is refused.
        effective.pop("deletion-vectors.enabled", None)
    for key in SHREDDING_OPTIONS:
        effective.pop(key, None)
        effective.pop(f"parquet.{key}", None)  # its older name
    # The JSON form of Paimon's schema files is read by both engines.
    schema_json = JSON.to_json(paimon.table_schema.copy(new_options=effective))
    through_catalog = bool(paimon.catalog_environment.supports_version_management)
    io_options = (
        catalog_options(paimon) | {"metastore": "rest"}
        if through_catalog
        else _direct_options(table)
    )
    return NativeTable(
        database=paimon.identifier.get_database_name(),
        name=paimon.identifier.get_table_name(),
        branch=paimon.current_branch(),
        location=paimon.table_path,
        schema_json=json.dumps(json.loads(schema_json)),
        io_options=tuple(sorted((str(k), str(v)) for k, v in io_options.items())),
        through_catalog=through_catalog,
    )


def _direct_options(table: Table) -> dict[str, str]:
    """The options with which the native library opens the table's files without the catalog."""
    options = native_options(table.paimon)
    if options is None:
        raise UnsupportedStatementError(
            f"Table `{table.name}` is in a store that the native engine can't open.",
            hint="Connect to the warehouse with a filesystem, jdbc or rest catalog.",
        )
    if urlsplit(table.location).scheme in S3_SCHEMES:
        # pypaimon knows more spellings of the options than the native engine.
        return {**options, **s3_access(options).native_options()}
    return options


# Files that the native writer writes on the local disk, for stores that it is not tested with
# (`stores.store.is_reached_by_client`).
#
# The native library reaches Google Cloud Storage and Azure by interfaces and credentials of its
# own. To have one way to a store, it writes into a local folder. The client that publishes
# snapshots then uploads the finished files, part by part. The local disk must have room for the
# files of the tasks that run at the same time.
#
# If the process dies, the local folder stays in the system's temporary folder. Uploaded files are
# removed by the attempt's notes, as every other file.


class _Staging:
    """A local folder in the place of a table's, for one writer."""

    def __init__(self, location: str, options: Mapping[str, str]) -> None:
        self._location = location.rstrip("/")
        self._store = open_object_store(location, options)
        # Spark's own folder for files of tasks, where the cluster names one.
        spark = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
        self._folder = tempfile.TemporaryDirectory(prefix="paimon-magics-", dir=spark)
        self._uploaded: list[str] = []

    @property
    def folder(self) -> str:
        """The path of the local folder."""
        return self._folder.name

    def upload(self) -> None:
        """Upload all files in the folder, and remove them there. If it fails, none of them is left
        in the store. Raises SetupError."""
        root = Path(self._folder.name)
        begun: list[str] = []
        try:
            for file in sorted(path for path in root.rglob("*") if path.is_file()):
                begun.append(f"{self._location}/{file.relative_to(root).as_posix()}")
                self._store.upload(file, begun[-1])
                file.unlink()
        except BaseException:
            with contextlib.suppress(PaimonMagicsError):
                self._store.delete(begun)
            raise
        self._uploaded += begun

    def delete(self) -> None:
        """Delete the files that were uploaded."""
        self._store.delete(self._uploaded)
        self._uploaded.clear()

    def close(self) -> None:
        """Remove the local folder."""
        self._folder.cleanup()
