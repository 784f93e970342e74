"""CREATE and DROP of functions that the catalog keeps, their procedures, and what is shown of them.

A function is kept as Paimon's connector for Spark keeps it (`SQLFunctionConverter`): its body is
the definition `spark` of the type sql. The connector calls what is made here, and the reverse.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa

from paimon_magics.coordinator.client.stored_views import DefinedAlreadyError, StoredViews
from paimon_magics.errors import StatementError, UnknownNameError, UnsupportedStatementError
from paimon_magics.session.catalog_views import (
    CONTAINS_SQL,
    DETERMINISTIC,
    DIALECT,
    IS_QUERY,
    SPARK_SETTING,
    CatalogFunction,
)
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.queries.catalog_calls import (
    check_reads_nothing,
    kept_calls,
    meant_function,
    missing_function,
    spark_function,
)
from paimon_magics.session.queries.spark_calls import pass_to_spark
from paimon_magics.session.scope import StatementScope, errors_located
from paimon_magics.session.statements.compaction import ProcedureCall
from paimon_magics.session.statements.definitions import check_functions, definitions_of
from paimon_magics.session.statements.handler import Handler, done, listing
from paimon_magics.session.statements.show import matching_names
from paimon_magics.spark.queries import frame_of_text
from paimon_magics.spark.views import user_functions
from paimon_magics.statements.clauses.names import named, quoted, table_text
from paimon_magics.statements.definitions import (
    CreateFunction,
    DescribeFunction,
    DropFunction,
    ShowFunctions,
)
from paimon_magics.statements.grammar.spark_passthrough import passed
from paimon_magics.statements.lexing.cursor import Cursor
from paimon_magics.statements.lexing.tokens import tokenize
from paimon_magics.statements.maintenance import ChangeFunction, DefineFunction, RemoveFunction
from paimon_magics.statements.queries.rewriting import rewrite
from paimon_magics.statements.statement import TableName, TextRange
from paimon_magics.statements.types.sql_types import read_type
from paimon_magics.statements.types.type_text import to_paimon, to_spark_sql
from paimon_magics.tables.catalog.rest_documents import field_document

FunctionStatement = CreateFunction | DropFunction | DescribeFunction | ShowFunctions


def function_handler(scope: StatementScope, statement: FunctionStatement) -> Handler:
    """CREATE, DROP, DESCRIBE and SHOW of functions."""
    match statement:
        case CreateFunction():
            return Handler(
                run=partial(_create, scope, statement), dry_run=partial(_dry_run, scope, statement)
            )
        case DropFunction():
            return Handler(run=partial(_drop, scope, statement))
        case DescribeFunction():
            return Handler(run=partial(_describe, scope, statement))
        case ShowFunctions():
            return Handler(run=partial(_show, scope, statement))


def _dry_run(scope: StatementScope, statement: CreateFunction) -> str:
    name = scope.full_name(statement.name)
    with errors_located(statement.text, statement.name_position):
        definitions_of(scope, name, "function")
    _document(scope, statement, name)
    return f"Would create the function `{name}`."


def _create(scope: StatementScope, statement: CreateFunction) -> Outcome:
    name = scope.full_name(statement.name)
    with errors_located(statement.text, statement.name_position):
        functions = definitions_of(scope, name, "function")
        before = functions.find(name)
        if before is not None and statement.if_not_exists:
            return _present(statement, name)
        if before is not None and not statement.or_replace:
            raise _exists(name)
    document = _document(scope, statement, name)
    with errors_located(statement.text, statement.name_position):
        try:
            _keep(functions, name, document, replaces=statement.or_replace)
        except DefinedAlreadyError:
            if statement.if_not_exists:
                return _present(statement, name)
            raise _exists(name) from None
    if scope.views.is_own_function(name.table):
        scope.note(
            f"`{name.table}` alone is a function of Spark's, which hides it: write `{name}` to "
            "call the catalog's."
        )
    verb = "created" if before is None else "replaced"
    return done(statement, "CREATE FUNCTION", name, f"Function `{name}` {verb}.")


def _keep(
    functions: StoredViews, name: TableName, document: dict[str, Any], *, replaces: bool = False
) -> None:
    """Raises UnsupportedStatementError for a catalog whose server keeps no functions."""
    try:
        functions.create(name, document, replaces=replaces)
    except (UnknownNameError, UnsupportedStatementError) as error:
        raise UnsupportedStatementError(
            f"`{name}` can't be kept: the catalog's server keeps no functions ({error.message})",
            hint="CREATE TEMPORARY FUNCTION f(x INT) RETURNS INT RETURN x + 1 makes one for this "
            "session.",
        ) from None


def _present(statement: CreateFunction, name: TableName) -> Outcome:
    return done(statement, "CREATE FUNCTION", name, f"Function `{name}` exists already.")


def _exists(name: TableName) -> StatementError:
    return StatementError(
        f"The function `{name}` exists already.",
        hint="Use CREATE OR REPLACE FUNCTION, CREATE FUNCTION IF NOT EXISTS, or another name.",
    )


def _document(scope: StatementScope, statement: CreateFunction, name: TableName) -> dict[str, Any]:
    """The members of a `CreateFunctionRequest`, once Spark has checked the function. Names of the
    catalog's functions in the body get their databases: engines read other names in the database of
    who calls it."""
    text = statement.text
    with errors_located(text, statement.name_position):
        if statement.refusal is not None:
            raise UnsupportedStatementError(
                f"A function with {statement.refusal} can't be kept by Paimon's catalog for Spark: "
                "it keeps those whose value is an expression in SQL.",
                hint="Write RETURNS a type and RETURN an expression. CREATE TEMPORARY FUNCTION, or "
                f"the name spark_catalog.default.{name.table}, leaves it to Spark.",
            )
    body = text[statement.body.start : statement.body.end]
    with errors_located(text, statement.body.start):
        check_reads_nothing(name, body)
    check_functions(scope, text, tokenize(text), "A function that the catalog keeps")
    calls = kept_calls(scope, text, scope.database)
    for place, function in calls:
        with errors_located(text, place.start):
            spark_function(scope, function, (name,))
    described = _described(scope, statement, calls)
    returns = statement.returns
    if returns is None:
        inferred = described["Returns"][0]
        returns = read_type(Cursor(inferred, tokenize(inferred)))
    is_deterministic = described["Deterministic"] == ["true"]
    return {
        "inputParams": [
            field_document(
                number,
                each.name,
                each.type,
                each.comment,
                each.default and _with_databases(scope, each.default),
            )
            for number, each in enumerate(statement.parameters)
        ],
        "returnParams": [{"id": 0, "name": name.table, "type": to_paimon(returns)}],
        "deterministic": is_deterministic,
        "definitions": {DIALECT: {"type": "sql", "definition": _with_databases(scope, body)}},
        "comment": statement.comment,
        "options": {
            IS_QUERY: str(statement.is_query).lower(),
            DETERMINISTIC: str(is_deterministic).lower(),
            CONTAINS_SQL: str(described["Data Access"] == ["CONTAINS SQL"]).lower(),
            **dict((SPARK_SETTING + setting).split("=", 1) for setting in described["Configs"]),
        },
    }


def _with_databases(scope: StatementScope, text: str) -> str:
    """An expression, with the database before each name of a function of the catalog."""
    calls = [
        (place, table_text(function.name))
        for place, function in kept_calls(scope, text, scope.database)
    ]
    return rewrite(text, TextRange(0, len(text)), calls).text


def _described(
    scope: StatementScope,
    statement: CreateFunction,
    calls: Sequence[tuple[TextRange, CatalogFunction]],
) -> dict[str, list[str]]:
    """What DESCRIBE FUNCTION EXTENDED says of a temporary function of the same text, which Spark
    checks: lines by their titles. Raises errors of ours, with positions in the statement."""
    own = quoted(f"paimon_magics_{uuid.uuid4().hex}")
    whole = TextRange(0, len(statement.text))
    replacements = [(statement.head, f"CREATE TEMPORARY FUNCTION {own}")]
    replacements += [(place, quoted(spark_function(scope, each))) for place, each in calls]
    spark = scope.spark
    try:
        frame_of_text(spark, statement.text, rewrite(statement.text, whole, replacements), {})
        lines = [row[0] for row in spark.sql(f"DESCRIBE FUNCTION EXTENDED {own}").collect()]
    finally:
        with suppress(Exception):  # it was refused
            spark.sql(f"DROP TEMPORARY FUNCTION IF EXISTS {own}")
    described: dict[str, list[str]] = {"Configs": [], "Data Access": [], "Deterministic": []}
    title = ""
    for line in lines:
        title = line[:_TITLE_WIDTH].strip().rstrip(":") or title
        described.setdefault(title, []).append(line[_TITLE_WIDTH:].strip())
    return described


_TITLE_WIDTH = len("Deterministic: ")  # the longest title, by which Spark aligns the others


def _drop(scope: StatementScope, statement: DropFunction) -> Outcome:
    name = scope.full_name(statement.name)
    with errors_located(statement.text, statement.name_position):
        functions = definitions_of(scope, name, "function")
        try:
            functions.drop(name)
        except UnknownNameError:
            if statement.if_exists:
                return done(statement, "DROP FUNCTION", name, f"There is no function `{name}`.")
            missing = missing_function(scope, name)
            if statement.name.database is None and scope.views.is_own_function(name.table):
                missing.hint = f"DROP TEMPORARY FUNCTION {name.table} drops one of the session."
            raise missing from None
    return done(statement, "DROP FUNCTION", name, f"Function `{name}` dropped.")


def _show(scope: StatementScope, statement: ShowFunctions) -> Outcome:
    """Spark's functions and the catalog's, by their full names."""
    database = statement.database or scope.database
    names: list[str] = []
    if statement.kind != "USER":
        names += matching_names(scope.views.built_in_functions, statement.pattern)
    if statement.kind != "SYSTEM":
        names += matching_names(user_functions(scope.spark), statement.pattern)
        of_catalog = matching_names(scope.list_functions(database), statement.pattern)
        names += [f"{scope.settings.catalog_name}.{database}.{name}" for name in of_catalog]
    return listing(scope, statement, "SHOW FUNCTIONS", {"function": names})


def _describe(scope: StatementScope, statement: DescribeFunction) -> Outcome:
    with errors_located(statement.text, statement.name_position):
        function = meant_function(scope, statement.name)
    if function is None:
        return pass_to_spark(scope, passed(statement.text, statement.offset), {})
    lines = _lines(function, is_extended=statement.is_extended)
    return listing(scope, statement, "DESCRIBE FUNCTION", {"function_desc": lines})


def _lines(function: CatalogFunction, *, is_extended: bool) -> list[str]:
    """The lines of DESCRIBE FUNCTION, in the form of Paimon's connector
    (`DescribePaimonV1FunctionCommand`)."""
    definition: Mapping[str, Any] = function.definitions.get(DIALECT) or {}
    width = max((len(column.name) for column in function.parameters), default=0)
    inputs = [
        f"{column.name.ljust(width)} {to_spark_sql(column.type)}"
        + (f" DEFAULT {column.default}" if is_extended and column.default else "")
        + (f" '{column.comment}'" if is_extended and column.comment else "")
        for column in function.parameters
    ] or ["()"]
    lines = [("Function:", str(function.name)), ("Type:", "SCALAR"), ("Input:", inputs[0])]
    lines += [("", each) for each in inputs[1:]]
    if function.returns is not None:
        lines.append(("Returns:", to_spark_sql(function.returns)))
    if is_extended:
        if function.comment is not None:
            lines.append(("Comment:", function.comment))
        lines.append(("Deterministic:", str(function.is_deterministic).lower()))
        if CONTAINS_SQL in function.options:
            reads = function.options[CONTAINS_SQL] != "true"
            lines.append(("Data Access:", "READS SQL DATA" if reads else "CONTAINS SQL"))
        settings = sorted(
            f"{key.removeprefix(SPARK_SETTING)}={value}"
            for key, value in function.options.items()
            if key.startswith(SPARK_SETTING)
        )
        lines += [("" if at else "Configs:", each) for at, each in enumerate(settings)]
        body = definition.get("definition") or definition.get("className") or ""
        lines.append(("Body:", str(body)))
    return [f"{title.ljust(_TITLE_WIDTH)}{value}" for title, value in lines]


# CALL sys.create_function, sys.alter_function and sys.drop_function.

FunctionRequest = DefineFunction | ChangeFunction | RemoveFunction


def run_function_request(call: ProcedureCall, request: FunctionRequest) -> Outcome:
    """Run the procedure. It returns true."""
    scope = call.scope
    with call.errors_located():
        name = scope.full_name(named(request.function))
        functions = definitions_of(scope, name, "function")
        document = functions.find(name)
        if document is None and not isinstance(request, DefineFunction):
            raise missing_function(scope, name)
        match request:
            case DefineFunction():
                try:
                    _keep(functions, name, request.document())
                except DefinedAlreadyError:
                    raise _exists(name) from None
            case ChangeFunction():
                try:
                    functions.alter(name, [request.change])
                except DefinedAlreadyError as error:
                    raise StatementError(
                        error.message, hint="The action updateDefinition replaces it."
                    ) from None
            case RemoveFunction():
                functions.drop(name)
    outcome = Outcome.of_rows(scope.spark, call.text, "CALL", pa.table({"result": [True]}))
    outcome.message = function_lines(call, request, verb="is")[0]
    return outcome


def function_lines(
    call: ProcedureCall, request: FunctionRequest, *, verb: str = "would be"
) -> list[str]:
    """What the procedure would do."""
    verbs = {DefineFunction: "created", ChangeFunction: "altered", RemoveFunction: "dropped"}
    name = call.scope.full_name(named(request.function))
    return [f"Function `{name}` {verb} {verbs[type(request)]}."]
