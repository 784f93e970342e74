"""The REST catalog's endpoints of one table's versions: snapshots, commits, tags, branches."""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter
from typing import Any

from paimon_magics.coordinator.rest.commits import commit_prepared, require_looked_at
from paimon_magics.coordinator.rest.endpoints import (
    Call,
    Handler,
    like_filter,
    page,
    refusing,
    safe_name,
    table_of,
    warn_of_spelling,
    whole_number,
)
from paimon_magics.coordinator.rest.errors import (
    RestError,
    already_exists,
    bad_request,
    not_found,
    not_offered,
)
from paimon_magics.coordinator.runtime.work import Steps
from paimon_magics.coordinator.service.replacements import remove_rows
from paimon_magics.coordinator.service.served import watch_latest
from paimon_magics.coordinator.service.tags_and_branches import change_versions
from paimon_magics.errors import UnknownNameError
from paimon_magics.planning.commits.requests import is_named_by
from paimon_magics.planning.schemas.rules import check_schema
from paimon_magics.statements.version_changes import (
    CreateBranch,
    CreateTag,
    DeleteBranches,
    DeleteTags,
    RenameBranch,
    VersionChange,
)
from paimon_magics.tables.catalog.rest_documents import (
    integer_of,
    mapping_of,
    schema_from_document,
    sequence_of,
    string_map,
    text_of,
)
from paimon_magics.tables.manifests.partitions import partition_documents
from paimon_magics.tables.snapshots.branches import branch_exists, forward_to_branch, list_branches
from paimon_magics.tables.snapshots.chain import (
    latest_document,
    list_snapshots,
    list_tags,
    load_snapshot,
    load_tag,
    roll_back,
    roll_back_schema,
    tag_document,
)
from paimon_magics.tables.snapshots.consumers import forget_progress, keep_progress, list_progress
from paimon_magics.tables.snapshots.provenance import USER, vouched
from paimon_magics.tables.table import StoredTable, Table

_NOT_MEASURED = -1


def _replace_table(call: Call) -> Any:
    """`CREATE OR REPLACE TABLE`, in two steps as in Paimon's own catalogs: an overwrite that
    removes all rows, then the new schema, with the next number. Earlier snapshots and schemas stay.
    If the process dies in between, the table is empty and has its old schema.

    If a table can't be replaced this way, the answer is 501: then engines drop it and create it
    again."""
    context, name = call.context, call.name
    if name.branch is not None:
        raise bad_request(f"`{name}` is a branch: replace its table.")
    table = table_of(context, name)
    schema = schema_from_document(call.body.get("schema"))
    check_schema(schema, from_engine=True)
    warn_of_spelling(name, schema.options)
    if context.catalog.metastore != "filesystem":
        raise not_offered("replacing tables")
    if list(schema.partition_keys) != list(table.schema.get("partitionKeys") or []):
        raise not_offered(f"other partition keys for `{name}`: drop it and create it again")
    require_looked_at(context, name, table.location)
    with (yield from context.changing(name)):
        remove_rows(context, name)
        context.catalog.replace_table(name, schema)


# ---- snapshots ----


def _latest_snapshot(call: Call) -> Any:
    table = call.table()
    snapshot = latest_document(table)
    if snapshot is None:
        raise not_found("SNAPSHOT", str(table.name), f"`{table.name}` has no snapshots.")
    # To sum up the table's files, every plan and commit of every client would read all manifests;
    # no client needs the sums for either.
    return {
        "snapshot": {
            "snapshot": snapshot,
            "recordCount": snapshot["totalRecordCount"],
            "fileSizeInBytes": _NOT_MEASURED,
            "fileCount": _NOT_MEASURED,
            "lastFileCreationTime": _NOT_MEASURED,
        }
    }


def _list_snapshots(call: Call) -> Any:
    count, after = (whole_number(call.request, key) for key in ("maxResults", "pageToken"))
    snapshots = list_snapshots(call.table(), after, count + 1 if count else None)
    has_more = bool(count) and len(snapshots) > count
    shown = snapshots[:count] if has_more else snapshots
    return {"snapshots": shown, "nextPageToken": str(shown[-1]["id"]) if has_more else None}


def _load_snapshot(call: Call) -> Any:
    version = safe_name(call.names["version"], "version")
    snapshot = load_snapshot(call.table(), version)
    if snapshot is None:
        raise not_found("SNAPSHOT", version)
    return {"snapshot": snapshot}


def _commit(call: Call) -> Any:
    snapshot = _snapshot_of(call, mapping_of(call.body.get("snapshot"), "snapshot"))
    items = sequence_of(call.body.get("statistics"), "statistics", optional=True)
    statistics = [mapping_of(item, f"statistics[{at}]") for at, item in enumerate(items)]
    table_id = call.optional_text("tableId")
    base_uuid = call.optional_text("baseSnapshotUuid")
    name = call.name
    claimed = None
    if call.user is None:
        claimed = string_map(snapshot.get("properties"), "snapshot.properties").get(USER)
    call.report(name, snapshot_id=snapshot.get("id"), claimed=claimed)
    success = yield from commit_prepared(
        call.context,
        name,
        snapshot,
        table_id=table_id,
        base_uuid=base_uuid,
        has_base_uuid="baseSnapshotUuid" in call.body,
        statistics=statistics,
    )
    return {"success": success}


def _snapshot_of(call: Call, snapshot: dict[str, Any]) -> dict[str, Any]:
    """The snapshot with the properties that are `vouched` for. Raises RestError 403 for a commit
    user of somebody else's transaction: its own commit would count as made.
    """
    properties = vouched(string_map(snapshot.get("properties"), "snapshot.properties"), call.user)
    user = str(snapshot.get("commitUser"))
    if call.context.is_open(user) or (call.user and not is_named_by(user, call.user)):
        # Clients repeat a commit that is answered 400.
        raise RestError(403, f"The commit user {user} is that of another user's transaction.")
    return {**snapshot, "properties": properties} if properties else snapshot


def _roll_back(call: Call) -> Any:
    instant = mapping_of(call.body.get("instant"), "instant")
    kind = text_of(instant, "type", "instant")
    snapshot_id, tag = None, None
    match kind:
        case "snapshot":
            snapshot_id = integer_of(instant, "snapshotId", "instant")
        case "tag":
            tag = safe_name(text_of(instant, "tagName", "instant"), "tag")
        case _:
            raise bad_request(f"instant.type must be snapshot or tag, not '{kind}'.")
    expected = None
    if call.body.get("fromSnapshot") is not None:
        expected = call.integer("fromSnapshot")
    context, name = call.context, call.table().name
    with (yield from context.changing(name)):
        table = call.table()
        latest = latest_document(table)
        if expected is not None and (latest is None or latest["id"] != expected):
            shown = "none" if latest is None else latest["id"]
            raise bad_request(f"Latest snapshot {shown} is not {expected}: `{name}` has changed.")
        try:
            roll_back(
                table,
                context.publish,
                snapshot_id=snapshot_id,
                tag=tag,
                removing=context.removing(table.location),
            )
        except UnknownNameError as error:
            target = tag if tag is not None else str(snapshot_id)
            raise not_found(kind.upper(), target, str(error)) from error
        finally:
            context.recent.forget(table.location)


def _roll_back_schema(call: Call) -> Any:
    schema_id = call.integer("schemaId")
    name = call.table().name
    with (yield from call.context.changing(name)):
        try:
            roll_back_schema(call.table(), schema_id)
        except UnknownNameError as error:
            raise bad_request(str(error)) from error


def _list_partitions(call: Call) -> Any:
    table = call.table()
    matches = like_filter(call.request, "partitionNamePattern")
    documents = [d for d in partition_documents(table) if matches(_partition_name(d))]
    # The latest days come first, as from Paimon's own server of its tests.
    partitions, token = page(call.request, documents, _partition_name, descending=True)
    return {"partitions": partitions, "nextPageToken": token}


def _partitions_by_names(call: Call) -> Any:
    items = sequence_of(call.body.get("specs"), "specs", optional=True)
    specs = [string_map(item, f"specs[{position}]") for position, item in enumerate(items)]
    documents = partition_documents(call.table())
    return {"partitions": [document for document in documents if document["spec"] in specs]}


def _partition_name(document: dict[str, Any]) -> str:
    return "/".join(f"{key}={value}" for key, value in document["spec"].items())


# ---- tags ----


def _list_tags(call: Call) -> Any:
    prefix = call.request.query_params.get("tagNamePrefix", "").removesuffix("%")
    names = [name for name in list_tags(call.table()) if name.startswith(prefix)]
    tags, token = page(call.request, names, str)
    return {"tags": tags, "nextPageToken": token}


def _get_tag(call: Call) -> Any:
    name = safe_name(call.names["tag"], "tag")
    tag = load_tag(call.table(), name)
    if tag is None:
        raise not_found("TAG", name)
    return tag_document(name, tag)


def _create_tag(call: Call) -> Any:
    name = safe_name(call.text("tagName"), "tag")
    if name.isdigit():
        raise bad_request(f"A tag can't be named `{name}`: a number means a snapshot.")
    snapshot_id = None
    if call.body.get("snapshotId") is not None:
        snapshot_id = call.integer("snapshotId")
    retained = call.optional_text("timeRetained")
    table = call.table()
    change = CreateTag(name, snapshot_id, retained, if_not_exists=True)
    snapshot = str(table.name if snapshot_id is None else snapshot_id)
    is_new = yield from _changed(call, table, change, "SNAPSHOT", snapshot)
    if not is_new and call.body.get("ignoreIfExists") is not True:
        raise already_exists("TAG", name)


def _delete_tag(call: Call) -> Any:
    name = safe_name(call.names["tag"], "tag")
    change = DeleteTags((name,))
    if not (yield from _changed(call, call.table(), change, "TAG", name)):
        raise not_found("TAG", name)


def _changed(
    call: Call, table: StoredTable, change: VersionChange, kind: str, name: str
) -> Steps[bool]:
    """Make a change, and return whether anything was changed. A missing resource is the table,
    which somebody may have dropped meanwhile, or the resource that `kind` and `name` name.
    """
    try:
        return bool((yield from change_versions(call.context, table.name, change)).changed)
    except UnknownNameError as error:
        table_of(call.context, table.name)
        raise not_found(kind, name, str(error)) from error


# ---- branches ----


def _list_branches(call: Call) -> Any:
    return {"branches": list_branches(call.table())}


def _create_branch(call: Call) -> Any:
    branch = _branch_name(call.text("branch"))
    tag = call.optional_text("fromTag")
    table = _main_table(call)
    if tag is not None and load_tag(table, safe_name(tag, "tag")) is None:
        raise not_found("TAG", tag)
    change = CreateBranch(branch, tag, if_not_exists=True)
    if not (yield from _changed(call, table, change, "TAG", tag or "")):
        raise already_exists("BRANCH", branch)


def _drop_branch(call: Call) -> Any:
    branch = _branch_name(call.names["branch"])
    change = DeleteBranches((branch,))
    yield from _changed(call, _main_table(call), change, "BRANCH", branch)


def _rename_branch(call: Call) -> Any:
    branch = _branch_name(call.names["branch"])
    new_name = _branch_name(call.text("toBranch"))
    table = _main_table(call)
    if branch_exists(table, branch) and branch_exists(table, new_name):
        raise already_exists("BRANCH", new_name)
    yield from _changed(call, table, RenameBranch(branch, new_name), "BRANCH", branch)


def _forward_branch(call: Call) -> Any:
    name = _branch_name(call.names["branch"])
    context, table = call.context, _main_table(call)
    with (yield from context.changing(table.name)):
        if not branch_exists(table, name):
            raise not_found("BRANCH", name)
        branch = table_of(context, replace(table.name, branch=name))
        removing = context.removing(table.location)
        forward_to_branch(table, branch, context.publish, replaces=True, removing=removing)
        context.recent.forget(table.location)
        if context.watch is not None:
            watch_latest(context.watch, table)


def _main_table(call: Call) -> StoredTable:
    if call.name.branch is not None:
        raise bad_request(f"`{call.name}` is a branch: name its table instead.")
    return call.table()


def _branch_name(name: str) -> str:
    if "$" in name or name == "main":
        raise bad_request(f"`{name}` is not a valid name of a branch.")
    return safe_name(name, "branch")


# ---- consumers ----


def _list_consumers(call: Call) -> Any:
    progress = list_progress(_loaded(call))
    consumers, token = page(call.request, progress.items(), itemgetter(0))
    shown = [{"consumerId": name, "nextSnapshot": snapshot} for name, snapshot in consumers]
    return {"consumers": shown, "nextPageToken": token}


def _reset_consumer(call: Call) -> Any:
    consumer = call.text("consumerId")
    next_snapshot = call.body.get("nextSnapshotId")
    table = _loaded(call)
    call.report(table.name, detail=consumer)
    with (yield from call.context.changing(table.name, in_order=False)):  # expiry reads them
        if next_snapshot is None:
            forget_progress(table, consumer)
        else:
            keep_progress(table, consumer, call.integer("nextSnapshotId"))


def _loaded(call: Call) -> Table:
    call.table()  # 404 with its type
    return call.context.catalog.load(call.name)


# ---- keys, and what is not supported ----


def _data_token(call: Call) -> Any:
    """A key for the table's folder, which the sender may read: its branches are in it, too."""
    table = call.table()
    tokens = call.context.data_tokens
    if tokens is None:
        raise not_offered("tokens for data files")
    token = yield from tokens.of_table(call.principal, table)
    return {"token": dict(token.options), "expiresAtMillis": token.told_end_ms}


def _refuse(what: str) -> Handler:
    return refusing(what, Call.table)


_PARTITIONS = "the registration of partitions; they come and go with their rows"
VERSION_ENDPOINTS: list[tuple[str, str, Handler]] = [
    ("GET", "/snapshot", _latest_snapshot),
    ("GET", "/snapshots", _list_snapshots),
    ("GET", "/snapshots/{version}", _load_snapshot),
    ("POST", "/commit", _commit),
    ("POST", "/rollback", _roll_back),
    ("POST", "/rollback-schema", _roll_back_schema),
    ("POST", "/replace", _replace_table),
    ("GET", "/token", _data_token),
    ("POST", "/auth", _refuse("row filters and column masks")),
    ("GET", "/partitions", _list_partitions),
    ("POST", "/partitions", _refuse(_PARTITIONS)),
    ("POST", "/partitions/drop", _refuse(_PARTITIONS)),
    ("POST", "/partitions/mark", _refuse("marking partitions as done")),
    ("POST", "/partitions/list-by-names", _partitions_by_names),
    ("POST", "/partitions/list-by-filter", _refuse("partitions by a filter")),
    ("GET", "/tags", _list_tags),
    ("POST", "/tags", _create_tag),
    ("GET", "/tags/{tag}", _get_tag),
    ("DELETE", "/tags/{tag}", _delete_tag),
    ("GET", "/branches", _list_branches),
    ("POST", "/branches", _create_branch),
    ("DELETE", "/branches/{branch}", _drop_branch),
    ("POST", "/branches/{branch}/rename", _rename_branch),
    ("POST", "/branches/{branch}/forward", _forward_branch),
    ("GET", "/consumers", _list_consumers),
    ("POST", "/consumers/reset", _reset_consumer),
]
"""The endpoints below a table's path: method, path and handler."""
