"""The log of a coordinator's process: what it and its libraries say, without secrets.

Whatever Python writes to the error stream goes through here: log records, warnings, the traces of
threads that ended by an exception.
"""

from __future__ import annotations

import io
import logging
import sys
from typing import TextIO

from paimon_magics.redaction import redacted

__all__ = ["keep_secrets_out_of_logs"]

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _Redacting(io.TextIOBase):
    """A stream before another one, which gets texts without secrets."""

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
    """Let this process log warnings and worse to its error stream, from which secrets are gone."""
    sys.stderr = _Redacting(sys.stderr)
    logging.basicConfig(level=logging.WARNING, format=_FORMAT, stream=sys.stderr)
