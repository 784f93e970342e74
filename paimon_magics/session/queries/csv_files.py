"""How Spark reads CSV files that a query names: their header, types, quotes and line ends.

Spark reads such a file without a header and every value as text. Here the first line has the column
names, and Spark infers types from the values: whole numbers become INT or BIGINT, or DECIMAL beyond
that, numbers with a point DOUBLE. Options after the file's name may say otherwise.
"""

from __future__ import annotations

import csv
import glob
import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from paimon_magics.errors import PaimonMagicsError
from paimon_magics.planning.copying.file_formats import whole_files
from paimon_magics.session.queries.file_beginnings import MARK, SCHEME, beginnings
from paimon_magics.session.scope import StatementScope
from paimon_magics.tables.stores.paths import plain_location

_GUESSED = {"header": "true", "inferSchema": "true"}
_SEPARATORS = (";", "\t", "|")


def with_guesses(
    scope: StatementScope, options: Mapping[str, str], shown: str, path: str
) -> dict[str, str]:
    """The options for Spark's reader of the files at `path`, a local path or a URI, "" for files
    that this process does not see; options that are set stay. Adds notes on what is guessed.
    `shown` is the path as the user wrote it."""
    set_keys = {key.lower() for key in options}

    def unset(guesses: Mapping[str, str]) -> dict[str, str]:
        return {key: value for key, value in guesses.items() if key.lower() not in set_keys}

    guessed = unset(_GUESSED)
    if guessed:
        scope.note(_reading_note(shown, guessed))
    separator = options.get("sep", ",")
    if not path or len(separator) != 1:
        return {**options, **guessed}
    encoding = options.get("encoding", "")
    texts = list(first_beginnings(scope, path, encoding))
    quotes = quoting((text.lstrip(MARK) for text in texts), separator, options.get("quote", '"'))
    quotes = unset(quotes)
    if "multiLine" in quotes:
        scope.note("Some values contain line breaks, so one task read each file as a whole.")
    if not encoding and any(text.startswith(MARK) for text in texts):
        encoding = "UTF-16"
        quotes["encoding"] = encoding
        scope.note(f"`{shown}` is in UTF-16, as its first two bytes say.")
    return {**options, **guessed, **unset(whole_files(encoding, options)), **quotes}


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


def quoting(texts: Iterable[str], separator: str, quote: str = '"') -> dict[str, str]:
    """Return the options about quotes for Spark's reader of files that begin with these texts: a
    doubled quote is the escape of one, and values have line ends."""
    options: dict[str, str] = {}
    if len(quote) != 1 or len(separator) != 1:
        return options
    doubled = _doubled(quote)
    for text in texts:
        if quote not in text:
            continue
        escape = "\\" if f"\\{quote}" in text else None
        if doubled.search(text) and escape is None:
            options["escape"] = quote
        if "multiLine" not in options and _has_line_ends(text, separator, quote, escape):
            options["multiLine"] = "true"
        if len(options) == 2:
            break
    return options


def _doubled(quote: str) -> re.Pattern[str]:
    q = re.escape(quote)
    text = rf"[^,;\t|\r\n{q}]"
    return re.compile(f"{text}{q}{q}|{q}{q}{text}|{q}{q}{q}")


def _has_line_ends(text: str, separator: str, quote: str, escape: str | None) -> bool:
    """Whether values of the whole lines of a text have line ends. Quotes in values are doubled
    where they have no `escape`."""
    lines = text[: text.rfind("\n") + 1]
    source = io.StringIO(lines, newline="")
    try:
        reader = csv.reader(
            source,
            delimiter=separator,
            quotechar=quote,
            escapechar=escape,
            doublequote=escape is None,
        )
        rows = sum(1 for _ in reader)
    except csv.Error:
        return False
    return rows < len(lines.splitlines())


def first_beginnings(scope: StatementScope, path: str, encoding: str = "") -> Iterator[str]:
    """The beginning of the first file at a path or folder, or that a local pattern fits, as
    `beginnings` gives it."""
    if SCHEME.match(path):
        yield from beginnings(scope.catalog.stores, _first_stored(scope, path), encoding)
        return
    plain = re.sub(r"\\(.)", r"\1", path)  # Spark escapes a pattern's characters in a name
    for name in [plain] if plain != path else sorted(glob.glob(path)):
        if os.path.isdir(name):
            name = next(iter(sorted(glob.glob(os.path.join(glob.escape(name), "[!._]*")))), "")
        if os.path.isfile(name):
            yield from beginnings(scope.catalog.stores, [name], encoding)
            return


def _first_stored(scope: StatementScope, path: str) -> list[str]:
    """The first file at a path or folder of another store; none where that can't be known."""
    with suppress(PaimonMagicsError, OSError):
        place = plain_location(path).rstrip("/")
        store = scope.catalog.stores.of(place)
        if store.size(place) is not None:
            return [place]
        names = sorted(name for name in store.names(place) if not name.startswith(("_", ".")))
        return [f"{place}/{name}" for name in names[:1]]
    return []
