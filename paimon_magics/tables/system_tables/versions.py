"""The system tables about a table's schemas and versions: `$snapshots`, `$schemas`, `$options`,
`$tags`, `$branches`, `$consumers`, `$statistics` and `$aggregation_fields`.

Sources: the classes of those names in Paimon's `org.apache.paimon.table.system`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
from pypaimon.common import time_utils

from paimon_magics.columnar.java_text import map_order
from paimon_magics.tables.pypaimon_internals import schema_path
from paimon_magics.tables.snapshots.branches import list_branches
from paimon_magics.tables.snapshots.chain import (
    list_tags,
    load_tag,
    retained_text,
    snapshot_by_id,
    snapshot_ids,
)
from paimon_magics.tables.snapshots.latest import earliest_snapshot_id
from paimon_magics.tables.system_tables.table_view import Document, TableView, local_times, rows_of

_REQUIRED = False  # the nullability of a column that is always there
_TIME = pa.timestamp("us")
_SNAPSHOTS = pa.schema(
    [
        pa.field("snapshot_id", pa.int64(), _REQUIRED),
        pa.field("schema_id", pa.int64(), _REQUIRED),
        pa.field("commit_user", pa.string(), _REQUIRED),
        pa.field("commit_identifier", pa.int64(), _REQUIRED),
        pa.field("commit_kind", pa.string(), _REQUIRED),
        pa.field("commit_time", _TIME, _REQUIRED),
        pa.field("base_manifest_list", pa.string(), _REQUIRED),
        pa.field("delta_manifest_list", pa.string(), _REQUIRED),
        pa.field("changelog_manifest_list", pa.string()),
        pa.field("total_record_count", pa.int64()),
        pa.field("delta_record_count", pa.int64()),
        pa.field("changelog_record_count", pa.int64()),
        pa.field("watermark", pa.int64()),
        pa.field("next_row_id", pa.int64()),
        pa.field("operation", pa.string()),
    ]
)
_SCHEMAS = pa.schema(
    [
        pa.field("schema_id", pa.int64(), _REQUIRED),
        pa.field("fields", pa.string(), _REQUIRED),
        pa.field("partition_keys", pa.string(), _REQUIRED),
        pa.field("primary_keys", pa.string(), _REQUIRED),
        pa.field("options", pa.string(), _REQUIRED),
        pa.field("comment", pa.string()),
        pa.field("update_time", _TIME, _REQUIRED),
    ]
)
_OPTIONS = pa.schema(
    [pa.field("key", pa.string(), _REQUIRED), pa.field("value", pa.string(), _REQUIRED)]
)
_TAGS = pa.schema(
    [
        pa.field("tag_name", pa.string(), _REQUIRED),
        pa.field("snapshot_id", pa.int64(), _REQUIRED),
        pa.field("schema_id", pa.int64(), _REQUIRED),
        pa.field("commit_time", _TIME, _REQUIRED),
        pa.field("record_count", pa.int64()),
        pa.field("create_time", _TIME),
        pa.field("time_retained", pa.string()),
    ]
)
_BRANCHES = pa.schema(
    [
        pa.field("branch_name", pa.string(), _REQUIRED),
        pa.field("create_time", _TIME, _REQUIRED),
    ]
)
_CONSUMERS = pa.schema(
    [
        pa.field("consumer_id", pa.string(), _REQUIRED),
        pa.field("next_snapshot_id", pa.int64(), _REQUIRED),
    ]
)
_STATISTICS = pa.schema(
    [
        pa.field("snapshot_id", pa.int64(), _REQUIRED),
        pa.field("schema_id", pa.int64(), _REQUIRED),
        pa.field("mergedRecordCount", pa.int64()),
        pa.field("mergedRecordSize", pa.int64()),
        pa.field("colstat", pa.string()),
    ]
)
_AGGREGATION_FIELDS = pa.schema(
    [
        pa.field("field_name", pa.string(), _REQUIRED),
        pa.field("field_type", pa.string(), _REQUIRED),
        pa.field("function", pa.string()),
        pa.field("function_options", pa.string()),
        pa.field("comment", pa.string()),
    ]
)
COLUMNS = {
    "aggregation_fields": _AGGREGATION_FIELDS,
    "branches": _BRANCHES,
    "consumers": _CONSUMERS,
    "options": _OPTIONS,
    "schemas": _SCHEMAS,
    "snapshots": _SNAPSHOTS,
    "statistics": _STATISTICS,
    "tags": _TAGS,
}
_READERS = 8  # how many files are read at once


def snapshots(view: TableView) -> pa.Table:
    """`$snapshots`: the snapshots that have not expired, oldest first."""
    earliest = earliest_snapshot_id(view.paimon, view.table.store) or 0
    ids = [id for id in snapshot_ids(view.table) if id >= earliest]
    with ThreadPoolExecutor(_READERS) as pool:
        read = pool.map(lambda id: snapshot_by_id(view.table, id), ids)
        found = [document for document in read if document is not None]  # else it expired meanwhile
    times = local_times([s["timeMillis"] for s in found])
    rows = [
        (
            s["id"],
            s["schemaId"],
            s["commitUser"],
            s["commitIdentifier"],
            s["commitKind"],
            time,
            s["baseManifestList"],
            s["deltaManifestList"],
            s.get("changelogManifestList"),
            s.get("totalRecordCount"),
            s.get("deltaRecordCount"),
            s.get("changelogRecordCount"),
            s.get("watermark"),
            s.get("nextRowId"),
            s.get("operation"),
        )
        for s, time in zip(found, times, strict=True)
    ]
    return rows_of(_SNAPSHOTS, rows)


def schemas(view: TableView) -> pa.Table:
    """`$schemas`: all schemas, oldest first, in JSON as Paimon's Java library writes it."""
    found = _schemas(view)
    times = local_times([s.get("timeMillis") or 0 for s in found])
    rows = [
        (
            s["id"],
            _json([_field(f) for f in s["fields"]]),
            _json(s.get("partitionKeys") or []),
            _json(s.get("primaryKeys") or []),
            _json(s.get("options") or {}),
            s.get("comment"),
            time,
        )
        for s, time in zip(found, times, strict=True)
    ]
    return rows_of(_SCHEMAS, rows)


def options(view: TableView) -> pa.Table:
    """`$options`: the options of the newest schema."""
    return rows_of(_OPTIONS, list((_schemas(view)[-1].get("options") or {}).items()))


def tags(view: TableView) -> pa.Table:
    """`$tags`: the tags of the table or branch, by name."""
    found = [(name, tag) for name in list_tags(view.table) if (tag := load_tag(view.table, name))]
    times = local_times([tag["timeMillis"] for _, tag in found])
    rows = [
        (
            name,
            tag["id"],
            tag["schemaId"],
            time,
            tag.get("totalRecordCount"),
            _moment(tag.get("tagCreateTime")),
            retained_text(tag.get("tagTimeRetained")),
        )
        for (name, tag), time in zip(found, times, strict=True)
    ]
    return rows_of(_TAGS, rows)


def branches(view: TableView) -> pa.Table:
    """`$branches`: the branches of the table without the main one. Their creation time is that of
    the last change of their folder, as in Paimon, which stores no other."""
    manager = view.paimon.branch_manager()
    rows = []
    is_remote = view.paimon.catalog_environment.supports_version_management
    for name in sorted(manager.branches()) if is_remote else list_branches(view.table):
        info = view.paimon.file_io.get_file_status(manager.branch_path(name))
        rows.append((name, local_times([_changed_ms(info)])[0]))
    return rows_of(_BRANCHES, rows)


def consumers(view: TableView) -> pa.Table:
    """`$consumers`: the consumers of the table or branch, and the next snapshot that each reads."""
    manager = view.paimon.consumer_manager()
    rows = sorted(manager.consumers().items())
    return rows_of(_CONSUMERS, rows)


def statistics(view: TableView) -> pa.Table:
    """`$statistics`: the table statistics of ANALYZE, at most one row, with the snapshot that was
    analysed."""
    name = (view.snapshot or {}).get("statistics")
    if not name:
        return _STATISTICS.empty_table()
    path = f"{view.paimon.table_path.rstrip('/')}/statistics/{name}"
    found = json.loads(view.paimon.file_io.read_file_utf8(path))
    row = (
        found["snapshotId"],
        found["schemaId"],
        found.get("mergedRecordCount"),
        found.get("mergedRecordSize"),
        json.dumps(found.get("colStats") or {}, indent=2, separators=(",", " : ")),
    )
    return rows_of(_STATISTICS, [row])


def aggregation_fields(view: TableView) -> pa.Table:
    """`$aggregation_fields`: each column with its options `fields.<column>.…`. As in Paimon, the
    values of the options are shown as `function`, their keys as `function_options`."""
    schema = _schemas(view)[-1]
    found: dict[str, list[tuple[str, str]]] = {}
    options = schema.get("options") or {}
    for key in map_order(list(options)):
        value = options[key]
        parts = key.split(".")
        if len(parts) > 2 and parts[0] == "fields":
            found.setdefault(parts[1], []).append((key, value))
    rows = [
        (
            f["name"],
            _type_text(f["type"]),
            _listed(value for _, value in found.get(f["name"], ())),
            _listed(key for key, _ in found.get(f["name"], ())),
            f.get("description"),
        )
        for f in schema["fields"]
    ]
    return rows_of(_AGGREGATION_FIELDS, rows)


def _schemas(view: TableView) -> list[Document]:
    """The documents of all schemas as stored, oldest first."""
    manager = view.paimon.schema_manager
    folder = schema_path(manager, 0).rpartition("/")[0]
    names = view.table.store.names(folder, "schema-")
    ids = sorted(int(name[7:]) for name in names if name[7:].isdigit())
    paths = [schema_path(manager, schema_id) for schema_id in ids]
    return [json.loads(view.paimon.file_io.read_file_utf8(path)) for path in paths]


def _field(document: Document) -> dict[str, Any]:
    """A field as Java writes it, without keys that other writers add."""
    kept = {"id": document["id"], "name": document["name"], "type": _type(document["type"])}
    for key in ("description", "defaultValue"):
        if document.get(key) is not None:
            kept[key] = document[key]
    return kept


def _type(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    kept: dict[str, Any] = {"type": value["type"]}
    for key in ("element", "key", "value"):
        if key in value:
            kept[key] = _type(value[key])
    if "length" in value:
        kept["length"] = value["length"]
    if "fields" in value:
        kept["fields"] = [_field(f) for f in value["fields"]]
    return kept


def _type_text(value: Any) -> str:
    """A type as Java prints it: `ARRAY<INT>`, `ROW<`a` INT, `b` STRING>`."""
    if isinstance(value, str):
        return value
    kind, _, rest = str(value["type"]).partition(" ")
    suffix = f" {rest}" if rest else ""
    match kind:
        case "MAP":
            inner = f"{_type_text(value['key'])}, {_type_text(value['value'])}"
        case "ROW":
            inner = ", ".join(_row_field_text(f) for f in value["fields"])
        case "VECTOR":
            inner = f"{_type_text(value['element'])}, {value['length']}"
        case _:
            inner = _type_text(value["element"])
    return f"{kind}<{inner}>{suffix}"


def _row_field_text(field: Document) -> str:
    name = str(field["name"]).replace("`", "``")
    comment = field.get("description")
    escaped = "" if comment is None else " '" + str(comment).replace("'", "''") + "'"
    return f"`{name}` {_type_text(field['type'])}{escaped}"


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _listed(values: Iterable[str]) -> str:
    return f"[{', '.join(values)}]"


def _moment(stored: Any) -> Any:
    return None if stored is None else time_utils.json_array_to_local_datetime(stored)


def _changed_ms(info: Any) -> int:
    """The time at which a file was last changed, from pypaimon's or pyarrow's file status; 0 if the
    store does not give it."""
    nanos = getattr(info, "mtime_ns", None)
    if nanos is not None:
        return int(nanos // 1_000_000)
    changed = getattr(info, "mtime", None)
    if changed is None:
        return 0
    return int((changed.timestamp() if hasattr(changed, "timestamp") else float(changed)) * 1000)
