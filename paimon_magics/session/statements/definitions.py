"""CREATE, ALTER and DROP of views that the catalog keeps, and what is shown of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import pyarrow as pa

from paimon_magics.coordinator.client.stored_views import (
    DefinedAlreadyError,
    StoredViews,
)
from paimon_magics.errors import (
    InvalidTableError,
    InvalidValueError,
    StatementError,
    UnknownNameError,
    UnsupportedStatementError,
    nearest,
)
from paimon_magics.planning.formatting import count_text
from paimon_magics.session.catalog_views import DIALECT, CatalogView, view_of
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.queries.catalog_calls import kept_calls
from paimon_magics.session.queries.file_relations import FileRelation
from paimon_magics.session.queries.frames import frame_of_its_query
from paimon_magics.session.queries.resolution import GivenFrame, Meaning, SparkOwn, resolve
from paimon_magics.session.scope import StatementScope, errors_located
from paimon_magics.session.statements.compaction import ProcedureCall
from paimon_magics.session.statements.handler import Handler, done
from paimon_magics.spark.queries import is_temporary_view
from paimon_magics.spark.types import columns_of
from paimon_magics.spark.views import user_functions
from paimon_magics.statements.clauses.names import (
    named,
    quoted,
    spelled,
    table_text,
    text_literal,
)
from paimon_magics.statements.definitions import (
    AlterView,
    CreateView,
    DropView,
    RenameView,
    ReplaceViewQuery,
    SetViewOptions,
    UnsetViewOptions,
    ViewColumn,
)
from paimon_magics.statements.lexing.tokens import IDENTIFIER_KINDS, Token
from paimon_magics.statements.maintenance import AlterViewDialect
from paimon_magics.statements.queries.plain_queries import plain_query
from paimon_magics.statements.queries.rewriting import (
    Replacement,
    RewrittenText,
    newest_partitions,
    query_tokens,
    rewrite,
)
from paimon_magics.statements.statement import QueryText, TableName, TableReference, TextRange
from paimon_magics.statements.subjects import subject_of
from paimon_magics.tables.catalog.rest_documents import field_document
from paimon_magics.tables.system_tables.describe import option_rows, type_text

_COMMENT = "comment"  # the key by which Spark's SQL changes a comment


def view_handler(scope: StatementScope, statement: CreateView | AlterView | DropView) -> Handler:
    """CREATE, ALTER and DROP VIEW."""
    match statement:
        case CreateView():
            return Handler(
                run=partial(_create, scope, statement),
                dry_run=partial(_dry_run, scope, statement),
                needs=subject_of(statement).sources,
            )
        case AlterView():
            return Handler(run=partial(_alter, scope, statement))
        case DropView():
            return Handler(run=partial(_drop, scope, statement))


def _dry_run(scope: StatementScope, statement: CreateView) -> str:
    planned = _planned(scope, statement, statement.query)
    count = count_text(len(planned.fields), "column")
    return f"Would create the view `{planned.name}` with {count}."


_FOR_THIS_SESSION = {
    "view": "CREATE TEMPORARY VIEW names a query for this session.",
    "function": "CREATE TEMPORARY FUNCTION f(x INT) RETURNS INT RETURN x + 1 makes one for this "
    "session.",
}
"""What to do where the catalog keeps no views or functions."""


def definitions_of(
    scope: StatementScope, name: TableName, kind: Literal["view", "function"] = "view"
) -> StoredViews:
    """The views or functions of the catalog. Raises UnsupportedStatementError if it can't keep
    any, and for a name that can't be one's."""
    if name.branch is not None or name.system_table is not None:
        raise InvalidTableError(
            f"`{name}` can't be the name of a {kind}: `$` is for branches and system tables.",
            hint="Choose a name without `$`.",
        )
    scope.catalog.require_database(name.database or "")
    if scope.stored_views is not None:
        return scope.stored_views if kind == "view" else scope.stored_views.functions
    catalog = scope.catalog.metastore
    if catalog == "filesystem":
        raise UnsupportedStatementError(
            f"`{name}` can't be kept: a warehouse in a file system has no place for views and "
            "functions. A coordinator's store keeps them, and this session commits in its own "
            "process.",
            hint="Connect with coordinator='embedded' or the address of a coordinator. "
            f"{_FOR_THIS_SESSION[kind]}",
        )
    raise UnsupportedStatementError(
        f"`{name}` can't be kept: a {catalog} catalog has no place for views and functions.",
        hint=_FOR_THIS_SESSION[kind],
    )


def need_view(scope: StatementScope, name: TableName, statement: str, position: int) -> CatalogView:
    """The view of that full name. Raises UnknownNameError if there is none, and
    UnsupportedStatementError for a table."""
    with errors_located(statement, position):
        definitions = definitions_of(scope, name)
        document = definitions.find(name)
        if document is not None:
            return view_of(name, document)
        if scope.tables.exists(name):
            raise UnsupportedStatementError(
                f"`{name}` is a table, no view.",
                hint="Write the statement with TABLE in place of VIEW.",
            )
        views = partial(scope.list_views, name.database or "")
        raise UnknownNameError(
            f"There is no view `{name}`.", hint=nearest(name.table, views, what="views")
        )


@dataclass(frozen=True, slots=True)
class _Planned:
    """A view to keep: its text in Spark's SQL, and the documents of its columns."""

    name: TableName
    text: str
    fields: list[dict[str, Any]]

    def schema(self, comment: str | None, options: Mapping[str, str]) -> dict[str, Any]:
        """The `ViewSchema`."""
        return {
            "fields": self.fields,
            "query": self.text,
            "dialects": {DIALECT: self.text},
            "comment": comment,
            "options": dict(options),
        }


def _create(scope: StatementScope, statement: CreateView) -> Outcome:
    name = scope.full_name(statement.name)
    with errors_located(statement.text, statement.name_position):
        definitions = _check_free(scope, name)
    before = definitions.find(name)
    if before is not None and statement.if_not_exists:
        return done(statement, "CREATE VIEW", name, f"View `{name}` exists already.")
    planned = _planned(scope, statement, statement.query)
    options = dict(statement.options)
    comment = options.pop(_COMMENT, statement.comment)
    with errors_located(statement.text, statement.name_position):
        if before is not None and not statement.or_replace:
            raise _exists(name)
        try:
            definitions.create(
                name, planned.schema(comment, options), replaces=statement.or_replace
            )
        except DefinedAlreadyError:
            if statement.if_not_exists:
                return done(statement, "CREATE VIEW", name, f"View `{name}` exists already.")
            raise _exists(name) from None
    verb = "created" if before is None else "replaced"
    outcome = done(statement, "CREATE VIEW", name, f"View `{name}` {verb}.")
    if is_temporary_view(scope.spark, name.table):
        scope.note(
            f"`{name.table}` alone is your temporary view, which hides it: write `{name}` to read "
            "the catalog's."
        )
    if before is not None:
        _note_dialects(scope, view_of(name, before))
    return outcome


def _check_free(scope: StatementScope, name: TableName) -> StoredViews:
    """As `definitions_of`, for the name of a new view. Raises InvalidTableError for a table's."""
    definitions = definitions_of(scope, name)
    if scope.tables.exists(name):
        raise InvalidTableError(
            f"`{name}` is a table: a view can't have its name.", hint="Choose another name."
        )
    return definitions


def _note_dialects(scope: StatementScope, before: CatalogView) -> None:
    others = sorted(set(before.dialects) - {DIALECT})
    if others:
        scope.note(
            f"Its earlier text in the dialect {', '.join(others)} is gone: CALL "
            "sys.alter_view_dialect adds another."
        )


def _exists(name: TableName) -> StatementError:
    return StatementError(
        f"The view `{name}` exists already.",
        hint="Use CREATE OR REPLACE VIEW, CREATE VIEW IF NOT EXISTS, or another name.",
    )


def _alter(scope: StatementScope, statement: AlterView) -> Outcome:
    name = scope.full_name(statement.name)
    view = need_view(scope, name, statement.text, statement.name_position)
    definitions = definitions_of(scope, name)
    match statement.change:
        case SetViewOptions(options=options):
            changes = [_option_change(key, value) for key, value in options]
            definitions.alter(name, changes)
            return _altered(statement, name, f"{', '.join(f'`{key}`' for key, _ in options)} set")
        case UnsetViewOptions(keys=keys, if_exists=if_exists):
            known = {key for key, _ in view.schema.options} | {_COMMENT}
            for key in keys:
                if key not in known and not if_exists:
                    raise UnknownNameError(
                        f"The view `{name}` has no property '{key}'.",
                        hint=f"{nearest(key, sorted(known), what='properties')} UNSET "
                        "TBLPROPERTIES IF EXISTS passes over it.",
                        statement=statement.text,
                        position=max(statement.text.find(key), 0),
                    )
            definitions.alter(name, [_option_change(key, None) for key in keys])
            return _altered(statement, name, f"{', '.join(f'`{key}`' for key in keys)} removed")
        case RenameView(new_name=new_name):
            full = scope.full_name(replace(new_name, database=new_name.database or name.database))
            with errors_located(statement.text, statement.name_position):
                _check_free(scope, full)
            try:
                definitions.rename(name, full)
            except DefinedAlreadyError:
                raise StatementError(
                    f"The view `{full}` exists already.",
                    hint="Choose another name, or drop it first.",
                    statement=statement.text,
                    position=statement.name_position,
                ) from None
            return _altered(statement, name, f"renamed to `{full}`")
        case ReplaceViewQuery(query=query):
            planned = _planned(scope, statement, query)
            schema = planned.schema(view.schema.comment, dict(view.schema.options))
            definitions.create(name, schema, replaces=True)
            _note_dialects(scope, view)
            return _altered(statement, name, "has another query")


def _option_change(key: str, value: str | None) -> dict[str, str | None]:
    if key == _COMMENT:
        return {"action": "updateComment", "comment": value}
    if value is None:
        return {"action": "removeOption", "key": key}
    return {"action": "setOption", "key": key, "value": value}


def _altered(statement: AlterView, name: TableName, what: str) -> Outcome:
    return done(statement, "ALTER VIEW", name, f"View `{name}`: {what}.")


def _drop(scope: StatementScope, statement: DropView) -> Outcome:
    name = scope.full_name(statement.name)
    try:
        need_view(scope, name, statement.text, statement.name_position)
        definitions_of(scope, name).drop(name)
    except UnknownNameError:
        if not statement.if_exists:
            raise
        return done(statement, "DROP VIEW", name, f"There is no view `{name}`.")
    return done(statement, "DROP VIEW", name, f"View `{name}` dropped.")


# CALL sys.alter_view_dialect.


def run_dialect_change(call: ProcedureCall, request: AlterViewDialect) -> Outcome:
    """Run CALL sys.alter_view_dialect. It returns true."""
    scope = call.scope
    view, text = _dialect_text(call, request)
    change = {"action": f"{request.action}Dialect", "dialect": request.engine}
    with call.errors_located():
        try:
            more = {} if text is None else {"query": text}
            definitions_of(scope, view.name).alter(view.name, [change | more])
        except DefinedAlreadyError:
            raise StatementError(
                f"The view `{view.name}` has a text in the dialect `{request.engine}` already.",
                hint="The action `update` replaces it.",
            ) from None
    outcome = Outcome.of_rows(scope.spark, call.text, "CALL", pa.table({"result": [True]}))
    outcome.message = dialect_lines(call, request, verb="is")[0]
    return outcome


def dialect_lines(
    call: ProcedureCall, request: AlterViewDialect, *, verb: str = "would be"
) -> list[str]:
    """What CALL sys.alter_view_dialect would do."""
    done_to = {"add": "added", "update": "replaced", "drop": "dropped"}[request.action]
    name = call.scope.full_name(named(request.view))
    return [f"View `{name}`: its text in the dialect `{request.engine}` {verb} {done_to}."]


def _dialect_text(call: ProcedureCall, request: AlterViewDialect) -> tuple[CatalogView, str | None]:
    """The view, and the text to keep: of another engine as it is, of Spark's once its query is
    planned."""
    scope = call.scope
    with call.errors_located():
        name = scope.full_name(named(request.view))
        view = need_view(scope, name, call.text, call.position)
        if request.action != "add" and request.engine not in view.dialects:
            raise UnknownNameError(
                f"The view `{name}` has no text in the dialect `{request.engine}`.",
                hint=nearest(request.engine, sorted(view.dialects), what="dialects"),
            )
        if request.query is None or request.engine != DIALECT:
            return view, request.query
        parsed = replace(view, dialects={DIALECT: request.query}).parsed()
        inner = scope.within(name)
        named_text = rewrite(
            parsed.text, parsed.query.range, _full_names(inner, parsed.text, parsed.query, name)
        ).text
        try:
            frame = frame_of_its_query(scope, replace(view, dialects={DIALECT: named_text}))
        finally:
            scope.views.drop_passing()
        if len(frame.columns) != len(view.schema.columns):
            raise InvalidValueError(
                f"The query gives {count_text(len(frame.columns), 'column')}, and the view "
                f"`{name}` has {len(view.schema.columns)}.",
                hint=f"Its columns are: {', '.join(view.schema.column_names)}.",
            )
        return view, named_text


# The text of a new view. It names each table with its database, since engines read other names in
# the database of who reads the view; and the columns that `*` stands for now, so that a column
# that a table gets later takes no other's place.


def _planned(
    scope: StatementScope, statement: CreateView | AlterView, query: QueryText
) -> _Planned:
    name, text = scope.full_name(statement.name), statement.text
    if query.parameters:
        raise UnsupportedStatementError(
            f"A view's query can't have a parameter, such as :{query.parameters[0]}: the view is "
            "read without it.",
            hint="Write the value itself.",
            statement=text,
            position=max(text.find(f":{query.parameters[0]}"), 0),
        )
    full = rewrite(text, query.range, _full_names(scope, text, query, name))
    view = view_of(name, {"schema": {"fields": [], "query": full.text}})
    try:
        frame = frame_of_its_query(scope, view)
    except StatementError as error:
        raise _in_statement(error, full, text) from error
    finally:
        scope.views.drop_passing()
    columns = columns_of(frame.schema)
    listed = statement.columns if isinstance(statement, CreateView) else None
    _check_columns(name, [column.name for column in columns], listed, text)
    chosen = listed or tuple(ViewColumn(column.name) for column in columns)
    fields = [
        field_document(number, shown.name, column.type, shown.comment)
        for number, (column, shown) in enumerate(zip(columns, chosen, strict=True))
    ]
    names = [column.name for column in columns]
    return _Planned(name, _with_columns(full.text, view.parsed().query, names), fields)


def _in_statement(error: StatementError, full: RewrittenText, text: str) -> StatementError:
    """The error of a view's text, with its position in the statement that has the query."""
    if error.statement == full.text and error.position is not None:
        error.position = full.original_position(error.position)
        error.statement = text
    return error


def _check_columns(
    name: TableName,
    columns: Sequence[str],
    listed: Sequence[ViewColumn] | None,
    text: str,
) -> None:
    """Raise InvalidValueError for another number of columns than `listed`, and for a column that
    the query gives twice."""
    if listed is not None and len(listed) != len(columns):
        count = count_text(len(listed), "column")
        raise InvalidValueError(
            f"View `{name}` names {count}, and its query gives {len(columns)}.",
            hint=f"The query's columns are: {', '.join(columns)}.",
            statement=text,
            position=listed[0].position,
        )
    seen: set[str] = set()
    for column in columns:
        if column.lower() in seen and listed is None:
            raise InvalidValueError(
                f"The query of view `{name}` gives the column `{column}` twice.",
                hint=f"Name one of them otherwise in the query, or all of them: CREATE VIEW "
                f"{table_text(name)} (a, b, …) AS SELECT ….",
                statement=text,
                position=0,
            )
        seen.add(column.lower())


def _full_names(
    scope: StatementScope, text: str, query: QueryText, view: TableName
) -> list[Replacement]:
    """The replacements that name each table and view with its database, and no catalog. Raises
    UnsupportedStatementError for what others can't read by the view."""
    replacements: list[Replacement] = []
    tokens = query_tokens(text, query)
    check_functions(scope, text, tokens, "A view")
    within = query.range
    replacements += [
        (place, table_text(function.name))
        for place, function in kept_calls(scope, text, scope.database)
        if within.start <= place.start < within.end
    ]
    for reference in query.references:
        with errors_located(text, reference.range.start):
            meaning = resolve(scope, reference, text)
            if not isinstance(meaning, TableName | CatalogView):
                raise _not_of_catalog(reference, meaning)
            place = _name_range(tokens, reference)
            name = meaning if isinstance(meaning, TableName) else meaning.name
            if place is not None:
                replacements.append((place, table_text(name)))
            elif scope.database != view.database:
                raise _needs_database("a function for changes", scope, view)
    for call in newest_partitions(text):
        if scope.database != view.database and "." not in (call.table or ""):
            with errors_located(text, call.range.start):
                raise _needs_database("max_pt", scope, view)
    return replacements


def check_functions(scope: StatementScope, text: str, tokens: Sequence[Token], what: str) -> None:
    """Raise UnsupportedStatementError for a function of this session, which others don't have."""
    called = {
        token.name.lower(): token
        for token, behind in pairwise(tokens)
        if token.kind in IDENTIFIER_KINDS and behind.text == "("
    }
    for function in user_functions(scope.spark) if called else ():
        token = called.get(function.rpartition(".")[2].lower())
        if token is not None:
            raise UnsupportedStatementError(
                f"{what} can't call `{token.name}`, a function of this session: others don't have "
                "it.",
                hint="Write its expression itself, or keep it by CREATE FUNCTION.",
                statement=text,
                position=token.start,
            )


def _needs_database(what: str, scope: StatementScope, view: TableName) -> UnsupportedStatementError:
    return UnsupportedStatementError(
        f"The name in {what} would mean a table of `{view.database}`, the view's database, and the "
        f"session is in `{scope.database}`.",
        hint=f"Run USE {spelled(view.database or '')} first.",
    )


def _name_range(tokens: Sequence[Token], reference: TableReference) -> TextRange | None:
    """The range of a reference's name; None for a function that has the name as its argument."""
    start = next(i for i, token in enumerate(tokens) if token.start >= reference.range.start)
    end = start
    while tokens[end + 1 : end + 2] and tokens[end + 1].text == ".":
        end += 2
    if tokens[end + 1 : end + 2] and tokens[end + 1].text == "(":
        return None
    return TextRange(tokens[start].start, tokens[end].end)


def _not_of_catalog(reference: TableReference, meaning: Meaning) -> UnsupportedStatementError:
    match meaning:
        case GivenFrame():
            what = "a DataFrame of this notebook"
        case FileRelation():
            what = "a file"
        case SparkOwn() if reference.name.database is None:
            what = "a temporary view or a table of Spark's own"
        case _:
            what = "a table of Spark's own"
    return UnsupportedStatementError(
        f"A view can't read `{reference.name}`, {what}: others don't have it.",
        hint="Its query may read Paimon's tables and views. CREATE TABLE … AS SELECT keeps the "
        "rows; CREATE TEMPORARY VIEW names a query for this session.",
    )


_BEFORE_STAR = frozenset({"SELECT", "DISTINCT", "ALL", ",", "."})


def _with_columns(text: str, query: QueryText, columns: Sequence[str]) -> str:
    """The text with the names of `columns` for `*` in its SELECT."""
    tokens = query_tokens(text, query)
    stars = [
        token
        for before, token in pairwise(tokens)
        if token.text == "*" and before.upper in _BEFORE_STAR
    ]
    if not stars:
        return text
    names = ", ".join(quoted(column) for column in columns)
    plain = plain_query(text, query)
    if plain is not None and plain.columns is None:
        place = TextRange(stars[0].start, stars[0].end)
        return rewrite(text, query.range, [(place, names)]).text
    return f"SELECT {names} FROM (\n{text}\n)"


# What SHOW and DESCRIBE show of a view, in the forms of Paimon's connector.


def view_statement(view: CatalogView) -> str:
    """The CREATE VIEW statement that SHOW CREATE TABLE returns."""
    columns = [
        f"  {quoted(column.name)}"
        + (f" COMMENT {text_literal(column.comment)}" if column.comment is not None else "")
        for column in view.schema.columns
    ]
    lines = [f"CREATE VIEW {quoted(view.name.database or '')}.{quoted(view.name.table)} ("]
    lines.append(",\n".join(columns) + ")")
    if view.schema.comment is not None:
        lines.append(f"COMMENT {text_literal(view.schema.comment)}")
    options = option_rows(view.schema)
    if options:
        pairs = ",\n".join(f"  {text_literal(k)} = {text_literal(v)}" for k, v in options)
        lines.append(f"TBLPROPERTIES (\n{pairs})")
    return "\n".join([*lines, f"AS {view.text}"])


def view_rows(view: CatalogView, *, extended: bool) -> list[tuple[str, str, str | None]]:
    """The rows (col_name, data_type, comment) of DESCRIBE [EXTENDED]."""
    schema = view.schema
    rows: list[tuple[str, str, str | None]] = [
        (column.name, type_text(column.type), column.comment) for column in schema.columns
    ]
    if not extended:
        return rows
    dialects = {f"View Text ({name})": text for name, text in sorted(view.dialects.items())}
    own = dialects.pop(f"View Text ({DIALECT})", None)
    details = {
        "Name": f"paimon.{view.name}",
        "Type": "VIEW",
        "Comment": schema.comment,
        "Owner": view.owner or None,
        "View Text": own if view.dialects else view.query,
        **dialects,
        "View Properties": f"[{', '.join(f'{k}={v}' for k, v in option_rows(schema))}]",
    }
    rows += [("", "", ""), ("# Detailed View Information", "", "")]
    return rows + [(key, value, "") for key, value in details.items() if value is not None]
