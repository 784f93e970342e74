"""Tags, branches and rollbacks of a REST catalog's table, by requests to its server.

Paimon's REST protocol has no request to move or rename a tag. Both are refused: with two requests,
a failure of the second would leave the table without the tag.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pypaimon.api import rest_exception as answered
from pypaimon.catalog import catalog_exception as missing
from pypaimon.common.identifier import Identifier
from pypaimon.table.instant import Instant

from paimon_magics.errors import (
    InvalidTableError,
    PaimonMagicsError,
    SetupError,
    StatementError,
    UnknownNameError,
    UnknownOutcomeError,
    UnsupportedStatementError,
)
from paimon_magics.statements.version_changes import (
    CreateBranch,
    CreateTag,
    CreateTagFromTimestamp,
    DeleteBranches,
    DeleteTags,
    FastForward,
    HistoryChange,
    RenameBranch,
    RenameTag,
    ReplaceTag,
    RollBackToTag,
)
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.snapshots.chain import latest_document, retained_seconds
from paimon_magics.tables.snapshots.tags_and_branches import (
    VersionReceipt,
    first_not_earlier,
    receipt_of_time,
    require_tags,
    rolled_back_to,
)
from paimon_magics.tables.table import StoredTable


def change_version_by_server(
    catalog: Catalog, table: StoredTable, change: HistoryChange
) -> VersionReceipt:
    """Have the catalog's server make a change. Raises like `change_version`, and SetupError if the
    server denies permission."""
    if isinstance(change, CreateTag | CreateTagFromTimestamp) and change.time_retained is not None:
        retained_seconds(change.time_retained)
    with _server_errors(table):
        return _change(catalog, table, change)


def _change(catalog: Catalog, table: StoredTable, change: HistoryChange) -> VersionReceipt:
    server = catalog.paimon
    identifier = Identifier.create(table.name.database, table.name.object_name)
    match change:
        case CreateTag(or_replace=True) | ReplaceTag() | RenameTag():
            raise UnsupportedStatementError(
                f"A tag of `{table.name}` can't be moved or renamed through a REST catalog.",
                hint="Create a tag of another name, and delete this one.",
            )
        case CreateTag(tag=tag, snapshot_id=id, time_retained=retained):
            try:
                server.create_tag(identifier, tag, id, retained)
            except missing.TagAlreadyExistException:
                if not change.if_not_exists:
                    raise
                return VersionReceipt()
            return VersionReceipt((tag,))
        case CreateTagFromTimestamp(tag=tag, time_ms=time_ms, time_retained=retained):
            snapshot = first_not_earlier(table, time_ms)
            server.create_tag(identifier, tag, snapshot["id"], retained)
            return receipt_of_time(tag, snapshot)
        case DeleteTags(tags=tags):
            return VersionReceipt(tuple(tag for tag in tags if _deleted(server, identifier, tag)))
        case CreateBranch(branch=branch, tag=tag):
            try:
                server.create_branch(identifier, branch, tag)
            except missing.BranchAlreadyExistException:
                if not change.if_not_exists:
                    raise
                return VersionReceipt()
            return VersionReceipt((branch,))
        case DeleteBranches(branches=branches):
            for branch in branches:
                server.drop_branch(identifier, branch)
            return VersionReceipt(branches)
        case RenameBranch(branch=branch, new_name=new_name):
            server.rename_branch(identifier, branch, new_name)
            return VersionReceipt((new_name,))
        case FastForward(branch=branch):
            server.fast_forward(identifier, branch)
            return VersionReceipt((branch,))
        case RollBackToTag(tag=tag):
            require_tags(table, [tag])
            return _rolled_back(server, identifier, table, Instant.tag(tag))
        case _:
            snapshot_id = rolled_back_to(table, change)
            return _rolled_back(server, identifier, table, Instant.snapshot(snapshot_id))


def _deleted(server: object, identifier: Identifier, tag: str) -> bool:
    try:
        server.delete_tag(identifier, tag)  # type: ignore[attr-defined]
    except missing.TagNotExistException:
        return False
    return True


def _rolled_back(
    server: object, identifier: Identifier, table: StoredTable, instant: Instant
) -> VersionReceipt:
    before = latest_document(table)
    server.rollback_to(identifier, instant)  # type: ignore[attr-defined]
    after = latest_document(table)
    return VersionReceipt(
        snapshot_id=None if after is None else after["id"],
        previous_snapshot_id=None if before is None else before["id"],
    )


@contextmanager
def _server_errors(table: StoredTable) -> Iterator[None]:
    """Raise the server's errors as this project's."""
    try:
        yield
    except PaimonMagicsError:
        raise
    except (missing.TagNotExistException, missing.BranchNotExistException) as error:
        hint = f"`{table.name}$tags` and `{table.name}$branches` list the tags and branches."
        raise UnknownNameError(f"{error} (`{table.name}`)", hint=hint) from error
    except (missing.TagAlreadyExistException, missing.BranchAlreadyExistException) as error:
        raise InvalidTableError(
            f"{error} (`{table.name}`)", hint="Delete it first, or choose another name."
        ) from error
    except (missing.TableNoPermissionException, answered.NotAuthorizedException) as error:
        raise SetupError(
            f"The catalog's server refused the request: {error}",
            hint="Ask for access to the table, or use other credentials.",
        ) from error
    except (
        ValueError,  # what pypaimon makes of a missing snapshot
        missing.IllegalArgumentError,
        answered.NotImplementedException,
    ) as error:
        raise StatementError(
            f"The catalog's server refused the request for `{table.name}`: {error}",
            hint=f"`{table.name}$snapshots` lists the snapshots.",
        ) from error
    except Exception as error:
        raise UnknownOutcomeError(
            f"The catalog's server gave no clear answer for `{table.name}`: {error}",
            hint=f"Look at `{table.name}$tags`, `$branches` and `$snapshots`.",
        ) from error
