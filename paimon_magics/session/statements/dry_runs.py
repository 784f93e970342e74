"""What a cell can do with its statements without running them: explain, dry run, preview, and the
guard rail that asks for a confirmation before much is deleted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pyarrow as pa

from paimon_magics.errors import PaimonMagicsError, UnconfirmedError, UnsupportedStatementError
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.queries.spark_calls import is_for_spark
from paimon_magics.session.row_changes.previews import ChangedRows
from paimon_magics.session.scope import StatementScope
from paimon_magics.session.statements.confirmations import loss_of_sparks_table
from paimon_magics.session.statements.handler import (
    Standing,
    dry_run_sentence,
    explained,
    explanation,
)
from paimon_magics.session.statements.handlers import handler_of
from paimon_magics.session.writes.outcomes import Replaced, rows_taken
from paimon_magics.statements.statement import PassThrough
from paimon_magics.statements.subjects import Explain, Statement
from paimon_magics.tables.manifests.partitions import partition_name

_WORDS = re.compile(
    r"\b(?:overwrite|truncate|drop|alter|delete|update|merge|call|replace|restore)\b", re.IGNORECASE
)
_MODE = re.compile(r"partitionOverwriteMode\s*=\s*['\"`]?(\w+)", re.IGNORECASE)
_MODE_KEY = "spark.sql.sources.partitionOverwriteMode"


def explanation_of(
    scope: StatementScope,
    text: str,
    statements: Sequence[Statement],
    parameters: Mapping[str, object],
) -> Outcome:
    """Explain how the statements would run, in order."""
    planned: set[str] = set()
    lines: list[str] = []
    for statement in statements:
        mode = ""
        if isinstance(statement, Explain):
            mode, statement = statement.mode, statement.inner
        handler = handler_of(scope, statement, parameters)
        lines += ([""] if lines else []) + explained(scope, handler, mode, planned)
    return explanation(scope, text, lines, query="")


def dry_run_of(
    scope: StatementScope,
    text: str,
    statements: Sequence[Statement],
    parameters: Mapping[str, object],
) -> Outcome:
    """Return a line on what each statement would do; raises the first error among them."""
    planned: set[str] = set()
    handlers = (handler_of(scope, statement, parameters) for statement in statements)
    lines = [dry_run_sentence(scope, handler, planned) for handler in handlers]
    return Outcome(text, "dry run", message="\n".join(lines), query="")


def preview_of(
    scope: StatementScope,
    text: str,
    statements: Sequence[Statement],
    parameters: Mapping[str, object],
) -> Outcome:
    """Return a row for each partition that the statements would delete rows from; of each
    statement, the largest first. For a single DELETE, UPDATE or MERGE return some of the rows that
    it would change.

    Writes nothing. The outcome has no SQL: running the statement would do what is only shown here.
    Only a dynamic overwrite runs its query, to find the partitions that it writes, and a DELETE,
    UPDATE or MERGE the query of its rows.

    Raises UnsupportedStatementError for kinds of statement that delete nothing (a query, a
    definition), and what planning the statement raises.
    """
    rows: list[dict[str, object]] = []
    lines: list[str] = []
    for statement in statements:
        replaced = _replaced(scope, statement, parameters)
        if isinstance(replaced, ChangedRows):
            lines.append(replaced.line)
            if len(statements) == 1:
                return _previewed(scope, text, replaced.sample, lines)
            continue
        if isinstance(replaced, Standing):
            lines.append(replaced.line)
            if len(statements) == 1:
                return _previewed(scope, text, replaced.rows, lines)
            continue
        table, sizes = replaced.table, replaced.sizes
        rows += [
            {
                "table": str(table.name),
                "partition": partition_name(table, size.partition, scope.zone)
                if size.partition
                else "",
                "files": size.files,
                "bytes": size.size_bytes,
                "record_count": size.rows,
            }
            for size in sorted(sizes, key=lambda size: -size.size_bytes)
        ]
        lines.append(f"`{table.name}`: {rows_taken(sizes)} would be removed.")
    schema = pa.schema(
        [
            ("table", pa.string()),
            ("partition", pa.string()),
            ("files", pa.int64()),
            ("bytes", pa.int64()),
            ("record_count", pa.int64()),
        ]
    )
    return _previewed(scope, text, pa.Table.from_pylist(rows, schema=schema), lines)


def _previewed(scope: StatementScope, text: str, rows: pa.Table, lines: Sequence[str]) -> Outcome:
    outcome = Outcome.of_rows(scope.spark, text, "preview", rows, query="")
    outcome.notes = tuple(lines)
    return outcome


def _replaced(
    scope: StatementScope, statement: Statement, parameters: Mapping[str, object]
) -> Replaced | ChangedRows | Standing:
    handler = handler_of(scope, statement, parameters)
    if handler.preview is not None:
        return handler.preview()
    raise UnsupportedStatementError(
        f"`{statement.text.split()[0].upper()}` removes no rows, so there is nothing to preview.",
        hint="--preview is for INSERT OVERWRITE, DELETE, UPDATE, MERGE INTO, TRUNCATE, "
        "DROP PARTITION and DROP TABLE; --explain shows how any other statement would run.",
        statement=statement.text,
        position=0,
    )


def may_take_away(text: str) -> bool:
    """Whether a cell has a keyword of statements that delete rows; others need no check."""
    return _WORDS.search(text) is not None


def check_after_others(
    scope: StatementScope, statement: Statement, parameters: Mapping[str, object]
) -> None:
    """The same as `check_confirmed` for a statement behind others of its cell, which have run."""
    try:
        check_confirmed(scope, [statement], parameters)
    except UnconfirmedError as error:
        error.hint = f"The statements before it have run: leave them out. {error.hint}"
        raise


def check_confirmed(
    scope: StatementScope, statements: Sequence[Statement], parameters: Mapping[str, object]
) -> None:
    """Raise UnconfirmedError for the first of `statements` that would delete much with few words.

    A statement that names each partition, or that would lose nothing, passes. Errors in a statement
    are ignored here: running it raises them.
    """
    mode = scope.spark.conf.get(_MODE_KEY, "static") or "static"
    for statement in statements:
        if isinstance(statement, PassThrough):
            match = _MODE.search(statement.text)
            mode = match[1] if match is not None else mode
        try:
            if is_for_spark(scope, statement):
                error = loss_of_sparks_table(scope, statement, mode.lower())
            else:
                ask = handler_of(scope, statement, parameters).unconfirmed
                error = None if ask is None else ask(mode.lower())
        except PaimonMagicsError:
            continue
        if error is not None:
            raise error
