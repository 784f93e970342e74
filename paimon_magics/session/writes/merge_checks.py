"""Which tables a MERGE may change, by its clauses."""

from __future__ import annotations

from collections.abc import Sequence

from paimon_magics.errors import PaimonMagicsError, UnsupportedStatementError
from paimon_magics.planning.reads.predicates import ColumnPredicate
from paimon_magics.planning.row_changes.engine_rules import (
    ChangeMethod,
    check_moves,
    method_of_delete,
    method_of_update,
)
from paimon_magics.planning.row_changes.merged_updates import MergedUpdate, merged_update
from paimon_magics.planning.row_changes.merges import (
    FromText,
    MergePlan,
    ToDefault,
    Value,
    assigned_columns,
)
from paimon_magics.session.connection import Connection, located
from paimon_magics.session.writes.keyed_rows import check_seen
from paimon_magics.session.writes.row_selection import check_no_file_calls
from paimon_magics.statements.merge_into import DeleteAction, MergeInto
from paimon_magics.tables.table import Table

__all__ = ["check_target", "merged_update_of_merge", "method_of_merge"]


def method_of_merge(table: Table, merge: MergeInto) -> ChangeMethod:
    """How rows are changed. Raises UnsupportedStatementError where a clause can't be done."""
    check_no_file_calls(merge.text, merge.within.range.start, "MERGE")
    try:
        method = method_of_update(table.name, table.schema)
        if any(isinstance(clause.action, DeleteAction) for clause in merge.clauses):
            deletes = method_of_delete(table.name, table.schema)
            if table.schema.is_primary_key_table and deletes is not ChangeMethod.KINDS:
                raise UnsupportedStatementError(
                    f"A MERGE can't delete rows of `{table.name}`: its merge engine "
                    f"{table.schema.merge_engine} takes no deletes.",
                    hint="Leave out the DELETE clause, and delete these rows by a DELETE of its "
                    "own, which takes them from their files.",
                )
    except PaimonMagicsError as error:
        raise located(error, merge.text, merge.target_position) from None
    return method


def merged_update_of_merge(table: Table, merge: MergeInto, plan: MergePlan) -> MergedUpdate | None:
    """What the merge engine makes of the rows that a MERGE updates; None where it updates none, or
    the table has no keys.

    Raises UnsupportedStatementError for assignments that the engine does not carry out.
    """
    assigned = assigned_columns(merge, plan, table.schema)
    if assigned is None or not table.schema.is_primary_key_table:
        return None
    nulls = {
        column.name
        for clause in plan.clauses
        if clause.effect == "update"
        for column, value in zip(table.schema.columns, clause.values, strict=True)
        if column.default is None and _is_null(merge, value)
    }
    try:
        return merged_update(table.name, table.schema, assigned, nulls)
    except PaimonMagicsError as error:
        raise located(error, merge.text, merge.target_position) from None


def _is_null(merge: MergeInto, value: Value) -> bool:
    """Whether a value is NULL, as far as the statement's text says."""
    if isinstance(value, FromText):
        return merge.text[value.range.start : value.range.end].strip().upper() == "NULL"
    return isinstance(value, ToDefault)


def check_target(
    connection: Connection,
    merge: MergeInto,
    plan: MergePlan,
    table: Table,
    base: int,
    predicates: Sequence[ColumnPredicate],
) -> None:
    """Raise UnsupportedStatementError for what can't be done to rows of a table with keys. The rows
    that matter meet `predicates`."""
    schema = table.schema
    if not schema.is_primary_key_table:
        return
    try:
        check_moves(table.name, schema, assigned_columns(merge, plan, schema))
        if schema.bucket_mode == "KEY_DYNAMIC" and "delete" in plan.effects:
            raise UnsupportedStatementError(
                f"The keys of table `{table.name}` can move between partitions; one MERGE can't "
                "delete rows of it and write others.",
                hint="DELETE those rows by a statement of its own, before or after the MERGE.",
            )
    except PaimonMagicsError as error:
        raise located(error, merge.text, merge.target_position) from None
    check_seen(connection, table, base, predicates, (merge.text, merge.target_position))
