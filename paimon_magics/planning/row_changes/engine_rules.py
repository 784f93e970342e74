"""Which tables DELETE and UPDATE may change, and how.

Sources: `PrimaryKeyTableUtils.validatePKUpsertDeletable`, `RowLevelOp`, `PaimonDeleteTable`,
`DeleteFromPaimonTableCommand` of Paimon. Where its connector reports success and changes nothing,
the statement is refused.
"""

from __future__ import annotations

from enum import Enum

from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.planning.writes.inserts import check_writable
from paimon_magics.statements.statement import TableName

__all__ = ["ChangeMethod", "adds_changed_rows", "method_of_delete", "method_of_update"]

_UPDATABLE = ("deduplicate", "partial-update")


class ChangeMethod(Enum):
    """How the rows of a table are changed.

    - KINDS: rows with the kind -D or +U are written, and merged by key.
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
    engine = schema.merge_engine
    _check_keyed(name, schema, "DELETE")
    if schema.flag("ignore-delete"):
        raise UnsupportedStatementError(
            f"Table `{name}` ignores deletes ('ignore-delete' = 'true'): DELETE would change "
            "nothing.",
            hint=f"Set the option to 'false' first: ALTER TABLE {name} SET TBLPROPERTIES "
            "('ignore-delete' = 'false').",
        )
    on_group = "partial-update.remove-record-on-sequence-group"
    if engine == "partial-update" and schema.stored_option(on_group) is not None:
        raise UnsupportedStatementError(
            f"Table `{name}` removes a row only when a sequence group is greater ('{on_group}'): "
            "DELETE, which leaves the sequences as they are, would change nothing.",
            hint="Insert a row of the kind -D with a greater sequence, by an engine that writes "
            "changelogs.",
        )
    if engine == "deduplicate":
        return ChangeMethod.KINDS
    if engine != "first-row" and schema.flag(f"{engine}.remove-record-on-delete"):
        return ChangeMethod.KINDS
    raise UnsupportedStatementError(
        f"Table `{name}` has the merge engine {engine}, which takes no deletes"
        + (
            f" without '{engine}.remove-record-on-delete' = 'true'."
            if engine != "first-row"
            else "."
        ),
        hint="INSERT OVERWRITE … SELECT the rows that stay.",
    )


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
    _check_keyed(name, schema, "UPDATE")
    return ChangeMethod.KINDS


def adds_changed_rows(schema: TableSchema) -> bool:
    """Whether an UPDATE of a table without a primary key adds its rows as whole ones, and marks
    the old ones in deletion vectors."""
    return schema.deletion_vectors_enabled and not schema.data_evolution_enabled


def _method_of_append(name: TableName, schema: TableSchema) -> ChangeMethod:
    return ChangeMethod.VECTORS if schema.deletion_vectors_enabled else ChangeMethod.FILES


def _check_keyed(name: TableName, schema: TableSchema, verb: str) -> None:
    field = schema.rowkind_field
    if field is not None:
        raise UnsupportedStatementError(
            f"Table `{name}` takes the kind of a row from its column `{field}` "
            f"('rowkind.field'): {verb} can't give it another one.",
            hint=f"INSERT INTO {name} rows that have the wanted kind in `{field}`.",
        )
    if schema.postpones_buckets:
        raise UnsupportedStatementError(
            f"Table `{name}` puts rows into their buckets later ('postpone.batch-write-fixed-"
            f"bucket' = 'false'); {verb} on such tables is not offered yet.",
            hint="Set 'postpone.batch-write-fixed-bucket' to 'true'.",
        )
    if schema.bucket_mode == "KEY_DYNAMIC":
        raise UnsupportedStatementError(
            f"The keys of table `{name}` can move between partitions; {verb} on such tables is "
            "not offered yet.",
            hint="Give the table a primary key that has the partition columns, or a number of "
            "buckets.",
        )
