"""Settings of the Spark session that a statement meets: refused before it reads or writes."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from paimon_magics.errors import StatementError, UnsupportedStatementError
from paimon_magics.planning.reads.read_points import READ_OPTIONS
from paimon_magics.planning.reads.spark_settings import (
    check_sql_settings,
    options_set,
    refuse_read_point,
)
from paimon_magics.session.scope import StatementScope
from paimon_magics.statements.clauses.names import text_literal
from paimon_magics.statements.copying import CopyIntoTable
from paimon_magics.statements.grammar.parsing import parse_cell
from paimon_magics.statements.statement import (
    AlterDatabase,
    CreateDatabase,
    Delete,
    DropDatabase,
    Insert,
    MergeInto,
    PassThrough,
    Refused,
    TableName,
    Update,
)
from paimon_magics.statements.subjects import Statement, subject_of
from paimon_magics.statements.version_changes import Call

_VERBS: Mapping[type, str] = {
    Insert: "INSERT",
    Delete: "DELETE",
    Update: "UPDATE",
    MergeInto: "MERGE",
    CopyIntoTable: "COPY INTO",
}
_VARIABLE = re.compile(r"\$\{(?:\w+?:)?[^\s'\"`\\]+?\}")


def parsed(scope: StatementScope, text: str) -> tuple[Statement, ...]:
    """`parse_cell`. If a text can't be parsed while an unsupported setting is on, the error is
    about the setting."""
    try:
        return tuple(parse_cell(text))
    except StatementError:
        check_settings(scope)
        raise


def check_settings(scope: StatementScope) -> None:
    """Raise UnsupportedStatementError for a setting that this project does not support."""
    check_sql_settings(scope.spark_settings)


def check_variables(scope: StatementScope, text: str) -> None:
    """Raise UnsupportedStatementError for a `${…}` in a statement on Paimon's tables that Spark
    would replace by a setting: Spark would run another text than this project has read
    (`VariableSubstitution`)."""
    for variable in _VARIABLE.finditer(text) if "${" in text else ():
        literal = text_literal(variable[0])
        row = scope.spark.sql(f"SELECT {literal} AS value").head()
        if row is None or row["value"] != variable[0]:
            raise UnsupportedStatementError(
                f"Spark replaces `{variable[0]}` by a setting, or by nothing, which is not "
                "supported here.",
                hint="Nothing was read or written. Bind the value by a name, such as :day, with "
                "parameters={'day': …}. To keep the text as it is: SET "
                "spark.sql.variable.substitute = false.",
                statement=text,
                position=variable.start(),
            )


def with_settings(
    scope: StatementScope,
    name: TableName,
    options: Mapping[str, str],
    known: Collection[str] = READ_OPTIONS,
) -> dict[str, str]:
    """The read options of a table: `options`, and those among `known` that `spark.paimon.…` sets
    for it.

    Raises UnsupportedStatementError for a setting that is not supported.
    """
    settings = scope.spark_settings
    if not settings:
        return dict(options)
    check_sql_settings(settings)
    catalog = scope.settings.catalog_name
    return options_set(settings, catalog, name, options, known) | dict(options)


def check_written(scope: StatementScope, name: TableName | None, verb: str) -> None:
    """Raise UnsupportedStatementError for a setting that is not supported for a statement of the
    kind `verb` that writes or changes the table; without a table, for any table."""
    settings = scope.spark_settings
    if not settings:
        return
    check_sql_settings(settings)
    full = None if name is None else scope.full_name(name)
    refuse_read_point(settings, scope.settings.catalog_name, full, verb)


def check_statement(scope: StatementScope, statement: Statement) -> None:
    """`check_written` and `check_variables` for statements that write or define. What the queries
    in statements read is checked where they name it."""
    if isinstance(statement, PassThrough):
        return
    subject = subject_of(statement)
    if subject.table is not None:
        check_variables(scope, statement.text)
    if isinstance(statement, Call | CreateDatabase | AlterDatabase | DropDatabase):
        check_written(scope, None, "A change of tables")
    elif subject.table is not None and not (subject.only_tells or isinstance(statement, Refused)):
        verb = _VERBS.get(type(statement), "A change of a table")
        check_written(scope, subject.table, verb)
