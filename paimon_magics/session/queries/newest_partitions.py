"""`sys.max_pt('t')` in any statement: its value, before the statement is planned.

Source: Paimon's `ReplacePaimonFunctions`. Partitions without files don't count.
"""

from __future__ import annotations

from dataclasses import replace

from paimon_magics.errors import InvalidValueError, UnsupportedStatementError
from paimon_magics.session.scope import StatementScope, errors_located
from paimon_magics.statements.clauses.names import named, text_literal
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.queries.rewriting import newest_partitions, rewrite
from paimon_magics.statements.statement import TextRange
from paimon_magics.statements.subjects import Statement
from paimon_magics.tables.manifests.partitions import list_partitions, partition_value_text


def with_newest_partitions(scope: StatementScope, statement: Statement) -> Statement:
    """The statement with the values of its calls of `max_pt` as texts.

    Raises InvalidValueError for an argument that is no text, and for a table without partitions;
    UnknownNameError for a table that does not exist.
    """
    text = statement.text
    calls = newest_partitions(text)
    if not calls:
        return statement
    values = []
    for call in calls:
        with errors_located(text, call.range.start):
            if call.table is None:
                raise UnsupportedStatementError(
                    "max_pt takes the name of a table as a text in quotes.",
                    hint="For example WHERE day = sys.max_pt('orders').",
                )
            values.append((call.range, text_literal(_newest(scope, call.table))))
    rewritten = rewrite(text, TextRange(0, len(text)), values)
    return replace(parse_statement(rewritten.text), offset=statement.offset)


def _newest(scope: StatementScope, name: str) -> str:
    """The greatest value of the table's first partition column, as text."""
    table = scope.tables.load(scope.full_name(named(name)))
    keys = table.schema.partition_keys
    if not keys:
        raise InvalidValueError(
            f"`{table.name}` is not partitioned, so max_pt has no value.",
            hint="SELECT max(column) FROM the table gives the greatest value of a column.",
        )
    values = [first for first, *_ in list_partitions(table) if first is not None]
    if not values:
        raise InvalidValueError(
            f"`{table.name}` has no partition with rows, so max_pt has no value.",
            hint="Write to it first.",
        )
    return partition_value_text(max(values), table.schema.column(keys[0]).type)
