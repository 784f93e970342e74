"""A table's schema files: their text as Paimon's Java library writes it, and their publication.

`publish_schema` creates the file only if it is absent. (pypaimon checks and then renames, by which
two writers can both succeed.)
"""

from __future__ import annotations

import json
from typing import Any

from pypaimon.common.json_util import JSON
from pypaimon.schema.schema_manager import SchemaManager
from pypaimon.schema.table_schema import TableSchema as StoredSchema

from paimon_magics.tables.pypaimon_internals import schema_path
from paimon_magics.tables.stores.paths import local_path
from paimon_magics.tables.stores.store import Stores

__all__ = ["publish_schema", "schema_text"]


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
