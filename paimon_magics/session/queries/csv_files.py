"""How Spark reads CSV files that a query names: their header, types, quotes and line ends.

Spark reads such a file without a header and every value as text. Here the first line has the column
names, and Spark infers types from the values: whole numbers become INT or BIGINT, or DECIMAL beyond
that, numbers with a point DOUBLE. Options after the file's name may say otherwise.
"""

from __future__ import annotations

import csv
import glob
import gzip
import io
import os
import re
from collections.abc import Mapping

from paimon_magics.session.scope import StatementScope

_GUESSED = {"header": "true", "inferSchema": "true"}
_SEPARATORS = (";", "\t", "|")
_LOOKED_AT_BYTES = 4 * 2**20
_DOUBLED = re.compile(r'[^,;\t|\r\n"]""|""[^,;\t|\r\n"]')


def with_guesses(
    scope: StatementScope, options: Mapping[str, str], shown: str, path: str
) -> dict[str, str]:
    """The options for Spark's reader of the files at `path`, "" for files that are not on this
    machine; options that are set stay. Adds notes on what is guessed. `shown` is the path as the
    user wrote it."""
    set_keys = {key.lower() for key in options}

    def unset(guesses: Mapping[str, str]) -> dict[str, str]:
        return {key: value for key, value in guesses.items() if key.lower() not in set_keys}

    guessed = unset(_GUESSED)
    if guessed:
        scope.note(_reading_note(shown, guessed))
    separator = options.get("sep", ",")
    if not path or len(separator) != 1:
        return {**options, **guessed}
    quotes = unset(quoting(path, separator))
    if "multiLine" in quotes:
        scope.note("Some values contain line breaks, so one task read each file as a whole.")
    return {**options, **guessed, **quotes}


def separator_in(name: str) -> str | None:
    """The separator that the name of a file's only column contains, None without one."""
    return next((separator for separator in _SEPARATORS if separator in name), None)


def _reading_note(path: str, guessed: Mapping[str, str]) -> str:
    parts = []
    if "header" in guessed:
        parts.append("names from its first line")
    if "inferSchema" in guessed:
        parts.append("types from its values")
    return (
        f"`{path}` was read with {' and '.join(parts)}. To change that, add "
        "WITH ('header' = 'false', 'inferSchema' = 'false') after the path."
    )


# The quoting style of a CSV file, found from its beginning.
#
# By default Spark ends a row at every line end and takes `\` as the escape of a quote.
# Spreadsheets, databases and pandas write line ends within quotes and double a quote (RFC 4180),
# and Spark would silently cut such rows in two.


def quoting(path: str, separator: str) -> dict[str, str]:
    """Return the options about quotes for Spark's reader of the files at a local path, pattern or
    folder; decided by the first 4 MiB of the first file."""
    text = _beginning(path)
    if '"' not in text:
        return {}
    options = {}
    if _DOUBLED.search(text) and '\\"' not in text:
        options["escape"] = '"'
    lines = text[: text.rfind("\n") + 1]
    try:
        rows = sum(1 for _ in csv.reader(io.StringIO(lines, newline=""), delimiter=separator))
    except csv.Error:
        return options
    if rows < len(lines.splitlines()):
        options["multiLine"] = "true"
    return options


def _beginning(path: str) -> str:
    plain = re.sub(r"\\(.)", r"\1", path)  # Spark escapes a pattern's characters in a name
    for name in [plain] if plain != path else sorted(glob.glob(path)):
        if os.path.isdir(name):
            name = next(iter(sorted(glob.glob(os.path.join(glob.escape(name), "[!._]*")))), "")
        if not os.path.isfile(name):
            continue
        opened = gzip.open if name.endswith(".gz") else open
        try:
            with opened(name, "rb") as file:
                return file.read(_LOOKED_AT_BYTES).decode("utf-8-sig", "replace")
        except OSError:
            return ""
    return ""
