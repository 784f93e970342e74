"""A table's schema files: their text as Paimon's Java side writes it, and their publication.

`publish_schema` creates the file only if it is absent: by a hard link on a local disk (pypaimon's
check-then-rename lets two writers both win there), through pypaimon's own atomic write elsewhere.
"""

from __future__ import annotations

import json
from typing import Any

from pypaimon.common.json_util import JSON
from pypaimon.filesystem.caching_file_io import CachingFileIO
from pypaimon.filesystem.local_file_io import LocalFileIO
from pypaimon.schema.schema_manager import SchemaManager
from pypaimon.schema.table_schema import TableSchema

from paimon_magics.tables.publishing import publish_local_file

__all__ = ["publish_schema", "schema_text"]


def publish_schema(manager: SchemaManager, schema: TableSchema) -> bool:
    """Writes `schema-<id>`; False, and nothing written, when somebody else already has."""
    path = manager._to_schema_path(schema.id)
    file_io = manager.file_io
    if isinstance(file_io, CachingFileIO):
        file_io = file_io._delegate
    if isinstance(file_io, LocalFileIO):
        return publish_local_file(str(file_io._to_file(path)), schema_text(schema).encode())
    return bool(file_io.try_to_write_atomic(path, schema_text(schema)))


def schema_text(schema: TableSchema) -> str:
    """The JSON of a schema file, without the keys that only pypaimon adds to nested types."""
    document = json.loads(JSON.to_json(schema))
    for field in document["fields"]:
        _strip_nullable(field["type"])
    if document.get("comment") is None:
        document.pop("comment", None)
    return json.dumps(document, indent=2, ensure_ascii=False)


def _strip_nullable(data_type: Any) -> None:
    # Java tells nullability by the NOT NULL suffix of "type" alone.
    if not isinstance(data_type, dict):
        return
    data_type.pop("nullable", None)
    for key in ("element", "key", "value"):
        _strip_nullable(data_type.get(key))
    for field in data_type.get("fields", ()):
        _strip_nullable(field["type"])
