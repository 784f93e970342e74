"""Lines of CSV and JSON files that don't fit the columns: counted, left out, or refused.

Spark's mode PERMISSIVE, its default, puts NULL where a line has too few values, and cuts what it
has too many, without a word; bytes that are no characters become U+FFFD. Here they are counted by a
job before the statement runs, and refused where they would become rows of a table; the modes
DROPMALFORMED and FAILFAST hold for all lines, whatever columns a statement reads. With an explicit
PERMISSIVE nothing is looked at.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

from paimon_magics.errors import InvalidValueError
from paimon_magics.planning.formatting import count_text, shortened
from paimon_magics.session.connection import Connection
from paimon_magics.spark.bad_lines import CORRUPT, BadLines, bad_lines

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame

__all__ = ["check_lines", "reader_options"]

_LOOKED_AT_MAX = 10_000_000  # lines of a file on this machine, until its first bad one is numbered
_SHOWN_MAX = 60
_CSV_PRUNING = "columnPruning"


def reader_options(kind: str, options: Mapping[str, str]) -> dict[str, str]:
    """The options for Spark's reader that let a mode hold for all lines: Spark looks only at the
    columns that a statement reads. In FAILFAST Spark's own error for a JSON file would not say
    which line: `check_lines` refuses it. Raises InvalidValueError for a mode that Spark has not."""
    mode = _mode(options)
    if mode not in ("", "PERMISSIVE", "DROPMALFORMED", "FAILFAST"):
        raise InvalidValueError(
            f"The option `mode` of a file can't be '{mode}'.",
            hint="Its values are PERMISSIVE, DROPMALFORMED and FAILFAST.",
        )
    if kind == "csv" and mode in ("DROPMALFORMED", "FAILFAST"):
        return {**options, _CSV_PRUNING: "false"}
    if kind == "json" and mode == "FAILFAST":
        return {key: value for key, value in options.items() if key.lower() != "mode"}
    return dict(options)


def check_lines(
    connection: Connection,
    kind: str,
    path: str,
    shown: str,
    options: Mapping[str, str],
    frame: DataFrame,
) -> None:
    """Tell how many lines of files don't fit the columns of `frame`, with an example; `shown` is
    the path as the user wrote it. Raises InvalidValueError for such lines in the mode FAILFAST, and
    without a mode where they would fill a table."""
    mode = _mode(options)
    if kind not in ("csv", "json") or mode == "PERMISSIVE" or not frame.columns:
        return
    if kind == "json" and not mode and CORRUPT not in frame.columns:
        return  # Spark has read all lines already, to find their columns
    if frame.columns == [CORRUPT]:
        return  # the rows say it themselves
    lines = bad_lines(connection.spark, kind, path, options, frame.schema)
    if not mode and connection.fills_table:
        mode = "FAILFAST"
    notes = _notes(lines, kind, shown, len(frame.columns), mode)
    if mode == "FAILFAST" and notes:
        raise InvalidValueError(
            " ".join(notes),
            hint="Nothing was written. Correct the file, or name its 'encoding' or 'sep' behind "
            "it. WITH ('mode' = 'DROPMALFORMED') leaves lines out that don't fit, 'PERMISSIVE' "
            "stores them as Spark reads them.",
        )
    for note in notes:
        connection.tell(note)


def _mode(options: Mapping[str, str]) -> str:
    by_name = {key.lower(): value for key, value in options.items()}
    return str(by_name.get("mode", "")).upper()


def _notes(bad: BadLines, kind: str, shown: str, columns: int, mode: str) -> list[str]:
    notes = []
    if bad.unfit:
        lines = count_text(bad.unfit, "line" if kind == "csv" else "object")
        verb = "does" if bad.unfit == 1 else "do"
        fits = f"{columns} columns" if kind == "csv" else "columns"
        became = {
            "DROPMALFORMED": " and " + ("was" if bad.unfit == 1 else "were") + " left out",
            "FAILFAST": "",
        }.get(mode, "; missing values are NULL, those beyond the last column are cut")
        if kind == "json" and not mode:
            became = "; their values are NULL"
        notes.append(
            f"{lines} of `{shown}` {verb} not fit its {fits}{became}: {_place(bad.unfit_at)}."
        )
        if not mode:
            notes[-1] += (
                " WITH ('mode' = 'FAILFAST') behind it refuses them, 'DROPMALFORMED' leaves "
                "them out."
            )
    if bad.undecoded:
        rows = count_text(bad.undecoded, "row")
        has = "has" if bad.undecoded == 1 else "have"
        notes.append(
            f"{rows} of `{shown}` {has} bytes that are no characters of its encoding, as in "
            f"{_file(bad.undecoded_at[0])}: {shortened(bad.undecoded_at[1], _SHOWN_MAX)!r}. "
            "WITH ('encoding' = 'ISO-8859-1') is for files that are not UTF-8."
        )
    return notes


def _place(at: tuple[str, str]) -> str:
    path, line = at
    number = _line_number(path, line)
    text = shortened(line.strip(), _SHOWN_MAX)
    return f"{_file(path)}, {'' if number is None else f'line {number:,}, '}{text!r}"


def _file(path: str) -> str:
    return unquote(path.rpartition("/")[2])


def _line_number(path: str, line: str) -> int | None:
    """The number of a line in a file on this machine; None where it is not there, or not known."""
    place = urlparse(path)
    if place.scheme != "file":
        return None
    name = unquote(place.path)
    wanted = line.rstrip("\r\n").encode()
    try:
        with gzip.open(name) if name.endswith(".gz") else open(name, "rb") as file:
            for number, content in enumerate(islice(file, _LOOKED_AT_MAX), 1):
                if content.rstrip(b"\r\n") == wanted:
                    return number
    except OSError:
        return None
    return None
