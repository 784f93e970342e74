"""Parses a cell's text into statements.

The first words decide which parser reads a statement. sqlglot reads queries (see `queries`); small
parsers over Spark's tokens read all other statements on Paimon's tables. A form that is recognized
but not offered becomes a `Refused`, and a statement that only Spark may know a `PassThrough`.
StatementSyntaxError is raised only for text that can't be Spark SQL.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial

from paimon_magics.errors import InvalidTableError, StatementSyntaxError, likely_meant
from paimon_magics.statements.clauses.names import table_name, try_table_name
from paimon_magics.statements.clauses.properties import read_partition
from paimon_magics.statements.dialects.misreadings import misread
from paimon_magics.statements.grammar import databases as databases
from paimon_magics.statements.grammar import tables as tables
from paimon_magics.statements.grammar.alter_table import read_alter_table
from paimon_magics.statements.grammar.calls import read_call, read_show_tags
from paimon_magics.statements.grammar.copying import read_copy
from paimon_magics.statements.grammar.definitions import (
    read_alter_view,
    read_create_function,
    read_create_view,
    read_describe_function,
    read_drop_function,
    read_drop_view,
)
from paimon_magics.statements.grammar.delete_update import read_delete, read_update
from paimon_magics.statements.grammar.grants import read_grant, read_revoke, read_show_grants
from paimon_magics.statements.grammar.habits import read_optimize, read_restore
from paimon_magics.statements.grammar.merges import read_merge
from paimon_magics.statements.grammar.spark_passthrough import pass_through
from paimon_magics.statements.lexing.cursor import Cursor, RefusedHere
from paimon_magics.statements.lexing.tokens import (
    CLAUSE_WORDS,
    IDENTIFIER_KINDS,
    QUERY_WORDS,
    STATEMENT_WORDS,
    Token,
    half_character,
    split_tokens,
    tokenize,
    word_set,
)
from paimon_magics.statements.queries.query_text import (
    at_query,
    bind_parameters,
    decimals_of_values,
    read_query,
)
from paimon_magics.statements.statement import (
    CreateTemporaryView,
    Insert,
    PartitionItem,
    PassThrough,
    Query,
    QueryText,
    Refused,
    TableName,
    TextRange,
)
from paimon_magics.statements.subjects import Explain, Statement

_CELLS_KEPT = 8  # a cell is parsed by its guard rails, and again when it runs
_ALIKE_MIN = 0.7  # `orders` is not REFRESH
_OPTIONS_HINT = re.compile(r"/\*\+\s*OPTIONS\s*\(", re.IGNORECASE)
_COMMENTS = re.compile(r"/\*.*?\*/|--[^\n]*\n", re.DOTALL)
_EXPLAIN_MODES = ("LOGICAL", "FORMATTED", "EXTENDED", "CODEGEN", "COST")
_KEYWORDS_NEAR = sorted(
    word_set("SELECT WITH VALUES TABLE INSERT CREATE DROP ALTER SHOW DESCRIBE USE EXPLAIN")
    | word_set("TRUNCATE REPLACE DELETE UPDATE MERGE CALL ANALYZE CACHE SET RESET REFRESH FROM")
)
_REFUSED: tuple[tuple[str, ...], ...] = (
    ("CREATE", "INDEX"),
    ("CREATE", "MATERIALIZED", "VIEW"),
    ("CREATE", "OR", "REPLACE", "MATERIALIZED", "VIEW"),
    ("DROP", "INDEX"),
    ("ANALYZE", "TABLES"),
    ("SUMMARIZE",),
    ("EXECUTE", "IMMEDIATE"),
    ("SHOW", "BRANCHES"),
)
_BEFORE_REFUSED = word_set("FROM INTO OVERWRITE TABLE UPDATE TAGS BRANCHES SUMMARIZE RESTORE")
_QUERY_BEGINS = ("SELECT", "VALUES", "WITH", "FROM", "TABLE")
_KIND_WITHOUT = frozenset({"FROM", "INTO"})

Reader = Callable[[Cursor], Statement]


@lru_cache(maxsize=_CELLS_KEPT)
def parse_cell(text: str) -> tuple[Statement, ...]:
    """Parse the statements of a cell. Raises the errors of `parse_statement` and `split_cell`."""
    half = half_character(text)
    if half:  # without the text, which could not be shown
        raise StatementSyntaxError(
            f"The text has half of a character ({half}), which Spark can't read.",
            hint="Retype the character.",
        )
    return tuple(
        # Tokens have positions in the cell: right for a statement that begins the cell.
        _parsed(piece, offset, tokenize(piece) if offset else tokens)
        for piece, offset, tokens in split_tokens(text)
    )


def parse_statement(text: str, offset: int = 0) -> Statement:
    """Parse one statement, without the semicolon; `offset` is where it begins in its cell.

    Raises StatementSyntaxError with a position, InvalidTableError for a type that Paimon lacks.
    """
    return _parsed(text, offset, tokenize(text))


def _parsed(text: str, offset: int, tokens: tuple[Token, ...]) -> Statement:
    try:
        cursor = Cursor(text, tokens, offset=offset)
        if cursor.at_end:
            cursor.fail("a statement")
        _refuse_options_hint(cursor)
        statement = _statement(cursor)
        cursor.expect_end()
        return statement
    except StatementSyntaxError as error:
        if error.position is None:
            raise
        raise misread(text, error.position, error.message, error.hint) from None
    except RecursionError:
        raise StatementSyntaxError(
            "The statement's brackets are nested too deeply to be read.",
            hint="Split the query, for instance with WITH.",
        ) from None
    except RefusedHere as refusal:
        return Refused(text, offset, refusal.kind, _named_table(text))
    except databases.OtherCatalogError:
        return pass_through(cursor)


def _refuse_options_hint(cursor: Cursor) -> None:
    """Refuse Flink's hint with options of a table. It is a comment to everybody else: the statement
    would read another state than it names."""
    for match in _OPTIONS_HINT.finditer(cursor.text):
        place = match.start()
        if any(token.start <= place < token.end for token in cursor.tokens):
            continue  # in a text
        start = max((token.end for token in cursor.tokens if token.end <= place), default=0)
        if not _COMMENTS.sub("", cursor.text[start:place]).strip():  # itself not in a comment
            raise RefusedHere("/*+ OPTIONS(…) */")


def _statement(cursor: Cursor) -> Statement:
    for words in _REFUSED:
        if cursor.at(*words):
            kind = " ".join(words)
            raise RefusedHere(kind)
    if cursor.at("WITH"):
        return _with(cursor)
    if at_query(cursor):
        return Query(cursor.text, cursor.offset, read_query(cursor))
    for words, reader in _READERS:
        if cursor.at(*words):
            cursor.index += len(words)
            return reader(cursor)
    token = cursor.peek()
    if token.upper not in STATEMENT_WORDS:
        hint = likely_meant(token.upper, _KEYWORDS_NEAR, alike=_ALIKE_MIN)
        cursor.fail_at(token.start, f"No statement begins with `{token.text}`.", hint)
    return pass_through(cursor)


def _with(cursor: Cursor) -> Statement:
    """Read WITH … and the query, or the INSERT, UPDATE, DELETE or MERGE, that follows it."""
    index = cursor.index
    while index < cursor.stop:
        token = cursor.tokens[index]
        before = cursor.tokens[index - 1].text if index else ""
        if token.upper in _CHANGES and before == ")":
            with_index, cursor.index = cursor.index, index + 1
            return _CHANGES[token.upper](cursor, with_index)
        index = cursor.brackets.get(index, index) + 1
    return Query(cursor.text, cursor.offset, read_query(cursor))


def _explain(cursor: Cursor) -> Explain:
    if cursor.at("ANALYZE") and cursor.peek(1).upper not in ("TABLE", "TABLES"):
        raise RefusedHere("EXPLAIN ANALYZE")  # ANALYZE TABLE is a statement
    mode = cursor.accept_any(*_EXPLAIN_MODES)
    if cursor.at_end:
        cursor.fail("a statement to explain")
    start = cursor.position
    try:
        inner = parse_statement(cursor.text[start:], cursor.offset + start)
    except StatementSyntaxError as error:
        raise StatementSyntaxError(
            error.message,
            hint=error.hint,
            statement=cursor.text,
            position=None if error.position is None else error.position + start,
        ) from None
    cursor.index = cursor.stop
    return Explain(cursor.text, cursor.offset, mode, inner)


def _refresh(cursor: Cursor) -> Statement:
    if cursor.accept("TABLE"):
        return tables.read_refresh(cursor)
    return pass_through(cursor)


def _comment_on(cursor: Cursor) -> Statement:
    if cursor.accept("TABLE"):
        return tables.read_comment_on_table(cursor)
    if cursor.accept_any(*databases.DATABASE_WORDS):
        return databases.read_comment_on_database(cursor)
    return pass_through(cursor)


def _insert(cursor: Cursor) -> Statement:
    if cursor.at("OVERWRITE", "DIRECTORY") or cursor.at("OVERWRITE", "LOCAL", "DIRECTORY"):
        return pass_through(cursor)
    return read_insert(cursor)


def _create(cursor: Cursor) -> Statement:
    or_replace = cursor.accept("OR", "REPLACE")
    if cursor.accept_any("TEMPORARY", "TEMP"):
        if cursor.accept("VIEW"):
            return _temporary_view(cursor, or_replace)
        return pass_through(cursor)
    if cursor.accept("EXTERNAL"):
        if cursor.at("TABLE"):
            raise RefusedHere("CREATE EXTERNAL TABLE")
        return pass_through(cursor)
    if cursor.accept("TABLE"):
        return _create_table(cursor, or_replace=or_replace)
    if cursor.accept("VIEW"):
        return read_create_view(cursor, or_replace=or_replace)
    if cursor.accept("FUNCTION"):
        return read_create_function(cursor, or_replace=or_replace)
    if not or_replace and cursor.accept_any(*databases.DATABASE_WORDS):
        return databases.read_create_database(cursor)
    known = ("TABLE", "VIEW", "DATABASE", "SCHEMA", "NAMESPACE", "FUNCTION", "TEMPORARY", "INDEX")
    others = ("GLOBAL", "ROLE", "VARIABLE", "CATALOG", "METRIC", "PROCEDURE")
    return _known_second_word(cursor, known, (*others, "STREAMING", "FLOW", "TEMP"))


def _create_table(cursor: Cursor, *, or_replace: bool, must_exist: bool = False) -> Statement:
    start = cursor.index
    try:
        return tables.read_create_table(cursor, or_replace=or_replace, must_exist=must_exist)
    except (InvalidTableError, RefusedHere):
        if _uses_other_format(cursor, start):  # not a Paimon table: Spark decides
            return pass_through(cursor)
        raise


def _uses_other_format(cursor: Cursor, start: int) -> bool:
    """Whether a USING clause outside brackets names a format other than Paimon."""
    index = start
    while index + 1 < cursor.stop:
        token = cursor.tokens[index]
        if token.upper == "USING":
            return cursor.tokens[index + 1].name.lower() != "paimon"
        if token.upper == "AS":
            return False
        index = cursor.brackets.get(index, index) + 1
    return False


def _temporary_view(cursor: Cursor, or_replace: bool) -> Statement:
    name, start = cursor.peek(), cursor.index
    if name.kind in IDENTIFIER_KINDS:
        cursor.index += 1
        columns = _view_columns(cursor)
        if cursor.accept("AS"):
            if not at_query(cursor):
                cursor.fail("a query")
            query = read_query(cursor)
            return CreateTemporaryView(
                cursor.text, cursor.offset, name.name, or_replace, query, columns
            )
        cursor.index = start
    return pass_through(cursor)


def _view_columns(cursor: Cursor) -> tuple[str, ...] | None:
    """The names in the list of columns that comes next; None without one, or with comments in it,
    behind which the cursor is not moved."""
    start, names = cursor.index, []
    if not cursor.accept("("):
        return None
    while cursor.peek().kind in IDENTIFIER_KINDS:
        names.append(cursor.identifier("a column"))
        if cursor.accept(")"):
            return tuple(names)
        if not cursor.accept(","):
            break
    cursor.index = start
    return None


def _drop(cursor: Cursor) -> Statement:
    if cursor.accept("TABLE"):
        return tables.read_drop_table(cursor)
    if cursor.accept("VIEW"):
        return read_drop_view(cursor)
    if cursor.accept("FUNCTION"):
        return read_drop_function(cursor)
    if cursor.accept_any(*databases.DATABASE_WORDS):
        return databases.read_drop_database(cursor)
    known = ("TABLE", "VIEW", "DATABASE", "SCHEMA", "NAMESPACE", "FUNCTION", "TEMPORARY", "INDEX")
    return _known_second_word(cursor, known, ("VARIABLE", "TEMP", "ROLE", "PROCEDURE"))


def _alter(cursor: Cursor) -> Statement:
    if cursor.accept("TABLE"):
        return read_alter_table(cursor)
    if cursor.accept("VIEW"):
        return read_alter_view(cursor)
    if cursor.accept_any(*databases.DATABASE_WORDS):
        return databases.read_alter_database(cursor)
    return _known_second_word(cursor, ("TABLE", "VIEW", "DATABASE"), ("MATERIALIZED",))


_SHOW_READERS: dict[tuple[str, ...], Reader] = {
    ("DATABASES",): databases.read_show_databases,
    ("SCHEMAS",): databases.read_show_databases,
    ("NAMESPACES",): databases.read_show_databases,
    ("TABLES",): databases.read_show_tables,
    ("TABLE", "EXTENDED"): databases.read_show_table_extended,
    ("VIEWS",): databases.read_show_views,
    ("PROCEDURES",): databases.read_show_procedures,
    **{
        (*kind, "FUNCTIONS"): databases.read_show_functions
        for kind in ((), ("USER",), ("SYSTEM",), ("ALL",))
    },
    ("CURRENT", "NAMESPACE"): databases.read_show_current,
    ("CURRENT", "DATABASE"): databases.read_show_current,
    ("CURRENT", "SCHEMA"): databases.read_show_current,
    ("PARTITIONS",): tables.read_show_partitions,
    ("CREATE", "TABLE"): tables.read_show_create_table,
    ("TBLPROPERTIES",): tables.read_show_options,
    ("COLUMNS",): tables.read_show_columns,
    ("TAGS",): read_show_tags,
    ("GRANTS",): read_show_grants,
}


def _show(cursor: Cursor) -> Statement:
    for words, reader in _SHOW_READERS.items():
        if cursor.at(*words):
            cursor.index += len(words)
            return reader(cursor)
    if cursor.at("CREATE", "VIEW"):
        cursor.next()
        cursor.fail("TABLE", hint="Write SHOW CREATE TABLE v, which shows views, too.")
    known = (*(w for words in _SHOW_READERS for w in words[:1]), "FUNCTIONS", "CATALOGS")
    others = ("CURRENT", "USER", "SYSTEM", "ALL", "CREATE", "LOCKS", "ROLES", "VARIABLES")
    return _known_second_word(cursor, known, (*others, "CACHED", "INDEXES"))


def _describe(cursor: Cursor) -> Statement:
    second = cursor.peek(1)
    if cursor.at_any(*databases.DATABASE_WORDS) and second.kind in IDENTIFIER_KINDS:
        cursor.next()
        return databases.read_describe_database(cursor)
    is_kind = second.kind in IDENTIFIER_KINDS or second.kind == "string"
    if cursor.at("FUNCTION") and second.kind in IDENTIFIER_KINDS:
        cursor.next()
        return read_describe_function(cursor)
    if cursor.at_any("FUNCTION", "QUERY", "CATALOG", "PROCEDURE") and is_kind:
        return pass_through(cursor)
    if cursor.at_any("SELECT", "WITH", "VALUES", "FROM") or cursor.at("("):
        return pass_through(cursor)
    if cursor.at("HISTORY") and second.kind in IDENTIFIER_KINDS:
        cursor.next()
        return tables.read_describe_history(cursor)
    if cursor.at("DETAIL") and second.kind in IDENTIFIER_KINDS:
        cursor.next()
        return tables.read_describe_detail(cursor)
    if cursor.at("TABLE") and second.kind in IDENTIFIER_KINDS:
        cursor.next()
    return tables.read_describe_table(cursor)


def _known_second_word(
    cursor: Cursor, known: tuple[str, ...], others: tuple[str, ...]
) -> PassThrough:
    """Pass the statement to Spark, unless Spark has no statement with that second word."""
    token = cursor.peek()
    if token.kind == "end":
        cursor.fail("the rest of the statement")
    if token.upper not in known and token.upper not in others:
        first = cursor.tokens[0].upper
        words = ", ".join(sorted(set(known)))
        hint = likely_meant(token.text, known) or f"After {first} comes one of {words}."
        cursor.fail_at(token.start, f"There is no {first} {token.text.upper()}.", hint)
    return pass_through(cursor)


def _named_table(text: str) -> TableName | None:
    """The table of a refused statement: the first name after a word such as FROM or TABLE."""
    tokens = tokenize(text)
    for index, token in enumerate(tokens[:-1]):
        if token.upper not in _BEFORE_REFUSED:
            continue
        following = index + 1
        while tokens[following].upper in ("IF", "NOT", "EXISTS", "TABLE", "EXTENDED"):
            following += 1
            if following == len(tokens):
                return None
        parts = []
        while following < len(tokens) and tokens[following].kind in IDENTIFIER_KINDS:
            if tokens[following].upper in CLAUSE_WORDS | {"IN", "LIKE"}:
                break
            parts.append(tokens[following])
            if following + 1 >= len(tokens) or tokens[following + 1].text != ".":
                break
            following += 2
        is_call = following + 1 < len(tokens) and tokens[following + 1].text == "("
        if parts and not (is_call and (token.upper == "FROM" or parts[0].upper == "IDENTIFIER")):
            return try_table_name(parts)
    return None


_READERS: tuple[tuple[tuple[str, ...], Reader], ...] = (
    (("INSERT",), _insert),
    (("DELETE",), read_delete),
    (("UPDATE",), read_update),
    (("MERGE",), read_merge),
    (("COPY", "INTO"), read_copy),
    (("CREATE",), _create),
    (("REPLACE", "TABLE"), partial(_create_table, or_replace=True, must_exist=True)),
    (("DROP",), _drop),
    (("ALTER",), _alter),
    (("TRUNCATE",), tables.read_truncate),
    (("SHOW",), _show),
    (("DESCRIBE",), _describe),
    (("DESC",), _describe),
    (("USE",), databases.read_use),
    (("EXPLAIN",), _explain),
    (("CALL",), read_call),
    (("GRANT",), read_grant),
    (("REVOKE",), read_revoke),
    (("COMMENT", "ON"), _comment_on),
    (("REFRESH",), _refresh),
    (("OPTIMIZE",), read_optimize),
    (("RESTORE",), read_restore),
    (("ANALYZE", "TABLE"), tables.read_analyze),
)


# Reads INSERT: its target, columns, partition and source.
#
# The syntax is Spark's (`insertInto` in `SqlBaseParser.g4`). The column list may be before or after
# the PARTITION clause, and WITH before INSERT or in the source.


def read_insert(cursor: Cursor, with_index: int | None = None) -> Insert:
    """Read what follows INSERT. `with_index` is the index of a WITH token before INSERT."""
    insert_index = cursor.index - 1
    overwrite = cursor.accept_any("INTO", "OVERWRITE")
    if not overwrite:
        cursor.fail("INTO or OVERWRITE")
    if cursor.at("DIRECTORY") or cursor.at("LOCAL", "DIRECTORY"):
        raise RefusedHere("INSERT OVERWRITE DIRECTORY")
    if cursor.at("TABLE") and cursor.peek(1).text != "(":
        cursor.next()
    target, position = table_name(cursor)
    if cursor.at("WITH", "("):
        raise RefusedHere("INSERT … WITH options")
    columns: tuple[str, ...] | None = None
    partition: tuple[PartitionItem, ...] | None = None
    by_name = False
    parameters: tuple[str, ...] = ()
    where: TextRange | None = None
    using: tuple[str, ...] = ()
    while True:
        if cursor.at("REPLACE"):
            where, using = _replaced(cursor, overwrite, partition is not None)
            break
        if partition is None and cursor.accept("PARTITION"):
            parameters = bind_parameters(cursor.at_index(cursor.index, _closing(cursor)))
            partition = read_partition(cursor)
            if cursor.at("IF", "NOT", "EXISTS"):
                raise RefusedHere("INSERT … IF NOT EXISTS")
        elif columns is None and not by_name and _at_columns(cursor):
            columns = _columns(cursor)
        elif columns is None and not by_name and cursor.accept("BY", "NAME"):
            by_name = True
        else:
            break
    if not at_query(cursor):
        cursor.fail("VALUES, SELECT, TABLE or another query")
    source = _source(cursor, insert_index, with_index, parameters)
    return Insert(
        cursor.text,
        cursor.offset,
        target,
        position,
        overwrite == "OVERWRITE" or where is not None or bool(using),
        source,
        columns,
        by_name,
        partition,
        where,
        using,
    )


def _replaced(
    cursor: Cursor, overwrite: str, has_partition: bool
) -> tuple[TextRange | None, tuple[str, ...]]:
    """Read `REPLACE WHERE condition` or `REPLACE USING (column, …)`."""
    if overwrite == "OVERWRITE" or has_partition:
        other = "PARTITION" if has_partition else "INSERT OVERWRITE"
        cursor.fail(
            "VALUES, SELECT, TABLE or another query",
            hint=f"REPLACE and {other} exclude each other: write INSERT INTO t REPLACE WHERE …",
        )
    cursor.next()
    if cursor.at("ON"):
        raise RefusedHere("INSERT … REPLACE ON")
    if cursor.accept("USING"):
        return None, cursor.in_brackets(lambda: cursor.identifier("a partition column"))
    if not cursor.accept("WHERE"):
        cursor.fail("WHERE or USING")
    start = cursor.position
    cursor.text_until(*_QUERY_BEGINS, what="a condition on partition columns")
    return TextRange(start, cursor.last_end), ()


def _source(
    cursor: Cursor, insert_index: int, with_index: int | None, parameters: tuple[str, ...]
) -> QueryText:
    cuts: tuple[TextRange, ...] = ()
    if with_index is not None:
        start = cursor.tokens[insert_index].start
        cuts = (TextRange(start, cursor.position),)
        cursor.index = with_index
    first = cursor.index
    query = read_query(cursor, cuts=cuts)
    names = tuple(dict.fromkeys((*parameters, *query.parameters)))
    if not query.is_values:
        return replace(query, parameters=names)
    values = cursor.at_index(first)
    decimals = decimals_of_values(values, cursor.index)
    return replace(query, parameters=names, defaults=_defaults(cursor, first), decimals=decimals)


def _defaults(cursor: Cursor, first: int) -> tuple[TextRange, ...]:
    """The ranges of DEFAULT where it is a whole value, from token `first` on."""
    tokens = cursor.tokens[first : cursor.index]
    return tuple(
        TextRange(token.start, token.end)
        for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False)
        if token.upper == "DEFAULT" and before.text in ("(", ",") and after.text in (")", ",")
    )


def _closing(cursor: Cursor) -> int:
    if not cursor.at("("):
        cursor.fail("`(`")
    return cursor.closing()


def _at_columns(cursor: Cursor) -> bool:
    """Whether a column list comes next, rather than a query in brackets."""
    if not cursor.at("("):
        return False
    first, second = cursor.peek(1), cursor.peek(2)
    return first.text != "(" and (first.upper not in QUERY_WORDS or second.text in (",", ")"))


def _columns(cursor: Cursor) -> tuple[str, ...]:
    def column() -> str:
        name = cursor.identifier("a column's name")
        if cursor.at("."):
            raise RefusedHere("INSERT into a field of a STRUCT")
        return name

    return cursor.in_brackets(column)


_CHANGES: dict[str, Callable[[Cursor, int], Statement]] = {
    "INSERT": read_insert,
    "DELETE": read_delete,
    "UPDATE": read_update,
    "MERGE": read_merge,
}
"""The statements that WITH may come before."""
