"""A page of rows as plain text and as static HTML.

A notebook keeps both, so they are bounded by rows and by characters. A line below the rows says
what was left out.
"""

from __future__ import annotations

import datetime
import decimal
import html
import json
import math
from typing import TYPE_CHECKING, Any

from paimon_magics.columnar.python_values import python_values
from paimon_magics.columnar.time_zones import clock_text, zones_of
from paimon_magics.planning.formatting import count_text, shortened

if TYPE_CHECKING:
    import pyarrow

_WIDTH_MAX = 60
_KEPT_ROWS_MAX = 1_000
_KEPT_CHARACTERS_MAX = 200_000
_CELL_CHARACTERS = 20
"""The limits of one result in a notebook, for text and for HTML each: rows, and characters. A cell
counts with its own characters and `_CELL_CHARACTERS` more for its markup."""


def render_text(page: pyarrow.Table, rows_max: int) -> str:
    """Return the first `rows_max` rows of `page` as text columns, with a line on whether more
    follow."""
    names = page.column_names
    cells = _rows(page, rows_max)
    right = [is_number(field.type) for field in page.schema]
    widths = [
        max([len(cut_text(name)), *(len(row[position]) for row in cells)])
        for position, name in enumerate(names)
    ]
    lines = []
    if names:
        lines.append(_line([cut_text(name) for name in names], widths, right))
        lines.append("  ".join("-" * width for width in widths))
        lines += [_line(row, widths, right) for row in cells]
    lines.append(_footer(page, rows_max, len(cells) if names else None))
    return "\n".join(line.rstrip() for line in lines)


def render_html(page: pyarrow.Table, rows_max: int) -> str:
    """Return the same as an HTML table without scripts; numbers are aligned right."""
    sides = ["right" if is_number(field.type) else "left" for field in page.schema]
    head = _html_cells("th", page.column_names, sides)
    rows = _rows(page, rows_max)
    body = "".join(f"<tr>{_html_cells('td', row, sides)}</tr>" for row in rows)
    footer = html.escape(_footer(page, rows_max, len(rows) if page.column_names else None))
    return (
        f'<table style="margin-left:0"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        f"<p>{footer}</p>"
    )


def _html_cells(tag: str, texts: list[str], sides: list[str]) -> str:
    return "".join(
        f'<{tag} style="text-align:{side}">{html.escape(text)}</{tag}>'
        for text, side in zip(texts, sides, strict=True)
    )


def shown_value(value: Any) -> str:
    """One value as text: NULL, ISO dates and times, `0x…` for binary, JSON for nested values.

    An instant is shown as the wall clock of its zone, by `clock_text`.
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case bytes():
            return "0x" + value.hex()
        case decimal.Decimal():
            return f"{value:f}"
        case datetime.datetime():
            return clock_text(value)
        case dict() | list() | tuple():
            return json.dumps(_jsonable(value), ensure_ascii=False)
        case _:
            return str(value)


def _rows(page: pyarrow.Table, rows_max: int) -> list[list[str]]:
    """The cells of the first `rows_max` rows, or of fewer at the limits of a notebook."""
    shown = page.slice(0, min(rows_max, _KEPT_ROWS_MAX))
    columns = [
        [cut_text(shown_value(value)) for value in shown_values(column)] for column in shown.columns
    ]
    rows: list[list[str]] = []
    characters = 0
    for row in zip(*columns, strict=True):
        characters += sum(len(cell) + _CELL_CHARACTERS for cell in row)
        if rows and characters > _KEPT_CHARACTERS_MAX:
            break
        rows.append(list(row))
    return rows


def shown_values(column: pyarrow.ChunkedArray) -> list[Any]:
    """The values as Python objects (`columnar.python_values`), as `shown_value` takes them."""
    return python_values(column)


def _footer(page: pyarrow.Table, rows_max: int, shown: int | None) -> str:
    """The line below the rows: how many there are, how many of them are `shown` if the limits cut
    some off, and the zone of instants (Spark's session zone)."""
    fetched = page.num_rows
    if shown is not None and shown < min(fetched, rows_max):
        of_all = f" of {fetched:,}" if fetched <= rows_max else f" of more than {rows_max:,}"
        count = f"the first {count_text(shown, 'row')}{of_all}"
        count += ", more than a notebook should keep; .to_pandas() has all of them"
    elif fetched > rows_max:
        count = "the first row" if rows_max == 1 else f"the first {rows_max} rows"
        count += "; more follow"
    else:
        count = count_text(fetched, "row")
    return "; ".join([count, *zones_text(page.schema)])


def zones_text(schema: pyarrow.Schema) -> list[str]:
    """For each zone, a text that names it and the columns whose instants are shown in it."""
    return [
        f"{', '.join(f'`{name}`' for name in names)} in {zone}"
        for zone, names in zones_of(schema).items()
    ]


def cut_text(text: str) -> str:
    """The text on one line, cut where it is too long for a column."""
    return shortened(text.replace("\n", "\\n").replace("\t", "\\t"), _WIDTH_MAX)


def _line(cells: list[str], widths: list[int], right: list[bool]) -> str:
    return "  ".join(
        cell.rjust(width) if to_right else cell.ljust(width)
        for cell, width, to_right in zip(cells, widths, right, strict=True)
    )


def is_number(data_type: pyarrow.DataType) -> bool:
    """Whether the type is numeric; such values are aligned right."""
    import pyarrow as pa

    return bool(
        pa.types.is_integer(data_type)
        or pa.types.is_floating(data_type)
        or pa.types.is_decimal(data_type)
    )


_TYPE_NAMES = {
    "bool": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "STRING",
    "large_string": "STRING",
    "binary": "BINARY",
    "large_binary": "BINARY",
    "date32[day]": "DATE",
    "null": "VOID",
}


def type_text(data_type: pyarrow.DataType) -> str:
    """A type's name in SQL: `DECIMAL(10, 2)`, `ARRAY<INT>`."""
    import pyarrow as pa

    types = pa.types
    if types.is_decimal(data_type):
        return f"DECIMAL({data_type.precision}, {data_type.scale})"
    if types.is_timestamp(data_type):
        return "TIMESTAMP" if data_type.tz else "TIMESTAMP_NTZ"
    if types.is_duration(data_type):
        return "INTERVAL DAY TO SECOND"
    if types.is_map(data_type):
        return f"MAP<{type_text(data_type.key_type)}, {type_text(data_type.item_type)}>"
    if types.is_list(data_type) or types.is_large_list(data_type):
        return f"ARRAY<{type_text(data_type.value_type)}>"
    if types.is_struct(data_type):
        return (
            f"STRUCT<{', '.join(f'{field.name}: {type_text(field.type)}' for field in data_type)}>"
        )
    return _TYPE_NAMES.get(str(data_type), str(data_type).upper())


def _jsonable(value: Any) -> Any:
    match value:
        case dict():
            return {_key_text(key): _jsonable(item) for key, item in value.items()}
        case list() if value and all(isinstance(i, tuple) and len(i) == 2 for i in value):
            return {shown_value(key): _jsonable(item) for key, item in value}  # a map
        case list() | tuple():
            return [_jsonable(item) for item in value]
        case float() if not math.isfinite(value):
            return shown_value(value)  # JSON has no NaN or infinity
        case None | bool() | int() | float() | str():
            return value
        case decimal.Decimal():
            return f"{value:f}"
        case _:
            return shown_value(value)


def _key_text(key: Any) -> str:
    return key if isinstance(key, str) else shown_value(key)
