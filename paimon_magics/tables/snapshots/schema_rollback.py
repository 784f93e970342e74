"""Rolling a table's schema back: an earlier schema becomes the newest again.

The rule is that of Paimon's `SchemaManager.rollbackTo`: later schemas are removed, unless a
snapshot, a tag or a changelog has one of them. Nothing here locks: a caller must keep all processes
that it knows of from committing.
"""

from __future__ import annotations

from collections.abc import Iterator

from paimon_magics.errors import InvalidTableError, UnknownNameError
from paimon_magics.tables.pypaimon_internals import schema_path
from paimon_magics.tables.snapshots.chain import list_snapshots, list_tags, load_tag, published_path
from paimon_magics.tables.snapshots.changelogs import kept_changelogs
from paimon_magics.tables.table import StoredTable

__all__ = ["roll_back_schema"]


def roll_back_schema(table: StoredTable, schema_id: int) -> None:
    """Make an earlier schema the newest. Later ones go newest first, so that an interruption leaves
    no gap in the ids.

    Raises UnknownNameError for a schema that does not exist, InvalidTableError if a snapshot, a tag
    or a changelog has a later one; nothing is changed then.
    """
    manager = table.paimon.schema_manager
    if schema_id > table.schema_id or manager.get_schema(schema_id) is None:
        raise UnknownNameError(
            f"`{table.name}` has no schema {schema_id}.",
            hint=f"Its newest one is {table.schema_id}; `{table.name.table}$schemas` lists all.",
        )
    later = sorted(used for used in _used(table) if used > schema_id)
    if later:
        raise InvalidTableError(
            # Paimon's own words, by which clients and their tests know this error.
            f"Cannot rollback to schema {schema_id}, schema {later[0]} is still referenced by "
            f"snapshots/tags/changelogs of `{table.name}`.",
            hint="Roll the table back first, and drop the tags that have later schemas.",
        )
    for newer in range(table.schema_id, schema_id, -1):
        table.store.delete([published_path(schema_path(manager, newer))])


def _used(table: StoredTable) -> Iterator[int]:
    """The schemas of all snapshots, tags and changelogs."""
    for snapshot in list_snapshots(table, 0, None):
        yield int(snapshot["schemaId"])
    for name in list_tags(table):
        tag = load_tag(table, name)
        if tag is not None:  # else it was dropped meanwhile
            yield int(tag["schemaId"])
    for changelog in kept_changelogs(table):
        yield int(changelog.schema_id)
