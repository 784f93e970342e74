"""How much a query is going to give, as far as Spark knows before it runs."""

from __future__ import annotations

import io
import re
import sys
import threading
from contextlib import redirect_stdout
from typing import TextIO

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

__all__ = ["estimated_bytes"]

_SIZE = re.compile(r"Statistics\(sizeInBytes=([\d.]+(?:E\+?\d+)?) (\w+)")
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def estimated_bytes(frame: DataFrame) -> float | None:
    """Spark's estimate of the rows of `frame` in bytes; None where it has none.

    Runs no job. The estimate is good for scans and ranges, and far too high after most joins.
    """
    try:
        found = _SIZE.search(_explained(frame))
    except PySparkException:
        return None
    if found is None or found[2] not in _UNITS:
        return None
    return float(found[1]) * 1024.0 ** _UNITS.index(found[2])


def _explained(frame: DataFrame) -> str:
    """The text of the plan with its statistics, which have no other place in the public interface.

    Spark prints it. EXPLAIN COST, which gives it, plans a statement of its own beside it, and
    takes several times as long.
    """
    printed = _PrintedHere(sys.stdout)
    with redirect_stdout(printed):
        frame.explain(mode="cost")
    return printed.text.getvalue()


class _PrintedHere(io.TextIOBase):
    """Keeps what this thread prints; what others print meanwhile goes where it would have gone."""

    def __init__(self, stream: TextIO) -> None:
        self.text = io.StringIO()
        self._stream = stream
        self._thread = threading.get_ident()

    def write(self, text: str) -> int:
        here = threading.get_ident() == self._thread
        return (self.text if here else self._stream).write(text)

    def flush(self) -> None:
        if threading.get_ident() != self._thread:
            self._stream.flush()
