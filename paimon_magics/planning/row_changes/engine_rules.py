"""Which tables DELETE and UPDATE may change, and how.

Sources: `PrimaryKeyTableUtils.validatePKUpsertDeletable`, `RowLevelOp`, `PaimonDeleteTable`,
`DeleteFromPaimonTableCommand` of Paimon. Where its connector reports success and changes nothing,
the statement is refused.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.planning.writes.inserts import check_writable
from paimon_magics.statements.statement import TableName

__all__ = [
    "ChangeMethod",
    "adds_changed_rows",
    "check_moves",
    "method_of_delete",
    "method_of_update",
]

_UPDATABLE = ("deduplicate", "partial-update")


class ChangeMethod(Enum):
    """How the rows of a table are changed.

    - KINDS: rows of the kinds -D or +U are written, and merged by key.
    - VECTORS: the places of rows are marked in deletion vectors; new rows are added.
    - FILES: files that have such rows are written anew.
    - COLUMNS: new values are files of their columns beside the others (data evolution).
    """

    KINDS = "rows of a kind"
    VECTORS = "deletion vectors"
    FILES = "files written anew"
    COLUMNS = "files of columns"


def method_of_delete(name: TableName, schema: TableSchema) -> ChangeMethod:
    """How rows are deleted. Raises UnsupportedStatementError for a table where that is not
    possible."""
    check_writable(name, schema)
    if schema.data_evolution_enabled and not schema.deletion_vectors_enabled:
        # `PaimonDeleteTable`: rows have their ids by their places in files.
        raise UnsupportedStatementError(
            f"Table `{name}` has 'data-evolution.enabled' = 'true': its rows can only be deleted "
            "with deletion vectors.",
            hint=f"ALTER TABLE {name} SET TBLPROPERTIES ('deletion-vectors.modifiable' = 'true'), "
            "then ('deletion-vectors.enabled' = 'true'). Or delete whole partitions.",
        )
    if not schema.is_primary_key_table:
        return _method_of_append(name, schema)
    if not _takes_deletes(schema):
        return _method_of_merged(name, schema)
    _check_kinds(name, schema, "DELETE")
    if schema.flag("ignore-delete"):
        raise UnsupportedStatementError(
            f"Table `{name}` ignores deletes ('ignore-delete' = 'true'): DELETE would change "
            "nothing.",
            hint=f"Set the option to 'false' first: ALTER TABLE {name} SET TBLPROPERTIES "
            "('ignore-delete' = 'false').",
        )
    return ChangeMethod.KINDS


def method_of_update(name: TableName, schema: TableSchema) -> ChangeMethod:
    """How rows are updated. Raises UnsupportedStatementError for a table where that is not
    possible."""
    check_writable(name, schema)
    if schema.data_evolution_enabled:
        return ChangeMethod.COLUMNS
    if not schema.is_primary_key_table:
        return _method_of_append(name, schema)
    if schema.merge_engine not in _UPDATABLE:
        raise UnsupportedStatementError(
            f"Table `{name}` has the merge engine {schema.merge_engine}, which can not support "
            "UPDATE; currently only deduplicate and partial-update can.",
            hint="INSERT INTO merges rows in by their keys, as the engine does.",
        )
    _check_kinds(name, schema, "UPDATE")
    return ChangeMethod.KINDS


def adds_changed_rows(schema: TableSchema) -> bool:
    """Whether an UPDATE of a table without a primary key adds its rows as whole ones, and marks
    the old ones in deletion vectors."""
    return schema.deletion_vectors_enabled and not schema.data_evolution_enabled


def check_moves(name: TableName, schema: TableSchema, assigned: Collection[str] | None) -> None:
    """Raise UnsupportedStatementError if the columns `assigned` could move rows to another
    partition that the merge engine keeps in theirs (`UseOldExistingProcessor`)."""
    moved = sorted(set(schema.partition_keys).intersection(assigned or ()))
    if moved and schema.merge_engine == "partial-update":
        raise UnsupportedStatementError(
            f"UPDATE can't move rows of `{name}` to another partition: with the merge engine "
            f"partial-update a row stays in the partition of its key, whatever `{moved[0]}` it is "
            "given.",
            hint="DELETE the rows, and INSERT them anew.",
        )


def _takes_deletes(schema: TableSchema) -> bool:
    """Whether a row of the kind -D removes that of its key. With
    `partial-update.remove-record-on-sequence-group` a sequence has to say so: Paimon 2.0 takes such
    a DELETE and changes nothing (`PrimaryKeyTableUtils.validatePKUpsertDeletable`), later versions
    write the files anew, too."""
    engine = schema.merge_engine
    if engine == "deduplicate":
        return True
    return engine != "first-row" and schema.flag(f"{engine}.remove-record-on-delete")


def _method_of_merged(name: TableName, schema: TableSchema) -> ChangeMethod:
    """How rows are deleted that the merge engine can't delete: in their files, where those need no
    merge."""
    engine = schema.merge_engine
    option = f"{engine}.remove-record-on-delete"
    if schema.changelog_producer != "none":
        has_groups = any(key.endswith(".sequence-group") for key, _ in schema.options)
        may_take = engine != "first-row" and not has_groups
        more = f" Or set '{option}' = 'true'." if may_take else ""
        raise UnsupportedStatementError(
            f"Table `{name}` has the merge engine {engine}, which takes no deletes: its rows could "
            "only be removed from its files, and the changelog ('changelog-producer' = "
            f"'{schema.changelog_producer}') would not tell so. Readers of it would keep them.",
            hint="INSERT OVERWRITE … SELECT the rows that stay." + more,
        )
    if schema.flag("sequence.snapshot-ordering"):
        raise UnsupportedStatementError(
            f"Table `{name}` has the merge engine {engine}, which takes no deletes, and orders "
            "rows by their snapshots ('sequence.snapshot-ordering' = 'true'): files written anew "
            "would count as newer.",
            hint="INSERT OVERWRITE … SELECT the rows that stay.",
        )
    return ChangeMethod.VECTORS if schema.deletion_vectors_enabled else ChangeMethod.FILES


def _method_of_append(name: TableName, schema: TableSchema) -> ChangeMethod:
    return ChangeMethod.VECTORS if schema.deletion_vectors_enabled else ChangeMethod.FILES


def _check_kinds(name: TableName, schema: TableSchema, verb: str) -> None:
    field = schema.rowkind_field
    if field is not None and schema.bucket_mode == "KEY_DYNAMIC":
        raise UnsupportedStatementError(
            f"The keys of table `{name}` can move between partitions, and its column `{field}` has "
            f"the kinds of rows ('rowkind.field'): {verb} on such tables is not offered.",
            hint=f"INSERT INTO {name} rows that have the wanted kind in `{field}`.",
        )
