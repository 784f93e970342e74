"""How texts in quotes are written in a CSV file, found by its beginning.

Spark ends a row at every line end and takes `\\` for what escapes a quote. Spreadsheets, databases
and pandas write line ends within quotes, and double a quote (RFC 4180): such rows would be cut in
two, unseen.
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
    """Options of Spark's reader for the files at a path of this machine's, a pattern or a folder;
    by the first of them, and of that by 4 MiB."""
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
    plain = re.sub(r"\\(.)", r"\1", path)  # Spark's way to write a name with a pattern's characters
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
