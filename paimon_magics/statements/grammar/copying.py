"""Reads COPY INTO, both ways.

The syntax is that of Paimon's connector (`copyIntoTable` and `copyIntoLocation` in
`PaimonSqlExtensions.g4`), with clauses in any order, and FILES, VALIDATE, REJECTED_ROWS,
PARTITION BY and SINGLE. Its texts keep a backslash before most characters, unlike Spark's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from paimon_magics.errors import likely_meant
from paimon_magics.statements.clauses.names import table_name
from paimon_magics.statements.copying import (
    ON_ERROR,
    CopyIntoFiles,
    CopyIntoTable,
    FileFormat,
)
from paimon_magics.statements.lexing.cursor import Cursor
from paimon_magics.statements.lexing.tokens import IDENTIFIER_KINDS, tokenize
from paimon_magics.statements.queries.query_text import at_query, read_query
from paimon_magics.statements.statement import QueryText

_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}
_FORM = "FILE_FORMAT = (TYPE = CSV, SKIP_HEADER = 1)"
_LOAD_CLAUSES = (
    *("FILE_FORMAT", "PATTERN", "FILES", "FORCE", "ON_ERROR", "REJECTED_ROWS"),
    *("VALIDATE",),
)
_EXPORT_CLAUSES = ("FILE_FORMAT", "OVERWRITE", "PARTITION", "SINGLE")
# What other databases write, with what does the same here.
_OTHERS = {
    "FILEFORMAT": f"Write {_FORM}.",
    "FORMAT_OPTIONS": f"Its options belong into FILE_FORMAT, as in {_FORM}.",
    "COPY_OPTIONS": "Write FORCE = TRUE after FILE_FORMAT = (…). Columns match as the table has "
    "them: ALTER TABLE … ADD COLUMNS adds one.",
    "VALIDATION_MODE": "Write VALIDATE, or VALIDATE 10 ROWS, at the end.",
    "MATCH_BY_COLUMN_NAME": "JSON, Parquet, ORC and Avro match by name; for CSV, write "
    "PARSE_HEADER = TRUE in FILE_FORMAT.",
    "HEADER": "Write it inside FILE_FORMAT = (TYPE = CSV, HEADER = TRUE).",
    "DELIMITER": f"Write FIELD_DELIMITER = '|' inside {_FORM}.",
    "CSV": f"Write {_FORM}.",
    "FORMAT": f"Write {_FORM}.",
    "WITH": f"Options belong into {_FORM}.",
    "PURGE": "Files are never deleted. A file is loaded once, so that it may stay.",
}
_QUERY_HINT = (
    "To load computed columns, write INSERT INTO t SELECT … FROM csv.`path`, which loads "
    "the files each time."
)

Values = dict[str, Any]


def read_copy(cursor: Cursor) -> CopyIntoTable | CopyIntoFiles:
    """Read what follows COPY INTO."""
    if cursor.peek().kind == "string":
        return _read_export(cursor)
    if cursor.at("@"):
        cursor.fail_at(cursor.position, "There are no stages.", "Write the path in quotes.")
    target, position = table_name(cursor, "a table's name, or a path in quotes")
    columns = None
    if cursor.at("("):
        columns = cursor.in_brackets(lambda: cursor.identifier("a column's name"))
    cursor.expect("FROM")
    if cursor.at("("):
        cursor.fail_at(cursor.position, "COPY INTO loads files, not a query.", _QUERY_HINT)
    path_position = cursor.position
    path = _path(cursor)
    readers: dict[str, Callable[[Cursor], Values]] = {
        "FILE_FORMAT": _file_format,
        "PATTERN": lambda at: {"pattern": _assigned(at, _text)},
        "FILES": lambda at: {"files": _assigned(at, lambda c: c.in_brackets(lambda: _text(c)))},
        "FORCE": lambda at: {"force": _assigned(at, _boolean)},
        "ON_ERROR": lambda at: {"on_error": _assigned(at, _on_error)},
        "REJECTED_ROWS": lambda at: {"rejected": _assigned(at, lambda c: table_name(c)[0])},
        "VALIDATE": _validate,
    }
    values = _clauses(cursor, readers, _LOAD_CLAUSES)
    return CopyIntoTable(
        cursor.text, cursor.offset, target, position, path, path_position, columns=columns, **values
    )


def _read_export(cursor: Cursor) -> CopyIntoFiles:
    position = cursor.position
    path = _path(cursor)
    cursor.expect("FROM")
    query_text, query = _exported(cursor)
    readers: dict[str, Callable[[Cursor], Values]] = {
        "FILE_FORMAT": _file_format,
        "OVERWRITE": lambda at: {"overwrite": _assigned(at, _boolean)},
        "PARTITION": _partition_by,
        "SINGLE": lambda at: {"single": _assigned(at, _boolean)},
    }
    values = _clauses(cursor, readers, _EXPORT_CLAUSES)
    return CopyIntoFiles(cursor.text, cursor.offset, path, position, query_text, query, **values)


def _exported(cursor: Cursor) -> tuple[str, QueryText]:
    """The query in brackets, or one that reads the table that is named; and the text that its
    ranges are offsets into."""
    if cursor.at("("):
        closing = cursor.closing()
        inner = cursor.at_index(cursor.index + 1, closing)
        if not at_query(inner):
            inner.fail("a query (SELECT, WITH, VALUES or TABLE)")
        query = read_query(inner)
        cursor.index = closing + 1
        return cursor.text, query
    if at_query(cursor):
        cursor.fail_at(cursor.position, "The query must be in brackets.", "Write FROM (SELECT …).")
    start = cursor.position
    table_name(cursor)
    text = f"SELECT * FROM {cursor.text[start : cursor.last_end]}"
    return text, read_query(Cursor(text, tokenize(text)))


def _clauses(
    cursor: Cursor, readers: dict[str, Callable[[Cursor], Values]], known: tuple[str, ...]
) -> Values:
    values: Values = {}
    seen: set[str] = set()
    while not cursor.at_end:
        token = cursor.peek()
        word = token.upper
        reader = readers.get(word)
        if reader is None:
            _unknown_clause(cursor, known)
        if word in seen:
            cursor.fail_at(token.start, f"{word} occurs twice.", "Leave one of them out.")
        seen.add(word)
        cursor.next()
        values |= reader(cursor)
    if "format" not in values:
        cursor.fail_at(
            cursor.position, "FILE_FORMAT is missing.", f"Add it, as in {_FORM}. {_types()}"
        )
    return values


def _types() -> str:
    return "The types are CSV, JSON, PARQUET, ORC and AVRO."


def _unknown_clause(cursor: Cursor, known: tuple[str, ...]) -> NoReturn:
    token = cursor.peek()
    hint = _OTHERS.get(token.upper, "") or likely_meant(token.upper, known)
    listed = f"The clauses are {', '.join(known)}."
    cursor.fail_at(
        token.start, f"COPY INTO has no clause `{token.text}` here.", f"{hint} {listed}".strip()
    )


def _assigned(cursor: Cursor, read: Callable[[Cursor], Any]) -> Any:
    cursor.expect("=")
    return read(cursor)


def _file_format(cursor: Cursor) -> Values:
    position = cursor.position
    cursor.expect("=")
    if not cursor.at("("):
        cursor.fail("`(`", hint=f"Write {_FORM}.")
    cursor.next()
    options: dict[str, str | tuple[str, ...]] = {}
    while not cursor.accept(")"):
        at = cursor.position
        key = cursor.identifier("an option, such as TYPE").upper()
        if key in options:
            cursor.fail_at(at, f"Duplicate FILE_FORMAT option: {key}.", "Leave one of them out.")
        cursor.expect("=")
        options[key] = _value(cursor)
        cursor.accept(",")
        if cursor.at_end:
            cursor.fail("`)`")
    kind = options.pop("TYPE", None)
    if kind is None:
        cursor.fail_at(position, "FILE_FORMAT must include TYPE.", f"Write {_FORM}. {_types()}")
    return {"format": FileFormat(str(kind).upper(), tuple(options.items()), position)}


def _value(cursor: Cursor) -> str | tuple[str, ...]:
    token = cursor.peek()
    if token.kind == "string":
        return _text(cursor)
    if cursor.at("("):
        return cursor.in_brackets(lambda: _text(cursor))
    if token.kind == "number":
        return cursor.next().text
    if token.upper in ("TRUE", "FALSE"):
        return cursor.next().upper
    if token.kind in IDENTIFIER_KINDS:
        return cursor.next().name
    cursor.fail("a value in quotes, a word, a number, TRUE or FALSE")


def _path(cursor: Cursor) -> str:
    token = cursor.peek()
    if token.kind != "string":
        hint = "Write the path in quotes: FROM '/data/orders/'."
        if token.text == "@":
            hint = f"There are no stages. {hint}"
        cursor.fail("a path in quotes", hint=hint)
    path = _text(cursor)
    if not path.strip():
        cursor.fail_at(token.start, "The path is empty.", "Name a file or a folder.")
    return path


def _text(cursor: Cursor) -> str:
    """A string as Paimon's connector reads it (`unquoteString`): a backslash before a character
    that needs none stays, so that '.*\\.csv' is a pattern with a dot."""
    token = cursor.peek()
    if token.kind != "string":
        cursor.fail("a text in quotes")
    cursor.next()
    quote, inner = token.text[0], token.text[1:-1]
    if quote not in "'\"":
        return token.value  # r'…' and $$…$$ mean themselves
    parts: list[str] = []
    index = 0
    while index < len(inner):
        character, after = inner[index], inner[index + 1 : index + 2]
        if character == "\\" and after:
            parts.append(quote if after == quote else _ESCAPED.get(after, f"\\{after}"))
            index += 2
        elif character == quote and after == quote:
            parts.append(quote)
            index += 2
        else:
            parts.append(character)
            index += 1
    return "".join(parts)


def _boolean(cursor: Cursor) -> bool:
    word = cursor.accept_any("TRUE", "FALSE")
    if not word:
        cursor.fail("TRUE or FALSE")
    return word == "TRUE"


def _on_error(cursor: Cursor) -> str:
    token = cursor.peek()
    word = token.text.strip("'\"").upper()
    if word not in ON_ERROR:
        hint = f"Its values are {', '.join(ON_ERROR)}."
        if word.startswith("SKIP_FILE"):
            hint = (
                f"A number of errors is not counted: SKIP_FILE leaves out a file with any. {hint}"
            )
        elif word == "ABORT":
            hint = f"Write ABORT_STATEMENT. {hint}"
        cursor.fail_at(token.start, f"ON_ERROR can't be `{token.text}`.", hint)
    cursor.next()
    return word


def _validate(cursor: Cursor) -> Values:
    rows: int | None = None
    if cursor.peek().kind == "number":
        token = cursor.next()
        if not token.text.isdigit() or int(token.text) == 0:
            cursor.fail_at(
                token.start, f"VALIDATE can't check {token.text} rows.", "Write VALIDATE 10 ROWS."
            )
        rows = int(token.text)
        cursor.expect("ROWS")
    else:
        cursor.accept("ALL")
    return {"validate": True, "validated_rows": rows}


def _partition_by(cursor: Cursor) -> Values:
    cursor.expect("BY")
    return {"partition_by": cursor.in_brackets(lambda: cursor.identifier("a column's name"))}
