"""The system tables about a table's schemas and versions: `$snapshots`, `$schemas`, `$options`,
`$tags`, `$branches`, `$consumers`, `$statistics` and `$aggregation_fields`.

Sources: the classes of those names in Paimon's `org.apache.paimon.table.system`.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
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
from paimon_magics.tables.snapshots.provenance import noted
from paimon_magics.tables.system_tables.table_view import (
    Column,
    Document,
    Loaders,
    TableView,
    local_time,
    schema_of,
    table_of,
)

_REQUIRED = True  # the column is never NULL
_TIME = pa.timestamp("us")


def _commit_time(document: Document) -> datetime.datetime:
    return local_time(document.get("timeMillis") or 0)


def _column_statistics(document: Document) -> str:
    return json.dumps(document.get("colStats") or {}, indent=2, separators=(",", " : "))


_SNAPSHOTS = (
    Column("snapshot_id", pa.int64(), "id", _REQUIRED),
    Column("schema_id", pa.int64(), "schemaId", _REQUIRED),
    Column("commit_user", pa.string(), "commitUser", _REQUIRED),
    Column("commit_identifier", pa.int64(), "commitIdentifier", _REQUIRED),
    Column("commit_kind", pa.string(), "commitKind", _REQUIRED),
    Column("commit_time", _TIME, _commit_time, _REQUIRED),
    Column("base_manifest_list", pa.string(), "baseManifestList", _REQUIRED),
    Column("delta_manifest_list", pa.string(), "deltaManifestList", _REQUIRED),
    Column("changelog_manifest_list", pa.string(), "changelogManifestList"),
    Column("total_record_count", pa.int64(), "totalRecordCount"),
    Column("delta_record_count", pa.int64(), "deltaRecordCount"),
    Column("changelog_record_count", pa.int64(), "changelogRecordCount"),
    Column("watermark", pa.int64(), "watermark"),
    Column("next_row_id", pa.int64(), "nextRowId"),
    Column("operation", pa.string(), "operation"),
)
_SCHEMAS = (
    Column("schema_id", pa.int64(), "id", _REQUIRED),
    Column("fields", pa.string(), lambda s: _json([_field(f) for f in s["fields"]]), _REQUIRED),
    Column("partition_keys", pa.string(), lambda s: _json(s.get("partitionKeys") or []), _REQUIRED),
    Column("primary_keys", pa.string(), lambda s: _json(s.get("primaryKeys") or []), _REQUIRED),
    Column("options", pa.string(), lambda s: _json(s.get("options") or {}), _REQUIRED),
    Column("comment", pa.string(), "comment"),
    Column("update_time", _TIME, _commit_time, _REQUIRED),
)
_OPTIONS = (
    Column("key", pa.string(), itemgetter(0), _REQUIRED),
    Column("value", pa.string(), itemgetter(1), _REQUIRED),
)
_TAGS = (
    Column("tag_name", pa.string(), "name", _REQUIRED),
    Column("snapshot_id", pa.int64(), "id", _REQUIRED),
    Column("schema_id", pa.int64(), "schemaId", _REQUIRED),
    Column("commit_time", _TIME, _commit_time, _REQUIRED),
    Column("record_count", pa.int64(), "totalRecordCount"),
    Column("create_time", _TIME, lambda t: _moment(t.get("tagCreateTime"))),
    Column("time_retained", pa.string(), lambda t: retained_text(t.get("tagTimeRetained"))),
)
_BRANCHES = (
    Column("branch_name", pa.string(), itemgetter(0), _REQUIRED),
    Column("create_time", _TIME, itemgetter(1), _REQUIRED),
)
_CONSUMERS = (
    Column("consumer_id", pa.string(), itemgetter(0), _REQUIRED),
    Column("next_snapshot_id", pa.int64(), itemgetter(1), _REQUIRED),
)
_STATISTICS = (
    Column("snapshot_id", pa.int64(), "snapshotId", _REQUIRED),
    Column("schema_id", pa.int64(), "schemaId", _REQUIRED),
    Column("mergedRecordCount", pa.int64(), "mergedRecordCount"),
    Column("mergedRecordSize", pa.int64(), "mergedRecordSize"),
    Column("colstat", pa.string(), _column_statistics),
)
_AGGREGATION_FIELDS = (
    Column("field_name", pa.string(), itemgetter(0), _REQUIRED),
    Column("field_type", pa.string(), itemgetter(1), _REQUIRED),
    Column("function", pa.string(), itemgetter(2)),
    Column("function_options", pa.string(), itemgetter(3)),
    Column("comment", pa.string(), itemgetter(4)),
)
_READERS = 8  # how many files are read at once


def snapshots(view: TableView) -> pa.Table:
    """`$snapshots`: the snapshots that have not expired, oldest first."""
    earliest = earliest_snapshot_id(view.paimon, view.table.store) or 0
    ids = [id for id in snapshot_ids(view.table) if id >= earliest]
    with ThreadPoolExecutor(_READERS) as pool:
        documents = pool.map(lambda id: snapshot_by_id(view.table, id), ids)
        # A snapshot that is None has expired meanwhile.
        return table_of(_SNAPSHOTS, [document for document in documents if document is not None])


def schemas(view: TableView) -> pa.Table:
    """`$schemas`: all schemas, oldest first, in JSON as Paimon's Java library writes it."""
    return table_of(_SCHEMAS, _schemas(view))


def options(view: TableView) -> pa.Table:
    """`$options`: the options of the newest schema."""
    return table_of(_OPTIONS, list((_schemas(view)[-1].get("options") or {}).items()))


def tags(view: TableView) -> pa.Table:
    """`$tags`: the tags of the table or branch, by name."""
    documents = ((name, load_tag(view.table, name)) for name in list_tags(view.table))
    return table_of(_TAGS, [{**tag, "name": name} for name, tag in documents if tag])


def branches(view: TableView) -> pa.Table:
    """`$branches`: the branches of the table without the main one. Their creation time is that of
    the last change of their folder, as in Paimon, which stores no other."""
    manager = view.paimon.branch_manager()
    rows = []
    is_remote = view.paimon.catalog_environment.supports_version_management
    for name in sorted(manager.branches()) if is_remote else list_branches(view.table):
        info = view.paimon.file_io.get_file_status(manager.branch_path(name))
        rows.append((name, local_time(_changed_ms(info))))
    return table_of(_BRANCHES, rows)


def consumers(view: TableView) -> pa.Table:
    """`$consumers`: the consumers of the table or branch, and the next snapshot that each reads."""
    return table_of(_CONSUMERS, sorted(view.paimon.consumer_manager().consumers().items()))


def statistics(view: TableView) -> pa.Table:
    """`$statistics`: the table statistics of ANALYZE, at most one row, with the snapshot that was
    analyzed."""
    name = (view.snapshot or {}).get("statistics")
    if not name:
        return table_of(_STATISTICS, [])
    path = f"{view.paimon.table_path.rstrip('/')}/statistics/{name}"
    return table_of(_STATISTICS, [json.loads(view.paimon.file_io.read_file_utf8(path))])


def aggregation_fields(view: TableView) -> pa.Table:
    """`$aggregation_fields`: each column with its options `fields.<column>.…`. As in Paimon, the
    values of the options are shown as `function`, their keys as `function_options`."""
    schema = _schemas(view)[-1]
    options = schema.get("options") or {}
    keys: dict[str, list[str]] = {}
    for key in map_order(list(options)):
        parts = key.split(".")
        if len(parts) > 2 and parts[0] == "fields":
            keys.setdefault(parts[1], []).append(key)
    rows = []
    for field in schema["fields"]:
        own = keys.get(field["name"], [])
        values = _listed(options[key] for key in own)
        text = _type_text(field["type"])
        rows.append((field["name"], text, values, _listed(own), field.get("description")))
    return table_of(_AGGREGATION_FIELDS, rows)


TABLES: Loaders = {
    "aggregation_fields": (aggregation_fields, schema_of(_AGGREGATION_FIELDS)),
    "branches": (branches, schema_of(_BRANCHES)),
    "consumers": (consumers, schema_of(_CONSUMERS)),
    "options": (options, schema_of(_OPTIONS)),
    "schemas": (schemas, schema_of(_SCHEMAS)),
    "snapshots": (snapshots, schema_of(_SNAPSHOTS)),
    "statistics": (statistics, schema_of(_STATISTICS)),
    "tags": (tags, schema_of(_TAGS)),
}


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
    optional = {key: document.get(key) for key in ("description", "defaultValue")}
    return {
        "id": document["id"],
        "name": document["name"],
        "type": _type(document["type"]),
        **{key: value for key, value in optional.items() if value is not None},
    }


def _type(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    parts: dict[str, Any] = {"type": value["type"]}
    for key in ("element", "key", "value"):
        if key in value:
            parts[key] = _type(value[key])
    if "length" in value:
        parts["length"] = value["length"]
    if "fields" in value:
        parts["fields"] = [_field(f) for f in value["fields"]]
    return parts


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


# The timeline of a table's snapshots: what each commit did, and who made it.
#
# A snapshot has the number of added rows. The numbers of files are in its delta manifest list,
# which must be read for each snapshot: only the newest snapshots of a long history have them.


_Number = TypeVar("_Number", int, float)

_FIELDS: dict[str, pa.DataType] = {
    "snapshot_id": pa.int64(),
    "operation": pa.string(),
    "commit_kind": pa.string(),
    "commit_time": pa.timestamp("ms", tz="UTC"),
    "rows": pa.int64(),
    "total_rows": pa.int64(),
    "rows_inserted": pa.int64(),
    "rows_updated": pa.int64(),
    "rows_deleted": pa.int64(),
    "files_added": pa.int64(),
    "files_removed": pa.int64(),
    "tags": pa.string(),
    "user": pa.string(),
    "notebook": pa.string(),
    "engine": pa.string(),
    "seconds": pa.float64(),
    "statement": pa.string(),
    "schema_id": pa.int64(),
    "commit_user": pa.string(),
}


def _schema(names: str) -> pa.Schema:
    return pa.schema([(name, _FIELDS[name]) for name in names.split()])


TIMELINE = _schema(
    "snapshot_id commit_kind commit_time rows total_rows files_added files_removed tags user "
    "notebook schema_id commit_user"
)
"""The columns of `timeline`. `rows` is the difference that the commit made to the number of rows in
the table's files; it may be negative."""
HISTORY = _schema(
    "snapshot_id operation commit_kind commit_time user notebook engine rows rows_inserted "
    "rows_updated rows_deleted files_added files_removed seconds statement commit_user"
)
"""The columns of `history`. `rows` and the numbers of files are those of `timeline`. The rows
of each kind are what the statement reported, and `seconds` is how long it wrote."""

_KINDS = ("inserted", "updated", "deleted")
_COUNTED_MAX = 200


def timeline(view: TableView) -> pa.Table:
    """The timeline of a table or branch with the columns of TIMELINE, newest snapshot first. The
    numbers of files are NULL for all but the newest 200 snapshots."""
    tags: dict[int, list[str]] = {}
    for name in list_tags(view.table):
        tag = load_tag(view.table, name)
        if tag is not None:
            tags.setdefault(tag["id"], []).append(name)
    return pa.Table.from_pylist(_snapshots(view, tags), schema=TIMELINE)


def history(view: TableView) -> pa.Table:
    """The timeline with the origin of each snapshot, with the columns of HISTORY.

    Facts that the snapshot does not record are NULL: snapshots of other engines record little.
    `statement` is the statement's text as far as it was kept, otherwise its hash.
    """
    return pa.Table.from_pylist(_snapshots(view, {}), schema=HISTORY)


def _snapshots(view: TableView, tags: Mapping[int, list[str]]) -> list[dict[str, object]]:
    """Each snapshot with the columns of both tables; `tags` are their names by snapshot."""
    ids = snapshot_ids(view.table)[::-1]
    with ThreadPoolExecutor(_READERS) as pool:
        read = pool.map(lambda id: snapshot_by_id(view.table, id), ids)
        present = [snapshot for snapshot in read if snapshot is not None]  # else expired meanwhile
        counts = list(pool.map(lambda each: _file_counts(view, each), present[:_COUNTED_MAX]))
    counts += [(None, None)] * (len(present) - len(counts))
    return [
        _row(snapshot, added, removed, tags)
        for snapshot, (added, removed) in zip(present, counts, strict=True)
    ]


def _row(
    snapshot: Any, added: int | None, removed: int | None, tags: Mapping[int, list[str]]
) -> dict[str, object]:
    notes = noted(snapshot.get("properties"))
    return {
        "snapshot_id": snapshot["id"],
        "commit_kind": snapshot["commitKind"],
        "commit_time": snapshot["timeMillis"],
        "user": notes.get("user"),
        "notebook": notes.get("notebook"),
        "rows": snapshot.get("deltaRecordCount"),
        "total_rows": snapshot.get("totalRecordCount"),
        "files_added": added,
        "files_removed": removed,
        "tags": ", ".join(sorted(tags.get(snapshot["id"], ()))) or None,
        "schema_id": snapshot["schemaId"],
        "commit_user": snapshot["commitUser"],
        "operation": notes.get("operation"),
        "engine": notes.get("engine"),
        "statement": notes.get("sql") or notes.get("statement"),
        "seconds": _number(notes.get("seconds"), float),
        **{f"rows_{kind}": _number(notes.get(kind), int) for kind in _KINDS},
    }


def _number(text: str | None, kind: Callable[[str], _Number]) -> _Number | None:
    """The number of a property, which any client may have written."""
    try:
        return None if text is None else kind(text)
    except ValueError:
        return None


def _file_counts(view: TableView, snapshot: Any) -> tuple[int | None, int | None]:
    """The numbers of files that a commit added and removed."""
    name = snapshot.get("deltaManifestList")
    if not name:
        return None, None
    listed = view.folder.columns.files(name)
    return (
        pc.sum(listed.column("num_added_files")).as_py() or 0,
        pc.sum(listed.column("num_deleted_files")).as_py() or 0,
    )
