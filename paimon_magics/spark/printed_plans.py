"""The texts of Spark's plans, which its public interface prints and does not return."""

from __future__ import annotations

import io
import sys
import threading
from contextlib import redirect_stdout
from typing import TextIO

from pyspark.sql import DataFrame

__all__ = ["printed_plan"]

# Streams write in threads of their own: two that replaced sys.stdout at once would each put back
# what the other had put there.
_TURN = threading.Lock()


def printed_plan(frame: DataFrame, mode: str) -> str:
    """The plan of `frame` as `explain` prints it; `mode` is one of Spark's: `simple`, `extended`,
    `cost`, `codegen` or `formatted`. What other threads print meanwhile is printed.

    EXPLAIN COST returns the text, but plans a statement of its own as well, which takes several
    times as long.
    """
    with _TURN:
        printed = _PrintedHere(sys.stdout)
        with redirect_stdout(printed):
            frame.explain(mode=mode)
    return printed.text.getvalue()


class _PrintedHere(io.TextIOBase):
    """Keeps what this thread prints; what other threads print goes to `stream`."""

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
