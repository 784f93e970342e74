"""A page of rows as plain text and as static HTML."""

from __future__ import annotations

import datetime
import decimal
import html
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow

__all__ = ["render_html", "render_text", "shown_value"]

_WIDTH_MAX = 60


def render_text(page: pyarrow.Table, rows_max: int) -> str:
    """The first `rows_max` rows of `page` in columns, and whether more follow."""
    names = page.column_names
    rows = _rows(page, rows_max)
    cells = [[_cut(value) for value in row] for row in rows]
    right = [_is_number(page, position) for position in range(len(names))]
    widths = [
        max([len(_cut(name)), *(len(row[position]) for row in cells)])
        for position, name in enumerate(names)
    ]
    lines = []
    if names:
        lines.append(_line([_cut(name) for name in names], widths, right))
        lines.append("  ".join("-" * width for width in widths))
        lines += [_line(row, widths, right) for row in cells]
    lines.append(_footer(page, rows_max))
    return "\n".join(line.rstrip() for line in lines)


def render_html(page: pyarrow.Table, rows_max: int) -> str:
    """The same as an HTML table without scripts or styles of its own."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in page.column_names)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_cut(value))}</td>" for value in row) + "</tr>"
        for row in _rows(page, rows_max)
    )
    footer = html.escape(_footer(page, rows_max))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{footer}</p>"


def shown_value(value: Any) -> str:
    """One value as text: NULL, ISO dates and times, `0x…` for binary, JSON for nested values."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case bytes():
            return "0x" + value.hex()
        case decimal.Decimal():
            return f"{value:f}"
        case datetime.datetime():
            text = value.replace(tzinfo=None).isoformat(sep=" ")
            return text.rstrip("0").rstrip(".") if "." in text else text
        case dict() | list() | tuple():
            return json.dumps(_jsonable(value), ensure_ascii=False)
        case _:
            return str(value)


def _rows(page: pyarrow.Table, rows_max: int) -> list[list[str]]:
    shown = page.slice(0, rows_max)
    columns = [[shown_value(value) for value in _values(column)] for column in shown.columns]
    return [list(row) for row in zip(*columns, strict=True)] if columns else []


def _values(column: pyarrow.ChunkedArray) -> list[Any]:
    """The values as Python's; dates and times beyond its year 9999 as Arrow's text."""
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except (OverflowError, ValueError):
        return [str(value) if value.is_valid else None for value in column.cast("string")]


def _footer(page: pyarrow.Table, rows_max: int) -> str:
    """How many rows there are, and in which zone instants are shown (Spark's session zone)."""
    found = page.num_rows
    if found > rows_max:
        count = "the first row" if rows_max == 1 else f"the first {rows_max} rows"
        count += "; more follow"
    else:
        count = "1 row" if found == 1 else f"{found} rows"
    zones: dict[str, list[str]] = {}
    for column in page.schema:
        zone = getattr(column.type, "tz", None)
        if zone is not None:
            zones.setdefault(zone, []).append(f"`{column.name}`")
    zones = {zone: list(dict.fromkeys(names)) for zone, names in zones.items()}
    return "; ".join([count, *(f"{', '.join(names)} in {zone}" for zone, names in zones.items())])


def _cut(text: str) -> str:
    text = text.replace("\n", "\\n").replace("\t", "\\t")
    return text if len(text) <= _WIDTH_MAX else text[: _WIDTH_MAX - 1] + "…"


def _line(cells: list[str], widths: list[int], right: list[bool]) -> str:
    return "  ".join(
        cell.rjust(width) if to_right else cell.ljust(width)
        for cell, width, to_right in zip(cells, widths, right, strict=True)
    )


def _is_number(page: pyarrow.Table, position: int) -> bool:
    import pyarrow as pa

    data_type = page.schema.field(position).type
    return bool(
        pa.types.is_integer(data_type)
        or pa.types.is_floating(data_type)
        or pa.types.is_decimal(data_type)
    )


def _jsonable(value: Any) -> Any:
    match value:
        case dict():
            return {str(key): _jsonable(item) for key, item in value.items()}
        case list() if value and all(isinstance(i, tuple) and len(i) == 2 for i in value):
            return {shown_value(key): _jsonable(item) for key, item in value}  # a map
        case list() | tuple():
            return [_jsonable(item) for item in value]
        case None | bool() | int() | float() | str():
            return value
        case decimal.Decimal():
            return f"{value:f}"
        case _:
            return shown_value(value)
