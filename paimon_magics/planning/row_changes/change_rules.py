"""Decides which tables DELETE and UPDATE may change, and how.

Sources: `PrimaryKeyTableUtils.validatePKUpsertDeletable`, `RowLevelOp`, `PaimonDeleteTable`,
`DeleteFromPaimonTableCommand` of Paimon. Where its connector reports success and changes nothing,
the statement is refused.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING

from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.options.merge_engines import MERGE_ENGINES
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.planning.writes.inserts import check_writable
from paimon_magics.statements.lexing.tokens import IDENTIFIER_KINDS, QUERY_WORDS, tokenize, word_set
from paimon_magics.statements.queries.query_traits import input_file_call
from paimon_magics.statements.statement import RowChange, TableName

if TYPE_CHECKING:
    pass

_NO_FUNCTION = word_set(
    "AND OR NOT IN EXISTS BETWEEN LIKE RLIKE ILIKE ANY SOME ALL WHEN THEN ELSE CASE WHERE FROM "
    "SELECT JOIN ON BY HAVING UNION VALUES DISTINCT IS AS LIMIT"
)
_DETERMINISTIC = _NO_FUNCTION | word_set(
    "CAST TRY_CAST DATE TIMESTAMP STRING INT BIGINT DECIMAL TO_DATE TO_TIMESTAMP DATE_ADD DATE_SUB "
    "DATEADD DATEDIFF DATE_DIFF ADD_MONTHS MONTHS_BETWEEN LAST_DAY NEXT_DAY DATE_TRUNC TRUNC "
    "DATE_FORMAT YEAR QUARTER MONTH DAY DAYOFMONTH DAYOFWEEK DAYOFYEAR HOUR MINUTE SECOND "
    "MAKE_DATE EXTRACT CURRENT_DATE CURRENT_TIMESTAMP NOW LOWER UPPER TRIM LTRIM RTRIM LENGTH "
    "SUBSTR SUBSTRING LEFT RIGHT CONCAT CONCAT_WS REPLACE COALESCE NVL IFNULL NULLIF IF ABS MOD "
    "PMOD ROUND FLOOR CEIL GREATEST LEAST MAX MIN COUNT SUM AVG STARTSWITH ENDSWITH CONTAINS"
)


_UPDATABLE = " and ".join(name for name, engine in MERGE_ENGINES.items() if engine.takes_updates)


class ChangeMethod(Enum):
    """How the rows of a table are changed.

    - KINDS: rows of the kinds -D or +U are written, and merged by key.
    - VECTORS: the places of rows are marked in deletion vectors; new rows are added.
    - FILES: files with such rows are rewritten.
    - COLUMNS: new values are files of their columns beside the others (data evolution).
    """

    KINDS = "rows of a kind"
    VECTORS = "deletion vectors"
    FILES = "files rewritten"
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
        return _method_in_files(schema)
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


def method_of_update(
    name: TableName, schema: TableSchema, statement: str = "UPDATE"
) -> ChangeMethod:
    """How rows are updated by an UPDATE, or by the `statement` that is named. Raises
    UnsupportedStatementError for a table where that is not possible."""
    check_writable(name, schema)
    if schema.data_evolution_enabled:
        return ChangeMethod.COLUMNS
    if not schema.is_primary_key_table:
        return _method_in_files(schema)
    if not schema.engine.takes_updates:
        raise UnsupportedStatementError(
            f"Table `{name}` has the merge engine {schema.merge_engine}, which can not support "
            f"{statement}; currently only {_UPDATABLE} can.",
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
    if moved and schema.engine.skips_nulls:
        raise UnsupportedStatementError(
            f"UPDATE can't move rows of `{name}` to another partition: with the merge engine "
            f"{schema.merge_engine} a row stays in the partition of its key, whatever its new "
            f"value of `{moved[0]}`.",
            hint="DELETE the rows, and INSERT them again.",
        )


def _takes_deletes(schema: TableSchema) -> bool:
    """Whether a row of the kind -D removes that of its key. With
    `partial-update.remove-record-on-sequence-group` a sequence has to say so: Paimon 2.0 accepts
    such a DELETE and changes nothing (`PrimaryKeyTableUtils.validatePKUpsertDeletable`); later
    versions also rewrite the files."""
    option = schema.engine.delete_option
    return schema.engine.keeps_last_row or (option is not None and schema.flag(option))


def _method_of_merged(name: TableName, schema: TableSchema) -> ChangeMethod:
    """The method to delete rows that the merge engine can't delete: in their files, if these need
    no merge."""
    engine = schema.merge_engine
    option = schema.engine.delete_option
    if schema.changelog_producer != "none":
        has_groups = any(key.endswith(".sequence-group") for key, _ in schema.options)
        may_take = option is not None and not has_groups
        more = f" Or set '{option}' = 'true'." if may_take else ""
        raise UnsupportedStatementError(
            f"Table `{name}` has the merge engine {engine}, which takes no deletes. Rows could "
            "only be removed from its files, without an entry in the changelog "
            f"('changelog-producer' = '{schema.changelog_producer}'), so its readers would keep "
            "them.",
            hint="Keep the other rows with INSERT OVERWRITE … SELECT." + more,
        )
    if schema.flag("sequence.snapshot-ordering"):
        raise UnsupportedStatementError(
            f"Table `{name}` has the merge engine {engine}, which takes no deletes, and orders "
            "rows by their snapshots ('sequence.snapshot-ordering' = 'true'): rewritten files "
            "would count as newer.",
            hint="Keep the other rows with INSERT OVERWRITE … SELECT.",
        )
    return _method_in_files(schema)


def _method_in_files(schema: TableSchema) -> ChangeMethod:
    return ChangeMethod.VECTORS if schema.deletion_vectors_enabled else ChangeMethod.FILES


def _check_kinds(name: TableName, schema: TableSchema, verb: str) -> None:
    field = schema.rowkind_field
    if field is not None and schema.bucket_mode == "KEY_DYNAMIC":
        raise UnsupportedStatementError(
            f"The keys of table `{name}` can move between partitions, and its column `{field}` "
            f"holds the row kinds ('rowkind.field'): {verb} on such tables is not offered.",
            hint=f"Use INSERT INTO {name} with the wanted row kind in `{field}`.",
        )


# Which conditions may be about whole partitions.
#
# Such a condition is evaluated once for each partition instead of each row, so that it must not use
# anything that differs between the rows of a partition. Spark decides on names; here the functions
# are chosen whose results depend on their arguments alone.


def may_select_partitions(condition: str, other_columns: Collection[str]) -> bool:
    """Whether a condition may be about partition columns only. `other_columns` are the table's
    other ones. A `*` may mean all columns."""
    tokens = tokenize(condition)
    others = {name.lower() for name in other_columns}
    has_query = any(token.upper in ("SELECT", "FROM", "TABLE") for token in tokens)
    for token, following in zip(tokens, (*tokens[1:], None), strict=True):
        if token.text == "*":
            return False
        if token.kind not in IDENTIFIER_KINDS:
            continue
        calls = following is not None and following.text == "("
        if calls and token.name.upper() not in _DETERMINISTIC:
            return False
        if not has_query and token.name.lower() in others:
            return False
    return True


# Whether a statement selects each row of its target independently.


def chooses_row_by_row(change: RowChange) -> bool:
    """Whether the text of a DELETE or UPDATE has no query and no table but its target, so that each
    row can be selected independently of other rows. A function may still hide a query."""
    if len(change.selection.query.references) != 1:
        return False
    return not any(
        token.text == "(" and following.upper in QUERY_WORDS
        for token, following in pairwise(tokenize(change.text))
    )


# What a row can't change, and what can't select one.


def check_stays(schema: TableSchema, name: TableName, assigned: frozenset[str]) -> None:
    """Raise UnsupportedStatementError if rows of a data-evolution table could go to another
    partition: row ids follow from the places of rows (`PaimonUpdateTable`)."""
    moved = [key for key in schema.partition_keys if key in assigned]
    if schema.data_evolution_enabled and moved:
        raise UnsupportedStatementError(
            f"`{moved[0]}` is a partition column of `{name}`, which has "
            "'data-evolution.enabled' = 'true': rows stay in the files that they are in.",
            hint="DELETE the rows and INSERT them again, which gives them new ids. In a MERGE, "
            "name the columns in UPDATE SET instead of `*`.",
        )


def check_no_file_calls(text: str, position: int, kind: str) -> None:
    """Raise UnsupportedStatementError if a text asks for the files of rows that a statement of this
    kind changes: Python reads these, and Spark does not know their files."""
    call = input_file_call(text[position:])
    if call is not None:
        raise UnsupportedStatementError(
            f"{call} can't be used to select the rows that {kind} changes.",
            hint="Select rows by their columns; SELECT input_file_name() shows their files.",
            statement=text,
            position=position,
        )
