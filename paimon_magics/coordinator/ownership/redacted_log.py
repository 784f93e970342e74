"""The log of a coordinator's process and its libraries, without secrets.

Everything that Python writes to the error stream goes through here: log records, warnings, and the
tracebacks of threads.
"""

from __future__ import annotations

import io
import logging
import sys
from typing import TextIO

from paimon_magics.redaction import redacted

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _Redacting(io.TextIOBase):
    """A stream that passes texts on to another one without their secrets."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(redacted(text))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return self._stream.isatty()


def keep_secrets_out_of_logs() -> None:
    """Log warnings and errors of this process to its error stream, without secrets."""
    sys.stderr = _Redacting(sys.stderr)
    logging.basicConfig(level=logging.WARNING, format=_FORMAT, stream=sys.stderr)
