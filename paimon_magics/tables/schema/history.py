"""The schemas of a table's history, each read from its file once."""

from __future__ import annotations

import hashlib
import json
import logging
import uuid
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from pypaimon.common.json_util import JSON
from pypaimon.schema.schema_manager import SchemaManager
from pypaimon.schema.table_schema import TableSchema as StoredSchema

from paimon_magics.columnar.fields import Field
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.tables.pypaimon_internals import schema_path
from paimon_magics.tables.schema.alterations import schema_of
from paimon_magics.tables.schema.types import fields_of
from paimon_magics.tables.stores.corruption import damaged, misread, parsing
from paimon_magics.tables.stores.paths import canonical_location, local_path
from paimon_magics.tables.stores.store import Stores
from paimon_magics.tables.table import Table, branch_names, publishes_itself

_log = logging.getLogger(__name__)
_TABLES_MAX = 256


class TableSchemas:
    """Schemas by number. `paimon` is pypaimon's table; its own schema is not read again."""

    def __init__(self, paimon: Any) -> None:
        self._paimon = paimon
        self._schemas: dict[int, Any] = {paimon.table_schema.id: paimon.table_schema}

    def schema(self, schema_id: int) -> Any:
        """pypaimon's schema of that number. Raises TableDamagedError if it is gone or damaged."""
        schema = self._schemas.get(schema_id)
        if schema is None:
            manager = self._paimon.schema_manager
            what = f"The schema file {schema_path(manager, schema_id)}"
            with parsing(what):
                schema = manager.get_schema(schema_id)
            if schema is None:
                raise damaged(what, "it is gone")
            self._schemas[schema_id] = schema
        return schema

    def columns(self, schema_id: int) -> tuple[Column, ...]:
        """The columns of the schema of that number."""
        return schema_of(self.schema(schema_id)).columns

    def fields(self, schema_id: int) -> tuple[Field, ...]:
        """The columns with their nested fields, in the form for the Arrow kernels."""
        return fields_of(self.schema(schema_id).fields)


# All schemas that a table has had, by id; and texts that distinguish a table from a later table at
# the same location.


class Definitions:
    """A cache of tables' schemas. A stored schema never changes, but another one may take its
    number: with each new schema of a table all are read again."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], dict[int, TableSchema]] = {}

    def of(self, table: Table) -> dict[int, TableSchema]:
        """The table's schemas by id, up to the one that it was loaded with."""
        key = table.location, _first_ms(table)
        if key not in self._known and len(self._known) >= _TABLES_MAX:
            self._known.clear()
        present = table.schema.schema_id
        known = self._known.get(key, {})
        if known.get(present) != table.schema:
            known = self._known[key] = {present: table.schema}
        for schema_id in range(present):
            if schema_id not in known:
                schema = table.paimon.schema_manager.get_schema(schema_id)
                if schema is not None:  # a rollback may have removed it
                    known[schema_id] = schema_of(schema)
        return dict(known)


def created_at_ms(table: Table) -> int | None:
    """When the table that is at the location now was created, in milliseconds since 1970 UTC; None
    if its first schema is gone. Asks the store each time."""
    try:
        text = table.paimon.file_io.read_file_utf8(schema_path(table.paimon.schema_manager, 0))
    except FileNotFoundError:
        return None
    return _created_ms(text)


@lru_cache(maxsize=_TABLES_MAX)
def _created_ms(text: str) -> int:
    return int(StoredSchema.from_json(text).time_millis)


def creation_of(table: Table) -> str:
    """A text that distinguishes the table from earlier and later tables of its name: the catalog
    server's id, or the creation time of the table at the location, which asks the store each time;
    "" if neither can be known. Paimon derives the uuid of a table this way
    (`CatalogUtils.loadTable`). Raises OSError."""
    if publishes_itself(table):
        return str(table.paimon.catalog_environment.uuid or "")
    try:
        created_ms = created_at_ms(table)
    except Exception as error:
        if misread(error) is None:
            raise
        created_ms = None
    return "" if created_ms is None else str(created_ms)


def is_other_table(table: Table, present: Table) -> bool:
    """Whether the table at `present` differs from `table`, which was loaded from there before: it
    lacks the schema, or its schema has another creation time."""
    loaded = table.paimon.table_schema
    stored = present.paimon.schema_manager.get_schema(loaded.id)
    return stored is None or stored.time_millis != loaded.time_millis


def identity_of(schema: StoredSchema) -> str:
    """A text that distinguishes a stored schema from another one with its number: a fast-forward
    replaces schemas, and after a roll-back of the schema its number comes again."""
    columns = [(field.id, field.name, str(field.type)) for field in schema.fields]
    digest = hashlib.sha256(repr(columns).encode()).hexdigest()[:16]
    return f"{schema.id}@{schema.time_millis}:{digest}"


def is_replaced(table: Table, identity: str) -> bool:
    """Whether the schema with this `identity_of` is gone, or another one has its number; "" is no
    schema. Reads the schema unless the table was loaded with that number."""
    number = identity.partition("@")[0]
    if not number or publishes_itself(table):  # its server keeps schemas, and tells no time of them
        return False
    schema = table.paimon.table_schema
    if schema.id != int(number):
        schema = table.paimon.schema_manager.get_schema(int(number))
    return schema is None or identity_of(schema) != identity


def version_of(table: Table) -> str:
    """A text that changes with the table's schema, and when it is dropped and created again."""
    text = f"{_first_ms(table)}#{table.schema.schema_id}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def table_id_of_legacy(identity: str) -> str:
    """The id of a table that older versions knew by its location and creation time,
    `LOCATION@MILLISECONDS`. All spellings of the location give the same id."""
    location, _, created_ms = identity.rpartition("@")
    text = f"{canonical_location(location)}@{created_ms}"
    return uuid.uuid5(uuid.NAMESPACE_URL, text).hex


def _first_ms(table: Table) -> int:
    """When the table was created; 0 where its first schema is gone, or can't be read: it only tells
    tables apart here."""
    try:
        first = table.paimon.schema_manager.get_schema(0)
    except Exception as error:
        _log.debug("The first schema of `%s` can't be read: %s", table.name, error)
        return 0
    return 0 if first is None else int(first.time_millis)


# A table's schema files: their text as Paimon's Java library writes it, and their publication.
#
# `publish_schema` creates the file only if it is absent. (pypaimon checks and then renames, by
# which two writers can both succeed.)


def publish_schema(stores: Stores, manager: SchemaManager, schema: StoredSchema) -> bool:
    """Create the file `schema-<id>`. Return False, and write nothing, if it exists already."""
    path = schema_path(manager, schema.id)
    return stores.publish(local_path(path) or path, schema_text(schema).encode())


def schema_text(schema: StoredSchema) -> str:
    """The JSON of a schema file, without the keys that only pypaimon adds to nested types."""
    document = json.loads(JSON.to_json(schema))
    for field in document["fields"]:
        _strip_nullable(field["type"])
    if document.get("comment") is None:
        document.pop("comment", None)
    return json.dumps(document, indent=2, ensure_ascii=False)


def _strip_nullable(data_type: Any) -> None:
    # Paimon's Java library reads nullability from the NOT NULL suffix of "type" alone.
    if not isinstance(data_type, dict):
        return
    data_type.pop("nullable", None)
    for key in ("element", "key", "value"):
        _strip_nullable(data_type.get(key))
    for field in data_type.get("fields", ()):
        _strip_nullable(field["type"])


# The folders outside a table's own that its options name for its files.

_EXTERNAL = ("data-file.external-paths", "global-index.external-path")


def external_roots(paimon: Any) -> list[str]:
    """The folders that any schema of a table (pypaimon's `paimon`) or of its branches names. An
    unreadable schema adds no folders."""
    folders: dict[str, None] = {}
    for branch in branch_names(paimon):
        manager = SchemaManager(paimon.file_io, paimon.table_path, branch)
        for options in _options_of(manager):
            for key in _EXTERNAL:
                roots = str(options.get(key) or "").split(",")
                folders |= {root.strip(): None for root in roots if root.strip()}
    return list(folders)


def _options_of(manager: Any) -> list[dict[str, str]]:
    latest = _read_schema(manager.latest)
    last = -1 if latest is None else latest.id
    schemas = (_read_schema(partial(manager.get_schema, id)) for id in range(last + 1))
    return [schema.options or {} for schema in schemas if schema is not None]


def _read_schema(read: Callable[[], Any]) -> Any:
    """A schema; None for one that is gone or can't be read."""
    try:
        return read()
    except Exception as error:
        _log.debug(
            "The external folders of a schema are unknown because it can't be read: %s", error
        )
        return None
