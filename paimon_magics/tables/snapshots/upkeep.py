"""What stands beside the snapshots of a table, as procedures change it: consumers, automatic tags,
marks of done partitions, and where the history begins.

The caller prevents changes to the table by all processes that it knows of. A request may come
twice: each of these changes may be repeated.
"""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, assert_never

import pyarrow as pa
import pyarrow.compute as pc
from pypaimon.common import time_utils
from pypaimon.schema.data_types import PyarrowFieldParser

from paimon_magics.columnar.time_zones import process_zone, rules_of
from paimon_magics.errors import (
    InvalidTableError,
    InvalidValueError,
    UnknownNameError,
    nearest,
)
from paimon_magics.planning.commits.automatic_tags import AutomaticTags, TaggedTime
from paimon_magics.planning.options.values import boolean_value
from paimon_magics.planning.schemas.written_options import DONE_AT_END, check_actions
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.statements.version_changes import (
    ClearConsumers,
    CreateAutomaticTags,
    MarkPartitionsDone,
    RepairEarliestSnapshot,
    ResetConsumer,
    UpkeepChange,
)
from paimon_magics.tables.snapshots.chain import (
    create_tag,
    list_snapshots,
    list_tags,
    load_tag,
    refuse_remote,
    snapshot_ids,
    usable_document,
)
from paimon_magics.tables.snapshots.consumers import (
    consumer_ids,
    forget_progress,
    keep_progress,
)
from paimon_magics.tables.snapshots.latest import earliest_snapshot_id, usable_snapshots
from paimon_magics.tables.snapshots.tags_and_branches import VersionReceipt
from paimon_magics.tables.stores.corruption import parsing
from paimon_magics.tables.stores.paths import local_path
from paimon_magics.tables.stores.store import Publish
from paimon_magics.tables.table import StoredTable, Table


def keep_up(
    table: Table,
    stored: StoredTable,
    change: UpkeepChange,
    publish: Publish,
    remove_tag: Callable[[str], bool],
) -> VersionReceipt:
    """Carry out a change; `table` and `stored` are the same one. `remove_tag` as in
    `change_version`. The receipt names the tags, consumers or folders that were created, changed
    or removed.

    Raises UnknownNameError for a snapshot that does not exist, and what `mark_done` and
    `AutomaticTags.of` raise. Nothing is changed then.
    """
    match change:
        case CreateAutomaticTags():
            return _tag_automatically(table, stored, publish, remove_tag)
        case ResetConsumer(consumer_id=consumer_id, next_snapshot=next_snapshot):
            return _reset(table, stored, consumer_id, next_snapshot)
        case ClearConsumers():
            return VersionReceipt(_cleared(table, change))
        case MarkPartitionsDone(partitions=partitions):
            return VersionReceipt(mark_done(table, partitions))
        case RepairEarliestSnapshot(snapshot_id=snapshot_id):
            return _begin_at(stored, snapshot_id)
        case _:
            assert_never(change)


# ---- consumers ----


def _reset(
    table: Table, stored: StoredTable, consumer_id: str, next_snapshot: int | None
) -> VersionReceipt:
    known = consumer_ids(table)
    if next_snapshot is None:
        forget_progress(table, consumer_id)
        return VersionReceipt((consumer_id,) if consumer_id in known else ())
    if usable_document(stored, next_snapshot) is None:
        ids = [each.id for each in usable_snapshots(stored.paimon, stored.store)]
        shown = f"it has {ids[0]} to {ids[-1]}" if ids else "it has none"
        raise UnknownNameError(
            f"The consumer `{consumer_id}` of `{table.name}` can't go on with snapshot "
            f"{next_snapshot}: the table has no such snapshot ({shown}).",
            hint=f"`{table.name}$snapshots` lists the snapshots. Without `nextSnapshotId` the "
            "consumer is forgotten.",
        )
    keep_progress(table, consumer_id, next_snapshot)
    return VersionReceipt((consumer_id,), snapshot_id=next_snapshot)


def _cleared(table: Table, change: ClearConsumers) -> tuple[str, ...]:
    names = pa.array(consumer_ids(table), pa.string())
    chosen = names if change.including is None else _matching(names, change.including)
    if change.excluding is not None:
        spared = _matching(chosen, change.excluding)
        chosen = chosen.filter(pc.invert(pc.is_in(chosen, spared)))
    cleared = tuple(chosen.to_pylist())
    for name in cleared:
        forget_progress(table, name)
    return cleared


def _matching(names: pa.StringArray, pattern: str) -> pa.StringArray:
    """The names that match a pattern as a whole. Clients send patterns: RE2, which is Arrow's,
    takes a time that grows with the text alone, where Python's and Java's may take hours."""
    try:
        pc.match_substring_regex(pa.scalar(""), pattern)  # alone: it may close the group below
        return names.filter(pc.match_substring_regex(names, rf"\A(?:{pattern})\z"))
    except pa.ArrowInvalid as error:
        problem = str(error).partition(": ")[2] or str(error)
        raise InvalidValueError(
            f"`{pattern}` is no pattern for names of consumers: {problem}.",
            hint="For example `nightly-.*`. The syntax is that of RE2: it has no look-ahead, no "
            "look-behind and no back-references.",
        ) from None


# ---- automatic tags ----


def _tag_automatically(
    table: Table,
    stored: StoredTable,
    publish: Publish,
    remove_tag: Callable[[str], bool],
) -> VersionReceipt:
    refuse_remote(stored, "it can't be tagged")
    rules = AutomaticTags.of(table.schema)
    tags = _tags(stored)
    changed = []
    if rules is not None:
        changed = _created(stored, rules, tags, publish)
        for tag in rules.surplus(_tags(stored)):
            if remove_tag(tag):
                changed.append(tag)
    if table.schema.parsed("tag.time-expire-enabled", boolean_value, True):
        changed += [tag for tag in list_tags(stored) if _is_over(stored, tag) and remove_tag(tag)]
    return VersionReceipt(tuple(dict.fromkeys(changed)))


def _created(
    stored: StoredTable, rules: AutomaticTags, tags: dict[str, int], publish: Publish
) -> list[str]:
    first = rules.first_snapshot(tags)
    snapshots = [
        TaggedTime(document["id"], document["timeMillis"], document.get("watermark"))
        for document in list_snapshots(stored, first - 1, None)
    ]
    zone = rules_of(rules.zone or process_zone())

    def local(moment_ms: int) -> datetime.datetime:
        moment = datetime.datetime.fromtimestamp(moment_ms / 1000, zone)
        return moment.replace(tzinfo=None)

    return [
        tag
        for tag, id in rules.created(tags, snapshots, local)
        if create_tag(stored, tag, publish, snapshot_id=id, time_retained=rules.retained)
    ]


def _tags(stored: StoredTable) -> dict[str, int]:
    """The tags, with the ids of their snapshots."""
    loaded = {name: load_tag(stored, name) for name in list_tags(stored)}
    return {name: int(tag["id"]) for name, tag in loaded.items() if tag is not None}


def _is_over(stored: StoredTable, name: str) -> bool:
    """Whether the time for which a tag was to be kept is over: `TagTimeExpire`."""
    tag: dict[str, Any] = load_tag(stored, name) or {}
    created, retained = tag.get("tagCreateTime"), tag.get("tagTimeRetained")
    if created is None or retained is None:
        return False
    try:
        end = time_utils.json_array_to_local_datetime(created) + datetime.timedelta(
            seconds=float(retained)
        )
    except (OverflowError, ValueError):  # a time beyond the range of clocks
        return False
    return bool(datetime.datetime.now() > end)


# ---- where the history begins ----


def _begin_at(stored: StoredTable, snapshot_id: int) -> VersionReceipt:
    """Move the hint EARLIEST, by the rules of Paimon's `SnapshotManager.repairEarliestSnapshot`."""
    refuse_remote(stored, "its history can't be repaired")
    ids = snapshot_ids(stored)
    earliest = earliest_snapshot_id(stored.paimon, stored.store)
    if not ids or earliest is None:
        raise UnknownNameError(
            f"`{stored.name}` has no snapshots, so nothing to repair.",
            hint="Write to the table first.",
        )
    known, latest = set(ids), ids[-1]
    hint = f"`{stored.name}` has the snapshots {_ranges(ids)}."
    if not earliest <= snapshot_id <= latest:
        raise UnknownNameError(
            f"`{stored.name}` can't begin at snapshot {snapshot_id}: it must be one of {earliest} "
            f"to {latest}.",
            hint=hint,
        )
    missing = next((id for id in range(snapshot_id, latest + 1) if id not in known), None)
    if missing is not None:
        raise InvalidTableError(
            f"`{stored.name}` can't begin at snapshot {snapshot_id}: snapshot {missing} does not "
            "exist.",
            hint=hint,
        )
    if snapshot_id != earliest and snapshot_id - 1 in known:
        raise InvalidTableError(
            f"Snapshot {snapshot_id} of `{stored.name}` does not follow a gap: snapshot "
            f"{snapshot_id - 1} is there.",
            hint=f"{hint} To remove earlier snapshots, CALL sys.expire_snapshots.",
        )
    folder = stored.paimon.snapshot_manager().snapshot_dir
    stored.store.write(f"{folder}/EARLIEST", str(snapshot_id).encode())
    return VersionReceipt(snapshot_id=snapshot_id, previous_snapshot_id=earliest)


def _ranges(ids: list[int]) -> str:
    """Ids as text: `1 to 3, 7`."""
    groups: list[list[int]] = []
    for id in ids:
        if groups and groups[-1][-1] == id - 1:
            groups[-1].append(id)
        else:
            groups.append([id])
    return ", ".join(
        str(group[0]) if len(group) == 1 else f"{group[0]} to {group[-1]}" for group in groups
    )


# Marks of partitions that are done, for the jobs that wait for them.
#
# The option 'partition.mark-done-action' says how a partition is reported. `success-file` writes
# the file `_SUCCESS` with two times into the partition's folder, as Paimon's
# `SuccessFileMarkDoneAction`; when it is reported again, the time of its creation stays.


def mark_done(table: Table, partitions: Sequence[str]) -> tuple[str, ...]:
    """Report partitions as done; return their folders below the table's, like `dt=2026-01-01`.

    Raises UnsupportedStatementError for an action that is not offered, UnknownNameError for a
    column that is no partition column, InvalidValueError for a text that names no partition.
    Nothing is marked then.
    """
    check_actions(table.name, table.schema)
    folders = tuple(dict.fromkeys(partition_folder(table, text) for text in partitions))
    _mark(table, folders)
    return folders


def mark_written(table: Table, partitions: Iterable[tuple[object, ...]]) -> None:
    """Report the partitions with these values as done, where the table's options ask for that at
    the end of a write. Raises UnsupportedStatementError as `check_actions`."""
    if table.schema.partition_keys and table.schema.flag(DONE_AT_END):
        check_actions(table.name, table.schema)
        _mark(table, dict.fromkeys("/".join(_folders(table, values)) for values in partitions))


def _mark(table: Table, folders: Iterable[str]) -> None:
    root = str(table.paimon.table_path).rstrip("/")
    for folder in folders:
        path = f"{root}/{folder}/_SUCCESS"
        now = int(time.time() * 1000)
        times = {"creationTime": _created_ms(table, path) or now, "modificationTime": now}
        table.store.make_folder(f"{root}/{folder}")
        table.store.write(local_path(path) or path, json.dumps(times, indent=2).encode())


def _created_ms(table: Table, path: str) -> int | None:
    content = table.store.read(local_path(path) or path)
    if content is None:
        return None
    with parsing(f"The file {path}", "Remove it, and mark the partition again."):
        return int(json.loads(content)["creationTime"])


def partition_folder(table: Table, text: str) -> str:
    """The folder of a partition, or of all that begin alike: of `dt=2026-01-01,h=1`, or of
    `dt=2026-01-01`. Values are those of the columns' types. Raises as `mark_done`."""
    keys = table.schema.partition_keys
    if not keys:
        raise InvalidValueError(
            f"`{table.name}` is not partitioned, so it has no partition to mark.",
            hint="Create a tag instead: CALL sys.create_tag(table => …, tag => …).",
        )
    values = _values(table, text)
    missing = [key for key in keys[: len(values)] if key not in values]
    if missing:
        raise InvalidValueError(
            f"The partition '{text}' of `{table.name}` has no value for `{missing[0]}`.",
            hint=f"Write it as {','.join(f'{key}=…' for key in keys)}.",
        )
    # Columns without a value come last: their folders are cut off.
    folders = _folders(table, tuple(values.get(key) for key in keys))
    return "/".join(folders[: len(values)])


def folders_without(
    table: Table, folders: Sequence[str], partitions: Iterable[tuple[object, ...]]
) -> list[str]:
    """Those of the folders in which none of these partitions is."""
    stored = ["/".join((*_folders(table, values), "")) for values in partitions]
    return [f for f in folders if not any(path.startswith(f"{f}/") for path in stored)]


def _folders(table: Table, values: tuple[object, ...]) -> list[str]:
    """The names of a partition's folders, one for each of its columns."""
    path = table.paimon.path_factory().relative_bucket_path(values, 0, canonical_partition=True)
    return list(path.split("/")[:-1][-len(values) :])


def _values(table: Table, text: str) -> dict[str, object]:
    keys, values = table.schema.partition_keys, dict[str, object]()
    for pair in text.split(","):
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not value:
            raise InvalidValueError(
                f"'{text.strip()}' names no partition of `{table.name}`.",
                hint=f"Write it as {','.join(f'{key}=…' for key in keys)}, several with `;` "
                "between them.",
            )
        if key not in keys:
            raise UnknownNameError(
                f"`{key}` is not a partition column of `{table.name}`.",
                hint=nearest(key, keys, what="partition columns"),
            )
        if key in values:
            raise InvalidValueError(
                f"'{text.strip()}' has two values for `{key}`.",
                hint="Write several partitions with `;` between them.",
            )
        values[key] = _value(table, key, value)
    return values


def _value(table: Table, key: str, text: str) -> object:
    if text == table.schema.partition_default_name:
        return None
    data_type = table.schema.column(key).type
    if isinstance(data_type, AtomicType) and data_type.name == "CHAR":
        text = text.ljust(data_type.parameters[0])
    field = next(field for field in table.paimon.fields if field.name == key)
    column_type = PyarrowFieldParser.from_paimon_type(field.type)
    try:
        return pa.scalar(text).cast(column_type).as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidValueError(
            f"The partition column `{key}` of `{table.name}` can't be {text!r}: {error}",
            hint=f"Its type is {column_type}.",
        ) from error
