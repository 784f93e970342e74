"""COPY INTO in Python: `Session.copy_into` writes the statement's text and runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from paimon_magics.boundary import short_errors
from paimon_magics.errors import InvalidValueError, nearest, value_text
from paimon_magics.session.outcome import Outcome
from paimon_magics.statements.clauses.names import named, spelled, table_text

_LOAD = ("pattern", "files", "force", "on_error", "rejected_rows", "validate")
_EXPORT = ("overwrite", "partition_by", "single")


class _Runs(Protocol):
    def run(self, text: str) -> Outcome: ...


@short_errors
class CopySurface:
    """The method of a Session that copies files."""

    def copy_into(
        self: _Runs,
        target: str,
        source: str,
        type: str,
        *,
        columns: Sequence[str] | None = None,
        options: Mapping[str, object] | None = None,
        **clauses: object,
    ) -> Outcome:
        """Load files into a table, or write a table's or query's rows into files, as COPY INTO:

            session.copy_into("shop.orders", "/data/orders/", "CSV", options={"SKIP_HEADER": 1})
            session.copy_into("/export/orders/", "shop.orders", "PARQUET", overwrite=True)

        A target with a slash is a path; its source is a table's name or a query. `type` is CSV,
        JSON, PARQUET, ORC or AVRO, `options` are those of FILE_FORMAT. `columns` are the table's
        columns to load. Clauses of a load: `pattern`, `files`, `force`, `on_error`,
        `rejected_rows`, `validate` (True, or a number of rows); of an export: `overwrite`,
        `partition_by`, `single`. Raises what the statement raises.
        """
        return self.run(copy_text(target, source, type, columns, options or {}, clauses))


def copy_text(
    target: str,
    source: str,
    type: str,
    columns: Sequence[str] | None,
    options: Mapping[str, object],
    clauses: Mapping[str, object],
) -> str:
    """The text of a COPY INTO. Raises InvalidValueError for an unknown clause or a value of another
    type, UnsupportedStatementError for a text that is no table's name."""
    if not all(isinstance(text, str) for text in (target, source, type)):
        raise InvalidValueError(
            "The target, the source and the type are texts.",
            hint="Call session.copy_into('orders', '/data/orders/', 'CSV').",
        )
    is_export = "/" in target
    known = _EXPORT if is_export else _LOAD
    for name in clauses:
        if name not in known:
            kind = "an export" if is_export else "a load"
            raise InvalidValueError(
                f"copy_into has no argument `{name}` for {kind}.",
                hint=nearest(name, known, what="arguments"),
            )
    form = ", ".join([f"TYPE = {type}", *(f"{key} = {_value(options[key])}" for key in options)])
    if is_export:
        is_query = " " in source.strip()
        rows = f"({source})" if is_query else table_text_of(source)
        head = f"COPY INTO {_text(target)} FROM {rows}"
    else:
        listed = f" ({', '.join(map(spelled, columns))})" if columns else ""
        head = f"COPY INTO {table_text_of(target)}{listed} FROM {_text(source)}"
    parts = [head, f"FILE_FORMAT = ({form})", *_clauses(clauses)]
    return " ".join(parts)


def table_text_of(name: str) -> str:
    """A table's name, as a program writes it, in SQL."""
    table = named(name)
    catalog = "" if table.catalog is None else f"{spelled(table.catalog)}."
    return f"{catalog}{table_text(table)}"


def _clauses(clauses: Mapping[str, object]) -> list[str]:
    texts = []
    for name, value in clauses.items():
        match name:
            case "validate":
                is_count = isinstance(value, int) and not isinstance(value, bool)
                texts.append(f"VALIDATE {value} ROWS" if is_count else "VALIDATE" if value else "")
            case "partition_by":
                names = [value] if isinstance(value, str) else _texts(name, value)
                texts.append(f"PARTITION BY ({', '.join(map(spelled, names))})")
            case "rejected_rows":
                texts.append(f"REJECTED_ROWS = {table_text_of(str(value))}")
            case "on_error":
                texts.append(f"ON_ERROR = {value}")
            case "files":
                texts.append(f"FILES = ({', '.join(map(_text, _texts(name, value)))})")
            case _:
                texts.append(f"{name.upper()} = {_value(value)}")
    return [text for text in texts if text]


def _texts(name: str, value: object) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InvalidValueError(
            f"`{name}` is {value_text(value)}, not a list.", hint=f"Give {name}=['…']."
        )
    return [str(each) for each in value]


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return _text(value)
    return f"({', '.join(map(_text, _texts('the option', value)))})"


def _text(text: str) -> str:
    """A text in quotes, as COPY INTO reads it."""
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return "'" + escaped.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r") + "'"
