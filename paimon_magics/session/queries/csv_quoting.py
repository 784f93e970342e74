"""The quoting style of a CSV file, found from its beginning.

By default Spark ends a row at every line end and takes `\\` as the escape of a quote. Spreadsheets,
databases and pandas write line ends within quotes and double a quote (RFC 4180), and Spark would
silently cut such rows in two.
"""

from __future__ import annotations

import csv
import glob
import gzip
import io
import os
import re

__all__ = ["quoting"]

_LOOKED_AT_BYTES = 4 * 2**20
_DOUBLED = re.compile(r'[^,;\t|\r\n"]""|""[^,;\t|\r\n"]')


def quoting(path: str, separator: str) -> dict[str, str]:
    """Return options of Spark's reader for the files at a local path, pattern or folder; decided by
    the first 4 MiB of the first file."""
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
    for found in [plain] if plain != path else sorted(glob.glob(path)):
        if os.path.isdir(found):
            found = next(iter(sorted(glob.glob(os.path.join(glob.escape(found), "[!._]*")))), "")
        if not os.path.isfile(found):
            continue
        opened = gzip.open if found.endswith(".gz") else open
        try:
            with opened(found, "rb") as file:
                return file.read(_LOOKED_AT_BYTES).decode("utf-8-sig", "replace")
        except OSError:
            return ""
    return ""
