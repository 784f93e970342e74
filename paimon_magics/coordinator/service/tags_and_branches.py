"""Tags, branches and rolling back, through a coordinator or inside the session's own process.

Each change holds its table's turn, against commits, expiry and other changes in this process. A
coordinator reports to its watch over publications which snapshots were removed on purpose.

`POST /v1/tables/versions` with `{table, change, repeated}` makes a change; the answer is its
receipt. A client whose first request got no answer sends it again with `repeated`.
"""

from __future__ import annotations

import errno

from paimon_magics.coordinator.runtime.work import Steps
from paimon_magics.coordinator.service.served import Context, watch_latest
from paimon_magics.errors import SetupError, UnknownOutcomeError
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.version_changes import (
    FastForward,
    RenameBranch,
    RollBack,
    UpkeepChange,
    VersionChange,
)
from paimon_magics.tables.catalog.rest_tags_and_branches import change_version_by_server
from paimon_magics.tables.catalog.stored_tables import load_stored
from paimon_magics.tables.expiry.expire_snapshots import remove_tag
from paimon_magics.tables.snapshots.tags_and_branches import VersionReceipt, change_version
from paimon_magics.tables.snapshots.upkeep import keep_up
from paimon_magics.tables.table import StoredTable

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

_CUTS = FastForward | RollBack


def change_versions(
    context: Context, name: TableName, change: VersionChange, *, repeated: bool = False
) -> Steps[VersionReceipt]:
    """Make a change. Raises what `change_version` raises, NotOwnerError and PausedError."""
    with (yield from context.changing(name, in_order=isinstance(change, _CUTS))):
        table = load_stored(context.catalog, name)
        main = TableName(name.table, name.database)
        try:
            if isinstance(change, UpkeepChange):
                loaded = context.catalog.load(name)
                return keep_up(
                    loaded,
                    table,
                    change,
                    context.publish,
                    lambda tag: remove_tag(loaded, tag),
                )
            if context.catalog.metastore == "rest":
                return change_version_by_server(context.catalog, table, change)
            receipt = change_version(
                table,
                change,
                context.publish,
                lambda branch: load_stored(
                    context.catalog, TableName(main.table, main.database, branch=branch)
                ),
                lambda tag: remove_tag(context.catalog.load(name), tag),
                repeated=repeated,
                removing=context.removing(table.location),
            )
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise SetupError(
                    f"The warehouse can't be written: {error.strerror}. `{name}` was not changed.",
                    hint="Free space in the warehouse, then run the statement again.",
                ) from error
            raise UnknownOutcomeError(
                f"Whether `{name}` was changed is unknown: {error}",
                hint=f"Look at `{name}$tags`, `{name}$branches` and `{name}$snapshots`.",
            ) from error
        finally:
            context.recent.forget(table.location)
        _tell_watch(context, table, change, receipt)
    return receipt


def _tell_watch(
    context: Context, table: StoredTable, change: VersionChange, receipt: VersionReceipt
) -> None:
    watch, location = context.watch, table.location
    if watch is None:
        return
    match change:
        case FastForward():
            watch_latest(
                watch,
                load_stored(context.catalog, TableName(table.name.table, table.name.database)),
            )
        case RenameBranch(branch=branch, new_name=new_name):
            to = TableName(table.name.table, table.name.database, branch=new_name)
            watch.table_moved(location, location, to, branch=branch)
