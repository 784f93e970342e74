"""The beginnings of text files, on this machine or in an object store: what shows how they are
written."""

from __future__ import annotations

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import IO, TYPE_CHECKING, cast

from paimon_magics.tables.stores.paths import local_path
from paimon_magics.tables.stores.store import OBJECT_SCHEMES, Stores

if TYPE_CHECKING:
    from paimon_magics.tables.stores.object_store import ObjectStore

LOOKED_AT_BYTES = 4 * 2**20
"""How much of a file is looked at."""

SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
"""What a URI begins with, and no path of this machine."""

MARK = "\ufeff"
"""What the text of a file in UTF-16 begins with."""

_BETWEEN = re.compile(r"[ \t\r\n,]*")
_ALL_BYTES = 64 * 2**20
_FILES_MAX = 100
_UTF_16_MARKS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
# Spark decompresses by the name's ending.
_COMPRESSED = (".bz2", ".lz4", ".snappy", ".deflate", ".zst", ".zstd", ".xz")


def beginnings(stores: Stores, places: Iterable[str], encoding: str = "") -> Iterator[str]:
    """The first 4 MiB of each of the first 100 files, 64 MiB in all, as text. "" for a file that
    can't be read, that is compressed by other means than gzip, or whose store is no object store.
    Plain paths are those of this machine. Without an encoding, a file that begins with a mark of
    UTF-16 is read so, and its text begins with MARK. Raises SetupError if a store refuses."""
    left_bytes = _ALL_BYTES
    for number, place in enumerate(places):
        if number == _FILES_MAX or left_bytes <= 0:
            return
        content = b""
        if not place.endswith(_COMPRESSED):
            with suppress(OSError, EOFError, zlib.error):
                content = _beginning(stores, place)
        left_bytes -= len(content)
        yield _text(content, encoding)


def values_of_lines(text: str) -> Iterator[object]:
    """The JSON values of the lines of a file's beginning, None for a malformed line. The last line
    may be cut, and does not count where it is malformed."""
    lines = text.split("\n")  # no other character ends a line of JSON
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield json.loads(line)
        except ValueError:
            if number < len(lines):
                yield None


def whole_values(text: str) -> Iterator[object]:
    """The JSON value that a file's beginning has, or the values of its list, until the text is cut
    or malformed."""
    decoder = json.JSONDecoder()
    text = text.lstrip()
    is_list = text.startswith("[")
    position = int(is_list)
    with suppress(ValueError):  # the list's end, too
        while True:
            value, position = decoder.raw_decode(text, _gap_end(text, position))
            yield value
            if not is_list:
                return


def lines_of_first_value(text: str) -> tuple[int, bool]:
    """How many lines the first JSON value of a file's beginning takes, 0 if there is none or it is
    cut, and whether anything follows it."""
    start = len(text) - len(text.lstrip())
    try:
        _, end = json.JSONDecoder().raw_decode(text, start)
    except ValueError:
        return 0, False
    return text.count("\n", start, end) + 1, bool(text[end:].strip())


def _gap_end(text: str, position: int) -> int:
    gap = _BETWEEN.match(text, position)
    return position if gap is None else gap.end()


def _beginning(stores: Stores, place: str) -> bytes:
    with _opened(stores, place) as file:
        if not place.endswith(".gz"):
            return file.read(LOOKED_AT_BYTES)
        with gzip.GzipFile(fileobj=file) as unzipped:
            return unzipped.read(LOOKED_AT_BYTES)


def _opened(stores: Stores, place: str) -> IO[bytes]:
    if local_path(place) is not None:
        return open(place, "rb")
    if place.partition("://")[0] not in OBJECT_SCHEMES:
        raise FileNotFoundError(place)
    return cast("IO[bytes]", cast("ObjectStore", stores.of(place)).open(place))


def _text(content: bytes, encoding: str) -> str:
    for mark, name in _UTF_16_MARKS.items():
        if content.startswith(mark) and not encoding:
            return content[: len(content) // 2 * 2].decode(name, "replace")
    try:
        return content.decode(encoding or "utf-8-sig", "replace")
    except LookupError:  # Java's name of an encoding
        return content.decode("utf-8-sig", "replace")
